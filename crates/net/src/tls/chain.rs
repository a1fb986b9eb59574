//! Whether a certificate may be believed: a chain from it to an authority that is trusted.
//!
//! The rules are those of OpenSSL as the reference uses it: every signature, every lifetime, who
//! may sign and how long the chain may be, and what the certificate may be used for. Names are not
//! compared with anything. See `docs/decisions/005-tls-verification.md`.

use rustls::CertificateError;
use rustls::pki_types::SignatureVerificationAlgorithm;

use super::certificate::Certificate;

/// Most certificates between the peer's and the root.
const DEPTH_MAX: usize = 16;

/// Most signatures checked for one chain: a peer chooses what it sends.
const CHECKS_MAX: u32 = 64;

/// What the peer uses its certificate for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The peer connects to us.
    Client,
    /// The peer is connected to by us.
    Server,
}

/// Everything a chain is checked against.
pub(crate) struct Checker<'a> {
    /// The content of the CA file.
    pub(crate) trusted: &'a [Certificate],
    /// What the peer sent beside its certificate.
    pub(crate) presented: &'a [Certificate],
    /// Seconds since 1970.
    pub(crate) now: u64,
    pub(crate) algorithms: &'a [&'a dyn SignatureVerificationAlgorithm],
}

impl Checker<'_> {
    /// Finds a chain from `leaf` to a root.
    ///
    /// # Errors
    /// Why there is none: of the first chain that was tried, if there are several.
    pub(crate) fn check(
        &self,
        leaf: &Certificate,
        purpose: Purpose,
    ) -> Result<(), CertificateError> {
        check_purpose(leaf, purpose)?;
        self.climb(leaf, purpose, (0, 0), &mut 0)
    }

    /// Looks for a way from `certificate` up to a root; `below` counts the authorities below
    /// `certificate` that are not self-issued.
    fn climb(
        &self,
        certificate: &Certificate,
        purpose: Purpose,
        (depth, below): (usize, u64),
        checks: &mut u32,
    ) -> Result<(), CertificateError> {
        self.check_lifetime(certificate)?;
        if certificate.extensions.is_unknown_critical {
            return Err(CertificateError::UnhandledCriticalExtension);
        }
        let is_trusted = self.trusted.iter().any(|trusted| trusted.der == certificate.der);
        if is_trusted && certificate.is_self_issued() {
            return Ok(());
        }
        if depth >= DEPTH_MAX {
            return Err(CertificateError::UnknownIssuer);
        }
        let mut failure = None;
        for issuer in self.trusted.iter().chain(self.presented) {
            if !may_have_issued(issuer, certificate) {
                continue;
            }
            let result = self
                .check_signature(certificate, issuer, checks)
                .and_then(|()| check_authority(issuer, purpose, below))
                .and_then(|()| {
                    let counts = u64::from(!issuer.is_self_issued());
                    self.climb(issuer, purpose, (depth + 1, below + counts), checks)
                });
            match result {
                Ok(()) => return Ok(()),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Err(failure.unwrap_or(CertificateError::UnknownIssuer))
    }

    fn check_lifetime(&self, certificate: &Certificate) -> Result<(), CertificateError> {
        if self.now < certificate.not_before {
            Err(CertificateError::NotValidYet)
        } else if self.now > certificate.not_after {
            Err(CertificateError::Expired)
        } else {
            Ok(())
        }
    }

    fn check_signature(
        &self,
        certificate: &Certificate,
        issuer: &Certificate,
        checks: &mut u32,
    ) -> Result<(), CertificateError> {
        *checks += 1;
        if *checks > CHECKS_MAX {
            return Err(CertificateError::UnknownIssuer);
        }
        let fits = |algorithm: &&&dyn SignatureVerificationAlgorithm| {
            algorithm.signature_alg_id().as_ref() == certificate.signature_algorithm
                && algorithm.public_key_alg_id().as_ref() == issuer.key_algorithm
        };
        let algorithm = self.algorithms.iter().find(fits).ok_or(CertificateError::BadSignature)?;
        algorithm
            .verify_signature(&issuer.key, &certificate.signed, &certificate.signature)
            .map_err(|_| CertificateError::BadSignature)
    }
}

/// Whether `issuer` may have signed `certificate`: by name, and by key where both say which.
fn may_have_issued(issuer: &Certificate, certificate: &Certificate) -> bool {
    let ids = (&issuer.extensions.subject_key_id, &certificate.extensions.authority_key_id);
    let keys_fit = match ids {
        (Some(subject), Some(authority)) => subject == authority,
        _ => true,
    };
    issuer.subject == certificate.issuer && keys_fit && issuer.der != certificate.der
}

fn check_authority(
    issuer: &Certificate,
    purpose: Purpose,
    below: u64,
) -> Result<(), CertificateError> {
    let length = issuer.extensions.constraints.and_then(|(_, length)| length);
    let is_short = length.is_none_or(|length| below <= length);
    // An authority for mail, say, vouches for nobody who connects.
    if !issuer.is_authority() || !is_short || !is_listed(issuer, purpose) {
        return Err(CertificateError::InvalidPurpose);
    }
    Ok(())
}

/// Whether the usages that a certificate is limited to, if it is, contain this one.
fn check_purpose(leaf: &Certificate, purpose: Purpose) -> Result<(), CertificateError> {
    const DIGITAL_SIGNATURE: u16 = 1 << 0;
    const KEY_ENCIPHERMENT: u16 = 1 << 2;
    const KEY_AGREEMENT: u16 = 1 << 4;
    let wanted = match purpose {
        Purpose::Client => DIGITAL_SIGNATURE | KEY_AGREEMENT,
        Purpose::Server => DIGITAL_SIGNATURE | KEY_AGREEMENT | KEY_ENCIPHERMENT,
    };
    let may = leaf.extensions.key_usage.is_none_or(|usage| usage & wanted != 0);
    if may && is_listed(leaf, purpose) { Ok(()) } else { Err(CertificateError::InvalidPurpose) }
}

/// Whether a certificate's extendedKeyUsage, if it has one, names this purpose. Of an authority that is
/// what it may issue certificates for, also of a root.
fn is_listed(certificate: &Certificate, purpose: Purpose) -> bool {
    certificate.extensions.extended_key_usage.is_none_or(|usage| {
        usage.any
            || match purpose {
                Purpose::Client => usage.client,
                Purpose::Server => usage.server,
            }
    })
}

/// The certificates that lead from `leaf` upwards, without it, found by their names among
/// `known`: what a server sends so that its clients can find the root.
pub(crate) fn chain_of<'a>(leaf: &Certificate, known: &'a [Certificate]) -> Vec<&'a Certificate> {
    let mut chain: Vec<&Certificate> = Vec::new();
    let mut last = leaf;
    while !last.is_self_issued() && chain.len() < DEPTH_MAX {
        let Some(next) = known.iter().find(|issuer| may_have_issued(issuer, last)) else { break };
        chain.push(next);
        last = next;
    }
    chain
}

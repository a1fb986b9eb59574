//! The verifier that rustls asks about the other side, as client and as server.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::certificate::Certificate;
use super::chain::{Checker, Purpose};

/// Most certificates taken from one peer.
const PRESENTED_MAX: usize = 32;

/// Whom to believe.
#[derive(Clone, Debug)]
pub(crate) enum Trust {
    /// Peers whose certificates lead to one of these.
    Authorities(Arc<Vec<Certificate>>),
    /// Everybody: `--ca-cert=none`, and the first connection of `--bootstrap-ca-cert`.
    Everybody,
}

/// Checks chains and handshake signatures.
#[derive(Debug)]
pub(crate) struct Verifier {
    trust: Trust,
    algorithms: WebPkiSupportedAlgorithms,
    /// Names of the authorities, told to clients.
    hints: Vec<DistinguishedName>,
}

impl Verifier {
    pub(crate) fn new(trust: Trust, algorithms: WebPkiSupportedAlgorithms) -> Self {
        let hints = match &trust {
            Trust::Authorities(all) => {
                all.iter().map(|ca| DistinguishedName::from(ca.subject_der.clone())).collect()
            }
            Trust::Everybody => Vec::new(),
        };
        Self { trust, algorithms, hints }
    }

    fn verify_chain(
        &self,
        leaf: &CertificateDer<'_>,
        presented: &[CertificateDer<'_>],
        purpose: Purpose,
        now: UnixTime,
    ) -> Result<(), Error> {
        let leaf = Certificate::parse(leaf).ok_or(CertificateError::BadEncoding)?;
        let Trust::Authorities(trusted) = &self.trust else { return Ok(()) };
        let presented: Vec<Certificate> = presented
            .iter()
            .take(PRESENTED_MAX)
            .filter_map(|certificate| Certificate::parse(certificate))
            .collect();
        let algorithms = self.algorithms.all;
        let checker = Checker { trusted, presented: &presented, now: now.as_secs(), algorithms };
        Ok(checker.check(&leaf, purpose)?)
    }

    /// Verifies a signature of TLS 1.2: a scheme's name does not bind the curve there, so every
    /// algorithm that fits the key is tried.
    fn verify_tls12(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let certificate = Certificate::parse(certificate).ok_or(CertificateError::BadEncoding)?;
        let of_scheme = self.algorithms.mapping.iter().find(|(scheme, _)| *scheme == signed.scheme);
        let (_, algorithms) = of_scheme.ok_or(CertificateError::BadSignature)?;
        let fits = |key: &[u8]| key == certificate.key_algorithm;
        let is_valid = algorithms.iter().any(|algorithm| {
            fits(algorithm.public_key_alg_id().as_ref())
                && algorithm.verify_signature(&certificate.key, message, signed.signature()).is_ok()
        });
        if !is_valid {
            return Err(CertificateError::BadSignature.into());
        }
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let certificate = Certificate::parse(certificate).ok_or(CertificateError::BadEncoding)?;
        let key = SubjectPublicKeyInfoDer::from(certificate.key_info);
        verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verify_chain(end_entity, intermediates, Purpose::Server, now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_tls12(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_tls13(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for Verifier {
    fn offer_client_auth(&self) -> bool {
        matches!(self.trust, Trust::Authorities(_))
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.verify_chain(end_entity, intermediates, Purpose::Client, now)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_tls12(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_tls13(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

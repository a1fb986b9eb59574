//! `--bootstrap-ca-cert`: the first peer's root becomes the authority, once and for all.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustls::pki_types::CertificateDer;
use sha1::{Digest as _, Sha1};

use super::certificate::Certificate;
use super::{Line, Severity};
use crate::error::strerror;

/// Mode of the new CA file, less the umask.
const FILE_MODE: u32 = 0o444;

/// Columns of base64 in a PEM file.
const PEM_COLUMNS: usize = 64;

/// Writes the last certificate of the peer's chain to `file`. The connection must be closed
/// whatever comes of it: its peer was not verified. What happened goes to `log`.
pub(crate) fn bootstrap(file: &str, chain: &[CertificateDer<'_>], log: &mut Vec<Line>) {
    let mut fail = |text: &str| log.push(Line::new(Severity::Error, text));
    let Some(certificate) = chain.last().and_then(|last| Certificate::parse(last)) else {
        return fail("could not bootstrap CA cert: no certificate presented by peer");
    };
    if !certificate.is_self_issued() {
        fail(
            "could not bootstrap CA cert: obtained certificate is not self-signed \
             (subject issuer mismatch)",
        );
        if chain.len() < 2 {
            fail(
                "only one certificate was received, so probably the peer is not configured to \
                 send its CA certificate",
            );
        }
        return;
    }
    match create(Path::new(file), &certificate.der) {
        Ok(()) => {
            let text = format!("successfully bootstrapped CA cert to {file}");
            log.push(Line::new(Severity::Info, text));
            log.push(Line::new(Severity::Info, trusting(file, &certificate)));
            let text = "killing successful connection to retry using CA cert";
            log.push(Line::new(Severity::Info, text));
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let text = format!("reading CA cert {file} created by another process");
            log.push(Line::new(Severity::Info, text));
        }
        Err(error) => {
            let error = strerror(&error);
            fail(&format!("could not bootstrap CA cert: creating {file} failed: {error}"));
        }
    }
}

fn create(path: &Path, der: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)?;
    let written = file.write_all(pem(der).as_bytes());
    if written.is_err() {
        let _ = std::fs::remove_file(path);
    }
    written
}

/// What is said of a new authority, so that an operator can compare it.
fn trusting(file: &str, certificate: &Certificate) -> String {
    let digest = Sha1::digest(&certificate.der);
    let fingerprint: Vec<String> = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let name = certificate.subject_line();
    let fingerprint = fingerprint.join(":");
    format!("Trusting CA cert from {file} ({name}) (fingerprint {fingerprint})")
}

fn pem(der: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in der.chunks(3) {
        let byte = |place: usize| u32::from(three.get(place).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= three.len() { char::from(digit) } else { '=' });
        }
    }
    let lines: Vec<&str> = text
        .as_bytes()
        .chunks(PEM_COLUMNS)
        .map(|line| std::str::from_utf8(line).unwrap_or_default())
        .collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::pem::PemObject as _;

    #[test]
    fn pem_is_read_back() {
        for length in [0, 1, 2, 3, 47, 48, 49, 1000] {
            let der: Vec<u8> = (0..length).map(|i| (i * 7) as u8).collect();
            let read = CertificateDer::from_pem_slice(pem(&der).as_bytes()).unwrap();
            assert_eq!(read.as_ref(), der, "{length} bytes");
        }
    }
}

//! What fuzz targets reach of the private parts (`fuzz/`). Built for fuzzing only.

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;

use super::certificate::Certificate;
use super::chain::{Checker, Purpose, chain_of};
use super::settings::{Tls, certificates};
use super::{ciphers, protocols};

/// Judges the first certificate, with the others presented beside it, by authorities. Each is DER.
/// If it is believed, the answer is that part of it which somebody has signed.
pub fn believed(presented: &[&[u8]], authorities: &[&[u8]], now_s: u64) -> Option<Vec<u8>> {
    let leaf = Certificate::parse(presented.first()?)?;
    let parse = |all: &[&[u8]]| all.iter().filter_map(|der| Certificate::parse(der)).collect();
    let (presented, trusted): (Vec<_>, Vec<_>) = (parse(presented), parse(authorities));
    for certificate in presented.iter().chain(&trusted) {
        // What a log line and a handshake are made of.
        let _ = (certificate.subject_line(), certificate.is_authority());
        assert!(chain_of(certificate, &presented).len() <= presented.len().max(16));
    }
    let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms.all;
    let checker = Checker { trusted: &trusted, presented: &presented, now: now_s, algorithms };
    let purposes = [Purpose::Client, Purpose::Server];
    let is_believed = purposes.into_iter().any(|purpose| checker.check(&leaf, purpose).is_ok());
    is_believed.then_some(leaf.signed)
}

/// Reads the files of a key and of its certificate, as PEM.
pub fn read_pair(key: &[u8], certificate: &[u8]) {
    let chain = certificates(certificate);
    let Ok(key) = PrivateKeyDer::from_pem_slice(key) else { return };
    let mut tls = Tls::default();
    tls.take_pair(chain, key);
    assert!(tls.take_log().iter().all(|line| !line.text.is_empty()));
}

/// Reads lists of protocols and ciphers.
pub fn read_lists(text: &str) {
    let mut log = Vec::new();
    let all = aws_lc_rs::ALL_CIPHER_SUITES;
    let _ = protocols::parse(text, &mut log);
    for suites in [ciphers::tls13(text, all, &mut log), ciphers::tls12(text, all, &mut log)] {
        assert!(suites.len() <= all.len(), "a suite twice");
    }
}

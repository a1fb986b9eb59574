//! OpenSSL's cipher strings, mapped to the suites that there are.
//!
//! rustls has the six ECDHE suites of TLS 1.2 with AES-GCM and ChaCha20, and three suites of
//! TLS 1.3. A cipher string can only choose among them; what it says of others does not matter, and
//! what nobody understands is ignored (`openssl-ciphers(1)` has the language).

use rustls::{CipherSuite, SupportedCipherSuite};

use super::{Line, Severity};

/// Names that mean suites which do not exist here: to exclude them is to ask for nothing.
const FOREIGN: &[&str] = &[
    "ADH",
    "AECDH",
    "ARIA",
    "ARIA128",
    "ARIA256",
    "AESCCM",
    "AESCCM8",
    "CAMELLIA",
    "CAMELLIA128",
    "CAMELLIA256",
    "COMPLEMENTOFALL",
    "COMPLEMENTOFDEFAULT",
    "DES",
    "3DES",
    "DH",
    "DHE",
    "DSS",
    "EDH",
    "EXP",
    "EXPORT",
    "EXPORT40",
    "EXPORT56",
    "GOST89MAC",
    "IDEA",
    "LOW",
    "MD5",
    "MEDIUM",
    "NULL",
    "PSK",
    "RC2",
    "RC4",
    "RSA",
    "SEED",
    "SHA",
    "SHA1",
    "SRP",
    "SSLv3",
    "TLSv1",
    "TLSv1.0",
    "aDSS",
    "aGOST",
    "aNULL",
    "aPSK",
    "aSRP",
    "eNULL",
    "kDHE",
    "kDHEPSK",
    "kEDH",
    "kPSK",
    "kRSA",
    "kSRP",
];

/// What a string is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Suites,
    /// Suites that OpenSSL knows and that do not exist here.
    Foreign,
    Unknown,
}

/// The suites of TLS 1.2 that `text` chooses, in its order of preference as far as it names them.
pub(crate) fn tls12(
    text: &str,
    all: &[SupportedCipherSuite],
    log: &mut Vec<Line>,
) -> Vec<SupportedCipherSuite> {
    let all: Vec<_> = all.iter().copied().filter(|s| s.tls13().is_none()).collect();
    let mut chosen: Vec<SupportedCipherSuite> = Vec::new();
    let mut ignored = Vec::new();
    for token in text.split([':', ',', ' ', '\t']).filter(|token| !token.is_empty()) {
        let (sign, name) = match token.as_bytes() {
            [sign @ (b'!' | b'-' | b'+' | b'@'), ..] => (*sign, &token[1..]),
            _ => (b' ', token),
        };
        if sign == b'@' {
            continue; // @SECLEVEL=2 is what these suites are, @STRENGTH is their order.
        }
        let meant: Vec<_> = all.iter().copied().filter(|suite| is_meant(*suite, name)).collect();
        match (sign, meaning(name, !meant.is_empty())) {
            (_, Meaning::Unknown) => ignored.push(name),
            (b' ', Meaning::Foreign) => ignored.push(name),
            (_, Meaning::Foreign) => {}
            (b'!' | b'-', _) => chosen.retain(|suite| !meant.contains(suite)),
            (b'+', _) => {
                // What is meant goes to the end, in its order.
                chosen.sort_by_key(|suite| meant.contains(suite));
            }
            _ => {
                let more: Vec<_> = meant.into_iter().filter(|s| !chosen.contains(s)).collect();
                chosen.extend(more);
            }
        }
    }
    report("cipher list", text, &ignored, log);
    if chosen.is_empty() {
        let text = format!("cipher list \"{text}\" has no cipher that is available, ignored");
        log.push(Line::new(Severity::Info, text));
        return all;
    }
    chosen
}

/// The suites of TLS 1.3 that `text` names.
pub(crate) fn tls13(
    text: &str,
    all: &[SupportedCipherSuite],
    log: &mut Vec<Line>,
) -> Vec<SupportedCipherSuite> {
    let all: Vec<_> = all.iter().copied().filter(|s| s.tls13().is_some()).collect();
    let mut chosen = Vec::new();
    let mut ignored = Vec::new();
    for name in text.split([':', ',', ' ', '\t']).filter(|name| !name.is_empty()) {
        match all.iter().find(|suite| openssl_name(suite.suite()) == Some(name)) {
            Some(suite) if chosen.contains(suite) => {}
            Some(suite) => chosen.push(*suite),
            None => ignored.push(name),
        }
    }
    report("ciphersuites", text, &ignored, log);
    if chosen.is_empty() { all } else { chosen }
}

fn report(what: &str, text: &str, ignored: &[&str], log: &mut Vec<Line>) {
    if !ignored.is_empty() {
        let text = format!("{what} \"{text}\": ignoring {}", ignored.join(", "));
        log.push(Line::new(Severity::Info, text));
    }
}

fn meaning(name: &str, is_found: bool) -> Meaning {
    if is_found {
        return Meaning::Suites;
    }
    // Full names of other suites have dashes (AES128-SHA); groups are known by name.
    let is_foreign = name.split('+').any(|part| FOREIGN.contains(&part)) || name.contains('-');
    if is_foreign { Meaning::Foreign } else { Meaning::Unknown }
}

/// Whether a name, or a conjunction of them (`ECDHE+AESGCM`), means the suite.
fn is_meant(suite: SupportedCipherSuite, name: &str) -> bool {
    let Some(full) = openssl_name(suite.suite()) else { return false };
    let has = |part: &str| full.contains(part);
    name.split('+').all(|part| match part {
        "DEFAULT" | "ALL" | "HIGH" | "ECDHE" | "EECDH" | "kECDHE" | "kEECDH" | "ECDH"
        | "TLSv1.2" | "AEAD" => true,
        "aRSA" => has("-RSA-"),
        "ECDSA" | "aECDSA" => has("-ECDSA-"),
        "AES" | "AESGCM" => has("AES"),
        "AES128" => has("AES128"),
        "AES256" => has("AES256"),
        "CHACHA20" => has("CHACHA20"),
        "SHA256" => has("SHA256"),
        "SHA384" => has("SHA384"),
        part => part == full,
    })
}

/// What OpenSSL calls a suite.
fn openssl_name(suite: CipherSuite) -> Option<&'static str> {
    Some(match suite {
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 => "ECDHE-ECDSA-AES256-GCM-SHA384",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 => "ECDHE-ECDSA-AES128-GCM-SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 => {
            "ECDHE-ECDSA-CHACHA20-POLY1305"
        }
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => "ECDHE-RSA-AES256-GCM-SHA384",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => "ECDHE-RSA-AES128-GCM-SHA256",
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => "ECDHE-RSA-CHACHA20-POLY1305",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(text: &str) -> (Vec<&'static str>, Vec<String>) {
        let mut log = Vec::new();
        let all = rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES;
        let suites = tls12(text, all, &mut log);
        let names = suites.iter().filter_map(|suite| openssl_name(suite.suite())).collect();
        (names, log.into_iter().map(|line| line.text).collect())
    }

    #[test]
    fn the_strings_in_the_field_choose_everything_silently() {
        for text in [
            "DEFAULT:@SECLEVEL=2",
            "HIGH:!aNULL:!MD5",
            "HIGH:!aNULL:!eNULL:!EXPORT:!DES:!RC4:!3DES:!MD5:!PSK:@STRENGTH",
            "EECDH+AESGCM:EECDH+CHACHA20",
        ] {
            let (names, said) = chosen(text);
            assert_eq!((names.len(), said), (6, vec![]), "{text}");
        }
    }

    #[test]
    fn names_choose_and_signs_exclude() {
        let one = "ECDHE-RSA-AES256-GCM-SHA384";
        assert_eq!(chosen(one), (vec![one], vec![]));
        let (names, _) = chosen("HIGH:!AES128:!CHACHA20:!ECDSA");
        assert_eq!(names, [one]);
        let (names, _) = chosen("ECDHE+AES128:ECDHE+AES256:+aRSA");
        assert!(names[0].contains("ECDSA") && names[3].contains("RSA-AES256"), "{names:?}");
    }

    #[test]
    fn what_is_not_there_is_ignored_and_said() {
        let (names, said) = chosen("ECDHE-RSA-AES128-GCM-SHA256:AES128-SHA:nonsense");
        assert_eq!(names, ["ECDHE-RSA-AES128-GCM-SHA256"]);
        assert_eq!(said.len(), 1);
        assert!(said[0].ends_with("ignoring AES128-SHA, nonsense"), "{said:?}");
        let (names, said) = chosen("nonsense");
        assert_eq!((names.len(), said.len()), (6, 2));
    }
}

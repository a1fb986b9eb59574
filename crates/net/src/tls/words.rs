//! What went wrong on a connection, in OpenSSL's words: scripts and people search logs for them.

use rustls::{AlertDescription, Error, InvalidMessage, PeerIncompatible};

/// OpenSSL's number of its part that speaks TLS.
const LIBRARY: u32 = 0x0A00_0000;

/// What OpenSSL adds to the number of an alert that was received.
const ALERT: u32 = 1000;

/// The line for an error, without the call in front of it. Where OpenSSL has one word for many
/// things, what rustls knows follows in parentheses.
pub(crate) fn openssl(error: &Error) -> String {
    let line =
        |reason: u32, text: &str| format!("error:{:08X}:SSL routines::{text}", LIBRARY + reason);
    if let Error::AlertReceived(alert) = error {
        let number = ALERT + u32::from(u8::from(*alert));
        return match alert_text(*alert) {
            Some(text) => line(number, text),
            None => line(number, &format!("reason({number})")),
        };
    }
    match reason(error) {
        Some((reason, text)) => format!("{} ({error})", line(reason, text)),
        None => error.to_string(),
    }
}

/// What we found wrong ourselves: OpenSSL's number and text.
fn reason(error: &Error) -> Option<(u32, &'static str)> {
    Some(match error {
        Error::InvalidCertificate(_) => (134, "certificate verify failed"),
        Error::NoCertificatesPresented => (199, "peer did not return a certificate"),
        Error::PeerIncompatible(
            PeerIncompatible::NoCipherSuitesInCommon | PeerIncompatible::NoKxGroupsInCommon,
        ) => (193, "no shared cipher"),
        Error::PeerIncompatible(
            PeerIncompatible::NoSignatureSchemesInCommon
            | PeerIncompatible::SignatureAlgorithmsExtensionRequired,
        ) => (118, "no suitable signature algorithm"),
        Error::PeerIncompatible(
            PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled
            | PeerIncompatible::Tls13RequiredForQuic
            | PeerIncompatible::SupportedVersionsExtensionRequired
            | PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
        ) => (258, "unsupported protocol"),
        Error::InvalidMessage(
            InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
        ) => (267, "wrong version number"),
        Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => {
            (244, "unexpected message")
        }
        Error::DecryptError => (281, "decryption failed or bad record mac"),
        _ => return None,
    })
}

/// The names go back to SSL 3 and TLS 1.0, whatever the connection speaks.
fn alert_text(alert: AlertDescription) -> Option<&'static str> {
    use AlertDescription as Alert;
    Some(match alert {
        Alert::UnexpectedMessage => "sslv3 alert unexpected message",
        Alert::BadRecordMac => "sslv3 alert bad record mac",
        Alert::DecryptionFailed => "tlsv1 alert decryption failed",
        Alert::RecordOverflow => "tlsv1 alert record overflow",
        Alert::DecompressionFailure => "sslv3 alert decompression failure",
        Alert::HandshakeFailure => "sslv3 alert handshake failure",
        Alert::NoCertificate => "sslv3 alert no certificate",
        Alert::BadCertificate => "sslv3 alert bad certificate",
        Alert::UnsupportedCertificate => "sslv3 alert unsupported certificate",
        Alert::CertificateRevoked => "sslv3 alert certificate revoked",
        Alert::CertificateExpired => "sslv3 alert certificate expired",
        Alert::CertificateUnknown => "sslv3 alert certificate unknown",
        Alert::IllegalParameter => "sslv3 alert illegal parameter",
        Alert::UnknownCA => "tlsv1 alert unknown ca",
        Alert::AccessDenied => "tlsv1 alert access denied",
        Alert::DecodeError => "tlsv1 alert decode error",
        Alert::DecryptError => "tlsv1 alert decrypt error",
        Alert::ExportRestriction => "tlsv1 alert export restriction",
        Alert::ProtocolVersion => "tlsv1 alert protocol version",
        Alert::InsufficientSecurity => "tlsv1 alert insufficient security",
        Alert::InternalError => "tlsv1 alert internal error",
        Alert::InappropriateFallback => "tlsv1 alert inappropriate fallback",
        Alert::UserCanceled => "tlsv1 alert user cancelled",
        Alert::NoRenegotiation => "tlsv1 alert no renegotiation",
        Alert::MissingExtension => "tlsv13 alert missing extension",
        Alert::UnsupportedExtension => "tlsv1 unsupported extension",
        Alert::CertificateUnobtainable => "tlsv1 certificate unobtainable",
        Alert::UnrecognisedName => "tlsv1 unrecognized name",
        Alert::BadCertificateStatusResponse => "tlsv1 bad certificate status response",
        Alert::BadCertificateHashValue => "tlsv1 bad certificate hash value",
        Alert::UnknownPSKIdentity => "tlsv1 alert unknown psk identity",
        Alert::CertificateRequired => "tlsv13 alert certificate required",
        Alert::NoApplicationProtocol => "tlsv1 alert no application protocol",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// What `openssl` prints for a code; `None` where it is not installed.
    fn errstr(code: u32) -> Option<String> {
        let output =
            Command::new("openssl").args(["errstr", &format!("{code:X}")]).output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    #[test]
    fn every_alert_reads_as_openssl_prints_it() {
        for number in 1..=u8::MAX {
            let said = openssl(&Error::AlertReceived(AlertDescription::from(number)));
            let Some(theirs) = errstr(LIBRARY + ALERT + u32::from(number)) else {
                return println!("skipped: openssl is not installed");
            };
            // Code points that newer releases of either have named.
            if !theirs.contains("reason(") {
                assert_eq!(said, theirs, "alert {number}");
            }
        }
    }

    #[test]
    fn what_we_find_wrong_reads_as_openssl_prints_it() {
        let incompatible = Error::PeerIncompatible;
        for error in [
            Error::InvalidCertificate(rustls::CertificateError::Expired),
            Error::NoCertificatesPresented,
            incompatible(PeerIncompatible::NoCipherSuitesInCommon),
            incompatible(PeerIncompatible::NoSignatureSchemesInCommon),
            incompatible(PeerIncompatible::Tls12NotOfferedOrEnabled),
            Error::InvalidMessage(InvalidMessage::InvalidContentType),
            Error::InappropriateMessage { expect_types: Vec::new(), got_type: 23.into() },
            Error::DecryptError,
        ] {
            let said = openssl(&error);
            let (number, _) = reason(&error).expect("it has one");
            let Some(theirs) = errstr(LIBRARY + number) else {
                return println!("skipped: openssl is not installed");
            };
            assert_eq!(said, format!("{theirs} ({error})"));
        }
    }
}

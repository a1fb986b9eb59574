//! The options about TLS, which servers and clients share.

use weir_net::TlsOptions;

/// An option about TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TlsOption {
    /// `--private-key`
    PrivateKey,
    /// `--certificate`
    Certificate,
    /// `--ca-cert`
    CaCert,
    /// `--bootstrap-ca-cert`
    BootstrapCaCert,
    /// `--peer-ca-cert`, of servers
    PeerCaCert,
    /// `--ssl-protocols`
    Protocols,
    /// `--ssl-ciphers`
    Ciphers,
    /// `--ssl-ciphersuites`
    Ciphersuites,
    /// `--ssl-server-name`
    ServerName,
}

/// The settings that the options give, taken as they are: files and texts. Of equal options the
/// last counts.
pub(crate) fn plain_settings(given: &[(TlsOption, String)]) -> TlsOptions {
    let mut tls = TlsOptions::default();
    for (option, value) in given {
        let place = match option {
            TlsOption::PrivateKey => &mut tls.private_key,
            TlsOption::Certificate => &mut tls.certificate,
            TlsOption::CaCert | TlsOption::BootstrapCaCert => {
                tls.bootstrap = *option == TlsOption::BootstrapCaCert;
                &mut tls.ca_cert
            }
            TlsOption::PeerCaCert => &mut tls.peer_ca_cert,
            TlsOption::Protocols => &mut tls.protocols,
            TlsOption::Ciphers => &mut tls.ciphers,
            TlsOption::Ciphersuites => &mut tls.ciphersuites,
            TlsOption::ServerName => &mut tls.server_name,
        };
        *place = Some(value.clone());
    }
    tls
}

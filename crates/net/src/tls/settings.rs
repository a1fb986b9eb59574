//! The options of TLS and the files behind them, read again whenever they change.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use rustls::client::ResolvesClientCert;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ServerConfig, SignatureScheme, SupportedProtocolVersion, version};

use super::certificate::Certificate;
use super::chain::chain_of;
use super::protocols::Protocols;
use super::verifier::{Trust, Verifier};
use super::{Line, Severity, ciphers, protocols};
use crate::error::strerror;

/// Most bytes of a key, a certificate or a CA file.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// What a user may say of TLS; all of it may come from a database (ovsdb-server(1)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// `--private-key`: a file.
    pub private_key: Option<String>,
    /// `--certificate`: a file.
    pub certificate: Option<String>,
    /// `--ca-cert` or `--bootstrap-ca-cert`: a file, or `none` to believe everybody.
    pub ca_cert: Option<String>,
    /// Whether `ca_cert` is of `--bootstrap-ca-cert`: a file that is missing is made of the first
    /// peer's root.
    pub bootstrap: bool,
    /// `--peer-ca-cert`: a file with certificates to send beside our own.
    pub peer_ca_cert: Option<String>,
    /// `--ssl-protocols`: the versions of TLS that are enabled.
    pub protocols: Option<String>,
    /// `--ssl-ciphers`: for TLS 1.2.
    pub ciphers: Option<String>,
    /// `--ssl-ciphersuites`: for TLS 1.3.
    pub ciphersuites: Option<String>,
    /// `--ssl-server-name`: what to ask a server for, instead of the name it is reached by.
    pub server_name: Option<String>,
}

/// The state of a file when it was last read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    name: String,
    /// Device, inode, size, and the time of the last change; nothing if it was not there.
    state: Option<(u64, u64, u64, i64, i64)>,
}

impl Seen {
    fn look(name: &str) -> Self {
        let state =
            |file: Metadata| (file.dev(), file.ino(), file.len(), file.mtime(), file.mtime_nsec());
        Self { name: name.to_owned(), state: fs::metadata(name).ok().map(state) }
    }
}

/// Our key and certificate, as long as they belong together.
#[derive(Debug)]
struct Identity(Option<Arc<CertifiedKey>>);

impl ResolvesServerCert for Identity {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.clone()
    }
}

impl ResolvesClientCert for Identity {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.clone()
    }

    fn has_certs(&self) -> bool {
        self.0.is_some()
    }
}

/// Everything that connections are made of.
#[derive(Debug)]
pub struct Tls {
    options: TlsOptions,
    key_and_certificate: (Seen, Seen),
    authorities: Seen,
    /// Certificate, chain and key, when both files could be read and fit.
    pair: Option<(Certificate, Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    has_key: bool,
    has_certificate: bool,
    trust: Option<Trust>,
    /// Certificates of `--peer-ca-cert`.
    extra: Vec<CertificateDer<'static>>,
    protocols: Protocols,
    provider: Arc<CryptoProvider>,
    made: Option<(Arc<ServerConfig>, Arc<ClientConfig>)>,
    log: Vec<Line>,
}

/// What a connection that comes in needs.
#[derive(Clone, Debug)]
pub struct Acceptor {
    pub(crate) config: Arc<ServerConfig>,
}

/// What a connection that goes out needs.
#[derive(Clone, Debug)]
pub struct Connector {
    pub(crate) config: Arc<ClientConfig>,
    /// `--ssl-server-name`.
    pub(crate) server_name: Option<String>,
    /// The CA file to be made of what the peer sends.
    pub(crate) bootstrap: Option<String>,
}

impl Default for Tls {
    fn default() -> Self {
        Self {
            options: TlsOptions::default(),
            key_and_certificate: Default::default(),
            authorities: Seen::default(),
            pair: None,
            has_key: false,
            has_certificate: false,
            trust: None,
            extra: Vec::new(),
            protocols: Protocols::default(),
            provider: Arc::new(aws_lc_rs::default_provider()),
            made: None,
            log: Vec::new(),
        }
    }
}

impl Tls {
    /// TLS with these options. Files that cannot be read are complained about in the log, and
    /// connections fail until they can.
    pub fn new(options: &TlsOptions) -> Self {
        let mut tls = Self::default();
        tls.configure(options);
        tls
    }

    /// Takes other options, and reads the files that they name if they have changed. An option
    /// that is unset leaves in force what was set before, as in the reference.
    pub fn configure(&mut self, options: &TlsOptions) {
        let old = std::mem::replace(&mut self.options, options.clone());
        if self.options.private_key.is_none() {
            self.options.private_key.clone_from(&old.private_key);
        }
        if self.options.certificate.is_none() {
            self.options.certificate.clone_from(&old.certificate);
        }
        if self.options.ca_cert.is_none() {
            self.options.ca_cert.clone_from(&old.ca_cert);
        }
        if options.protocols.is_some() && options.protocols != old.protocols {
            let text = options.protocols.as_deref().unwrap_or_default();
            if let Some(protocols) = protocols::parse(text, &mut self.log) {
                self.protocols = protocols;
                self.made = None;
            }
        }
        if (&options.ciphers, &options.ciphersuites) != (&old.ciphers, &old.ciphersuites) {
            self.choose_suites();
        }
        if options.peer_ca_cert != old.peer_ca_cert {
            self.read_extra();
        }
        if options.bootstrap != old.bootstrap {
            // What was made while any server was believed is not for one that has to be known.
            self.made = None;
        }
        self.refresh();
    }

    /// Looks at all files again and reads those that have changed.
    pub fn refresh(&mut self) {
        self.refresh_pair();
        self.refresh_authorities();
    }

    /// Takes the lines that are to be logged.
    pub fn take_log(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.log)
    }

    /// The settings for the next connection that comes in.
    ///
    /// # Errors
    /// `ENOPROTOOPT` if something needed is not configured; the log says what.
    pub fn acceptor(&mut self) -> io::Result<Acceptor> {
        self.refresh();
        let (config, _) = self.make()?;
        Ok(Acceptor { config })
    }

    /// The settings for the next connection that goes out.
    ///
    /// # Errors
    /// As [`Tls::acceptor`].
    pub fn connector(&mut self) -> io::Result<Connector> {
        self.refresh();
        let (_, config) = self.make()?;
        let server_name = self.options.server_name.clone();
        let bootstrap = self.is_bootstrapping().then(|| self.options.ca_cert.clone()).flatten();
        Ok(Connector { config, server_name, bootstrap })
    }

    fn is_bootstrapping(&self) -> bool {
        self.options.bootstrap && self.trust.is_none()
    }

    fn error(&mut self, text: impl Into<String>) {
        self.log.push(Line::new(Severity::Error, text));
    }

    fn choose_suites(&mut self) {
        let all = aws_lc_rs::ALL_CIPHER_SUITES;
        let mut suites = match &self.options.ciphersuites {
            Some(text) => ciphers::tls13(text, all, &mut self.log),
            None => all.iter().copied().filter(|suite| suite.tls13().is_some()).collect(),
        };
        suites.extend(match &self.options.ciphers {
            Some(text) => ciphers::tls12(text, all, &mut self.log),
            None => all.iter().copied().filter(|suite| suite.tls13().is_none()).collect(),
        });
        self.provider =
            Arc::new(CryptoProvider { cipher_suites: suites, ..aws_lc_rs::default_provider() });
        self.made = None;
    }

    fn read_extra(&mut self) {
        let Some(name) = self.options.peer_ca_cert.clone() else {
            self.extra.clear();
            self.made = None;
            return;
        };
        match read(&name) {
            Ok(bytes) => {
                self.extra = certificates(&bytes);
                if self.extra.is_empty() {
                    self.error(format!("PEM_read_X509 failed reading {name}: {NO_START_LINE}"));
                }
                self.made = None;
            }
            Err(error) => {
                let error = strerror(&error);
                self.error(format!("failed to open {name} for reading: {error}"));
            }
        }
    }

    fn refresh_pair(&mut self) {
        let (Some(key), Some(certificate)) = (&self.options.private_key, &self.options.certificate)
        else {
            return;
        };
        let seen = (Seen::look(key), Seen::look(certificate));
        if seen == self.key_and_certificate {
            return;
        }
        let (certificate, key) = (read(certificate), read(key));
        self.key_and_certificate = seen;
        let chain = match certificate.as_deref().map(certificates) {
            Ok(chain) if !chain.is_empty() => Some(chain),
            Ok(_) => self.unusable("SSL_use_certificate_file", None),
            Err(error) => self.unusable("SSL_use_certificate_file", Some(error)),
        };
        let key = match key.as_deref().map(|bytes| PrivateKeyDer::from_pem_slice(bytes).ok()) {
            Ok(Some(key)) => Some(key),
            Ok(None) => self.unusable("SSL_use_PrivateKey_file", None),
            Err(error) => self.unusable("SSL_use_PrivateKey_file", Some(error)),
        };
        self.has_certificate |= chain.is_some();
        self.has_key |= key.is_some();
        if let (Some(chain), Some(key)) = (chain, key) {
            self.take_pair(chain, key);
        }
    }

    /// A new key and a new certificate come one after the other: until they fit, the old ones stay.
    pub(super) fn take_pair(
        &mut self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) {
        let Some(leaf) = chain.first().and_then(|leaf| Certificate::parse(leaf)) else {
            return self.error("SSL_use_certificate_file: not an X.509 certificate");
        };
        let signing = match self.provider.key_provider.load_private_key(key.clone_key()) {
            Ok(signing) => signing,
            Err(error) => return self.error(format!("SSL_use_PrivateKey_file: {error}")),
        };
        let fits = signing.public_key().is_none_or(|public| public.as_ref() == leaf.key_info);
        if fits {
            self.pair = Some((leaf, chain, key));
            self.made = None;
        } else if self.pair.is_some() {
            let text = "Private key does not match certificate public key: keeping the old ones";
            self.log.push(Line::new(Severity::Info, text));
        }
    }

    fn unusable<T>(&mut self, call: &str, error: Option<&io::Error>) -> Option<T> {
        self.error(format!("{call}: {}", openssl_text(error)));
        None
    }

    fn refresh_authorities(&mut self) {
        let Some(name) = self.options.ca_cert.clone() else { return };
        let seen = Seen::look(&name);
        if seen == self.authorities {
            return;
        }
        let is_missing = seen.state.is_none();
        self.authorities = seen;
        if name == "none" {
            let text = "Peer certificate validation disabled (this is a security risk)";
            self.log.push(Line::new(Severity::Warning, text));
            self.trust_in(Trust::Everybody);
        } else if self.options.bootstrap && is_missing {
            // The first server will tell.
            self.trust = None;
            self.made = None;
        } else {
            self.read_authorities(&name);
        }
    }

    fn read_authorities(&mut self, name: &str) {
        let read = read(name);
        let found: Vec<Certificate> = match &read {
            Ok(bytes) => certificates(bytes).iter().filter_map(|c| Certificate::parse(c)).collect(),
            Err(_) => Vec::new(),
        };
        if found.is_empty() {
            let error = openssl_text(read.as_ref().err());
            self.error(format!("failed to load client certificates from {name}: {error}"));
            // What was believed before still is: a file that is being replaced may be empty.
            return;
        }
        self.trust_in(Trust::Authorities(Arc::new(found)));
    }

    fn trust_in(&mut self, trust: Trust) {
        self.trust = Some(trust);
        self.made = None;
    }

    /// The configurations of rustls, made anew when something has changed.
    fn make(&mut self) -> io::Result<(Arc<ServerConfig>, Arc<ClientConfig>)> {
        if let Some(made) = &self.made {
            return Ok(made.clone());
        }
        self.check_complete()?;
        let identity = Arc::new(Identity(self.certified_key()));
        let trust = self.trust.clone();
        // A server with nobody to believe believes nobody; a client that bootstraps looks first.
        let nobody = || Trust::Authorities(Arc::new(Vec::new()));
        let algorithms = self.provider.signature_verification_algorithms;
        let clients = Verifier::new(trust.clone().unwrap_or_else(nobody), algorithms);
        let servers = Verifier::new(trust.unwrap_or(Trust::Everybody), algorithms);
        let made = self
            .server_config(Arc::new(clients), Arc::clone(&identity))
            .and_then(|server| Ok((server, self.client_config(Arc::new(servers), identity)?)));
        match made {
            Ok((server, client)) => {
                let made = (Arc::new(server), Arc::new(client));
                self.made = Some(made.clone());
                Ok(made)
            }
            Err(error) => {
                self.error(format!("SSL_CTX_new: {error}"));
                Err(rustix::io::Errno::NOPROTOOPT.into())
            }
        }
    }

    fn check_complete(&mut self) -> io::Result<()> {
        let is_bootstrapping = self.is_bootstrapping();
        let missing = [
            (!self.has_key, "Private key must be configured to use SSL/TLS"),
            (!self.has_certificate, "Certificate must be configured to use SSL/TLS"),
            (
                self.trust.is_none() && !is_bootstrapping,
                "CA certificate must be configured to use SSL/TLS",
            ),
        ];
        let mut is_complete = true;
        for (_, text) in missing.into_iter().filter(|(is_missing, _)| *is_missing) {
            self.error(text);
            is_complete = false;
        }
        if is_complete && self.pair.is_none() {
            self.error("Private key does not match certificate public key");
            is_complete = false;
        }
        if is_complete { Ok(()) } else { Err(rustix::io::Errno::NOPROTOOPT.into()) }
    }

    fn certified_key(&self) -> Option<Arc<CertifiedKey>> {
        let (leaf, file, key) = self.pair.as_ref()?;
        let key = self.provider.key_provider.load_private_key(key.clone_key()).ok()?;
        let mut chain = file.clone();
        if !self.extra.is_empty() {
            chain.extend(self.extra.iter().cloned());
        } else if let (1, Some(Trust::Authorities(known))) = (file.len(), &self.trust) {
            // As OpenSSL does, so that clients can bootstrap from us.
            let above = chain_of(leaf, known);
            chain.extend(above.iter().map(|ca| CertificateDer::from(ca.der.clone())));
        }
        Some(Arc::new(CertifiedKey::new(chain, key)))
    }

    fn versions(&self) -> Vec<&'static SupportedProtocolVersion> {
        let all =
            [(self.protocols.tls13, &version::TLS13), (self.protocols.tls12, &version::TLS12)];
        all.into_iter().filter(|(is_enabled, _)| *is_enabled).map(|(_, version)| version).collect()
    }

    fn server_config(
        &self,
        verifier: Arc<Verifier>,
        identity: Arc<Identity>,
    ) -> Result<ServerConfig, rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&self.versions())?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(identity);
        // A session that is resumed would escape a change of the authorities.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    fn client_config(
        &self,
        verifier: Arc<Verifier>,
        identity: Arc<Identity>,
    ) -> Result<ClientConfig, rustls::Error> {
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&self.versions())?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_cert_resolver(identity);
        config.resumption = rustls::client::Resumption::disabled();
        Ok(config)
    }
}

fn read(name: &str) -> io::Result<Vec<u8>> {
    if fs::metadata(name)?.len() > FILE_BYTES_MAX {
        return Err(rustix::io::Errno::FBIG.into());
    }
    fs::read(name)
}

/// The certificates of a PEM file; text between them is skipped.
pub(super) fn certificates(bytes: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(bytes).map_while(Result::ok).collect()
}

/// What OpenSSL 3 says of a file without PEM in it.
const NO_START_LINE: &str = "error:0480006C:PEM routines::no start line";

/// An error of reading a file, in OpenSSL's words.
fn openssl_text(error: Option<&io::Error>) -> String {
    match error {
        None => NO_START_LINE.to_owned(),
        Some(error) => {
            let code = 0x8000_0000 | u32::try_from(error.raw_os_error().unwrap_or(0)).unwrap_or(0);
            format!("error:{code:08X}:system library::{}", strerror(error))
        }
    }
}

//! Certificates for tests, made by the `openssl` program: the plain ones and the odd ones that are
//! met in the field.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use weir_net::TlsOptions;

/// A directory with keys and certificates; it is removed when this is dropped.
#[derive(Debug)]
pub struct Pki {
    directory: PathBuf,
}

/// What a certificate is to look like.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shape<'a> {
    /// Lines of an OpenSSL extension section; none for X.509 version 1.
    pub extensions: &'a [&'a str],
    /// Whether the certificate was valid for a day only, in 2020.
    pub is_expired: bool,
    /// Whether the key is RSA instead of P-256.
    pub is_rsa: bool,
}

/// Extensions of an authority.
pub const AUTHORITY: &[&str] = &["basicConstraints=critical,CA:TRUE", "subjectKeyIdentifier=hash"];

/// Extensions as `ovs-pki` writes them.
pub const LEAF: &[&str] = &["basicConstraints=CA:FALSE", "subjectAltName=DNS:leaf"];

impl Pki {
    /// An empty directory; `None` where there is no `openssl`.
    pub fn new(name: &str) -> Option<Self> {
        Command::new("openssl").arg("version").output().ok()?;
        let directory =
            std::env::temp_dir().join(format!("weir-pki-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).expect("the temporary directory");
        Some(Self { directory })
    }

    /// A directory with an authority `ca` and two leaves of it, `server` and `client`.
    pub fn usual(name: &str) -> Option<Self> {
        let pki = Self::new(name)?;
        pki.authority("ca");
        let shape = Shape { extensions: LEAF, ..Shape::default() };
        pki.signed("server", "ca", "server", shape);
        pki.signed("client", "ca", "client", shape);
        Some(pki)
    }

    /// The directory's path.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The path of a file in the directory.
    pub fn path(&self, file: &str) -> String {
        self.directory.join(file).to_str().expect("a plain path").to_owned()
    }

    /// The path of the certificate `name`.
    pub fn certificate(&self, name: &str) -> String {
        self.path(&format!("{name}-cert.pem"))
    }

    /// The path of the key of the certificate `name`.
    pub fn key(&self, name: &str) -> String {
        self.path(&format!("{name}-key.pem"))
    }

    /// The options of somebody who shows the certificate `name` and believes the authority `ca`.
    pub fn options(&self, name: &str, ca: &str) -> TlsOptions {
        TlsOptions {
            private_key: Some(self.key(name)),
            certificate: Some(self.certificate(name)),
            ca_cert: Some(self.certificate(ca)),
            ..TlsOptions::default()
        }
    }

    /// The options of a command line for somebody who shows the certificate `name` and believes the
    /// authority `ca`.
    pub fn arguments(&self, name: &str) -> [String; 3] {
        [
            format!("--private-key={}", self.key(name)),
            format!("--certificate={}", self.certificate(name)),
            format!("--ca-cert={}", self.certificate("ca")),
        ]
    }

    /// Makes a root authority.
    pub fn authority(&self, name: &str) {
        self.self_signed(
            name,
            &format!("Root {name}"),
            Shape { extensions: AUTHORITY, ..Shape::default() },
        );
    }

    /// Makes a certificate that its own key signs.
    pub fn self_signed(&self, name: &str, common_name: &str, shape: Shape<'_>) {
        self.request(name, common_name, shape);
        let key = self.key(name);
        self.sign(name, &["-signkey", &key], shape);
    }

    /// Makes a certificate that `issuer` signs.
    pub fn signed(&self, name: &str, issuer: &str, common_name: &str, shape: Shape<'_>) {
        self.request(name, common_name, shape);
        let (certificate, key) = (self.certificate(issuer), self.key(issuer));
        self.sign(name, &["-CA", &certificate, "-CAkey", &key, "-set_serial", "4711"], shape);
    }

    fn request(&self, name: &str, common_name: &str, shape: Shape<'_>) {
        let (key, request) = (self.key(name), self.path(&format!("{name}-req.pem")));
        if shape.is_rsa {
            self.openssl(&["genrsa", "-out", &key, "2048"]);
        } else {
            self.openssl(&["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", &key]);
        }
        let subject = format!("/O=Weir tests/CN={common_name}");
        self.openssl(&["req", "-new", "-key", &key, "-subj", &subject, "-out", &request]);
    }

    fn sign(&self, name: &str, by: &[&str], shape: Shape<'_>) {
        let (request, certificate) =
            (self.path(&format!("{name}-req.pem")), self.certificate(name));
        let section = self.path(&format!("{name}.ext"));
        let mut arguments = vec!["x509", "-req", "-in", &request, "-out", &certificate, "-sha256"];
        arguments.extend_from_slice(by);
        if !shape.extensions.is_empty() {
            fs::write(&section, shape.extensions.join("\n")).expect("a file of the tests");
            arguments.extend_from_slice(&["-extfile", &section]);
        }
        // A lifetime that is over before it begins is over.
        arguments.extend_from_slice(&["-days", if shape.is_expired { "-1" } else { "3650" }]);
        self.openssl(&arguments);
    }

    fn openssl(&self, arguments: &[&str]) {
        let output = Command::new("openssl").args(arguments).output().expect("openssl");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl {arguments:?}: {error}");
    }
}

impl Drop for Pki {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

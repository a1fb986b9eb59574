//! The certificates of `--tls`: an authority of this run alone, a server and a client.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
};
use weir_net::tls::{Connector, Severity};
use weir_net::{Tls, TlsOptions};

use crate::Error;
use crate::args::Args;
use crate::error::fail;
use crate::interrupt;

/// Files in a folder that goes when this is dropped.
pub(crate) struct Pki {
    dir: PathBuf,
    /// What the driver's connections are made with.
    pub(crate) connector: Connector,
}

impl Pki {
    /// Makes all of it in a new folder.
    pub(crate) fn make(parent: &Path) -> Result<Self, Error> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let parent = parent.canonicalize().map_err(|e| Error::io("finding", parent, e))?;
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = parent.join(format!("weir-bench-{}-pki{n}", std::process::id()));
        interrupt::remember_path(&dir);
        DirBuilder::new().mode(0o700).create(&dir).map_err(|e| Error::io("creating", &dir, e))?;
        let made = fill(&dir).and_then(|()| connector(&options(&dir, "client")));
        match made {
            Ok(connector) => Ok(Self { dir, connector }),
            Err(error) => {
                let _ = fs::remove_dir_all(&dir);
                Err(error)
            }
        }
    }

    /// What a server of this process is made with.
    #[cfg(test)]
    pub(crate) fn server(&self) -> Tls {
        Tls::new(&options(&self.dir, "server"))
    }

    /// Gives a server its options.
    pub(crate) fn serve(&self, command: &mut Command) {
        command.args(self.options());
    }

    /// The options of a program that speaks TLS.
    pub(crate) fn options(&self) -> Vec<String> {
        [("-p", "server-key.pem"), ("-c", "server-cert.pem"), ("-C", "ca-cert.pem")]
            .into_iter()
            .flat_map(|(option, file)| [option.into(), self.dir.join(file).display().to_string()])
            .collect()
    }
}

impl Drop for Pki {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The user's own `-p`, `-c`, `-C`, for a server that runs already.
pub(crate) fn connector_from_args(args: &mut Args) -> Result<Option<Connector>, Error> {
    let mut option = |short, long| Ok::<_, Error>(args.text(short)?.or(args.text(long)?));
    let options = TlsOptions {
        private_key: option("-p", "--private-key")?,
        certificate: option("-c", "--certificate")?,
        ca_cert: option("-C", "--ca-cert")?,
        ..TlsOptions::default()
    };
    if options == TlsOptions::default() {
        return Ok(None);
    }
    connector(&options).map(Some)
}

fn connector(options: &TlsOptions) -> Result<Connector, Error> {
    let mut tls = Tls::new(options);
    let connector = tls.connector();
    let log = tls.take_log();
    let bad = log.into_iter().find(|l| matches!(l.severity, Severity::Error | Severity::Warning));
    match (connector, bad) {
        (Ok(connector), None) => Ok(connector),
        (_, Some(line)) => fail!("TLS: {}", line.text),
        (Err(_), None) => fail!("TLS needs -p, -c and -C"),
    }
}

fn options(dir: &Path, name: &str) -> TlsOptions {
    let file = |name: String| Some(dir.join(name).display().to_string());
    TlsOptions {
        private_key: file(format!("{name}-key.pem")),
        certificate: file(format!("{name}-cert.pem")),
        ca_cert: file("ca-cert.pem".into()),
        ..TlsOptions::default()
    }
}

/// P-256 throughout, which makes handshakes cheap on both sides.
fn fill(dir: &Path) -> Result<(), Error> {
    let broken = |error: rcgen::Error| Error::Check(format!("making certificates: {error}"));
    let mut params = params("weir bench CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate().map_err(broken)?;
    let authority = CertifiedIssuer::self_signed(params, key).map_err(broken)?;
    write(&dir.join("ca-cert.pem"), &authority.pem())?;
    for name in ["server", "client"] {
        let key = KeyPair::generate().map_err(broken)?;
        let leaf = self::params(name).signed_by(&key, &authority).map_err(broken)?;
        write(&dir.join(format!("{name}-key.pem")), &key.serialize_pem())?;
        write(&dir.join(format!("{name}-cert.pem")), &leaf.pem())?;
    }
    Ok(())
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|e| Error::io("writing", path, e))
}

//! How a program runs that may go to the background: ovsdb-server and ovsdb-client have these
//! options, and take them alike.

use weir_host::daemon::DaemonOptions;

use super::getopt::Takes::{MaybeValue, Nothing, Value};
use super::getopt::{Spec, both, long};
use super::logging::{LogId, LogOption};
use super::tls::TlsOption;
use crate::dirs::{Dirs, RecordingMode};
use crate::usage::about;
use ProcessOption::{
    Detach, Log, Monitor, NoChdir, NoSelfConfinement, OverwritePidfile, Pidfile, Record, Replay,
    Tls, User,
};

/// An option about how the process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessOption {
    /// `--detach`
    Detach,
    /// `--no-self-confinement`, which says nothing here.
    NoSelfConfinement,
    /// `--no-chdir`
    NoChdir,
    /// `--pidfile`
    Pidfile,
    /// `--overwrite-pidfile`
    OverwritePidfile,
    /// `--monitor`
    Monitor,
    /// `--user`
    User,
    /// An option about logging.
    Log(LogId),
    /// An option about certificates and protocols.
    Tls(TlsOption),
    /// `--record`
    Record,
    /// `--replay`
    Replay,
}

/// The options that make a daemon, in the reference's order, as in all tables here.
pub(crate) const DAEMON: &[Spec<ProcessOption>] = &[
    long("detach", Nothing, Detach).with(about::DETACH),
    long("no-self-confinement", Nothing, NoSelfConfinement).with(about::NO_SELF_CONFINEMENT),
    long("no-chdir", Nothing, NoChdir).with(about::NO_CHDIR),
    long("pidfile", MaybeValue, Pidfile).with(about::PIDFILE),
    long("overwrite-pidfile", Nothing, OverwritePidfile).with(about::OVERWRITE_PIDFILE),
    long("monitor", Nothing, Monitor).with(about::MONITOR),
    long("user", Value, User).with(about::USER),
];

/// The options about logging.
pub(crate) const LOGGING: &[Spec<ProcessOption>] = &[
    both('v', "verbose", MaybeValue, Log(LogId::Verbose)).with(about::VERBOSE),
    long("log-file", MaybeValue, Log(LogId::File)).with(about::LOG_FILE),
    long("syslog-method", Value, Log(LogId::SyslogMethod)).with(about::SYSLOG_METHOD),
    long("syslog-target", Value, Log(LogId::SyslogTarget)).with(about::SYSLOG_TARGET),
];

/// The first option about TLS; a server has one more between it and the others.
pub(crate) const BOOTSTRAP: &[Spec<ProcessOption>] =
    &[long("bootstrap-ca-cert", Value, Tls(TlsOption::BootstrapCaCert))
        .with(about::BOOTSTRAP_CA_CERT)];

/// The other options about TLS.
pub(crate) const TLS: &[Spec<ProcessOption>] = &[
    both('p', "private-key", Value, Tls(TlsOption::PrivateKey)).with(about::PRIVATE_KEY),
    both('c', "certificate", Value, Tls(TlsOption::Certificate)).with(about::CERTIFICATE),
    both('C', "ca-cert", Value, Tls(TlsOption::CaCert)).with(about::CA_CERT),
    long("ssl-protocols", Value, Tls(TlsOption::Protocols)).with(about::SSL_PROTOCOLS),
    long("ssl-ciphers", Value, Tls(TlsOption::Ciphers)).with(about::SSL_CIPHERS),
    long("ssl-ciphersuites", Value, Tls(TlsOption::Ciphersuites)).with(about::SSL_CIPHERSUITES),
    long("ssl-server-name", Value, Tls(TlsOption::ServerName)).with(about::SSL_SERVER_NAME),
];

/// The options about recordings.
pub(crate) const RECORDING: &[Spec<ProcessOption>] = &[
    long("record", MaybeValue, Record).with(about::RECORD),
    long("replay", MaybeValue, Replay).with(about::REPLAY),
];

/// What the options about the process say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessOptions {
    /// `--detach`
    pub(crate) detach: bool,
    /// `--no-chdir`
    pub(crate) no_chdir: bool,
    /// `--pidfile`; the inner `None` is the default file.
    pub(crate) pidfile: Option<Option<String>>,
    /// `--overwrite-pidfile`
    pub(crate) overwrite_pidfile: bool,
    /// `--monitor`
    pub(crate) monitor: bool,
    /// `--user`
    pub(crate) user: Option<String>,
    /// Everything about logging, in order.
    pub(crate) log: Vec<LogOption>,
    /// Everything about TLS, in order: a file or text; of a server also `db:DB,TABLE,COLUMN`, which
    /// holds it.
    pub(crate) tls: Vec<(TlsOption, String)>,
    /// `--record` or `--replay`, with the directory as given; the last one counts.
    pub(crate) recording: Option<(RecordingMode, Option<String>)>,
}

impl ProcessOptions {
    /// Takes note of one option. `value` is there whenever the table says `Value`.
    pub(crate) fn take(&mut self, option: ProcessOption, value: Option<String>) {
        match option {
            Detach => self.detach = true,
            NoSelfConfinement => {}
            NoChdir => self.no_chdir = true,
            Pidfile => self.pidfile = Some(value),
            OverwritePidfile => self.overwrite_pidfile = true,
            Monitor => self.monitor = true,
            User => self.user = value,
            Log(id) => self.log.push(id.with(value)),
            Tls(option) => self.tls.push((option, value.unwrap_or_default())),
            Record => self.recording = Some((RecordingMode::Record, value)),
            Replay => self.recording = Some((RecordingMode::Replay, value)),
        }
    }

    /// Whether the process leaves the directory that relative names start from.
    pub(crate) fn leaves_directory(&self) -> bool {
        self.detach && !self.no_chdir
    }

    /// How `program` goes to the background; a pid file without a name is called after it.
    pub(crate) fn daemon(&self, program: &str, dirs: &Dirs) -> DaemonOptions {
        let default = format!("{program}.pid");
        DaemonOptions {
            detach: self.detach,
            monitor: self.monitor,
            no_chdir: self.no_chdir,
            pidfile: self
                .pidfile
                .as_ref()
                .map(|name| dirs.run.join(name.as_ref().unwrap_or(&default))),
            overwrite_pidfile: self.overwrite_pidfile,
            keep_stdout: false,
            keep_stderr: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_file_is_called_after_the_program_unless_it_has_a_name() {
        let dirs = Dirs::from_env();
        let pidfile = |value: Option<&str>| {
            let mut given = ProcessOptions::default();
            given.take(Pidfile, value.map(str::to_owned));
            given.daemon("ovsdb-server", &dirs).pidfile
        };
        assert_eq!(ProcessOptions::default().daemon("ovsdb-server", &dirs).pidfile, None);
        assert_eq!(pidfile(None), Some(dirs.run.join("ovsdb-server.pid")));
        assert_eq!(pidfile(Some("x")), Some(dirs.run.join("x")));
        assert_eq!(pidfile(Some("/x")), Some("/x".into()));
    }
}

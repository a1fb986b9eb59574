//! The server's command line.

use crate::options::getopt::Takes::{Nothing, Value};
use crate::options::getopt::{Options, Spec, both, long};
use crate::options::process::{self, ProcessOption, ProcessOptions};
use crate::options::tls::TlsOption;
use crate::program::Failure;
use crate::usage::{self, About, Complete, about as shown};
use weir_server::configuration::check_excluded;

/// An option of ovsdb-server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Id {
    Remote,
    Unixctl,
    Run,
    Help,
    Version,
    Process(ProcessOption),
    SyncFrom,
    SyncExclude,
    Active,
    NoDbs,
    ConfigFile,
    NoColumnDiff,
    NoDataConversion,
    NoHistory,
}

/// The heading of the options about where clients connect.
pub(super) const REMOTES: &str = "Where clients connect";
/// The heading of the options about databases.
pub(super) const DATABASES: &str = "Databases";
/// The heading of the options about following another server.
pub(super) const BACKUP: &str = "Backup of another server";

const REMOTE: About =
    shown(REMOTES, "REMOTE", "listen there, or connect (may be given several times)")
        .complete(Complete::Words(&["punix:", "ptcp:", "pssl:", "db:", "unix:", "tcp:", "ssl:"]));
const UNIXCTL: About =
    shown(REMOTES, "SOCKET", "socket for ovs-appctl, or \"none\"").complete(Complete::File);
const PEER_CA_CERT: About =
    shown(usage::about::TLS, "FILE", "authority certificate to show to clients")
        .complete(Complete::File);
const RUN: About =
    shown(usage::about::DAEMON, "COMMAND", "run COMMAND in a shell, and end when it ends");
const NO_DBS: About = shown(DATABASES, "", "start without any database");
const NO_COLUMN_DIFF: About =
    shown(DATABASES, "", "write whole columns to database files, for servers before 2.16");
const NO_DATA_CONVERSION: About = shown(DATABASES, "", "write all rows when a schema is converted");
const NO_HISTORY: About = shown(DATABASES, "", "keep no changes for clients that come back");
const CONFIG_FILE: About = shown(
    DATABASES,
    "FILE",
    "take databases and remotes from this JSON file, again at each ovsdb-server/reload (goes \
     without DATABASE, --remote and the options of a backup)",
)
.complete(Complete::File);
const SYNC_FROM: About =
    shown(BACKUP, "SERVER", "keep the databases like those of SERVER, read-only")
        .complete(Complete::Server);
const SYNC_EXCLUDE: About = shown(BACKUP, "DB:TABLE,...", "leave these tables alone");
const ACTIVE: About = shown(BACKUP, "", "be ready for it, but begin as an active server");

/// The options of ovsdb-server in the reference's order, which shows in its message about ambiguous
/// abbreviations.
fn table() -> Vec<Spec<Id>> {
    let shared =
        |rows: &[Spec<ProcessOption>]| rows.iter().map(|row| row.map(Id::Process)).collect();
    [
        vec![
            long("remote", Value, Id::Remote).with(REMOTE),
            long("unixctl", Value, Id::Unixctl).with(UNIXCTL),
            long("run", Value, Id::Run).with(RUN),
            both('h', "help", Nothing, Id::Help).with(usage::about::HELP),
            both('V', "version", Nothing, Id::Version).with(usage::about::VERSION),
        ],
        shared(process::DAEMON),
        shared(process::LOGGING),
        shared(process::BOOTSTRAP),
        vec![
            long("peer-ca-cert", Value, Id::Process(ProcessOption::Tls(TlsOption::PeerCaCert)))
                .with(PEER_CA_CERT),
        ],
        shared(process::TLS),
        shared(process::RECORDING),
        vec![
            long("sync-from", Value, Id::SyncFrom).with(SYNC_FROM),
            long("sync-exclude-tables", Value, Id::SyncExclude).with(SYNC_EXCLUDE),
            long("active", Nothing, Id::Active).with(ACTIVE),
            long("no-dbs", Nothing, Id::NoDbs).with(NO_DBS),
            long("disable-file-column-diff", Nothing, Id::NoColumnDiff).with(NO_COLUMN_DIFF),
            long("disable-file-no-data-conversion", Nothing, Id::NoDataConversion)
                .with(NO_DATA_CONVERSION),
            long("no-standalone-history", Nothing, Id::NoHistory).with(NO_HISTORY).whole(),
            long("config-file", Value, Id::ConfigFile).with(CONFIG_FILE),
        ],
    ]
    .concat()
}

/// What people are told about the options.
pub(super) fn shown_options() -> Vec<usage::OptionUsage> {
    usage::options(&table())
}

/// A command line that starts a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerOptions {
    /// The databases as given, in order.
    pub(crate) databases: Vec<String>,
    /// `--remote`, in order.
    pub(crate) remotes: Vec<String>,
    /// `--unixctl`
    pub(crate) unixctl: Option<String>,
    /// `--run`
    pub(crate) run: Option<String>,
    /// How the process runs.
    pub(crate) process: ProcessOptions,
    /// `--sync-from`
    pub(crate) sync_from: Option<String>,
    /// `--sync-exclude-tables`
    pub(crate) sync_exclude: Option<String>,
    /// `--active`
    pub(crate) active: bool,
    /// `--config-file`, as given.
    pub(crate) config_file: Option<String>,
    /// `--no-dbs`
    pub(crate) no_dbs: bool,
    /// `--disable-file-column-diff`
    pub(crate) no_column_diff: bool,
    /// `--disable-file-no-data-conversion`
    pub(crate) no_data_conversion: bool,
    /// `--no-standalone-history`
    pub(crate) no_history: bool,
}

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Invocation {
    /// The command line asks to run a server.
    Serve(Box<ServerOptions>),
    /// `--help`
    Help,
    /// `--version`
    Version,
}

/// A mistake in the command line.
#[derive(Debug)]
pub(crate) enum Mistake {
    /// getopt's own message, printed behind the program's name as it was called.
    Usage(String),
    /// Printed behind the program's base name.
    Fatal(Failure),
}

/// Reads the command line behind the program's name.
pub(crate) fn parse(args: Vec<String>) -> Result<Invocation, Mistake> {
    let mut given = ServerOptions::default();
    let table = table();
    let mut options = Options::new(&table, args);
    for option in options.by_ref() {
        let (id, value) = option.map_err(Mistake::Usage)?;
        match id {
            Id::Help => return Ok(Invocation::Help),
            Id::Version => return Ok(Invocation::Version),
            Id::SyncExclude => {
                let list = value.unwrap_or_default();
                check_excluded(&list).map_err(|error| Mistake::Fatal(Failure::new(error)))?;
                given.sync_exclude = Some(list);
            }
            id => given.take(id, value),
        }
    }
    given.databases = options.into_positional();
    given.check_config_file().map_err(|text| Mistake::Fatal(Failure::new(text)))?;
    Ok(Invocation::Serve(Box::new(given)))
}

impl ServerOptions {
    /// Takes note of one option. `value` is there whenever the table says `Value`.
    fn take(&mut self, id: Id, value: Option<String>) {
        let text = || value.clone().unwrap_or_default();
        match id {
            Id::Remote => self.remotes.push(text()),
            Id::Unixctl => self.unixctl = value,
            Id::Run => self.run = value,
            Id::Process(option) => self.process.take(option, value),
            Id::SyncFrom => self.sync_from = value,
            Id::Active => self.active = true,
            Id::ConfigFile => self.config_file = value,
            Id::NoDbs => self.no_dbs = true,
            Id::NoColumnDiff => self.no_column_diff = true,
            Id::NoDataConversion => self.no_data_conversion = true,
            Id::NoHistory => self.no_history = true,
            Id::Help | Id::Version | Id::SyncExclude => {}
        }
    }

    /// Checks that nothing is given that a configuration file says.
    fn check_config_file(&self) -> Result<(), &'static str> {
        if self.config_file.is_none() {
            return Ok(());
        }
        if self.sync_from.is_some() || self.sync_exclude.is_some() || self.active {
            return Err(
                "--config-file is mutually exclusive with --sync-from, --sync-exclude and \
                        --active",
            );
        }
        if !self.remotes.is_empty() {
            return Err("--config-file is mutually exclusive with --remote");
        }
        if !self.databases.is_empty() {
            return Err("Databases should be specified in a config file");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dirs::Dirs;
    use crate::options::logging::LogOption;

    fn asked(args: &[&str]) -> Result<Invocation, Mistake> {
        parse(args.iter().map(|&arg| arg.to_owned()).collect())
    }

    fn served(args: &[&str]) -> ServerOptions {
        match asked(args) {
            Ok(Invocation::Serve(options)) => *options,
            other => panic!("{args:?}: {other:?}"),
        }
    }

    fn mistake(args: &[&str]) -> String {
        match asked(args) {
            Err(Mistake::Usage(text)) => format!("usage: {text}"),
            Err(Mistake::Fatal(failure)) => format!("fatal: {}", failure.text),
            other => panic!("{args:?}: {other:?}"),
        }
    }

    #[test]
    fn the_line_of_ovn_ctl() {
        let options = served(&[
            "-vconsole:off",
            "-vfile:info",
            "--log-file=/var/log/ovn/ovsdb-server-nb.log",
            "--remote=punix:/var/run/ovn/ovnnb_db.sock",
            "--pidfile=/var/run/ovn/ovnnb_db.pid",
            "--unixctl=/var/run/ovn/ovnnb_db.ctl",
            "--detach",
            "--monitor",
            "--remote=db:OVN_Northbound,NB_Global,connections",
            "--private-key=db:OVN_Northbound,SSL,private_key",
            "--certificate=db:OVN_Northbound,SSL,certificate",
            "--ca-cert=db:OVN_Northbound,SSL,ca_cert",
            "--ssl-protocols=db:OVN_Northbound,SSL,ssl_protocols",
            "--ssl-ciphers=db:OVN_Northbound,SSL,ssl_ciphers",
            "/etc/ovn/ovnnb_db.db",
        ]);
        assert_eq!(options.databases, ["/etc/ovn/ovnnb_db.db"]);
        assert_eq!(options.remotes.len(), 2);
        assert_eq!(options.process.log[0], LogOption::Verbose(Some("console:off".into())));
        assert_eq!(
            options.process.log[2],
            LogOption::File(Some("/var/log/ovn/ovsdb-server-nb.log".into()))
        );
        assert!(
            options.process.detach && options.process.monitor && options.process.leaves_directory()
        );
        let daemon = options.process.daemon("ovsdb-server", &Dirs::from_env());
        assert_eq!(daemon.pidfile, Some("/var/run/ovn/ovnnb_db.pid".into()));
        let key = (TlsOption::PrivateKey, "db:OVN_Northbound,SSL,private_key".to_owned());
        assert_eq!(options.process.tls[0], key);
        assert_eq!(options.process.tls.len(), 5);
    }

    #[test]
    fn abbreviations_and_options_behind_databases() {
        let options = served(&["a.db", "--no-db", "b.db", "--remote", "ptcp:0", "--pidfile"]);
        assert!(options.no_dbs);
        assert_eq!(options.databases, ["a.db", "b.db"]);
        assert_eq!(options.remotes, ["ptcp:0"]);
        let daemon = options.process.daemon("ovsdb-server", &Dirs::from_env());
        assert!(daemon.pidfile.is_some_and(|path| path.ends_with("ovsdb-server.pid")));
    }

    #[test]
    fn tls_letters() {
        let options = served(&["-pk.pem", "-c", "c.pem", "-C=a.pem", "--disable-file-c"]);
        let tls: Vec<_> =
            options.process.tls.iter().map(|(id, value)| (*id, value.as_str())).collect();
        assert_eq!(
            tls,
            [
                (TlsOption::PrivateKey, "k.pem"),
                (TlsOption::Certificate, "c.pem"),
                (TlsOption::CaCert, "=a.pem"),
            ]
        );
        assert!(options.no_column_diff && !options.no_data_conversion);
    }

    #[test]
    fn help_and_version_act_at_once() {
        assert_eq!(asked(&["-V", "--nonsense"]).ok(), Some(Invocation::Version));
        assert_eq!(asked(&["x.db", "--help"]).ok(), Some(Invocation::Help));
        assert_eq!(asked(&["-hV"]).ok(), Some(Invocation::Help));
    }

    #[test]
    fn what_a_configuration_file_goes_without() {
        let excluded = "--config-file is mutually exclusive with --sync-from, --sync-exclude and \
                        --active";
        for (args, expected) in [
            (&["--config-file=x", "--active"][..], excluded),
            (&["--sync-from=tcp:192.0.2.1", "--config-file=x"], excluded),
            (&["--sync-exclude-tables=D:T", "--config-file=x"], excluded),
            (
                &["--remote=ptcp:1", "--config-file=x"],
                "--config-file is mutually exclusive with --remote",
            ),
            (&["--config-file=x", "a.db"], "Databases should be specified in a config file"),
            (&["--sync-exclude-tables=D:T,U"], "Can't parse excluded table: U"),
        ] {
            assert_eq!(mistake(args), format!("fatal: {expected}"), "{args:?}");
        }
        assert_eq!(served(&["--config-file", "x"]).config_file.as_deref(), Some("x"));
        let backup = served(&["--sync-from=unix:s", "--active", "--sync-exclude-tables=D:T"]);
        assert_eq!(backup.sync_from.as_deref(), Some("unix:s"));
        assert!(backup.active && backup.sync_exclude.is_some());
    }

    #[test]
    fn mistakes_are_named() {
        for (args, expected) in [
            (&["--nonsense"][..], "usage: unrecognized option '--nonsense'"),
            (&["-p"], "usage: option requires an argument -- 'p'"),
            (
                &["--re"],
                "usage: option '--re' is ambiguous; possibilities: '--remote' '--record' \
                 '--replay'",
            ),
            (
                &["--no"],
                "usage: option '--no' is ambiguous; possibilities: '--no-self-confinement' \
                 '--no-chdir' '--no-dbs'",
            ),
        ] {
            assert_eq!(mistake(args), expected);
        }
    }
}

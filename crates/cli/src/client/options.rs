//! The command line of ovsdb-client.

use weir_host::daemon::DaemonOptions;
use weir_table::{CellFormat, Format, Style};

use crate::dirs::{Dirs, RecordingMode};
use crate::options::getopt::Takes::{MaybeValue, Nothing, Value};
use crate::options::getopt::{Options, Spec, both, long};
use crate::options::logging::LogOption;
use crate::options::tls::TlsOption;
use crate::program::Failure;
use crate::usage::{self, About, Complete, about as shown};

/// The heading of options of commands.
pub(super) const COMMANDS: &str = "Options of commands";
/// The heading of options about output.
pub(super) const OUTPUT: &str = "Output formatting options";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Id {
    Help,
    Version,
    Timestamp,
    Force,
    Timeout,
    DbChangeAware,
    NoDbChangeAware,
    LeaderOnly,
    NoLeaderOnly,
    Verbose,
    LogFile,
    SyslogMethod,
    SyslogTarget,
    Detach,
    NoSelfConfinement,
    NoChdir,
    Pidfile,
    OverwritePidfile,
    Monitor,
    User,
    Tls(TlsOption),
    Format,
    Data,
    NoHeadings,
    Pretty,
    Bare,
    MaxColumnWidth,
    Record,
    Replay,
}

const LEADER_ONLY: About =
    shown(COMMANDS, "", "of several servers, use the leader of the cluster (the default)");
const NO_LEADER_ONLY: About = shown(COMMANDS, "", "of several servers, use any that is connected");
const TIMEOUT: About = shown(COMMANDS, "SECS", "give up after SECS seconds, with status 142");
const FORCE: About = shown(COMMANDS, "", "restore: although the schema is another one");
const TIMESTAMP: About = shown(OUTPUT, "", "monitor*: say when each change came");
const FORMAT: About = shown(OUTPUT, "FORMAT", "table, list, html, csv or json")
    .complete(Complete::Words(Format::NAMES));
const DATA: About = shown(OUTPUT, "FORMAT", "of cells: string, bare or json")
    .complete(Complete::Words(CellFormat::NAMES));
const NO_HEADINGS: About = shown(OUTPUT, "", "no headings above columns");
const PRETTY: About = shown(OUTPUT, "", "JSON with line breaks");
const BARE: About = shown(OUTPUT, "", "--format=list --data=bare --no-headings");
const MAX_COLUMN_WIDTH: About = shown(OUTPUT, "N", "cut cells of tables to N columns");

/// In the reference's order, which its messages about ambiguous options show.
pub(super) const TABLE: &[Spec<Id>] = &[
    both('h', "help", Nothing, Id::Help).with(usage::about::HELP),
    both('V', "version", Nothing, Id::Version).with(usage::about::VERSION),
    long("timestamp", Nothing, Id::Timestamp).with(TIMESTAMP),
    long("force", Nothing, Id::Force).with(FORCE),
    both('t', "timeout", Value, Id::Timeout).with(TIMEOUT),
    long("db-change-aware", Nothing, Id::DbChangeAware),
    long("no-db-change-aware", Nothing, Id::NoDbChangeAware),
    long("leader-only", Nothing, Id::LeaderOnly).with(LEADER_ONLY),
    long("no-leader-only", Nothing, Id::NoLeaderOnly).with(NO_LEADER_ONLY),
    both('v', "verbose", MaybeValue, Id::Verbose).with(usage::about::VERBOSE),
    long("log-file", MaybeValue, Id::LogFile).with(usage::about::LOG_FILE),
    long("syslog-method", Value, Id::SyslogMethod).with(usage::about::SYSLOG_METHOD),
    long("syslog-target", Value, Id::SyslogTarget).with(usage::about::SYSLOG_TARGET),
    long("detach", Nothing, Id::Detach).with(usage::about::DETACH),
    long("no-self-confinement", Nothing, Id::NoSelfConfinement)
        .with(usage::about::NO_SELF_CONFINEMENT),
    long("no-chdir", Nothing, Id::NoChdir).with(usage::about::NO_CHDIR),
    long("pidfile", MaybeValue, Id::Pidfile).with(usage::about::PIDFILE),
    long("overwrite-pidfile", Nothing, Id::OverwritePidfile).with(usage::about::OVERWRITE_PIDFILE),
    long("monitor", Nothing, Id::Monitor).with(usage::about::MONITOR),
    long("user", Value, Id::User).with(usage::about::USER),
    long("bootstrap-ca-cert", Value, Id::Tls(TlsOption::BootstrapCaCert))
        .with(usage::about::BOOTSTRAP_CA_CERT),
    both('p', "private-key", Value, Id::Tls(TlsOption::PrivateKey)).with(usage::about::PRIVATE_KEY),
    both('c', "certificate", Value, Id::Tls(TlsOption::Certificate))
        .with(usage::about::CERTIFICATE),
    both('C', "ca-cert", Value, Id::Tls(TlsOption::CaCert)).with(usage::about::CA_CERT),
    long("ssl-protocols", Value, Id::Tls(TlsOption::Protocols)).with(usage::about::SSL_PROTOCOLS),
    long("ssl-ciphers", Value, Id::Tls(TlsOption::Ciphers)).with(usage::about::SSL_CIPHERS),
    long("ssl-ciphersuites", Value, Id::Tls(TlsOption::Ciphersuites))
        .with(usage::about::SSL_CIPHERSUITES),
    long("ssl-server-name", Value, Id::Tls(TlsOption::ServerName))
        .with(usage::about::SSL_SERVER_NAME),
    both('f', "format", Value, Id::Format).with(FORMAT),
    both('d', "data", Value, Id::Data).with(DATA),
    long("no-headings", Nothing, Id::NoHeadings).with(NO_HEADINGS),
    long("pretty", Nothing, Id::Pretty).with(PRETTY),
    long("bare", Nothing, Id::Bare).with(BARE),
    long("max-column-width", Value, Id::MaxColumnWidth).with(MAX_COLUMN_WIDTH),
    long("record", MaybeValue, Id::Record).with(usage::about::RECORD),
    long("replay", MaybeValue, Id::Replay).with(usage::about::REPLAY),
];

/// What was asked for.
#[derive(Debug)]
pub(crate) enum Asked {
    /// `--help`
    Help,
    /// `--version`
    Version,
    /// A command.
    Run(Box<ClientOptions>),
}

/// The options of a run.
#[derive(Debug, Default)]
pub(crate) struct ClientOptions {
    pub(super) style: Style,
    pub(super) timestamp: bool,
    pub(super) force: bool,
    /// Seconds; none is for ever.
    pub(super) timeout: Option<u32>,
    /// `--db-change-aware` and its opposite; none is what the command does by itself.
    pub(super) db_change_aware: Option<bool>,
    /// `--no-leader-only`.
    pub(super) any_member: bool,
    pub(super) daemon: DaemonOptions,
    pub(super) user: Option<String>,
    pub(super) log: Vec<LogOption>,
    pub(super) tls: Vec<(TlsOption, String)>,
    /// `--record` or `--replay`, with the directory as given; the last one counts.
    pub(super) recording: Option<(RecordingMode, Option<String>)>,
    /// The command and its arguments.
    pub(super) words: Vec<String>,
}

/// A mistake on the command line: getopt's, or the program's.
pub(crate) enum Mistake {
    Usage(String),
    Fatal(Failure),
}

/// Reads the arguments behind the program's name.
pub(crate) fn parse(args: Vec<String>, dirs: &Dirs) -> Result<Asked, Mistake> {
    // Not a number or none at all: no limit, as for the reference.
    let timeout = std::env::var("OVS_CTL_TIMEOUT").ok().and_then(|text| seconds(&text));
    let mut given = ClientOptions { timeout, ..ClientOptions::default() };
    let mut options = Options::new(TABLE, args);
    for option in options.by_ref() {
        let (id, value) = option.map_err(Mistake::Usage)?;
        match id {
            Id::Help => return Ok(Asked::Help),
            Id::Version => return Ok(Asked::Version),
            id => given.take(id, value, dirs).map_err(Mistake::Fatal)?,
        }
    }
    given.words = options.into_positional();
    Ok(Asked::Run(Box::new(given)))
}

/// A number of seconds, at least one; blanks before it are passed over, as strtol(3) does.
fn seconds(text: &str) -> Option<u32> {
    text.trim_ascii_start().parse().ok().filter(|seconds| *seconds > 0)
}

/// The number that a text begins with, as atoi(3) reads it; what is none is no limit.
fn columns(text: &str) -> usize {
    let text = text.trim_ascii_start();
    let text = text.strip_prefix('+').unwrap_or(text);
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end).and_then(|digits| digits.parse().ok()).unwrap_or_default()
}

impl ClientOptions {
    /// Takes note of one option. `value` is there whenever the table says `Value`.
    fn take(&mut self, id: Id, value: Option<String>, dirs: &Dirs) -> Result<(), Failure> {
        let text = || value.clone().unwrap_or_default();
        match id {
            Id::Timestamp => self.timestamp = true,
            Id::Force => self.force = true,
            Id::Timeout => {
                let text = text();
                let invalid = || format!("value {text} on -t or --timeout is invalid");
                self.timeout = Some(seconds(&text).ok_or_else(|| Failure::new(invalid()))?);
            }
            Id::DbChangeAware => self.db_change_aware = Some(true),
            Id::NoDbChangeAware => self.db_change_aware = Some(false),
            Id::LeaderOnly => self.any_member = false,
            Id::NoLeaderOnly => self.any_member = true,
            Id::Verbose => self.log.push(LogOption::Verbose(value)),
            Id::LogFile => self.log.push(LogOption::File(value)),
            Id::SyslogMethod => self.log.push(LogOption::SyslogMethod(text())),
            Id::SyslogTarget => self.log.push(LogOption::SyslogTarget(text())),
            Id::Detach => self.daemon.detach = true,
            Id::NoChdir => self.daemon.no_chdir = true,
            Id::Pidfile => {
                let name = value.unwrap_or_else(|| format!("{}.pid", super::PROGRAM));
                self.daemon.pidfile = Some(dirs.run.join(name));
            }
            Id::OverwritePidfile => self.daemon.overwrite_pidfile = true,
            Id::Monitor => self.daemon.monitor = true,
            Id::User => self.user = value,
            Id::Tls(option) => self.tls.push((option, text())),
            Id::Format | Id::Data => self.take_format(id, &text())?,
            Id::NoHeadings => self.style.headings = false,
            Id::Pretty => self.style.pretty = true,
            Id::Bare => {
                (self.style.format, self.style.cells) = (Format::List, CellFormat::Bare);
                self.style.headings = false;
            }
            Id::MaxColumnWidth => self.style.column_width_max = columns(&text()),
            Id::Record => self.recording = Some((RecordingMode::Record, value)),
            Id::Replay => self.recording = Some((RecordingMode::Replay, value)),
            Id::NoSelfConfinement | Id::Help | Id::Version => {}
        }
        Ok(())
    }

    fn take_format(&mut self, id: Id, name: &str) -> Result<(), Failure> {
        let unknown = |what| Failure::new(format!("unknown {what} format \"{name}\""));
        if id == Id::Format {
            self.style.format = Format::parse(name).ok_or_else(|| unknown("output"))?;
        } else {
            self.style.cells = CellFormat::parse(name).ok_or_else(|| unknown("data"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &[&str]) -> String {
        let args = args.iter().map(|&arg| arg.to_owned()).collect();
        match parse(args, &Dirs::from_env()) {
            Ok(Asked::Run(given)) => format!("{:?} {}", given.style, given.words.join(" ")),
            Ok(other) => format!("{other:?}"),
            Err(Mistake::Usage(text)) => format!("usage: {text}"),
            Err(Mistake::Fatal(failure)) => format!("fatal: {}", failure.text),
        }
    }

    #[test]
    fn an_ambiguous_option_lists_all_in_the_order_of_the_reference() {
        assert_eq!(
            parsed(&["--s"]),
            "usage: option '--s' is ambiguous; possibilities: '--syslog-method' \
             '--syslog-target' '--ssl-protocols' '--ssl-ciphers' '--ssl-ciphersuites' \
             '--ssl-server-name'"
        );
    }

    #[test]
    fn mistakes_in_the_words_of_the_reference() {
        for (args, expected) in [
            (&["-t", "x"][..], "fatal: value x on -t or --timeout is invalid"),
            (&["--timeout=0"], "fatal: value 0 on -t or --timeout is invalid"),
            (&["-f", "foo"], "fatal: unknown output format \"foo\""),
            (&["--data=foo"], "fatal: unknown data format \"foo\""),
            (&["-Z"], "usage: invalid option -- 'Z'"),
            (&["-V", "--nonsense"], "Version"),
        ] {
            assert_eq!(parsed(args), expected);
        }
    }
}

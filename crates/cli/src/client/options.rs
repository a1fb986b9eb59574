//! The command line of ovsdb-client.

use weir_table::{CellFormat, Format, Style};

use super::{delivery, log};
use crate::options::getopt::Takes::{Nothing, Value};
use crate::options::getopt::{Options, Spec, both, long};
use crate::options::process::{self, ProcessOption, ProcessOptions};
use crate::program::Failure;
use crate::usage::{self, About, Complete, about as shown};

/// The heading of options of commands.
pub(super) const COMMANDS: &str = "Options of commands";
/// The heading of options about output.
pub(super) const OUTPUT: &str = "Output formatting options";

/// How far a transaction must have come; the last one unless somebody says.
const LEVELS: &[&str] = &["queued", "written", "acknowledged"];

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
    Process(ProcessOption),
    Format,
    Data,
    NoHeadings,
    Pretty,
    Bare,
    MaxColumnWidth,
    Count,
    Level,
    Since,
    Table,
    Row,
    Limit,
}

const LEADER_ONLY: About =
    shown(COMMANDS, "", "of several servers, use the leader of the cluster (the default)");
const NO_LEADER_ONLY: About = shown(COMMANDS, "", "of several servers, use any that is connected");
const TIMEOUT: About = shown(COMMANDS, "SECS", "give up after SECS seconds, with status 142");
const FORCE: About = shown(COMMANDS, "", "restore: although the schema is another one");
const COUNT: About = shown(COMMANDS, "N", "wait-delivered: until N clients have it (default: all)");
const LEVEL: About = shown(COMMANDS, "LEVEL", "wait-delivered: queued, written or acknowledged")
    .complete(Complete::Words(LEVELS));
const SINCE: About = shown(COMMANDS, "ID", "log: behind the state of this id");
const TABLE: About = shown(COMMANDS, "TABLE", "log: changes of this table only");
const ROW: About = shown(COMMANDS, "UUID", "log: changes of this row only");
const LIMIT: About = shown(COMMANDS, "N", "log: the newest N of them (default: 100)");
const TIMESTAMP: About = shown(OUTPUT, "", "monitor*: say when each change came");
const FORMAT: About = shown(OUTPUT, "FORMAT", "table, list, html, csv or json")
    .complete(Complete::Words(Format::NAMES));
const DATA: About = shown(OUTPUT, "FORMAT", "of cells: string, bare or json")
    .complete(Complete::Words(CellFormat::NAMES));
const NO_HEADINGS: About = shown(OUTPUT, "", "no headings above columns");
const PRETTY: About = shown(OUTPUT, "", "JSON with line breaks");
const BARE: About = shown(OUTPUT, "", "--format=list --data=bare --no-headings");
const MAX_COLUMN_WIDTH: About = shown(OUTPUT, "N", "cut cells of tables to N columns");

/// The options of ovsdb-client in the reference's order, which its messages about ambiguous options
/// show.
pub(super) fn table() -> Vec<Spec<Id>> {
    let shared =
        |rows: &[Spec<ProcessOption>]| rows.iter().map(|row| row.map(Id::Process)).collect();
    [
        vec![
            both('h', "help", Nothing, Id::Help).with(usage::about::HELP),
            both('V', "version", Nothing, Id::Version).with(usage::about::VERSION),
            long("timestamp", Nothing, Id::Timestamp).with(TIMESTAMP),
            long("force", Nothing, Id::Force).with(FORCE),
            both('t', "timeout", Value, Id::Timeout).with(TIMEOUT),
            long("db-change-aware", Nothing, Id::DbChangeAware),
            long("no-db-change-aware", Nothing, Id::NoDbChangeAware),
            long("leader-only", Nothing, Id::LeaderOnly).with(LEADER_ONLY),
            long("no-leader-only", Nothing, Id::NoLeaderOnly).with(NO_LEADER_ONLY),
        ],
        shared(process::LOGGING),
        shared(process::DAEMON),
        shared(process::BOOTSTRAP),
        shared(process::TLS),
        vec![
            both('f', "format", Value, Id::Format).with(FORMAT),
            both('d', "data", Value, Id::Data).with(DATA),
            long("no-headings", Nothing, Id::NoHeadings).with(NO_HEADINGS),
            long("pretty", Nothing, Id::Pretty).with(PRETTY),
            long("bare", Nothing, Id::Bare).with(BARE),
            long("max-column-width", Value, Id::MaxColumnWidth).with(MAX_COLUMN_WIDTH),
        ],
        shared(process::RECORDING),
    ]
    .concat()
}

/// The options that the reference does not have, by command. They are there for that only, so that
/// abbreviations of others mean what they mean to the reference.
fn own(command: &str) -> Vec<Spec<Id>> {
    match command {
        delivery::NAME => vec![
            long("count", Value, Id::Count).with(COUNT),
            long("level", Value, Id::Level).with(LEVEL),
        ],
        log::NAME => vec![
            long("since", Value, Id::Since).with(SINCE),
            long("table", Value, Id::Table).with(TABLE),
            long("row", Value, Id::Row).with(ROW),
            long("limit", Value, Id::Limit).with(LIMIT),
        ],
        _ => Vec::new(),
    }
}

/// All options, those of single commands among them, for who is told of them.
pub(super) fn all() -> Vec<Spec<Id>> {
    [table(), own(delivery::NAME), own(log::NAME)].concat()
}

/// What the command line asks for.
#[derive(Debug)]
pub(crate) enum Invocation {
    /// `--help`
    Help,
    /// `--version`
    Version,
    /// The command line asks for a command.
    Run(Box<ClientOptions>),
}

/// The options of a run.
#[derive(Debug, Default)]
pub(crate) struct ClientOptions {
    pub(super) style: Style,
    pub(super) timestamp: bool,
    pub(super) force: bool,
    /// `--timeout` in seconds; none is for ever.
    pub(super) timeout: Option<u32>,
    /// `--db-change-aware` or `--no-db-change-aware`; none is what the command does by itself.
    pub(super) db_change_aware: Option<bool>,
    /// `--no-leader-only`.
    pub(super) any_member: bool,
    pub(super) process: ProcessOptions,
    /// `--count`
    pub(super) count: Option<i64>,
    /// `--level`
    pub(super) level: Level,
    /// `--since`, `--table` and `--row`
    pub(super) since: Option<String>,
    pub(super) table: Option<String>,
    pub(super) row: Option<String>,
    /// `--limit`
    pub(super) limit: Option<i64>,
    /// The command and its arguments.
    pub(super) words: Vec<String>,
}

/// How far a transaction must have come: one of [`LEVELS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Level(&'static str);

impl Default for Level {
    fn default() -> Self {
        Self("acknowledged")
    }
}

impl Level {
    pub(super) fn as_str(self) -> &'static str {
        self.0
    }
}

/// A mistake on the command line: getopt's, or the program's.
pub(crate) enum Mistake {
    Usage(String),
    Fatal(Failure),
}

/// Reads the arguments behind the program's name.
pub(crate) fn parse(args: Vec<String>) -> Result<Invocation, Mistake> {
    // Not a number or none at all: no limit, as for the reference.
    let timeout = std::env::var("OVS_CTL_TIMEOUT").ok().and_then(|text| seconds(&text));
    let mut given = ClientOptions { timeout, ..ClientOptions::default() };
    let mut table = table();
    let is_named = |command: &&str| args.iter().any(|arg| arg == *command);
    table.extend([delivery::NAME, log::NAME].into_iter().filter(is_named).flat_map(own));
    let mut options = Options::new(&table, args);
    for option in options.by_ref() {
        let (id, value) = option.map_err(Mistake::Usage)?;
        match id {
            Id::Help => return Ok(Invocation::Help),
            Id::Version => return Ok(Invocation::Version),
            id => given.take(id, value).map_err(Mistake::Fatal)?,
        }
    }
    given.words = options.into_positional();
    Ok(Invocation::Run(Box::new(given)))
}

/// A number of seconds, at least one; blanks before it are passed over, as strtol(3) does.
fn seconds(text: &str) -> Option<u32> {
    text.trim_ascii_start().parse().ok().filter(|seconds| *seconds > 0)
}

/// The value of an option that is a number above 0.
fn positive(option: &str, text: &str) -> Result<i64, Failure> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| Failure::new(format!("value {text} on --{option} is invalid")))
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
    fn take(&mut self, id: Id, value: Option<String>) -> Result<(), Failure> {
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
            Id::Process(option) => self.process.take(option, value),
            Id::Format | Id::Data => self.take_format(id, &text())?,
            Id::NoHeadings => self.style.headings = false,
            Id::Pretty => self.style.pretty = true,
            Id::Bare => {
                (self.style.format, self.style.cells) = (Format::List, CellFormat::Bare);
                self.style.headings = false;
            }
            Id::Count => self.count = Some(positive("count", &text())?),
            Id::Limit => self.limit = Some(positive("limit", &text())?),
            Id::Since => self.since = value,
            Id::Table => self.table = value,
            Id::Row => self.row = value,
            Id::Level => {
                let text = text();
                let level = LEVELS.iter().find(|level| **level == text);
                let invalid = || format!("value {text} on --level is invalid");
                self.level = Level(level.ok_or_else(|| Failure::new(invalid()))?);
            }
            Id::MaxColumnWidth => self.style.column_width_max = columns(&text()),
            Id::Help | Id::Version => {}
        }
        Ok(())
    }

    /// After how many seconds the process gives up.
    pub(super) fn patience_s(&self) -> Option<u32> {
        let is_told = self.words.first().is_some_and(|word| word == delivery::NAME);
        if is_told { delivery::patience_s(self.timeout) } else { self.timeout }
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
        match parse(args) {
            Ok(Invocation::Run(given)) => format!("{:?} {}", given.style, given.words.join(" ")),
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
            (&["--count=1", "dump"], "usage: unrecognized option '--count=1'"),
            (&["--count=0", "wait-delivered"], "fatal: value 0 on --count is invalid"),
            (&["--row=1", "wait-delivered"], "usage: unrecognized option '--row=1'"),
            (&["log", "--limit=x"], "fatal: value x on --limit is invalid"),
            (&["wait-delivered", "--level=read"], "fatal: value read on --level is invalid"),
        ] {
            assert_eq!(parsed(args), expected);
        }
    }
}

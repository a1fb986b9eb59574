//! `weir watch`: every change of a database as a line, while it happens.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weir_json::{Value, array, object};

use super::call::{connect, help, take_server};
use super::column::{self, Tables};
use super::replica::{Change, Form, Replica};
use super::session::{Lost, Notification, Refusal, Session, strings};
use super::show::{Palette, Show, time_of_day};
use crate::dirs::Dirs;
use crate::options::getopt::Takes::{Nothing, Value as WithValue};
use crate::options::getopt::{Options, Spec, both, long};
use crate::program::{Failure, Outcome, say};
use crate::usage::about::OPTIONS;
use crate::usage::{self, About, Complete, Manual, about};

const NO_INITIAL: About = about(OPTIONS, "", "do not show the rows that are there already");
const COUNT: About = about(OPTIONS, "N", "end after N changes");

/// More rows than this are counted at the start, not shown.
const INITIAL_ROWS_SHOWN: usize = 50;

/// Time between attempts to reach a server that went away.
const RETRY: Duration = Duration::from_secs(1);

/// The transaction id of a client that has seen nothing.
const NO_TRANSACTION: &str = "00000000-0000-0000-0000-000000000000";

#[derive(Clone, Copy, PartialEq)]
enum Id {
    NoInitial,
    Count,
    Help,
}

const TABLE: &[Spec<Id>] = &[
    long("no-initial", Nothing, Id::NoInitial).with(NO_INITIAL),
    long("count", WithValue, Id::Count).with(COUNT),
    both('h', "help", Nothing, Id::Help).with(about::HELP),
];

/// What people are told about `weir watch`.
pub(crate) fn manual() -> Manual {
    Manual {
        program: "weir watch",
        word: "watch",
        summary: "shows every change of a database live",
        usage: &["[OPTIONS] [SERVER] [DATABASE [TABLE...]]"],
        intro: "Shows the rows of a database, then every change as it happens: + inserted, \
                - deleted, ~ modified.\n\nSERVER is unix:FILE or tcp:HOST:PORT, unix:@SOCK@ if \
                left out. DATABASE may be left out when the server has only one. With TABLEs, \
                only these are watched.\n\nCtrl-C ends it. When the server goes away, it waits for \
                it and shows what changed meanwhile.",
        commands: &[],
        arguments: &[Complete::Server, Complete::Database, Complete::Table],
        sections: &[OPTIONS, about::OTHER],
        notes: &[(
            "Examples",
            "@PROGRAM@\n@PROGRAM@ --no-initial tcp:127.0.0.1:6641 OVN_Northbound ACL",
        )],
        options: usage::options(TABLE),
    }
}

/// What is watched and how it is shown.
struct Watch {
    server: String,
    dirs: Dirs,
    database: Option<String>,
    only: Vec<String>,
    initial: bool,
    /// Changes still to show; `None` is no limit.
    left: Option<u64>,
    palette: Palette,
}

/// What is known across connections.
#[derive(Default)]
struct Seen {
    replica: Replica,
    last: Option<String>,
}

impl Seen {
    /// Whether rows were shown before this connection.
    fn has_begun(&self) -> bool {
        !self.replica.tables().is_empty()
    }
}

/// An initial reply: the form of its changes, whether they continue what was seen, the changes.
struct Initial {
    form: Form,
    continues: bool,
    last: Option<String>,
    updates: Value,
}

/// Runs `weir watch`.
pub(crate) fn watch(args: Vec<String>) -> Outcome {
    let dirs = Dirs::from_env();
    let (mut initial, mut left) = (true, None);
    let mut options = Options::new(TABLE, args);
    for option in options.by_ref() {
        match option.map_err(Failure::new)? {
            (Id::Help, _) => return help(&manual(), &dirs),
            (Id::NoInitial, _) => initial = false,
            (Id::Count, value) => {
                let count = value.and_then(|value| value.parse().ok());
                left = Some(count.ok_or_else(|| Failure::new("--count takes a number"))?);
            }
        }
    }
    let mut words = options.into_positional();
    let server = take_server(&mut words, &dirs);
    let mut words = words.into_iter();
    let color = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let watch = Watch {
        server,
        dirs,
        database: words.next(),
        only: words.collect(),
        initial,
        left,
        palette: Palette::new(color),
    };
    watch.run()
}

impl Watch {
    fn run(mut self) -> Outcome {
        let mut seen = Seen::default();
        let mut session = connect(&self.server, &self.dirs)?;
        let mut has_been_told = false;
        loop {
            let stop = match self.follow(&mut session, &mut seen) {
                Ok(()) => return Ok(ExitCode::SUCCESS),
                Err(stop) => stop,
            };
            match stop {
                Stop::Failure(failure) => return Err(failure),
                Stop::NotServed(failure) if !seen.has_begun() => return Err(failure),
                Stop::NotServed(_) if has_been_told => {}
                // A relay or a member that has just been started is not ready at once.
                Stop::NotServed(failure) => {
                    has_been_told = true;
                    self.note(&format!("not served ({}), waiting for it", failure.text))?;
                }
                Stop::Lost(lost) => {
                    has_been_told = false;
                    self.note(&format!("connection lost ({lost}), waiting for the server"))?;
                }
            }
            session = loop {
                sleep(RETRY);
                if let Ok(session) = connect(&self.server, &self.dirs) {
                    break session;
                }
            };
        }
    }

    /// Shows one connection's messages until it ends.
    fn follow(&mut self, session: &mut Session, seen: &mut Seen) -> Result<(), Stop> {
        session.probe(true);
        let database = match &self.database {
            Some(database) => database.clone(),
            None => only_database(session)?,
        };
        let schema = ask(session, "get_schema", strings(&[&database]))?;
        let tables = self.choose(column::tables(&schema).unwrap_or_default())?;
        let (has_begun, again) = (seen.has_begun(), *seen.replica.tables() == tables);
        if !again {
            *seen = Seen { replica: Replica::new(tables), last: None };
        }
        let reply = start(session, &database, seen)?;
        let changes = if reply.continues {
            seen.replica.apply(reply.form, &reply.updates)
        } else {
            seen.replica.replace(reply.form, &reply.updates)
        };
        seen.last = reply.last;
        if has_begun {
            self.note("connected again")?;
        }
        if again {
            self.show(&seen.replica, &changes)?;
        } else {
            self.show_initial(&database, &seen.replica)?;
        }
        self.database = Some(database);
        while self.left != Some(0) {
            let notification = session.notification().map_err(Stop::Lost)?;
            let changes = take(seen, &notification);
            self.show(&seen.replica, &changes)?;
        }
        Ok(())
    }

    /// The tables to watch: all, or those named.
    fn choose(&self, mut tables: Tables) -> Result<Tables, Failure> {
        if self.only.is_empty() {
            return Ok(tables);
        }
        let mut chosen = BTreeMap::new();
        for name in &self.only {
            let Some(columns) = tables.remove(name) else {
                let names: Vec<&str> = tables.keys().map(String::as_str).collect();
                return Err(Failure::new(format!(
                    "no table \"{name}\"; there are: {}",
                    names.join(" ")
                )));
            };
            chosen.insert(name.clone(), columns);
        }
        Ok(chosen)
    }

    fn show_initial(&self, database: &str, replica: &Replica) -> Result<(), Failure> {
        let names: Vec<&String> = replica.tables().keys().collect();
        let rows: usize = names.iter().map(|name| replica.count(name)).sum();
        let title = format!("{database} on {}: {} tables, {rows} rows", self.server, names.len());
        let mut text = self.palette.dim(&title) + "\n";
        let show = Show { replica, palette: self.palette };
        for name in names.into_iter().filter(|_| self.initial) {
            if rows > INITIAL_ROWS_SHOWN {
                text += &format!("  {name}: {} rows\n", replica.count(name));
                continue;
            }
            for (uuid, row) in replica.rows(name) {
                text += &show.row(name, uuid, row);
                text.push('\n');
            }
        }
        text += &self.palette.dim("now live; Ctrl-C ends");
        text.push('\n');
        say(&text)
    }

    fn show(&mut self, replica: &Replica, changes: &[Change]) -> Result<(), Failure> {
        let show = Show { replica, palette: self.palette };
        let time = self.palette.dim(&now());
        let most = self.left.map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX));
        let shown = changes.len().min(most);
        let mut text = String::new();
        for change in &changes[..shown] {
            text += &format!("{time} {}\n", show.change(change));
        }
        self.left = self.left.map(|left| left - shown as u64);
        if text.is_empty() { Ok(()) } else { say(&text) }
    }

    fn note(&self, text: &str) -> Result<(), Failure> {
        say(&format!("{} {}\n", self.palette.dim(&now()), self.palette.dim(&format!("-- {text}"))))
    }
}

/// Why a connection is no longer followed.
enum Stop {
    /// The connection ended; another one may do.
    Lost(Lost),
    /// The server does not serve the database, or not yet.
    NotServed(Failure),
    /// Trying again would not help.
    Failure(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Lost(lost) => Self::Lost(lost),
            Refusal::Error(error) => {
                let failure = Failure::new(error.to_string());
                match name_of(&error) {
                    Some("database not available" | "unknown database") => Self::NotServed(failure),
                    _ => Self::Failure(failure),
                }
            }
        }
    }
}

fn ask(session: &mut Session, method: &str, params: Value) -> Result<Value, Stop> {
    session.call(method, params).map_err(|refusal| {
        let because = |failure: Failure| Failure::new(format!("{method}: {}", failure.text));
        match refusal.into() {
            Stop::NotServed(failure) => Stop::NotServed(because(failure)),
            Stop::Failure(failure) => Stop::Failure(because(failure)),
            lost => lost,
        }
    })
}

/// The database meant by a command line that names none.
fn only_database(session: &mut Session) -> Result<String, Stop> {
    let list = ask(session, "list_dbs", array::<Value>([]))?;
    let names = list.as_array().unwrap_or_default();
    let names: Vec<&str> =
        names.iter().filter_map(Value::as_str).filter(|name| !name.starts_with('_')).collect();
    match &names[..] {
        [name] => Ok((*name).to_owned()),
        [] => Err(Failure::new("the server has no database").into()),
        _ => {
            let names = names.join(" ");
            Err(Failure::new(format!("which database? The server has: {names}")).into())
        }
    }
}

/// Subscribes with the newest method that the server knows.
fn start(session: &mut Session, database: &str, seen: &Seen) -> Result<Initial, Stop> {
    let tables = seen.replica.tables().iter().map(|(table, columns)| {
        let columns = array(columns.keys().map(String::as_str));
        (table.clone(), array([object([("columns", columns)])]))
    });
    let tables = Value::Object(tables.collect());
    let last = seen.last.as_deref().unwrap_or(NO_TRANSACTION);
    let first = vec![database.into(), "weir-watch".into(), tables];
    let mut since = first.clone();
    since.push(last.into());

    match session.call("monitor_cond_since", since.into()) {
        Err(refusal) if is_unknown_method(&refusal) => {}
        reply => return read_since(reply?).ok_or_else(|| nonsense("monitor_cond_since")),
    }
    let whole = |form, updates| Initial { form, continues: false, last: None, updates };
    match session.call("monitor_cond", first.clone().into()) {
        Err(refusal) if is_unknown_method(&refusal) => {}
        reply => return Ok(whole(Form::Differences, reply?)),
    }
    Ok(whole(Form::Values, ask(session, "monitor", first.into())?))
}

fn is_unknown_method(refusal: &Refusal) -> bool {
    let Refusal::Error(error) = refusal else { return false };
    name_of(error) == Some("unknown method")
}

/// The name of an error: all of it, or its member `error` (RFC 7047, section 3.1).
fn name_of(error: &Value) -> Option<&str> {
    error.as_str().or_else(|| error.get("error")?.as_str())
}

/// `[found, last transaction, updates]`
fn read_since(reply: Value) -> Option<Initial> {
    let Value::Array(reply) = reply else { return None };
    let [found, last, updates]: [Value; 3] = reply.try_into().ok()?;
    Some(Initial {
        form: Form::Differences,
        continues: found.as_bool()?,
        last: Some(last.as_str()?.to_owned()),
        updates,
    })
}

fn nonsense(method: &str) -> Stop {
    Stop::Lost(Lost::Protocol(format!("the reply to {method} makes no sense")))
}

/// Applies a message to the replica.
fn take(seen: &mut Seen, notification: &Notification) -> Vec<Change> {
    match (notification.method.as_str(), &notification.params[..]) {
        ("update", [_, updates]) => seen.replica.apply(Form::Values, updates),
        ("update2", [_, updates]) => seen.replica.apply(Form::Differences, updates),
        ("update3", [_, last, updates]) => {
            seen.last = last.as_str().map(str::to_owned);
            seen.replica.apply(Form::Differences, updates)
        }
        _ => vec![],
    }
}

fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    time_of_day(u64::try_from(since.as_millis()).unwrap_or(0))
}

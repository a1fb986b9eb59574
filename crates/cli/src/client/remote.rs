//! The server that a command talks to: one address, or several members of a cluster.
//!
//! The steps, for a command that works on a database:
//! 1. The first argument is the server if it looks like one and there are more arguments than the
//!    command needs; else the default server is meant.
//! 2. One server: connect, and find out which database is meant.
//! 3. Several servers, separated by commas: each is tried once, in the order given. One that does
//!    not have the database, is not the leader (unless any member will do) or has lost its cluster
//!    is left for the next one.

use std::io::{self, ErrorKind};
use std::rc::Rc;

use weir_host::vlog::Level;
use weir_json::{Value, array};
use weir_upstream::remotes::{Remotes, looks_like_server};

use super::Client;
use super::address::{Address, is_passive};
use super::listen::{Stage, wait_for_server};
use super::session::{Lost, Refusal, Session, select, transaction};
use crate::program::{Failure, strerror};

/// What a command works on.
pub(super) struct Target {
    /// The connection to the server.
    pub(super) session: Session,
    /// The server, as it was given.
    pub(super) server: String,
    /// The database; empty for commands that need none.
    pub(super) database: String,
    /// The arguments left for the command.
    pub(super) args: Vec<String>,
}

/// The server that a command line begins with, and the other arguments.
pub(super) fn take_server(client: &Client, args: &[String], least: usize) -> (String, Vec<String>) {
    match args.split_first() {
        Some((first, rest)) if args.len() > least && looks_like_server(first) => {
            (first.clone(), rest.to_vec())
        }
        _ => (default_server(client), args.to_vec()),
    }
}

fn default_server(client: &Client) -> String {
    format!("unix:{}", client.dirs.run.join("db.sock").display())
}

/// Connects for a command that needs no database.
pub(super) fn open_server(
    client: &Client,
    args: &[String],
    least: usize,
) -> Result<Target, Failure> {
    let (server, args) = take_server(client, args, least);
    let remotes = Remotes::parse(&server);
    let (session, server) = match remotes.servers() {
        [_] if remotes.cluster().is_none() => (connect(client, &server)?, server),
        _ => try_each(client, &remotes, None)?,
    };
    Ok(Target { session, server, database: String::new(), args })
}

/// Connects for a command that works on a database; `known` is one that is not on the command
/// line.
pub(super) fn open_database(
    client: &Client,
    args: &[String],
    least: usize,
    known: Option<&str>,
) -> Result<Target, Failure> {
    let (server, mut args) = take_server(client, args, least);
    let remotes = Remotes::parse(&server);
    let single = remotes.servers().len() == 1 && remotes.cluster().is_none();
    if single {
        let mut session = connect(client, &server)?;
        let database = match known {
            Some(database) => database.to_owned(),
            None => which_database(&mut session, &mut args, least)?,
        };
        return Ok(Target { session, server, database, args });
    }
    let database = match known {
        Some(database) => database.to_owned(),
        None if args.len() > least => args.remove(0),
        None => return Err(Failure::new("database name is required with multiple remotes")),
    };
    let (session, server) = try_each(client, &remotes, Some(&database))?;
    Ok(Target { session, server, database, args })
}

/// The names of the databases of a server, sorted.
pub(super) fn list_databases(session: &mut Session) -> Result<Vec<String>, Failure> {
    let list = session.call("list_dbs", array::<Value>([]))?;
    let list = list.as_array();
    let list = list.ok_or_else(|| Failure::new("list_dbs response is not array"))?;
    let name = |(number, name): (usize, &Value)| {
        let name = name.as_str().map(str::to_owned);
        name.ok_or_else(|| Failure::new(format!("list_dbs response {number} is not string")))
    };
    let mut names = list.iter().enumerate().map(name).collect::<Result<Vec<_>, _>>()?;
    names.sort();
    Ok(names)
}

/// The database meant: the one named, or the one that people usually mean.
fn which_database(
    session: &mut Session,
    args: &mut Vec<String>,
    least: usize,
) -> Result<String, Failure> {
    let names = list_databases(session)?;
    if args.len() > least && names.contains(&args[0]) {
        return Ok(args.remove(0));
    }
    if names.iter().any(|name| name == "Open_vSwitch") {
        return Ok("Open_vSwitch".to_owned());
    }
    let mut visible = names.iter().filter(|name| !name.starts_with('_'));
    match (visible.next(), visible.next()) {
        (Some(only), None) => Ok(only.clone()),
        _ => Err(Failure::new("could not find a default database, please specify a database name")
            .hint(format!("the server has: {}", names.join(" ")))),
    }
}

/// Why a server could not be reached.
enum Unreachable {
    /// The server's name is no address that could be used.
    Method(String),
    /// The server did not answer.
    Connection(io::Error),
    /// No connection could be accepted.
    Accept(io::Error),
    /// The peer that connected does not speak TLS as it should.
    Handshake(io::Error),
}

impl Unreachable {
    fn reason(&self) -> String {
        match self {
            Self::Method(reason) => reason.clone(),
            Self::Connection(error) | Self::Accept(error) | Self::Handshake(error) => {
                strerror(error)
            }
        }
    }
}

/// Connects to one server or waits for it to connect.
pub(super) fn connect(client: &Client, server: &str) -> Result<Session, Failure> {
    let waiting = || {
        let text = format!("{server}: waiting for connection...");
        client.log.log("ovsdb_client", Level::Info, &text);
    };
    try_connect(client, server, waiting).map_err(|unreachable| match unreachable {
        Unreachable::Method(reason) => {
            Failure::new(format!("failed to connect or listen to \"{server}\" ({reason})"))
                .hint("a server is tcp:HOST:PORT, ssl:HOST:PORT or unix:FILE")
        }
        Unreachable::Connection(error) => {
            let failure = Failure::io(format!("failed to connect to \"{server}\""), &error);
            failure.maybe_hint(connection_hint(&error, server))
        }
        Unreachable::Accept(error) => {
            Failure::io(format!("failed to accept connection on \"{server}\""), &error)
        }
        Unreachable::Handshake(error) => Failure::io("transaction failed", &error),
    })
}

fn connection_hint(error: &io::Error, server: &str) -> Option<&'static str> {
    let is_local = server.starts_with("unix:");
    match error.kind() {
        ErrorKind::NotFound if is_local => {
            Some("is the server running? weir up starts one; name another as the first argument")
        }
        ErrorKind::ConnectionRefused => Some("nobody listens there; is the server running?"),
        ErrorKind::PermissionDenied => Some("the socket belongs to another user; try as root"),
        _ => None,
    }
}

/// `listening` is called when it is the server's turn to connect.
fn try_connect(
    client: &Client,
    server: &str,
    listening: impl FnOnce(),
) -> Result<Session, Unreachable> {
    let tape = &client.tape;
    let session = |(stream, name)| {
        Session::new(stream, name, Some(client.log.clone())).taped(Rc::clone(tape))
    };
    if tape.is_replay() {
        if is_passive(server) {
            listening();
        }
        let replayed = tape.connect(server, || Err(ErrorKind::NotFound.into()));
        return replayed.map(session).map_err(Unreachable::Connection);
    }
    let address = Address::parse(server, &client.dirs).map_err(|error| {
        for (module, text) in &error.log {
            client.log.log(module, Level::Err, text);
        }
        Unreachable::Method(error.reason)
    })?;
    let mut stage = None;
    let named = |stream| (stream, server.to_owned());
    let connect = || match &address {
        Address::Passive(address) => {
            let stage = stage.insert(Stage::Listen);
            wait_for_server(client, address, server, listening, stage)
        }
        Address::Tls(..) => client.tls_stream(server).map(named),
        address => address.connect().map(named),
    };
    let connected = tape.connect(server, connect);
    connected.map(session).map_err(|error| match stage {
        None => Unreachable::Connection(error),
        Some(Stage::Listen) => Unreachable::Method(strerror(&error)),
        Some(Stage::Accept) => Unreachable::Accept(error),
        Some(Stage::Handshake) => Unreachable::Handshake(error),
    })
}

/// Attempts to reach one of several servers, again and again.
pub(super) struct Attempts {
    servers: Vec<String>,
    made: usize,
}

impl Attempts {
    /// No attempt has been made yet.
    pub(super) fn new(server: &str) -> Self {
        Self { servers: Remotes::parse(server).servers().to_vec(), made: 0 }
    }

    /// Tries the next server: its name, and the session.
    pub(super) fn next(&mut self, client: &Client) -> (String, Option<Session>) {
        let next = self.made.checked_rem(self.servers.len()).and_then(|at| self.servers.get(at));
        self.made += 1;
        let Some(server) = next else { return (String::new(), None) };
        (server.clone(), attempt(client, server))
    }

    /// Whether the next attempt comes without a pause: the first of each server does.
    pub(super) fn is_free(&self) -> bool {
        self.made < self.servers.len()
    }
}

/// Tries one server, and tells the log about it.
fn attempt(client: &Client, server: &str) -> Option<Session> {
    let log = |text: &str| client.log.log("reconnect", Level::Info, &format!("{server}: {text}"));
    let is_passive = is_passive(server);
    let result = try_connect(client, server, || log("listening..."));
    match &result {
        // Once more when somebody comes, as the reference does.
        Ok(_) | Err(Unreachable::Method(_)) if is_passive => log("listening..."),
        _ if is_passive => {}
        _ => log("connecting..."),
    }
    match result {
        Ok(session) => {
            log("connected");
            Some(session)
        }
        Err(unreachable) => {
            let what = match &unreachable {
                Unreachable::Method(_) if is_passive => "listen attempt failed",
                _ if is_passive => "error listening for connections",
                _ => "connection attempt failed",
            };
            log(&format!("{what} ({})", unreachable.reason()));
            None
        }
    }
}

/// Tries several servers, each once.
fn try_each(
    client: &Client,
    remotes: &Remotes,
    database: Option<&str>,
) -> Result<(Session, String), Failure> {
    let log = |text: &str| client.log.log("reconnect", Level::Info, text);
    let mut reasons = vec![];
    for server in remotes.servers() {
        let Some(mut session) = attempt(client, server) else { continue };
        let Some(database) = database else { return Ok((session, server.clone())) };
        // One that stands still must not keep the others from being asked.
        session.probe(true);
        match serves(client, &mut session, database, remotes.cluster()) {
            Ok(Ok(())) => {
                session.probe(false);
                return Ok((session, server.clone()));
            }
            Ok(Err(reason)) => {
                client.log.log("ovsdb_client", Level::Dbg, &format!("{server}: {reason}"));
                log(&format!("{server}: connection attempt timed out"));
                reasons.push(format!("{server} {reason}"));
            }
            Err(Lost::Closed) => log(&format!("{server}: connection closed by peer")),
            Err(lost) => log(&format!("{server}: connection dropped ({lost})")),
        }
    }
    let hint = (!reasons.is_empty()).then(|| reasons.join("; "));
    Err(Failure::new("no servers were available").maybe_hint(hint))
}

/// Whether a server is one that may be asked about a database, and else why not.
fn serves(
    client: &Client,
    session: &mut Session,
    database: &str,
    cluster: Option<&str>,
) -> Result<Result<(), &'static str>, Lost> {
    let condition = array([array(["name", "==", database])]);
    let request = transaction("_Server", vec![select("Database", condition)]);
    let results = match session.call("transact", request) {
        Ok(results) => results,
        // A server from before there was `_Server`.
        Err(Refusal::Error(_)) => return Ok(Err("does not say what it has")),
        Err(Refusal::Lost(lost)) => return Err(lost),
    };
    let result = results.as_array().and_then(<[Value]>::first);
    let nonsense = |text: String| {
        client.log.log("ovsdb_client", Level::Warn, &format!("{}: {text}", session.peer()));
        Ok(Err("does not say whether it has this database"))
    };
    let Some(result) = result.filter(|result| matches!(result, Value::Object(_))) else {
        return nonsense(format!("unexpected reply to _Server request for {database}"));
    };
    let Some(rows) = result.get("rows").and_then(Value::as_array) else {
        // The reference has two spaces there.
        return nonsense(format!("missing \"rows\" member in  _Server reply for {database}"));
    };
    let Some(row) = rows.first() else { return Ok(Err("does not have this database")) };
    Ok(is_wanted(client, row, cluster))
}

/// Whether this row of `_Server` says that its database may be used here.
fn is_wanted(client: &Client, row: &Value, cluster: Option<&str>) -> Result<(), &'static str> {
    let has = |column: &str| row.get(column).and_then(Value::as_bool) == Some(true);
    if !has("connected") {
        return Err("is disconnected from its cluster");
    }
    if !client.options.any_member && !has("leader") {
        return Err("is not the leader (--no-leader-only takes any member)");
    }
    let cid = row.get("cid").and_then(Value::as_array).and_then(|cid| cid.get(1)?.as_str());
    if cluster.is_some() && cid != cluster {
        return Err("is of another cluster");
    }
    Ok(())
}

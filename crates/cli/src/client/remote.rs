//! The server that a command talks to: one address, or several members of a cluster.
//!
//! The steps, for a command that works on a database:
//! 1. The first argument is the server if it looks like one and there are more arguments than the
//!    command needs; else the default server is meant.
//! 2. One server: connect, and find out which database is meant.
//! 3. Several servers, separated by commas: they are tried in random order. One that does not have
//!    the database, is not the leader (unless any member will do) or has lost its cluster is left
//!    for the next one.

use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::rc::Rc;

use weir_host::vlog::Level;
use weir_json::{Value, array};

use super::Client;
use super::address::{Address, Stream, looks_like_server};
use super::session::{Lost, Refusal, Session, select, transaction};
use crate::program::{Failure, strerror};

/// What a command works on.
pub(super) struct Target {
    /// The connection to the server.
    pub(super) session: Session,
    /// The database; empty for commands that need none.
    pub(super) database: String,
    /// The arguments left for the command.
    pub(super) args: Vec<String>,
}

/// Members of a cluster, and the cluster that they must be of.
#[derive(Debug, Default, PartialEq, Eq)]
struct Remotes {
    servers: Vec<String>,
    cluster: Option<String>,
}

impl Remotes {
    fn parse(text: &str) -> Self {
        let mut remotes = Self::default();
        for part in split_methods(text) {
            match part.strip_prefix("cid:") {
                Some(cluster) => remotes.cluster = Some(cluster.to_owned()),
                None => remotes.servers.push(part),
            }
        }
        remotes
    }
}

/// Splits at commas behind which another method begins; a socket's name may hold commas.
fn split_methods(text: &str) -> Vec<String> {
    let mut parts: Vec<String> = vec![];
    for piece in text.split(',') {
        match parts.last_mut() {
            Some(last) if !looks_like_server(piece) => {
                last.push(',');
                last.push_str(piece);
            }
            _ => parts.push(piece.to_owned()),
        }
    }
    parts
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
    let session = match &remotes.servers[..] {
        [_] if remotes.cluster.is_none() => connect(client, &server)?,
        _ => try_each(client, &remotes, None)?,
    };
    Ok(Target { session, database: String::new(), args })
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
    let single = remotes.servers.len() == 1 && remotes.cluster.is_none();
    if single {
        let mut session = connect(client, &server)?;
        let database = match known {
            Some(database) => database.to_owned(),
            None => which_database(&mut session, &mut args, least)?,
        };
        return Ok(Target { session, database, args });
    }
    let database = match known {
        Some(database) => database.to_owned(),
        None if args.len() > least => args.remove(0),
        None => return Err(Failure::new("database name is required with multiple remotes")),
    };
    let session = try_each(client, &remotes, Some(&database))?;
    Ok(Target { session, database, args })
}

/// Names of the databases of a server, sorted.
pub(super) fn list_databases(session: &mut Session) -> Result<Vec<String>, Failure> {
    let list = session.call("list_dbs", array::<Value>([]))?;
    let names = list.as_array().unwrap_or_default().iter();
    let mut names: Vec<String> = names.filter_map(Value::as_str).map(str::to_owned).collect();
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
    /// It is no address that could be used.
    Method(String),
    /// Nobody answered.
    Connection(io::Error),
}

/// Connects to one server or waits for it to connect.
fn connect(client: &Client, server: &str) -> Result<Session, Failure> {
    match try_connect(client, server) {
        Ok(session) => Ok(session),
        Err(Unreachable::Method(reason)) => {
            Err(Failure::new(format!("failed to connect or listen to \"{server}\" ({reason})"))
                .hint("a server is tcp:HOST:PORT, ssl:HOST:PORT or unix:FILE"))
        }
        Err(Unreachable::Connection(error)) => {
            let failure = Failure::io(format!("failed to connect to \"{server}\""), &error);
            Err(failure.maybe_hint(connection_hint(&error, server)))
        }
    }
}

/// Another connection to the server of a session.
pub(super) fn reconnect(client: &Client, session: &Session) -> Result<Session, Failure> {
    connect(client, session.peer())
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

fn try_connect(client: &Client, server: &str) -> Result<Session, Unreachable> {
    let tape = &client.tape;
    let session = |stream| {
        let log = Some(client.log.clone());
        Session::new(stream, server.to_owned(), log).taped(Rc::clone(tape))
    };
    if tape.is_replay() {
        let replayed = tape.connect(server, || Err(ErrorKind::NotFound.into()));
        return replayed.map(session).map_err(Unreachable::Connection);
    }
    let address = Address::parse(server, &client.dirs).map_err(|error| {
        for (module, text) in &error.log {
            client.log.log(module, Level::Err, text);
        }
        Unreachable::Method(error.reason)
    })?;
    let connect = || match &address {
        Address::PassiveUnix(_) | Address::PassiveTcp(..) => {
            let text = format!("{server}: waiting for connection...");
            client.log.log("ovsdb_client", Level::Info, &text);
            accept(&address)
        }
        Address::Tls(..) => client.tls_stream(server),
        address => address.connect(),
    };
    tape.connect(server, connect).map(session).map_err(Unreachable::Connection)
}

/// Waits for one connection.
fn accept(address: &Address) -> io::Result<Stream> {
    match address {
        Address::PassiveUnix(path) => {
            let listener = UnixListener::bind(path)?;
            let accepted = listener.accept();
            let _ = std::fs::remove_file(path);
            accepted.map(|(stream, _)| Stream::Unix(stream))
        }
        Address::PassiveTcp(ip, port) => {
            let listener = TcpListener::bind((ip.as_str(), *port))?;
            listener.accept().map(|(stream, _)| Stream::Tcp(stream))
        }
        other => other.connect(),
    }
}

/// Attempts to reach one of several servers, again and again.
pub(super) struct Attempts {
    remotes: Remotes,
    next: usize,
}

impl Attempts {
    /// None has been made yet.
    pub(super) fn new(client: &Client, server: &str) -> Self {
        let mut remotes = Remotes::parse(server);
        remotes.servers = shuffled(&remotes.servers, client.tape.number(fresh_number()))
            .into_iter()
            .cloned()
            .collect();
        Self { remotes, next: 0 }
    }

    /// Tries the next server.
    pub(super) fn next(&mut self, client: &Client) -> Option<Session> {
        let count = self.remotes.servers.len();
        let server = self.remotes.servers.get(self.next.checked_rem(count)?)?;
        self.next += 1;
        attempt(client, server)
    }

    /// Whether a round has been made.
    pub(super) fn all_tried(&self) -> bool {
        self.next > 0 && self.next.is_multiple_of(self.remotes.servers.len())
    }
}

/// Tries one server, and tells the log about it.
fn attempt(client: &Client, server: &str) -> Option<Session> {
    let log = |text: &str| client.log.log("reconnect", Level::Info, text);
    let result = try_connect(client, server);
    log(&format!("{server}: connecting..."));
    let reason = match result {
        Ok(session) => {
            log(&format!("{server}: connected"));
            return Some(session);
        }
        Err(Unreachable::Method(reason)) => reason,
        Err(Unreachable::Connection(error)) => strerror(&error),
    };
    log(&format!("{server}: connection attempt failed ({reason})"));
    None
}

/// Tries several servers, each once, beginning with any.
fn try_each(
    client: &Client,
    remotes: &Remotes,
    database: Option<&str>,
) -> Result<Session, Failure> {
    let log = |text: &str| client.log.log("reconnect", Level::Info, text);
    for server in shuffled(&remotes.servers, client.tape.number(fresh_number())) {
        let Some(mut session) = attempt(client, server) else { continue };
        let Some(database) = database else { return Ok(session) };
        match serves(client, &mut session, database, remotes.cluster.as_deref()) {
            Ok(true) => return Ok(session),
            Ok(false) => log(&format!("{server}: connection attempt timed out")),
            Err(lost) => log(&format!("{server}: connection closed ({lost})")),
        }
    }
    Err(Failure::new("no servers were available"))
}

/// Whether a server is one that may be asked about a database.
fn serves(
    client: &Client,
    session: &mut Session,
    database: &str,
    cluster: Option<&str>,
) -> Result<bool, Lost> {
    let condition = array([array(["name", "==", database])]);
    let request = transaction("_Server", vec![select("Database", condition)]);
    let server = session.peer().to_owned();
    let say = |text: &str| {
        let text = format!("{server}: {text}");
        client.log.log("ovsdb_client", Level::Info, &text);
        Ok(false)
    };
    let results = match session.call("transact", request) {
        Ok(results) => results,
        // A server from before there was `_Server`: it has no clusters.
        Err(Refusal::Error(_)) => return Ok(true),
        Err(Refusal::Lost(lost)) => return Err(lost),
    };
    let result = results.as_array().and_then(<[Value]>::first);
    let rows = result.and_then(|result| result.get("rows")).and_then(Value::as_array);
    let Some(row) = rows.and_then(<[Value]>::first) else { return Ok(false) };
    if row.get("model").and_then(Value::as_str) == Some("standalone") {
        return Ok(true);
    }
    let has = |column: &str| row.get(column).and_then(Value::as_bool) == Some(true);
    let schema = row.get("schema").and_then(Value::as_str);
    if schema.is_none() {
        return say("clustered database server has not yet joined cluster; trying another server");
    }
    if !has("connected") {
        let text = "clustered database server is disconnected from cluster; trying another server";
        return say(text);
    }
    if !client.options.any_member && !has("leader") {
        return say("clustered database server is not cluster leader; trying another server");
    }
    let cid = row.get("cid").and_then(Value::as_array).and_then(|cid| cid.get(1)?.as_str());
    if cluster.is_some() && cid != cluster {
        return say("clustered database server has different cluster ID; trying another server");
    }
    Ok(true)
}

/// The servers in an order that differs from run to run, so that clients spread.
fn shuffled(servers: &[String], mut seed: u64) -> Vec<&String> {
    let mut left: Vec<&String> = servers.iter().collect();
    let mut order = vec![];
    while !left.is_empty() {
        let chosen = seed.checked_rem(left.len() as u64).unwrap_or_default();
        order.push(left.swap_remove(usize::try_from(chosen).unwrap_or_default()));
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695) >> 3;
    }
    order
}

/// Another one in each run.
fn fresh_number() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::from(now.unwrap_or_default().subsec_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_separated_by_commas_where_a_method_follows() {
        let remotes = Remotes::parse("unix:a,b.sock,tcp:1.2.3.4:5,cid:77");
        assert_eq!(remotes.servers, ["unix:a,b.sock", "tcp:1.2.3.4:5"]);
        assert_eq!(remotes.cluster.as_deref(), Some("77"));
        assert_eq!(Remotes::parse("unix:x,").servers, ["unix:x,"]);
    }

    #[test]
    fn every_server_is_tried_once() {
        let servers: Vec<String> = (0..5).map(|n| format!("unix:{n}")).collect();
        for seed in 0..9 {
            let mut order = shuffled(&servers, seed);
            order.sort();
            assert_eq!(order, servers.iter().collect::<Vec<_>>());
        }
    }
}

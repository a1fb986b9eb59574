//! Everything is let finish; then nothing may be owed to anybody.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use weir_server::Config;
use weir_server::event::{Event, SessionId};

use crate::census::Census;
use crate::client::View;
use crate::replica::{self, Row, Rows};
use crate::schemas::DATABASES;
use crate::shell::Shell;
use crate::world::World;

/// How much time passes at the end: all timeouts, probes and pauses are shorter.
const REST_US: u64 = 20_000_000;
/// A server that has more to do than this never comes to rest.
const ROUNDS_MAX: usize = 20_000;

/// Columns that are not in the file.
const EPHEMERAL: [&str; 3] = ["up", "is_connected", "status"];

impl World {
    /// Lets everything finish, and checks what is left.
    pub(crate) fn finish(&mut self) {
        self.shell.disk_error = None;
        self.shell.sync_error = None;
        self.shell.slow_disk = false;
        self.shell.slow_files.clear();
        self.shell.slow_finish = false;
        self.shell.slow_helper = false;
        self.shell.slow_work = false;
        self.shell.slow_open = false;
        self.shell.slow_read = false;
        self.shell.slow_look = false;
        self.rest();
        self.check_answers();
        self.check_gates();
        let databases = self.databases();
        self.check_replicas(&databases);
        self.check_files(&databases);
        self.check_status();
        let rewritten = self.shell.log.iter().any(|line| line.contains("written again"));
        if rewritten && self.shell.log.iter().any(|line| line.contains("Input/output error")) {
            self.census.note("fdatasync failed");
            self.census.note("file rewritten after fdatasync failed");
        }
        self.shell.log.clear();
    }

    /// Whether the shell has anything left to do.
    fn has_work(&self) -> bool {
        let shell = &self.shell;
        !shell.disk_jobs.is_empty()
            || shell.is_looking()
            || !shell.work.is_empty()
            || shell.helpers_out() + shell.opening() + shell.reading() > 0
            || self.source.is_busy(shell)
    }

    /// Whatever is slow is done, and time passes.
    fn rest(&mut self) {
        let end = self.shell.now.monotonic_us + REST_US;
        for _ in 0..ROUNDS_MAX {
            while self.has_work() {
                self.disk();
                self.work(0);
                self.shell.do_look();
                self.shell.do_helper(0);
                self.pump();
                self.shell.do_open(0);
                self.pump();
                self.read();
                self.follow(true);
                self.round();
            }
            for at in (0..self.clients.len()).rev() {
                if at < self.clients.len() {
                    self.unstick(at);
                }
            }
            while let Some((remote, ..)) = self.shell.reaching.pop() {
                self.shell.event(Event::ConnectFailed { remote, error: None });
                self.pump();
            }
            self.answer_probes();
            // What helpers and files have answered at once wants the end of a round, too.
            if self.round() > 0 {
                continue;
            }
            if self.shell.server.has_pending_updates() {
                self.shell.server.flush_updates(self.shell.now);
                self.pump();
                self.round();
            } else if !self.has_work() {
                let next = self.shell.server.next_wakeup_us();
                let Some(at) = next.filter(|at| *at <= end) else { return };
                self.shell.now.monotonic_us = at.max(self.shell.now.monotonic_us);
            }
        }
        panic!(
            "the server does not come to rest: {:?} at {}",
            self.shell.server.next_wakeup_us(),
            self.shell.now.monotonic_us
        );
    }

    fn answer_probes(&mut self) {
        let sessions: Vec<SessionId> = self.clients.iter().map(|client| client.session).collect();
        for session in sessions {
            while let Some(client) = self.clients.iter_mut().find(|one| one.session == session)
                && let Some(reply) = client.to_say.pop_front()
            {
                self.census.note("probe answered");
                self.shell.send(session, &reply);
                self.round();
            }
        }
    }

    /// Whoever is still there has been answered, unless his transaction waits for rows, or he has
    /// taken it back.
    fn check_answers(&self) {
        for client in &self.clients {
            let owed = client
                .asked
                .iter()
                .filter(|asked| !(asked.waits_forever || asked.is_canceled && !client.is_aware));
            // A request of the same id may be the one that was taken back.
            let owed: Vec<_> = owed.filter(|asked| !asked.is_canceled).collect();
            assert!(owed.is_empty(), "{:?} is owed {owed:#?}", client.session);
        }
        assert!(self.commands.is_empty(), "commands without a reply: {:?}", self.commands);
    }

    /// The result of a request of the checker's own.
    fn ask(&mut self, session: SessionId, method: &str, params: &str) -> Value {
        let text = format!(r#"{{"id":"check","method":"{method}","params":{params}}}"#);
        self.shell.send(session, &text);
        for _ in 0..200 {
            self.round();
            while self.has_work() {
                self.disk();
                self.work(0);
                self.round();
            }
            for message in self.shell.whole_messages(session) {
                let message: Value = serde_json::from_str(&message).expect("JSON");
                if message["id"] == "check" {
                    assert!(message["error"].is_null(), "{text}: {message}");
                    return message["result"].clone();
                }
            }
        }
        panic!("{session:?} has no answer to {text}");
    }

    /// Every session is heard, on every database.
    fn check_gates(&mut self) {
        let checker = self.shell.accept_anywhere();
        let names = self.ask(checker, "list_dbs", "[]");
        let names: Vec<&str> =
            names.as_array().expect("names").iter().filter_map(Value::as_str).collect();
        let sessions: Vec<SessionId> = self.clients.iter().map(|client| client.session).collect();
        for session in sessions {
            self.hear(session, "echo", "[]");
            for name in &names {
                let table = if *name == "_Server" { "Database" } else { "Port" };
                let select = format!(r#"{{"op":"select","table":"{table}","where":[]}}"#);
                self.hear(session, "transact", &format!(r#"["{name}",{select}]"#));
            }
        }
        self.shell.event(Event::Closed { session: checker, error: None });
        self.shell.forget(checker);
        self.round();
    }

    /// A client asks for something that is answered.
    fn hear(&mut self, session: SessionId, method: &str, params: &str) {
        let find = |world: &Self| world.clients.iter().position(|client| client.session == session);
        let Some(at) = find(self) else { return };
        self.clients[at].expect_reply("\"heard\"");
        let text = format!(r#"{{"id":"heard","method":"{method}","params":{params}}}"#);
        assert!(!self.shell.stopped.contains(&session), "{session:?} is not read");
        self.shell.send(session, &text);
        for _ in 0..200 {
            self.pump();
            self.round();
            while self.has_work() {
                self.disk();
                self.work(0);
                self.round();
            }
            let Some(at) = find(self) else { return };
            if !self.clients[at].asked.iter().any(|asked| asked.id == "\"heard\"") {
                return;
            }
        }
        panic!("{session:?} is not heard: {text}");
    }

    /// All rows of all databases, as a client reads them.
    fn databases(&mut self) -> BTreeMap<String, Rows> {
        let checker = self.shell.accept_anywhere();
        let names = self.ask(checker, "list_dbs", "[]");
        let mut databases = BTreeMap::new();
        for name in names.as_array().expect("names").iter().filter_map(Value::as_str) {
            let rows = self.rows(checker, name);
            databases.insert(name.to_owned(), rows);
        }
        self.shell.event(Event::Closed { session: checker, error: None });
        self.shell.forget(checker);
        self.round();
        databases
    }

    fn rows(&mut self, checker: SessionId, name: &str) -> Rows {
        let schema = self.ask(checker, "get_schema", &format!(r#"["{name}"]"#));
        let mut rows = Rows::new();
        for table in schema["tables"].as_object().expect("tables").keys() {
            let select = format!(r#"["{name}",{{"op":"select","table":"{table}","where":[]}}]"#);
            let result = self.ask(checker, "transact", &select);
            let found =
                result[0]["rows"].as_array().unwrap_or_else(|| panic!("{select}: {result}"));
            rows.insert(table.clone(), found.iter().map(by_uuid).collect());
        }
        rows
    }

    /// What clients have been told is what is there.
    fn check_replicas(&mut self, databases: &BTreeMap<String, Rows>) {
        let mut census = Census::default();
        for client in &self.clients {
            for (name, view) in client.views.iter().filter(|(_, view)| view.is_whole) {
                let Some(rows) = databases.get(&view.db) else {
                    panic!("{:?} watches {}, which is gone", client.session, view.db)
                };
                for (table, columns) in &view.columns {
                    let told = view.rows.get(table).cloned().unwrap_or_default();
                    let there = expected(view, table, columns, rows);
                    let (session, wheres) = (client.session, &view.wheres);
                    assert_eq!(told, there, "{session:?} {name} {} {table} {wheres:?}", view.db);
                }
                census.note(match view.wheres.is_empty() {
                    true => "monitor compared, without conditions",
                    false => "monitor compared, with conditions",
                });
            }
        }
        self.census.add(census);
    }

    /// Each file, loaded again, is what its database is.
    fn check_files(&mut self, databases: &BTreeMap<String, Rows>) {
        let open: BTreeSet<&String> = self.shell.open.values().collect();
        for (name, path) in DATABASES {
            if !open.contains(&path.to_owned()) || !databases.contains_key(name) {
                continue;
            }
            let file = self.shell.files[path].clone();
            let mut shell = Shell::start_with(file, Config::default());
            let session = shell.connect();
            for (table, rows) in &databases[name] {
                let select = format!(
                    r#"{{"id":1,"method":"transact","params":["{name}",{{"op":"select","table":"{table}","where":[]}}]}}"#
                );
                let reply: Value =
                    serde_json::from_str(&shell.call(session, &select)).expect("a reply");
                let found = reply["result"][0]["rows"].as_array();
                let found = found.unwrap_or_else(|| panic!("{path}: {reply}: {:?}", shell.log));
                let found: BTreeMap<String, Row> = found.iter().map(by_uuid).collect();
                let without = |rows: &BTreeMap<String, Row>| -> BTreeMap<String, Row> {
                    let mut rows = rows.clone();
                    rows.values_mut()
                        .for_each(|row| EPHEMERAL.iter().for_each(|name| drop(row.remove(*name))));
                    rows
                };
                assert_eq!(without(&found), without(rows), "{path} {table}");
            }
        }
    }

    /// Nothing is queued, held or out.
    fn check_status(&mut self) {
        let id = self.command("weir/status", &[]);
        self.shell.story.clear();
        self.shell.short_round();
        let text = self.shell.replies.get(&id).cloned().expect("it is answered at once");
        self.pump();
        let state: Value = serde_json::from_str(&text.expect("it never fails")).expect("JSON");
        assert_eq!(state["work"], Value::Array(vec![]), "{state}");
        for db in state["databases"].as_array().expect("databases") {
            let is_idle =
                db["queued"] == 0 && db["conversion"] == false && db["pending_bytes"] == 0;
            assert!(is_idle && db["file"]["compacting_ms"].is_null(), "{db}");
        }
        for session in state["sessions"].as_array().expect("sessions") {
            assert_eq!(session["held"], false, "{session}");
        }
        assert_eq!(state["sessions_total"], self.clients.len(), "{state}");
        assert_eq!(self.shell.server.message_bytes(), 0);
        assert!(self.shell.stopped.is_empty(), "{:?} are not read", self.shell.stopped);
    }
}

fn by_uuid(row: &Value) -> (String, Row) {
    let uuid = row["_uuid"][1].as_str().expect("a row has a UUID").to_owned();
    let mut columns = replica::row(row);
    columns.retain(|name, _| !name.starts_with('_'));
    (uuid, columns)
}

/// What a monitor should have told of a table.
fn expected(view: &View, table: &str, columns: &[String], rows: &Rows) -> BTreeMap<String, Row> {
    let Some(rows) = rows.get(table) else { return BTreeMap::new() };
    let is_told = |row: &Row| {
        let wheres = view.wheres.get(table);
        wheres.is_none_or(|clauses| clauses.iter().any(|clause| replica::matches(row, clause)))
    };
    let told = rows.iter().filter(|(_, row)| is_told(row));
    told.map(|(uuid, row)| {
        let mut row = row.clone();
        row.retain(|name, _| columns.contains(name));
        (uuid.clone(), row)
    })
    .collect()
}

//! Who reads under a lock sees all that was asked for under it before: what he does not see is never made, whoever has been
//! asked for it, and whether its client has been answered, has lost the lock or has left.

use crate::chain::{Chain, relay_of_all};
use crate::chance::Chance;
use crate::keys::file_of;
use crate::lock_pipelines::seeds;
use crate::relay_sources::{has_another_database, value};
use crate::shell::{SCHEMA, Shell, insert, transact};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use weir_server::event::{Event, SessionId};

/// What clients have by turns.
const LOCK: &str = "l";

/// The server that has relays; it is between its sources.
const RELAY: usize = 1;

const OWN_PATH: &str = "/db/own.db";

/// What a client has asked for.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Lock { by_force: bool },
    Unlock,
    Write(&'static str),
    Read(&'static str),
}

/// A row that a client has asked for, when it had the lock by all that it had been told.
struct Write {
    number: u32,
    database: &'static str,
    at: usize,
    session: SessionId,
    /// The time of the turn in which that was.
    turn: usize,
}

/// What has not been answered.
#[derive(Debug)]
struct Request {
    asked: Asked,
    /// The time of the turn in which the client had the lock when it asked, if it had, and the rows that it had been told
    /// of, unless it may lack some: it has taken the lock by force, or has just come.
    turn: Option<(usize, Option<BTreeSet<String>>)>,
}

/// A client; the time is the length of the log.
struct Client {
    at: usize,
    session: SessionId,
    asked: BTreeMap<u32, Request>,
    /// The rows that the client has been told of, by their databases.
    watched: BTreeMap<&'static str, BTreeSet<String>>,
    wants: bool,
    /// Since when the client has the lock by what it has been told.
    owns: Option<usize>,
    /// The client has taken the lock by force: `steal` is answered at once, before its client is told what others have just
    /// written.
    is_thief: bool,
}

struct World {
    chain: Chain,
    chance: Chance,
    databases: Vec<&'static str>,
    clients: Vec<Client>,
    requests: u32,
    writes: Vec<Write>,
    /// Rows that will never be there.
    never: BTreeSet<(&'static str, String)>,
    reads: u64,
    /// The databases that the server has from others, with these, and those of them that have been removed.
    relays: &'static [(&'static str, &'static [usize])],
    removed: BTreeSet<&'static str>,
    log: Vec<String>,
}

impl Client {
    fn begins_anew(&mut self) {
        self.asked.clear();
        self.watched.clear();
        (self.wants, self.owns) = (false, None);
    }

    /// The client is told of rows of a database (`<table-updates>`): of all of them at first.
    fn is_told(&mut self, database: &Value, updates: &Value, are_all: bool) {
        let names = ["Net", "Other", "Own"];
        let database = *names.iter().find(|name| database == **name).expect("a database");
        if are_all {
            self.watched.insert(database, BTreeSet::new());
        }
        let Some(watched) = self.watched.get_mut(database) else { return };
        for row in updates["Port"].as_object().into_iter().flat_map(|rows| rows.values()) {
            watched.extend(row["new"]["name"].as_str().map(str::to_owned));
        }
    }
}

impl World {
    fn start(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let relays: &'static [(&'static str, &'static [usize])] = match seed % 4 {
            0 => &[("Net", &[0, 3])],
            1 => &[("Net", &[0, 3]), ("Other", &[0])],
            _ => &[("Net", &[0, 3]), ("Other", &[2])],
        };
        let source = || {
            let mut source = Shell::start();
            has_another_database(&mut source);
            source
        };
        let between = relay_of_all("between", &[("Net", &[0])]);
        let servers = vec![source(), relay_of_all("relay", relays), source(), between];
        let mut chain = Chain::joined(servers);
        let mut databases: Vec<&str> = relays.iter().map(|(name, _)| *name).collect();
        let server = &mut chain.servers[RELAY];
        if seed % 4 == 3 {
            let file = file_of(&SCHEMA.replace("\"Net\"", "\"Own\""));
            server.files.insert(OWN_PATH.to_owned(), file);
            let added = server.command("ovsdb-server/add-db", &[OWN_PATH]);
            added.expect("an answer").expect("it is added");
            server.slow_files.insert(OWN_PATH.to_owned());
            server.slow_work = true;
            databases.push("Own");
        }
        let count = 2 + chance.below(3);
        let mut clients = Vec::new();
        for _ in 0..count {
            let at = if chance.one_in(5) { 0 } else { RELAY };
            let session = chain.servers[at].connect();
            let (asked, watched) = Default::default();
            clients.push(Client {
                at,
                session,
                asked,
                watched,
                wants: false,
                owns: None,
                is_thief: false,
            });
        }
        let log = vec![format!("seed {seed}")];
        let (requests, reads) = (0, 0);
        let (writes, never, removed) = Default::default();
        let mut world = Self {
            chain,
            chance,
            databases,
            clients,
            requests,
            writes,
            never,
            relays,
            removed,
            reads,
            log,
        };
        (0..count).for_each(|who| world.watches(who));
        world
    }

    fn say(&mut self, text: String) {
        self.log.push(text);
    }

    /// A client that has just come watches all.
    fn watches(&mut self, who: usize) {
        let Client { at, session, .. } = self.clients[who];
        for database in self.databases_at(at) {
            let params = json!([database, database, {"Port": {"columns": ["name"]}}]);
            let request = json!({"id": database, "method": "monitor", "params": params});
            self.chain.servers[at].send(session, &request.to_string());
        }
    }

    fn databases_at(&self, at: usize) -> Vec<&'static str> {
        if at == RELAY { self.databases.clone() } else { vec!["Net"] }
    }

    /// A client asks for something.
    fn asks(&mut self, who: usize) {
        let client = &mut self.clients[who];
        let id = self.requests;
        self.requests += 1;
        let database = match client.at {
            RELAY => *self.chance.pick(&self.databases),
            _ => "Net",
        };
        let (asked, request) = match self.chance.below(8) {
            0 | 1 if !client.wants => {
                let by_force = self.chance.one_in(6);
                let method = if by_force { "steal" } else { "lock" };
                (Asked::Lock { by_force }, by_name(id, method))
            }
            0 if client.owns.is_some() || self.chance.one_in(4) => {
                (Asked::Unlock, by_name(id, "unlock"))
            }
            _ if self.chance.one_in(2) => {
                (Asked::Write(database), transaction(id, database, &insert(&format!("p{id}"))))
            }
            _ => {
                let select = r#"{"op":"select","table":"Port","where":[],"columns":["name"]}"#;
                (Asked::Read(database), transaction(id, database, select))
            }
        };
        match asked {
            Asked::Lock { .. } => client.wants = true,
            Asked::Unlock => (client.wants, client.owns) = (false, None),
            Asked::Write(database) => {
                let Client { at, session, .. } = *client;
                if let Some(turn) = client.owns {
                    self.writes.push(Write { number: id, database, at, session, turn });
                }
            }
            Asked::Read(_) => {}
        }
        let watched = || client.watched.get(database).filter(|_| !client.is_thief).cloned();
        let turn = client.owns.map(|turn| (turn, watched()));
        client.asked.insert(id, Request { asked, turn });
        self.chain.servers[client.at].send(client.session, &request);
        self.say(format!("{who} asks {id}: {asked:?}"));
    }

    /// A client goes, and comes back as another one.
    fn leaves(&mut self, who: usize) {
        self.say(format!("{who} leaves"));
        let client = &mut self.clients[who];
        let server = &mut self.chain.servers[client.at];
        server.event(Event::Closed { session: client.session, error: None });
        client.session = server.connect();
        client.begins_anew();
        self.watches(who);
    }

    /// Something happens somewhere.
    fn something_happens(&mut self) {
        let Self { chain, chance, log, .. } = self;
        match chance.below(16) {
            0..3 => chain.servers[RELAY].settle(),
            3 => chain.servers[0].settle(),
            4..6 => {
                log.push("server 0 answers".to_owned());
                chain.settle_between(RELAY, 0);
            }
            6..8 => {
                log.push("server 2 answers".to_owned());
                chain.settle_between(RELAY, 2);
            }
            8..10 => {
                let server = &mut chain.servers[RELAY];
                if !server.work.is_empty() {
                    log.push("a helper is done".to_owned());
                    server.do_work(chance.below(server.work.len()));
                    server.settle();
                }
            }
            10 => {
                chain.servers[RELAY].disk_is_done();
                chain.servers[RELAY].settle();
            }
            11 => {
                let cost = *chance.pick(&[0, 100_000]);
                chain.servers[RELAY].server.set_step_cost_max(cost);
            }
            12 if chance.one_in(3) => {
                log.push("the relays lose their sources".to_owned());
                chain.lose(RELAY);
            }
            13 if chance.one_in(4) => {
                let source = *chance.pick(&[0, 2]);
                log.push(format!("server {source} goes"));
                chain.goes(source);
            }
            13 => {
                let chance_of = chance.one_in(2);
                log.push(format!("the first source takes no connection of relays: {chance_of}"));
                chain.is_cut[RELAY] = chance_of && !chain.is_cut[RELAY];
            }
            15 if chance.one_in(3) => self.a_relay_goes_or_comes(),
            14 => {
                chain.is_cut[RELAY] = false;
                chain.comes_back(0);
                chain.comes_back(2);
                chain.pass_ms(500);
            }
            _ if chance.one_in(4) => chain.pass_ms(500),
            _ => chain.settle(),
        }
        self.hear();
    }

    /// An operator removes a relay, or adds it again.
    fn a_relay_goes_or_comes(&mut self) {
        let (name, list) = *self.chance.pick(self.relays);
        let server = &mut self.chain.servers[RELAY];
        let reply = if self.removed.contains(name) {
            let list: Vec<String> = list.iter().map(|to| format!("unix:/server{to}")).collect();
            let relay = format!("relay:{name}:{}", list.join(","));
            let added = server.command("ovsdb-server/add-db", &[&relay]);
            // It may have to go first, which waits for helpers.
            if added == Some(Ok(String::new())) {
                self.removed.remove(name);
            }
            added
        } else {
            self.removed.insert(name);
            for client in self.clients.iter_mut().filter(|client| client.at == RELAY) {
                client.watched.remove(name);
            }
            server.command("ovsdb-server/remove-db", &[name])
        };
        self.say(format!("{name} goes or comes: {reply:?}"));
    }

    /// All hear what there is for them.
    fn hear(&mut self) {
        for who in 0..self.clients.len() {
            let (at, session) = (self.clients[who].at, self.clients[who].session);
            for message in self.chain.servers[at].received(session) {
                self.say(format!("{who} hears {message}"));
                let now = self.log.len();
                let message = value(&message);
                let client = &mut self.clients[who];
                match message["method"].as_str() {
                    Some("monitor_canceled") => {}
                    Some("update") => {
                        client.is_told(&message["params"][0], &message["params"][1], false);
                    }
                    Some("locked") => {
                        client.owns = client.wants.then_some(now);
                        client.is_thief = false;
                    }
                    Some("stolen") => client.owns = None,
                    _ => {
                        let Some(id) = message["id"].as_u64() else {
                            // What has been removed meanwhile is not watched.
                            let database = &message["id"];
                            let is_there = !self.removed.iter().any(|name| database == *name);
                            if message["error"].is_null() && is_there {
                                client.is_told(database, &message["result"], true);
                            }
                            continue;
                        };
                        let id = u32::try_from(id).expect("one of those that were asked");
                        let Request { asked, turn } =
                            client.asked.remove(&id).expect("it is answered once");
                        match asked {
                            Asked::Lock { by_force } => {
                                let is_owner = message["result"]["locked"] == true;
                                client.owns = (is_owner && client.wants).then_some(now);
                                client.is_thief = by_force;
                            }
                            Asked::Read(database) | Asked::Write(database) => {
                                self.check_read(who, database, turn, &message);
                            }
                            Asked::Unlock => {}
                        }
                    }
                }
            }
            if self.chain.servers[at].disconnected.contains(&session) {
                self.say(format!("{who} is disconnected"));
                self.leaves(who);
            }
        }
    }

    /// What others had asked for under the lock before this one had it is in what it has been told and in what it finds, or
    /// never will be.
    fn check_read(
        &mut self,
        who: usize,
        database: &'static str,
        turn: Option<(usize, Option<BTreeSet<String>>)>,
        answer: &Value,
    ) {
        let results = answer["result"].as_array().map_or(&[][..], |results| results);
        if results.len() < 2 || results.iter().any(|result| !result["error"].is_null()) {
            return;
        }
        // Who has lost it and has it again may have asked in either turn.
        let Some((turn, watched)) = turn.filter(|(turn, _)| self.clients[who].owns == Some(*turn))
        else {
            return;
        };
        self.reads += 1;
        let Client { at, session, .. } = self.clients[who];
        // Locks of other servers are others.
        let before = |write: &&Write| {
            (write.database, write.at) == (database, at)
                && write.session != session
                && write.turn < turn
        };
        let names: Option<BTreeSet<&str>> = results[1]["rows"]
            .as_array()
            .map(|rows| rows.iter().filter_map(|row| row["name"].as_str()).collect());
        let watched_names = || Some(watched.as_ref()?.iter().map(String::as_str).collect());
        let Some(names) = names.or_else(watched_names) else { return };
        let earlier: Vec<String> =
            self.writes.iter().filter(before).map(|write| format!("p{}", write.number)).collect();
        for name in earlier {
            if !names.contains(name.as_str()) {
                self.never.insert((database, name));
                continue;
            }
            assert!(
                watched.as_ref().is_none_or(|watched| watched.contains(&name)),
                "{who} had not been told of {name} of {database} when the lock was his\n{}",
                self.log.join("\n")
            );
        }
    }

    /// Everything happens that can.
    fn ends(&mut self) {
        self.chain.is_cut[RELAY] = false;
        self.chain.comes_back(0);
        self.chain.comes_back(2);
        for who in 0..self.clients.len() {
            if self.clients[who].wants {
                let client = &mut self.clients[who];
                let id = self.requests;
                self.requests += 1;
                (client.wants, client.owns) = (false, None);
                client.asked.insert(id, Request { asked: Asked::Unlock, turn: None });
                self.chain.servers[client.at].send(client.session, &by_name(id, "unlock"));
                self.say(format!("{who} asks {id}: unlock"));
            }
        }
        let server = &mut self.chain.servers[RELAY];
        server.slow_work = false;
        server.slow_files.clear();
        for round in 0..40 {
            if round > 2 && !self.removed.is_empty() {
                self.a_relay_goes_or_comes();
            }
            let server = &mut self.chain.servers[RELAY];
            while !server.work.is_empty() {
                server.do_work(0);
            }
            server.disk_is_done();
            self.chain.pass_ms(5000);
            self.hear();
            let is_answered = self.clients.iter().all(|client| client.asked.is_empty());
            if is_answered && self.removed.is_empty() {
                return;
            }
        }
        let open: Vec<_> = self.clients.iter().map(|client| &client.asked).collect();
        panic!("not all is answered: {open:?}\n{}", self.log.join("\n"));
    }

    fn check(&mut self) {
        // Relays that have been added last may have to try again.
        self.chain.pass_ms(20_000);
        for database in self.databases.clone() {
            let server = &mut self.chain.servers[RELAY];
            let client = server.connect();
            let select = r#"{"op":"select","table":"Port","where":[],"columns":["name"]}"#;
            let request = transact(1, select).replace("\"Net\"", &format!("{database:?}"));
            let answer = value(&server.call(client, &request));
            let rows = answer["result"][0]["rows"]
                .as_array()
                .unwrap_or_else(|| panic!("{answer}\n{}", self.log.join("\n")));
            for row in rows {
                let name = row["name"].as_str().expect("a name").to_owned();
                assert!(
                    !self.never.contains(&(database, name.clone())),
                    "{name} of {database} was not there for who had the lock\n{}",
                    self.log.join("\n")
                );
            }
        }
    }
}

fn by_name(id: u32, method: &str) -> String {
    json!({"id": id, "method": method, "params": [LOCK]}).to_string()
}

fn transaction(id: u32, database: &str, operation: &str) -> String {
    let operations = format!(r#"{{"op":"assert","lock":"{LOCK}"}},{operation}"#);
    transact(id, &operations).replace("\"Net\"", &format!("{database:?}"))
}

#[test]
fn who_reads_under_a_lock_sees_what_was_asked_for_under_it_before() {
    let seeds = seeds(400);
    let count = seeds.end - seeds.start;
    let (mut reads, mut never) = (0, 0);
    for seed in seeds {
        let mut world = World::start(seed);
        for _ in 0..world.chance.below(300) {
            match world.chance.below(8) {
                0..4 => {
                    let who = world.chance.below(world.clients.len());
                    world.asks(who);
                }
                4 if world.chance.one_in(6) => {
                    let who = world.chance.below(world.clients.len());
                    world.leaves(who);
                }
                _ => world.something_happens(),
            }
        }
        world.ends();
        world.check();
        reads += world.reads;
        never += world.never.len();
    }
    println!("{reads} reads, {never} never");
    assert!(reads > count / 2 && never > 0, "{reads} reads, {never} rows that were never made");
}

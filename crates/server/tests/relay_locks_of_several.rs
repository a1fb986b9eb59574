//! Locks at a server that is the relay of two databases of one source: each has its own connection there, and only one of
//! them can have a lock. Whose turn it is here decides in which database the lock is asserted.

use crate::chain::{Chain, relay_of_all};
use crate::chance::Chance;
use crate::relay_sources::{guarded, has_another_database, is, lock, outcome, value};
use crate::shell::{Shell, insert, transact};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use weir_server::event::{Event, SessionId};

/// A source of both databases.
fn source() -> Shell {
    let mut source = Shell::start();
    has_another_database(&mut source);
    source
}

/// The source, and the relay of both of its databases, with two clients.
fn chain() -> (Chain, SessionId, SessionId) {
    with_clients(&[("Net", &[0]), ("Other", &[0])])
}

/// A relay of these databases, which has each from another source, with two clients.
fn chain_of_two_sources(databases: &[(&str, &[usize])]) -> (Chain, SessionId, SessionId) {
    let (mut chain, first, second) = with_clients(databases);
    for client in [first, second] {
        let aware = r#"{"id":1,"method":"set_db_change_aware","params":[true]}"#;
        chain.call(1, client, aware);
    }
    (chain, first, second)
}

fn with_clients(databases: &[(&str, &[usize])]) -> (Chain, SessionId, SessionId) {
    let relay = relay_of_all("relay", databases);
    let mut chain = Chain::joined(vec![source(), relay, source()]);
    let [first, second] = [(); 2].map(|()| chain.servers[1].connect());
    (chain, first, second)
}

const NET: (&str, &[usize]) = ("Net", &[0]);
const OTHER: (&str, &[usize]) = ("Other", &[2]);
const UNLOCK: &str = r#"{"id":1,"method":"unlock","params":["l"]}"#;

fn watches(chain: &mut Chain, client: SessionId, database: &str) {
    let request = r#"{"id":1,"method":"monitor","params":["Net","m",{"Port":{}}]}"#;
    chain.call(1, client, &request.replace("Net", database));
}

/// A client of a source writes in one of its databases under the lock.
fn writes_elsewhere(chain: &mut Chain, at: usize, database: &str) {
    let elsewhere = chain.servers[at].connect();
    assert_eq!(lock(chain, at, elsewhere, "lock"), true);
    let told = outcome(&chain.call(at, elsewhere, &guarded_in(database)));
    assert_eq!(told, is("done", &[]));
    chain.call(at, elsewhere, UNLOCK);
}

/// A client of the relay inserts a port in a database, if the lock is his: what came of it, and what he was told of the
/// lock.
fn writes(chain: &mut Chain, client: SessionId, database: &str) -> (String, Vec<String>) {
    outcome(&chain.call(1, client, &guarded_in(database)))
}

fn guarded_in(database: &str) -> String {
    static PORTS: AtomicU32 = AtomicU32::new(0);
    let name = format!("port {}", PORTS.fetch_add(1, Ordering::Relaxed));
    guarded(&name).replace("\"Net\"", &format!("{database:?}"))
}

/// A client gives the lock up, and the other one hears of it.
fn hands_over(chain: &mut Chain, from: SessionId, to: SessionId) {
    chain.call(1, from, UNLOCK);
    assert_eq!(outcome(&chain.servers[1].received(to)).1, ["locked"]);
}

#[test]
fn who_waits_behind_a_client_that_asserts_the_lock_in_both_has_his_turn() {
    for then in ["Net", "Other"] {
        let (mut chain, first, second) = chain();
        assert_eq!(lock(&mut chain, 1, first, "lock"), true);
        assert_eq!(writes(&mut chain, first, "Net"), is("done", &[]));
        for database in ["Other", "Net"] {
            let told = writes(&mut chain, first, database);
            assert_eq!(told, is("\"not owner\"", &["stolen", "locked"]), "{database}");
            assert_eq!(writes(&mut chain, first, database), is("done", &[]));
        }
        assert_eq!(lock(&mut chain, 1, second, "lock"), false);
        hands_over(&mut chain, first, second);
        if then == "Other" {
            let told = writes(&mut chain, second, then);
            assert_eq!(told, is("\"not owner\"", &["stolen", "locked"]));
        }
        assert_eq!(writes(&mut chain, second, then), is("done", &[]));
    }
}

#[test]
fn the_next_owner_may_assert_a_lock_in_the_other_database() {
    let (mut chain, first, second) = chain();
    assert_eq!(lock(&mut chain, 1, first, "lock"), true);
    assert_eq!(writes(&mut chain, first, "Net"), is("done", &[]));
    assert_eq!(lock(&mut chain, 1, second, "lock"), false);
    hands_over(&mut chain, first, second);
    assert_eq!(writes(&mut chain, second, "Other"), is("\"not owner\"", &["stolen", "locked"]));
    assert_eq!(writes(&mut chain, second, "Other"), is("done", &[]));
    // It is given back when nobody here wants it any more.
    let elsewhere = chain.servers[0].connect();
    assert_eq!(lock(&mut chain, 0, elsewhere, "lock"), false);
    chain.call(1, second, UNLOCK);
    assert_eq!(outcome(&chain.servers[0].received(elsewhere)).1, ["locked"]);
}

#[test]
fn who_steals_a_lock_and_asserts_it_in_the_other_database_is_not_told_that_it_is_stolen() {
    let (mut chain, first, second) = chain();
    assert_eq!(lock(&mut chain, 1, first, "lock"), true);
    assert_eq!(writes(&mut chain, first, "Net"), is("done", &[]));
    assert_eq!(lock(&mut chain, 1, second, "steal"), true);
    assert_eq!(writes(&mut chain, second, "Other"), is("done", &[]));
    assert_eq!(writes(&mut chain, second, "Other"), is("done", &[]));
}

/// The lock stays with the connection that has it, in case the next owner asserts it there, and the connection ends.
#[test]
fn an_owner_hears_nothing_of_the_source_of_a_lock_that_he_has_asserted_nowhere() {
    for then in ["Net", "Other"] {
        let (mut chain, first, second) = chain();
        assert_eq!(lock(&mut chain, 1, first, "lock"), true);
        assert_eq!(writes(&mut chain, first, "Net"), is("done", &[]));
        assert_eq!(lock(&mut chain, 1, second, "lock"), false);
        hands_over(&mut chain, first, second);
        chain.lose(1);
        chain.pass_ms(10_000);
        assert_eq!(outcome(&chain.servers[1].received(second)).1, Vec::<String>::new());
        assert_eq!(writes(&mut chain, second, then), is("done", &[]));
    }
}

/// Whoever asserts what is not his says nothing about its owner.
#[test]
fn an_owner_does_not_hear_of_those_who_assert_his_lock_while_the_source_is_away() {
    let (mut chain, first, second) = chain();
    assert_eq!(lock(&mut chain, 1, first, "lock"), true);
    chain.goes(0);
    chain.call(1, second, &guarded("a"));
    assert_eq!(chain.servers[1].received(first), Vec::<String>::new());
    assert_eq!(outcome(&chain.call(1, first, &guarded("a"))).1, ["stolen"]);
}

/// Others have taken the lock from the connection of a database in which its owner does not assert it.
#[test]
fn the_next_owner_waits_by_the_database_that_he_asserts_the_lock_in() {
    let (mut chain, first, second) = chain();
    let elsewhere = chain.servers[0].connect();
    assert_eq!(lock(&mut chain, 1, first, "lock"), true);
    assert_eq!(writes(&mut chain, first, "Net"), is("done", &[]));
    assert_eq!(lock(&mut chain, 1, second, "lock"), false);
    hands_over(&mut chain, first, second);
    assert_eq!(lock(&mut chain, 0, elsewhere, "steal"), true);
    chain.settle();
    assert_eq!(outcome(&chain.servers[1].received(second)).1, Vec::<String>::new());
    assert_eq!(writes(&mut chain, second, "Other"), is("\"not owner\"", &["stolen"]));
    chain.call(0, elsewhere, UNLOCK);
    assert_eq!(outcome(&chain.servers[1].received(second)).1, ["locked"]);
    assert_eq!(writes(&mut chain, second, "Other"), is("done", &[]));
}

/// Both relays have the lock when it changes hands, and the one of the other database gives it back in the round in which
/// its next owner is told that it is his.
#[test]
fn who_gets_a_lock_while_it_is_given_back_is_refused_once_behind_what_others_wrote_under_it() {
    let (mut chain, first, second) = chain_of_two_sources(&[NET, OTHER]);
    watches(&mut chain, second, "Other");
    assert_eq!(lock(&mut chain, 1, first, "lock"), true);
    for database in ["Net", "Other"] {
        assert_eq!(writes(&mut chain, first, database), is("done", &[]));
    }
    chain.servers[1].received(second);
    chain.servers[1].send(first, UNLOCK);
    chain.servers[1].send(second, r#"{"id":1,"method":"lock","params":["l"]}"#);
    chain.settle();
    assert!(chain.servers[1].received(second).iter().any(|told| told.contains("true")));
    writes_elsewhere(&mut chain, 2, "Other");
    let told = writes(&mut chain, second, "Other");
    assert_eq!(told, is("\"not owner\"", &["update", "stolen", "locked"]));
    assert_eq!(writes(&mut chain, second, "Other").0, "done");
}

#[test]
fn a_lock_stays_with_the_relay_whose_database_it_is_asserted_in_when_another_one_comes() {
    let (mut chain, first, _) = chain_of_two_sources(&[NET]);
    assert_eq!(lock(&mut chain, 1, first, "lock"), true);
    assert_eq!(writes(&mut chain, first, "Net"), is("done", &[]));
    let added = chain.servers[1].command("ovsdb-server/add-db", &["relay:Other:unix:/server2"]);
    assert_eq!(added, Some(Ok(String::new())));
    chain.pass_ms(1000);
    assert_eq!(writes(&mut chain, first, "Other"), is("done", &[]));
    for (at, database) in [(0, "Net"), (2, "Other")] {
        let elsewhere = chain.servers[at].connect();
        assert_eq!(lock(&mut chain, at, elsewhere, "lock"), false, "{database}");
    }
    assert_eq!(writes(&mut chain, first, "Net"), is("done", &[]));
}

#[test]
fn an_owner_who_has_heard_that_his_lock_is_lost_has_it_again_when_its_relay_is_removed() {
    let (mut chain, first, second) = chain_of_two_sources(&[NET, OTHER]);
    assert_eq!(lock(&mut chain, 1, first, "lock"), true);
    assert_eq!(lock(&mut chain, 1, second, "lock"), false);
    assert_eq!(writes(&mut chain, first, "Net"), is("done", &[]));
    chain.goes(0);
    chain.settle();
    assert_eq!(outcome(&chain.servers[1].received(first)).1, ["stolen"]);
    assert_eq!(
        chain.servers[1].command("ovsdb-server/remove-db", &["Net"]),
        Some(Ok(String::new()))
    );
    chain.settle();
    assert_eq!(outcome(&chain.servers[1].received(first)).1, ["locked"]);
    assert_eq!(writes(&mut chain, first, "Other"), is("done", &[]));
    hands_over(&mut chain, first, second);
}

#[test]
fn a_lock_is_given_up_behind_a_write_though_the_source_of_another_database_is_away() {
    let (mut chain, first, _) = chain_of_two_sources(&[NET, OTHER]);
    assert_eq!(lock(&mut chain, 1, first, "lock"), true);
    assert_eq!(writes(&mut chain, first, "Other"), is("done", &[]));
    chain.goes(0);
    chain.settle();
    let relay = &mut chain.servers[1];
    relay.send(first, &guarded_in("Other"));
    relay.send(first, UNLOCK);
    relay.settle();
    while relay.connecting.is_empty() {
        relay.pass_ms(250);
    }
    let (link, _) = relay.connecting.pop().expect("a connection was begun");
    relay.event(Event::LinkDown { link, error: Some("Connection refused".to_owned()) });
    relay.settle();
    assert_eq!(relay.received(first), Vec::<String>::new(), "the other source has not answered");
    chain.settle();
    let told = chain.servers[1].received(first);
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(outcome(&told[..1]), is("done", &[]));
}

/// What else its client has asked for may wait for long.
#[test]
fn a_lock_is_given_up_behind_what_is_under_it_and_nothing_else() {
    let (mut chain, first, _) = chain_of_two_sources(&[NET, OTHER]);
    assert_eq!(lock(&mut chain, 1, first, "lock"), true);
    assert_eq!(writes(&mut chain, first, "Other"), is("done", &[]));
    for request in [&transact(1, &insert("a")), &guarded_in("Other"), UNLOCK] {
        chain.servers[1].send(first, request);
    }
    chain.servers[1].settle();
    assert_eq!(chain.servers[1].received(first), Vec::<String>::new(), "no source has answered");
    chain.settle_between(1, 2);
    let told = chain.servers[1].received(first);
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(outcome(&told[..1]), is("done", &[]));
    chain.settle();
    assert_eq!(chain.servers[1].received(first).len(), 1);
}

/// More than may be under way at once.
#[test]
fn a_lock_is_given_up_at_once_though_much_waits_under_it_for_a_source_that_is_away() {
    let mut chain = Chain::start(1);
    let client = chain.servers[1].connect();
    assert_eq!(lock(&mut chain, 1, client, "lock"), true);
    chain.goes(0);
    chain.settle();
    for _ in 0..50 {
        chain.call(1, client, &guarded("a"));
    }
    let told = chain.call(1, client, &UNLOCK.replace("\"id\":1", "\"id\":99"));
    assert!(told.iter().any(|told| value(told)["id"] == 99), "{told:?}");
}

/// What a client has been told of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Without,
    Waits,
    Owns,
    /// He stole it, and somebody stole it from him: he is in no queue.
    Robbed,
}

/// A client, with where he is connected.
#[derive(Debug)]
struct Client {
    at: usize,
    id: SessionId,
    /// The databases that all are to see there.
    databases: &'static [&'static str],
    has_stolen: bool,
    standing: Standing,
    /// How many ports he has been told of in each database.
    ports: BTreeMap<&'static str, usize>,
    /// He has asked for a write that is not answered.
    writes: bool,
    /// He has asked for the lock, or given it up, and is not answered.
    asks: bool,
}

/// Clients of a relay of two databases, and of its sources, that take turns at one lock. Each write is a port whose name
/// ends in how many its client knows of: who has the lock has been told of all.
struct Rivals {
    chain: Chain,
    /// The servers that have the databases.
    sources: [(usize, &'static str); 2],
    clients: Vec<Client>,
    /// What has happened, to be read when it should not have.
    log: Vec<String>,
}

impl Rivals {
    /// Both databases have one source, or each its own.
    fn start(has_one_source: bool) -> Self {
        let others = if has_one_source { 0 } else { 2 };
        let relay = relay_of_all("relay", &[("Net", &[0]), ("Other", &[others])]);
        let mut chain = Chain::joined(vec![source(), relay, source()]);
        let all: &[&str] = &["Net", "Other"];
        let of = |at| match (at, has_one_source) {
            (0, false) => &all[..1],
            (2, _) => &all[1..],
            _ => all,
        };
        let clients = [1, 1, 1, 0, others].map(|at| {
            let id = chain.servers[at].connect();
            let databases = of(at);
            for database in databases {
                let request = r#"{"id":3,"method":"monitor","params":["Net","Net",{"Port":{}}]}"#;
                chain.call(at, id, &request.replace("Net", database));
            }
            let ports = databases.iter().map(|database| (*database, 0)).collect();
            let standing = Standing::Without;
            let (has_stolen, writes, asks) = (false, false, false);
            Client { at, id, databases, has_stolen, standing, ports, writes, asks }
        });
        Self {
            chain,
            sources: [(0, "Net"), (others, "Other")],
            clients: clients.into(),
            log: vec![],
        }
    }

    /// All hear what there is for them.
    fn hear(&mut self) {
        let Self { chain, clients, log, .. } = self;
        for (number, client) in clients.iter_mut().enumerate() {
            for message in chain.servers[client.at].received(client.id) {
                log.push(format!("{number} hears {message}"));
                client.hear(&value(&message));
            }
        }
    }

    fn locks(&mut self, client: usize, method: &str) {
        let Client { at, id, has_stolen, standing, asks, .. } = &mut self.clients[client];
        *asks = true;
        if method == "unlock" {
            *standing = Standing::Without;
        }
        *has_stolen = method == "steal";
        let request = json!({"id": 1, "method": method, "params": ["l"]});
        self.log.push(format!("{client}: {method}"));
        self.chain.servers[*at].send(*id, &request.to_string());
    }

    /// A client writes under the lock in a database, from what he has been told.
    fn writes(&mut self, client: usize, database: &str) {
        let Client { at, id, ports, writes, .. } = &mut self.clients[client];
        *writes = true;
        let name = format!("{client}-{}", ports[database]);
        self.log.push(format!("{client}: {name} in {database}"));
        let request = guarded(&name).replace("\"Net\"", &format!("{database:?}"));
        self.chain.servers[*at].send(*id, &request);
    }

    /// The owner of the lock, as he has heard, writes in one of his databases, if need be behind having heard that it is his
    /// once more. Whether that is made.
    fn writes_soon(&mut self, client: usize) -> bool {
        let databases = self.clients[client].databases;
        databases.iter().flat_map(|database| [database; 4]).any(|database| {
            if self.clients[client].standing != Standing::Owns {
                self.chain.pass_ms(1000);
                self.hear();
                return false;
            }
            let known = self.clients[client].ports[database];
            self.writes(client, database);
            self.chain.pass_ms(1000);
            self.hear();
            assert!(!self.clients[client].writes, "it is answered");
            self.clients[client].ports[database] > known
        })
    }

    /// All have their turn, one after the other, and none stays without it.
    fn have_turns(&mut self, seed: u64) {
        self.chain.pass_ms(20_000);
        self.hear();
        while self.clients.iter().any(|client| client.standing != Standing::Without) {
            self.chain.pass_ms(10_000);
            self.hear();
            let mut has_moved = false;
            for client in 0..self.clients.len() {
                let is_over = match self.clients[client].standing {
                    Standing::Owns => self.writes_soon(client),
                    standing => standing == Standing::Robbed,
                };
                if is_over {
                    self.locks(client, "unlock");
                    self.chain.settle();
                    self.hear();
                    has_moved = true;
                }
            }
            // Who stole a lock at a relay does not hear who has stolen it: if that is somebody there, he is in no queue.
            let is_robbed = |client: &Client| {
                client.at == 1 && client.has_stolen && client.standing == Standing::Waits
            };
            let robbed = self.clients.iter().position(is_robbed).filter(|_| !has_moved);
            if let Some(robbed) = robbed {
                self.locks(robbed, "unlock");
                has_moved = true;
            }
            assert!(has_moved, "seed {seed}: {:?}\n{}", self.clients, self.log.join("\n"));
        }
    }

    /// Of how many others each port's client knew, in order.
    fn known(&mut self, (at, database): (usize, &str)) -> Vec<usize> {
        let client = self.chain.servers[at].connect();
        let select = r#"{"op":"select","table":"Port","where":[],"columns":["name"]}"#;
        let request = transact(1, select).replace("\"Net\"", &format!("{database:?}"));
        let reply = value(&self.chain.call(at, client, &request)[0]);
        let rows = reply["result"][0]["rows"].as_array().expect("rows").iter();
        let names = rows.map(|row| row["name"].as_str().expect("a name"));
        let known = names.map(|name| name.split_once('-').expect("two numbers").1);
        let mut known: Vec<usize> = known.map(|known| known.parse().expect("a number")).collect();
        known.sort_unstable();
        known
    }
}

impl Client {
    fn hear(&mut self, told: &Value) {
        self.asks &= told["id"] != 1;
        match told["method"].as_str() {
            // He has given it up, and is not answered yet.
            Some("locked" | "stolen") if self.standing == Standing::Without => {}
            Some("locked") => self.standing = Standing::Owns,
            // At a relay it may be that somebody has it at the source.
            Some("stolen") if self.has_stolen && self.at != 1 => self.standing = Standing::Robbed,
            Some("stolen") => self.standing = Standing::Waits,
            Some("update") => {
                let database = told["params"][0].as_str().expect("a monitor's name");
                let rows = told["params"][1]["Port"].as_object().expect("rows");
                let ports = self.ports.iter_mut().find(|(name, _)| **name == database);
                *ports.expect("a database").1 += rows.len();
            }
            _ if told["result"]["locked"] == true => self.standing = Standing::Owns,
            _ if told["result"]["locked"] == false => self.standing = Standing::Waits,
            _ if told["id"] == 2 => self.writes = false,
            _ => {}
        }
    }
}

#[test]
fn who_takes_turns_at_a_lock_loses_no_update_and_waits_for_nobody_in_vain() {
    for seed in 0..600 {
        let mut chance = Chance::new(seed);
        let (has_one_source, has_thieves) = (seed % 2 == 0, seed % 3 == 0);
        let mut rivals = Rivals::start(has_one_source);
        for _ in 0..chance.below(60) {
            rivals.hear();
            let at = chance.below(rivals.clients.len());
            let Client { standing, writes, databases, asks, .. } = &rivals.clients[at];
            match chance.below(12) {
                0 if chance.one_in(3) => {
                    rivals.log.push("the relay loses its connections".to_owned());
                    rivals.chain.lose(1);
                }
                1 => rivals.chain.pass_ms(500),
                2..6 if *standing == Standing::Without && !asks => {
                    let steals = has_thieves && chance.one_in(5);
                    let method = if steals { "steal" } else { "lock" };
                    rivals.locks(at, method);
                }
                2..4 if !writes && !asks => rivals.locks(at, "unlock"),
                _ if *standing == Standing::Owns && !writes => {
                    let database = chance.pick(databases);
                    rivals.writes(at, database);
                }
                _ => {}
            }
            if chance.one_in(2) {
                rivals.chain.settle();
            }
        }
        rivals.chain.settle();
        rivals.have_turns(seed);
        // What its last owner has just written a thief may not have heard.
        for source in rivals.sources.into_iter().filter(|_| !has_thieves) {
            let known = rivals.known(source);
            let is_right = known.iter().copied().eq(0..known.len());
            assert!(is_right, "seed {seed}: {known:?}\n{}", rivals.log.join("\n"));
        }
    }
}

//! A client that asks for more before it is answered has a lock from its `lock` to its `unlock`, in the order in which it has
//! asked, whoever makes what it asks for: this server, helpers, or sources of relays, which take their time.

use crate::chain::{Chain, relay_of_all};
use crate::chance::Chance;
use crate::keys::file_of;
use crate::relay_sources::{has_another_database, value};
use crate::shell::{SCHEMA, Shell, insert, transact};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use weir_server::event::SessionId;

const LOCKS: [&str; 2] = ["l", "m"];

/// The server that clients ask; it is between its sources.
const RELAY: usize = 1;

const OWN_PATH: &str = "/db/own.db";

/// What the client has asked for.
#[derive(Debug)]
enum Asked {
    Lock(&'static str),
    Unlock(&'static str),
    /// A transaction on this database, which may assert a lock.
    Transaction {
        database: &'static str,
        under: Option<&'static str>,
    },
    Other,
}

/// A client, and who waits for its locks.
struct World {
    chain: Chain,
    chance: Chance,
    databases: Vec<&'static str>,
    client: SessionId,
    /// What it has asked for, by the ids of the requests.
    asked: Vec<Asked>,
    wants: BTreeSet<&'static str>,
    /// What it was answered, in order, and the ids of that.
    answers: BTreeMap<usize, Value>,
    order: Vec<usize>,
    /// The locks that it was told are lost.
    stolen: BTreeSet<String>,
    /// Others, with their servers, and what they have asked for, and whether they own that.
    rivals: Vec<(usize, SessionId, BTreeMap<String, bool>)>,
    log: Vec<String>,
}

impl World {
    fn start(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let all: &[(&str, &[usize])] = &[("Net", &[0]), ("Other", &[2])];
        let relays = if seed.is_multiple_of(3) { &all[..1] } else { all };
        let source = || {
            let mut source = Shell::start();
            has_another_database(&mut source);
            source
        };
        let servers = vec![source(), relay_of_all("relay", relays), source()];
        let mut chain = Chain::joined(servers);
        let mut databases: Vec<&str> = relays.iter().map(|(name, _)| *name).collect();
        let server = &mut chain.servers[RELAY];
        if seed % 3 == 2 {
            let file = file_of(&SCHEMA.replace("\"Net\"", "\"Own\""));
            server.files.insert(OWN_PATH.to_owned(), file);
            let added = server.command("ovsdb-server/add-db", &[OWN_PATH]);
            added.expect("an answer").expect("it is added");
            server.slow_files.insert(OWN_PATH.to_owned());
            server.slow_work = true;
            databases.push("Own");
        }
        let client = server.connect();
        let rival = (RELAY, server.connect(), BTreeMap::new());
        let mut rivals = vec![rival];
        if chance.one_in(3) {
            rivals.push((0, chain.servers[0].connect(), BTreeMap::new()));
        }
        Self {
            chain,
            chance,
            databases,
            client,
            asked: vec![],
            wants: BTreeSet::new(),
            answers: BTreeMap::new(),
            order: vec![],
            stolen: BTreeSet::new(),
            rivals,
            log: vec![],
        }
    }

    /// The client asks for one thing more.
    fn asks(&mut self) {
        let id = self.asked.len();
        let lock = *self.chance.pick(&LOCKS);
        let database = *self.chance.pick(&self.databases);
        let (asked, request) = match self.chance.below(10) {
            0..3 if self.wants.insert(lock) => (Asked::Lock(lock), by_name(id, "lock", lock)),
            0..2 if self.wants.remove(lock) => (Asked::Unlock(lock), by_name(id, "unlock", lock)),
            9 => (Asked::Other, by_name(id, "echo", lock)),
            8 => (Asked::Transaction { database, under: None }, write(id, database, None)),
            _ => {
                let under = Some(lock);
                (Asked::Transaction { database, under }, write(id, database, under))
            }
        };
        self.log.push(format!("asks {id}: {asked:?}"));
        self.asked.push(asked);
        self.chain.servers[RELAY].send(self.client, &request);
    }

    /// Something happens somewhere.
    fn something_happens(&mut self) {
        let Self { chain, chance, log, .. } = self;
        match chance.below(12) {
            0..3 => chain.servers[RELAY].settle(),
            3..5 => {
                log.push("Net's source answers".to_owned());
                chain.settle_between(RELAY, 0);
            }
            5..7 => {
                log.push("Other's source answers".to_owned());
                chain.settle_between(RELAY, 2);
            }
            7..9 => {
                let server = &mut chain.servers[RELAY];
                if !server.work.is_empty() {
                    log.push("a helper is done".to_owned());
                    server.do_work(chance.below(server.work.len()));
                    server.settle();
                }
            }
            9 => {
                log.push("the disk is done".to_owned());
                chain.servers[RELAY].disk_is_done();
                chain.servers[RELAY].settle();
            }
            10 => {
                let cost = *chance.pick(&[0, 100_000]);
                chain.servers[RELAY].server.set_step_cost_max(cost);
            }
            _ if chance.one_in(4) => chain.pass_ms(500),
            _ => chain.settle(),
        }
        self.hear();
    }

    /// A rival asks for a lock, or gives one up that it has.
    fn rival_moves(&mut self) {
        let Self { chain, chance, rivals, log, .. } = self;
        let number = chance.below(rivals.len());
        let (at, session, has) = &mut rivals[number];
        let lock = *chance.pick(&LOCKS);
        let method = match has.get(lock) {
            None if chance.one_in(8) => "steal",
            None => "lock",
            Some(true) => "unlock",
            Some(false) => return,
        };
        match method {
            "unlock" => has.remove(lock),
            _ => has.insert(lock.to_owned(), false),
        };
        log.push(format!("rival {number}: {method} {lock}"));
        // The id says which lock it is about.
        let id = if method == "unlock" { json!(0) } else { json!(lock) };
        let request = json!({"id": id, "method": method, "params": [lock]});
        chain.servers[*at].send(*session, &request.to_string());
        self.hear();
    }

    /// All hear what there is for them.
    fn hear(&mut self) {
        for message in self.chain.servers[RELAY].received(self.client) {
            self.log.push(format!("hears {message}"));
            let message = value(&message);
            if message["method"] == "stolen" {
                self.stolen.insert(message["params"][0].as_str().expect("a name").to_owned());
            }
            if let Some(id) = message["id"].as_u64() {
                let id = usize::try_from(id).expect("one of those that were asked");
                self.order.push(id);
                assert!(self.answers.insert(id, message).is_none(), "{id} is answered once");
            }
        }
        let mut given = Vec::new();
        for (number, (at, session, has)) in self.rivals.iter_mut().enumerate() {
            for message in self.chain.servers[*at].received(*session) {
                self.log.push(format!("rival {number} hears {message}"));
                let message = value(&message);
                let name = match message["method"].as_str() {
                    Some(method @ ("locked" | "stolen")) => {
                        Some((message["params"][0].clone(), method == "locked"))
                    }
                    _ if message["result"]["locked"].is_boolean() => {
                        Some((message["id"].clone(), message["result"]["locked"] == true))
                    }
                    _ => None,
                };
                let Some((name, is_owner)) = name else { continue };
                let name = name.as_str().expect("a lock's name").to_owned();
                if let Some(owns) = has.get_mut(&name) {
                    *owns = is_owner;
                    // At a source a lock is another one until it is asserted there.
                    given.extend((is_owner && *at == RELAY).then_some((number, name)));
                }
            }
        }
        for (number, name) in given {
            self.check_given(number, &name);
        }
    }

    /// What the client has asked for under a lock, and given up, has been answered when somebody else is told that the lock
    /// is his.
    fn check_given(&self, rival: usize, name: &str) {
        if self.stolen.contains(name) {
            return;
        }
        let mut under = Vec::new();
        for (id, asked) in self.asked.iter().enumerate() {
            match asked {
                Asked::Lock(lock)
                    if *lock == name && self.answers.get(&id).is_some_and(is_owned) =>
                {
                    under = vec![id];
                }
                Asked::Transaction { under: Some(lock), .. }
                    if *lock == name && !under.is_empty() =>
                {
                    under.push(id);
                }
                Asked::Unlock(lock) if *lock == name => {
                    let open = under.iter().find(|id| !self.answers.contains_key(id));
                    assert_eq!(open, None, "rival {rival} owns {name}\n{}", self.log.join("\n"));
                    under.clear();
                }
                _ => {}
            }
        }
    }

    /// Everything happens that can.
    fn ends(&mut self) {
        for name in std::mem::take(&mut self.wants) {
            let id = self.asked.len();
            self.asked.push(Asked::Unlock(name));
            self.log.push(format!("asks {id}: Unlock({name})"));
            self.chain.servers[RELAY].send(self.client, &by_name(id, "unlock", name));
        }
        let server = &mut self.chain.servers[RELAY];
        server.slow_work = false;
        server.slow_files.clear();
        for round in 0..40 {
            let server = &mut self.chain.servers[RELAY];
            while !server.work.is_empty() {
                server.do_work(0);
            }
            server.disk_is_done();
            self.chain.pass_ms(5000);
            self.hear();
            // A thief who is robbed is in no queue.
            for number in 0..self.rivals.len() {
                let (at, session, has) = &mut self.rivals[number];
                for (name, _) in has.extract_if(.., |_, owns| *owns || round > 10) {
                    let request = json!({"id": 0, "method": "unlock", "params": [name]});
                    self.chain.servers[*at].send(*session, &request.to_string());
                }
            }
            let is_idle = self.rivals.iter().all(|(.., has)| has.is_empty());
            if is_idle && self.answers.len() == self.asked.len() {
                return;
            }
        }
        panic!(
            "{:?} of {}: not all is answered\n{}",
            self.answers.len(),
            self.asked.len(),
            self.log.join("\n")
        );
    }

    fn check(&self) {
        let said = || self.log.join("\n");
        let mut owned: BTreeMap<&str, Option<bool>> = BTreeMap::new();
        for (id, asked) in self.asked.iter().enumerate() {
            let answer = &self.answers[&id];
            match asked {
                Asked::Lock(lock) => {
                    // Who is not the owner at once comes to be at some time.
                    owned.insert(lock, is_owned(answer).then_some(true));
                }
                Asked::Unlock(lock) => drop(owned.insert(lock, Some(false))),
                Asked::Transaction { under: Some(lock), .. } => {
                    let is_refused = answer.to_string().contains("not owner");
                    match owned.get(lock).copied().unwrap_or(Some(false)) {
                        Some(true) if !self.stolen.contains(*lock) => {
                            assert!(!is_refused, "{id} is under {lock}\n{}", said());
                        }
                        Some(false) => {
                            assert!(is_refused, "{id} is not under {lock}\n{}", said());
                        }
                        _ => {}
                    }
                }
                Asked::Transaction { .. } | Asked::Other => {}
            }
        }
        for database in &self.databases {
            self.check_order(
                |asked| matches!(asked, Asked::Transaction { database: of, .. } if of == database),
            );
        }
        self.check_order(|asked| matches!(asked, Asked::Lock(_) | Asked::Unlock(_)));
    }

    /// What is meant has been answered in the order in which it was asked.
    fn check_order(&self, is_meant: impl Fn(&Asked) -> bool) {
        let answered: Vec<usize> =
            self.order.iter().copied().filter(|id| is_meant(&self.asked[*id])).collect();
        assert!(answered.is_sorted(), "{answered:?}\n{}", self.log.join("\n"));
    }
}

fn is_owned(answer: &Value) -> bool {
    answer["result"]["locked"] == true
}

fn by_name(id: usize, method: &str, name: &str) -> String {
    json!({"id": id, "method": method, "params": [name]}).to_string()
}

fn write(id: usize, database: &str, under: Option<&str>) -> String {
    let lock = under.map(|lock| format!(r#"{{"op":"assert","lock":"{lock}"}},"#));
    let operations = format!("{}{}", lock.unwrap_or_default(), insert(&format!("p{id}")));
    let id = u32::try_from(id).expect("not that many");
    transact(id, &operations).replace("\"Net\"", &format!("{database:?}"))
}

/// So many seeds from 0 on, unless `WEIR_SEED` says the first one, and `WEIR_SEEDS` how many.
pub(crate) fn seeds(default: u64) -> std::ops::Range<u64> {
    let number = |name: &str, default| {
        std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
    };
    let first = number("WEIR_SEED", 0);
    first..first + number("WEIR_SEEDS", default)
}

#[test]
fn what_is_asked_for_between_lock_and_unlock_is_under_the_lock() {
    for seed in seeds(600) {
        let mut world = World::start(seed);
        world.log.push(format!("seed {seed}"));
        for _ in 0..world.chance.below(60) {
            match world.chance.below(6) {
                0..3 => world.asks(),
                3 => world.rival_moves(),
                _ => world.something_happens(),
            }
        }
        world.ends();
        world.check();
    }
}

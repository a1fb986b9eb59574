//! Random transactions, monitors of all versions, flushes, sessions that do not read, changes of
//! conditions, against a dumb twin that compares whole states: every update must say exactly what
//! the twin says, and the updates of a complete subscription must add up to the database.

#[path = "twin/model.rs"]
mod model;
#[path = "twin/world.rs"]
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use serde_json::{Value, json};
use weir_data::{Committed, Delta, IdKind, Ids};
use weir_json::validate_value;
use weir_monitor::{Flushed, Leaving, MonitorKey, Monitors, Rows, TooLong, Update, Version};

use model::{Subscription, compose};
use world::{State, World, text};

/// A client that follows one monitor.
struct Client {
    version: Version,
    id: Value,
    subscription: Subscription,
    /// The database when the client was last up to date; several states if nothing that concerns
    /// it happened between them, of which the last ones may count or not while it does not read.
    seen: Vec<Rc<State>>,
    /// What it has, if its subscription is complete.
    replica: Option<State>,
}

struct Run {
    world: World,
    monitors: Monitors,
    clients: BTreeMap<MonitorKey, Client>,
    state: Rc<State>,
    /// All states and their transactions, if what a client is told may lead to an older one.
    history: Option<Vec<(Rc<State>, String)>>,
    /// What led from each of these states to the next.
    rounds: Vec<Vec<Arc<Delta>>>,
    /// Row updates received, by kind.
    seen: BTreeMap<&'static str, usize>,
}

#[test]
fn every_update_says_what_changed_and_all_add_up_to_the_database() {
    let mut seen = BTreeMap::new();
    for seed in 0..250 {
        let mut run = Run::new(seed);
        for _ in 0..120 {
            run.step();
        }
        run.drain();
        for (kind, n) in run.seen {
            *seen.entry(kind).or_default() += n;
        }
    }
    for kind in ["insert", "delete", "modify", "modify nothing", "new", "old", "old and new"] {
        let n: usize = seen.get(kind).copied().unwrap_or(0);
        assert!(n > 500, "only {n} row updates of the kind {kind} were checked: {seen:?}");
    }
    let passed = seen.get("passed over").copied().unwrap_or(0);
    assert!(passed > 150, "only {passed} rounds were nothing to anybody");
}

/// Bodies of every length are kept for those who are behind.
#[test]
fn who_is_led_where_others_went_gets_to_the_end() {
    let mut stepped = 0;
    for seed in 1000..1050 {
        let mut run = Run::new(seed);
        run.monitors = Monitors::new(seed).keeping_bodies_from(0);
        run.history = Some(vec![(Rc::clone(&run.state), text(run.world.txn_id))]);
        for _ in 0..80 {
            run.step();
        }
        run.drain();
        for client in run.clients.values() {
            assert!(client.is_right(&json!({}), &run.state));
        }
        stepped += run.seen.get("led to an older state").copied().unwrap_or(0);
    }
    assert!(stepped > 100, "only {stepped} updates led to an older state");
}

/// Whoever knows any state is told what leads from there to the rows as they are, on the loop and
/// from a snapshot alike.
#[test]
fn what_a_monitor_has_missed_leads_to_the_rows_as_they_are() {
    let (mut told, mut volatile) = (0, 0);
    for seed in 3000..3100 {
        let mut run = Run::new(seed);
        run.history = Some(vec![(Rc::clone(&run.state), text(run.world.txn_id))]);
        for _ in 0..60 {
            run.step();
            let Some(key) = run.any_client() else { continue };
            let client = &run.clients[&key];
            let missed = run.monitors.missed(key).expect("its monitor");
            if client.version == Version::V1 || !missed.can_be_told() {
                continue;
            }
            let since = run.world.random.below(run.rounds.len() as u64 + 1) as usize;
            let deltas = || run.rounds[since..].iter().flatten().map(|delta| Delta::clone(delta));
            let (mut here, mut there) = (Vec::new(), Vec::new());
            let rows = &run.world.store;
            missed.compose(deltas(), rows, u64::MAX, &mut here).expect("there is no bound");
            missed.compose_from(deltas(), &run.world.store.snapshot(), &mut there);
            assert_eq!(here, there);
            let got: Value = serde_json::from_slice(&here).expect("JSON");
            let history = run.history.as_ref().expect("it is kept");
            let expected = client.subscription.changes(&history[since].0, &run.state);
            assert_eq!(got, expected, "{}", client.subscription.requests);
            told += usize::from(got != json!({}));
            volatile += usize::from(missed.ids() == IdKind::Volatile && got != json!({}));
            let bound = missed.compose(deltas(), rows, 3, &mut Vec::new());
            assert!(got == json!({}) || bound == Err(TooLong));
        }
    }
    assert!(told > 1000 && volatile > 300, "only {told} were told, {volatile} of `_version`");
}

/// Flushes may cost little: groups are told in several steps, and what costs more than a step is
/// composed elsewhere while the database goes on.
#[test]
fn who_is_told_in_steps_or_from_elsewhere_gets_to_the_end() {
    let mut seen = BTreeMap::new();
    for seed in 2000..2100 {
        let mut run = Steps::new(seed);
        for _ in 0..100 {
            run.step();
        }
        run.drain();
        for (kind, n) in run.run.seen {
            *seen.entry(kind).or_default() += n;
        }
    }
    for (kind, least) in
        [("composed elsewhere", 1500), ("left for another step", 60), ("ended while away", 50)]
    {
        let n: usize = seen.get(kind).copied().unwrap_or(0);
        assert!(n > least, "only {n} were {kind}: {seen:?}");
    }
}

/// Clients that are told in steps: where each of them is, only what it is told says.
struct Steps {
    run: Run,
    out: Vec<Leaving>,
}

impl Steps {
    fn new(seed: u64) -> Self {
        let mut run = Run::new(seed);
        run.history = Some(vec![(Rc::clone(&run.state), text(run.world.txn_id))]);
        Self { run, out: Vec::new() }
    }

    fn step(&mut self) {
        match self.run.world.random.below(100) {
            0..=34 => self.run.commit(),
            35..=54 => self.flush_all(),
            55..=69 => self.flush_own(),
            70..=79 => self.come_back(),
            80..=87 => self.run.add(),
            88..=91 => self.run.add_an_equal_one(),
            92..=95 => self.change_condition(),
            _ => self.remove(),
        }
    }

    /// What a step may cost.
    fn most(&mut self) -> u64 {
        [0, 30, 50, 80, 120][self.run.world.random.below(5) as usize]
    }

    fn is_away(&self, key: MonitorKey) -> bool {
        self.out.iter().any(|leaving| leaving.keys.contains(&key))
    }

    fn flush_all(&mut self) {
        let most = self.most();
        let chance = self.run.world.random.below(80);
        let clients: Vec<MonitorKey> = self.run.clients.keys().copied().collect();
        let blocked: BTreeSet<MonitorKey> =
            clients.into_iter().filter(|_| self.run.world.random.percent(chance)).collect();
        let is_blocked = |key| blocked.contains(&key);
        let may_postpone = self.run.world.random.percent(80);
        let flushed =
            self.run.monitors.flush_all(&self.run.world.store, &is_blocked, most, may_postpone);
        assert!(may_postpone || !flushed.has_more);
        self.take(flushed, &blocked);
    }

    fn flush_own(&mut self) {
        let n = self.run.world.random.below(4);
        let keys: BTreeSet<MonitorKey> = (0..n).filter_map(|_| self.run.any_client()).collect();
        let keys = Vec::from_iter(keys);
        let most = self.most();
        let store = &self.run.world.store;
        let flushed = self.run.monitors.flush(&keys, store, &|_| false, most);
        assert!(!flushed.has_more, "what a reply waits for is not put off");
        self.take(flushed, &BTreeSet::new());
        for key in keys.into_iter().filter(|key| !self.is_away(*key)) {
            let client = &self.run.clients[&key];
            assert!(client.is_right(&json!({}), &self.run.state), "it has been told all");
        }
    }

    fn take(&mut self, flushed: Flushed, blocked: &BTreeSet<MonitorKey>) {
        for key in flushed.updates.iter().flat_map(|update| &update.to) {
            assert!(!blocked.contains(key) && !self.is_away(*key), "it is to be told nothing");
        }
        let keys = flushed.leaving.iter().flat_map(|leaving| &leaving.keys);
        assert!(keys.clone().all(|key| !blocked.contains(key) && !self.is_away(*key)));
        self.count("composed elsewhere", keys.count());
        self.count("left for another step", usize::from(flushed.has_more));
        self.out.extend(flushed.leaving);
        self.receive(flushed.updates);
    }

    fn count(&mut self, kind: &'static str, n: usize) {
        *self.run.seen.entry(kind).or_default() += n;
    }

    /// Some work is done.
    fn come_back(&mut self) {
        if self.out.is_empty() {
            return;
        }
        let at = self.run.world.random.below(self.out.len() as u64) as usize;
        let Leaving { id, work, .. } = self.out.remove(at);
        let mut updates = Vec::new();
        let schema = self.run.world.store.schema();
        self.run.monitors.take_late(id, work.compose(&|| {}), schema, &mut updates);
        self.receive(updates);
    }

    fn receive(&mut self, updates: Vec<Update>) {
        let told: BTreeSet<MonitorKey> =
            updates.iter().flat_map(|update| &update.to).copied().collect();
        self.run.receive(updates, |key| told.contains(&key));
        let state = &self.run.state;
        for client in self.run.clients.values_mut() {
            // It may have been looked at, and nothing was to be told.
            let is_there = client.seen.iter().any(|seen| Rc::ptr_eq(seen, state));
            if !is_there && client.is_right(&json!({}), state) {
                client.seen.push(Rc::clone(state));
            }
        }
    }

    fn change_condition(&mut self) {
        let Some(key) = self.run.any_client().filter(|key| !self.is_away(*key)) else { return };
        self.run.change_condition_of(key);
    }

    fn remove(&mut self) {
        let Some(key) = self.run.any_client() else { return };
        self.run.sweep();
        self.count("ended while away", usize::from(self.is_away(key)));
        self.run.clients.remove(&key);
        self.run.monitors.remove(key, self.run.world.store.schema());
        self.out.iter_mut().for_each(|leaving| leaving.keys.retain(|other| *other != key));
    }

    fn drain(&mut self) {
        loop {
            while !self.out.is_empty() {
                self.come_back();
            }
            let most = self.most();
            let store = &self.run.world.store;
            let flushed = self.run.monitors.flush_all(store, &|_| false, most, true);
            let is_done = flushed.leaving.is_empty() && !flushed.has_more;
            self.take(flushed, &BTreeSet::new());
            if is_done {
                break;
            }
        }
        let monitors = &self.run.monitors;
        assert!(!monitors.has_pending());
        assert_eq!((monitors.counts().change_sets, monitors.pending_bytes()), (0, 0));
        for client in self.run.clients.values() {
            assert!(client.is_right(&json!({}), &self.run.state));
        }
    }
}

impl Run {
    fn new(seed: u64) -> Self {
        let world = World::new(seed);
        let state = Rc::new(world.state());
        let monitors = Monitors::new(seed);
        let (clients, seen) = (BTreeMap::new(), BTreeMap::new());
        Self { world, monitors, clients, state, history: None, rounds: Vec::new(), seen }
    }

    fn step(&mut self) {
        match self.world.random.below(100) {
            0..=39 => self.commit(),
            40..=54 => self.flush_all(true),
            55..=74 => self.flush_some(),
            75..=84 => self.add(),
            85..=89 => self.add_an_equal_one(),
            90..=95 => self.change_condition(),
            _ => self.remove(),
        }
        let states = self.clients.values().flat_map(|client| &client.seen);
        let standing: BTreeSet<usize> = states.map(|seen| Rc::as_ptr(seen) as usize).collect();
        // Who comes when nothing that concerns it has changed stands where most do, others who come
        // then at the end; and one place is kept although nobody may stand there.
        let kept = if self.history.is_some() { self.monitors.counts().cached } else { 0 };
        assert!(self.monitors.counts().change_sets <= 2 * standing.len() + 1 + kept);
        assert_eq!(self.monitors.len(), self.clients.len());
        if !self.monitors.has_pending() {
            assert_eq!(self.monitors.pending_bytes(), 0);
            for client in self.clients.values() {
                assert!(client.is_right(&json!({}), &self.state), "nothing is pending");
            }
        }
    }

    fn commit(&mut self) {
        // What happened in one round, of which the monitors are told at its end.
        let n = 1 + self.world.random.below(3);
        let round: Vec<Committed> = (0..n).map(|_| self.world.transaction()).collect();
        let deltas = round.iter().map(|committed| &*committed.delta);
        let (store, last) = (&self.world.store, self.world.txn_id);
        if self.monitors.pass_over(deltas, store, Ids { recorded: last, volatile: last }) {
            *self.seen.entry("passed over").or_default() += usize::from(!self.monitors.is_empty());
        } else {
            for committed in &round {
                self.monitors.commit(committed, self.world.store.schema());
            }
        }
        self.state = Rc::new(self.world.state());
        if let Some(history) = &mut self.history {
            history.push((Rc::clone(&self.state), text(self.world.txn_id)));
            self.rounds.push(round.into_iter().map(|committed| committed.delta).collect());
        }
    }

    fn add(&mut self) {
        let version = [Version::V1, Version::V2, Version::V3][self.world.random.below(3) as usize];
        let is_v1 = version == Version::V1;
        let subscription = Subscription::random(&mut self.world.random, is_v1);
        self.add_client(version, subscription);
    }

    fn add_an_equal_one(&mut self) {
        if let Some(key) = self.any_client() {
            let client = &self.clients[&key];
            let (mut version, mut subscription) = (client.version, client.subscription.clone());
            if version != Version::V1 && self.world.random.percent(50) {
                version = Version::V3;
            }
            // Or nearly equal.
            if self.world.random.percent(50) {
                subscription.change_conditions(&mut self.world.random);
            }
            self.add_client(version, subscription);
        }
    }

    fn add_client(&mut self, version: Version, subscription: Subscription) {
        let name = ["a", "b"][self.world.random.below(2) as usize];
        let id = json!([name]);
        let requests = subscription.requests.to_string();
        let requests = validate_value(requests.as_bytes()).expect("JSON");
        let added = self.monitors.add(version, bytes(&id), requests, self.world.store.schema());
        let key = added.unwrap_or_else(|error| panic!("{error}: {}", subscription.requests));
        let rows = self
            .monitors
            .initial(key, Rows::of_store(&self.world.store), u64::MAX)
            .expect("no bound");
        let rows: Value = serde_json::from_slice(&rows).expect("JSON");
        assert_eq!(rows, subscription.initial(&self.state), "{}", subscription.requests);
        let mut replica = subscription.is_complete().then(|| {
            subscription.projection(&State::from_iter(
                self.state.keys().map(|table| (table.clone(), BTreeMap::new())),
            ))
        });
        if let Some(replica) = &mut replica {
            compose(replica, &subscription, &rows);
        }
        let seen = vec![Rc::clone(&self.state)];
        self.clients.insert(key, Client { version, id, subscription, seen, replica });
        self.check(key);
    }

    fn change_condition(&mut self) {
        let Some(key) = self.any_client() else { return };
        self.change_condition_of(key);
    }

    fn change_condition_of(&mut self, key: MonitorKey) {
        self.flush(&[key]);
        let client = self.clients.get_mut(&key).expect("a client");
        let before = client.subscription.clone();
        let requests = client.subscription.change_conditions(&mut self.world.random);
        let id = json!("renamed");
        let wanted = requests.to_string();
        let wanted = validate_value(wanted.as_bytes()).expect("JSON");
        let store = &self.world.store;
        let change = self.monitors.change_condition(key, bytes(&id), wanted, store.schema());
        let change = change.unwrap_or_else(|error| panic!("{error}: {requests}"));
        let update = change.and_then(|change| {
            let body = change.compose(Rows::of_store(store), u64::MAX).expect("no bound");
            assert_eq!(body, change.compose_from(&store.snapshot()), "{requests}");
            let body = Arc::new(body?);
            Some(Update { to: vec![key], head: Arc::clone(change.head()), body })
        });
        client.id = id;
        let expected = client.subscription.condition_change(&before, &self.state);
        let got = update.map_or(json!({}), |update| {
            assert_eq!(update.to, [key]);
            client.table_updates(&update, &text(self.world.txn_id))
        });
        assert_eq!(got, expected, "{requests}");
        if let Some(replica) = &mut client.replica {
            compose(replica, &client.subscription, &got);
        }
        client.seen = vec![Rc::clone(&self.state)];
        self.check(key);
    }

    /// Clauses of those that have ended are found until they are taken out.
    fn sweep(&mut self) {
        if self.world.random.below(3) == 0 {
            self.monitors.sweep();
        }
    }

    fn remove(&mut self) {
        self.sweep();
        if let Some(key) = self.any_client() {
            self.clients.remove(&key);
            self.monitors.remove(key, self.world.store.schema());
        }
    }

    fn flush_some(&mut self) {
        let n = self.world.random.below(4);
        let keys: BTreeSet<MonitorKey> = (0..n).filter_map(|_| self.any_client()).collect();
        self.flush(&Vec::from_iter(keys));
    }

    fn flush(&mut self, keys: &[MonitorKey]) {
        let flushed = self.monitors.flush(keys, &self.world.store, &|_| false, u64::MAX);
        self.receive(flushed.updates, |key| keys.contains(&key));
    }

    fn flush_all(&mut self, may_block: bool) {
        let clients: Vec<MonitorKey> = self.clients.keys().copied().collect();
        let chance = if may_block { self.world.random.below(80) } else { 0 };
        let blocked: BTreeSet<MonitorKey> =
            clients.into_iter().filter(|_| self.world.random.percent(chance)).collect();
        let is_blocked = |key| blocked.contains(&key);
        loop {
            let flushed = self.monitors.flush_all(&self.world.store, &is_blocked, u64::MAX, true);
            self.receive(flushed.updates, |key| !blocked.contains(&key));
            if !flushed.has_more {
                break;
            }
            assert!(self.history.is_some());
        }
        for key in &blocked {
            let client = self.clients.get_mut(key).expect("a client");
            if client.is_right(&json!({}), &self.state) {
                client.seen.push(Rc::clone(&self.state));
            }
        }
        // A second time there is nothing more to tell.
        let more = self.monitors.flush_all(&self.world.store, &is_blocked, u64::MAX, true);
        assert!(more.updates.is_empty());
    }

    /// Everybody reads, and is up to date.
    fn drain(&mut self) {
        self.flush_all(false);
        assert!(!self.monitors.has_pending());
        assert_eq!(self.monitors.counts().change_sets, 0);
        assert_eq!(self.monitors.pending_bytes(), 0);
    }

    /// Checks that monitors whose turn it `is` get what the twin says, once, and no others get
    /// anything.
    fn receive(&mut self, updates: Vec<Update>, is_turn: impl Fn(MonitorKey) -> bool) {
        let mut got: BTreeMap<MonitorKey, Value> = BTreeMap::new();
        let mut txn_ids: BTreeMap<MonitorKey, String> = BTreeMap::new();
        let last = text(self.world.txn_id);
        for update in &updates {
            assert!(!update.to.is_empty());
            for key in &update.to {
                assert!(is_turn(*key), "an update to somebody whose turn it is not");
                let client = &self.clients[key];
                let txn_id = match &self.history {
                    Some(_) => client.txn_id(update).unwrap_or_else(|| last.clone()),
                    None => last.clone(),
                };
                let told = client.table_updates(update, &txn_id);
                txn_ids.insert(*key, txn_id);
                assert!(got.insert(*key, told).is_none(), "two updates to one monitor");
            }
        }
        got.values().for_each(|updates| self.count(updates));
        let turn: Vec<MonitorKey> =
            self.clients.keys().copied().filter(|key| is_turn(*key)).collect();
        for key in turn {
            let client = self.clients.get_mut(&key).expect("a client");
            let told = got.remove(&key).unwrap_or(json!({}));
            if let Some(history) = &self.history {
                let txn_id = txn_ids.get(&key).filter(|_| client.version == Version::V3);
                let led = client.is_led(&told, history, txn_id);
                if told != json!({}) && !led.iter().any(|state| Rc::ptr_eq(state, &self.state)) {
                    *self.seen.entry("led to an older state").or_default() += 1;
                }
                if let Some(replica) = &mut client.replica {
                    compose(replica, &client.subscription, &told);
                }
                client.seen = led;
                continue;
            }
            if !client.is_right(&told, &self.state) {
                // Fails with a comparison.
                let expected = client.subscription.changes(&client.seen[0], &self.state);
                assert_eq!(told, expected, "{}", client.subscription.requests);
            }
            if let Some(replica) = &mut client.replica {
                compose(replica, &client.subscription, &told);
            }
            client.seen = vec![Rc::clone(&self.state)];
            self.check(key);
        }
    }

    fn count(&mut self, updates: &Value) {
        let tables = updates.as_object().into_iter().flat_map(|tables| tables.values());
        for update in tables.flat_map(|rows| rows.as_object()).flat_map(|rows| rows.values()) {
            let has = |kind: &str| update.get(kind).is_some();
            let kinds = ["insert", "delete", "modify", "new", "old"];
            let kind = match kinds.into_iter().find(|kind| has(kind)) {
                Some("modify") if update["modify"] == json!({}) => "modify nothing",
                Some("new") if has("old") => "old and new",
                Some(kind) => kind,
                None => panic!("{update}"),
            };
            *self.seen.entry(kind).or_default() += 1;
        }
    }

    /// A client that is up to date has what the database has.
    fn check(&self, key: MonitorKey) {
        let client = &self.clients[&key];
        if let Some(replica) = &client.replica {
            assert_eq!(*replica, client.subscription.projection(&self.state));
        }
    }

    fn any_client(&mut self) -> Option<MonitorKey> {
        let n = self.clients.len() as u64;
        (n > 0)
            .then(|| self.world.random.below(n) as usize)
            .and_then(|at| self.clients.keys().nth(at).copied())
    }
}

impl Client {
    /// Whether this is what it has not been told of yet.
    fn is_right(&self, told: &Value, now: &State) -> bool {
        self.seen.iter().any(|seen| *told == self.subscription.changes(seen, now))
    }

    /// The states that it may know after this.
    fn is_led(
        &self,
        told: &Value,
        history: &[(Rc<State>, String)],
        txn_id: Option<&String>,
    ) -> Vec<Rc<State>> {
        let from = |state| history.iter().position(|(other, _)| Rc::ptr_eq(state, other));
        let mut led: Vec<Rc<State>> = Vec::new();
        for (seen, at) in self.seen.iter().filter_map(|seen| Some((seen, from(seen)?))) {
            let that = |of: &String| txn_id.is_none_or(|txn_id| of == txn_id);
            let is_it = |now: &State| *told == self.subscription.changes(seen, now);
            let fits = history[at..].iter().filter(|(now, of)| that(of) && is_it(now));
            led.extend(fits.map(|(now, _)| Rc::clone(now)));
        }
        assert!(!led.is_empty(), "{told} leads nowhere: {}", self.subscription.requests);
        led.sort_by_key(|state| Rc::as_ptr(state) as usize);
        led.dedup_by(|a, b| Rc::ptr_eq(a, b));
        led
    }

    /// The transaction that a message of version 3 names.
    fn txn_id(&self, update: &Update) -> Option<String> {
        let message = [update.head.as_slice(), update.body.as_slice()].concat();
        let message: Value = serde_json::from_slice(&message).expect("JSON");
        let of_version_3 = (self.version == Version::V3).then(|| &message["params"][1]);
        of_version_3.map(|id| id.as_str().expect("a UUID").to_owned())
    }

    /// The table updates of a message to this client, the rest of which is checked.
    fn table_updates(&self, update: &Update, txn_id: &str) -> Value {
        let message = [update.head.as_slice(), update.body.as_slice()].concat();
        let message: Value = serde_json::from_slice(&message).expect("JSON");
        let (method, params) = match self.version {
            Version::V1 => ("update", json!([self.id])),
            Version::V2 => ("update2", json!([self.id])),
            Version::V3 => ("update3", json!([self.id, txn_id])),
        };
        assert_eq!(message["method"], method);
        assert_eq!(message["id"], Value::Null);
        let all = message["params"].as_array().expect("params");
        let (updates, before) = all.split_last().expect("updates");
        assert_eq!(json!(before), params);
        updates.clone()
    }
}

fn bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

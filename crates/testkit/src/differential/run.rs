//! One run: a generated schema, transactions under monitors, then the files changed over.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};

use crate::client::{Client, Message, parse};
use crate::differential::pair::{Answer, Finding, Pair};
use crate::differential::replayed::History;
use crate::differential::watch::{Replica, Scene, Watch};
use crate::dump::{Dump, table_names};
use crate::generate::{Generator, Schema};
use crate::normalise::{without_empty_modifications, without_ids};
use crate::process::{Program, Server};
use crate::reach::Reach;
use crate::rng::Rng;

/// Transactions sent before the first answer is read.
const BATCH: usize = 25;

/// Transactions under watched monitors between two looks at the whole database.
const BARRIER_BATCH: usize = 8;

/// Generated monitors beside the one of everything.
const WATCHES: usize = 5;

/// What the installed reference calls itself.
const OLD_REFERENCE: &str = "ovsdb-server (Open vSwitch) 3.1.0";

/// What a run of the oracle did.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Number of transactions that were compared.
    pub transactions: usize,
    /// What the transactions reached.
    pub reach: Reach,
    /// Known differences that were met, and how often.
    pub met: BTreeMap<String, u64>,
}

impl Report {
    /// Adds what another run did.
    pub fn merge(&mut self, other: &Self) {
        self.transactions += other.transactions;
        self.reach.merge(&other.reach);
        for (reason, count) in &other.met {
            *self.met.entry(reason.clone()).or_default() += count;
        }
    }
}

/// A difference with what it takes to see it again.
#[derive(Debug)]
pub struct Failure {
    /// The seed of the run.
    pub seed: u64,
    /// The schema that was drawn.
    pub schema: Schema,
    /// What was sent before, the last batch included.
    pub history: History,
    /// The difference that was found, in words.
    pub finding: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.finding)
    }
}

/// The state of a run.
struct Run {
    pair: Pair,
    generator: Generator,
    schema: Schema,
    report: Report,
    /// What is being exchanged.
    batch: Vec<Vec<Value>>,
    live: Dump,
}

/// Runs `count` transactions of the schema of `seed`.
///
/// # Errors
/// The first difference.
pub fn run(programs: &(Program, Program), seed: u64, count: usize) -> Result<Report, Box<Failure>> {
    let mut rng = Rng::new(seed);
    let schema = Schema::generate(&mut rng);
    let failed = |finding, history| {
        let (Finding::Difference(finding)
        | Finding::Trouble(finding)
        | Finding::ReferenceBroken(finding)) = finding;
        Box::new(Failure { seed, schema: schema.clone(), history, finding })
    };
    let pair = match Pair::start(programs, &schema) {
        Ok(pair) => pair,
        Err(finding) => return Err(failed(finding, History::default())),
    };
    let generator = Generator::new(schema.clone(), rng);
    let report = Report::default();
    let mut run = Run {
        pair,
        generator,
        schema: schema.clone(),
        report,
        batch: vec![],
        live: Dump::default(),
    };
    let outcome = run.all(count);
    let Run { mut pair, mut report, batch, .. } = run;
    let outcome = outcome.map_err(|finding| match pair.excuse(finding) {
        Finding::Trouble(text) => Finding::Trouble(format!("{text}\n{}", pair.condition())),
        difference => difference,
    });
    let mut history = pair.history.clone();
    history.since.extend(batch);
    if let Err(Finding::ReferenceBroken(_)) = outcome {
        report.met = pair.judge.met;
        report.met.insert("COMPAT.md: 3.1.0 loses count of weak references".into(), 1);
        return Ok(report);
    }
    match outcome.and_then(|()| finish(pair, programs, &schema)) {
        Ok(met) => {
            report.met = met;
            Ok(report)
        }
        Err(finding) => Err(failed(finding, history)),
    }
}

impl Run {
    fn all(&mut self, count: usize) -> Result<(), Finding> {
        let watched = count * 2 / 3;
        self.barrier(watched)?;
        self.free(count - watched)
    }

    fn look(&mut self) -> Result<(), Finding> {
        let dump = self.pair.dump()?;
        self.generator.observe(dump.clone());
        self.live = dump;
        Ok(())
    }

    /// Draws a batch and exchanges it.
    fn exchange(&mut self, size: usize) -> Result<Vec<Answer>, Finding> {
        self.batch = (0..size).map(|_| self.generator.transaction()).collect();
        let answers = self.pair.exchange(&self.batch)?;
        for (ops, answer) in self.batch.iter().zip(&answers) {
            self.report.reach.transaction(&self.schema, ops, &answer.a);
        }
        self.report.transactions += size;
        Ok(answers)
    }

    /// Every transaction is followed by a look at all monitors of both sides.
    fn barrier(&mut self, count: usize) -> Result<(), Finding> {
        let mut watchers = Watchers::new(&self.pair)?;
        watchers.watch(&mut self.pair, &self.schema, Watch::everything(&self.schema))?;
        for i in 0..count {
            if i % BARRIER_BATCH == 0 {
                self.look()?;
                self.disturb(&mut watchers, i)?;
            }
            let answer = self.exchange(1)?;
            let ops = self.batch.pop().unwrap_or_default();
            let heard = watchers.compare(&mut self.pair).map_err(|finding| match finding {
                Finding::Difference(text) => Finding::Difference(format!(
                    "transaction {}\nanswer {}\n{text}",
                    json!(ops),
                    answer[0].a
                )),
                Finding::Trouble(text) => Finding::Trouble(format!("after {}: {text}", json!(ops))),
                broken @ Finding::ReferenceBroken(_) => broken,
            })?;
            let results = answer[0].a.as_array().map_or(&[][..], Vec::as_slice);
            if results.len() == ops.len() && !results.iter().any(|one| one["error"].is_string()) {
                self.report.reach.commit(&self.schema, &ops, heard.as_ref());
            }
        }
        self.look()
    }

    /// Changes what is watched.
    fn disturb(&mut self, watchers: &mut Watchers, number: usize) -> Result<(), Finding> {
        let scene = Scene { schema: &self.schema, live: &self.live };
        let rng = &mut self.generator.rng;
        if watchers.watches.len() > WATCHES {
            let at = rng.between(1, WATCHES);
            if rng.chance(50) && watchers.watches[at].version > 1 {
                let params = watchers.watches[at].change(rng, &scene);
                if watchers.request(&mut self.pair, "monitor_cond_change", &params)? {
                    return Ok(());
                }
                // The reference may have changed some of the tables before it found the error.
            }
            let watch = watchers.watches.remove(at);
            watchers.request(&mut self.pair, "monitor_cancel", &json!([watch.id]))?;
        }
        let watch = Watch::generate(rng, &scene, &format!("w{number}"), false);
        watchers.watch(&mut self.pair, &self.schema, watch)
    }

    /// Transactions in batches, while monitors that nobody reads collect what they are told.
    fn free(&mut self, count: usize) -> Result<(), Finding> {
        let mut followers = vec![];
        for i in 0..WATCHES {
            let scene = Scene { schema: &self.schema, live: &self.live };
            let name = format!("free{i}");
            let watch = Watch::generate(&mut self.generator.rng, &scene, &name, true);
            let [a, b] = self.pair.connect()?;
            let translated = self.translated(&watch)?;
            for (watch, session, label) in
                [(watch, a, self.pair.a.label()), (translated, b, self.pair.b.label())]
            {
                followers.extend(Follower::start(&self.schema, watch, session, label)?);
            }
        }
        let mut left = count;
        while left > 0 {
            let size = left.min(BATCH);
            self.exchange(size)?;
            self.batch.clear();
            self.look()?;
            left -= size;
        }
        for follower in &mut followers {
            follower.check(&self.schema)?;
        }
        Ok(())
    }

    /// The watch in the UUIDs of server B.
    fn translated(&self, watch: &Watch) -> Result<Watch, Finding> {
        let mut watch = watch.clone();
        for table in watch.tables.values_mut() {
            if let Some(clauses) = &mut table.clauses {
                let text = self.pair.known.for_b(&json!(clauses).to_string());
                *clauses = parse(text.as_bytes())?.as_array().cloned().unwrap_or_default();
            }
        }
        Ok(watch)
    }
}

/// One session a side with the same monitors, drained after every transaction.
#[derive(Debug)]
pub struct Watchers {
    sessions: [Client; 2],
    watches: Vec<Watch>,
}

impl Watchers {
    /// Opens the sessions.
    ///
    /// # Errors
    /// When a server refuses.
    pub fn new(pair: &Pair) -> Result<Self, Finding> {
        Ok(Self { sessions: pair.connect()?, watches: vec![] })
    }

    /// Starts a monitor on both sides and compares the initial replies.
    ///
    /// # Errors
    /// The difference.
    pub fn watch(&mut self, pair: &mut Pair, schema: &Schema, watch: Watch) -> Result<(), Finding> {
        let (method, params) = watch.request(&schema.name);
        let reply = self.request_both(pair, method, &params)?;
        if reply["error"].is_null() {
            self.watches.push(watch);
        }
        Ok(())
    }

    /// Sends a request to both sides: whether both agree that it succeeds.
    fn request(&mut self, pair: &mut Pair, method: &str, params: &Value) -> Result<bool, Finding> {
        let reply = self.request_both(pair, method, params)?;
        let done = reply["error"].is_null();
        if done {
            self.compare(pair)?;
        } else {
            self.sessions.iter_mut().for_each(|one| drop(one.take_notifications()));
        }
        Ok(done)
    }

    fn request_both(
        &mut self,
        pair: &mut Pair,
        method: &str,
        params: &Value,
    ) -> Result<Value, Finding> {
        let text = params.to_string();
        pair.known.give_all(&text);
        let for_b = parse(pair.known.for_b(&text).as_bytes())?;
        let said = |trouble| Finding::Trouble(format!("{method} {params}: {trouble}"));
        let mut a = self.sessions[0].request(method, params).map_err(said)?;
        let mut b = self.sessions[1].request(method, &for_b).map_err(said)?;
        for reply in [&mut a, &mut b] {
            // The sessions need not have said equally much.
            reply["id"] = Value::Null;
            without_ids(reply);
        }
        let b = parse(pair.known.from_b(&b.to_string()).as_bytes())?;
        if let Err(difference) = pair.known.compare_updates(&a, &b) {
            if self.is_choice(method, params, &a, &b)? {
                pair.judge.count("COMPAT.md: which of several errors of one request is told");
            } else {
                return Err(Finding::Difference(format!(
                    "{method} {params}\nA answers   {a}\nB answers   {b}\ndifference  {difference}"
                )));
            }
        }
        Ok(a)
    }

    /// Whether B's error is A's where only one of the tables is asked for.
    fn is_choice(
        &mut self,
        method: &str,
        params: &Value,
        a: &Value,
        b: &Value,
    ) -> Result<bool, Finding> {
        let tables = params[2].as_object().filter(|_| a["error"].is_object());
        let Some(tables) = tables.filter(|_| b["error"].is_object()) else { return Ok(false) };
        for (table, request) in tables {
            let mut variant = params.clone();
            variant[2] = json!({table.as_str(): request});
            let change = method == "monitor_cond_change";
            if !change {
                variant[1] = json!("variant");
            }
            let reply = self.sessions[0].request(method, &variant)?;
            if !change && reply["error"].is_null() {
                self.sessions[0].request("monitor_cancel", &json!(["variant"]))?;
            }
            if reply["error"] == b["error"] {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Compares what the monitors of both sides said; returns what the one of everything said.
    ///
    /// # Errors
    /// The difference.
    pub fn compare(&mut self, pair: &mut Pair) -> Result<Option<Value>, Finding> {
        let mut heard = vec![];
        for session in &mut self.sessions {
            session.barrier()?;
            heard.push(by_monitor(session.take_notifications()));
        }
        let (b, a) = (heard.pop().unwrap_or_default(), heard.pop().unwrap_or_default());
        let mut everything = None;
        for id in a.keys().chain(b.keys()) {
            let (x, y) = (a.get(id), b.get(id));
            let text = |messages: Option<&Vec<Message>>| {
                let messages = messages.map_or(&[][..], Vec::as_slice);
                let mut messages: Vec<_> = messages.iter().map(|one| one.value.clone()).collect();
                messages.retain_mut(|one| without_empty_modifications(one) && without_ids(one));
                Value::Array(messages)
            };
            let (x, y) = (text(x), text(y));
            let y = parse(pair.known.from_b(&y.to_string()).as_bytes())?;
            pair.known.compare_updates(&x, &y).map_err(|difference| {
                let id = parse(id.as_bytes()).unwrap_or_default();
                let watch = self.watches.iter().find(|watch| watch.id == id);
                let (method, request) = watch.map_or_else(Default::default, |it| it.request("DB"));
                Finding::Difference(format!(
                    "{method} {request}\nA tells     {x}\nB tells     {y}\ndifference  {difference}"
                ))
            })?;
            if id == "\"everything\"" {
                everything = Some(x[0]["params"][1].clone());
            }
        }
        Ok(everything)
    }
}

fn by_monitor(messages: Vec<Message>) -> BTreeMap<String, Vec<Message>> {
    let mut monitors: BTreeMap<String, Vec<Message>> = BTreeMap::new();
    for message in messages {
        monitors.entry(message.value["params"][0].to_string()).or_default().push(message);
    }
    monitors
}

/// A session with one monitor, read at the end only.
struct Follower {
    session: Client,
    watch: Watch,
    replica: Replica,
    label: &'static str,
}

impl Follower {
    /// Starts a session with one monitor; `None` where the server refuses the monitor.
    fn start(
        schema: &Schema,
        watch: Watch,
        mut session: Client,
        label: &'static str,
    ) -> Result<Option<Self>, Finding> {
        let (method, params) = watch.request(&schema.name);
        let reply = session.request(method, &params)?;
        if !reply["error"].is_null() {
            return Ok(None);
        }
        let mut replica = Replica::default();
        replica
            .start(&watch, schema, &reply["result"])
            .map_err(|text| Finding::Difference(format!("initial {reply}: {text}")))?;
        Ok(Some(Self { session, watch, replica, label }))
    }

    fn check(&mut self, schema: &Schema) -> Result<(), Finding> {
        self.session.barrier()?;
        let label = self.label;
        let told = |what: String| {
            let (method, params) = self.watch.request(&schema.name);
            Finding::Difference(format!("{label}: replica of {method} {params}: {what}"))
        };
        for message in self.session.take_notifications() {
            self.replica
                .notified(&self.watch, schema, &message)
                .map_err(|what| told(format!("{what} in {}", message.value)))?;
        }
        let expected = self.watch.expected(&mut self.session, schema)?;
        self.replica.compare(&expected).map_err(told)
    }
}

/// Compacts both files, then lets each server read what the other wrote.
fn finish(
    mut pair: Pair,
    programs: &(Program, Program),
    schema: &Schema,
) -> Result<BTreeMap<String, u64>, Finding> {
    let last = pair.dump()?.persistent(schema);
    let compacted = schema.columns().is_multiple_of(2);
    if compacted {
        pair.a.admin("ovsdb-server/compact", &[])?;
        pair.b.admin("ovsdb-server/compact", &[])?;
        pair.dump()?;
    }
    let Pair { a, b, files, mut known, mut judge, scratch: _scratch, .. } = pair;
    a.stop()?;
    b.stop()?;
    let tables = table_names(schema);
    let (reference, weir) = (&programs.0, &programs.1);
    for (program, file, of_b) in [
        (weir, &files[0], false),
        (reference, &files[1], true),
        (reference, &files[0], false),
        (weir, &files[1], true),
    ] {
        let server = Server::start(program, std::slice::from_ref(file))?;
        let mut client = server.connect()?;
        let dump = Dump::read(&mut client, &schema.name, &tables)?.persistent(schema);
        let log = server.log();
        drop(client);
        server.stop()?;
        if schema.limited && !compacted && log.contains(OLD_REFERENCE) {
            judge.count("COMPAT.md: 3.1.0 does not read all differences back");
            continue;
        }
        let dump = if of_b { dump.renamed(&known)? } else { dump };
        last.compare(&dump, &mut known).map_err(|difference| {
            let writer = if of_b { weir.label } else { reference.label };
            let reader = program.label;
            let what = format!("{reader} reading the file of {writer} (compacted: {compacted})");
            Finding::Difference(format!("{what}: {difference}\nits log:\n{log}"))
        })?;
    }
    Ok(judge.met)
}

//! Two servers side by side, fed with the same transactions.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::client::{Client, Message, Trouble, parse};
use crate::differential::known::Judge;
use crate::differential::replayed::{History, ReplayedServer, is_choice};
use crate::dump::{Dump, select_all, table_names};
use crate::files;
use crate::generate::Schema;
use crate::generate::transaction::{HELD_LOCK, params_text, request_bytes};
use crate::normalise::Correspondence;
use crate::process::{Program, Scratch, Server};

/// What the installed reference, 3.1.0, says when it stops because it has lost count of weak
/// references.
const OLD_REFERENCE_DIED: &str = "assertion !ovsdb_row_find_weak_ref";

/// What a server is started with beside its database.
#[derive(Clone, Debug, Default)]
pub struct Extra {
    /// Further database files to serve.
    pub files: Vec<PathBuf>,
    /// Further options of the command line.
    pub options: Vec<String>,
}

/// Why two servers are not taken for equal.
#[derive(Debug)]
pub enum Finding {
    /// The servers answered differently: what was sent, what came, where it differs.
    Difference(String),
    /// A server could not be used at all.
    Trouble(String),
    /// The reference holds what it should not, which ends the comparison.
    ReferenceBroken(String),
}

impl From<Trouble> for Finding {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble.to_string())
    }
}

/// The two servers with one transacting session each.
#[derive(Debug)]
pub struct Pair {
    /// The running reference.
    pub a: Server,
    /// The running server under test.
    pub b: Server,
    /// The database files of the two servers.
    pub files: [PathBuf; 2],
    /// Which UUID of one server is which of the other.
    pub known: Correspondence,
    /// Differences that were expected, and how often.
    pub judge: Judge,
    /// How the current content came about.
    pub history: History,
    reference: Program,
    schema: Schema,
    sessions: [Client; 2],
    /// The directory of all files.
    pub scratch: Scratch,
}

/// Both servers' results of one transaction, in A's UUIDs.
#[derive(Debug)]
pub struct Answer {
    /// The result of the reference.
    pub a: Value,
    /// Whether the results are equal; false when a known difference was let pass.
    pub equal: bool,
}

impl Pair {
    /// Starts both on new files with `schema`, and takes the lock that transactions may assert.
    ///
    /// # Errors
    /// When either does not start.
    pub fn start(programs: &(Program, Program), schema: &Schema) -> Result<Self, Finding> {
        Self::start_apart(programs, schema, schema)
    }

    /// [`Self::start`] with another schema for B, which makes B wrong on purpose.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_apart(
        programs: &(Program, Program),
        schema: &Schema,
        schema_of_b: &Schema,
    ) -> Result<Self, Finding> {
        Self::start_with(programs, [schema, schema_of_b], |_| Ok(Default::default()))
    }

    /// [`Self::start_apart`], each with what `extra` makes for it in the scratch directory.
    ///
    /// # Errors
    /// As [`Self::start`], and what `extra` says.
    pub fn start_with(
        programs: &(Program, Program),
        schemas: [&Schema; 2],
        extra: impl FnOnce(&Scratch) -> Result<[Extra; 2], Trouble>,
    ) -> Result<Self, Finding> {
        let scratch = Scratch::new("pair");
        let files = [scratch.file("a.db"), scratch.file("b.db")];
        let extra = extra(&scratch)?;
        let start = |side: usize, program: &Program| -> Result<Server, Trouble> {
            files::create(&files[side], &schemas[side].json())?;
            let Extra { files: more, options } = &extra[side];
            let all = [&files[side..=side], more].concat();
            let options: Vec<&str> = options.iter().map(String::as_str).collect();
            Server::start_with(program, &all, &options)
        };
        let (a, b) = (start(0, &programs.0)?, start(1, &programs.1)?);
        let mut sessions = [a.connect()?, b.connect()?];
        for session in &mut sessions {
            session.request("lock", &json!([HELD_LOCK]))?;
        }
        let (known, judge) = (Correspondence::default(), Judge::default());
        let (history, reference) = (History::default(), programs.0.clone());
        let schema = schemas[0].clone();
        Ok(Self { a, b, files, known, judge, history, reference, schema, sessions, scratch })
    }

    /// How the servers are, for a report.
    pub fn condition(&mut self) -> String {
        self.reference_is_alive();
        let one = |server: &mut Server| {
            let alive = if server.is_alive() { "runs" } else { "is dead" };
            format!("{} {alive}; its log:\n{}", server.label(), server.log())
        };
        format!("{}\n{}", one(&mut self.a), one(&mut self.b))
    }

    /// False once the reference has stopped by itself.
    pub fn reference_is_alive(&mut self) -> bool {
        // A dying process closes its sockets before it can be reaped.
        std::thread::sleep(std::time::Duration::from_millis(200));
        self.a.is_alive()
    }

    /// What is left of a difference: none where it follows from what the reference holds and should
    /// not.
    pub fn excuse(&mut self, finding: Finding) -> Finding {
        if !matches!(finding, Finding::Difference(_)) {
            return finding;
        }
        let tables = table_names(&self.schema);
        let dump =
            self.a.connect().and_then(|mut one| Dump::read(&mut one, &self.schema.name, &tables));
        match dump.ok().and_then(|dump| dump.dangling(&self.schema)) {
            Some(dangling) => Finding::ReferenceBroken(dangling),
            None => finding,
        }
    }

    /// Opens one more session with each server.
    ///
    /// # Errors
    /// When either refuses.
    pub fn connect(&self) -> Result<[Client; 2], Finding> {
        Ok([self.a.connect()?, self.b.connect()?])
    }

    /// Sends a batch of transactions to both, all before the first answer is read, and compares.
    ///
    /// # Errors
    /// The first difference, or trouble with a session.
    pub fn exchange(&mut self, batch: &[Vec<Value>]) -> Result<Vec<Answer>, Finding> {
        let mut ids = vec![];
        let mut requests = [vec![], vec![]];
        for ops in batch {
            let params = params_text(&self.schema.name, ops);
            self.known.give_all(&params);
            let id = self.sessions[0].fresh_id();
            self.sessions[1].fresh_id();
            requests[0].extend(request_bytes("transact", &params, id));
            requests[1].extend(request_bytes("transact", &self.known.for_b(&params), id));
            ids.push(id);
        }
        for (session, bytes) in self.sessions.iter_mut().zip(&requests) {
            session.send_raw(bytes)?;
        }
        let mut replies = vec![];
        for id in ids {
            let a = self.reply(0, id, batch)?;
            let b = self.reply(1, id, batch)?;
            replies.push((a, b));
        }
        let mut answers = vec![];
        for (ops, (a, b)) in batch.iter().zip(replies) {
            answers.push(self.judge_replies(ops, &a, &b)?);
            // Played to a server without roles, it would change something.
            if !is_denied(&a.value["result"]) {
                self.history.since.push(ops.clone());
            }
        }
        Ok(answers)
    }

    /// [`Self::exchange`] through other sessions.
    ///
    /// # Errors
    /// As [`Self::exchange`].
    pub fn exchange_as(
        &mut self,
        sessions: &mut [Client; 2],
        batch: &[Vec<Value>],
    ) -> Result<Vec<Answer>, Finding> {
        std::mem::swap(&mut self.sessions, sessions);
        let answers = self.exchange(batch);
        std::mem::swap(&mut self.sessions, sessions);
        answers
    }

    fn reply(&mut self, side: usize, id: u64, batch: &[Vec<Value>]) -> Result<Message, Finding> {
        self.sessions[side].reply(id).map_err(|trouble| {
            let text: Vec<String> = batch.iter().map(|ops| json!(ops).to_string()).collect();
            let condition = self.condition();
            let side = ["A", "B"][side];
            let text =
                format!("{side}: {trouble}, after one of:\n{}\n{condition}", text.join("\n"));
            match self.a.log().contains(OLD_REFERENCE_DIED) {
                true => Finding::ReferenceBroken(text),
                false => Finding::Difference(text),
            }
        })
    }

    fn judge_replies(
        &mut self,
        ops: &[Value],
        a: &Message,
        b: &Message,
    ) -> Result<Answer, Finding> {
        self.learn_inserted(ops, &a.value, &b.value);
        let text = String::from_utf8_lossy(&b.raw).into_owned();
        let translated = parse(self.known.from_b(&text).as_bytes())?;
        let judged = self.judge_results(ops, &a.value["result"], &translated["result"]);
        let (equal, mut difference) = match judged {
            Ok(equal) => (equal, None),
            Err(difference) => (false, Some(difference)),
        };
        let utf8 = std::str::from_utf8(&a.raw).is_ok();
        if difference.is_none() && !utf8 {
            self.judge.count("COMPAT.md: bytes that are not UTF-8 in an error");
        } else if difference.is_none() && equal && a.raw.len() != b.raw.len() {
            difference = Some(format!("{} bytes against {}", a.raw.len(), b.raw.len()));
        }
        match difference {
            None => Ok(Answer { a: a.value["result"].clone(), equal }),
            Some(difference) => {
                if let Some(dangling) = self.was_dangling(ops) {
                    return Err(Finding::ReferenceBroken(dangling));
                }
                Err(Finding::Difference(format!(
                    "transaction {}\nA answers   {}\nB answers   {}\ndifference  {difference}",
                    json!(ops),
                    String::from_utf8_lossy(&a.raw),
                    self.known.from_b(&text)
                )))
            }
        }
    }

    /// Learns that rows inserted without a UUID got one that is now known by both names.
    fn learn_inserted(&mut self, ops: &[Value], a: &Value, b: &Value) {
        for (i, op) in ops.iter().enumerate() {
            if op["op"] == "insert" {
                let uuids = (&a["result"][i]["uuid"][1], &b["result"][i]["uuid"][1]);
                if let (Value::String(a), Value::String(b)) = uuids {
                    self.known.learn(a, b);
                }
            }
        }
    }

    /// Whether the results are equal; false when they differ as is known.
    fn judge_results(&mut self, ops: &[Value], a: &Value, b: &Value) -> Result<bool, String> {
        let (Some(x), Some(y)) = (a.as_array(), b.as_array()) else {
            return self.known.compare(a, b, true).map(|()| true);
        };
        for i in 0..x.len().max(y.len()) {
            let (x, y) = (x.get(i).unwrap_or(&Value::Null), y.get(i).unwrap_or(&Value::Null));
            let op = ops.get(i).unwrap_or(&Value::Null);
            let sorted = op["sort"].is_array();
            let Err(difference) = self.known.compare(x, y, sorted) else { continue };
            if self.judge.exempt(op, x, y) {
                return Ok(false);
            }
            if x["error"].is_string() && y["error"].is_string() && self.is_choice(ops, i, y) {
                self.judge.choice();
                return Ok(false);
            }
            return Err(format!("result {i}{difference}"));
        }
        match x.len() == y.len() {
            true => Ok(true),
            false => Err(format!("{} results against {}", x.len(), y.len())),
        }
    }

    /// Whether a reference server that saw the same held a dangling reference at this point, or
    /// holds one after `ops`: the rest of the batch may have taken it away meanwhile.
    fn was_dangling(&self, ops: &[Value]) -> Option<String> {
        let mut server = ReplayedServer::open(&self.reference, &self.schema, &self.history).ok()?;
        let tables = table_names(&self.schema);
        let dangling = |server: &mut ReplayedServer| {
            let dump = Dump::read(&mut server.session, &self.schema.name, &tables).ok()?;
            dump.dangling(&self.schema)
        };
        dangling(&mut server).or_else(|| {
            server.transact(ops).ok()?;
            dangling(&mut server)
        })
    }

    fn is_choice(&self, ops: &[Value], at: usize, told: &Value) -> bool {
        let replayed = ReplayedServer::open(&self.reference, &self.schema, &self.history);
        replayed.and_then(|mut server| is_choice(&mut server, ops, at, told)).unwrap_or(false)
    }

    /// Reads both databases, compares them, and returns what A holds.
    ///
    /// # Errors
    /// The first row that differs.
    pub fn dump(&mut self) -> Result<Dump, Finding> {
        let tables = table_names(&self.schema);
        let selects = select_all(&tables);
        let a = self.sessions[0].transact(&self.schema.name, &selects)?;
        let b = self.sessions[1].transact(&self.schema.name, &selects)?;
        let b = parse(self.known.from_b(&b.to_string()).as_bytes())?;
        let a = Dump::from_result(&tables, &a)?;
        let b = Dump::from_result(&tables, &b)?;
        if let Some(dangling) = a.dangling(&self.schema) {
            return Err(Finding::ReferenceBroken(dangling));
        }
        a.compare(&b, &mut self.known).map_err(|difference| {
            Finding::Difference(format!("the databases differ: {difference}"))
        })?;
        self.history = History { before: a.clone(), since: vec![] };
        Ok(a)
    }
}

/// Whether a role forbids an operation.
pub fn is_denied(results: &Value) -> bool {
    let results = results.as_array().map_or(&[][..], Vec::as_slice);
    results.iter().any(|one| one["error"] == "permission error")
}

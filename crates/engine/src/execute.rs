//! One `transact` request: its operations one after another, then the commit.
//!
//! Operations are parsed when their turn comes, against the rows as the ones before left them
//! (RFC 7047 §4.1.3, §5.2). The result array is written as they run. The first failure ends the
//! transaction without a trace; so does a `wait` whose time has not come, which is the only outcome
//! without a reply.

use std::fmt;
use std::sync::Arc;

use weir_data::parser::{ID, Parser};
use weir_data::{Delta, Error, Schema, Snapshot, UuidSource};
use weir_json::Text;

use crate::commit;
use crate::database::Database;
use crate::late::{LateReply, LateRows};
use crate::meter::{self, Watcher};
use crate::ops::{self, Op, Run, Stop, Unsatisfied};
use crate::planner::{Search, Work};
use crate::rbac::Client;
use crate::reads::Reads;
use crate::transaction::Transaction;
use crate::view;

/// What one request brings to rows may take so many bytes of text, unless the request itself is as long: each
/// row has its own in the record and in updates, however short the request is.
const CHANGE_BYTES_MAX: usize = 1 << 30;
/// How often a longer request may bring what it has.
const CHANGE_SHARE: usize = 4;

/// What executing a request needs besides the database.
pub struct Env<'e> {
    /// Where new rows and versions get their UUIDs.
    pub uuids: &'e mut UuidSource,
    /// Why operations that write are refused, if they are.
    pub read_only: Option<ReadOnly>,
    /// Who asks, for role-based access control.
    pub client: Client<'e>,
    /// Whether the session that asks owns the lock of this name.
    pub has_lock: &'e dyn Fn(&str) -> bool,
    /// Milliseconds since the request first ran; 0 the first time.
    pub elapsed_ms: u64,
    /// Whether somebody would run the request again: otherwise a `wait` that is not satisfied fails
    /// at once.
    pub may_wait: bool,
    /// The most that the request may cost, in units of about 50 ns; `u64::MAX` for any amount.
    pub budget: u64,
    /// Who says whether the budget counts, and whether the request is still wanted; taken by the
    /// request that runs. Without a watcher the budget counts.
    pub watcher: Option<Watcher>,
    /// Whether the engine learns from what the request looks for which keys it had better have: not
    /// from one that may be stopped at any moment, or a replay would learn something else.
    pub teaches: bool,
}

impl<'e> Env<'e> {
    /// What a request needs that nobody in particular asks for, for the first time, at any cost: no
    /// role, no lock, no restriction.
    pub fn new(uuids: &'e mut UuidSource) -> Self {
        Self {
            uuids,
            read_only: None,
            client: Client::default(),
            has_lock: &|_| false,
            elapsed_ms: 0,
            may_wait: true,
            budget: u64::MAX,
            watcher: None,
            teaches: true,
        }
    }
}

/// Why nothing may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOnly {
    /// The server, or the remote of this session, is read-only.
    Server,
    /// The database is one of the server's own, like `_Server`.
    ReservedDatabase,
}

/// How a request ended.
#[derive(Debug)]
pub enum Outcome {
    /// The request was answered.
    Done(Done),
    /// The request has changed nothing and is to be run again, all of it, when the database has
    /// changed or when its age reaches `timeout_ms` (milliseconds; `None` for never).
    Wait {
        /// The age at which the `wait` fails.
        timeout_ms: Option<u64>,
        /// What of the database must have changed for anything else to come of it before.
        reads: Reads,
        /// What the request has cost, see [`Done::cost`].
        cost: u64,
    },
    /// The request has changed nothing, because it costs more than its budget: to be run again, all
    /// of it, where it holds up nobody.
    TooLong {
        /// What the request has cost all the same, see [`Done::cost`].
        cost: u64,
    },
}

impl Outcome {
    /// What the request has cost, see [`Done::cost`].
    pub fn cost(&self) -> u64 {
        match self {
            Self::Done(done) => done.cost,
            Self::Wait { cost, .. } | Self::TooLong { cost } => *cost,
        }
    }
}

/// Why a request was not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// See [`Outcome::Wait`].
    Wait {
        /// The age at which the `wait` fails.
        timeout_ms: Option<u64>,
        /// What that depends on.
        reads: Reads,
    },
    /// See [`Outcome::TooLong`].
    TooLong,
}

impl Unanswered {
    /// What has become of a request that has cost so much.
    fn outcome(self, cost: u64) -> Outcome {
        match self {
            Self::Wait { timeout_ms, reads } => Outcome::Wait { timeout_ms, reads, cost },
            Self::TooLong => Outcome::TooLong { cost },
        }
    }
}

/// What became of a request that was answered.
#[derive(Debug)]
pub struct Done {
    /// The JSON array of results: one an operation, and one more if the commit failed.
    pub reply: Vec<u8>,
    /// In place of `reply`, which is then empty, where a request that only reads has long results.
    pub late: Option<LateReply>,
    /// What was committed and applied, if anything was changed.
    pub delta: Option<Delta>,
    /// Whether the reply must not leave before the change is on disk (`commit` with `durable`).
    pub durable: bool,
    /// The `comment` operations, joined by newlines, of a transaction that succeeded.
    pub comment: Option<String>,
    /// How the operations found their rows.
    pub work: Work,
    /// The search of an operation that looked at most rows.
    pub slowest: Option<Search>,
    /// What the whole request cost, in units of about 50 ns: an estimate, and the same in every
    /// run.
    pub cost: u64,
}

/// Whether none of the operations can change anything, whatever becomes of them.
pub fn is_read_only(operations: &[Text<'_>]) -> bool {
    operations.iter().all(|operation| {
        let mut members = operation.members().into_iter().flatten();
        members.all(|(key, value)| {
            let kind =
                if *key == *b"op" { value.str().as_deref().and_then(ops::find) } else { None };
            kind.is_none_or(|kind| !kind.writes)
        })
    })
}

/// Runs a request: `operations` are the parameters after the database's name.
pub fn execute(db: &mut Database, operations: &[Text<'_>], env: &mut Env<'_>) -> Outcome {
    run_all(db, operations, env, None)
}

fn run_all(
    db: &mut Database,
    operations: &[Text<'_>],
    env: &mut Env<'_>,
    late: Option<Vec<LateRows>>,
) -> Outcome {
    let schema = Arc::clone(db.schema());
    let (read_only, has_role) = (env.read_only, !env.client.role.is_empty());
    let (budget, teaches) = (env.budget, env.teaches);
    let mut run = Run::new(db, env);
    run.late = late;
    let ended = run_operations(&mut run, &schema, operations, (read_only, has_role));
    if teaches {
        run.txn.note_keys(std::mem::take(&mut run.planner.notes));
    }
    let failed = match ended {
        Ok(failed) => failed,
        Err(unanswered) => return unanswered.outcome(run.txn.abort()),
    };
    let (txn, late, results) = Results::of(run, failed, operations);
    let mut outcome = results.conclude(txn, env.uuids, budget);
    if let (Outcome::Done(done), Some(late)) = (&mut outcome, late.filter(|late| !late.is_empty()))
    {
        done.late = Some(LateReply::new(schema, std::mem::take(&mut done.reply), late));
    }
    outcome
}

/// Runs the operations one after another; whether one has failed, unless the request is to be run
/// again.
pub(crate) fn run_operations(
    run: &mut Run<'_, '_>,
    schema: &Schema,
    operations: &[Text<'_>],
    (read_only, has_role): (Option<ReadOnly>, bool),
) -> Result<bool, Unanswered> {
    run.out.push(b'[');
    let mut failed = false;
    for (at, text) in operations.iter().enumerate() {
        if at > 0 {
            run.out.push(b',');
        }
        if failed {
            run.out.extend_from_slice(b"null");
            continue;
        }
        let start = run.out.len();
        run.planner.operation = at;
        let number = OperationNumber { number: at + 1, total: operations.len() };
        match step(run, schema, *text, &number, read_only) {
            Ok(()) => run.end_step(start),
            Err(Stop::Wait(unsatisfied)) => {
                let Unsatisfied { timeout_ms, read } = *unsatisfied;
                let reads = Reads::new(schema, &operations[..at], read, has_role);
                return Err(Unanswered::Wait { timeout_ms, reads });
            }
            Err(Stop::TooLong) => return Err(Unanswered::TooLong),
            Err(Stop::Failed(error)) => {
                run.out.truncate(start);
                run.late.iter_mut().for_each(|late| late.retain(|rows| rows.at < start));
                error.write(&mut run.out);
                failed = true;
            }
        }
    }
    Ok(failed)
}

/// Runs one operation of a request again, behind what the others before it have come to. False if
/// anything comes of it but a result.
pub(crate) fn run_again(
    run: &mut Run<'_, '_>,
    schema: &Schema,
    operations: &[Text<'_>],
    at: usize,
    read_only: Option<ReadOnly>,
) -> bool {
    let number = OperationNumber { number: at + 1, total: operations.len() };
    step(run, schema, operations[at], &number, read_only).is_ok()
}

/// Whether an operation inserts a row.
pub(crate) fn is_insert(operation: Text<'_>) -> bool {
    let mut members = operation.members().into_iter().flatten();
    members.any(|(key, op)| *key == *b"op" && op.str().as_deref() == Some("insert"))
}

/// What the operations of a request have come to, before its commit.
#[derive(Clone, Debug)]
pub(crate) struct Results {
    /// The reply, as far as it is written.
    reply: Vec<u8>,
    /// Bytes of the operations.
    text: usize,
    failed: bool,
    durable: bool,
    comment: Option<String>,
    work: Work,
    slowest: Option<Search>,
}

impl Results {
    /// Takes the results of operations that have run, and what they have changed.
    pub(crate) fn of<'db>(
        run: Run<'db, '_>,
        failed: bool,
        operations: &[Text<'_>],
    ) -> (Transaction<'db>, Option<Vec<LateRows>>, Self) {
        let Run { txn, out: reply, late, planner, durable, comment, .. } = run;
        let (work, slowest) = (planner.work, planner.slowest);
        let text = operations.iter().map(|operation| operation.as_bytes().len()).sum();
        (txn, late, Self { reply, text, failed, durable, comment, work, slowest })
    }

    /// Whether an operation has failed, and nothing is to remain of the others.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    /// The reply, as far as it is written.
    pub(crate) fn reply(&self) -> &[u8] {
        &self.reply
    }

    /// As if this had been written.
    pub(crate) fn with_reply(&self, reply: Vec<u8>) -> Self {
        Self { reply, comment: self.comment.clone(), ..*self }
    }

    /// Commits the transaction, unless an operation has failed.
    pub(crate) fn conclude(
        self,
        txn: Transaction<'_>,
        uuids: &mut UuidSource,
        budget: u64,
    ) -> Outcome {
        let Self { mut reply, text, failed, durable, comment, work, slowest } = self;
        let cost = txn.meter.spent();
        let delta = if failed {
            txn.abort();
            None
        } else {
            match check_size(txn, text).and_then(|txn| commit::within_budget(txn, uuids)) {
                Ok(Some(delta)) => Some(delta),
                // The commit has spent what was left.
                Ok(None) => return Outcome::TooLong { cost: budget },
                Err(error) => {
                    // No operation is without text.
                    if text > 0 {
                        reply.push(b',');
                    }
                    error.write(&mut reply);
                    None
                }
            }
        };
        reply.push(b']');
        let (durable, comment) = if delta.is_some() { (durable, comment) } else { (false, None) };
        let delta = delta.filter(|delta| !delta.is_empty());
        Outcome::Done(Done { reply, late: None, delta, durable, comment, work, slowest, cost })
    }
}

/// A transaction that brings no more to rows than it may, being asked for by so many bytes.
fn check_size(txn: Transaction<'_>, text: usize) -> Result<Transaction<'_>, Error> {
    let most = CHANGE_BYTES_MAX.max(text.saturating_mul(CHANGE_SHARE));
    if !txn.has_more_than(most, text) {
        return Ok(txn);
    }
    txn.abort();
    Err(Error::new("resources exhausted", format!("a change of more than {most} bytes")))
}

/// Whether none of the operations can change anything or wait, whatever becomes of them.
pub fn only_reads_once(operations: &[Text<'_>]) -> bool {
    const ONCE: [&str; 4] = ["select", "comment", "assert", "abort"];
    operations.iter().all(|operation| {
        let mut members = operation.members().into_iter().flatten();
        let is_once = |op: &str| ONCE.contains(&op);
        members.all(|(key, op)| *key != *b"op" || op.str().as_deref().is_some_and(is_once))
    })
}

/// Whether what the operations come to depends on `_version`: what writes finds its rows by it, or a `wait` is
/// about it. Each server has versions of its own.
pub fn judges_by_version(operations: &[Text<'_>]) -> bool {
    const VERSION: &str = "_version";
    let is_version = |text: Text<'_>| text.str().as_deref() == Some(VERSION);
    let names = |texts: Option<Text<'_>>, of: &dyn Fn(Text<'_>) -> bool| {
        texts.and_then(Text::elements).is_some_and(|mut texts| texts.any(of))
    };
    let is_by_version = |clause: Text<'_>| {
        clause.elements().and_then(|mut parts| parts.next()).is_some_and(is_version)
    };
    operations.iter().filter_map(|operation| operation.object()).any(|operation| {
        let op = operation.get("op").and_then(Text::str);
        op.as_deref() != Some("select")
            && (names(operation.get("where"), &is_by_version)
                || op.as_deref() == Some("wait") && names(operation.get("columns"), &is_version))
    })
}

/// Whether an operation may wait for what is not so yet: a `wait` with a timeout other than 0.
pub fn may_wait(operations: &[Text<'_>]) -> bool {
    operations.iter().any(|operation| {
        let (mut is_wait, mut is_patient) = (false, true);
        for (key, value) in operation.members().into_iter().flatten() {
            match &*key {
                b"op" => is_wait |= value.str().as_deref() == Some("wait"),
                b"timeout" => is_patient = value.integer() != Some(0),
                _ => {}
            }
        }
        is_wait && is_patient
    })
}

/// Runs a request of which [`is_read_only`] is true, or that may write nothing, on rows as they
/// were at one moment, while the database itself goes on. `seed` is any: no answer depends on it.
pub fn read(snapshot: &Snapshot, operations: &[Text<'_>], env: &mut Env<'_>, seed: u64) -> Outcome {
    let mut view = view::of(snapshot, operations, seed);
    run_all(&mut view, operations, env, Some(Vec::new()))
}

/// Runs one operation and writes its result.
pub(crate) fn step(
    run: &mut Run<'_, '_>,
    schema: &Schema,
    text: Text<'_>,
    number: &OperationNumber,
    read_only: Option<ReadOnly>,
) -> Result<(), Stop> {
    run.txn.meter.spend(meter::OPERATION);
    run.txn.meter.parsed(text.as_bytes().len());
    run.txn.meter.check()?;
    let mut op = Op { parser: Parser::new(text, number), text, schema };
    let name = op.parser.member("op", ID).and_then(Text::str);
    let kind = name.as_deref().and_then(ops::find);
    let result = match (kind, name) {
        (Some(kind), _) => (kind.run)(run, &mut op),
        (None, Some(name)) => {
            op.parser.complain(format_args!("No operation \"{name}\""));
            Ok(())
        }
        (None, None) => Ok(()),
    };
    if let Err(Stop::TooLong) = result {
        return result;
    }
    // A complaint about the operation's text overrides what its execution led to.
    op.parser.finish()?;
    result?;
    match (read_only, kind) {
        (Some(reason), Some(kind)) if kind.writes => Err(refusal(reason, kind.name, schema).into()),
        _ => Ok(()),
    }
}

/// Why an operation that could have been done is not.
fn refusal(reason: ReadOnly, operation: &str, schema: &Schema) -> Error {
    let details = match reason {
        ReadOnly::Server => {
            format!("{operation} operation not allowed when database server is in read only mode")
        }
        ReadOnly::ReservedDatabase => {
            let name = &schema.name;
            format!("{operation} operation not allowed on table in reserved database {name}")
        }
    };
    Error::new("not allowed", details)
}

/// An operation's number in its request, as complaints name it.
pub(crate) struct OperationNumber {
    pub(crate) number: usize,
    pub(crate) total: usize,
}

impl fmt::Display for OperationNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ovsdb operation {} of {}", self.number, self.total)
    }
}

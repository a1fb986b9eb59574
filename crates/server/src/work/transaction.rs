//! Long transactions: on the tables themselves, or on a snapshot; whole, or up to their commit.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use weir_data::{Error, Snapshot, UuidSource};
use weir_engine::{
    Attempt, Database, Env, KeyName, Missed, Outcome, ReadOnly, Reads, Unanswered, Watcher,
};
use weir_json::{Text, TextBuf};
use weir_log::standalone::{self, Style};

use crate::origin::Identity;
use crate::text_limit::EntryLimit;
use crate::work::{EXAMINE_BYTES_MIN, Made, MadeRecord, entry_text, record_of};

/// A request, and all that it needs besides tables.
pub(crate) struct Request {
    pub(crate) message: Arc<TextBuf>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) read_only: Option<ReadOnly>,
    /// The locks that its session owned when it came.
    pub(crate) locks: Vec<String>,
    pub(crate) elapsed_ms: u64,
    pub(crate) seed: [u64; 4],
}

/// [`Work::Write`](crate::work::Work::Write)
pub struct Write {
    pub(crate) request: Request,
    pub(crate) database: Box<Database>,
    /// Of the log record.
    pub(crate) style: Style,
    /// Wall clock for the log record.
    pub(crate) date_ms: i64,
    /// The file refuses records, with this strerror(3) text.
    pub(crate) refused: Option<String>,
    /// What changed becomes an entry of a cluster's log, which may be so long.
    pub(crate) entry_limit: Option<EntryLimit>,
    /// What the transaction may cost if others wait, in units of about 50 ns.
    pub(crate) budget: u64,
    /// The operations have run on a snapshot, and this has changed since; operations that it makes a
    /// difference to may cost so much more.
    pub(crate) attempt: Option<(Box<Attempt>, Missed, u64)>,
    /// The message's text is needed afterwards, too.
    pub(crate) keeps_text: bool,
}

/// [`Work::Read`](crate::work::Work::Read)
pub struct Read {
    pub(crate) request: Request,
    pub(crate) snapshot: Snapshot,
    /// The request is only explained; the keys that the database has, as far as that is known.
    pub(crate) explained: Option<Vec<KeyName>>,
}

/// [`Work::Try`](crate::work::Work::Try)
pub struct Try {
    pub(crate) request: Request,
    pub(crate) snapshot: Snapshot,
}

/// [`Work::Confirm`](crate::work::Work::Confirm)
pub struct Confirm {
    pub(crate) attempt: Box<Attempt>,
    /// What has changed since the attempt began, or since it was confirmed last.
    pub(crate) missed: Missed,
    /// What the operations may cost that this makes a difference to.
    pub(crate) again_max: u64,
}

/// The result of a [`Work::Try`](crate::work::Work::Try) or a
/// [`Work::Confirm`](crate::work::Work::Confirm).
#[derive(Debug)]
pub struct Tried(pub(crate) Result<Box<Attempt>, Failed>);

/// Why an attempt has come to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// Nobody waits for it any more.
    Stopped,
    /// A `wait` is not satisfied on the snapshot.
    Waits {
        /// The age at which the `wait` fails.
        timeout_ms: Option<u64>,
        /// What that depends on.
        reads: Reads,
    },
    /// What has changed since makes a difference to it.
    Overtaken,
}

/// The result of a [`Work::Write`](crate::work::Work::Write).
pub struct Written {
    pub(crate) database: Box<Database>,
    pub(crate) outcome: Outcome,
    /// What is kept of what changed, if that is for the file.
    pub(crate) made: Option<Made>,
    /// Of the request; an empty one if it was big and has changed something: nobody runs it again.
    pub(crate) message: Arc<TextBuf>,
    /// The message all the same, where nobody was asked whether the transaction may go on.
    uncut: Option<Arc<TextBuf>>,
}

impl Request {
    fn run<T>(
        &self,
        budget: u64,
        watcher: Option<&Watcher>,
        run: impl FnOnce(&[Text<'_>], &mut Env<'_>) -> T,
    ) -> T {
        let operations = operations(self.message.text());
        let mut uuids = UuidSource::new(self.seed);
        let mut env = Env {
            read_only: self.read_only,
            client: self.identity.client(),
            has_lock: &|lock| self.locks.iter().any(|owned| owned == lock),
            elapsed_ms: self.elapsed_ms,
            budget: if watcher.is_some() { budget } else { u64::MAX },
            watcher: watcher.cloned(),
            teaches: false,
            ..Env::new(&mut uuids)
        };
        run(&operations, &mut env)
    }
}

impl Write {
    /// The tables as they are, for nobody waits for the transaction any more.
    pub(crate) fn stopped(self) -> Written {
        let Self { request: Request { message, .. }, database, .. } = self;
        let outcome = Outcome::TooLong { cost: 0 };
        Written { database, outcome, made: None, message, uncut: None }
    }

    /// Runs the transaction on the tables.
    pub(crate) fn run(self, watcher: Option<&Watcher>) -> Written {
        let Self {
            mut request,
            mut database,
            style,
            date_ms,
            refused,
            entry_limit,
            budget,
            attempt,
            keeps_text,
        } = self;
        let attempt = attempt.and_then(|(mut attempt, missed, again_max)| {
            compare(&mut attempt, &missed, again_max, watcher).then_some(attempt)
        });
        let committed = attempt.as_ref().and_then(|attempt| {
            request.run(budget, watcher, |operations, env| match attempt.holds() {
                true => {
                    let watcher = env.watcher.take();
                    Some(attempt.commit(&mut database, env.uuids, env.budget, watcher))
                }
                false => attempt.replay(&mut database, operations, env),
            })
        });
        drop(attempt);
        let mut outcome = committed.unwrap_or_else(|| {
            request.run(budget, watcher, |operations, env| {
                weir_engine::execute(&mut database, operations, env)
            })
        });
        let (mut made, mut uncut) = (None, None);
        if let Outcome::Done(done) = &mut outcome
            && let Some(delta) = &done.delta
        {
            let (store, comment) = (database.store(), done.comment.as_deref());
            let (length, mut bytes) = (request.message.len(), Vec::new());
            if length >= EXAMINE_BYTES_MIN && !keeps_text {
                // It is not held twice: a record is about as long.
                let message = std::mem::take(&mut request.message);
                uncut = watcher.is_none().then_some(message);
                bytes.reserve_exact(length);
            }
            let kept = match entry_limit {
                Some(limit) => entry_text(bytes, delta, store, date_ms, comment, limit)
                    .map(|text| text.map(|text| Made::Entry { text, date_ms })),
                None => {
                    let out = &mut bytes;
                    let written = standalone::write_transaction_as(
                        style, out, delta, store, date_ms, comment,
                    );
                    Ok(written
                        .map(record_of)
                        .map(|record| Made::Record(MadeRecord { bytes, record, date_ms })))
                }
            };
            let kept = match refused {
                Some(error) if !matches!(kept, Ok(None)) => Err(Error::io(None, &error)),
                _ => kept,
            };
            match kept {
                Ok(kept) => made = kept,
                Err(error) => {
                    database.revert(delta);
                    append_error(&mut done.reply, &error);
                    done.delta = None;
                }
            }
        }
        Written { database, outcome, made, message: request.message, uncut }
    }
}

impl Written {
    /// Whether the transaction was stopped before its end: it has changed nothing.
    pub(crate) fn is_cut(&self) -> bool {
        matches!(self.outcome, Outcome::TooLong { .. })
    }

    /// As if the transaction had been stopped before its end.
    pub(crate) fn cut(&mut self) {
        if let Outcome::Done(done) = &mut self.outcome {
            if let Some(delta) = done.delta.take() {
                self.database.revert(&delta);
            }
            self.outcome = Outcome::TooLong { cost: 0 };
            self.made = None;
            self.message = self.uncut.take().unwrap_or_else(|| std::mem::take(&mut self.message));
        }
    }
}

impl Try {
    /// Runs the operations on the snapshot.
    pub(crate) fn run(self, watcher: Option<&Watcher>) -> Tried {
        let Self { request, snapshot } = self;
        let seed = request.seed[0];
        let attempt = request.run(u64::MAX, watcher, |operations, env| {
            Attempt::run(&snapshot, operations, env, seed)
        });
        Tried(match attempt {
            Ok(attempt) => Ok(Box::new(attempt)),
            Err(Unanswered::Wait { timeout_ms, reads }) => Err(Failed::Waits { timeout_ms, reads }),
            Err(Unanswered::TooLong) => Err(Failed::Stopped),
        })
    }
}

impl Confirm {
    /// Whether the attempt is still of use.
    pub(crate) fn run(self, watcher: Option<&Watcher>) -> Tried {
        let Self { mut attempt, missed, again_max } = self;
        let is_of_use = compare(&mut attempt, &missed, again_max, watcher);
        Tried(if is_of_use { Ok(attempt) } else { Err(Failed::Overtaken) })
    }
}

/// Finds what of an attempt is to be run again; whether that costs no more than it may.
pub(crate) fn compare(
    attempt: &mut Attempt,
    missed: &Missed,
    again_max: u64,
    watcher: Option<&Watcher>,
) -> bool {
    attempt.compare(missed, watcher) && attempt.again_cost() <= again_max
}

impl Read {
    /// Runs the transaction on the snapshot.
    pub(crate) fn run(self, watcher: Option<&Watcher>) -> Outcome {
        let Self { request, snapshot, explained } = self;
        let seed = request.seed[0];
        let mut outcome = request.run(u64::MAX, watcher, |operations, env| match &explained {
            Some(known) => weir_engine::explain_on(&snapshot, operations, env, (seed, known)),
            None => weir_engine::read(&snapshot, operations, env, seed),
        });
        if let Outcome::Done(done) = &mut outcome
            && let Some(mut late) = done.late.take()
            && late.write_piece(&mut done.reply)
        {
            done.late = Some(late);
        }
        outcome
    }
}

/// The operations of a `transact` message: the parameters behind the database's name.
pub(crate) fn operations(message: Text<'_>) -> Vec<Text<'_>> {
    let params = message.members().into_iter().flatten().filter(|(key, _)| **key == *b"params");
    let params = params.last().and_then(|(_, params)| params.elements());
    params.into_iter().flatten().skip(1).collect()
}

/// The locks that operations `assert`, each once.
pub(crate) fn asserted<'m>(operations: impl Iterator<Item = Text<'m>>) -> BTreeSet<String> {
    let lock = |operation: Text<'m>| {
        let operation = operation.object()?;
        let is_assert = operation.get("op")?.str()? == "assert";
        is_assert.then(|| operation.get("lock")?.str().map(Cow::into_owned))?
    };
    operations.filter_map(lock).collect()
}

/// Adds an error behind the results in a reply's array (RFC 7047 §4.1.3).
pub(crate) fn append_error(reply: &mut Vec<u8>, error: &Error) {
    reply.pop();
    if reply.len() > 1 {
        reply.push(b',');
    }
    error.write(reply);
    reply.push(b']');
}

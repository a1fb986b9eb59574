//! Long transactions: on the tables themselves, or on a snapshot.

use std::sync::Arc;

use weir_data::{Error, Snapshot, UuidSource};
use weir_engine::{Database, Env, Outcome, ReadOnly};
use weir_json::{Text, TextBuf};
use weir_log::standalone::{self, Form};

use crate::origin::Identity;
use crate::work::EXAMINE_BYTES_MIN;

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
    pub(crate) form: Form,
    /// Wall clock for the log record.
    pub(crate) date_ms: i64,
    /// The file refuses records, with this strerror(3) text.
    pub(crate) refused: Option<String>,
}

/// [`Work::Read`](crate::work::Work::Read)
pub struct Read {
    pub(crate) request: Request,
    pub(crate) snapshot: Snapshot,
}

/// The result of a [`Work::Write`](crate::work::Work::Write).
pub struct Written {
    pub(crate) database: Box<Database>,
    pub(crate) outcome: Outcome,
    /// The log record of what changed, if that is for the file.
    pub(crate) record: Vec<u8>,
    /// Of the request; an empty one if it was big and has changed something: nobody runs it again.
    pub(crate) message: Arc<TextBuf>,
}

impl Request {
    fn run(&self, run: impl FnOnce(&[Text<'_>], &mut Env<'_>) -> Outcome) -> Outcome {
        let operations = operations(self.message.text());
        let mut uuids = UuidSource::new(self.seed);
        let mut env = Env {
            read_only: self.read_only,
            client: self.identity.client(),
            has_lock: &|lock| self.locks.iter().any(|owned| owned == lock),
            elapsed_ms: self.elapsed_ms,
            ..Env::new(&mut uuids)
        };
        run(&operations, &mut env)
    }
}

impl Write {
    /// Runs the transaction on the tables.
    pub(crate) fn run(self) -> Written {
        let Self { mut request, mut database, form, date_ms, refused } = self;
        let mut outcome =
            request.run(|operations, env| weir_engine::execute(&mut database, operations, env));
        let mut record = Vec::new();
        if let Outcome::Done(done) = &mut outcome
            && let Some(delta) = &done.delta
        {
            let (store, comment) = (database.store(), done.comment.as_deref());
            let length = request.message.len();
            if length >= EXAMINE_BYTES_MIN {
                // It is not held twice: a record is about as long.
                request.message = Arc::default();
                record.reserve_exact(length);
            }
            let hash =
                standalone::write_transaction_as(form, &mut record, delta, store, date_ms, comment);
            if let (Some(_), Some(error)) = (hash, refused) {
                database.revert(delta);
                append_error(&mut done.reply, &Error::io(None, &error));
                done.delta = None;
                record = Vec::new();
            }
        }
        Written { database, outcome, record, message: request.message }
    }
}

impl Read {
    /// Runs the transaction on the snapshot.
    pub(crate) fn run(self) -> Outcome {
        let Self { request, snapshot } = self;
        let seed = request.seed[0];
        let mut outcome =
            request.run(|operations, env| weir_engine::read(&snapshot, operations, env, seed));
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

/// Adds an error behind the results in a reply's array (RFC 7047 §4.1.3).
pub(crate) fn append_error(reply: &mut Vec<u8>, error: &Error) {
    reply.pop();
    if reply.len() > 1 {
        reply.push(b',');
    }
    error.write(reply);
    reply.push(b']');
}

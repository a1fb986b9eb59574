//! What takes too long for a step of the core: pure pieces of work that the shell runs elsewhere.
//!
//! A piece owns or shares all that it needs, [`Work::run`] is a function of that, and its result
//! comes back as `Event::WorkDone` at any later moment.

pub(crate) mod away;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use weir_data::{Delta, Error, Snapshot, TableId, Uuid, UuidSource};
use weir_engine::{Converted, Database, Env, LateReply, Outcome, ReadOnly};
use weir_json::{Text, TextBuf};
use weir_log::standalone::{self, Form};
use weir_monitor::{Change, Initial, InitialPieces};
use weir_wire::Message;

use crate::backup::mirror::{Mirrored, Mirroring};
use crate::database::conversion;
use crate::database::trigger::Trigger;
use crate::session::Identity;
use crate::work::away::EXAMINE_BYTES_MIN;

/// Room for a piece of a long message and its last row, in bytes.
const PIECE_ROOM: usize = (1 << 20) + (64 << 10);

/// A piece of work in flight, numbered by the core, never reused in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkId(pub u64);

/// A piece of work.
pub enum Work {
    /// Checks the text of a big message and finds out what it asks for.
    Examine(Vec<u8>),
    /// A long transaction on the tables themselves, which nobody else can reach meanwhile.
    Write(Box<Write>),
    /// A long transaction that only reads, on rows as they were at one moment.
    Read(Box<Read>),
    /// The rows that monitors begin with, or their first piece.
    Initial(Rest),
    /// The next piece of a long message.
    Piece(Rest),
    /// What other conditions make appear and vanish for a monitor.
    Change {
        /// The conditions.
        change: Change,
        /// As of when.
        snapshot: Snapshot,
    },
    /// Rows of a source are read and made a database's own.
    Mirror(Box<Mirroring>),
    /// A conversion follows what has been committed since it began.
    Follow(Box<Follow>),
    /// Gives memory back, which takes a while if there is much of it.
    Free(Garbage),
}

/// What is to be forgotten.
#[derive(Debug)]
pub enum Garbage {
    /// A message.
    Text(Arc<TextBuf>),
    /// The rows that nobody else has.
    Rows(Snapshot),
    /// A database that was removed.
    Database(Box<Database>),
    /// What a transaction has changed.
    Delta(Arc<Delta>),
    /// What composes pieces that nobody waits for.
    Rest(Vec<Rest>),
}

/// What is left of a long message. A clone composes the same again.
#[derive(Clone, Debug)]
pub struct Rest(Source);

#[derive(Clone, Debug)]
enum Source {
    Initial(InitialPieces),
    Results(LateReply),
}

/// A piece of a long message.
#[derive(Debug)]
pub struct Piece {
    pub(crate) bytes: Arc<Vec<u8>>,
    /// What comes behind it, if it is not the last.
    pub(crate) rest: Option<Rest>,
}

/// What came out of a piece of work.
pub enum Finished {
    /// Of [`Work::Examine`].
    Examined(Examined),
    /// Of [`Work::Write`].
    Written(Written),
    /// Of [`Work::Read`].
    Read(Outcome),
    /// Of [`Work::Initial`] and [`Work::Piece`].
    Piece(Piece),
    /// Of [`Work::Change`]: table updates and the end of the message, empty if there are none.
    Changed(Vec<u8>),
    /// Of [`Work::Mirror`].
    Mirrored(Mirrored),
    /// Of [`Work::Follow`].
    Followed(Followed),
    /// Of [`Work::Free`].
    Freed,
}

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

/// [`Work::Write`]
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

/// [`Work::Read`]
pub struct Read {
    pub(crate) request: Request,
    pub(crate) snapshot: Snapshot,
}

/// [`Work::Follow`]
pub struct Follow {
    pub(crate) converted: Box<Converted>,
    /// The old rows as they are now.
    pub(crate) snapshot: Snapshot,
    /// Those that have changed.
    pub(crate) changed: BTreeSet<(TableId, Uuid)>,
    /// As have those of these.
    pub(crate) large: Vec<Arc<Delta>>,
    /// Wall clock for the log record.
    pub(crate) date_ms: i64,
    pub(crate) seed: [u64; 4],
}

/// The result of a [`Work::Follow`].
pub struct Followed {
    pub(crate) converted: Box<Converted>,
    /// What has changed in the converted file; `None` if the conversion must begin anew.
    pub(crate) record: Option<Vec<u8>>,
}

/// The result of a [`Work::Write`].
pub struct Written {
    pub(crate) database: Box<Database>,
    pub(crate) outcome: Outcome,
    /// The log record of what changed, if that is for the file.
    pub(crate) record: Vec<u8>,
    /// Of the request; an empty one if it was big and has changed something: nobody runs it again.
    pub(crate) message: Arc<TextBuf>,
}

/// The result of a [`Work::Examine`]: the message and what it turned out to be, or why it is no
/// JSON, in the reference's words.
pub struct Examined(pub(crate) Result<(TextBuf, Content), String>);

/// What a big message turned out to be.
pub(crate) enum Content {
    /// A transaction on the database of this name; the request's id as JSON text.
    Transact { db: String, id: Vec<u8>, is_read_only: bool },
    /// `echo`: the request's id, and the result.
    Echo { id: Vec<u8>, result: Vec<u8> },
    /// Anything else.
    Other,
}

impl Work {
    /// Does it.
    pub fn run(self) -> Finished {
        match self {
            Self::Examine(message) => {
                let checked = TextBuf::validate(message).map_err(|error| error.to_string());
                Finished::Examined(Examined(checked.map(|message| {
                    let content = examine(message.text());
                    (message, content)
                })))
            }
            Self::Write(write) => Finished::Written(write.run()),
            Self::Read(read) => Finished::Read(read.run()),
            Self::Initial(rest) | Self::Piece(rest) => Finished::Piece(rest.compose()),
            Self::Change { change, snapshot } => {
                Finished::Changed(change.compose_from(&snapshot).unwrap_or_default())
            }
            Self::Mirror(mirroring) => Finished::Mirrored(mirroring.run()),
            Self::Follow(follow) => Finished::Followed(follow.run()),
            Self::Free(garbage) => {
                drop(garbage);
                Finished::Freed
            }
        }
    }

    /// Whether a database waits for it: it goes before everything else.
    pub fn is_urgent(&self) -> bool {
        matches!(self, Self::Write(_) | Self::Mirror(_) | Self::Follow(_))
    }
}

impl Rest {
    /// All rows that monitors begin with.
    pub(crate) fn initial(initial: Initial, snapshot: Snapshot) -> Self {
        Self(Source::Initial(initial.pieces(snapshot)))
    }

    /// The results of a reader.
    pub(crate) fn results(results: LateReply) -> Self {
        Self(Source::Results(results))
    }

    fn compose(mut self) -> Piece {
        let mut bytes = Vec::with_capacity(PIECE_ROOM);
        let has_more = match &mut self.0 {
            Source::Initial(pieces) => pieces.write_piece(&mut bytes),
            Source::Results(results) => results.write_piece(&mut bytes),
        };
        if !has_more {
            bytes.shrink_to_fit();
        }
        Piece { bytes: Arc::new(bytes), rest: has_more.then_some(self) }
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Examine(_) => "Examine",
            Self::Write(_) => "Write",
            Self::Read(_) => "Read",
            Self::Initial(_) => "Initial",
            Self::Piece(_) => "Piece",
            Self::Change { .. } => "Change",
            Self::Mirror(_) => "Mirror",
            Self::Follow(_) => "Follow",
            Self::Free(_) => "Free",
        })
    }
}

impl fmt::Debug for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Examined(_) => "Examined",
            Self::Written(_) => "Written",
            Self::Read(_) => "Read",
            Self::Piece(_) => "Piece",
            Self::Changed(_) => "Changed",
            Self::Mirrored(_) => "Mirrored",
            Self::Followed(_) => "Followed",
            Self::Freed => "Freed",
        })
    }
}

impl Request {
    fn run(&self, run: impl FnOnce(&[Text<'_>], &mut Env<'_>) -> Outcome) -> Outcome {
        let operations = Trigger::operations(self.message.text());
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
    fn run(self) -> Written {
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
            let is_record =
                standalone::write_transaction_as(form, &mut record, delta, store, date_ms, comment);
            if let (true, Some(error)) = (is_record, refused) {
                database.revert(delta);
                append_error(&mut done.reply, &Error::io(None, &error));
                done.delta = None;
                record = Vec::new();
            }
        }
        Written { database, outcome, record, message: request.message }
    }
}

impl Follow {
    fn run(self) -> Followed {
        let Self { mut converted, snapshot, mut changed, large, date_ms, seed } = self;
        let mut uuids = UuidSource::new(seed);
        for delta in large {
            changed.extend(delta.rows().map(|(table, uuid, _)| (table, uuid)));
        }
        let tables: BTreeSet<TableId> = changed.iter().map(|(table, _)| *table).collect();
        let tables: Vec<TableId> = tables.into_iter().collect();
        let source = snapshot.to_store(&tables, uuids.next_u64());
        let delta = converted.follow(&source, &changed, &mut uuids).ok();
        let record = delta.map(|delta| {
            let (mut record, store) = (Vec::new(), converted.database.store());
            let comment = Some(conversion::COMMENT);
            standalone::write_transaction(&mut record, &delta, store, date_ms, comment);
            record
        });
        Followed { converted, record }
    }
}

impl Read {
    fn run(self) -> Outcome {
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

fn examine(text: Text<'_>) -> Content {
    let (method, params, id) = match Message::parse(text) {
        Ok(Message::Request { method, params, id }) => (method, params, id),
        _ => return Content::Other,
    };
    let mut request = Vec::new();
    id.write(&mut request);
    match method {
        "transact" => {
            let name = params.elements().into_iter().flatten().next().and_then(Text::str);
            let Some(db) = name.map(|name| name.into_owned()) else { return Content::Other };
            let is_read_only = weir_engine::is_read_only(&Trigger::operations(text));
            Content::Transact { db, id: request, is_read_only }
        }
        "echo" => {
            let mut result = Vec::new();
            params.write(&mut result);
            Content::Echo { id: request, result }
        }
        _ => Content::Other,
    }
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

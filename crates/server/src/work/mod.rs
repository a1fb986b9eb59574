//! What takes too long for a step of the core: pure pieces of work that the shell runs elsewhere.
//!
//! A piece owns or shares all that it needs, [`Work::run`] is a function of that, and its result
//! comes back as `Event::WorkDone` at any later moment. Who sent it out keeps what it was for.

mod convert;
mod examine;
mod follow;
mod garbage;
mod load;
mod made;
mod mirroring;
mod nature;
mod pages;
mod recast;
mod search;
mod take_in;
mod transaction;
mod values;

use std::fmt;

use weir_data::Snapshot;
use weir_engine::Outcome;
use weir_json::TextBuf;
use weir_monitor::{ConditionChange, LateBodies, LateUpdates};

pub use crate::ids::WorkId;
pub use convert::{ConversionError, convert_rows, untouched_tables};
pub(crate) use convert::{adds_to, unaffected_tables};
pub use examine::{Examined, Prepare, Ready};
pub use follow::{Follow, Followed};
pub use garbage::Garbage;
pub use load::{Load, LoadedRows, TakeOver, TakenOver};
pub use mirroring::{Mirrored, Mirroring};
pub use pages::{Piece, Rest};
pub use recast::{Recast, Recasted};
pub use search::{Found, ReadAt, Search};
pub use take_in::{TakeIn, TakenIn};
pub(crate) use transaction::compare;
pub use transaction::{Confirm, Read, Tried, Try, Write, Written};
pub use weir_engine::{Watcher, Word};

pub use crate::origin::Asker;

pub(crate) use examine::Content;
pub(crate) use follow::CannotFollow;
pub(crate) use load::Rows;
pub(crate) use made::{Made, MadeRecord, entry_text, record_of};
pub(crate) use mirroring::Reading;
pub(crate) use nature::Nature;
pub(crate) use recast::{
    Wanted as RecastWanted, asked_schema, check_persistent, has_schema, is_bare,
};
pub(crate) use search::Wanted;
pub(crate) use take_in::{NotTaken, Taken, edits_of_images};
pub(crate) use transaction::{Failed, Request, append_error, asserted, operations};
pub(crate) use values::{TakenValues, Values, modification, sorted};

/// Messages from this size on are checked by a helper, in bytes; transactions among them run there.
pub(crate) const EXAMINE_BYTES_MIN: usize = 1 << 20;

/// `_comment` of a converted file's snapshot.
pub(crate) const CONVERSION_COMMENT: &str = "converted by ovsdb-server";

/// A piece of work.
pub enum Work {
    /// Checks the text of a big message and finds out what it asks for.
    Examine(Vec<u8>),
    /// Parses the conditions in a big request of a monitor.
    Prepare(Box<Prepare>),
    /// A long transaction on the tables themselves, which nobody else can reach meanwhile.
    Write(Box<Write>),
    /// A long transaction that only reads, on rows as they were at one moment.
    Read(Box<Read>),
    /// The operations of a long transaction that writes, on rows as they were at one moment.
    Try(Box<Try>),
    /// Whether what has changed since makes a difference to such a transaction.
    Confirm(Box<Confirm>),
    /// The rows that monitors begin with, or their first piece.
    Initial(Rest),
    /// The next piece of a long message.
    Piece(Rest),
    /// What other conditions make appear and vanish for a monitor.
    Change {
        /// The conditions.
        change: Box<ConditionChange>,
        /// As of when.
        snapshot: Snapshot,
    },
    /// Updates of monitors that cost more than a step.
    Updates(Box<LateUpdates>),
    /// Rows of a source are read and made a database's own.
    Mirror(Box<Mirroring>),
    /// A conversion follows what has been committed since it began.
    Follow(Box<Follow>),
    /// The rows of a clustered database under another schema.
    Recast(Box<Recast>),
    /// What a snapshot of another member makes of a clustered database; the shell has given it the
    /// file ([`Effect::Load`](crate::effect::Effect::Load)).
    Load(Box<Load>),
    /// What a long message of a relay's source makes of its tables.
    TakeIn(Box<TakeIn>),
    /// What was found to differ from such a snapshot, or by such a message, changes.
    TakeOver(Box<TakeOver>),
    /// The log of changes is searched; the shell has given it the file
    /// ([`Effect::Search`](crate::effect::Effect::Search)).
    Search(Box<Search>),
    /// Gives memory back, which takes a while if there is much of it.
    Free(Garbage),
}

/// What came out of a piece of work.
pub enum Finished {
    /// Of [`Work::Examine`].
    Examined(Examined),
    /// Of [`Work::Prepare`].
    Prepared(Ready),
    /// Of [`Work::Write`].
    Written(Written),
    /// Of [`Work::Read`].
    Read(Outcome),
    /// Of [`Work::Try`] and [`Work::Confirm`].
    Tried(Tried),
    /// Of [`Work::Initial`] and [`Work::Piece`].
    Piece(Piece),
    /// Of [`Work::Change`]: table updates and the end of the message, empty if there are none.
    Changed(Vec<u8>),
    /// Of [`Work::Updates`].
    Updated(LateBodies),
    /// Of [`Work::Mirror`].
    Mirrored(Mirrored),
    /// Of [`Work::Follow`].
    Followed(Followed),
    /// Of [`Work::Recast`].
    Recasted(Recasted),
    /// Of [`Work::Load`].
    Loaded(LoadedRows),
    /// Of [`Work::TakeIn`].
    TakenIn(TakenIn),
    /// Of [`Work::TakeOver`].
    TakenOver(TakenOver),
    /// Of [`Work::Search`].
    Found(Found),
    /// Of [`Work::Free`].
    Freed,
}

impl Work {
    /// Does it.
    pub fn run(self) -> Finished {
        self.run_watched(None)
    }

    /// Does it; what may rest asks the watcher now and then whether it is to go on.
    pub fn run_watched(self, watcher: Option<&Watcher>) -> Finished {
        match self {
            Self::Examine(message) => {
                let checked = TextBuf::validate(message).map_err(|error| error.to_string());
                Finished::Examined(Examined(checked.map(|message| {
                    let content = examine::examine(message.text());
                    (message, content)
                })))
            }
            Self::Prepare(prepare) => Finished::Prepared(prepare.run()),
            Self::Write(write) => Finished::Written(write.run(watcher)),
            Self::Read(read) => Finished::Read(read.run(watcher)),
            Self::Try(attempt) => Finished::Tried(attempt.run(watcher)),
            Self::Confirm(confirm) => Finished::Tried(confirm.run(watcher)),
            Self::Initial(rest) | Self::Piece(rest) => Finished::Piece(rest.compose()),
            Self::Change { change, snapshot } => {
                Finished::Changed(change.compose_from(&snapshot).unwrap_or_default())
            }
            Self::Updates(updates) => {
                // Sessions of all kinds wait for them: nobody says that they are to stop.
                let rest = || {
                    watcher.map(Watcher::ask);
                };
                Finished::Updated(updates.compose(&rest))
            }
            Self::Mirror(mirroring) => Finished::Mirrored(mirroring.run()),
            Self::Follow(follow) => Finished::Followed(follow.run()),
            Self::Recast(recast) => Finished::Recasted(recast.run()),
            Self::Load(load) => Finished::Loaded(load.run()),
            Self::TakeIn(message) => Finished::TakenIn(message.run()),
            Self::TakeOver(difference) => Finished::TakenOver(difference.run()),
            Self::Search(search) => Finished::Found(Found(search.run())),
            Self::Free(garbage) => {
                drop(garbage);
                Finished::Freed
            }
        }
    }

    /// Does not begin with it, for nobody waits for it any more. What others need is done all the
    /// same.
    pub fn stopped(self) -> Finished {
        match self {
            Self::Examine(_) => Finished::Examined(Examined(Err(String::new()))),
            Self::Prepare(_) => Finished::Prepared(Ready(None)),
            Self::Write(write) => Finished::Written(write.stopped()),
            Self::Read(_) => Finished::Read(Outcome::TooLong { cost: 0 }),
            Self::Try(_) | Self::Confirm(_) => Finished::Tried(Tried(Err(Failed::Stopped))),
            Self::Change { .. } => Finished::Changed(Vec::new()),
            Self::Search(_) => Finished::Found(Found(Ok(Vec::new()))),
            other => other.run(),
        }
    }

    /// Whether this kind of work asks now and then if it is to go on: others are done in one go.
    pub fn may_rest(&self) -> bool {
        matches!(
            self,
            Self::Write(_) | Self::Read(_) | Self::Try(_) | Self::Confirm(_) | Self::Updates(_)
        )
    }

    /// Whether this kind of work takes so much memory that it is done one after the other.
    pub fn is_big(&self) -> bool {
        matches!(self, Self::Search(_))
    }

    /// Whether a database waits for it: it goes before everything else.
    pub fn is_urgent(&self) -> bool {
        matches!(
            self,
            Self::Write(_)
                | Self::Mirror(_)
                | Self::Follow(_)
                | Self::Recast(_)
                | Self::Load(_)
                | Self::TakeIn(_)
                | Self::TakeOver(_)
        )
    }
}

impl Finished {
    /// Whether a transaction on the tables was stopped before its end. What else is stopped is
    /// forgotten, whatever came of it.
    pub fn is_cut(&self) -> bool {
        matches!(self, Self::Written(written) if written.is_cut())
    }

    /// As if a transaction on the tables, of which nobody has asked whether it may go on, had been
    /// stopped before its end.
    pub fn cut(&mut self) {
        if let Self::Written(written) = self {
            written.cut();
        }
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Examine(_) => "Examine",
            Self::Prepare(_) => "Prepare",
            Self::Write(_) => "Write",
            Self::Read(_) => "Read",
            Self::Try(_) => "Try",
            Self::Confirm(_) => "Confirm",
            Self::Initial(_) => "Initial",
            Self::Piece(_) => "Piece",
            Self::Change { .. } => "Change",
            Self::Updates(_) => "Updates",
            Self::Mirror(_) => "Mirror",
            Self::Follow(_) => "Follow",
            Self::Recast(_) => "Recast",
            Self::Load(_) => "Load",
            Self::TakeIn(_) => "TakeIn",
            Self::TakeOver(_) => "TakeOver",
            Self::Search(_) => "Search",
            Self::Free(_) => "Free",
        })
    }
}

impl fmt::Debug for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Examined(_) => "Examined",
            Self::Prepared(_) => "Prepared",
            Self::Written(_) => "Written",
            Self::Read(_) => "Read",
            Self::Tried(_) => "Tried",
            Self::Piece(_) => "Piece",
            Self::Changed(_) => "Changed",
            Self::Updated(_) => "Updated",
            Self::Mirrored(_) => "Mirrored",
            Self::Followed(_) => "Followed",
            Self::Recasted(_) => "Recasted",
            Self::Loaded(_) => "Loaded",
            Self::TakenIn(_) => "TakenIn",
            Self::TakenOver(_) => "TakenOver",
            Self::Found(_) => "Found",
            Self::Freed => "Freed",
        })
    }
}

//! The conversion of a member's tables that is under way: one that a client has asked for, or an
//! entry that says so.

use weir_cluster::Position;
use weir_data::Error;
use weir_engine::Converted;

use crate::database::Trigger;
use crate::ids::WorkId;

/// How far it has come.
#[derive(Debug, Default)]
pub(crate) enum Conversion {
    /// There is none.
    #[default]
    None,
    /// A helper of the leader tries what a client has asked for.
    Tried {
        work: WorkId,
        trigger: Box<Trigger>,
        /// Of the tables when the helper began.
        position: u64,
    },
    /// The conversion is to be the entry at this place; the new tables are there already.
    Proposed {
        at: Position,
        /// Unless another member has asked.
        trigger: Option<Box<Trigger>>,
        converted: Box<Converted>,
    },
    /// A helper converts the tables as an entry says.
    Followed { work: WorkId, at: Position },
    /// The helper is done.
    Ready { at: Position, converted: Result<Box<Converted>, Error> },
}

impl Conversion {
    /// The helper that is at work.
    pub(crate) fn work(&self) -> Option<WorkId> {
        match self {
            Self::Tried { work, .. } | Self::Followed { work, .. } => Some(*work),
            Self::None | Self::Proposed { .. } | Self::Ready { .. } => None,
        }
    }

    /// The entry that is being followed, or has been proposed.
    pub(crate) fn at(&self) -> Option<Position> {
        match self {
            Self::Proposed { at, .. } | Self::Followed { at, .. } | Self::Ready { at, .. } => {
                Some(*at)
            }
            Self::None | Self::Tried { .. } => None,
        }
    }

    /// The conversion is over, or will never be: the request that is to be asked again, and what
    /// nobody needs.
    pub(crate) fn take(&mut self) -> (Option<Trigger>, Option<Box<Converted>>) {
        match std::mem::take(self) {
            Self::None | Self::Followed { .. } => (None, None),
            Self::Tried { trigger, .. } => (Some(*trigger), None),
            Self::Ready { converted, .. } => (None, converted.ok()),
            Self::Proposed { at, trigger, converted } => {
                let again = |mut trigger: Box<Trigger>| {
                    trigger.since = Some(at.index - 1);
                    *trigger
                };
                (trigger.map(again), Some(converted))
            }
        }
    }
}

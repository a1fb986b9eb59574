//! One wait for a delivery: how far each session is.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

use crate::database::Told;
use crate::delivery::request::{Asked, Level};
use crate::event::Outbox;
use crate::ids::{CommandId, DbId, SessionId};

/// Who is to be answered.
pub(crate) enum Asker {
    /// A client, with the id of its request as JSON text.
    Session(SessionId, Vec<u8>),
    /// An admin.
    Command(CommandId),
}

impl Asker {
    pub(super) fn session(&self) -> Option<SessionId> {
        match self {
            Self::Session(session, _) => Some(*session),
            Self::Command(_) => None,
        }
    }
}

/// How far a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Something up to the position has not been composed for it.
    Behind,
    /// All has been composed, and was with the shell before it was asked for the outbox.
    Queued {
        /// The shell has been asked since.
        is_asked: bool,
    },
    /// The shell has said how many bytes had been queued then.
    Marked {
        /// So many.
        mark: u64,
        /// The kernel has as many bytes as the mark says.
        is_written: bool,
    },
    /// The session has what was asked for.
    Done,
}

/// A wait.
pub(super) struct Wait {
    asker: Asker,
    asked: Asked,
    until_us: u64,
    /// Empty before the first look.
    stages: BTreeMap<SessionId, Stage>,
    has_begun: bool,
    /// How many sessions have left, or watch the database no longer.
    left: usize,
}

impl Wait {
    /// A wait for the sessions that watch the database at the next look.
    pub(super) fn new(asker: Asker, asked: Asked, now_us: u64) -> Self {
        let until_us = now_us.saturating_add(asked.timeout_us);
        Self { asker, asked, until_us, stages: BTreeMap::new(), has_begun: false, left: 0 }
    }

    /// Whether it has been looked for whom is waited.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    pub(super) fn asker(&self) -> &Asker {
        &self.asker
    }

    pub(super) fn into_asker(self) -> Asker {
        self.asker
    }

    pub(super) fn db(&self) -> DbId {
        self.asked.db
    }

    pub(super) fn until_us(&self) -> u64 {
        self.until_us
    }

    /// The sessions that are waited for, and those that have left.
    pub(super) fn clients(&self) -> (usize, usize) {
        (self.stages.len(), self.left)
    }

    /// How many sessions have what was asked for.
    pub(super) fn delivered(&self) -> usize {
        self.stages.values().filter(|stage| **stage == Stage::Done).count()
    }

    /// The sessions that have it not, and how far they are.
    pub(super) fn missing(&self) -> impl Iterator<Item = (SessionId, Stage)> {
        let stages = self.stages.iter().map(|(session, stage)| (*session, *stage));
        stages.filter(|(_, stage)| *stage != Stage::Done)
    }

    /// How many sessions are to have it.
    pub(super) fn wanted(&self) -> usize {
        self.asked.count.map_or(self.stages.len(), NonZeroUsize::get)
    }

    /// Whether as many sessions have it as was asked for.
    pub(super) fn is_complete(&self) -> bool {
        self.delivered() >= self.wanted()
    }

    /// How far the sessions have been told that watch the database now. Those that came after the
    /// wait began may make up a number that is waited for, but `all` does not wait for them.
    pub(super) fn note_told(&mut self, told: &BTreeMap<SessionId, Told>) {
        let before = self.stages.len();
        self.stages.retain(|session, _| told.contains_key(session));
        self.left += before - self.stages.len();
        if !std::mem::replace(&mut self.has_begun, true) || self.asked.count.is_some() {
            for session in told.keys() {
                self.stages.entry(*session).or_insert(Stage::Behind);
            }
        }
        for (session, stage) in &mut self.stages {
            let has_been_told =
                told.get(session).is_some_and(|told| told.reaches(self.asked.position));
            if *stage == Stage::Behind && has_been_told {
                *stage = match self.asked.level {
                    Level::Queued => Stage::Done,
                    Level::Written | Level::Acknowledged => Stage::Queued { is_asked: false },
                };
            }
        }
    }

    /// Adds the sessions of whose outboxes the shell is asked now.
    pub(super) fn ask(&mut self, of: &mut BTreeSet<SessionId>) {
        for (session, stage) in &mut self.stages {
            match stage {
                Stage::Behind | Stage::Done => continue,
                Stage::Queued { is_asked } => *is_asked = true,
                Stage::Marked { .. } => {}
            }
            of.insert(*session);
        }
    }

    /// The shell has answered what it was asked last.
    pub(super) fn note_outboxes(&mut self, outboxes: &BTreeMap<SessionId, Outbox>) {
        for (session, stage) in &mut self.stages {
            let Some(outbox) = outboxes.get(session) else { continue };
            let mark = match *stage {
                Stage::Queued { is_asked: true } => outbox.queued,
                Stage::Marked { mark, .. } => mark,
                Stage::Behind | Stage::Queued { is_asked: false } | Stage::Done => continue,
            };
            let far = match self.asked.level {
                Level::Queued => outbox.queued,
                Level::Written => outbox.written,
                Level::Acknowledged => outbox.acknowledged,
            };
            let is_written = outbox.written >= mark;
            *stage = if far >= mark { Stage::Done } else { Stage::Marked { mark, is_written } };
        }
    }

    /// A session has left.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.left += usize::from(self.stages.remove(&session).is_some());
    }
}

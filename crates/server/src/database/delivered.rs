//! How far the sessions that watch a database have been told of what has happened to it, in
//! positions. That is found out when somebody asks: a commit does nothing for it.

use std::collections::BTreeMap;

use weir_data::{IdKind, Uuid};

use crate::database::Databases;
use crate::ids::{DbId, SessionId};
use crate::session::Sessions;
use crate::shell::Shell;

/// How far a session has been told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// Up to this position; `None` of everything there is.
    pub(crate) up_to: Option<u64>,
    /// First rows, or another long message, are on their way: what has been composed may be behind
    /// them, and not with the shell.
    pub(crate) is_busy: bool,
}

impl Told {
    /// Whether all up to `position` is with the shell.
    pub(crate) fn reaches(self, position: u64) -> bool {
        !self.is_busy && self.up_to.is_none_or(|up_to| up_to >= position)
    }
}

impl Databases {
    /// The position up to which what happened to a database is decided and has been shown to its
    /// monitors.
    pub(crate) fn shown(&self, id: DbId) -> Option<u64> {
        Some(self.get(id)?.watch.shown)
    }

    /// The position of the state that an id names, of either kind, as far back as changes are kept.
    pub(crate) fn position_of(&self, id: DbId, state: Uuid) -> Option<u64> {
        let db = self.get(id)?;
        let history = db.history().kept()?;
        let find = |kind| history.find(state, kind, std::iter::empty());
        let place = find(IdKind::Recorded).or_else(|| find(IdKind::Volatile))?;
        Some(db.watch.position_at(history, place))
    }

    /// Up to where each session that watches a database has been told.
    pub(crate) fn told(
        &self,
        shell: &Shell,
        sessions: &Sessions,
        id: DbId,
    ) -> BTreeMap<SessionId, Told> {
        let Some(db) = self.get(id) else { return BTreeMap::new() };
        let mut all: BTreeMap<SessionId, Told> = BTreeMap::new();
        for (key, owner) in &db.watch.sessions {
            let told = all.entry(*owner).or_default();
            let earlier = told.up_to.into_iter().chain(db.watch.monitors.told(*key));
            told.up_to = earlier.min();
        }
        if let Some(history) = db.history().kept() {
            for (owner, at) in db.watch.behind(history) {
                let told = all.entry(owner).or_default();
                told.up_to = told.up_to.into_iter().chain([at]).min();
            }
        }
        for (owner, told) in &mut all {
            let session = sessions.get(*owner);
            let works = session.is_none_or(|session| session.gate().is_working_on(id));
            told.is_busy = works || shell.is_in_message(*owner);
        }
        all
    }
}

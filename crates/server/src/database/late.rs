//! Updates that cost more than a step may: a helper composes them while the database goes on.
//!
//! 1. A flush finds that what a group of monitors is to be told costs too much. Their sessions are
//!    held as for other work of their own: what they ask of this database waits, and what changes
//!    meanwhile merges for them.
//! 2. Composed: the sessions are told, and go on.
//!
//! A reply must not come before the updates that its own transaction led to, so it waits with them
//! (`server/round.rs`).

use std::collections::BTreeMap;

use weir_monitor::{LateBodies, LateId, Leaving};

use crate::database::Databases;
use crate::ids::{DbId, SessionId, WorkId};
use crate::origin::Asker;
use crate::session::Sessions;
use crate::session::gate::{Lane, Reason};
use crate::shell::Shell;
use crate::work::Work;

/// Updates that a helper composes.
#[derive(Debug)]
struct Late {
    db: DbId,
    id: LateId,
    /// Whose monitors they are for, ascending, each once.
    sessions: Vec<SessionId>,
}

/// All updates that helpers compose.
#[derive(Debug, Default)]
pub(super) struct LateUpdates {
    out: BTreeMap<WorkId, Late>,
}

impl LateUpdates {
    /// The databases that they are of.
    pub(super) fn databases(&self) -> impl Iterator<Item = DbId> {
        self.out.values().map(|late| late.db)
    }

    fn concern(&self, db: DbId, session: SessionId) -> bool {
        let mut of_db = self.out.values().filter(|late| late.db == db);
        of_db.any(|late| late.sessions.binary_search(&session).is_ok())
    }
}

impl Databases {
    /// Hands what costs more than a step to helpers.
    pub(super) fn send_late(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        db: DbId,
        leaving: Vec<Leaving>,
    ) {
        for Leaving { id, keys, work } in leaving {
            let owners = &self.open(db).watch.sessions;
            let mut told: Vec<SessionId> =
                keys.iter().filter_map(|key| owners.get(key).copied()).collect();
            told.sort_unstable();
            told.dedup();
            for &session in &told {
                sessions.hold(session, Reason::Work, Lane::Db(db));
            }
            let work = shell.send_out(Asker::Server, Work::Updates(Box::new(work)));
            self.late.out.insert(work, Late { db, id, sessions: told });
        }
    }

    /// Whether a session's updates are with a helper, and with them what it is to be told first.
    #[inline]
    pub(crate) fn is_told_late(&self, db: DbId, session: SessionId) -> bool {
        !self.late.out.is_empty() && self.late.concern(db, session)
    }

    /// A helper has composed updates: those whose monitors are still there are told. Answers with
    /// the sessions that go on.
    pub(crate) fn have_updates(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        work: WorkId,
        bodies: LateBodies,
    ) -> (DbId, Vec<SessionId>) {
        let late = self.late.out.remove(&work).expect("a helper answers what it was asked");
        let Late { db: id, id: late, sessions: told } = late;
        // The database may have been removed meanwhile.
        if let Some(db) = self.get_mut(id) {
            let mut updates = Vec::new();
            db.watch.monitors.take_late(late, bodies, db.tables.schema(), &mut updates);
            db.watch.send(shell, updates);
        }
        for &session in &told {
            if sessions.has(session) {
                self.release(shell, sessions, session, Reason::Work, Lane::Db(id));
            }
        }
        // A session may still be at work on another database.
        self.want_updates(shell);
        self.hurry(shell, id);
        (id, told)
    }
}

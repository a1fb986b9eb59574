//! Databases whose commits are decided by the source of a relay (`relays` speaks with it).

use weir_data::{Delta, Error, RowEdit, RowImage, Uuid};
use weir_engine::Outcome;

use crate::database::Databases;
use crate::database::commits::Recorded;
use crate::database::trigger::Trigger;
use crate::ids::DbId;
use crate::session::Sessions;
use crate::shell::Shell;
use crate::work::{edits_of_images, operations};

/// Rows of a source that have changed.
pub(crate) enum Changed {
    Edits(Vec<RowEdit>),
    /// As they are now.
    Images(Vec<RowImage>),
}

impl Databases {
    /// What a source has committed takes effect; it has the state of this id from then on, or the one
    /// that it had.
    ///
    /// # Errors
    /// The change does not fit the tables: they are not what they are at the source.
    pub(crate) fn follow_source(
        &mut self,
        shell: &mut Shell,
        id: DbId,
        state: Option<Uuid>,
        changed: Changed,
    ) -> Result<(), Error> {
        let db = self.open(id);
        assert!(db.is_decided(), "what a source has committed comes behind all that ran");
        let database = db.tables.here_mut().expect("changes take effect on tables that are here");
        let edits = match changed {
            Changed::Edits(edits) => edits,
            Changed::Images(images) => edits_of_images(images, database.store(), shell.uuids()),
        };
        let delta = weir_engine::follow(database, edits, shell.uuids())?;
        // What comes under the id that was there before is in no record of the source.
        let state = state.filter(|state| !db.history.is_at(*state));
        if delta.is_empty() && state.is_none() {
            return Ok(());
        }
        let recorded = state.map(|state| Recorded::of_entry(state, 0, (shell.wall_ms(), None)));
        db.file_done(None, Some((delta, recorded)));
        Ok(())
    }

    /// Rows have got values that are in no record of the source.
    pub(crate) fn have_values(&mut self, id: DbId, delta: Delta) {
        if !delta.is_empty() {
            self.open(id).file_done(None, Some((delta, None)));
        }
    }

    /// What comes of a transaction under the locks that it has, if it does not cost more than a step may;
    /// nothing changes.
    pub(crate) fn outcome_of(
        &mut self,
        shell: &mut Shell,
        sessions: &Sessions,
        trigger: &Trigger,
    ) -> Outcome {
        let (locks, operations) = (trigger.locks.as_deref(), operations(trigger.message.text()));
        let outcome = self.execute(shell, sessions, &trigger.origin, (locks, None), &operations);
        if let Outcome::Done(done) = &outcome {
            done.delta.iter().for_each(|delta| self.take_back(trigger.origin.db, delta));
        }
        outcome
    }
}

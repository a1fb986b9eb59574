//! Values of columns that no file keeps come from the source, and change no state.

use weir_data::{RowEdit, TableId, Uuid};
use weir_upstream::news::EphemeralRows;

use crate::database::Changed;
use crate::ids::DbId;
use crate::server::Server;
use crate::work::{TakenValues, sorted};

impl Server {
    /// The source has told some; the tables are settled.
    pub(super) fn take_ephemeral(&mut self, db: DbId, told: EphemeralRows) {
        let Self { databases, relays, .. } = self;
        let store = databases.get(db).and_then(|db| db.tables().store());
        let store = store.expect("these are asked for behind the rows");
        assert_eq!(
            **store.schema(),
            *told.schema,
            "with another schema the rows are asked for anew"
        );
        let is_all = told.is_all;
        let (edits, absent) = sorted(told, store);
        relays.get_mut(db).unplaced.keep(is_all, absent);
        self.give_values(db, edits);
    }

    /// A helper has read many; the tables are settled.
    pub(super) fn take_values(&mut self, db: DbId, values: TakenValues) {
        let TakenValues { is_all, difference, absent } = values;
        let relay = self.relays.get_mut(db);
        relay.follower.have_ephemeral(is_all);
        relay.unplaced.keep(is_all, absent);
        if !difference.is_empty() {
            self.take_over(db, difference, None);
        }
    }

    /// Rows have come, whose values may have come before them: these, or any.
    pub(super) fn place_ephemeral(&mut self, db: DbId, new: Option<&[(TableId, Uuid)]>) {
        let Self { databases, relays, .. } = self;
        let relay = relays.get_mut(db);
        if relay.unplaced.is_empty() {
            return;
        }
        let edits = match (new, databases.get(db).and_then(|db| db.tables().store())) {
            (Some(new), _) => relay.unplaced.take(new),
            (None, Some(store)) => relay.unplaced.take_all(store),
            (None, None) => return,
        };
        self.give_values(db, edits);
    }

    fn give_values(&mut self, db: DbId, edits: Vec<RowEdit>) {
        if edits.is_empty() {
            return;
        }
        let Self { shell, databases, .. } = self;
        match databases.follow_source(shell, db, None, Changed::Edits(edits)) {
            Ok(()) => self.decide(db),
            Err(error) => self.cannot_follow_source(db, &error.to_string()),
        }
    }
}

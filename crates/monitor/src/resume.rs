//! What a monitor that comes back has missed (`monitor_cond_since`, ovsdb-server(7) §4.1.15):
//! composed once for all equal monitors that stood at the same place.
//!
//! The changes come from a log that outlives monitors. They are merged, and told under the conditions
//! of the request: what they were when the monitor left nobody knows, and a client that changed them
//! meanwhile asks for everything.

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use weir_data::{Delta, IdKind, Ids, Row, Schema, Snapshot, Store, TableId, Uuid};

use crate::change::{ChangeSet, Changes};
use crate::compose;
use crate::cost::{Budget, ROW, TooLong, VIEW};
use crate::message;
use crate::registry::{MonitorKey, Monitors};
use crate::subscription::Subscription;
use crate::view::View;

/// A monitor's request, to be told what it has missed.
#[derive(Clone, Debug)]
pub struct Missed {
    subscription: Arc<Subscription>,
    /// For hashing what clients choose.
    seed: u64,
}

impl Missed {
    /// Which ids name the states that the monitor is told of.
    pub fn ids(&self) -> IdKind {
        self.subscription.ids()
    }

    /// The tables that are asked for, whatever the conditions.
    pub fn tables(&self) -> impl Iterator<Item = TableId> {
        self.subscription.tables.iter().map(|of| of.shape.table)
    }

    /// Whether what was missed can be told: not where a condition looks at `_version`, which no log
    /// keeps.
    pub fn can_be_told(&self) -> bool {
        !self.subscription.looks_at_versions()
    }

    /// Appends what `deltas`, oldest first, have changed, all of which the store shows: a JSON object.
    ///
    /// # Errors
    /// Telling what was missed costs more than `most` units of about 50 ns.
    pub fn compose(
        &self,
        deltas: impl Iterator<Item = Delta>,
        store: &Store,
        most: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), TooLong> {
        let budget = &mut Budget::new(most);
        let mut set = self.merge(deltas, store.schema(), budget)?;
        set.settle_versions(|table, uuid| store.get(table, uuid));
        let changes = Changes::Merged(Arc::new(set));
        let view = View::new(&changes, store.schema(), |table, uuid| store.get(table, uuid), all);
        self.tell(&view, store.schema(), budget, out)
    }

    /// Appends what [`Missed::compose`] does, with the rows of a snapshot.
    pub fn compose_from(
        &self,
        deltas: impl Iterator<Item = Delta>,
        snapshot: &Snapshot,
        out: &mut Vec<u8>,
    ) {
        let budget = &mut Budget::unlimited();
        let composed = self.merge(deltas, snapshot.schema(), budget).and_then(|mut set| {
            let mut rows: HashMap<(TableId, Uuid), &Row, FixedState> =
                HashMap::with_hasher(FixedState::with_seed(self.seed));
            for table in self.tables() {
                let Some(changed) = set.changed(table) else { continue };
                let changed = snapshot.rows(table).filter(|row| changed.contains_key(&row.uuid()));
                rows.extend(changed.map(|row| ((table, row.uuid()), row)));
            }
            let row = |table, uuid| rows.get(&(table, uuid)).copied();
            set.settle_versions(row);
            let changes = Changes::Merged(Arc::new(set));
            self.tell(
                &View::new(&changes, snapshot.schema(), row, all),
                snapshot.schema(),
                budget,
                out,
            )
        });
        composed.expect("there is no bound");
    }

    /// All changes as one.
    fn merge(
        &self,
        deltas: impl Iterator<Item = Delta>,
        schema: &Schema,
        budget: &mut Budget<'_>,
    ) -> Result<ChangeSet, TooLong> {
        let mut set = ChangeSet::new(self.seed);
        for delta in deltas {
            let n_rows: usize = delta.tables.iter().map(|table| table.rows.len()).sum();
            budget.spend_each(n_rows, ROW)?;
            set.merge_delta(&delta, schema, |table| self.subscription.table(table).is_some());
        }
        Ok(set)
    }

    fn tell(
        &self,
        view: &View<'_>,
        schema: &Schema,
        budget: &mut Budget<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), TooLong> {
        budget.spend_each(view.len(), VIEW)?;
        compose::changes(&self.subscription, view, &|_| None, schema, budget, out)
    }
}

/// Of what has been merged, every table was asked for.
fn all(_: TableId) -> bool {
    true
}

impl Monitors {
    /// A monitor's request, to be told what it has missed; `None` if there is no such monitor.
    pub fn missed(&self, key: MonitorKey) -> Option<Missed> {
        let subscription = Arc::clone(self.subscription(key)?);
        Some(Missed { subscription, seed: self.seed })
    }

    /// The states behind the last commit have these ids from now on.
    pub fn set_ids(&mut self, ids: Ids) {
        self.cache.forget_updates();
        self.last_ids = ids;
    }

    /// A message that tells a monitor of version 3 the id of its state, and nothing else.
    pub fn nothing_new(&self, key: MonitorKey, state: Uuid) -> Option<Vec<u8>> {
        let (version, name) = &*self.memberships.get(&key)?.label;
        let mut message = message::head(*version, name).to_vec();
        message::begin(Some(state), &mut message);
        message.extend_from_slice(b"{}]}");
        Some(message)
    }

    /// The id of the state behind the last commit, as the monitor is told it.
    pub fn state_id(&self, key: MonitorKey) -> Option<Uuid> {
        self.subscription(key)?.id_of(self.last_ids)
    }
}

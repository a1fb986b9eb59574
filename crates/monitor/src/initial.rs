//! The rows that a monitor begins with, composed here or elsewhere, once for all that are equal.

use std::sync::Arc;

use weir_data::{Schema, Snapshot};

use crate::compose;
use crate::cost::{Budget, TooLong};
use crate::message::Version;
use crate::registry::{GroupId, MonitorKey, Monitors};
use crate::rows::Rows;
use crate::subscription::Subscription;

/// Bytes of a piece of initial rows, or a row more.
const PIECE_BYTES: usize = 1 << 20;

/// The initial rows of one group of monitors, to be composed from a snapshot, maybe on another
/// thread.
#[derive(Debug)]
pub struct Initial(Arc<Subscription>);

/// The initial rows of one group of monitors, composed piece by piece from a snapshot. A clone goes
/// on from where the original is.
#[derive(Clone, Debug)]
pub struct InitialPieces {
    subscription: Arc<Subscription>,
    snapshot: Arc<Snapshot>,
    progress: compose::Progress,
}

impl Initial {
    /// The rows of a snapshot that the monitors begin with, in pieces.
    pub fn pieces(self, snapshot: Snapshot) -> InitialPieces {
        let progress = compose::Progress::default();
        InitialPieces { subscription: self.0, snapshot: Arc::new(snapshot), progress }
    }
}

impl InitialPieces {
    /// Appends the next piece, of 1 MiB (`PIECE_BYTES`) or a row more; false if it is the last.
    pub fn write_piece(&mut self, out: &mut Vec<u8>) -> bool {
        let enough = out.len() + PIECE_BYTES;
        let Self { subscription, snapshot, progress } = self;
        compose::initial_piece(subscription, snapshot, progress, enough, out)
    }
}

impl Monitors {
    /// The rows that the monitor begins with, as a JSON object. Equal monitors share them while
    /// nothing changes.
    ///
    /// # Errors
    /// Composing them costs more than `most` units of about 50 ns.
    pub fn initial(
        &mut self,
        key: MonitorKey,
        rows: Rows<'_>,
        most: u64,
    ) -> Result<Arc<Vec<u8>>, TooLong> {
        if let Some(known) = self.known_initial(key) {
            return Ok(known);
        }
        let Some(subscription) = self.subscription(key) else {
            return Ok(Arc::new(b"{}".to_vec()));
        };
        let mut composed = Vec::new();
        compose::initial(subscription, rows, &mut Budget::new(most), &mut composed)?;
        self.initials += 1;
        composed.shrink_to_fit();
        let composed = Arc::new(composed);
        self.keep_initial(key, &composed);
        Ok(composed)
    }

    /// The rows that the monitor begins with, if they have been composed for an equal monitor and
    /// nothing has changed since.
    pub fn known_initial(&self, key: MonitorKey) -> Option<Arc<Vec<u8>>> {
        self.cache.initial(self.group(key)?)
    }

    /// The composing of a monitor's initial rows, to be done elsewhere; `None` if there is no such
    /// monitor.
    pub fn initial_work(&mut self, key: MonitorKey) -> Option<Initial> {
        let subscription = Arc::clone(self.subscription(key)?);
        self.initials += 1;
        Some(Initial(subscription))
    }

    /// Keeps a monitor's initial rows for equal monitors, if they are still what this one begins
    /// with.
    pub fn keep_initial(&mut self, key: MonitorKey, rows: &Arc<Vec<u8>>) {
        let Some(membership) = self.memberships.get(&key) else { return };
        let place = self.strays.get(&key).copied().unwrap_or(self.base);
        if !self.has_changed(membership, place) {
            self.cache.keep_initial(membership.group, rows);
        }
    }

    /// Lets the monitor begin with the rows as they are now, whatever it was to begin with.
    pub fn begin_anew(&mut self, key: MonitorKey, schema: &Schema) {
        self.stand_at_end(key, schema);
        self.try_rebase(schema);
    }

    /// The number of the monitor's group: monitors of one group have equal subscriptions.
    pub fn group(&self, key: MonitorKey) -> Option<GroupId> {
        self.memberships.get(&key).map(|membership| membership.group)
    }

    /// How the monitor is told of changes.
    pub fn version(&self, key: MonitorKey) -> Option<Version> {
        self.memberships.get(&key).map(|membership| membership.label.0)
    }

    pub(crate) fn subscription(&self, key: MonitorKey) -> Option<&Arc<Subscription>> {
        self.groups.get(&self.group(key)?).map(|group| &group.subscription)
    }

    /// Forgets the initial rows kept for equal monitors: for when none has come for a while.
    pub fn forget_initial(&mut self) {
        self.cache.forget_initials();
    }
}

//! Monitors that come back: what they have missed is told instead of all rows
//! (`docs/decisions/012`).
//!
//! A herd that lost its server comes back to it with one request and one id each, equal for nearly
//! all. So what one of them has missed is kept for a moment, as initial rows are.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::database::Databases;
use crate::ids::Bytes;
use crate::monitors::pages::Beginning;

use weir_monitor::MonitorKey;

/// Most bytes of what monitors have missed that are kept for others. Beyond it, it is composed for
/// each of them.
const RESUMED_BYTES_MAX: usize = 16 << 20;

/// About what each of these takes besides its text: most have missed nothing, `{}`.
const ENTRY_BYTES: usize = 256;

/// What monitors have missed, for others who come back to the same.
#[derive(Debug, Default)]
pub(super) struct Resumed {
    /// Each with how much of its database had been shown to monitors.
    known: BTreeMap<Beginning, (u64, Bytes)>,
    bytes: usize,
}

impl Resumed {
    /// What a monitor has missed that is to begin so, if it is known, or costs no more than a step
    /// may.
    pub(super) fn missed(
        &mut self,
        databases: &Databases,
        of: Beginning,
        key: MonitorKey,
    ) -> Option<Bytes> {
        // The tables' own position is not known while they are away.
        let position = databases.shown(of.db).expect("its monitor has just been made");
        if let Some((at, body)) = self.known.get(&of)
            && *at == position
        {
            return Some(Arc::clone(body));
        }
        let since = of.since.expect("who begins with all rows has missed nothing");
        let body = Arc::new(databases.missed(of.db, key, since)?);
        if let Some((_, old)) = self.known.remove(&of) {
            self.bytes -= old.len() + ENTRY_BYTES;
        }
        if self.bytes + body.len() + ENTRY_BYTES <= RESUMED_BYTES_MAX {
            self.bytes += body.len() + ENTRY_BYTES;
            self.known.insert(of, (position, Arc::clone(&body)));
        }
        Some(body)
    }

    /// Nobody has come for a while.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

//! Numbers of tables then and now: a conversion leaves the entries as they are and notes what the
//! tables are called from then on.

use std::sync::Arc;

use weir_data::TableId;

use crate::ids::Place;

/// By the table's number in the entries: its number now, or nothing if the table was converted and
/// its changes do not count any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Renumbering(pub(crate) Vec<Option<TableId>>);

impl Renumbering {
    /// What a conversion does to a database of `tables` tables.
    pub(crate) fn of(target: &dyn Fn(TableId) -> Option<TableId>, tables: usize) -> Self {
        Self((0..tables).map(|table| target(TableId(table as u16))).collect())
    }

    /// Whether nothing is renumbered and nothing dropped.
    pub(crate) fn is_identity(&self) -> bool {
        self.0.iter().enumerate().all(|(i, table)| table.is_some_and(|t| t.index() == i))
    }

    /// The table's number now.
    pub(crate) fn get(&self, table: TableId) -> Option<TableId> {
        self.0.get(table.index()).copied().flatten()
    }

    /// What both do, this one first.
    pub(crate) fn then(&self, later: &Self) -> Self {
        Self(self.0.iter().map(|table| table.and_then(|table| later.get(table))).collect())
    }

    /// Where the log of each of `tables` tables begins, from where it began before: here for those
    /// that were converted, or are new.
    pub(crate) fn begins(&self, before: &[Place], tables: usize, here: Place) -> Vec<Place> {
        let mut begins = vec![here; tables];
        for (target, place) in self.0.iter().zip(before) {
            if let Some(begin) = target.and_then(|table| begins.get_mut(table.index())) {
                *begin = *place;
            }
        }
        begins
    }
}

/// Renumbers what has perhaps been renumbered before. Chunks share one list as long as they can:
/// `last` has what the one before it had, and got.
pub(crate) fn renumber(
    before: &Option<Arc<Renumbering>>,
    conversion: &Arc<Renumbering>,
    last: &mut Option<(Option<Arc<Renumbering>>, Arc<Renumbering>)>,
) -> Arc<Renumbering> {
    let is_same = |a: &Option<Arc<Renumbering>>| match (a, before) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (None, None) => true,
        _ => false,
    };
    if let Some((_, after)) = last.as_ref().filter(|(before, _)| is_same(before)) {
        return Arc::clone(after);
    }
    let after = match before {
        Some(before) => Arc::new(before.then(conversion)),
        None => Arc::clone(conversion),
    };
    *last = Some((before.clone(), Arc::clone(&after)));
    after
}

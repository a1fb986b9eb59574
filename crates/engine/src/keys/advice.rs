//! Which keys the engine keeps on its own account.
//!
//! Counted are rows, never time, so that equal requests lead to equal decisions. A column gets a
//! key when scans that the key would have served have looked at [`SCANS`] times the rows of its
//! table; a count halves whenever the database has taken as many transactions as the table has
//! rows. A key goes when commits have filed as many entries as the table has rows and it has not
//! saved [`SAVED_EACH`] looks for each. Each time that happens, the column must be scanned twice as
//! much for its next key.

use std::collections::BTreeMap;

use weir_data::condition::{Clause, Condition, Function};
use weir_data::{AtomType, ColumnId, Store, TableId, TableSchema};

use super::api::{DroppedKey, KeyEvent, Why};
use super::{KeyKind, KeyName, Keys, Note, Origin, entries, fits, kind_for};

/// Tables of fewer rows have no automatic keys: a scan costs less than the books.
pub(crate) const ROWS_MIN: u64 = 1_000;

/// A key is built when scans have looked at so many times the rows of its table.
const SCANS: u64 = 32;

/// Rows that a key must save somebody a look at, for each entry that commits file in it.
const SAVED_EACH: u64 = 8;

/// A column whose keys did not pay so often has none any more.
const STRIKES_MAX: u32 = 10;

/// Rows whose values say how long a column's values are.
const SAMPLE: usize = 256;

/// What the keys that the engine keeps on its own account may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyBudget {
    /// Bytes of all these keys together; declared keys do not count.
    pub bytes: usize,
    /// Rows and entries that one step may file.
    pub step: usize,
}

/// What was asked for without a key.
#[derive(Debug, Default)]
pub(super) struct Demands(BTreeMap<KeyName, Demand>);

#[derive(Clone, Copy, Debug, Default)]
struct Demand {
    scanned: u64,
    /// The database's position when `scanned` was halved last.
    since: u64,
    /// How often a key for this did not pay.
    strikes: u32,
}

impl Demand {
    /// Whether a table of so many rows has been looked at often enough.
    fn suffices(&self, rows: u64) -> bool {
        self.scanned >= rows.saturating_mul(SCANS << self.strikes)
    }
}

impl Keys {
    /// The key that would have served a search that looked at all rows, if the table is big enough.
    pub(crate) fn wanted(
        &self,
        schema: &TableSchema,
        table: TableId,
        condition: &Condition,
        is_linked: impl Fn(ColumnId) -> bool,
    ) -> Option<KeyName> {
        let wanted = condition.clauses.iter().filter_map(|clause| {
            let Clause::Compare { column, function, value } = clause else { return None };
            let ty = &schema.column(*column).ty;
            let rank = match function {
                Function::Equal => 0,
                Function::Includes if value.as_ref().is_empty() => return None,
                Function::Includes => 1,
                Function::NotEqual | Function::Excludes => return None,
                _ => 2,
            };
            let kind = kind_for(schema, *column, rank == 2);
            // Strings that begin alike are one to an ordered key.
            let is_text = ty.key.ty == AtomType::String;
            let has_key = |has| has == kind || has == KeyKind::Ordered && !is_text;
            if *column <= ColumnId::VERSION
                || is_linked(*column)
                || self.has(table, *column, has_key)
            {
                return None;
            }
            // Half of the rows or more are found by either value of a boolean.
            let rank = if ty.key.ty == AtomType::Boolean { 3 } else { rank };
            Some((rank, KeyName { table, column: *column, kind }))
        });
        let strikes = |name: &KeyName| self.demands.0.get(name).map_or(0, |demand| demand.strikes);
        let best = wanted.min_by_key(|(rank, name)| (strikes(name), *rank, *name))?.1;
        (strikes(&best) < STRIKES_MAX).then_some(best)
    }

    /// Whether a key is worth taking note of: the column can have it, has none of its kind, and its
    /// keys have not failed to pay too often.
    pub(crate) fn may_want(&self, schema: &TableSchema, name: KeyName) -> bool {
        let strikes = self.demands.0.get(&name).map_or(0, |demand| demand.strikes);
        name.column > ColumnId::VERSION
            && fits(name.kind, schema.column(name.column))
            && !self.has(name.table, name.column, |kind| kind == name.kind)
            && strikes < STRIKES_MAX
    }

    /// Takes note of what a search looked at, or did not have to.
    pub(crate) fn note(&mut self, note: Note, store: &Store, position: u64) {
        match note {
            Note::Saved(name, rows) => {
                if let Some(key) = self.get_mut(name) {
                    key.saved = key.saved.saturating_add(rows);
                }
            }
            Note::Scanned(name, rows) => {
                let demand = self.demands.0.entry(name).or_default();
                let n_rows = (store.table(name.table).len() as u64).max(ROWS_MIN);
                if position.abs_diff(demand.since) > n_rows {
                    demand.scanned /= 2;
                    demand.since = position;
                }
                demand.scanned = demand.scanned.saturating_add(rows);
                self.is_restless |= demand.suffices(n_rows);
            }
        }
    }

    /// One step: drops a key that does not pay, or begins one that would, if nothing is being
    /// built.
    pub(super) fn decide(&mut self, store: &Store, budget: KeyBudget) -> Option<KeyEvent> {
        if let Some(event) = self.drop_one(store, budget) {
            return Some(event);
        }
        if self.all().any(|key| key.building.is_some()) {
            return None;
        }
        let rows = |name: &KeyName| (store.table(name.table).len() as u64).max(ROWS_MIN);
        let wanted = self.demands.0.iter().filter(|(name, demand)| demand.suffices(rows(name)));
        // The one that has waited for longest, in tables.
        let (name, demand) = wanted.max_by_key(|(name, demand)| demand.scanned / rows(name))?;
        let (name, demand) = (*name, *demand);
        let bytes = estimate(store, name);
        if bytes > budget.bytes {
            // Not with this budget, so it need not be asked again and again.
            self.demands.0.entry(name).or_default().scanned = 0;
            return None;
        }
        if self.automatic_bytes() + bytes > budget.bytes {
            let automatic = self.all().filter(|key| key.origin == Origin::Automatic);
            let least = automatic.map(|key| (key.saved, key.name)).min()?;
            // Asked again when scans have gone on, whether or not there is room by then.
            self.demands.0.entry(name).or_default().scanned -= demand.scanned / 2;
            return if least.0 < demand.scanned { self.give_up(least.1, Why::Room) } else { None };
        }
        self.demands.0.entry(name).or_default().scanned = 0;
        self.begin(name, Origin::Automatic, store, demand.scanned);
        Some(KeyEvent::Begun { key: name, scanned: demand.scanned })
    }

    fn drop_one(&mut self, store: &Store, budget: KeyBudget) -> Option<KeyEvent> {
        let mut gone: Option<(u64, KeyName, Why)> = None;
        let over = self.automatic_bytes() > budget.bytes;
        for key in self.tables.iter_mut().flatten() {
            if key.origin != Origin::Automatic {
                continue;
            }
            if over && gone.is_none_or(|(least, ..)| key.saved < least) {
                gone = Some((key.saved, key.name, Why::Room));
            }
            if over || key.building.is_some() || !key.is_to_be_judged(store) {
                continue;
            }
            if key.saved < key.filed.saturating_mul(SAVED_EACH) {
                let why = Why::DoesNotPay { saved: key.saved, filed: key.filed };
                gone = Some((key.saved, key.name, why));
                break;
            }
            (key.saved, key.filed) = (0, 0);
        }
        let (_, name, why) = gone?;
        self.give_up(name, why)
    }

    fn give_up(&mut self, name: KeyName, why: Why) -> Option<KeyEvent> {
        let key = self.remove(name)?;
        let demand = self.demands.0.entry(name).or_default();
        demand.scanned = 0;
        demand.strikes = (demand.strikes + 1).min(STRIKES_MAX);
        Some(KeyEvent::Dropped { key: name, why, dropped: DroppedKey(key) })
    }

    fn automatic_bytes(&self) -> usize {
        self.all().filter(|key| key.origin == Origin::Automatic).map(super::Key::bytes).sum()
    }
}

/// Bytes that a key would take, by the values of some rows.
fn estimate(store: &Store, name: KeyName) -> usize {
    let rows = store.table(name.table);
    let column = store.schema().table(name.table).column(name.column);
    let each = entries::bytes_each(entries::Form::of(name.kind, column));
    if name.kind != KeyKind::Inverted {
        return rows.len() * each;
    }
    let sample = || rows.iter().take(SAMPLE);
    let elements: usize = sample().map(|row| row.get(name.column).len().max(1)).sum();
    rows.len() * each * elements / sample().count().max(1)
}

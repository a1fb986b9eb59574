//! Finding the rows that satisfy a condition: by UUID, by a unique index, by a key or by weak
//! references, or by looking at all (`docs/decisions/015`).
//!
//! `pages` finds rows in order, `committed` those that somebody else than a transaction looks for,
//! `search` tells what a search came to.
//!
//! Whatever finds candidates, each is checked against the whole condition, so a plan decides only
//! how many rows are visited. The result is in slot order under every plan.
//!
//! Indexes, keys and links hold committed values. What the transaction itself has moved in them is
//! found besides, through `moved`.

mod committed;
mod moved;
mod pages;
mod search;
mod sources;

use smallvec::{SmallVec, smallvec};
use weir_data::condition::{Clause, Condition, Function};
use weir_data::store::{Slot, Table};
use weir_data::{ColumnId, DatumRef, Row, TableId, TableSchema, Uuid};

use crate::attempt::Trace;
use crate::keys::{KeyKind, KeyName, Keys, Note, ROWS_MIN};
use crate::meter::{self, TooLong};
use crate::transaction::Transaction;
pub use committed::Searches;
use moved::Moved;
pub use search::{Search, Way};
use sources::{Candidates, Source, Sources};

/// What finding rows took, for tests and coverage counters: work, not time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Rows that a condition was checked on.
    pub rows_visited: u64,
    /// Entries of keys, and weak references, that were walked on the way to rows.
    pub entries_walked: u64,
    /// Searches by `_uuid`.
    pub by_uuid: u64,
    /// Searches by a unique index.
    pub by_index: u64,
    /// Searches by a hash key or an ordered one.
    pub by_alternate: u64,
    /// Searches by an inverted key, or by weak references.
    pub by_inverted: u64,
    /// Searches that looked at every row of a table.
    pub scans: u64,
}

impl Work {
    /// Adds what another request took.
    #[inline]
    pub fn add(&mut self, other: &Self) {
        self.rows_visited += other.rows_visited;
        self.entries_walked += other.entries_walked;
        self.by_uuid += other.by_uuid;
        self.by_index += other.by_index;
        self.by_alternate += other.by_alternate;
        self.by_inverted += other.by_inverted;
        self.scans += other.scans;
    }

    /// How often rows were found in each way, by the names of the coverage counters.
    pub fn counters(&self) -> [(&'static str, u64); 5] {
        [
            ("query_uuid", self.by_uuid),
            ("query_primary", self.by_index),
            ("query_alternate", self.by_alternate),
            ("query_inverted", self.by_inverted),
            ("query_linear", self.scans),
        ]
    }
}

/// Finds rows for the operations of one transaction.
pub(crate) struct Planner {
    pub(crate) work: Work,
    /// What was looked for, if somebody wants to know.
    pub(crate) trace: Option<Trace>,
    /// What there is to say about keys, each key once.
    pub(crate) notes: Vec<Note>,
    moved: Moved,
    /// The number of the operation that looks for rows, from 0.
    pub(crate) operation: usize,
    /// The search that has looked at most rows.
    pub(crate) slowest: Option<Search>,
    /// All searches, if somebody wants to know.
    pub(crate) searches: Option<Vec<Search>>,
    /// How the search under way finds rows.
    way: Way,
    /// The key that would serve the search under way.
    wanted: Option<KeyName>,
}

/// A few things: there is usually one, and seldom more than four.
pub(crate) type Few<T> = SmallVec<[T; 4]>;

/// How to find candidates.
enum Plan<'c> {
    Nothing,
    Uuid(Uuid),
    Index {
        index: usize,
        values: Few<DatumRef<'c>>,
    },
    /// By what is neither `_uuid` nor a unique index, or else by a scan.
    Other,
}

impl Planner {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            work: Work::default(),
            trace: None,
            notes: Vec::new(),
            moved: Moved::new(seed),
            operation: 0,
            slowest: None,
            searches: None,
            way: Way::Nothing,
            wanted: None,
        }
    }

    /// The rows that satisfy every clause, in slot order, unless looking for them costs more than
    /// the transaction may.
    pub(crate) fn rows<'t>(
        &mut self,
        txn: &'t Transaction<'_>,
        table: TableId,
        condition: &Condition,
    ) -> Result<Few<&'t Row>, TooLong> {
        let begin = self.begin();
        let found = self.find(txn, table, condition);
        self.end(begin, table, found.as_ref().ok().map(|found| found.len()));
        found
    }

    fn find<'t>(
        &mut self,
        txn: &'t Transaction<'_>,
        table: TableId,
        condition: &Condition,
    ) -> Result<Few<&'t Row>, TooLong> {
        let rows = txn.store().table(table);
        if let Some(trace) = &mut self.trace {
            trace.note(table, condition);
        }
        let candidates: Few<Uuid> = match plan(condition, txn.schema().table(table)) {
            Plan::Nothing => Few::new(),
            Plan::Uuid(uuid) => {
                self.work.by_uuid += 1;
                self.way = Way::Uuid;
                smallvec![uuid]
            }
            Plan::Index { index, values } => {
                self.work.by_index += 1;
                self.way = Way::Primary { index };
                let found = txn.db().lookup(table, index, &values);
                let mut candidates = found.into_iter().collect();
                self.moved.by_index(txn, table, (index, &values), &mut candidates);
                candidates
            }
            Plan::Other => return self.otherwise(txn, table, condition),
        };
        let slots = candidates.iter().filter_map(|uuid| rows.slot(*uuid)).collect();
        let slots = in_order(slots);
        self.work.rows_visited += slots.len() as u64;
        txn.meter.spend_each(slots.len(), meter::condition(condition));
        Ok(matching(rows, slots, condition))
    }

    /// As [`Planner::rows`], by keys or weak references, or else by a scan.
    fn otherwise<'t>(
        &mut self,
        txn: &'t Transaction<'_>,
        table: TableId,
        condition: &Condition,
    ) -> Result<Few<&'t Row>, TooLong> {
        let rows = txn.store().table(table);
        let sources = match Sources::of(txn.db(), txn.n_touched(table), table, condition) {
            Sources::None => return self.scan(txn, table, condition),
            Sources::Nothing => return Ok(Few::new()),
            Sources::Some(sources) => sources,
        };
        let chosen = self.choose(txn, table, &sources, sources::most(rows));
        let Some(chosen) = chosen else { return self.scan(txn, table, condition) };

        let source = &sources[chosen.source];
        let slots = self.slots(txn, table, &sources, &chosen);
        txn.meter.afford_each(slots.len(), meter::CANDIDATE + meter::condition(condition))?;
        match source.kind {
            KeyKind::Hash | KeyKind::Ordered => self.work.by_alternate += 1,
            KeyKind::Inverted => self.work.by_inverted += 1,
        }
        self.work.rows_visited += slots.len() as u64;
        self.way = source.key().map_or(Way::References { column: source.column }, Way::Key);
        if let Some(name) = source.key() {
            let saved = rows.len().saturating_sub(slots.len()) as u64;
            self.note(Note::Saved(name, saved));
        }
        Ok(matching(rows, slots, condition))
    }

    /// The candidates that sources find, unless there are more than `most`: what is walked for that
    /// is paid for either way.
    fn choose(
        &mut self,
        txn: &Transaction<'_>,
        table: TableId,
        sources: &[Source<'_>],
        most: usize,
    ) -> Option<Candidates> {
        let chosen = sources::choose(sources, table, txn.store().table(table), most);
        let walked = chosen.as_ref().map_or_else(|walked| *walked, |chosen| chosen.walked);
        self.work.entries_walked += walked;
        txn.meter.spend(walked / meter::ENTRIES);
        chosen.ok()
    }

    /// Where the candidates are, and the rows that the transaction has moved.
    fn slots(
        &mut self,
        txn: &Transaction<'_>,
        table: TableId,
        sources: &[Source<'_>],
        chosen: &Candidates,
    ) -> Few<Slot> {
        let rows = txn.store().table(table);
        let source = &sources[chosen.source];
        let mut slots: Few<Slot> =
            chosen.rows.iter().flat_map(|number| rows.slots_of_number(*number)).collect();
        if sources.iter().any(Source::is_links) {
            slots.extend(txn.touched(table).filter_map(|uuid| rows.slot(uuid)));
        } else {
            let what = (source.column, source.kind);
            let moved = self.moved.by_key(txn, table, what, source.numbers);
            slots.extend(moved.iter().filter_map(|uuid| rows.slot(*uuid)));
        }
        in_order(slots)
    }

    fn scan<'t>(
        &mut self,
        txn: &'t Transaction<'_>,
        table: TableId,
        condition: &Condition,
    ) -> Result<Few<&'t Row>, TooLong> {
        let rows = txn.store().table(table);
        self.way = Way::Linear;
        let is_wanted = rows.len() as u64 >= ROWS_MIN || self.searches.is_some();
        let wanted = is_wanted.then(|| {
            let schema = txn.schema().table(table);
            let is_linked = |column| txn.db().has_links && sources::is_linked(schema, column);
            txn.db().keys.wanted(schema, table, condition, is_linked)
        });
        let n_rows = rows.len() as u64;
        self.wanted = wanted.flatten();
        let scanned = self.wanted.filter(|_| n_rows >= ROWS_MIN);
        let scanned = scanned.map(|name| Note::Scanned(name, n_rows));
        if let Err(error) = txn.meter.afford_each(rows.len(), meter::condition(condition)) {
            // Somebody else will: some rows tell how many it would find, about.
            if let Some(note) = scanned {
                let (seem_few, cost) = sources::seem_few(rows, condition);
                txn.meter.spend(cost);
                if seem_few {
                    self.note(note);
                }
            }
            return Err(error);
        }
        self.work.scans += 1;
        self.work.rows_visited += n_rows;
        let found: Few<_> = rows.iter().filter(|row| condition.matches_all(row)).collect();
        if sources::is_few(found.len(), rows) {
            scanned.into_iter().for_each(|note| self.note(note));
        } else {
            self.wanted = None;
        }
        Ok(found)
    }

    /// Keeps what a search says about keys.
    fn note(&mut self, note: Note) {
        keep(&mut self.notes, note);
    }

    /// Takes note that a row was inserted, or changed in `column`.
    pub(crate) fn row_moved(
        &mut self,
        known: (&TableSchema, &Keys),
        table: TableId,
        uuid: Uuid,
        column: Option<ColumnId>,
    ) {
        self.moved.note(known, table, uuid, column);
    }
}

/// Keeps a note, together with those of the same kind about the same key.
fn keep(notes: &mut Vec<Note>, note: Note) {
    for known in &mut *notes {
        match (known, note) {
            (Note::Scanned(name, rows), Note::Scanned(other, more)) if *name == other => {
                return *rows = rows.saturating_add(more);
            }
            (Note::Saved(name, rows), Note::Saved(other, more)) if *name == other => {
                return *rows = rows.saturating_add(more);
            }
            _ => {}
        }
    }
    notes.push(note);
}

fn in_order(mut slots: Few<Slot>) -> Few<Slot> {
    if slots.len() > 1 {
        slots.sort_unstable();
        slots.dedup();
    }
    slots
}

fn matching<'t>(rows: &'t Table, slots: Few<Slot>, condition: &Condition) -> Few<&'t Row> {
    let found = slots.into_iter().filter_map(|slot| rows.at(slot));
    found.filter(|row| condition.matches_all(row)).collect()
}

/// Chooses how to find the rows that satisfy a condition.
fn plan<'c>(condition: &'c Condition, schema: &TableSchema) -> Plan<'c> {
    if condition.clauses.contains(&Clause::Constant(false)) {
        return Plan::Nothing;
    }
    let uuid = bound(condition, schema, ColumnId::UUID).and_then(DatumRef::scalar);
    if let Some(uuid) = uuid.and_then(|atom| atom.as_uuid()) {
        return Plan::Uuid(uuid);
    }
    for (index, columns) in schema.indexes.iter().enumerate() {
        let values = columns.iter().map(|column| bound(condition, schema, *column));
        if let Some(values) = values.collect() {
            return Plan::Index { index, values };
        }
    }
    Plan::Other
}

/// The value that a condition demands of a column.
fn bound<'c>(
    condition: &'c Condition,
    schema: &TableSchema,
    wanted: ColumnId,
) -> Option<DatumRef<'c>> {
    // A scalar that includes a value is that value.
    let is_scalar = schema.column(wanted).ty.is_scalar();
    condition.clauses.iter().find_map(|clause| match clause {
        Clause::Compare { column, function, value } if *column == wanted => match function {
            Function::Equal => Some(value.as_ref()),
            Function::Includes if is_scalar => Some(value.as_ref()),
            _ => None,
        },
        _ => None,
    })
}

//! Searches for committed rows outside any transaction: who looks for them says what came of it, so
//! that keys are judged by these searches, too.

use weir_data::condition::{Clause, Condition};
use weir_data::{Row, TableId, Uuid};

use super::sources::{self, Candidates, Sources};
use super::{in_order, keep};
use crate::database::Database;
use crate::keys::{KeyName, Note, ROWS_MIN};

/// What searches for committed rows have come to, for [`Database::note_searches`].
#[derive(Debug, Default)]
pub struct Searches {
    notes: Vec<Note>,
    found: u64,
    scans: u64,
    /// Candidates that keys have found for the search under way, and the keys.
    candidates: usize,
    keys: Vec<KeyName>,
}

impl Searches {
    /// The committed rows among which all are that satisfy a clause, each at most once, found by keys
    /// or weak references; `None` if only a look at every row tells, or if there are more than `most`.
    /// And how many entries were walked for that. As for [`Database::lookup`], no transaction is under
    /// way.
    pub fn candidates(
        &mut self,
        db: &Database,
        table: TableId,
        clause: &Clause,
        most: usize,
    ) -> (Option<Vec<Uuid>>, u64) {
        let rows = db.store.table(table);
        let condition = Condition { clauses: vec![clause.clone()] };
        let candidates = match Sources::of(db, 0, table, &condition) {
            Sources::None => return (None, 0),
            Sources::Nothing => Candidates::default(),
            Sources::Some(sources) => match sources::choose(&sources, table, rows, most) {
                Err(walked) => return (None, walked),
                Ok(found) => {
                    self.keys
                        .extend(sources[found.source].key().filter(|key| !self.keys.contains(key)));
                    found
                }
            },
        };
        let (walked, numbers) = (candidates.walked, candidates.rows.into_iter());
        let slots = in_order(numbers.flat_map(|number| rows.slots_of_number(number)).collect());
        self.candidates += slots.len();
        let found = slots.into_iter().filter_map(|slot| rows.at(slot)).map(Row::uuid);
        (Some(found.collect()), walked)
    }

    /// The search under way has found its rows among the candidates, or by unique indexes.
    pub fn found(&mut self, db: &Database, table: TableId) {
        self.found += 1;
        let saved = db.store.table(table).len().saturating_sub(self.candidates) as u64;
        for key in std::mem::take(&mut self.keys) {
            keep(&mut self.notes, Note::Saved(key, saved));
        }
        self.candidates = 0;
    }

    /// The search under way has looked at every row of a table, for want of those that satisfy a
    /// clause, if keys can serve such; how many it has found, if that is known. Else some rows tell
    /// how many satisfy the clause, about.
    pub fn scanned(
        &mut self,
        db: &Database,
        table: TableId,
        clause: Option<&Clause>,
        found: Option<usize>,
    ) {
        self.scans += 1;
        (self.candidates, self.keys) = (0, Vec::new());
        let (rows, schema) = (db.store.table(table), db.schema().table(table));
        let n_rows = rows.len() as u64;
        let Some(clause) = clause.filter(|_| n_rows >= ROWS_MIN) else { return };
        let condition = Condition { clauses: vec![clause.clone()] };
        let is_linked = |column| db.has_links && sources::is_linked(schema, column);
        let Some(key) = db.keys.wanted(schema, table, &condition, is_linked) else { return };
        let is_few = match found {
            Some(found) => sources::is_few(found, rows),
            None => sources::seem_few(rows, &condition).0,
        };
        if is_few {
            keep(&mut self.notes, Note::Scanned(key, n_rows));
        }
    }

    /// How many searches indexes and keys have served, and how many have looked at every row.
    pub fn counts(&self) -> (u64, u64) {
        (self.found, self.scans)
    }
}

impl Database {
    /// Takes in what searches have come to since they were begun: which keys pay, and which would.
    pub fn note_searches(&mut self, searches: Searches) {
        let Self { keys, store, position, .. } = self;
        searches.notes.into_iter().for_each(|note| keys.note(note, store, *position));
    }
}

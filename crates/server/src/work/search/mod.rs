//! The log of changes, searched: what changed, when, and who asked for it.
//!
//! 1. The change log has the newest changes. What they are lacks, beside those who asked, only
//!    their date and comment, if the process was started since.
//! 2. If that is wanted, or older changes are, the file is gone through (`file`): it knows neither
//!    ids nor old values by itself, so its records are folded and replayed from the beginning.
//! 3. The newest of what is found is written (`text`), as much as an answer may have.

mod file;
mod text;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use weir_data::{Delta, Error, Schema, TableId, Uuid};
use weir_history::{Chain, Changes};
use weir_log::standalone::Note;

use crate::asked::{Asked, Memory};
pub(crate) use file::File;
pub use file::ReadAt;
use text::Answer;

/// The state that is asked for is none that is known here.
fn unknown_state() -> Error {
    Error::new("unknown transaction", "this server does not know its id")
}

/// Which changes are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Only the transactions behind the state of this id.
    pub(crate) since: Option<Uuid>,
    /// Only the changes of this table.
    pub(crate) table: Option<TableId>,
    /// Only the changes of this row.
    pub(crate) row: Option<Uuid>,
    /// At most so many of the changes, the newest.
    pub(crate) limit: usize,
}

impl Wanted {
    /// Whether a row's changes are among them.
    fn has(&self, table: TableId, row: Uuid) -> bool {
        self.table.is_none_or(|wanted| wanted == table) && self.row.is_none_or(|one| one == row)
    }

    /// Whether all rows' changes are.
    fn has_all(&self) -> bool {
        self.table.is_none() && self.row.is_none()
    }

    fn has_any_of(&self, delta: &Delta) -> bool {
        delta.rows().any(|(table, row, _)| self.has(table, row))
    }
}

/// [`Work::Search`](crate::work::Work::Search)
pub struct Search {
    pub(crate) schema: Arc<Schema>,
    pub(crate) wanted: Wanted,
    /// What the change log has; only what is wanted, if `is_complete`.
    pub(crate) changes: Changes,
    /// The change log has all that happened behind the state that is asked for.
    pub(crate) is_complete: bool,
    /// The state before the changes of the log.
    pub(crate) low_water: Uuid,
    /// The chain behind the last record of the file.
    pub(crate) end: Chain,
    pub(crate) memory: Memory,
    /// The database's file, once the shell has given it; relays have none.
    pub(crate) file: Option<File>,
}

/// The result of a [`Work::Search`](crate::work::Work::Search): JSON text of the changes.
pub struct Found(pub(crate) Result<Vec<u8>, Error>);

/// What is known of a change beside its rows.
struct About<'a> {
    id: Uuid,
    note: Note,
    asked: Option<&'a Asked>,
}

impl Search {
    /// The search in a file of so many bytes, which `read_at` reads.
    #[must_use]
    pub fn in_file(mut self: Box<Self>, len: u64, read_at: ReadAt) -> Box<Self> {
        self.file = Some(File::new(len, read_at));
        self
    }

    /// The newest changes of the log that are wanted, oldest first.
    fn recent(&self) -> VecDeque<(Uuid, Delta)> {
        let mut recent = VecDeque::new();
        for entry in self.changes.deltas(&self.schema) {
            if self.wanted.has_any_of(&entry.delta) {
                if recent.len() == self.wanted.limit {
                    recent.pop_front();
                }
                recent.push_back((entry.id, entry.delta));
            }
        }
        recent
    }

    /// Searches.
    pub(crate) fn run(mut self) -> Result<Vec<u8>, Error> {
        let mut file = self.file.take();
        let recent = self.recent();
        let asked: BTreeMap<Uuid, &Asked> =
            self.memory.asked().map(|asked| (asked.id, &**asked)).collect();
        let mut notes: BTreeMap<Uuid, Note> = self
            .memory
            .dates()
            .map(|(id, date_ms)| (id, Note { date_ms: Some(date_ms), comment: None }))
            .collect();
        let ids = recent.iter().map(|(id, _)| *id);
        let unknown: BTreeSet<Uuid> =
            ids.filter(|id| !asked.contains_key(id) && !notes.contains_key(id)).collect();
        let room = self.wanted.limit - recent.len();
        let looks_back = !self.is_complete && (room > 0 || self.wanted.since.is_some());
        let mut older = Answer::new(room);
        if file.is_none() && !self.is_complete && self.wanted.since.is_some() {
            return Err(unknown_state());
        }
        if let Some(file) = file.as_mut().filter(|_| looks_back || !unknown.is_empty()) {
            let places = self.locate(file, &unknown)?;
            notes.extend(places.notes);
            if looks_back {
                if self.wanted.since.is_some() && places.since.is_none() {
                    return Err(unknown_state());
                }
                self.replay(file, (places.since, places.low_water), &asked, &mut older)?;
            }
        }
        let mut answer = Answer::new(self.wanted.limit);
        for (id, delta) in recent {
            let note = notes.remove(&id).unwrap_or_default();
            let about = About { id, note, asked: asked.get(&id).copied() };
            answer.push(&about, Some(&delta), &self.schema, &self.wanted);
        }
        Ok(answer.behind(older).into_json())
    }

    /// Where the states are in the file that matter, and the notes of changes without one.
    fn locate(&self, file: &mut File, unknown: &BTreeSet<Uuid>) -> Result<file::Places, Error> {
        let states = file::States { since: self.wanted.since, low_water: self.low_water, unknown };
        file.locate(self.end, states).map_err(|error| Error::io(None, error))
    }

    /// Reads the changes that are older than those of the log.
    fn replay(
        &self,
        file: &mut File,
        (since, low_water): (Option<file::Place>, Option<file::Place>),
        asked: &BTreeMap<Uuid, &Asked>,
        older: &mut Answer,
    ) -> Result<(), Error> {
        // What is not in the file has been compacted away: the log reaches further back.
        let Some(last) = low_water else { return Ok(()) };
        let mut first = since.map_or(2, |place| place.number + 1);
        if self.wanted.has_all() {
            first = first.max((last.number + 1).saturating_sub(older.room() as u64));
        }
        let each = &mut |change: file::Replayed<'_>| {
            let file::Replayed { id, delta, note } = change;
            if delta.is_none_or(|delta| self.wanted.has_any_of(delta)) {
                let about = About { id, note, asked: asked.get(&id).copied() };
                older.push(&about, delta, &self.schema, &self.wanted);
            }
        };
        if first <= last.number {
            let replayed = file.replay(self.end, first..=last.number, each);
            replayed.map_err(|error| Error::io(None, error))?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Search {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Search").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

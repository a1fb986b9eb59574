//! Rows that transactions' records are applied to: those of a file.
//!
//! A record is read in one pass into a [`Stage`] and takes effect only when all of it is good.

use std::sync::Arc;

use weir_data::delta::{Change, Delta};
use weir_data::{Error, Row, Schema, Store, TableId, Uuid, UuidSource};
use weir_json::Text;

use crate::standalone::changes::Changes;
use crate::standalone::decode::{Decoder, Present, Reading, Stage, StagedChange, Stop};
use crate::standalone::note::Note;
use crate::standalone::split::Unusual;

/// The rows so far.
#[derive(Debug)]
pub(crate) struct Rows {
    store: Store,
    decoder: Decoder,
    versions: UuidSource,
    /// The rows of the last record, if they are noted.
    noted: Option<Vec<(TableId, Uuid)>>,
    /// What the last record changed, if it was asked for.
    delta: Option<Delta>,
}

impl Rows {
    /// No rows; those of the last record are noted if `notes`.
    pub(crate) fn new(schema: Schema, seed: u64, notes: bool) -> Self {
        let noted = notes.then(Vec::new);
        Self { noted, ..Self::of_store(Store::new(Arc::new(schema), seed), seed) }
    }

    /// The rows of a store.
    pub(crate) fn of_store(store: Store, seed: u64) -> Self {
        let decoder = Decoder::new(store.schema());
        let versions = UuidSource::new([seed, !seed, 0x7765_6972, 1]);
        Self { store, decoder, versions, noted: None, delta: None }
    }

    /// The rows.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// The rows, and which of them the last record was about.
    pub(super) fn last_record(&mut self) -> (&mut Store, &[(TableId, Uuid)]) {
        (&mut self.store, self.noted.as_deref().unwrap_or_default())
    }

    /// What the last record changed, if it was asked for.
    pub(crate) fn take_delta(&mut self) -> Option<Delta> {
        self.delta.take()
    }

    /// As [`Decoder::begin_note`].
    pub(super) fn begin_note(&mut self, is_wanted: bool) {
        self.decoder.begin_note(is_wanted);
    }

    /// As [`Decoder::take_note`].
    pub(super) fn take_note(&mut self) -> Option<Note> {
        self.decoder.take_note()
    }

    /// Whether pieces of a record have come, and not all of them.
    pub(super) fn is_in_pieces(&self) -> bool {
        self.decoder.is_in_pieces()
    }

    pub(crate) fn into_store(self) -> Store {
        self.store
    }

    /// One transaction, all or nothing; `tells` asks for [`Rows::take_delta`].
    pub(crate) fn replay(&mut self, json: Text<'_>, tells: bool) -> Result<(), Error> {
        let result = match self.attempt(json, Reading::Quick, tells) {
            Ok(()) => Ok(()),
            Err(_) => {
                self.decoder.stage.clear();
                self.attempt(json, Reading::Careful, tells)
            }
        };
        self.decoder.stage.clear();
        result.map_err(|stop| stop.into_error(json))
    }

    /// The next bytes of one transaction. An unusual one is to be replayed as a whole.
    pub(crate) fn replay_piece(&mut self, bytes: &[u8]) -> Result<(), Unusual> {
        let mut present = Present { store: &self.store, versions: &mut self.versions };
        self.decoder.read_piece(bytes, &mut present)
    }

    /// All bytes of the transaction have come, and are good; `tells` asks for [`Rows::take_delta`].
    pub(crate) fn finish_pieces(&mut self, tells: bool) -> Result<(), Unusual> {
        self.end_splitting()?;
        if self.decoder.stage.names_twice() {
            return Err(Unusual);
        }
        let made = self.make(Reading::Quick, tells);
        self.decoder.stage.clear();
        made.map_err(|_| Unusual)
    }

    /// The new rows of the pieces so far; they are not kept, and will not be made.
    pub(crate) fn take_new(&mut self) -> impl Iterator<Item = (TableId, Row)> {
        self.decoder.stage.inserts.drain(..)
    }

    /// As [`Rows::finish_pieces`], for who took all rows.
    pub(super) fn end_pieces(&mut self) -> Result<impl Iterator<Item = (TableId, Row)>, Unusual> {
        self.end_splitting()?;
        Ok(self.decoder.stage.inserts.drain(..))
    }

    /// All bytes of the transaction have come; what they leave is still to be taken or made.
    pub(crate) fn end_splitting(&mut self) -> Result<(), Unusual> {
        let mut present = Present { store: &self.store, versions: &mut self.versions };
        self.decoder.end_pieces(&mut present)
    }

    /// Forgets a transaction of which pieces have come.
    pub(crate) fn forget_pieces(&mut self) {
        self.decoder.forget_pieces();
    }

    fn attempt(&mut self, json: Text<'_>, reading: Reading, tells: bool) -> Result<(), Stop> {
        let mut present = Present { store: &self.store, versions: &mut self.versions };
        self.decoder.read_record(json, reading, &mut present)?;
        if reading == Reading::Quick && self.decoder.stage.names_twice() {
            return Err(Stop::Equal);
        }
        self.make(reading, tells)
    }

    /// Makes what has been staged. What a record with equal keys changes is not told: nobody asks
    /// for more than what servers write.
    fn make(&mut self, reading: Reading, tells: bool) -> Result<(), Stop> {
        let mut told = (tells && reading == Reading::Quick).then(Changes::default);
        // First what can still fail.
        for at in 0..self.decoder.stage.inserts.len() {
            let Some((table, row)) = self.decoder.stage.inserts.get(at) else { break };
            let (table, row) = (*table, row.clone());
            if self.store.get(table, row.uuid()).is_some() {
                // One UUID in two spellings.
                if reading == Reading::Quick {
                    self.undo_inserts(at);
                    return Err(Stop::Equal);
                }
                self.store.remove(table, row.uuid());
            }
            self.store.insert(table, row);
        }
        if let Some(told) = &mut told {
            self.decoder.stage.inserts.iter().for_each(|(table, row)| told.insert(*table, row));
        }
        for (table, uuid) in self.decoder.stage.deletes.drain(..) {
            let removed = self.store.remove(table, uuid);
            if let (Some(told), Some((_, row))) = (&mut told, removed) {
                told.delete(table, row);
            }
        }
        self.make_changes(told.as_mut());
        self.delta = told.map(Changes::into_delta);
        if let Some(noted) = &mut self.noted {
            let Stage { touched, inserts, .. } = &self.decoder.stage;
            let inserted = inserts.iter().map(|(table, row)| (*table, row.uuid()));
            noted.clear();
            noted.extend(touched.iter().copied().chain(inserted));
        }
        Ok(())
    }

    fn make_changes(&mut self, mut told: Option<&mut Changes>) {
        let schema = Arc::clone(self.store.schema());
        for StagedChange { table, uuid, column, value, is_diff } in
            self.decoder.stage.changes.drain(..)
        {
            let ty = &schema.table(table).column(column).ty;
            self.store.edit(table, uuid, column, |datum| {
                if let Some(told) = &mut told {
                    let change = if is_diff {
                        Change::of_difference(datum, &value, ty)
                    } else {
                        Change::between(datum, &value, ty)
                    };
                    if let Some(change) = change {
                        told.modify(table, uuid, column, change);
                    }
                }
                if is_diff {
                    datum.apply_diff(&value, ty);
                } else {
                    *datum = value;
                }
            });
        }
    }

    /// Takes back the first `count` staged insertions.
    fn undo_inserts(&mut self, count: usize) {
        for (table, row) in self.decoder.stage.inserts.iter().take(count) {
            self.store.remove(*table, row.uuid());
        }
    }
}

//! The log: two rings, of recorded and of volatile changes, the chain, and from where on each
//! table's changes are there.
//!
//! What is found by a recorded id depends on the recorded ring alone. Volatile changes come back
//! only with the recorded ones of the same places, so a barrier in that ring is one in both.

use std::sync::Arc;

use weir_data::{Ages, Delta, IdKind, Ids, Schema, TableId, Uuid};

use crate::chain::{Chain, Name, RecordHash};
use crate::changes::Changes;
use crate::encode::encode;
use crate::ids::{Place, volatile_id, volatile_place};
use crate::image::Image;
use crate::renumbering::Renumbering;
use crate::ring::{Mark, Ring};

/// The log costs at most as much as the file's snapshot is long, within these limits; what costs
/// more goes, oldest first.
pub const BUDGET_BYTES_MIN: usize = 1 << 20;
/// The upper limit of [`budget_of`].
pub const BUDGET_BYTES_MAX: usize = 16 << 20;

/// The budget of a log beside a file with a snapshot of this length in bytes.
pub fn budget_of(snapshot_len: u64) -> usize {
    let len = usize::try_from(snapshot_len).unwrap_or(usize::MAX);
    len.clamp(BUDGET_BYTES_MIN, BUDGET_BYTES_MAX)
}

/// What the file says of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// What names the state behind it.
    pub name: Name,
    /// Length of the record's body in bytes.
    pub body_len: u64,
    /// Whether Weir wrote the record under the rules of `docs/decisions/012`.
    pub is_marked: bool,
}

/// How much is in the log.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Recorded changes.
    pub changes: usize,
    /// Atoms of the recorded changes: of new and old rows, and of what columns changed to and from.
    pub atoms: usize,
    /// Bytes of memory that the recorded changes take.
    pub bytes: usize,
    /// Bytes of memory that the volatile changes take.
    pub volatile_bytes: usize,
}

/// The change log of a database.
#[derive(Debug)]
pub struct History {
    is_enabled: bool,
    keeps_recorded: bool,
    keeps_volatile: bool,
    nonce: u64,
    chain: Chain,
    place: Place,
    /// How many records there have been, over compactions and restarts.
    records: u64,
    /// By table: the oldest state from which its changes are here, if the rings reach back that far.
    begins: Vec<Place>,
    recorded: Ring,
    volatile: Ring,
    /// Of a disabled log: what the next process finds unless something is written before.
    dormant: Vec<Uuid>,
}

impl History {
    /// A log that keeps nothing yet, behind the record of a schema with `tables` tables; `nonce` is
    /// fresh randomness of the process.
    pub fn new(schema: RecordHash, tables: usize, budget: usize, nonce: u64) -> Self {
        Self::at(Chain::of_schema(schema), Place(0), vec![Place(0); tables], budget, nonce)
    }

    /// The log of a member of a cluster, which keeps what comes behind the state of this id. Members
    /// find what any of them has told: they keep changes before anybody asks for that.
    pub fn of_cluster(state: Uuid, tables: usize, nonce: u64) -> Self {
        let (place, begins) = (Place(0), vec![Place(0); tables]);
        let mut history = Self::at(Chain::of_entry(state), place, begins, BUDGET_BYTES_MAX, nonce);
        history.keep(IdKind::Recorded);
        history
    }

    /// A log that begins here.
    pub(crate) fn at(
        chain: Chain,
        place: Place,
        begins: Vec<Place>,
        budget: usize,
        nonce: u64,
    ) -> Self {
        let budget = budget.min(BUDGET_BYTES_MAX);
        Self {
            is_enabled: true,
            keeps_recorded: false,
            keeps_volatile: false,
            nonce,
            chain,
            place,
            records: 0,
            begins,
            recorded: Ring::new(budget, Mark { place, id: chain.id() }, nonce),
            volatile: Ring::new(budget, Mark { place, id: volatile_id(nonce, place) }, nonce),
            dormant: Vec::new(),
        }
    }

    /// The log of a file that had so many records before.
    pub(crate) fn with_records(self, records: u64) -> Self {
        Self { records, ..self }
    }

    pub(crate) fn recorded_mut(&mut self) -> &mut Ring {
        &mut self.recorded
    }

    /// Whether changes of this kind are kept. Records are to be marked while recorded ones are.
    pub fn is_kept(&self, kind: IdKind) -> bool {
        self.is_enabled
            && match kind {
                IdKind::Recorded => self.keeps_recorded,
                IdKind::Volatile => self.keeps_volatile,
            }
    }

    /// Keeps changes of this kind from now on; those that are kept already stay. Who keeps volatile
    /// changes keeps recorded ones. A disabled log keeps nothing.
    pub fn keep(&mut self, kind: IdKind) {
        if self.is_enabled {
            self.keeps_recorded = true;
            self.keeps_volatile |= kind == IdKind::Volatile;
        }
    }

    /// Forgets all changes, and gives no ids any more (`--no-standalone-history`).
    pub fn disable(&mut self) {
        (self.is_enabled, self.keeps_recorded, self.keeps_volatile) = (false, false, false);
        self.dormant = self.recorded.ids();
        self.begin();
    }

    /// Gives ids again, from here on. Nothing is kept before somebody asks for that.
    pub fn enable(&mut self) {
        (self.is_enabled, self.dormant) = (true, Vec::new());
    }

    /// Whether an id that a disabled log does not find may be found by the next process: nothing has
    /// been written that would keep it from that.
    pub fn is_dormant(&self, id: Uuid) -> bool {
        self.dormant.contains(&id)
    }

    /// Whether states have ids.
    pub fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    /// A change has been written, or, without a record, has changed columns only that are in no
    /// record. Nothing before it is found any more if its record is not marked, or if `delta` is
    /// `None`, because a loader has not taken the record apart.
    pub fn push(&mut self, delta: Option<&Delta>, schema: &Schema, record: Option<Record>) {
        self.place.0 += 1;
        if let Some(record) = record {
            self.chain = self.chain.behind(record.name);
            self.records += 1;
        }
        let is_kept = self.is_enabled && record.is_none_or(|record| record.is_marked);
        let Some(delta) = delta.filter(|_| is_kept) else {
            if record.is_some() {
                self.dormant = Vec::new();
                return self.begin();
            }
            return self.volatile.begin(self.volatile_mark());
        };
        // Most changes have nothing volatile, and are not gone over for that.
        let mut may_be_volatile = true;
        if let Some(record) = record {
            let write = |out: &mut Vec<u8>, len_max| {
                let written = encode(out, delta, schema, IdKind::Recorded, len_max)?;
                may_be_volatile = written.may_be_volatile;
                Ok(written.atoms)
            };
            self.recorded.push(self.recorded_mark(), Some(record.body_len), write);
        }
        if !self.keeps_volatile {
            self.volatile.begin(self.volatile_mark());
        } else if may_be_volatile {
            let write = |out: &mut Vec<u8>, len_max| {
                encode(out, delta, schema, IdKind::Volatile, len_max).map(|written| written.atoms)
            };
            self.volatile.push(self.volatile_mark(), None, write);
        }
    }

    /// Forgets all changes so far.
    fn begin(&mut self) {
        self.recorded.begin(self.recorded_mark());
        self.volatile.begin(self.volatile_mark());
    }

    fn recorded_mark(&self) -> Mark {
        Mark { place: self.place, id: self.chain.id() }
    }

    fn volatile_mark(&self) -> Mark {
        Mark { place: self.place, id: volatile_id(self.nonce, self.place) }
    }

    /// The ids of the state now; zero while the log is disabled.
    pub fn ids(&self) -> Ids {
        if !self.is_enabled {
            return Ids::default();
        }
        Ids { recorded: self.chain.id(), volatile: volatile_id(self.nonce, self.place) }
    }

    /// How often the states that clients have been told have grown older, each time by a quarter of
    /// the budget. What was told two ages ago is about to leave the log.
    pub fn ages(&self) -> Ages {
        let recorded = self.recorded.age();
        // What is found by a volatile id is in both.
        Ages { recorded, volatile: recorded + self.volatile.age() }
    }

    /// The chain behind the last record.
    pub fn chain(&self) -> Chain {
        self.chain
    }

    /// All recorded changes that are here; they are those behind [`History::low_water`].
    pub fn all(&self) -> Changes {
        let place = self.recorded.low_water().place;
        Changes::new(self.recorded.since(place), Vec::new(), IdKind::Recorded, self.nonce)
    }

    /// How many records there have been, the schema's aside: a number that only grows, over
    /// compactions, conversions and restarts, as long as the side file is there.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// How many changes have been pushed.
    pub fn place(&self) -> Place {
        self.place
    }

    /// The state that an id names, if all changes since to these tables are here.
    pub fn find(
        &self,
        id: Uuid,
        kind: IdKind,
        mut tables: impl Iterator<Item = TableId>,
    ) -> Option<Place> {
        if !self.is_enabled {
            return None;
        }
        let place = match kind {
            IdKind::Recorded => self.recorded.find(id)?,
            IdKind::Volatile => volatile_place(self.nonce, id)?,
        };
        let begins = |table: TableId| self.begins.get(table.index());
        let is_here = |table| begins(table).is_some_and(|begin| *begin <= place);
        (self.has_since(place, kind) && tables.all(is_here)).then_some(place)
    }

    /// The recorded state that an id names, if all changes since to any table are here, or at least the ids of the states
    /// since: so many are kept for longer than their changes.
    pub fn find_state(&self, id: Uuid) -> Option<Place> {
        let past = || self.recorded.find_past(id).filter(|_| self.is_enabled);
        self.find(id, IdKind::Recorded, std::iter::empty()).or_else(past)
    }

    fn has_since(&self, place: Place, kind: IdKind) -> bool {
        self.is_enabled
            && place <= self.place
            && place >= self.recorded.low_water().place
            && (kind == IdKind::Recorded || place >= self.volatile.low_water().place)
    }

    /// The changes behind a place that was found; nothing if they are not all here any more. Costs
    /// no more than a copy of the chunk that is not full.
    pub fn since(&self, place: Place, kind: IdKind) -> Option<Changes> {
        if !self.has_since(place, kind) {
            return None;
        }
        let volatile = match kind {
            IdKind::Recorded => Vec::new(),
            IdKind::Volatile => self.volatile.since(place),
        };
        Some(Changes::new(self.recorded.since(place), volatile, kind, self.nonce))
    }

    /// Keeps the recorded changes behind this place for who reads them, within [`PINNED_BYTES_MAX`]: an id is
    /// found for no longer than before. `None` lets them go.
    ///
    /// [`PINNED_BYTES_MAX`]: crate::PINNED_BYTES_MAX
    pub fn pin(&mut self, place: Option<Place>) {
        self.recorded.pin(place);
    }

    /// Whether [`History::since_pinned`] has the changes behind a place.
    pub fn reaches(&self, place: Place) -> bool {
        self.is_enabled && place <= self.place && self.recorded.reaches(place)
    }

    /// The recorded changes behind a place, be they in the log or kept for who is there ([`History::pin`]).
    pub fn since_pinned(&self, place: Place) -> Option<Changes> {
        let recorded = self.reaches(place).then(|| self.recorded.since_pinned(place))?;
        Some(Changes::new(recorded, Vec::new(), IdKind::Recorded, self.nonce))
    }

    /// The oldest recorded id that is found, but for tables that have been converted since; zero
    /// while the log is disabled.
    pub fn low_water(&self) -> Uuid {
        if self.is_enabled { self.recorded.low_water().id } else { Uuid::ZERO }
    }

    /// How much is in the log.
    pub fn counts(&self) -> Counts {
        Counts {
            changes: self.recorded.len(),
            atoms: usize::try_from(self.recorded.atoms()).unwrap_or(usize::MAX),
            bytes: self.recorded.bytes(),
            volatile_bytes: self.volatile.bytes(),
        }
    }

    /// The records so far count no longer: a file is being written that does not have them.
    pub fn forget_records(&mut self) {
        self.records = 0;
    }

    /// What a side file is made of, at this place, for a file that is being written. Until its
    /// budget is known ([`History::set_budget`], [`History::convert`]) nothing goes that it might
    /// keep: a process that reads that file must find nothing that this one refused.
    pub fn image(&mut self) -> Image {
        self.recorded.suspend_budget();
        let low_water = self.recorded.low_water();
        Image {
            is_kept: self.is_kept(IdKind::Recorded),
            chain: self.chain,
            place: self.place,
            records: self.records,
            low_water,
            begins: self.begins.clone(),
            parts: self.recorded.since(low_water.place),
        }
    }

    /// The file was replaced by one with a snapshot of another size, or that failed, and the old
    /// budget holds again.
    pub fn set_budget(&mut self, budget: usize) {
        let budget = budget.min(BUDGET_BYTES_MAX);
        self.recorded.set_budget(budget);
        self.volatile.set_budget(budget);
    }

    /// The database has been converted: a change of its own, with an empty delta. Tables for which
    /// `target` has a number go on under that: their rows are untouched, and their columns, which of
    /// them are kept in files included. For the others of the `tables` the log begins here. `chain`
    /// is that behind the last record of the new file.
    pub fn convert(
        &mut self,
        target: &dyn Fn(TableId) -> Option<TableId>,
        tables: usize,
        chain: Chain,
        budget: usize,
    ) {
        self.place.0 += 1;
        self.records += 1;
        self.chain = chain;
        let renumbering = Renumbering::of(target, self.begins.len());
        self.begins = renumbering.begins(&self.begins, tables, self.place);
        if self.is_kept(IdKind::Recorded) {
            if !renumbering.is_identity() {
                let renumbering = Arc::new(renumbering);
                self.recorded.renumber(&renumbering);
                self.volatile.renumber(&renumbering);
            }
            self.recorded.push(self.recorded_mark(), Some(0), |_, _| Ok(0));
        } else {
            self.recorded.begin(self.recorded_mark());
        }
        if !self.keeps_volatile {
            self.volatile.begin(self.volatile_mark());
        }
        self.set_budget(budget);
    }
}

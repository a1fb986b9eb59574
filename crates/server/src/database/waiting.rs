//! Transactions that wait, and which of them a change concerns.
//!
//! 1. A transaction that waits is filed under what it has looked at (`weir_engine::reads`): tables,
//!    columns of them, the rows that have a value.
//! 2. A change wakes those that are filed under anything of it, and time those whose deadline has
//!    come. Nobody else has anything to gain from running again.
//!    A change that concerns very many wakes the first of them; the others wake in slices.
//! 3. Those that are awake run in order of arrival, from where the last one stood to the end and
//!    then from the beginning, as far as a step goes. One that waits again has its old place.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;

use weir_data::delta::TableDelta;
use weir_data::{ColumnId, Delta, Store, TableId};
use weir_engine::Reads;
use weir_engine::reads::{ColumnSet, Read, ValueHasher};

use crate::database::trigger::Trigger;
use crate::ids::SessionId;
use crate::origin::{Asker, Origin};
use crate::session::limits::OVERHEAD_BYTES;

/// Looking so many rows up is dearer than running one transaction in vain.
const ROWS_EACH: usize = 8;

/// Most rows that are looked up for one change, by the value of a column each; beyond it, who waits
/// for any value of a column is woken.
const LOOKUPS_MAX: usize = 1 << 14;

/// Most shelves that are gone through at a time; the next are for the next slice.
const SHELVES_EACH: usize = 1 << 10;

/// What that costs a slice for each of them, in units of about 50 ns.
const SHELF_COST: u64 = 5;

/// So many times as many are added one by one.
const FEW_SHARE: usize = 16;

/// Most transactions of sessions that have left that are taken out in a step.
const SWEPT_MAX: usize = 1 << 10;

/// A transaction's number among those that wait, in order of arrival.
type Place = u64;

/// What transactions are filed under; neighbors belong to one table, and to one column of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Shelf {
    table: TableId,
    /// The number of the value that this column has in the rows; `None` for all rows.
    value: Option<(ColumnId, u64)>,
    columns: ColumnSet,
}

impl Shelf {
    /// All shelves of a table's rows, or of those with a value.
    fn all(table: TableId, value: Option<(ColumnId, u64)>) -> RangeInclusive<Self> {
        Self { table, value, columns: ColumnSet::default() }..=Self {
            table,
            value,
            columns: ColumnSet::ALL,
        }
    }

    /// All shelves for a column's values.
    fn of_column(table: TableId, column: ColumnId) -> RangeInclusive<Self> {
        let end = |value, columns| Self { table, value: Some((column, value)), columns };
        end(0, ColumnSet::default())..=end(u64::MAX, ColumnSet::ALL)
    }
}

/// Shelves that are to be gone through for a change of these columns.
#[derive(Debug)]
struct Stretch {
    shelves: RangeInclusive<Shelf>,
    changed: ColumnSet,
}

/// When a database was as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    /// How often others have taken the place of its tables.
    replaced: u64,
    position: u64,
}

/// Transactions that wait.
#[derive(Debug)]
pub(crate) struct Waiting {
    triggers: BTreeMap<Place, (Trigger, Reads)>,
    /// The place of the next to come.
    next: Place,
    /// Who is woken when, in µs.
    alarms: BTreeSet<(u64, Place)>,
    sessions: BTreeMap<SessionId, OfSession>,
    /// The waits of sessions that have left, to be taken out in steps.
    gone: Vec<BTreeSet<(Vec<u8>, Place)>>,
    /// How many of these are still among the others.
    gone_len: usize,
    /// What is kept for all of them.
    bytes: usize,
    shelves: BTreeMap<Shelf, BTreeSet<Place>>,
    /// Who is woken by every change.
    by_all: BTreeSet<Place>,
    /// Who may run only from then on, in µs, unless its deadline is before.
    resting: BTreeMap<Place, u64>,
    /// Who is to run.
    awake: BTreeSet<Place>,
    /// Where others are filed who are to run: a change may concern more than a step can wake.
    to_wake: VecDeque<Stretch>,
    /// Behind the one that ran last; 0 once all that were awake have run.
    cursor: Place,
    /// The position at which each table was last changed.
    changed: Vec<u64>,
    /// How often others have taken the place of the tables.
    replaced: u64,
    hasher: ValueHasher,
    /// What those that ran have cost in this round.
    pub(super) cost: u64,
    /// How many have run again so far.
    ran: u64,
}

/// The waiting transactions of one session.
#[derive(Debug, Default)]
struct OfSession {
    /// By the ids of the requests, as JSON text.
    places: BTreeSet<(Vec<u8>, Place)>,
    /// What is kept for them.
    bytes: usize,
}

impl Waiting {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            triggers: BTreeMap::new(),
            next: 1,
            alarms: BTreeSet::new(),
            sessions: BTreeMap::new(),
            gone: Vec::new(),
            gone_len: 0,
            bytes: 0,
            shelves: BTreeMap::new(),
            by_all: BTreeSet::new(),
            resting: BTreeMap::new(),
            awake: BTreeSet::new(),
            to_wake: VecDeque::new(),
            cursor: 0,
            changed: Vec::new(),
            replaced: 0,
            hasher: ValueHasher::new(seed),
            cost: 0,
            ran: 0,
        }
    }

    /// A transaction waits until something of `reads` changes, which it has seen as it was `since`
    /// then, or until its deadline. True if it has not waited before.
    pub(super) fn push(
        &mut self,
        mut trigger: Trigger,
        mut reads: Reads,
        since: Option<Moment>,
    ) -> bool {
        let is_late = since.is_some_and(|since| self.has_changed(&reads, since));
        if since.is_some_and(|since| since.replaced != self.replaced) {
            // Here are other tables than it has looked at.
            reads = Reads::default();
        }
        let is_new = trigger.place.is_none();
        let place = *trigger.place.get_or_insert(self.next);
        self.next = self.next.max(place + 1);
        if let Some(at) = trigger.deadline_us {
            self.alarms.insert((at, place));
        }
        let Asker::Session(session) = trigger.origin.asker else {
            panic!("the server's own transactions do not wait")
        };
        if let Some(at) = trigger.rest_us {
            self.resting.insert(place, at);
        }
        let of_session = self.sessions.entry(session).or_default();
        of_session.places.insert((trigger.origin.id.clone(), place));
        of_session.bytes += kept_bytes(&trigger);
        self.bytes += kept_bytes(&trigger);
        if reads.asserts {
            self.by_all.insert(place);
        }
        for shelf in shelves(&reads, &self.hasher) {
            self.shelves.entry(shelf).or_default().insert(place);
        }
        self.triggers.insert(place, (trigger, reads));
        if is_late {
            self.wake_each(|_| BTreeSet::from([place]));
        }
        is_new
    }

    /// Takes out a transaction, unless its session has left: then nobody wants it.
    fn remove(&mut self, place: Place) -> Option<Trigger> {
        let (trigger, reads) = self.triggers.remove(&place)?;
        self.awake.remove(&place);
        for at in trigger.deadline_us.into_iter().chain(self.resting.remove(&place)) {
            self.alarms.remove(&(at, place));
        }
        if reads.asserts {
            self.by_all.remove(&place);
        }
        for shelf in shelves(&reads, &self.hasher) {
            // Who has been woken is not there any more.
            if let Some(places) = self.shelves.get_mut(&shelf) {
                places.remove(&place);
                if places.is_empty() {
                    self.shelves.remove(&shelf);
                }
            }
        }
        let session = trigger.origin.session().expect("only sessions' transactions wait");
        let Some(of_session) = self.sessions.get_mut(&session) else {
            self.gone_len -= 1;
            return None;
        };
        of_session.places.remove(&(trigger.origin.id.clone(), place));
        of_session.bytes -= kept_bytes(&trigger);
        self.bytes -= kept_bytes(&trigger);
        if of_session.places.is_empty() {
            self.sessions.remove(&session);
        }
        Some(trigger)
    }

    /// Takes out who is to run next. `None` if that takes more than a step, too: who is awake stays so.
    pub(super) fn next(&mut self, now_us: u64) -> Option<Trigger> {
        for _ in 0..SWEPT_MAX {
            let place = self.next_awake(now_us)?;
            // Whose session has left does not run.
            if let Some(trigger) = self.remove(place) {
                self.ran += 1;
                return Some(trigger);
            }
        }
        None
    }

    fn next_awake(&mut self, now_us: u64) -> Option<Place> {
        while let Some(&(at, place)) = self.alarms.first().filter(|(at, _)| *at <= now_us) {
            self.alarms.remove(&(at, place));
            self.awake.insert(place);
        }
        self.wake_more();
        let behind = self.awake.range(self.cursor..).next();
        let Some(place) = behind.or_else(|| self.awake.first()).copied() else {
            self.cursor = 0;
            return None;
        };
        self.cursor = place + 1;
        Some(place)
    }

    /// Tables have changed; `store` has them as they are now, `position` is the database's.
    pub(super) fn note_change(&mut self, delta: &Delta, store: &Store, position: u64) {
        for table in &delta.tables {
            let index = table.table.index();
            if index >= self.changed.len() {
                self.changed.resize(index + 1, 0);
            }
            self.changed[index] = position;
        }
        if self.triggers.is_empty() {
            return;
        }
        self.wake_each(|waiting| std::mem::take(&mut waiting.by_all));
        let (mut lookups, mut shelves) = (LOOKUPS_MAX, SHELVES_EACH);
        for table in &delta.tables {
            self.note_table(table, store, &mut lookups, &mut shelves);
        }
    }

    /// A table has changed: wakes whom that concerns, as far as so many lookups and shelves go.
    fn note_table(
        &mut self,
        delta: &TableDelta,
        store: &Store,
        lookups: &mut usize,
        shelves: &mut usize,
    ) {
        let (table, rows) = (delta.table, delta.rows.len());
        let changed =
            delta.rows.iter().map(|(_, row)| ColumnSet::changed(row)).reduce(ColumnSet::or);
        self.wake_shelves(Shelf::all(table, None), changed.unwrap_or_default(), shelves);
        let mut columns = self.next_column(table, None);
        while let Some(column) = columns {
            if rows > *lookups || rows > ROWS_EACH * self.triggers.len() {
                self.wake_shelves(Shelf::of_column(table, column), ColumnSet::ALL, shelves);
            } else {
                *lookups -= rows;
                let values: Vec<_> = self.hasher.changed(delta, column, store).collect();
                for (value, changed) in values {
                    self.wake_shelves(Shelf::all(table, Some((column, value))), changed, shelves);
                }
            }
            columns = self.next_column(table, Some(column));
        }
    }

    /// Wakes more of those whom changes concern.
    fn wake_more(&mut self) {
        let mut left = SHELVES_EACH;
        while left > 0
            && let Some(Stretch { shelves, changed }) = self.to_wake.pop_front()
        {
            self.wake_shelves(shelves, changed, &mut left);
            self.cost += SHELF_COST;
        }
        self.cost += SHELF_COST * (SHELVES_EACH - left) as u64;
    }

    /// The first column behind another whose values somebody waits for.
    fn next_column(&self, table: TableId, behind: Option<ColumnId>) -> Option<ColumnId> {
        let first = ColumnId(behind.map_or(0, |column| column.0 + 1));
        let begin = Shelf { table, value: Some((first, 0)), columns: ColumnSet::default() };
        let (shelf, _) = self.shelves.range(begin..).next()?;
        shelf.value.filter(|_| shelf.table == table).map(|(column, _)| column)
    }

    /// Wakes who is filed there and looks at one of these columns. No more than `left` shelves are
    /// gone through; those behind them are for later.
    fn wake_shelves(&mut self, range: RangeInclusive<Shelf>, changed: ColumnSet, left: &mut usize) {
        let end = *range.end();
        let mut concerned = Vec::new();
        for (&shelf, _) in self.shelves.range(range) {
            if *left == 0 {
                self.to_wake.push_back(Stretch { shelves: shelf..=end, changed });
                break;
            }
            *left -= 1;
            if shelf.columns.intersects(changed) {
                concerned.push(shelf);
            }
        }
        for shelf in concerned {
            self.wake_each(|waiting| waiting.shelves.remove(&shelf).unwrap_or_default());
        }
    }

    /// Wakes all that `take` takes from where they are filed.
    fn wake_each(&mut self, take: impl FnOnce(&mut Self) -> BTreeSet<Place>) {
        let mut places = take(self);
        // A long one rests before it runs again.
        let Self { resting, alarms, .. } = self;
        if places.len() < resting.len() {
            places.retain(|place| match resting.get(place) {
                Some(at) => {
                    alarms.insert((*at, *place));
                    false
                }
                None => true,
            });
        } else {
            let woken = resting.iter().filter(|(place, _)| places.remove(place));
            alarms.extend(woken.map(|(place, at)| (*at, *place)));
        }
        if places.len() * FEW_SHARE < self.awake.len() {
            self.awake.extend(places);
        } else {
            self.awake.append(&mut places);
        }
    }

    /// All run again, whatever they wait for.
    pub(super) fn wake_all(&mut self) {
        self.to_wake.clear();
        self.awake.extend(self.triggers.keys());
    }

    /// The newest changes were undone: the database is as it was at this position.
    pub(super) fn note_undone(&mut self, position: u64) {
        self.changed.iter_mut().for_each(|changed| *changed = position.min(*changed));
        self.wake_all();
    }

    /// Others have taken the place of the tables.
    pub(super) fn note_replaced(&mut self) {
        self.replaced += 1;
        self.changed.clear();
        self.wake_all();
    }

    /// The database as it is at this position.
    pub(super) fn moment(&self, position: u64) -> Moment {
        Moment { replaced: self.replaced, position }
    }

    /// Whether anything of that has changed since.
    fn has_changed(&self, reads: &Reads, since: Moment) -> bool {
        let is_newer = |position: &u64| *position > since.position;
        let position = |read: &Read| self.changed.get(read.table.index());
        self.replaced != since.replaced
            || reads.rows.iter().filter_map(position).any(is_newer)
            || reads.asserts && self.changed.iter().any(is_newer)
    }

    /// All transactions that wait, in order of arrival.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Trigger> {
        let triggers = self.triggers.values().map(|(trigger, _)| trigger);
        triggers.filter(|trigger| {
            trigger.origin.session().is_some_and(|session| self.sessions.contains_key(&session))
        })
    }

    /// Takes out all transactions that wait.
    pub(super) fn take(&mut self) -> Vec<Trigger> {
        let places: Vec<Place> = self.triggers.keys().copied().collect();
        places.into_iter().filter_map(|place| self.remove(place)).collect()
    }

    /// A session has left: none of its transactions runs any more. They are taken out in steps, for they
    /// may be very many.
    pub(super) fn forget(&mut self, session: SessionId) {
        let Some(OfSession { places, bytes }) = self.sessions.remove(&session) else { return };
        self.bytes -= bytes;
        self.gone_len += places.len();
        self.gone.push(places);
    }

    /// Whether anything is left of sessions that have left.
    pub(super) fn is_to_be_swept(&self) -> bool {
        !self.gone.is_empty()
    }

    /// Takes out what is left of sessions that have left, as much as a step may.
    pub(super) fn sweep(&mut self) {
        for _ in 0..SWEPT_MAX {
            let Some(places) = self.gone.last_mut() else { return };
            match places.pop_first() {
                // It may have been awake, and have been passed over.
                Some((_, place)) => drop(self.remove(place)),
                None => drop(self.gone.pop()),
            }
        }
    }

    /// Takes out the transaction of a session whose request has this id.
    pub(super) fn take_request(&mut self, session: SessionId, id: &[u8]) -> Option<Trigger> {
        let place = self.sessions.get(&session)?.place(id)?;
        self.remove(place)
    }

    /// Whether a request of this session with this id is among them.
    pub(super) fn has(&self, origin: &Origin) -> bool {
        let of_session = origin.session().and_then(|session| self.sessions.get(&session));
        of_session.is_some_and(|of_session| of_session.place(&origin.id).is_some())
    }

    /// What is kept for the requests of a session, in bytes.
    pub(super) fn kept_bytes(&self, session: SessionId) -> usize {
        self.sessions.get(&session).map_or(0, |session| session.bytes)
    }

    /// What is kept for the requests of all sessions, in bytes.
    pub(super) fn all_kept_bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.triggers.len() - self.gone_len
    }

    /// How many transactions have run again so far.
    pub(super) fn ran(&self) -> u64 {
        self.ran
    }

    /// When somebody is to run: 0 for now.
    pub(super) fn wakeup_us(&self) -> Option<u64> {
        if self.awake.is_empty() && self.to_wake.is_empty() {
            self.alarms.first().map(|(at, _)| *at)
        } else {
            Some(0)
        }
    }
}

impl OfSession {
    fn place(&self, id: &[u8]) -> Option<Place> {
        let begin = (id.to_vec(), 0);
        let (found, place) = self.places.range(begin..).next()?;
        (found == id).then_some(*place)
    }
}

fn shelves(reads: &Reads, hasher: &ValueHasher) -> impl Iterator<Item = Shelf> {
    reads.rows.iter().map(|read| {
        let value = read.value.as_ref();
        let value = value.map(|(column, value)| (*column, hasher.hash(value.as_ref())));
        Shelf { table: read.table, value, columns: read.columns }
    })
}

/// What a transaction that waits occupies: its message, its id twice, and its places in lists.
pub(crate) fn kept_bytes(trigger: &Trigger) -> usize {
    trigger.message.len() + 2 * trigger.origin.id.len() + OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weir_data::{Atom, Datum, Row, RowDelta, Schema, Uuid};
    use weir_json::TextBuf;

    use super::*;
    use crate::ids::DbId;

    const TABLE: TableId = TableId(0);

    /// So many transactions, each of which waits for a row of its own.
    fn waiting(count: u128) -> (Waiting, Store) {
        let schema = br#"{"name":"D","version":"1.0.0","tables":{"T":{"columns":{"n":{"type":"integer"}}}}}"#;
        let schema = Schema::parse_bytes(schema).expect("a schema");
        let mut waiting = Waiting::new(7);
        for n in 0..count {
            let asker = Asker::Session(SessionId(1));
            let id = n.to_string().into_bytes();
            let (identity, db, created_us) = (Arc::default(), DbId(1), 0);
            let eid = Uuid::ZERO;
            let origin =
                Origin { asker, identity, id, db, place: Default::default(), created_us, eid };
            let trigger = Trigger::new(origin, Arc::new(TextBuf::default()));
            let value = Datum::One(Atom::Uuid(Uuid::from_u128(n)));
            let value = Some((ColumnId::UUID, value));
            let rows = vec![Read { table: TABLE, columns: ColumnSet::ALL, value }];
            waiting.push(trigger, Reads { rows, asserts: false }, None);
        }
        (waiting, Store::new(Arc::new(schema), 7))
    }

    /// A change inserts rows with these numbers for UUIDs.
    fn insert(waiting: &mut Waiting, store: &Store, rows: impl Iterator<Item = u128>) {
        let schema = store.schema().table(TABLE);
        let row = |n| {
            let uuid = Uuid::from_u128(n);
            (uuid, RowDelta::Insert(Row::new(uuid, uuid, schema)))
        };
        let tables = vec![TableDelta { table: TABLE, rows: rows.map(row).collect() }];
        waiting.note_change(&Delta { tables }, store, 1);
    }

    /// Lets all run that are awake; how many there were, and the most that woke at once.
    fn run(waiting: &mut Waiting) -> (usize, usize) {
        let (mut ran, mut most) = (0, waiting.awake.len());
        while waiting.wakeup_us() == Some(0) {
            let before = waiting.awake.len();
            ran += usize::from(waiting.next(0).is_some());
            most = most.max((waiting.awake.len() + 1).saturating_sub(before));
        }
        (ran, most)
    }

    #[test]
    fn who_is_concerned_wakes_in_slices() {
        let count = 5 * SHELVES_EACH;
        let (mut waiting, store) = waiting(count as u128);
        insert(&mut waiting, &store, 0..count as u128 - 7);
        let (ran, most) = run(&mut waiting);
        assert_eq!((ran, waiting.len()), (count - 7, 7));
        assert!(most <= SHELVES_EACH, "{most}");
        let (before, slices) = (waiting.cost, 4);
        assert!(before >= SHELF_COST * slices * SHELVES_EACH as u64, "{before}");
    }

    /// Nothing of a session that has left runs, and it is not taken out in one go.
    #[test]
    fn what_a_session_that_left_has_waiting_is_taken_out_in_steps() {
        let count = 5 * SWEPT_MAX;
        let (mut waiting, store) = waiting(count as u128);
        waiting.forget(SessionId(1));
        assert_eq!((waiting.len(), waiting.all_kept_bytes()), (0, 0));
        assert_eq!((waiting.triggers.len(), waiting.iter().count()), (count, 0));
        waiting.sweep();
        assert_eq!(waiting.triggers.len(), count - SWEPT_MAX);
        // Some are woken all the same.
        insert(&mut waiting, &store, 0..count as u128);
        assert_eq!(run(&mut waiting).0, 0);
        let mut steps = 0;
        while waiting.is_to_be_swept() {
            waiting.sweep();
            steps += 1;
        }
        assert!((4..=5).contains(&steps), "{steps}");
        assert!(waiting.triggers.is_empty() && waiting.shelves.is_empty());
        assert_eq!((waiting.gone_len, waiting.len()), (0, 0));
    }

    #[test]
    fn where_more_has_changed_than_is_looked_up_all_wake() {
        let n_waits = LOOKUPS_MAX / ROWS_EACH + 1;
        for (rows, expected) in [(LOOKUPS_MAX, 1), (LOOKUPS_MAX + 1, n_waits)] {
            let (mut waiting, store) = waiting(n_waits as u128);
            let behind = n_waits as u128 - 1;
            insert(&mut waiting, &store, behind..behind + rows as u128);
            let (ran, most) = run(&mut waiting);
            assert_eq!(ran, expected, "{rows} rows");
            assert!(most <= SHELVES_EACH, "{most}");
            assert_eq!(waiting.wakeup_us(), None);
        }
    }
}

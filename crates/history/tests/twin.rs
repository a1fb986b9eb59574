//! A log against a dumb twin that keeps every state and every cost: random transactions, records of
//! others, volatile changes, compactions that fail and do not, conversions, and restarts, from the
//! file as it is at that moment.

mod world;

use std::collections::{BTreeMap, BTreeSet};

use weir_data::{ColumnId, Delta, IdKind, RowDelta, Schema, TableId, Uuid};
use weir_history::{BUDGET_BYTES_MAX, Binding, Chain, Counts, History, Image, Name, Place, Record};

use world::{Random, Rows, apply, delta_between, recorded, schema, target};

/// Length of what is before an entry, and its cost beside its length.
const HEADER_LEN: usize = 32;
const COST: usize = 64;

/// A state that somebody may come back with.
struct State {
    recorded: Uuid,
    volatile: Uuid,
    rows: Rows,
    /// What the change that made it costs in each ring.
    costs: [usize; 2],
}

/// What a file has, from which a process may start.
#[derive(Clone)]
struct File {
    side_file: Option<Vec<u8>>,
    binding: Binding,
    budget: usize,
    records: Vec<(Record, Delta)>,
}

struct World {
    random: Random,
    log: History,
    is_other: bool,
    rows: Rows,
    states: Vec<State>,
    /// The oldest states that the twin finds, of each kind.
    low: [usize; 2],
    begins: BTreeMap<String, usize>,
    budget: usize,
    file: File,
    /// A file that is being written, from which a process will start if it is complete.
    next: Option<File>,
    found: usize,
    refused: usize,
}

fn binding(random: &mut Random) -> Binding {
    Binding { schema: random.hash(), snapshot: random.hash() }
}

impl World {
    fn new(seed: u64, budget: usize) -> Self {
        let mut random = Random::new(seed);
        let binding = binding(&mut random);
        let log = History::new(binding.schema, 3, budget, seed);
        let file = File { side_file: None, binding, budget, records: Vec::new() };
        let begins = schema(false).tables.iter().map(|table| (table.name.clone(), 0)).collect();
        let mut world = Self {
            random,
            log,
            is_other: false,
            rows: Rows::new(),
            states: Vec::new(),
            low: [0; 2],
            begins,
            budget,
            file,
            next: None,
            found: 0,
            refused: 0,
        };
        world.note([0; 2]);
        world
    }

    fn schema(&self) -> Schema {
        schema(self.is_other)
    }

    /// The twin takes down a state.
    fn note(&mut self, costs: [usize; 2]) {
        let ids = self.log.ids();
        let (recorded, volatile) = (ids.recorded, ids.volatile);
        self.states.push(State { recorded, volatile, rows: self.rows.clone(), costs });
        self.trim();
    }

    fn trim(&mut self) {
        // Volatile changes are of no use to a file that is being written.
        let budgets =
            [if self.next.is_some() { BUDGET_BYTES_MAX } else { self.budget }, self.budget];
        for (kind, budget) in budgets.into_iter().enumerate() {
            let cost = |from: usize| -> usize {
                self.states[from + 1..].iter().map(|state| state.costs[kind]).sum()
            };
            while cost(self.low[kind]) > budget {
                self.low[kind] += 1;
            }
        }
    }

    /// What entries cost, as a log that has nothing else says.
    fn costs(&self, delta: &Delta, record: Option<Record>) -> [usize; 2] {
        let counts = |kind| {
            let mut log = History::new([0; 20], 0, BUDGET_BYTES_MAX, 0);
            log.keep(kind);
            log.push(Some(delta), &self.schema(), record);
            log.counts()
        };
        let len = |bytes: usize| bytes.checked_sub(HEADER_LEN);
        let encoded = len(counts(IdKind::Recorded).bytes);
        let of_record = |record: Record| encoded.unwrap().max(record.body_len as usize) + COST;
        let is_kept = self.log.is_kept(IdKind::Volatile);
        let volatile = len(counts(IdKind::Volatile).volatile_bytes).filter(|_| is_kept);
        [record.map_or(0, of_record), volatile.map_or(0, |len| len + COST)]
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..60 => self.transaction(),
            60..75 => self.volatile_change(),
            75 if self.random.below(2) == 0 => self.foreign_record(),
            75..78 => self.log.keep(IdKind::Recorded),
            78..80 => self.log.keep(IdKind::Volatile),
            80..84 => self.compaction(),
            84 => self.conversion(),
            85..87 => self.restart(),
            _ => self.come_back(),
        }
        self.count();
    }

    fn transaction(&mut self) {
        let schema = self.schema();
        let rows = self.random.step(&self.rows, &schema, false);
        let record = self.random.record(self.log.is_kept(IdKind::Recorded));
        self.write(rows, record);
    }

    fn foreign_record(&mut self) {
        let schema = self.schema();
        let rows = self.random.step(&self.rows, &schema, false);
        let record = self.random.record(false);
        self.write(rows, record);
    }

    fn write(&mut self, rows: Rows, record: Record) {
        let schema = self.schema();
        let delta = delta_between(&self.rows, &rows, &schema);
        let of_file =
            delta_between(&recorded(&self.rows, &schema), &recorded(&rows, &schema), &schema);
        let delta = self.random.with_noise(delta, &schema);
        let costs = self.costs(&delta, Some(Record { is_marked: true, ..record }));
        assert_eq!(costs[0], self.costs(&of_file, Some(Record { is_marked: true, ..record }))[0]);
        self.log.push(Some(&delta), &schema, Some(record));
        for file in [Some(&mut self.file), self.next.as_mut()].into_iter().flatten() {
            file.records.push((record, of_file.clone()));
        }
        self.rows = rows;
        if !record.is_marked {
            self.low = [self.states.len(); 2];
        }
        self.note(if record.is_marked { costs } else { [0; 2] });
        self.volatile_begins_unless_kept();
    }

    fn volatile_change(&mut self) {
        let schema = self.schema();
        let rows = self.random.step(&self.rows, &schema, true);
        let delta = delta_between(&self.rows, &rows, &schema);
        let costs = self.costs(&delta, None);
        self.log.push(Some(&delta), &schema, None);
        self.rows = rows;
        self.note(costs);
        self.volatile_begins_unless_kept();
    }

    fn volatile_begins_unless_kept(&mut self) {
        if !self.log.is_kept(IdKind::Volatile) {
            self.low[1] = self.states.len() - 1;
        }
    }

    /// Begins to write another file, or ends it.
    fn compaction(&mut self) {
        let Some(next) = self.next.take() else {
            if self.log.is_kept(IdKind::Recorded) {
                let binding = binding(&mut self.random);
                let side_file = Some(bytes_of(&self.log.image(), &binding));
                let budget = [900, 20_000, 1 << 20][self.random.below(3) as usize];
                self.next = Some(File { side_file, binding, budget, records: Vec::new() });
            }
            return;
        };
        if self.random.below(3) > 0 {
            self.budget = next.budget;
            self.file = next;
        }
        self.log.set_budget(self.budget);
        self.trim();
    }

    fn conversion(&mut self) {
        if self.next.is_some() {
            return;
        }
        let (from, to) = (self.schema(), schema(!self.is_other));
        let target = |table: TableId| target(&from, &to, table);
        let binding = binding(&mut self.random);
        let mut side_file = None;
        let mut chain = Chain::of_schema(binding.schema).then(binding.snapshot);
        if self.log.is_kept(IdKind::Recorded) {
            let image = self.log.image().converted(&target, to.tables.len(), binding.schema);
            (side_file, chain) = (Some(bytes_of(&image, &binding)), image.chain());
        } else {
            self.low = [self.states.len(); 2];
        }
        self.log.convert(&target, to.tables.len(), chain, self.budget);
        self.is_other = !self.is_other;
        let is_kept = |name: &str| from.table_id(name).is_some_and(|id| target(id).is_some());
        self.rows.retain(|(name, _), _| is_kept(name));
        let here = self.states.len();
        self.begins = to
            .tables
            .iter()
            .map(|table| {
                let begin = self.begins.get(&table.name).filter(|_| is_kept(&table.name));
                (table.name.clone(), begin.copied().unwrap_or(here))
            })
            .collect();
        self.note([if side_file.is_some() { COST } else { 0 }, 0]);
        self.volatile_begins_unless_kept();
        let records = match side_file {
            Some(_) => Vec::new(),
            // The snapshot's record is one that is not marked.
            None => vec![(
                Record { name: Name::Hash(binding.snapshot), body_len: 99, is_marked: false },
                Delta::default(),
            )],
        };
        self.file = File { side_file, binding, budget: self.budget, records };
    }

    /// A process ends, and another one starts from the file, and finds what the first one found; if
    /// it ended while a file was written, perhaps before it learned that that was complete, less.
    fn restart(&mut self) {
        let (nonce, schema) = (self.random.below(u64::MAX), self.schema());
        if let Some(next) = self.next.as_ref().filter(|_| self.random.below(2) == 0) {
            self.file = next.clone();
            self.budget = next.budget;
        }
        let mut log = load(&self.file, &schema, nonce);
        let is_held = self.next.take().is_some();
        for state in &self.states {
            let found = log.find(state.recorded, IdKind::Recorded, [].into_iter()).is_some();
            let before = self.log.find(state.recorded, IdKind::Recorded, [].into_iter()).is_some();
            assert!(found == before || is_held && before, "found {found}, before {before}");
        }
        assert_eq!(log.ids().recorded, self.log.ids().recorded);
        if !is_held {
            let counts = |log: &History| {
                let Counts { changes, atoms, .. } = log.counts();
                (changes, atoms)
            };
            assert_eq!(counts(&log), counts(&self.log));
            assert_eq!(log.low_water(), self.log.low_water());
        }
        std::mem::swap(&mut self.log, &mut log);
        self.rows = recorded(&self.rows, &schema);
        self.trim();
        self.note([0; 2]);
        self.low[1] = self.states.len() - 1;
    }

    /// Somebody comes back with a state, of some tables.
    fn come_back(&mut self) {
        let schema = self.schema();
        let is_recent = self.random.below(3) > 0;
        let most = if is_recent { 20.min(self.states.len()) } else { self.states.len() };
        let at = self.states.len() - 1 - self.random.below(most as u64) as usize;
        let mask = self.random.below(16);
        let is_wanted =
            |name: &str| mask >> schema.table_id(name).map_or(9, |table| table.0) & 1 == 1;
        for kind in [IdKind::Recorded, IdKind::Volatile] {
            let state = &self.states[at];
            let id = if kind == IdKind::Recorded { state.recorded } else { state.volatile };
            let tables = schema.table_ids().filter(|(_, table)| is_wanted(&table.name));
            let place = self.log.find(id, kind, tables.map(|(table, _)| table));
            let low = match kind {
                IdKind::Recorded => self.low[0],
                IdKind::Volatile => self.low[0].max(self.low[1]),
            };
            // A state that differs in volatile columns only has the same recorded id.
            let is_same = |other: &&State| kind == IdKind::Recorded && other.recorded == id;
            let same = self.states[at..].iter().take_while(is_same).count().max(1);
            let last = at + same - 1;
            let begins = self.begins.iter().filter(|(name, _)| is_wanted(name));
            let begin = begins.map(|(_, begin)| *begin).max().unwrap_or(0).max(low);
            assert_eq!(place.is_some(), last >= begin, "{kind:?} {at} from {begin}");
            let Some(place) = place else {
                self.refused += 1;
                continue;
            };
            self.found += 1;
            self.follow(last, place, kind, &schema, is_wanted);
        }
    }

    /// The changes since a state lead from there to here, one by one and merged.
    fn follow(
        &self,
        from: usize,
        place: Place,
        kind: IdKind,
        schema: &Schema,
        is_wanted: impl Fn(&str) -> bool,
    ) {
        let changes = self.log.since(place, kind).unwrap();
        let view = |rows: &Rows| {
            let rows: Rows = rows
                .iter()
                .filter(|((name, _), _)| is_wanted(name))
                .map(|(key, row)| (key.clone(), row.clone()))
                .collect();
            if kind == IdKind::Recorded { recorded(&rows, schema) } else { rows }
        };
        let without_versions = |mut rows: Rows| {
            let zero = weir_data::Datum::One(weir_data::Atom::Uuid(Uuid::ZERO));
            rows.values_mut().for_each(|row| *row.get_mut(ColumnId::VERSION) = zero.clone());
            rows
        };
        let (old, new) = (view(&self.states[from].rows), view(&self.rows));
        let mut rows = without_versions(old.clone());
        let mut merged: BTreeMap<(TableId, Uuid), Option<RowDelta>> = BTreeMap::new();
        let mut last = place;
        for entry in changes.deltas(schema) {
            assert!(entry.place > last);
            last = entry.place;
            check_form(&entry.delta);
            let is_id = |state: &State| [state.recorded, state.volatile].contains(&entry.id);
            assert!(self.states.iter().any(is_id));
            apply(&mut rows, &entry.delta, schema, &is_wanted);
            for (table, uuid, row) in entry.delta.rows() {
                let slot = merged.entry((table, uuid)).or_default();
                *slot = match slot.take() {
                    None => Some(row.clone()),
                    Some(before) => before.merge(row, schema.table(table)),
                };
            }
        }
        assert_eq!(changes.is_empty(), last == place);
        assert_eq!(without_versions(rows.clone()), without_versions(new.clone()));
        for (key, row) in new.iter().filter(|_| kind == IdKind::Volatile) {
            let is_same = old.get(key).is_some_and(|old| old.version() == row.version());
            assert_eq!(rows[key].version() == Uuid::ZERO, is_same, "{key:?}");
            let table = schema.table_id(&key.0).unwrap();
            let merged = merged.get(&(table, key.1)).is_some_and(Option::is_some);
            assert_eq!(merged, !is_same, "{key:?}");
        }
    }

    fn count(&self) {
        let counts = self.log.counts();
        let kept = &self.states[self.low[0] + 1..];
        assert_eq!(counts.changes, kept.iter().filter(|state| state.costs[0] > 0).count());
    }
}

/// What every delta is like: tables and columns ascend, no row is there twice.
fn check_form(delta: &Delta) {
    assert!(delta.tables.windows(2).all(|w| w[0].table < w[1].table));
    for table in &delta.tables {
        let uuids: BTreeSet<Uuid> = table.rows.iter().map(|(uuid, _)| *uuid).collect();
        assert_eq!(uuids.len(), table.rows.len());
    }
    for (_, _, row) in delta.rows() {
        if let RowDelta::Modify(changes) = row {
            assert!(changes.windows(2).all(|w| w[0].column < w[1].column));
        }
    }
}

fn bytes_of(image: &Image, binding: &Binding) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut sink = |piece: &[u8]| {
        bytes.extend_from_slice(piece);
        Ok(())
    };
    image.write(binding, &mut sink).unwrap();
    bytes
}

/// Reads a file as a server does that starts: takes apart only what may be within the budget.
fn load(file: &File, schema: &Schema, nonce: u64) -> History {
    let budget = file.budget;
    let mut log = match &file.side_file {
        None => History::new(file.binding.schema, schema.tables.len(), budget, nonce),
        Some(bytes) => {
            History::from_side_file(bytes, &file.binding, schema, budget, nonce).unwrap()
        }
    };
    let costs = file.records.iter().rev().scan(0, |sum, (record, _)| {
        *sum += record.body_len as usize + COST;
        Some(*sum)
    });
    let taken = costs.take_while(|cost| *cost <= budget).count();
    let first = file.records.len() - taken;
    for (i, (record, delta)) in file.records.iter().enumerate() {
        log.push((i >= first).then_some(delta), schema, Some(*record));
    }
    let last = file.records.last().map(|(record, _)| record.is_marked);
    if last.unwrap_or(file.side_file.is_some()) {
        log.keep(IdKind::Recorded);
    }
    log
}

#[test]
fn a_log_finds_what_its_twin_finds_and_leads_to_the_state_now() {
    let (mut found, mut refused) = (0, 0);
    for seed in 1..=60 {
        println!("seed {seed}");
        let mut world = World::new(seed, [800, 20_000, 1 << 20][seed as usize % 3]);
        for _ in 0..400 {
            world.step();
        }
        found += world.found;
        refused += world.refused;
    }
    println!("{found} found, {refused} refused");
    assert!(found > 1000 && refused > 1000, "{found} found, {refused} refused");
}

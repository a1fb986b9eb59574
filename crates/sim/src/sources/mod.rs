//! One standalone server in the place of a cluster, with relays behind it: what clusters do not have.
//! Columns that no file keeps, a file that is restored from an older copy, and locks that are taken through
//! relays.
//!
//! 1. This file: how such a world begins, what is done with the file, and what must be true in the end.
//! 2. `visitors`: clients that write, under locks and without, and those that watch.
//! 3. `rings`: relays that name each other.

mod rings;
pub(crate) mod visitors;

pub use rings::run_without_source;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};
use weir_data::{Schema, Snapshot};
use weir_engine::Converted;
use weir_history::{Binding, Image};
use weir_log::standalone::write_schema;
use weir_server::event::{ConversionError, DbId, Event};
use weir_server::load::{Loaded, convert_rows, converted_image, load_with, write_snapshot};
use weir_testkit::rng::Rng;

use crate::checks::locks::Guarded;
use crate::checks::states::States;
use crate::checks::{Rings, must};
use crate::disk::Disk;
use crate::faults::Faults;
use crate::node::PATH;
use crate::sources::visitors::{Columns, Visitor};
use crate::world::{Due, World};

/// Clients that write and take locks, and clients that watch.
const WRITERS: usize = 8;
const WATCHERS: usize = 4;

/// The operator looks so often, in microseconds, and copies the file at each time.
const OPERATOR_US: u64 = 400_000;

/// Copies that are kept.
const COPIES_MAX: usize = 10;

/// A relay that was away while the source went back refuses it for a minute, and some time passes until all
/// in a row have.
const SETTLE_MS: u64 = 100_000;

/// A relay whose source may have gone back takes so many seconds longer to find it, for that reason.
const REFUSAL_S: usize = 75;

/// A database's file, and the side files that there may be.
#[derive(Clone, Debug, Default)]
struct Files {
    file: Vec<u8>,
    side_files: Vec<Vec<u8>>,
}

/// The standalone server's side files, who visits, and what is known of all that.
#[derive(Default)]
pub(crate) struct Sources {
    side_files: Vec<Vec<u8>>,
    /// The side file of the copy that may take the file's place.
    of_copy: Option<Vec<u8>>,
    copies: VecDeque<Files>,
    /// How likely the file is restored when the operator looks, of 1,000.
    restore: usize,
    /// The source keeps no changes, so that its states have no ids, and is converted again and again. Whoever looks for a row
    /// looks for what anybody was told at that process.
    pub(crate) is_without_ids: bool,
    pub(crate) visitors: Vec<Visitor>,
    pub(crate) states: States,
    pub(crate) guarded: Guarded,
    /// When an older file took the place of the database's last.
    restored_us: u64,
    pub(crate) counts: SourceCounts,
    /// Rows that were acknowledged, and when they had been asked for.
    acknowledged: Vec<(u64, String)>,
    /// The last row that somebody was told is there by each process, and when it had been asked for.
    pub(crate) told_at: BTreeMap<(usize, u64), (String, u64)>,
    /// Rows that somebody has asked to be deleted.
    going: BTreeSet<String>,
    /// Rows that were deleted, and when that had been asked for.
    deleted: Vec<(u64, String)>,
    /// The index that each process of a relay has said last.
    indexes: BTreeMap<(usize, u64), i64>,
    rings: Rings,
}

/// How often something has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCounts {
    /// Rows that their clients were told are there.
    pub acknowledged: u64,
    /// Rows that were deleted, as their clients were told.
    pub deleted: u64,
    /// Writes of which nobody knows.
    pub unknown: u64,
    /// Writes of columns that no file keeps.
    pub ephemeral: u64,
    /// Numbers that were written under a lock.
    pub guarded: u64,
    /// Times that somebody had watched, and waited for all that anybody had been told.
    pub synced: u64,
    /// Transactions that were refused because their client did not have the lock.
    pub not_owner: u64,
    /// Locks that were taken from their owners.
    pub stolen: u64,
    /// Times that a watcher came back and was told what it had missed.
    pub resumed: u64,
    /// Times that a watcher came back and was told all again.
    pub began_anew: u64,
    /// States of which watchers were told.
    pub states: u64,
    /// Times that an older file took the place of the database's.
    pub restores: u64,
    /// Conversions, as their clients were told.
    pub converted: u64,
    /// Times that a watcher was told that its monitor has ended, and asked for another one.
    pub watched_anew: u64,
    /// Times that a relay was asked for its index.
    pub indexes: u64,
    /// Times that relays were seen to be connected to each other in a ring.
    pub rings: u64,
}

/// The schema of a version: `s` is in no file.
fn schema(version: usize) -> Value {
    let mut columns = json!({"name": {"type": "string"}, "n": {"type": "integer"},
        "s": {"type": "integer", "ephemeral": true}});
    for number in 0..version {
        columns[format!("new{number}")] = json!({"type": "string"});
    }
    json!({"name": "Sim", "version": format!("1.0.{version}"), "tables": {"T": {"columns": columns}}})
}

/// What may happen to a standalone server and its relays. Its power does not go: nobody asks it to be sure of
/// anything but of writes that say so.
pub fn faults(seed: u64) -> Faults {
    Faults {
        kill: 40,
        cut: 60,
        reset: 150,
        pause: 50,
        compact: 40,
        jump: 20,
        // What waits behind a slow helper at the source can lose its lock meanwhile.
        slow_helper: if seed.is_multiple_of(2) { 40 } else { 0 },
        stall: if seed.is_multiple_of(5) { 50 } else { 0 },
        slow_reader: 300,
        sync_us: 3000,
        delay_us: 5000,
        ..Faults::default()
    }
}

/// Runs a seed: half a minute of faults, then none; half of the seeds restore files, and in every third one
/// relays name each other.
pub fn run(world: &mut World, seed: u64) -> SourceCounts {
    match seed.is_multiple_of(3) {
        true => world.add_ring(),
        false => world.add_chain(),
    }
    world.run_sources(seed)
}

/// Runs a seed with a source that keeps no changes, and is converted while there are faults: half of the clients stay
/// connected then.
pub fn run_without_ids(world: &mut World, seed: u64) -> SourceCounts {
    let sources = world.sources_mut();
    sources.is_without_ids = true;
    for visitor in sources.visitors.iter_mut().filter(|visitor| visitor.number % 8 < 4) {
        visitor.is_aware = true;
    }
    world.add_chain();
    world.run_sources(seed)
}

impl Sources {
    /// The names of rows that stay, of the first so many that were acknowledged: no older file has come since
    /// they were asked for, and nobody has asked that they go.
    fn stay(&self, of: usize) -> impl Iterator<Item = &str> {
        let since = self.acknowledged[..of].iter().filter(|(us, _)| *us > self.restored_us);
        since.map(|(_, name)| name.as_str()).filter(|name| !self.going.contains(*name))
    }

    /// The last row that anybody was told is there by a process, if it stays, and when it had been asked for.
    fn told_here(&self, process: (usize, u64)) -> Option<(String, u64)> {
        let stays = |(name, asked_us): &&(String, u64)| {
            self.is_without_ids && *asked_us > self.restored_us && !self.going.contains(name)
        };
        self.told_at.get(&process).filter(stays).cloned()
    }
}

impl World {
    /// A standalone server, with clients.
    pub fn of_source(seed: u64, faults: Faults) -> Self {
        let mut world = Self::new(seed, 1, faults);
        let mut file = Vec::new();
        let schema = Schema::parse_bytes(schema(0).to_string().as_bytes()).expect("a schema");
        write_schema(&mut file, &schema);
        world.nodes[0].disk = Disk::new(file);
        world.forget_clients();
        let mut sources = Sources::default();
        for number in 0..WRITERS + WATCHERS {
            sources.visitors.push(Visitor::new(number, number >= WRITERS));
            world.due(world.now_us + 200_000, 0, Due::Visitor(number));
        }
        world.sources = Some(Box::new(sources));
        world.due(world.now_us + OPERATOR_US, 0, Due::Operator);
        world
    }

    /// A relay, a relay of that, and one that has the choice.
    fn add_chain(&mut self) {
        let first = self.add_relay(&[0]);
        let second = self.add_relay(&[first]);
        self.add_relay(&[second, first, 0]);
    }

    fn run_sources(&mut self, seed: u64) -> SourceCounts {
        let sources = self.sources_mut();
        sources.restore = if seed.is_multiple_of(2) { 30 } else { 0 };
        let writers = sources.visitors.iter_mut().take(WRITERS);
        writers
            .filter(|visitor| visitor.number % 4 < 2)
            .for_each(|visitor| visitor.acts_on_updates = true);
        self.run_for(30_000);
        let calm_us = self.calm_sources();
        self.run_for(SETTLE_MS);
        self.check_sources(calm_us);
        self.sources().counts
    }

    /// Faults end; when that is.
    fn calm_sources(&mut self) -> u64 {
        self.calm();
        self.calm_us.expect("it is calm")
    }

    /// For how many seconds a relay may refuse its source, behind faults.
    pub(crate) fn refuses_for_s(&self) -> usize {
        let is_restored = self.sources.as_ref().is_some_and(|sources| sources.counts.restores > 0);
        if is_restored { REFUSAL_S } else { 0 }
    }

    pub(crate) fn sources(&self) -> &Sources {
        self.sources.as_ref().expect("there is a standalone server")
    }

    pub(crate) fn sources_mut(&mut self) -> &mut Sources {
        self.sources.as_mut().expect("there is a standalone server")
    }

    /// What a server finds in the file of a standalone database.
    pub(crate) fn load_standalone(&self, seed: u64) -> Result<Box<Loaded>, String> {
        load_with(PATH, seed, &self.nodes[0].disk.file, self.sources().side_files.clone())
    }

    /// Records are appended, and that is told later.
    pub(crate) fn append(&mut self, n: usize, db: DbId, bytes: &[u8], sync: bool) {
        self.nodes[n].disk.append(bytes);
        let most = if sync { self.faults.sync_us.max(1) } else { 100 };
        let at = self.now_us + 20 + self.rng.below(most) as u64;
        self.event_at(at, n, Event::Appended { db, result: Ok(()) });
    }

    /// The rows are written under another schema.
    pub(crate) fn standalone_converted(
        &mut self,
        (snapshot, schema, seed): (&Snapshot, Arc<Schema>, [u64; 4]),
        (comment, date_ms): (&str, i64),
        history: Option<Image>,
    ) -> Result<(Vec<u8>, Box<Converted>), ConversionError> {
        let converted = convert_rows(snapshot, schema, seed)?;
        let image = |binding: &Binding| {
            Some(converted_image(history?, snapshot.schema(), &converted, binding))
        };
        let rows = converted.database.snapshot();
        let copy = self.standalone_copy((&rows, comment, date_ms), image);
        Ok((copy, converted))
    }

    /// A copy is written, and the side file that goes with it.
    pub(crate) fn standalone_copy(
        &mut self,
        (snapshot, comment, date_ms): (&Snapshot, &str, i64),
        history: impl FnOnce(&Binding) -> Option<Image>,
    ) -> Vec<u8> {
        let (mut copy, mut side_file) = (Vec::new(), None);
        let mut sink = |bytes: &[u8]| {
            copy.extend_from_slice(bytes);
            Ok(())
        };
        let binding = write_snapshot(snapshot, comment, date_ms, &mut sink);
        let binding = binding.expect("memory takes all");
        if let Some(image) = history(&binding) {
            let text = side_file.insert(Vec::new());
            let mut sink = |bytes: &[u8]| {
                text.extend_from_slice(bytes);
                Ok(())
            };
            image.write(&binding, &mut sink).expect("memory takes all");
        }
        self.sources_mut().of_copy = side_file;
        copy
    }

    /// The copy has taken the file's place: the side files of others go.
    pub(crate) fn has_compacted(&mut self) {
        if let Some(sources) = &mut self.sources {
            sources.side_files = sources.of_copy.take().into_iter().collect();
        }
    }

    /// The operator looks after the relays and the file: copies it, and now and then puts an older one in its place.
    pub(crate) fn operate(&mut self) {
        self.due(self.now_us + OPERATOR_US, 0, Due::Operator);
        self.look_for_rings();
        let file = self.nodes[0].disk.file.clone();
        let is_up = self.nodes[0].server.is_some() && self.nodes[0].db.is_some();
        let is_calm = self.is_calm;
        let sources = self.sources.as_mut().expect("there is a standalone server");
        let side_files = sources.side_files.clone();
        sources.copies.push_back(Files { file, side_files });
        if sources.copies.len() > COPIES_MAX {
            sources.copies.pop_front();
        }
        let mut rng = Rng::new(self.now_us ^ self.rng.bits());
        if is_calm || !is_up || rng.below(1000) >= sources.restore {
            return;
        }
        let mut older = sources.copies[rng.below(sources.copies.len())].clone();
        // Some operators forget what is beside the file.
        if rng.chance(20) {
            older.side_files.clear();
        }
        sources.copies.clear();
        sources.restored_us = self.now_us;
        sources.counts.restores += 1;
        self.end_process(0, false);
        self.nodes[0].disk.put(older.file);
        self.sources_mut().side_files = older.side_files;
        self.note(0, "has an older file");
        let while_us = 50_000 + rng.below(2_000_000) as u64;
        self.due(self.now_us + while_us, 0, Due::Start);
    }

    /// A row is there, for its client was told so.
    fn acknowledged(&mut self, name: String, asked_us: u64) {
        self.checks.liveness.wrote(asked_us);
        let sources = self.sources_mut();
        sources.counts.acknowledged += 1;
        sources.acknowledged.push((asked_us, name));
    }

    /// A row is gone, for its client was told so: so many were deleted.
    fn deleted(&mut self, name: String, (asked_us, written_us): (u64, u64), count: Option<u64>) {
        self.checks.liveness.wrote(asked_us);
        let sources = self.sources_mut();
        // An older file may not have it.
        let may_lack = sources.restored_us >= written_us;
        let is_well = count == Some(1) || count == Some(0) && may_lack;
        let wrong = || format!("{name} was there, and {count:?} rows were deleted");
        must("deleted", is_well.then_some(()).ok_or_else(wrong));
        sources.counts.deleted += 1;
        sources.deleted.push((asked_us, name));
    }

    /// A relay has said its index, which falls only if its source went back.
    fn said_index(&mut self, process: (usize, u64), index: i64) {
        let sources = self.sources_mut();
        sources.counts.indexes += 1;
        let before = sources.indexes.insert(process, index);
        let falls = sources.counts.restores == 0 && before.is_some_and(|before| before > index);
        must(
            "index",
            match falls {
                true => Err(format!("{process:?} said {before:?}, and then {index}")),
                false => Ok(()),
            },
        );
    }

    /// All servers and watchers have the same rows, none of them twice, with all that was acknowledged since
    /// a file was restored last; ids that were told since all is well are known everywhere.
    fn check_sources(&mut self, calm_us: u64) {
        self.is_over = true;
        self.run_for(10_000);
        let mut rows: Option<BTreeMap<String, Value>> = None;
        for n in 0..self.nodes.len() {
            let found = self.visited_rows(n);
            let expected = rows.get_or_insert_with(|| found.clone());
            must("replicas", same(&format!("server {n}"), expected, &found));
        }
        let rows = rows.unwrap_or_default();
        let sources = self.sources();
        let mut kept = rows.clone();
        kept.values_mut().for_each(|row| drop(row.as_object_mut().and_then(|row| row.remove("s"))));
        for visitor in sources.visitors.iter().filter(|visitor| visitor.watches) {
            let expected = if visitor.columns() == Columns::Kept { &kept } else { &rows };
            must("replicas", same(&format!("visitor {}", visitor.number), expected, &visitor.rows));
        }
        let mut names: Vec<&str> = rows.values().filter_map(|row| row["name"].as_str()).collect();
        names.sort_unstable();
        let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
        must("once", twice.map_or(Ok(()), |pair| Err(format!("{} is there twice", pair[0]))));
        let since_us = sources.restored_us;
        let is_there = |name: &str| names.binary_search(&name).is_ok();
        let lost = sources.stay(sources.acknowledged.len()).find(|name| !is_there(name));
        must("durable", lost.map_or(Ok(()), |name| Err(format!("{name} is not there"))));
        let mut gone = sources.deleted.iter().filter(|(asked_us, _)| *asked_us > since_us);
        let back = gone.find(|(_, name)| is_there(name));
        must("deleted", back.map_or(Ok(()), |(_, name)| Err(format!("{name} is there again"))));
        let after = sources.acknowledged.iter().filter(|(asked_us, _)| *asked_us > calm_us).count();
        must("liveness", if after > 20 { Ok(()) } else { Err(format!("{after} writes since")) });
        if !self.sources().is_without_ids {
            self.check_ids_of_sources();
        }
        let sources = self.sources_mut();
        sources.counts.guarded = sources.guarded.looks();
        sources.counts.states = sources.states.len() as u64;
    }

    /// Relays say the same index, and all servers know the id of the state that they have come to.
    fn check_ids_of_sources(&mut self) {
        let indexes: Vec<Option<i64>> = (1..self.nodes.len()).map(|n| self.index_of(n)).collect();
        let is_same = indexes.iter().all(|index| index.is_some() && *index == indexes[0]);
        must("index", if is_same { Ok(()) } else { Err(format!("relays say {indexes:?}")) });
        let id = self.sources().visitors.iter().find_map(Visitor::state).map(str::to_owned);
        let id = id.expect("a watcher has been told a state");
        for n in 0..self.nodes.len() {
            must(
                "resume",
                match self.knows_id(n, &id) {
                    true => Ok(()),
                    false => Err(format!("server {n} does not know {id}, which all have reached")),
                },
            );
        }
    }
}

/// Whether two have the same rows.
fn same(
    who: &str,
    all: &BTreeMap<String, Value>,
    rows: &BTreeMap<String, Value>,
) -> Result<(), String> {
    let other = |a: &BTreeMap<String, Value>, b: &BTreeMap<String, Value>| {
        a.iter().find(|(id, row)| b.get(*id) != Some(row)).map(|(id, row)| format!("{id} {row}"))
    };
    match (other(all, rows), other(rows, all)) {
        (None, None) => Ok(()),
        (lacks, has) => Err(format!("{who} lacks {lacks:?}, and has {has:?}")),
    }
}

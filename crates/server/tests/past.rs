//! The change log of a file that is loaded is that of the process which wrote the file: what one of
//! them refuses is not found by the other.

#[path = "../../log/tests/sample/mod.rs"]
mod sample;

use std::process::Command;
use std::sync::Arc;

use sample::Random;
use weir_data::delta::{RowDelta, TableDelta};
use weir_data::{ColumnId, Datum, Delta, IdKind, Row, Schema, Store, TableId, Uuid};
use weir_history::{BUDGET_BYTES_MAX, Binding, History, Name, Record, budget_of};
use weir_log::record::Written;
use weir_log::standalone::{Style, write_schema, write_transaction_as};
use weir_server::load::{Finished, Loaded, Loader, write_snapshot};

/// A process that writes a file, as far as the change log is concerned.
struct Process {
    bytes: Vec<u8>,
    store: Store,
    history: History,
    records: u64,
    /// The ids of all states so far.
    ids: Vec<Uuid>,
}

impl Process {
    fn new(schema: Schema) -> Self {
        let mut bytes = Vec::new();
        let hash = write_schema(&mut bytes, &schema);
        let history = History::new(hash.0, schema.tables.len(), BUDGET_BYTES_MAX, 1);
        let ids = vec![history.ids().recorded];
        Self { bytes, store: Store::new(Arc::new(schema), 7), history, records: 1, ids }
    }

    fn commit(&mut self, delta: &Delta) {
        self.store.apply(delta);
        let is_marked = self.history.is_kept(IdKind::Recorded);
        let style = Style { is_marked, ..Style::PLAIN };
        let written = write_transaction_as(style, &mut self.bytes, delta, &self.store, 1, None);
        let record = |Written { hash, body_len, is_marked }| Record {
            name: Name::Hash(hash.0),
            body_len,
            is_marked,
        };
        self.history.push(Some(delta), self.store.schema(), written.map(record));
        self.records += u64::from(written.is_some());
        if self.records == 2 && written.is_some() {
            self.history.set_budget(budget_of(self.bytes.len() as u64));
        }
        self.ids.push(self.history.ids().recorded);
    }

    /// Replaces the file by a compacted one; answers with its side file.
    fn compact(&mut self, meanwhile: impl FnOnce(&mut Self)) -> Vec<u8> {
        let (image, snapshot) = (self.history.image(), self.store.snapshot());
        let mut copy = Vec::new();
        let mut sink = |bytes: &[u8]| {
            copy.extend_from_slice(bytes);
            Ok(())
        };
        let binding = write_snapshot(&snapshot, "smaller", 1, &mut sink).unwrap();
        let mut side_file = Vec::new();
        let mut sink = |bytes: &[u8]| {
            side_file.extend_from_slice(bytes);
            Ok(())
        };
        image.write(&binding, &mut sink).unwrap();
        let (budget, start) = (budget_of(copy.len() as u64), self.bytes.len());
        meanwhile(self);
        copy.extend_from_slice(&self.bytes[start..]);
        self.bytes = copy;
        self.history.set_budget(budget);
        side_file
    }

    /// Which of the states so far are found.
    fn found(&self, history: &History) -> Vec<bool> {
        let tables = || self.store.schema().table_ids().map(|(table, _)| table);
        self.ids.iter().map(|id| history.find(*id, IdKind::Recorded, tables()).is_some()).collect()
    }

    /// Another process that reads the file knows the same.
    fn check(&self, loaded: &Loaded, what: &str) {
        let (ours, theirs) = (&self.history, &loaded.history);
        assert_eq!(ours.ids().recorded, theirs.ids().recorded, "{what}");
        assert_ne!(ours.ids().volatile, theirs.ids().volatile, "{what}");
        assert_eq!(ours.low_water(), theirs.low_water(), "{what}");
        assert_eq!(ours.counts().changes, theirs.counts().changes, "{what}");
        assert_eq!(self.found(ours), self.found(theirs), "{what}");
    }
}

/// Reads a file as the shell does.
fn load_with(
    bytes: &[u8],
    side_files: &[&[u8]],
    step: usize,
    is_len_known: bool,
) -> (Box<Loaded>, u32) {
    let mut loader = Loader::seekable("db", 3);
    if is_len_known {
        loader.expect_len(bytes.len() as u64);
    }
    side_files.iter().for_each(|bytes| loader.offer_side_file(bytes.to_vec()));
    let mut times = 1;
    loop {
        let mut at = 0;
        while at < bytes.len() {
            let end = bytes.len().min(at + step);
            loader.feed(&bytes[at..end]).unwrap();
            at = loader.again_from().map_or(end, |offset| offset as usize);
        }
        match loader.finish().unwrap() {
            Finished::Loaded(loaded) => return (loaded, times),
            Finished::Again(again) => (loader, times) = (again, times + 1),
        }
    }
}

#[test]
fn small_files() {
    let (mut marked, mut all) = (0, 0);
    for seed in 0..120 {
        let mut random = Random::new(seed);
        let schema = Schema::parse_bytes(sample::schema_text(&mut random).as_bytes()).unwrap();
        let mut process = Process::new(schema);
        for _ in 0..12 {
            if random.chance(20) {
                process.history.keep(IdKind::Recorded);
            }
            let delta = sample::transaction(&mut random, &process.store);
            process.commit(&delta);
        }
        let (loaded, _) = load_with(&process.bytes, &[], 1 + random.below(2000), random.chance(50));
        process.check(&loaded, &format!("seed {seed}"));
        let is_kept = loaded.history.is_kept(IdKind::Recorded);
        assert_eq!(is_kept, process.bytes.ends_with(b"} \n"), "seed {seed}");
        all += 1;
        marked += u32::from(is_kept);
    }
    assert!(marked > 20 && marked < all, "{marked} of {all}");
}

const SCHEMA: &str = r#"{"name":"D","version":"1.2.3","tables":{
    "T":{"columns":{"text":{"type":"string"}},"isRoot":true}}}"#;
const TEXT: ColumnId = ColumnId(2);

fn plain() -> Process {
    let mut process = Process::new(Schema::parse_bytes(SCHEMA.as_bytes()).unwrap());
    process.history.keep(IdKind::Recorded);
    process
}

/// An insertion of a row with a text of this length, or a deletion of one of those that are there.
fn change(random: &mut Random, store: &Store, len: usize) -> Delta {
    let table = TableId(0);
    let rows: Vec<&Row> = store.table(table).iter().collect();
    let row = if random.chance(40) && !rows.is_empty() {
        let row = (*random.pick(&rows)).clone();
        (row.uuid(), RowDelta::Delete(row))
    } else {
        let mut row = Row::new(random.uuid(), random.uuid(), store.schema().table(table));
        *row.get_mut(TEXT) = Datum::One(weir_data::Atom::string(&"x".repeat(len)));
        (row.uuid(), RowDelta::Insert(row))
    };
    Delta { tables: vec![TableDelta { table, rows: vec![row] }] }
}

fn grow(process: &mut Process, random: &mut Random, changes: usize) {
    for _ in 0..changes {
        let len = 1 + random.below(30_000);
        process.commit(&change(random, &process.store, len));
    }
}

#[test]
fn files_beyond_the_budget() {
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let mut process = plain();
        grow(&mut process, &mut random, 300);
        let ours = process.found(&process.history);
        assert!(ours.iter().any(|found| *found) && !ours.iter().all(|found| *found));
        for is_len_known in [false, true] {
            let (loaded, times) = load_with(&process.bytes, &[], 64 << 10, is_len_known);
            assert_eq!(times, 1);
            process.check(&loaded, &format!("seed {seed}"));
        }
        // What is torn off does not count, however much it is.
        for (torn, reads) in [(100 << 10, 1), (4 << 20, 2)] {
            let mut bytes = process.bytes.clone();
            bytes.resize(bytes.len() + torn, b'?');
            let (loaded, times) = load_with(&bytes, &[], 64 << 10, true);
            assert_eq!(times, reads);
            process.check(&loaded, &format!("seed {seed}, {torn} bytes torn off"));
        }
    }
}

#[test]
fn a_second_record_that_is_larger_than_the_budget_was() {
    let mut process = plain();
    let mut random = Random::new(1);
    process.commit(&change(&mut random, &process.store, 3 << 20));
    grow(&mut process, &mut random, 30);
    for step in [64 << 10, usize::MAX >> 1] {
        let (loaded, _) = load_with(&process.bytes, &[], step, true);
        process.check(&loaded, "a large second record");
    }
}

#[test]
fn compacted_files_with_their_side_files() {
    for seed in 0..8 {
        let mut random = Random::new(seed);
        let mut process = plain();
        let many = 20 + random.below(150);
        grow(&mut process, &mut random, many);
        let mut random_tail = Random::new(seed + 100);
        let first = process.compact(|process| grow(process, &mut random_tail, 20));
        let many = random.below(100);
        grow(&mut process, &mut random, many);
        let (loaded, _) = load_with(&process.bytes, &[b"nonsense", &first], 64 << 10, true);
        process.check(&loaded, &format!("seed {seed}"));
        assert!(loaded.side_file().is_some() && loaded.side_file_problem().is_none());

        // Nothing but the second side file belongs to the file after the second time.
        let second = process.compact(|_| ());
        let (loaded, _) = load_with(&process.bytes, &[&first, &second], 64 << 10, true);
        process.check(&loaded, &format!("seed {seed}, compacted again"));
        assert!(loaded.history.is_kept(IdKind::Recorded), "the side file is the last word");
        for others in [&[][..], &[&first[..]][..]] {
            let (loaded, _) = load_with(&process.bytes, others, 64 << 10, true);
            assert!(process.found(&loaded.history).iter().all(|found| !found));
            assert_eq!((loaded.side_file(), loaded.side_file_problem()), (None, None));
            assert!(!loaded.history.is_kept(IdKind::Recorded));
        }
        let mut damaged = second.clone();
        damaged[second.len() / 2] ^= 1;
        let (loaded, _) = load_with(&process.bytes, &[&damaged], 64 << 10, true);
        assert_eq!(loaded.side_file(), None);
        assert_eq!(loaded.side_file_problem(), Some("damaged: wrong checksum"));
    }
}

#[test]
fn nothing_is_found_behind_a_record_of_somebody_else() {
    let mut process = plain();
    let mut random = Random::new(1);
    grow(&mut process, &mut random, 10);
    let side_file = process.compact(|_| ());
    grow(&mut process, &mut random, 10);
    let folder = std::env::temp_dir().join(format!("weir-past-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("db");
    std::fs::write(&path, &process.bytes).unwrap();
    let transaction = r#"["D",{"op":"insert","table":"T","row":{"text":"foreign"}}]"#;
    let done = Command::new("ovsdb-tool").arg("transact").arg(&path).arg(transaction).output();
    let bytes = std::fs::read(&path).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let Ok(done) = done else {
        return eprintln!("skipped: the reference's programs are not installed");
    };
    assert!(done.status.success(), "{done:?}");
    assert!(bytes.len() > process.bytes.len() && bytes.starts_with(&process.bytes));
    let (loaded, _) = load_with(&bytes, &[&side_file], 64 << 10, true);
    assert!(process.found(&loaded.history).iter().all(|found| !found));
    assert!(!loaded.history.is_kept(IdKind::Recorded));
    let here = loaded.history.ids().recorded;
    assert_eq!(loaded.history.low_water(), here, "the log begins behind it");
}

#[test]
fn a_file_with_records_that_do_not_count_begins_anew() {
    let schema = r#"{"name":"D","tables":{
        "A":{"columns":{"b":{"type":{"key":{"type":"uuid","refTable":"B"}}}},"isRoot":true},
        "B":{"columns":{"n":{"type":"integer"}}}}}"#;
    let mut process = Process::new(Schema::parse_bytes(schema.as_bytes()).unwrap());
    process.history.keep(IdKind::Recorded);
    let mut row =
        Row::new(Uuid::from_u128(1), Uuid::ZERO, process.store.schema().table(TableId(0)));
    *row.get_mut(TEXT) = Datum::One(weir_data::Atom::Uuid(Uuid::from_u128(9)));
    let rows = vec![(row.uuid(), RowDelta::Insert(row))];
    process.commit(&Delta { tables: vec![TableDelta { table: TableId(0), rows }] });
    let (loaded, times) = load_with(&process.bytes, &[], 64 << 10, true);
    assert_eq!(times, 2);
    assert_eq!(loaded.history.ids().recorded, process.history.ids().recorded);
    assert_eq!(loaded.history.low_water(), process.history.ids().recorded);
}

#[test]
fn what_names_a_side_file_is_in_the_copy() {
    let process = plain();
    let mut copy = Vec::new();
    let mut sink = |bytes: &[u8]| {
        copy.extend_from_slice(bytes);
        Ok(())
    };
    let Binding { schema, snapshot } =
        write_snapshot(&process.store.snapshot(), "all", 1, &mut sink).unwrap();
    let hex = |hash: [u8; 20]| hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let text = String::from_utf8(copy).unwrap();
    let headers: Vec<&str> = text.lines().filter(|line| line.starts_with("OVSDB ")).collect();
    assert!(headers[0].ends_with(&hex(schema)) && headers[1].ends_with(&hex(snapshot)));
}

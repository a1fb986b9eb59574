//! Side files: read as they were written, and whatever else they are, no panic.

mod world;

use sha1::{Digest, Sha1};
use weir_data::{IdKind, Schema, TableId, Uuid};
use weir_history::{Binding, Entry, History, SideFileError};

use world::{Random, Rows, delta_between, recorded, schema, target};

const BUDGET: usize = 8 << 20;
const BINDING: Binding = Binding { schema: [7; 20], snapshot: [8; 20] };
const DIGEST_LEN: usize = 20;

/// A log of some changes, those of before a conversion among them, and its side file.
fn log_and_bytes(seed: u64, steps: usize) -> (History, Vec<u8>, Schema) {
    let mut random = Random::new(seed);
    let (from, to) = (schema(false), schema(true));
    let mut log = History::new(random.hash(), from.tables.len(), BUDGET, 1);
    log.keep(IdKind::Recorded);
    let mut rows = Rows::new();
    let mut push = |log: &mut History, schema: &Schema, rows: &mut Rows| {
        let next = random.step(rows, schema, false);
        let delta = delta_between(&recorded(rows, schema), &recorded(&next, schema), schema);
        log.push(Some(&delta), schema, Some(random.record(true)));
        *rows = next;
    };
    (0..steps).for_each(|_| push(&mut log, &from, &mut rows));
    let to_other = |table: TableId| target(&from, &to, table);
    let image = log.image().converted(&to_other, to.tables.len(), [9; 20]);
    log.convert(&to_other, to.tables.len(), image.chain(), BUDGET);
    rows.retain(|(name, _), _| ["A", "C"].contains(&name.as_str()));
    (0..steps).for_each(|_| push(&mut log, &to, &mut rows));
    let mut bytes = Vec::new();
    let mut sink = |piece: &[u8]| {
        bytes.extend_from_slice(piece);
        Ok(())
    };
    log.image().write(&BINDING, &mut sink).unwrap();
    (log, bytes, to)
}

fn read(bytes: &[u8], schema: &Schema) -> Result<History, SideFileError> {
    History::from_side_file(bytes, &BINDING, schema, BUDGET, 2)
}

fn entries(log: &History, schema: &Schema) -> Vec<Entry> {
    let place = log.find(log.low_water(), IdKind::Recorded, [].into_iter()).unwrap();
    log.since(place, IdKind::Recorded).unwrap().deltas(schema).collect()
}

#[test]
fn a_side_file_is_read_as_it_was_written() {
    let (log, bytes, schema) = log_and_bytes(1, 60);
    let again = read(&bytes, &schema).unwrap();
    assert_eq!((again.place(), again.ids().recorded), (log.place(), log.ids().recorded));
    assert_ne!(again.ids().volatile, log.ids().volatile);
    assert_eq!(again.low_water(), log.low_water());
    assert_eq!(again.counts(), log.counts());
    let found = entries(&log, &schema);
    assert!(found.len() > 100 && found.iter().any(|entry| entry.delta.rows().count() > 1));
    assert_eq!(entries(&again, &schema), found);
    let tables = || schema.table_ids().map(|(table, _)| table);
    assert_eq!(again.find(log.low_water(), IdKind::Recorded, tables()), None);
    assert!(!again.is_kept(IdKind::Recorded), "the one who reads decides on that");
}

/// What a version of Weir has left that did not count records: the ids are the same, and the number of records
/// goes on from one that is no less than it was.
#[test]
fn a_side_file_of_the_first_format_is_read() {
    const MAGIC_1: &[u8] = b"weir-history 1\n";
    let (log, bytes, schema) = log_and_bytes(6, 20);
    let body = bytes.strip_prefix(b"weir-history 2\n").expect("the newest format");
    let body = &body[..body.len() - DIGEST_LEN];
    // Behind two hashes, the chain, two places and an id.
    let records = 2 * 20 + 16 + 2 * 8 + 16;
    let count = body[records..records + 8].try_into().expect("eight bytes");
    assert_eq!(u64::from_le_bytes(count), log.records(), "the number stands there");
    let mut first = [MAGIC_1, &body[..records], &body[records + 8..]].concat();
    let digest = Sha1::digest(&first);
    first.extend_from_slice(&digest);
    let again = read(&first, &schema).expect("a side file");
    assert_eq!((again.place(), again.ids().recorded), (log.place(), log.ids().recorded));
    assert_eq!(entries(&again, &schema), entries(&log, &schema));
    assert!(again.records() >= log.records(), "{} {}", again.records(), log.records());
    // One of a format to come is not taken for another.
    let mut later = first.clone();
    later[MAGIC_1.len() - 2] = b'3';
    assert_eq!(read(&later, &schema).unwrap_err(), SideFileError::Unknown);
}

#[test]
fn a_smaller_budget_keeps_the_newest_only() {
    let (log, bytes, schema) = log_and_bytes(2, 30);
    let before = entries(&log, &schema);
    let again = History::from_side_file(&bytes, &BINDING, &schema, BUDGET / 16, 2).unwrap();
    let after = entries(&again, &schema);
    assert!(!after.is_empty() && after.len() < before.len(), "{}", after.len());
    assert_eq!(after[..], before[before.len() - after.len()..]);
    assert_eq!(again.find(log.low_water(), IdKind::Recorded, [].into_iter()), None);
}

#[test]
fn a_side_file_of_another_file_or_schema_is_refused() {
    let (_, bytes, schema) = log_and_bytes(3, 5);
    let other = Binding { snapshot: [1; 20], ..BINDING };
    let result = History::from_side_file(&bytes, &other, &schema, BUDGET, 2);
    assert_eq!(result.unwrap_err(), SideFileError::Foreign);
    let result = read(&bytes, &world::schema(false)).unwrap_err();
    assert!(matches!(result, SideFileError::Damaged(_)), "{result}");
    assert_eq!(read(b"", &schema).unwrap_err(), SideFileError::Unknown);
}

#[test]
fn a_side_file_that_is_cut_off_or_changed_anywhere_is_refused() {
    let (_, bytes, schema) = log_and_bytes(4, 3);
    for at in 0..bytes.len() {
        assert!(read(&bytes[..at], &schema).is_err(), "{at}");
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        assert!(read(&changed, &schema).is_err(), "{at}");
    }
}

/// The checksum keeps accidents out, but nobody who can compute one.
#[test]
fn a_wrong_side_file_with_a_right_checksum_is_refused_or_can_be_decoded() {
    let (_, changes, schema) = log_and_bytes(5, 3);
    let mut nothing = Vec::new();
    let mut sink = |piece: &[u8]| {
        nothing.extend_from_slice(piece);
        Ok(())
    };
    History::new([7; 20], 4, BUDGET, 1).image().write(&BINDING, &mut sink).unwrap();
    let (mut refused, mut decoded) = (0, 0);
    let bodies = [changes, nothing].map(|bytes| bytes[..bytes.len() - DIGEST_LEN].to_vec());
    let places = bodies.iter().flat_map(|body| (0..body.len()).map(move |at| (body, at)));
    for (body, at) in places {
        for flip in [1, 0x80, 0xff] {
            let mut changed = body.to_vec();
            changed[at] ^= flip;
            let digest = Sha1::digest(&changed);
            changed.extend_from_slice(&digest);
            let Ok(log) = read(&changed, &schema) else {
                refused += 1;
                continue;
            };
            let entries = entries(&log, &schema);
            assert!(log.low_water() == log.ids().recorded || !entries.is_empty());
            assert!(entries.iter().all(|entry| entry.id != Uuid::ZERO));
            decoded += 1;
        }
    }
    assert!(refused > 100 && decoded > 100, "{refused} refused, {decoded} decoded");
}

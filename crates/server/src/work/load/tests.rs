//! What snapshots make of tables, by their text.

use weir_data::{Atom, ColumnId, Datum, RowDelta, Uuid};
use weir_log::clustered::stream_snapshot_data;

use super::*;

const ROWS: u128 = 1_000;

const OF_U: &str = r#""n":{"type":"integer"}"#;

/// A schema whose table `T` is what it is in both, and whose table `U` may be another.
fn schema(version: &str, of_u: &str) -> Arc<Schema> {
    let text = format!(
        r#"{{"name":"D","version":"{version}","tables":{{
            "T":{{"isRoot":true,"columns":{{"n":{{"type":"integer"}},
                "next":{{"type":{{"key":{{"type":"uuid","refTable":"T","refType":"weak"}},
                    "min":0,"max":1}}}}}}}},
            "U":{{"isRoot":true,"columns":{{{of_u}}}}}}}}}"#
    );
    Arc::new(Schema::parse(weir_json::validate(text.as_bytes()).unwrap()).unwrap())
}

/// Tables of rows with these numbers, which are their UUIDs, too.
fn store(schema: &Arc<Schema>, numbers: impl Iterator<Item = (u128, i64)>) -> Store {
    let mut store = Store::new(Arc::clone(schema), 3);
    let table = schema.table_id("T").unwrap();
    let column = schema.table(table).column_id("n").unwrap();
    for (uuid, number) in numbers {
        let value = Datum::One(Atom::Integer(number));
        let (uuid, version) = (Uuid::from_u128(uuid), Uuid::from_u128(uuid << 64));
        store
            .insert(table, Row::with_values(uuid, version, schema.table(table), [(column, value)]));
    }
    store
}

fn rows(schema: &Arc<Schema>) -> Store {
    store(schema, (1..=ROWS).map(|n| (n, 0)))
}

/// The file of a snapshot, with something before it and something behind it.
fn file(of: &Store) -> (Vec<u8>, Range<u64>) {
    let mut text = b"before".to_vec();
    let mut sink = |piece: &[u8]| {
        text.extend_from_slice(piece);
        Ok::<(), ()>(())
    };
    stream_snapshot_data(&of.snapshot(), 5, None, &mut sink).unwrap();
    let place = 6..text.len() as u64;
    text.extend_from_slice(b"behind");
    (text, place)
}

fn load(before: Option<&Store>, text: Vec<u8>, place: Range<u64>) -> Result<Rows, String> {
    let before = before.map(Store::snapshot);
    let load = Box::new(Load { before, place, seed: [1, 2, 3, 4], read_at: None });
    let read_at = move |at: u64, room: &mut [u8]| {
        let rest = text.get(usize::try_from(at).unwrap()..).unwrap_or_default();
        // Fewer than were asked for, as pread(2) may.
        let count = rest.len().min(room.len()).min(1_000);
        room[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    };
    load.in_file(Box::new(read_at)).run().0
}

#[test]
fn a_member_without_tables_gets_them() {
    let (text, place) = file(&rows(&schema("1.0.0", OF_U)));
    let Ok(Rows::Fresh(database)) = load(None, text, place) else { panic!("tables") };
    assert_eq!(database.store().table(TableId(0)).len(), ROWS as usize);
}

#[test]
fn a_member_with_tables_is_told_what_differs_and_nothing_else() {
    let schema = schema("1.0.0", OF_U);
    let sent = store(&schema, (2..=ROWS + 1).map(|n| (n, i64::from(n == 500))));
    let (text, place) = file(&sent);
    let Ok(Rows::Changed(delta)) = load(Some(&rows(&schema)), text, place) else {
        panic!("a difference")
    };
    let mut changed: Vec<_> = delta.rows().map(|(_, uuid, row)| (uuid, row)).collect();
    changed.sort_by_key(|(uuid, _)| *uuid);
    let [(first, RowDelta::Delete(_)), (other, RowDelta::Modify(_)), (last, RowDelta::Insert(_))] =
        changed[..]
    else {
        panic!("{changed:?}")
    };
    assert_eq!([first, other, last], [1, 500, ROWS + 1].map(Uuid::from_u128));
}

#[test]
fn rows_that_another_schema_leaves_alone_are_kept_once() {
    let (old, new) = (schema("1.0.0", OF_U), schema("2.0.0", r#""name":{"type":"string"}"#));
    let before = rows(&old);
    let sent = store(&new, (1..=ROWS).map(|n| (n, i64::from(n == 500))));
    let (text, place) = file(&sent);
    let Ok(Rows::Recast(converted)) = load(Some(&before), text, place) else {
        panic!("tables of the new schema")
    };
    assert!(**converted.database.schema() == *new);
    let (from, to) = (old.table_id("T").unwrap(), new.table_id("T").unwrap());
    let place = |row: &Row| std::ptr::from_ref(row.datum(ColumnId::UUID));
    for row in before.table(from).iter() {
        let kept = converted.database.store().get(to, row.uuid()).unwrap();
        let is_other = row.uuid() == Uuid::from_u128(500);
        assert_eq!(place(kept) != place(row), is_other, "{}", row.uuid());
        assert_eq!(kept.version() != row.version(), is_other, "{}", row.uuid());
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let schema = schema("1.0.0", OF_U);
    let before = rows(&schema);
    let (text, place) = file(&before);
    for before in [None, Some(&before)] {
        let refused = |text: Vec<u8>, place: Range<u64>| {
            let result = load(before, text, place);
            result.expect_err("it is refused")
        };
        refused(text.clone(), place.start..place.end - 1);
        refused(text.clone(), place.start + 1..place.end);
        let end = refused(text.clone(), place.start..place.end + 100);
        assert!(end.contains("end of file") || end.contains("no sense"), "{end}");
        // The same row twice, in two spellings of its UUID.
        let string = String::from_utf8(text.clone()).unwrap();
        let uuid = Uuid::from_u128(0xa).to_string();
        let other = string.replace(&Uuid::from_u128(0xb).to_string(), &uuid.to_uppercase());
        assert_ne!(other, string);
        refused(other.into_bytes(), place.clone());
    }
}

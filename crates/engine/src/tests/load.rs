//! Rows from a file: what is derived from them, and what is repaired.

use weir_data::{
    Atom, ColumnEdit, Datum, Edit, Error, Row, RowEdit, Store, Uuid, UuidSource, sorted::Sorted,
};

use super::scenario::{Scenario, Steps, json, json_set, uuid};
use crate::database::Database;
use crate::difference::{Difference, take_over};
use crate::{follow, follow_entry};

const TABLES: &str = r#"
    "Root":{"isRoot":true,"indexes":[["name"]],"maxRows":3,"columns":{
        "name":{"type":"string"},
        "kids":{"type":{"key":{"type":"uuid","refTable":"Kid"},"min":0,"max":"unlimited"}},
        "map":{"type":{"key":{"type":"uuid","refTable":"Root","refType":"weak"},
                       "value":{"type":"uuid","refTable":"Kid"},"min":0,"max":"unlimited"}}}},
    "Kid":{"columns":{
        "next":{"type":{"key":{"type":"uuid","refTable":"Kid"},"min":0,"max":1}},
        "owner":{"type":{"key":{"type":"uuid","refTable":"Root","refType":"weak"},
                         "min":0,"max":1}}}}"#;

/// A database of rows that no commit has seen, as a file may hold them.
fn load(fill: impl FnOnce(&mut Steps<'_>)) -> Result<Scenario, Error> {
    load_by(Database::from_store, fill)
}

fn load_by(
    make: impl FnOnce(Store, u64) -> Result<Database, Error>,
    fill: impl FnOnce(&mut Steps<'_>),
) -> Result<Scenario, Error> {
    let mut scenario = Scenario::new(TABLES);
    let schema = scenario.db.schema().clone();
    let mut store = Store::new(schema.clone(), 5);
    scenario.discard(|t| {
        fill(t);
        for (table, _) in schema.table_ids() {
            let rows: Vec<Row> = t.txn.store().table(table).iter().cloned().collect();
            for row in rows {
                store.insert(table, row);
            }
        }
    });
    scenario.db = make(store, 5)?;
    Ok(scenario)
}

#[test]
fn loaded_rows_are_held_linked_and_indexed() {
    let mut s = load(|t| {
        t.insert("Root", 1, &[("name", "\"a\""), ("kids", &json(10))]);
        t.insert("Kid", 10, &[("owner", &json(1))]);
    })
    .unwrap();
    assert_eq!((s.db.position(), s.db.weak_refs()), (0, 1));
    assert!(s.refused(|t| t.delete("Kid", 10)).contains("1 remaining reference(s)"));
    assert!(s.refused(|t| t.insert("Root", 2, &[("name", "\"a\"")])).contains("identical values"));
    s.commit(|t| t.delete("Root", 1));
    assert_eq!(s.value("Kid", 10, "owner"), None);
}

#[test]
fn garbage_and_dangling_references_of_a_file_go() {
    let map = format!(r#"["map",[[{},{}]]]"#, json(99), json(12));
    let s = load(|t| {
        t.insert("Root", 1, &[("map", &map)]);
        t.insert("Root", 2, &[("name", "\"b\""), ("kids", &json(10))]);
        t.insert("Kid", 10, &[("owner", &json(77))]);
        t.insert("Kid", 11, &[("next", &json(13))]);
        t.insert("Kid", 12, &[]);
        t.insert("Kid", 13, &[]);
    })
    .unwrap();
    let kids = s.db.schema().table_id("Kid").unwrap();
    let left: Vec<Uuid> = s.db.store().table(kids).iter().map(Row::uuid).collect();
    assert_eq!(left, [uuid(10)]);
    assert_eq!(s.value("Kid", 10, "owner").unwrap(), json_set(&[]));
    assert_eq!(s.value("Root", 1, "map").unwrap(), r#"["map",[]]"#);
}

#[test]
fn a_file_that_breaks_a_rule_is_refused() {
    let error = |result: Result<Scenario, Error>| result.err().unwrap().to_string();
    let missing = load(|t| t.insert("Root", 1, &[("kids", &json(10))]));
    assert!(error(missing).contains("Table Root column kids row"));
    let twice = load(|t| (1..3).for_each(|n| t.insert("Root", n, &[])));
    assert!(error(twice).contains("identical values (\"\") for index on column \"name\""));
    let names = ["\"a\"", "\"b\"", "\"c\"", "\"d\""];
    let many = load(|t| {
        (1..).zip(names).for_each(|(n, name)| t.insert("Root", n, &[("name", name)]));
    });
    assert!(error(many).contains("to contain 4 rows"));
}

/// Where it came from, the reference that leads nowhere is still there, and taken out later: a difference of it
/// would put in what is not here.
#[test]
fn what_another_server_has_told_stays_until_it_says_otherwise() {
    let map = format!(r#"["map",[[{},{}]]]"#, json(99), json(12));
    let fill = |t: &mut Steps<'_>| {
        t.insert("Root", 1, &[("map", &map)]);
        t.insert("Kid", 12, &[("owner", &json(77))]);
        t.insert("Kid", 13, &[]);
    };
    let mut s = load_by(Database::from_told, fill).unwrap();
    assert_eq!(s.value("Kid", 12, "owner").as_deref(), Some(&*json(77)));
    assert!(s.value("Kid", 13, "next").is_some());

    let (root, kid) =
        (s.db.schema().table_id("Root").unwrap(), s.db.schema().table_id("Kid").unwrap());
    let column = s.db.schema().table(root).column_id("map").unwrap();
    let pair = (Atom::Uuid(uuid(99)), Atom::Uuid(uuid(12)));
    let value = Datum::map(Sorted::from_sorted(vec![pair]));
    let edit = Edit::Modify(vec![ColumnEdit { column, value, is_difference: true }]);
    let edits = vec![RowEdit { table: root, uuid: uuid(1), edit }];
    let mut uuids = UuidSource::new([3; 4]);
    follow(&mut s.db, edits, &mut uuids).unwrap();
    assert_eq!(s.value("Root", 1, "map").as_deref(), Some(r#"["map",[]]"#));

    // All rows once more, with another reference of that kind.
    let told = load_by(Database::from_told, fill).unwrap();
    let mut difference = Difference::new(&s.db.snapshot(), 7);
    for table in [root, kid] {
        for row in told.db.store().table(table).iter() {
            difference.row(table, row.clone()).unwrap();
        }
    }
    take_over(&mut s.db, difference.end().unwrap(), &mut uuids).unwrap();
    assert_eq!(s.value("Root", 1, "map"), told.value("Root", 1, "map"));
}

/// A member that reads the entry in its file takes it out, too.
#[test]
fn a_reference_that_an_entry_leaves_dangling_goes() {
    let fill = |t: &mut Steps<'_>| {
        t.insert("Root", 1, &[("kids", &json(10))]);
        t.insert("Root", 2, &[("name", "\"b\"")]);
        t.insert("Kid", 10, &[("owner", &json(2))]);
    };
    let mut s = load(fill).unwrap();
    let root = s.db.schema().table_id("Root").unwrap();
    let edits = vec![RowEdit { table: root, uuid: uuid(2), edit: Edit::Delete }];
    let position = s.db.position();
    let delta = follow_entry(&mut s.db, edits, &mut UuidSource::new([3; 4])).unwrap();
    assert_eq!((delta.rows().count(), s.db.position()), (2, position + 1));
    assert_eq!(s.value("Kid", 10, "owner").as_deref(), Some(r#"["set",[]]"#));
    assert_eq!(s.db.weak_refs(), 0);
}

//! A database made of a snapshot, for requests that take long, which run while the database itself
//! goes on.
//!
//! Filing rows by UUID and in unique indexes takes ten times as long as a look at each, so a request
//! that only reads has what its conditions may ask for and nothing else. There are no keys and no
//! links.

use std::collections::{BTreeMap, BTreeSet};

use weir_data::{ColumnId, Schema, Snapshot, TableId};
use weir_json::Text;

use crate::database::Database;
use crate::execute::only_reads_once;
use crate::rbac;

/// How rows of a table may be looked for.
#[derive(Debug, Default)]
struct Named {
    /// In every way.
    is_all: bool,
    /// By values of these columns.
    columns: BTreeSet<ColumnId>,
}

impl Named {
    fn wants_index(&self, columns: &[ColumnId]) -> bool {
        self.is_all || columns.iter().all(|column| self.columns.contains(column))
    }
}

/// The rows of a snapshot, to be found in the ways that the operations can ask for. `seed` is any:
/// no answer depends on it.
pub(crate) fn of(snapshot: &Snapshot, operations: &[Text<'_>], seed: u64) -> Database {
    let is_all = !only_reads_once(operations);
    make(snapshot, &named(snapshot.schema(), operations, is_all), seed)
}

/// The rows of a snapshot, to be found in every way, for whoever looks after the operations, too.
pub(crate) fn whole(snapshot: &Snapshot, operations: &[Text<'_>], seed: u64) -> Database {
    make(snapshot, &named(snapshot.schema(), operations, true), seed)
}

fn make(snapshot: &Snapshot, named: &BTreeMap<TableId, Named>, seed: u64) -> Database {
    let schema = snapshot.schema();
    let indexes = |table: TableId, named: &Named| {
        let indexes = schema.table(table).indexes.iter().enumerate();
        indexes.filter(|(_, columns)| named.wants_index(columns)).map(|(at, _)| at).collect()
    };
    let indexes: BTreeMap<TableId, Vec<usize>> =
        named.iter().map(|(table, named)| (*table, indexes(*table, named))).collect();
    let by_uuid = |table: &&TableId| {
        let named = &named[*table];
        named.is_all || named.columns.contains(&ColumnId::UUID) || !indexes[*table].is_empty()
    };
    let by_uuid: Vec<TableId> = named.keys().filter(by_uuid).copied().collect();
    let mut view = Database::bare(snapshot.to_store(&by_uuid, seed), seed);
    view.has_links = false;
    let Database { store, indexes: built, .. } = &mut view;
    for (table, indexes) in &indexes {
        for at in indexes {
            for row in store.table(*table).iter() {
                built.add_row(store, *table, *at, row);
            }
        }
    }
    view
}

/// The tables that the operations, or the rights of clients, may look for rows in.
fn named(schema: &Schema, operations: &[Text<'_>], is_all: bool) -> BTreeMap<TableId, Named> {
    let mut named: BTreeMap<TableId, Named> = BTreeMap::new();
    for operation in operations {
        let members = || operation.members().into_iter().flatten();
        // Of members of one name the last counts; the others do no harm.
        let tables = members().filter(|(key, _)| **key == *b"table");
        for table in tables.filter_map(|(_, value)| schema.table_id(&value.str()?)) {
            let Named { is_all: all, columns } = named.entry(table).or_default();
            *all |= is_all;
            if !*all {
                let conditions = members().filter(|(key, _)| **key == *b"where");
                let clauses = conditions.filter_map(|(_, value)| value.elements()).flatten();
                let id = |clause: Text<'_>| {
                    schema.table(table).column_id(&clause.elements()?.next()?.str()?)
                };
                columns.extend(clauses.filter_map(id));
            }
        }
    }
    for table in rbac::tables(schema) {
        named.entry(table).or_default().is_all = true;
    }
    named
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weir_data::UuidSource;

    use super::*;
    use crate::execute::{Done, Env, Outcome, execute, read};

    const SCHEMA: &[u8] = br#"{"name":"db","tables":{"T":{"isRoot":true,
        "indexes":[["name"],["zone","number"]],"columns":{
        "name":{"type":"string"},"zone":{"type":"string"},"number":{"type":"integer"}}}}}"#;
    const TABLE: TableId = TableId(0);

    fn run(text: &str, run: impl FnOnce(&[Text<'_>], &mut Env<'_>) -> Outcome) -> Done {
        let array = weir_json::validate(text.as_bytes()).expect("JSON");
        let operations: Vec<Text<'_>> = array.elements().expect("an array").collect();
        let mut uuids = UuidSource::new([1, 2, 3, 4]);
        match run(&operations, &mut Env::new(&mut uuids)) {
            Outcome::Done(done) => done,
            _ => panic!("it waits"),
        }
    }

    /// Rows of names n0 to n9, of zones z0 to z4, numbered.
    fn database() -> Database {
        let schema = Arc::new(Schema::parse_bytes(SCHEMA).expect("a schema"));
        let mut db = Database::new(schema, 5);
        let insert = |n: usize| {
            let zone = n % 5;
            format!(
                r#"{{"op":"insert","table":"T","row":{{"name":"n{n}","zone":"z{zone}","number":{n}}}}}"#
            )
        };
        let rows: Vec<String> = (0..10).map(insert).collect();
        run(&format!("[{}]", rows.join(",")), |operations, env| execute(&mut db, operations, env));
        db
    }

    /// Whether rows are found by UUID, and how many there are in each of the two indexes.
    fn built(db: &Database, text: &str) -> (bool, [usize; 2]) {
        let array = weir_json::validate(text.as_bytes()).expect("JSON");
        let operations: Vec<Text<'_>> = array.elements().expect("an array").collect();
        let view = of(&db.snapshot(), &operations, 7);
        assert_eq!(view.store().table(TABLE).len(), 10);
        let first = db.store().table(TABLE).iter().next().expect("a row").uuid();
        let indexes = view.indexes.of(TABLE);
        (view.store().get(TABLE, first).is_some(), [indexes[0].len(), indexes[1].len()])
    }

    fn select(condition: &str) -> String {
        format!(r#"[{{"op":"select","table":"T","where":[{condition}]}}]"#)
    }

    #[test]
    fn a_reader_has_the_indexes_that_its_conditions_name_and_no_others() {
        let db = database();
        let cases = [
            ("", (false, [0, 0])),
            (r#"["zone","==","z1"],["number",">",3]"#, (true, [0, 10])),
            (r#"["zone","==","z1"]"#, (false, [0, 0])),
            (r#"["name","!=","n1"]"#, (true, [10, 0])),
            (r#"["_uuid","==",["uuid","00000000-0000-0000-0000-000000000001"]]"#, (true, [0, 0])),
        ];
        for (condition, expected) in cases {
            assert_eq!(built(&db, &select(condition)), expected, "{condition}");
        }
        // Who writes needs all.
        let update = r#"[{"op":"update","table":"T","where":[["zone","==","z1"]],"row":{}}]"#;
        assert_eq!(built(&db, update), (true, [10, 10]));
    }

    #[test]
    fn a_reader_finds_what_the_database_finds() {
        let mut db = database();
        let uuid = db.store().table(TABLE).iter().nth(3).expect("a row").uuid();
        let by_uuid = format!(r#"["_uuid","==",["uuid","{uuid}"]]"#);
        for (condition, found) in [
            ("", 10),
            (r#"["name","==","n3"]"#, 1),
            (r#"["name","includes","n3"]"#, 1),
            (r#"["n\u0061me","==","n3"]"#, 1),
            (r#"["zone","==","z3"],["number","==",3]"#, 1),
            (r#"["zone","==","z3"],["number","==",4]"#, 0),
            (r#"["zone","==","z3"]"#, 2),
            (r#"["name","==","n3"],false"#, 0),
            (by_uuid.as_str(), 1),
        ] {
            let text = select(condition);
            let there = run(&text, |operations, env| execute(&mut db, operations, env)).reply;
            let snapshot = db.snapshot();
            let here = run(&text, |operations, env| read(&snapshot, operations, env, 9)).reply;
            let text = |reply: Vec<u8>| String::from_utf8(reply).expect("text");
            let (there, here) = (text(there), text(here));
            assert_eq!(here, there, "{condition}");
            assert_eq!(here.matches("_version").count(), found, "{condition}: {here}");
        }
    }
}

//! Conversion to another schema: what becomes of values, rows and references.

use std::sync::Arc;

use weir_data::{Error, Schema, UuidSource};
use weir_engine::{Database, Env, Outcome, convert, execute};

struct World {
    db: Database,
    uuids: UuidSource,
}

impl World {
    fn new(tables: &str) -> Self {
        Self { db: Database::new(schema(tables), 7), uuids: UuidSource::new([1, 2, 3, 4]) }
    }

    fn run(&mut self, operations: &str) -> String {
        let array = format!("[{operations}]");
        let array = weir_json::validate(array.as_bytes()).unwrap();
        let operations: Vec<_> = array.elements().unwrap().collect();
        let mut env = Env::new(&mut self.uuids);
        match execute(&mut self.db, &operations, &mut env) {
            Outcome::Done(done) => String::from_utf8(done.reply).unwrap(),
            Outcome::Wait { .. } | Outcome::TooLong { .. } => panic!("nothing waits here"),
        }
    }

    fn convert(&mut self, tables: &str) -> Result<(), Error> {
        self.db = convert(&self.db.snapshot(), schema(tables), &mut self.uuids, 7)?.database;
        Ok(())
    }

    /// All rows of a table in these columns.
    fn rows(&mut self, table: &str, columns: &str) -> String {
        let sort = format!(r#""sort":[{columns}]"#);
        let select = format!(
            r#"{{"op":"select","table":"{table}","where":[],"columns":[{columns}],{sort}}}"#
        );
        let reply = self.run(&select);
        reply.strip_prefix(r#"[{"rows":"#).unwrap().strip_suffix("}]").unwrap().to_owned()
    }
}

fn schema(tables: &str) -> Arc<Schema> {
    let text = format!(r#"{{"name":"T","tables":{{{tables}}}}}"#);
    Arc::new(Schema::parse_bytes(text.as_bytes()).unwrap())
}

const INTEGER: &str = r#""A":{"columns":{"x":{"type":"integer"},"gone":{"type":"string"}}}"#;

#[test]
fn values_are_read_again_as_their_new_types() {
    let mut world = World::new(INTEGER);
    world.run(r#"{"op":"insert","table":"A","row":{"x":3,"gone":"bye"}}"#);
    let uuid = world.rows("A", r#""_uuid""#);
    world
        .convert(
            r#""A":{"columns":{"x":{"type":{"key":"real","min":0,"max":5}},
            "added":{"type":"string"}}}"#,
        )
        .unwrap();
    assert_eq!(world.rows("A", r#""x","added""#), r#"[{"added":"","x":3}]"#);
    assert_eq!(world.rows("A", r#""_uuid""#), uuid);
}

#[test]
fn a_value_that_its_new_type_forbids_stops_the_conversion() {
    let mut world = World::new(INTEGER);
    world.run(r#"{"op":"insert","table":"A","row":{"x":3}}"#);
    let narrowed = r#""A":{"columns":{"x":{"type":{"key":{"type":"integer","maxInteger":2}}}}}"#;
    let error = world.convert(narrowed).unwrap_err();
    assert_eq!(
        error.to_string(),
        "constraint violation: 3 is greater than maximum allowed value 2"
    );
    let text = r#""A":{"columns":{"x":{"type":"string"}}}"#;
    assert_eq!(world.convert(text).unwrap_err().tag(), "syntax error");
    assert_eq!(world.rows("A", r#""x""#), r#"[{"x":3}]"#);
}

#[test]
fn rows_that_a_commit_would_remove_go() {
    let mut world = World::new(
        r#""A":{"isRoot":true,"columns":{"b":{"type":{"key":{"type":"uuid","refTable":"B"},
        "min":0,"max":"unlimited"}}}},"B":{"columns":{"x":{"type":"integer"}}}"#,
    );
    world.run(
        r#"{"op":"insert","table":"B","uuid-name":"b","row":{"x":1}},
        {"op":"insert","table":"A","row":{"b":["named-uuid","b"]}}"#,
    );
    // Nothing refers to B any more.
    world
        .convert(
            r#""A":{"isRoot":true,"columns":{"n":{"type":"integer"}}},
            "B":{"columns":{"x":{"type":"integer"}}}"#,
        )
        .unwrap();
    assert_eq!(world.rows("A", r#""n""#), r#"[{"n":0}]"#);
    assert_eq!(world.rows("B", r#""x""#), "[]");
}

#[test]
fn limits_and_indexes_of_the_new_schema_hold() {
    let mut world = World::new(INTEGER);
    world.run(
        r#"{"op":"insert","table":"A","row":{"x":3}},{"op":"insert","table":"A","row":{"x":3}}"#,
    );
    let columns = r#""columns":{"x":{"type":"integer"}}"#;
    let error = world.convert(&format!(r#""A":{{{columns},"maxRows":1}}"#)).unwrap_err();
    assert!(error.to_string().contains("greater than the schema-defined limit of 1 row"));
    let error = world.convert(&format!(r#""A":{{{columns},"indexes":[["x"]]}}"#)).unwrap_err();
    assert!(error.to_string().contains("identical values (3) for index on column \"x\""));
}

#[test]
fn the_version_changes_with_the_table() {
    let mut world = World::new(
        r#""A":{"columns":{"x":{"type":"integer"}}},"B":{"columns":{"x":{"type":"integer"}}}"#,
    );
    world.run(r#"{"op":"insert","table":"A","row":{}},{"op":"insert","table":"B","row":{}}"#);
    let [a, b] = ["A", "B"].map(|table| world.rows(table, r#""_version""#));
    world
        .convert(
            r#""A":{"columns":{"x":{"type":"integer"}}},
            "B":{"columns":{"x":{"type":"integer"},"y":{"type":"integer"}}}"#,
        )
        .unwrap();
    assert_eq!(world.rows("A", r#""_version""#), a);
    assert_ne!(world.rows("B", r#""_version""#), b);
}

//! The `_Server` database (ovsdb-server(5)): one row a database, kept by the server itself.

use std::sync::Arc;

use weir_data::{Schema, Uuid, UuidSource};
use weir_engine::{Database, Env, Outcome};
use weir_json::{Value, object};

/// The name of the database about databases.
pub(crate) const NAME: &str = "_Server";

/// The schema of `_Server`, version 1.2.0.
const SCHEMA: &str = r#"{"name":"_Server","version":"1.2.0","cksum":"3009684573 744","tables":{
"Database":{"columns":{
"name":{"type":"string"},
"model":{"type":{"key":{"type":"string","enum":["set",["standalone","clustered","relay"]]}}},
"connected":{"type":"boolean"},
"leader":{"type":"boolean"},
"schema":{"type":{"key":{"type":"string"},"min":0,"max":1}},
"cid":{"type":{"key":{"type":"uuid"},"min":0,"max":1}},
"sid":{"type":{"key":{"type":"uuid"},"min":0,"max":1}},
"index":{"type":{"key":{"type":"integer"},"min":0,"max":1}}}}}}"#;

/// An empty `_Server` database.
pub(crate) fn new(seed: u64) -> Result<Database, String> {
    Ok(Database::new(Arc::new(Schema::parse_bytes(SCHEMA.as_bytes())?), seed))
}

/// The operations that add a standalone database's row.
pub(crate) fn insert(name: &str, schema: &Schema, row: Uuid) -> Value {
    let columns = object([
        ("name", name.into()),
        ("model", "standalone".into()),
        ("connected", true.into()),
        ("leader", true.into()),
        ("schema", schema.to_string().into()),
    ]);
    insert_row(row, columns)
}

/// The operations that add the row of a relay that has not heard from its source.
pub(crate) fn insert_relay(name: &str, row: Uuid) -> Value {
    let columns = object([
        ("name", name.into()),
        ("model", "relay".into()),
        ("connected", false.into()),
        ("leader", false.into()),
    ]);
    insert_row(row, columns)
}

/// The operations that add the row of a server that has not joined its cluster.
pub(crate) fn insert_joining(name: &str, cluster: Uuid, sid: Uuid, row: Uuid) -> Value {
    let columns = object([
        ("name", name.into()),
        ("model", "clustered".into()),
        ("connected", false.into()),
        ("leader", false.into()),
        ("cid", uuid_value(cluster)),
        ("sid", uuid_value(sid)),
    ]);
    insert_row(row, columns)
}

/// The operations that put the cluster of a server that has not joined it into its row.
pub(crate) fn set_cid(name: &str, cluster: Uuid) -> Value {
    update_row(name, object([("cid", uuid_value(cluster))]))
}

/// The operations that put a relay's state into its row.
pub(crate) fn set_relay(name: &str, is_connected: bool, index: Option<u64>) -> Value {
    let mut columns = vec![("connected".to_owned(), is_connected.into())];
    columns.extend(index.map(|index| ("index".to_owned(), index.cast_signed().into())));
    update_row(name, Value::Object(columns.into_iter().collect()))
}

/// The operations that put a schema into the row of this name, and the name that the schema gives.
pub(crate) fn set_schema(name: &str, schema: &Schema) -> Value {
    let columns =
        object([("name", schema.name.as_str().into()), ("schema", schema.to_string().into())]);
    update_row(name, columns)
}

/// How a clustered database is.
pub(crate) struct ClusterState {
    pub(crate) is_connected: bool,
    pub(crate) leads: bool,
    /// The last entry that took effect.
    pub(crate) index: u64,
    pub(crate) cluster: Option<Uuid>,
    pub(crate) sid: Uuid,
}

/// The operations that put a clustered database's state into its row.
pub(crate) fn set_cluster(name: &str, state: &ClusterState) -> Value {
    let mut columns = vec![
        ("model".to_owned(), "clustered".into()),
        ("connected".to_owned(), state.is_connected.into()),
        ("leader".to_owned(), state.leads.into()),
        ("index".to_owned(), state.index.cast_signed().into()),
        ("sid".to_owned(), uuid_value(state.sid)),
    ];
    columns.extend(state.cluster.map(|cluster| ("cid".to_owned(), uuid_value(cluster))));
    update_row(name, Value::Object(columns.into_iter().collect()))
}

/// The operations that remove a database's row.
pub(crate) fn delete(name: &str) -> Value {
    object([("op", "delete".into()), ("table", "Database".into()), ("where", named(name))])
}

fn uuid_value(uuid: Uuid) -> Value {
    Value::Array(vec!["uuid".into(), uuid.to_string().into()])
}

fn insert_row(row: Uuid, columns: Value) -> Value {
    object([
        ("op", "insert".into()),
        ("table", "Database".into()),
        ("uuid", row.to_string().into()),
        ("row", columns),
    ])
}

fn update_row(name: &str, columns: Value) -> Value {
    object([
        ("op", "update".into()),
        ("table", "Database".into()),
        ("where", named(name)),
        ("row", columns),
    ])
}

/// The condition for the row of a database.
fn named(name: &str) -> Value {
    let clause = Value::Array(vec!["name".into(), "==".into(), name.into()]);
    Value::Array(vec![clause])
}

/// Runs one operation of the server's own; its result is a delta to show to monitors.
pub(crate) fn execute(
    database: &mut Database,
    operation: &Value,
    uuids: &mut UuidSource,
) -> Option<weir_data::Delta> {
    let text = operation.to_string();
    let operation = weir_json::validate(text.as_bytes()).ok()?;
    let mut env = Env::new(uuids);
    match weir_engine::execute(database, &[operation], &mut env) {
        Outcome::Done(done) => done.delta,
        Outcome::Wait { .. } | Outcome::TooLong { .. } => None,
    }
}

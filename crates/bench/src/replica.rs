//! A complete copy of a database, kept up to date by `update3` notifications (`ovsdb-server(7)`).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::Error;
use crate::client::{Client, Target};
use crate::error::fail;

/// How a column's differences are to be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Exactly one value: the new value replaces the old one.
    Scalar,
    /// At most one value: likewise, and the default is none.
    Optional,
    /// A set: the symmetric difference.
    Set,
    /// A map: pairs on one side only come or go, a new value for a known key replaces.
    Map,
}

/// A column's value; atoms are their JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Datum {
    Scalar(String),
    Set(BTreeSet<String>),
    Map(BTreeMap<String, String>),
}

/// A row without the columns that have their default value.
pub(crate) type Row = BTreeMap<String, Datum>;

/// A copy of a database, made of a monitor's updates.
pub(crate) struct Replica {
    kinds: BTreeMap<String, BTreeMap<String, Kind>>,
    /// Rows by table and uuid.
    pub(crate) tables: BTreeMap<String, BTreeMap<String, Row>>,
    /// Notifications applied so far.
    pub(crate) notifications: u64,
}

impl Replica {
    pub(crate) fn new(schema: &Value) -> Self {
        let mut kinds = BTreeMap::new();
        for (table, body) in objects(&schema["tables"]) {
            let columns = objects(&body["columns"]);
            kinds.insert(
                table.clone(),
                columns.map(|(name, column)| (name.clone(), kind(&column["type"]))).collect(),
            );
        }
        Self { kinds, tables: BTreeMap::new(), notifications: 0 }
    }

    /// A copy of nothing, of the same schema.
    pub(crate) fn empty(&self) -> Self {
        Self { kinds: self.kinds.clone(), tables: BTreeMap::new(), notifications: 0 }
    }

    pub(crate) fn rows(&self) -> usize {
        self.tables.values().map(BTreeMap::len).sum()
    }

    /// Whether there is such a row.
    pub(crate) fn has(&self, table: &str, uuid: &str) -> bool {
        self.tables.get(table).is_some_and(|rows| rows.contains_key(uuid))
    }

    /// Compares with another copy of the same database.
    pub(crate) fn check_equal(&self, other: &Self) -> Result<(), Error> {
        let empty = BTreeMap::new();
        for table in self.kinds.keys() {
            let rows = |copy: &'_ Self| copy.tables.get(table).map_or(0, BTreeMap::len);
            if self.tables.get(table).unwrap_or(&empty) != other.tables.get(table).unwrap_or(&empty)
            {
                fail!(
                    "table {table}: the copies differ ({} rows, {} rows)",
                    rows(self),
                    rows(other)
                );
            }
        }
        Ok(())
    }

    /// The monitor requests for all columns of all tables, as an IDL client names them.
    pub(crate) fn requests(&self) -> Value {
        let requests = self.kinds.iter().map(|(table, columns)| {
            (table.clone(), json!([{ "columns": columns.keys().collect::<Vec<_>>() }]))
        });
        Value::Object(requests.collect())
    }

    /// Applies a stream of messages; those that are not `update3` are passed over.
    pub(crate) fn apply_stream(&mut self, bytes: &[u8]) -> Result<(), Error> {
        for message in serde_json::Deserializer::from_slice(bytes).into_iter::<Value>() {
            let message = message
                .map_err(|e| Error::Check(format!("a monitor's message is not JSON: {e}")))?;
            if message["method"] == "update3" {
                self.notifications += 1;
                self.apply(&message["params"][2])?;
            }
        }
        Ok(())
    }

    /// Applies one `<table-updates2>`.
    pub(crate) fn apply(&mut self, updates: &Value) -> Result<(), Error> {
        for (table, rows) in objects(updates) {
            let Some(kinds) = self.kinds.get(table) else { fail!("update of table {table}") };
            let copy = self.tables.entry(table.clone()).or_default();
            for (uuid, update) in objects(rows) {
                let Some((what, row)) = objects(update).next() else {
                    fail!("empty update of {table} {uuid}")
                };
                match (what.as_str(), copy.get_mut(uuid)) {
                    ("initial" | "insert", None) => {
                        copy.insert(uuid.clone(), full_row(kinds, row));
                    }
                    ("delete", Some(_)) => {
                        copy.remove(uuid);
                    }
                    ("modify", Some(old)) => modify(kinds, old, row)?,
                    (_, old) => fail!("{what} of {table} {uuid}, known before: {}", old.is_some()),
                }
            }
        }
        Ok(())
    }

    /// Compares with what the server says that it has.
    pub(crate) fn check_against(&self, target: &Target, db: &str) -> Result<(), Error> {
        let mut client = Client::connect(target)?;
        for (table, kinds) in &self.kinds {
            let select = json!([db, {"op": "select", "table": table, "where": []}]);
            let results = client.transact(&select)?;
            let rows = results.first().and_then(|result| result["rows"].as_array());
            let selected: BTreeMap<_, _> = rows
                .into_iter()
                .flatten()
                .map(|row| {
                    (row["_uuid"][1].as_str().unwrap_or("").to_owned(), full_row(kinds, row))
                })
                .collect();
            let empty = BTreeMap::new();
            let copy = self.tables.get(table).unwrap_or(&empty);
            if &selected != copy {
                let (ours, theirs) = (copy.len(), selected.len());
                fail!("table {table}: a monitor's copy ({ours} rows) differs from it ({theirs})");
            }
        }
        Ok(())
    }
}

fn objects(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

fn kind(column_type: &Value) -> Kind {
    let single = column_type.get("max").is_none_or(|max| max == 1);
    let optional = column_type.get("min").is_some_and(|min| min == 0);
    match (single, optional, column_type.get("value").is_some()) {
        (true, false, _) => Kind::Scalar,
        (true, true, _) => Kind::Optional,
        (false, _, false) => Kind::Set,
        (false, _, true) => Kind::Map,
    }
}

fn datum(kind: Kind, value: &Value) -> Datum {
    let elements = |tag: &str| match value.as_array().map(Vec::as_slice) {
        Some([found, Value::Array(elements)]) if found == tag => Some(elements),
        _ => None,
    };
    match kind {
        Kind::Scalar | Kind::Optional => Datum::Scalar(value.to_string()),
        Kind::Set => Datum::Set(match elements("set") {
            Some(elements) => elements.iter().map(Value::to_string).collect(),
            None => BTreeSet::from([value.to_string()]),
        }),
        Kind::Map => Datum::Map(
            elements("map")
                .into_iter()
                .flatten()
                .map(|pair| (pair[0].to_string(), pair[1].to_string()))
                .collect(),
        ),
    }
}

fn is_default(kind: Kind, datum: &Datum) -> bool {
    const ZERO: &str = r#"["uuid","00000000-0000-0000-0000-000000000000"]"#;
    match datum {
        Datum::Scalar(text) if kind == Kind::Optional => {
            matches!(text.as_str(), r#"["set",[]]"# | r#"["map",[]]"#)
        }
        Datum::Scalar(text) => matches!(text.as_str(), r#""""# | "0" | "0.0" | "false" | ZERO),
        Datum::Set(elements) => elements.is_empty(),
        Datum::Map(pairs) => pairs.is_empty(),
    }
}

fn full_row(kinds: &BTreeMap<String, Kind>, row: &Value) -> Row {
    objects(row)
        .filter_map(|(column, value)| {
            let kind = *kinds.get(column)?;
            let datum = datum(kind, value);
            (!is_default(kind, &datum)).then(|| (column.clone(), datum))
        })
        .collect()
}

/// Applies a row's differences.
fn modify(kinds: &BTreeMap<String, Kind>, row: &mut Row, diff: &Value) -> Result<(), Error> {
    for (column, value) in objects(diff) {
        let Some(&kind) = kinds.get(column) else { fail!("update of column {column}") };
        let change = datum(kind, value);
        let merged = match (row.remove(column), change) {
            (Some(Datum::Set(mut old)), Datum::Set(change)) => {
                for element in change {
                    if !old.remove(&element) {
                        old.insert(element);
                    }
                }
                Datum::Set(old)
            }
            (Some(Datum::Map(mut old)), Datum::Map(change)) => {
                for (key, value) in change {
                    if old.get(&key) == Some(&value) {
                        old.remove(&key);
                    } else {
                        old.insert(key, value);
                    }
                }
                Datum::Map(old)
            }
            (_, change) => change,
        };
        if !is_default(kind, &merged) {
            row.insert(column.clone(), merged);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica() -> Replica {
        Replica::new(&json!({"name": "D", "tables": {"T": {"columns": {
            "name": {"type": "string"},
            "tags": {"type": {"key": "string", "min": 0, "max": "unlimited"}},
            "opt": {"type": {"key": "integer", "min": 0, "max": 1}},
            "ids": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}}
        }}}}))
    }

    fn one(replica: &Replica) -> Row {
        replica.tables["T"]["u"].clone()
    }

    #[test]
    fn differences_apply_by_the_columns_kind() {
        let mut replica = replica();
        let insert = json!({"T": {"u": {"insert": {
            "name": "n", "tags": ["set", ["a", "b"]], "opt": 3, "ids": ["map", [["k", "1"], ["l", "2"]]]
        }}}});
        replica.apply(&insert).unwrap();
        let change = json!({"T": {"u": {"modify": {
            "tags": ["set", ["b", "c"]], "opt": ["set", []], "ids": ["map", [["k", "9"], ["l", "2"]]]
        }}}});
        replica.apply(&change).unwrap();
        let wanted = full_row(
            &replica.kinds["T"],
            &json!({"name": "n", "tags": ["set", ["a", "c"]], "ids": ["map", [["k", "9"]]]}),
        );
        assert_eq!(one(&replica), wanted);
    }

    #[test]
    fn the_last_element_leaves_an_absent_column() {
        let mut replica = replica();
        replica.apply(&json!({"T": {"u": {"initial": {"tags": "a"}}}})).unwrap();
        replica.apply(&json!({"T": {"u": {"modify": {"tags": "a"}}}})).unwrap();
        assert!(one(&replica).is_empty());
    }

    #[test]
    fn updates_that_do_not_fit_are_failures() {
        let mut replica = replica();
        assert!(replica.apply(&json!({"T": {"u": {"delete": null}}})).is_err());
        assert!(replica.apply(&json!({"T": {"u": {"modify": {}}}})).is_err());
        replica.apply(&json!({"T": {"u": {"insert": {}}}})).unwrap();
        assert!(replica.apply(&json!({"T": {"u": {"insert": {}}}})).is_err());
        assert!(replica.apply(&json!({"X": {"u": {"insert": {}}}})).is_err());
    }

    #[test]
    fn streams_hold_other_messages_too() {
        let mut replica = replica();
        let stream = br#"{"id":"alive","result":[],"error":null}{"method":"update3","params":[["m"],"0",{"T":{"u":{"insert":{"name":"x"}}}}],"id":null}"#;
        replica.apply_stream(stream).unwrap();
        assert_eq!(replica.notifications, 1);
        assert_eq!(one(&replica)["name"], Datum::Scalar("\"x\"".into()));
        assert!(replica.apply_stream(b"{\"method\":").is_err());
    }
}

//! The whole content of a database, as a client sees it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::client::{Client, Trouble};
use crate::differential::watch::pairs;
use crate::generate::Schema;
use crate::normalise::Correspondence;

/// What a database holds: rows by UUID, by table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dump {
    /// The rows by table and UUID.
    pub tables: BTreeMap<String, BTreeMap<String, Map<String, Value>>>,
}

/// The operations that read every row of every table.
pub fn select_all(tables: &[String]) -> Vec<Value> {
    tables.iter().map(|table| json!({"op": "select", "table": table, "where": []})).collect()
}

/// The names of a schema's tables.
pub fn table_names(schema: &Schema) -> Vec<String> {
    schema.tables.iter().map(|table| table.name.clone()).collect()
}

impl Dump {
    /// Reads all rows of `tables`.
    ///
    /// # Errors
    /// When the session fails.
    pub fn read(client: &mut Client, db: &str, tables: &[String]) -> Result<Self, Trouble> {
        let result = client.transact(db, &select_all(tables))?;
        Self::from_result(tables, &result)
    }

    /// The dump in the result of [`select_all`].
    ///
    /// # Errors
    /// When a select failed.
    pub fn from_result(tables: &[String], result: &Value) -> Result<Self, Trouble> {
        let mut dump = Self::default();
        for (i, name) in tables.iter().enumerate() {
            let rows = result[i]["rows"]
                .as_array()
                .ok_or_else(|| Trouble::Refused(format!("select of {name}: {}", result[i])))?;
            let by_uuid = dump.tables.entry(name.clone()).or_default();
            for row in rows.iter().filter_map(Value::as_object) {
                let uuid = row["_uuid"][1].as_str().unwrap_or_default().to_owned();
                by_uuid.insert(uuid, row.clone());
            }
        }
        Ok(dump)
    }

    /// All rows, each with its table and UUID.
    pub fn rows(&self) -> impl Iterator<Item = (&String, &String, &Map<String, Value>)> {
        self.tables
            .iter()
            .flat_map(|(table, rows)| rows.iter().map(move |(uuid, row)| (table, uuid, row)))
    }

    /// The number of rows of a table.
    pub fn count(&self, table: &str) -> usize {
        self.tables.get(table).map_or(0, BTreeMap::len)
    }

    /// Compares the dump of A with that of B in A's UUIDs.
    ///
    /// # Errors
    /// The first row that differs.
    pub fn compare(&self, other: &Self, known: &mut Correspondence) -> Result<(), String> {
        for (table, uuid, row) in self.rows() {
            let Some(twin) = other.tables.get(table).and_then(|rows| rows.get(uuid)) else {
                return Err(format!("{table} {uuid}: only in A: {}", Value::Object(row.clone())));
            };
            known
                .compare_row(&Value::Object(row.clone()), &Value::Object(twin.clone()))
                .map_err(|difference| format!("{table} {uuid}{difference}"))?;
        }
        let extra = other.rows().find(|(table, uuid, _)| {
            self.tables.get(*table).is_none_or(|rows| !rows.contains_key(*uuid))
        });
        match extra {
            Some((table, uuid, row)) => {
                Err(format!("{table} {uuid}: only in B: {}", Value::Object(row.clone())))
            }
            None => Ok(()),
        }
    }

    /// The dump without versions, and without the columns that a restart empties.
    pub fn persistent(&self, schema: &Schema) -> Self {
        let mut dump = self.clone();
        for (name, rows) in &mut dump.tables {
            let table = schema.table(name);
            for row in rows.values_mut() {
                row.retain(|column, _| {
                    let ephemeral = table.and_then(|table| table.column(column));
                    column != "_version" && !ephemeral.is_some_and(|column| column.ephemeral)
                });
            }
        }
        dump
    }

    /// A reference to a row that does not exist.
    pub fn dangling(&self, schema: &Schema) -> Option<String> {
        let exists = |table: &str, uuid: &String| {
            self.tables.get(table).is_some_and(|rows| rows.contains_key(uuid))
        };
        for (table, uuid, row) in self.rows() {
            for column in schema.table(table).map_or(&[][..], |table| &table.columns) {
                for (key, value) in pairs(row.get(&column.name).unwrap_or(&Value::Null)) {
                    for (base, atom) in column.bases().zip([key, value]) {
                        let Some((target, _)) = &base.reference else { continue };
                        let named = atom[1].as_str().unwrap_or_default().to_owned();
                        if !exists(target, &named) {
                            return Some(format!("{table} {uuid} {}: {named}", column.name));
                        }
                    }
                }
            }
        }
        None
    }

    /// A dump of B in A's UUIDs.
    ///
    /// # Errors
    /// Never, unless JSON text does not survive being written and read.
    pub fn renamed(&self, known: &Correspondence) -> Result<Self, Trouble> {
        let mut dump = Self::default();
        for (table, uuid, row) in self.rows() {
            let text = known.from_b(&Value::Object(row.clone()).to_string());
            let row =
                crate::client::parse(text.as_bytes())?.as_object().cloned().unwrap_or_default();
            dump.tables.entry(table.clone()).or_default().insert(known.from_b(uuid), row);
        }
        Ok(dump)
    }

    /// One insertion a row, under its own UUID: a transaction that makes this content.
    pub fn insertions(&self) -> Vec<Value> {
        let insertion = |(table, uuid, row): (&String, &String, &Map<String, Value>)| {
            let mut row = row.clone();
            row.retain(|column, _| !column.starts_with('_'));
            json!({"op": "insert", "table": table, "uuid": uuid, "row": row})
        };
        self.rows().map(insertion).collect()
    }
}

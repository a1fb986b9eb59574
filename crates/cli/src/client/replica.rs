//! What `weir watch` knows of the database: a copy of the watched tables, and what a message of
//! the server changes in it.

use std::collections::BTreeMap;

use weir_json::Value;

use super::cell::{Cell, CellChange};
use super::column::{Column, Tables};

/// A row by column name.
pub(crate) type Row = BTreeMap<String, Cell>;

/// What happened to a row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// The row came.
    Inserted,
    /// The row went; this is what it was.
    Deleted(Row),
    /// Columns of the row changed: these.
    Modified(Vec<(String, CellChange)>),
}

/// A change of one row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    /// The row's table.
    pub(crate) table: String,
    /// The row's uuid.
    pub(crate) uuid: String,
    /// What happened to the row.
    pub(crate) kind: Kind,
}

/// How a message writes the changes of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `update` (RFC 7047 section 4.1.6): old and new values.
    Values,
    /// `update2` and `update3` (ovsdb-server(7)): differences.
    Differences,
}

/// A copy of what a server has sent of a database.
#[derive(Debug, Default)]
pub(crate) struct Replica {
    tables: Tables,
    rows: BTreeMap<String, BTreeMap<String, Row>>,
    /// Names of rows by uuid, for whoever refers to them; also of rows deleted by the last message.
    names: BTreeMap<String, String>,
    gone: Vec<String>,
}

impl Replica {
    /// An empty copy of these tables.
    pub(crate) fn new(tables: Tables) -> Self {
        Self { tables, ..Self::default() }
    }

    /// The watched tables.
    pub(crate) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The rows of a table by uuid.
    pub(crate) fn rows(&self, table: &str) -> impl Iterator<Item = (&String, &Row)> {
        self.rows.get(table).into_iter().flatten()
    }

    /// How many rows a table has.
    pub(crate) fn count(&self, table: &str) -> usize {
        self.rows.get(table).map_or(0, BTreeMap::len)
    }

    /// The row of a table with this uuid.
    pub(crate) fn row(&self, table: &str, uuid: &str) -> Option<&Row> {
        self.rows.get(table)?.get(uuid)
    }

    /// The name of a row that has one.
    pub(crate) fn name(&self, uuid: &str) -> Option<&str> {
        self.names.get(uuid).map(String::as_str)
    }

    /// Applies the changes of one message.
    pub(crate) fn apply(&mut self, form: Form, updates: &Value) -> Vec<Change> {
        for uuid in std::mem::take(&mut self.gone) {
            self.names.remove(&uuid);
        }
        let mut changes = vec![];
        for (table, rows) in updates.as_object().into_iter().flatten() {
            for (uuid, update) in rows.as_object().into_iter().flatten() {
                let new = match form {
                    Form::Values => self.new_by_values(table, update),
                    Form::Differences => self.new_by_difference(table, uuid, update),
                };
                changes.extend(self.put(table, uuid, new));
            }
        }
        changes
    }

    /// Replaces everything by an initial reply, as if the server had sent the difference.
    pub(crate) fn replace(&mut self, form: Form, initial: &Value) -> Vec<Change> {
        let mut fresh = Self::new(self.tables.clone());
        fresh.apply(form, initial);
        let mut changes = vec![];
        let names: Vec<String> = self.tables.keys().cloned().collect();
        for table in &names {
            let vanished: Vec<String> = self
                .rows(table)
                .filter(|(uuid, _)| fresh.row(table, uuid).is_none())
                .map(|(uuid, _)| uuid.clone())
                .collect();
            for uuid in vanished {
                changes.extend(self.put(table, &uuid, None));
            }
            for (uuid, row) in fresh.rows.remove(table).into_iter().flatten() {
                changes.extend(self.put(table, &uuid, Some(row)));
            }
        }
        changes
    }

    /// `{"old": {...}, "new": {...}}`; "new" has all columns.
    fn new_by_values(&self, table: &str, update: &Value) -> Option<Row> {
        Some(self.read_row(table, update.get("new")?))
    }

    /// One of `initial`, `insert`, `modify`, `delete`.
    fn new_by_difference(&self, table: &str, uuid: &str, update: &Value) -> Option<Row> {
        if let Some(row) = update.get("initial").or_else(|| update.get("insert")) {
            return Some(self.read_row(table, row));
        }
        let mut row = self.row(table, uuid)?.clone();
        for (column, diff) in update.get("modify")?.as_object()? {
            if let Some(cell) = row.get_mut(column) {
                cell.apply(diff);
            }
        }
        Some(row)
    }

    /// A row as it was sent; columns left out have their default value.
    fn read_row(&self, table: &str, row: &Value) -> Row {
        let cell = |(name, column): (&String, &Column)| {
            let cell = match row.get(name) {
                Some(value) => Cell::parse(column.shape, value),
                None => Cell::default_of(column),
            };
            (name.clone(), cell)
        };
        self.tables.get(table).into_iter().flatten().map(cell).collect()
    }

    /// Sets or removes a row.
    fn put(&mut self, table: &str, uuid: &str, new: Option<Row>) -> Option<Change> {
        let rows = self.rows.entry(table.to_owned()).or_default();
        let kind = match (rows.remove(uuid), new) {
            (None, None) => return None,
            (Some(old), None) => {
                self.gone.push(uuid.to_owned());
                Kind::Deleted(old)
            }
            (old, Some(new)) => {
                if let Some(name) = name_of(&new) {
                    self.names.insert(uuid.to_owned(), name.to_owned());
                }
                let kind =
                    old.map_or(Kind::Inserted, |old| Kind::Modified(differences(&old, &new)));
                rows.insert(uuid.to_owned(), new);
                kind
            }
        };
        if matches!(&kind, Kind::Modified(columns) if columns.is_empty()) {
            return None;
        }
        Some(Change { table: table.to_owned(), uuid: uuid.to_owned(), kind })
    }
}

fn differences(old: &Row, new: &Row) -> Vec<(String, CellChange)> {
    let changed = new
        .iter()
        .filter_map(|(column, cell)| Some((column.clone(), cell.change_from(old.get(column)?)?)));
    changed.collect()
}

/// What people call a row: its column `name`.
pub(crate) fn name_of(row: &Row) -> Option<&str> {
    match row.get("name")? {
        Cell::One(Value::String(name)) if !name.is_empty() => Some(name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::column;
    use super::*;

    fn json(text: &str) -> Value {
        Value::parse(text.as_bytes()).unwrap_or(Value::Null)
    }

    fn replica() -> Replica {
        let schema = r#"{"tables":{"T":{"columns":{
            "name":{"type":"string"},
            "tags":{"type":{"key":"string","min":0,"max":"unlimited"}}}}}}"#;
        Replica::new(column::tables(&json(schema)).unwrap_or_default())
    }

    fn kinds(changes: &[Change]) -> Vec<&str> {
        let kind = |change: &Change| match &change.kind {
            Kind::Inserted => "+",
            Kind::Deleted(_) => "-",
            Kind::Modified(_) => "~",
        };
        changes.iter().map(kind).collect()
    }

    #[test]
    fn differences_of_the_second_protocol_version() {
        let mut replica = replica();
        let changes = replica.apply(
            Form::Differences,
            &json(r#"{"T":{"u1":{"initial":{"name":"a","tags":"x"}},"u2":{"insert":{}}}}"#),
        );
        assert_eq!(kinds(&changes), ["+", "+"]);
        assert_eq!((replica.count("T"), replica.name("u1")), (2, Some("a")));

        let changes = replica.apply(
            Form::Differences,
            &json(r#"{"T":{"u1":{"modify":{"tags":["set",["x","y"]]}},"u2":{"delete":null}}}"#),
        );
        assert_eq!(kinds(&changes), ["~", "-"]);
        let Kind::Modified(columns) = &changes[0].kind else { panic!("{changes:?}") };
        let tags = CellChange::Elements { added: vec!["y".into()], removed: vec!["x".into()] };
        assert_eq!(columns[..], [("tags".to_owned(), tags)]);
    }

    #[test]
    fn values_of_the_first_protocol_version() {
        let mut replica = replica();
        let row = r#"{"name":"a","tags":["set",[]]}"#;
        replica.apply(Form::Values, &json(&format!(r#"{{"T":{{"u1":{{"new":{row}}}}}}}"#)));
        let changes = replica.apply(
            Form::Values,
            &json(r#"{"T":{"u1":{"old":{"name":"a"},"new":{"name":"b","tags":["set",[]]}}}}"#),
        );
        assert_eq!(kinds(&changes), ["~"]);
        let changes = replica
            .apply(Form::Values, &json(r#"{"T":{"u1":{"old":{"name":"b","tags":["set",[]]}}}}"#));
        assert_eq!(kinds(&changes), ["-"]);
        assert_eq!(replica.count("T"), 0);
    }

    #[test]
    fn a_deleted_row_keeps_its_name_until_the_next_message() {
        let mut replica = replica();
        replica.apply(Form::Differences, &json(r#"{"T":{"u1":{"insert":{"name":"a"}}}}"#));
        replica.apply(Form::Differences, &json(r#"{"T":{"u1":{"delete":null}}}"#));
        assert_eq!(replica.name("u1"), Some("a"));
        replica.apply(Form::Differences, &json("{}"));
        assert_eq!(replica.name("u1"), None);
    }

    #[test]
    fn a_new_start_shows_what_was_missed() {
        let mut replica = replica();
        let old = r#"{"T":{"u1":{"initial":{"name":"a"}},"u2":{"initial":{"name":"b"}},
            "u3":{"initial":{"name":"c"}}}}"#;
        replica.replace(Form::Differences, &json(old));
        let new = r#"{"T":{"u2":{"initial":{"name":"b"}},"u3":{"initial":{"name":"C"}},
            "u4":{"initial":{"name":"d"}}}}"#;
        let changes = replica.replace(Form::Differences, &json(new));
        let seen: Vec<_> = changes.iter().map(|change| change.uuid.as_str()).collect();
        assert_eq!((kinds(&changes), seen), (vec!["-", "~", "+"], vec!["u1", "u3", "u4"]));
    }

    #[test]
    fn nonsense_changes_nothing() {
        let mut replica = replica();
        for text in ["[]", r#"{"T":7}"#, r#"{"T":{"u9":{"modify":{"name":"x"}}}}"#, r#"{"X":{}}"#] {
            assert_eq!(replica.apply(Form::Differences, &json(text)), [], "{text}");
        }
    }
}

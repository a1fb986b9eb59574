//! A database, its monitors, and transactions spelled in JSON.

#![allow(dead_code, reason = "every test uses some of it")]

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use weir_data::delta::Change;
use weir_data::{
    Atom, ColumnDelta, ColumnId, Committed, Datum, Delta, Error, Ids, Row, RowDelta, Schema, Store,
    TableDelta, TableId, Uuid, UuidSource,
};
use weir_json::validate_value;
use weir_monitor::{Flushed, MonitorKey, Monitors, Rows, Update, Version};

pub(crate) struct Scene {
    pub(crate) store: Store,
    pub(crate) monitors: Monitors,
    /// What the next commit changes.
    delta: BTreeMap<TableId, Vec<(Uuid, RowDelta)>>,
    versions: UuidSource,
    position: u64,
}

const SCHEMA: &str = r#"{"name":"Scene","tables":{
    "Bridge":{"columns":{
        "name":{"type":"string"},
        "n":{"type":"integer"},
        "tag":{"type":{"key":"integer","min":0,"max":1}},
        "ports":{"type":{"key":"string","min":0,"max":"unlimited"}},
        "other":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}}}},
    "Port":{"columns":{"name":{"type":"string"},"n":{"type":"integer"}}},
    "Quiet":{"columns":{"n":{"type":"integer"}}}}}"#;

pub(crate) fn uuid(n: u128) -> Uuid {
    Uuid::from_u128(n)
}

impl Scene {
    pub(crate) fn new() -> Self {
        let schema = Schema::parse_bytes(SCHEMA.as_bytes()).expect("a valid schema");
        Self {
            store: Store::new(Arc::new(schema), 1),
            monitors: Monitors::new(1),
            delta: BTreeMap::new(),
            versions: UuidSource::new([1, 2, 3, 4]),
            position: 0,
        }
    }

    fn table(&self, name: &str) -> TableId {
        self.store.schema().table_id(name).expect("a table")
    }

    fn column(&self, table: TableId, name: &str) -> ColumnId {
        self.store.schema().table(table).column_id(name).expect("a column")
    }

    fn datum(&self, table: TableId, column: ColumnId, json: &str) -> Datum {
        let text = validate_value(json.as_bytes()).expect("JSON");
        let ty = &self.store.schema().table(table).column(column).ty;
        Datum::parse(text, ty, None).expect("a value")
    }

    pub(crate) fn insert(&mut self, table: &str, n: u128, values: &[(&str, &str)]) -> &mut Self {
        let table = self.table(table);
        let mut row =
            Row::new(uuid(n), self.versions.next_uuid(), self.store.schema().table(table));
        for (column, json) in values {
            let column = self.column(table, column);
            *row.get_mut(column) = self.datum(table, column, json);
        }
        self.change(table, n, RowDelta::Insert(row))
    }

    /// A row whose name shares its text with others, so that the test stays small.
    pub(crate) fn insert_named(&mut self, table: &str, n: u128, name: &Atom) -> &mut Self {
        let table = self.table(table);
        let mut row =
            Row::new(uuid(n), self.versions.next_uuid(), self.store.schema().table(table));
        let column = self.column(table, "name");
        *row.get_mut(column) = Datum::One(name.clone());
        self.change(table, n, RowDelta::Insert(row))
    }

    pub(crate) fn delete(&mut self, table: &str, n: u128) -> &mut Self {
        let table = self.table(table);
        let row = self.store.get(table, uuid(n)).expect("a row").clone();
        self.change(table, n, RowDelta::Delete(row))
    }

    pub(crate) fn set(&mut self, table: &str, n: u128, values: &[(&str, &str)]) -> &mut Self {
        let table = self.table(table);
        let version = Datum::One(Atom::Uuid(self.versions.next_uuid()));
        let mut new = vec![(ColumnId::VERSION, version)];
        for (column, json) in values {
            let column = self.column(table, column);
            new.push((column, self.datum(table, column, json)));
        }
        new.sort_by_key(|(column, _)| *column);
        let row = self.store.get(table, uuid(n)).expect("a row");
        let schema = self.store.schema().table(table);
        let change = |(column, new): &(ColumnId, Datum)| {
            let change = Change::between(row.datum(*column), new, &schema.column(*column).ty)?;
            Some(ColumnDelta { column: *column, change })
        };
        let columns = new.iter().filter_map(change).collect();
        self.change(table, n, RowDelta::Modify(columns))
    }

    fn change(&mut self, table: TableId, n: u128, delta: RowDelta) -> &mut Self {
        self.delta.entry(table).or_default().push((uuid(n), delta));
        self
    }

    pub(crate) fn commit(&mut self) {
        let committed = self.apply();
        self.monitors.commit(&committed, self.store.schema());
    }

    /// Commits, unless that is nothing to any monitor: then true.
    pub(crate) fn pass_over(&mut self) -> bool {
        let committed = self.apply();
        let passed =
            self.monitors.pass_over([&*committed.delta].into_iter(), &self.store, Ids::default());
        if !passed {
            self.monitors.commit(&committed, self.store.schema());
        }
        passed
    }

    fn apply(&mut self) -> Committed {
        let tables = std::mem::take(&mut self.delta);
        let tables = tables.into_iter().map(|(table, rows)| TableDelta { table, rows }).collect();
        let delta = Arc::new(Delta { tables });
        self.store.apply(&delta);
        self.position += 1;
        Committed { position: self.position, ids: Ids::default(), delta }
    }

    pub(crate) fn try_add(
        &mut self,
        version: Version,
        requests: &str,
    ) -> Result<MonitorKey, Error> {
        let requests = validate_value(requests.as_bytes()).expect("JSON");
        self.monitors.add(version, b"\"m\"".to_vec(), requests, self.store.schema())
    }

    pub(crate) fn add(&mut self, version: Version, requests: &str) -> MonitorKey {
        self.try_add(version, requests).unwrap_or_else(|error| panic!("{error}: {requests}"))
    }

    pub(crate) fn initial(&mut self, key: MonitorKey) -> String {
        String::from_utf8_lossy(&self.initial_rows(key)).into_owned()
    }

    pub(crate) fn initial_rows(&mut self, key: MonitorKey) -> Arc<Vec<u8>> {
        let rows = Rows::of_store(&self.store);
        self.monitors.initial(key, rows, u64::MAX).expect("no bound")
    }

    pub(crate) fn try_change(
        &mut self,
        key: MonitorKey,
        id: &str,
        requests: &str,
    ) -> Result<Option<Update>, Error> {
        let requests = validate_value(requests.as_bytes()).expect("JSON");
        let (id, schema) = (id.as_bytes().to_vec(), self.store.schema());
        let change = self.monitors.change_condition(key, id, requests, schema)?;
        Ok(change.and_then(|change| {
            let body = change.compose(Rows::of_store(&self.store), u64::MAX).expect("no bound");
            let body = Arc::new(body?);
            Some(Update { to: vec![key], head: Arc::clone(change.head()), body })
        }))
    }

    pub(crate) fn remove(&mut self, key: MonitorKey) {
        self.monitors.remove(key, self.store.schema());
    }

    pub(crate) fn flush(&mut self, keys: &[MonitorKey]) -> Vec<Update> {
        self.monitors.flush(keys, &self.store, &|_| false, u64::MAX).updates
    }

    pub(crate) fn flush_all(&mut self, blocked: &[MonitorKey]) -> Vec<Update> {
        self.flush_within(blocked, u64::MAX).updates
    }

    /// Flushes in a step that may cost so much.
    pub(crate) fn flush_within(&mut self, blocked: &[MonitorKey], most: u64) -> Flushed {
        self.monitors.flush_all(&self.store, &|key| blocked.contains(&key), most, true)
    }

    /// Flushes one monitor: its message, or nothing.
    pub(crate) fn message(&mut self, key: MonitorKey) -> String {
        self.flush(&[key]).first().map_or_else(String::new, message)
    }
}

/// The whole notification.
pub(crate) fn message(update: &Update) -> String {
    let bytes = [update.head.as_slice(), update.body.as_slice()].concat();
    let text = String::from_utf8(bytes).expect("UTF-8");
    let parsed: Value = serde_json::from_str(&text).expect("JSON");
    assert!(parsed.is_object());
    text
}

/// An error as clients see it.
pub(crate) fn error_text(error: &Error) -> String {
    let mut out = Vec::new();
    error.write(&mut out);
    String::from_utf8(out).expect("UTF-8")
}

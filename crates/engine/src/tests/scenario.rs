//! Rows and transactions of tests, written as JSON values.

use std::sync::Arc;

use weir_data::delta::Change;
use weir_data::{ColumnId, Datum, Delta, Error, Row, Schema, TableId, Uuid, UuidSource};

use crate::commit::commit;
use crate::database::Database;
use crate::transaction::Transaction;

/// A database and where its UUIDs come from.
pub(super) struct Scenario {
    pub(super) db: Database,
    pub(super) uuids: UuidSource,
}

/// A small UUID that is easy to read.
pub(super) fn uuid(n: u128) -> Uuid {
    Uuid::from_u128(n)
}

/// A UUID in JSON.
pub(super) fn json(n: u128) -> String {
    format!(r#"["uuid","{}"]"#, uuid(n))
}

/// A set of UUIDs in JSON.
pub(super) fn json_set(numbers: &[u128]) -> String {
    let numbers: Vec<String> = numbers.iter().map(|n| json(*n)).collect();
    format!(r#"["set",[{}]]"#, numbers.join(","))
}

impl Scenario {
    /// An empty database whose schema has these tables.
    pub(super) fn new(tables: &str) -> Self {
        let text = format!(r#"{{"name":"T","tables":{{{tables}}}}}"#);
        let schema = Arc::new(Schema::parse_bytes(text.as_bytes()).unwrap());
        Self { db: Database::new(schema, 5), uuids: UuidSource::new([1, 2, 3, 4]) }
    }

    /// Runs a transaction and commits it.
    pub(super) fn transact(&mut self, run: impl FnOnce(&mut Steps<'_>)) -> Result<Delta, Error> {
        let txn = Transaction::new(&mut self.db);
        let mut steps = Steps { txn, uuids: &mut self.uuids };
        run(&mut steps);
        commit(steps.txn, steps.uuids)
    }

    /// Runs a transaction and undoes it.
    pub(super) fn discard(&mut self, run: impl FnOnce(&mut Steps<'_>)) {
        let txn = Transaction::new(&mut self.db);
        let mut steps = Steps { txn, uuids: &mut self.uuids };
        run(&mut steps);
        steps.txn.abort();
    }

    /// Commits a transaction that must succeed.
    pub(super) fn commit(&mut self, run: impl FnOnce(&mut Steps<'_>)) -> Delta {
        self.transact(run).unwrap()
    }

    /// Commits a transaction that must fail, and checks that it left no trace; `tag: details`.
    pub(super) fn refused(&mut self, run: impl FnOnce(&mut Steps<'_>)) -> String {
        let before = self.db.state_hash();
        let error = self.transact(run).unwrap_err();
        assert_eq!(self.db.state_hash(), before, "a failed commit left a trace");
        error.to_string()
    }

    /// A column's value in JSON, if the row is there.
    pub(super) fn value(&self, table: &str, n: u128, column: &str) -> Option<String> {
        let table = self.db.schema().table_id(table).unwrap();
        let schema = self.db.schema().table(table);
        let column = schema.column_id(column).unwrap();
        let row = self.db.store().get(table, uuid(n))?;
        let mut out = Vec::new();
        row.get(column).write(&schema.column(column).ty, &mut out);
        Some(String::from_utf8(out).unwrap())
    }

    /// A row's `_version`.
    pub(super) fn version(&self, table: &str, n: u128) -> Option<Uuid> {
        let table = self.db.schema().table_id(table).unwrap();
        self.db.store().get(table, uuid(n)).map(Row::version)
    }
}

/// The operations of a test's transaction.
pub(super) struct Steps<'t> {
    pub(super) txn: Transaction<'t>,
    uuids: &'t mut UuidSource,
}

impl Steps<'_> {
    fn table(&self, name: &str) -> TableId {
        self.txn.schema().table_id(name).unwrap()
    }

    fn parse(&self, table: TableId, column: &str, value: &str) -> (ColumnId, Datum) {
        let schema = self.txn.schema().table(table);
        let id = schema.column_id(column).unwrap();
        // Only arrays and objects are whole JSON texts.
        let array = format!("[{value}]");
        let text = weir_json::validate(array.as_bytes()).unwrap();
        let text = text.elements().unwrap().next().unwrap();
        (id, Datum::parse(text, &schema.column(id).ty, None).unwrap())
    }

    pub(super) fn insert(&mut self, table: &str, n: u128, columns: &[(&str, &str)]) {
        let table = self.table(table);
        let version = self.uuids.next_uuid();
        let mut row = Row::new(uuid(n), version, self.txn.schema().table(table));
        for (column, value) in columns {
            let (id, datum) = self.parse(table, column, value);
            *row.get_mut(id) = datum;
        }
        self.txn.insert(table, row);
    }

    pub(super) fn set(&mut self, table: &str, n: u128, column: &str, value: &str) {
        let table = self.table(table);
        let (id, new) = self.parse(table, column, value);
        let old = self.txn.store().get(table, uuid(n)).unwrap().datum(id).clone();
        let ty = self.txn.schema().table(table).column(id).ty.clone();
        if let Some(change) = Change::between(&old, &new, &ty) {
            self.txn.change(table, uuid(n), id, change);
        }
    }

    pub(super) fn delete(&mut self, table: &str, n: u128) {
        let table = self.table(table);
        self.txn.delete(table, uuid(n));
    }
}

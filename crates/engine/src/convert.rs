//! Conversion: the rows of a database under another schema (ovsdb-server(7) "convert").
//!
//! 1. Tables and columns that both schemas have are carried over by name; the others are lost, or
//!    begin with default values. Rows keep their UUIDs.
//! 2. A column whose type is another is written as JSON and read as its new type, constraints
//!    included.
//! 3. Everything that a commit checks is checked over all rows at once: a conversion is like one
//!    transaction that inserts them.
//! 4. What was committed meanwhile is brought in by [`Converted::follow`], as one transaction.
//!
//! A row's `_version` stays if its table's columns do: such rows have not changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use weir_data::delta::Change;
use weir_data::{
    Atom, ColumnId, ColumnSchema, Datum, Delta, Error, Row, RowDelta, Schema, Snapshot, Store,
    TableId, TableSchema, Uuid, UuidSource,
};

use crate::commit::commit;
use crate::database::Database;
use crate::load;
use crate::transaction::Transaction;

/// A database that was converted to another schema.
#[derive(Debug)]
pub struct Converted {
    /// The converted database, under the new schema.
    pub database: Database,
    /// Tables of the new schema from which the commit's checks removed something that the old
    /// database has: rows that nothing refers to any more, weak references that lead nowhere.
    pub repaired: BTreeSet<TableId>,
}

/// How the columns of one table become another's.
struct TableConversion<'s> {
    /// The table's number in the new schema.
    target: TableId,
    from: &'s TableSchema,
    to: &'s TableSchema,
    /// Numbers before and after of the columns that both have.
    columns: Vec<(ColumnId, ColumnId)>,
    /// Whether rows stay as they are under the new schema.
    is_same: bool,
}

/// The database that `schema` makes of the rows in `source`; `seed` as for [`Database::new`].
///
/// # Errors
/// What is wrong with a value under its new type, or what a commit would find wrong with the rows.
pub fn convert(
    source: &Snapshot,
    schema: Arc<Schema>,
    uuids: &mut UuidSource,
    seed: u64,
) -> Result<Converted, Error> {
    let mut store = Store::new(Arc::clone(&schema), seed);
    for (table, _) in source.schema().table_ids() {
        let conversion = TableConversion::new(source.schema(), table, &schema);
        let Some(conversion) = conversion else { continue };
        for row in source.rows(table) {
            store.insert(conversion.target, conversion.row(row, uuids)?);
        }
    }
    finish(store, BTreeSet::new(), uuids, seed)
}

/// The database that `rows` make, which somebody else has converted from those in `source`; `seed`
/// as for [`Database::new`]. Rows that are as they were keep their `_version`, and tables of which
/// all are count as left alone. Rows of `source` itself may be among them, and stay shared.
///
/// # Errors
/// What a commit would find wrong with the rows.
pub fn adopt(
    source: &Snapshot,
    mut rows: Store,
    uuids: &mut UuidSource,
    seed: u64,
) -> Result<Converted, Error> {
    let schema = Arc::clone(rows.schema());
    let mut changed = BTreeSet::new();
    for (table, from) in source.schema().table_ids() {
        let Some(target) = schema.table_id(&from.name) else { continue };
        let to = schema.table(target);
        if !is_unaffected(from, to) {
            continue;
        }
        let mut alike = 0;
        for old in source.rows(table) {
            let is_alike = |new: &Row| {
                to.data_columns().all(|(column, _)| old.datum(column) == new.datum(column))
            };
            if let Some(new) = rows.get(target, old.uuid()).filter(|new| is_alike(new)) {
                if new.version() != old.version() {
                    set_version(&mut rows, target, old.uuid(), old.version());
                }
                alike += 1;
            }
        }
        if alike != source.rows(table).count() || alike != rows.table(target).len() {
            changed.insert(target);
        }
    }
    finish(rows, changed, uuids, seed)
}

/// Checks rows, and makes a database of them; those of the `changed` tables are not as they were.
fn finish(
    store: Store,
    mut changed: BTreeSet<TableId>,
    uuids: &mut UuidSource,
    seed: u64,
) -> Result<Converted, Error> {
    let (mut database, repairs) = load::derive(Database::bare(store, seed))?;
    for (table, uuid, repair) in repairs.rows() {
        if matches!(repair, RowDelta::Modify(_)) {
            let version = uuids.next_uuid();
            set_version(&mut database.store, table, uuid, version);
        }
    }
    changed.extend(repairs.tables.iter().map(|table| table.table));
    Ok(Converted { database, repaired: changed })
}

/// Checks that the database called `database` may be given this schema at all.
///
/// # Errors
/// `invalid parameters` if the schema is another database's.
pub fn check_name(schema: &Schema, database: &str) -> Result<(), Error> {
    if schema.name == database {
        return Ok(());
    }
    let name = &schema.name;
    let details = format!("new schema name ({name}) does not match database name ({database})");
    Err(Error::new("invalid parameters", details))
}

/// Whether a table's rows are the same under both schemas. If so, its columns have the same
/// numbers in both.
pub fn is_unaffected(from: &TableSchema, to: &TableSchema) -> bool {
    from.columns.len() == to.columns.len()
        && from.columns.iter().zip(&to.columns).all(|(a, b)| a.name == b.name && a.ty == b.ty)
}

impl Converted {
    /// Brings in the rows of the old database that have changed since the snapshot was taken;
    /// answers with what that changed here.
    ///
    /// # Errors
    /// As [`convert`]'s. What the conversion repaired may have been mended meanwhile, so after an
    /// error the conversion of a new snapshot may still succeed.
    pub fn follow(
        &mut self,
        source: &Store,
        changed: &BTreeSet<(TableId, Uuid)>,
        uuids: &mut UuidSource,
    ) -> Result<Delta, Error> {
        let schema = Arc::clone(self.database.schema());
        let conversions: Vec<_> = source
            .schema()
            .table_ids()
            .map(|(table, _)| TableConversion::new(source.schema(), table, &schema))
            .collect();
        let mut txn = Transaction::new(&mut self.database);
        for (table, uuid) in changed {
            let Some(conversion) = &conversions[table.index()] else { continue };
            let row = source.get(*table, *uuid);
            if let Err(error) = conversion.follow(&mut txn, *uuid, row, uuids) {
                txn.abort();
                return Err(error);
            }
        }
        let delta = commit(txn, uuids)?;
        for conversion in conversions.iter().flatten().filter(|conversion| conversion.is_same) {
            let Some(from) = source.schema().table_id(&conversion.from.name) else { continue };
            let rows = delta.tables.iter().filter(|rows| rows.table == conversion.target);
            for (uuid, _) in rows.flat_map(|rows| &rows.rows) {
                self.match_version(conversion, *uuid, source.get(from, *uuid));
            }
        }
        Ok(delta)
    }

    /// A row that is as it was keeps its version; one that is not makes its table a repaired one.
    fn match_version(&mut self, conversion: &TableConversion<'_>, uuid: Uuid, old: Option<&Row>) {
        let table = conversion.target;
        let data = |row: &Row| {
            let columns = conversion.to.data_columns();
            columns.map(|(column, _)| row.datum(column).clone()).collect::<Vec<_>>()
        };
        let new = self.database.store.get(table, uuid);
        if old.map(data) != new.map(data) {
            self.repaired.insert(table);
        } else if let Some(old) = old {
            set_version(&mut self.database.store, table, uuid, old.version());
        }
    }
}

impl<'s> TableConversion<'s> {
    /// `None` if the new schema has no such table.
    fn new(from_schema: &'s Schema, table: TableId, to_schema: &'s Schema) -> Option<Self> {
        let from = from_schema.table(table);
        let target = to_schema.table_id(&from.name)?;
        let to = to_schema.table(target);
        let both =
            |(id, column): (ColumnId, &ColumnSchema)| Some((id, to.column_id(&column.name)?));
        let columns = from.data_columns().filter_map(both).collect();
        Some(Self { target, from, to, columns, is_same: is_unaffected(from, to) })
    }

    fn row(&self, row: &Row, uuids: &mut UuidSource) -> Result<Row, Error> {
        if self.is_same {
            return Ok(row.clone());
        }
        let value = |(from, to): &(ColumnId, ColumnId)| Ok((*to, self.value(row, *from, *to)?));
        let values: Vec<_> = self.columns.iter().map(value).collect::<Result<_, Error>>()?;
        Ok(Row::with_values(row.uuid(), uuids.next_uuid(), self.to, values))
    }

    fn value(&self, row: &Row, from: ColumnId, to: ColumnId) -> Result<Datum, Error> {
        let (old, new) = (&self.from.column(from).ty, &self.to.column(to).ty);
        if old == new {
            return Ok(row.datum(from).clone());
        }
        // A text of its own is an array or an object.
        let mut text = vec![b'['];
        row.get(from).write(old, &mut text);
        text.push(b']');
        let text = weir_json::validate(&text).ok();
        let value = text.and_then(|text| text.elements()?.next());
        let value = value.ok_or_else(|| Error::plain_syntax("value has no JSON form"))?;
        Datum::parse(value, new, None)
    }

    /// Makes one row what its present state converts to.
    fn follow(
        &self,
        txn: &mut Transaction<'_>,
        uuid: Uuid,
        row: Option<&Row>,
        uuids: &mut UuidSource,
    ) -> Result<(), Error> {
        let Some(row) = row else {
            txn.delete(self.target, uuid);
            return Ok(());
        };
        let row = self.row(row, uuids)?;
        if txn.store().get(self.target, uuid).is_none() {
            txn.insert(self.target, row);
            return Ok(());
        }
        for (column, schema) in self.to.data_columns() {
            let old = txn.store().get(self.target, uuid).map(|row| row.datum(column));
            let change = old.and_then(|old| Change::between(old, row.datum(column), &schema.ty));
            if let Some(change) = change {
                txn.change(self.target, uuid, column, change);
            }
        }
        Ok(())
    }
}

fn set_version(store: &mut Store, table: TableId, uuid: Uuid, version: Uuid) {
    store.edit(table, uuid, ColumnId::VERSION, |datum| *datum = Datum::One(Atom::Uuid(version)));
}

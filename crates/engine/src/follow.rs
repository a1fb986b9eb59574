//! A transaction that another server has committed, made to take effect here.
//!
//! The server that ran it has checked everything on equal rows: nothing is checked again, and what
//! its commit collected or repaired is in the edits. Counts, back-links and indexes follow.

use std::collections::BTreeMap;

use weir_data::delta::{Change, TableDelta};
use weir_data::types::RefKind;
use weir_data::{
    Atom, ColumnDelta, ColumnEdit, ColumnId, Datum, Delta, Edit, Error, Row, RowDelta, RowEdit,
    Store, TableId, TableSchema, Uuid, UuidSource,
};

use crate::database::Database;
use crate::difference;
use crate::links::Reference;

/// Makes the edits of one transaction take effect, in whatever order they come; answers with what
/// they changed, which may be less than they name, or nothing: then it has no position of its own.
/// A row that changes gets a `_version` from `uuids`.
///
/// # Errors
/// An edit that makes no sense here: a row to change or to delete that is not there, one to insert
/// that is, one row twice. Nothing has changed then.
pub fn follow(
    db: &mut Database,
    edits: Vec<RowEdit>,
    uuids: &mut UuidSource,
) -> Result<Delta, Error> {
    let delta = difference_of(db.store(), edits, uuids)?;
    if !delta.is_empty() {
        db.apply(&delta);
    }
    Ok(delta)
}

/// As [`follow`], of an entry of a cluster's log. Where that leaves weak references to rows that are gone, as the
/// packaged server's may, they are taken out: members that read such an entry in their files do so, too.
///
/// # Errors
/// As [`follow`], and as a commit's where there is something to be taken out.
pub fn follow_entry(
    db: &mut Database,
    edits: Vec<RowEdit>,
    uuids: &mut UuidSource,
) -> Result<Delta, Error> {
    let delta = follow(db, edits, uuids)?;
    if !leaves_dangling(db, &delta) {
        return Ok(delta);
    }
    db.revert(&delta);
    difference::commit_with_repairs(db, delta, uuids)
}

/// Whether a change that has been made leaves weak references to rows that are not there.
fn leaves_dangling(db: &Database, delta: &Delta) -> bool {
    let links = &db.links;
    let dangles = |references: &mut dyn Iterator<Item = Reference<'_>>| {
        let mut weak = references.filter(|reference| reference.kind == RefKind::Weak);
        weak.any(|reference| db.store.table(reference.table).slot(reference.to).is_none())
    };
    delta.rows().any(|(table, uuid, row)| match row {
        RowDelta::Delete(_) => links.weak_to(table, uuid).next().is_some(),
        RowDelta::Insert(row) => links.refers(table) && dangles(&mut links.of_row(table, row)),
        RowDelta::Modify(columns) => {
            links.refers(table) && dangles(&mut links.of_changes(table, columns, true))
        }
    })
}

/// What edits of one transaction would change, in whatever order they come.
///
/// # Errors
/// As [`follow`].
pub fn difference_of(
    store: &Store,
    edits: Vec<RowEdit>,
    uuids: &mut UuidSource,
) -> Result<Delta, Error> {
    let mut tables: BTreeMap<TableId, Vec<(Uuid, RowDelta)>> = BTreeMap::new();
    let mut named = Vec::with_capacity(edits.len());
    for RowEdit { table, uuid, edit } in edits {
        named.push((table, uuid));
        let schema = store.schema().table(table);
        let row = match (store.get(table, uuid), edit) {
            (None, Edit::Insert(row)) => Some(RowDelta::Insert(row)),
            (Some(row), Edit::Delete) => Some(RowDelta::Delete(row.clone())),
            (Some(row), Edit::Modify(columns)) => modification(row, columns, schema, uuids)?,
            (Some(_), Edit::Insert(_)) => return Err(inconsistent("inserts", schema, uuid, true)),
            (None, Edit::Delete) => return Err(inconsistent("deletes", schema, uuid, false)),
            (None, Edit::Modify(_)) => return Err(inconsistent("modifies", schema, uuid, false)),
        };
        if let Some(row) = row {
            tables.entry(table).or_default().push((uuid, row));
        }
    }
    named.sort_unstable();
    if let Some((table, uuid)) = named.windows(2).find(|two| two[0] == two[1]).map(|two| two[0]) {
        let name = &store.schema().table(table).name;
        return Err(Error::ovsdb(format!("transaction names row {uuid} of table {name} twice")));
    }
    let tables = tables.into_iter().map(|(table, rows)| TableDelta { table, rows });
    Ok(Delta { tables: tables.collect() })
}

/// What edits of columns change in a row; `None` if all stays as it is.
fn modification(
    row: &Row,
    edits: Vec<ColumnEdit>,
    schema: &TableSchema,
    uuids: &mut UuidSource,
) -> Result<Option<RowDelta>, Error> {
    let mut columns = Vec::with_capacity(edits.len() + 1);
    for ColumnEdit { column, value, is_difference } in edits {
        let ty = &schema.column(column).ty;
        let old = row.datum(column);
        let change = match is_difference && ty.is_composite() {
            true => Change::of_difference(old, &value, ty),
            false => Change::between(old, &value, ty),
        };
        columns.extend(change.map(|change| ColumnDelta { column, change }));
    }
    if columns.is_empty() {
        return Ok(None);
    }
    let old = row.datum(ColumnId::VERSION).clone();
    let new = Datum::One(Atom::Uuid(uuids.next_uuid()));
    let change = Change::Replace { old, new };
    columns.push(ColumnDelta { column: ColumnId::VERSION, change });
    columns.sort_unstable_by_key(|delta| delta.column);
    if columns.windows(2).any(|two| two[0].column == two[1].column) {
        let (name, uuid) = (&schema.name, row.uuid());
        let why = format!("transaction names a column of row {uuid} of table {name} twice");
        return Err(Error::ovsdb(why));
    }
    Ok(Some(RowDelta::Modify(columns)))
}

fn inconsistent(verb: &str, schema: &TableSchema, uuid: Uuid, is_there: bool) -> Error {
    let why = if is_there { "is there already" } else { "does not exist" };
    let name = &schema.name;
    Error::ovsdb(format!("transaction {verb} row {uuid} of table {name} that {why}"))
}

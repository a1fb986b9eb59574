//! What tables say of remotes: `db:DB,TABLE,COLUMN` names a column of targets, or of references to
//! rows that have them.

use weir_data::{AtomType, ColumnId, DatumRef, Row, TableId};

use crate::database::{Databases, Db};
use crate::effect::RemoteOptions;
use crate::ids::DbId;

/// The parts of `db:DB,TABLE,COLUMN`.
pub(super) struct Place {
    pub(super) db: DbId,
    pub(super) table: TableId,
    pub(super) column: ColumnId,
}

/// The database that `db:DB,TABLE,COLUMN` names.
pub(super) fn db_name(remote: &str) -> Option<&str> {
    let rest = remote.strip_prefix("db:").unwrap_or(remote);
    rest.split(',').find(|part| !part.is_empty())
}

/// The column that `db:DB,TABLE,COLUMN` names, of whatever type.
pub(super) fn column_place<'d>(
    databases: &'d Databases,
    remote: &str,
) -> Result<(&'d Db, Place), String> {
    let rest = remote.strip_prefix("db:").unwrap_or(remote);
    let parts: Vec<&str> = rest.split(',').filter(|part| !part.is_empty()).collect();
    let [db_name, table_name, column_name, ..] = parts[..] else {
        return Err(format!("\"{remote}\": invalid syntax"));
    };
    let found = databases.by_name(db_name).and_then(|id| Some((id, databases.get(id)?)));
    let (id, db) = found.ok_or_else(|| format!("\"{remote}\": no database named {db_name}"))?;
    let schema = db.schema();
    let table = schema
        .table_id(table_name)
        .ok_or_else(|| format!("\"{remote}\": no table named {table_name}"))?;
    let column = schema.table(table).column_id(column_name).ok_or_else(|| {
        format!("\"{remote}\": table \"{table_name}\" has no column \"{column_name}\"")
    })?;
    Ok((db, Place { db: id, table, column }))
}

/// The column that `db:DB,TABLE,COLUMN` names, of a type that can name remotes.
pub(super) fn place<'d>(databases: &'d Databases, remote: &str) -> Result<(&'d Db, Place), String> {
    let (db, place) = column_place(databases, remote)?;
    let schema = db.schema().table(place.table);
    let column = schema.column(place.column);
    let is_reference = column.ty.key.reference().is_some();
    if column.ty.is_map() || !(column.ty.key.ty == AtomType::String || is_reference) {
        let (table, column) = (&schema.name, &column.name);
        return Err(format!(
            "\"{remote}\": type of table \"{table}\" column \"{column}\" is not string or UUID"
        ));
    }
    Ok((db, place))
}

/// The rows that a column of references names, and their table.
pub(super) fn referred<'d>(
    db: &'d Db,
    place: &Place,
) -> Option<(TableId, impl Iterator<Item = &'d Row>)> {
    let store = db.committed()?;
    let (table, _) = db.schema().table(place.table).column(place.column).refs.key?;
    let column = place.column;
    let uuids = store.table(place.table).iter().flat_map(move |row| row.get(column).keys());
    Some((table, uuids.filter_map(move |atom| store.get(table, atom.as_uuid()?))))
}

/// Targets that the column names, directly or through rows that it refers to; a row without one is
/// `Err` with the name of its table.
pub(super) fn targets(db: &Db, place: &Place) -> Vec<Result<(String, RemoteOptions), String>> {
    if let Some((table, rows)) = referred(db, place) {
        let name = &db.schema().table(table).name;
        return rows.map(|row| target_of_row(db, table, row).ok_or_else(|| name.clone())).collect();
    }
    let Some(store) = db.committed() else { return Vec::new() };
    let rows = store.table(place.table).iter();
    let texts = rows.flat_map(|row| row.get(place.column).keys());
    texts
        .filter_map(|atom| Some(Ok((atom.as_str()?.to_owned(), RemoteOptions::default()))))
        .collect()
}

/// Reads one row of the referenced table; columns that are missing or of another type count as
/// unset.
fn target_of_row(db: &Db, table: TableId, row: &Row) -> Option<(String, RemoteOptions)> {
    let schema = db.schema().table(table);
    let column = |name: &str| schema.column_id(name).map(|id| row.get(id));
    let scalar = |name: &str| column(name).and_then(DatumRef::scalar);
    let integer = |name: &str| match scalar(name) {
        Some(weir_data::AtomRef::Integer(value)) => u64::try_from(value).ok(),
        _ => None,
    };
    let other = |key: &str| {
        let key = weir_data::Atom::string(key);
        column("other_config")?.value_of(key.as_ref())?.as_str().map(str::to_owned)
    };
    let target = scalar("target")?.as_str()?.to_owned();
    let options = RemoteOptions {
        probe_ms: integer("inactivity_probe"),
        read_only: matches!(scalar("read_only"), Some(weir_data::AtomRef::Boolean(true))),
        role: scalar("role").and_then(|role| role.as_str()).unwrap_or_default().to_owned(),
        dscp: other("dscp").and_then(|dscp| dscp.parse().ok()).filter(|dscp| *dscp < 64),
        max_backoff_ms: integer("max_backoff"),
    };
    Some((target, options))
}

/// Whether a target is something to listen on.
pub(super) fn listens(target: &str) -> bool {
    ["punix:", "ptcp:", "pssl:", "pfd:"].iter().any(|method| target.starts_with(method))
}

//! `insert` (RFC 7047 §5.2.1), with the UUID of the client's choice where it has one.

use weir_data::parser::{ID, OBJECT, OPTIONAL, STRING};
use weir_data::{Error, Row, TableId, TableSchema, Uuid};
use weir_json::Text;

use super::{Op, OpResult, Run, rows};
use crate::rbac::Action;

pub(super) fn run(run: &mut Run<'_, '_>, op: &mut Op<'_, '_>) -> OpResult {
    let table = op.table();
    let uuid = op.member("uuid", STRING | OPTIONAL);
    let name = op.member("uuid-name", ID | OPTIONAL);
    let row = op.member("row", OBJECT);
    let (Some(table), Some(values), false) = (table, row, op.parser.has_error()) else {
        return Ok(());
    };
    let schema = op.schema.table(table);
    let chosen = uuid.map(|uuid| chosen_uuid(run, table, schema, uuid)).transpose()?;
    let uuid = match name {
        Some(name) => named_uuid(run, name, chosen)?,
        None => chosen.unwrap_or_else(|| run.symbols.fresh()),
    };
    let values = rows::parse(values, schema, &mut run.symbols)?;
    // `_uuid` and `_version` may be given, and mean nothing.
    let values = values.into_iter().filter(|(column, _)| !rows::is_system(*column));
    let row = Row::with_values(uuid, run.symbols.fresh(), schema, values);
    check_defaults(&row, schema)?;
    if let Some(rbac) = &run.rbac {
        rbac.check(schema, Action::Insert, [&row])?;
    }
    run.insert(table, row);
    run.out.extend_from_slice(b"{\"uuid\":");
    uuid.write(&mut run.out);
    run.out.push(b'}');
    Ok(())
}

/// The member `uuid`, unless a row has or had it.
fn chosen_uuid(
    run: &mut Run<'_, '_>,
    table: TableId,
    schema: &TableSchema,
    text: Text<'_>,
) -> Result<Uuid, Error> {
    let uuid = text.string().and_then(|string| Uuid::parse_bytes(&string));
    let uuid = uuid.ok_or_else(|| Error::syntax(text, "bad uuid"))?;
    if let Some(trace) = &mut run.planner.trace {
        trace.note_row(table, uuid);
    }
    if run.txn.store().get(table, uuid).is_some() || run.txn.deleted_existing(table, uuid) {
        let name = &schema.name;
        let details = format!(
            "This UUID would duplicate a UUID already present within the \"{name}\" table or \
             deleted from this table within the same transaction."
        );
        return Err(Error::syntax_tagged(text, "duplicate uuid", details));
    }
    Ok(uuid)
}

/// The UUID that the member `uuid-name` stands for from now on.
fn named_uuid(run: &mut Run<'_, '_>, name: Text<'_>, chosen: Option<Uuid>) -> Result<Uuid, Error> {
    let symbol = run.symbols.symbol(&name.str().unwrap_or_default());
    if symbol.created {
        let details = "This \"uuid-name\" appeared on an earlier \"insert\" operation.";
        return Err(Error::syntax_tagged(name, "duplicate uuid-name", details));
    }
    // Earlier uses of the name keep the UUID that it stood for then.
    let uuid = chosen.unwrap_or(symbol.uuid);
    if let Some(trace) = &mut run.planner.trace {
        trace.is_renamed |= uuid != symbol.uuid;
    }
    symbol.uuid = uuid;
    symbol.created = true;
    Ok(symbol.uuid)
}

/// Checks the columns without a value: they hold defaults, which constraints may forbid.
fn check_defaults(row: &Row, schema: &TableSchema) -> Result<(), Error> {
    for (column, column_schema) in schema.data_columns() {
        let value = row.get(column);
        // A default has at most one element; what was given was checked when it was parsed.
        if value.len() == 1 {
            column_schema.ty.check(value)?;
        }
    }
    Ok(())
}

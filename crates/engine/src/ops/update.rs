//! `update` (RFC 7047 §5.2.3).

use weir_data::condition::Condition;
use weir_data::delta::Change;
use weir_data::parser::OBJECT;
use weir_data::{ColumnId, Error};

use super::{Op, OpResult, Run, rows};
use crate::rbac::Action;

pub(super) fn run(run: &mut Run<'_, '_>, op: &mut Op<'_, '_>) -> OpResult {
    let table = op.table();
    let condition = op.condition();
    let row = op.member("row", OBJECT);
    let (Some(table), Some(condition), Some(row)) = (table, condition, row) else {
        return Ok(());
    };
    let schema = op.schema.table(table);
    let values = rows::parse(row, schema, &mut run.symbols)?;
    for (column, _) in &values {
        let column_schema = schema.column(*column);
        if !column_schema.mutable {
            let (column, table) = (&column_schema.name, &schema.name);
            let details = format!("Cannot update immutable column {column} in table {table}.");
            return Err(Error::syntax_tagged(op.text, "constraint violation", details).into());
        }
    }
    let condition = Condition::parse(condition, schema, Some(&mut run.symbols))?;
    let uuids = run.uuids(table, &condition)?;
    let columns: Vec<ColumnId> = values.iter().map(|(column, _)| *column).collect();
    run.check_role(table, Action::Update(&columns), &uuids)?;
    for uuid in &uuids {
        for (column, value) in &values {
            let ty = &schema.column(*column).ty;
            let row = run.txn.store().get(table, *uuid);
            let compared = row.map_or(0, |row| row.get(*column).len()) + value.as_ref().len();
            run.txn.meter.spend_allowed(compared, 1)?;
            let change = row.and_then(|row| Change::between(row.datum(*column), value, ty));
            if let Some(change) = change {
                run.change_within(table, *uuid, *column, change)?;
            }
        }
        run.txn.meter.check()?;
    }
    run.write_count(uuids.len());
    Ok(())
}

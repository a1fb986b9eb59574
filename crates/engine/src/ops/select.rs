//! `select` (RFC 7047 §5.2.2), with the reference's `sort`.

use weir_data::condition::Condition;
use weir_data::parser::{ARRAY, OPTIONAL};
use weir_data::{ColumnId, Row, TableSchema};

use super::{Op, OpResult, Run, columns, rows};
use crate::meter::{self, Meter, TooLong};

pub(super) fn run(run: &mut Run<'_, '_>, op: &mut Op<'_, '_>) -> OpResult {
    let table = op.table();
    let condition = op.condition();
    let columns_text = op.member("columns", ARRAY | OPTIONAL);
    let sort = op.member("sort", ARRAY | OPTIONAL);
    let (Some(table), Some(condition), false) = (table, condition, op.parser.has_error()) else {
        return Ok(());
    };
    let schema = op.schema.table(table);
    let condition = Condition::parse(condition, schema, Some(&mut run.symbols))?;
    let columns = columns(columns_text, schema)?;
    let sort = sort.map(|sort| schema.parse_column_set(sort)).transpose()?.unwrap_or_default();

    let mut found = run.planner.rows(&run.txn, table, &condition)?;
    run.txn.meter.spend_each(found.len(), meter::ROW);
    run.txn.meter.check()?;
    rows::retain_distinct(&mut found, &columns);
    if !sort.is_empty() {
        found.sort_by(|a, b| rows::compare(a, b, &sort));
    }
    write_rows(&found, &columns, schema, &run.txn.meter, &mut run.out)?;
    Ok(())
}

/// Writes the rows with the members of each in the order of their names.
fn write_rows(
    rows: &[&Row],
    columns: &[ColumnId],
    schema: &TableSchema,
    meter: &Meter,
    out: &mut Vec<u8>,
) -> Result<(), TooLong> {
    let mut columns: Vec<_> = columns.iter().map(|id| (*id, schema.column(*id))).collect();
    columns.sort_by(|a, b| a.1.name.cmp(&b.1.name));
    out.extend_from_slice(b"{\"rows\":[");
    for (at, row) in rows.iter().enumerate() {
        let start = out.len();
        out.extend_from_slice(if at > 0 { b",{" } else { b"{" });
        for (at, (column, schema)) in columns.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            weir_json::write_string(out, &schema.name);
            out.push(b':');
            row.get(*column).write(&schema.ty, out);
        }
        out.push(b'}');
        meter.written(out.len() - start);
        meter.check()?;
    }
    out.extend_from_slice(b"]}");
    Ok(())
}

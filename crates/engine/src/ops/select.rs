//! `select` (RFC 7047 §5.2.2), with the reference's `sort`, and with pages of rows in order, which are
//! Weir's (`docs/ordered-select.md`).

use weir_data::condition::Condition;
use weir_data::parser::{ARRAY, INTEGER, OBJECT, OPTIONAL};
use weir_data::{AtomRef, AtomType, ColumnId, Error, Row, TableSchema};
use weir_json::Text;

use super::{Op, OpResult, Run, columns, rows};
use crate::late::{LateRows, PIECE_BYTES, RESULTS_BYTES_MAX};
use crate::meter;
use crate::page::Page;

pub(super) fn run(run: &mut Run<'_, '_>, op: &mut Op<'_, '_>) -> OpResult {
    let table = op.table();
    let condition = op.condition();
    let columns_text = op.member("columns", ARRAY | OPTIONAL);
    let sort = op.member("sort", ARRAY | OPTIONAL);
    let (order, limits) = page(op, sort.is_some());
    let (Some(table), Some(condition), false) = (table, condition, op.parser.has_error()) else {
        return Ok(());
    };
    let schema = op.schema.table(table);
    let condition = Condition::parse(condition, schema, Some(&mut run.symbols))?;
    let columns = columns(columns_text, schema)?;
    check_room(run)?;
    let sort = sort.map(|sort| schema.parse_column_set(sort)).transpose()?.unwrap_or_default();

    let page =
        order.map(|order| Page::parse(order, limits, schema, &mut run.symbols)).transpose()?;

    let mut found = match &page {
        Some(page) => run.planner.page(&run.txn, table, &condition, page)?,
        None => run.planner.rows(&run.txn, table, &condition)?,
    };
    run.txn.meter.spend_each(found.len(), meter::ROW);
    run.txn.meter.check()?;
    if page.is_none() {
        // Rows of a page are rows of the table, whether or not they look alike.
        rows::retain_distinct(&run.txn.meter, &mut found, &columns, schema)?;
        rows::sort(&run.txn.meter, &mut found, &sort, schema)?;
    }
    let mut columns: Vec<_> = columns.iter().map(|id| (*id, &schema.column(*id).name)).collect();
    columns.sort_by(|a, b| a.1.cmp(b.1));
    let columns: Vec<ColumnId> = columns.into_iter().map(|(id, _)| id).collect();

    let (out, meter) = (&mut run.out, &run.txn.meter);
    out.extend_from_slice(b"{\"rows\":[");
    for (at, row) in found.iter().enumerate() {
        // A reply of many long results is not kept as text either. Behind the first row of each there is a comma
        // before the others.
        if let Some(late) = run.late.as_mut().filter(|_| at > 0 && out.len() >= PIECE_BYTES) {
            let rows: Vec<Row> = found[at..].iter().map(|row| (*row).clone()).collect();
            let rest = LateRows { at: out.len(), table, columns, rows };
            run.late_bytes += rest.bytes();
            late.push(rest);
            break;
        }
        // Text of megabytes is not to be written in vain.
        let known = text_bytes(row, &columns, schema);
        meter.afford_written(known)?;
        let start = out.len();
        write_row(row, at == 0, &columns, schema, out);
        meter.written((out.len() - start).saturating_sub(known));
        meter.check()?;
    }
    out.extend_from_slice(b"]}");
    Ok(())
}

/// Whether the results so far leave room for those of one more operation.
fn check_room(run: &Run<'_, '_>) -> Result<(), Error> {
    if run.out.len() + run.late_bytes < RESULTS_BYTES_MAX {
        return Ok(());
    }
    let details =
        format!("the results of the operations before this one take {RESULTS_BYTES_MAX} bytes");
    Err(Error::new("resources exhausted", details))
}

/// Takes the members that ask for a page of rows in order: `order_by`, `limit` and `after`.
fn page<'a>(
    op: &mut Op<'a, '_>,
    has_sort: bool,
) -> (Option<Text<'a>>, (Option<Text<'a>>, Option<Text<'a>>)) {
    let limit = op.member("limit", INTEGER | OPTIONAL);
    let after = op.member("after", OBJECT | OPTIONAL);
    let is_optional = if limit.is_some() || after.is_some() { 0 } else { OPTIONAL };
    let order = op.member("order_by", ARRAY | is_optional);
    if has_sort && order.is_some() {
        op.parser.complain("Members 'order_by' and 'sort' exclude each other.");
    }
    (order, (limit, after))
}

/// Bytes of a row's text that it has at least: strings that stand alone in their columns, and the
/// shortest text of as many elements as there are in sets and maps.
fn text_bytes(row: &Row, columns: &[ColumnId], table: &TableSchema) -> usize {
    let text = |column: &ColumnId| {
        let value = row.get(*column);
        match (value.scalar(), value.len()) {
            (Some(AtomRef::String(text)), _) => text.as_str().len(),
            (Some(_), _) | (None, 0) => 0,
            (None, len) => {
                let ty = &table.column(*column).ty;
                let value = ty.value.as_ref().map_or(0, |value| atom_bytes(value.ty));
                len * (atom_bytes(ty.key.ty) + value)
            }
        }
    };
    columns.iter().map(text).sum()
}

/// Bytes of the shortest atom of a type, and a comma.
fn atom_bytes(ty: AtomType) -> usize {
    match ty {
        AtomType::Integer | AtomType::Real => 2,
        AtomType::String => 3,
        AtomType::Boolean => 5,
        AtomType::Uuid => 48,
    }
}

/// Writes a row with its members in the order of `columns`.
pub(crate) fn write_row(
    row: &Row,
    is_first: bool,
    columns: &[ColumnId],
    schema: &TableSchema,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(if is_first { b"{" } else { b",{" });
    for (at, column) in columns.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        let schema = schema.column(*column);
        weir_json::write_string(out, &schema.name);
        out.push(b':');
        row.get(*column).write(&schema.ty, out);
    }
    out.push(b'}');
}

//! `wait` (RFC 7047 §5.2.6): goes on, fails, or has the whole request run again later.
//!
//! Rows are compared as sets of projections: neither order nor number matters.

use weir_data::condition::Condition;
use weir_data::parser::{ARRAY, INTEGER, OPTIONAL, STRING};
use weir_data::{ColumnId, Error, Row, TableSchema, Uuid};
use weir_json::Text;

use super::{Op, OpResult, Run, Stop, Unsatisfied, columns, rows};
use crate::meter;
use crate::planner::Few;
use crate::reads::Read;
use crate::sorting::{compare, compared};

pub(super) fn run(run: &mut Run<'_, '_>, op: &mut Op<'_, '_>) -> OpResult {
    let timeout = op.member("timeout", INTEGER | OPTIONAL);
    let condition = op.condition();
    let columns_text = op.member("columns", ARRAY | OPTIONAL);
    let until = op.member("until", STRING);
    let expected = op.member("rows", ARRAY);
    let table = op.table();
    let (Some(table), Some(condition), Some(until), Some(expected), false) =
        (table, condition, until, expected, op.parser.has_error())
    else {
        return Ok(());
    };
    let schema = op.schema.table(table);
    let condition = Condition::parse(condition, schema, Some(&mut run.symbols))?;
    let columns = columns(columns_text, schema)?;
    let timeout_ms = timeout.map(parse_timeout).transpose()?;
    let until_equal = parse_until(until)?;
    let expected = parse_rows(run, expected, schema)?;

    let actual = run.planner.rows(&run.txn, table, &condition)?;
    run.txn.meter.spend_each(actual.len() + expected.len(), meter::ROW);
    run.txn.meter.check()?;
    let expected: Few<&Row> = expected.iter().collect();
    let cost = [&expected, &actual].map(|rows| compared(rows, &columns, schema));
    run.txn.meter.afford(cost.iter().sum())?;
    if same_set(expected, actual, &columns) == until_equal {
        run.write_empty();
        return Ok(());
    }
    if timeout_ms.is_none_or(|timeout| run.elapsed_ms < timeout) {
        if !run.may_wait {
            return Err(Error::new("not supported", "triggers not supported").into());
        }
        let read = Read::of_wait(table, schema, condition, &columns);
        return Err(Stop::Wait(Box::new(Unsatisfied { timeout_ms, read })));
    }
    let details = match run.elapsed_ms {
        0 => "\"where\" clause test failed".to_owned(),
        elapsed => format!("\"wait\" timed out after {elapsed} ms"),
    };
    Err(Error::new("timed out", details).into())
}

fn parse_timeout(text: Text<'_>) -> Result<u64, Error> {
    let timeout = text.integer().and_then(|timeout| u64::try_from(timeout).ok());
    timeout.ok_or_else(|| Error::syntax(text, "timeout must be nonnegative"))
}

fn parse_until(text: Text<'_>) -> Result<bool, Error> {
    match text.str().as_deref() {
        Some("==") => Ok(true),
        Some("!=") => Ok(false),
        _ => Err(Error::syntax(text, "\"until\" must be \"==\" or \"!=\"")),
    }
}

/// Parses the rows to compare with; columns without a value have their defaults.
fn parse_rows(
    run: &mut Run<'_, '_>,
    text: Text<'_>,
    schema: &TableSchema,
) -> Result<Vec<Row>, Error> {
    let mut parsed = Vec::new();
    for text in text.elements().into_iter().flatten() {
        let values = rows::parse(text, schema, &mut run.symbols)?;
        parsed.push(Row::with_values(Uuid::ZERO, Uuid::ZERO, schema, values));
    }
    Ok(parsed)
}

/// Whether the projections of both sides are the same set.
fn same_set<'r>(mut a: Few<&'r Row>, mut b: Few<&'r Row>, columns: &[ColumnId]) -> bool {
    for side in [&mut a, &mut b] {
        side.sort_by(|a, b| compare(a, b, columns));
        side.dedup_by(|a, b| compare(a, b, columns).is_eq());
    }
    a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| compare(a, b, columns).is_eq())
}

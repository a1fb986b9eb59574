//! `mutate` (RFC 7047 §5.2.4): what a mutation does to a value is in [`crate::mutation`].

use weir_data::condition::Condition;
use weir_data::parser::ARRAY;
use weir_data::{ColumnId, TableId, TableSchema, Uuid};

use super::{Op, OpResult, Run};
use crate::meter;
use crate::mutation::Mutation;
use crate::rbac::Action;

pub(super) fn run(run: &mut Run<'_, '_>, op: &mut Op<'_, '_>) -> OpResult {
    let table = op.table();
    let condition = op.condition();
    let mutations = op.member("mutations", ARRAY);
    let (Some(table), Some(condition), Some(mutations)) = (table, condition, mutations) else {
        return Ok(());
    };
    let schema = op.schema.table(table);
    let mutations: Vec<Mutation> = mutations
        .elements()
        .into_iter()
        .flatten()
        .map(|text| Mutation::parse(text, schema, &mut run.symbols))
        .collect::<Result<_, _>>()?;
    let condition = Condition::parse(condition, schema, Some(&mut run.symbols))?;
    let uuids = run.uuids(table, &condition)?;
    // Without mutations it only counts rows, which is not restricted.
    if !mutations.is_empty() {
        let columns: Vec<ColumnId> = mutations.iter().map(|mutation| mutation.column).collect();
        run.check_role(table, Action::Mutate(&columns), &uuids)?;
    }
    for uuid in &uuids {
        mutate_row(run, table, schema, *uuid, &mutations)?;
        run.txn.meter.check()?;
    }
    run.write_count(uuids.len());
    Ok(())
}

/// Makes the mutations one after another: each sees what the ones before it made.
fn mutate_row(
    run: &mut Run<'_, '_>,
    table: TableId,
    schema: &TableSchema,
    uuid: Uuid,
    mutations: &[Mutation],
) -> OpResult {
    for mutation in mutations {
        let column = mutation.column;
        let Some(row) = run.txn.store().get(table, uuid) else { continue };
        let old = row.datum(column);
        run.txn.meter.spend_allowed(mutation.computed(old), meter::ELEMENT)?;
        let change = mutation.change(old, &schema.column(column).ty)?;
        if let Some(change) = change {
            run.change_within(table, uuid, column, change)?;
        }
    }
    Ok(())
}

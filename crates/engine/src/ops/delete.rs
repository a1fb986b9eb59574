//! `delete` (RFC 7047 §5.2.5).

use weir_data::condition::Condition;

use super::{Op, OpResult, Run};
use crate::rbac::Action;

pub(super) fn run(run: &mut Run<'_, '_>, op: &mut Op<'_, '_>) -> OpResult {
    let condition = op.condition();
    let (Some(table), Some(condition)) = (op.table(), condition) else { return Ok(()) };
    let condition = Condition::parse(condition, op.schema.table(table), Some(&mut run.symbols))?;
    let uuids = run.uuids(table, &condition)?;
    run.check_role(table, Action::Delete, &uuids)?;
    for uuid in &uuids {
        run.txn.delete(table, *uuid);
        run.txn.meter.check()?;
    }
    run.write_count(uuids.len());
    Ok(())
}

//! `commit` (RFC 7047 §5.2.7): asks for the change to be on disk before the reply.

use weir_data::parser::BOOL;

use super::{Op, OpResult, Run};

pub(super) fn run(run: &mut Run<'_, '_>, op: &mut Op<'_, '_>) -> OpResult {
    let Some(durable) = op.member("durable", BOOL).and_then(|text| text.bool()) else {
        return Ok(());
    };
    run.durable |= durable;
    run.write_empty();
    Ok(())
}

//! `assert` (RFC 7047 §5.2.10): fails unless the session owns a lock.

use weir_data::Error;
use weir_data::parser::ID;

use super::{Op, OpResult, Run};

pub(super) fn run(run: &mut Run<'_, '_>, op: &mut Op<'_, '_>) -> OpResult {
    let Some(lock) = op.member("lock", ID).and_then(|text| text.str()) else { return Ok(()) };
    if !(run.has_lock)(&lock) {
        return Err(Error::new("not owner", format!("Asserted lock {lock} not held.")).into());
    }
    run.write_empty();
    Ok(())
}

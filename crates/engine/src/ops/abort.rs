//! `abort` (RFC 7047 §5.2.8): fails, so that nothing of the transaction remains.

use weir_data::Error;

use super::{Op, OpResult, Run};

pub(super) fn run(_run: &mut Run<'_, '_>, _op: &mut Op<'_, '_>) -> OpResult {
    Err(Error::new("aborted", "aborted by request").into())
}

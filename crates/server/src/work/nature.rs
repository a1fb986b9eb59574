//! What is to be known of a transaction to tell where it runs: here, at its leader, or at its source.

use weir_json::Text;

use crate::work::asserted;

/// What tells where a transaction runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nature {
    /// The transaction changes nothing, whatever its rows are.
    pub(crate) only_reads: bool,
    /// The transaction may wait for rows that are not there yet.
    pub(crate) may_wait: bool,
    /// The transaction runs for the owner of a lock only.
    pub(crate) asserts: bool,
    /// A condition names `_version`, which other servers have different ones of.
    pub(crate) by_version: bool,
}

/// As far as a long request has that word.
fn judges_by_version(operations: &[Text<'_>]) -> bool {
    operations.iter().any(|operation| operation.may_say("_version"))
        && weir_engine::judges_by_version(operations)
}

impl Nature {
    pub(crate) fn of(operations: &[Text<'_>]) -> Self {
        Self {
            only_reads: weir_engine::is_read_only(operations),
            may_wait: weir_engine::may_wait(operations),
            asserts: !asserted(operations.iter().copied()).is_empty(),
            by_version: judges_by_version(operations),
        }
    }
}

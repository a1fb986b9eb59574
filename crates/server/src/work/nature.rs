//! What is to be known of a transaction to tell where it runs: here, at its leader, or at its source.

use weir_json::Text;

use crate::work::asserted;

/// What tells where a transaction runs.
pub(crate) trait Nature {
    /// The transaction changes nothing, whatever its rows are.
    fn only_reads(&self) -> bool;

    /// The transaction may wait for rows that are not there yet.
    fn may_wait(&self) -> bool;

    /// The transaction runs for the owner of a lock only.
    fn asserts(&self) -> bool;
}

/// The operations of a transaction tell it when they are asked.
impl Nature for [Text<'_>] {
    fn only_reads(&self) -> bool {
        weir_engine::is_read_only(self)
    }

    fn may_wait(&self) -> bool {
        weir_engine::may_wait(self)
    }

    fn asserts(&self) -> bool {
        !asserted(self.iter().copied()).is_empty()
    }
}

/// What a helper has seen in the operations of a big transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    only_reads: bool,
    may_wait: bool,
    asserts: bool,
}

impl Seen {
    pub(super) fn of(operations: &[Text<'_>]) -> Self {
        let only_reads = operations.only_reads();
        Self { only_reads, may_wait: operations.may_wait(), asserts: operations.asserts() }
    }
}

impl Nature for Seen {
    fn only_reads(&self) -> bool {
        self.only_reads
    }

    fn may_wait(&self) -> bool {
        self.may_wait
    }

    fn asserts(&self) -> bool {
        self.asserts
    }
}

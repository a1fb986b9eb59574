//! A `transact` request from its arrival to its reply; it may wait in between.

use std::sync::Arc;

use weir_json::Text;

use crate::event::{DbId, SessionId};
use crate::session::Identity;

/// Where a request came from.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// Who asked.
    pub(crate) session: SessionId,
    /// Who that is.
    pub(crate) identity: Arc<Identity>,
    /// The request's id, as JSON text.
    pub(crate) id: Vec<u8>,
    /// On which database.
    pub(crate) db: DbId,
    /// When it came.
    pub(crate) created_us: u64,
}

/// One `transact` request.
#[derive(Debug)]
pub(crate) struct Trigger {
    /// Where it came from.
    pub(crate) origin: Origin,
    /// The whole message: a transaction that waits or is undone is executed from scratch.
    pub(crate) message: Vec<u8>,
    /// When its `wait` operation gives up.
    pub(crate) deadline_us: Option<u64>,
}

impl Trigger {
    /// The operations of a `transact` message: the parameters behind the database's name.
    pub(crate) fn operations(message: Text<'_>) -> Vec<Text<'_>> {
        let params = message.members().into_iter().flatten().filter(|(key, _)| **key == *b"params");
        let params = params.last().and_then(|(_, params)| params.elements());
        params.into_iter().flatten().skip(1).collect()
    }
}

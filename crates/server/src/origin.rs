//! Where a request came from: who asked, as whom, and when.

use std::sync::Arc;

use crate::ids::{DbId, SessionId};

/// Who a client is: travels with its requests, wherever they are executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// For logs.
    pub(crate) name: String,
    /// The client may not write.
    pub(crate) read_only: bool,
    /// The RBAC role of its remote, empty for none (ovsdb-server(7) §4.1.3).
    pub(crate) role: String,
    /// Common name of its verified certificate.
    pub(crate) client: Option<String>,
}

impl Identity {
    /// The client as role-based access control sees it.
    pub(crate) fn client(&self) -> weir_engine::Client<'_> {
        weir_engine::Client { role: &self.role, id: self.client.as_deref() }
    }
}

/// Who waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Asker {
    /// A client.
    Session(SessionId),
    /// The server itself, which needs none.
    Server,
}

/// Where a request came from.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// Who asked.
    pub(crate) asker: Asker,
    /// As whom.
    pub(crate) identity: Arc<Identity>,
    /// The request's id, as JSON text.
    pub(crate) id: Vec<u8>,
    /// On which database.
    pub(crate) db: DbId,
    /// When the request came, monotonic.
    pub(crate) created_us: u64,
}

impl Origin {
    /// The client that asked, unless it was the server itself.
    pub(crate) fn session(&self) -> Option<SessionId> {
        match self.asker {
            Asker::Session(session) => Some(session),
            Asker::Server => None,
        }
    }

    /// Whether the request came from this session.
    pub(crate) fn is_of(&self, session: SessionId) -> bool {
        self.asker == Asker::Session(session)
    }
}

//! Where a request came from: who asked, as whom, and when.

use std::sync::Arc;

use weir_data::{Error, Uuid, UuidSource};

use crate::ids::{DbId, SessionId, Ticket};

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
    /// Whether the client may do whatever anybody may.
    pub(crate) fn may_all(&self) -> bool {
        !self.read_only && self.role.is_empty()
    }

    /// Whether the client may hear of other clients: roles narrow what may be written, and who is bound to one is not
    /// told who else is there.
    ///
    /// # Errors
    /// `permission error`, and that it may not do `what`.
    pub(crate) fn check_may_hear_of_others(&self, what: &str) -> Result<(), Error> {
        if self.role.is_empty() {
            return Ok(());
        }
        let details = format!("clients with a role, such as \"{}\", may not {what}", self.role);
        Err(Error::new("permission error", details))
    }

    /// The client as role-based access control sees it.
    pub(crate) fn client(&self) -> weir_engine::Client<'_> {
        weir_engine::Client { role: &self.role, id: self.client.as_deref() }
    }
}

/// Who waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asker {
    /// A client.
    Session(SessionId),
    /// The server itself, which needs none.
    Server,
    /// Another member of the cluster, by the number of its request.
    Peer(u64),
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
    /// Where it stands among what its session has asked others: behind what it has asked them by then.
    pub(crate) place: Ticket,
    /// When the request came, monotonic.
    pub(crate) created_us: u64,
    /// In a cluster, the id of the entry that it becomes if it changes something; what is random in
    /// that follows from it. Else zero.
    pub(crate) eid: Uuid,
}

impl Origin {
    /// Where what is random in the request comes from, in a cluster.
    pub(crate) fn uuids(&self) -> Option<UuidSource> {
        self.seed().map(UuidSource::new)
    }

    /// The seed of that.
    pub(crate) fn seed(&self) -> Option<[u64; 4]> {
        let bits = self.eid.to_u128();
        let seed = [(bits >> 64) as u64, bits as u64, 0x7765_6972, 7];
        (self.eid != Uuid::ZERO).then_some(seed)
    }

    /// The client that asked, unless it was the server itself.
    pub(crate) fn session(&self) -> Option<SessionId> {
        match self.asker {
            Asker::Session(session) => Some(session),
            Asker::Server | Asker::Peer(_) => None,
        }
    }

    /// Whether another member of the cluster has sent the request.
    pub(crate) fn is_of_peer(&self) -> bool {
        matches!(self.asker, Asker::Peer(_))
    }

    /// Whether the request came from this session.
    pub(crate) fn is_of(&self, session: SessionId) -> bool {
        self.asker == Asker::Session(session)
    }
}

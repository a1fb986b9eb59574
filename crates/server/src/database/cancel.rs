//! `cancel` (RFC 7047 section 4.1.4): a session's transaction that waits, for rows or in its gate, is
//! taken back.

use crate::database::Databases;
use crate::database::trigger::Trigger;
use crate::ids::{DbId, SessionId};
use crate::origin::Origin;
use crate::session::Sessions;
use crate::shell::Shell;

impl Databases {
    /// A session takes a transaction back.
    pub(crate) fn cancel_request(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        session: SessionId,
        request: &[u8],
    ) {
        let mut canceled = Vec::new();
        for (_, db) in &mut self.entries {
            canceled.extend(db.waiting.take_request(session, request));
        }
        for trigger in canceled {
            self.cancel(shell, sessions, trigger);
        }
        if sessions.cancel_queued(shell, session, request) {
            tell_canceled(shell, sessions, session, request);
        }
    }

    /// All transactions that wait on a database are canceled.
    pub(crate) fn cancel_all(&mut self, shell: &mut Shell, sessions: &mut Sessions, id: DbId) {
        for trigger in self.open(id).waiting.take() {
            self.cancel(shell, sessions, trigger);
        }
    }

    /// Tells a session that its transaction is canceled. The reference does that only for sessions
    /// that know of databases that come and go.
    pub(crate) fn cancel(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        mut trigger: Trigger,
    ) {
        self.let_go(shell, sessions, &mut trigger);
        reply_canceled(shell, sessions, &trigger.origin);
    }
}

pub(super) fn reply_canceled(shell: &mut Shell, sessions: &Sessions, origin: &Origin) {
    // The server itself needs no answer.
    if let Some(session) = origin.session() {
        tell_canceled(shell, sessions, session, &origin.id);
    }
}

/// Tells a session that a request is canceled, if it knows of such things and is still there.
fn tell_canceled(
    shell: &mut Shell,
    sessions: &Sessions,
    session: SessionId,
    request: &[u8],
) {
    if sessions.get(session).is_some_and(|session| session.is_db_change_aware()) {
        let message = weir_wire::reply_error_string(request, "canceled");
        // It has changed nothing that the session would have to see before.
        shell.send(session, message);
    }
}

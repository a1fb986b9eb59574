//! `cancel` (RFC 7047 section 4.1.4): a transaction is answered at once, as it is or as canceled,
//! wherever it is by then.
//!
//! | it | is |
//! |---|---|
//! | waits in its session's gate, or for rows | canceled |
//! | is too long for a step and has not begun | canceled |
//! | is with a helper and only reads, or runs on a snapshot | canceled; the helper stops |
//! | is with a helper and writes | completed, or canceled if it would wait |
//! | waits for the source of a relay | canceled; it is not sent, or not again (`server/relaying`) |
//! | is with the source | completed, or canceled if the source does that or the connection ends |
//! | waits for the leader of a cluster, and none has been asked | canceled (`server/clustering`) |
//! | has been sent to a leader | completed |
//! | has run | completed: its answer is on its way |

use crate::database::long::Out;
use crate::database::trigger::Trigger;
use crate::database::{Answer, Databases};
use crate::effect::Effect;
use crate::ids::{DbId, SessionId};
use crate::origin::{Asker, Origin};
use crate::session::Sessions;
use crate::shell::Shell;
use crate::work::Word;

/// The error of what is canceled, or nobody will answer (RFC 7047 section 4.1.4), as JSON text.
pub(crate) const CANCELED: &[u8] = b"\"canceled\"";

impl Databases {
    /// A session takes a transaction back.
    pub(crate) fn cancel_request(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        session: SessionId,
        request: &[u8],
    ) {
        let is_meant =
            |trigger: &Trigger| trigger.origin.is_of(session) && trigger.origin.id == request;
        let mut canceled = Vec::new();
        for (_, db) in &mut self.entries {
            canceled.extend(db.waiting.take_request(session, request));
            canceled.extend(db.commits.long.extract_if(.., |trigger| is_meant(trigger)));
            canceled.extend(db.tables.take_queued(is_meant));
        }
        for (work, out) in &mut self.out {
            match out {
                Out::Read { trigger, .. } | Out::Try { trigger, .. } if is_meant(trigger) => {
                    canceled.push(trigger.forget());
                    shell.ask(Effect::Say { id: *work, word: Word::Stop });
                }
                Out::Write { trigger, .. } if is_meant(trigger) => trigger.is_canceled = true,
                Out::Read { .. } | Out::Try { .. } | Out::Write { .. } | Out::Follow(_) => {}
            }
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
        self.give_up(shell, sessions, &mut trigger);
        reply_canceled(shell, sessions, &trigger.origin);
    }

    /// What a request is answered that is refused with this error, if anybody waits for that.
    pub(crate) fn refusal(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        mut trigger: Trigger,
        error: &[u8],
    ) -> Option<(DbId, Answer)> {
        // Its session waits until it is answered.
        let (holds, ticket) = (trigger.holds.take(), trigger.ticket.take());
        self.give_up(shell, sessions, &mut trigger);
        let origin = trigger.origin;
        let (session, db) = (origin.session()?, origin.db);
        let answer = Answer::new(session, origin, error.to_owned());
        Some((db, Answer { is_error: true, holds, ticket, ..answer }))
    }

    /// A request will not be decided: its session goes on.
    fn give_up(&mut self, shell: &mut Shell, sessions: &mut Sessions, trigger: &mut Trigger) {
        self.end(shell, sessions, trigger);
        if trigger.is_conversion() {
            self.let_converter_go(shell, sessions, &trigger.origin);
        }
    }
}

impl Trigger {
    /// What is left of a transaction that is with a helper has nobody who asks for it; what is
    /// returned has no message.
    fn forget(&mut self) -> Self {
        let has_waited = std::mem::take(&mut self.has_waited);
        let (holds, ticket) = (self.holds.take(), self.ticket.take());
        let message = std::sync::Arc::default();
        let forgotten =
            Self { has_waited, holds, ticket, ..Self::new(self.origin.clone(), message) };
        self.origin.asker = Asker::Server;
        self.is_canceled = true;
        forgotten
    }
}

pub(super) fn reply_canceled(shell: &mut Shell, sessions: &Sessions, origin: &Origin) {
    // The server itself needs no answer.
    if let Some(session) = origin.session() {
        tell_canceled(shell, sessions, session, &origin.id);
    }
}

/// Tells a session that a request is canceled, if it knows of such things and is still there.
pub(crate) fn tell_canceled(
    shell: &mut Shell,
    sessions: &Sessions,
    session: SessionId,
    request: &[u8],
) {
    if sessions.is_db_change_aware(session) {
        let message = weir_wire::reply_error(request, CANCELED);
        // It has changed nothing that the session would have to see before.
        shell.send(session, message);
    }
}

//! Clients whose monitors a conversion has ended, and that ask for nothing anew.
//!
//! ovsdb-server(7) has who is `set_db_change_aware` ask for the schema and its monitors once more when
//! it is told `monitor_canceled`. The Python library does not know that message: without a new
//! connection it would go on for good with the rows of then.

use std::collections::VecDeque;

use crate::effect::Level;
use crate::ids::SessionId;
use crate::session::Sessions;
use crate::shell::Shell;

/// For so long a client may ask for nothing behind the end of its monitors, in microseconds.
pub(crate) const DEAF_US_MAX: u64 = 30_000_000;

/// Who was told, and by when each must have asked; in that order. Who has asked or left is found out when its
/// time comes.
#[derive(Debug, Default)]
pub(super) struct Deaf(VecDeque<(u64, SessionId)>);

impl Sessions {
    /// A client was told that a monitor has ended with its database's schema.
    pub(crate) fn await_monitors(&mut self, shell: &Shell, id: SessionId) {
        let by_us = shell.now_us() + DEAF_US_MAX;
        let session = self.by_id.get_mut(&id).expect("it was told");
        if session.asks_by_us.replace(by_us) != Some(by_us) {
            self.deaf.0.push_back((by_us, id));
        }
    }

    /// A client has asked for a schema or for a monitor.
    pub(crate) fn note_asks_anew(&mut self, id: SessionId) {
        self.by_id.get_mut(&id).expect("its request is being handled").asks_by_us = None;
    }

    /// When somebody must have asked next.
    pub(crate) fn next_deaf_us(&self) -> Option<u64> {
        self.deaf.0.front().map(|(by_us, _)| *by_us)
    }

    /// Clients that should have asked by now. Of whom something waits here it may be that.
    pub(crate) fn take_deaf(&mut self, shell: &mut Shell) -> Vec<SessionId> {
        let mut deaf = Vec::new();
        while let Some((by_us, id)) =
            self.deaf.0.pop_front_if(|(by_us, _)| *by_us <= shell.now_us())
        {
            let session = self.by_id.get(&id);
            let Some(session) = session.filter(|session| session.asks_by_us == Some(by_us)) else {
                continue;
            };
            if session.gate.is_closed() {
                self.await_monitors(shell, id);
                continue;
            }
            let text = format!(
                "{}: disconnecting (it was told that its monitors have ended with a conversion, and has not asked \
                 for others in {} s)",
                session.name(),
                DEAF_US_MAX / 1_000_000
            );
            shell.log("ovsdb_jsonrpc_server", Level::Info, text);
            deaf.push(id);
        }
        deaf
    }
}

//! Connections that the server makes itself to managers: when they are tried, and how they end.

use weir_upstream::backoff::Attempt;
use weir_upstream::connection::{Connection, End};

use crate::effect::{Effect, Level, RemoteOptions};
use crate::ids::{RemoteId, SessionId};
use crate::remotes::{Remotes, Way};
use crate::session::Session;
use crate::shell::Shell;

/// A connection that goes out, and its session while it is active.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    pub(super) connection: Connection,
    pub(super) session: Option<SessionId>,
}

impl Outgoing {
    pub(super) fn new(target: &str, attempt: Attempt, options: &RemoteOptions) -> Self {
        let connection = Connection::new(target, attempt, backoff_max(options));
        Self { connection, session: None }
    }

    pub(super) fn set_options(&mut self, options: &RemoteOptions) {
        self.connection.set_backoff_max(backoff_max(options));
    }
}

/// The longest pause in ms, 0 for the usual one.
fn backoff_max(options: &RemoteOptions) -> u64 {
    options.max_backoff_ms.unwrap_or(0)
}

impl Remotes {
    /// Has the shell try the connections that are due. The shell also times an attempt: lookups and
    /// handshakes are on other threads, which end by themselves.
    pub(crate) fn connect_if_due(&mut self, shell: &mut Shell) {
        let now_us = shell.now_us();
        if self.next_us().is_none_or(|due| due > now_us) {
            return;
        }
        for (target, remote) in &mut self.open {
            let Way::Out(Outgoing { connection, .. }) = &mut remote.way else { continue };
            if connection.due_us().is_some_and(|due| due <= now_us) {
                log(shell, connection.connecting(now_us));
                shell.ask(Effect::ConnectRemote {
                    remote: remote.id,
                    target: target.clone(),
                    options: remote.options.clone(),
                    patience_ms: connection.patience_ms(),
                });
            }
        }
    }

    /// A session has just been accepted: that of a connection that was tried, or a client's.
    pub(crate) fn connected(&mut self, shell: &mut Shell, id: RemoteId, session: SessionId) {
        if let Some(outgoing) = self.outgoing(id) {
            log(shell, [outgoing.connection.connected(shell.now_us())]);
            outgoing.session = Some(session);
        }
    }

    /// An attempt has failed. The remote may have been closed meanwhile.
    pub(crate) fn connect_failed(&mut self, shell: &mut Shell, id: RemoteId, error: Option<&str>) {
        if let Some(outgoing) = self.outgoing(id) {
            log(shell, outgoing.connection.failed(shell.now_us(), error));
        }
    }

    /// A session ends; true if it was of a connection that the server had made. The remote may have
    /// been closed before.
    pub(crate) fn disconnected(
        &mut self,
        shell: &mut Shell,
        id: SessionId,
        session: &Session,
        end: End<'_>,
    ) -> bool {
        let Some(outgoing) = self.outgoing(session.remote()) else { return false };
        let ended = outgoing.session.take();
        assert_eq!(ended, Some(id), "a connection has one session, which ends once");
        log(shell, outgoing.connection.disconnected(shell.now_us(), session.heard_us(), end));
        true
    }
}

fn log(shell: &mut Shell, lines: impl IntoIterator<Item = String>) {
    for line in lines {
        shell.log("reconnect", Level::Info, line);
    }
}

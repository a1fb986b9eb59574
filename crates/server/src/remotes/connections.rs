//! Connections that the server makes itself to managers: when they are tried, and how they end.

use crate::effect::{Effect, Level};
use crate::ids::{RemoteId, SessionId};
use crate::remotes::reconnect::{End, Phase};
use crate::remotes::{Remotes, Way};
use crate::session::Session;
use crate::shell::Shell;

impl Remotes {
    /// Has the shell try the connections that are due.
    pub(crate) fn connect_if_due(&mut self, shell: &mut Shell) {
        let now_us = shell.now_us();
        if self.next_us().is_none_or(|due| due > now_us) {
            return;
        }
        for (target, remote) in &mut self.open {
            let Way::Out(connection) = &mut remote.way else { continue };
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

    /// A connection that was tried is there: its session has just been accepted.
    pub(crate) fn connected(&mut self, shell: &mut Shell, id: RemoteId, session: SessionId) {
        if let Some(connection) = self.connection(id) {
            log(shell, [connection.connected(shell.now_us(), session)]);
        }
    }

    /// An attempt has failed, if it was not given up meanwhile.
    pub(crate) fn connect_failed(&mut self, shell: &mut Shell, id: RemoteId, error: Option<&str>) {
        if let Some(connection) = self.connection(id)
            && connection.phase() == Phase::Connecting
        {
            log(shell, connection.failed(shell.now_us(), error));
        }
    }

    /// A session ends; true if it was of a connection that the server had made.
    pub(crate) fn disconnected(
        &mut self,
        shell: &mut Shell,
        id: SessionId,
        session: &Session,
        end: End<'_>,
    ) -> bool {
        let Some(connection) = self.connection(session.remote()) else { return false };
        if connection.phase() != Phase::Active(id) {
            return false;
        }
        log(shell, connection.disconnected(shell.now_us(), session.heard_us(), end));
        true
    }
}

fn log(shell: &mut Shell, lines: impl IntoIterator<Item = String>) {
    for line in lines {
        shell.log("reconnect", Level::Info, line);
    }
}

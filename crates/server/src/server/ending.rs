//! What ends with a session, and with a database.

use crate::clusters::{Leaving, STOP_US_MAX};
use crate::database::Replaced;
use crate::effect::{Effect, Level};
use crate::ids::{DbId, SessionId};
use crate::remotes::End;
use crate::server::Server;
use crate::server::round::Turn;
use crate::session::Session;
use crate::session::limits::SESSION_BYTES_MAX;

impl Server {
    /// The peer has closed a session's connection, or it broke.
    pub(super) fn closed(&mut self, id: SessionId, error: Option<&str>) {
        let is_ours = self.connection_lost(id, error.map_or(End::Closed, End::Failed));
        if let (false, Some(name), Some(error)) = (is_ours, self.session_name(id), error) {
            let text = format!("{name}: connection dropped ({error})");
            self.shell.log_limited("dropped", "reconnect", Level::Warning, text);
        }
        self.forget(id);
    }

    /// Ends a session from this side, and if it is a channel its connection.
    pub(super) fn disconnect(&mut self, id: SessionId) {
        let id = id.connection();
        // In one round it may be found more than once that a session is to end.
        if !self.sessions.has(id) {
            return;
        }
        self.connection_lost(id, End::Dropped);
        self.forget(id);
        self.shell.ask(Effect::Disconnect { session: id });
    }

    /// Ends a session that does not speak JSON-RPC.
    pub(super) fn drop_misfit(&mut self, id: SessionId) {
        let is_ours = self.connection_lost(id, End::Failed("Protocol error"));
        if let (false, Some(name)) = (is_ours, self.session_name(id)) {
            let text = format!("{name}: connection dropped (Protocol error)");
            self.shell.log_limited("misfit", "reconnect", Level::Warning, text);
        }
        self.forget(id);
        self.shell.ask(Effect::Disconnect { session: id });
    }

    /// A session ends; true if it was of a connection that this server had made.
    fn connection_lost(&mut self, id: SessionId, end: End<'_>) -> bool {
        // The core may have ended it before its connection broke.
        let Some(session) = self.sessions.get(id) else { return false };
        self.remotes.disconnected(&mut self.shell, id, session, end)
    }

    /// Ends everything that a connection had going, and its channels.
    fn forget(&mut self, id: SessionId) {
        for channel in self.sessions.channels_of(id) {
            self.end_session(channel);
        }
        self.end_session(id);
    }

    /// Ends everything that a connection, or a channel, had going.
    fn end_session(&mut self, id: SessionId) {
        let Self {
            shell,
            sessions,
            databases,
            subscriptions,
            deliveries,
            log_searches,
            states,
            checks,
            clusters,
            ..
        } = self;
        subscriptions.forget_session(shell, databases, id);
        databases.forget_session(shell, id);
        checks.forget_session(shell, id);
        deliveries.forget_session(id);
        states.forget_session(id);
        log_searches.forget_session(shell, id);
        sessions.remove(shell, id);
        for trigger in clusters.forget_session(id) {
            self.lose_request(trigger);
        }
        self.leave_sources(id);
    }

    /// Databases came or went: clients that cannot be told are disconnected, so that they look. One
    /// that has asked for nothing yet knows nothing that could be wrong now.
    pub(super) fn disconnect_unaware(&mut self, reason: &str) {
        self.disconnect_where(reason, Session::is_unaware);
    }

    pub(super) fn disconnect_where(&mut self, reason: &str, is_meant: impl Fn(&Session) -> bool) {
        let meant = self.sessions.iter().filter(|(_, session)| is_meant(session));
        let meant: Vec<(SessionId, String)> =
            meant.map(|(id, session)| (id, session.name().to_owned())).collect();
        for (id, name) in meant {
            let text = format!("{name}: disconnecting ({reason})");
            self.shell.log("ovsdb_jsonrpc_server", Level::Info, text);
            self.disconnect(id);
        }
    }

    /// Leaves leadership of clusters to others, so that nobody waits for an election.
    pub(super) fn hand_leadership_over(&mut self) {
        let now_us = self.shell.now_us();
        self.clusters.stop_by_us = Some(now_us + STOP_US_MAX);
        let members: Vec<DbId> = self.clusters.parts.keys().copied().collect();
        for db in members {
            let part = self.clusters.part_mut(db);
            part.is_handing_over = part.member.hand_over(now_us);
            self.run_member(db);
        }
    }

    /// Whether a database can go without anybody having to wait for an election: leadership leaves for another
    /// server first, if this one has it.
    pub(super) fn has_left_lead(&mut self, db: DbId) -> bool {
        let now_us = self.shell.now_us();
        let Some(part) = self.clusters.parts.get_mut(&db) else { return true };
        let (leader, own) = (part.member.leader(), part.member.id());
        part.leaving = match part.leaving {
            Leaving::Not if leader == Some(own) && part.member.hand_over(now_us) => {
                Leaving::Until(now_us + STOP_US_MAX)
            }
            Leaving::Until(by_us)
                if by_us > now_us && leader.is_none_or(|leader| leader == own) =>
            {
                return false;
            }
            Leaving::Not | Leaving::Until(_) | Leaving::Left => Leaving::Left,
        };
        let has_left = part.leaving == Leaving::Left;
        if !has_left {
            self.run_member(db);
        }
        has_left
    }

    /// Disconnects sessions for which too much is kept.
    #[inline]
    pub(super) fn end_who_exceeds(&mut self) {
        let must_look = self.sessions.must_count_kept()
            || self.shell.has_overflowed()
            || self.databases.has_overflowed();
        if must_look {
            self.end_those_who_exceed();
        }
    }

    #[cold]
    fn end_those_who_exceed(&mut self) {
        if self.sessions.must_count_kept() {
            self.bound_kept();
        }
        for id in self.shell.take_overflowed() {
            // It may have left since.
            let Some(session) = self.sessions.get(id) else { continue };
            let text = format!(
                "{}: disconnecting (too much waits behind a long message that it does not read)",
                session.name()
            );
            self.shell.log_limited("behind", "ovsdb_jsonrpc_server", Level::Warning, text);
            self.disconnect(id);
        }
        if self.databases.has_overflowed() {
            for id in self.databases.take_overflowed() {
                self.disconnect(id);
            }
        }
    }

    /// Counts what is kept for sessions. Where it is too much for one, that one goes; where it is
    /// too much for all, those go that most is kept for.
    fn bound_kept(&mut self) {
        for id in self.sessions.take_noted() {
            let bytes = self.count_kept(id);
            if bytes > SESSION_BYTES_MAX {
                self.cut(id, bytes, SESSION_BYTES_MAX, "the limit of a session");
            }
        }
        while self.sessions.count_all_kept(self.kept_bytes()) {
            // What those who go shared with others is the others' now.
            self.count_kept_again();
            if !self.cut_who_have_most() {
                break;
            }
        }
    }

    /// Ends those that most is kept for, as they are counted now; true if there are any.
    fn cut_who_have_most(&mut self) -> bool {
        let mut has_cut = false;
        while let Some((id, bytes)) = self.sessions.who_must_go() {
            let (total, max) = self.sessions.kept();
            let text = format!("all sessions' are {total}, and it has most of them; the limit");
            self.cut(id, bytes, max, &text);
            has_cut = true;
        }
        has_cut
    }

    fn count_kept(&mut self, id: SessionId) -> usize {
        let bytes = self.subscriptions.kept_bytes(id)
            + self.databases.kept_bytes(id)
            + self.relays.kept_bytes(id)
            + self.clusters.kept_bytes(id)
            + self.sessions.lock_bytes(id);
        self.sessions.count_kept(id, bytes);
        bytes
    }

    /// Counts all that is kept, for `weir/status`.
    pub(super) fn count_all_kept(&mut self) {
        self.count_kept_again();
        self.sessions.count_all_kept(self.kept_bytes());
    }

    /// Counts what is kept for each session, whether it is known to have changed or not.
    fn count_kept_again(&mut self) {
        self.subscriptions.count_again(&self.databases);
        for id in self.sessions.ids() {
            self.count_kept(id);
        }
    }

    /// Bytes kept for all sessions.
    fn kept_bytes(&self) -> usize {
        self.subscriptions.all_kept_bytes()
            + self.databases.all_kept_bytes()
            + self.relays.all_kept_bytes()
            + self.clusters.all_kept_bytes()
            + self.sessions.all_lock_bytes()
    }

    /// Disconnects a session for which too much is kept.
    fn cut(&mut self, id: SessionId, bytes: usize, max: usize, whose: &str) {
        let name = self.session_name(id).unwrap_or_default();
        let text = format!(
            "{name}: disconnecting (waiting transactions, results, monitors and locks of {bytes} bytes; \
             {whose} is {max})"
        );
        self.shell.log_limited("kept", "ovsdb_jsonrpc_server", Level::Warning, text);
        self.disconnect(id);
    }

    /// Removes a database and everything that depends on it; all is decided.
    pub(super) fn remove_database(&mut self, id: DbId, reason: &str) {
        self.end_part(id);
        self.forget_relay(id);
        let Self { shell, databases, deliveries, states, backups, .. } = self;
        backups.forget(shell, databases, id);
        deliveries.forget_database(shell, id);
        states.forget_database(shell, id);
        self.checks.forget_database(id);
        let Self { shell, sessions, databases, subscriptions, .. } = self;
        subscriptions.cancel(shell, sessions, databases, id, &[]);
        let (name, left) = databases.remove(shell, sessions, id);
        databases.change_server_db(shell, &crate::database::server_db::delete(&name));
        let (answers, others) = self.round.take_of_removed(id);
        answers.into_iter().for_each(|turn| self.take_turn(id, turn));
        left.into_iter().for_each(|trigger| self.cancel_in_order(trigger));
        others.into_iter().for_each(|turn| self.take_turn(id, turn));
        self.disconnect_unaware(reason);
        self.remotes_changed();
        self.save_configuration();
    }

    /// A copy has taken a file's place, or has not: a compacted one, or a converted one.
    pub(super) fn replaced(&mut self, id: DbId, result: Result<u64, String>) {
        if self.clusters.part(id).is_some() {
            self.member_file_replaced(id, result);
        } else if self.databases.get(id).is_some_and(|db| db.is_converting()) {
            self.await_turn(id, Turn::ConversionFinished(result));
        } else if self.databases.compaction_finished(&mut self.shell, id, result)
            && self.admin.trims()
        {
            self.shell.ask(Effect::TrimMemory);
        }
    }

    /// A conversion has ended; all is decided, and the tables are here.
    pub(super) fn conversion_finished(&mut self, id: DbId, result: Result<u64, String>) {
        let Self { shell, sessions, databases, .. } = self;
        let replaced = databases.conversion_finished(shell, sessions, id, result);
        // It may have failed: all is as it was.
        if let Some(replaced) = replaced {
            self.tell_of_schema(id, replaced);
        }
    }

    /// A database has another schema from now on: who watches it learns of that, or is disconnected.
    pub(super) fn tell_of_schema(&mut self, id: DbId, replaced: Replaced) {
        self.checks.forget_database(id);
        let Self { shell, sessions, databases, subscriptions, .. } = self;
        let Replaced { name, kept, operation, origin } = replaced;
        for told in subscriptions.cancel(shell, sessions, databases, id, &kept) {
            sessions.await_monitors(shell, told);
        }
        if let Some(origin) = origin {
            if let Some(session) = origin.session() {
                subscriptions.flush_session(shell, sessions, databases, session);
            }
            databases.end_conversion(shell, sessions, &origin, Ok(()));
        }
        databases.cancel_all(shell, sessions, id);
        databases.change_server_db(shell, &operation);
        // Tools that convert look into `_Server` first: they need not fail because another did it.
        let knows_old = |session: &Session| !session.is_db_change_aware() && session.knows_tables();
        let reason = format!("committed {name} database schema conversion");
        self.disconnect_where(&reason, knows_old);
        self.remotes_changed();
        let Self { shell, sessions, databases, .. } = self;
        databases.thaw(shell, sessions, id);
    }

    /// The server is about to exit: sessions that know of such things learn that their databases
    /// go, `_Server` last.
    pub fn say_farewell(&mut self) {
        let Self { shell, sessions, databases, subscriptions, .. } = self;
        let mut ids: Vec<DbId> = databases.names().map(|(_, id)| id).collect();
        let server_db = databases.by_name(crate::database::server_db::NAME);
        ids.sort_by_key(|id| server_db == Some(*id));
        for id in ids {
            subscriptions.cancel(shell, sessions, databases, id, &[]);
            databases.cancel_all(shell, sessions, id);
        }
    }
}

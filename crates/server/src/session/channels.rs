//! Channels of a connection: a relay asks its source for many clients at once, and what one of them asks neither waits
//! for another one's requests nor shares its turns (`"channel"` of `docs/decisions/013`).
//!
//! 1. A channel is a session without a connection of its own: it has a gate, and so an order, turns and what is kept
//!    for it. It begins with its first request and ends with the connection.
//! 2. Its requests pass the connection's gate, unless that waits for what concerns all, and wait in the channel's.
//! 3. All else is the connection's: who the client is, its locks and monitors, and what is sent.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::effect::Effect;
use crate::ids::SessionId;
use crate::origin::Identity;
use crate::session::gate::{Gate, Lane, Queued, Reason};
use crate::session::probes::Watched;
use crate::session::{Session, Sessions};
use crate::shell::Shell;

impl Sessions {
    /// The channel of this number, which begins now if it was not there.
    pub(crate) fn channel(&mut self, connection: SessionId, number: u16) -> SessionId {
        let channel = connection.channel(number);
        let of = self.by_id.get_mut(&connection).expect("its message is being handled");
        if of.channels.insert(channel) {
            // What one has asked is told from what others have by the name, where it is asked of a leader.
            let name = format!("{} channel {number}", of.identity.name);
            self.accepted += 1;
            let session = Session {
                identity: Arc::new(Identity { name, ..(*of.identity).clone() }),
                remote: of.remote,
                is_db_change_aware: of.is_db_change_aware,
                knows_tables: false,
                is_blocked: false,
                locks: Default::default(),
                lock_bytes: 0,
                lock_news: Default::default(),
                lock_repeats: Default::default(),
                watched: Watched::never(),
                asks_by_us: None,
                gate: of.gate.of_channel(),
                order: Default::default(),
                channels: BTreeSet::new(),
                full_gates: 0,
                number: self.accepted,
            };
            self.by_id.insert(channel, session);
        }
        channel
    }

    /// The channels of a connection.
    pub(crate) fn channels_of(&self, connection: SessionId) -> Vec<SessionId> {
        let session = self.by_id.get(&connection);
        session.into_iter().flat_map(|session| &session.channels).copied().collect()
    }

    /// Whether a connection asks for several clients.
    pub(crate) fn has_channels(&self, connection: SessionId) -> bool {
        self.by_id.get(&connection).is_some_and(|session| !session.channels.is_empty())
    }

    /// A request for a channel has passed the connection's gate: whether it is handled right away.
    pub(crate) fn passes_into(&mut self, channel: SessionId, lane: Lane) -> bool {
        let round = self.round;
        let gate = &mut self.by_id.get_mut(&channel).expect("it has just been asked for").gate;
        gate.pass(round) || gate.may_pass(lane)
    }

    /// The next message of a connection if it is for a channel and need not wait here.
    pub(crate) fn next_for_channel(&mut self, shell: &mut Shell, id: SessionId) -> Option<Queued> {
        let queued = self.change_queue(id, Gate::pop_for_channel).flatten()?;
        self.may_be_read(shell, id);
        Some(queued)
    }

    /// Whom a reason to wait concerns that a session has.
    pub(super) fn held_with(
        &self,
        id: SessionId,
        reason: Reason,
    ) -> impl Iterator<Item = SessionId> + use<> {
        let is_of_all = reason.stops_echo();
        let id = if is_of_all { id.connection() } else { id };
        let channels = if is_of_all { self.channels_of(id) } else { Vec::new() };
        std::iter::once(id).chain(channels)
    }

    /// A channel leaves its connection.
    pub(super) fn leave_connection(&mut self, id: SessionId) {
        if id.is_channel() {
            let of =
                self.by_id.get_mut(&id.connection()).expect("channels end before their connection");
            assert!(of.channels.remove(&id), "a channel is one of its connection's");
        }
    }

    /// A gate has become full: its connection is not read.
    pub(super) fn gate_is_full(&mut self, shell: &mut Shell, id: SessionId) {
        let connection = id.connection();
        let session = self.by_id.get_mut(&connection).expect("its message has just come");
        session.full_gates += 1;
        if session.full_gates == 1 {
            shell.ask(Effect::StopReading { session: connection });
        }
    }

    /// Something has left a gate: its connection may be read again if no gate of it is full any more.
    pub(super) fn may_be_read(&mut self, shell: &mut Shell, id: SessionId) {
        let was_full = self.by_id.get_mut(&id).is_some_and(|session| session.gate.may_be_read());
        if !was_full {
            return;
        }
        let connection = id.connection();
        let session =
            self.by_id.get_mut(&connection).expect("channels end before their connection");
        session.full_gates -= 1;
        if session.full_gates == 0 {
            shell.ask(Effect::GoOnReading { session: connection });
        }
    }
}

//! In which order what a session has asked of others is answered: leaders of clusters, sources of relays.
//!
//! A leader or a source may be asked for a request again, or what has come of it, and may answer what changes nothing before
//! what does: so the answer to a later request of a session can be known first. That answer waits here for the earlier ones.
//! Only a request that may wait for rows (`wait`) is passed by, as at a server that decides by itself, until it is decided.

use std::collections::BTreeMap;

use crate::ids::{DbId, SessionId, Ticket};
use crate::session::{Session, Sessions};

/// What is known of a request that has not been answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The request may wait for rows, for ever.
    MayWait,
    /// The request will be decided.
    Asked,
    /// The request has been decided; its answer comes behind others, or behind updates.
    Decided,
}

/// What of a session's requests for others has not been answered.
#[derive(Debug, Default)]
pub(super) struct Order {
    next: u64,
    open: BTreeMap<(DbId, Ticket), State>,
}

impl Order {
    fn enter(&mut self, db: DbId, may_wait: bool) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.open.insert((db, ticket), if may_wait { State::MayWait } else { State::Asked });
        ticket
    }

    fn decided(&mut self, db: DbId, ticket: Ticket) {
        *self.open.get_mut(&(db, ticket)).expect("it has not been answered") = State::Decided;
    }

    fn is_behind(&self, db: DbId, ticket: Ticket) -> bool {
        let mut before = self.open.range((db, Ticket(0))..(db, ticket));
        before.any(|(_, state)| *state != State::MayWait)
    }

    /// Whether an answer that is there may have waited for this one.
    fn leave(&mut self, db: DbId, ticket: Ticket) -> bool {
        let was_open = self.open.remove(&(db, ticket)).is_some();
        assert!(was_open, "a request is answered once");
        let mut behind = self.open.range((db, ticket)..(db, Ticket(u64::MAX)));
        behind.any(|(_, state)| *state == State::Decided)
    }
}

impl Session {
    /// The place of what the session asks others next.
    pub(crate) fn next_in_order(&self) -> Ticket {
        Ticket(self.order.next)
    }
}

impl Sessions {
    /// A session asks others for something on a database, which comes behind what it has asked them before.
    pub(crate) fn enter_order(
        &mut self,
        id: SessionId,
        db: DbId,
        may_wait: bool,
    ) -> Option<Ticket> {
        Some(self.by_id.get_mut(&id)?.order.enter(db, may_wait))
    }

    /// A request has been decided: it does not wait for rows any more.
    pub(crate) fn decided_in_order(&mut self, id: SessionId, db: DbId, ticket: Ticket) {
        if let Some(session) = self.by_id.get_mut(&id) {
            session.order.decided(db, ticket);
        }
    }

    /// Whether a session is to be answered something else before this.
    pub(crate) fn is_behind_in_order(&self, id: SessionId, db: DbId, ticket: Ticket) -> bool {
        self.by_id.get(&id).is_some_and(|session| session.order.is_behind(db, ticket))
    }

    /// A request has been answered, or nobody waits for that any more.
    pub(crate) fn leave_order(&mut self, id: SessionId, db: DbId, ticket: Ticket) {
        if let Some(session) = self.by_id.get_mut(&id) {
            self.is_order_to_be_looked_at |= session.order.leave(db, ticket);
        }
    }

    /// Whether answers that have waited for others may go now.
    pub(crate) fn is_order_to_be_looked_at(&self) -> bool {
        self.is_order_to_be_looked_at
    }

    /// All of those that may go are about to.
    pub(crate) fn look_at_order(&mut self) {
        self.is_order_to_be_looked_at = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_more_is_answered_in_that_order_but_for_what_waits() {
        let (db, other) = (DbId(1), DbId(2));
        let mut order = Order::default();
        let [first, waits, elsewhere, last] =
            [(db, false), (db, true), (other, false), (db, false)]
                .map(|(db, may_wait)| order.enter(db, may_wait));
        assert!(!order.is_behind(db, first));
        assert!(order.is_behind(db, waits));
        assert!(!order.is_behind(other, elsewhere), "each database has an order of its own");
        assert!(order.is_behind(db, last));
        assert!(!order.leave(db, first), "nothing else has been decided");
        assert!(!order.is_behind(db, last), "the one between may wait for ever");
        order.decided(db, waits);
        assert!(order.is_behind(db, last), "it waits no more");
        order.decided(db, last);
        assert!(order.leave(db, waits), "the last one may go");
        assert!(!order.is_behind(db, last));
    }
}

//! Requests that wait for another server, the source of a relay or the leader of a cluster: whose they
//! are, and what is kept for them.
//!
//! 1. One that has to wait is admitted, or refused for want of room: [`admit`]; what is to be sent again
//!    is not refused (`note_waits`).
//! 2. It stands at its place, and what is kept for it is counted with that: [`Outbound`].
//! 3. When it is answered or given up, the count of its session is made anew (`note_waited`).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use weir_data::Error;

use crate::database::{Trigger, kept_bytes, note_waits};
use crate::ids::SessionId;
use crate::origin::Origin;
use crate::session::Sessions;

/// A request has to wait: so many bytes are kept for it. `None` if its session has left.
///
/// # Errors
/// There is no room for it. What may have been committed has room always: its client would take a refusal
/// for a promise that it was not.
pub(crate) fn admit(
    sessions: &mut Sessions,
    trigger: &mut Trigger,
) -> Result<Option<usize>, Error> {
    let session = trigger.origin.session().filter(|session| sessions.has(*session));
    if let Some(session) = session
        && trigger.since.is_none()
    {
        sessions.check_room(session, kept_bytes(trigger))?;
    }
    Ok(note_waits(sessions, trigger))
}

/// Requests that wait, by session: where each stands in the order of all, and what is kept.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    places: BTreeSet<(SessionId, i64)>,
    /// Bytes that are kept for those of each session.
    kept_bytes: BTreeMap<SessionId, usize>,
}

impl Outbound {
    /// A request waits at this place, for which so many bytes are kept.
    pub(crate) fn enter(&mut self, origin: &Origin, place: i64, kept_bytes: usize) {
        if let Some(session) = origin.session() {
            self.places.insert((session, place));
            *self.kept_bytes.entry(session).or_default() += kept_bytes;
        }
    }

    /// The request at this place waits no more.
    pub(crate) fn leave(&mut self, origin: &Origin, place: i64, kept_bytes: usize) {
        let Some(session) = origin.session() else { return };
        let was_there = self.places.remove(&(session, place));
        assert!(was_there, "who leaves a place has entered it");
        let kept = self.kept_bytes.get_mut(&session).expect("what waits has been counted");
        *kept -= kept_bytes;
        if *kept == 0 && self.places_of(session).next().is_none() {
            self.kept_bytes.remove(&session);
        }
    }

    /// The places of a session's requests, in their order.
    pub(crate) fn places_of(&self, session: SessionId) -> impl Iterator<Item = i64> {
        let places = self.places.range((session, i64::MIN)..=(session, i64::MAX));
        places.map(|(_, place)| *place)
    }

    /// The place of the first request of each session.
    pub(crate) fn first_places(&self) -> impl Iterator<Item = i64> {
        let mut last = None;
        std::iter::from_fn(move || {
            let behind = last.map_or(Bound::Unbounded, |last| Bound::Excluded((last, i64::MAX)));
            let (session, place) = *self.places.range((behind, Bound::Unbounded)).next()?;
            last = Some(session);
            Some(place)
        })
    }

    /// Bytes kept for a session's requests.
    pub(crate) fn kept_bytes(&self, session: SessionId) -> usize {
        self.kept_bytes.get(&session).copied().unwrap_or(0)
    }

    /// Bytes kept for all sessions' requests.
    pub(crate) fn all_kept_bytes(&self) -> usize {
        self.kept_bytes.values().sum()
    }

    /// All places are left.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

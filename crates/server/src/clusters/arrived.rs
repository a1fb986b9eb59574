//! What other members have asked for, as the leader that this one is, and has not run yet.

use std::collections::BTreeMap;

use weir_data::Uuid;

use crate::clusters::message::Request;

/// Requests of other members in the order in which they have come.
#[derive(Debug, Default)]
pub(crate) struct Arrived {
    by_place: BTreeMap<u64, (Uuid, Request)>,
    /// Where the request of a member for an entry of this id stands: after a connection has ended, or a leader has
    /// lost its lead, all of them are asked for again.
    places: BTreeMap<(Uuid, Uuid), u64>,
    next: u64,
}

impl Arrived {
    /// A member asks for something. What it has asked for before on a connection that has ended keeps its place, and is
    /// answered as its last attempt.
    pub(crate) fn push(&mut self, from: Uuid, request: Request) {
        let place = *self.places.entry((from, request.eid)).or_insert(self.next);
        if place == self.next {
            self.next += 1;
            self.by_place.insert(place, (from, request));
            return;
        }
        let (_, before) = self.by_place.get_mut(&place).expect("what has a place is there");
        if before.attempt < request.attempt {
            *before = request;
        }
    }

    /// The requests, with their places.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, Uuid, &Request)> {
        self.by_place.iter().map(|(place, (from, request))| (*place, *from, request))
    }

    /// The one at this place begins to run.
    pub(crate) fn take(&mut self, place: u64) -> (Uuid, Request) {
        let (from, request) = self.by_place.remove(&place).expect("it is there");
        self.places.remove(&(from, request.eid));
        (from, request)
    }

    /// None of them will run.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = (Uuid, Request)> + use<> {
        self.places.clear();
        std::mem::take(&mut self.by_place).into_values()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_place.is_empty()
    }
}

#[cfg(test)]
impl FromIterator<(Uuid, Request)> for Arrived {
    fn from_iter<T: IntoIterator<Item = (Uuid, Request)>>(requests: T) -> Self {
        let mut arrived = Self::default();
        requests.into_iter().for_each(|(from, request)| arrived.push(from, request));
        arrived
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::Identity;

    fn request(eid: u128, attempt: u64) -> Request {
        Request {
            eid: Uuid::from_u128(eid),
            since: 0,
            attempt,
            term: 1,
            elapsed_ms: 0,
            identity: Identity::default(),
            locks: vec![],
            once: None,
            text: vec![],
        }
    }

    fn pushed(requests: &[(u128, u128, u64)]) -> Arrived {
        let of = |&(from, eid, attempt)| (Uuid::from_u128(from), request(eid, attempt));
        requests.iter().map(of).collect()
    }

    fn order(arrived: &Arrived) -> Vec<(u64, u128, u64)> {
        arrived.iter().map(|(place, _, it)| (place, it.eid.to_u128(), it.attempt)).collect()
    }

    #[test]
    fn what_is_asked_again_keeps_its_place() {
        let mut arrived = pushed(&[(1, 1, 0), (1, 2, 0), (2, 1, 0), (1, 1, 2), (1, 1, 1)]);
        assert_eq!(order(&arrived), [(0, 1, 2), (1, 2, 0), (2, 1, 0)]);
        arrived.take(0);
        arrived.push(Uuid::from_u128(1), request(1, 3));
        assert_eq!(order(&arrived), [(1, 2, 0), (2, 1, 0), (3, 1, 3)], "it has run meanwhile");
    }

    #[test]
    fn a_first_attempt_that_comes_late_is_none() {
        assert_eq!(order(&pushed(&[(1, 1, 1), (1, 1, 0)])), [(0, 1, 1)]);
    }

    #[test]
    fn none_is_left_of_all() {
        let mut arrived = pushed(&[(1, 1, 0), (1, 2, 0)]);
        assert_eq!(arrived.take_all().count(), 2);
        arrived.push(Uuid::from_u128(1), request(1, 1));
        assert_eq!(order(&arrived), [(2, 1, 1)]);
    }
}

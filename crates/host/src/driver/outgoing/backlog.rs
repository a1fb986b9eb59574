//! How much all clients together may leave untaken, and who goes when it is more.
//!
//! Who does not read is answered no more (the core is told), and updates for him merge. What is
//! left is one answer a client, and what he had asked for before: with thousands of clients that do
//! not read, that is a lot.

use std::cmp::Reverse;

use weir_server::event::SessionId;

use crate::driver::outgoing::outbox::Outbox;

/// From one look at all clients to the next, in microseconds.
const CHECK_US: u64 = 200_000;

/// What may wait for all clients together.
pub(crate) struct Backlog {
    bytes_max: usize,
    next_us: u64,
}

impl Backlog {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, next_us: 0 }
    }

    /// Whether it is time to look at all clients.
    pub(crate) fn is_due(&mut self, now_us: u64) -> bool {
        let is_due = now_us >= self.next_us;
        if is_due {
            self.next_us = now_us + CHECK_US;
        }
        is_due
    }

    /// The clients with most that must go so that the others' is not too much, and what waits for
    /// them.
    pub(crate) fn who_goes<'o>(
        &self,
        outboxes: impl Iterator<Item = (SessionId, &'o Outbox)> + Clone,
    ) -> Vec<(SessionId, usize)> {
        // Buffers that several have count several times here, which costs less to find out.
        if outboxes.clone().map(|(_, outbox)| outbox.bytes()).sum::<usize>() <= self.bytes_max {
            return Vec::new();
        }
        let mut own: Vec<(SessionId, usize)> =
            outboxes.map(|(id, outbox)| (id, outbox.own_bytes())).collect();
        own.sort_by_key(|(id, bytes)| (Reverse(*bytes), *id));
        let mut total: usize = own.iter().map(|(_, bytes)| bytes).sum();
        let is_too_much = |(_, bytes): &(SessionId, usize)| {
            let is_too_much = total > self.bytes_max;
            total -= bytes;
            is_too_much
        };
        own.into_iter().take_while(is_too_much).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn outbox(lengths: &[usize]) -> Outbox {
        let mut outbox = Outbox::default();
        lengths.iter().for_each(|length| outbox.push(&Arc::new(vec![0; *length])));
        outbox
    }

    #[test]
    fn those_with_most_go_until_the_rest_is_little_enough() {
        let outboxes = [outbox(&[100]), outbox(&[300, 300]), outbox(&[250]), outbox(&[])];
        let numbered = || (1..).map(SessionId).zip(&outboxes);
        assert_eq!(Backlog::new(950).who_goes(numbered()), []);
        assert_eq!(Backlog::new(949).who_goes(numbered()), [(SessionId(2), 600)]);
        let two = [(SessionId(2), 600), (SessionId(3), 250)];
        assert_eq!(Backlog::new(349).who_goes(numbered()), two);
    }

    #[test]
    fn what_many_share_counts_once() {
        let shared = Arc::new(vec![0; 1000]);
        let outboxes: Vec<Outbox> = (0..9)
            .map(|_| {
                let mut outbox = Outbox::default();
                outbox.push(&shared);
                outbox
            })
            .collect();
        drop(shared);
        assert_eq!(Backlog::new(1000).who_goes((1..).map(SessionId).zip(&outboxes)), []);
    }
}

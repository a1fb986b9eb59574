//! What a source has said and nobody has looked at, because tables or a helper are busy: the same for
//! relays and for backups.

use std::collections::VecDeque;

use weir_upstream::session::Session;
use weir_wire::Message;

/// Most bytes of a source's messages that wait, besides the longest one: all rows come in one, however many there
/// are. Beyond it the connection ends, and the rows are asked for again.
const MAIL_BYTES_MAX: usize = 256 << 20;

/// Most bytes of these messages that are taken in a round, or one message: the rest is for the next rounds,
/// so that clients have their turns in between.
const STEP_BYTES_MAX: usize = 256 << 10;

/// Probes and answers to them are not longer, in bytes; a longer one waits behind what came before.
const PROBE_BYTES_MAX: usize = 4096;

/// Messages of one connection, in order.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    messages: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Bytes of the longest one since none waited.
    longest: usize,
    /// Bytes of those that were taken in this round.
    taken: usize,
}

impl Mail {
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub(crate) fn push(&mut self, message: Vec<u8>) {
        self.bytes += message.len();
        self.longest = self.longest.max(message.len());
        self.messages.push_back(message);
    }

    /// The message that is next, unless it is for another round.
    pub(crate) fn pop(&mut self) -> Option<Vec<u8>> {
        if self.taken >= STEP_BYTES_MAX {
            return None;
        }
        let message = self.messages.pop_front()?;
        self.bytes -= message.len();
        self.taken += message.len();
        if self.messages.is_empty() {
            self.longest = 0;
        }
        Some(message)
    }

    /// As much may be taken again.
    pub(crate) fn begin_round(&mut self) {
        self.taken = 0;
    }

    /// Whether more waits than may.
    pub(crate) fn is_overfull(&self) -> bool {
        self.bytes > MAIL_BYTES_MAX.saturating_add(self.longest)
    }

    /// The connection has ended.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Whether a message is about nothing but whether somebody is there: it need not wait. It is looked at
/// only if it is as short as such messages are.
pub(crate) fn is_of_probe(message: &[u8]) -> bool {
    if message.len() > PROBE_BYTES_MAX {
        return false;
    }
    match weir_json::validate(message).ok().and_then(|text| Message::parse(text).ok()) {
        Some(Message::Request { method, .. }) => method == "echo",
        Some(Message::Reply { id, .. } | Message::Error { id, .. }) => {
            Session::is_probe(id.as_bytes())
        }
        Some(Message::Notification { .. }) | None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_message_may_be_of_any_length_and_so_much_may_wait_besides() {
        let mut mail = Mail::default();
        mail.push(vec![0; MAIL_BYTES_MAX + 1]);
        assert!(!mail.is_overfull());
        mail.push(vec![0; MAIL_BYTES_MAX]);
        assert!(!mail.is_overfull());
        mail.push(vec![0; 1]);
        assert!(mail.is_overfull());
        for _ in 0..3 {
            mail.begin_round();
            mail.pop().expect("it waits");
        }
        for _ in 0..MAIL_BYTES_MAX / STEP_BYTES_MAX + 1 {
            mail.push(vec![0; STEP_BYTES_MAX]);
        }
        assert!(!mail.is_overfull(), "one of them counts as the longest");
        mail.push(vec![0]);
        assert!(mail.is_overfull(), "the long one is gone");
    }
}

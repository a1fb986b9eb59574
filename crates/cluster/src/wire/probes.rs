//! Probes: the reference's server asks now and then whether anybody is there, and ends connections on
//! which nobody answers.

use std::collections::VecDeque;

use weir_json::{Framer, validate};
use weir_wire::Message;

use super::Malformed;

/// Longest probe, in bytes: a longer message is none.
const PROBE_BYTES_MAX: usize = 1 << 10;

/// The answer to a message if that is a probe.
pub(super) fn answer(message: &Message<'_>) -> Option<Vec<u8>> {
    match message {
        Message::Request { method: "echo", params, id } => {
            Some(weir_wire::reply_result(id.as_bytes(), params.as_bytes()))
        }
        _ => None,
    }
}

/// Finds the probes among other messages, of which nothing is kept.
#[derive(Debug, Default)]
pub(super) struct Probes {
    framer: Framer,
    /// What has come of a message, as far as it may be a probe.
    message: Vec<u8>,
    answers: VecDeque<Vec<u8>>,
}

impl Probes {
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> Result<(), Malformed> {
        while !bytes.is_empty() {
            let end = self.framer.feed(bytes).map_err(|error| Malformed(error.to_string()))?;
            let (piece, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            // A byte more than a probe has tells that it is none.
            let room = (PROBE_BYTES_MAX + 1).saturating_sub(self.message.len());
            self.message.extend_from_slice(&piece[..piece.len().min(room)]);
            if end.is_some() {
                let message = std::mem::take(&mut self.message);
                self.answers.extend(answer_to(&message));
            }
            bytes = rest;
        }
        Ok(())
    }

    /// The answer to the next probe.
    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        self.answers.pop_front()
    }
}

/// The answer to a text if that is a probe.
fn answer_to(text: &[u8]) -> Option<Vec<u8>> {
    let text = validate(text).ok().filter(|_| text.len() <= PROBE_BYTES_MAX)?;
    answer(&Message::parse(text).ok()?)
}

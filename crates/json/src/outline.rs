//! What is left of a message that is too long to be kept: its own members, without what is nested
//! in them. That is enough to answer it.

use crate::framer::{Framer, Nesting};

/// Most bytes that are kept of a message.
const OUTLINE_BYTES_MAX: usize = 64 << 10;

/// A message that passes by; each array or object that it holds is kept as an empty one.
#[derive(Debug, Default)]
pub struct Outline {
    kept: Vec<u8>,
    nesting: Nesting,
    /// Whether it is unknown which of the bytes belong to the message's own level.
    is_lost: bool,
}

impl Outline {
    /// What is known of a message whose beginning is `head`, and in which `framer` has come to
    /// some place behind that.
    pub fn of(head: &[u8], framer: &Framer) -> Self {
        let mut outline = Self::default();
        outline.feed(head.get(..OUTLINE_BYTES_MAX).unwrap_or(head));
        if head.len() > OUTLINE_BYTES_MAX {
            // Two members so long that the cut is in one, and the place in another, are not met.
            let is_inside = |nesting: &Nesting| nesting.depth > 1;
            outline.is_lost |= !is_inside(&outline.nesting) || !is_inside(&framer.nesting());
            outline.nesting = framer.nesting();
        }
        outline
    }

    /// Takes the bytes of the message that come next.
    pub fn feed(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if self.nesting.step(byte) {
                self.kept.push(byte);
            }
            if self.kept.len() > OUTLINE_BYTES_MAX {
                self.is_lost = true;
                self.kept.clear();
            }
        }
    }

    /// Ends the message: its outline, if all that belongs to its own level could be kept.
    pub fn finish(self) -> Option<Vec<u8>> {
        (!self.is_lost).then_some(self.kept)
    }
}

impl Nesting {
    /// Goes past one byte; whether it belongs to the message's own level.
    fn step(&mut self, byte: u8) -> bool {
        let is_own = self.depth <= 1;
        if self.in_string {
            let is_escaped = std::mem::take(&mut self.is_escaped);
            self.is_escaped = !is_escaped && byte == b'\\';
            self.in_string = is_escaped || byte != b'"';
            return is_own;
        }
        match byte {
            b'"' => self.in_string = true,
            b'[' | b'{' => self.depth += 1,
            b']' | b'}' => {
                self.depth = self.depth.saturating_sub(1);
                return self.depth <= 1;
            }
            _ => {}
        }
        is_own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The outline of a message that is refused after `at` bytes.
    fn outline(message: &str, at: usize) -> Option<String> {
        let (head, rest) = message.as_bytes().split_at(at);
        let mut framer = Framer::new();
        assert_eq!(framer.feed(head).unwrap(), None);
        let mut outline = Outline::of(head, &framer);
        outline.feed(rest);
        outline.finish().map(|kept| String::from_utf8(kept).unwrap())
    }

    #[test]
    fn members_of_the_message_stay_wherever_it_is_cut() {
        let long = "x\\\"]\\\\".repeat(40_000);
        for (message, expected) in [
            (
                format!(r#"{{"id":[1,"}}"],"method":"echo","params":[{{"a":"{long}"}},2]}}"#),
                r#"{"id":[],"method":"echo","params":[]}"#,
            ),
            (
                format!(r#"{{"params":["{long}"], "method":"transact" ,"id":"]\""}}"#),
                r#"{"params":[], "method":"transact" ,"id":"]\""}"#,
            ),
        ] {
            for at in [70_000, 70_001, 70_002, 70_003, 70_004, 70_005, 200_000] {
                assert_eq!(outline(&message, at).as_deref(), Some(expected), "at {at}");
            }
        }
        assert_eq!(outline(r#"{"id":1,"params":[]}"#, 5).unwrap(), r#"{"id":1,"params":[]}"#);
    }

    #[test]
    fn what_cannot_be_told_is_not_guessed() {
        let long = "x".repeat(100_000);
        assert_eq!(outline(&format!(r#"{{"id":"{long}"}}"#), 80_000), None);
        assert_eq!(outline(&format!(r#"{{"id":"{long}"}}"#), 10), None);
    }
}

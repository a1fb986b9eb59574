//! Bytes of one client on their way to becoming messages.

use std::mem;

use weir_json::{Framer, Outline};

/// Most one read takes while a message is small.
pub(crate) const READ_BYTES: usize = 64 << 10;

/// Most one read takes while a big message arrives.
const READ_BYTES_MAX: usize = 1 << 20;

/// From this length on, in bytes, a message gets room for three times as much: that costs nothing
/// before it is used.
const MOVED_BYTES_MIN: usize = 16 << 20;

/// Cuts a byte stream into JSON messages. Every byte is scanned once and moved at most twice.
pub(crate) struct Inbox {
    /// Messages not yet taken and the beginning of the next one.
    bytes: Vec<u8>,
    /// Where the message begins that is looked for.
    start: usize,
    /// How far the framer has come.
    scanned: usize,
    framer: Framer,
    /// Longest message, in bytes.
    message_bytes_max: usize,
    /// What is kept of a message that passes by.
    outline: Option<Outline>,
}

impl Default for Inbox {
    /// An inbox for messages of any length: somebody else sees to it that they do not become too
    /// long.
    fn default() -> Self {
        Self::with_limit(usize::MAX)
    }
}

impl Inbox {
    /// An inbox for messages of at most so many bytes.
    pub(crate) fn with_limit(message_bytes_max: usize) -> Self {
        let (bytes, framer) = (Vec::new(), Framer::default());
        Self { bytes, start: 0, scanned: 0, framer, message_bytes_max, outline: None }
    }

    /// Bytes held that are no message yet.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// True when another call of [`Inbox::next_message`] may find something without a read.
    pub(crate) fn has_unscanned(&self) -> bool {
        self.scanned < self.bytes.len()
    }

    /// Appends what was read elsewhere.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.drop_taken();
        self.bytes.extend_from_slice(bytes);
    }

    /// The buffer, for one who appends any number of bytes to it.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        self.drop_taken();
        &mut self.bytes
    }

    /// The buffer with room for a read that appends to it.
    pub(crate) fn spare(&mut self) -> &mut Vec<u8> {
        self.drop_taken();
        let (length, room) = (self.bytes.len(), self.bytes.capacity() - self.bytes.len());
        let wanted = length.clamp(READ_BYTES, READ_BYTES_MAX);
        // Where much would have to be moved, it is moved seldom, if the system lets us.
        let is_made = room >= wanted
            || length >= MOVED_BYTES_MIN && self.bytes.try_reserve_exact(3 * length).is_ok();
        if !is_made {
            self.bytes.reserve(wanted);
        }
        &mut self.bytes
    }

    /// Lets the message go that has begun to come: nothing of it is kept but its outline.
    pub(crate) fn pass_over(&mut self) {
        self.drop_taken();
        let rest = self.bytes.split_off(self.scanned);
        self.outline = Some(Outline::of(&self.bytes, &self.framer));
        (self.bytes, self.scanned) = (rest, 0);
    }

    /// Whether the next message is an outline.
    pub(crate) fn passes_over(&self) -> bool {
        self.outline.is_some()
    }

    /// The next complete message, or its outline.
    ///
    /// # Errors
    /// The stream is no JSON, or a message is too long: the text for the log.
    pub(crate) fn next_message(&mut self) -> Result<Option<Vec<u8>>, String> {
        let fed = self.framer.feed(&self.bytes[self.scanned..]).map_err(|e| e.to_string())?;
        let end = match fed {
            Some(consumed) => self.scanned + consumed,
            None => self.bytes.len(),
        };
        if let Some(outline) = &mut self.outline {
            outline.feed(&self.bytes[..end]);
            self.bytes.drain(..end);
            self.scanned = 0;
            let ended = fed.and_then(|_| self.outline.take());
            let outline = ended.map(|outline| outline.finish().ok_or("message is too long"));
            return Ok(outline.transpose()?);
        }
        if end - self.start > self.message_bytes_max {
            return Err(format!("message exceeds {} bytes", self.message_bytes_max));
        }
        if fed.is_some() {
            return Ok(Some(self.cut(end)));
        }
        self.scanned = end;
        if self.framer.is_idle() {
            self.clear();
        }
        Ok(None)
    }

    /// Takes the message that ends at `end`; what follows is moved only if it is the smaller part.
    fn cut(&mut self, end: usize) -> Vec<u8> {
        let after = self.bytes.len() - end;
        let message = if self.start == 0 && after < end {
            let tail = if after == 0 { Vec::new() } else { self.bytes.split_off(end) };
            self.scanned = 0;
            mem::replace(&mut self.bytes, tail)
        } else {
            let message = self.bytes[self.start..end].to_vec();
            (self.start, self.scanned) = (end, end);
            message
        };
        // White space between messages must not look like the beginning of one.
        if self.bytes[self.scanned..].iter().all(u8::is_ascii_whitespace) {
            self.clear();
        }
        message
    }

    fn clear(&mut self) {
        self.bytes = Vec::new();
        (self.start, self.scanned) = (0, 0);
    }

    /// Forgets the messages already taken.
    fn drop_taken(&mut self) {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.scanned -= self.start;
            self.start = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All messages that are complete.
    fn drain(inbox: &mut Inbox) -> Vec<String> {
        let mut messages = Vec::new();
        while let Some(message) = inbox.next_message().unwrap() {
            messages.push(String::from_utf8(message).unwrap());
        }
        messages
    }

    #[test]
    fn messages_come_out_however_the_stream_is_cut() {
        let stream = br#"{"a":"}"}[1,2] {"b":[]}
            {"c":"\"{"}[]"#;
        let expected = [r#"{"a":"}"}"#, "[1,2]", r#"{"b":[]}"#, r#"{"c":"\"{"}"#, "[]"];
        for piece in 1..=stream.len() {
            let mut inbox = Inbox::default();
            let mut found = Vec::new();
            for bytes in stream.chunks(piece) {
                inbox.push(bytes);
                found.extend(drain(&mut inbox).iter().map(|m| m.trim().to_owned()));
            }
            assert_eq!(found, expected, "pieces of {piece}");
            assert_eq!(inbox.held_bytes(), 0);
        }
    }

    #[test]
    fn a_big_message_is_read_in_place_and_leaves_the_next_one_behind() {
        let big = format!("[\"{}\"]", "x".repeat(3 * READ_BYTES));
        let stream = format!("{big}[1][2");
        let mut inbox = Inbox::default();
        let mut rest = stream.as_bytes();
        let mut found = Vec::new();
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(10_000));
            if inbox.held_bytes() >= READ_BYTES {
                inbox.spare().extend_from_slice(now);
            } else {
                inbox.push(now);
            }
            found.extend(drain(&mut inbox));
            rest = later;
        }
        assert_eq!(found, [big.as_str(), "[1]"]);
        assert_eq!(inbox.held_bytes(), 2);
        inbox.push(b"]");
        assert_eq!(drain(&mut inbox), ["[2]"]);
    }

    #[test]
    fn white_space_is_not_kept() {
        let mut inbox = Inbox::default();
        inbox.push(b"  \n ");
        assert_eq!(drain(&mut inbox), [] as [&str; 0]);
        assert_eq!(inbox.held_bytes(), 0);
        inbox.push(b"{}\n");
        assert_eq!(inbox.next_message().unwrap().unwrap(), b"{}");
        assert!(!inbox.has_unscanned());
    }

    #[test]
    fn a_message_that_is_let_go_leaves_its_outline_and_what_comes_behind_it() {
        let message = r#"{"id":7,"method":"echo","params":["]",[[]],{"a":[1]}]}"#;
        let stream = format!("[0] {message} [1]");
        for at in 6..stream.len() - 5 {
            let (head, rest) = stream.as_bytes().split_at(at);
            let mut inbox = Inbox::default();
            inbox.push(head);
            assert_eq!(drain(&mut inbox), ["[0]"]);
            inbox.pass_over();
            assert_eq!(inbox.held_bytes(), 0);
            let mut found = Vec::new();
            for piece in rest.chunks(3) {
                inbox.push(piece);
                found.extend(drain(&mut inbox));
            }
            let outline = r#" {"id":7,"method":"echo","params":[]}"#;
            assert_eq!(
                found.iter().map(|text| text.trim()).collect::<Vec<_>>(),
                [outline.trim(), "[1]"]
            );
            assert!(!inbox.passes_over());
        }
    }

    #[test]
    fn what_is_no_json_is_an_error() {
        let mut inbox = Inbox::default();
        inbox.push(b"[1]hello");
        assert_eq!(inbox.next_message().unwrap().unwrap(), b"[1]");
        assert!(inbox.next_message().is_err());
    }
}

//! A monitoring client reduced to what a load test needs: drain the socket, count the rows.
//!
//! A real replica for each of a hundred monitors would cost more than the server under test. So
//! the stream is only searched for `"UUID":{"insert"` (or `delete`), and the uuids found are
//! counted and summed; together with the sum that the replies give this finds every lost,
//! repeated or foreign row. One monitor keeps its bytes for a complete replica.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use memchr::memmem::Finder;

use crate::Error;
use crate::client::Stream;
use crate::error::fail;
use crate::frame::Framer;

/// Length of a UUID as text.
pub(crate) const UUID_LEN: usize = 36;
/// Digits of an element's number, see [`Marker::Element`].
pub(crate) const ELEMENT_DIGITS: usize = 7;
/// Bytes carried from one read to the next: the longest marker with its name, less one.
const TAIL: usize = UUID_LEN + 10;
/// What the method of a notification of version 3 looks like.
const NOTIFICATION: &[u8] = br#""update3""#;
/// How often a monitor over TCP says something, so that the server need not probe it (it does
/// after 5 s of silence).
const KEEPALIVE: Duration = Duration::from_secs(2);

/// What a phase does, as monitors of version 2 and 3 report it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marker {
    /// Rows are inserted: `"UUID":{"insert"`.
    Insert,
    /// Rows are deleted: `"UUID":{"delete"`.
    Delete,
    /// Rows are changed: `"UUID":{"modify"`.
    Modify,
    /// An element `"element-NNNNNNN"` joins or leaves a set.
    Element,
}

/// What to look for in a stream.
pub(crate) struct Search {
    finder: Finder<'static>,
    pattern: usize,
    /// Bytes of the name before the pattern.
    before: usize,
    /// Bytes of the name after it.
    after: usize,
}

impl Marker {
    pub(crate) fn search(self) -> Search {
        let (pattern, before, after): (&[u8], _, _) = match self {
            Self::Insert => (br#"":{"insert""#, UUID_LEN, 0),
            Self::Delete => (br#"":{"delete""#, UUID_LEN, 0),
            Self::Modify => (br#"":{"modify""#, UUID_LEN, 0),
            Self::Element => (br#""element-"#, 0, ELEMENT_DIGITS),
        };
        Search { finder: Finder::new(pattern), pattern: pattern.len(), before, after }
    }
}

impl Search {
    /// Adds what is found, except what lies within the first `old` bytes (it was found before) or
    /// has not come completely (it will be).
    fn add(&self, bytes: &[u8], old: usize, seen: &mut Seen) {
        for at in self.finder.find_iter(bytes) {
            let end = at + self.pattern;
            if end + self.after <= old {
                continue;
            }
            if let (Some(start), Some(after)) =
                (at.checked_sub(self.before), bytes.get(end..end + self.after))
            {
                let name = if self.before > 0 { &bytes[start..at] } else { after };
                seen.add(uuid_hash(name));
            }
        }
    }
}

/// A number that stands for a uuid, or another name, in sums.
pub(crate) fn uuid_hash(text: &[u8]) -> u64 {
    text.chunks(8).fold(0, |hash: u64, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    })
}

/// The first uuid in a reply.
pub(crate) fn uuid_in(reply: &[u8]) -> Result<&str, Error> {
    const BEFORE: &[u8] = br#"["uuid",""#;
    memchr::memmem::find(reply, BEFORE)
        .and_then(|at| reply.get(at + BEFORE.len()..at + BEFORE.len() + UUID_LEN))
        .and_then(|bytes| std::str::from_utf8(bytes).ok())
        .ok_or_else(|| Error::Check("a reply to an insertion has no uuid".into()))
}

/// How many rows were seen, and the sum of their uuids' hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) rows: u64,
    pub(crate) sum: u64,
}

impl Seen {
    pub(crate) fn add(&mut self, uuid_hash: u64) {
        self.rows += 1;
        self.sum = self.sum.wrapping_add(uuid_hash);
    }
}

/// A monitor's connection, and what was seen on it.
pub(crate) struct Watch {
    stream: Stream,
    tail: Vec<u8>,
    spoke: Instant,
    /// Rows seen in this phase.
    pub(crate) seen: Seen,
    /// Bytes received in this phase.
    pub(crate) bytes: u64,
    /// Notifications received in this phase, where they are counted.
    pub(crate) notifications: Option<u64>,
    /// Everything received in this phase, where it is kept.
    pub(crate) kept: Option<Vec<u8>>,
    framer: Framer,
    /// Whether the kept bytes end within a message.
    partial: bool,
}

/// Over TCP and TLS, has everybody say something from time to time.
pub(crate) fn keep_alive(watches: &mut [Watch]) -> Result<(), Error> {
    let now = Instant::now();
    if watches.first().is_some_and(Watch::is_probed) {
        watches.iter_mut().try_for_each(|watch| watch.keep_alive(now))?;
    }
    Ok(())
}

/// The buffer that all monitors share.
pub(crate) struct ReadBuffer(Vec<u8>);

impl ReadBuffer {
    pub(crate) fn new() -> Self {
        Self(vec![0; TAIL + 256 * 1024])
    }
}

impl Watch {
    pub(crate) fn new(stream: Stream, keep: bool) -> Self {
        Self {
            stream,
            tail: Vec::with_capacity(TAIL),
            spoke: Instant::now(),
            seen: Seen::default(),
            bytes: 0,
            notifications: keep.then_some(0),
            kept: keep.then(Vec::new),
            framer: Framer::default(),
            partial: false,
        }
    }

    pub(crate) fn stream(&mut self) -> &mut Stream {
        &mut self.stream
    }

    /// Whether the monitor has to say something from time to time.
    fn is_probed(&self) -> bool {
        self.stream.is_probed()
    }

    /// Counts notifications without keeping what comes.
    pub(crate) fn count_only(mut self) -> Self {
        (self.notifications, self.kept) = (Some(0), None);
        self
    }

    /// Whether everything kept is whole messages (true where nothing is kept).
    pub(crate) fn whole(&self) -> bool {
        !self.partial
    }

    /// Forgets what was seen in the last phase.
    pub(crate) fn reset(&mut self) {
        self.seen = Seen::default();
        self.bytes = 0;
        if let Some(notifications) = &mut self.notifications {
            *notifications = 0;
        }
        if let Some(kept) = &mut self.kept {
            kept.clear();
        }
    }

    /// Reads once, and what the socket no longer shows, and counts.
    pub(crate) fn drain(&mut self, buffer: &mut ReadBuffer, search: &Search) -> Result<(), Error> {
        self.read(buffer, search)?;
        while self.stream.has_plain() {
            self.read(buffer, search)?;
        }
        Ok(())
    }

    fn read(&mut self, buffer: &mut ReadBuffer, search: &Search) -> Result<(), Error> {
        let buffer = &mut buffer.0;
        let n = match self.stream.read(&mut buffer[TAIL..]) {
            Ok(0) => fail!("the server closed a monitor's connection"),
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(e) => return Err(Error::Io("reading from a monitor".into(), e)),
        };
        let start = TAIL - self.tail.len();
        buffer[start..TAIL].copy_from_slice(&self.tail);
        if let Some(kept) = &mut self.kept {
            let mut rest = &buffer[TAIL..TAIL + n];
            kept.extend_from_slice(rest);
            while let Some(end) = self.framer.scan(rest) {
                rest = &rest[end..];
                self.partial = false;
            }
            self.partial |= !rest.is_empty();
        }
        self.bytes += n as u64;
        self.count(&buffer[start..TAIL + n], search);
        Ok(())
    }

    /// Counts what ends after the carried tail, then carries the new tail.
    fn count(&mut self, bytes: &[u8], search: &Search) {
        search.add(bytes, self.tail.len(), &mut self.seen);
        if let Some(notifications) = &mut self.notifications {
            let starts = memchr::memmem::find_iter(bytes, NOTIFICATION);
            let old = self.tail.len();
            *notifications += starts.filter(|at| at + NOTIFICATION.len() > old).count() as u64;
        }
        let keep = bytes.len().saturating_sub(TAIL);
        self.tail.clear();
        self.tail.extend_from_slice(&bytes[keep..]);
    }

    fn keep_alive(&mut self, now: Instant) -> Result<(), Error> {
        if self.is_probed() && now.duration_since(self.spoke) > KEEPALIVE {
            self.spoke = now;
            self.stream.write_all(br#"{"id":"alive","method":"echo","params":[]}"#)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    const A: &str = "01234567-89ab-4cde-8f01-23456789abcd";
    const B: &str = "fedcba98-7654-4210-8fed-cba987654321";

    #[test]
    fn rows_are_found_however_the_stream_is_cut() {
        let text = format!(
            r#"{{"method":"update3","params":[["m","D"],"0",{{"T":{{"{A}":{{"insert":{{"a":1}}}},"{B}":{{"insert":{{}}}},"{B}":{{"delete":null}}}}}}]}}"#
        );
        let mut expected = Seen::default();
        expected.add(uuid_hash(A.as_bytes()));
        expected.add(uuid_hash(B.as_bytes()));
        for cut in 0..=text.len() {
            let (stream, mut server) = UnixStream::pair().unwrap();
            stream.set_nonblocking(true).unwrap();
            let mut watch = Watch::new(Stream::Unix(stream), true);
            let mut buffer = ReadBuffer::new();
            let search = Marker::Insert.search();
            for part in [&text[..cut], &text[cut..]] {
                server.write_all(part.as_bytes()).unwrap();
                watch.drain(&mut buffer, &search).unwrap();
            }
            assert_eq!(watch.seen, expected, "cut at {cut}");
            assert_eq!(watch.notifications, Some(1), "cut at {cut}");
            assert_eq!(watch.kept.as_deref(), Some(text.as_bytes()));
            assert_eq!(watch.bytes, text.len() as u64);
            assert!(watch.whole());
            server.write_all(&text.as_bytes()[..cut]).unwrap();
            watch.drain(&mut buffer, &search).unwrap();
            assert_eq!(watch.whole(), cut == 0 || cut == text.len());
        }
    }

    #[test]
    fn elements_are_found_however_the_stream_is_cut() {
        let text = br#"{"e":["set",["element-0000001","resident-0000009","element-0000002"]]}"#;
        let mut expected = Seen::default();
        expected.add(uuid_hash(b"0000001"));
        expected.add(uuid_hash(b"0000002"));
        for cut in 0..=text.len() {
            let (stream, server) = UnixStream::pair().unwrap();
            let mut watch = Watch::new(Stream::Unix(stream), false);
            let mut buffer = ReadBuffer::new();
            for part in [&text[..cut], &text[cut..]].into_iter().filter(|part| !part.is_empty()) {
                (&server).write_all(part).unwrap();
                watch.drain(&mut buffer, &Marker::Element.search()).unwrap();
            }
            assert_eq!(watch.seen, expected, "cut at {cut}");
        }
    }

    #[test]
    fn sums_tell_rows_apart() {
        assert_ne!(uuid_hash(A.as_bytes()), uuid_hash(B.as_bytes()));
        let last_differs = A.replace("abcd", "abce");
        assert_ne!(uuid_hash(A.as_bytes()), uuid_hash(last_differs.as_bytes()));
    }

    #[test]
    fn a_closed_connection_is_a_failure() {
        let (stream, server) = UnixStream::pair().unwrap();
        drop(server);
        let mut watch = Watch::new(Stream::Unix(stream), false);
        assert!(watch.drain(&mut ReadBuffer::new(), &Marker::Delete.search()).is_err());
    }
}

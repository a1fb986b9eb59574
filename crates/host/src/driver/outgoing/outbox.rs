//! Bytes on their way to one client: a queue of buffers that many clients share.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;

/// Most buffers handed to one writev(2).
const SLICES_MAX: usize = 64;

/// Most bytes written to one client before the others have their turn.
const FLUSH_BYTES_MAX: usize = 1 << 20;

/// Unsent bytes of one client besides its longest message; above it the client is disconnected.
pub(crate) const BACKLOG_BYTES_MAX: usize = 256 << 20;

/// A buffer shared by everybody it is sent to.
pub(crate) type Bytes = Arc<Vec<u8>>;

/// How far a flush came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// The queue is empty.
    All,
    /// The client takes no more at the moment, or it is the others' turn.
    Part,
}

/// Bytes not yet written.
#[derive(Default)]
pub(crate) struct Outbox {
    buffers: VecDeque<Bytes>,
    /// Bytes of the first buffer that are written already.
    written: usize,
    /// Bytes of all buffers.
    queued: usize,
    /// Bytes that were ever written.
    written_ever: u64,
    /// Bytes of the longest buffer since the queue was empty: one long answer is nobody's fault.
    longest: usize,
}

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }

    /// Bytes that are not written yet.
    pub(crate) fn bytes(&self) -> usize {
        self.queued - self.written
    }

    /// Bytes that were ever written.
    pub(crate) fn written_ever(&self) -> u64 {
        self.written_ever
    }

    /// Whether more waits than may.
    pub(crate) fn is_overfull(&self) -> bool {
        self.is_beyond(BACKLOG_BYTES_MAX, 1)
    }

    /// Whether more waits than so many bytes and so many messages as long as the longest one.
    pub(crate) fn is_beyond(&self, bytes_max: usize, longest_ones: usize) -> bool {
        let besides = self.longest.saturating_mul(longest_ones);
        self.bytes() > bytes_max.saturating_add(besides)
    }

    /// Bytes that wait; of those that others have too, a part.
    pub(crate) fn own_bytes(&self) -> usize {
        self.buffers.iter().map(|buffer| buffer.len() / Arc::strong_count(buffer)).sum()
    }

    pub(crate) fn push(&mut self, bytes: &Bytes) {
        if !bytes.is_empty() {
            self.queued += bytes.len();
            self.longest = self.longest.max(bytes.len());
            self.buffers.push_back(Arc::clone(bytes));
        }
    }

    /// Writes as much as `write` (one system call) takes.
    ///
    /// # Errors
    /// What `write` says, except that it would block.
    pub(crate) fn flush(
        &mut self,
        mut write: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<Flushed> {
        let mut total = 0;
        while !self.is_empty() {
            if total >= FLUSH_BYTES_MAX {
                return Ok(Flushed::Part);
            }
            // Most often there are a head and a body, or a reply.
            let (wanted, result) = match self.buffers.len() {
                ..=2 => self.write_once::<2>(&mut write),
                _ => self.write_once::<SLICES_MAX>(&mut write),
            };
            match result {
                Ok(written) => {
                    self.advance(written);
                    total += written;
                    if written < wanted {
                        return Ok(Flushed::Part);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Flushed::Part),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Flushed::All)
    }

    /// One call of `write` with the first `N` buffers; also how many bytes those are.
    fn write_once<const N: usize>(
        &self,
        write: &mut impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> (usize, io::Result<usize>) {
        let mut slices = [IoSlice::new(&[]); N];
        let mut wanted = 0;
        let mut skip = self.written;
        let mut count = 0;
        for (slot, buffer) in slices.iter_mut().zip(&self.buffers) {
            let slice = &buffer[skip..];
            skip = 0;
            *slot = IoSlice::new(slice);
            wanted += slice.len();
            count += 1;
            if wanted >= FLUSH_BYTES_MAX {
                break;
            }
        }
        (wanted, write(&slices[..count]))
    }

    /// Drops what has been written.
    fn advance(&mut self, bytes: usize) {
        self.written += bytes;
        self.written_ever += bytes as u64;
        while let Some(first) = self.buffers.front() {
            if self.written < first.len() {
                return;
            }
            self.written -= first.len();
            self.queued -= first.len();
            self.buffers.pop_front();
        }
        self.longest = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Bytes {
        Arc::new(text.as_bytes().to_vec())
    }

    fn filled(texts: &[&str]) -> Outbox {
        let mut outbox = Outbox::default();
        texts.iter().for_each(|text| outbox.push(&bytes(text)));
        outbox
    }

    /// A peer that takes `limits` bytes, one number a call, and then would block.
    fn scripted<'a>(
        limits: &'a [usize],
        taken: &'a mut Vec<u8>,
    ) -> impl FnMut(&[IoSlice<'_>]) -> io::Result<usize> + 'a {
        let mut limits = limits.iter();
        move |slices| {
            let limit = *limits.next().ok_or(io::Error::from(ErrorKind::WouldBlock))?;
            let all: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            let count = limit.min(all.len());
            taken.extend_from_slice(&all[..count]);
            Ok(count)
        }
    }

    #[test]
    fn one_call_writes_everything_to_a_willing_peer() {
        let mut outbox = filled(&["head", "", "body"]);
        let mut taken = Vec::new();
        assert_eq!(outbox.flush(scripted(&[100], &mut taken)).unwrap(), Flushed::All);
        assert_eq!((taken.as_slice(), outbox.is_empty()), (b"headbody".as_slice(), true));
    }

    #[test]
    fn short_writes_lose_and_repeat_nothing() {
        let texts: Vec<String> = (0..200).map(|i| format!("<{i}>")).collect();
        let whole = texts.concat();
        for step in [1, 2, 3, 7, 100, 1000] {
            let mut outbox = filled(&texts.iter().map(String::as_str).collect::<Vec<_>>());
            let mut taken = Vec::new();
            let mut calls = 0;
            while outbox.flush(scripted(&[step], &mut taken)).unwrap() == Flushed::Part {
                calls += 1;
                assert!(calls <= whole.len(), "no progress");
            }
            assert_eq!(String::from_utf8(taken).unwrap(), whole, "steps of {step}");
        }
    }

    #[test]
    fn a_peer_that_takes_nothing_keeps_the_queue() {
        let mut outbox = filled(&["x"]);
        let mut taken = Vec::new();
        assert_eq!(outbox.flush(scripted(&[], &mut taken)).unwrap(), Flushed::Part);
        assert!(!outbox.is_empty());
        let broken = outbox.flush(|_| Err(ErrorKind::BrokenPipe.into()));
        assert_eq!(broken.unwrap_err().kind(), ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_greedy_peer_does_not_get_everything_at_once() {
        let mut outbox = filled(&[&"x".repeat(FLUSH_BYTES_MAX), &"y".repeat(FLUSH_BYTES_MAX)]);
        let mut total = 0;
        let all = |slices: &[IoSlice<'_>]| Ok(slices.iter().map(|slice| slice.len()).sum());
        let counting = |slices: &[IoSlice<'_>]| all(slices).inspect(|count| total += count);
        assert_eq!(outbox.flush(counting).unwrap(), Flushed::Part);
        assert_eq!(total, FLUSH_BYTES_MAX);
        assert_eq!(outbox.flush(all).unwrap(), Flushed::All);
    }
}

//! Whether good records follow a bad one: then it is no tail that a crash has torn, and more is
//! lost than what was being written.

use sha1::{Digest, Sha1};

use super::{HEADER_MAX, Hash, Header, Magic};

/// How many headers are compared at once with what follows them. Lines that look like headers
/// hardly ever stand within each other's records; of too many, the longest record is given up.
const CANDIDATES_MAX: usize = 16;

/// Looks for a good record in bytes that come in pieces.
#[derive(Debug)]
pub(crate) struct Search {
    magic: Magic,
    /// File offset of the next byte.
    offset: u64,
    /// The end of what has come of the line: a header's length, at most.
    line: Vec<u8>,
    candidates: Vec<Candidate>,
    found: Option<u64>,
}

/// A line that looks like a header.
#[derive(Debug)]
struct Candidate {
    /// File offset of the line.
    offset: u64,
    expected: Hash,
    hash: Sha1,
    /// Bytes of the body that have not come.
    left: u64,
}

impl Search {
    /// A search from a file offset on.
    pub(crate) fn new(magic: Magic, offset: u64) -> Self {
        let (line, candidates) = (Vec::new(), Vec::new());
        Self { magic, offset, line, candidates, found: None }
    }

    /// The file offset of a good record, if there is one.
    pub(crate) fn found(&self) -> Option<u64> {
        self.found
    }

    /// Takes the next bytes.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) {
        while self.found.is_none() && !bytes.is_empty() {
            let end = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
            let (piece, rest) = bytes.split_at(end);
            self.feed_line(piece);
            bytes = rest;
        }
    }

    /// Takes what may be the rest of a line, but no more.
    fn feed_line(&mut self, piece: &[u8]) {
        self.offset += piece.len() as u64;
        for candidate in &mut self.candidates {
            let length = usize::try_from(candidate.left).unwrap_or(usize::MAX).min(piece.len());
            candidate.hash.update(piece.get(..length).unwrap_or(piece));
            candidate.left -= length as u64;
        }
        self.candidates.retain_mut(|candidate| {
            if candidate.left == 0 && Hash::of(&mut candidate.hash) == candidate.expected {
                self.found = Some(self.found.unwrap_or(candidate.offset));
            }
            candidate.left > 0
        });
        let new = piece.len().min(HEADER_MAX);
        self.line.extend_from_slice(piece.get(piece.len() - new..).unwrap_or(piece));
        self.line.drain(..self.line.len().saturating_sub(HEADER_MAX));
        if let Some(line) = piece.ends_with(b"\n").then(|| std::mem::take(&mut self.line)) {
            self.end_line(&line);
        }
    }

    /// A line has ended, perhaps with a header: the newline before that may be what is bad.
    fn end_line(&mut self, line: &[u8]) {
        let Some(start) = line.windows(b"OVSDB ".len()).rposition(|text| text == b"OVSDB ") else {
            return;
        };
        let line = line.get(start..).unwrap_or_default();
        let header = line.strip_suffix(b"\n").and_then(Header::parse);
        let Some(header) = header.filter(|header| header.magic == Some(self.magic)) else { return };
        if self.candidates.len() == CANDIDATES_MAX {
            let longest = (0..CANDIDATES_MAX).max_by_key(|at| self.candidates[*at].left);
            longest.map(|at| self.candidates.swap_remove(at));
        }
        self.candidates.push(Candidate {
            offset: self.offset - line.len() as u64,
            expected: header.hash,
            hash: Sha1::new(),
            left: header.length,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::write_clustered_record;

    fn search(bytes: &[u8], piece: usize) -> Option<u64> {
        let mut search = Search::new(Magic::Clustered, 1000);
        bytes.chunks(piece).for_each(|piece| search.feed(piece));
        search.found()
    }

    #[test]
    fn a_good_record_is_found_wherever_it_is() {
        let mut good = Vec::new();
        write_clustered_record(&mut good, br#"{"term":1}"#);
        let mut long = Vec::new();
        write_clustered_record(&mut long, &vec![b' '; 500]);
        let mut bad = good.clone();
        bad[65] = b'x';
        for piece in [1, 7, 10_000] {
            assert_eq!(
                search(&[bad.clone(), good.clone()].concat(), piece),
                Some(1000 + good.len() as u64)
            );
            assert_eq!(search(&[b"junk\n\n", &*good].concat(), piece), Some(1006));
            assert_eq!(search(&[b"junk", &*good].concat(), piece), Some(1004));
            let hidden = [&vec![b'x'; 999], &*good, b"junk"].concat();
            assert_eq!(search(&hidden, piece), Some(1999));
            assert_eq!(search(&bad, piece), None);
            assert_eq!(search(&good[..good.len() - 1], piece), None);
            // Headers that lie about their lengths do not hide it.
            let liars = long[..long.iter().position(|byte| *byte == b'\n').unwrap() + 1].repeat(40);
            assert_eq!(search(&[&*liars, &*good].concat(), piece), Some(1000 + liars.len() as u64));
            assert_eq!(search(&vec![0; 3000], piece), None);
        }
    }
}

//! Whether what follows a bad record shows that more is lost than what was being written.
//!
//! A crash leaves a bad record at the end, with nothing good behind it. A power failure may leave
//! more: of what was not synced any block may be missing, and reads as zeros, while later ones are
//! there. So good records behind a bad one are no damage if
//!
//! - zeros stand before the first of them, which JSON never has;
//! - each is of a writer that says how much was on the disk when it wrote ([`Synced`]): it says so
//!   itself, or it is an entry of the log, which is the same on all servers and has the [`MARK`];
//! - none says that the bad one was on the disk;
//! - and one does say something, or the last one before the bad one did that is no entry: the mark
//!   is older than what is said.
//!
//! Each record is judged by itself, and not with what was written together with it, of which any part
//! may be missing.
//!
//! What good records say is told, too, as far as they are short: a server whose log has a gap may learn
//! from them who else is in its cluster.

use sha1::{Digest, Sha1};

use super::{HEADER_MAX, Hash, Header, MARK, Magic, Synced};

/// How many headers are compared at once with what follows them. Lines that look like headers
/// hardly ever stand within each other's records; of too many, the longest record is given up.
const CANDIDATES_MAX: usize = 16;

/// Bodies of up to this length are told, in bytes: more than the servers of any cluster take.
const TOLD_MAX: usize = 64 << 10;

/// Looks for good records in bytes that come in pieces.
#[derive(Debug)]
pub struct Search {
    magic: Magic,
    hole: Option<Hole>,
    /// File offset of the next byte.
    offset: u64,
    /// The end of what has come of the line: a header's length, at most.
    line: Vec<u8>,
    candidates: Vec<Candidate>,
    /// A candidate was given up that may have been a good record.
    has_given_up: bool,
    /// File offset of the first good record.
    good: Option<u64>,
    /// Zeros stand before the first good record: JSON has none.
    has_zeros: bool,
    /// By a good record there is no hole.
    has_contradiction: bool,
}

/// Where a bad record is that may be what a power failure has left.
#[derive(Clone, Copy, Debug)]
pub struct Hole {
    /// Bytes between the file's first record and the bad one.
    pub at: u64,
    /// Whether some record says how much was on the disk: here, whether the last one did before the
    /// bad one that is no entry.
    pub is_told: bool,
}

/// A line that looks like a header.
#[derive(Debug)]
struct Candidate {
    /// File offset of the line.
    offset: u64,
    expected: Hash,
    hash: Sha1,
    /// What the body begins with, up to [`TOLD_MAX`].
    beginning: Vec<u8>,
    /// Bytes of the whole body.
    len: u64,
    /// The last bytes of the body, as far as it has come.
    last: [u8; 2],
    /// Bytes of the body that have not come.
    left: u64,
}

impl Search {
    /// A search from a file offset on, behind what may be a hole or is none.
    pub fn new(magic: Magic, offset: u64, hole: Option<Hole>) -> Self {
        Self {
            magic,
            hole,
            offset,
            line: Vec::new(),
            candidates: Vec::new(),
            has_given_up: false,
            good: None,
            has_zeros: false,
            has_contradiction: false,
        }
    }

    /// The file offset of the first good record, if there are any that do not allow for a hole.
    pub fn found(&self) -> Option<u64> {
        let is_told = self.hole.is_some_and(|hole| hole.is_told);
        self.good.filter(|_| !(is_told && self.may_be_hole()))
    }

    /// Whether nothing has been found by which there is no hole.
    fn may_be_hole(&self) -> bool {
        let has_room = self.good.is_none() || self.has_zeros;
        self.hole.is_some() && has_room && !self.has_contradiction && !self.has_given_up
    }

    /// Takes the next bytes; `each` is told the bodies of good records that are short.
    pub fn feed(&mut self, mut bytes: &[u8], each: &mut dyn FnMut(&[u8])) {
        while !bytes.is_empty() {
            let end = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
            let (piece, rest) = bytes.split_at(end);
            self.feed_line(piece, each);
            bytes = rest;
        }
    }

    /// Takes what may be the rest of a line, but no more.
    fn feed_line(&mut self, piece: &[u8], each: &mut dyn FnMut(&[u8])) {
        self.offset += piece.len() as u64;
        self.has_zeros |= self.good.is_none() && piece.contains(&0);
        for candidate in &mut self.candidates {
            let length = usize::try_from(candidate.left).unwrap_or(usize::MAX).min(piece.len());
            let body = piece.get(..length).unwrap_or(piece);
            candidate.hash.update(body);
            candidate.last = match *body {
                [.., one, two] => [one, two],
                [one] => [candidate.last[1], one],
                [] => candidate.last,
            };
            let wanted = (TOLD_MAX - candidate.beginning.len()).min(body.len());
            candidate.beginning.extend_from_slice(body.get(..wanted).unwrap_or(body));
            candidate.left -= length as u64;
        }
        self.candidates.retain_mut(|candidate| {
            if candidate.left == 0 && Hash::of(&mut candidate.hash) == candidate.expected {
                self.good.get_or_insert(candidate.offset);
                if let Some(hole) = &mut self.hole {
                    let synced = Synced::of_body(&candidate.beginning);
                    hole.is_told |= synced.is_some();
                    let is_entry = candidate.last == [MARK, b'\n'];
                    self.has_contradiction |= synced.map_or(!is_entry, |synced| synced > hole.at);
                }
                if candidate.len == candidate.beginning.len() as u64 {
                    each(&candidate.beginning);
                }
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
            self.has_given_up = true;
        }
        self.candidates.push(Candidate {
            offset: self.offset - line.len() as u64,
            expected: header.hash,
            hash: Sha1::new(),
            beginning: Vec::new(),
            len: header.length,
            last: [0; 2],
            left: header.length,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::write_clustered_record;

    fn search(bytes: &[u8], piece: usize) -> Option<u64> {
        let mut search = Search::new(Magic::Clustered, 1000, None);
        bytes.chunks(piece).for_each(|piece| search.feed(piece, &mut |_| ()));
        search.found()
    }

    /// Whether good records in these bytes allow for a hole.
    fn is_hole(bytes: &[u8], hole: Option<Hole>, piece: usize) -> bool {
        let mut search = Search::new(Magic::Clustered, 1000, hole);
        bytes.chunks(piece).for_each(|piece| search.feed(piece, &mut |_| ()));
        assert!(search.good.is_some(), "there is a good record");
        search.found().is_none()
    }

    fn record(body: &str) -> Vec<u8> {
        let mut record = Vec::new();
        write_clustered_record(&mut record, body.as_bytes());
        record
    }

    fn says(bytes: u64) -> Vec<u8> {
        record(&format!(r#"{{"comment":"{}","term":1}}"#, Synced::new(bytes).as_str()))
    }

    #[test]
    fn good_records_allow_for_a_hole_if_all_do() {
        let zeros = vec![0; 700];
        let (silent, entry) = (record(r#"{"term":1}"#), record("{\"term\":1,\"index\":2} "));
        for piece in [1, 7, 10_000] {
            let hole = |is_told| Some(Hole { at: 400, is_told });
            let of = |records: &[&[u8]]| is_hole(&records.concat(), hole(false), piece);
            assert!(of(&[&zeros, &says(400)]));
            assert!(of(&[&zeros, &says(0), b"junk\n", &zeros, &says(399)]));
            assert!(!of(&[&zeros, &says(401)]), "the bad one was on the disk");
            assert!(!of(&[&zeros, &says(400), &says(10), &says(401)]));
            assert!(!of(&[&zeros, &silent]), "of an unknown writer");
            assert!(!of(&[&zeros, &says(400), &silent]));
            assert!(of(&[&zeros, &entry, &says(400), &entry]));
            assert!(!of(&[&zeros, &entry, &says(401), &entry]));
            assert!(!of(&[&zeros, &entry]), "of a member that says nothing");
            assert!(is_hole(&[&*zeros, &entry].concat(), hole(true), piece));
            assert!(!is_hole(&[&*zeros, &silent].concat(), hole(true), piece));
            assert!(!of(&[b"junk\n", &says(400)]), "no block is missing");
            assert!(!of(&[b"junk\n", &says(400), &zeros, &says(400)]));
            assert!(!is_hole(&[&*zeros, &says(400)].concat(), None, piece));
            // Of too many candidates nobody knows what the one says that is given up.
            let liars = format!("OVSDB CLUSTER 9999 {}\n", "0".repeat(40)).repeat(40);
            assert!(!of(&[&zeros, liars.as_bytes(), &says(400)]));
        }
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

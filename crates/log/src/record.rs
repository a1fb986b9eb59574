//! The framing of records, and what can be wrong with it.

mod search;
mod synced;

use std::fmt;

pub use search::{Hole, Search};
use sha1::{Digest, Sha1};
pub use synced::Synced;
use weir_json::{Kind, Text};

/// Longest header line that the reference reads, in bytes with its newline.
const HEADER_MAX: usize = 127;

/// The reference reads a body in pieces of this size and tells what is left when one fails, in
/// bytes.
const READ_SHOWN: usize = 8192;

/// How far ahead of the bytes that have come the buffer grows at least, in bytes.
const GROWTH_MIN: usize = 1 << 20;

/// A buffer with more room than this is given back after the record that needed it, in bytes.
const BUFFER_KEPT: usize = 4 << 20;

/// A byte before the newline that ends a record's body: whoever wrote the record has told clients of
/// it by the rules of Weir's change log (`docs/decisions/012`). JSON has no meaning for it.
pub const MARK: u8 = b' ';

fn is_marked(body: &[u8]) -> bool {
    body.ends_with(&[MARK, b'\n'])
}

/// Which kind of log a record belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Magic {
    /// The magic `JSON`: a standalone database.
    Standalone,
    /// The magic `CLUSTER`: one server's part of a clustered database.
    Clustered,
}

impl Magic {
    /// The word in a record's header.
    const fn name(self) -> &'static [u8] {
        match self {
            Self::Standalone => b"JSON",
            Self::Clustered => b"CLUSTER",
        }
    }
}

/// What is wrong with the bytes at some offset. Everything before it is good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The file is empty, or an OVSDB log of a kind that nobody knows.
    Unidentified,
    /// The file does not begin like an OVSDB log.
    NotALog,
    /// A line is there in place of a record's header.
    Header {
        /// File offset at which the header line begins.
        offset: u64,
        /// As much of the line as the reference shows.
        line: String,
    },
    /// The file ends within a record.
    Truncated {
        /// Length of the record's body, without the whole pieces that the reference would have
        /// read.
        length: u64,
        /// File offset at which the body begins.
        offset: u64,
    },
    /// The checksum of a record does not match its body.
    Hash {
        /// Length of the record's body.
        length: u64,
        /// File offset at which the body begins.
        offset: u64,
        /// SHA-1 of the body.
        actual: Hash,
        /// SHA-1 according to the header.
        expected: Hash,
    },
    /// The body of a record is no JSON.
    Json {
        /// Length of the record's body.
        length: u64,
        /// File offset at which the body begins.
        offset: u64,
        /// What the parser said.
        error: String,
    },
    /// The body of a record is JSON but no object.
    NotAnObject {
        /// Length of the record's body.
        length: u64,
        /// File offset at which the body begins.
        offset: u64,
    },
}

impl Error {
    /// Whether the record may be one of which not all has reached the disk. What has the right checksum
    /// was written as it is.
    pub(crate) fn may_be_unwritten(&self) -> bool {
        !matches!(self, Self::Json { .. } | Self::NotAnObject { .. })
    }

    /// The message, in the reference's words, for the file called `path`.
    pub fn about<'a>(&'a self, path: &'a str) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| {
            let at = |f: &mut fmt::Formatter<'_>, length: &u64, offset: &u64| {
                write!(f, "syntax error: {path}: {length} bytes starting at offset {offset} ")
            };
            match self {
                Self::Unidentified => write!(f, "ovsdb error: {path}: cannot identify file type"),
                Self::NotALog => write!(f, "ovsdb error: {path}: unexpected file format"),
                Self::Header { offset, line } => write!(
                    f,
                    "syntax error: {path}: parse error at offset {offset} in header line \
                     \"{line}\""
                ),
                Self::Truncated { length, offset } => write!(
                    f,
                    "I/O error: {path}: error reading {length} bytes starting at offset {offset} \
                     (End of file)"
                ),
                Self::Hash { length, offset, actual, expected } => {
                    at(f, length, offset)?;
                    write!(f, "have SHA-1 hash {actual} but should have hash {expected}")
                }
                Self::Json { length, offset, error } => {
                    at(f, length, offset)?;
                    write!(f, "are not valid JSON ({error})")
                }
                Self::NotAnObject { length, offset } => {
                    at(f, length, offset)?;
                    f.write_str("are not a JSON object")
                }
            }
        })
    }
}

/// A SHA-1 hash; displayed in hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hash(pub [u8; 20]);

impl Hash {
    /// Length of the text form in bytes.
    const TEXT_LEN: usize = 40;

    pub(crate) fn of(hash: &mut Sha1) -> Self {
        Self(hash.finalize_reset().into())
    }

    /// Parses exactly the text form, in either case.
    fn parse(text: &[u8]) -> Option<Self> {
        let digit = |byte: &u8| char::from(*byte).to_digit(16);
        let mut hash = [0; 20];
        for (byte, pair) in hash.iter_mut().zip(text.chunks_exact(2)) {
            let [high, low] = pair else { return None };
            *byte = u8::try_from(digit(high)? << 4 | digit(low)?).ok()?;
        }
        (text.len() == Self::TEXT_LEN).then_some(Self(hash))
    }

    fn text(self) -> [u8; Self::TEXT_LEN] {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; Self::TEXT_LEN];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            pair.copy_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
        text
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.text()))
    }
}

/// What a header line says.
#[derive(Clone, Copy, Debug)]
struct Header {
    /// `None`: a kind of log that nobody knows.
    magic: Option<Magic>,
    /// Bytes of the body; never 0.
    length: u64,
    hash: Hash,
    /// Bytes of the line with its newline.
    line: usize,
}

impl Header {
    /// Parses a line without its newline.
    fn parse(line: &[u8]) -> Option<Self> {
        let rest = line.strip_prefix(b"OVSDB ")?;
        let (magic, rest) = split_at_space(rest)?;
        let (length, hash) = parse_length(rest)?;
        let magic = match magic {
            name if name == Magic::Standalone.name() => Some(Magic::Standalone),
            name if name == Magic::Clustered.name() => Some(Magic::Clustered),
            _ => None,
        };
        Some(Self { magic, length, hash: Hash::parse(hash)?, line: line.len() + 1 })
    }

    /// As much of a bad line as the reference shows: it takes a line apart in place, which ends
    /// it behind the magic.
    fn shown(line: &[u8]) -> String {
        let end = line.iter().position(|byte| *byte == 0).unwrap_or(line.len());
        let (line, _) = line.split_at(end);
        let magic = line.strip_prefix(b"OVSDB ").map(|rest| split_at_space(rest).map(|(m, _)| m));
        let shown = match magic {
            Some(Some(magic)) => line.get(..b"OVSDB ".len() + magic.len()).unwrap_or(line),
            _ => line,
        };
        String::from_utf8_lossy(shown).into_owned()
    }
}

fn split_at_space(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|byte| *byte == b' ')?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

/// A length, read as by strtoul(3), and what is behind the space after it.
fn parse_length(text: &[u8]) -> Option<(u64, &[u8])> {
    let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let start = text.iter().position(|byte| !is_space(byte))?;
    let (is_negative, digits) = match text.get(start..)? {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    let (digits, rest) = split_at_space(digits)?;
    let all_digits = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let length: u64 = std::str::from_utf8(digits).ok().filter(|_| all_digits)?.parse().ok()?;
    let length = if is_negative { length.wrapping_neg() } else { length };
    (length != 0 && length != u64::MAX).then_some((length, rest))
}

/// Takes a file's bytes in pieces and gives out its records.
#[derive(Debug, Default)]
pub struct Reader {
    /// Bytes not given out yet; the body of the current record in one piece.
    buffer: Vec<u8>,
    /// How many bytes of `buffer` have been given out.
    taken: usize,
    /// File offset behind the last record given out: where the current header begins.
    offset: u64,
    header: Option<Header>,
    /// The hash of the current record's body, as far as it has come.
    hash: Sha1,
    /// How many bytes of the body `hash` has seen.
    hashed: usize,
    /// The last byte of the body's pieces so far.
    last: u8,
    first: Option<Magic>,
}

impl Reader {
    /// A reader at the beginning of a file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes of the file.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.taken > 0 && self.buffer.capacity() > BUFFER_KEPT.max(2 * self.rest().len()) {
            self.buffer = self.rest().to_vec();
        } else {
            self.buffer.drain(..self.taken);
        }
        self.taken = 0;
        if let Some(header) = &self.header {
            // The whole record will be here soon: few allocations. A header can lie, so never more
            // than the double of what has come.
            let length = usize::try_from(header.length).unwrap_or(usize::MAX);
            let bound = (self.buffer.len() + bytes.len()).saturating_mul(2).max(GROWTH_MIN);
            let wanted = length.min(bound).max(self.buffer.len() + bytes.len());
            if wanted > self.buffer.capacity() {
                self.buffer.reserve_exact(wanted - self.buffer.len());
            }
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The kind of the log, once the first header has been read.
    pub fn magic(&self) -> Option<Magic> {
        self.first
    }

    /// File offset behind the last record given out.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads the next header if it is there, so that [`Reader::magic`] is known before the first
    /// record is complete.
    ///
    /// # Errors
    /// As those of [`Reader::next_record`].
    pub fn peek(&mut self) -> Result<(), Error> {
        self.read_header(false).map(|_| ())
    }

    fn rest(&self) -> &[u8] {
        self.buffer.get(self.taken..).unwrap_or_default()
    }

    /// The JSON text of the next record, if it is all here.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, Error> {
        let Some(header) = self.read_header(false)? else { return Ok(None) };
        let length = header.length;
        let here = self.rest().len();
        let wanted = usize::try_from(length).unwrap_or(usize::MAX).min(here);
        // Hashed as it comes, while it is in the cache.
        if let Some(new) = self.buffer.get(self.taken + self.hashed..self.taken + wanted) {
            self.hash.update(new);
            self.hashed = wanted;
        }
        if (here as u64) < length {
            return Ok(None);
        }
        self.check_hash(header)?;
        let start = self.taken;
        self.taken += wanted;
        let body = self.buffer.get(start..self.taken).unwrap_or_default();
        let (offset, end, hash) = (self.offset - length, self.offset, header.hash);
        Ok(Some(Record { body, offset, end, hash }))
    }

    /// Length of the body of the record that is being read, once its header is known.
    pub fn body_len(&mut self) -> Result<Option<u64>, Error> {
        Ok(self.read_header(false)?.map(|header| header.length))
    }

    /// What has come of the current record's body since the last piece. The checksum is compared
    /// behind the last piece: an error there means that all pieces of the record are bad.
    pub fn next_piece(&mut self) -> Result<Option<Piece<'_>>, Error> {
        let Some(header) = self.read_header(false)? else { return Ok(None) };
        let length = usize::try_from(header.length).unwrap_or(usize::MAX);
        let here = self.rest().len().min(length.saturating_sub(self.hashed));
        let start = self.taken;
        self.taken += here;
        self.hash.update(self.buffer.get(start..self.taken).unwrap_or_default());
        self.hashed += here;
        let is_last = self.hashed == length;
        if is_last {
            self.check_hash(header)?;
        }
        let body = self.buffer.get(start..self.taken).unwrap_or_default();
        let is_marked = match body {
            [b'\n'] => self.last == MARK,
            body => is_marked(body),
        };
        self.last = body.last().copied().unwrap_or(self.last);
        let end = is_last.then_some(End {
            offset: self.offset,
            body_len: header.length,
            hash: header.hash,
            is_marked,
        });
        Ok((here > 0).then_some(Piece { body, end }))
    }

    /// Compares the checksum of a body that has been hashed, and goes behind its record.
    fn check_hash(&mut self, header: Header) -> Result<(), Error> {
        let Header { length, hash: expected, line, .. } = header;
        self.hashed = 0;
        let actual = Hash::of(&mut self.hash);
        let offset = self.offset + line as u64;
        if actual != expected {
            return Err(Error::Hash { length, offset, actual, expected });
        }
        self.header = None;
        self.offset = offset + length;
        Ok(())
    }

    /// Goes back to where a record begins; what is there will be fed once more.
    pub fn rewind_to(&mut self, offset: u64) {
        *self = Self { offset, first: self.first, ..Self::default() };
    }

    /// What has come and has not been given out: behind a bad record's header line, if that was good.
    pub(crate) fn unread(&self) -> &[u8] {
        self.rest()
    }

    /// File offset of [`Reader::unread`].
    pub(crate) fn unread_offset(&self) -> u64 {
        self.offset + self.header.map_or(0, |header| header.line as u64)
    }

    /// The file has ended: whether that was between records.
    pub fn finish(mut self) -> Result<(), Error> {
        if self.header.is_none() && self.rest().is_empty() {
            return if self.first.is_none() { Err(Error::Unidentified) } else { Ok(()) };
        }
        let header = self.read_header(true)?;
        let (length, line) = header.map_or((0, 0), |header| (header.length, header.line));
        // What pieces have taken is hashed; what awaits the rest of its record is in the buffer.
        let here = self.rest().len().max(self.hashed);
        let length = length.saturating_sub((here - here % READ_SHOWN) as u64);
        Err(Error::Truncated { length, offset: self.offset + line as u64 })
    }

    /// Reads the header line if it is there.
    fn read_header(&mut self, is_end: bool) -> Result<Option<Header>, Error> {
        if self.header.is_some() {
            return Ok(self.header);
        }
        let rest = self.rest();
        let window = rest.get(..HEADER_MAX).unwrap_or(rest);
        let newline = window.iter().position(|byte| *byte == b'\n');
        if newline.is_none() && (window.is_empty() || window.len() < HEADER_MAX && !is_end) {
            return Ok(None);
        }
        let line = window.get(..newline.unwrap_or(window.len())).unwrap_or_default();
        let header = newline.and_then(|_| Header::parse(line));
        let magic = match (self.first, header) {
            (None, None) => return Err(Error::NotALog),
            (None, Some(header)) => header.magic.ok_or(Error::Unidentified)?,
            (Some(first), Some(header)) if header.magic == Some(first) => first,
            (Some(_), _) => {
                return Err(Error::Header { offset: self.offset, line: Header::shown(line) });
            }
        };
        self.first = Some(magic);
        self.taken += header.map_or(0, |header| header.line);
        self.header = header;
        Ok(header)
    }
}

/// A part of one record's body.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// What of the body follows the last piece.
    pub body: &'a [u8],
    /// With the last piece of a body.
    pub end: Option<End>,
}

/// What is known of a record when all of it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// File offset behind the record.
    pub offset: u64,
    /// Bytes of the record's body, its newline included.
    pub body_len: u64,
    /// SHA-1 of the body.
    pub hash: Hash,
    /// Whether the record carries the [`MARK`].
    pub is_marked: bool,
}

/// One record of a log.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The JSON text with its newline.
    pub body: &'a [u8],
    /// File offset of the body.
    pub offset: u64,
    /// File offset behind the record.
    pub end: u64,
    /// SHA-1 of the body.
    pub hash: Hash,
}

impl<'a> Record<'a> {
    /// What is known of the record beside its text.
    pub fn end(&self) -> End {
        let (body_len, hash) = (self.body.len() as u64, self.hash);
        End { offset: self.end, body_len, hash, is_marked: is_marked(self.body) }
    }

    /// The record's JSON object.
    pub fn json(&self) -> Result<Text<'a>, Error> {
        let (length, offset) = (self.body.len() as u64, self.offset);
        match weir_json::validate(self.body) {
            Ok(json) if json.kind() == Kind::Object => Ok(json),
            Ok(_) => Err(Error::NotAnObject { length, offset }),
            Err(error) => Err(Error::Json { length, offset, error: error.to_string() }),
        }
    }
}

/// Appends the header line of a standalone log's record whose body (newline included) has this
/// length and hash.
pub(crate) fn write_header(out: &mut Vec<u8>, length: u64, hash: Hash) {
    write_header_of(Magic::Standalone, out, length, hash);
}

pub(crate) fn write_header_of(magic: Magic, out: &mut Vec<u8>, length: u64, hash: Hash) {
    out.extend_from_slice(b"OVSDB ");
    out.extend_from_slice(magic.name());
    out.push(b' ');
    // Fits: no file is as long as that.
    weir_json::write_integer(out, i64::try_from(length).unwrap_or(i64::MAX));
    out.push(b' ');
    out.extend_from_slice(&hash.text());
    out.push(b'\n');
}

/// The header of a record whose body comes in pieces and is written behind it.
#[derive(Default, Debug)]
pub struct Measure {
    /// Bytes of the body so far.
    length: u64,
    hash: Sha1,
}

impl Measure {
    /// Takes the next piece of the body; the body ends in a newline.
    pub fn update(&mut self, piece: &[u8]) {
        self.length += piece.len() as u64;
        self.hash.update(piece);
    }

    /// The header line of a standalone log's record with the body that was measured.
    pub fn header(self) -> Vec<u8> {
        self.header_of(Magic::Standalone)
    }

    /// The header line of a record with the body that was measured.
    pub fn header_of(mut self, magic: Magic) -> Vec<u8> {
        let mut header = vec![];
        write_header_of(magic, &mut header, self.length, Hash::of(&mut self.hash));
        header
    }
}

/// Appends a record of a standalone log.
pub fn write_record(out: &mut Vec<u8>, json: &[u8]) {
    write_hashed_record(out, json);
}

/// As [`write_record`]; answers with the hash of the record's body.
pub(crate) fn write_hashed_record(out: &mut Vec<u8>, json: &[u8]) -> Hash {
    write_record_of(Magic::Standalone, out, json)
}

/// Appends a record of a clustered log.
pub fn write_clustered_record(out: &mut Vec<u8>, json: &[u8]) {
    write_record_of(Magic::Clustered, out, json);
}

fn write_record_of(magic: Magic, out: &mut Vec<u8>, json: &[u8]) -> Hash {
    let mut hash = Sha1::new();
    hash.update(json);
    hash.update(b"\n");
    let hash = Hash::of(&mut hash);
    write_header_of(magic, out, json.len() as u64 + 1, hash);
    out.extend_from_slice(json);
    out.push(b'\n');
    hash
}

/// What has been appended as one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// SHA-1 of the record's body.
    pub hash: Hash,
    /// Bytes of the body, its newline included.
    pub body_len: u64,
    /// Whether the record carries the [`MARK`].
    pub is_marked: bool,
}

/// A record that is being appended: its header takes its place when the body is complete.
pub(crate) struct Unfinished {
    magic: Magic,
    start: usize,
    /// Where the body begins if the header fits the room that was left for it.
    body: usize,
}

impl Unfinished {
    /// Begins a record at the end of `out`; the body goes behind it. What is left for the header
    /// fits that of a body of 100 to 999 bytes exactly.
    pub(crate) fn begin(magic: Magic, out: &mut Vec<u8>) -> Self {
        Self::begin_of(magic, out, 100)
    }

    /// Begins a record whose body will have about so many bytes. Its end moves nothing if the number has
    /// as many digits as the true one.
    pub(crate) fn begin_of(magic: Magic, out: &mut Vec<u8>, body_len: usize) -> Self {
        let start = out.len();
        let digits = body_len.checked_ilog10().map_or(1, |n| n as usize + 1);
        let room = b"OVSDB   \n".len() + magic.name().len() + digits + Hash::TEXT_LEN;
        out.reserve(room + body_len);
        out.resize(start + room, 0);
        Self { magic, start, body: start + room }
    }

    /// Ends the record, with or without the [`MARK`].
    pub(crate) fn finish(self, out: &mut Vec<u8>, is_marked: bool) -> Written {
        if is_marked {
            out.push(MARK);
        }
        out.push(b'\n');
        let body = self.body;
        let mut hash = Sha1::new();
        hash.update(out.get(body..).unwrap_or_default());
        let written =
            Written { hash: Hash::of(&mut hash), body_len: (out.len() - body) as u64, is_marked };
        let mut header = Vec::with_capacity(HEADER_MAX);
        write_header_of(self.magic, &mut header, written.body_len, written.hash);
        match out.get_mut(self.start..body) {
            Some(room) if room.len() == header.len() => room.copy_from_slice(&header),
            _ => drop(out.splice(self.start..body, header)),
        }
        written
    }

    /// Takes the record back.
    pub(crate) fn abandon(self, out: &mut Vec<u8>) {
        out.truncate(self.start);
    }
}

#[cfg(test)]
mod tests;

//! The framing of records, and what can be wrong with it.

use std::fmt;

use sha1::{Digest, Sha1};

/// Longest header line the reference reads, in bytes.
const HEADER_MAX: usize = 128;

/// Which kind of log a record belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Magic {
    /// `JSON`, a standalone database.
    Standalone,
    /// `CLUSTER`, one server's part of a clustered database.
    Clustered,
}

/// What is wrong with the bytes at some offset. Everything before it is good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The file has no bytes.
    Empty,
    /// The file does not begin like an OVSDB log.
    NotALog,
    /// A header line that is none.
    Header {
        /// Where it begins.
        offset: u64,
        /// The line.
        line: String,
    },
    /// The file ends within a record.
    Truncated {
        /// Length of the record's body.
        length: u64,
        /// Where the body begins.
        offset: u64,
    },
    /// The checksum does not match.
    Hash {
        /// Length of the record's body.
        length: u64,
        /// Where the body begins.
        offset: u64,
        /// SHA-1 of the body, in hexadecimal.
        actual: String,
        /// What the header says.
        expected: String,
    },
    /// The body is no JSON.
    Json {
        /// Length of the record's body.
        length: u64,
        /// Where the body begins.
        offset: u64,
        /// What the parser said.
        error: String,
    },
}

impl Error {
    /// The message, for the file called `path`.
    pub fn about<'a>(&'a self, path: &'a str) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| match self {
            Self::Empty => write!(f, "ovsdb error: {path}: cannot identify file type"),
            Self::NotALog => write!(f, "ovsdb error: {path}: unexpected file format"),
            Self::Header { offset, line } => write!(
                f,
                "syntax error: {path}: parse error at offset {offset} in header line \"{line}\""
            ),
            Self::Truncated { length, offset } => write!(
                f,
                "I/O error: {path}: error reading {length} bytes starting at offset {offset} \
                 (End of file)"
            ),
            Self::Hash { length, offset, actual, expected } => write!(
                f,
                "syntax error: {path}: {length} bytes starting at offset {offset} have SHA-1 hash \
                 {actual} but should have hash {expected}"
            ),
            Self::Json { length, offset, error } => write!(
                f,
                "syntax error: {path}: {length} bytes starting at offset {offset} are not valid \
                 JSON ({error})"
            ),
        })
    }
}

/// A header line, parsed.
#[derive(Clone, Debug)]
struct Header {
    magic: Magic,
    length: u64,
    hash: String,
}

impl Header {
    /// Parses a line without its newline.
    fn parse(line: &[u8]) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?;
        let mut words = line.strip_prefix("OVSDB ")?.split(' ');
        let magic = match words.next()? {
            "JSON" => Magic::Standalone,
            "CLUSTER" => Magic::Clustered,
            _ => return None,
        };
        let length = words.next()?.parse().ok().filter(|length| *length > 0)?;
        let hash = words.next()?;
        let is_hash = hash.len() == 40 && hash.bytes().all(|b| b.is_ascii_hexdigit());
        (is_hash && words.next().is_none()).then(|| Self { magic, length, hash: hash.to_owned() })
    }
}

/// Takes a file's bytes in pieces and gives out its records.
#[derive(Debug, Default)]
pub struct Reader {
    /// Bytes not given out yet; the body of the current record in one piece.
    buffer: Vec<u8>,
    /// How many bytes of `buffer` have been given out.
    taken: usize,
    /// File offset of `buffer[taken]`.
    offset: u64,
    header: Option<Header>,
    /// Length of the header line that `header` came from.
    header_bytes: usize,
    first: Option<Magic>,
}

impl Reader {
    /// A reader at the beginning of a file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes of the file.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        if let Some(header) = &self.header {
            // The whole record will be here soon: one allocation. A header can lie, so at most
            // doubling beyond what has come.
            let missing = usize::try_from(header.length).unwrap_or(usize::MAX);
            let bound = self.buffer.len().max(1 << 20).saturating_mul(2);
            self.buffer.reserve(missing.saturating_sub(self.buffer.len()).min(bound));
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// What kind of log it is, once the first header has been read.
    pub fn magic(&self) -> Option<Magic> {
        self.first
    }

    /// File offset behind the last record given out.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    fn rest(&self) -> &[u8] {
        &self.buffer[self.taken..]
    }

    /// The JSON text of the next record, if it is all here.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, Error> {
        if !self.read_header(false)? {
            return Ok(None);
        }
        let Some(header) = &self.header else { return Ok(None) };
        let length = header.length;
        if (self.rest().len() as u64) < length {
            return Ok(None);
        }
        let (hash, header_len) = (header.hash.clone(), self.header_bytes as u64);
        self.header = None;
        let body_offset = self.offset + header_len;
        let start = self.taken;
        let body = &self.buffer[start..start + length as usize];
        let actual = hex(&Sha1::digest(body));
        if !actual.eq_ignore_ascii_case(&hash) {
            let offset = body_offset;
            return Err(Error::Hash { length, offset, actual, expected: hash });
        }
        self.taken += length as usize;
        self.offset = body_offset + length;
        Ok(Some(Record { body, offset: body_offset, end: self.offset }))
    }

    /// The file has ended: whether that was between records.
    pub fn finish(mut self) -> Result<(), Error> {
        if self.header.is_none() && self.rest().is_empty() {
            return if self.first.is_none() && self.offset == 0 {
                Err(Error::Empty)
            } else {
                Ok(())
            };
        }
        self.read_header(true)?;
        let length = self.header.as_ref().map_or(0, |header| header.length);
        Err(Error::Truncated { length, offset: self.offset + self.header_bytes as u64 })
    }

    /// Reads the header line if it is there; true if a header is at hand.
    fn read_header(&mut self, is_end: bool) -> Result<bool, Error> {
        if self.header.is_some() {
            return Ok(true);
        }
        let window = &self.rest()[..self.rest().len().min(HEADER_MAX)];
        let newline = window.iter().position(|byte| *byte == b'\n');
        if newline.is_none() && window.len() < HEADER_MAX && !is_end {
            return Ok(false);
        }
        let line = &window[..newline.unwrap_or(window.len())];
        let parsed = newline.and_then(|_| Header::parse(line));
        let Some(header) = parsed.filter(|h| self.first.is_none_or(|first| first == h.magic))
        else {
            if self.first.is_none() {
                return Err(Error::NotALog);
            }
            let line = String::from_utf8_lossy(line).into_owned();
            return Err(Error::Header { offset: self.offset, line });
        };
        self.header_bytes = line.len() + 1;
        self.first.get_or_insert(header.magic);
        self.taken += self.header_bytes;
        self.header = Some(header);
        Ok(true)
    }
}

/// One record.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The JSON text with its newline.
    pub body: &'a [u8],
    /// File offset of the body.
    pub offset: u64,
    /// File offset behind the record.
    pub end: u64,
}

impl<'a> Record<'a> {
    /// The record's JSON.
    pub fn json(&self) -> Result<weir_json::Text<'a>, Error> {
        weir_json::validate(self.body).map_err(|error| Error::Json {
            length: self.body.len() as u64,
            offset: self.offset,
            error: error.to_string(),
        })
    }
}

/// The header line of a record whose body (newline included) has this length and hash.
pub(crate) fn header(length: u64, hash: &Sha1) -> Vec<u8> {
    format!("OVSDB JSON {length} {}\n", hex(&hash.clone().finalize())).into_bytes()
}

/// Appends a record.
pub fn write_record(out: &mut Vec<u8>, json: &[u8]) {
    let mut hash = Sha1::new();
    hash.update(json);
    hash.update(b"\n");
    out.extend_from_slice(&header(json.len() as u64 + 1, &hash));
    out.extend_from_slice(json);
    out.push(b'\n');
}

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

//! The records of a file gone through without reading what they change.

use crate::record::{End, Error, Piece, Reader};
use crate::standalone::Note;

/// How much of the beginning of a record's body is kept, in bytes: a comment that goes beyond that
/// is not found.
const BEGINNING_BYTES_MAX: usize = 16 << 10;

/// Takes a file's bytes in pieces and tells of its records.
#[derive(Debug, Default)]
pub struct Scanner {
    reader: Reader,
    number: u64,
    beginning: Vec<u8>,
}

/// A record.
#[derive(Debug)]
pub struct Scanned<'a> {
    /// The schema's is number 1.
    pub number: u64,
    /// What the frame says of the record.
    pub end: End,
    beginning: &'a [u8],
}

impl Scanner {
    /// A scanner at the beginning of a file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes; `each` is told of every record that they complete.
    ///
    /// # Errors
    /// What is wrong with the file; all before that is good.
    pub fn feed(&mut self, bytes: &[u8], each: &mut dyn FnMut(Scanned<'_>)) -> Result<(), Error> {
        self.reader.feed(bytes);
        while let Some(Piece { body, end }) = self.reader.next_piece()? {
            let room = BEGINNING_BYTES_MAX - self.beginning.len();
            self.beginning.extend_from_slice(body.get(..room).unwrap_or(body));
            if let Some(end) = end {
                self.number += 1;
                each(Scanned { number: self.number, end, beginning: &self.beginning });
                self.beginning.clear();
            }
        }
        Ok(())
    }
}

impl Scanned<'_> {
    /// The record's note, if Weir wrote it.
    pub fn note(&self) -> Note {
        Note::of_beginning(self.beginning)
    }
}

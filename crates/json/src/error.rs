//! What is wrong with a JSON text, and where.

use std::fmt;

/// A JSON error with its place, printed as `line L, column C, byte B: TEXT`.
///
/// Texts and places are the reference's. All three counts start at 0; lines end at a line
/// feed and columns are bytes. The place is how far the text had been consumed when the
/// error was found: the offending byte for punctuation and control characters, the byte
/// after a number or keyword, the closing quote of a string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Line feeds before the place of the error.
    pub line: u64,
    /// Bytes between the place of the error and the beginning of its line.
    pub column: u64,
    /// Bytes between the place of the error and the start of the text.
    pub byte: u64,
    /// What is wrong, in the reference's words.
    pub text: String,
}

impl Error {
    /// An error at `at` bytes into `input`.
    pub(crate) fn at(input: &[u8], at: usize, text: String) -> Self {
        let before = input.get(..at).unwrap_or(input);
        let line_start = memchr::memrchr(b'\n', before).map_or(0, |i| i + 1);
        Self {
            line: memchr::memchr_iter(b'\n', before).count() as u64,
            column: (before.len() - line_start) as u64,
            byte: before.len() as u64,
            text,
        }
    }

    /// Moves the place behind text that ended at `line`, `column` and `byte`.
    pub(crate) fn offset(mut self, line: u64, column: u64, byte: u64) -> Self {
        if self.line == 0 {
            self.column += column;
        }
        self.line += line;
        self.byte += byte;
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, byte, text } = self;
        write!(f, "line {line}, column {column}, byte {byte}: {text}")
    }
}

impl std::error::Error for Error {}

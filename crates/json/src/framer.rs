//! Where one message of a stream ends and the next one begins.

use crate::DEPTH_MAX;
use crate::error::Error;
use crate::scan::{BLOCK, Brackets, Quoting, split_block};
use crate::syntax;

/// Finds the ends of the objects and arrays of a stream, however it is cut into pieces.
///
/// It only counts brackets outside strings; what is between them is for
/// [`crate::validate()`] to judge.
#[derive(Debug, Default)]
pub struct Framer {
    /// Open brackets; 0 between messages.
    depth: usize,
    quoting: Quoting,
    /// Bytes since the last message.
    bytes: u64,
    /// Lines that ended since the last message.
    lines: u64,
    /// Bytes since the end of the last line.
    column: u64,
}

/// How deep in a message a byte is, and whether it is inside a string.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Nesting {
    /// Open brackets.
    pub(crate) depth: usize,
    pub(crate) in_string: bool,
    /// Whether the byte before is a backslash that escapes this one.
    pub(crate) is_escaped: bool,
}

/// What the brackets of a block did.
enum Step {
    Inside,
    /// The brackets close with this byte: it ends the message.
    End(usize),
    /// This byte is one level too many.
    TooDeep(usize),
}

impl Framer {
    /// A framer at the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// True between messages: only white space has come since the last one.
    pub fn is_idle(&self) -> bool {
        self.depth == 0
    }

    /// How deep in the message the next byte is.
    pub(crate) fn nesting(&self) -> Nesting {
        let (in_string, is_escaped) = self.quoting.state();
        Nesting { depth: self.depth, in_string, is_escaped }
    }

    /// Feeds bytes. `Some(n)`: a message ends after `n` bytes of this input, and the
    /// framer is ready for the next one. `None`: all was consumed and more is needed.
    ///
    /// # Errors
    /// A first byte that cannot begin an object or array, or nesting deeper than
    /// [`DEPTH_MAX`]. The stream cannot be continued after that.
    #[inline]
    pub fn feed(&mut self, input: &[u8]) -> Result<Option<usize>, Error> {
        let mut rest = input;
        if self.depth == 0 {
            let start = input.iter().position(|c| !matches!(c, b' ' | b'\t' | b'\n' | b'\r'));
            match start.map(|at| input.split_at(at)) {
                None => rest = &[],
                Some((_, text @ [b'{' | b'[', ..])) => rest = text,
                Some(_) => return Err(self.bad_start(input)),
            }
        }
        while !rest.is_empty() {
            let at = input.len() - rest.len();
            let (block, len, after) = split_block(rest);
            let brackets = self.quoting.brackets(block, len);
            match step(&mut self.depth, brackets) {
                Step::Inside => rest = after,
                Step::End(last) => {
                    *self = Self::default();
                    return Ok(Some(at + last + 1));
                }
                Step::TooDeep(bad) => {
                    return Err(self.in_stream(Error::at(input, at + bad, syntax::depth_text())));
                }
            }
        }
        self.consumed(input);
        Ok(None)
    }

    /// Keeps count of bytes, lines and columns, for errors in later input.
    fn consumed(&mut self, input: &[u8]) {
        let end = self.in_stream(Error::at(input, input.len(), String::new()));
        (self.lines, self.column, self.bytes) = (end.line, end.column, end.byte);
    }

    fn in_stream(&self, error: Error) -> Error {
        error.offset(self.lines, self.column, self.bytes)
    }

    #[cold]
    fn bad_start(&self, input: &[u8]) -> Error {
        let error = syntax::first_error(input, false).unwrap_or_else(|| {
            Error::at(input, 0, "syntax error at beginning of input".to_owned())
        });
        self.in_stream(error)
    }
}

/// Follows the brackets of one block.
#[inline(always)]
fn step(depth: &mut usize, brackets: Brackets) -> Step {
    let Brackets { open, close } = brackets;
    let (opened, closed) = (open.count_ones() as usize, close.count_ones() as usize);
    if *depth > closed && *depth + opened <= DEPTH_MAX {
        *depth = *depth + opened - closed;
        return Step::Inside;
    }
    step_each(depth, brackets)
}

/// As [`step`], where the end or the limit may be in the block.
fn step_each(depth: &mut usize, brackets: Brackets) -> Step {
    let mut left = brackets.open | brackets.close;
    while left != 0 {
        let at = left.trailing_zeros() as usize;
        if brackets.open >> at & 1 == 1 {
            if *depth == DEPTH_MAX {
                return Step::TooDeep(at);
            }
            *depth += 1;
        } else {
            *depth = depth.saturating_sub(1);
            if *depth == 0 {
                return Step::End(at);
            }
        }
        left &= left - 1;
    }
    Step::Inside
}

/// The length of the array or object at the start of `text`, which has been validated.
#[inline]
pub(crate) fn container_len(text: &[u8]) -> usize {
    let mut rest = text;
    let mut quoting = Quoting::default();
    let mut depth = 0;
    while !rest.is_empty() {
        let (block, len, after) = split_block(rest);
        let brackets = quoting.brackets(block, len);
        let closed = brackets.close.count_ones() as usize;
        if depth > closed {
            depth = depth + brackets.open.count_ones() as usize - closed;
        } else if let Step::End(last) = step_each(&mut depth, brackets) {
            return text.len() - rest.len() + last + 1;
        }
        rest = after;
    }
    text.len()
}

const _: () = assert!(BLOCK == u64::BITS as usize, "one bit for each byte");

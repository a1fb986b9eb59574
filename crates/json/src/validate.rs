//! One pass that says whether a text is good.

use crate::DEPTH_MAX;
use crate::error::Error;
use crate::text::Text;
use crate::{number, scan, string, syntax};

/// Checks the whole grammar of one JSON text: an object or array, with white space around
/// it. Every operation on the result is infallible about syntax.
///
/// # Errors
/// The first error that the reference would find, at the place where it would find it.
pub fn validate(input: &[u8]) -> Result<Text<'_>, Error> {
    check(input, false)
}

/// As [`validate`], for any JSON value: scalars may stand alone.
///
/// # Errors
/// As [`validate`].
pub fn validate_value(input: &[u8]) -> Result<Text<'_>, Error> {
    check(input, true)
}

fn check(input: &[u8], scalar_root: bool) -> Result<Text<'_>, Error> {
    let text = trim(input);
    let root = scalar_root || matches!(text.first(), Some(b'[' | b'{'));
    if root && (Validator { text, at: 0 }).run().is_some() {
        return Ok(Text::new(text));
    }
    Err(explain(input, scalar_root))
}

#[cold]
fn explain(input: &[u8], scalar_root: bool) -> Error {
    syntax::first_error(input, scalar_root)
        .unwrap_or_else(|| Error::at(input, input.len(), "syntax error".to_owned()))
}

/// Without the white space of JSON at both ends.
fn trim(input: &[u8]) -> &[u8] {
    let mut text = input;
    while let [b' ' | b'\t' | b'\n' | b'\r', rest @ ..] = text {
        text = rest;
    }
    while let [rest @ .., b' ' | b'\t' | b'\n' | b'\r'] = text {
        text = rest;
    }
    text
}

/// Which containers are open: a stack of bits, 1 for an object.
struct Nesting {
    bits: [u64; DEPTH_MAX.div_ceil(64)],
    depth: usize,
}

impl Nesting {
    fn push(&mut self, object: bool) -> Option<()> {
        if self.depth >= DEPTH_MAX {
            return None;
        }
        let word = self.bits.get_mut(self.depth / 64)?;
        let bit = 1 << (self.depth % 64);
        *word = if object { *word | bit } else { *word & !bit };
        self.depth += 1;
        Some(())
    }

    /// Closes the innermost container; whether the one around it is an object.
    fn pop(&mut self) -> bool {
        self.depth -= 1;
        let around = self.depth.wrapping_sub(1);
        self.bits.get(around / 64).is_some_and(|word| word >> (around % 64) & 1 == 1)
    }
}

/// `None` stands for an error throughout.
struct Validator<'a> {
    text: &'a [u8],
    at: usize,
}

impl Validator<'_> {
    fn run(&mut self) -> Option<()> {
        let mut nesting = Nesting { bits: [0; DEPTH_MAX.div_ceil(64)], depth: 0 };
        let mut object = false;
        loop {
            // At a value.
            match self.peek_token()? {
                b'{' => {
                    nesting.push(true)?;
                    self.at += 1;
                    if self.peek_token()? != b'}' {
                        object = true;
                        self.key()?;
                        continue;
                    }
                    self.at += 1;
                    object = nesting.pop();
                }
                b'[' => {
                    nesting.push(false)?;
                    self.at += 1;
                    if self.peek_token()? != b']' {
                        object = false;
                        continue;
                    }
                    self.at += 1;
                    object = nesting.pop();
                }
                b'"' => self.string()?,
                b'-' | b'0'..=b'9' => self.number()?,
                _ => self.keyword()?,
            }
            // Behind a value.
            loop {
                if nesting.depth == 0 {
                    return (self.at == self.text.len()).then_some(());
                }
                match self.peek_token()? {
                    b',' => {
                        self.at += 1;
                        if object {
                            self.peek_token()?;
                            self.key()?;
                        }
                        break;
                    }
                    b'}' if object => {}
                    b']' if !object => {}
                    _ => return None,
                }
                self.at += 1;
                object = nesting.pop();
            }
        }
    }

    #[inline(always)]
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Skips white space.
    #[inline(always)]
    fn peek_token(&mut self) -> Option<u8> {
        loop {
            match self.peek()? {
                b' ' | b'\t' | b'\n' | b'\r' => self.at += 1,
                c => return Some(c),
            }
        }
    }

    /// A key and its colon.
    #[inline(always)]
    fn key(&mut self) -> Option<()> {
        if self.peek()? != b'"' {
            return None;
        }
        self.string()?;
        if self.peek_token()? != b':' {
            return None;
        }
        self.at += 1;
        Some(())
    }

    #[inline(always)]
    fn string(&mut self) -> Option<()> {
        self.at += 1;
        loop {
            self.at += scan::special(self.text.get(self.at..)?);
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Some(());
                }
                b'\\' => self.escape()?,
                _ => return None,
            }
        }
    }

    fn escape(&mut self) -> Option<()> {
        match self.text.get(self.at + 1)? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 2,
            b'u' => {
                let (_, len) = string::code_point(self.text.get(self.at + 2..)?).ok()?;
                self.at += 2 + len;
            }
            _ => return None,
        }
        Some(())
    }

    fn keyword(&mut self) -> Option<()> {
        let rest = self.text.get(self.at..)?;
        let len =
            ["null", "true", "false"].into_iter().find(|w| rest.starts_with(w.as_bytes()))?.len();
        if rest.get(len).is_some_and(u8::is_ascii_alphabetic) {
            return None;
        }
        self.at += len;
        Some(())
    }

    #[inline(always)]
    fn number(&mut self) -> Option<()> {
        let start = self.at;
        if self.peek()? == b'-' {
            self.at += 1;
        }
        let first = self.at;
        self.digits();
        let len = self.at - first;
        if len == 0 || (len > 1 && self.text.get(first) == Some(&b'0')) {
            return None;
        }
        match self.peek() {
            Some(b'.' | b'e' | b'E' | b'+' | b'-') => self.rare_number(start),
            _ if len > LONG_NUMBER => self.rare_number(start),
            _ => Some(()),
        }
    }

    #[inline(always)]
    fn digits(&mut self) {
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
    }

    /// A number with a fraction or exponent, or a very long one.
    fn rare_number(&mut self, start: usize) -> Option<()> {
        while let Some(b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-') = self.peek() {
            self.at += 1;
        }
        number::parse(self.text.get(start..self.at)?).ok().map(drop)
    }
}

/// Integers with no more digits than this are in the range of a double.
const LONG_NUMBER: usize = 300;

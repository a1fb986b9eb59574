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
    if root && run(text).is_some() {
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
    let mut text = skip_space(input);
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

/// Goes over one value and all that is in it. `None` stands for an error here and below;
/// what is given and returned is the text that is left.
fn run(text: &[u8]) -> Option<()> {
    let mut nesting = Nesting { bits: [0; DEPTH_MAX.div_ceil(64)], depth: 0 };
    let mut object = false;
    let mut rest = text;
    loop {
        // At a value.
        rest = match token(rest) {
            [b'"', body @ ..] => string(body)?,
            [b'{', after @ ..] => {
                nesting.push(true)?;
                match token(after) {
                    [b'}', after @ ..] => {
                        object = nesting.pop();
                        after
                    }
                    after => {
                        object = true;
                        rest = key(after)?;
                        continue;
                    }
                }
            }
            [b'[', after @ ..] => {
                nesting.push(false)?;
                match token(after) {
                    [b']', after @ ..] => {
                        object = nesting.pop();
                        after
                    }
                    after => {
                        object = false;
                        rest = after;
                        continue;
                    }
                }
            }
            number @ [b'-' | b'0'..=b'9', ..] => self::number(number)?,
            word => keyword(word)?,
        };
        // Behind a value.
        loop {
            if nesting.depth == 0 {
                return rest.is_empty().then_some(());
            }
            match token(rest) {
                [b',', after @ ..] => {
                    rest = if object { key(token(after))? } else { after };
                    break;
                }
                [b'}', after @ ..] if object => rest = after,
                [b']', after @ ..] if !object => rest = after,
                _ => return None,
            }
            object = nesting.pop();
        }
    }
}

/// Skips white space, which is rare.
#[inline(always)]
fn token(text: &[u8]) -> &[u8] {
    match text {
        [b' ' | b'\t' | b'\n' | b'\r', ..] => skip_space(text),
        _ => text,
    }
}

/// Skips white space at the start.
#[cold]
pub(crate) fn skip_space(text: &[u8]) -> &[u8] {
    let mut rest = text;
    while let [b' ' | b'\t' | b'\n' | b'\r', after @ ..] = rest {
        rest = after;
    }
    rest
}

/// A key and its colon.
#[inline(always)]
fn key(text: &[u8]) -> Option<&[u8]> {
    let [b'"', body @ ..] = text else { return None };
    match token(string(body)?) {
        [b':', after @ ..] => Some(after),
        _ => None,
    }
}

/// A string from behind its opening quote.
#[inline(always)]
fn string(body: &[u8]) -> Option<&[u8]> {
    let mut rest = body;
    loop {
        match rest.get(scan::special(rest)..)? {
            [b'"', after @ ..] => return Some(after),
            [b'\\', escape @ ..] => rest = self::escape(escape)?,
            _ => return None,
        }
    }
}

/// An escape from behind its backslash.
#[inline]
fn escape(escape: &[u8]) -> Option<&[u8]> {
    match escape {
        [b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', after @ ..] => Some(after),
        [b'u', digits @ ..] => {
            let (_, len) = string::code_point(digits).ok()?;
            digits.get(len..)
        }
        _ => None,
    }
}

fn keyword(text: &[u8]) -> Option<&[u8]> {
    let after =
        ["null", "true", "false"].into_iter().find_map(|w| text.strip_prefix(w.as_bytes()))?;
    match after.first() {
        Some(c) if c.is_ascii_alphabetic() => None,
        _ => Some(after),
    }
}

#[inline(always)]
fn number(text: &[u8]) -> Option<&[u8]> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let mut rest = digits;
    while let [b'0'..=b'9', after @ ..] = rest {
        rest = after;
    }
    let len = digits.len() - rest.len();
    if len == 0 || (len > 1 && digits.first() == Some(&b'0')) {
        return None;
    }
    match rest {
        [b'.' | b'e' | b'E' | b'+' | b'-', ..] => rare_number(text),
        _ if len > LONG_NUMBER => rare_number(text),
        _ => Some(rest),
    }
}

/// Integers with no more digits than this are in the range of a double.
const LONG_NUMBER: usize = 300;

/// A number with a fraction or exponent, or a very long one.
fn rare_number(text: &[u8]) -> Option<&[u8]> {
    let belongs = |c: &u8| matches!(c, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
    let len = text.iter().position(|c| !belongs(c)).unwrap_or(text.len());
    let (token, after) = text.split_at(len);
    number::parse(token).ok().map(|_| after)
}

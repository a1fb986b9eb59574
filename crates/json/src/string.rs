//! The escapes of JSON strings.

use std::fmt;

use crate::scan;

/// Why the escapes of a string are bad; displayed as the reference words it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EscapeError {
    /// A backslash before a byte that it does not go with.
    Bad(u8),
    /// Fewer than four bytes behind `\u`.
    Ends,
    /// Not four hexadecimal digits behind `\u`.
    Malformed,
    /// `\u0000`.
    Null,
    /// No `\u` behind a leading surrogate.
    Pair,
    /// Another `\u` behind a leading surrogate.
    NotTrailing,
}

impl fmt::Display for EscapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            // To the reference a zero byte is the end.
            Self::Bad(0) => "quoted string may not end with backslash",
            Self::Bad(c) if c.is_ascii() => return write!(f, "bad escape \\{}", char::from(*c)),
            Self::Bad(_) => "bad escape \\\u{fffd}",
            Self::Ends => "quoted string ends within \\u escape",
            Self::Malformed => "malformed \\u escape",
            Self::Null => "null bytes not supported in quoted strings",
            Self::Pair => "malformed escaped surrogate pair",
            Self::NotTrailing => "second half of escaped surrogate pair is not trailing surrogate",
        })
    }
}

/// Appends what `body`, the inside of a quoted string, stands for.
pub(crate) fn unescape(body: &[u8], out: &mut Vec<u8>) -> Result<(), EscapeError> {
    let mut rest = body;
    // As in `write_string_bytes`: whole lanes, of which the end may be taken back.
    while let Some((lane, after)) = rest.split_first_chunk::<{ scan::LANE }>() {
        out.extend_from_slice(lane);
        let plain = scan::backslash_in_lane(lane);
        rest = if plain == scan::LANE {
            after
        } else {
            out.truncate(out.len() - (scan::LANE - plain));
            unescape_at(rest, plain, out)?
        };
    }
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(rest.get(..at).unwrap_or_default());
        rest = unescape_at(rest, at, out)?;
    }
    out.extend_from_slice(rest);
    Ok(())
}

/// Handles the escape whose backslash is at `at`; returns what is behind it.
fn unescape_at<'a>(text: &'a [u8], at: usize, out: &mut Vec<u8>) -> Result<&'a [u8], EscapeError> {
    let escape = text.get(at + 1..).unwrap_or_default();
    let used = unescape_one(escape, out)?;
    Ok(escape.get(used..).unwrap_or_default())
}

/// Handles one escape, given from behind its backslash; returns its length from there.
pub(crate) fn unescape_one(escape: &[u8], out: &mut Vec<u8>) -> Result<usize, EscapeError> {
    let &c = escape.first().ok_or(EscapeError::Ends)?;
    let plain = match c {
        b'"' | b'\\' | b'/' => c,
        b'b' => 0x08,
        b'f' => 0x0c,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'u' => {
            let (code, len) = code_point(escape.get(1..).unwrap_or_default())?;
            push_utf8(code, out);
            return Ok(1 + len);
        }
        _ => return Err(EscapeError::Bad(c)),
    };
    out.push(plain);
    Ok(1)
}

/// The code point of a `\u` escape or pair of them, given from behind the first `\u`, and
/// its length from there.
pub(crate) fn code_point(text: &[u8]) -> Result<(u32, usize), EscapeError> {
    let first = hex4(text)?;
    if !(0xd800..0xdc00).contains(&first) {
        return Ok((first, 4));
    }
    if text.get(4..6) != Some(b"\\u") {
        return Err(EscapeError::Pair);
    }
    let second = hex4(text.get(6..).unwrap_or_default())?;
    if !(0xdc00..0xe000).contains(&second) {
        return Err(EscapeError::NotTrailing);
    }
    Ok((0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00), 10))
}

fn hex4(text: &[u8]) -> Result<u32, EscapeError> {
    let digits = text.get(..4).ok_or(EscapeError::Ends)?;
    let mut code = 0;
    for &c in digits {
        let digit = char::from(c).to_digit(16).ok_or(EscapeError::Malformed)?;
        code = code << 4 | digit;
    }
    if code == 0 {
        return Err(EscapeError::Null);
    }
    Ok(code)
}

/// UTF-8, extended to lone trailing surrogates as the reference encodes them.
fn push_utf8(code: u32, out: &mut Vec<u8>) {
    match char::from_u32(code) {
        Some(c) => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        None => {
            let tail = |shift: u32| 0x80 | (code >> shift & 0x3f) as u8;
            out.extend_from_slice(&[0xe0 | (code >> 12) as u8, tail(6), tail(0)]);
        }
    }
}

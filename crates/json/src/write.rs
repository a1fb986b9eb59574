//! Writing JSON as the reference prints it.

use crate::number::{self, Number};
use crate::reader::Reader;
use crate::scan;
use crate::text::{Text, sort_members};
use std::borrow::Cow;
use std::io::Write as _;

/// Appends a quoted string.
pub fn write_string(out: &mut Vec<u8>, s: &str) {
    write_string_bytes(out, s.as_bytes());
}

/// Appends a quoted string whose bytes may not be UTF-8; those stay as they are, and so do
/// `/`, 0x7f and all that is not ASCII.
pub fn write_string_bytes(out: &mut Vec<u8>, s: &[u8]) {
    out.reserve(room_for(s));
    out.push(b'"');
    let mut rest = s;
    // A lane is copied whole, and what must not stand there is taken back: where quotes are dense,
    // copies of a few bytes each would cost more.
    while let Some((lane, after)) = rest.split_first_chunk::<{ scan::LANE }>() {
        out.extend_from_slice(lane);
        let plain = scan::special_in_lane(lane);
        match lane.get(plain) {
            None => rest = after,
            Some(&c) => {
                out.truncate(out.len() - (scan::LANE - plain));
                write_escape(out, c);
                rest = rest.get(plain + 1..).unwrap_or_default();
            }
        }
    }
    let lane: [u8; scan::LANE] = scan::padded(rest);
    if scan::special_in_lane(&lane) < scan::LANE {
        write_bytes(out, rest);
    } else if out.capacity() - out.len() >= scan::LANE {
        // As many bytes as a register has are copied without a call.
        out.extend_from_slice(&lane);
        out.truncate(out.len() - (scan::LANE - rest.len()));
    } else {
        out.extend_from_slice(rest);
    }
    out.push(b'"');
}

/// Appends bytes one by one, with escapes.
fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    for &c in bytes {
        if scan::is_special(c) {
            write_escape(out, c);
        } else {
            out.push(c);
        }
    }
}

/// Strings from this length on are gone over once more to know how long they become, in bytes: a
/// buffer of megabytes that is too short is copied into one of twice the length.
const COUNTED_MIN: usize = 256 << 10;
/// Room that is made behind such a string for what follows it, in bytes.
const ROOM_BEHIND: usize = 4 << 10;

/// How much room a string wants at once, in bytes; at least what it needs without escapes.
fn room_for(s: &[u8]) -> usize {
    if s.len() < COUNTED_MIN {
        return s.len() + 2;
    }
    s.len() + scan::escapes_len_max(s) + ROOM_BEHIND
}

fn write_escape(out: &mut Vec<u8>, c: u8) {
    let letter = match c {
        b'"' | b'\\' => c,
        0x08 => b'b',
        0x0c => b'f',
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        _ => {
            let hex = |digit: u8| if digit < 10 { b'0' + digit } else { b'a' + digit - 10 };
            out.extend_from_slice(b"\\u00");
            out.extend_from_slice(&[hex(c >> 4), hex(c & 0xf)]);
            return;
        }
    };
    out.extend_from_slice(&[b'\\', letter]);
}

/// Appends an integer.
pub fn write_integer(out: &mut Vec<u8>, i: i64) {
    /// `-9223372036854775808`.
    const LONGEST: usize = 20;
    let mut digits = [0; LONGEST];
    let mut start = LONGEST;
    let mut left = i.unsigned_abs();
    for (at, place) in digits.iter_mut().enumerate().rev() {
        *place = b'0' + (left % 10) as u8;
        left /= 10;
        start = at;
        if left == 0 {
            break;
        }
    }
    if i < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(digits.get(start..).unwrap_or_default());
}

/// The significant digits of a real (`DBL_DIG` of C).
const REAL_DIGITS: i32 = 15;
/// Below this, whole numbers have no more digits than that.
const EXACT: f64 = 1e15;

/// Appends a real as C's `%.15g`: digits beyond the 15th are lost. What is not finite, which
/// no value of a database is, prints as C prints it.
pub fn write_real(out: &mut Vec<u8>, r: f64) {
    if r.trunc() == r && r.abs() < EXACT && (r != 0.0 || r.is_sign_positive()) {
        write_integer(out, r as i64);
        return;
    }
    if !r.is_finite() {
        let name = if r.is_nan() {
            "nan"
        } else if r > 0.0 {
            "inf"
        } else {
            "-inf"
        };
        out.extend_from_slice(name.as_bytes());
        return;
    }
    // -D.DDDDDDDDDDDDDDe-DDD
    let mut buffer = [0; 32];
    let mut left = &mut buffer[..];
    let digits = (REAL_DIGITS - 1) as usize;
    // Cannot fail: the buffer is long enough.
    let _ = write!(left, "{:.digits$e}", r.abs());
    let len = 32 - left.len();
    let text = std::str::from_utf8(buffer.get(..len).unwrap_or_default()).unwrap_or("0e0");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let digits: Vec<u8> = mantissa.bytes().filter(u8::is_ascii_digit).collect();
    let last = digits.iter().rposition(|&c| c != b'0').unwrap_or(0);
    let digits = digits.get(..=last).unwrap_or_default();
    if r.is_sign_negative() {
        out.push(b'-');
    }
    place_point(out, digits, exponent.parse().unwrap_or(0));
}

/// The real that is read from what [`write_real`] prints of `r`; `None` if that text is no number, as
/// of reals next to the largest ones and of most that are too small to be precise.
pub fn told_real(r: f64) -> Option<f64> {
    if r.trunc() == r && r.abs() < EXACT {
        return Some(r + 0.0); // never -0
    }
    let mut text = Vec::new();
    write_real(&mut text, r);
    match number::parse(&text).ok()? {
        Number::Integer(i) => Some(i as f64),
        Number::Real(r) => Some(r),
    }
}

/// Writes digits, of which the first is at 10^`exponent`, in the shorter style of `%g`.
fn place_point(out: &mut Vec<u8>, digits: &[u8], exponent: i32) {
    let zeros = |out: &mut Vec<u8>, n: usize| out.resize(out.len() + n, b'0');
    if !(-4..REAL_DIGITS).contains(&exponent) {
        let (first, fraction) = digits.split_at(1.min(digits.len()));
        out.extend_from_slice(first);
        if !fraction.is_empty() {
            out.push(b'.');
            out.extend_from_slice(fraction);
        }
        let sign = if exponent < 0 { '-' } else { '+' };
        // Writing to a vector cannot fail.
        let _ = write!(out, "e{sign}{:02}", exponent.abs());
    } else if exponent < 0 {
        out.extend_from_slice(b"0.");
        zeros(out, exponent.unsigned_abs() as usize - 1);
        out.extend_from_slice(digits);
    } else {
        let whole = exponent as usize + 1;
        let (integer, fraction) = digits.split_at(whole.min(digits.len()));
        out.extend_from_slice(integer);
        zeros(out, whole - integer.len());
        if !fraction.is_empty() {
            out.push(b'.');
            out.extend_from_slice(fraction);
        }
    }
}

/// Down to this depth the members of an unsorted object are put in order by moving what was
/// written, which copies every byte once a level; deeper ones go through a [`Node`].
const MOVE_DEPTH: usize = 8;

/// Appends a validated value in canonical form, in time linear in its length but for sorting.
pub(crate) fn write_text(text: Text<'_>, out: &mut Vec<u8>) {
    write_next(&mut text.reader(), 0, out);
}

fn write_next(reader: &mut Reader<'_>, depth: usize, out: &mut Vec<u8>) {
    if reader.begin_array() {
        out.push(b'[');
        let mut comma = false;
        while reader.next_element() {
            separate(&mut comma, out);
            write_next(reader, depth + 1, out);
        }
        out.push(b']');
    } else if depth >= MOVE_DEPTH {
        Node::read(reader).write(out);
    } else if reader.begin_object() {
        write_object(reader, depth, out);
    } else {
        write_scalar(reader.text(), out);
    }
}

/// Writes an object from behind its `{`.
fn write_object(reader: &mut Reader<'_>, depth: usize, out: &mut Vec<u8>) {
    out.push(b'{');
    let start = out.len();
    let mut comma = false;
    let mut members = Vec::new();
    while let Some(key) = reader.next_key() {
        separate(&mut comma, out);
        let from = out.len() - start;
        write_string_bytes(out, &key);
        out.push(b':');
        write_next(reader, depth + 1, out);
        members.push((key, from..out.len() - start));
    }
    if sort_members(&mut members) {
        let written = out.split_off(start);
        comma = false;
        for (_, range) in members {
            separate(&mut comma, out);
            out.extend_from_slice(written.get(range).unwrap_or_default());
        }
    }
    out.push(b'}');
}

/// A comma before all but the first.
fn separate(comma: &mut bool, out: &mut Vec<u8>) {
    if std::mem::replace(comma, true) {
        out.push(b',');
    }
}

fn write_scalar(text: Text<'_>, out: &mut Vec<u8>) {
    if let Some(string) = text.string() {
        write_string_bytes(out, &string);
        return;
    }
    match text.number() {
        Some(Number::Integer(i)) => write_integer(out, i),
        Some(Number::Real(r)) => write_real(out, r),
        None => out.extend_from_slice(text.as_bytes()),
    }
}

/// A value whose objects are sorted.
enum Node<'a> {
    Scalar(Text<'a>),
    Array(Vec<Self>),
    Object(Vec<(Cow<'a, [u8]>, Self)>),
}

impl<'a> Node<'a> {
    fn read(reader: &mut Reader<'a>) -> Self {
        if reader.begin_array() {
            let mut elements = Vec::new();
            while reader.next_element() {
                elements.push(Self::read(reader));
            }
            Self::Array(elements)
        } else if reader.begin_object() {
            let mut members = Vec::new();
            while let Some(key) = reader.next_key() {
                members.push((key, Self::read(reader)));
            }
            sort_members(&mut members);
            Self::Object(members)
        } else {
            Self::Scalar(reader.text())
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let mut comma = false;
        match self {
            Self::Scalar(text) => write_scalar(*text, out),
            Self::Array(elements) => {
                out.push(b'[');
                for element in elements {
                    separate(&mut comma, out);
                    element.write(out);
                }
                out.push(b']');
            }
            Self::Object(members) => {
                out.push(b'{');
                for (key, value) in members {
                    separate(&mut comma, out);
                    write_string_bytes(out, key);
                    out.push(b':');
                    value.write(out);
                }
                out.push(b'}');
            }
        }
    }
}

//! Numbers by value: what is an integer, what is a real, what is out of range.
//!
//! The digits are gathered into an unsigned 64-bit significand and a power of ten; if that
//! comes out as an `i64`, the number is an integer whatever its spelling. Like the
//! reference, gathering takes one more digit whenever the significand is at most
//! [`u64::MAX`] / 10, so that 2^64 up to 2^64 + 3 wrap to 0 up to 3.

use std::fmt;

/// A number by value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A number that is an integer by value, in any spelling, and fits.
    Integer(i64),
    /// A number with a fraction, or an integer that does not fit.
    Real(f64),
}

/// Why a number is none; displayed as the reference words it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberError {
    /// `01`.
    LeadingZeros,
    /// `-` alone.
    Minus,
    /// `1.`.
    Fraction,
    /// `1e`.
    Exponent,
    /// An exponent of about 2^31 or more.
    ExponentRange,
    /// `1-2`.
    Syntax,
    /// Too large for a double, or so small that precision is lost without being 0.
    Range,
}

impl fmt::Display for NumberError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LeadingZeros => "leading zeros not allowed",
            Self::Minus => "'-' must be followed by digit",
            Self::Fraction => "decimal point must be followed by digit",
            Self::Exponent => "exponent must contain at least one digit",
            Self::ExponentRange => "exponent outside valid range",
            Self::Syntax => "syntax error in number",
            Self::Range => "number outside valid range",
        })
    }
}

impl std::error::Error for NumberError {}

/// The most digits that always fit an `i64`.
const SAFE_DIGITS: usize = 18;

/// An integer in its plain spelling with few enough digits, the common case, at the start of
/// validated text; and what is behind it.
#[inline]
pub(crate) fn split_plain(text: &[u8]) -> Option<(i64, &[u8])> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let mut magnitude = 0i64;
    let mut rest = digits;
    while let [c @ b'0'..=b'9', after @ ..] = rest {
        // What overflows is too long and given up below.
        magnitude = magnitude.wrapping_mul(10).wrapping_add(i64::from(c - b'0'));
        rest = after;
    }
    let len = digits.len() - rest.len();
    if len == 0 || len > SAFE_DIGITS || matches!(rest.first(), Some(b'.' | b'e' | b'E')) {
        return None;
    }
    Some((if negative { -magnitude } else { magnitude }, rest))
}

/// The digits of a number, gathered.
#[derive(Default)]
struct Gathered {
    significand: u64,
    /// Power of ten; wide, since the exponent may reach 2^31.
    power: i64,
    /// A digit other than 0 did not fit.
    imprecise: bool,
}

impl Gathered {
    const LAST: u64 = u64::MAX / 10;

    /// Takes a digit unless the significand is full.
    fn take(&mut self, digit: u64) -> bool {
        let room = self.significand <= Self::LAST;
        if room {
            self.significand = self.significand.wrapping_mul(10).wrapping_add(digit);
        }
        room
    }

    /// The integer that was gathered, if it is one and fits.
    fn integer(mut self, negative: bool) -> Option<i64> {
        if self.imprecise {
            return None;
        }
        while self.power > 0 && self.significand < Self::LAST {
            self.significand *= 10;
            self.power -= 1;
        }
        while self.power < 0 && self.significand.is_multiple_of(10) {
            self.significand /= 10;
            self.power += 1;
        }
        if self.power != 0 {
            return None;
        }
        if negative {
            0i64.checked_sub_unsigned(self.significand)
        } else {
            i64::try_from(self.significand).ok()
        }
    }
}

/// Reads a whole number token.
///
/// # Errors
/// Bad grammar, or a value outside the range of a double.
pub fn parse(token: &[u8]) -> Result<Number, NumberError> {
    let mut at = 0;
    let peek = |at: usize| token.get(at).copied().unwrap_or(0);
    let negative = peek(at) == b'-';
    at += usize::from(negative);

    let mut gathered = Gathered::default();
    match peek(at) {
        b'0' if peek(at + 1).is_ascii_digit() => return Err(NumberError::LeadingZeros),
        b'0' => at += 1,
        b'1'..=b'9' => {
            while let c @ b'0'..=b'9' = peek(at) {
                if !gathered.take(u64::from(c - b'0')) {
                    gathered.power += 1;
                    gathered.imprecise |= c != b'0';
                }
                at += 1;
            }
        }
        _ => return Err(NumberError::Minus),
    }
    if peek(at) == b'.' {
        at += 1;
        if !peek(at).is_ascii_digit() {
            return Err(NumberError::Fraction);
        }
        while let c @ b'0'..=b'9' = peek(at) {
            if gathered.take(u64::from(c - b'0')) {
                gathered.power -= 1;
            } else {
                gathered.imprecise |= c != b'0';
            }
            at += 1;
        }
    }
    if let b'e' | b'E' = peek(at) {
        let (exponent, len) = exponent(token.get(at + 1..).unwrap_or_default())?;
        gathered.power += exponent;
        at += 1 + len;
    }
    if at != token.len() {
        return Err(NumberError::Syntax);
    }
    if gathered.significand == 0 {
        return Ok(Number::Integer(0));
    }
    match gathered.integer(negative) {
        Some(integer) => Ok(Number::Integer(integer)),
        None => real(token).map(Number::Real),
    }
}

/// The exponent at the start of `text` (behind the `e`), and its length.
fn exponent(text: &[u8]) -> Result<(i64, usize), NumberError> {
    /// The reference takes no further digit from here on.
    const LAST: i64 = i32::MAX as i64 / 10;
    let sign = match text.first() {
        Some(b'+' | b'-') => 1,
        _ => 0,
    };
    let digits = text.get(sign..).unwrap_or_default();
    let len = digits.iter().position(|c| !c.is_ascii_digit()).unwrap_or(digits.len());
    if len == 0 {
        return Err(NumberError::Exponent);
    }
    let mut value = 0i64;
    for &c in digits.iter().take(len) {
        if value >= LAST {
            return Err(NumberError::ExponentRange);
        }
        value = value * 10 + i64::from(c - b'0');
    }
    let negative = text.first() == Some(&b'-');
    Ok((if negative { -value } else { value }, sign + len))
}

/// A number of good grammar as a double, under the range rule of C's `strtod`.
fn real(token: &[u8]) -> Result<f64, NumberError> {
    let text = std::str::from_utf8(token).map_err(|_| NumberError::Syntax)?;
    let value: f64 = text.parse().map_err(|_| NumberError::Syntax)?;
    if value == 0.0 {
        return Ok(0.0); // never -0
    }
    if value.is_infinite() || (value.is_subnormal() && !is_exact(text, value)) {
        return Err(NumberError::Range);
    }
    Ok(value)
}

/// Whether a decimal text denotes exactly `value`. `strtod` reports a range error for
/// subnormal results only if they are rounded.
fn is_exact(text: &str, value: f64) -> bool {
    /// No double has more significant decimal digits than this many after the first.
    const DIGITS: usize = 1100;
    significant_digits(text) == significant_digits(&format!("{value:.DIGITS$e}"))
}

/// The digits of a decimal without point, exponent, and zeros at either end. Two subnormal
/// numbers close to each other are equal iff these are.
fn significant_digits(text: &str) -> String {
    let mantissa = text.split(['e', 'E']).next().unwrap_or(text);
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    digits.trim_matches('0').to_owned()
}

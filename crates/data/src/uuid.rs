//! UUIDs: value, text form, and a seeded source of new ones.

use std::fmt;

/// A UUID; the order is that of the text form.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid {
    high: u64,
    low: u64,
}

/// Length of the text form in bytes.
pub const TEXT_LEN: usize = 36;

const HEX: &[u8; 16] = b"0123456789abcdef";
/// Where the text form has its dashes.
const DASHES: [usize; 4] = [8, 13, 18, 23];

/// Where the text form has its digits.
const DIGITS: [usize; 32] = {
    let (mut places, mut n, mut at) = ([0; 32], 0, 0);
    while at < TEXT_LEN {
        if !matches!(at, 8 | 13 | 18 | 23) {
            places[n] = at;
            n += 1;
        }
        at += 1;
    }
    places
};
/// Where the text form has the two digits of each byte, which are never apart.
const PAIRS: [usize; 16] = {
    let (mut places, mut n) = ([0; 16], 0);
    while n < 16 {
        places[n] = DIGITS[2 * n];
        n += 1;
    }
    places
};
/// The two digits of each byte.
const HEX_PAIRS: [[u8; 2]; 256] = {
    let (mut pairs, mut byte) = ([[0; 2]; 256], 0);
    while byte < 256 {
        pairs[byte] = [HEX[byte >> 4], HEX[byte & 15]];
        byte += 1;
    }
    pairs
};
/// What each byte is as a digit; 255 for none.
const DIGIT: [u8; 256] = {
    let (mut digits, mut value) = ([255; 256], 0);
    while value < 16 {
        let digit = HEX[value as usize];
        digits[digit as usize] = value;
        digits[digit.to_ascii_uppercase() as usize] = value;
        value += 1;
    }
    digits
};

impl Uuid {
    /// The all-zeros UUID.
    pub const ZERO: Self = Self { high: 0, low: 0 };

    /// The UUID of this big-endian integer value.
    pub const fn from_u128(value: u128) -> Self {
        Self { high: (value >> 64) as u64, low: value as u64 }
    }

    /// The big-endian integer value.
    pub const fn to_u128(self) -> u128 {
        (self.high as u128) << 64 | self.low as u128
    }

    /// Parses exactly the 36-character text form, in either case.
    pub fn parse(text: &str) -> Option<Self> {
        Self::parse_bytes(text.as_bytes())
    }

    /// Parses exactly the 36-character text form, in either case, from bytes.
    pub fn parse_bytes(text: &[u8]) -> Option<Self> {
        (text.len() == TEXT_LEN).then(|| Self::parse_prefix(text)).flatten()
    }

    /// Parses the text form at the beginning of `text`; what follows is not looked at.
    pub fn parse_prefix(text: &[u8]) -> Option<Self> {
        let text: &[u8; TEXT_LEN] = text.first_chunk()?;
        if DASHES.iter().any(|at| text[*at] != b'-') {
            return None;
        }
        let (mut value, mut bad) = (0u128, 0);
        for at in DIGITS {
            let digit = DIGIT[usize::from(text[at])];
            bad |= digit;
            value = value << 4 | u128::from(digit & 15);
        }
        (bad < 16).then(|| Self::from_u128(value))
    }

    /// The 36-character text form.
    pub fn text(self) -> [u8; TEXT_LEN] {
        let mut out = [b'-'; TEXT_LEN];
        for (byte, at) in self.to_u128().to_be_bytes().into_iter().zip(PAIRS) {
            [out[at], out[at + 1]] = HEX_PAIRS[usize::from(byte)];
        }
        out
    }

    /// Appends `["uuid","..."]`, the JSON form of RFC 7047 §5.1.
    pub fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"[\"uuid\",\"");
        out.extend_from_slice(&self.text());
        out.extend_from_slice(b"\"]");
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &byte in &self.text() {
            fmt::Write::write_char(f, char::from(byte))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A seeded stream of random (version 4) UUIDs and other random words (xoshiro256++).
///
/// The core gets its randomness only from here, so a run is a function of its seed.
#[derive(Clone, Debug)]
pub struct UuidSource {
    state: [u64; 4],
}

impl UuidSource {
    /// A source that depends on nothing but `seed`.
    pub fn new(seed: [u64; 4]) -> Self {
        // The all-zeros state is the generator's only fixed point.
        let state = if seed == [0; 4] { [0x9e37_79b9_7f4a_7c15, 1, 2, 3] } else { seed };
        Self { state }
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// The next random UUID.
    pub fn next_uuid(&mut self) -> Uuid {
        let high = self.next_u64() & !0xf000 | 0x4000;
        let low = self.next_u64() & !(3 << 62) | 1 << 63;
        Uuid { high, low }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips_in_either_case() {
        let text = "01234567-89ab-cdef-0123-456789abcdef";
        let uuid = Uuid::parse(text).unwrap();
        assert_eq!(uuid.to_string(), text);
        assert_eq!(Uuid::parse(&text.to_uppercase()), Some(uuid));
        assert_eq!(Uuid::parse(&text[1..]), None);
        assert_eq!(Uuid::parse("01234567-89ab-cdef-0123x456789abcdef"), None);
    }

    #[test]
    fn random_uuids_are_version_4_and_follow_the_seed() {
        let mut a = UuidSource::new([1, 2, 3, 4]);
        let mut b = UuidSource::new([1, 2, 3, 4]);
        for _ in 0..100 {
            let uuid = a.next_uuid();
            assert_eq!(uuid, b.next_uuid());
            let text = uuid.to_string();
            assert_eq!(&text[14..15], "4");
            assert!(matches!(&text[19..20], "8" | "9" | "a" | "b"));
        }
    }
}

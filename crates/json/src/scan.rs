//! Looking at many bytes at once: ends of strings, brackets outside strings.
//!
//! Sixteen bytes are compared in one register, which every 64-bit processor has.

use wide::u8x16;

/// Bytes of a [`Block`].
pub(crate) const BLOCK: usize = 64;

/// Bytes that [`special`] looks at in one go.
pub(crate) const LANE: usize = 16;

/// Where the interesting bytes of 64 bytes are; bit i is byte i.
#[derive(Clone, Copy)]
pub(crate) struct Block {
    pub(crate) quote: u64,
    pub(crate) backslash: u64,
    pub(crate) open: u64,
    pub(crate) close: u64,
}

/// Bits of quotes, backslashes and control characters.
#[inline(always)]
fn special_mask(bytes: [u8; LANE]) -> u32 {
    let lane = u8x16::new(bytes);
    let control = lane.min(u8x16::splat(0x1f)).simd_eq(lane);
    (control | equal(lane, b'"') | equal(lane, b'\\')).to_bitmask()
}

/// Bits of quotes, backslashes, opening and closing brackets.
#[inline(always)]
fn structure_masks(bytes: [u8; LANE]) -> [u64; 4] {
    let lane = u8x16::new(bytes);
    // `[` and `{`, `]` and `}` differ in this one bit.
    let folded = lane | u8x16::splat(0x20);
    [equal(lane, b'"'), equal(lane, b'\\'), equal(folded, b'{'), equal(folded, b'}')]
        .map(|lanes| u64::from(lanes.to_bitmask()))
}

#[inline(always)]
fn equal(lane: u8x16, byte: u8) -> u8x16 {
    lane.simd_eq(u8x16::splat(byte))
}

#[inline(always)]
pub(crate) fn is_special(c: u8) -> bool {
    c < 0x20 || c == b'"' || c == b'\\'
}

/// Index of the first quote, backslash or control character in a lane; [`LANE`] if there is none.
#[inline(always)]
pub(crate) fn special_in_lane(lane: &[u8; LANE]) -> usize {
    (special_mask(*lane).trailing_zeros() as usize).min(LANE)
}

/// By how much text may become longer when it is escaped, in bytes.
pub(crate) fn escapes_len_max(bytes: &[u8]) -> usize {
    /// `\u001f` is so much longer than what it stands for.
    const LONGEST: usize = 5;
    let (lanes, rest) = bytes.as_chunks::<LANE>();
    let in_lanes = lanes.iter().map(|lane| {
        let lane = u8x16::new(*lane);
        let control = lane.min(u8x16::splat(0x1f)).simd_eq(lane).to_bitmask().count_ones();
        let letters = (equal(lane, b'"') | equal(lane, b'\\')).to_bitmask().count_ones();
        letters as usize + control as usize * LONGEST
    });
    in_lanes.sum::<usize>() + rest.len() * LONGEST
}

/// Index of the first backslash in a lane; [`LANE`] if there is none.
#[inline(always)]
pub(crate) fn backslash_in_lane(lane: &[u8; LANE]) -> usize {
    let mask = equal(u8x16::new(*lane), b'\\').to_bitmask();
    (mask.trailing_zeros() as usize).min(LANE)
}

/// Index of the first quote, backslash or control character; the length if there is none.
#[inline(always)]
pub(crate) fn special(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while let Some((lane, after)) = rest.split_first_chunk::<LANE>() {
        let mask = special_mask(*lane);
        if mask != 0 {
            return bytes.len() - rest.len() + mask.trailing_zeros() as usize;
        }
        rest = after;
    }
    let tail = rest.iter().position(|&c| is_special(c)).unwrap_or(rest.len());
    bytes.len() - rest.len() + tail
}

impl Block {
    #[inline(always)]
    pub(crate) fn new(bytes: &[u8; BLOCK]) -> Self {
        let mut all = [0; 4];
        for (i, lane) in bytes.as_chunks::<LANE>().0.iter().enumerate() {
            for (sum, part) in all.iter_mut().zip(structure_masks(*lane)) {
                *sum |= part << (i * LANE);
            }
        }
        let [quote, backslash, open, close] = all;
        Self { quote, backslash, open, close }
    }
}

/// What must be known about the text before a block to find the brackets in it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Quoting {
    /// All ones inside a string, else 0.
    in_string: u64,
    /// 1 if the last byte escapes the next one.
    escape: u64,
}

/// Brackets outside strings; bit i is byte i.
#[derive(Clone, Copy)]
pub(crate) struct Brackets {
    pub(crate) open: u64,
    pub(crate) close: u64,
}

impl Quoting {
    /// Whether the next byte is inside a string, and whether it is escaped.
    pub(crate) fn state(&self) -> (bool, bool) {
        (self.in_string != 0, self.escape != 0)
    }

    /// The brackets of the next block, of which `len` bytes (at most [`BLOCK`]) count.
    #[inline(always)]
    pub(crate) fn brackets(&mut self, block: Block, len: usize) -> Brackets {
        let (escaped, overflow) = escaped(block.backslash, self.escape);
        self.escape = if len == BLOCK { overflow } else { escaped >> len & 1 };
        let inside = prefix_xor(block.quote & !escaped) ^ self.in_string;
        self.in_string = ((inside << (BLOCK - len)) as i64 >> 63) as u64;
        Brackets { open: block.open & !inside, close: block.close & !inside }
    }
}

/// The bytes behind an unescaped backslash, and whether that goes on into the next block; `carry`
/// is 1 if the first byte is such a one.
///
/// In a run of backslashes every other one escapes, beginning with the first. A run that begins at
/// an odd place is told from the others by what adding its beginning to it carries out of it (Langdale
/// and Lemire, "Parsing Gigabytes of JSON per Second", 2019, section 3.1.1).
#[inline(always)]
fn escaped(backslash: u64, carry: u64) -> (u64, u64) {
    const EVEN: u64 = 0x5555_5555_5555_5555;
    let backslash = backslash & !carry;
    let behind = backslash << 1 | carry;
    let odd_beginnings = backslash & !EVEN & !behind;
    let (carried, overflow) = odd_beginnings.overflowing_add(backslash);
    ((EVEN ^ carried << 1) & behind, u64::from(overflow))
}

/// Bit i is the parity of bits 0 to i: which bytes are inside quotes.
#[inline(always)]
fn prefix_xor(mut bits: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << shift;
    }
    bits
}

/// Splits off up to [`BLOCK`] bytes, padded with spaces: (block, how many, rest).
#[inline(always)]
pub(crate) fn split_block(bytes: &[u8]) -> (Block, usize, &[u8]) {
    if let Some((block, rest)) = bytes.split_first_chunk::<BLOCK>() {
        return (Block::new(block), BLOCK, rest);
    }
    (Block::new(&padded(bytes)), bytes.len(), &[])
}

/// Bytes that are too few, with spaces behind them.
#[inline(always)]
pub(crate) fn padded<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut padded = [b' '; N];
    if let Some(start) = padded.get_mut(..bytes.len()) {
        start.copy_from_slice(bytes);
    }
    padded
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Byte by byte.
    fn escaped_slowly(backslash: u64, carry: u64) -> (u64, u64) {
        let (mut escaped, mut is_escaped) = (0, carry == 1);
        for at in 0..64 {
            escaped |= u64::from(is_escaped) << at;
            is_escaped = !is_escaped && backslash >> at & 1 == 1;
        }
        (escaped, u64::from(is_escaped))
    }

    #[test]
    fn text_never_becomes_longer_than_is_said() {
        for text in ["", "\"", "\u{1f}", "plain", "a \"quoted\" \\ and \u{1} a long tail of text\n"]
        {
            for times in 0..20 {
                let text = text.repeat(times);
                let mut written = Vec::new();
                crate::write_string(&mut written, &text);
                let longer = written.len() - 2 - text.len();
                assert!(longer <= escapes_len_max(text.as_bytes()), "{text:?}");
            }
        }
    }

    #[test]
    fn runs_of_backslashes_escape_every_other_byte() {
        let mut random = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        for _ in 0..100_000 {
            let (a, b, c) = (next(), next(), next());
            for backslash in [a, a | b, a | b | c, a & b & c, !(a & b & c), u64::MAX, 0] {
                for carry in [0, 1] {
                    let expected = escaped_slowly(backslash, carry);
                    assert_eq!(escaped(backslash, carry), expected, "{backslash:b} {carry}");
                }
            }
        }
    }
}

//! What a record says of how much of its file was on the disk when the record was made.

/// The comment of a record whose writer says how much of its file it knew to be on the disk by
/// then: `synced N`, N being the bytes behind the file's first record. Whoever else reads the file
/// takes it for a remark.
///
/// A power failure may keep a later part of what was not synced and lose an earlier one. That lacks
/// nothing that was promised as long as no record says that it was on the disk
/// (`docs/decisions/016`).
#[derive(Clone, Copy, Debug)]
pub struct Synced {
    /// The comment, up to the end.
    text: [u8; TEXT_MAX],
    start: usize,
}

const WORD: &[u8] = b"synced ";

/// What a body begins with in front of [`WORD`]: the comment is its first member.
const COMMENT: &[u8] = b"{\"comment\":\"";

const DIGITS_MAX: usize = 20;
const TEXT_MAX: usize = WORD.len() + DIGITS_MAX;

impl Synced {
    /// The comment for so many bytes behind the file's first record.
    pub fn new(bytes: u64) -> Self {
        let (mut text, mut start, mut left) = ([0; TEXT_MAX], TEXT_MAX, bytes);
        let mut put = |part: &[u8]| {
            start -= part.len();
            text[start..start + part.len()].copy_from_slice(part);
        };
        loop {
            let digit = u8::try_from(left % 10).expect("a digit");
            put(&[b'0' + digit]);
            left /= 10;
            if left == 0 {
                break;
            }
        }
        put(WORD);
        Self { text, start }
    }

    /// The comment.
    pub fn as_str(&self) -> &str {
        let text = self.text.get(self.start..).unwrap_or_default();
        std::str::from_utf8(text).expect("a word and digits")
    }

    /// What a record's body says whose beginning is given, if the comment is its first member.
    pub(crate) fn of_body(body: &[u8]) -> Option<u64> {
        let text = body.strip_prefix(COMMENT)?;
        let end = text.iter().take(TEXT_MAX + 1).position(|byte| *byte == b'"')?;
        Self::of(text.get(..end)?)
    }

    /// What a comment says. Only what [`Synced::new`] makes is taken for it.
    pub(crate) fn of(comment: &[u8]) -> Option<u64> {
        let digits = comment.strip_prefix(WORD)?;
        let is_number = digits.iter().all(u8::is_ascii_digit);
        let is_usual = is_number && (digits == b"0" || !digits.starts_with(b"0"));
        std::str::from_utf8(digits).ok().filter(|_| is_usual)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(comment: &str) -> Option<u64> {
        let body = format!("{{\"comment\":\"{comment}\",\"term\":1}}\n");
        let read = Synced::of(comment.as_bytes());
        assert_eq!(Synced::of_body(body.as_bytes()), read);
        read
    }

    #[test]
    fn a_number_is_read_again() {
        for bytes in [0, 7, 10, 12_345, u64::MAX - 1, u64::MAX] {
            let comment = Synced::new(bytes);
            assert_eq!(comment.as_str(), format!("synced {bytes}"));
            assert_eq!(of(comment.as_str()), Some(bytes));
        }
        assert!(Synced::new(u64::MAX).as_str().len() <= TEXT_MAX);
    }

    #[test]
    fn anything_else_is_a_remark() {
        let others = [
            "synced",
            "synced ",
            "synced -1",
            "synced +1",
            "synced 01",
            "synced 1 ",
            "synced  1",
            "Synced 1",
            "synced 0x1",
            "synced 1\\n",
            "not synced 1",
            "synced 18446744073709551616",
            "synced 000000000000000000001",
        ];
        for other in others {
            assert_eq!(of(other), None, "{other}");
        }
        for body in [
            "",
            "{",
            "{\"comment\":\"synced 1",
            "{ \"comment\":\"synced 1\"}",
            "{\"term\":1,\"comment\":\"synced 1\"}",
            "{\"note\":\"synced 1\"}",
        ] {
            assert_eq!(Synced::of_body(body.as_bytes()), None, "{body}");
        }
    }
}

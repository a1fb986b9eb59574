//! What a record says of itself beside what it changes: when it was made, and why.

/// When a record was made, and its comment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// `_date`, in ms since 1970.
    pub date_ms: Option<i64>,
    /// `_comment`
    pub comment: Option<String>,
}

impl Note {
    /// The note of a record that Weir wrote, of which `body` is the beginning: what is asked for
    /// stands in front. What is not there as Weir writes it is not found.
    pub fn of_beginning(body: &[u8]) -> Self {
        Self::read(body).unwrap_or_default()
    }

    fn read(body: &[u8]) -> Option<Self> {
        let rest = body.strip_prefix(b"{\"_date\":")?;
        let end = rest.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b'-'))?;
        let (digits, rest) = rest.split_at(end);
        let date_ms = Some(std::str::from_utf8(digits).ok()?.parse().ok()?);
        let rest = rest.strip_prefix(b",\"_is_diff\":true").unwrap_or(rest);
        Some(Self { date_ms, comment: comment(rest) })
    }
}

fn comment(rest: &[u8]) -> Option<String> {
    let text = rest.strip_prefix(b",\"_comment\":")?;
    let mut is_escaped = false;
    let end = text.iter().skip(1).position(|byte| {
        let ends = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        ends
    })?;
    let text = weir_json::validate_value(text.get(..end + 2)?).ok()?;
    Some(text.str()?.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_and_comment_stand_in_front() {
        for (body, date_ms, comment) in [
            (r#"{"_date":-12,"T":{}}"#, Some(-12), None),
            (r#"{"_date":12,"_is_diff":true,"T":{}}"#, Some(12), None),
            (
                r#"{"_date":1,"_is_diff":true,"_comment":"a \\\" b","T":"#,
                Some(1),
                Some(r#"a \" b"#),
            ),
            (r#"{"_date":1,"_comment":"a","T":{"#, Some(1), Some("a")),
            (r#"{"_date":1,"_comment":"","T":{"#, Some(1), Some("")),
            (r#"{"_date":1,"_comment":"cut of"#, Some(1), None),
            (r#"{"T":{},"_date":1}"#, None, None),
            (r#"{"_date":"#, None, None),
            ("", None, None),
        ] {
            let comment = comment.map(str::to_owned);
            assert_eq!(Note::of_beginning(body.as_bytes()), Note { date_ms, comment }, "{body}");
        }
    }
}

//! A record whose long member goes by while the others are kept.
//!
//! ```text
//! {"term":2,"data":[null,{…}],"index":7}  ──►  {"term":2,"data":null,"index":7}, and where […] was
//! ```

use std::ops::Range;

use weir_json::Framer;

use crate::standalone::split::Unusual;

/// Takes a record's body in pieces.
pub(super) struct Outline {
    /// The key of the member that goes by.
    long: &'static str,
    /// The record with `null` in place of the long member.
    kept: Vec<u8>,
    /// Bytes that have come.
    taken: u64,
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    /// Where in `kept` the last string of the record's own level begins and ends.
    string: Range<usize>,
    /// Behind the long member's key and colon.
    at_value: bool,
    /// In the long member, which begins at this place.
    inside: Option<(Framer, u64)>,
    range: Option<Range<u64>>,
}

impl Outline {
    pub(super) fn new(long: &'static str) -> Self {
        Self {
            long,
            kept: Vec::new(),
            taken: 0,
            depth: 0,
            in_string: false,
            is_escaped: false,
            string: 0..0,
            at_value: false,
            inside: None,
            range: None,
        }
    }

    /// Takes the next bytes; `each` gets those of the long member.
    pub(super) fn feed(
        &mut self,
        mut bytes: &[u8],
        each: &mut dyn FnMut(&[u8]) -> Result<(), Unusual>,
    ) -> Result<(), Unusual> {
        while let Some(&byte) = bytes.first() {
            if let Some((framer, start)) = &mut self.inside {
                let end = framer.feed(bytes).map_err(|_| Unusual)?;
                let (member, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
                each(member)?;
                self.taken += member.len() as u64;
                if end.is_some() {
                    self.range = Some(*start..self.taken);
                    self.inside = None;
                }
                bytes = rest;
            } else if self.at_value && byte == b'[' {
                if self.range.is_some() {
                    return Err(Unusual);
                }
                self.kept.extend_from_slice(b"null");
                self.at_value = false;
                self.inside = Some((Framer::new(), self.taken));
            } else {
                self.step(byte);
                bytes = bytes.get(1..).unwrap_or_default();
            }
        }
        Ok(())
    }

    /// The record without its long member, and where in the body that is, in bytes.
    pub(super) fn finish(self) -> Result<(Vec<u8>, Option<Range<u64>>), Unusual> {
        if self.inside.is_some() { Err(Unusual) } else { Ok((self.kept, self.range)) }
    }

    /// Keeps a byte that is not the long member's.
    fn step(&mut self, byte: u8) {
        self.taken += 1;
        let is_own = self.depth == 1;
        if self.in_string {
            let is_escaped = std::mem::take(&mut self.is_escaped);
            self.is_escaped = !is_escaped && byte == b'\\';
            if !is_escaped && byte == b'"' {
                self.in_string = false;
                self.string.end = if is_own { self.kept.len() } else { 0 };
            }
        } else {
            match byte {
                b'"' => {
                    self.in_string = true;
                    self.string = self.kept.len() + 1..0;
                    self.at_value = false;
                }
                b':' => {
                    let key = self.kept.get(self.string.clone());
                    self.at_value = is_own && key == Some(self.long.as_bytes());
                }
                b' ' | b'\t' | b'\n' | b'\r' => {}
                _ => {
                    self.at_value = false;
                    match byte {
                        b'[' | b'{' => self.depth += 1,
                        b']' | b'}' => self.depth = self.depth.saturating_sub(1),
                        _ => {}
                    }
                }
            }
        }
        self.kept.push(byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outline(text: &str, piece: usize) -> Result<(String, Option<String>), Unusual> {
        let (mut outline, mut long) = (Outline::new("data"), Vec::new());
        for piece in text.as_bytes().chunks(piece) {
            outline.feed(piece, &mut |bytes| {
                long.extend_from_slice(bytes);
                Ok(())
            })?;
        }
        let (kept, range) = outline.finish()?;
        let range = range.map(|range| &text[range.start as usize..range.end as usize]);
        assert_eq!(String::from_utf8_lossy(&long), range.unwrap_or_default());
        Ok((String::from_utf8(kept).unwrap(), range.map(str::to_owned)))
    }

    #[test]
    fn the_long_member_goes_by_however_the_record_is_cut() {
        for piece in [1, 2, 5, 1000] {
            for (text, kept, long) in [
                (
                    r#"{"term":2,"data" : [null,{"]}\\\"":["data"]}],"index":7}"#,
                    r#"{"term":2,"data" : null,"index":7}"#,
                    Some(r#"[null,{"]}\\\"":["data"]}]"#),
                ),
                (r#"{"data":[],"a":"data"}"#, r#"{"data":null,"a":"data"}"#, Some("[]")),
                (r#"{"a":"data","b":[1]}"#, r#"{"a":"data","b":[1]}"#, None),
                (r#"{"a":{"data":[1]},"data":3}"#, r#"{"a":{"data":[1]},"data":3}"#, None),
                (r#"{"\\":1,"data\"":[1]}"#, r#"{"\\":1,"data\"":[1]}"#, None),
                (r#"{"data":{"a":[1]}}"#, r#"{"data":{"a":[1]}}"#, None),
            ] {
                let (found, range) = outline(text, piece).unwrap();
                assert_eq!((found.as_str(), range.as_deref()), (kept, long));
            }
            assert!(outline(r#"{"data":[1],"data":[2]}"#, piece).is_err());
            assert!(outline(r#"{"data":[1"#, piece).is_err());
        }
    }
}

//! Finds where a JSON message ends in a byte stream.

/// The scanner's state between two chunks of one stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Framer {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Framer {
    /// Scans `chunk`, which continues the bytes seen so far. When a message ends in it, returns
    /// the number of bytes up to and with its last one; the rest was not looked at.
    pub(crate) fn scan(&mut self, chunk: &[u8]) -> Option<usize> {
        let mut at = 0;
        while at < chunk.len() {
            if self.in_string {
                at += self.skip_string(&chunk[at..]);
                continue;
            }
            match chunk[at] {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Some(at + 1);
                    }
                }
                _ => {}
            }
            at += 1;
        }
        None
    }

    /// Moves to the string's end or the chunk's; returns the number of bytes passed.
    fn skip_string(&mut self, chunk: &[u8]) -> usize {
        let mut at = 0;
        if self.escaped {
            self.escaped = false;
            at = 1;
        }
        while let Some(found) = memchr::memchr2(b'"', b'\\', &chunk[at.min(chunk.len())..]) {
            at += found + 1;
            if chunk[at - 1] == b'"' {
                self.in_string = false;
                return at;
            }
            if at == chunk.len() {
                self.escaped = true;
                return at;
            }
            at += 1;
        }
        chunk.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] = br#"{"a":"}\"]\\","b":[1,{}]} ["x\\\"y"]{}"#;

    #[test]
    fn messages_end_where_their_brackets_close() {
        let mut framer = Framer::default();
        let first = framer.scan(STREAM).unwrap();
        assert_eq!(&STREAM[..first], br#"{"a":"}\"]\\","b":[1,{}]}"#);
        let second = framer.scan(&STREAM[first..]).unwrap();
        assert_eq!(&STREAM[first..first + second], br#" ["x\\\"y"]"#);
        assert_eq!(framer.scan(&STREAM[first + second..]), Some(2));
    }

    #[test]
    fn any_split_of_the_stream_gives_the_same_ends() {
        for split in 0..=STREAM.len() {
            for other in split..=STREAM.len() {
                let chunks = [&STREAM[..split], &STREAM[split..other], &STREAM[other..]];
                let mut framer = Framer::default();
                let (mut base, mut ends) = (0, Vec::new());
                for chunk in chunks {
                    let mut at = 0;
                    while let Some(end) = framer.scan(&chunk[at..]) {
                        at += end;
                        ends.push(base + at);
                    }
                    base += chunk.len();
                }
                assert_eq!(ends, [25, 36, 38], "split at {split} and {other}");
            }
        }
    }
}

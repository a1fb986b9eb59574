//! Streams of messages, cut into pieces anywhere.

use proptest::prelude::*;
use weir_json::{DEPTH_MAX, Framer};

/// Feeds a stream in pieces; where messages end.
fn ends(pieces: &[&[u8]]) -> Result<Vec<usize>, String> {
    let mut framer = Framer::new();
    let mut ends = Vec::new();
    let mut before = 0;
    for piece in pieces {
        let mut rest = *piece;
        while let Some(n) = framer.feed(rest).map_err(|e| e.to_string())? {
            before += n;
            rest = &rest[n..];
            ends.push(before);
            assert!(framer.is_idle());
        }
        before += rest.len();
    }
    Ok(ends)
}

/// The ends of all messages of a stream, found one byte at a time and with no tricks.
fn slow_ends(stream: &[u8]) -> Vec<usize> {
    let (mut depth, mut in_string, mut escape) = (0, false, false);
    let mut ends = Vec::new();
    for (i, &c) in stream.iter().enumerate() {
        let escaped = std::mem::take(&mut escape);
        match c {
            b'\\' if !escaped => escape = true,
            b'"' if !escaped => in_string = !in_string,
            b'[' | b'{' if !in_string => depth += 1,
            b']' | b'}' if !in_string => {
                depth -= 1;
                if depth == 0 {
                    ends.push(i + 1);
                }
            }
            _ => {}
        }
    }
    ends
}

const STREAM: &[u8] =
    br#" {"method":"echo","params":["]}\"",{"a\\":[[],{}]}],"id":0}{"id":"\\\\","r":"[{"}
[1,[2,[3,"a long string that goes over the end of a block of sixty-four bytes \\\\\\\" [[[["]]] {"#;

#[test]
fn every_cut_gives_the_same_messages() {
    let whole = ends(&[STREAM]).unwrap();
    assert_eq!(whole, slow_ends(STREAM));
    assert_eq!(whole.len(), 3);
    for cut in 0..=STREAM.len() {
        let (a, b) = STREAM.split_at(cut);
        assert_eq!(ends(&[a, b]).unwrap(), whole, "cut at {cut}");
        for second in 0..=b.len() {
            let (b, c) = b.split_at(second);
            assert_eq!(ends(&[a, b, c]).unwrap(), whole, "cuts at {cut} and {second} more");
        }
    }
    let bytes: Vec<&[u8]> = STREAM.chunks(1).collect();
    assert_eq!(ends(&bytes).unwrap(), whole);
}

#[test]
fn a_framer_is_idle_between_messages_only() {
    let mut framer = Framer::new();
    assert!(framer.is_idle());
    assert_eq!(framer.feed(b" \n"), Ok(None));
    assert!(framer.is_idle());
    assert_eq!(framer.feed(b"{"), Ok(None));
    assert!(!framer.is_idle());
    assert_eq!(framer.feed(b"} "), Ok(Some(1)));
    assert!(framer.is_idle());
}

#[test]
fn a_message_must_begin_with_a_bracket() {
    let error = |stream: &[u8]| ends(&[stream]).unwrap_err();
    assert_eq!(error(b"hello"), "line 0, column 5, byte 5: invalid keyword 'hello'");
    assert_eq!(error(b"GET /"), "line 0, column 0, byte 0: invalid character 'G'");
    assert_eq!(error(b"]"), "line 0, column 0, byte 0: syntax error at beginning of input");
    assert_eq!(error(b"{}\n ,"), "line 1, column 1, byte 2: syntax error at beginning of input");
    assert_eq!(error(b"\x16\x03\x01"), "line 0, column 0, byte 0: invalid character U+0016");
    let pieces: &[&[u8]] = &[b"[] \n", b" ", b"\n  ", b" 1 "];
    assert_eq!(
        ends(pieces).unwrap_err(),
        "line 2, column 4, byte 8: syntax error at beginning of input"
    );
}

#[test]
fn depth_is_limited_before_anything_is_parsed() {
    let deep = "[".repeat(DEPTH_MAX) + &"]".repeat(DEPTH_MAX);
    assert_eq!(ends(&[deep.as_bytes()]), Ok(vec![2 * DEPTH_MAX]));
    for pieces in [1, 7, 64, 4096, 100_000] {
        let stream = b"[".repeat(100_000);
        let pieces: Vec<&[u8]> = stream.chunks(pieces).collect();
        assert_eq!(
            ends(&pieces).unwrap_err(),
            "line 0, column 1000, byte 1000: input exceeds maximum nesting depth 1000"
        );
    }
    let lines = "[\n".repeat(DEPTH_MAX + 1);
    let pieces: Vec<&[u8]> = lines.as_bytes().chunks(33).collect();
    assert_eq!(
        ends(&pieces).unwrap_err(),
        "line 1000, column 0, byte 2000: input exceeds maximum nesting depth 1000"
    );
}

proptest! {
    #[test]
    fn any_bytes_in_any_pieces_end_where_the_slow_machine_says(
        text in "[\\[\\]{}\"\\\\a, \n]{0,400}",
        sizes in prop::collection::vec(1usize..150, 1..20),
    ) {
        // An opening bracket before each message, so that only its end is in question.
        let text = format!("[{text}");
        let stream = text.as_bytes();
        let Some(&end) = slow_ends(stream).first() else {
            prop_assert_eq!(Framer::new().feed(stream), Ok(None));
            return Ok(());
        };
        prop_assert_eq!(Framer::new().feed(stream), Ok(Some(end)));
        let mut framer = Framer::new();
        let mut at = 0;
        for size in sizes.into_iter().cycle() {
            let piece = &stream[at..stream.len().min(at + size)];
            if let Some(n) = framer.feed(piece).unwrap() {
                prop_assert_eq!(at + n, end);
                break;
            }
            at += piece.len();
        }
    }
}

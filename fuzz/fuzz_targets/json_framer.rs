//! A stream in pieces gives the same messages as the whole stream. The first byte says how
//! large the pieces are.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_json::{Error, Framer};

/// Where the messages of a stream end, and the error that stops it.
fn ends(stream: &[u8], piece: usize) -> (Vec<usize>, Option<Error>) {
    let mut framer = Framer::new();
    let mut ends = Vec::new();
    let mut before = 0;
    for piece in stream.chunks(piece) {
        let mut rest = piece;
        loop {
            match framer.feed(rest) {
                Ok(Some(n)) => {
                    assert!(0 < n && n <= rest.len());
                    assert!(framer.is_idle());
                    before += n;
                    ends.push(before);
                    rest = &rest[n..];
                }
                Ok(None) => break,
                Err(error) => return (ends, Some(error)),
            }
        }
        before += rest.len();
    }
    (ends, None)
}

fuzz_target!(|data: &[u8]| {
    let Some((&piece, stream)) = data.split_first() else { return };
    let whole = ends(stream, stream.len().max(1));
    let pieces = ends(stream, usize::from(piece) + 1);
    assert_eq!(whole.0, pieces.0);
    // A bad first word may itself be cut, so the errors need not be the same.
    assert_eq!(whole.1.is_some(), pieces.1.is_some());
});

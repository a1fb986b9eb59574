//! A database file as the server opens it, references and all: any file opens or is refused with a
//! reason, whether it is read as a whole or in pieces; and what is opened, written down and opened
//! again holds as much. The input is records without headers, one a line, behind a schema.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_log::record::write_record;
use weir_log::standalone::{Loaded, Replayer};
use weir_server::load::load_with;

const SCHEMA: &[u8] = br#"{"name":"D","tables":{
"T":{"isRoot":true,"maxRows":4,"indexes":[["n"]],"columns":{
  "n":{"type":"string"},"w":{"type":{"key":{"type":"uuid","refTable":"C","refType":"weak"},
    "min":0,"max":"unlimited"}},"c":{"type":{"key":{"type":"uuid","refTable":"C"},"min":0,"max":2}}}},
"C":{"columns":{"s":{"type":{"key":"string","min":0,"max":1}},
  "v":{"type":{"key":"string","value":{"type":"uuid","refTable":"C"},"min":0,"max":"unlimited"}}}}}}"#;

/// Records of at least so many bytes are read row by row.
const PIECES_MIN: u64 = 20;

/// As a caller reads who can go back in the file.
fn in_pieces(bytes: &[u8]) -> Option<Loaded> {
    let mut replayer = Replayer::seekable("db", 1, PIECES_MIN);
    let (mut at, mut backwards) = (0, 0);
    while at < bytes.len() {
        let piece = &bytes[at..bytes.len().min(at + 11)];
        at += piece.len();
        replayer.feed(piece).ok()?;
        if let Some(offset) = replayer.again_from() {
            at = usize::try_from(offset).expect("a place in the file");
            backwards += 1;
            assert!(backwards <= 1 + bytes.len() / 10, "the file is read for ever");
        }
    }
    replayer.finish().ok()
}

fn as_a_whole(bytes: &[u8]) -> Option<Loaded> {
    let mut replayer = Replayer::new("db", 1);
    replayer.feed(bytes).ok()?;
    replayer.finish().ok()
}

fuzz_target!(|input: &[u8]| {
    let mut bytes = Vec::new();
    write_record(&mut bytes, SCHEMA);
    for line in input.split(|byte| *byte == b'\n') {
        match line {
            [b'!', raw @ ..] => bytes.extend_from_slice(&[raw, b"\n"].concat()),
            json => write_record(&mut bytes, json),
        }
    }
    match load_with("db", 1, &bytes, vec![input.to_vec()]) {
        Err(reason) => assert!(!reason.is_empty()),
        Ok(loaded) => assert!(loaded.valid_len() <= bytes.len() as u64),
    }
    match (as_a_whole(&bytes), in_pieces(&bytes)) {
        (None, None) => {}
        (Some(whole), Some(pieces)) => {
            assert_eq!(whole.valid_len, pieces.valid_len);
            assert_eq!(whole.records, pieces.records);
            assert_eq!(whole.store.atoms(), pieces.store.atoms());
        }
        (whole, _) => panic!("read as a whole only: {}", whole.is_some()),
    }
});

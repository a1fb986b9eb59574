//! A file that anybody could have written: it is read without a panic, its good part ends where a
//! record ends, and reading only that part gives the same. The input is records without headers,
//! one a line, so that the checksum keeps nothing out; a line that begins with `!` is taken as it
//! is.

#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_log::record::write_record;
use weir_log::standalone::{Loaded, Replayer, write_schema, write_snapshot};

const SCHEMA: &[u8] = br#"{"name":"D","tables":{"T":{"columns":{
"i":{"type":{"key":{"type":"integer","maxInteger":9}}},
"s":{"type":{"key":"string","min":0,"max":3}},
"m":{"type":{"key":"string","value":"real","min":0,"max":"unlimited"}},
"u":{"type":{"key":"uuid","min":1,"max":2}},"b":{"type":"boolean","ephemeral":true}}}}}"#;

fn load(bytes: &[u8], piece: usize) -> Option<Loaded> {
    let mut replayer = Replayer::new("db", 1);
    for piece in bytes.chunks(piece.max(1)) {
        replayer.feed(piece).ok()?;
    }
    replayer.finish().ok()
}

fuzz_target!(|input: &[u8]| {
    let mut bytes = Vec::new();
    if input.first() != Some(&b'?') {
        write_record(&mut bytes, SCHEMA);
    }
    for line in input.split(|byte| *byte == b'\n') {
        match line {
            [b'!', raw @ ..] => bytes.extend_from_slice(&[raw, b"\n"].concat()),
            json => write_record(&mut bytes, json),
        }
    }
    let Some(loaded) = load(&bytes, bytes.len()) else { return };
    let valid = usize::try_from(loaded.valid_len).expect("a length in memory");
    let again = load(&bytes[..valid], 7).expect("the good part is good");
    assert_eq!(again.warning, None);
    assert_eq!(again.records, loaded.records);
    assert_eq!(again.store.atoms(), loaded.store.atoms());
    let mut compacted = Vec::new();
    write_schema(&mut compacted, &loaded.schema);
    let mut sink = |piece: &[u8]| {
        compacted.extend_from_slice(piece);
        Ok::<(), ()>(())
    };
    write_snapshot(&loaded.store.snapshot(), 1, None, &mut sink).expect("the sink takes all");
    let compacted = load(&compacted, 100).expect("what is written is read");
    assert_eq!(compacted.warning, None);
    assert_eq!(compacted.store.atoms(), loaded.store.atoms());
});

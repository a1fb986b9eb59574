//! The side file of a change log, as anybody could have written it: it is refused, or all of it can
//! be decoded, and what is written of it again is read alike. The checksum and the names
//! of the records that a side file begins with keep nothing out: both are put around the input.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sha1::{Digest, Sha1};
use weir_data::{IdKind, Schema, TableId};
use weir_history::{BUDGET_BYTES_MIN, Binding, Changes, History};

const SCHEMA: &[u8] = br#"{"name":"D","tables":{"A":{"columns":{
"i":{"type":"integer"},"s":{"type":{"key":"string","min":0,"max":3}},
"m":{"type":{"key":"string","value":"real","min":0,"max":"unlimited"}},
"u":{"type":{"key":"uuid","min":0}},"b":{"type":"boolean","ephemeral":true}}},
"B":{"columns":{"x":{"type":"string"}}}}}"#;
/// Of both formats.
const MAGICS: [&[u8]; 2] = [b"weir-history 1\n", b"weir-history 2\n"];
const BINDING: Binding = Binding { schema: [1; 20], snapshot: [2; 20] };

fn changes(log: &History) -> Changes {
    let none = std::iter::empty::<TableId>();
    let place = log.find(log.low_water(), IdKind::Recorded, none).expect("the oldest state");
    log.since(place, IdKind::Recorded).expect("a state that was found")
}

fuzz_target!(|input: &[u8]| {
    let schema = Schema::parse_bytes(SCHEMA).expect("the schema above");
    let read = |bytes: &[u8]| {
        History::from_side_file(bytes, &BINDING, &schema, BUDGET_BYTES_MIN, 1)
    };
    _ = read(input);
    for magic in MAGICS {
        let mut bytes = [magic, &BINDING.schema, &BINDING.snapshot, input].concat();
        let digest = Sha1::digest(&bytes);
        bytes.extend_from_slice(&digest);
        let Ok(mut log) = read(&bytes) else { continue };
        let mut written = Vec::new();
        let mut sink = |piece: &[u8]| {
            written.extend_from_slice(piece);
            Ok(())
        };
        log.image().write(&BINDING, &mut sink).expect("the sink takes all");
        let again = read(&written).expect("what was written is read");
        assert_eq!((again.place(), again.ids().recorded), (log.place(), log.ids().recorded));
        assert_eq!((again.low_water(), again.counts().atoms), (log.low_water(), log.counts().atoms));
        assert!(changes(&again).deltas(&schema).eq(changes(&log).deltas(&schema)));
    }
});

//! What a backup hears from an active server, and `weir watch` from any: each line a
//! `<table-updates>`. It is refused with a reason or applied, as one change that can be undone.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use weir_data::{Schema, UuidSource};
use weir_engine::{Database, replicate};
use weir_json::validate;
use weir_upstream::updates;

const SCHEMA: &[u8] = br#"{"name":"D","tables":{"T":{"isRoot":true,"indexes":[["s"]],"columns":{
"s":{"type":"string"},"r":{"type":{"key":"real","min":0,"max":1}},
"i":{"type":{"key":{"type":"integer","maxInteger":9},"min":0,"max":3}},
"m":{"type":{"key":"string","value":"integer","min":0,"max":"unlimited"}},
"c":{"type":{"key":{"type":"uuid","refTable":"C"},"min":0,"max":2}},
"w":{"type":{"key":{"type":"uuid","refTable":"C","refType":"weak"},"min":0,"max":9}}}},
"C":{"columns":{"b":{"type":"boolean"}}}}}"#;

fuzz_target!(|input: &[u8]| {
    let schema = Arc::new(Schema::parse_bytes(SCHEMA).expect("a schema"));
    let mut db = Database::new(Arc::clone(&schema), 7);
    let mut uuids = UuidSource::new([1, 2, 3, 4]);
    let lines = || input.split(|byte| *byte == b'\n');
    for line in lines() {
        let Ok(text) = validate(line) else { continue };
        let images = match updates::parse(text, &schema) {
            Ok(images) => images,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                continue;
            }
        };
        let before = db.state_hash();
        match replicate::apply_images(&mut db, images, &mut uuids) {
            Err(_) => assert_eq!(db.state_hash(), before, "an error leaves something"),
            Ok(delta) if delta.is_empty() => assert_eq!(db.state_hash(), before),
            Ok(delta) => {
                let after = db.state_hash();
                db.revert(&delta);
                assert_eq!(db.state_hash(), before, "a revert leaves something");
                db.apply(&delta);
                assert_eq!(db.state_hash(), after);
            }
        }
    }
    weir_cli::fuzzing::watch(SCHEMA, lines());
});

//! Any bytes are a schema or are refused with a reason. Written down, a schema reads as itself; and
//! a database file that begins with it opens.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_data::Schema;
use weir_log::standalone::{Replayer, write_schema};

fn written(schema: &Schema) -> Vec<u8> {
    let mut text = Vec::new();
    schema.to_value().write(&mut text);
    text
}

fuzz_target!(|input: &[u8]| {
    let schema = match Schema::parse_bytes(input) {
        Ok(schema) => schema,
        Err(reason) => return assert!(!reason.is_empty()),
    };
    let once = written(&schema);
    let again = Schema::parse_bytes(&once).expect("what is written is a schema");
    assert_eq!(written(&again), once);
    let mut file = Vec::new();
    write_schema(&mut file, &schema);
    let mut replayer = Replayer::new("db", 1);
    replayer.feed(&file).expect("a file of this schema");
    let loaded = replayer.finish().expect("a file of this schema");
    assert_eq!(written(&loaded.schema), once);
});

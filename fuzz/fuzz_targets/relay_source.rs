//! What a relay hears from a source that has the reference's methods to tell rows.
#![no_main]

mod source;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| source::run(input, &["weir_sync", "weir_transact"]));

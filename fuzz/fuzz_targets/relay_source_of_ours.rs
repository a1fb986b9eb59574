//! What a relay hears from a source of ours: each transaction with its id, the low-water mark, the index, and
//! columns that no file keeps beside them.
#![no_main]

mod source;

use libfuzzer_sys::fuzz_target;

const FEATURES: [&str; 7] = [
    "weir_monitor",
    "weir_monitor.each",
    "weir_monitor.index",
    "weir_monitor.low_water",
    "weir_path",
    "weir_sync",
    "weir_transact",
];

fuzz_target!(|input: &[u8]| source::run(input, &FEATURES));

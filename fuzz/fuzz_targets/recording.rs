//! A recording (`--replay`) that anybody could have written, or that a disk has damaged: it is read,
//! ends, or is refused, and what is understood of it is written so that it is read alike. Digests
//! keep nothing out: the input is also taken for the items of a recording whose frames are right.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| weir_host::fuzzing::read_recording(input));

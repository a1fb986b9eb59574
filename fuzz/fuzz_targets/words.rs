//! Small languages of command lines and admin commands, each line one text: connection methods,
//! log specifications, tables to exclude, cipher strings, the addresses of clusters.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use weir_log::clustered::check_address;
use weir_net::Address;

fuzz_target!(|input: &[u8]| {
    for line in input.split(|byte| *byte == b'\n') {
        let text = String::from_utf8_lossy(line);
        if let Err(error) = Address::parse(&text, Path::new("/run")) {
            assert!(!error.to_string().is_empty());
        }
        weir_host::fuzzing::set_log(&text);
        weir_net::tls::fuzzing::read_lists(&text);
        let _ = weir_server::configuration::check_excluded(&text);
        let _ = check_address(&text);
    }
});

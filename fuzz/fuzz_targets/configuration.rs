//! A configuration file is read, or there is a warning that says why not; what is kept of it for the
//! process that takes over reads as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_server::configuration::{Configuration, check_excluded};

fuzz_target!(|input: &[u8]| {
    let mut warnings = Vec::new();
    let Some(configuration) = Configuration::parse(input, &mut warnings) else {
        return assert!(warnings.iter().any(|warning| !warning.is_empty()), "refused in silence");
    };
    let text = configuration.to_value().to_string();
    let mut more = Vec::new();
    let again = Configuration::parse(text.as_bytes(), &mut more);
    assert_eq!(again.as_ref(), Some(&configuration), "{text}");
    assert_eq!(more, Vec::<String>::new());
    let _ = check_excluded(&String::from_utf8_lossy(input));
});

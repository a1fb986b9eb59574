//! Any bytes are refused with a reason, or are a value that reads, writes and reads again
//! the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_json::{Framer, Kind, Text, Value, check_prefix, validate, validate_value};

/// Visits every part; the reader and the named accesses agree.
fn visit(text: Text<'_>) {
    let mut reader = text.reader();
    assert_eq!(reader.text().as_bytes(), text.as_bytes());
    assert!(validate_value(text.as_bytes()).is_ok());
    match text.kind() {
        Kind::Array => text.elements().into_iter().flatten().for_each(visit),
        Kind::Object => text.members().into_iter().flatten().for_each(|(_, value)| visit(value)),
        Kind::String => assert_eq!(text.string(), text.reader().string()),
        Kind::Integer => assert_eq!(text.integer(), text.reader().integer()),
        Kind::Real => assert_eq!(text.real(), text.reader().real()),
        Kind::Bool => assert_eq!(text.bool(), text.reader().bool()),
        Kind::Null => assert_eq!(text.as_bytes(), b"null"),
    }
}

fuzz_target!(|data: &[u8]| {
    // Visiting copies nothing, but skips every part once for each level around it.
    const VISITED_MAX: usize = 4096;
    let prefix = check_prefix(data);
    match validate(data) {
        Err(error) => {
            assert_ne!(error.text, "syntax error", "no reason was found");
            if let Err(early) = prefix {
                assert_eq!(early, error);
            }
        }
        Ok(text) => {
            assert_eq!(prefix, Ok(()));
            let framed = Framer::new().feed(text.as_bytes());
            assert_eq!(framed, Ok(Some(text.as_bytes().len())));
            if data.len() <= VISITED_MAX {
                visit(text);
            }
            let (mut once, mut twice, mut thrice) = (Vec::new(), Vec::new(), Vec::new());
            text.write(&mut once);
            // A real may become an integer with its 16th digit; from then on nothing changes.
            validate(&once).expect("written").write(&mut twice);
            validate(&twice).expect("written").write(&mut thrice);
            assert_eq!(twice, thrice);
            if std::str::from_utf8(&once).is_ok() {
                let mut value = Vec::new();
                text.to_value().write(&mut value);
                assert_eq!(value, once);
                assert_eq!(Value::parse(data), Ok(text.to_value()));
            }
        }
    }
});

//! Any JSON is a message with the parts that belong together, or is refused with a reason; what we
//! write about a message is one ourselves.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_json::{Kind, validate};
use weir_wire::{Message, Method, notification, reply_error_string, reply_result};

fn is_message(bytes: &[u8]) -> bool {
    validate(bytes).is_ok_and(|text| Message::parse(text).is_ok())
}

fuzz_target!(|input: &[u8]| {
    let Ok(text) = validate(input) else { return };
    match Message::parse(text) {
        Err(reason) => assert!(!reason.to_string().is_empty()),
        Ok(Message::Request { method, params, id }) => {
            assert_eq!(params.kind(), Kind::Array);
            assert_ne!(id.kind(), Kind::Null);
            if let Some(known) = Method::parse(method) {
                assert_eq!(known.name(), method);
            }
            assert!(is_message(&reply_result(id.as_bytes(), params.as_bytes())));
            assert!(is_message(&reply_error_string(id.as_bytes(), "unknown method")));
        }
        Ok(Message::Notification { params, .. }) => {
            assert_eq!(params.kind(), Kind::Array);
            assert!(is_message(&notification("update", params.as_bytes())));
        }
        Ok(Message::Reply { id, .. } | Message::Error { id, .. }) => {
            assert_ne!(id.kind(), Kind::Null);
        }
    }
});

//! serde_json as the oracle, where its rules are the same.

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::Value as Other;
use weir_json::{Kind, Reader, Text, Value, check_prefix, validate, validate_value};

/// Values on which both agree: reals stay reals, integers fit.
fn any_value() -> impl Strategy<Value = Other> {
    let scalar = prop_oneof![
        Just(Other::Null),
        any::<bool>().prop_map(Other::from),
        any::<i64>().prop_map(Other::from),
        (-1000i64..1000).prop_map(Other::from),
        (-1_000_000i32..1_000_000).prop_map(|n| Other::from(f64::from(n) + 0.5)),
        any_string().prop_map(Other::from),
    ];
    scalar.prop_recursive(5, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Other::from),
            prop::collection::vec((any_string(), inner), 0..6).prop_map(Other::from_iter),
        ]
    })
}

fn any_string() -> impl Strategy<Value = String> {
    const SPECIAL: [char; 9] = ['"', '\\', '/', '\n', '\t', '\u{8}', '\u{c}', '\r', '\u{1}'];
    let characters = prop_oneof![
        8 => prop::char::range(' ', '~'),
        2 => prop::sample::select(&SPECIAL),
        1 => prop::sample::select(vec!['é', '\u{7f}', '€', '\u{10ffff}', '[', '{', '}', ']']),
    ];
    prop::collection::vec(characters, 0..40)
        .prop_map(|characters| characters.into_iter().filter(|&c| c != '\0').collect())
}

/// A text in one of the spellings of JSON: compact, indented, all strings escaped.
fn any_text() -> impl Strategy<Value = (Other, Vec<u8>)> {
    (any_value(), 0..3).prop_map(|(value, spelling)| {
        let value = Other::from(vec![value]);
        let text = match spelling {
            0 => value.to_string(),
            1 => serde_json::to_string_pretty(&value).unwrap(),
            _ => escape_all(&value.to_string()),
        };
        (value, text.into_bytes())
    })
}

/// Writes every letter inside strings and all that is not ASCII as `\uXXXX`.
fn escape_all(text: &str) -> String {
    let mut out = String::new();
    let (mut in_string, mut escape) = (false, false);
    for c in text.chars() {
        let escaped = std::mem::take(&mut escape);
        match c {
            '"' if !escaped => in_string = !in_string,
            '\\' if !escaped => escape = true,
            _ if escaped || !in_string => {}
            _ if c.is_ascii_alphabetic() || !c.is_ascii() => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04X}"));
                }
                continue;
            }
            _ => {}
        }
        // Letters behind `\u` were written above as digits would be: keep them.
        out.push(c);
    }
    out
}

fn ours(other: &Other) -> Value {
    match other {
        Other::Null => Value::Null,
        Other::Bool(b) => (*b).into(),
        Other::Number(n) => match n.as_i64() {
            Some(i) => i.into(),
            None => n.as_f64().unwrap().into(),
        },
        Other::String(s) => s.as_str().into(),
        Other::Array(elements) => Value::Array(elements.iter().map(ours).collect()),
        Other::Object(members) => {
            Value::Object(members.iter().map(|(key, value)| (key.clone(), ours(value))).collect())
        }
    }
}

/// The value that the reader's own calls make.
fn read(reader: &mut Reader<'_>) -> Value {
    let string = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    match reader.kind() {
        Kind::Null => {
            assert_eq!(reader.text().as_bytes(), b"null");
            Value::Null
        }
        Kind::Bool => reader.bool().unwrap().into(),
        Kind::Integer => reader.integer().unwrap().into(),
        Kind::Real => {
            assert_eq!(reader.integer(), None);
            reader.real().unwrap().into()
        }
        Kind::String => string(&reader.string().unwrap()).into(),
        Kind::Array => {
            assert!(!reader.begin_object() && reader.begin_array());
            let mut elements = Vec::new();
            while reader.next_element() {
                elements.push(read(reader));
            }
            elements.into()
        }
        Kind::Object => {
            assert!(!reader.begin_array() && reader.begin_object());
            let mut members = std::collections::BTreeMap::new();
            while let Some(key) = reader.next_key() {
                members.insert(string(&key), read(reader));
            }
            members.into()
        }
    }
}

/// The value that the named accesses make; every part is a valid text of its own.
fn pick(text: Text<'_>) -> Value {
    assert_eq!(validate_value(text.as_bytes()).unwrap().as_bytes(), text.as_bytes());
    if let Some(object) = text.object() {
        let keys: Vec<String> =
            object.iter().map(|(key, _)| String::from_utf8(key.to_vec()).unwrap()).collect();
        assert!(keys.is_sorted_by(|a, b| a < b));
        assert_eq!(keys.len(), object.len());
        let member = |key: String| {
            let value = pick(object.get(&key).unwrap());
            (key, value)
        };
        return Value::Object(keys.into_iter().map(member).collect());
    }
    match text.elements() {
        Some(elements) => Value::Array(elements.map(pick).collect()),
        None => text.to_value(),
    }
}

proptest! {
    #[test]
    fn values_are_what_serde_reads((value, text) in any_text()) {
        let expected = ours(&value);
        let checked = validate(&text).unwrap();
        prop_assert_eq!(&checked.to_value(), &expected);
        prop_assert_eq!(&read(&mut checked.reader()), &expected);
        prop_assert_eq!(pick(checked), expected);
    }

    #[test]
    fn writing_is_canonical_and_idempotent((value, text) in any_text()) {
        let mut once = Vec::new();
        validate(&text).unwrap().write(&mut once);
        prop_assert_eq!(String::from_utf8_lossy(&once).into_owned(), ours(&value).to_string());
        let mut twice = Vec::new();
        validate(&once).unwrap().write(&mut twice);
        prop_assert_eq!(&once, &twice);
        // serde_json writes reals of few digits alike, and escapes too, but no sorted keys.
        prop_assert_eq!(serde_json::from_slice::<Other>(&once).unwrap(), value);
    }

    #[test]
    fn pretty_text_is_the_same_value((value, _) in any_text()) {
        let value = ours(&value);
        let mut pretty = String::new();
        value.write_pretty(&mut pretty);
        prop_assert_eq!(Value::parse(pretty.as_bytes()).unwrap(), value);
    }

    #[test]
    fn no_prefix_of_a_good_text_is_refused((_, text) in any_text()) {
        for len in 0..text.len() {
            prop_assert_eq!(check_prefix(&text[..len]), Ok(()));
        }
    }

    #[test]
    fn a_damaged_text_is_good_to_both_or_neither(
        (_, mut text) in any_text(),
        edits in prop::collection::vec((any::<Index>(), any::<Index>(), 0..3), 1..3),
    ) {
        const BYTES: &[u8] = b"[]{}:,\"\\ntrue \n0123.-abx/\x01";
        for (place, byte, edit) in edits {
            let (at, byte) = (place.index(text.len()), BYTES[byte.index(BYTES.len())]);
            match edit {
                0 => text[at] = byte,
                1 => text.insert(at, byte),
                _ => drop(text.remove(at)),
            }
            prop_assume!(!text.is_empty());
        }
        let Ok(as_str) = std::str::from_utf8(&text) else { return Ok(()) };
        // A lone trailing surrogate is good to us alone, and so is 1e-400 and the like.
        prop_assume!(!as_str.contains("\\u") && !as_str.contains("e-"));
        let other = serde_json::from_str::<Other>(as_str);
        match validate_value(&text) {
            Ok(_) => prop_assert!(other.is_ok(), "{as_str}"),
            Err(error) => prop_assert!(other.is_err(), "{as_str}: {error}"),
        }
    }

    #[test]
    fn any_bytes_give_a_value_or_an_error(
        tokens in prop::collection::vec(prop::sample::select(vec![
            &b"["[..], b"]", b"{", b"}", b":", b",", b"\"a\"", b"\"", b"null", b"tru", b" ", b"\n",
            b"\\", b"\\u", b"\\ud83d", b"\\ude00", b"\\u0000", b"\\n", b"\x01", b"\x7f", b"\xff",
            b"-", b"0", b"1", b"23", b".", b"e", b"+", b"99999999999999999999", b"e-3", b"e308",
        ]), 0..20),
    ) {
        let text = tokens.concat();
        match validate_value(&text) {
            Ok(good) => {
                let mut out = Vec::new();
                good.write(&mut out);
                prop_assert!(validate_value(&out).is_ok());
                let _ = pick_any(good);
            }
            Err(error) => {
                prop_assert_ne!(&error.text, "syntax error", "no reason was found");
                prop_assert!(error.byte <= text.len() as u64 + 1);
            }
        }
    }
}

/// Visits everything, whatever its bytes.
fn pick_any(text: Text<'_>) -> usize {
    let inside = |text: Text<'_>| pick_any(text) + 1;
    let elements: usize = text.elements().into_iter().flatten().map(inside).sum();
    let members: usize = text.members().into_iter().flatten().map(|(_, value)| inside(value)).sum();
    elements + members + text.string().map_or(0, |string| string.len())
}

//! Reading and writing, example by example.

use std::borrow::Cow;
use weir_json::{
    DEPTH_MAX, Kind, Text, Value, array, object, validate, validate_value, write_string,
    write_string_bytes,
};

fn written(text: &[u8]) -> String {
    let mut out = Vec::new();
    validate(text).unwrap().write(&mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn of_equal_keys_the_last_counts() {
    let text = validate(br#"{"b":1,"a":2,"\u0061":3,"c":{"x":0,"x":[]},"b":4}"#).unwrap();
    let object = text.object().unwrap();
    assert_eq!(object.len(), 3);
    assert_eq!(object.get("a").and_then(Text::integer), Some(3));
    assert_eq!(object.get("b").and_then(Text::integer), Some(4));
    assert!(object.get("d").is_none());
    let keys: Vec<_> = text.members().unwrap().map(|(key, _)| key).collect();
    assert_eq!(keys, [&b"b"[..], b"a", b"a", b"c", b"b"]);
    assert_eq!(written(text.as_bytes()), r#"{"a":3,"b":4,"c":{"x":[]}}"#);
    assert_eq!(text.to_value().to_string(), r#"{"a":3,"b":4,"c":{"x":[]}}"#);
}

#[test]
fn values_are_slices_without_white_space() {
    let text = validate(b" [ 1 , \"a\" ,\n{ \"k\" : [ ] } , true ] ").unwrap();
    let parts: Vec<_> = text.elements().unwrap().map(Text::as_bytes).collect();
    assert_eq!(parts, [&b"1"[..], b"\"a\"", b"{ \"k\" : [ ] }", b"true"]);
    let kinds: Vec<_> = text.elements().unwrap().map(Text::kind).collect();
    assert_eq!(kinds, [Kind::Integer, Kind::String, Kind::Object, Kind::Bool]);
    assert_eq!(written(text.as_bytes()), r#"[1,"a",{"k":[]},true]"#);
}

#[test]
fn strings_are_borrowed_unless_escaped() {
    let text = validate_value(r#""plain é / [""#.as_bytes()).unwrap();
    assert!(matches!(text.str(), Some(Cow::Borrowed("plain é / ["))));
    let text = validate_value(br#""\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00""#).unwrap();
    assert_eq!(text.str().as_deref(), Some("\"\\/\u{8}\u{c}\n\r\té😀"));
}

#[test]
fn a_lone_trailing_surrogate_is_three_bytes() {
    let text = validate_value(br#""\udc00""#).unwrap();
    assert_eq!(text.string().as_deref(), Some(&b"\xed\xb0\x80"[..]));
    assert_eq!(text.str(), None);
    let mut out = Vec::new();
    text.write(&mut out);
    assert_eq!(out, b"\"\xed\xb0\x80\"");
}

#[test]
fn strings_are_escaped_as_little_as_possible() {
    let mut out = Vec::new();
    write_string(&mut out, "\"\\/\u{8}\u{c}\n\r\t\u{0}\u{1f}\u{7f}é€");
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\u{7f}é€\""
    );
    let mut out = Vec::new();
    write_string_bytes(&mut out, b"\xff 0123456789abcdef0123456789abcdef\n");
    assert_eq!(out, b"\"\xff 0123456789abcdef0123456789abcdef\\n\"");
}

/// Writers look at many bytes at once, and copy more than they keep where there is room for it.
#[test]
fn a_string_is_written_alike_whatever_its_length_and_the_room_for_it() {
    let strings = (0..40).flat_map(|len| (0..=len).map(move |special| (len, special)));
    for (len, special, spare) in strings.flat_map(|(len, at)| [(len, at, 0), (len, at, 64)]) {
        let mut text = "0123456789é[{}]abc ".repeat(3).into_bytes();
        text.truncate(len);
        let escaped = if let Some(byte) = text.get_mut(special) {
            *byte = b'\n';
            [&text[..special], b"\\n", &text[special + 1..]].concat()
        } else {
            text.clone()
        };
        let mut out = Vec::with_capacity(1 + text.len() + 2 + spare);
        out.push(b':');
        write_string_bytes(&mut out, &text);
        assert_eq!(out, [b":\"", &escaped[..], b"\""].concat(), "{len} {special} {spare}");
    }
}

#[test]
fn a_reader_stays_where_the_kind_is_another() {
    let text = validate(br#"["a", 1.5, 7, null, {"k":false}]"#).unwrap();
    let mut reader = text.reader();
    assert_eq!((reader.string(), reader.integer(), reader.begin_object()), (None, None, false));
    assert!(reader.begin_array() && reader.next_element());
    assert_eq!((reader.integer(), reader.real(), reader.bool()), (None, None, None));
    assert_eq!(reader.string().as_deref(), Some(&b"a"[..]));
    assert!(reader.next_element());
    assert_eq!((reader.integer(), reader.string()), (None, None));
    assert_eq!((reader.kind(), reader.real()), (Kind::Real, Some(1.5)));
    assert!(reader.next_element());
    assert_eq!((reader.kind(), reader.real()), (Kind::Integer, Some(7.0)));
    assert!(reader.next_element());
    assert_eq!((reader.bool(), reader.text().kind()), (None, Kind::Null));
    assert!(reader.next_element() && reader.begin_object());
    assert_eq!(reader.next_key().as_deref(), Some(&b"k"[..]));
    assert_eq!(reader.bool(), Some(false));
    assert_eq!(reader.next_key(), None);
    assert!(!reader.next_element());
    // Behind everything, nothing more comes and nothing breaks.
    assert!(!reader.next_element() && !reader.begin_array());
    assert_eq!((reader.kind(), reader.next_key(), reader.string()), (Kind::Null, None, None));
    assert_eq!(reader.text().as_bytes(), b"null");
}

#[test]
fn pretty_printing_keeps_closing_brackets_on_the_last_line() {
    let value = Value::parse(br#"{"b":1,"a":[1,1000,{},[],"x"],"c":{"d":null}}"#).unwrap();
    let mut pretty = String::new();
    value.write_pretty(&mut pretty);
    assert_eq!(
        pretty,
        "{\n  \"a\": [\n    1,\n    1000,\n    {\n      },\n    [],\n    \"x\"],\n  \"b\": 1,\n  \
         \"c\": {\n    \"d\": null}}"
    );
}

#[test]
fn values_are_built_from_parts() {
    let value = object([
        ("b", array([1, 2])),
        ("a", array(["x"])),
        ("r", 0.5.into()),
        ("t", true.into()),
        ("n", Value::Null),
    ]);
    assert_eq!(value.to_string(), r#"{"a":["x"],"b":[1,2],"n":null,"r":0.5,"t":true}"#);
    assert_eq!(value.get("b").and_then(Value::as_array).map(<[_]>::len), Some(2));
    assert_eq!(value.get("t").and_then(Value::as_bool), Some(true));
    assert_eq!(value.get("r").and_then(Value::as_f64), Some(0.5));
    assert_eq!(value.get("r").and_then(Value::as_i64), None);
    assert_eq!(Value::parse(value.to_string().as_bytes()).unwrap(), value);
    let lossy = Value::parse(b"[\"a\xff\"]").unwrap();
    assert_eq!(lossy, array(["a\u{fffd}"]));
}

/// Every operation on text as deep as it may be, on a thread with a stack of 2 MB.
#[test]
fn the_deepest_text_needs_little_stack() {
    const STACK: usize = 2 << 20;
    let exercise = || {
        for (open, close) in [("[", "]"), ("{\"b\":0,\"a\":", "}"), ("[{\"a\":", "}]")] {
            let levels = DEPTH_MAX / open.matches(['[', '{']).count();
            let text = open.repeat(levels) + "1" + &close.repeat(levels);
            let text = text.as_bytes();
            let checked = validate(text).unwrap();
            let value = checked.to_value();
            let mut out = Vec::new();
            checked.write(&mut out);
            assert_eq!(value.to_string().as_bytes(), out);
            assert_eq!(checked.reader().text().as_bytes(), text);
            let mut pretty = String::new();
            value.write_pretty(&mut pretty);
            assert_eq!(Value::parse(pretty.as_bytes()).unwrap(), value.clone());
        }
    };
    std::thread::Builder::new().stack_size(STACK).spawn(exercise).unwrap().join().unwrap();
}

#[test]
fn a_word_may_be_written_with_escapes() {
    let says = |text: &str| validate(text.as_bytes()).expect("JSON").may_say("_version");
    assert!(says(r#"[["_version","==",1]]"#) && says(r#"[["\u005fversion","==",1]]"#));
    assert!(!says(r#"[["version","==","a\n\"b\\"]]"#));
}

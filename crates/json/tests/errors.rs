//! Texts that are no JSON: what is said, and where. The expectations are recorded from the
//! reference.

use weir_json::{DEPTH_MAX, Error, check_prefix, validate};

/// (text, column = byte, message); all on the first line.
const ONE_LINE: &[(&str, u64, &str)] = &[
    ("", 0, "empty input stream"),
    ("  ", 2, "empty input stream"),
    // Unfinished.
    ("{", 1, "unexpected end of input"),
    ("{\"a\":", 5, "unexpected end of input"),
    ("[1,2", 5, "unexpected end of input"),
    ("[1,2 ", 5, "unexpected end of input"),
    ("[null", 6, "unexpected end of input"),
    ("[\"a", 3, "unexpected end of input in quoted string"),
    ("[\"a\\", 4, "unexpected end of input in quoted string"),
    ("[\"a\\\"", 5, "unexpected end of input in quoted string"),
    ("[\"\\q", 4, "unexpected end of input in quoted string"),
    // Punctuation.
    ("[1,]", 3, "syntax error expecting value"),
    ("[,", 1, "syntax error expecting value"),
    ("[}", 1, "syntax error expecting value"),
    ("{\"a\":}", 5, "syntax error expecting value"),
    ("{,", 1, "syntax error parsing object expecting string"),
    ("{]", 1, "syntax error parsing object expecting string"),
    ("{1:2}", 2, "syntax error parsing object expecting string"),
    ("{\"a\":1,}", 7, "syntax error parsing object expecting string"),
    ("{\"a\"}", 4, "syntax error parsing object expecting ':'"),
    ("{\"a\" 1}", 6, "syntax error parsing object expecting ':'"),
    ("{\"a\":1 2}", 8, "syntax error expecting '}' or ','"),
    ("{\"a\":1]", 6, "syntax error expecting '}' or ','"),
    ("[1 2]", 4, "syntax error expecting ']' or ','"),
    ("[1:2]", 2, "syntax error expecting ']' or ','"),
    ("[\"a\":1]", 4, "syntax error expecting ']' or ','"),
    ("[null1]", 6, "syntax error expecting ']' or ','"),
    // More than one text, or a scalar.
    ("[1]]", 3, "trailing garbage at end of input"),
    ("[1] 2", 5, "trailing garbage at end of input"),
    ("[1]{}", 3, "trailing garbage at end of input"),
    ("[1]x", 4, "invalid keyword 'x'"),
    ("5", 1, "syntax error at beginning of input"),
    ("\"a\"", 2, "syntax error at beginning of input"),
    ("true ", 4, "syntax error at beginning of input"),
    // Keywords and stray characters.
    ("hello", 5, "invalid keyword 'hello'"),
    ("[hello]", 6, "invalid keyword 'hello'"),
    ("[nULL]", 5, "invalid keyword 'nULL'"),
    ("[nullx]", 6, "invalid keyword 'nullx'"),
    ("Hello", 0, "invalid character 'H'"),
    ("[Hello]", 1, "invalid character 'H'"),
    ("['a']", 1, "invalid character '''"),
    ("[+1]", 1, "invalid character '+'"),
    ("[.5]", 1, "invalid character '.'"),
    ("[\u{1}]", 1, "invalid character U+0001"),
    ("[\u{7f}]", 1, "invalid character U+007f"),
    ("[é]", 1, "invalid character U+00c3"),
    // Numbers.
    ("[01]", 3, "leading zeros not allowed"),
    ("[-01]", 4, "leading zeros not allowed"),
    ("[-]", 2, "'-' must be followed by digit"),
    ("[-a]", 2, "'-' must be followed by digit"),
    ("[1.]", 3, "decimal point must be followed by digit"),
    ("[1.x]", 3, "decimal point must be followed by digit"),
    ("[1e]", 3, "exponent must contain at least one digit"),
    ("[1e+]", 4, "exponent must contain at least one digit"),
    ("[1e99999999999]", 14, "exponent outside valid range"),
    ("[0e99999999999]", 14, "exponent outside valid range"),
    ("[1e-2147483640]", 14, "exponent outside valid range"),
    ("[1e999]", 6, "number outside valid range"),
    ("[1e214748364]", 12, "number outside valid range"),
    ("[1e-310]", 7, "number outside valid range"),
    ("[1-2]", 4, "syntax error in number"),
    ("[1.2.3]", 6, "syntax error in number"),
    ("[1e5e5]", 6, "syntax error in number"),
    ("[1e15.5]", 7, "syntax error in number"),
    // Strings.
    ("[\"\\q\"]", 4, "bad escape \\q"),
    ("[\"\\q\" x]", 4, "bad escape \\q"),
    ("[\"\\u12\"]", 6, "quoted string ends within \\u escape"),
    ("[1,\"\\u\"]", 6, "quoted string ends within \\u escape"),
    ("[\"\\u12g4\"]", 8, "malformed \\u escape"),
    ("[\"\\u0000\"]", 8, "null bytes not supported in quoted strings"),
    ("[\"\\ud800\"]", 8, "malformed escaped surrogate pair"),
    ("[\"\\ud800x\"]", 9, "malformed escaped surrogate pair"),
    ("[\"\\ud800\\n\"]", 10, "malformed escaped surrogate pair"),
    ("[\"\\ud800\\u0041\"]", 14, "second half of escaped surrogate pair is not trailing surrogate"),
    ("[\"a\u{1}\"]", 3, "U+0001 must be escaped in quoted string"),
    ("[\"a\n\"]", 3, "U+000A must be escaped in quoted string"),
    ("[\"\\q\u{1f}\"]", 4, "U+001F must be escaped in quoted string"),
];

#[test]
fn errors_are_worded_and_placed_as_by_the_reference() {
    for &(text, byte, message) in ONE_LINE {
        let expected = Error { line: 0, column: byte, byte, text: message.to_owned() };
        assert_eq!(validate(text.as_bytes()).unwrap_err(), expected, "{text:?}");
    }
}

#[test]
fn places_count_lines_and_columns() {
    let display = |text: &str| validate(text.as_bytes()).unwrap_err().to_string();
    assert_eq!(display("\n {"), "line 1, column 2, byte 3: unexpected end of input");
    assert_eq!(display("{\"a\":\n[1,\n  x]}"), "line 2, column 3, byte 13: invalid keyword 'x'");
    assert_eq!(display("[1\n,\n\n,]"), "line 3, column 0, byte 6: syntax error expecting value");
    assert_eq!(display("[1] \n 2"), "line 1, column 2, byte 7: trailing garbage at end of input");
}

#[test]
fn one_level_too_many_is_an_error_however_deep_it_goes_on() {
    for levels in [DEPTH_MAX + 1, 100_000] {
        for bracket in ["[", "{\"\":"] {
            let error = validate(bracket.repeat(levels).as_bytes()).unwrap_err();
            assert_eq!(error.text, "input exceeds maximum nesting depth 1000");
            assert_eq!(error.byte, (DEPTH_MAX * bracket.len()) as u64);
        }
    }
    let deepest = "[".repeat(DEPTH_MAX);
    assert_eq!(validate(deepest.as_bytes()).unwrap_err().text, "unexpected end of input");
    assert!(validate((deepest + &"]".repeat(DEPTH_MAX)).as_bytes()).is_ok());
}

#[test]
fn bytes_that_are_not_utf8_pass_in_strings_only() {
    let text = validate(b"[\"\xff\xc3\"]").unwrap();
    let string = text.elements().unwrap().next().unwrap();
    assert_eq!(string.string().as_deref(), Some(&b"\xff\xc3"[..]));
    assert_eq!(string.str(), None);
    assert_eq!(validate(b"[\xff]").unwrap_err().text, "invalid character U+00ff");
}

#[test]
fn a_prefix_is_refused_as_soon_as_nothing_can_save_it() {
    for good in ["[1", "[-", "[tr", "[1,\"\\u12", "{\"a\":1", " ", "[\"\\ud800"] {
        assert_eq!(check_prefix(good.as_bytes()), Ok(()), "{good}");
    }
    for bad in ["[,", "[tx ", "[01,", "{1 ", "[1 2 ", "[\"\\q\"", "[\"\n", "]", "[]]"] {
        let error = check_prefix(bad.as_bytes()).unwrap_err();
        assert_eq!(validate(bad.as_bytes()).unwrap_err(), error, "{bad}");
    }
}

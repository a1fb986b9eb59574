//! Files with something wrong in them, and what the reference says about each.

#![allow(dead_code, reason = "every test file uses its part")]

use weir_log::record::write_record;

/// What becomes of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    /// It is read to its end; this many rows are in table T.
    Good(usize),
    /// It cannot be opened.
    Refused(&'static str),
    /// What is before the damage is kept: always row 1.
    Kept(&'static str),
}

/// A file, damaged or odd.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) bytes: Vec<u8>,
    pub(crate) outcome: Outcome,
    /// Whether the installed reference (3.1) does the same as what we follow (4.0.90).
    pub(crate) same_in_3_1: bool,
}

const SCHEMA: &str = r#"{"name":"D","version":"1.0.0","tables":{"T":{"columns":{
    "i":{"type":"integer"},
    "small":{"type":{"key":{"type":"integer","minInteger":0,"maxInteger":9}}},
    "maybe":{"type":{"key":"integer","min":0,"max":1}},
    "two":{"type":{"key":"integer","min":0,"max":2}},
    "some":{"type":{"key":"integer","min":1,"max":2}},
    "set":{"type":{"key":"string","min":0,"max":"unlimited"}},
    "map":{"type":{"key":"string","value":"integer","min":0,"max":"unlimited"}},
    "choice":{"type":{"key":{"type":"string","enum":["set",["a","b"]]},"min":0,"max":1}},
    "fixed":{"type":"integer","mutable":false},
    "memory":{"type":"string","ephemeral":true}}}}}"#;

pub(crate) const ROW_1: &str = "00000001-0000-4000-8000-000000000000";
pub(crate) const ROW_2: &str = "00000002-0000-4000-8000-000000000000";

fn record(json: &str) -> Vec<u8> {
    let mut out = Vec::new();
    write_record(&mut out, json.as_bytes());
    out
}

/// A schema and a transaction that inserts row 1.
pub(crate) fn good() -> Vec<u8> {
    let row = r#"{"i":1,"two":["set",[1,2]],"map":["map",[["a",1]]]}"#;
    [record(SCHEMA), record(&format!(r#"{{"_date":1,"T":{{"{ROW_1}":{row}}}}}"#))].concat()
}

/// A good file, and then this.
fn then(name: &'static str, tail: &[u8], outcome: Outcome) -> Case {
    let bytes = [&good(), tail].concat();
    Case { name, bytes, outcome, same_in_3_1: true }
}

/// A good file, a record, and an insertion that must not be reached if the record is bad.
fn then_record(name: &'static str, json: &str, outcome: Outcome) -> Case {
    let json = json.replace("ROW1", ROW_1).replace("ROW2", ROW_2);
    let last = r#"{"T":{"00000003-0000-4000-8000-000000000000":{"i":3}}}"#;
    then(name, &[record(&json), record(last)].concat(), outcome)
}

fn whole(name: &'static str, bytes: &[u8], outcome: Outcome) -> Case {
    Case { name, bytes: bytes.to_vec(), outcome, same_in_3_1: true }
}

/// Every case. `OFFSET` in a text stands for where the good part ends, `BODY` for where the body of
/// the record behind it begins.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = beginnings();
    cases.extend(headers());
    cases.extend(bodies());
    cases.extend(contents());
    cases.extend(values());
    cases.extend(differences());
    cases
}

/// The text of a case with its offsets.
pub(crate) fn text(case: &Case, text: &str) -> String {
    let offset = good().len();
    let line = case.bytes.get(offset..).unwrap_or_default();
    let body = line.iter().position(|byte| *byte == b'\n').map_or(0, |at| offset + at + 1);
    text.replace("OFFSET", &offset.to_string()).replace("BODY", &body.to_string())
}

fn beginnings() -> Vec<Case> {
    use Outcome::Refused;
    const UNIDENTIFIED: Outcome = Refused("ovsdb error: db: cannot identify file type");
    const UNEXPECTED: Outcome = Refused("ovsdb error: db: unexpected file format");
    let schema = record(SCHEMA);
    let other = String::from_utf8_lossy(&schema).replacen("JSON", "JSONX", 1).into_bytes();
    let small = record(r#"{"a":1}"#);
    let damaged = String::from_utf8_lossy(&small).replace(":1", ":2").into_bytes();
    vec![
        whole("empty", b"", UNIDENTIFIED),
        whole("another kind of log", &other, UNIDENTIFIED),
        whole("other text", b"hello world\nfoo\n", UNEXPECTED),
        whole("other text in one line", b"hello", UNEXPECTED),
        whole("a newline", b"\n", UNEXPECTED),
        whole("a zero", b"\0", UNEXPECTED),
        whole("a torn first header", &schema[..20], UNEXPECTED),
        whole("no length", b"OVSDB JSON\n", UNEXPECTED),
        whole(
            "a torn schema",
            &small[..small.len() - 1],
            Refused("I/O error: db: error reading 8 bytes starting at offset 54 (End of file)"),
        ),
        whole(
            "a schema with another hash",
            &damaged,
            Refused(
                "syntax error: db: 8 bytes starting at offset 54 have SHA-1 hash \
                 ff5ec14f6679d50dc87c5a8f90cd1002cc155db5 but should have hash \
                 8a3d961f7fe8ef7b41d461059884a9461be85059",
            ),
        ),
        whole(
            "a schema that is no JSON",
            &record(r#"{"a":"#),
            Refused(
                "syntax error: db: 6 bytes starting at offset 54 are not valid JSON \
                 (line 1, column 0, byte 6: unexpected end of input)",
            ),
        ),
        whole(
            "a schema that is no object",
            &record("[1,2]"),
            Refused("syntax error: db: 6 bytes starting at offset 54 are not a JSON object"),
        ),
        whole(
            "a schema without tables",
            &record(r#"{"name":"D"}"#),
            Refused(
                r#"syntax "{"name":"D"}": syntax error: Parsing database schema failed: Required 'tables' member is missing."#,
            ),
        ),
        whole("only a schema", &schema, Outcome::Good(0)),
    ]
}

/// Header lines before the body of a good record.
fn headers() -> Vec<Case> {
    use Outcome::{Good, Kept};
    const BAD: &str =
        "syntax error: db: parse error at offset OFFSET in header line \"OVSDB JSON\"";
    let next = record(&format!(r#"{{"T":{{"{ROW_2}":{{"i":2}}}}}}"#));
    let text = String::from_utf8_lossy(&next).into_owned();
    let (header, body) = text.split_once('\n').unwrap();
    let (start, hash) = header.rsplit_once(' ').unwrap();
    let length = start.rsplit_once(' ').unwrap().1;
    let header_case = |name, line: &str, outcome| {
        let tail = line.replace("LEN", length).replace("HASH", hash);
        then(name, format!("{tail}\n{body}").as_bytes(), outcome)
    };
    vec![
        header_case("as it should be", "OVSDB JSON LEN HASH", Good(2)),
        header_case("an upper case hash", &header.to_uppercase(), Good(2)),
        header_case("a plus", "OVSDB JSON +LEN HASH", Good(2)),
        header_case("white space before the length", "OVSDB JSON \t\x0bLEN HASH", Good(2)),
        header_case("zeros", "OVSDB JSON 000LEN HASH", Good(2)),
        header_case("the longest line", &format!("OVSDB JSON {:070}LEN HASH", 0), Good(2)),
        header_case("a line too long", &format!("OVSDB JSON {:073}LEN HASH", 0), Kept(BAD)),
        header_case(
            "other text",
            "xxx",
            Kept("syntax error: db: parse error at offset OFFSET in header line \"xxx\""),
        ),
        header_case(
            "an empty line",
            "",
            Kept("syntax error: db: parse error at offset OFFSET in header line \"\""),
        ),
        header_case(
            "a space in front",
            " OVSDB JSON 1 2",
            Kept(
                "syntax error: db: parse error at offset OFFSET in header line \" OVSDB JSON 1 2\"",
            ),
        ),
        header_case(
            "two spaces",
            "OVSDB  JSON LEN HASH",
            Kept("syntax error: db: parse error at offset OFFSET in header line \"OVSDB \""),
        ),
        header_case(
            "a tab",
            "OVSDB JSON\tLEN HASH",
            Kept(
                "syntax error: db: parse error at offset OFFSET in header line \"OVSDB JSON\t55\"",
            ),
        ),
        header_case(
            "a record of a clustered database",
            "OVSDB CLUSTER LEN HASH",
            Kept("syntax error: db: parse error at offset OFFSET in header line \"OVSDB CLUSTER\""),
        ),
        header_case(
            "an unknown kind",
            "OVSDB FOO LEN HASH",
            Kept("syntax error: db: parse error at offset OFFSET in header line \"OVSDB FOO\""),
        ),
        header_case(
            "a zero byte",
            "abc\0def",
            Kept("syntax error: db: parse error at offset OFFSET in header line \"abc\""),
        ),
        header_case("a hexadecimal length", "OVSDB JSON 0x50 HASH", Kept(BAD)),
        header_case("a length with letters", "OVSDB JSON LENa HASH", Kept(BAD)),
        header_case("a length of 0", "OVSDB JSON 0 HASH", Kept(BAD)),
        header_case("a length of -0", "OVSDB JSON -0 HASH", Kept(BAD)),
        header_case("2^64 - 1 bytes", "OVSDB JSON 18446744073709551615 HASH", Kept(BAD)),
        header_case("2^64 bytes", "OVSDB JSON 18446744073709551616 HASH", Kept(BAD)),
        header_case("no hash", "OVSDB JSON LEN", Kept(BAD)),
        header_case("two spaces before the hash", "OVSDB JSON LEN  HASH", Kept(BAD)),
        header_case("a hash too short", &header[..header.len() - 1], Kept(BAD)),
        header_case("a hash too long", "OVSDB JSON LEN HASHa", Kept(BAD)),
        header_case("a space at the end", "OVSDB JSON LEN HASH ", Kept(BAD)),
        header_case("a carriage return at the end", "OVSDB JSON LEN HASH\r", Kept(BAD)),
        header_case(
            "a negative length",
            "OVSDB JSON -5 HASH",
            Kept(
                "I/O error: db: error reading 18446744073709551611 bytes starting at offset BODY \
                 (End of file)",
            ),
        ),
        header_case(
            "a length beyond the file",
            "OVSDB JSON 9999999999999 HASH",
            Kept(
                "I/O error: db: error reading 9999999999999 bytes starting at offset BODY \
                 (End of file)",
            ),
        ),
        then("a torn header", &next[..20], Kept(BAD)),
        then(
            "a torn word",
            b"O",
            Kept("syntax error: db: parse error at offset OFFSET in header line \"O\""),
        ),
        then("a header without newline", header.as_bytes(), Kept(BAD)),
        then(
            "a header without body",
            format!("{header}\n").as_bytes(),
            Kept("I/O error: db: error reading 55 bytes starting at offset BODY (End of file)"),
        ),
        then(
            "a torn body",
            &next[..next.len() - 1],
            Kept("I/O error: db: error reading 55 bytes starting at offset BODY (End of file)"),
        ),
    ]
}

/// Bodies with a right hash.
fn bodies() -> Vec<Case> {
    use Outcome::{Good, Kept};
    let spaced = format!(" {{\"T\" : {{\"{ROW_2}\": {{ \"i\":2}}}}}} \n");
    vec![
        then("white space", &record(&spaced), Good(2)),
        then(
            "no JSON",
            &record(r#"{"_date":1 "x"}"#),
            Kept(
                "syntax error: db: 16 bytes starting at offset BODY are not valid JSON \
                 (line 0, column 13, byte 13: syntax error expecting '}' or ',')",
            ),
        ),
        then(
            "two values",
            &record(r#"{"_date":1}{}"#),
            Kept(
                "syntax error: db: 14 bytes starting at offset BODY are not valid JSON \
                 (line 0, column 11, byte 11: trailing garbage at end of input)",
            ),
        ),
        then(
            "nothing",
            &record(""),
            Kept(
                "syntax error: db: 1 bytes starting at offset BODY are not valid JSON \
                 (line 1, column 0, byte 1: empty input stream)",
            ),
        ),
        then(
            "an array",
            &record("[1]"),
            Kept("syntax error: db: 4 bytes starting at offset BODY are not a JSON object"),
        ),
        then(
            "a string",
            &record(r#""foo""#),
            Kept(
                "syntax error: db: 6 bytes starting at offset BODY are not valid JSON \
                 (line 0, column 4, byte 4: syntax error at beginning of input)",
            ),
        ),
    ]
}

/// What a record says of tables and rows.
fn contents() -> Vec<Case> {
    use Outcome::{Good, Kept};
    vec![
        then_record("nothing", "{}", Good(2)),
        then_record("a comment", r#"{"_comment":"x","_date":1}"#, Good(2)),
        then_record("a comment that is no string", r#"{"_comment":7}"#, Good(2)),
        then_record(
            "an unknown table",
            r#"{"invalid":{}}"#,
            Kept(r#"syntax "{"invalid":{}}": unknown table: No table named invalid."#),
        ),
        then_record(
            "an unknown table behind a good one",
            r#"{"T":{"ROW2":{"i":2}},"_date":1,"A":{}}"#,
            Kept(
                r#"syntax "{"A":{},"T":{"00000002-0000-4000-8000-000000000000":{"i":2}},"_date":1}": unknown table: No table named A."#,
            ),
        ),
        then_record(
            "an unknown word",
            r#"{"_foo":1}"#,
            Kept(r#"syntax "{"_foo":1}": unknown table: No table named _foo."#),
        ),
        then_record(
            "a date that is no integer",
            r#"{"_date":1.5}"#,
            Kept(r#"syntax "{"_date":1.5}": unknown table: No table named _date."#),
        ),
        then_record("a date that is an integer by value", r#"{"_date":1.50e1}"#, Good(2)),
        then_record(
            "an _is_diff that is no boolean",
            r#"{"_is_diff":1}"#,
            Kept(r#"syntax "{"_is_diff":1}": unknown table: No table named _is_diff."#),
        ),
        then_record(
            "a table that is no object",
            r#"{"T":[1]}"#,
            Kept(r#"syntax "[1]": syntax error: object expected"#),
        ),
        then_record(
            "a table that is null",
            r#"{"T":null}"#,
            Kept(r#"syntax "null": syntax error: object expected"#),
        ),
        then_record(
            "a bad UUID",
            r#"{"T":{"xyz":{"i":2}}}"#,
            Kept(r#"syntax "{"xyz":{"i":2}}": syntax error: "xyz" is not a valid UUID"#),
        ),
        then_record(
            "a UUID too long",
            r#"{"T":{"ROW2x":{}}}"#,
            Kept(
                r#"syntax "{"00000002-0000-4000-8000-000000000000x":{}}": syntax error: "00000002-0000-4000-8000-000000000000x" is not a valid UUID"#,
            ),
        ),
        then_record(
            "an upper case UUID",
            r#"{"T":{"ABCDEF00-0000-4000-8000-000000000000":{}}}"#,
            Good(3),
        ),
        then_record("a row of defaults", r#"{"T":{"ROW2":{}}}"#, Good(3)),
        then_record("a deletion", r#"{"T":{"ROW1":null}}"#, Good(1)),
        then_record(
            "a deletion of what is not there",
            r#"{"T":{"ROW2":null}}"#,
            Kept(
                "syntax error: transaction deletes row 00000002-0000-4000-8000-000000000000 that \
                 does not exist",
            ),
        ),
        then_record(
            "a row that is no object",
            r#"{"T":{"ROW2":[]}}"#,
            Kept(r#"syntax "[]": syntax error: row must be JSON object"#),
        ),
        then_record(
            "a change that is no object",
            r#"{"T":{"ROW1":false}}"#,
            Kept(r#"syntax "false": syntax error: row must be JSON object"#),
        ),
        then_record(
            "an unknown column",
            r#"{"T":{"ROW2":{"zz":[2, 3]}}}"#,
            Kept(r#"syntax "{"zz":[2,3]}": unknown column: No column zz in table T."#),
        ),
        then_record(
            "a change to an unknown column",
            r#"{"T":{"ROW1":{"zz":2}}}"#,
            Kept(r#"syntax "{"zz":2}": unknown column: No column zz in table T."#),
        ),
        then_record("a version", r#"{"T":{"ROW2":{"_version":["uuid","ROW1"]}}}"#, Good(3)),
        then_record("a column not kept in files", r#"{"T":{"ROW2":{"memory":"x"}}}"#, Good(3)),
        then_record("a change to a fixed column", r#"{"T":{"ROW1":{"fixed":7}}}"#, Good(2)),
        then_record(
            "good rows before a bad one",
            r#"{"T":{"ROW2":{"i":4},"ROW1":{"zz":1}}}"#,
            Kept(r#"syntax "{"zz":1}": unknown column: No column zz in table T."#),
        ),
        then_record("two equal rows", r#"{"T":{"ROW2":{"i":5},"ROW2":{"i":6}}}"#, Good(3)),
        then_record("two unlike rows", r#"{"T":{"ROW2":{"i":5},"ROW2":{"two":1}}}"#, Good(3)),
        then_record(
            "two changes of a row",
            r#"{"T":{"ROW1":{"i":5},"ROW1":{"fixed":3}}}"#,
            Good(2),
        ),
        then_record("two equal tables", r#"{"T":5,"T":{"ROW2":{}}}"#, Good(3)),
        then_record("two equal columns", r#"{"T":{"ROW2":{"i":"x","i":6}}}"#, Good(3)),
        then_record(
            "a row in two spellings",
            r#"{"T":{"abcdef00-0000-4000-8000-000000000000":{},
                     "ABCDEF00-0000-4000-8000-000000000000":{}}}"#,
            Good(3),
        ),
    ]
}

/// Values that a column does not take.
fn values() -> Vec<Case> {
    use Outcome::Kept;
    let bad = |name, columns: &str, text| {
        then_record(name, &format!(r#"{{"T":{{"ROW2":{columns}}}}}"#), Kept(text))
    };
    vec![
        bad("a string", r#"{"i":"x"}"#, r#"syntax ""x"": syntax error: expected integer"#),
        bad(
            "out of range",
            r#"{"small":10}"#,
            "constraint violation: 10 is not in the valid range 0 to 9 (inclusive)",
        ),
        bad(
            "no choice",
            r#"{"choice":"c"}"#,
            "constraint violation: c is not one of the allowed values ([a, b])",
        ),
        bad(
            "too many",
            r#"{"two":["set",[1,2,3]]}"#,
            r#"syntax "["set",[1,2,3]]": syntax error: set must have 0 to 2 members but 3 are present"#,
        ),
        bad(
            "too few",
            r#"{"some":["set",[]]}"#,
            r#"syntax "["set",[]]": syntax error: set must have 1 to 2 members but 0 are present"#,
        ),
        bad(
            "none",
            r#"{"i":["set",[]]}"#,
            r#"syntax "["set",[]]": syntax error: set must have exactly one member but 0 are present"#,
        ),
        bad(
            "equal elements",
            r#"{"set":["set",["a","a"]]}"#,
            "ovsdb error: set contains duplicate",
        ),
        bad(
            "equal keys",
            r#"{"map":["map",[["a",1],["a",1]]]}"#,
            "ovsdb error: map contains duplicate key",
        ),
        then_record(
            "a change out of range",
            r#"{"T":{"ROW1":{"small":-1}}}"#,
            Kept("constraint violation: -1 is not in the valid range 0 to 9 (inclusive)"),
        ),
    ]
}

/// Records with `_is_diff`. Row 1 has two = {1, 2} and map = {a=1}.
fn differences() -> Vec<Case> {
    use Outcome::{Good, Kept};
    let diff = |name, columns: &str, outcome| {
        let json = format!(r#"{{"T":{{"ROW1":{columns}}},"_is_diff":true}}"#);
        then_record(name, &json, outcome)
    };
    const SIZE: Outcome = Kept("ovsdb error: Datum crated by diff has size error");
    let not_3_1 = |case: Case| Case { same_in_3_1: false, ..case };
    vec![
        diff("nothing", "{}", Good(2)),
        diff("an element less", r#"{"two":1}"#, Good(2)),
        diff("all elements less", r#"{"two":["set",[1,2]]}"#, Good(2)),
        diff("no difference", r#"{"two":["set",[]]}"#, Good(2)),
        diff("an element too many", r#"{"two":3}"#, SIZE),
        not_3_1(diff("all elements changed", r#"{"two":["set",[1,2,3,4]]}"#, Good(2))),
        not_3_1(diff("too many in a long difference", r#"{"two":["set",[1,2,3,4,5]]}"#, SIZE)),
        not_3_1(diff("the last element", r#"{"some":0}"#, SIZE)),
        diff("another value of a key", r#"{"map":["map",[["a",2]]]}"#, Good(2)),
        diff("a pair less", r#"{"map":["map",[["a",1]]]}"#, Good(2)),
        diff(
            "equal elements",
            r#"{"set":["set",["b","b"]]}"#,
            Kept("ovsdb error: set contains duplicate"),
        ),
        diff("two equal columns of a change", r#"{"set":"b","set":"b"}"#, Good(2)),
        diff("an optional value", r#"{"maybe":["set",[]]}"#, Good(2)),
        diff(
            "two of an optional value",
            r#"{"maybe":["set",[1,2]]}"#,
            Kept(
                r#"syntax "["set",[1,2]]": syntax error: set must have 0 to 1 members but 2 are present"#,
            ),
        ),
        diff(
            "no value",
            r#"{"i":["set",[]]}"#,
            Kept(
                r#"syntax "["set",[]]": syntax error: set must have exactly one member but 0 are present"#,
            ),
        ),
        diff(
            "an unknown column",
            r#"{"zz":5}"#,
            Kept(r#"syntax "{"zz":5}": unknown column: No column zz in table T."#),
        ),
        then_record(
            "a new row beside a difference",
            r#"{"T":{"ROW2":{"two":["set",[1,2]]},"ROW1":{"two":2}},"_is_diff":true}"#,
            Good(3),
        ),
        then_record(
            "a new row too large",
            r#"{"_is_diff":true,"T":{"ROW2":{"two":["set",[1,2,3]]}}}"#,
            Kept(
                r#"syntax "["set",[1,2,3]]": syntax error: set must have 0 to 2 members but 3 are present"#,
            ),
        ),
        then_record(
            "no difference after all",
            r#"{"T":{"ROW1":{"two":["set",[5,6]]}},"_is_diff":false}"#,
            Good(2),
        ),
    ]
}

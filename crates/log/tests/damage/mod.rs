//! Files with something wrong in them, and what the reference says about each.

#![allow(dead_code, reason = "every test file uses its part")]

use weir_log::record::write_record;

/// What becomes of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    /// The file is read to its end; this many rows are in table T.
    Good(usize),
    /// The file cannot be opened.
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
    cases.extend(records());
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
                "syntax \"{\"name\":\"D\"}\": syntax error: Parsing database schema failed: \
                 Required 'tables' member is missing.",
            ),
        ),
        whole("only a schema", &schema, Outcome::Good(0)),
    ]
}

/// The blocks of a file of cases: name, input and outcome.
fn blocks(text: &'static str) -> impl Iterator<Item = (&'static str, &'static str, Outcome)> {
    let blocks = text.split("\n\n").filter(|block| !block.starts_with('#'));
    blocks.map(|block| {
        let mut lines = block.trim_matches('\n').split('\n');
        let mut next = |indent| lines.next().and_then(|line: &str| line.get(indent..)).unwrap();
        let (name, input, outcome) = (next(0), next(4), next(2));
        let outcome = match outcome.split_at(2) {
            ("= ", rows) => Outcome::Good(rows.parse().unwrap()),
            ("! ", text) => Outcome::Kept(text),
            _ => panic!("{name}: neither = nor !"),
        };
        (name, input, outcome)
    })
}

/// Header lines before the body of a good record.
fn headers() -> Vec<Case> {
    use Outcome::{Good, Kept};
    const BAD: &str =
        "syntax error: db: parse error at offset OFFSET in header line \"OVSDB JSON\"";
    const TORN: &str =
        "I/O error: db: error reading 55 bytes starting at offset BODY (End of file)";
    let next = record(&format!(r#"{{"T":{{"{ROW_2}":{{"i":2}}}}}}"#));
    let text = String::from_utf8_lossy(&next).into_owned();
    let (header, body) = text.split_once('\n').unwrap();
    let (start, hash) = header.rsplit_once(' ').unwrap();
    let length = start.rsplit_once(' ').unwrap().1;
    let with_header =
        |name, line: &str, outcome| then(name, format!("{line}\n{body}").as_bytes(), outcome);
    let longest = format!("OVSDB JSON {:070}{length} {hash}", 0);
    let mut cases = vec![
        with_header("an upper case hash", &header.to_uppercase(), Good(2)),
        with_header("the longest line", &longest, Good(2)),
        with_header("a line too long", &longest.replacen("JSON ", "JSON 000", 1), Kept(BAD)),
        with_header("a hash too short", &header[..header.len() - 1], Kept(BAD)),
        then("a torn header", &next[..20], Kept(BAD)),
        then("a header without newline", header.as_bytes(), Kept(BAD)),
        then("a header without body", format!("{header}\n").as_bytes(), Kept(TORN)),
        then("a torn body", &next[..next.len() - 1], Kept(TORN)),
    ];
    for (name, line, outcome) in blocks(include_str!("headers.txt")) {
        let mut line = line.replace("LEN", length).replace("HASH", hash);
        for (escape, control) in [(r"\t", "\t"), (r"\v", "\x0b"), (r"\r", "\r"), (r"\0", "\0")] {
            line = line.replace(escape, control);
        }
        let outcome = match outcome {
            Kept(text) => Kept(text.replace(r"\t", "\t").leak()),
            outcome => outcome,
        };
        cases.push(with_header(name, &line, outcome));
    }
    cases
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

/// What records say of tables, rows and columns.
fn records() -> Vec<Case> {
    let case = |(name, json, outcome): (&'static str, &str, _)| {
        let same_in_3_1 = !name.ends_with("(not in 3.1)");
        Case { same_in_3_1, ..then_record(name, json, outcome) }
    };
    blocks(include_str!("records.txt")).map(case).collect()
}

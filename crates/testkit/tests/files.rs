//! Database files: what one side writes the other reads, and damaged ones are read alike.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use weir_testkit::client::{Client, Trouble};
use weir_testkit::dump::Dump;
use weir_testkit::files;
use weir_testkit::process::{Program, Scratch, Server, both, reference, weir};

const TABLES: [&str; 2] = ["A", "B"];

fn schema() -> Value {
    json!({"name": "D", "version": "1.0.0", "tables": {
        "A": {"isRoot": true, "columns": {
            "n": {"type": "integer"},
            "s": {"type": {"key": "string", "min": 0, "max": "unlimited"}},
            "m": {"type": {"key": "string", "value": "real", "min": 0, "max": "unlimited"}},
            "b": {"type": {"key": {"type": "uuid", "refTable": "B"}, "min": 0}}}},
        "B": {"columns": {"t": {"type": "string"}}}}})
}

/// A file of five records, written by `program`.
fn write_sample(program: &Program, file: &Path) {
    files::create(file, &schema()).expect("a database file");
    let server = Server::start(program, &[file.to_path_buf()]).expect("the server starts");
    let mut session = server.connect().expect("a session");
    let uuid = "11111111-2222-4333-8444-555555555555";
    let itself = json!([["_uuid", "==", ["uuid", uuid]]]);
    let mutate = |mutations: Value| json!({"op": "mutate", "table": "A", "where": itself, "mutations": mutations});
    for ops in [
        vec![
            json!({"op": "insert", "table": "B", "uuid-name": "b", "uuid": "99999999-2222-4333-8444-555555555555", "row": {"t": "é"}}),
            json!({"op": "insert", "table": "A", "uuid": uuid, "row": {"n": 7, "s": ["set", ["x", "y"]], "b": ["named-uuid", "b"]}}),
        ],
        vec![mutate(json!([
            ["s", "insert", "z"],
            ["s", "delete", "x"],
            ["m", "insert", ["map", [["k", 1.5]]]]
        ]))],
        vec![
            json!({"op": "comment", "comment": "so \"it\" goes"}),
            mutate(json!([["n", "+=", 1]])),
        ],
        vec![json!({"op": "delete", "table": "A", "where": itself})],
    ] {
        let result = session.transact("D", &ops).expect("an answer");
        assert!(!result.to_string().contains("error"), "{result}");
    }
    drop(session);
    server.stop().expect("the server stops");
}

/// One server to which damaged files are added and removed again.
struct Reader {
    server: Server,
    session: Client,
    file: PathBuf,
    logged: usize,
    _scratch: Scratch,
}

impl Reader {
    fn start(program: &Program) -> Self {
        let scratch = Scratch::new("damaged");
        let server = Server::start_with(program, &[], &["--no-dbs"]).expect("the server starts");
        let mut session = server.connect().expect("a session");
        session.request("set_db_change_aware", &json!([true])).expect("an answer");
        let file = scratch.file("d.db");
        Self { server, session, file, logged: 0, _scratch: scratch }
    }

    /// Everything there is to tell of a file with these bytes, in a few lines.
    fn read(&mut self, bytes: &[u8]) -> Vec<String> {
        fs::write(&self.file, bytes).expect("a damaged file");
        let mut told = vec![];
        let file = self.file.display().to_string();
        match self.server.admin("ovsdb-server/add-db", &[&file]) {
            Ok(_) => {
                told.push(self.content("read"));
                // The next record goes where the last good one ended.
                let insert = json!({"op": "insert", "table": "B", "row": {}});
                let update = json!({"op": "update", "table": "A", "where": [], "row": {"n": 1}});
                let result = self.session.transact("D", &[insert, update]);
                told.push(format!("write {:?}", result.map(|result| result[1].to_string()).ok()));
                self.remove();
                match self.server.admin("ovsdb-server/add-db", &[&file]) {
                    Ok(_) => {
                        told.push(self.content("again"));
                        self.remove();
                    }
                    Err(trouble) => told.push(format!("not again: {trouble}")),
                }
            }
            Err(Trouble::Refused(text)) => told.push(format!("refused: {text}")),
            Err(trouble) => panic!("{trouble}\n{}", self.server.log()),
        }
        told.extend(self.first_complaint());
        told.into_iter().map(|line| line.replace(&file, "FILE")).collect()
    }

    fn content(&mut self, word: &str) -> String {
        let tables = TABLES.map(str::to_owned);
        match Dump::read(&mut self.session, "D", &tables) {
            Ok(dump) => {
                let rows: Vec<String> = dump
                    .rows()
                    .map(|(table, uuid, row)| {
                        let mut row = row.clone();
                        row.retain(|column, _| column != "_version");
                        row.sort_keys();
                        format!("{table} {uuid} {}", Value::Object(row))
                    })
                    .collect();
                format!("{word} {}", rows.join("; "))
            }
            Err(trouble) => format!("{word} {trouble}"),
        }
    }

    fn remove(&mut self) {
        self.server.admin("ovsdb-server/remove-db", &["D"]).expect("the database goes");
        self.session.barrier().expect("an answer");
    }

    /// The first warning or error since the last time, without time, number and module.
    ///
    /// Only the first: the reference reads on in every round of its loop and complains again.
    fn first_complaint(&mut self) -> Option<String> {
        let log = self.server.log();
        let new = log.get(self.logged..).unwrap_or_default().to_owned();
        self.logged = log.len();
        let message = |line: &str| {
            let parts: Vec<&str> = line.splitn(5, '|').collect();
            let loud = parts.len() == 5 && matches!(parts[3], "WARN" | "ERR" | "EMER");
            loud.then(|| format!("{} {}", parts[3], parts[4]))
        };
        new.lines().find_map(message)
    }
}

/// Reads every damaged form of a file with both servers.
fn compare_readings(programs: &(Program, Program), name: &str, forms: &[(String, Vec<u8>)]) {
    let (mut a, mut b) = (Reader::start(&programs.0), Reader::start(&programs.1));
    let mut differences = vec![];
    for (what, bytes) in forms {
        let (x, y) = (a.read(bytes), b.read(bytes));
        if x != y {
            differences.push(format!(
                "{name}, {what}:\n  A {}\n  B {}",
                x.join("\n    "),
                y.join("\n    ")
            ));
        }
    }
    assert!(
        differences.is_empty(),
        "{} of {} read differently\n{}",
        differences.len(),
        forms.len(),
        differences[..differences.len().min(10)].join("\n")
    );
    println!("{name}: {} damaged files read alike", forms.len());
}

/// Both samples, by who wrote them.
fn samples(programs: &(Program, Program)) -> Vec<(String, Vec<u8>)> {
    let scratch = Scratch::new("sample");
    let sample = |program: &Program| {
        let file = scratch.file(program.label);
        write_sample(program, &file);
        (format!("written by {}", program.label), fs::read(&file).expect("the sample"))
    };
    vec![sample(&programs.0), sample(&programs.1)]
}

#[test]
fn a_file_torn_at_any_byte_is_read_alike() {
    let Some(programs) = both("torn files") else { return };
    for (name, bytes) in samples(&programs) {
        let torn = |end: usize| (format!("cut at {end} of {}", bytes.len()), bytes[..end].to_vec());
        let forms: Vec<_> = (0..=bytes.len()).map(torn).collect();
        compare_readings(&programs, &name, &forms);
    }
}

#[test]
fn a_file_corrupted_at_any_byte_is_read_alike() {
    let Some(programs) = both("corrupted files") else { return };
    for (name, bytes) in samples(&programs) {
        let changed = |at: usize| {
            let mut changed = bytes.clone();
            changed[at] ^= [0x01, 0x20, 0x80][at % 3];
            (format!("byte {at} of {} changed", bytes.len()), changed)
        };
        let forms: Vec<_> = (0..bytes.len()).map(changed).collect();
        compare_readings(&programs, &name, &forms);
    }
}

/// Whole records that say what they should not, with a right checksum.
#[test]
fn records_that_do_not_apply_are_read_alike() {
    let Some(programs) = both("records that do not apply") else { return };
    let uuid = "11111111-2222-4333-8444-555555555555";
    let good = json!({"_date": 1, "A": {uuid: {"n": 1}}}).to_string();
    let bad = [
        json!({"Nope": {uuid: {"n": 1}}}),
        json!({"A": {uuid: {"nope": 1}}}),
        json!({"A": {"no uuid": {"n": 1}}}),
        json!({"A": {uuid: {"n": "x"}}}),
        json!({"A": {uuid: {"n": ["set", []]}}}),
        json!({"A": {uuid: 7}}),
        json!({"A": 7}),
        json!({"A": {"22222222-2222-4333-8444-555555555555": null}}),
        json!({"_date": "x"}),
        json!({"_date": 1.5, "_comment": 7}),
        json!({"_is_diff": 1, "A": {uuid: {"n": 4}}}),
        json!({"_is_diff": true, "A": {uuid: {"s": ["set", ["p", "q"]], "n": 4}}}),
        json!({"_is_diff": false, "A": {uuid: {"s": ["set", ["p", "q"]]}}}),
        json!({"_unknown": 1}),
        json!({"A": {uuid: {"n": 1}, "33333333-2222-4333-8444-555555555555": {}}}),
        json!({}),
        json!([]),
        json!({"A": {uuid: null}}),
        json!({"B": {uuid: {"t": "an orphan"}}}),
        json!({"name": "D", "tables": {"A": {"columns": {"n": {"type": "integer"}}}}}),
    ];
    let mut forms = vec![];
    for bad in &bad {
        let mut bytes = files::record(&schema().to_string());
        bytes.extend(files::record(&good));
        bytes.extend(files::record(&bad.to_string()));
        forms.push((bad.to_string(), bytes));
    }
    for (what, bytes) in [
        ("nothing", vec![]),
        ("a line feed", b"\n".to_vec()),
        ("junk", b"hello, world\n".to_vec()),
        ("only a transaction", files::record(&good)),
        ("a schema that is none", files::record("{\"name\":\"D\"}")),
        ("an array", files::record("[]")),
        ("broken JSON", files::record("{\"name\":")),
    ] {
        forms.push((what.to_owned(), bytes));
    }
    compare_readings(&programs, "by hand", &forms);
}

/// A file of these records behind a schema.
fn file_of(schema: &Value, records: &[Value]) -> Vec<u8> {
    let mut bytes = files::record(&schema.to_string());
    records.iter().for_each(|record| bytes.extend(files::record(&record.to_string())));
    bytes
}

/// Records that break integrity are passed over by both, and neither touches them.
#[test]
fn records_that_no_server_commits_are_passed_over() {
    let mut schema = schema();
    schema["tables"]["A"]["indexes"] = json!([["n"]]);
    schema["tables"]["M"] =
        json!({"isRoot": true, "maxRows": 1, "columns": {"t": {"type": "string"}}});
    let uuid = |n: u64| format!("{n:08}-2222-4333-8444-555555555555");
    let nobody = json!(["uuid", uuid(99)]);
    let first = json!({"_date": 1, "A": {uuid(1): {"n": 5, "b": ["uuid", uuid(20)]}}, "B": {uuid(20): {"t": "x"}}});
    let last = json!({"A": {uuid(2): {"n": 6}}});
    let bad = [
        ("a dangling reference", vec![json!({"A": {uuid(3): {"n": 7, "b": nobody}}})]),
        ("a changed one", vec![json!({"A": {uuid(1): {"b": nobody}}})]),
        ("a target goes", vec![json!({"B": {uuid(20): null}})]),
        ("equal index values", vec![json!({"A": {uuid(3): {"n": 5}}})]),
        ("too many rows", vec![json!({"M": {uuid(11): {}}}), json!({"M": {uuid(12): {}}})]),
        ("too many at once", vec![json!({"M": {uuid(11): {}, uuid(12): {}}})]),
        (
            "an orphan and a bad one",
            vec![json!({"B": {uuid(21): {}}}), json!({"A": {uuid(1): {"b": nobody}}})],
        ),
        (
            "a snapshot",
            vec![
                json!({"A": {uuid(1): null}, "B": {uuid(20): null}}),
                json!({"A": {uuid(4): {"n": 1}, uuid(3): {"b": nobody}}}),
            ],
        ),
    ];
    let mut weir = Reader::start(&weir());
    let mut reference = reference().map(|reference| Reader::start(&reference));
    for (what, bad) in bad {
        let records: Vec<Value> =
            [first.clone()].into_iter().chain(bad).chain([last.clone()]).collect();
        let bytes = file_of(&schema, &records);
        let mut told = weir.read(&bytes);
        let complaint = told.pop().expect("a complaint");
        let is_named = ["referential integrity violation: ", "constraint violation: "];
        assert!(
            is_named.iter().any(|tag| complaint.starts_with(&format!("ERR {tag}"))),
            "{what}: {complaint}"
        );
        assert!(told[0].contains(&uuid(2)), "{what}: {told:?}");
        // Nothing of the file is touched; what comes is appended.
        assert!(fs::read(&weir.file).expect("the file").starts_with(&bytes), "{what}");
        if let Some(reference) = &mut reference {
            let log = reference.server.log().len();
            let by_reference = reference.read(&bytes);
            assert_eq!(told, by_reference, "{what}");
            let reason = complaint.trim_start_matches("ERR ");
            let log = &reference.server.log()[log..];
            let is_told = log.contains(reason) || log.contains(&other_order(reason));
            assert!(is_told, "{what}: {reason}\n{log}");
        } else {
            eprintln!("skipped: no reference to compare with");
        }
    }
}

/// The error of an index with its rows the other way round: chance orders them in the reference.
fn other_order(error: &str) -> String {
    let rows = error.split_once("First row, ").and_then(|(before, rows)| {
        let (first, second) = rows.split_once("  Second row, ")?;
        Some(format!("{before}First row, {second}  Second row, {first}"))
    });
    rows.unwrap_or_else(|| error.to_owned())
}

//! Runs the scripts in `testscripts/`: transactions and the replies to them.
//!
//! A script is sections divided by blank lines; lines that begin with `#` are remarks.
//!
//! ```text
//! schema
//! {"name": ...}
//!
//! transact [read-only] [reserved] [lock=NAME] [elapsed=MS] [work]
//! one operation a line
//! ----
//! one result a line, and what else came of it after `--`
//! ```
//!
//! UUIDs that the engine made up are written `<0>`, `<1>` in the order of their appearance, in
//! requests too. `UPDATE=1 cargo test` writes the replies as they are now into the scripts: read
//! the difference before you keep it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_data::{Schema, Uuid, UuidSource};
use weir_engine::{Database, Done, Env, Outcome, ReadOnly, execute};
use weir_json::{Text, validate};

/// Any seed whose UUIDs do not look like those that scripts write, which begin with zeros.
const SEED: [u64; 4] = [0x6a09_e667_f3bc_c908, 0xbb67_ae85_84ca_a73b, 0x3c6e_f372_fe94_f82b, 1];

/// The engine under a script, and the UUIDs met so far.
struct Stage {
    db: Database,
    uuids: UuidSource,
    /// Text forms of UUIDs that the engine made, by number.
    made: Vec<String>,
}

impl Stage {
    fn new(schema: &str) -> Self {
        let schema = Schema::parse_bytes(schema.as_bytes()).expect("the script's schema");
        let db = Database::new(Arc::new(schema), 7);
        Self { db, uuids: UuidSource::new(SEED), made: Vec::new() }
    }

    fn transact(&mut self, options: &str, operations: &str) -> String {
        let mut operations = operations.to_owned();
        for (number, uuid) in self.made.iter().enumerate() {
            operations = operations.replace(&format!("<{number}>"), uuid);
        }
        let array = format!("[{}]", operations.lines().collect::<Vec<_>>().join(","));
        let array = validate(array.as_bytes()).expect("the script's operations");
        let operations: Vec<Text<'_>> = array.elements().expect("an array").collect();

        let words: Vec<&str> = options.split_whitespace().collect();
        let value = |key: &str| words.iter().find_map(|word| word.strip_prefix(key));
        let read_only = match () {
            () if words.contains(&"reserved") => Some(ReadOnly::ReservedDatabase),
            () if words.contains(&"read-only") => Some(ReadOnly::Server),
            () => None,
        };
        let has_lock = |name: &str| value("lock=") == Some(name);
        let elapsed_ms = value("elapsed=").map_or(0, |ms| ms.parse().expect("milliseconds"));
        let mut env =
            Env { read_only, has_lock: &has_lock, elapsed_ms, ..Env::new(&mut self.uuids) };
        let before = self.db.state_hash();
        let outcome = execute(&mut self.db, &operations, &mut env);
        let changed = self.db.state_hash() != before;
        match outcome {
            Outcome::Done(done) => {
                assert_eq!(changed, done.delta.is_some(), "a trace without a change");
                self.describe(&done, words.contains(&"work"))
            }
            Outcome::TooLong { .. } => {
                assert!(!changed, "a trace of a request that is too long");
                "-- too long\n".to_owned()
            }
            Outcome::Wait { timeout_ms, .. } => {
                assert!(!changed, "a trace of a request that waits");
                match timeout_ms {
                    Some(ms) => format!("-- wait until {ms} ms\n"),
                    None => "-- wait\n".to_owned(),
                }
            }
        }
    }

    fn describe(&mut self, done: &Done, with_work: bool) -> String {
        let reply = validate(&done.reply).expect("the reply is JSON");
        let mut canonical = Vec::new();
        reply.write(&mut canonical);
        assert_eq!(
            String::from_utf8_lossy(&canonical),
            String::from_utf8_lossy(&done.reply),
            "the reply is in canonical form"
        );
        let results = reply.elements().expect("an array");
        let mut text: String = results
            .map(|result| String::from_utf8_lossy(result.as_bytes()).into_owned() + "\n")
            .collect();
        if done.durable {
            text.push_str("-- durable\n");
        }
        if let Some(comment) = &done.comment {
            text.push_str(&format!("-- comment {comment:?}\n"));
        }
        if with_work {
            let work = done.work;
            text.push_str(&format!(
                "-- visited {}, by uuid {}, by index {}, scans {}\n",
                work.rows_visited, work.by_uuid, work.by_index, work.scans
            ));
        }
        self.number_uuids(&text)
    }

    /// Replaces UUIDs that no script wrote: those of a random source, not `0000...`.
    fn number_uuids(&mut self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let uuid = rest.get(..36).filter(|uuid| Uuid::parse(uuid).is_some());
            match uuid.filter(|uuid| !uuid.starts_with("00000000-")) {
                Some(uuid) => {
                    let known = self.made.iter().position(|made| made == uuid);
                    let number = known.unwrap_or_else(|| {
                        self.made.push(uuid.to_owned());
                        self.made.len() - 1
                    });
                    out.push_str(&format!("<{number}>"));
                    rest = &rest[36..];
                }
                None => {
                    out.push(first);
                    rest = &rest[first.len_utf8()..];
                }
            }
        }
        out
    }
}

/// Runs a script; the script with the replies as they are.
fn run(script: &str) -> String {
    let mut stage = None;
    let mut sections = Vec::new();
    for section in script.trim_end().split("\n\n") {
        let remarks: String = section
            .lines()
            .take_while(|line| line.starts_with('#'))
            .map(|line| format!("{line}\n"))
            .collect();
        let body = &section[remarks.len().min(section.len())..];
        let (head, body) = body.split_once('\n').unwrap_or((body, ""));
        let text = match head.split_once(' ').unwrap_or((head, "")) {
            ("", _) if body.is_empty() => remarks.trim_end().to_owned(),
            ("schema", _) => {
                stage = Some(Stage::new(body));
                format!("{remarks}schema\n{body}")
            }
            ("transact", options) => {
                let operations = body.split("----").next().unwrap_or_default().trim_end();
                let stage = stage.as_mut().expect("the schema comes first");
                let reply = stage.transact(options, operations);
                let operations =
                    if operations.is_empty() { String::new() } else { format!("{operations}\n") };
                format!("{remarks}{head}\n{operations}----\n{reply}").trim_end().to_owned()
            }
            _ => panic!("what is {head:?}?"),
        };
        sections.push(text);
    }
    sections.join("\n\n") + "\n"
}

fn scripts(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder of scripts") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(scripts(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn every_script_gets_the_replies_that_it_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testscripts");
    let scripts = scripts(&folder);
    assert!(scripts.len() > 10, "scripts are missing");
    let mut failed = Vec::new();
    for path in scripts {
        let script = std::fs::read_to_string(&path).expect("a script");
        let now = run(&script);
        if now == script {
            continue;
        }
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, &now).expect("to write the script");
            continue;
        }
        for (said, is) in script.lines().zip(now.lines()).filter(|(said, is)| said != is) {
            eprintln!("{}:\n  says {said}\n  is   {is}", path.display());
        }
        failed.push(path);
    }
    assert!(failed.is_empty(), "scripts that get other replies: {failed:?}");
}

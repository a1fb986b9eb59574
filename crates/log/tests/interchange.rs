//! Files go back and forth between us and the reference's programs, where they are installed.

mod damage;
mod reference;
mod sample;

use std::collections::BTreeSet;
use std::sync::Arc;

use damage::{Outcome, ROW_1, cases, good, text};
use reference::{Folder, Server, is_installed, output};
use sample::{Random, content, file, load};
use weir_data::{Schema, Store};
use weir_log::standalone::{Loaded, write_schema, write_snapshot, write_transaction};

/// Every case of damage, told by `ovsdb-tool query`.
#[test]
fn the_reference_says_the_same_of_damaged_files() {
    if !is_installed() {
        return;
    }
    let folder = Folder::new("damage");
    let query = r#"["D",{"op":"select","table":"T","where":[],"columns":["_uuid"]}]"#;
    for case in cases().iter().filter(|case| case.same_in_3_1) {
        folder.write("db", &case.bytes);
        let (out, error) = output(&folder, "ovsdb-tool", &["query", "db", query]);
        let rows = out.matches("\"uuid\"").count();
        let name = case.name;
        match case.outcome {
            Outcome::Good(expected) => {
                assert_eq!((error.as_str(), rows), ("", expected), "{name}");
                let loaded = load(&case.bytes).unwrap();
                assert_eq!(queried(&folder, "db", &loaded.schema), ours(&loaded.store), "{name}");
            }
            Outcome::Refused(expected) | Outcome::Kept(expected) => {
                let expected = format!("ovsdb-tool: {}", text(case, expected));
                assert_eq!(error.trim_end(), expected, "{name}");
            }
        }
    }
}

/// The tool's view of a file: the value of every column that files keep.
fn queried(folder: &Folder, file: &str, schema: &Schema) -> BTreeSet<String> {
    let mut rows = BTreeSet::new();
    for (_, table) in schema.table_ids() {
        let query = format!(r#"["D",{{"op":"select","table":"{}","where":[]}}]"#, table.name);
        let (out, error) = output(folder, "ovsdb-tool", &["query", file, &query]);
        assert_eq!(error, "");
        let reply: serde_json::Value = serde_json::from_str(&out).unwrap();
        for row in reply[0]["rows"].as_array().unwrap() {
            let kept = table.data_columns().filter(|(_, column)| column.persistent);
            let values =
                kept.map(|(_, column)| format!("{}={}", column.name, plain(&row[&column.name])));
            let values: Vec<String> = values.collect();
            let uuid = row["_uuid"][1].as_str().unwrap();
            rows.insert(format!("{} {uuid} {}", table.name, values.join(" ")));
        }
    }
    rows
}

/// A value as text; a real that is whole like an integer, since clients print it so.
fn plain(value: &serde_json::Value) -> String {
    let whole = |real: &f64| real.fract() == 0.0 && real.abs() < 1e18;
    match value {
        serde_json::Value::Array(elements) => {
            let elements: Vec<String> = elements.iter().map(plain).collect();
            format!("[{}]", elements.join(","))
        }
        serde_json::Value::Number(number) if number.is_f64() => {
            let real = number.as_f64().filter(whole);
            real.map_or(number.to_string(), |real| (real as i64).to_string())
        }
        other => other.to_string(),
    }
}

/// Our view, in the same words.
fn ours(store: &Store) -> BTreeSet<String> {
    let canonical = |value: String| {
        let (name, json) = value.split_once('=').unwrap();
        let json: serde_json::Value = serde_json::from_str(json).unwrap();
        format!("{name}={}", plain(&json))
    };
    let row = |((table, uuid), values): ((String, weir_data::Uuid), Vec<String>)| {
        let values: Vec<String> = values.into_iter().map(canonical).collect();
        format!("{table} {uuid} {}", values.join(" "))
    };
    content(store).into_iter().map(row).collect()
}

#[test]
fn the_tool_reads_what_we_write() {
    if !is_installed() {
        return;
    }
    let folder = Folder::new("tool");
    for seed in 0..25 {
        let made = file(&mut Random::new(seed), 6);
        let schema = made.store.schema();
        folder.write("db", &made.bytes);
        assert_eq!(queried(&folder, "db", schema), ours(&made.store), "seed {seed}");
        let (log, error) = output(&folder, "ovsdb-tool", &["show-log", "-mm", "db"]);
        assert_eq!(error, "", "seed {seed}");
        assert_eq!(log.matches("\nrecord ").count() + 1, made.states.len(), "seed {seed}");
        assert!(log.starts_with("record 0: \"D\" schema, version=\"1.2.3\""), "{log}");
        let (name, error) = output(&folder, "ovsdb-tool", &["db-name", "db"]);
        assert_eq!((name.as_str(), error.as_str()), ("D\n", ""));
        if seed % 5 == 0 {
            // Some of the records carry the mark.
            assert!(made.bytes.windows(3).any(|bytes| bytes == b"} \n"), "seed {seed}");
            drop(Server::start(&folder, "db"));
            assert!(folder.read("db") == made.bytes, "seed {seed}");
            let (_, error) = output(&folder, "ovsdb-tool", &["compact", "db"]);
            assert_eq!(error, "", "seed {seed}");
            assert_eq!(queried(&folder, "db", schema), ours(&made.store), "seed {seed}");
        }

        let mut snapshot = Vec::new();
        write_schema(&mut snapshot, schema);
        let mut sink = |piece: &[u8]| {
            snapshot.extend_from_slice(piece);
            Ok::<(), ()>(())
        };
        write_snapshot(&made.store.snapshot(), 1, Some("all"), &mut sink).unwrap();
        folder.write("small", &snapshot);
        assert_eq!(queried(&folder, "small", schema), ours(&made.store), "seed {seed}");
    }
}

const SCHEMA: &str = r#"{"name":"D","version":"1.2.3","tables":{"T":{"columns":{
    "name":{"type":"string"},
    "some":{"type":{"key":"integer","min":1,"max":3}},
    "three":{"type":{"key":"integer","min":0,"max":3}},
    "set":{"type":{"key":"string","min":0,"max":"unlimited"}},
    "map":{"type":{"key":"string","value":"real","min":0,"max":"unlimited"}},
    "friend":{"type":{"key":{"type":"uuid","refTable":"T","refType":"weak"},"min":0,"max":1}},
    "memory":{"type":"string","ephemeral":true}}}}}"#;

/// Updates of a row; each changes something.
const UPDATES: [&str; 12] = [
    r#"{"set":["set",["a","b","c"]],"map":["map",[["a",1],["b",2.5]]]}"#,
    r#"{"set":["set",["b","d"]],"map":["map",[["a",2],["c",-1e300]]]}"#,
    r#"{"set":"b","name":"one \"two\" \\ \u00e9","memory":"gone"}"#,
    r#"{"memory":"gone again"}"#,
    r#"{"some":["set",[0,5]]}"#,
    r#"{"some":5}"#,
    r#"{"some":["set",[0,7,9]],"three":["set",[1,2,3]]}"#,
    r#"{"three":["set",[4,5,6]]}"#,
    r#"{"three":["set",[]]}"#,
    r#"{"three":1}"#,
    r#"{"set":["set",[]],"map":["map",[]]}"#,
    r#"{"name":""}"#,
];

/// What `ovsdb-client` sees of a server, in the words of [`ours`].
fn dumped(server: &Server, schema: &Schema) -> BTreeSet<String> {
    let reply = server.transact(r#"["D",{"op":"select","table":"T","where":[]}]"#);
    let reply: serde_json::Value = serde_json::from_str(&reply).unwrap();
    let table = schema.table(schema.table_id("T").unwrap());
    let row = |row: &serde_json::Value| {
        let kept = table.data_columns().filter(|(_, column)| column.persistent);
        let values: Vec<String> = kept
            .map(|(_, column)| format!("{}={}", column.name, plain(&row[&column.name])))
            .collect();
        format!("T {} {}", row["_uuid"][1].as_str().unwrap(), values.join(" "))
    };
    reply[0]["rows"].as_array().unwrap().iter().map(row).collect()
}

fn read(folder: &Folder) -> Loaded {
    load(&folder.read("db")).unwrap()
}

/// The reference commits; after each transaction we read its file. Its own restart misreads some of
/// these records, so it is not asked what it would make of them.
#[test]
fn we_read_what_the_reference_writes() {
    if !is_installed() {
        return;
    }
    let folder = Folder::new("reads");
    let schema = Schema::parse_bytes(SCHEMA.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    write_schema(&mut bytes, &schema);
    folder.write("db", &bytes);
    let server = Server::start(&folder, "db");
    let insert = r#"{"op":"insert","table":"T","row":{"name":"first"}}"#;
    server.transact(&format!(r#"["D",{insert},{{"op":"comment","comment":"new \"rows\""}}]"#));
    server.transact(&format!(r#"["D",{insert}]"#));
    let mut diffs = 0;
    for (i, update) in UPDATES.iter().enumerate() {
        let update = format!(r#"{{"op":"update","table":"T","where":[],"row":{update}}}"#);
        let comment = r#"{"op":"comment","comment":"why"}"#;
        let operations = if i % 2 == 0 { format!("{update},{comment}") } else { update };
        server.transact(&format!(r#"["D",{operations}]"#));
        let loaded = read(&folder);
        assert_eq!(loaded.warning, None, "{operations}");
        assert_eq!(ours(&loaded.store), dumped(&server, &schema), "{operations}");
        let bytes = folder.read("db");
        let last = String::from_utf8_lossy(&bytes).lines().last().unwrap().to_owned();
        diffs += usize::from(last.contains("\"_is_diff\":true}"));
    }
    assert!(diffs > 0, "the key came last in no record");
    server.transact(r#"["D",{"op":"delete","table":"T","where":[["name","==",""]]}]"#);
    assert_eq!(ours(&read(&folder).store), dumped(&server, &schema));
}

/// The reference's server opens what we wrote, goes on, and we read the rest.
#[test]
fn a_file_goes_back_and_forth() {
    if !is_installed() {
        return;
    }
    let folder = Folder::new("forth");
    let schema = Schema::parse_bytes(SCHEMA.as_bytes()).unwrap();
    let mut made = Random::new(5);
    let mut made = sample::file_of(&mut made, schema.clone(), 0);
    // References to rows that are not there do not last, so they are left out.
    let no_friends = |store: &Store, random: &mut Random| loop {
        let delta = sample::transaction(random, store);
        let mut after = load_store(store);
        after.apply(&delta);
        if !content(&after).values().flatten().any(|value| value.starts_with("friend=[\"uuid\"")) {
            break delta;
        }
    };
    let mut random = Random::new(9);
    for round in 0..8 {
        let delta = no_friends(&made.store, &mut random);
        made.store.apply(&delta);
        write_transaction(&mut made.bytes, &delta, &made.store, 1_700_000_000_000, Some("ours"));
        folder.write("db", &made.bytes);
        let server = Server::start(&folder, "db");
        assert_eq!(ours(&made.store), dumped(&server, &schema), "round {round}");
        let insert = r#"{"op":"insert","table":"T","row":{"name":"x","some":["set",[1,2]]}}"#;
        server.transact(&format!(r#"["D",{insert}]"#));
        let theirs = dumped(&server, &schema);
        drop(server);
        made.bytes = folder.read("db");
        let loaded = load(&made.bytes).unwrap();
        assert_eq!((loaded.warning, ours(&loaded.store)), (None, theirs), "round {round}");
        made.store = loaded.store;
    }
}

fn load_store(store: &Store) -> Store {
    let mut copy = Store::new(Arc::clone(store.schema()), 1);
    for (table, _) in store.schema().table_ids() {
        for row in store.table(table).iter() {
            copy.insert(table, row.clone());
        }
    }
    copy
}

/// Servers before 2.16 wrote whole columns.
#[test]
fn records_without_differences_are_read() {
    let mut bytes = good();
    let json = format!(r#"{{"_date":1234,"T":{{"{ROW_1}":{{"two":["set",[7,8]],"i":2}}}}}}"#);
    weir_log::record::write_record(&mut bytes, json.as_bytes());
    let loaded = load(&bytes).unwrap();
    let row = &content(&loaded.store)[&("T".to_owned(), weir_data::Uuid::parse(ROW_1).unwrap())];
    assert!(row.contains(&r#"two=["set",[7,8]]"#.to_owned()), "{row:?}");
    assert!(row.contains(&"i=2".to_owned()), "{row:?}");
}

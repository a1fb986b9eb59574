//! `ovsdb-tool` beside the reference on clustered files: real ones, written by three servers of the
//! reference (2 changes of the leader, a server that left, a compaction), and bent ones.

use crate::pair::Pair;
use crate::support::{Scratch, clustered_record, err, out};

/// Files of the servers; `late` ones are from after the compaction, server 3 having left.
const FILES: [(&str, &[u8]); 7] = [
    ("1.db", include_bytes!("clustered/1.db")),
    ("2.db", include_bytes!("clustered/2.db")),
    ("3.db", include_bytes!("clustered/3.db")),
    ("late1.db", include_bytes!("clustered/late1.db")),
    ("late2.db", include_bytes!("clustered/late2.db")),
    ("late3.db", include_bytes!("clustered/late3.db")),
    ("joining.db", include_bytes!("clustered/joining.db")),
];

const S1: &str = "11111111-1111-4111-8111-111111111111";
const S2: &str = "22222222-2222-4222-8222-222222222222";
const EID: &str = "55555555-5555-4555-8555-555555555555";

/// The header of a server of a cluster of two.
fn header(id: &str) -> String {
    let schema = r#"{"name":"D","tables":{"T":{"columns":{"n":{"type":"integer"}}}}}"#;
    format!(
        r#"{{"server_id":"{id}","local_address":"unix:a","name":"D","cluster_id":"{EID}",
           "prev_servers":{{"{S1}":"unix:a","{S2}":"unix:b"}},"prev_index":1,"prev_term":1,
           "prev_eid":"{EID}","prev_data":[{schema},{{}}]}}"#
    )
}

fn file(records: &[&str]) -> Vec<u8> {
    records.iter().flat_map(|record| clustered_record(record)).collect()
}

#[test]
fn files_of_real_servers_are_read_alike() {
    let Some(pair) = Pair::new() else { return };
    for (name, content) in FILES {
        pair.write(name, content);
        for question in [
            "db-name",
            "db-cid",
            "db-sid",
            "db-local-address",
            "db-is-clustered",
            "db-is-standalone",
            "db-version",
            "check-cluster",
            "compact",
        ] {
            pair.compare(&[question, name]);
        }
        if name != "joining.db" {
            pair.compare(&["show-log", name]);
            pair.compare(&["show-log", "-m", name]);
            pair.compare(&["show-log", "-mm", name]);
            let standalone = format!("of-{name}");
            pair.compare(&["cluster-to-standalone", &standalone, name]);
            pair.compare_file(&standalone);
        }
    }
    for files in [
        &["1.db", "2.db", "3.db"][..],
        &["3.db", "1.db", "joining.db"],
        &["late1.db", "late2.db", "late3.db"],
        &["late2.db", "1.db"],
        &["1.db", "1.db"],
    ] {
        pair.compare(&[&["check-cluster"], files].concat());
    }
}

#[test]
fn broken_promises_are_told_alike() {
    let Some(pair) = Pair::new() else { return };
    let h = header(S1);
    let v1 = format!(r#"{{"term":5,"vote":"{S1}"}}"#);
    let leads = format!(r#"{{"term":2,"leader":"{S1}"}}"#);
    let entry = |index: u64, term: u64| format!(r#"{{"term":{term},"index":{index}}}"#);
    let row = |n: u64| {
        format!(
            r#"{{"term":2,"index":2,"eid":"{EID}","data":[null,{{"T":{{"{EID}":{{"n":{n}}}}}}}]}}"#
        )
    };
    let (two, three) = (entry(2, 1), entry(3, 1));
    for (number, records) in [
        vec![h.as_str()],
        vec![&h, &two],
        vec![&h, &three],
        vec![&h, &two, &three, &two],
        vec![&h, &leads, &entry(2, 2), &entry(3, 2), &entry(2, 2)],
        vec![&h, &entry(2, 3), &entry(3, 2)],
        vec![&h, r#"{"term":6}"#, &v1],
        vec![&h, &v1, &v1],
        vec![&h, r#"{"note":"left"}"#],
        vec![&h, r#"{"note":"left"}"#, r#"{"term":2}"#],
        vec![&h, &two, r#"{"commit_index":2}"#, r#"{"commit_index":1}"#],
        vec![&h, &two, r#"{"commit_index":3}"#],
        vec![&h, &leads, &format!(r#"{{"term":2,"leader":"{S2}"}}"#)],
        vec![&header(EID), &two],
        vec![&h, r#"{"term":2,"foo":3}"#],
        vec![&h, r#"{"index":2}"#],
        vec![&h, r#"{"term":2,"vote":"x"}"#],
        vec![&h, &format!(r#"{{"term":2,"index":2,"data":[1],"eid":"{EID}"}}"#)],
        vec![&h, r#"{"term":-3,"comment":"far"}"#],
        vec![r#"{"name":"D"}"#],
    ]
    .iter()
    .enumerate()
    {
        let name = format!("bent{number}.db");
        pair.write(&name, &file(records));
        pair.compare(&["check-cluster", &name]);
        pair.compare(&["show-log", "-mm", &name]);
        pair.compare(&["db-sid", &name]);
    }
    let other = header(S2);
    pair.write("first.db", &file(&[&h, &leads, &row(1), r#"{"commit_index":2}"#]));
    for (number, records) in [
        vec![other.as_str(), &leads, &row(1)],
        vec![&other, &format!(r#"{{"term":2,"leader":"{S2}"}}"#)],
        vec![&other, &format!(r#"{{"term":3,"leader":"{S2}"}}"#)],
        vec![&other, r#"{"term":3}"#, &entry(2, 3)],
    ]
    .iter()
    .enumerate()
    {
        let name = format!("second{number}.db");
        pair.write(&name, &file(records));
        pair.compare(&["check-cluster", "first.db", &name]);
        pair.compare(&["check-cluster", &name, "first.db"]);
    }
}

#[test]
fn new_servers_start_alike() {
    let Some(pair) = Pair::new() else { return };
    let schema = r#"{"name":"D","version":"1.0.0","tables":{"T":{"columns":{
        "n":{"type":"integer"},"e":{"type":"string","ephemeral":true}}}}}"#;
    pair.write("schema", schema.as_bytes());
    pair.write("1.db", FILES[0].1);
    pair.prepare(&["create", "a.db", "schema"]);
    let txn = r#"["D",{"op":"insert","table":"T","row":{"n":7,"e":"lost"}}]"#;
    pair.prepare(&["transact", "a.db", txn]);
    for (number, args) in [
        &["create-cluster", "NEW", "schema", "unix:x"][..],
        &["create-cluster", "NEW", "a.db", "tcp:127.0.0.1:6644"],
        &["--election-timer=2000", "create-cluster", "NEW", "schema", "ssl:[::1]:6644"],
        &["--election-timer=1", "create-cluster", "NEW", "schema", "unix:x"],
        &["create-cluster", "NEW", "schema", "tcp:1.2.3.4"],
        &["create-cluster", "NEW", "schema", "nonsense"],
        &["create-cluster", "NEW", "1.db", "unix:x"],
        &["create-cluster", "NEW", "missing", "unix:x"],
        &["create-cluster", "1.db", "schema", "unix:x"],
        &["join-cluster", "NEW", "D", "unix:x", "unix:y"],
        &["join-cluster", "NEW", "D", "unix:x", "unix:x"],
        &["join-cluster", "NEW", "1D", "unix:x", "unix:y"],
        &["--cid=nonsense", "join-cluster", "NEW", "D", "unix:x", "unix:y"],
        &["join-cluster", "1.db", "D", "unix:x", "unix:y"],
    ]
    .iter()
    .enumerate()
    {
        let name = format!("new{number}.db");
        let args: Vec<&str> =
            args.iter().map(|&arg| if arg == "NEW" { name.as_str() } else { arg }).collect();
        pair.compare(&args);
        pair.compare_new_server(&name);
    }
}

#[test]
fn the_warning_names_the_same_of_many_ephemeral_columns() {
    let Some(pair) = Pair::new() else { return };
    let packaged = std::fs::read("/usr/share/openvswitch/vswitch.ovsschema");
    let mut schemas: Vec<Vec<u8>> = packaged.into_iter().collect();
    for seed in 0..20 {
        schemas.push(odd_schema(seed).into_bytes());
    }
    for (number, schema) in schemas.iter().enumerate() {
        let (name, database) = (format!("{number}.schema"), format!("{number}.db"));
        pair.write(&name, schema);
        pair.compare(&["create-cluster", &format!("of-{name}"), &name, "unix:x"]);
        pair.prepare(&["create", &database, &name]);
        pair.compare(&["create-cluster", &format!("of-{database}"), &database, "unix:x"]);
    }
}

/// Tables and columns in no order, more of them from seed to seed, every second column ephemeral.
fn odd_schema(seed: u64) -> String {
    let mut state = seed;
    let mut name = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let letter = |place: u64| char::from(b'a' + ((state >> (8 * place)) % 26) as u8);
        (0..=state >> 61).map(|place| letter(place % 6 + 1)).collect::<String>()
    };
    let mut members = |count: u64, member: &mut dyn FnMut(u64, &str) -> String| {
        let numbers = 0..count;
        // The numbers keep names distinct.
        let all: Vec<String> =
            numbers.map(|number| member(number, &format!("{}{number}", name()))).collect();
        all.join(",")
    };
    let mut column = |number: u64, name: &str| {
        let ephemeral = (number + seed).is_multiple_of(2);
        format!(r#""{name}":{{"type":"string","ephemeral":{ephemeral}}}"#)
    };
    let columns: Vec<String> =
        (0..=seed % 11).map(|_| members(seed / 2 + 1, &mut column)).collect();
    let tables = members(columns.len() as u64, &mut |number, name| {
        format!(r#""{name}":{{"columns":{{{}}}}}"#, columns[number as usize])
    });
    format!(r#"{{"name":"D","version":"1.0.0","tables":{{{tables}}}}}"#)
}

/// A beginning of it could pass for a database that a crash has torn.
#[test]
fn who_is_killed_while_a_standalone_database_is_made_of_a_cluster_leaves_none() {
    let scratch = Scratch::new();
    let tool = scratch.link("ovsdb-tool");
    let records: Vec<String> =
        std::iter::once(header(S1)).chain((2..300).map(|index| inserts(index, 2))).collect();
    let records: Vec<&str> = records.iter().map(String::as_str).collect();
    std::fs::write(scratch.path("c.db"), file(&records)).expect("a file");
    let args = ["cluster-to-standalone", "s.db", "c.db"];
    scratch.run_killed(&tool, &args);
    assert!(!scratch.path("s.db").exists());
    let done = scratch.run(&tool, &args);
    assert!(done.status.success(), "{}", err(&done));
    assert!(!scratch.path(".s.db.~new~").exists());
    let made = std::fs::read(scratch.path("s.db")).expect("a file");
    assert!(made.len() > 8 << 10, "{}", made.len());
}

#[test]
fn existing_targets_of_a_standalone_database_are_refused_alike() {
    let Some(pair) = Pair::new() else { return };
    pair.write("1.db", FILES[0].1);
    pair.write("empty.db", b"");
    pair.write("full.db", b"not a database");
    pair.link("full.db", "link.db");
    pair.link("nothing.db", "dangling.db");
    for target in ["empty.db", "full.db", "link.db", "dangling.db", "dangling.db", ".", "no/s.db"] {
        pair.compare(&["cluster-to-standalone", target, "1.db"]);
        pair.compare_file(target);
    }
    assert_eq!(pair.read("full.db"), b"not a database");
    assert!(pair.read("empty.db").is_empty() && pair.ours("nothing.db").exists());
}

#[test]
fn a_conversion_in_the_log_is_carried_over() {
    let scratch = Scratch::new();
    let tool = scratch.link("ovsdb-tool");
    let wide = r#"{"name":"D","version":"2.0.0","tables":{"T":{"columns":{
        "n":{"type":{"key":"integer","min":0,"max":2}}}}}}"#;
    let insert = format!(
        r#"{{"term":1,"index":2,"eid":"{EID}","data":[null,{{"T":{{"{EID}":{{"n":7}}}}}}]}}"#
    );
    let replaced =
        format!(r#"{{"term":1,"index":3,"eid":"{EID}","data":[null,{{"T":{{"{EID}":null}}}}]}}"#);
    let convert = format!(r#"{{"term":2,"index":3,"eid":"{EID}","data":[{wide},null]}}"#);
    let h = header(S1);
    let records = [&h, &insert, &replaced, &convert].map(String::as_str);
    std::fs::write(scratch.path("c.db"), file(&records)).expect("a file");
    let done = scratch.run(&tool, &["cluster-to-standalone", "s.db", "c.db"]);
    assert!(done.status.success(), "{}", err(&done));
    assert_eq!(out(&scratch.run(&tool, &["db-version", "s.db"])), "2.0.0\n");
    let select = r#"["D",{"op":"select","table":"T","where":[],"columns":["n"]}]"#;
    let rows = scratch.run(&tool, &["query", "s.db", select]);
    assert_eq!(out(&rows), "[{\"rows\":[{\"n\":7}]}]\n", "{}", err(&rows));
}

/// An entry of this index and term that inserts a row whose `n` is its index.
fn inserts(index: u64, term: u64) -> String {
    let (eid, row) = (&EID[8..], &S1[8..]);
    format!(
        r#"{{"term":{term},"index":{index},"eid":"{index:08}{eid}",
           "data":[null,{{"T":{{"{index:08}{row}":{{"n":{index}}}}}}}]}}"#
    )
}

/// The rows of a clustered file, by their `n`.
fn rows_of(scratch: &Scratch, name: &str) -> Vec<i64> {
    let (tool, standalone) = (scratch.link("ovsdb-tool"), format!("rows-of-{name}"));
    let done = scratch.run(&tool, &["cluster-to-standalone", &standalone, name]);
    assert!(done.status.success(), "{}", err(&done));
    let select = r#"["D",{"op":"select","table":"T","where":[],"columns":["n"]}]"#;
    let found = out(&scratch.run(&tool, &["query", &standalone, select]));
    let found: serde_json::Value = serde_json::from_str(&found).expect("JSON");
    let rows = found[0]["rows"].as_array().expect("rows");
    let mut numbers: Vec<i64> = rows.iter().filter_map(|row| row["n"].as_i64()).collect();
    numbers.sort_unstable();
    numbers
}

/// A server asked to leave, or was kicked, and then the others were lost.
#[test]
fn a_cluster_is_recovered_from_a_server_that_was_leaving_it() {
    let scratch = Scratch::new();
    let tool = scratch.link("ovsdb-tool");
    let removal = format!(r#"{{"term":2,"index":3,"servers":{{"{S2}":"unix:b"}}}}"#);
    let records = [&header(S1), &inserts(2, 2), &removal, &inserts(4, 2)];
    std::fs::write(scratch.path("old.db"), file(&records.map(String::as_str))).expect("a file");
    let done = scratch.run(&tool, &["recover-cluster", "new.db", "old.db"]);
    assert!(done.status.success(), "{}", err(&done));
    let said = out(&done);
    assert!(said.contains("entries 2 to 4 were not known to be committed"), "{said}");
    assert_eq!(rows_of(&scratch, "new.db"), [2, 4]);
}

/// `1.db` ends last, with what a leader wrote that was cut off in term 5; `2.db` and `3.db` went on
/// in term 6, and committed that.
#[test]
fn a_cluster_is_recovered_from_the_file_of_the_latest_term_and_not_of_the_longest_log() {
    let scratch = Scratch::new();
    let tool = scratch.link("ovsdb-tool");
    let write = |name: &str, server: &str, entries: &[(u64, u64)]| {
        let header = header(server);
        let entries: Vec<String> =
            entries.iter().map(|&(index, term)| inserts(index, term)).collect();
        let mut records = vec![header.as_str()];
        records.extend(entries.iter().map(String::as_str));
        std::fs::write(scratch.path(name), file(&records)).expect("a file");
    };
    write("1.db", S1, &[(2, 5), (3, 5), (4, 5), (5, 5), (6, 5)]);
    write("2.db", S2, &[(2, 5), (3, 6), (4, 6)]);
    write("3.db", EID, &[(2, 5), (3, 6)]);
    for (number, (files, taken, rows)) in [
        (&["1.db", "2.db", "3.db"][..], "2.db", 2..=4),
        (&["2.db", "1.db"], "2.db", 2..=4),
        (&["3.db", "1.db"], "3.db", 2..=3),
        (&["1.db"], "1.db", 2..=6),
    ]
    .into_iter()
    .enumerate()
    {
        let new = format!("new{number}.db");
        let args = [&["recover-cluster", &new], files, &["unix:new"]].concat();
        let done = scratch.run(&tool, &args);
        assert!(done.status.success(), "{files:?}: {}", err(&done));
        assert_eq!(rows_of(&scratch, &new), rows.clone().collect::<Vec<i64>>(), "{files:?}");
        let said = out(&done);
        let term = if taken == "1.db" { 5 } else { 6 };
        let last =
            format!("at unix:new; it has entry {} of term {term} of the old one", rows.end());
        assert!(said.contains(&last), "{said}");
        let choice = format!("{taken} is taken: the highest term, and in it the highest index");
        assert_eq!(said.contains(&choice), files.len() > 1, "{said}");
        assert_eq!(said.contains("1.db ends with entry 6 of term 5"), files.len() > 1, "{said}");
    }
}

#[test]
fn a_cluster_is_recovered_from_files_of_one_cluster_only() {
    let scratch = Scratch::new();
    let tool = scratch.link("ovsdb-tool");
    let own = header(S1);
    for (name, content) in [
        ("1.db", file(&[&own])),
        ("other.db", file(&[&own.replace(r#""name":"D""#, r#""name":"E""#)])),
        ("foreign.db", file(&[&own.replace(r#""cluster_id":"5"#, r#""cluster_id":"6"#)])),
        ("joining.db", FILES[6].1.to_vec()),
    ] {
        std::fs::write(scratch.path(name), content).expect("a file");
    }
    for (files, why) in [
        (&["1.db", "other.db"][..], "other.db: this is of another database than 1.db"),
        (&["foreign.db", "1.db"], "1.db: this is of another cluster than foreign.db"),
        (&["joining.db"], "joining.db: the server has not joined its cluster"),
        (&["1.db", "missing.db"], "missing.db: open failed (No such file or directory)"),
        (&["1.db", "1.db", "tcp:192.0.2.1"], "tcp:192.0.2.1: syntax error in address"),
        (&["1.db", "unix:a", "unix:b"], "unix:a: open failed (No such file or directory)"),
    ] {
        let refused = scratch.run(&tool, &[&["recover-cluster", "new.db"], files].concat());
        assert!(!refused.status.success() && err(&refused).contains(why), "{}", err(&refused));
        assert!(!scratch.path("new.db").exists());
    }
    let done = scratch.run(&tool, &["recover-cluster", "new.db", "joining.db", "1.db"]);
    assert!(done.status.success(), "{}", err(&done));
    assert!(out(&done).contains("joining.db is left out"), "{}", out(&done));
}

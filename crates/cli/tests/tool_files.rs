//! `ovsdb-tool` beside the reference on standalone files: the same words, statuses and files.

use crate::pair::Pair;
use crate::support::{Scratch, err, log_record, out};

/// A row of every kind of column.
const SCHEMA: &str = r#"{"name":"D","version":"1.2.3","cksum":"12 34","tables":{
  "T":{"columns":{"name":{"type":"string"},"n":{"type":"integer"},
    "s":{"type":{"key":"integer","min":0,"max":"unlimited"}},
    "m":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}},
    "o":{"type":{"key":"string","min":0,"max":1}},
    "e":{"type":"integer","ephemeral":true}},"indexes":[["n"]]},
  "U":{"columns":{"x":{"type":"real"},
    "t":{"type":{"key":{"type":"uuid","refTable":"T"},"min":0,"max":"unlimited"}}}}}}"#;

/// As [`SCHEMA`], with fewer columns and other types.
const NARROW: &str = r#"{"name":"D","tables":{
  "T":{"columns":{"n":{"type":{"key":"integer","min":0,"max":3}},"name":{"type":"string"},
    "new":{"type":"boolean"}}}}}"#;

/// A database with some history, made by `program`; the schemas beside it.
fn database(pair: &Pair) {
    pair.write("schema", SCHEMA.as_bytes());
    pair.write("narrow", NARROW.as_bytes());
    pair.prepare(&["create", "a.db", "schema"]);
    for txn in [
        r#"["D",{"op":"insert","table":"T","row":{"name":"one","n":1,"s":["set",[1,2]],
            "m":["map",[["a","b"],["true","two words"]]],"o":"x.y"},"uuid-name":"r"},
            {"op":"insert","table":"U","row":{"x":1.5,"t":["named-uuid","r"]}},
            {"op":"comment","comment":"first\nline \"quoted\""}]"#,
        r#"["D",{"op":"mutate","table":"T","where":[],"mutations":[["s","insert",3],
            ["m","insert",["map",[["k","v"]]]],["n","+=",1]]}]"#,
        r#"["D",{"op":"insert","table":"T","row":{"n":7}},
            {"op":"update","table":"T","where":[["n","==",2]],"row":{"name":"","o":["set",[]]}}]"#,
        r#"["D",{"op":"insert","table":"U","row":{}},{"op":"insert","table":"T","row":{"n":9}}]"#,
        r#"["D",{"op":"delete","table":"U","where":[["x","==",0]]},
            {"op":"comment","comment":"gone"}]"#,
    ] {
        pair.prepare(&["transact", "a.db", txn]);
    }
}

#[test]
fn questions_are_answered_alike() {
    let Some(pair) = Pair::new() else { return };
    database(&pair);
    pair.write("none", b"");
    for file in ["a.db", "schema", "narrow", "none", "missing", "."] {
        for question in [
            "db-name",
            "db-version",
            "db-cksum",
            "db-is-standalone",
            "db-is-clustered",
            "db-cid",
            "db-sid",
            "db-local-address",
            "show-log",
            "schema-name",
            "schema-version",
            "schema-cksum",
        ] {
            pair.compare(&[question, file]);
        }
        pair.compare(&["show-log", "-m", file]);
        pair.compare(&["-mm", "show-log", file, "-vconsole:off"]);
        pair.compare(&["needs-conversion", file, "schema"]);
        pair.compare(&["needs-conversion", "a.db", file]);
    }
    for args in [
        &["db-name", "a.db", "b"][..],
        &["--mor", "show-log", "--more", "a.db"],
        &["list-commands"],
        &["db-is-clustered"],
        &["db-name"],
        &["show-log", "--", "-m"],
    ] {
        pair.compare(args);
    }
}

#[test]
fn versions_compare_alike() {
    let Some(pair) = Pair::new() else { return };
    let versions = [
        "1.2.3",
        "1.2",
        "",
        " 1.2.3",
        "1. 2.3",
        "1.2.3 ",
        "4294967296.0.0",
        "01.02.03",
        "+1.2.3",
        "1.2.3x",
        "1.2.3.4",
        "0x1.2.3",
        "99999999999999999999999.0.1",
        "1..3",
        "1.-2.3",
        "1.10.0",
    ];
    for version in versions {
        for operator in ["<", "<=", "==", "!=", ">=", ">", "="] {
            pair.compare(&["compare-versions", "--", version, operator, "1.2.3"]);
        }
        pair.compare(&["compare-versions", "--", "1.3.0", ">", version]);
    }
}

#[test]
fn transactions_answer_and_write_alike() {
    let Some(pair) = Pair::new() else { return };
    database(&pair);
    pair.write("torn.db", &pair.read("a.db")[..700]);
    for txn in [
        r#"["D"]"#,
        "[]",
        "{}",
        "1",
        "zoo",
        "[,]",
        r#"["D""#,
        r#"["X",{"op":"comment","comment":"x"}]"#,
        r#"["D",{"op":"nonsense"}]"#,
        r#"["D",7]"#,
        r#"["D",{"op":"wait","table":"T","where":[],"until":"==","rows":[]},{"op":"abort"}]"#,
        r#"["D",{"op":"comment","comment":"x"},
            {"op":"wait","timeout":0,"table":"T","where":[],"until":"==","rows":[]}]"#,
        r#"["D",{"op":"wait","timeout":9,"table":"T","where":[],"until":"==","rows":[]}]"#,
        r#"["D",{"op":"wait","timeout":9,"table":"T","where":[],"until":"!=","rows":[]}]"#,
        r#"["D",{"op":"assert","lock":"x"}]"#,
        r#"["D",{"op":"select","table":"T","where":[["n",">",7]],"columns":["n","name"]}]"#,
        r#"["D",{"op":"update","table":"T","where":[],"row":{"e":7}}]"#,
        r#"["D",{"op":"delete","table":"T","where":[["n","==",9]]},{"op":"abort"}]"#,
        r#"["D",{"op":"delete","table":"T","where":[["n","==",9]]},
            {"op":"commit","durable":true}]"#,
        r#"["D",{"op":"mutate","table":"T","where":[],"mutations":[["s","insert",["set",[5]]]]},
            {"op":"comment","comment":"one"},{"op":"comment","comment":"two"}]"#,
    ] {
        for command in ["query", "transact"] {
            for file in ["a.db", "torn.db", "missing.db"] {
                pair.compare(&[command, file, txn]);
                pair.compare_file(file);
            }
            pair.compare(&[command, txn]);
            pair.compare(&["--rbac-role=nobody", command, "a.db", txn]);
        }
    }
}

#[test]
fn compaction_and_conversion_write_alike() {
    let Some(pair) = Pair::new() else { return };
    database(&pair);
    pair.compare(&["compact", "a.db", "compact.db"]);
    pair.compare_file("compact.db");
    pair.compare(&["convert", "compact.db", "narrow", "narrow.db"]);
    pair.compare_file("narrow.db");
    pair.link("a.db", "link.db");
    pair.compare(&["compact", "link.db"]);
    pair.compare_file("a.db");
    pair.compare(&["convert", "link.db", "narrow"]);
    pair.compare_file("a.db");
    pair.compare(&["convert", "link.db", "schema", "compact.db"]);
    for args in [
        &["compact", "missing.db"][..],
        &["compact", "missing.db", "new.db"],
        &["compact", "a.db", "no/such.db"],
        &["compact", "a.db", "schema"],
        &["convert", "a.db", "missing"],
        &["convert", "a.db", "a.db"],
        &["compact", "a.db", "a.db"],
        &["compact"],
    ] {
        pair.compare(args);
        pair.compare_file("a.db");
    }
    assert!(pair.ours("link.db").is_symlink());
    // What the reference read as its own is read as ours too, and the other way round.
    pair.exchange("a.db");
    pair.compare(&["show-log", "-mm", "a.db"]);
    pair.compare(&["compact", "a.db"]);
    pair.compare_file("a.db");
}

#[test]
fn damaged_files_are_read_alike() {
    let Some(pair) = Pair::new() else { return };
    database(&pair);
    let good = pair.read("a.db");
    let second = good.windows(7).skip(1).position(|bytes| bytes == b"\nOVSDB ").unwrap_or(0) + 2;
    let mut places: Vec<usize> = (0..80).chain(second..second + 70).collect();
    places.extend((80..good.len()).step_by(97));
    for (count, place) in places.into_iter().enumerate() {
        let mut damaged = good.clone();
        match count % 3 {
            0 => damaged.truncate(place),
            1 => damaged[place] ^= 0x04,
            _ => damaged[place] = b'\n',
        }
        pair.write("bad.db", &damaged);
        pair.compare(&["show-log", "-mm", "bad.db"]);
        if count % 4 == 0 {
            pair.compare(&["db-version", "bad.db"]);
            pair.compare(&["db-is-standalone", "bad.db"]);
            pair.compare(&["compact", "bad.db", "out.db"]);
            pair.compare(&["query", "bad.db", r#"["D"]"#]);
        }
    }
}

#[test]
fn a_long_record_that_ends_early_is_told_of_alike() {
    let Some(pair) = Pair::new() else { return };
    let schema = log_record(SCHEMA);
    let record = log_record(&format!(r#"{{"_comment":"{}"}}"#, "x".repeat(20_000)));
    let body = record.iter().position(|byte| *byte == b'\n').expect("a header") + 1;
    for here in [0, 1, 8191, 8192, 8193, 10_000, 16_384, 20_000] {
        pair.write("cut.db", &[&schema[..], &record[..body + here]].concat());
        pair.compare(&["show-log", "cut.db"]);
        pair.compare(&["db-version", "cut.db"]);
    }
}

#[test]
fn strange_records_are_shown_alike() {
    let Some(pair) = Pair::new() else { return };
    let uuid = "11111111-2222-3333-4444-555555555555";
    let other = "99999999-2222-3333-4444-555555555555";
    let records = [
        r#"{"_date":1400000000}"#,
        r#"{"_date":2147483646}"#,
        r#"{"_date":2147483647}"#,
        r#"{"_date":-5,"_comment":7}"#,
        r#"{"_date":1.5}"#,
        r#"{"_date":"x","_comment":"a\u0001\\\"é\t"}"#,
        r#"{"T":{"U1":{"name":"abc","n":1,"s":["set",[3,1]],"m":["map",[["a b","true"]]]}}}"#,
        r#"{"T":{"U1":{"name":["set",[]],"n":"x","zz":{"b":1,"a":[1,2]},"m":["set",[]]}}}"#,
        r#"{"T":{"U1":null},"Q":{"short":{"name":{"x":1}}},"_x":{"a":{}}}"#,
        r#"{"T":{"U1":{"o":["set",[]]}}}"#,
        r#"{"T":{"U1":{"name":"z\"q","o":"A_é"}}}"#,
        r#"{"T":{"U1":3}}"#,
        r#"{"T":{"U1":null}}"#,
        r#"{"T":{"U1":null}}"#,
        r#"{"T":5,"U":{}}"#,
        r#"{"_is_diff":true,"T":{"U1":{"name":"x","o":["set",["a","b"]]}},"U":{}}"#,
        r#"{"_is_diff":"y","T":{"U1":{"name":"w","m":["map",[["k","1"],["k","2"]]]}}}"#,
        r#"{"_is_diff":true,"T":{"U1":{"s":["set",[4,4]]}},
            "U":{"U2":{"x":1e30,"t":["uuid","U1"]}}}"#,
        r#"{"U":{"U2":{"x":1.0,"t":["set",[]]},"U1":{"x":-0.1}}}"#,
    ];
    let mut file = log_record(SCHEMA);
    for record in records {
        file.extend(log_record(&record.replace("U1", uuid).replace("U2", other)));
    }
    pair.write("strange.db", &file);
    for more in ["-v", "-m", "-mm", "-mmm"] {
        pair.compare(&["show-log", more, "-vconsole:off", "strange.db"]);
    }
}

#[test]
fn a_database_in_use_is_read_and_not_written() {
    let Some(pair) = Pair::new() else { return };
    database(&pair);
    for name in ["a.db", "a.db.tmp"] {
        let _locks = pair.lock(name);
        for args in [
            &["compact", "a.db"][..],
            &["compact", "a.db", "b.db"],
            &["convert", "a.db", "narrow"],
            &["transact", "a.db", r#"["D"]"#],
            &["query", "a.db", r#"["D"]"#],
            &["db-name", "a.db"],
            &["show-log", "a.db"],
        ] {
            pair.compare(args);
        }
    }
}

#[test]
fn a_conversion_that_would_lose_rows_is_refused() {
    let scratch = Scratch::new();
    let tool = scratch.link("ovsdb-tool");
    scratch.write("schema", SCHEMA);
    let unique = SCHEMA.replace(r#"[["n"]]"#, r#"[["name"]]"#);
    scratch.write("unique", &unique);
    scratch.run(&tool, &["create", "a.db", "schema"]);
    let txn = r#"["D",{"op":"insert","table":"T","row":{"n":1}},
        {"op":"insert","table":"T","row":{"n":2}}]"#;
    scratch.run(&tool, &["transact", "a.db", txn]);
    let before = std::fs::read(scratch.path("a.db")).expect("the database");
    let refused = scratch.run(&tool, &["convert", "a.db", "unique"]);
    assert_eq!(refused.status.code(), Some(1));
    let text = err(&refused);
    assert!(text.contains("identical values (\"\") for index on column \"name\""), "{text}");
    assert_eq!(std::fs::read(scratch.path("a.db")).expect("the database"), before);
    assert!(!scratch.path("a.db.tmp").exists());
}

#[test]
fn differences_are_of_the_type_that_they_were_written_for() {
    let scratch = Scratch::new();
    let tool = scratch.link("ovsdb-tool");
    scratch.write("schema", SCHEMA);
    scratch.write("narrow", NARROW);
    scratch.run(&tool, &["create", "a.db", "schema"]);
    let insert = r#"["D",{"op":"insert","table":"T","row":{"n":1}}]"#;
    scratch.run(&tool, &["transact", "a.db", insert]);
    let update = r#"["D",{"op":"update","table":"T","where":[],"row":{"n":2}}]"#;
    scratch.run(&tool, &["transact", "a.db", update]);
    let converted = scratch.run(&tool, &["convert", "a.db", "narrow"]);
    assert!(converted.status.success(), "{}", err(&converted));
    let select = r#"["D",{"op":"select","table":"T","where":[],"columns":["n"]}]"#;
    let rows = scratch.run(&tool, &["query", "a.db", select]);
    assert_eq!(out(&rows), "[{\"rows\":[{\"n\":2}]}]\n");
}

#[test]
fn mode_survives_a_compaction() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new();
    let tool = scratch.link("ovsdb-tool");
    scratch.write("schema", SCHEMA);
    scratch.run(&tool, &["create", "a.db", "schema"]);
    let path = scratch.path("a.db");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o604)).expect("chmod");
    let done = scratch.run(&tool, &["compact", "a.db"]);
    assert!(done.status.success(), "{}", err(&done));
    assert_eq!(path.metadata().expect("the database").permissions().mode() & 0o777, 0o604);
    let log = scratch.run(&tool, &["show-log", "a.db"]);
    assert!(out(&log).contains("\"compacted by ovsdb-tool 4.0.90\""), "{}", out(&log));
}

/// A database of many records, `a.db`: a compact one of its rows has some 60 KB.
fn long_database(scratch: &Scratch) {
    scratch.write("schema", SCHEMA);
    let mut file = log_record(SCHEMA);
    for n in 0..300 {
        let (row, name) = (format!("{n:08}-2222-4222-8222-222222222222"), "x".repeat(100));
        let json = format!(r#"{{"T":{{"{row}":{{"name":"{name}","n":{n}}}}}}}"#);
        file.extend(log_record(&json));
    }
    std::fs::write(scratch.path("a.db"), file).expect("a file");
}

#[test]
fn who_is_killed_while_a_file_is_written_anew_leaves_the_old_one() {
    let scratch = Scratch::new();
    let tool = scratch.link("ovsdb-tool");
    long_database(&scratch);
    scratch.run(&tool, &["create", "b.db", "schema"]);
    let read = |name: &str| std::fs::read(scratch.path(name)).expect("a file");
    let (old, other) = (read("a.db"), read("b.db"));
    std::os::unix::fs::symlink("a.db", scratch.path("link.db")).expect("a link");
    std::fs::hard_link(scratch.path("a.db"), scratch.path("hard.db")).expect("a link");
    for args in [
        &["compact", "a.db"][..],
        &["compact", "a.db", "a.db"],
        &["compact", "a.db", "link.db"],
        &["compact", "link.db", "./a.db"],
        &["compact", "a.db", "hard.db"],
        &["convert", "a.db", "schema", "a.db"],
        &["compact", "a.db", "b.db"],
        &["compact", "a.db", "new.db"],
    ] {
        scratch.run_killed(&tool, args);
        assert!(read("a.db") == old && read("hard.db") == old && read("b.db") == other, "{args:?}");
        assert!(!scratch.path("new.db").exists(), "{args:?}");
    }
    // Nobody is kept from doing it again, and nothing stays behind.
    for target in ["b.db", "new.db", "link.db"] {
        let done = scratch.run(&tool, &["compact", "a.db", target]);
        assert!(done.status.success(), "{}", err(&done));
        assert!(!scratch.path(&format!(".{target}.~new~")).exists());
    }
    assert!(!scratch.path(".a.db.~new~").exists() && scratch.path("link.db").is_symlink());
    assert!(read("a.db") != old, "it was compacted");
    let select = r#"["D",{"op":"select","table":"T","where":[["n",">=",0]],"columns":["n"]}]"#;
    let rows = |name: &str| out(&scratch.run(&tool, &["query", name, select]));
    assert_eq!(rows("hard.db").matches(r#"{"n":"#).count(), 300);
    for name in ["a.db", "b.db", "new.db"] {
        assert_eq!(rows(name).matches(r#"{"n":"#).count(), 300, "{name}");
    }
}

/// As the reference leaves it, which writes over it.
#[test]
fn an_existing_destination_keeps_its_mode_and_the_link_to_it() {
    use std::os::unix::fs::PermissionsExt;
    let Some(pair) = Pair::new() else { return };
    database(&pair);
    for (number, mode) in [0o600, 0o640, 0o664, 0o606].into_iter().enumerate() {
        let (name, link) = (format!("to{number}.db"), format!("link{number}.db"));
        pair.write(&name, b"");
        pair.link(&name, &link);
        let sides = [pair.ours(&name), pair.theirs(&name)];
        for path in &sides {
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("chmod");
        }
        // First an empty file is there, then a database, by a link or not.
        for target in [&name, &name, &link] {
            pair.compare(&["compact", "a.db", target]);
            pair.compare_file(target);
            for path in &sides {
                let found = path.symlink_metadata().expect("a file");
                assert!(found.is_file(), "{}", path.display());
                assert_eq!(found.permissions().mode() & 0o777, mode, "{}", path.display());
            }
        }
    }
    pair.compare(&["compact", "a.db", "."]);
    let _locks = pair.lock("to0.db");
    pair.compare(&["compact", "a.db", "to0.db"]);
    pair.compare(&["compact", "a.db", "link0.db"]);
}

/// A temporary name of a database in place is a name like any other.
#[test]
fn a_source_whose_name_ends_like_a_temporary_one_stays() {
    let scratch = Scratch::new();
    let tool = scratch.link("ovsdb-tool");
    long_database(&scratch);
    std::fs::rename(scratch.path("a.db"), scratch.path("b.db.tmp")).expect("a rename");
    let old = std::fs::read(scratch.path("b.db.tmp")).expect("a file");
    for _ in 0..2 {
        let done = scratch.run(&tool, &["compact", "b.db.tmp", "b.db"]);
        assert!(done.status.success(), "{}", err(&done));
        assert_eq!(std::fs::read(scratch.path("b.db.tmp")).expect("it stays"), old);
    }
}

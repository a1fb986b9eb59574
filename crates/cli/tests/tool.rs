//! `ovsdb-tool create` beside the reference: the same words, the same files.

use crate::support::{self, Scratch, err, out, reference};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Schemas that Open vSwitch and OVN bring along.
fn packaged_schemas() -> Vec<std::path::PathBuf> {
    let mut found = vec![];
    for folder in ["/usr/share/openvswitch", "/usr/share/ovn"] {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|end| end == "ovsschema") {
                found.push(entry.path());
            }
        }
    }
    found
}

/// A line of the log without its time.
fn without_time(text: &str) -> String {
    text.lines()
        .map(|line| match line.split_once("Z|") {
            Some((_, rest)) => format!("{rest}\n"),
            None => format!("{line}\n"),
        })
        .collect()
}

#[test]
fn a_created_database_has_its_schema() {
    let scratch = Scratch::new();
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/network.ovsschema");
    let schema = schema.to_str().expect("UTF-8");
    let created = scratch.run(support::WEIR, &["tool", "create", "a.db", schema]);
    assert!(created.status.success(), "{}", err(&created));
    let content = std::fs::read_to_string(scratch.path("a.db")).expect("the file");
    assert!(content.starts_with("OVSDB JSON "), "{content}");
    assert!(content.contains(r#""name":"Network""#), "{content}");
    let mode = scratch.path("a.db").metadata().expect("the file").permissions().mode();
    assert_eq!(mode & 0o7117, 0, "{mode:o}");

    let again = scratch.run(support::WEIR, &["tool", "create", "a.db", schema]);
    assert_eq!(again.status.code(), Some(1));
    assert_eq!(err(&again), "ovsdb-tool: I/O error: a.db: create failed (File exists)\n");
}

#[test]
fn the_reference_reads_what_was_created() {
    let Some(tool) = reference("ovsdb-tool") else { return };
    let scratch = Scratch::new();
    let ours = scratch.link("ovsdb-tool");
    for schema in packaged_schemas() {
        let schema = schema.to_str().expect("UTF-8");
        for (program, db) in [(&tool, "theirs.db"), (&ours, "ours.db")] {
            let _ = std::fs::remove_file(scratch.path(db));
            let created = scratch.run(program, &["create", db, schema]);
            assert!(created.status.success(), "{schema}: {}", err(&created));
        }
        for question in ["db-name", "db-version", "db-cksum", "show-log"] {
            let theirs = scratch.run(&tool, &[question, "theirs.db"]);
            let ours = scratch.run(&tool, &[question, "ours.db"]);
            assert_eq!(out(&ours), out(&theirs), "{question} {schema}: {}", err(&ours));
        }
        let conversion = scratch.run(&tool, &["needs-conversion", "ours.db", schema]);
        assert_eq!(out(&conversion), "no\n", "{schema}: {}", err(&conversion));
    }
}

#[test]
fn mistakes_are_told_in_the_words_of_the_reference() {
    let Some(tool) = reference("ovsdb-tool") else { return };
    let scratch = Scratch::new();
    let ours = scratch.link("ovsdb-tool");
    let good = r#"{"name":"D","tables":{"T":{"columns":{"c":{"type":"integer"}}}}}"#;
    scratch.write("good", good);
    scratch.write("half", r#"{"name":"D""#);
    scratch.write("no-tables", r#"{"name":"D"}"#);
    scratch.write("reserved", r#"{"name":"D","tables":{"A":{"columns":{"_x":{"type":"real"}}}}}"#);
    scratch.write("more", &format!("{good} zzz"));
    scratch.write("empty", "\n");
    scratch.write("string", "\"x\"");
    scratch.write("array", "[1]");
    scratch.write("there.db", "");
    std::fs::create_dir(scratch.path("folder.db")).expect("a folder");
    for args in [
        &["create", "there.db", "good"][..],
        &["create", "folder.db", "good"],
        &["create", "no/such.db", "good"],
        &["create", "", "good"],
        &["create", "x.db", "missing"],
        &["create", "x.db", "half"],
        &["create", "x.db", "no-tables"],
        &["create", "x.db", "reserved"],
        &["create", "x.db", "more"],
        &["create", "x.db", "empty"],
        &["create", "x.db", "string"],
        &["create", "x.db", "array"],
        &["create", "x.db", "."],
        &["create", "x.db", "good", "third"],
        &["-vconsole:off", "create", "no/such.db", "good"],
        &["-vnonsense", "create", "x.db", "good"],
        &["create", "x.db", "good", "-vconsole:off", "--", "-x"],
        &["nonsense"],
        &[],
    ] {
        let theirs = scratch.run(&tool, args);
        let ours = scratch.run(&ours, args);
        assert_eq!(without_time(&err(&ours)), without_time(&err(&theirs)), "{args:?}");
        assert_eq!(ours.status.code(), theirs.status.code(), "{args:?}");
    }
    assert!(!scratch.path("x.db").exists());
}

#[test]
fn a_database_in_use_is_not_created_again() {
    let scratch = Scratch::new();
    scratch.write("good", r#"{"name":"D","tables":{"T":{"columns":{"c":{"type":"integer"}}}}}"#);
    let lock = scratch.write(".x.db.~lock~", "");
    let lock = std::fs::OpenOptions::new().write(true).open(lock).expect("the lock file");
    rustix::fs::fcntl_lock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("the lock");

    let refused = scratch.run(scratch.link("ovsdb-tool"), &["create", "x.db", "good"]);
    let pid = std::process::id();
    assert_eq!(
        without_time(&err(&refused)),
        format!(
            "00001|lockfile|WARN|.x.db.~lock~: cannot lock file because it is already locked by \
             pid {pid}\novsdb-tool: I/O error: x.db: failed to lock lockfile (Resource \
             temporarily unavailable)\n"
        )
    );
    assert_eq!(refused.status.code(), Some(1));
    assert!(!scratch.path("x.db").exists());
}

//! The Python package `ovs` as it is packaged, coming back to Weir: its replica is that of the
//! server after whatever happened meanwhile, and Weir sends it only what has changed.
//!
//! It learns ids from updates only, so it keeps an id that was refused until the next one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::returns::{Meanwhile, NOTHING, World};
use crate::support::{Running, Scratch};
use serde_json::{Value, json};
use weir_testkit::process::reference;

/// Prints its replica whenever it has changed.
const FOLLOW: &str = r#"
import json, sys
import ovs.db.idl, ovs.poller, ovs.vlog

remote, schema, columns = sys.argv[1:]
ovs.vlog.Vlog.init(None)
helper = ovs.db.idl.SchemaHelper(schema)
helper.register_columns("T", columns.split(","))
idl = ovs.db.idl.Idl(remote, helper)
shown = None
while True:
    idl.run()
    if idl.change_seqno != shown:
        shown = idl.change_seqno
        rows = {str(row.uuid): {name: value.to_json() for name, value in row._data.items()}
                for row in idl.tables["T"].rows.values()}
        print(json.dumps(rows, sort_keys=True, separators=(",", ":")), flush=True)
    poller = ovs.poller.Poller()
    idl.wait(poller)
    poller.block()
"#;

const RECORDED: &[&str] = &["ids", "name", "number", "tags"];
const ALL: &[&str] = &["ids", "name", "number", "status", "tags"];

fn schema() -> Value {
    json!({"name": "D", "version": "1.0.0", "tables": {"T": {"isRoot": true, "columns": {
        "name": {"type": "string"},
        "number": {"type": "integer"},
        "status": {"type": "string", "ephemeral": true},
        "tags": {"type": {"key": "string", "min": 0, "max": "unlimited"}},
        "ids": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}},
    }}}})
}

/// A row comes, one changes in a way that cannot be applied twice, one goes.
fn change(world: &World, n: u32) {
    let (name, other, gone) = (format!("row{n}"), format!("row{}", n / 2), n.saturating_sub(7));
    let is = |name: &str| json!([["name", "==", name]]);
    let operations = [
        json!({"op": "insert", "table": "T", "row": {
            "name": name, "tags": ["set", ["a", "b"]], "ids": ["map", [["k", name]]]}}),
        json!({"op": "mutate", "table": "T", "where": is(&other), "mutations": [
            ["tags", "insert", format!("tag{n}")], ["tags", "delete", "a"], ["number", "+=", 1],
            ["ids", "delete", ["set", ["k"]]], ["ids", "insert", ["map", [["l", name]]]]]}),
        json!({"op": "delete", "table": "T", "where": is(&format!("row{gone}"))}),
    ];
    world.session().transact("D", &operations).expect("a change");
}

/// The table as the client prints it.
fn content(world: &World, columns: &[&str]) -> String {
    let columns: Vec<_> = columns.iter().copied().chain(["_uuid"]).collect();
    let select = json!({"op": "select", "table": "T", "where": [], "columns": columns});
    let result = world.session().transact("D", &[select]).expect("a select");
    let mut rows = BTreeMap::new();
    for row in result[0]["rows"].as_array().expect("rows") {
        let row = row.as_object().expect("a row");
        let mut row: BTreeMap<_, _> = row.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        let uuid = row.remove("_uuid").expect("it was asked for");
        rows.insert(uuid[1].as_str().expect("a uuid").to_owned(), row);
    }
    assert!(!rows.is_empty());
    serde_json::to_string(&rows).expect("rows are JSON")
}

/// The first of these that has the package.
fn python() -> Option<&'static str> {
    let has = |python: &&str| {
        let mut command = Command::new(python);
        command.args(["-c", "import ovs.db.idl"]).stdin(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let found = ["python3", "/usr/bin/python3"].into_iter().find(has);
    if found.is_none() {
        eprintln!("skipped: the Python package ovs is not installed");
    }
    found
}

/// A client that watches these columns, away again and again.
fn comes_back(columns: &[&str], whiles: &[Meanwhile]) {
    let (Some(python), Some(stock)) = (python(), reference()) else { return };
    let scratch = Scratch::new();
    let schema: PathBuf = scratch.write("d.ovsschema", &schema().to_string());
    let mut world = World::new(&scratch, stock, &[schema]);
    world.change(&mut change);
    let script = scratch.write("follow.py", FOLLOW);
    let errors = std::fs::File::create(scratch.path("errors")).expect("a file");
    let mut client = Running::start(
        scratch
            .command(python)
            .arg(script)
            .args([&world.proxy.remote(), &scratch.text("d.ovsschema"), &columns.join(",")])
            .stderr(errors),
    );
    let first = world.arrivals("the first connection");
    assert_eq!((first[0].found, first[0].asked.as_str()), (false, NOTHING));
    client.line_with(&content(&world, columns));
    // An update, from which it learns an id.
    world.change(&mut change);
    client.line_with(&content(&world, columns));
    for &what in whiles {
        let resumed = world.away(what, &mut change);
        assert_ne!(resumed[0].asked, NOTHING, "{what:?}: it names no id");
        client.line_with(&content(&world, columns));
    }
    let errors = std::fs::read_to_string(scratch.path("errors")).expect("what it logged");
    let wrong =
        errors.lines().find(|line| line.contains(" row ") || line.contains("error parsing"));
    assert_eq!(wrong, None, "an update did not fit");
}

#[test]
fn the_python_client_is_told_only_what_has_changed() {
    use Meanwhile::{Compaction, Cut, Kill, Restart};
    // Without an update between: a difference that is told twice shows.
    comes_back(RECORDED, &[Cut, Cut, Restart, Compaction, Compaction, Kill]);
}

#[test]
fn the_python_client_that_was_refused_has_the_right_replica_and_is_resumed_from_there() {
    use Meanwhile::{Compaction, Cut, Restart, Stock};
    comes_back(RECORDED, &[Stock, Cut, Stock, Stock, Restart, Compaction]);
}

/// What is not in the file is told anew after a restart, never as a difference.
#[test]
fn the_python_client_of_columns_that_are_not_kept_is_told_everything_after_a_restart() {
    comes_back(ALL, &Meanwhile::ALL);
}

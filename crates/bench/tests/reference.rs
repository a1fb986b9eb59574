//! The load tests against the installed reference server, in miniature: whatever they check of a
//! server's answers and monitors holds there.

use std::path::Path;
use std::process::Command;

const SERVERS: &str = "/usr/sbin";
const NORTHBOUND: &str = "/usr/share/ovn/ovn-nb.ovsschema";
const SOUTHBOUND: &str = "/usr/share/ovn/ovn-sb.ovsschema";

fn installed(file: &str) -> bool {
    let there = Path::new(SERVERS).join("ovsdb-server").exists() && Path::new(file).exists();
    if !there {
        eprintln!("skipped: ovsdb-server or {file} is not installed");
    }
    there
}

fn bench(words: &[&str]) -> Result<(), String> {
    let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
    weir_bench::run(&words).map(drop).map_err(|e| e.to_string())
}

#[test]
fn ports_come_and_go() {
    if !installed(NORTHBOUND) {
        return;
    }
    let peer = format!("--peer=ref={SERVERS}");
    let size = ["--rows=300", "--writers=10", "--monitors=5"];
    let closed = ["ports", &peer, "--no-floor", size[0], size[1], size[2], "--cycles=2"];
    bench(&closed).unwrap();
    let open = ["ports", &peer, "--no-floor", size[0], size[1], "--monitors=0", "--rate=3000"];
    bench(&open).unwrap();
}

#[test]
fn elements_join_and_leave_a_set() {
    if !installed(NORTHBOUND) {
        return;
    }
    let peer = format!("--peer=ref={SERVERS}");
    bench(&["set", &peer, "--no-floor", "--sizes=10,2000", "--ops=1500"]).unwrap();
    bench(&["set", &peer, "--no-floor", "--sizes=0", "--ops=1", "--monitors=0"]).unwrap();
}

#[test]
fn rows_are_found_by_name() {
    if !installed(NORTHBOUND) {
        return;
    }
    let json = std::env::temp_dir().join(format!("weir-bench-{}.json", std::process::id()));
    let (peer, out) = (format!("--peer=ref={SERVERS}"), format!("--json={}", json.display()));
    bench(&["by-name", &peer, "--no-floor", "--rows=100,2000", "--seconds=0.1", &out]).unwrap();
    let text = std::fs::read_to_string(&json).unwrap();
    let figures: serde_json::Value = serde_json::from_str(&text).unwrap();
    let update = &figures["reports"][0]["servers"]["ref"][0]["update, 2000 rows"];
    assert!(update["transactions"].as_f64().unwrap() >= 1.0);
    let _ = std::fs::remove_file(json);
}

#[test]
fn the_other_scenarios_hold_too() {
    if !installed(NORTHBOUND) || !installed(SOUTHBOUND) {
        return;
    }
    let peer = format!("--peer=ref={SERVERS}");
    let scenarios: &[&[&str]] = &[
        &["ports", "--rows=100", "--writers=5", "--monitors=2", "--one-shot"],
        &["big", "--ops=20", "--writers=4", "--monitors=2,4"],
        &["by-column", "--rows=100,500", "--seconds=0.05"],
        &["may-exist", "--rows=100,500", "--seconds=0.05"],
        &["queries", "--rows=100,2000", "--seconds=0.05"],
        &["conditions", "--ops=200", "--monitors=0,10", "--swappers=3", "--swap-seconds=0.1"],
        &["growth", "--rows=10,1000", "--elements=10,100", "--ops=500"],
        // A server that is too slow: a few of each, and the rest goes unmeasured.
        &["growth", "--rows=1000", "--elements=10", "--ops=5000", "--seconds=0"],
        &["conditions", "--monitors=0,10", "--seconds=0", "--swappers=0"],
        &["openstack", "--ports=30"],
        &["connections", "--clients=50", "--seconds=0.05", "--ops=50"],
        &["strings", "--sizes=1000,100000", "--volume=500000"],
        &["herd", "--clients=4", "--megabytes=1"],
        &["large", "--megabytes=1"],
        &["snapshot-memory", "--megabytes=1"],
        &["steps", "--megabytes=1", "--monitors=3", "--ops=500"],
        &["unfair", "--quick", "--seconds=0.05"],
        &["unfair", "--quick", "--minutes=0.02", "--lines=swap,waits,drip,gone,sum-locks,broken"],
    ];
    for scenario in scenarios {
        let words = [*scenario, &[peer.as_str(), "--no-floor"][..]].concat();
        bench(&words).unwrap_or_else(|error| panic!("{scenario:?}: {error}"));
    }
}

/// A cluster's lines go on when one fails, so what they found is looked at.
#[test]
fn a_cluster_of_the_reference_keeps_what_it_acknowledges() {
    if !installed(NORTHBOUND) {
        return;
    }
    let json = std::env::temp_dir().join(format!("weir-bench-c-{}.json", std::process::id()));
    let (peer, out) = (format!("--peer=ref={SERVERS}"), format!("--json={}", json.display()));
    let lines = "--lines=ports,one-writer,big,requests,leader-killed,follower-killed,returns,compaction,rolling";
    bench(&["cluster", "--quick", "--rows=40", "--no-floor", lines, &peer, &out]).unwrap();
    let text = std::fs::read_to_string(&json).unwrap();
    let _ = std::fs::remove_file(json);
    let figures: serde_json::Value = serde_json::from_str(&text).unwrap();
    let sections = figures["reports"][0]["servers"]["ref"][0].as_object().unwrap();
    let failed: Vec<_> = sections.iter().filter(|(_, of)| !of["failed"].is_null()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    let held =
        sections.values().filter_map(|of| of["acknowledged writes that a member lacks"].as_f64());
    assert_eq!(held.collect::<Vec<_>>(), [0.0; 5]);
    assert!(sections["leader killed"]["elections"].as_f64().unwrap() >= 1.0);
}

#[test]
fn what_a_cluster_cannot_be_is_refused() {
    let peer = "--peer=ref=/bin/false";
    for (words, text) in [
        (["--members=4", peer], "--members 4: there are 3 or 5"),
        (["--lines=ports,nothing", peer], "--lines nothing: there are ports, one-writer, big"),
        (["--limit=never", peer], "--limit: 'never' is not a number"),
        (["--limit=-1", peer], "--limit -1"),
        (["--writers=3", peer], "cluster: unexpected '--writers=3'"),
        (["--tls", peer], "do not speak TLS"),
        (["--server=unix:/none", peer], "it starts its servers"),
    ] {
        let error = bench(&[&["cluster"], &words[..]].concat()).unwrap_err();
        assert!(error.contains(text), "{words:?}: {error}");
    }
}

#[test]
fn the_made_database_is_one_that_the_reference_reads() {
    if !installed(SOUTHBOUND) {
        return;
    }
    for records in ["--records=1", "--records=50"] {
        let file = std::env::temp_dir().join(format!("weir-bench{}{records}", std::process::id()));
        let path = file.display().to_string();
        bench(&["make-db", &path, "--megabytes=2", records]).unwrap();
        let again = bench(&["make-db", &path]);
        assert!(again.is_err(), "an existing file is not overwritten");
        let query = r#"["OVN_Southbound",{"op":"select","table":"Logical_Flow","where":[["priority","<",0]]},{"op":"select","table":"Datapath_Binding","where":[["tunnel_key","==",1]],"columns":["tunnel_key"]}]"#;
        let output = Command::new("ovsdb-tool").args(["query", &path, query]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(text.trim(), r#"[{"rows":[]},{"rows":[{"tunnel_key":1}]}]"#);
        let _ = std::fs::remove_file(file);
    }
}

#[test]
fn a_server_that_does_not_start_is_a_clear_failure() {
    if !installed(NORTHBOUND) {
        return;
    }
    let error = bench(&["ports", "--peer=false=/bin/false", "--no-floor"]).unwrap_err();
    assert!(error.contains("the server ended at once"), "{error}");
    let error = bench(&["ports", "--peer=ref=/usr/sbin", "--schema=/none"]).unwrap_err();
    assert!(error.contains("--schema"), "{error}");
}

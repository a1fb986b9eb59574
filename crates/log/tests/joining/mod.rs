//! Files of servers that were stopped when they had got a snapshot, and were no members yet.

use super::*;

/// The reference gives such a file up.
#[test]
fn a_server_that_is_about_to_become_a_member_is_started_again() {
    let stranger = header(&format!(r#""{S2}":"unix:b""#), &format!("[{SCHEMA},{{}}]"));
    for reading in READINGS {
        let loaded = read(&file(&[stranger.as_str()]), reading).unwrap();
        assert!(loaded.remotes.is_empty() && loaded.latest.servers.len() == 1, "{reading:?}");
    }
}

/// The servers in its snapshot may all have gone.
#[test]
fn where_a_server_was_told_to_join_is_known_behind_its_snapshot_until_it_is_a_member() {
    let stranger = header(&format!(r#""{S2}":"unix:b""#), &format!("[{SCHEMA},{{}}]"));
    let note = |note: &str| format!(r#"{{"note":"{note}"}}"#);
    let notes = ["joins at tcp:10.0.0.1:6643", "joins at unix:c d", "joins at nowhere", "joins"];
    let notes = notes.map(note);
    let mut records = vec![stranger.as_str()];
    records.extend(notes.iter().map(String::as_str));
    let joined = format!(r#"{{"index":2,"servers":{{"{S1}":"unix:a","{S2}":"unix:b"}},"term":2}}"#);
    let joined = [joined.as_str(), r#"{"commit_index":2}"#];
    for reading in READINGS {
        let loaded = read(&file(&records), reading).unwrap();
        assert_eq!(loaded.remotes, ["tcp:10.0.0.1:6643", "unix:c d"], "{reading:?}");
        let records = records.iter().chain(&joined).copied().collect::<Vec<_>>();
        let loaded = read(&file(&records), reading).unwrap();
        assert!(loaded.remotes.is_empty() && loaded.latest.servers.len() == 2, "{reading:?}");
    }
}

#[test]
fn the_packaged_tool_reads_over_where_a_server_was_told_to_join() {
    if !is_installed() {
        return;
    }
    let folder = Folder::new("joins_at");
    let note = format!(r#"{{"note":"{}"}}"#, weir_log::clustered::joins_at_note("unix:b"));
    let records = [&usual_header(), r#"{"term":2}"#, &note, r#"{"index":2,"term":2}"#];
    folder.write("db", &file(&records));
    assert_eq!(output(&folder, "ovsdb-tool", &["check-cluster", "db"]), Default::default());
    let (log, error) = output(&folder, "ovsdb-tool", &["show-log", "db"]);
    assert!(log.contains("note: \"joins at unix:b\"") && error.is_empty(), "{log} {error}");
}

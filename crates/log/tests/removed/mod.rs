//! Files of servers that were removed, or were about to be.

use super::reference::{Folder, is_installed, output};
use super::sample::content;
use super::{EID, READINGS, S1, S2, file, read, salvaged, usual_header};

/// The server's removal may never be committed. The reference gives such a file up.
#[test]
fn a_server_whose_removal_is_not_known_to_be_committed_is_a_member() {
    let removal = format!(r#"{{"index":2,"servers":{{"{S2}":"unix:b"}},"term":2}}"#);
    for reading in READINGS {
        let loaded = read(&file(&[&usual_header(), &removal]), reading).unwrap();
        assert_eq!((loaded.committed.servers.len(), loaded.latest.servers.len()), (2, 1));
    }
}

const NONE_OF_THEM: &str = "ovsdb error: server does not belong to cluster";

/// Others may not know that it was removed, and need its vote. The reference gives such a file up.
#[test]
fn a_removed_server_that_has_not_left_is_opened_unless_it_has_forgotten_what_it_had_promised() {
    let removal = format!(r#"{{"index":2,"servers":{{"{S2}":"unix:b"}},"term":2}}"#);
    let header = usual_header();
    let removed = [header.as_str(), &removal, r#"{"commit_index":2}"#];
    let with = |notes: &[&'static str]| file(&[&removed, notes].concat());
    let forgetful = with(&[r#"{"note":"forgot"}"#, r#"{"note":"left"}"#]);
    let mut damaged = with(&[r#"{"term":3}"#, r#"{"term":4}"#]);
    let at = with(&[]).len();
    let bad = at + damaged[at..].iter().position(|byte| *byte == b'3').unwrap();
    damaged[bad] ^= 1;
    for reading in READINGS {
        let loaded = read(&with(&[]), reading).unwrap();
        assert!(loaded.remotes.is_empty() && loaded.committed.servers.len() == 1, "{reading:?}");
        for file in [&forgetful, &damaged] {
            assert_eq!(read(file, reading).unwrap_err().to_string(), NONE_OF_THEM, "{reading:?}");
        }
    }
    if is_installed() {
        let folder = Folder::new("removed");
        folder.write("db", &with(&[]));
        let args = ["--remote=punix:socket", "--unixctl=control", "-vconsole:off", "db"];
        let (_, error) = output(&folder, "ovsdb-server", &args);
        assert_eq!(error.trim_end(), format!("ovsdb-server: {NONE_OF_THEM}"));
    }
}

/// A lost cluster's rows are wanted, be the removal of the file's server committed or not.
#[test]
fn the_file_of_a_server_that_was_leaving_can_be_salvaged() {
    let removal = format!(r#"{{"index":2,"servers":{{"{S2}":"unix:b"}},"term":2}}"#);
    let row = format!(r#"[null,{{"T":{{"{S1}":{{"n":1}}}}}}]"#);
    let behind = format!(r#"{{"term":2,"index":3,"eid":"{EID}","data":{row}}}"#);
    for commit in [1, 2, 3] {
        let commit = format!(r#"{{"commit_index":{commit}}}"#);
        let file = file(&[&usual_header(), &removal, &behind, &commit]);
        for reading in READINGS {
            let loaded = salvaged(&file, reading).unwrap();
            assert_eq!(content(&loaded.store.unwrap()).len(), 1, "{commit} {reading:?}");
        }
    }
}

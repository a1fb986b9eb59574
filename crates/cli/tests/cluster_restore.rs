//! `ovsdb-client backup` of a cluster of Weir while others write to it, and `restore` into it, through
//! the leader and through a follower, with both programs.

use std::process::Stdio;

use crate::group::{ALL, Group, SCHEMA};
use crate::support::{err, eventually, out, reference};
use serde_json::json;

/// Rows that are saved and come back.
const ROWS: u32 = 3_000;

/// Rows of the clients that go on meanwhile, which a restore takes away: how many wait for it.
const MEANWHILE: u64 = 20;

#[test]
fn a_backup_comes_back_into_a_loaded_cluster() {
    let Some(group) = Group::weir(SCHEMA) else { return };
    let leader = group.settle(&ALL);
    let saved: Vec<String> = (0..ROWS).map(|row| format!("saved {row:04}")).collect();
    let insert = |name: &String| json!({"op": "insert", "table": "T", "row": {"name": name}});
    let rows: Vec<_> = saved.iter().map(insert).collect();
    group.client(leader).transact("Odd", &rows).expect("a reply");
    let clients =
        [group.scratch.link("ovsdb-client"), reference("ovsdb-client").expect("it is here")];
    let load = group.load();
    for (turn, client) in clients.iter().enumerate() {
        for (at, from) in [(leader, (leader + 1) % 3), ((leader + 2) % 3, leader)] {
            let name = format!("backup {turn} {at}");
            load.go_on(MEANWHILE, &ALL);
            let remote = |at: usize| format!("unix:{}", group.socket(at).display());
            let file = group.scratch.path(&name);
            let run = |words: &[&str], stdin: Stdio| {
                let mut command = group.scratch.command(client);
                command.args(["-t", "60", "--no-leader-only"]).args(words);
                command.stdin(stdin).output().expect("it starts")
            };
            let done = run(&["backup", &remote(from), "Odd"], Stdio::null());
            assert!(done.status.success(), "backup of member {from}: {}", err(&done));
            std::fs::write(&file, &done.stdout).expect("a file");
            load.go_on(MEANWHILE, &ALL);
            let input = std::fs::File::open(&file).expect("the backup");
            let done = run(&["restore", &remote(at), "Odd"], input.into());
            let said = format!("{}{}", out(&done), err(&done));
            assert!(done.status.success(), "restore through member {at}: {said}");
            load.go_on(MEANWHILE, &ALL);
            for member in ALL {
                eventually("each member has what was saved, once", || {
                    let names = group.names(member);
                    let is_saved = |name: &&String| name.starts_with("saved ");
                    names.iter().filter(is_saved).eq(&saved)
                });
            }
        }
    }
    load.end();
    group.check_files();
}

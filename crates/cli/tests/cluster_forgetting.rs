//! Members whose files are not what they were: an older copy has taken the place of one, or a record in
//! the middle of it is bad. They must not vote, for they have forgotten what they promised.

use crate::group::{ALL, Group, Program, SCHEMA};
use crate::support::{clustered_record, err, eventually, out, reference};
use serde_json::{Value, json};

/// The id of a state that nobody has.
const NOTHING: &str = "00000000-0000-0000-0000-000000000000";

fn others(of: usize) -> Vec<usize> {
    ALL.into_iter().filter(|at| *at != of).collect()
}

/// Rows through all these members, one after the other.
fn insert(trio: &Group, members: &[usize], name: &str) {
    members.iter().for_each(|at| trio.insert(*at, &format!("{name} {at}")));
}

fn sid(trio: &Group, at: usize) -> String {
    out(&trio.appctl(at, &["cluster/sid", "Odd"]))
}

/// A member that has forgotten something is there again as another server, with all rows.
fn has_joined_again(trio: &Group, at: usize, before: &str) {
    trio.settle(&ALL);
    assert_ne!(sid(trio, at), before, "{}", trio.log(at));
    let status = trio.status(at);
    let servers: Vec<&str> = status.lines().filter(|line| line.contains(" at tcp:")).collect();
    assert_eq!(servers.len(), 3, "{status}");
    let expected = trio.names(others(at)[0]);
    eventually("it has what the others have", || trio.names(at) == expected);
    insert(trio, &ALL, "all again");
}

#[test]
fn a_member_with_an_older_file_joins_again() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    insert(&trio, &ALL, "early");
    let leader = trio.settle(&ALL);
    let forgetful = others(leader)[0];
    let before = sid(&trio, forgetful);
    trio.stop(forgetful);
    let file = trio.scratch.path(&trio.file(forgetful));
    let older = std::fs::read(&file).expect("a file");
    trio.start(forgetful, Program::Weir);
    trio.settle(&ALL);
    insert(&trio, &ALL, "late");

    trio.kill(forgetful);
    std::fs::write(&file, older).expect("room");
    trio.start(forgetful, Program::Weir);
    has_joined_again(&trio, forgetful, &before);
    let log = trio.log(forgetful);
    assert!(log.contains("the file is an older one"), "{log}");
    assert!(log.contains("joined cluster"), "{log}");
    trio.stop_all();
    trio.check_files();
    trio.start_all(Program::Packaged);
    assert_eq!(trio.names(forgetful).len(), 9);
}

#[test]
fn a_leader_with_an_older_file_joins_again() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    insert(&trio, &ALL, "early");
    let leader = trio.settle(&ALL);
    let before = sid(&trio, leader);
    // As a copy of the file on a machine that goes on.
    let file = trio.scratch.path(&trio.file(leader));
    let older = std::fs::read(&file).expect("a file");
    insert(&trio, &ALL, "late");
    trio.kill(leader);
    std::fs::write(&file, older).expect("room");
    trio.start(leader, Program::Weir);
    has_joined_again(&trio, leader, &before);
    trio.stop_all();
    trio.check_files();
}

/// An old container or a cloned volume comes back beside the member that goes on.
#[test]
fn a_process_with_a_copy_of_a_running_members_file_removes_nobody() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    insert(&trio, &ALL, "early");
    let leader = trio.settle(&ALL);
    let copied = others(leader)[0];
    let before = sid(&trio, copied);
    let older = std::fs::read(trio.scratch.path(&trio.file(copied))).expect("a file");
    insert(&trio, &ALL, "late");
    std::fs::write(trio.scratch.path("twin.db"), older).expect("room");
    let (log, control) = (trio.scratch.path("twin.log"), trio.scratch.text("twin.ctl"));
    let mut twin = trio.scratch.command(trio.scratch.link("ovsdb-server"));
    twin.args(["--no-chdir", "-vconsole:off", "-vsyslog:off", "-vfile:info"])
        .arg(format!("--log-file={}", log.display()))
        .args([format!("--unixctl={control}"), trio.scratch.text("twin.db")]);
    let mut twin = twin.spawn().expect("it starts");
    let says = |text: &str| std::fs::read_to_string(&log).is_ok_and(|log| log.contains(text));
    eventually("it hears that it has forgotten", || says("the file is an older one"));
    eventually("it does not ask", || says("does not join again while it cannot listen"));
    insert(&trio, &ALL, "later");
    assert_eq!(sid(&trio, copied), before, "{}", trio.log(copied));
    assert!(!trio.log(leader).contains("starting to remove"), "{}", trio.log(leader));
    twin.kill().and_then(|()| twin.wait()).expect("it runs");
    trio.stop(copied);
    trio.start(copied, Program::Weir);
    trio.settle(&ALL);
    assert_eq!(trio.names(copied).len(), 9);
    trio.stop_all();
    trio.check_files();
}

/// A member's file was put in the place of another one's, which is there again later.
#[test]
fn a_member_that_is_started_with_anothers_file_removes_nobody() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    insert(&trio, &ALL, "early");
    let leader = trio.settle(&ALL);
    let (copied, wrong) = (others(leader)[0], others(leader)[1]);
    let before = sid(&trio, copied);
    let older = std::fs::read(trio.scratch.path(&trio.file(copied))).expect("a file");
    insert(&trio, &ALL, "late");
    trio.stop(wrong);
    let file = trio.scratch.path(&trio.file(wrong));
    let own = std::fs::read(&file).expect("a file");
    std::fs::write(&file, older).expect("room");
    trio.start(wrong, Program::Weir);
    eventually("it hears that it has forgotten", || {
        trio.log(wrong).contains("the file is an older one")
    });
    eventually("it does not ask", || {
        trio.log(wrong).contains("does not join again while it cannot listen")
    });
    insert(&trio, &[leader, copied], "later");
    assert_eq!(sid(&trio, copied), before, "{}", trio.log(copied));
    trio.stop(wrong);
    std::fs::write(&file, own).expect("room");
    trio.start(wrong, Program::Weir);
    trio.settle(&ALL);
    eventually("it has all", || trio.names(wrong).len() == 8);
    trio.stop_all();
    trio.check_files();
}

/// Until others have taken it in again nobody can vote with such a file, whatever opens it, and all
/// that is in it can be got from it.
#[test]
fn an_older_file_that_was_found_out_is_not_used_by_anybody() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    insert(&trio, &ALL, "early");
    let leader = trio.settle(&ALL);
    let (forgetful, away) = (others(leader)[0], others(leader)[1]);
    let before = sid(&trio, forgetful);
    let file = trio.scratch.path(&trio.file(forgetful));
    let older = std::fs::read(&file).expect("a file");
    trio.kill(away);
    insert(&trio, &[leader, forgetful], "late");
    trio.kill(forgetful);
    std::fs::write(&file, older).expect("room");

    trio.start(forgetful, Program::Weir);
    eventually("it hears that it has forgotten", || {
        trio.status(forgetful).contains("Status: joining cluster")
    });
    // Nobody remembers any more.
    trio.stop(forgetful);
    trio.stop(leader);
    for tool in [reference("ovsdb-tool"), Some(trio.scratch.link("ovsdb-tool"))] {
        let tool = tool.expect("it comes with the server");
        let standalone = trio.scratch.text("standalone.db");
        let _ = std::fs::remove_file(&standalone);
        let args = ["cluster-to-standalone", &standalone, &trio.file(forgetful)];
        let done = trio.scratch.run(tool, &args);
        assert!(done.status.success(), "{}", err(&done));
    }
    let server = reference("ovsdb-server").expect("it has been used before");
    let file = trio.file(forgetful);
    let control = format!("--unixctl={}", trio.scratch.text("other.ctl"));
    let refused = trio.scratch.run(server, &["--no-chdir", &control, "-vconsole:off", &file]);
    assert!(err(&refused).contains("server has left the cluster"), "{}", err(&refused));

    trio.start(forgetful, Program::Weir);
    trio.start(away, Program::Weir);
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(trio.leader_among(&[away, forgetful]), None, "two cannot know what is committed");
    trio.start(leader, Program::Weir);
    has_joined_again(&trio, forgetful, &before);
    assert!(trio.names(away).contains(&format!("late {forgetful}")));
    trio.stop_all();
    trio.check_files();
}

#[test]
fn a_member_with_a_bad_record_in_the_middle_joins_again() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    insert(&trio, &ALL, "early");
    let leader = trio.settle(&ALL);
    let before = sid(&trio, leader);
    trio.stop(leader);
    let file = trio.scratch.path(&trio.file(leader));
    let mut bytes = std::fs::read(&file).expect("a file");
    let at = bytes.windows(7).position(|word| word == b"early 1").expect("a row");
    bytes[at] ^= 1;
    std::fs::write(&file, &bytes).expect("room");
    insert(&trio, &others(leader), "late");

    trio.start(leader, Program::Weir);
    has_joined_again(&trio, leader, &before);
    let log = trio.log(leader);
    assert!(log.contains("there is a good record at offset"), "{log}");
    trio.stop_all();
    trio.check_files();
}

/// What its file says before the bad record names nobody else: that is of a time when it was alone.
#[test]
fn who_founded_a_cluster_joins_it_again_if_its_first_records_are_bad() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    insert(&trio, &ALL, "early");
    let before = sid(&trio, 0);
    trio.stop(0);
    let file = trio.scratch.path(&trio.file(0));
    let mut bytes = std::fs::read(&file).expect("a file");
    let words = b"OVSDB CLUSTER ";
    let second = 1 + bytes[1..].windows(words.len()).position(|word| word == words).expect("two");
    let body = second + bytes[second..].iter().position(|byte| *byte == b'\n').expect("a line") + 1;
    bytes[body] ^= 1;
    std::fs::write(&file, &bytes).expect("room");

    trio.start(0, Program::Weir);
    has_joined_again(&trio, 0, &before);
    trio.stop_all();
    trio.check_files();
}

/// The file of one member has another id for a row, in a record that is as good as any.
#[test]
fn a_member_whose_rows_a_committed_entry_does_not_fit_is_one_no_more() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    insert(&trio, &ALL, "early");
    let leader = trio.settle(&ALL);
    let odd = others(leader)[0];
    trio.stop(odd);
    let file = trio.scratch.path(&trio.file(odd));
    let text = std::fs::read_to_string(&file).expect("text");
    let changed: Vec<u8> = text
        .split_inclusive('\n')
        .filter(|line| line.starts_with('{'))
        .flat_map(|json| clustered_record(&with_another_row_id(json.trim_end(), "early 1")))
        .collect();
    assert_ne!(changed, text.as_bytes());
    std::fs::write(&file, &changed).expect("room");

    trio.start(odd, Program::Weir);
    trio.settle(&ALL);
    insert(&trio, &ALL, "late");
    let expected = trio.names(leader);
    eventually("all rows are there", || trio.names(odd) == expected);
    let mut client = trio.client(leader);
    let where_early = json!([["name", "==", "early 1"]]);
    let delete = json!({"op": "delete", "table": "T", "where": where_early});
    assert_eq!(client.transact("Odd", &[delete]).expect("a reply")[0]["count"], 1);
    eventually("it says that it cannot", || trio.log(odd).contains("cannot apply entry "));
    let select = json!({"op": "select", "table": "Database", "where": [["name", "==", "Odd"]]});
    eventually("it has the database no more", || {
        let rows = trio.client(odd).transact("_Server", std::slice::from_ref(&select));
        rows.expect("a reply")[0]["rows"] == json!([])
    });
    assert!(trio.log(odd).contains("its rows are not those of its cluster"), "{}", trio.log(odd));
    let survivor = trio.settle(&others(odd));
    insert(&trio, &others(odd), "without it");
    assert_eq!(trio.names(survivor).len(), expected.len() + 1);
}

/// A record in which the row of this name has another id, if it has such a row.
fn with_another_row_id(json: &str, name: &str) -> String {
    let Some(at) = json.find(&format!("\":{{\"name\":\"{name}\"")) else { return json.to_owned() };
    let (before, after) = json.split_at(at - 36);
    let digit = if after.starts_with('0') { '1' } else { '0' };
    format!("{before}{digit}{}", &after[1..])
}

/// Nobody else has what is behind the bad record.
#[test]
fn a_server_alone_with_a_bad_record_is_not_started() {
    let Some(mut alone) = Group::packaged_of(1, SCHEMA) else { return };
    (0..5).for_each(|n| alone.insert(0, &format!("row {n}")));
    alone.stop(0);
    let file = alone.scratch.path(&alone.file(0));
    let mut bytes = std::fs::read(&file).expect("a file");
    let at = bytes.windows(5).position(|word| word == b"row 1").expect("a row");
    bytes[at] ^= 1;
    std::fs::write(&file, &bytes).expect("room");
    let control = format!("--unixctl={}", alone.scratch.text("other.ctl"));
    let server = alone.scratch.link("ovsdb-server");
    let refused = alone.scratch.run(server, &["--no-chdir", &control, &alone.file(0)]);
    assert!(!refused.status.success());
    assert!(err(&refused).contains("there is a good record at offset"), "{}", err(&refused));
    assert_eq!(std::fs::read(&file).expect("a file"), bytes);
}

/// The power went while two entries were written, and a block of the first one is missing: nobody was
/// told of either.
#[test]
fn a_server_alone_with_a_hole_in_its_last_write_is_started() {
    let Some(mut alone) = Group::packaged_of(1, SCHEMA) else { return };
    (0..5).for_each(|n| alone.insert(0, &format!("row {n}")));
    alone.stop(0);
    let file = alone.scratch.path(&alone.file(0));
    let good = std::fs::read(&file).expect("a file");
    let words = b"OVSDB CLUSTER ";
    let log = 1 + good[1..].windows(words.len()).position(|word| word == words).expect("a log");
    let text = String::from_utf8_lossy(&good);
    let number = |name: &str| {
        let digits = |rest: &str| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok();
        let key = format!("\"{name}\":");
        text.split(&key).skip(1).filter_map(digits).max().unwrap_or(0_u64)
    };
    let (index, term) = (number("index"), number("term"));
    // A space in front of the newline is the mark of Weir.
    let entry = |index: u64| {
        let eid = format!("55555555-5555-4555-8555-{index:012}");
        let head = format!("\"term\":{term},\"index\":{index},\"eid\":\"{eid}\"");
        clustered_record(&format!("{{{head},\"data\":[null,{{\"_date\":1}}]}} "))
    };
    let written = |synced: usize| {
        let mut lost = entry(index + 1);
        lost[100..].fill(0);
        let head = format!("\"comment\":\"synced {synced}\"");
        let commit = clustered_record(&format!("{{{head},\"commit_index\":{index}}}"));
        [good.clone(), lost, entry(index + 2), commit].concat()
    };

    // What was on the disk once is damage.
    std::fs::write(&file, written(good.len() - log + 1)).expect("room");
    let control = format!("--unixctl={}", alone.scratch.text("other.ctl"));
    let server = alone.scratch.link("ovsdb-server");
    let refused = alone.scratch.run(server, &["--no-chdir", &control, &alone.file(0)]);
    assert!(!refused.status.success(), "{}", err(&refused));

    std::fs::write(&file, written(good.len() - log)).expect("room");
    alone.start(0, Program::Weir);
    alone.settle(&[0]);
    alone.insert(0, "late");
    assert_eq!(alone.names(0).len(), 6);
    assert!(alone.log(0).contains("cannot be read and is cut off"), "{}", alone.log(0));
    alone.stop(0);
    alone.check_files();
}

/// Of three servers two had what is lost: the file of one is an older copy, and the other one was down when that one
/// and the third elected a leader.
#[test]
fn a_member_that_has_what_its_cluster_has_lost_takes_no_part() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    insert(&trio, &ALL, "early");
    let knowing = trio.settle(&ALL);
    let (forgetful, behind) = (others(knowing)[0], others(knowing)[1]);
    trio.stop(behind);
    let file = trio.scratch.path(&trio.file(forgetful));
    let older = std::fs::read(&file).expect("a file");
    insert(&trio, &[knowing, forgetful], "lost");
    let before = trio.names(knowing);
    // Who is started anew knows as committed what its file says so of.
    let status = trio.status(knowing);
    let end = status.lines().find_map(|line| line.strip_prefix("Log: ")?.split_once(", "));
    let end: u64 = end.expect("a line").1.trim_end_matches(']').parse().expect("a number");
    let commit = format!("\"commit_index\":{}", end - 1);
    let own = trio.scratch.path(&trio.file(knowing));
    eventually("that is on its disk", || {
        let bytes = std::fs::read(&own).expect("a file");
        bytes.windows(commit.len()).any(|part| part == commit.as_bytes())
    });
    trio.kill(knowing);
    trio.kill(forgetful);
    std::fs::write(&file, older).expect("room");
    let left = [forgetful, behind];
    left.into_iter().for_each(|at| trio.start(at, Program::Weir));
    let leader = trio.settle(&left);
    insert(&trio, &left, "new");

    trio.start(knowing, Program::Weir);
    let lost =
        "Status: disconnected from the cluster (entries that are committed here are lost there)";
    eventually("it says so", || trio.status(knowing).contains(lost));
    assert!(trio.log(knowing).contains("keep its file"), "{}", trio.log(knowing));
    assert_eq!(trio.names(knowing), before);
    insert(&trio, &left, "newer");
    assert!(trio.status(knowing).contains(lost), "{}", trio.status(knowing));

    let kicked = trio.appctl(leader, &["cluster/kick", "Odd", sid(&trio, knowing).trim()]);
    assert!(kicked.status.success(), "{}", err(&kicked));
    trio.has_left(knowing);
    trio.join_anew(knowing);
    trio.settle(&ALL);
    let expected = trio.names(leader);
    eventually("it has what the others have", || trio.names(knowing) == expected);
    assert!(!expected.iter().any(|name| name.starts_with("lost")), "{expected:?}");
    trio.stop_all();
    trio.check_files();
}

/// What a client of the member is told that has had the state of this id.
fn watch(trio: &Group, at: usize, state: &str) -> Value {
    let params = json!(["Odd", "m", {"T": [{"columns": ["name"]}]}, state]);
    trio.client(at).request("monitor_cond_since", &params).expect("a reply")["result"].clone()
}

/// The index that the member says in `_Server`.
fn index(trio: &Group, at: usize) -> u64 {
    let select = json!({"op": "select", "table": "Database", "where": [["name", "==", "Odd"]]});
    let found = trio.client(at).transact("_Server", &[select]).expect("a reply");
    found[0]["rows"][0]["index"].as_u64().expect("an index")
}

/// Two of three machines are gone for good.
#[test]
fn a_new_cluster_is_made_of_one_file_of_an_old_one() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    insert(&trio, &ALL, "early");
    let leader = trio.settle(&ALL);
    let changed = trio.appctl(leader, &["cluster/change-election-timer", "Odd", "1500"]);
    assert!(changed.status.success(), "{}", err(&changed));
    let schema = SCHEMA.replace("1.0.0", "1.1.0");
    let mut client = trio.client(leader);
    client.request("set_db_change_aware", &serde_json::json!([true])).expect("a reply");
    let schema: Value = serde_json::from_str(&schema).expect("JSON");
    let converted = client.request("convert", &serde_json::json!(["Odd", schema]));
    assert!(converted.expect("a reply")["error"].is_null());
    eventually("all have converted", || {
        ALL.into_iter().all(|at| trio.log(at).contains("Odd: converted"))
    });
    insert(&trio, &ALL, "late");
    let expected = trio.names(leader);
    let (state, seen) = (watch(&trio, leader, NOTHING)[1].clone(), index(&trio, leader));
    ALL.into_iter().for_each(|at| trio.kill(at));

    let tool = trio.scratch.link("ovsdb-tool");
    let (old, new) = (trio.file(leader), trio.scratch.text("new.db"));
    let address = trio.address(leader).to_owned();
    let done = trio.scratch.run(&tool, &["recover-cluster", &new, &old]);
    assert!(done.status.success(), "{}", err(&done));
    assert!(
        out(&done).contains(&format!("join-cluster FILE Odd ADDRESS {address}")),
        "{}",
        out(&done)
    );
    let cid = |file: &str| out(&trio.scratch.run(&tool, &["db-cid", file]));
    assert_ne!(cid(&new), cid(&old));
    // An existing file is not written over.
    let again = trio.scratch.run(&tool, &["recover-cluster", &new, &old]);
    assert!(!again.status.success());

    std::fs::rename(&new, trio.scratch.path(&old)).expect("the same folder");
    let cid = cid(&old);
    let joiners = others(leader);
    for at in &joiners {
        let file = trio.scratch.path(&trio.file(*at));
        std::fs::remove_file(&file).expect("it is there");
        let (cid, own) = (format!("--cid={}", cid.trim()), trio.address(*at).to_owned());
        let args = [&cid, "join-cluster", &trio.file(*at), "Odd", &own, &address];
        let done = trio.scratch.run(&tool, &args.map(String::from).each_ref().map(String::as_str));
        assert!(done.status.success(), "{}", err(&done));
    }
    trio.start_all(Program::Weir);
    eventually("all have all rows", || ALL.into_iter().all(|at| trio.names(at) == expected));
    assert!(trio.status(leader).contains("Election timer: 1500"), "{}", trio.status(leader));
    for at in ALL {
        // Who has seen an index refuses servers with one below it, of whatever cluster.
        assert!(index(&trio, at) > seen, "member {at}");
        // What was committed last may be in no file that is left, and be asked for again under the same id.
        let told = watch(&trio, at, state.as_str().expect("an id"));
        let rows = told[2]["T"].as_object().map_or(0, |rows| rows.len());
        assert_eq!((&told[0], rows), (&json!(false), expected.len()), "member {at}");
        assert_ne!(told[1], state, "member {at}");
    }
    insert(&trio, &ALL, "new");
    trio.stop_all();
    trio.check_files();
    trio.start_all(Program::Packaged);
    insert(&trio, &ALL, "packaged");
    trio.stop_all();
    trio.start_all(Program::Weir);
    insert(&trio, &ALL, "again");
}

/// The packaged server goes by the terms that a file says, and by nothing else.
#[test]
fn what_is_written_to_a_recovered_cluster_by_the_packaged_server_can_be_read_again() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    insert(&trio, &ALL, "early");
    // An election each.
    for _ in 0..2 {
        let leader = trio.settle(&ALL);
        trio.kill(leader);
        trio.settle(&others(leader));
        trio.start(leader, Program::Weir);
    }
    trio.settle(&ALL);
    ALL.into_iter().for_each(|at| trio.kill(at));
    let tool = trio.scratch.link("ovsdb-tool");
    let files = ALL.map(|at| trio.file(at));
    let args = ["recover-cluster", "new.db", &files[0], &files[1], &files[2], trio.address(0)];
    let done = trio.scratch.run(&tool, &args);
    assert!(done.status.success(), "{}", err(&done));
    std::fs::rename(trio.scratch.path("new.db"), trio.scratch.path(&files[0])).expect("a folder");
    let programs = [Program::Packaged, Program::Packaged, Program::Weir, Program::Packaged];
    for (n, program) in programs.into_iter().enumerate() {
        trio.start(0, program);
        trio.settle(&[0]);
        trio.insert(0, &format!("more {n}"));
        trio.stop(0);
    }
    trio.start(0, Program::Weir);
    trio.settle(&[0]);
    let names = trio.names(0);
    assert_eq!(names.iter().filter(|name| name.starts_with("more")).count(), 4, "{names:?}");
}

#[test]
fn of_a_damaged_file_a_cluster_is_recovered_if_that_is_asked_for() {
    let Some(mut alone) = Group::packaged_of(1, SCHEMA) else { return };
    (0..5).for_each(|n| alone.insert(0, &format!("row {n}")));
    alone.stop(0);
    let file = alone.scratch.path(&alone.file(0));
    let mut bytes = std::fs::read(&file).expect("a file");
    let at = bytes.windows(5).position(|word| word == b"row 3").expect("a row");
    bytes[at] ^= 1;
    std::fs::write(&file, &bytes).expect("room");
    let tool = alone.scratch.link("ovsdb-tool");
    let recover = |options: &[&str]| {
        let old = alone.file(0);
        let args = [options, &["recover-cluster", "new.db", &old]].concat();
        alone.scratch.run(&tool, &args)
    };
    let refused = recover(&[]);
    assert!(!refused.status.success());
    assert!(err(&refused).contains("use the file of another server"), "{}", err(&refused));
    let done = recover(&["--accept-damage"]);
    assert!(done.status.success(), "{}", err(&done));
    assert!(err(&done).contains("what is behind it is left out"), "{}", err(&done));
    std::fs::rename(alone.scratch.path("new.db"), &file).expect("the same folder");
    alone.start(0, Program::Weir);
    alone.settle(&[0]);
    assert_eq!(alone.names(0), ["row 0", "row 1", "row 2"]);
}

//! Transactions under an id that their client chose (`weir_transact`), and what has come of them
//! (`weir_outcome`), asked of any member.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::group::{ALL, Group, Program, SCHEMA};
use crate::support::eventually;
use serde_json::{Value, json};
use weir_testkit::client::{Client, Trouble};

/// A random id, of the time and a number.
fn fresh(number: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos();
    let mixed = (now as u64 ^ number.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!(
        "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
        mixed >> 32,
        mixed & 0xffff,
        mixed >> 48 & 0xfff,
        number & 0xfff,
        (now as u64) & 0xffff_ffff_ffff
    )
}

fn insert(name: &str) -> Value {
    json!({"op": "insert", "table": "T", "row": {"name": name}})
}

/// `weir_transact`: the result.
fn transact(client: &mut Client, options: &Value, operations: &[Value]) -> Result<Value, Trouble> {
    let mut params = vec![json!("Odd"), options.clone()];
    params.extend(operations.iter().cloned());
    let reply = client.request("weir_transact", &Value::Array(params))?;
    assert_eq!(reply["error"], Value::Null, "{reply}");
    Ok(reply["result"].clone())
}

/// `weir_outcome`: the result.
fn outcome(client: &mut Client, id: &str, since: &str) -> Result<String, Trouble> {
    let reply = client.request("weir_outcome", &json!(["Odd", id, since]))?;
    assert_eq!(reply["error"], Value::Null, "{reply}");
    Ok(reply["result"].as_str().expect("a word").to_owned())
}

/// The state of the member that is asked.
fn state(client: &mut Client) -> Result<String, Trouble> {
    let result = transact(client, &json!({}), &[])?;
    assert_eq!(result["results"], json!([]));
    Ok(result["id"].as_str().expect("an id").to_owned())
}

#[test]
fn what_runs_under_a_chosen_id_is_committed_once_whoever_is_asked() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    trio.settle(&ALL);
    for (round, first) in ALL.into_iter().enumerate() {
        let [second, third] = [1, 2].map(|behind| ALL[(first + behind) % 3]);
        let since = state(&mut trio.client(first)).expect("an answer");
        let (id, name) = (fresh(round as u64), format!("row {round}"));
        let options = json!({"id": id, "since": since});
        let done = transact(&mut trio.client(first), &options, &[insert(&name)]).expect("a reply");
        assert!(done["results"][0]["uuid"].is_array(), "{done}");
        assert_ne!(done["id"], json!(since), "the state behind it is another one");
        for at in [first, second, third] {
            let again =
                transact(&mut trio.client(at), &options, &[insert(&name)]).expect("a reply");
            assert_eq!(again["results"], Value::Null, "member {at}: it is there already");
            assert_eq!(outcome(&mut trio.client(at), &id, &since).expect("a word"), "committed");
            assert_eq!(trio.names(at).iter().filter(|row| **row == name).count(), 1);
        }

        // Nobody has sent this one, and who sends it later is too late.
        let late = fresh(100 + round as u64);
        let options = json!({"id": late, "since": since});
        for at in [third, first] {
            assert_eq!(
                outcome(&mut trio.client(at), &late, &since).expect("a word"),
                "not committed"
            );
        }
        for at in [second, third, first] {
            let refused =
                transact(&mut trio.client(at), &options, &[insert("late")]).expect("a reply");
            assert_eq!(refused["results"][0]["error"], "not committed", "{refused}");
        }

        // A state that no member knows is no beginning.
        let strange = json!({"id": fresh(200 + round as u64), "since": fresh(300)});
        let refused =
            transact(&mut trio.client(second), &strange, &[insert("late")]).expect("a reply");
        assert_eq!(refused["results"][0]["error"], "unknown state", "{refused}");
        let unknown = outcome(&mut trio.client(third), &fresh(400), &fresh(500)).expect("a word");
        assert_eq!(unknown, "unknown");
    }
    ALL.into_iter().for_each(|at| assert!(!trio.names(at).contains(&"late".to_owned())));

    // It failed, so it has no id, and may be tried again.
    let since = state(&mut trio.client(0)).expect("an answer");
    let options = json!({"id": fresh(7), "since": since});
    let bad = json!({"op": "insert", "table": "T", "row": {"none": 1}});
    let failed = transact(&mut trio.client(1), &options, &[bad]).expect("a reply");
    assert_eq!(failed["results"][0]["error"], "unknown column", "{failed}");
    let done = transact(&mut trio.client(2), &options, &[insert("then")]).expect("a reply");
    assert!(done["results"][0]["uuid"].is_array(), "{done}");

    // All of that is in the files: who starts again knows it.
    let (chosen, late) = (options["id"].as_str().expect("an id"), fresh(8));
    assert_eq!(outcome(&mut trio.client(0), &late, &since).expect("a word"), "not committed");
    trio.stop_all();
    trio.check_files();
    trio.start_all(Program::Weir);
    for at in ALL {
        assert_eq!(outcome(&mut trio.client(at), chosen, &since).expect("a word"), "committed");
        let options = json!({"id": late, "since": since});
        let refused = transact(&mut trio.client(at), &options, &[insert("late")]).expect("a reply");
        assert_eq!(refused["results"][0]["error"], "not committed", "{refused}");
    }
    trio.stop_all();

    // The reference reads such entries.
    trio.start_all(Program::Packaged);
    assert_eq!(trio.names(0).len(), 4);
    trio.stop_all();
}

#[test]
fn a_transaction_that_waits_runs_once_too() {
    let Some(trio) = Group::weir(SCHEMA) else { return };
    let leader = trio.settle(&ALL);
    let at = ALL[(leader + 1) % 3];
    let since = state(&mut trio.client(at)).expect("an answer");
    let id = fresh(1);
    let options = json!({"id": id, "since": since});
    let wait = json!({"op": "wait", "timeout": 60_000, "table": "T", "columns": ["name"],
        "where": [["name", "==", "sign"]], "until": "==", "rows": [{"name": "sign"}]});
    let waiting: Vec<_> = ALL
        .into_iter()
        .map(|at| {
            let (mut client, options, wait) = (trio.client(at), options.clone(), wait.clone());
            client.set_patience(Duration::from_secs(60)).expect("a socket");
            std::thread::spawn(move || transact(&mut client, &options, &[wait, insert("waited")]))
        })
        .collect();
    eventually("all of them wait", || {
        let waits = |at: usize| {
            let shown = trio.appctl(at, &["memory/show"]);
            String::from_utf8_lossy(&shown.stdout).contains("triggers:1")
        };
        ALL.into_iter().all(waits)
    });
    trio.insert(at, "sign");
    let results: Vec<Value> = waiting
        .into_iter()
        .map(|waiting| waiting.join().expect("a client").expect("a reply")["results"].clone())
        .collect();
    let ran = results.iter().filter(|results| results.is_array()).count();
    assert_eq!(ran, 1, "one of them has run: {results:?}");
    assert_eq!(trio.names(leader), ["sign", "waited"]);
}

/// What a client knows of a row.
struct Fate {
    name: String,
    /// What it was told, by the answer or by `weir_outcome`.
    is_committed: Option<bool>,
}

/// Asks one member after the other until one says what has come of an id.
fn ask(sockets: &[std::path::PathBuf], from: usize, id: &str, since: &str) -> Option<bool> {
    let mut word = None;
    let mut at = from;
    eventually("a member says what has come of it", || {
        at += 1;
        let Ok(mut client) = Client::connect(&sockets[at % sockets.len()]) else { return false };
        client.set_patience(Duration::from_secs(10)).expect("a socket");
        word = outcome(&mut client, id, since).ok();
        word.is_some()
    });
    match word.as_deref() {
        Some("committed") => Some(true),
        Some("not committed") => Some(false),
        _ => None,
    }
}

#[test]
fn whose_answer_is_lost_is_told_the_truth_while_members_are_killed() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    trio.settle(&ALL);
    let sockets: Vec<_> = ALL.into_iter().map(|at| trio.socket(at)).collect();
    let is_over = Arc::new(AtomicBool::new(false));
    let write = |number: usize| {
        let (sockets, is_over) = (sockets.clone(), Arc::clone(&is_over));
        std::thread::spawn(move || {
            let mut fates = vec![];
            for row in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let at = (number + row) % sockets.len();
                let Ok(mut client) = Client::connect(&sockets[at]) else { continue };
                client.set_patience(Duration::from_secs(10)).expect("a socket");
                let Ok(since) = state(&mut client) else { continue };
                let id = fresh((number * 1_000_000 + row) as u64);
                let name = format!("{number}-{row}");
                let options = json!({"id": id, "since": since});
                // Some give up before they could have heard.
                let is_hasty = row % 5 == 0;
                if is_hasty {
                    client.set_patience(Duration::from_micros(300)).expect("a socket");
                }
                let is_committed = match transact(&mut client, &options, &[insert(&name)]) {
                    Ok(done) if done["results"][0]["uuid"].is_array() => Some(true),
                    // The leader that had its results is gone.
                    Ok(done) if done["results"].is_null() => Some(true),
                    Ok(done) => panic!("nobody else has this id: {done}"),
                    Err(_) => ask(&sockets, at, &id, &since),
                };
                if is_hasty && is_committed == Some(false) {
                    // The promise holds for who tries it once more.
                    for socket in &sockets {
                        let Ok(mut client) = Client::connect(socket) else { continue };
                        if let Ok(done) = transact(&mut client, &options, &[insert(&name)]) {
                            assert_eq!(done["results"][0]["error"], "not committed", "{done}");
                        }
                    }
                }
                fates.push(Fate { name, is_committed });
            }
            fates
        })
    };
    let writers: Vec<_> = (0..6).map(write).collect();
    for round in 0..12 {
        sleep(Duration::from_millis(300));
        let leader = trio.settle(&ALL);
        let victim = if round % 3 == 2 { ALL[(leader + 1) % 3] } else { leader };
        trio.kill(victim);
        sleep(Duration::from_millis(300));
        trio.start(victim, Program::Weir);
    }
    trio.settle(&ALL);
    is_over.store(true, Ordering::Relaxed);
    let fates: Vec<Fate> =
        writers.into_iter().flat_map(|writer| writer.join().expect("a writer")).collect();
    let told = |what: Option<bool>| fates.iter().filter(|fate| fate.is_committed == what).count();
    let (committed, not_committed, unknown) = (told(Some(true)), told(Some(false)), told(None));
    eprintln!("committed {committed}, not committed {not_committed}, unknown {unknown}");
    assert!(committed > 100 && not_committed > 0, "there was too little load");
    assert!(unknown * 20 < committed, "{unknown} of {} are not known", fates.len());
    for at in ALL {
        let reply = trio.client(at).request("weir_sync", &json!(["Odd", 60_000])).expect("a reply");
        assert_eq!(reply["result"], json!({}), "{reply}");
        let rows = trio.names(at);
        for Fate { name, is_committed } in &fates {
            let count = rows.iter().filter(|row| *row == name).count();
            match is_committed {
                Some(true) => assert_eq!(count, 1, "{name} was committed"),
                Some(false) => assert_eq!(count, 0, "{name} was not committed"),
                None => assert!(count <= 1, "{name} is there twice"),
            }
        }
    }
    trio.stop_all();
    trio.check_files();
}

/// The next leader knows only that a transaction was committed, and not with which results: the member that was asked says
/// those.
#[test]
fn who_asked_once_has_the_results_whoever_leads_by_then() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    trio.settle(&ALL);
    let is_over = Arc::new(AtomicBool::new(false));
    let writer = |number: u64| {
        let (mut client, is_over) = (trio.client(number as usize % 3), Arc::clone(&is_over));
        std::thread::spawn(move || {
            let since = state(&mut client).expect("an answer");
            let mut written = 0;
            while !is_over.load(Ordering::Relaxed) {
                let options = json!({"id": fresh(number << 32 | written), "since": since});
                let result = transact(&mut client, &options, &[insert("once")]).expect("a reply");
                assert!(result["results"][0]["uuid"].is_array(), "{result}");
                written += 1;
            }
            written
        })
    };
    let writers: Vec<_> = (0..6).map(writer).collect();
    for _ in 0..12 {
        let leader = trio.settle(&ALL);
        trio.appctl(leader, &["cluster/failure-test", "transfer-leadership"]);
        sleep(Duration::from_millis(300));
    }
    is_over.store(true, Ordering::Relaxed);
    let all = writers.into_iter().map(|writer| writer.join().expect("none lacks its results"));
    let written: u64 = all.sum();
    assert!(written > 100, "there was too little load");
    eventually("all are there, once", || trio.names(0).len() as u64 == written);
    trio.stop_all();
}

/// A member gets all that it has missed as a snapshot, in which nothing is different: a transaction was undone by
/// the next one, and an id was said to be of none. As the leader it knows that it does not know of them.
#[test]
fn what_a_snapshot_has_skipped_is_not_committed_again() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    trio.insert(0, "there");
    let leader = trio.settle(&ALL);
    let [away, other] = [1, 2].map(|behind| (leader + behind) % 3);
    let mut client = trio.client(leader);
    let since = state(&mut client).expect("an answer");
    eventually("all have the row", || trio.names(away) == ["there"]);
    trio.stop(away);

    let (undone, denied) = (fresh(1), fresh(2));
    let named = |id: &str| json!({"id": id, "since": since});
    transact(&mut client, &named(&undone), &[insert("undone")]).expect("a reply");
    let delete = json!({"op": "delete", "table": "T", "where": [["name", "==", "undone"]]});
    client.transact("Odd", &[delete]).expect("a reply");
    assert_eq!(outcome(&mut client, &denied, &since).expect("a word"), "not committed");
    for at in [leader, other] {
        assert!(trio.appctl(at, &["ovsdb-server/compact"]).status.success());
    }
    trio.start(away, Program::Weir);
    trio.settle(&ALL);
    assert!(trio.log(away).contains("receiving snapshot"), "{}", trio.log(away));

    trio.stop(other);
    eventually("it leads", || {
        // It may be the one that has just stopped that is to lead.
        let now = trio.leader_among(&[leader, away]);
        if now == Some(leader) {
            trio.appctl(leader, &["cluster/failure-test", "transfer-leadership"]);
        }
        now == Some(away)
    });
    for id in [undone, denied] {
        let again = transact(&mut trio.client(away), &named(&id), &[insert("again")]);
        let error = &again.expect("a reply")["results"][0]["error"];
        assert!(["unknown state", "not committed"].map(Value::from).contains(error), "{error}");
    }
    assert_eq!(trio.names(away), ["there"]);
}

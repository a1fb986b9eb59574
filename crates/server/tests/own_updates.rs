//! A session's own updates come before its own reply, whatever else of its is going on.

use crate::keys::file_of;
use crate::shell::{PATH, SCHEMA, Shell, insert, transact};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use weir_server::Config;
use weir_server::event::{Event, SessionId};
use weir_server::work::{Watcher, Word};

const MONITOR: &str =
    r#"{"id":"m","method":"monitor_cond","params":["Net","mon",{"Port":{"columns":["name"]}}]}"#;
const SELECT: &str = r#"{"op":"select","table":"Port","where":[],"columns":["name"]}"#;

/// Until there is a port `go`; then one more.
const WAIT: &str = r#"{"op":"wait","table":"Port","where":[["name","==","go"]],"columns":["name"],"until":"==","rows":[{"name":"go"}]},{"op":"insert","table":"Port","row":{"name":"fired"}}"#;

/// A step in which nothing long is done.
const SMALL: u64 = 500;
/// What a step may cost as a rule.
const USUAL: u64 = 100_000;

/// A server that does helpers' work only when told to, and a client that watches 300 ports and waits
/// for another.
fn start() -> (Shell, SessionId) {
    let mut shell = Shell::start();
    let client = shell.connect();
    let rows: Vec<String> = (0..300).map(|i| insert(&format!("old{i}"))).collect();
    shell.call(client, &transact(1, &rows.join(",")));
    shell.slow_work = true;
    shell.call(client, MONITOR);
    shell.send(client, &transact(7, WAIT));
    shell.settle();
    assert!(!shell.has_received(client), "it waits");
    (shell, client)
}

/// Somebody else adds the port that is waited for, with steps as they are as a rule.
fn go(shell: &mut Shell) {
    let writer = shell.connect();
    shell.server.set_step_cost_max(USUAL);
    assert!(shell.call(writer, &transact(2, &insert("go"))).contains("uuid"));
}

/// Where a message stands that has this in it.
fn at(messages: &[String], part: &str) -> usize {
    let found = messages.iter().position(|message| message.contains(part));
    found.unwrap_or_else(|| panic!("no {part} in {messages:?}"))
}

/// The reply to the wait comes behind what it did, and the client goes on.
fn check(shell: &mut Shell, client: SessionId, mut received: Vec<String>) {
    received.extend(shell.received(client));
    assert!(at(&received, "fired") < at(&received, r#"{"id":7,"#), "{received:?}");
    shell.slow_work = false;
    assert!(shell.call(client, &transact(8, &insert("next"))).starts_with(r#"{"id":8,"#));
}

#[test]
fn a_wait_that_is_done_during_a_long_read_is_answered_behind_what_it_changed() {
    let (mut shell, client) = start();
    shell.server.set_step_cost_max(SMALL);
    shell.send(client, &transact(3, SELECT));
    shell.settle();
    assert_eq!(shell.sent_out, ["Read"]);
    go(&mut shell);
    // What it asks now comes behind; `echo` does not.
    shell.send(client, &transact(4, &insert("behind")));
    shell.send(client, r#"{"id":5,"method":"echo","params":[]}"#);
    shell.settle();
    let received = shell.received(client);
    assert!(received.len() == 1 && received[0].contains(r#""id":5"#), "{received:?}");
    shell.do_work(0);
    shell.settle();
    let received = shell.received(client);
    assert!(at(&received, r#"{"id":3,"#) < at(&received, r#"{"id":4,"#), "{received:?}");
    assert!(at(&received, r#"{"id":7,"#) < at(&received, r#"{"id":4,"#), "{received:?}");
    check(&mut shell, client, received);
}

#[test]
fn a_wait_that_is_done_while_conditions_change_is_answered_behind_what_it_changed() {
    let (mut shell, client) = start();
    shell.server.set_step_cost_max(SMALL);
    let change = r#"{"id":3,"method":"monitor_cond_change","params":["mon","mon",{"Port":[{"where":[["name","!=","old7"]]}]}]}"#;
    shell.send(client, change);
    shell.settle();
    assert_eq!(shell.sent_out, ["Change"]);
    go(&mut shell);
    assert!(!shell.has_received(client));
    shell.do_work(0);
    shell.settle();
    let received = shell.received(client);
    // What the other conditions change comes first.
    assert_eq!(at(&received, "delete"), 0, "{received:?}");
    check(&mut shell, client, received);
}

/// Another client, which has inserted 150 ports with long names.
fn insert_3_mb(shell: &mut Shell) -> SessionId {
    let writer = shell.connect();
    let name = |i: usize| format!("{i}{}", "x".repeat(20_000));
    for first in [0, 50, 100] {
        let rows: Vec<String> = (first..first + 50).map(|i| insert(&name(i))).collect();
        assert!(shell.call(writer, &transact(1, &rows.join(","))).contains("uuid"));
    }
    writer
}

#[test]
fn a_wait_that_is_done_in_the_middle_of_a_long_reply_is_answered_behind_what_it_changed() {
    let (mut shell, client) = start();
    insert_3_mb(&mut shell);
    shell.received(client);
    shell.slow_work = false;
    shell.stuck.insert(client);
    shell.server.set_step_cost_max(SMALL);
    shell.send(client, &transact(3, SELECT));
    shell.settle();
    go(&mut shell);
    shell.stuck.clear();
    shell.settle();
    let received = shell.received(client);
    assert!(received[0].starts_with(r#"{"id":3,"#) && received[0].len() > 3_000_000);
    check(&mut shell, client, received);
}

#[test]
fn who_does_not_take_a_long_reply_does_not_have_others_kept_for_ever() {
    let (mut shell, client) = start();
    let writer = insert_3_mb(&mut shell);
    // What each of these answers has 3 MB.
    shell.server.set_step_cost_max(u64::MAX);
    for id in 10..40 {
        shell.send(
            client,
            &transact(id, &format!("{WAIT},{SELECT}").replace("fired", &format!("fired{id}"))),
        );
        shell.settle();
    }
    shell.slow_work = false;
    shell.stuck.insert(client);
    shell.server.set_step_cost_max(SMALL);
    shell.send(client, &transact(3, SELECT));
    shell.settle();
    shell.server.set_step_cost_max(u64::MAX);
    assert!(shell.call(writer, &transact(2, &insert("go"))).contains("uuid"));
    assert_eq!(shell.disconnected, [client]);
}

/// Clients that watch the ports, each with other conditions.
fn watchers(shell: &mut Shell, count: u32) -> Vec<SessionId> {
    let clients: Vec<SessionId> = (0..count).map(|_| shell.connect()).collect();
    for (i, client) in clients.iter().enumerate() {
        let columns = format!(r#""columns":["name"],"where":[["name","!=","old{i}"]]"#);
        shell.call(*client, &MONITOR.replace(r#""columns":["name"]"#, &columns));
    }
    clients
}

#[test]
fn what_many_have_changed_is_told_before_their_replies_in_steps() {
    let mut shell = Shell::start();
    let clients = watchers(&mut shell, 40);
    for (i, client) in clients.iter().enumerate() {
        let rows: Vec<String> = (0..5).map(|j| insert(&format!("c{i}-{j}"))).collect();
        shell.send(*client, &transact(1, &rows.join(",")));
    }
    // All that has changed is looked at for each of them.
    shell.server.set_step_cost_max(4_000);
    let (mut told, mut rounds) = (Vec::new(), 0);
    while told.len() < clients.len() {
        assert!(
            shell.server.next_wakeup_us().is_some_and(|at| at <= shell.now.monotonic_us)
                || rounds == 0
        );
        shell.short_round();
        rounds += 1;
        let now = clients.iter().filter(|client| !told.contains(*client));
        let now: Vec<SessionId> =
            now.copied().filter(|client| shell.has_received(*client)).collect();
        assert!(now.len() <= 8 && rounds < 50, "{} in round {rounds}", now.len());
        for client in now {
            let received = shell.received(client);
            let own = format!("c{}-0", clients.iter().position(|other| *other == client).unwrap());
            assert!(at(&received, &own) < at(&received, r#"{"id":1,"#), "{received:?}");
            told.push(client);
        }
    }
    assert!(rounds >= 5 && told == clients, "{rounds} {told:?}");
    assert_eq!(shell.sent_out, Vec::<String>::new(), "nothing of it is long");
}

/// Forty clients that have not been told of a hundred ports, and the time has not come.
fn behind() -> (Shell, Vec<SessionId>) {
    let mut shell = Shell::start();
    let (clients, writer) = (watchers(&mut shell, 40), shell.connect());
    let rows: Vec<String> = (0..100).map(|j| insert(&format!("new{j}"))).collect();
    shell.send(writer, &transact(1, &rows.join(",")));
    shell.short_round();
    assert!(
        shell.has_received(writer) && clients.iter().all(|client| !shell.has_received(*client))
    );
    shell.server.set_step_cost_max(4_000);
    (shell, clients)
}

#[test]
fn what_others_have_changed_is_told_before_replies_as_far_as_a_step_goes() {
    let (mut shell, clients) = behind();
    for client in &clients {
        shell.send(*client, r#"{"id":1,"method":"echo","params":[]}"#);
    }
    shell.short_round();
    let received: Vec<String> =
        clients.iter().map(|client| shell.received(*client).concat()).collect();
    assert!(received.iter().all(|received| received.contains(r#"{"id":1,"#)), "{received:?}");
    let told = received.iter().filter(|received| received.contains("new99")).count();
    assert!((1..=8).contains(&told), "{told}");
    shell.settle();
    for (client, received) in clients.iter().zip(received) {
        let all = received + &shell.received(*client).concat();
        assert_eq!(all.matches(r#""new99""#).count(), 1);
    }
}

/// A reply has its turn when the others have been told what they changed, and a helper reads meanwhile.
#[test]
fn a_long_answer_comes_behind_that_of_a_write_which_waits_for_its_turn() {
    let mut shell = Shell::start();
    insert_3_mb(&mut shell);
    let clients = watchers(&mut shell, 40);
    let reader = clients[39];
    shell.slow_files.insert(PATH.to_owned());
    for (i, client) in clients.iter().enumerate() {
        let rows: Vec<String> = (0..5).map(|j| insert(&format!("c{i}-{j}"))).collect();
        shell.send(*client, &transact(1, &rows.join(",")));
    }
    let long = format!(r#"{{"op":"comment","comment":"{}"}}"#, "z".repeat(1 << 20));
    shell.send(reader, &transact(2, &format!("{SELECT},{long}")));
    shell.short_round();
    shell.server.set_step_cost_max(4_000);
    shell.slow_work = true;
    shell.disk_is_done();
    let mut received = Vec::new();
    for _ in 0..20 {
        shell.short_round();
        shell.do_work(0);
        received.extend(shell.whole_messages(reader));
    }
    (shell.slow_work, shell.slow_files) = (false, BTreeSet::new());
    while !shell.work.is_empty() {
        shell.do_work(0);
    }
    shell.settle();
    received.extend(shell.whole_messages(reader));
    let at = |id: &str| received.iter().position(|message| message.starts_with(id));
    assert!(at(r#"{"id":1,"#).is_some() && at(r#"{"id":1,"#) < at(r#"{"id":2,"#));
}

/// Each client asks for another lock: it is told that the lock is its own when it has been told what others have changed.
#[test]
fn who_has_a_lock_has_been_told_what_others_changed_before() {
    for by_helper in [false, true] {
        let (mut shell, clients) = behind();
        if by_helper {
            shell.slow_work = true;
            shell.server.set_step_cost_max(1);
        }
        for (i, client) in clients.iter().enumerate() {
            shell.send(*client, &format!(r#"{{"id":1,"method":"lock","params":["l{i}"]}}"#));
        }
        shell.short_round();
        let mut told: Vec<_> = clients.iter().map(|client| shell.received(*client)).collect();
        let false_at = |told: &[String]| told.iter().position(|it| it.contains(":false}"));
        assert!(told.iter().any(|told| false_at(told).is_some()), "{told:?}");
        shell.slow_work = false;
        for at in (0..shell.work.len()).rev() {
            shell.do_work(at);
        }
        shell.settle();
        for (client, told) in clients.iter().zip(&mut told) {
            told.extend(shell.received(*client));
            let is_own = if false_at(told).is_some() { r#":"locked""# } else { r#":true}"# };
            assert!(at(told, r#"{"id":1,"#) <= at(told, is_own), "{told:?}");
            assert!(at(told, "new99") < at(told, is_own), "{told:?}");
        }
    }
}

/// Who has asked for the latest state acts on what it watches.
#[test]
fn who_has_the_latest_state_has_been_told_what_others_changed_before() {
    for by_helper in [false, true] {
        let (mut shell, clients) = behind();
        if by_helper {
            shell.slow_work = true;
            shell.server.set_step_cost_max(1);
        }
        for client in &clients {
            shell.send(*client, r#"{"id":1,"method":"weir_sync","params":["Net",1000]}"#);
        }
        shell.short_round();
        let is_answered = |told: &[String]| told.iter().any(|it| it.contains(r#""id":1"#));
        let mut told: Vec<_> = clients.iter().map(|client| shell.received(*client)).collect();
        assert!(told.iter().any(|told| !is_answered(told)), "{told:?}");
        shell.slow_work = false;
        for at in (0..shell.work.len()).rev() {
            shell.do_work(at);
        }
        shell.settle();
        for (client, told) in clients.iter().zip(&mut told) {
            told.extend(shell.received(*client));
            assert!(at(told, "new99") < at(told, r#"{"id":1,"result":{}"#), "{told:?}");
        }
    }
}

#[test]
fn changed_conditions_of_many_come_behind_what_is_told_in_steps() {
    let (mut shell, clients) = behind();
    let change = r#"{"id":1,"method":"monitor_cond_change","params":["mon","mon",{"Port":[{"where":[["name","==","other"]]}]}]}"#;
    clients.iter().for_each(|client| shell.send(*client, change));
    let mut received = vec![String::new(); clients.len()];
    let (mut told, mut rounds) = (0, 0);
    while told < clients.len() {
        shell.short_round();
        rounds += 1;
        for (client, received) in clients.iter().zip(&mut received) {
            received.push_str(&shell.received(*client).concat());
        }
        let before = told;
        told = received.iter().filter(|received| received.contains("new99")).count();
        assert!((1..=8).contains(&(told - before)), "{before} and {told} in round {rounds}");
    }
    assert!(rounds >= 5, "{rounds}");
    shell.settle();
    for (client, received) in clients.iter().zip(received) {
        let all = received + &shell.received(*client).concat();
        let (inserted, deleted) = (all.find(r#""insert""#), all.rfind("delete"));
        assert!(inserted < deleted && deleted < all.find(r#"{"id":1,"#), "{all}");
    }
}

#[test]
fn updates_that_a_helper_composes_rest() {
    let (mut shell, clients) = behind();
    shell.slow_work = true;
    shell.server.set_step_cost_max(1);
    shell.settle();
    assert!(shell.sent_out.iter().all(|what| what == "Updates") && !shell.work.is_empty());
    let asked = Arc::new(AtomicU32::new(0));
    for (id, work) in std::mem::take(&mut shell.work) {
        assert!(work.may_rest());
        let asked = Arc::clone(&asked);
        let watcher = Watcher::new(move || {
            asked.fetch_add(1, Ordering::Relaxed);
            Word::GoOn
        });
        let finished = Box::new(work.run_watched(Some(&watcher)));
        shell.event(Event::WorkDone { id, finished });
    }
    assert!(asked.load(Ordering::Relaxed) > 0);
    shell.settle();
    assert!(clients.iter().all(|client| shell.received(*client).concat().contains("new99")));
}

/// A step in which two clients are told of a hundred changed ports, and not three.
const STEP: u64 = 2_400;

/// Four clients that watch a hundred ports.
fn four(shell: &mut Shell) -> [SessionId; 4] {
    let writer = shell.connect();
    let rows: Vec<String> = (0..100).map(|j| insert(&format!("p{j}"))).collect();
    shell.call(writer, &transact(1, &rows.join(",")));
    [(); 4].map(|()| {
        let client = shell.connect();
        // Nothing is composed for several of them.
        let columns = format!(r#""columns":["tags"],"where":[["name","!=","old{}"]]"#, client.0);
        shell.call(client, &MONITOR.replace(r#""columns":["name"]"#, &columns));
        client
    })
}

/// These change all ports, so that to tell them of it takes more than [`STEP`].
fn write_step(shell: &mut Shell, writers: [SessionId; 3], round: usize) {
    shell.server.set_step_cost_max(u64::MAX);
    for (i, writer) in writers.into_iter().enumerate() {
        let tags = format!(
            r#"{{"op":"update","table":"Port","where":[],"row":{{"tags":"t{round}-{i}"}}}}"#
        );
        shell.send(writer, &transact(1, &tags));
    }
}

/// In each round three clients are told more than a step suffices for. The round in which another one has been
/// told of that, too, and is answered.
fn round_of_answer(shell: &mut Shell, message: &str) -> usize {
    let [asker, writers @ ..] = four(shell);
    let mut received = Vec::new();
    for round in 1..10 {
        write_step(shell, writers, round);
        if round == 1 {
            shell.send(asker, message);
        }
        shell.server.set_step_cost_max(STEP);
        shell.round();
        received.extend(shell.received(asker));
        if let Some(answer) = received.iter().position(|it| it.starts_with(r#"{"id":1,"#)) {
            assert!(received[..answer].iter().any(|it| it.contains("-2")), "{received:?}");
            assert_eq!(shell.sent_out, Vec::<String>::new(), "nothing of it is long");
            return round;
        }
    }
    unreachable!("it waits for ever")
}

#[test]
fn changed_conditions_are_not_put_off_by_what_others_are_told_in_each_round() {
    let change = r#"{"id":1,"method":"monitor_cond_change","params":["mon","mon",{"Port":[{"where":[["name","==","other"]]}]}]}"#;
    assert_eq!(round_of_answer(&mut Shell::start(), change), 2);
}

#[test]
fn a_reply_is_not_put_off_by_what_others_are_told_in_each_round() {
    assert_eq!(round_of_answer(&mut Shell::start(), &transact(1, &insert("mine"))), 2);
}

/// While records are on their way a request waits, and it came behind the transaction whose record is.
#[test]
fn what_is_asked_behind_a_transaction_is_answered_behind_it() {
    let mut shell = Shell::start();
    let [asker, writers @ ..] = four(&mut shell);
    shell.slow_disk = true;
    write_step(&mut shell, writers, 1);
    shell.send(asker, &transact(1, &insert("mine")));
    shell.server.set_step_cost_max(STEP);
    shell.short_round();
    shell.send(asker, r#"{"id":9,"method":"get_schema","params":["Net"]}"#);
    shell.send(asker, r#"{"id":10,"method":"monitor_cancel","params":["mon"]}"#);
    shell.short_round();
    shell.do_disk(0);
    shell.settle();
    let received = shell.received(asker);
    assert!(at(&received, "t1-2") < at(&received, r#"{"id":1,"#), "{received:?}");
    assert!(at(&received, r#"{"id":1,"#) < at(&received, r#"{"id":9,"#), "{received:?}");
    assert!(at(&received, r#"{"id":9,"#) < at(&received, r#"{"id":10,"#), "{received:?}");
}

/// A client whose monitor of all tags is an old one, and which watches all names since, and the databases in between.
fn interleaved() -> (Shell, SessionId) {
    let mut shell = Shell::start();
    let client = shell.connect();
    let rows: Vec<String> = (0..300).map(|i| insert(&format!("old{i}"))).collect();
    shell.call(client, &transact(1, &rows.join(",")));
    let of = |db: &str, id: &str, tables: &str| {
        format!(r#"{{"id":"m","method":"monitor_cond","params":["{db}","{id}",{tables}]}}"#)
    };
    shell.call(client, &of("Net", "tags", r#"{"Port":{"columns":["tags"]}}"#));
    shell.call(client, &of("_Server", "databases", r#"{"Database":{"columns":["name"]}}"#));
    shell.call(client, &of("Net", "names", r#"{"Port":{"columns":["name"]}}"#));
    shell.received(client);
    (shell, client)
}

/// Changes all tags, and the name of a port.
const ALL_TAGS: &str = r#"{"op":"update","table":"Port","where":[],"row":{"tags":"new"}},{"op":"update","table":"Port","where":[["name","==","old7"]],"row":{"name":"renamed"}}"#;

#[test]
fn a_reply_is_behind_all_updates_of_its_database_whichever_others_are_watched() {
    let (mut shell, client) = interleaved();
    shell.server.set_step_cost_max(SMALL);
    shell.send(client, &transact(2, ALL_TAGS));
    shell.settle();
    let received = shell.received(client);
    let answer = at(&received, r#"{"id":2,"#);
    assert!(at(&received, r#""tags""#) < answer, "{received:?}");
    assert!(at(&received, "renamed") < answer, "{received:?}");
}

#[test]
fn changed_conditions_lose_no_updates_whichever_other_databases_are_watched() {
    let (mut shell, client) = interleaved();
    let writer = shell.connect();
    shell.send(writer, &transact(2, ALL_TAGS));
    shell.send(client, r#"{"id":3,"method":"monitor_cond_change","params":["names","names",{"Port":[{"where":[["name","!=","none"]]}]}]}"#);
    shell.server.set_step_cost_max(SMALL);
    shell.short_round();
    shell.settle();
    shell.server.set_step_cost_max(USUAL);
    shell.settle();
    let received = shell.received(client);
    assert!(at(&received, "renamed") < at(&received, r#"{"id":3,"#), "{received:?}");
}

/// What a helper has of a database that a configuration names no more is canceled, behind what was done before.
#[test]
fn what_is_left_when_a_database_goes_is_answered_in_its_order() {
    const CONFIG: &str = "/etc/config.json";
    let with = |databases: &str| format!(r#"{{"remotes":{{}},"databases":{databases}}}"#);
    let all = with(&format!(r#"{{"{PATH}":null}}"#)).into_bytes();
    let config = Config { config_file: Some(CONFIG.to_owned()), ..Config::default() };
    let files = [(CONFIG.to_owned(), all)];
    let mut shell = Shell::start_on_files(file_of(SCHEMA), files.into(), config);
    let client = shell.connect();
    shell.call(client, r#"{"id":0,"method":"set_db_change_aware","params":[true]}"#);
    shell.call(client, MONITOR);
    shell.slow_work = true;
    shell.server.set_step_cost_max(USUAL);
    let rows: Vec<String> = (0..300).map(|i| insert(&format!("{i}"))).collect();
    shell.send(client, &transact(1, &rows.join(",")));
    shell.server.set_step_cost_max(SMALL);
    shell.send(client, &transact(2, SELECT));
    shell.settle();
    assert_eq!(shell.sent_out, ["Updates", "Read"]);
    shell.files.insert(CONFIG.to_owned(), with("{}").into_bytes());
    assert_eq!(shell.command("ovsdb-server/reload", &[]), Some(Ok(String::new())));
    assert!(shell.said.values().any(|word| matches!(word, Word::Stop)), "nobody wants it");
    for work in [1, 0] {
        let received = shell.received(client);
        let is_answered = received.iter().any(|message| !message.contains("\"method\""));
        assert!(!is_answered, "{received:?}");
        shell.do_work(work);
        shell.settle();
    }
    let received = shell.received(client);
    assert!(at(&received, r#"{"id":1,"#) < at(&received, r#"{"id":2,"#), "{received:?}");
    assert!(received[at(&received, r#"{"id":2,"#)].contains("canceled"), "{received:?}");
}

//! What clients may make the server keep for them is bounded, however they go about it: of one, and
//! of all together. Who has little never pays for who has much.

use crate::shell::{Shell, transact};
use serde_json::Value;
use weir_server::Config;
use weir_server::event::{Event, SessionId};

const MIB: usize = 1 << 20;

/// A server that may keep so much for all its clients.
fn start(kept_bytes_max: usize) -> Shell {
    let mut file = Vec::new();
    let schema = weir_data::Schema::parse_bytes(crate::shell::SCHEMA.as_bytes()).unwrap();
    weir_log::standalone::write_schema(&mut file, &schema);
    let config = Config { kept_bytes_max: Some(kept_bytes_max), ..Config::default() };
    Shell::start_with(file, config)
}

fn lock(name: &str) -> String {
    format!(r#"{{"id":1,"method":"lock","params":["{name}"]}}"#)
}

/// A lock that takes about so many bytes.
fn big_lock(i: usize, bytes: usize) -> String {
    lock(&format!("l{i}{}", "x".repeat(bytes / 3)))
}

fn wait(id: usize, name: &str) -> String {
    let wait = format!(
        r#"{{"op":"wait","table":"Port","where":[],"columns":["name"],"until":"==","rows":[{{"name":"{name}"}}]}}"#
    );
    transact(id as u32, &wait)
}

fn monitor(name: &str, clauses: usize) -> String {
    let clauses: Vec<String> = (0..clauses).map(|i| format!(r#"["name","==","p{i}"]"#)).collect();
    let request = format!(r#"{{"Port":[{{"where":[{}]}}]}}"#, clauses.join(","));
    format!(r#"{{"id":1,"method":"monitor_cond","params":["Net","{name}",{request}]}}"#)
}

fn is_refused(reply: &str) -> bool {
    reply.contains(r#""error":{"details":""#) && reply.contains(r#""error":"resources exhausted""#)
}

/// What `weir/status` says that is kept: for all, and for each session.
fn kept(shell: &mut Shell) -> (u64, Vec<u64>) {
    let status = shell.command("weir/status", &[]).expect("a reply").expect("it never fails");
    let status: Value = serde_json::from_str(&status).expect("JSON");
    let sessions = status["sessions"].as_array().expect("sessions").iter();
    let each = sessions.map(|session| session["kept_bytes"].as_u64().expect("a number")).collect();
    (status["process"]["kept_bytes"].as_u64().expect("a number"), each)
}

/// Sends requests until one is refused; how many were not. Others go on, and so does the client.
fn until_refused(request: impl Fn(usize) -> String) -> usize {
    let mut shell = start(usize::MAX);
    let (greedy, other) = (shell.connect(), shell.connect());
    let count = (0..1000).find(|i| is_refused(&shell.call(greedy, &request(*i))));
    assert!(shell.disconnected.is_empty(), "{:?}", shell.log);
    for client in [greedy, other] {
        let reply =
            shell.call(client, &transact(9999, &crate::shell::insert(&format!("{client:?}"))));
        assert!(reply.contains("uuid"), "{reply}");
    }
    count.expect("one is refused")
}

#[test]
fn one_client_is_refused_more_waiting_transactions_than_it_may_have() {
    let padding = "x".repeat(8 * MIB);
    let count = until_refused(|i| wait(i, &padding));
    assert!((28..=32).contains(&count), "{count}");
}

#[test]
fn one_client_is_refused_more_monitors_than_it_may_have() {
    let padding = "x".repeat(8 * MIB);
    let count = until_refused(|i| monitor(&format!("{i}{padding}"), 1));
    assert!((8..=12).contains(&count), "a name is kept three times: {count}");
}

#[test]
fn one_client_is_refused_more_conditions_than_it_may_have() {
    let count = until_refused(|i| monitor(&format!("m{i}"), 60_000 + i));
    assert!((10..=60).contains(&count), "{count}");
}

#[test]
fn one_client_is_refused_more_locks_than_it_may_have() {
    let count = until_refused(|i| big_lock(i, 24 * MIB));
    assert_eq!(count, 10);
}

#[test]
fn who_has_most_makes_room_for_who_has_little() {
    let mut shell = start(10 * MIB);
    let (greedy, modest) = (shell.connect(), shell.connect());
    for i in 0..9 {
        assert!(!is_refused(&shell.call(greedy, &big_lock(i, MIB))));
    }
    assert!(!is_refused(&shell.call(modest, &lock("small"))));
    assert!(is_refused(&shell.call(greedy, &big_lock(10, MIB))), "it has most");
    assert!(shell.disconnected.is_empty());
    // The other one asks for what is not there: it has little, and gets it.
    assert!(shell.call(modest, &big_lock(11, MIB)).contains(r#""locked":true"#));
    assert_eq!(shell.disconnected, [greedy]);
    let line = shell.log.iter().find(|line| line.contains("disconnecting"));
    assert!(line.is_some_and(|line| line.contains("most of them")), "{:?}", shell.log);
    assert!(shell.call(modest, &monitor("m", 1)).contains("result"));
    assert_eq!(shell.disconnected, [greedy]);
}

#[test]
fn conditions_that_turn_out_to_be_too_many_end_their_session() {
    let mut shell = start(10 * MIB);
    let (greedy, other) = (shell.connect(), shell.connect());
    for client in [greedy, other] {
        assert!(shell.call(client, &monitor("m", 10)).contains("result"));
    }
    let change = monitor("m", 150_000).replace("monitor_cond", "monitor_cond_change");
    shell.call(greedy, &change.replace(r#""Net","m""#, r#""m","m""#));
    assert_eq!(shell.disconnected, [greedy]);
    assert!(shell.log.iter().any(|line| line.contains("disconnecting")), "{:?}", shell.log);
    assert!(shell.call(other, &monitor("n", 10)).contains("result"));
}

#[test]
fn what_is_given_back_may_be_taken_again() {
    let mut shell = start(10 * MIB);
    let clients: Vec<SessionId> = (0..2).map(|_| shell.connect()).collect();
    for round in 0..20 {
        // Locks.
        let name = "x".repeat(2 * MIB);
        assert!(!is_refused(&shell.call(clients[0], &lock(&name))), "{round}");
        assert!(is_refused(&shell.call(clients[0], &big_lock(1, 5 * MIB))), "{round}");
        shell.call(clients[0], &lock(&name).replace("\"lock\"", "\"unlock\""));
        // Transactions that wait, and find what they wait for.
        let row = format!("p{round}");
        let comment = format!(r#"{{"op":"comment","comment":"{}"}},"#, "x".repeat(2 * MIB));
        let padded = |i| {
            wait(i, &row).replacen(r#"{"op":"wait""#, &(comment.clone() + r#"{"op":"wait""#), 1)
        };
        let waits: Vec<String> = (0..4).map(padded).collect();
        waits.iter().for_each(|wait| assert_eq!(shell.call(clients[0], wait), ""));
        assert!(is_refused(&shell.call(clients[0], &waits[0].replace("\"id\":0", "\"id\":9"))));
        let delete = r#"{"op":"delete","table":"Port","where":[]}"#;
        let insert = transact(8, &format!("{delete},{}", crate::shell::insert(&row)));
        assert!(shell.call(clients[1], &insert).contains("uuid"));
        assert_eq!(shell.received(clients[0]).len(), 4);
        // Monitors.
        assert!(shell.call(clients[0], &monitor("m", 15_000)).contains("result"), "{round}");
        let change = |clauses| {
            let change = monitor("m", clauses).replace("monitor_cond", "monitor_cond_change");
            change.replace(r#""Net","m""#, r#""m","m""#)
        };
        assert!(!is_refused(&shell.call(clients[0], &change(10))));
        assert!(is_refused(&shell.call(clients[0], &change(300_000))), "{round}");
        let cancel = r#"{"id":1,"method":"monitor_cancel","params":["m"]}"#;
        shell.call(clients[0], cancel);
        // A client that leaves.
        let guest = shell.connect();
        assert!(!is_refused(&shell.call(guest, &big_lock(2, 9 * MIB))));
        shell.event(Event::Closed { session: guest, error: None });
        shell.settle();
        assert_eq!(kept(&mut shell), (0, vec![0, 0]), "{round}");
    }
    assert!(shell.disconnected.is_empty(), "{:?}", shell.log);
}

#[test]
fn equal_monitors_of_many_clients_count_once() {
    let mut shell = start(20 * MIB);
    let clients: Vec<SessionId> = (0..40).map(|_| shell.connect()).collect();
    for client in &clients {
        assert!(shell.call(*client, &monitor("m", 20_000)).contains("result"));
    }
    let (total, each) = kept(&mut shell);
    assert!((MIB as u64..10 * MIB as u64).contains(&total), "{total}");
    assert!(each.iter().all(|bytes| *bytes < total / 20), "{each:?} of {total}");
    assert!(shell.disconnected.is_empty());
    // Those of one who differs from all others are his own.
    let other = shell.connect();
    assert!(shell.call(other, &monitor("m", 20_001)).contains("result"));
    let (more, each) = kept(&mut shell);
    assert_eq!(each.iter().max(), each.last());
    assert!(more > total * 3 / 2, "{more} {total}");
}

#[test]
fn a_queue_of_transactions_keeps_only_the_locks_that_they_assert() {
    let mut shell = start(usize::MAX);
    let (busy, other) = (shell.connect(), shell.connect());
    let name = "l".repeat(100_000);
    assert!(shell.call(busy, &lock(&name)).contains("true"));
    // Its records stay on their way: all that comes behind waits.
    shell.slow_disk = true;
    shell.send(other, &transact(1, &crate::shell::insert("p")));
    shell.round();
    for id in 0..100 {
        shell.send(busy, &transact(id, &crate::shell::insert(&format!("q{id}"))));
    }
    shell.round();
    assert!(shell.stopped.is_empty(), "{:?}", shell.stopped);
    for id in 100..120 {
        shell.send(busy, &transact(id, &format!(r#"{{"op":"assert","lock":"{name}"}}"#)));
    }
    shell.round();
    assert!(shell.stopped.contains(&busy), "20 messages with 100,000 bytes, and as much for locks");
    // It loses the lock: what waits comes behind the thief.
    assert!(shell.call(other, &lock(&name).replace("lock", "steal")).contains("true"));
    shell.send(busy, r#"{"id":null,"method":"cancel","params":[119]}"#);
    shell.slow_disk = false;
    shell.disk_is_done();
    for _ in 0..200 {
        shell.settle();
    }
    let replies = shell.received(busy);
    let refused = |id: u32| {
        let begin = format!(r#"{{"id":{id},"#);
        replies.iter().any(|reply| reply.starts_with(&begin) && reply.contains("not owner"))
    };
    assert!((100..119).all(refused) && !refused(119), "{replies:.500?}");
    assert!(shell.stopped.is_empty());
}

#[test]
fn who_does_not_read_learns_in_the_end_what_has_become_of_his_locks() {
    let mut shell = start(usize::MAX);
    let (owner, thief) = (shell.connect(), shell.connect());
    for name in ["a", "b", "c"] {
        assert!(shell.call(owner, &lock(name)).contains("true"));
    }
    shell.event(Event::Blocked { session: owner });
    for _ in 0..1000 {
        for name in ["a", "b"] {
            shell.call(thief, &lock(name).replace("lock", "steal"));
            shell.call(thief, &lock(name).replace("lock", "unlock"));
        }
    }
    shell.call(thief, &lock("b").replace("lock", "steal"));
    assert_eq!(shell.received(owner), Vec::<String>::new(), "nothing piles up for it");
    shell.event(Event::Drained { session: owner });
    shell.settle();
    let told = |method: &str, lock: &str| {
        format!(r#"{{"id":null,"method":"{method}","params":["{lock}"]}}"#)
    };
    let expected =
        [told("stolen", "a"), told("locked", "a"), told("locked", "b"), told("stolen", "b")];
    assert_eq!(shell.received(owner), expected);
    shell.call(thief, &lock("b").replace("lock", "unlock"));
    assert_eq!(shell.received(owner), [told("locked", "b")]);
}

#[test]
fn who_does_not_read_is_not_answered_before_he_does() {
    let mut shell = start(usize::MAX);
    let (deaf, other) = (shell.connect(), shell.connect());
    shell.slow_disk = true;
    shell.send(deaf, &transact(1, &crate::shell::insert("p")));
    shell.round();
    for id in 2..50 {
        shell.send(deaf, &transact(id, r#"{"op":"select","table":"Port","where":[]}"#));
    }
    shell.event(Event::Blocked { session: deaf });
    shell.slow_disk = false;
    shell.disk_is_done();
    shell.settle();
    let answered = shell.received(deaf).len();
    assert_eq!(answered, 1, "what had been done was told");
    assert!(shell.call(other, &transact(1, &crate::shell::insert("q"))).contains("uuid"));
    shell.event(Event::Drained { session: deaf });
    for _ in 0..50 {
        shell.settle();
    }
    assert_eq!(shell.received(deaf).len(), 48);
}

#[test]
fn where_very_much_waits_nobody_is_read_for_whom_anything_does() {
    let mut shell = start(usize::MAX);
    let writer = shell.connect();
    let clients: Vec<SessionId> = (0..300).map(|_| shell.connect()).collect();
    shell.slow_disk = true;
    shell.send(writer, &transact(1, &crate::shell::insert("p")));
    shell.round();
    let comment = format!(r#"{{"op":"comment","comment":"{}"}}"#, "x".repeat(500_000));
    let mut sent = vec![0; clients.len()];
    for (at, client) in clients.iter().enumerate() {
        for id in 1..=2 {
            if !shell.stopped.contains(client) {
                shell.send(*client, &transact(id, &comment));
                shell.round();
                sent[at] += 1;
            }
        }
    }
    let stopped: Vec<usize> =
        (0..clients.len()).filter(|at| shell.stopped.contains(&clients[*at])).collect();
    assert!(stopped.first().is_some_and(|first| (260..280).contains(first)), "{stopped:?}");
    assert_eq!(stopped.len(), clients.len() - stopped[0], "all who came behind");
    shell.slow_disk = false;
    shell.disk_is_done();
    for _ in 0..4 {
        shell.settle();
    }
    assert!(shell.stopped.is_empty());
    for (client, sent) in clients.iter().zip(sent) {
        assert_eq!(shell.received(*client).len(), sent);
    }
}

#[test]
fn what_was_shared_with_who_must_go_counts_for_who_stays() {
    let mut shell = start(usize::MAX);
    let client = shell.connect();
    shell.call(client, &monitor("m", 60_000));
    let shared = kept(&mut shell).0 as usize;
    assert!(shared > 4 * MIB, "{shared}");
    let max = shared + MIB;
    let mut shell = start(max);
    let equal = [shell.connect(), shell.connect()];
    for client in equal {
        assert!(shell.call(client, &monitor("m", 60_000)).contains("result"));
    }
    assert!(!is_refused(&shell.call(equal[0], &lock("small"))));
    let other = shell.connect();
    for i in 0..2 {
        assert!(!is_refused(&shell.call(other, &big_lock(i, MIB * 3 / 4))), "it has less");
    }
    // The first one that goes had half of what they share, and all of it stays for the second.
    assert_eq!(shell.disconnected, equal);
    let (total, each) = kept(&mut shell);
    assert!(total <= max as u64 && each == [total], "{each:?} of {total}");
}

#[test]
fn what_goes_on_for_nobody_takes_room_from_nobody() {
    let mut shell = start(10 * MIB);
    let asking = shell.connect();
    shell.slow_helper = true;
    let schema = crate::shell::SCHEMA.replace("1.0.0", "2.0.0").replacen(
        '{',
        &format!("{{{}", " ".repeat(900_000)),
        1,
    );
    shell.send(asking, &format!(r#"{{"id":2,"method":"convert","params":["Net",{schema}]}}"#));
    shell.settle();
    assert!(kept(&mut shell).0 > 3 * MIB as u64);
    shell.event(Event::Closed { session: asking, error: None });
    shell.settle();
    assert_eq!(kept(&mut shell), (0, vec![]));
    let client = shell.connect();
    assert!(!is_refused(&shell.call(client, &big_lock(1, 9 * MIB))));
    assert!(shell.disconnected.is_empty());
}

#[test]
fn results_that_nobody_takes_count_for_who_asked_for_them() {
    let mut shell = start(8 * MIB);
    let [reader, greedy, modest] = [shell.connect(), shell.connect(), shell.connect()];
    for id in 0..5 {
        let insert = crate::shell::insert(&format!("{id}{}", "p".repeat(400_000)));
        assert!(shell.call(modest, &transact(id, &insert)).contains(r#""error":null"#));
    }
    let select = r#"{"op":"select","table":"Port","where":[]}"#;
    let ask = |id: u32, times: usize| transact(id, &vec![select; times].join(","));

    // Readers are for helpers from here on.
    shell.server.set_step_cost_max(0);
    shell.stuck.extend([reader, greedy]);
    shell.send(reader, &ask(1, 1));
    shell.settle();
    let (all, each) = kept(&mut shell);
    assert!(all as usize > MIB && all == each[0], "{all} {each:?}");

    // It takes the rest, and nothing is kept for it any more.
    shell.stuck.remove(&reader);
    shell.tell_drained();
    shell.settle();
    assert_eq!(shell.whole_messages(reader).len(), 1);
    assert_eq!(kept(&mut shell), (0, vec![0, 0, 0]));

    // Of a reply of many results the first ones are text, and the others are rows.
    shell.send(greedy, &ask(1, 30));
    shell.settle();
    let (all, each) = kept(&mut shell);
    assert!((all as usize) < 16 * MIB && all == each[1], "{all} {each:?}");
    assert_eq!(shell.disconnected, [greedy]);
    assert!(!shell.disconnected.contains(&modest));
}

//! What a busy server does together: transactions of a round in one append, updates in one message.

use crate::shell::{Shell, insert, transact};
use weir_server::event::{Event, SessionId};

const MONITOR: &str = r#"{"id":"m","method":"monitor_cond","params":["Net","mon",{"Port":{"columns":["name","tags"]}}]}"#;

/// Inserts a port in a transaction and round of its own.
fn insert_port(shell: &mut Shell, writer: SessionId, n: u32) {
    shell.send(writer, &transact(n, &insert(&format!("p{n}"))));
    shell.round();
}

#[test]
fn transactions_of_a_round_share_one_append() {
    let mut shell = Shell::start();
    let clients: Vec<_> = (0..10).map(|_| shell.connect()).collect();
    let before = shell.appends;
    for (i, client) in clients.iter().enumerate() {
        shell.send(*client, &transact(1, &insert(&format!("p{i}"))));
    }
    shell.round();
    assert_eq!(shell.appends - before, 1);
    assert_eq!(shell.syncs, 0);
    assert!(clients.iter().all(|client| shell.received(*client).len() == 1));
}

#[test]
fn updates_to_others_merge_while_there_is_more_to_do() {
    let mut shell = Shell::start();
    let (writer, watcher) = (shell.connect(), shell.connect());
    shell.call(watcher, MONITOR);
    for i in 0..5 {
        insert_port(&mut shell, writer, i);
    }
    assert_eq!(shell.received(watcher).len(), 0);
    shell.settle();
    let updates = shell.received(watcher);
    assert_eq!(updates.len(), 1);
    assert_eq!(updates[0].matches("insert").count(), 5);
    // A busy server sends them all the same when they have waited long enough.
    insert_port(&mut shell, writer, 9);
    shell.advance_ms(1);
    shell.round();
    assert_eq!(shell.received(watcher).len(), 1);
}

/// What a lone update costs to many does not matter; what a stream of them costs does.
#[test]
fn a_lone_update_goes_at_once_and_those_of_a_stream_to_many_together() {
    let mut shell = Shell::start();
    let writer = shell.connect();
    let watchers: Vec<_> = (0..5).map(|_| shell.connect()).collect();
    watchers.iter().for_each(|watcher| drop(shell.call(*watcher, MONITOR)));
    insert_port(&mut shell, writer, 0);
    assert!(shell.server.has_pending_updates());
    shell.settle();
    assert!(watchers.iter().all(|watcher| shell.received(*watcher).len() == 1));
    for i in 1..5 {
        insert_port(&mut shell, writer, i);
        assert!(!shell.server.has_pending_updates());
    }
    assert_eq!(shell.server.next_wakeup_us(), Some(shell.now.monotonic_us + 500));
    shell.now.monotonic_us += 500;
    shell.round();
    for watcher in watchers {
        let updates = shell.received(watcher);
        assert_eq!(updates.len(), 1);
        assert_eq!(updates[0].matches("insert").count(), 4);
    }
}

#[test]
fn few_hear_of_each_change_of_a_stream_at_the_next_idle_moment() {
    let mut shell = Shell::start();
    let (writer, watcher) = (shell.connect(), shell.connect());
    shell.call(watcher, MONITOR);
    for i in 0..5 {
        insert_port(&mut shell, writer, i);
        assert!(shell.server.has_pending_updates());
        shell.settle();
        assert_eq!(shell.received(watcher).len(), 1);
    }
}

/// What is kept for one who does not read is no news to the others.
#[test]
fn who_is_far_behind_does_not_keep_updates_to_others_from_merging() {
    let mut shell = Shell::start();
    let (writer, behind) = (shell.connect(), shell.connect());
    let watchers: Vec<_> = (0..20).map(|_| shell.connect()).collect();
    let all = watchers.iter().chain([&behind]);
    all.for_each(|watcher| drop(shell.call(*watcher, MONITOR)));
    shell.event(Event::Blocked { session: behind });
    let many = |name: &str| -> String {
        let rows: Vec<String> = (0..3000).map(|i| insert(&format!("{name}{i}"))).collect();
        rows.join(",")
    };
    shell.send(writer, &transact(0, &many("old")));
    shell.settle();
    assert!(watchers.iter().all(|watcher| shell.received(*watcher).len() == 1));
    for i in 1..5 {
        shell.now.monotonic_us += 100;
        insert_port(&mut shell, writer, i);
    }
    assert!(watchers.iter().all(|watcher| !shell.has_received(*watcher)));
    shell.now.monotonic_us += 500;
    shell.round();
    assert!(watchers.iter().all(|watcher| shell.received(*watcher).len() == 1));
    // Much news goes at once all the same.
    shell.send(writer, &transact(9, &many("new")));
    shell.round();
    assert!(watchers.iter().all(|watcher| shell.received(*watcher).len() == 1));
}

/// There is always a transaction that has waited for the last append, and is in the next one.
#[test]
fn who_waits_for_all_to_be_decided_has_a_turn_between_two_appends() {
    let mut shell = Shell::start();
    let writers = [shell.connect(), shell.connect()];
    shell.slow_disk = true;
    insert_port(&mut shell, writers[0], 0);
    let wait = r#"{"op":"wait","timeout":0,"table":"Port","where":[["name","==","none"]],"columns":["name"],"until":"==","rows":[{"name":"none"}]}"#;
    let requests = [
        (1, r#"{"id":1,"method":"get_schema","params":["Net"]}"#.to_owned()),
        (1, MONITOR.to_owned()),
        (2, transact(1, wait)),
    ];
    let asked: Vec<_> =
        requests.iter().map(|(appends, request)| (*appends, shell.connect(), request)).collect();
    asked.iter().for_each(|(_, session, request)| shell.send(*session, request));
    for n in 1..=4 {
        let writer = writers[n as usize % 2];
        shell.received(writer);
        insert_port(&mut shell, writer, n);
        assert!(!shell.has_received(writer), "an append is under way");
        shell.disk_is_done();
        shell.round();
        for (appends, session, request) in &asked {
            assert!(n < *appends || shell.has_received(*session), "{request}: {n} appends");
        }
    }
}

//! Each database commits on its own: while one is being written, nobody else waits for it.

use crate::shell::{PATH, SCHEMA, Shell, insert, ports, transact};
use serde_json::{Value, json};
use weir_server::Config;
use weir_server::event::{Event, SessionId};

const OTHER_PATH: &str = "/db/other.db";

/// Databases `Net`, whose disk is slow, and `Other`, whose disk is not; clients of their own.
fn start() -> (Shell, SessionId, SessionId) {
    let file = |schema: &str| {
        let mut file = Vec::new();
        let schema = weir_data::Schema::parse_bytes(schema.as_bytes()).unwrap();
        weir_log::standalone::write_schema(&mut file, &schema);
        file
    };
    let other = (OTHER_PATH.to_owned(), file(&SCHEMA.replace("\"Net\"", "\"Other\"")));
    let mut shell = Shell::start_on_files(file(SCHEMA), [other].into(), Config::default());
    assert_eq!(shell.command("ovsdb-server/add-db", &[OTHER_PATH]), Some(Ok(String::new())));
    let (one, two) = (shell.connect(), shell.connect());
    shell.slow_files.insert(PATH.to_owned());
    (shell, one, two)
}

/// The disk has done what it was asked for, and goes on being slow.
fn disk_is_done(shell: &mut Shell) {
    shell.disk_is_done();
    shell.settle();
}

fn on_other(id: u32, operations: &str) -> String {
    transact(id, operations).replace("\"Net\"", "\"Other\"")
}

/// The ids of the replies that a session has received, and the methods of what was no reply.
pub(crate) fn received(shell: &mut Shell, session: SessionId) -> Vec<Value> {
    let messages = shell.received(session);
    let messages = messages.iter().map(|message| serde_json::from_str(message).unwrap());
    let name = |message: Value| match &message["method"] {
        Value::Null => message["id"].clone(),
        method => method.clone(),
    };
    messages.map(name).collect()
}

/// Sends messages, each in a round of its own.
pub(crate) fn send(shell: &mut Shell, session: SessionId, messages: &[String]) {
    for message in messages {
        shell.send(session, message);
        shell.settle();
    }
}

fn request(id: u32, method: &str, params: Value) -> String {
    json!({"id": id, "method": method, "params": params}).to_string()
}

fn select() -> &'static str {
    r#"{"op":"select","table":"Port","where":[],"columns":["name"]}"#
}

#[test]
fn a_database_that_is_being_written_holds_up_nobody_else() {
    let (mut shell, one, two) = start();
    send(&mut shell, one, &[transact(1, &insert("a"))]);
    assert_eq!(received(&mut shell, one), Vec::<Value>::new());
    for session in [two, one] {
        let messages = [
            on_other(2, &insert(&format!("{session:?}"))),
            request(3, "echo", json!(["x"])),
            request(4, "list_dbs", json!([])),
            request(5, "lock", json!([format!("l{}", session.0)])),
            request(6, "get_schema", json!(["Other"])),
            request(7, "monitor", json!(["Other", 7, {"Port": {}}])),
            request(8, "unlock", json!([format!("l{}", session.0)])),
        ];
        send(&mut shell, session, &messages);
        assert_eq!(received(&mut shell, session), [2, 3, 4, 5, 6, 7, 8], "{session:?}");
    }
    disk_is_done(&mut shell);
    assert_eq!(received(&mut shell, one), [1]);
}

#[test]
fn what_a_session_asks_of_one_database_keeps_its_order() {
    let (mut shell, one, two) = start();
    let messages = [
        transact(1, &insert("a")),
        transact(2, select()),
        request(3, "monitor", json!(["Net", 3, {"Port": {}}])),
        request(4, "get_schema", json!(["Net"])),
        transact(5, &insert("b")),
        on_other(6, select()),
    ];
    send(&mut shell, one, &messages);
    send(&mut shell, two, &[transact(7, select())]);
    assert_eq!(received(&mut shell, one), [6], "only what is about another database");
    assert_eq!(received(&mut shell, two), Vec::<Value>::new());
    disk_is_done(&mut shell);
    assert_eq!(received(&mut shell, one), [1, 2, 3, 4], "the last one is being written");
    assert_eq!(received(&mut shell, two), [7]);
    disk_is_done(&mut shell);
    assert_eq!(received(&mut shell, one), [json!("update"), json!(5)]);
}

#[test]
fn nothing_is_told_of_what_is_being_written() {
    let (mut shell, one, two) = start();
    for name in ["Net", "Other"] {
        let monitor = request(1, "monitor", json!([name, name, {"Port": {}}]));
        send(&mut shell, two, &[monitor]);
    }
    received(&mut shell, two);
    send(&mut shell, one, &[transact(1, &insert("a"))]);
    send(&mut shell, two, &[on_other(2, &insert("b")), request(3, "echo", json!([]))]);
    assert_eq!(received(&mut shell, two), [json!("update"), json!(2), json!(3)]);
    disk_is_done(&mut shell);
    assert_eq!(received(&mut shell, two), [json!("update")]);
    assert_eq!(received(&mut shell, one), [1]);
}

#[test]
fn what_fails_late_is_undone_and_those_behind_go_on() {
    let (mut shell, one, two) = start();
    send(&mut shell, one, &[transact(1, &insert("a")), transact(2, select())]);
    send(&mut shell, two, &[transact(3, select())]);
    shell.disk_error = Some("No space left on device");
    disk_is_done(&mut shell);
    let replies = shell.received(one);
    assert_eq!(replies.len(), 2, "{replies:?}");
    assert!(replies[0].contains("I/O error"), "{replies:?}");
    for reply in [&replies[1], &shell.received(two)[0]] {
        assert!(reply.contains(r#""rows":[]"#), "{reply}");
    }
}

#[test]
fn what_fails_late_and_becomes_long_is_still_answered_before_what_is_behind_it() {
    let (mut shell, one, _) = start();
    send(&mut shell, one, &[transact(1, &insert("a"))]);
    send(&mut shell, one, &[request(2, "get_schema", json!(["Net"])), transact(3, select())]);
    shell.disk_error = Some("No space left on device");
    // It runs again, now with a helper.
    shell.server.set_step_cost_max(0);
    disk_is_done(&mut shell);
    assert_eq!(received(&mut shell, one), [1, 2, 3]);
}

#[test]
fn requests_keep_their_order_though_their_database_comes_after_them() {
    const THIRD: &str = "/db/third.db";
    let (mut shell, one, two) = start();
    shell.slow_files = [THIRD.to_owned()].into();
    let aware = request(0, "set_db_change_aware", json!([true]));
    for session in [one, two] {
        send(&mut shell, session, std::slice::from_ref(&aware));
        received(&mut shell, session);
    }
    let on_third = |id, operations: &str| transact(id, operations).replace("Net", "Third");
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    shell.slow_helper = true;
    let messages = [
        request(1, "convert", json!(["Net", schema])),
        on_third(2, &insert("b")),
        on_third(3, select()),
    ];
    send(&mut shell, one, &messages);
    let mut third = Vec::new();
    let schema = SCHEMA.replace("\"Net\"", "\"Third\"");
    let schema = weir_data::Schema::parse_bytes(schema.as_bytes()).unwrap();
    weir_log::standalone::write_schema(&mut third, &schema);
    shell.files.insert(THIRD.to_owned(), third);
    assert_eq!(shell.command("ovsdb-server/add-db", &[THIRD]), Some(Ok(String::new())));
    send(&mut shell, two, &[on_third(4, &insert("a"))]);
    shell.slow_helper = false;
    shell.helper_is_done();
    shell.settle();
    assert_eq!(received(&mut shell, one), [1]);
    for _ in 0..3 {
        disk_is_done(&mut shell);
    }
    assert_eq!(received(&mut shell, one), [2, 3]);
}

#[test]
fn a_big_transaction_stays_behind_one_that_runs_again() {
    let (mut shell, one, _) = start();
    send(&mut shell, one, &[transact(1, &insert("a"))]);
    let big =
        transact(2, &insert("b")).replace("[\"Net\"", &format!("[{}\"Net\"", " ".repeat(1 << 20)));
    send(&mut shell, one, &[big]);
    assert_eq!(shell.sent_out, ["Examine"]);
    shell.disk_error = Some("No space left on device");
    // The first one runs again, now with a helper.
    shell.server.set_step_cost_max(0);
    for _ in 0..4 {
        disk_is_done(&mut shell);
    }
    assert_eq!(received(&mut shell, one), [1, 2]);
}

#[test]
fn a_session_may_leave_while_its_requests_wait() {
    let (mut shell, one, two) = start();
    send(&mut shell, one, &[transact(1, &insert("a"))]);
    let messages = [transact(2, &insert("b")), request(3, "monitor", json!(["Net", 3, {}]))];
    send(&mut shell, two, &messages);
    shell.event(Event::Closed { session: two, error: None });
    shell.settle();
    disk_is_done(&mut shell);
    assert_eq!(received(&mut shell, one), [1]);
    shell.slow_files.clear();
    assert_eq!(ports(&mut shell), ["a"], "nobody waited for b");
}

#[test]
fn a_transaction_that_waits_for_its_database_can_be_canceled() {
    let (mut shell, one, two) = start();
    send(&mut shell, two, &[request(1, "set_db_change_aware", json!([true]))]);
    send(&mut shell, one, &[transact(1, &insert("a"))]);
    send(&mut shell, two, &[transact(2, &insert("b")), transact(3, select())]);
    let cancel = json!({"id": null, "method": "cancel", "params": [2]}).to_string();
    received(&mut shell, two);
    send(&mut shell, two, &[cancel]);
    let canceled = shell.received(two);
    assert_eq!(canceled.len(), 1);
    assert!(canceled[0].contains("canceled"), "{canceled:?}");
    disk_is_done(&mut shell);
    let replies = shell.received(two);
    assert_eq!(replies.len(), 1);
    assert!(replies[0].contains(r#"{"name":"a"}"#) && !replies[0].contains(r#""b""#));
}

#[test]
fn a_command_waits_only_for_the_database_that_it_is_about() {
    let (mut shell, one, _) = start();
    send(&mut shell, one, &[transact(1, &insert("a"))]);
    let names = "Net\nOther\n_Server\n".to_owned();
    assert_eq!(shell.command("ovsdb-server/list-dbs", &[]), Some(Ok(names)));
    assert_eq!(shell.command("ovsdb-server/compact", &["Other"]), Some(Ok(String::new())));
    assert_eq!(shell.command("ovsdb-server/remove-db", &["Net"]), None);
    assert!(shell.command("memory/show", &[]).is_some());
    disk_is_done(&mut shell);
    assert_eq!(received(&mut shell, one), [1]);
    let removed = shell.log.iter().any(|line| line.contains("removing Net database"));
    assert!(removed || shell.disconnected.contains(&one), "{:?}", shell.log);
}

#[test]
fn who_has_all_databases_compacted_is_told_what_went_wrong_with_any_of_them() {
    let (mut shell, _, _) = start();
    shell.slow_helper = true;
    for removed in [None, Some("Net")] {
        assert_eq!(shell.command("ovsdb-server/compact", &[]), None);
        shell.replies.clear();
        if let Some(name) = removed {
            shell.command("ovsdb-server/remove-db", &[name]);
            assert!(shell.replies.values().all(Result::is_ok), "the other one is compacted yet");
        }
        for _ in 0..2 {
            shell.helper_is_done();
            shell.settle();
        }
        let is_told = shell.replies.values().any(|reply| match reply {
            Ok(_) => false,
            Err(error) => error == "no database by that name",
        });
        assert_eq!((is_told, shell.replies.len()), (removed.is_some(), 1 + usize::from(is_told)));
    }
}

#[test]
fn who_waits_for_the_compaction_of_a_removed_database_is_told() {
    let (mut shell, _, _) = start();
    shell.slow_helper = true;
    assert_eq!(shell.command("ovsdb-server/compact", &["Other"]), None);
    let removed = shell.command("ovsdb-server/remove-db", &["Other"]);
    assert_eq!(removed, Some(Ok(String::new())));
    let told = shell
        .replies
        .values()
        .any(|reply| reply.as_ref().is_err_and(|error| error == "no database by that name"));
    assert!(told, "{:?}", shell.replies);
    shell.helper_is_done();
    shell.settle();
}

#[test]
fn what_waits_while_its_lock_is_stolen_is_refused() {
    let (mut shell, one, two) = start();
    send(&mut shell, two, &[request(1, "lock", json!(["l"]))]);
    send(&mut shell, one, &[transact(1, &insert("a"))]);
    received(&mut shell, two);
    let guarded = |name: &str| format!(r#"{{"op":"assert","lock":"l"}},{}"#, insert(name));
    send(&mut shell, two, &[transact(2, &guarded("b")), transact(3, &guarded("c"))]);
    // The thief's first transaction has its turn before the last one of who is robbed.
    send(&mut shell, one, &[request(4, "steal", json!(["l"])), transact(5, &guarded("d"))]);
    // One write after the other.
    (0..5).for_each(|_| disk_is_done(&mut shell));
    let told = shell.received(two);
    let refused = told.iter().filter(|reply| reply.contains("not owner")).count();
    assert_eq!(refused, 2, "{told:?}");
    // Who gives a lock up that nobody waits for is not robbed.
    send(&mut shell, two, &[request(6, "unlock", json!(["l"])), transact(7, &insert("e"))]);
    let messages = [transact(8, &guarded("f")), request(9, "unlock", json!(["l"]))];
    send(&mut shell, one, &messages);
    (0..5).for_each(|_| disk_is_done(&mut shell));
    assert_eq!(ports(&mut shell), ["a", "d", "e", "f"]);
}

#[test]
fn a_transaction_asserts_the_locks_of_when_it_came() {
    let (mut shell, one, two) = start();
    send(&mut shell, two, &[request(1, "lock", json!(["mine"]))]);
    send(&mut shell, one, &[transact(1, &insert("a"))]);
    let assert = |lock: &str| format!(r#"{{"op":"assert","lock":"{lock}"}}"#);
    let messages = [
        transact(2, &assert("mine")),
        request(3, "unlock", json!(["mine"])),
        transact(4, &assert("late")),
        request(5, "lock", json!(["late"])),
        transact(6, &assert("late")),
    ];
    received(&mut shell, two);
    send(&mut shell, two, &messages);
    let none = Vec::<Value>::new();
    assert_eq!(received(&mut shell, two), none, "the lock goes behind what is asked for under it");
    disk_is_done(&mut shell);
    let replies = shell.received(two);
    let owned: Vec<bool> = replies.iter().map(|reply| !reply.contains("not owner")).collect();
    assert_eq!(owned, [true, true, false, true, true], "{replies:?}");
}

/// Clients compute what they write under a lock from what they have been told.
#[test]
fn who_is_told_that_a_lock_is_his_has_been_told_what_its_last_owner_wrote() {
    for (waits, leaves) in [(true, false), (true, true), (false, false), (false, true)] {
        let (mut shell, one, two) = start();
        let monitor = json!(["Net", 7, {"Port": {}}]);
        send(&mut shell, two, &[request(1, "monitor", monitor)]);
        send(&mut shell, one, &[request(1, "lock", json!(["l"]))]);
        let ask = |shell: &mut Shell| send(shell, two, &[request(2, "lock", json!(["l"]))]);
        if waits {
            ask(&mut shell);
        }
        let guarded = format!(r#"{{"op":"assert","lock":"l"}},{}"#, insert("b"));
        send(&mut shell, one, &[transact(2, &guarded), request(3, "unlock", json!(["l"]))]);
        if leaves {
            shell.event(Event::Closed { session: one, error: None });
            shell.settle();
        }
        if !waits {
            ask(&mut shell);
        }
        assert_eq!(received(&mut shell, two), [1, 2], "it is being written");
        disk_is_done(&mut shell);
        let told = received(&mut shell, two);
        assert_eq!(told, ["update", "locked"], "waits {waits}, leaves {leaves}");
    }
}

/// A write that is not decided may have to run again, and somebody else would have its lock by then.
#[test]
fn a_lock_is_given_up_behind_what_is_being_written_under_it() {
    let (mut shell, one, two) = start();
    send(&mut shell, one, &[request(1, "lock", json!(["l"]))]);
    send(&mut shell, two, &[request(1, "lock", json!(["l"]))]);
    received(&mut shell, one);
    let guarded = format!(r#"{{"op":"assert","lock":"l"}},{}"#, insert("a"));
    let messages = [
        transact(2, &guarded),
        request(3, "unlock", json!(["l"])),
        request(4, "lock", json!(["l"])),
        request(5, "echo", json!([])),
    ];
    send(&mut shell, one, &messages);
    assert_eq!(received(&mut shell, one), [5], "only that does not wait");
    assert_eq!(received(&mut shell, two), [1]);
    disk_is_done(&mut shell);
    assert_eq!(received(&mut shell, one), [2, 3, 4]);
    assert_eq!(received(&mut shell, two), ["locked"]);
    // The same where the client's messages have waited.
    send(&mut shell, two, &[transact(2, &guarded.replace("\"a\"", "\"b\""))]);
    shell.send(two, &transact(3, &guarded.replace("\"a\"", "\"c\"")));
    shell.send(two, &request(4, "unlock", json!(["l"])));
    shell.settle();
    disk_is_done(&mut shell);
    assert_eq!(received(&mut shell, two), [2], "the next one is being written");
    disk_is_done(&mut shell);
    assert_eq!(received(&mut shell, two), [3, 4]);
}

/// The monitor that has the name ends when its database is decided.
#[test]
fn a_monitor_may_have_the_name_of_one_of_another_database_that_is_canceled_before() {
    let (mut shell, one, _) = start();
    let monitor = |id, database| request(id, "monitor", json!([database, "m", {"Port": {}}]));
    send(&mut shell, one, &[monitor(1, "Net")]);
    received(&mut shell, one);
    let cancel = request(3, "monitor_cancel", json!(["m"]));
    send(&mut shell, one, &[transact(2, &insert("a")), cancel, monitor(4, "Other")]);
    assert_eq!(received(&mut shell, one), Vec::<Value>::new());
    disk_is_done(&mut shell);
    let told = shell.received(one);
    assert!(told.iter().all(|told| !told.contains("duplicate")), "{told:?}");
    assert!(told.last().is_some_and(|last| last.contains(r#""id":4"#)), "{told:?}");
}

/// Whether a lock is its client's is not known yet when `unlock` comes, if the `lock` before it waits for another `unlock`.
#[test]
fn a_lock_is_given_up_behind_what_is_under_it_though_it_was_asked_for_behind_another() {
    let (mut shell, one, two) = start();
    shell.slow_work = true;
    let guarded = |lock: &str| format!(r#"{{"op":"assert","lock":"{lock}"}},{}"#, insert(lock));
    let messages = [
        request(1, "lock", json!(["m"])),
        transact(2, &guarded("m")),
        request(3, "unlock", json!(["m"])),
        request(4, "lock", json!(["l"])),
        transact(5, &guarded("l")),
        request(6, "unlock", json!(["l"])),
    ];
    send(&mut shell, one, &messages);
    shell.server.set_step_cost_max(0);
    disk_is_done(&mut shell);
    send(&mut shell, two, &[request(1, "lock", json!(["l"]))]);
    assert_eq!(received(&mut shell, one), [1, 2, 3, 4], "a helper writes");
    assert_eq!(received(&mut shell, two), [1]);
    shell.slow_work = false;
    shell.do_work(0);
    shell.settle();
    disk_is_done(&mut shell);
    assert_eq!(received(&mut shell, one), [5, 6]);
    assert_eq!(received(&mut shell, two), ["locked"]);
    assert_eq!(ports(&mut shell), ["l", "m"]);
}

/// What he asks for behind `unlock` of another lock he has computed from what was there before.
#[test]
fn what_waits_behind_another_lock_is_not_under_one_that_was_lost_and_has_come_back() {
    for is_stolen in [true, false] {
        let (mut shell, one, two) = start();
        let guarded = |lock: &str| format!(r#"{{"op":"assert","lock":"{lock}"}},{}"#, insert(lock));
        let messages = [
            request(1, "lock", json!(["m"])),
            request(2, "lock", json!(["k"])),
            transact(3, &guarded("m")),
            request(4, "unlock", json!(["m"])),
            on_other(5, &guarded("k")),
        ];
        send(&mut shell, one, &messages);
        assert_eq!(received(&mut shell, one), [1, 2]);
        if is_stolen {
            let messages = [request(1, "steal", json!(["k"])), request(2, "unlock", json!(["k"]))];
            send(&mut shell, two, &messages);
            assert_eq!(received(&mut shell, one), ["stolen", "locked"]);
        }
        disk_is_done(&mut shell);
        let told = shell.received(one);
        assert_eq!(told.len(), 3, "{told:?}");
        assert_eq!(told[2].contains("not owner"), is_stolen, "{told:?}");
    }
}

/// `unlock` waits for its turn, and so do the locks of what comes behind it.
#[test]
fn what_is_asked_for_behind_unlock_is_not_under_the_lock() {
    for name in ["b".to_owned(), "b".repeat(1 << 20)] {
        let (mut shell, one, _) = start();
        let guarded = |name: &str| format!(r#"{{"op":"assert","lock":"l"}},{}"#, insert(name));
        let messages = [
            request(1, "lock", json!(["l"])),
            transact(2, &guarded("a")),
            request(3, "unlock", json!(["l"])),
            transact(4, &guarded(&name)),
        ];
        send(&mut shell, one, &messages);
        (0..2).for_each(|_| disk_is_done(&mut shell));
        let told = shell.received(one);
        assert!(told.len() == 4 && told[3].contains("not owner"), "{told:?}");
        assert_eq!(ports(&mut shell), ["a"]);
    }
}

#[test]
fn a_lock_is_given_up_behind_what_is_being_written_under_it_in_each_database() {
    for first in [0, 1] {
        let (mut shell, one, two) = start();
        shell.slow_files.insert(OTHER_PATH.to_owned());
        send(&mut shell, one, &[request(1, "lock", json!(["l"]))]);
        send(&mut shell, two, &[request(1, "lock", json!(["l"]))]);
        let guarded = format!(r#"{{"op":"assert","lock":"l"}},{}"#, insert("a"));
        let messages =
            [transact(2, &guarded), on_other(3, &guarded), request(4, "unlock", json!(["l"]))];
        send(&mut shell, one, &messages);
        received(&mut shell, two);
        shell.do_disk(first);
        shell.settle();
        let told = received(&mut shell, one);
        assert!(!told.contains(&json!(4)), "one is being written: {told:?}");
        assert_eq!(received(&mut shell, two), Vec::<Value>::new());
        disk_is_done(&mut shell);
        assert!(received(&mut shell, one).contains(&json!(4)));
        assert_eq!(received(&mut shell, two), ["locked"]);
    }
}

/// What he asks for before that he has computed from what was there before.
#[test]
fn who_has_lost_a_lock_asserts_it_when_he_has_been_told_that_it_is_his_again() {
    let (mut shell, one, two) = start();
    send(&mut shell, two, &[request(1, "lock", json!(["l"]))]);
    send(&mut shell, two, &[request(2, "monitor", json!(["Net", 7, {"Port": {}}]))]);
    let guarded = |name: &str| format!(r#"{{"op":"assert","lock":"l"}},{}"#, insert(name));
    let messages = [
        request(1, "steal", json!(["l"])),
        transact(2, &guarded("b")),
        request(3, "unlock", json!(["l"])),
    ];
    send(&mut shell, one, &messages);
    assert_eq!(received(&mut shell, two), [json!(1), json!(2), json!("stolen")]);
    send(&mut shell, two, &[transact(3, &guarded("c"))]);
    (0..3).for_each(|_| disk_is_done(&mut shell));
    let told = shell.received(two);
    assert_eq!(told.iter().filter(|told| told.contains("not owner")).count(), 1, "{told:?}");
    assert!(told.iter().any(|told| told.contains(r#""locked""#)), "{told:?}");
    send(&mut shell, two, &[transact(4, &guarded("d"))]);
    (0..3).for_each(|_| disk_is_done(&mut shell));
    assert_eq!(ports(&mut shell), ["b", "d"]);
}

/// Somebody else's write is on its way to the file whenever there is something to tell.
#[test]
fn who_gets_a_lock_has_been_told_what_was_written_under_it_beside_writers_without_a_pause() {
    for waits in [true, false] {
        let (mut shell, one, two) = start();
        let writer = shell.connect();
        let monitor = json!(["Net", 7, {"Port": {}}]);
        send(&mut shell, two, &[request(1, "monitor", monitor)]);
        send(&mut shell, one, &[request(1, "lock", json!(["l"]))]);
        let ask = |shell: &mut Shell| send(shell, two, &[request(2, "lock", json!(["l"]))]);
        if waits {
            ask(&mut shell);
        }
        let guarded = format!(r#"{{"op":"assert","lock":"l"}},{}"#, insert("b"));
        send(&mut shell, one, &[transact(2, &guarded)]);
        send(&mut shell, writer, &[transact(2, &insert("w0"))]);
        disk_is_done(&mut shell);
        // That of the other one is being written now.
        send(&mut shell, one, &[request(3, "unlock", json!(["l"]))]);
        if !waits {
            ask(&mut shell);
        }
        let mut told: Vec<String> = shell.received(two);
        for i in 1..4 {
            send(&mut shell, writer, &[transact(2, &insert(&format!("w{i}")))]);
            disk_is_done(&mut shell);
            told.extend(shell.received(two));
        }
        let at = |part: &str| told.iter().position(|it| it.contains(part));
        let (written, owned) = (at(r#""b""#), at(r#":"locked""#).or(at(":true}")));
        assert!(written.is_some() && written < owned, "waits {waits}: {told:?}");
    }
}

#[test]
fn a_session_that_is_not_read_is_read_again_when_its_message_is_canceled() {
    let (mut shell, one, two) = start();
    send(&mut shell, one, &[transact(1, &insert("a"))]);
    let long = "x".repeat(600_000);
    send(&mut shell, two, &[transact(2, &insert(&long)), transact(3, &insert(&long))]);
    assert!(shell.stopped.contains(&two));
    for id in [2, 3] {
        let cancel = json!({"id": null, "method": "cancel", "params": [id]}).to_string();
        send(&mut shell, two, &[cancel]);
    }
    assert!(!shell.stopped.contains(&two));
}

#[test]
fn what_becomes_long_when_it_runs_again_is_answered_before_what_came_behind_it() {
    let many: Vec<String> = (0..300).map(|n| insert(&format!("many{n}"))).collect();
    let mut became_long = false;
    for power in 0..24 {
        let (mut shell, one, two) = start();
        send(&mut shell, one, &[transact(1, &many.join(","))]);
        shell.disk_error = Some("No space left on device");
        // Both are in the next batch: the first runs again, and the second comes before its end.
        shell.disk_is_done();
        shell.send(one, &transact(2, &insert("b")));
        shell.send(two, &transact(3, &insert("c")));
        shell.settle();
        shell.server.set_step_cost_max(1 << power);
        let before = shell.sent_out.len();
        for _ in 0..3 {
            disk_is_done(&mut shell);
        }
        became_long |= shell.sent_out.len() > before;
        assert_eq!(received(&mut shell, one), [1, 2], "2^{power}");
    }
    assert!(became_long);
}

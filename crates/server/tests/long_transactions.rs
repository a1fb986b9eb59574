//! Transactions too long for a step of the core: what goes on while helpers run them.

use crate::shell::{PATH, Shell, insert, ports, transact};
use weir_server::event::{CommandId, Event, SessionId};
use weir_server::work::Word;

const MONITOR: &str = r#"{"id":"m","method":"monitor_cond","params":["Net","mon",{"Port":{"columns":["name","tags"]}}]}"#;
const SELECT: &str = r#"{"op":"select","table":"Port","where":[],"columns":["name"]}"#;

/// What an insertion or a lookup by name may cost here, and little more.
const SMALL: u64 = 500;

/// A server with 300 ports that does helpers' work only when told to.
fn start() -> Shell {
    let mut shell = Shell::start();
    let client = shell.connect();
    let rows: Vec<String> = (0..300).map(|i| insert(&format!("old{i}"))).collect();
    shell.call(client, &transact(1, &rows.join(",")));
    shell.server.set_step_cost_max(SMALL * 64);
    shell.slow_work = true;
    shell
}

/// Tags all ports: too long for a step.
fn tag_all(tag: &str) -> String {
    format!(
        r#"{{"op":"mutate","table":"Port","where":[["name","!=",""]],"mutations":[["tags","insert","{tag}"]]}}"#
    )
}

fn begin(shell: &mut Shell, client: SessionId, id: u32, operations: &str) {
    shell.server.set_step_cost_max(SMALL);
    shell.send(client, &transact(id, operations));
    shell.settle();
}

/// Two clients whose connections outlast conversions.
fn two_who_stay(shell: &mut Shell) -> [SessionId; 2] {
    [(); 2].map(|()| {
        let session = shell.connect();
        shell.call(session, r#"{"id":1,"method":"set_db_change_aware","params":[true]}"#);
        session
    })
}

#[test]
fn a_long_reader_holds_up_nobody_and_sees_one_moment() {
    let mut shell = start();
    let (reader, writer) = (shell.connect(), shell.connect());
    begin(&mut shell, reader, 1, SELECT);
    assert_eq!(shell.sent_out, ["Read"]);
    assert!(shell.call(writer, &transact(2, &insert("meanwhile"))).contains("uuid"));
    assert_eq!(shell.received(reader), Vec::<String>::new());
    shell.do_work(0);
    shell.settle();
    let reply = shell.received(reader).pop().unwrap();
    assert_eq!(reply.matches("old").count(), 300);
    assert!(!reply.contains("meanwhile"), "{reply}");
}

#[test]
fn while_a_long_writer_has_the_tables_others_queue_and_the_rest_goes_on() {
    let mut shell = start();
    let (long, small, aware) = (shell.connect(), shell.connect(), shell.connect());
    shell.call(aware, r#"{"id":1,"method":"set_db_change_aware","params":[true]}"#);
    begin(&mut shell, long, 1, &tag_all("t"));
    assert_eq!(shell.sent_out, ["Write"]);
    shell.send(small, &transact(2, &insert("after")));
    shell.settle();
    assert_eq!(shell.received(small), Vec::<String>::new());
    for (method, params, part) in [
        ("echo", "[7]", "[7]"),
        ("list_dbs", "[]", "Net"),
        ("get_schema", r#"["Net"]"#, "Port"),
        ("lock", r#"["l"]"#, "true"),
        ("monitor", r#"["_Server",1,{"Database":{"columns":["name"]}}]"#, "Net"),
        ("transact", r#"["_Server",{"op":"select","table":"Database","where":[]}]"#, "Net"),
    ] {
        let request = format!(r#"{{"id":3,"method":"{method}","params":{params}}}"#);
        assert!(shell.call(aware, &request).contains(part), "{method}");
    }
    // Those who wait for the tables still answer, and are answered, `echo`.
    let echo = r#"{"id":9,"method":"echo","params":[]}"#;
    assert!(shell.call(long, echo).contains(r#""id":9"#));
    assert!(shell.call(small, echo).contains(r#""id":9"#));
    shell.do_work(0);
    shell.settle();
    assert!(shell.received(long)[0].contains(r#"{"count":300}"#));
    assert!(shell.received(small)[0].contains("uuid"));
    let file = shell.files[PATH].clone();
    assert_eq!(ports(&mut Shell::start_on(file)).len(), 301);
}

#[test]
fn a_long_write_to_a_database_of_the_server_is_refused() {
    let mut shell = start();
    let client = shell.connect();
    shell.slow_work = false;
    let delete = r#"{"op":"delete","table":"Database","where":[]}"#;
    let short = transact(1, delete).replace("\"Net\"", "\"_Server\"");
    let refusal = shell.call(client, &short);
    assert!(refusal.contains("not allowed"), "{refusal}");
    let long = short.replace("delete\",", &format!("delete\",{}", " ".repeat(1 << 20)));
    assert_eq!(shell.call(client, &long), refusal);
}

#[test]
fn a_session_is_answered_in_the_order_of_its_requests() {
    let mut shell = start();
    let client = shell.connect();
    shell.call(client, MONITOR);
    begin(&mut shell, client, 1, &tag_all("t"));
    for id in 2..5 {
        shell.send(client, &transact(id, &insert(&format!("p{id}"))));
        shell.settle();
    }
    shell.send(client, r#"{"id":5,"method":"monitor_cancel","params":["mon"]}"#);
    shell.settle();
    assert_eq!(shell.received(client), Vec::<String>::new());
    // The transaction, and then the updates that it leads to.
    for work in ["Write", "Updates"] {
        assert_eq!(shell.sent_out.last().map(String::as_str), Some(work));
        assert_eq!(shell.received(client), Vec::<String>::new());
        shell.do_work(0);
        shell.settle();
    }
    let received = shell.received(client);
    let kinds: Vec<String> = received
        .iter()
        .map(|message| {
            let message: serde_json::Value = serde_json::from_str(message).unwrap();
            if message["id"].is_null() { "update".into() } else { message["id"].to_string() }
        })
        .collect();
    assert_eq!(kinds, ["update", "1", "update", "2", "update", "3", "update", "4", "5"]);
}

/// What a client gets that sends a write, and right behind it `behind`, which helpers must do, while
/// the disk is slow: updates, and the ids of answers.
fn behind_a_write(shell: &mut Shell, behind: &str) -> Vec<String> {
    let client = shell.connect();
    shell.call(client, MONITOR);
    shell.server.set_step_cost_max(SMALL);
    shell.slow_disk = true;
    shell.send(client, &transact(1, &insert("written")));
    shell.round();
    shell.send(client, behind);
    shell.round();
    assert_eq!(shell.received(client), Vec::<String>::new());
    shell.slow_disk = false;
    shell.disk_is_done();
    shell.settle();
    while !shell.work.is_empty() {
        shell.do_work(0);
        shell.settle();
    }
    let kind = |message: &String| {
        let message: serde_json::Value = serde_json::from_str(message).unwrap();
        if message["id"].is_null() { "update".into() } else { message["id"].to_string() }
    };
    shell.received(client).iter().map(kind).collect()
}

#[test]
fn a_write_is_told_before_its_answer_whatever_long_work_comes_behind_it() {
    let mut shell = start();
    assert_eq!(behind_a_write(&mut shell, &transact(2, SELECT)), ["update", "1", "2"]);
    assert_eq!(shell.sent_out, ["Read"]);
    let mut shell = start();
    let big = format!(r#"{{"id":2,"method":"echo","params":["{}"]}}"#, "x".repeat(1 << 20));
    assert_eq!(behind_a_write(&mut shell, &big), ["update", "1", "2"]);
    assert_eq!(shell.sent_out.first().map(String::as_str), Some("Examine"));
}

#[test]
fn nothing_is_told_to_a_session_while_its_own_work_is_out() {
    let mut shell = start();
    let (reader, writer) = (shell.connect(), shell.connect());
    shell.call(reader, MONITOR);
    begin(&mut shell, reader, 1, SELECT);
    for i in 0..3 {
        shell.call(writer, &transact(2, &insert(&format!("p{i}"))));
    }
    assert_eq!(shell.received(reader), Vec::<String>::new());
    shell.do_work(0);
    shell.settle();
    let received = shell.received(reader);
    let reply = received.iter().position(|message| message.starts_with(r#"{"id":1"#)).unwrap();
    assert!(!received[reply].contains("\"p0\""));
    let updates: usize = received.iter().map(|message| message.matches("insert").count()).sum();
    assert_eq!(updates, 3);
}

#[test]
fn a_lock_counts_that_was_owned_when_the_request_came() {
    let mut shell = start();
    let (owner, thief) = (shell.connect(), shell.connect());
    let lock = |method: &str| format!(r#"{{"id":1,"method":"{method}","params":["l"]}}"#);
    shell.call(owner, &lock("lock"));
    let asserts = format!(r#"{{"op":"assert","lock":"l"}},{}"#, tag_all("t"));
    begin(&mut shell, owner, 2, &asserts);
    assert!(shell.call(thief, &lock("steal")).contains("true"));
    let queued = transact(3, &format!(r#"{{"op":"assert","lock":"l"}},{}"#, insert("late")));
    shell.send(owner, &queued);
    shell.settle();
    shell.do_work(0);
    shell.settle();
    let received = shell.received(owner);
    assert!(received[0].contains("stolen"), "{received:?}");
    assert!(received[1].contains(r#"{"count":300}"#), "{received:?}");
    // What had not been looked at when the lock went is refused.
    assert!(received[2].contains("not owner"), "{received:?}");
}

/// What its owner has asked for under a lock, and gives the lock up behind, is made before the next one has it.
#[test]
fn who_waits_for_a_lock_has_it_behind_what_was_asked_for_under_it() {
    let asserted = |name: &str| format!(r#"{{"op":"assert","lock":"l"}},{}"#, insert(name));
    let request =
        |id: u32, method: &str| format!(r#"{{"id":{id},"method":"{method}","params":["l"]}}"#);
    let mut shell = start();
    let (owner, next) = (shell.connect(), shell.connect());
    shell.call(owner, &request(1, "lock"));
    assert!(shell.call(next, &request(1, "lock")).contains("false"));
    begin(&mut shell, owner, 2, &tag_all("t"));
    let queued = [transact(3, &asserted("under it")), request(4, "unlock"), request(5, "lock")];
    queued.iter().for_each(|request| shell.send(owner, request));
    shell.send(owner, &transact(6, &asserted("too late")));
    shell.settle();
    assert_eq!(shell.received(next), Vec::<String>::new());
    shell.do_work(0);
    shell.settle();
    assert!(shell.received(next)[0].contains("locked"));
    let received = shell.received(owner);
    let what = ["count", "uuid", "{}", r#""locked":false"#, "not owner"];
    let are_those = received.iter().zip(what).all(|(reply, what)| reply.contains(what));
    assert!(received.len() == what.len() && are_those, "{received:?}");
}

/// Pieces of work that are out, besides memory that is given back.
fn to_be_done(shell: &Shell) -> usize {
    shell.work.iter().filter(|(_, work)| format!("{work:?}") != "Free").count()
}

#[test]
fn what_a_closed_session_began_is_undone_and_what_it_queued_is_not_begun() {
    let mut shell = start();
    let (client, other) = (shell.connect(), shell.connect());
    begin(&mut shell, client, 1, &tag_all("t"));
    shell.send(client, &transact(2, &insert("never")));
    shell.send(other, &transact(3, &insert("p")));
    shell.event(Event::Closed { session: client, error: None });
    shell.settle();
    assert_eq!(shell.said.values().collect::<Vec<_>>(), [&Word::Stop]);
    shell.do_work(0);
    shell.settle();
    assert!(shell.received(other)[0].contains("uuid"));
    assert_eq!(to_be_done(&shell), 0);
    let file = String::from_utf8(shell.files[PATH].clone()).unwrap();
    assert_eq!(file.matches(r#""tags":"t""#).count(), 0);
    assert!(!file.contains("never"));
}

#[test]
fn long_work_of_a_closed_session_that_no_helper_has_is_not_begun() {
    let mut shell = start();
    let (first, client, other) = (shell.connect(), shell.connect(), shell.connect());
    begin(&mut shell, first, 1, &tag_all("a"));
    begin(&mut shell, client, 2, &tag_all("b"));
    assert_eq!(shell.sent_out, ["Write"]);
    shell.event(Event::Closed { session: client, error: None });
    shell.said.clear();
    shell.do_work(0);
    shell.settle();
    assert!(shell.received(first)[0].contains(r#"{"count":300}"#));
    assert_eq!(shell.sent_out, ["Write"]);
    assert!(shell.call(other, &transact(3, &insert("p"))).contains("uuid"));
}

#[test]
fn a_read_of_a_closed_session_comes_to_nothing() {
    let mut shell = start();
    let (reader, other) = (shell.connect(), shell.connect());
    begin(&mut shell, reader, 1, SELECT);
    shell.event(Event::Closed { session: reader, error: None });
    shell.settle();
    assert_eq!(shell.said.values().collect::<Vec<_>>(), [&Word::Stop]);
    shell.do_work(0);
    shell.settle();
    assert_eq!(to_be_done(&shell), 0);
    assert!(shell.call(other, &transact(2, &insert("p"))).contains("uuid"));
}

/// What reads rows that are not there, and inserts one.
fn look_and_insert(name: &str) -> String {
    let select = r#"{"op":"select","table":"Port","where":[["name","==","nobody"]]},"#;
    let scan = r#"{"op":"select","table":"Port","where":[["tags","includes","nothing"]]},"#;
    format!("{}{}{}", select.repeat(3), scan.repeat(10), insert(name))
}

/// A long transaction for whose tables others wait has cost more than it may: it makes way.
fn make_way(shell: &mut Shell, long: SessionId, waiting: SessionId, operations: &str) {
    // Whatever it costs is too much.
    shell.server.set_step_cost_max(0);
    shell.send(long, &transact(1, operations));
    shell.settle();
    assert_eq!(shell.sent_out, ["Write"]);
    shell.server.set_step_cost_max(SMALL * 64);
    shell.send(waiting, &transact(2, &insert("first")));
    shell.settle();
    assert_eq!(shell.said.values().collect::<Vec<_>>(), [&Word::Hurry]);
    shell.do_work(0);
    shell.settle();
    assert!(shell.received(waiting)[0].contains("uuid"));
    assert_eq!(shell.sent_out, ["Write", "Try"]);
    assert_eq!(shell.received(long), Vec::<String>::new());
}

#[test]
fn a_long_writer_makes_way_and_comes_back_behind_the_others() {
    let mut shell = start();
    let (long, small) = (shell.connect(), shell.connect());
    make_way(&mut shell, long, small, &look_and_insert("late"));
    assert!(shell.call(small, &transact(3, &insert("second"))).contains("uuid"));
    shell.do_work(0);
    shell.settle();
    let reply = shell.received(long).pop().unwrap();
    assert!(reply.contains("uuid") && reply.contains(r#""error":null"#), "{reply}");
    assert_eq!(to_be_done(&shell), 0);
    let file = String::from_utf8(shell.files[PATH].clone()).unwrap();
    let at = |name: &str| file.find(name).unwrap();
    assert!(at("\"first\"") < at("\"second\"") && at("\"second\"") < at("\"late\""));
}

#[test]
fn a_long_writer_to_whom_others_make_a_difference_keeps_the_tables() {
    let mut shell = start();
    let (long, small) = (shell.connect(), shell.connect());
    make_way(&mut shell, long, small, &tag_all("t"));
    assert!(shell.call(small, &transact(3, &insert("second"))).contains("uuid"));
    // To run the operation again costs more than the tables may be held.
    shell.server.set_step_cost_max(100);
    shell.do_work(0);
    shell.settle();
    assert_eq!(shell.sent_out, ["Write", "Try", "Free", "Write"]);
    shell.server.set_step_cost_max(SMALL * 64);
    shell.send(small, &transact(4, &insert("third")));
    shell.settle();
    shell.do_work(0);
    shell.do_work(0);
    shell.settle();
    // Both have been there when it ran, and the third was not.
    assert!(shell.received(long)[0].contains(r#"{"count":302}"#));
    assert!(shell.received(small)[0].contains("uuid"));
}

#[test]
fn a_long_writer_runs_those_operations_again_to_which_others_make_a_difference() {
    for is_compared_by_a_helper in [false, true] {
        let mut shell = start();
        let (long, small) = (shell.connect(), shell.connect());
        let found = r#"{"op":"select","table":"Port","where":[["tags","includes","found"]],"columns":["name"]}"#;
        let count = r#"{"op":"mutate","table":"Port","where":[["name","==","second"]],"mutations":[["tags","insert","found"]]}"#;
        let operations = format!("{found},{count},{found},{}", look_and_insert("late"));
        make_way(&mut shell, long, small, &operations);
        assert!(shell.call(small, &transact(3, &insert("second"))).contains("uuid"));
        // What it has missed may be compared in the step, or not.
        shell.server.set_step_cost_max(if is_compared_by_a_helper { 10 } else { 200 });
        shell.do_work(0);
        shell.settle();
        if is_compared_by_a_helper {
            assert_eq!(shell.sent_out, ["Write", "Try", "Confirm"]);
            shell.server.set_step_cost_max(200);
            shell.do_work(0);
            shell.settle();
        }
        assert_eq!(shell.sent_out.last().map(String::as_str), Some("Write"));
        assert!(!shell.sent_out.iter().any(|sent| sent == "Free"), "what it has done is of use");
        while !shell.work.is_empty() {
            shell.do_work(0);
            shell.settle();
        }
        let reply = shell.received(long).pop().unwrap();
        let expected = r#"{"rows":[]},{"count":1},{"rows":[{"name":"second"}]},{"rows":[]}"#;
        assert!(reply.contains(expected) && reply.contains(r#""error":null"#), "{reply}");
        let file = String::from_utf8(shell.files[PATH].clone()).unwrap();
        assert!(file.contains("late") && file.matches("second").count() == 1, "{file}");
    }
}

#[test]
fn a_long_writer_that_has_made_way_asserts_no_lock_that_was_stolen_meanwhile() {
    for is_stolen_late in [true, false] {
        let mut shell = start();
        let (owner, thief) = (shell.connect(), shell.connect());
        let lock = |method: &str| format!(r#"{{"id":1,"method":"{method}","params":["l"]}}"#);
        shell.call(owner, &lock("lock"));
        let asserts = format!(r#"{{"op":"assert","lock":"l"}},{}"#, look_and_insert("late"));
        make_way(&mut shell, owner, thief, &asserts);
        assert!(shell.call(thief, &lock("steal")).contains("true"));
        if is_stolen_late {
            // The thief counts on what only it may write now.
            let alone = format!(r#"{{"op":"assert","lock":"l"}},{}"#, insert("alone"));
            assert!(shell.call(thief, &transact(3, &alone)).contains("uuid"));
        }
        while !shell.work.is_empty() {
            shell.do_work(0);
            shell.settle();
        }
        let received = shell.received(owner);
        assert!(received[0].contains("stolen"), "{received:?}");
        assert!(received[1].contains("not owner"), "{received:?}");
        let file = String::from_utf8(shell.files[PATH].clone()).unwrap();
        assert!(!file.contains("late"));
    }
}

#[test]
fn what_a_long_writer_has_missed_is_compared_by_a_helper_if_it_is_much() {
    let mut shell = start();
    let (long, small) = (shell.connect(), shell.connect());
    make_way(&mut shell, long, small, &look_and_insert("late"));
    let rows: Vec<String> = (0..300).map(|i| insert(&format!("new{i}"))).collect();
    assert!(shell.call(small, &transact(3, &rows.join(","))).contains("uuid"));
    shell.server.set_step_cost_max(SMALL);
    shell.do_work(0);
    shell.settle();
    assert_eq!(shell.sent_out, ["Write", "Try", "Confirm"]);
    assert!(shell.call(small, &transact(4, &insert("meanwhile"))).contains("uuid"));
    shell.do_work(0);
    shell.settle();
    let reply = shell.received(long).pop().unwrap();
    assert!(reply.contains("uuid") && reply.contains(r#""error":null"#), "{reply}");
    assert_eq!(to_be_done(&shell), 0);
}

#[test]
fn a_long_writer_that_has_made_way_is_forgotten_with_its_session() {
    for does_the_work_first in [true, false] {
        let mut shell = start();
        let (long, small) = (shell.connect(), shell.connect());
        make_way(&mut shell, long, small, &look_and_insert("late"));
        shell.event(Event::Closed { session: long, error: None });
        if does_the_work_first {
            shell.said.clear();
        }
        shell.do_work(0);
        shell.settle();
        assert_eq!(to_be_done(&shell), 0);
        assert!(shell.call(small, &transact(3, &insert("second"))).contains("uuid"));
        let file = String::from_utf8(shell.files[PATH].clone()).unwrap();
        assert!(!file.contains("late"));
    }
}

#[test]
fn readers_wait_for_no_writer() {
    let mut shell = start();
    let (long, reader) = (shell.connect(), shell.connect());
    begin(&mut shell, long, 1, &tag_all("t"));
    shell.send(reader, &transact(2, SELECT));
    shell.settle();
    assert_eq!(shell.sent_out, ["Write", "Read"]);
    assert!(shell.said.is_empty(), "nobody waits for the tables");
    shell.do_work(1);
    shell.settle();
    let reply = shell.received(reader).pop().unwrap();
    assert_eq!(reply.matches("old").count(), 300);
}

#[test]
fn a_database_is_removed_when_its_tables_are_back() {
    let mut shell = start();
    let [client, waiting] = two_who_stay(&mut shell);
    begin(&mut shell, client, 1, &tag_all("t"));
    shell.send(waiting, &transact(2, &insert("p")));
    assert_eq!(shell.command("ovsdb-server/remove-db", &["Net"]), None);
    shell.do_work(0);
    shell.settle();
    assert!(shell.received(client)[0].contains(r#"{"count":300}"#));
    assert!(shell.received(waiting)[0].contains("uuid"));
    assert_eq!(shell.replies.values().last(), Some(&Ok(String::new())));
    let gone = shell.call(client, &transact(3, SELECT));
    assert!(gone.contains("unknown database"), "{gone}");
}

/// There may always be somebody who reads.
#[test]
fn a_database_is_removed_though_others_have_asked_for_something_long_since() {
    let mut shell = start();
    let [client, other] = two_who_stay(&mut shell);
    begin(&mut shell, client, 1, SELECT);
    assert_eq!(shell.sent_out, ["Read"]);
    shell.advance_ms(1);
    assert_eq!(shell.command("ovsdb-server/remove-db", &["Net"]), None);
    shell.advance_ms(1);
    shell.send(other, &transact(2, SELECT));
    shell.settle();
    assert_eq!(shell.sent_out, ["Read", "Read"]);
    shell.do_work(0);
    shell.settle();
    assert_eq!(shell.received(client)[0].matches("old").count(), 300, "it came before");
    assert_eq!(shell.replies.values().last(), Some(&Ok(String::new())));
    shell.do_work(0);
    shell.settle();
    assert!(shell.received(other)[0].contains("canceled"), "its database is gone");
}

#[test]
fn a_full_disk_undoes_a_long_transaction_too() {
    let mut shell = start();
    let (client, reader) = (shell.connect(), shell.connect());
    let file = shell.files[PATH].clone();
    begin(&mut shell, client, 1, &tag_all("t"));
    shell.disk_error = Some("No space left on device");
    while !shell.work.is_empty() {
        shell.do_work(0);
        shell.settle();
    }
    let refused = shell.received(client).pop().unwrap();
    assert!(refused.contains(r#""error":"I/O error","io-error":"No space left"#), "{refused}");
    assert_eq!(shell.files[PATH], file);
    let tagged =
        r#"{"op":"select","table":"Port","where":[["name","==","old7"]],"columns":["tags"]}"#;
    let reply = shell.call(reader, &transact(2, tagged));
    assert!(reply.contains(r#"{"tags":["set",[]]}"#), "{reply}");
}

/// The text of a transaction is gone when it turns out that its record cannot be written.
#[test]
fn a_full_disk_undoes_a_big_transaction_too() {
    let mut shell = start();
    let (client, reader) = (shell.connect(), shell.connect());
    let file = shell.files[PATH].clone();
    let padding = "x".repeat(2 << 20);
    let comment = format!(r#"{{"op":"comment","comment":"{padding}"}},{}"#, insert("big"));
    for (disk_error, answer) in [
        (Some("No space left on device"), r#""error":"I/O error","io-error":"No space left"#),
        (None, r#""result":[{},{"uuid""#),
    ] {
        shell.disk_error = disk_error;
        shell.send(client, &transact(1, &comment));
        shell.settle();
        while !shell.work.is_empty() {
            shell.do_work(0);
            shell.settle();
        }
        let reply = shell.received(client).pop().unwrap();
        assert!(reply.contains(answer), "{reply}");
        assert_eq!(shell.files[PATH] == file, disk_error.is_some());
        let select = r#"{"op":"select","table":"Port","where":[["name","==","big"]]}"#;
        let reply = shell.call(reader, &transact(2, select));
        assert_eq!(reply.contains(r#""rows":[]"#), disk_error.is_some(), "{reply}");
    }
}

#[test]
fn a_long_wait_is_answered_when_what_it_waits_for_comes_while_it_is_read() {
    let mut shell = start();
    let (waiter, writer) = (shell.connect(), shell.connect());
    let wait = r#"{"op":"wait","table":"Port","where":[["tags","includes","x"]],"columns":["name"],"until":"!=","rows":[]}"#;
    shell.server.set_step_cost_max(250);
    shell.send(waiter, &transact(1, wait));
    shell.settle();
    assert_eq!(shell.sent_out, ["Read"]);
    let port = r#"{"op":"insert","table":"Port","row":{"name":"new","tags":"x"}}"#;
    assert!(shell.call(writer, &transact(2, port)).contains("uuid"));
    shell.do_work(0);
    shell.settle();
    assert_eq!(shell.received(waiter), Vec::<String>::new());
    shell.do_work(0);
    shell.settle();
    assert_eq!(shell.received(waiter), [r#"{"id":1,"result":[{}],"error":null}"#]);
}

#[test]
fn a_wait_times_out_when_the_tables_are_back() {
    let mut shell = start();
    let (waiter, long) = (shell.connect(), shell.connect());
    let wait = r#"{"op":"wait","timeout":100,"table":"Port","where":[["name","==","x"]],"columns":["name"],"until":"!=","rows":[]}"#;
    shell.call(waiter, &transact(1, wait));
    begin(&mut shell, long, 1, &tag_all("t"));
    shell.advance_ms(150);
    shell.settle();
    assert_eq!(shell.received(waiter), Vec::<String>::new());
    shell.do_work(0);
    shell.settle();
    let reply = shell.received(waiter).pop().unwrap();
    assert!(reply.contains("timed out after 150 ms"), "{reply}");
}

#[test]
fn compaction_goes_on_while_the_tables_are_away() {
    let mut shell = start();
    let client = shell.connect();
    begin(&mut shell, client, 1, &tag_all("t"));
    assert_eq!(shell.command("ovsdb-server/compact", &["Net"]), Some(Ok(String::new())));
    shell.do_work(0);
    shell.settle();
    assert!(shell.received(client)[0].contains(r#"{"count":300}"#));
    let mut again = Shell::start_on(shell.files[PATH].clone());
    let reader = again.connect();
    let tagged =
        r#"{"op":"select","table":"Port","where":[["tags","includes","t"]],"columns":["name"]}"#;
    assert_eq!(again.call(reader, &transact(1, tagged)).matches("old").count(), 300);
}

#[test]
fn who_sends_on_and_on_while_held_is_not_read_any_more() {
    let mut shell = start();
    let client = shell.connect();
    begin(&mut shell, client, 1, &tag_all("t"));
    let comment = format!(r#"{{"op":"comment","comment":"{}"}}"#, "x".repeat(100_000));
    let mut sent = 0;
    while shell.stopped.is_empty() {
        sent += 1;
        assert!(sent < 20, "never stopped");
        shell.send(client, &transact(1 + sent, &comment));
        shell.settle();
    }
    assert!(sent > 8);
    shell.server.set_step_cost_max(u64::MAX);
    shell.do_work(0);
    shell.settle();
    assert_eq!(shell.received(client).len() as u32, 1 + sent);
    assert!(shell.stopped.is_empty());
}

#[test]
fn big_messages_are_looked_at_by_a_helper() {
    let mut shell = start();
    let (client, other) = (shell.connect(), shell.connect());
    let padding = "x".repeat(2 << 20);
    let comment = format!(r#"{{"op":"comment","comment":"{padding}"}},{}"#, insert("big"));
    shell.send(client, &transact(1, &comment));
    shell.settle();
    assert_eq!(shell.sent_out, ["Examine"]);
    assert!(shell.call(other, &transact(2, &insert("small"))).contains("uuid"));
    shell.do_work(0);
    shell.settle();
    assert_eq!(shell.sent_out, ["Examine", "Write"]);
    shell.do_work(0);
    shell.settle();
    assert!(shell.received(client)[0].starts_with(r#"{"id":1,"result":[{},{"uuid""#));
    shell.slow_work = false;
    let echo = format!(r#"{{"id":4,"method":"echo","params":["{padding}"]}}"#);
    let reply = shell.call(client, &echo);
    assert_eq!(reply, format!(r#"{{"id":4,"result":["{padding}"],"error":null}}"#));
    let unknown = format!(r#"{{"id":4,"method":"x","params":["{padding}"]}}"#);
    assert!(shell.call(client, &unknown).contains("unknown method"));
    shell.call(client, &format!("[\"{padding}\""));
    assert_eq!(shell.disconnected, [client]);
}

#[test]
fn a_command_that_comes_with_a_long_transaction_waits_for_it() {
    let mut shell = start();
    let client = shell.connect();
    shell.call(client, r#"{"id":1,"method":"set_db_change_aware","params":[true]}"#);
    shell.server.set_step_cost_max(SMALL);
    shell.send(client, &transact(1, SELECT));
    let (id, name) = (CommandId(1), "ovsdb-server/remove-db".to_owned());
    shell.event(Event::Command { id, name, args: vec!["Net".into()] });
    shell.settle();
    assert_eq!(shell.replies.get(&id), None);
    shell.do_work(0);
    shell.settle();
    assert_eq!(shell.received(client)[0].matches("old").count(), 300);
    assert_eq!(shell.replies[&id], Ok(String::new()));
}

#[test]
fn the_last_step_of_a_conversion_waits_for_the_tables() {
    let mut shell = start();
    let [client, asking] = two_who_stay(&mut shell);
    shell.slow_helper = true;
    let schema = crate::shell::SCHEMA.replace("1.0.0", "2.0.0");
    shell.send(asking, &format!(r#"{{"id":2,"method":"convert","params":["Net",{schema}]}}"#));
    shell.settle();
    begin(&mut shell, client, 1, &tag_all("t"));
    assert_eq!(shell.sent_out, ["Write"]);
    shell.slow_helper = false;
    shell.helper_is_done();
    shell.settle();
    assert_eq!(shell.received(asking), Vec::<String>::new());
    assert_eq!(shell.command("ovsdb-server/compact", &["Net"]), None);
    assert!(shell.server.next_wakeup_us().is_none_or(|at| at > shell.now.monotonic_us), "spins");
    shell.server.set_step_cost_max(u64::MAX);
    shell.do_work(0);
    shell.settle();
    assert!(shell.received(client).concat().contains(r#"{"count":300}"#));
    assert_eq!(shell.received(asking), [r#"{"id":2,"result":{},"error":null}"#]);
    assert_eq!(shell.replies.values().collect::<Vec<_>>(), [&Ok(String::new())]);
    let file = String::from_utf8(shell.after_kill(PATH)).unwrap();
    assert!(file.contains(r#""version":"2.0.0""#));
    assert_eq!(file.matches(r#""tags":"t""#).count(), 300);
}

/// [`crate::shell::SCHEMA`] with another table behind the first one.
fn with_zones() -> String {
    let zone = r#""Zone":{"columns":{"a":{"type":"string"},"kind":{"type":"string"}}}"#;
    crate::shell::SCHEMA.replacen(r#""tables":{"#, &format!(r#""tables":{{{zone},"#), 1)
}

#[test]
fn a_slow_query_is_told_of_the_tables_that_it_has_read_though_others_have_taken_their_place() {
    let zone = |n: usize| {
        format!(r#"{{"op":"insert","table":"Zone","row":{{"a":"a{n}","kind":"k{n}"}}}}"#)
    };
    let zones: Vec<String> = (0..1_200).map(zone).collect();
    let fewer_columns = with_zones().replace(r#","kind":{"type":"string"}"#, "");
    for schema in [crate::shell::SCHEMA, fewer_columns.as_str()] {
        let mut shell = Shell::start_on(crate::keys::file_of(&with_zones()));
        let [reader, asking] = two_who_stay(&mut shell);
        shell.call(asking, &transact(1, &zones.join(",")));
        assert_eq!(shell.command("weir/slow-query-rows", &["1"]), Some(Ok(String::new())));
        shell.slow_work = true;
        shell.sent_out.clear();
        let few = r#"{"op":"select","table":"Zone","where":[["kind","==","k7"]],"columns":["a"]}"#;
        begin(&mut shell, reader, 2, few);
        assert_eq!(shell.sent_out, ["Read"]);
        shell.send(asking, &format!(r#"{{"id":3,"method":"convert","params":["Net",{schema}]}}"#));
        shell.settle();
        assert_eq!(shell.received(asking), [r#"{"id":3,"result":{},"error":null}"#]);
        shell.do_work(0);
        shell.settle();
        assert!(shell.received(reader).concat().contains(r#"{"a":"a7"}"#));
        let told = "slow query: operation 1 looked at 1200 rows of table Zone (linear) for 1; \
                    hash key on column kind would help";
        assert_eq!(
            shell.log.iter().filter(|line| line.contains(told)).count(),
            1,
            "{:?}",
            shell.log
        );
    }
}

#[test]
fn a_wait_that_was_read_on_tables_that_are_gone_runs_again_on_the_others() {
    let column = |n: usize| format!(r#","c{n}":{{"type":"integer"}}"#);
    let columns: String = (0..70).map(column).collect();
    let narrow = r#"{"name":"Net","tables":{"Port":{"columns":{"name":{"type":"string"}}}}}"#;
    let wide = narrow.replace(r#""string"}"#, &format!(r#""string"}}{columns}"#));
    let mut shell = Shell::start_on(crate::keys::file_of(&wide));
    let [waiter, asking] = two_who_stay(&mut shell);
    let rows: Vec<String> = (0..600).map(|n| insert(&format!("p{n}"))).collect();
    shell.call(asking, &transact(1, &rows.join(",")));
    shell.slow_work = true;
    shell.sent_out.clear();
    let wait = r#"{"op":"wait","table":"Port","where":[["c69","==",5]],"columns":["name"],
                   "until":"!=","rows":[]}"#;
    begin(&mut shell, waiter, 2, wait);
    assert_eq!(shell.sent_out, ["Read"]);
    shell.send(asking, &format!(r#"{{"id":3,"method":"convert","params":["Net",{narrow}]}}"#));
    shell.settle();
    assert_eq!(shell.received(asking), [r#"{"id":3,"result":{},"error":null}"#]);
    // What a helper has taken so long for rests as long.
    shell.advance_ms(50);
    shell.do_work(0);
    shell.settle();
    assert!(shell.call(asking, &transact(4, &insert("new"))).contains("uuid"));
    shell.slow_work = false;
    shell.pass_ms(100);
    let reply = shell.received(waiter).concat();
    assert!(reply.contains("No column c69 in table Port."), "{reply}");
}

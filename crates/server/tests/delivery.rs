//! Who waits until clients have what was committed: how far each of them is, and when the answer
//! comes.

use crate::shell::{PATH, Shell, insert, transact};
use serde_json::{Value, json};
use weir_server::event::{Event, SessionId};

/// The longest time between two looks, and a little.
const LOOK_MS: u64 = 60;

fn monitor(table: &str, id: &str) -> String {
    format!(r#"{{"id":7,"method":"monitor","params":["Net",{id},{{"{table}":{{}}}}]}}"#)
}

/// A client that watches all ports.
fn watcher(shell: &mut Shell) -> SessionId {
    let client = shell.connect();
    assert!(shell.call(client, &monitor("Port", "1")).contains("result"));
    client
}

/// A request with these options.
fn wait(options: &str) -> String {
    format!(r#"{{"id":"w","method":"weir_wait_delivered","params":["Net","now",{options}]}}"#)
}

/// The answer to the wait, if there is one.
fn answer(shell: &mut Shell, client: SessionId) -> Option<Value> {
    let messages = shell.received(client).into_iter();
    let values = messages.map(|message| serde_json::from_str(&message).expect("JSON"));
    let mut answers = values.filter(|value: &Value| value["id"] == "w");
    let mut answer = answers.next()?;
    assert!(answers.next().is_none(), "two answers");
    assert_eq!(answer["error"], Value::Null, "{answer}");
    Some(answer["result"].take())
}

fn add_port(shell: &mut Shell, client: SessionId, name: &str) {
    assert!(shell.call(client, &transact(1, &insert(name))).contains("uuid"));
}

/// A client does not read; the shell has found that out.
fn block(shell: &mut Shell, client: SessionId) {
    shell.stuck.insert(client);
    shell.event(Event::Blocked { session: client });
    shell.settle();
}

fn unblock(shell: &mut Shell, client: SessionId) {
    shell.stuck.remove(&client);
    shell.event(Event::Drained { session: client });
    shell.settle();
}

#[test]
fn nobody_asks_the_shell_unless_somebody_waits() {
    let mut shell = Shell::start();
    let (asker, _reader) = (shell.connect(), watcher(&mut shell));
    add_port(&mut shell, asker, "a");
    shell.pass_ms(200);
    assert!(shell.looks.is_empty());
    shell.send(asker, &wait("{}"));
    shell.pass_ms(LOOK_MS);
    let done = json!({"clients":1,"complete":true,"delivered":1,"left":0,"missing":[],"wanted":1});
    assert_eq!(answer(&mut shell, asker), Some(done));
    assert_eq!(shell.looks, [1]);
    shell.pass_ms(1000);
    assert_eq!(shell.looks, [1]);
}

#[test]
fn a_wait_sent_right_behind_a_transaction_is_for_that() {
    let mut shell = Shell::start();
    let (asker, slow) = (shell.connect(), watcher(&mut shell));
    block(&mut shell, slow);
    shell.slow_disk = true;
    shell.send(asker, &transact(1, &insert("a")));
    shell.round();
    shell.send(asker, &wait(r#"{"level":"queued","timeout":500}"#));
    shell.round();
    shell.pass_ms(100);
    assert_eq!(answer(&mut shell, asker), None, "the transaction is not decided");
    shell.slow_disk = false;
    shell.do_disk(0);
    shell.pass_ms(100);
    assert_eq!(answer(&mut shell, asker), None, "a client is behind");
    unblock(&mut shell, slow);
    shell.pass_ms(LOOK_MS);
    assert_eq!(answer(&mut shell, asker).expect("all have it")["complete"], true);
}

#[test]
fn a_session_that_does_not_read_holds_the_wait() {
    let mut shell = Shell::start();
    let (asker, slow, _quick) = (shell.connect(), watcher(&mut shell), watcher(&mut shell));
    block(&mut shell, slow);
    add_port(&mut shell, asker, "a");
    add_port(&mut shell, asker, "b");
    shell.send(asker, &wait("{}"));
    shell.pass_ms(1000);
    assert_eq!(answer(&mut shell, asker), None);
    // What comes later is not waited for.
    unblock(&mut shell, slow);
    shell.in_flight.insert(slow, 1);
    shell.pass_ms(LOOK_MS);
    assert_eq!(answer(&mut shell, asker), None, "a byte is on its way");
    add_port(&mut shell, asker, "c");
    shell.pass_ms(LOOK_MS);
    assert_eq!(answer(&mut shell, asker).expect("both have it")["delivered"], 2);
}

/// A relay is told each change by itself, from the log of changes.
#[test]
fn a_relay_that_does_not_read_holds_the_wait() {
    let mut shell = Shell::start();
    let (asker, relay) = (shell.connect(), shell.connect());
    let zero = "00000000-0000-0000-0000-000000000000";
    let monitor = format!(
        r#"{{"id":7,"method":"weir_monitor","params":["Net",1,{{"Port":{{"columns":["name"]}}}},"{zero}",{{"each":true}}]}}"#
    );
    assert!(shell.call(relay, &monitor).contains("result"));
    block(&mut shell, relay);
    // It is not told of columns that no file keeps.
    let up = r#"{"op":"update","table":"Port","where":[],"row":{"up":true}}"#;
    add_port(&mut shell, asker, "a");
    unblock(&mut shell, relay);
    block(&mut shell, relay);
    shell.call(asker, &transact(2, up));
    shell.send(asker, &wait(r#"{"level":"queued"}"#));
    shell.pass_ms(LOOK_MS);
    assert_eq!(answer(&mut shell, asker).expect("nothing is for it")["complete"], true);
    add_port(&mut shell, asker, "b");
    add_port(&mut shell, asker, "c");
    shell.send(asker, &wait(r#"{"level":"queued","timeout":200}"#));
    shell.pass_ms(300);
    let result = answer(&mut shell, asker).expect("the time is up");
    let missing = json!([{"behind":2,"client":format!("unix#{}", relay.0),"level":"none"}]);
    assert_eq!((&result["complete"], &result["missing"]), (&json!(false), &missing));
    shell.send(asker, &wait("{}"));
    shell.pass_ms(200);
    assert_eq!(answer(&mut shell, asker), None, "it has not been told");
    unblock(&mut shell, relay);
    shell.pass_ms(LOOK_MS);
    assert_eq!(answer(&mut shell, asker).expect("it has it")["complete"], true);
}

#[test]
fn levels_are_reached_one_after_the_other() {
    let mut shell = Shell::start();
    let (asker, slow) = (shell.connect(), watcher(&mut shell));
    shell.received(slow);
    // Its outbox is not empty, and nobody has found out yet.
    shell.stuck.insert(slow);
    add_port(&mut shell, asker, "a");
    let level = |level: &str| wait(&format!(r#"{{"level":"{level}","timeout":200}}"#));
    let try_level = |shell: &mut Shell, name: &str| {
        shell.send(asker, &level(name));
        shell.pass_ms(300);
        answer(shell, asker).expect("it ends")
    };
    let late = |level: &str| {
        let missing = json!([{"behind":0,"client":format!("unix#{}", slow.0),"level":level}]);
        json!({"clients":1,"complete":false,"delivered":0,"left":0,"missing":missing,"wanted":1})
    };
    assert_eq!(try_level(&mut shell, "queued")["complete"], true);
    assert_eq!(try_level(&mut shell, "written"), late("queued"));
    shell.stuck.remove(&slow);
    shell.in_flight.insert(slow, 5);
    assert_eq!(try_level(&mut shell, "written")["complete"], true);
    assert_eq!(try_level(&mut shell, "acknowledged"), late("written"));
    shell.in_flight.remove(&slow);
    assert_eq!(try_level(&mut shell, "acknowledged")["complete"], true);
}

#[test]
fn who_watches_nothing_of_it_has_it_though_it_does_not_read() {
    let other = r#""tables":{"Other":{"columns":{"x":{"type":"string"}}},"#;
    let schema = crate::shell::SCHEMA.replacen(r#""tables":{"#, other, 1);
    let mut file = Vec::new();
    let schema = weir_data::Schema::parse_bytes(schema.as_bytes()).unwrap();
    weir_log::standalone::write_schema(&mut file, &schema);
    let mut shell = Shell::start_on(file);
    let (asker, idle, _busy) = (shell.connect(), shell.connect(), watcher(&mut shell));
    assert!(shell.call(idle, &monitor("Other", "1")).contains("result"));
    shell.received(idle);
    block(&mut shell, idle);
    add_port(&mut shell, asker, "a");
    shell.send(asker, &wait("{}"));
    shell.pass_ms(LOOK_MS);
    let done = json!({"clients":2,"complete":true,"delivered":2,"left":0,"missing":[],"wanted":2});
    assert_eq!(answer(&mut shell, asker), Some(done));
}

#[test]
fn who_leaves_or_watches_no_longer_is_not_waited_for() {
    let mut shell = Shell::start();
    let (asker, gone, tired) = (shell.connect(), watcher(&mut shell), watcher(&mut shell));
    [gone, tired].into_iter().for_each(|client| block(&mut shell, client));
    add_port(&mut shell, asker, "a");
    shell.send(asker, &wait("{}"));
    shell.pass_ms(200);
    shell.event(Event::Closed { session: gone, error: None });
    shell.pass_ms(200);
    assert_eq!(answer(&mut shell, asker), None, "one is behind");
    let cancel = r#"{"id":8,"method":"monitor_cancel","params":[1]}"#;
    shell.event(Event::Drained { session: tired });
    shell.event(Event::Blocked { session: tired });
    shell.send(tired, cancel);
    unblock(&mut shell, tired);
    shell.pass_ms(LOOK_MS);
    let done = json!({"clients":0,"complete":true,"delivered":0,"left":2,"missing":[],"wanted":0});
    assert_eq!(answer(&mut shell, asker), Some(done));
}

#[test]
fn a_number_of_clients_may_come_meanwhile() {
    let mut shell = Shell::start();
    let (asker, slow, _quick) = (shell.connect(), watcher(&mut shell), watcher(&mut shell));
    block(&mut shell, slow);
    add_port(&mut shell, asker, "a");
    shell.send(asker, &wait(r#"{"count":1}"#));
    shell.pass_ms(LOOK_MS);
    assert_eq!(answer(&mut shell, asker).expect("one has it")["delivered"], 1);
    shell.send(asker, &wait(r#"{"count":2}"#));
    shell.pass_ms(200);
    assert_eq!(answer(&mut shell, asker), None);
    watcher(&mut shell);
    shell.pass_ms(LOOK_MS);
    let done = answer(&mut shell, asker).expect("the new one begins with it");
    assert_eq!((&done["clients"], &done["delivered"]), (&json!(3), &json!(2)));
}

#[test]
fn a_wait_ends_with_its_time_and_says_who_is_late() {
    let mut shell = Shell::start();
    let (asker, slow) = (shell.connect(), watcher(&mut shell));
    block(&mut shell, slow);
    ["a", "b", "c"].into_iter().for_each(|name| add_port(&mut shell, asker, name));
    shell.send(asker, &wait(r#"{"timeout":300}"#));
    shell.pass_ms(299);
    assert_eq!(answer(&mut shell, asker), None);
    shell.pass_ms(2);
    let result = answer(&mut shell, asker).expect("the time is up");
    let missing = json!([{"behind":3,"client":format!("unix#{}", slow.0),"level":"none"}]);
    assert_eq!((&result["complete"], &result["missing"]), (&json!(false), &missing));
    // Who only wants to know waits for the shell, not for clients.
    unblock(&mut shell, slow);
    shell.slow_look = true;
    shell.send(asker, &wait(r#"{"timeout":0}"#));
    shell.pass_ms(100);
    assert_eq!(answer(&mut shell, asker), None);
    shell.do_look();
    shell.settle();
    assert_eq!(answer(&mut shell, asker).expect("the shell has said")["complete"], true);
}

#[test]
fn a_mark_is_never_older_than_what_is_waited_for() {
    let mut shell = Shell::start();
    let (asker, client) = (shell.connect(), watcher(&mut shell));
    shell.slow_look = true;
    shell.send(asker, &wait("{}"));
    shell.settle();
    assert!(shell.is_looking());
    // Another wait begins while the answer to an older question is on its way.
    let other = shell.connect();
    shell.received(client);
    shell.stuck.insert(client);
    add_port(&mut shell, other, "a");
    shell.send(other, &wait(r#"{"level":"written"}"#));
    shell.settle();
    shell.do_look();
    shell.settle();
    assert_eq!(answer(&mut shell, asker).expect("the first one")["complete"], true);
    assert_eq!(answer(&mut shell, other), None);
    shell.stuck.clear();
    for _ in 0..3 {
        shell.pass_ms(LOOK_MS);
        shell.do_look();
        shell.settle();
    }
    assert_eq!(answer(&mut shell, other).expect("it is written")["complete"], true);
}

#[test]
fn first_rows_count_once_they_are_on_their_way() {
    let mut shell = Shell::start();
    let (asker, client) = (shell.connect(), shell.connect());
    add_port(&mut shell, asker, "a");
    shell.server.set_step_cost_max(0);
    shell.slow_work = true;
    shell.send(client, &monitor("Port", "1"));
    shell.settle();
    assert_eq!(shell.work.len(), 1, "a helper composes the first rows");
    shell.send(asker, &wait("{}"));
    shell.pass_ms(200);
    assert_eq!(answer(&mut shell, asker), None);
    shell.do_work(0);
    shell.settle();
    shell.pass_ms(LOOK_MS);
    assert_eq!(answer(&mut shell, asker).expect("it has got its rows")["delivered"], 1);
}

#[test]
fn a_database_that_goes_ends_the_waits_for_it() {
    let mut shell = Shell::start();
    let (asker, slow) = (shell.connect(), watcher(&mut shell));
    let aware = r#"{"id":2,"method":"set_db_change_aware","params":[true]}"#;
    [asker, slow].into_iter().for_each(|client| drop(shell.call(client, aware)));
    block(&mut shell, slow);
    add_port(&mut shell, asker, "a");
    shell.send(asker, &wait("{}"));
    shell.settle();
    assert_eq!(shell.command("weir/wait-delivered", &["Net"]), None, "it waits");
    assert_eq!(shell.command("ovsdb-server/remove-db", &["Net"]), Some(Ok(String::new())));
    let told = shell.received(asker).join("");
    assert!(told.contains(r#"{"id":"w","error":"canceled"}"#), "{told}");
    let gone = Err("the database has been removed".to_owned());
    assert!(shell.replies.values().any(|reply| *reply == gone));
    let unknown = shell.command("weir/wait-delivered", &["Net"]);
    assert_eq!(unknown, Some(Err("no such database".to_owned())));
    assert!(shell.files.contains_key(PATH));
}

#[test]
fn a_conversion_does_not_lose_the_place() {
    let mut shell = Shell::start();
    let (asker, client) = (shell.connect(), watcher(&mut shell));
    let aware = r#"{"id":2,"method":"set_db_change_aware","params":[true]}"#;
    [asker, client].into_iter().for_each(|client| drop(shell.call(client, aware)));
    for i in 0..5 {
        add_port(&mut shell, asker, &format!("p{i}"));
    }
    let schema = crate::shell::SCHEMA.replace("1.0.0", "1.0.1");
    let convert = format!(r#"{{"id":3,"method":"convert","params":["Net",{schema}]}}"#);
    assert!(shell.call(asker, &convert).contains(r#""error":null"#));
    block(&mut shell, client);
    add_port(&mut shell, asker, "behind it");
    let table = shell.command("weir/delivery", &["Net"]).expect("at once").expect("a table");
    let row = format!("Net       unix#{}       1", client.0);
    assert!(table.lines().any(|line| line.starts_with(&row)), "{table}");
    shell.send(asker, &wait(r#"{"timeout":100}"#));
    shell.pass_ms(200);
    let result = answer(&mut shell, asker).expect("the time is up");
    assert_eq!(result["missing"][0]["behind"], 1, "{result}");
    unblock(&mut shell, client);
    shell.send(asker, &wait("{}"));
    shell.pass_ms(LOOK_MS);
    assert_eq!(answer(&mut shell, asker).expect("it has it")["complete"], true);
}

#[test]
fn an_id_of_an_update_names_what_is_waited_for() {
    let mut shell = Shell::start();
    let (asker, quick, slow) = (shell.connect(), shell.connect(), watcher(&mut shell));
    let zero = "00000000-0000-0000-0000-000000000000";
    let columns = r#"{"Port":{"columns":["name"]}}"#;
    let monitor = format!(
        r#"{{"id":7,"method":"monitor_cond_since","params":["Net",1,{columns},"{zero}"]}}"#
    );
    assert!(shell.call(quick, &monitor).contains("result"));
    let id_of = |shell: &mut Shell, name: &str| {
        shell.received(quick);
        add_port(shell, asker, name);
        let update = shell.received(quick).pop().expect("an update");
        let update: Value = serde_json::from_str(&update).expect("JSON");
        update["params"][1].as_str().expect("an id").to_owned()
    };
    let first = id_of(&mut shell, "a");
    shell.received(slow);
    block(&mut shell, slow);
    let second = id_of(&mut shell, "b");
    assert!(first != zero && second != zero && first != second);
    let is_delivered = |shell: &mut Shell, id: &str| {
        shell.send(asker, &wait(r#"{"timeout":100}"#).replace("now", id));
        shell.pass_ms(200);
        answer(shell, asker).expect("it ends")["complete"] == true
    };
    assert!(is_delivered(&mut shell, &first));
    assert!(!is_delivered(&mut shell, &second));
    unblock(&mut shell, slow);
    assert!(is_delivered(&mut shell, &second));
}

#[test]
fn the_table_of_deliveries_has_those_furthest_behind_first() {
    let mut shell = Shell::start();
    let head = "database  client  behind  queued  unacknowledged\n";
    assert_eq!(shell.command("weir/delivery", &[]), Some(Ok(head.to_owned())));
    let (asker, quick, slow) = (shell.connect(), watcher(&mut shell), watcher(&mut shell));
    assert_eq!((quick.0, slow.0), (1, 2), "their names are in the table");
    [quick, slow].into_iter().for_each(|client| drop(shell.received(client)));
    block(&mut shell, slow);
    add_port(&mut shell, asker, "a");
    shell.in_flight.insert(quick, 7);
    let rows = "Net       unix#2       1       0               0\n\
                Net       unix#1       0       0               7\n";
    for args in [&[][..], &["Net"]] {
        assert_eq!(shell.command("weir/delivery", args), Some(Ok(format!("{head}{rows}"))));
    }
    let server = shell.command("weir/delivery", &["_Server"]);
    assert_eq!(server, Some(Ok(head.to_owned())));
    let unknown = shell.command("weir/delivery", &["Nowhere"]);
    assert_eq!(unknown, Some(Err("no such database".to_owned())));
}

#[test]
fn an_admin_waits_as_a_client_does() {
    let mut shell = Shell::start();
    let (asker, slow, _quick) = (shell.connect(), watcher(&mut shell), watcher(&mut shell));
    block(&mut shell, slow);
    add_port(&mut shell, asker, "a");
    let one = shell.command("weir/wait-delivered", &["Net", "now", "1"]);
    assert_eq!(one, Some(Ok("1 of 2 clients have it\n".to_owned())));
    assert_eq!(shell.command("weir/wait-delivered", &["Net", "now", "all", "2"]), None);
    shell.pass_ms(2001);
    let text = format!("1 of 2 clients have it; the others: unix#{} (behind by 1)", slow.0);
    assert!(shell.replies.values().any(|reply| *reply == Err(text.clone())));
    assert_eq!(shell.command("weir/wait-delivered", &["Net", "now", "9", "2"]), None);
    shell.pass_ms(2001);
    let text = "1 of 2 clients have it, 9 are waited for; the others: unix#";
    let is_it =
        |reply: &Result<String, String>| reply.as_ref().is_err_and(|reply| reply.starts_with(text));
    assert!(shell.replies.values().any(is_it));
    for (words, error) in [
        (&["Net", "yesterday"][..], "\"now\" or the id of a transaction expected"),
        (&["Net", "now", "0"], "\"all\" or a number above 0 expected"),
        (&["Net", "now", "all", "soon"], "a number of seconds expected"),
    ] {
        let reply = shell.command("weir/wait-delivered", words);
        assert_eq!(reply, Some(Err(error.to_owned())), "{words:?}");
    }
}

#[test]
fn waits_are_not_kept_without_end() {
    let mut shell = Shell::start();
    let (asker, slow) = (shell.connect(), watcher(&mut shell));
    block(&mut shell, slow);
    add_port(&mut shell, asker, "a");
    let refused = |text: &str| text.contains("resources exhausted");
    (0..8).for_each(|_| shell.send(asker, &wait("{}")));
    shell.settle();
    assert!(shell.received(asker).is_empty());
    let reply = shell.call(asker, &wait("{}"));
    assert!(refused(&reply) && reply.contains("this client waits"), "{reply}");
    let mut clients = Vec::new();
    while clients.len() < 56 {
        let client = shell.connect();
        shell.send(client, &wait("{}"));
        clients.push(client);
    }
    shell.settle();
    assert!(clients.iter().all(|client| !shell.has_received(*client)));
    let last = shell.connect();
    assert!(refused(&shell.call(last, &wait("{}"))));
    // Who leaves makes room.
    shell.event(Event::Closed { session: asker, error: None });
    shell.send(last, &wait("{}"));
    shell.settle();
    assert!(!shell.has_received(last));
    unblock(&mut shell, slow);
    shell.pass_ms(LOOK_MS);
    assert!(answer(&mut shell, last).is_some());
}

#[test]
fn what_makes_no_sense_is_refused() {
    let mut shell = Shell::start();
    let client = shell.connect();
    for params in [
        r#"["Nowhere"]"#,
        r#"["Net","yesterday"]"#,
        r#"["Net","now",7]"#,
        r#"["Net","now",{"level":"read"}]"#,
        r#"["Net","now",{"count":0}]"#,
        r#"["Net","now",{"timeout":-1}]"#,
        r#"["Net","now",{"deadline":1}]"#,
        r#"["Net","now",{},1]"#,
        r#"["Net","550e8400-e29b-41d4-a716-446655440000"]"#,
        "[]",
    ] {
        let request = format!(r#"{{"id":"w","method":"weir_wait_delivered","params":{params}}}"#);
        let reply: Value = serde_json::from_str(&shell.call(client, &request)).expect("JSON");
        assert!(reply["error"]["error"].is_string(), "{params}: {reply}");
    }
    // All that is left out has a value.
    let short = r#"{"id":"w","method":"weir_wait_delivered","params":["Net"]}"#;
    shell.send(client, short);
    shell.pass_ms(LOOK_MS);
    assert_eq!(answer(&mut shell, client).expect("nobody watches")["clients"], 0);
}

/// However often somebody asks, all are looked at once in the shortest time between two looks.
#[test]
fn who_asks_again_and_again_does_not_have_all_looked_at_each_time() {
    let mut shell = Shell::start();
    let (asker, slow) = (shell.connect(), watcher(&mut shell));
    watcher(&mut shell);
    block(&mut shell, slow);
    add_port(&mut shell, asker, "a");
    let mut answers = 0;
    shell.send(asker, &wait(r#"{"timeout":0}"#));
    for _ in 0..100 {
        shell.now.monotonic_us += 20;
        shell.round();
        if let Some(result) = answer(&mut shell, asker) {
            assert_eq!((&result["clients"], &result["complete"]), (&json!(2), &json!(false)));
            answers += 1;
            shell.send(asker, &wait(r#"{"timeout":0}"#));
        }
    }
    assert!((2..=3).contains(&answers), "{answers} in 2 ms");
    assert_eq!(shell.looks.len(), answers);
}

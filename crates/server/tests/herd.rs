//! Monitors that begin with more rows than a step may compose: a helper composes them, once for all
//! that come meanwhile, while commits go on.

use crate::shell::{Shell, insert, transact};
use weir_server::event::{Event, SessionId};

const MONITOR: &str = r#"{"id":7,"method":"monitor_cond_since","params":["Net","mon",{"Port":{"columns":["name"]}},"00000000-0000-0000-0000-000000000000"]}"#;

/// A server with 200 ports for which 300 units are much, and 200 clients.
fn start() -> (Shell, Vec<SessionId>) {
    let mut shell = Shell::start();
    let client = shell.connect();
    let rows: Vec<String> = (0..200).map(|i| insert(&format!("old{i}"))).collect();
    shell.call(client, &transact(1, &rows.join(",")));
    shell.server.set_step_cost_max(300);
    shell.slow_work = true;
    let clients = (0..200).map(|_| shell.connect()).collect();
    (shell, clients)
}

fn ask(shell: &mut Shell, clients: &[SessionId]) {
    for client in clients {
        shell.send(*client, MONITOR);
        shell.round();
    }
    shell.settle();
}

/// The first reply and what follows it.
fn messages(shell: &mut Shell, client: SessionId) -> (String, Vec<String>) {
    let mut received = shell.received(client);
    assert!(!received.is_empty(), "no reply");
    let first = received.remove(0);
    assert!(first.starts_with(r#"{"id":7,"result":[false,"#), "{first}");
    (first, received)
}

#[test]
fn a_herd_is_composed_for_twice_however_big_it_is() {
    let (mut shell, clients) = start();
    ask(&mut shell, &clients);
    // The first one's, and one for all who came while that was composed.
    while !shell.work.is_empty() {
        shell.do_work(0);
        shell.settle();
    }
    assert_eq!(shell.sent_out, ["Initial", "Initial"]);
    for client in clients {
        let (first, updates) = messages(&mut shell, client);
        assert_eq!(first.matches("old").count(), 200);
        assert_eq!(updates, Vec::<String>::new());
    }
}

#[test]
fn a_commit_before_the_request_is_in_the_reply_and_one_after_it_is_told_later() {
    let (mut shell, clients) = start();
    let writer = shell.connect();
    ask(&mut shell, &clients[..1]);
    assert!(shell.call(writer, &transact(2, &insert("between"))).contains("uuid"));
    ask(&mut shell, &clients[1..2]);
    shell.do_work(0);
    shell.settle();
    let (first, updates) = messages(&mut shell, clients[0]);
    assert!(!first.contains("between"));
    assert_eq!(updates.len(), 1, "{updates:?}");
    assert!(updates[0].contains(r#"{"insert":{"name":"between"}}"#), "{updates:?}");
    assert_eq!(shell.received(clients[1]), Vec::<String>::new());
    assert!(shell.call(writer, &transact(3, &insert("later"))).contains("uuid"));
    shell.do_work(0);
    shell.settle();
    let (first, updates) = messages(&mut shell, clients[1]);
    assert!(first.contains("between") && !first.contains("later"), "{first}");
    assert_eq!(updates.len(), 1, "{updates:?}");
    assert!(updates[0].contains(r#"{"insert":{"name":"later"}}"#), "{updates:?}");
}

#[test]
fn nothing_more_is_composed_while_clients_have_much_to_take() {
    let (mut shell, clients) = start();
    ask(&mut shell, &clients[..2]);
    // Somebody's first rows were many, and are not taken.
    shell.hoard = true;
    let writer = shell.connect();
    shell.server.set_step_cost_max(u64::MAX);
    let big = format!(
        r#"{{"op":"insert","table":"Port","row":{{"name":"big","tags":"{}"}}}}"#,
        "x".repeat(70 << 20)
    );
    shell.slow_work = false;
    assert!(shell.call(writer, &transact(2, &big)).contains("uuid"));
    shell.slow_work = true;
    shell.server.set_step_cost_max(300);
    let all = MONITOR.replace(r#"["name"]"#, r#"["name","tags"]"#);
    for (i, client) in clients[2..4].iter().enumerate() {
        // Each asks for something of its own.
        let own =
            all.replace(r#"{"columns""#, &format!(r#"{{"where":[["name","!=","{i}"]],"columns""#));
        shell.send(*client, &own);
        shell.settle();
    }
    shell.sent_out.clear();
    while !shell.work.is_empty() {
        shell.do_work(0);
        shell.settle();
    }
    let served = |shell: &Shell| {
        let replied = clients[2..4].iter().filter(|client| shell.has_received(**client));
        replied.count()
    };
    // Both had begun before any was sent.
    assert_eq!(served(&shell), 2);
    shell.send(clients[6], &all);
    shell.settle();
    assert!(shell.work.is_empty(), "there is room");
    assert!(shell.server.next_wakeup_us().is_some());
    // Clients that do not take theirs hold up others for so long only.
    shell.advance_ms(5001);
    shell.settle();
    assert_eq!(shell.work.len(), 1);
}

#[test]
fn who_leaves_or_loses_the_database_meanwhile_harms_nobody() {
    let (mut shell, clients) = start();
    let aware = r#"{"id":1,"method":"set_db_change_aware","params":[true]}"#;
    shell.call(clients[2], aware);
    ask(&mut shell, &clients[..3]);
    shell.event(Event::Closed { session: clients[0], error: None });
    shell.settle();
    assert_eq!(shell.command("ovsdb-server/remove-db", &["Net"]), Some(Ok(String::new())));
    while !shell.work.is_empty() {
        shell.do_work(0);
        shell.settle();
    }
    let received = shell.received(clients[2]);
    let canceled = r#"{"id":7,"error":"canceled"}"#;
    assert!(received.iter().any(|message| message == canceled), "{received:?}");
    assert!(
        shell.call(clients[2], r#"{"id":2,"method":"list_dbs","params":[]}"#).contains("_Server")
    );
}

#[test]
fn while_the_tables_are_away_monitors_begin_with_what_was_committed() {
    let (mut shell, clients) = start();
    let writer = shell.connect();
    let tag = r#"{"op":"mutate","table":"Port","where":[["name","!=",""]],"mutations":[["tags","insert","t"]]}"#;
    shell.send(writer, &transact(1, &format!("{tag},{}", insert("new"))));
    shell.settle();
    ask(&mut shell, &clients[..1]);
    assert_eq!(shell.sent_out, ["Write", "Initial"]);
    shell.do_work(1);
    shell.settle();
    let (first, updates) = messages(&mut shell, clients[0]);
    assert_eq!(first.matches("old").count(), 200);
    assert!(!first.contains("new") && updates.is_empty());
    shell.do_work(0);
    shell.settle();
    assert_eq!(shell.sent_out, ["Write", "Initial", "Updates"]);
    shell.do_work(0);
    shell.settle();
    let updates = shell.received(clients[0]);
    assert_eq!(updates.len(), 1);
    assert!(updates[0].contains(r#"{"insert":{"name":"new"}}"#), "{updates:?}");
}

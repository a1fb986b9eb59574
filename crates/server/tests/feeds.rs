//! Monitors that are told each change by itself share what a step suffices for, however many they are and
//! whoever has them.

use std::ops::Range;

use crate::shell::{Shell, transact};
use weir_server::event::{Event, SessionId};

/// What a step tells all of them, in bytes.
const STEP_BYTES_MAX: usize = 256 << 10;
const ZERO: &str = "00000000-0000-0000-0000-000000000000";

/// A server whose only table has twelve columns, so that there are thousands of different monitors.
fn start() -> Shell {
    let columns: Vec<String> = (0..12).map(|i| format!(r#""c{i}":{{"type":"string"}}"#)).collect();
    let schema = format!(
        r#"{{"name":"Net","version":"1.0.0","tables":{{"Port":{{"columns":{{{}}}}}}}}}"#,
        columns.join(",")
    );
    let schema = weir_data::Schema::parse_bytes(schema.as_bytes()).unwrap();
    let mut file = Vec::new();
    weir_log::standalone::write_schema(&mut file, &schema);
    Shell::start_on(file)
}

/// A client with these monitors, each of other columns, all of which have `c11`.
fn watcher(shell: &mut Shell, numbers: Range<usize>) -> SessionId {
    let client = shell.connect();
    for n in numbers {
        assert!(shell.call(client, &request(n)).contains("result"));
    }
    client
}

/// Asks for the monitor of this number.
fn request(n: usize) -> String {
    let chosen = (0..11).filter(|i| n >> i & 1 == 1).chain([11]);
    let columns: Vec<String> = chosen.map(|i| format!(r#""c{i}""#)).collect();
    format!(
        r#"{{"id":1,"method":"weir_monitor","params":["Net","w{n}",{{"Port":{{"columns":[{}]}}}},"{ZERO}",{{"each":true}}]}}"#,
        columns.join(",")
    )
}

/// Somebody inserts a row with so many bytes in a transaction of its own.
fn write(shell: &mut Shell, bytes: usize) {
    let writer = shell.connect();
    let row =
        format!(r#"{{"op":"insert","table":"Port","row":{{"c11":"{}"}}}}"#, "x".repeat(bytes));
    shell.send(writer, &transact(1, &row));
    shell.round();
    assert!(shell.received(writer)[0].contains("uuid"));
}

/// One step of updates: how many each client was told, and how long they were together.
fn step(shell: &mut Shell, clients: &[SessionId]) -> (Vec<usize>, usize) {
    assert!(shell.server.has_pending_updates(), "there is more to tell");
    shell.server.flush_updates(shell.now);
    shell.pump();
    let told: Vec<Vec<String>> = clients.iter().map(|client| shell.received(*client)).collect();
    (told.iter().map(Vec::len).collect(), told.iter().flatten().map(String::len).sum())
}

#[test]
fn what_many_monitors_of_one_who_was_behind_are_told_comes_in_steps() {
    let mut shell = start();
    let client = watcher(&mut shell, 0..20);
    shell.event(Event::Blocked { session: client });
    (0..100).for_each(|_| write(&mut shell, 20_000));
    shell.settle();
    shell.event(Event::Drained { session: client });
    let (mut told, mut steps) = (0, 0);
    while told < 20 * 100 {
        let (more, bytes) = step(&mut shell, &[client]);
        assert!(bytes <= STEP_BYTES_MAX + 21_000, "{bytes} in step {steps}");
        (told, steps) = (told + more[0], steps + 1);
    }
    assert_eq!(told, 20 * 100);
    assert!(steps >= 20 * 100 * 20_000 / (STEP_BYTES_MAX + 21_000), "{steps}");
    assert!(!shell.server.has_pending_updates());
}

#[test]
fn who_is_far_behind_takes_turns_with_who_is_not() {
    let mut shell = start();
    let (behind, quick) = (watcher(&mut shell, 0..1), watcher(&mut shell, 1..3));
    shell.event(Event::Blocked { session: behind });
    (0..100).for_each(|_| write(&mut shell, 20_000));
    shell.settle();
    shell.received(quick);
    shell.event(Event::Drained { session: behind });
    write(&mut shell, 1);
    let (mut to_behind, mut to_quick) = (0, 0);
    for _ in 0..2 {
        let (told, _) = step(&mut shell, &[behind, quick]);
        (to_behind, to_quick) = (to_behind + told[0], to_quick + told[1]);
    }
    assert_eq!(to_quick, 2, "both its monitors have been told");
    assert!((10..30).contains(&to_behind), "{to_behind}");
    shell.settle();
    assert_eq!(to_behind + shell.received(behind).len(), 101);
}

/// A relay at a source that others write to without a pause has never been told all.
#[test]
fn who_is_told_each_change_is_answered_before_it_has_been_told_all() {
    let mut shell = start();
    let behind = watcher(&mut shell, 0..1);
    shell.event(Event::Blocked { session: behind });
    (0..100).for_each(|_| write(&mut shell, 20_000));
    shell.settle();
    shell.event(Event::Drained { session: behind });
    shell.send(behind, r#"{"id":9,"method":"weir_sync","params":["Net",1000]}"#);
    shell.round();
    let received = shell.received(behind);
    let is_answer = |text: &&String| text.starts_with(r#"{"id":9,"result":{}"#);
    assert_eq!(received.iter().filter(is_answer).count(), 1, "{} messages", received.len());
    assert!(received.len() < 100, "{} messages", received.len());
    shell.settle();
    assert_eq!(received.len() + shell.received(behind).len(), 101);
}

#[test]
fn a_small_change_is_told_to_very_many_in_steps() {
    let mut shell = start();
    let clients: Vec<SessionId> =
        (0..4).map(|n| watcher(&mut shell, 400 * n..400 * (n + 1))).collect();
    write(&mut shell, 1);
    let (mut told, mut steps) = (vec![0; 4], 0);
    while told.iter().sum::<usize>() < 1600 {
        let (more, _) = step(&mut shell, &clients);
        assert!((200..1100).contains(&more.iter().sum::<usize>()), "{more:?} in step {steps}");
        told = told.iter().zip(more).map(|(told, more)| told + more).collect();
        steps += 1;
    }
    assert_eq!((told, steps), (vec![400; 4], 2));
}

#[test]
fn equal_monitors_share_what_is_composed_whenever_they_came() {
    let mut shell = start();
    let clients: Vec<SessionId> = (0..5).map(|_| watcher(&mut shell, 0..400)).collect();
    write(&mut shell, 1);
    assert_eq!(step(&mut shell, &clients).0, [400; 5]);
}

/// All rows of a large database take their time on a slow line, and the changes that come meanwhile are more than the
/// log keeps, 16 MiB at most.
#[test]
fn who_is_further_behind_than_the_log_reaches_is_told_all_the_same() {
    let mut shell = start();
    let client = watcher(&mut shell, 0..1);
    shell.event(Event::Blocked { session: client });
    for _ in 0..200 {
        write(&mut shell, 100_000);
        shell.settle();
    }
    shell.event(Event::Drained { session: client });
    let mut told = 0;
    while told < 200 {
        told += step(&mut shell, &[client]).0[0];
    }
    assert!(!shell.server.has_pending_updates());
    write(&mut shell, 100);
    assert_eq!(step(&mut shell, &[client]).0, [1], "it is not disconnected");
}

/// The log of a database whose file is short has 1 MiB.
#[test]
fn a_transaction_longer_than_the_log_of_changes_is_told_all_the_same() {
    let mut shell = start();
    let clients = [watcher(&mut shell, 0..1), watcher(&mut shell, 0..1)];
    shell.event(Event::Blocked { session: clients[1] });
    for bytes in [100, 3 << 20, 100, 5 << 20] {
        write(&mut shell, bytes);
        assert_eq!(step(&mut shell, &clients).0, [1, 0]);
    }
    shell.event(Event::Drained { session: clients[1] });
    let mut told = 0;
    while told < 4 {
        told += step(&mut shell, &clients).0[1];
    }
    write(&mut shell, 100);
    assert_eq!(step(&mut shell, &clients).0, [1, 1], "they are not disconnected");
}

/// A helper takes its time to compose all rows, and what comes meanwhile is kept for whom they are.
#[test]
fn who_begins_with_a_state_that_has_left_the_log_is_told_what_came_behind_it() {
    // Within what is kept for who is behind, and beyond it.
    for (meanwhile, is_told) in [(20, true), (160, false)] {
        let mut shell = start();
        let behind = watcher(&mut shell, 0..1);
        shell.event(Event::Blocked { session: behind });
        (0..10).for_each(|_| write(&mut shell, 100_000));
        shell.settle();
        shell.slow_work = true;
        shell.server.set_step_cost_max(300);
        let late = shell.connect();
        shell.send(late, &request(0));
        shell.settle();
        assert_eq!(shell.work.len(), 1, "a helper composes its rows");
        shell.server.set_step_cost_max(u64::MAX);
        (0..meanwhile).for_each(|_| write(&mut shell, 1_000_000));
        while !shell.work.is_empty() {
            shell.do_work(0);
            shell.settle();
        }
        let received = shell.received(late);
        let told = received.iter().filter(|message| message.contains("weir_update")).count();
        let expected = if is_told { (meanwhile, false) } else { (0, true) };
        assert_eq!((told, shell.disconnected.contains(&late)), expected, "{meanwhile}");
        if is_told {
            shell.event(Event::Drained { session: behind });
            shell.settle();
            assert_eq!(shell.received(behind).len(), 10 + meanwhile);
        }
    }
}

#[test]
fn what_was_kept_for_who_was_behind_goes_with_him() {
    /// What the log keeps for who comes back, and a chunk.
    const LOG_BYTES_MAX: usize = 17 << 20;
    let mut shell = start();
    let client = watcher(&mut shell, 0..1);
    shell.event(Event::Blocked { session: client });
    (0..250).for_each(|_| write(&mut shell, 100_000));
    shell.settle();
    assert!(shell.server.change_log_bytes() > LOG_BYTES_MAX, "what it has not been told");
    shell.event(Event::Closed { session: client, error: None });
    shell.settle();
    assert!(shell.server.change_log_bytes() < LOG_BYTES_MAX);
    (0..100).for_each(|_| write(&mut shell, 100_000));
    assert!(shell.server.change_log_bytes() < LOG_BYTES_MAX);
}

/// Rows that a helper composes while the database becomes another one, with a table more.
/// The shell of these tests sees to it that a session is let go once.
#[test]
fn who_has_several_monitors_is_let_go_once_when_changes_are_kept_no_longer() {
    let mut shell = start();
    let (several, one) = (watcher(&mut shell, 0..3), watcher(&mut shell, 3..4));
    shell.event(Event::Blocked { session: several });
    let off = shell.command("weir/standalone-history", &["off"]);
    assert_eq!(off, Some(Ok(String::new())));
    assert_eq!(shell.disconnected, [several, one]);
}

#[test]
fn who_has_no_first_rows_when_the_schema_changes_is_told_each_change_or_that_the_monitor_ends() {
    let mut shell = start();
    (0..10).for_each(|_| write(&mut shell, 1000));
    let (client, operator) = (shell.connect(), shell.connect());
    for session in [client, operator] {
        shell.call(session, r#"{"id":"a","method":"set_db_change_aware","params":[true]}"#);
    }
    shell.slow_work = true;
    shell.server.set_step_cost_max(100);
    shell.send(client, &request(0));
    shell.settle();
    assert_eq!(shell.work.len(), 1, "a helper composes its rows");
    shell.server.set_step_cost_max(u64::MAX);
    let columns: Vec<String> = (0..12).map(|i| format!(r#""c{i}":{{"type":"string"}}"#)).collect();
    let schema = format!(
        r#"{{"name":"Net","version":"2.0.0","tables":{{"Port":{{"columns":{{{}}}}},"More":{{"columns":{{"x":{{"type":"integer"}}}}}}}}}}"#,
        columns.join(",")
    );
    let convert = format!(r#"{{"id":"c","method":"convert","params":["Net",{schema}]}}"#);
    let told = shell.call(operator, &convert);
    assert!(told.contains(r#""result":{}"#), "{told}");
    while !shell.work.is_empty() {
        shell.do_work(0);
        shell.settle();
    }
    let received = shell.received(client);
    let is_over = received.iter().any(|message| message.contains("monitor_canceled"));
    shell.call(operator, &transact(7, r#"{"op":"insert","table":"Port","row":{"c11":"new"}}"#));
    shell.settle();
    let told = shell.received(client);
    let is_told = told.iter().filter(|message| message.contains("weir_update")).count() == 1;
    assert!(is_over != is_told && told.len() == usize::from(is_told), "{received:#?} {told:#?}");
}

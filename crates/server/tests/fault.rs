//! Disks that are full or fail: who is told what, and how it ends.

use crate::shell::{Lost, PATH, SCHEMA, Shell, insert, ports, transact};

const FULL: &str = "No space left on device";

fn log_lines(shell: &Shell, part: &str) -> usize {
    shell.log.iter().filter(|line| line.contains(part)).count()
}

#[test]
fn a_full_disk_is_logged_when_it_begins_and_when_it_ends() {
    let mut shell = Shell::start();
    let client = shell.connect();
    shell.disk_error = Some(FULL);
    for number in 1..5 {
        let reply = shell.call(client, &transact(number, &insert(&format!("p{number}"))));
        assert!(reply.contains(r#""error":"I/O error","io-error":"No space left on device""#));
    }
    let status = |shell: &mut Shell| shell.command("ovsdb-server/get-db-storage-status", &["Net"]);
    let fault = format!("status: I/O error: write failed ({FULL})");
    assert_eq!(status(&mut shell), Some(Ok(fault)));
    assert_eq!(ports(&mut shell), Vec::<String>::new());
    shell.disk_error = None;
    for number in 5..8 {
        shell.call(client, &transact(number, &insert(&format!("p{number}"))));
    }
    assert_eq!(status(&mut shell), Some(Ok("status: ok".into())));
    assert_eq!(ports(&mut shell), ["p5", "p6", "p7"]);
    assert_eq!(log_lines(&shell, "write failed (No space left on device)"), 1);
    assert_eq!(log_lines(&shell, "written again"), 1);
}

#[test]
fn after_a_failed_sync_the_file_is_rewritten_before_anything_is_promised_again() {
    let mut shell = Shell::start();
    shell.slow_helper = true;
    let client = shell.connect();
    let durable = |name: &str| format!(r#"{},{{"op":"commit","durable":true}}"#, insert(name));
    // Answered, and not promised to be on the disk.
    shell.call(client, &transact(1, &insert("p1")));
    shell.sync_error = Some("Input/output error");
    for number in 2..4 {
        let reply = shell.call(client, &transact(number, &durable("p2")));
        assert!(reply.contains(r#""io-error":"Input/output error""#), "{reply}");
    }
    // Nor is anything written that nobody could read after a crash.
    let reply = shell.call(client, &transact(4, &insert("p2")));
    assert!(reply.contains(r#""io-error":"Input/output error""#), "{reply}");
    assert_eq!(ports(&mut shell), ["p1"]);
    shell.sync_error = None;
    shell.helper_is_done();
    shell.settle();
    let reply = shell.call(client, &transact(5, &durable("p3")));
    assert!(!reply.contains("error\":{"), "{reply}");
    let lost = Lost { kept: 0, filler: None, old_name: true };
    let file = shell.after_power_failure(PATH, lost);
    assert_eq!(ports(&mut Shell::start_on(file)), ["p1", "p3"]);
    assert_eq!(log_lines(&shell, "write failed"), 1);
}

/// A copy that takes the file's place ends what was wrong with the old one, whatever it was made for.
#[test]
fn a_conversion_of_a_suspect_file_ends_its_fault() {
    let mut shell = Shell::start();
    let (client, converter) = (shell.connect(), shell.connect());
    shell.slow_helper = true;
    let schema = SCHEMA.replace("1.0.0", "2.0.0");
    shell.send(converter, &format!(r#"{{"id":1,"method":"convert","params":["Net",{schema}]}}"#));
    shell.settle();
    shell.sync_error = Some("Input/output error");
    let durable = format!(r#"{},{{"op":"commit","durable":true}}"#, insert("p1"));
    let reply = shell.call(client, &transact(2, &durable));
    assert!(reply.contains(r#""io-error":"Input/output error""#), "{reply}");
    shell.sync_error = None;
    shell.slow_helper = false;
    shell.helper_is_done();
    shell.settle();
    let status = shell.command("ovsdb-server/get-db-storage-status", &["Net"]);
    assert_eq!(status, Some(Ok("status: ok".to_owned())));
    assert_eq!((log_lines(&shell, "converted in"), log_lines(&shell, "written again")), (1, 1));
}

#[test]
fn rewriting_is_tried_until_it_works() {
    let mut shell = Shell::start();
    let client = shell.connect();
    shell.call(client, &transact(1, &insert("p1")));
    shell.sync_error = Some("Input/output error");
    shell.slow_helper = true;
    let durable = format!(r#"{},{{"op":"commit","durable":true}}"#, insert("p2"));
    shell.call(client, &transact(2, &durable));
    // The copy cannot be written either.
    shell.disk_error = Some(FULL);
    shell.helper_is_done();
    shell.settle();
    shell.slow_helper = false;
    for _ in 0..3 {
        shell.advance_ms(5_000);
        shell.settle();
    }
    assert_eq!(log_lines(&shell, "compaction failed"), 0);
    (shell.sync_error, shell.disk_error) = (None, None);
    shell.advance_ms(5_000);
    shell.settle();
    let reply = shell.call(client, &transact(3, &durable));
    assert!(!reply.contains("error\":{"), "{reply}");
    assert_eq!(ports(&mut shell), ["p1", "p2"]);
}

/// Updates all ports: too long for a step of a few units.
const TAG_ALL: &str = r#"{"op":"mutate","table":"Port","where":[["name","!=",""]],"mutations":[["tags","insert","t"]]}"#;

#[test]
fn a_suspect_file_is_rewritten_while_its_tables_are_away() {
    let mut shell = Shell::start();
    let client = shell.connect();
    let rows: Vec<String> = (0..300).map(|i| insert(&format!("old{i}"))).collect();
    shell.call(client, &transact(1, &rows.join(",")));
    (shell.slow_work, shell.slow_helper) = (true, true);
    shell.sync_error = Some("Input/output error");
    let durable = format!(r#"{},{{"op":"commit","durable":true}}"#, insert("p"));
    shell.call(client, &transact(2, &durable));
    // The first copy does not succeed either; before the second one the tables leave.
    shell.disk_error = Some(FULL);
    shell.helper_is_done();
    shell.settle();
    (shell.sync_error, shell.disk_error) = (None, None);
    shell.server.set_step_cost_max(500);
    shell.send(client, &transact(3, TAG_ALL));
    shell.settle();
    assert_eq!(shell.sent_out, ["Write"]);
    shell.advance_ms(5_000);
    shell.settle();
    assert!(shell.server.next_wakeup_us().is_none_or(|at| at > shell.now.monotonic_us), "spins");
    shell.helper_is_done();
    shell.settle();
    assert!(shell.server.next_wakeup_us().is_none_or(|at| at > shell.now.monotonic_us), "spins");
    shell.server.set_step_cost_max(u64::MAX);
    shell.do_work(0);
    shell.settle();
    assert!(shell.received(client).concat().contains(r#"{"count":300}"#));
    let lost = Lost { kept: 0, filler: None, old_name: false };
    assert_eq!(ports(&mut Shell::start_on(shell.after_power_failure(PATH, lost))).len(), 300);
    assert_eq!(ports(&mut Shell::start_on(shell.after_kill(PATH))).len(), 300);
    let file = String::from_utf8(shell.after_kill(PATH)).unwrap();
    assert_eq!(file.matches(r#""tags":"t""#).count(), 300);
}

/// A file with three ports, and perhaps a record that breaks their index.
fn file_of_ports(is_broken: bool) -> Vec<u8> {
    let mut shell = Shell::start();
    let client = shell.connect();
    for number in 0..3 {
        shell.call(client, &transact(number, &insert(&format!("p{number}"))));
    }
    let mut file = shell.after_kill(PATH);
    if is_broken {
        let again = r#"{"Port":{"00000000-0000-4000-8000-000000000001":{"name":"p1"}}}"#;
        weir_log::record::write_record(&mut file, again.as_bytes());
    }
    file
}

#[test]
fn a_file_with_records_that_were_passed_over_is_compacted_only_when_somebody_asks() {
    for is_broken in [false, true] {
        let mut shell = Shell::start_on(file_of_ports(is_broken));
        assert_eq!(
            log_lines(&shell, "1 records that break integrity were passed over"),
            usize::from(is_broken)
        );
        assert_eq!(
            log_lines(&shell, "constraint violation: Transaction causes multiple rows"),
            usize::from(is_broken)
        );
        assert_eq!(ports(&mut shell).len(), 3);
        shell.pass_ms(30 * 3_600_000);
        assert_eq!(log_lines(&shell, "compacted in"), usize::from(!is_broken));
        let is_there = shell.after_kill(PATH).windows(8).any(|bytes| bytes == b"8000-000");
        assert_eq!(is_there, is_broken);
        assert_eq!(shell.command("ovsdb-server/compact", &[]), Some(Ok(String::new())));
        assert_eq!(ports(&mut Shell::start_on(shell.after_kill(PATH))).len(), 3);
        let client = shell.connect();
        for number in 0..3 {
            shell.call(client, &transact(number, &insert(&format!("q{number}"))));
        }
        shell.pass_ms(30 * 3_600_000);
        assert_eq!(log_lines(&shell, "compacted in"), 2 + usize::from(!is_broken));
    }
}

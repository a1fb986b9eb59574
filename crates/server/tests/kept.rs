//! What one client may make the server keep for it is bounded, however it goes about it.

mod shell;

use shell::{Shell, transact};

/// Sends requests of about `bytes` each until the session is disconnected; how many it took.
fn until_disconnected(bytes: usize, request: impl Fn(usize, &str) -> String) -> usize {
    let mut shell = Shell::start();
    let (greedy, other) = (shell.connect(), shell.connect());
    let padding = "x".repeat(bytes);
    for i in 0..1000 {
        shell.send(greedy, &request(i, &padding));
        shell.settle();
        shell.received(greedy);
        if !shell.disconnected.is_empty() {
            assert_eq!(shell.disconnected, [greedy]);
            assert!(shell.log.iter().any(|line| line.contains("exceed their limit")));
            let reply = shell.call(other, &transact(1, &shell::insert("p")));
            assert!(reply.contains("uuid"), "{reply}");
            return i;
        }
    }
    panic!("never disconnected");
}

/// So many requests of 8 MiB are within the limit.
const FEW: std::ops::RangeInclusive<usize> = 28..=33;

const BYTES: usize = 8 << 20;

#[test]
fn waiting_transactions() {
    let count = until_disconnected(BYTES, |i, padding| {
        let wait = format!(
            r#"{{"op":"wait","table":"Port","where":[],"columns":["name"],"until":"==","rows":[{{"name":"{padding}"}}]}}"#
        );
        transact(i as u32, &wait)
    });
    assert!(FEW.contains(&count), "{count}");
}

#[test]
fn monitors() {
    let count = until_disconnected(BYTES, |i, padding| {
        let id = format!("{i}{padding}");
        format!(r#"{{"id":1,"method":"monitor","params":["Net","{id}",{{"Port":{{}}}}]}}"#)
    });
    assert!(FEW.contains(&count), "{count}");
}

#[test]
fn locks() {
    let count = until_disconnected(BYTES, |i, padding| {
        format!(r#"{{"id":1,"method":"lock","params":["l{i}{padding}"]}}"#)
    });
    assert!(FEW.contains(&count), "{count}");
}

//! Three clients send whatever they like to a server with one database, over a full or an empty
//! disk, with compactions in between. A line is a message; its first byte says whose it is, and
//! what else happens. Every answer is a message, and the file opens.
#![no_main]

#[path = "../../crates/server/tests/shell/mod.rs"]
mod shell;

use libfuzzer_sys::fuzz_target;
use shell::{PATH, Shell};
use weir_json::{Framer, validate};
use weir_server::event::{Event, SessionId};
use weir_wire::Message;

/// Everything sent to this client is JSON-RPC.
fn check(shell: &mut Shell, client: SessionId) {
    for message in shell.received(client) {
        let text = validate(message.as_bytes()).expect("an answer is JSON");
        assert!(Message::parse(text).is_ok(), "{message}");
    }
}

fn is_framed(message: &[u8]) -> bool {
    Framer::new().feed(message).is_ok_and(|end| end == Some(message.len()))
}

fuzz_target!(|input: &[u8]| {
    let mut shell = Shell::start();
    let mut clients: Vec<SessionId> = (0..3).map(|_| shell.connect()).collect();
    for line in input.split(|byte| *byte == b'\n') {
        let Some((&first, message)) = line.split_first() else { continue };
        let client = usize::from(first % 3);
        match first {
            b'C' => drop(shell.command("ovsdb-server/compact", &[])),
            b'F' => shell.disk_error = Some("No space left on device"),
            b'E' => shell.disk_error = None,
            b'T' => shell.advance_ms(1000),
            b'B' => shell.event(Event::Blocked { session: clients[client] }),
            b'D' => shell.event(Event::Drained { session: clients[client] }),
            b'X' => shell.event(Event::Closed { session: clients[client], error: None }),
            _ if is_framed(message) => {
                let bytes = message.to_vec();
                shell.event(Event::Message { session: clients[client], bytes });
            }
            _ => {}
        }
        // Small letters share a round with what follows.
        if !first.is_ascii_lowercase() {
            shell.settle();
        }
        if first == b'X' || shell.disconnected.contains(&clients[client]) {
            clients[client] = shell.connect();
        }
        clients.iter().for_each(|client| check(&mut shell, *client));
    }
    shell.disk_error = None;
    shell.settle();
    clients.iter().for_each(|client| check(&mut shell, *client));
    Shell::start_on(shell.after_kill(PATH));
});

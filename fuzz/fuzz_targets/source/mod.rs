//! A source that says whatever it likes to a relay, while a client writes and reads through it. A line is a
//! message; its first byte says what else happens. The relay goes on, and every answer is a message.

#[path = "../../../crates/server/tests/shell/mod.rs"]
mod shell;

use serde_json::{Value, json};
use shell::{SCHEMA, Shell, insert, transact};
use weir_json::{Framer, validate};
use weir_server::Config;
use weir_server::event::{Event, LinkId};
use weir_wire::Message;

const ROW: &str = "aaaaaaaa-0000-4000-8000-000000000001";

fn say(shell: &mut Shell, link: LinkId, message: &[u8]) {
    if shell.links.contains_key(&link) {
        shell.event(Event::LinkMessage { link, bytes: message.to_vec() });
    }
}

/// Answers what the relay has asked for as a server does that is well and has these features.
fn answer(shell: &mut Shell, link: LinkId, features: &[&str]) {
    let Some(bytes) = shell.links.get_mut(&link).map(std::mem::take) else { return };
    let requests = serde_json::Deserializer::from_slice(&bytes).into_iter::<Value>();
    for request in requests.map(|request| request.expect("requests are JSON")) {
        let row = json!({"name":"Net","model":"standalone","connected":true,"leader":true,"schema":SCHEMA});
        let rows = json!({"Port": {ROW: {"initial": {"name": "a"}}}});
        let result = match request["method"].as_str() {
            Some("weir_features") => json!(features),
            Some("monitor_cond") => json!({"Database": {ROW: {"initial": row}}}),
            Some("monitor_cond_since" | "weir_monitor") => json!([false, ROW, rows]),
            // Columns that no file keeps.
            Some("monitor") => json!({"Port": {ROW: {"new": {"up": true}}}}),
            Some("weir_path") => json!({"servers": [ROW], "connected": true}),
            Some("weir_transact") => json!({"id": ROW, "results": [{}]}),
            Some(_) => json!({}),
            // A reply of the relay's.
            None => continue,
        };
        let reply = json!({"id": request["id"], "result": result, "error": null});
        say(shell, link, reply.to_string().as_bytes());
    }
}

/// The relay of a source that says what is in the input.
pub fn run(input: &[u8], features: &[&str]) {
    let config = Config { databases: vec!["relay:Net:tcp:h:1".into()], ..Config::default() };
    let mut shell = Shell::start_with(b"relay".to_vec(), config);
    let client = shell.connect();
    let (mut link, mut number) = (None, 0);
    for line in input.split(|byte| *byte == b'\n') {
        let Some((&first, message)) = line.split_first() else { continue };
        if let Some((next, _)) = shell.connecting.pop() {
            shell.event(Event::LinkUp { link: next });
            link = Some(next);
        }
        let open = link.filter(|link| shell.links.contains_key(link));
        match (first, open) {
            (b'T', _) => shell.pass_ms(1000),
            (b'L', _) => shell.slow_work = true,
            (b'H', _) => {
                shell.slow_work = false;
                while !shell.work.is_empty() {
                    shell.do_work(0);
                }
            }
            (b'W', _) => {
                number += 1;
                shell.send(client, &transact(number, &insert("b")));
            }
            (b'D', Some(link)) => {
                shell.links.remove(&link);
                shell.event(Event::LinkDown { link, error: None });
            }
            (b'A', Some(link)) => (0..5).for_each(|_| {
                answer(&mut shell, link, features);
                shell.settle();
            }),
            (_, Some(link)) if Framer::new().feed(message).is_ok_and(|end| end == Some(message.len())) => {
                say(&mut shell, link, message);
            }
            _ => {}
        }
        // Small letters share a round with what follows.
        if !first.is_ascii_lowercase() {
            shell.settle();
        }
        for message in shell.received(client) {
            let text = validate(message.as_bytes()).expect("an answer is JSON");
            assert!(Message::parse(text).is_ok(), "{message}");
        }
    }
}

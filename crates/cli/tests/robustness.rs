//! What clients may do to the server: half messages, noise, floods, big things, and never reading.
//! It answers or hangs up, serves the others, and its memory stays within bounds.

use std::io::Write;
use std::net::Shutdown;
use std::thread;
use std::time::Duration;

use crate::peer::{Client, Server, create, insert, transact};
use crate::support::{Scratch, eventually};
use weir_testkit::rng::Rng;

fn server() -> (Scratch, Server) {
    let scratch = Scratch::new();
    create(&scratch, "net.db");
    let server = Server::start(&scratch);
    (scratch, server)
}

/// Whether tests that need gigabytes of memory or many seconds are wanted.
fn is_slow_wanted() -> bool {
    let wanted = std::env::var_os("WEIR_SLOW_TESTS").is_some();
    if !wanted {
        eprintln!("skipped: set WEIR_SLOW_TESTS to run it");
    }
    wanted
}

const ECHO: &str = r#"{"id":7,"method":"echo","params":["é",{"a":[1,null]}]}"#;
const ECHOED: &str = r#"{"id":7,"result":["é",{"a":[1,null]}],"error":null}"#;

#[test]
fn half_messages_hold_nobody_up() {
    let (_scratch, server) = server();
    let halves = ["{", "[[[[", r#"{"id":1,"method":"tr"#, "  ", r#"{"a":"\"#, r#"{"a":-"#];
    let mut stuck = vec![];
    for half in halves.iter().cycle().take(120) {
        let mut client = server.client();
        client.send(half).expect("sending");
        stuck.push(client);
        assert_eq!(server.client().call(ECHO), ECHOED);
    }
    // They may go on where they stopped.
    stuck[2].send(r#"ansact","params":["Net"]} "#).expect("sending");
    assert_eq!(stuck[2].receive().as_deref(), Some(r#"{"id":1,"result":[],"error":null}"#));
    server.is_well();
}

#[test]
fn messages_may_come_byte_by_byte_or_many_at_once() {
    let (_scratch, server) = server();
    let mut client = server.client();
    for byte in ECHO.as_bytes() {
        client.send([*byte]).expect("sending");
    }
    assert_eq!(client.receive().as_deref(), Some(ECHOED));
    client.send(ECHO.repeat(1000)).expect("sending");
    for _ in 0..1000 {
        assert_eq!(client.receive().as_deref(), Some(ECHOED));
    }
}

#[test]
fn noise_on_many_connections_costs_the_connections_only() {
    let (_scratch, server) = server();
    let before = server.memory_mib("VmHWM");
    let mut noise = Rng::new(0x5eed);
    let mut open = vec![];
    for i in 0..1500 {
        let Ok(mut client) = server.try_client() else { panic!("{}", server.log()) };
        // Some of it begins like JSON.
        let mut bytes = [&b"[\""[..], b"{\"", b"[0,", b""][i % 4].to_vec();
        let count = 1 << noise.below(15);
        bytes.extend((0..count).map(|_| noise.bits() as u8));
        // The server may hang up before it has everything.
        let _ = client.send(&bytes);
        open.push(client);
        if open.len() == 100 {
            open.drain(..50);
            server.is_well();
        }
    }
    server.is_well();
    let grown = server.memory_mib("VmHWM").saturating_sub(before);
    // Some 62: what is kept for the three, and the change log.
    assert!(grown < 80, "{grown} MiB more");
}

#[test]
fn thousands_of_connections_come_and_go() {
    let (_scratch, server) = server();
    let pid = server.pid();
    let descriptors = || std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").count();
    let before = descriptors();
    for _ in 0..10 {
        let mut clients: Vec<Client> = (0..200).map(|_| server.client()).collect();
        for (i, client) in clients.iter_mut().enumerate().filter(|(i, _)| i % 3 > 0) {
            // Some go without reading their answer.
            client.send(ECHO).expect("sending");
            if i % 3 == 1 {
                assert_eq!(client.receive().as_deref(), Some(ECHOED));
            }
        }
    }
    eventually("all of them are closed", || descriptors() <= before);
    server.is_well();
}

#[test]
fn who_never_reads_costs_little_and_holds_nobody_up() {
    const ROUNDS: usize = 200;
    let (_scratch, server) = server();
    let monitors = [
        r#"{"id":1,"method":"monitor","params":["Net","m",{"Port":{}}]}"#,
        r#"{"id":1,"method":"monitor_cond","params":["Net","m",{"Port":{}}]}"#,
        r#"{"id":1,"method":"monitor_cond_since","params":["Net","m",{"Port":{}},"00000000-0000-0000-0000-000000000000"]}"#,
    ];
    let mut deaf: Vec<Client> = vec![];
    for monitor in monitors {
        let mut client = server.client();
        let reply = client.call(monitor);
        assert!(reply.contains(r#""error":null"#), "{reply}");
        deaf.push(client);
    }
    let (mut writer, mut watcher) = (server.client(), server.client());
    writer.transact(&insert("p", ""));
    watcher.call(monitors[1]);
    let before = server.memory_mib("VmHWM");
    for i in 0..ROUNDS {
        let text = format!("{i:06}{}", "x".repeat(500_000));
        let update =
            format!(r#"{{"op":"update","table":"Port","where":[],"row":{{"text":"{text}"}}}}"#);
        assert!(writer.transact(&update).contains(r#"{"count":1}"#));
        let update = watcher.receive().expect("an update");
        assert!(update.contains(&text[..1000]), "another update than the last");
    }
    let grown = server.memory_mib("VmHWM").saturating_sub(before);
    // Some 62: what is kept for the three, and the change log.
    assert!(grown < 80, "{grown} MiB more for {} MiB of updates", ROUNDS / 2);
    let shown = server.admin("memory/show", "");
    let backlog = shown.split_whitespace().find_map(|word| word.strip_prefix("backlog:"));
    let backlog: usize = backlog.and_then(|bytes| bytes.parse().ok()).expect("a backlog");
    assert!(backlog > 100_000, "{shown}");
    // When they read at last, they get to the same place.
    for client in &mut deaf {
        let last = format!("{:06}xxx", ROUNDS - 1);
        while !client.receive().expect("updates").contains(&last) {}
    }
    server.is_well();
}

#[test]
fn who_asks_and_never_reads_is_not_asked_again() {
    let (_scratch, server) = server();
    server.client().transact(&insert("p", &"x".repeat(1_000_000)));
    let before = server.memory_mib("VmHWM");
    let select = transact(r#"{"op":"select","table":"Port","where":[]}"#);
    let mut deaf = server.client();
    deaf.set_patience(Duration::from_millis(300));
    // 20,000 answers of 1 MB each; the server stops reading long before.
    let _ = deaf.send(select.repeat(20_000));
    server.is_well();
    let grown = server.memory_mib("VmHWM").saturating_sub(before);
    // Some 62: what is kept for the three, and the change log.
    assert!(grown < 80, "{grown} MiB more");
}

#[test]
fn a_transaction_of_100_000_operations() {
    let (_scratch, server) = server();
    let mut client = server.client();
    let rows: Vec<String> = (0..100_000).map(|i| insert(&format!("p{i:06}"), "")).collect();
    let reply = client.transact(&rows.join(","));
    assert_eq!(reply.matches(r#"{"uuid":["uuid","#).count(), 100_000);
    let found = client.ports();
    assert_eq!(found.len(), 100_000);
    assert_eq!((found[0].as_str(), found[99_999].as_str()), ("p000000", "p099999"));
}

#[test]
fn a_set_of_100_000_elements() {
    let (scratch, server) = server();
    let mut client = server.client();
    let tags: Vec<String> = (0..100_000).map(|i| format!("\"t{i:06}\"")).collect();
    let row = format!(r#"{{"name":"big","tags":["set",[{}]]}}"#, tags.join(","));
    let inserted = client.transact(&format!(r#"{{"op":"insert","table":"Port","row":{row}}}"#));
    assert!(inserted.contains(r#"{"uuid":["uuid","#), "{inserted}");
    let size = std::fs::metadata(scratch.path("net.db")).expect("the file").len();
    for i in 0..200 {
        let mutations = format!(r#"[["tags","insert","x{i}"],["tags","delete","t{i:06}"]]"#);
        let reply = client.transact(&format!(
            r#"{{"op":"mutate","table":"Port","where":[],"mutations":{mutations}}}"#
        ));
        assert!(reply.contains(r#"{"count":1}"#), "{reply}");
    }
    // The file got the differences only.
    let grown = std::fs::metadata(scratch.path("net.db")).expect("the file").len() - size;
    assert!(grown < 100_000, "{grown} bytes");
    let select = r#"{"op":"select","table":"Port","where":[],"columns":["tags"]}"#;
    server.kill();
    let server = Server::start(&scratch);
    let reply = server.client().transact(select);
    assert!(reply.contains(r#"[{"tags":["set",["t000200","t000201","#), "{}", &reply[..100]);
    assert!(reply.contains(r#""t099999","x0","x1","x10","x100","#));
    assert_eq!(reply.matches(',').count(), 100_002);
}

#[test]
fn deep_nesting_ends_the_connection_only() {
    let (_scratch, server) = server();
    for (depth, is_answered) in [(990, true), (1010, false), (200_000, false)] {
        for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
            let (open, close) = (open.repeat(depth), close.repeat(depth));
            let middle = if open.starts_with('{') { "0" } else { "" };
            let mut client = server.client();
            let request = format!(r#"{{"id":1,"method":"echo","params":[{open}{middle}{close}]}}"#);
            assert_eq!(client.try_call(&request).is_some(), is_answered, "depth {depth}");
        }
    }
    server.is_well();
}

/// Sends in another thread while the answer is awaited here.
fn exchange(client: &mut Client, request: String) -> Option<String> {
    let mut sender = client.sender();
    let sending = thread::spawn(move || sender.write_all(request.as_bytes()));
    let reply = client.receive();
    // It fails if the server has hung up.
    let _ = sending.join().expect("no panic");
    reply
}

#[test]
fn a_message_of_100_megabytes_is_answered() {
    let (_scratch, server) = server();
    let text = "x".repeat(100_000_000);
    let mut client = server.client();
    let reply = exchange(&mut client, transact(&insert("big", &text)));
    assert!(reply.is_some_and(|reply| reply.contains(r#"{"uuid":["uuid","#)));
    let select = transact(r#"{"op":"select","table":"Port","where":[],"columns":["text"]}"#);
    let reply = client.call(&select);
    assert!(reply.contains(&text));
    assert!(reply.len() < text.len() + 100);
    server.is_well();
}

/// A server whose clients' messages may take 4 MiB together.
fn small_server() -> (Scratch, Server) {
    let scratch = Scratch::new();
    create(&scratch, "net.db");
    let mut command = scratch.command(scratch.link("ovsdb-server"));
    command.args(Server::ARGS).env("WEIR_MESSAGE_MEMORY", (4 << 20).to_string());
    let server = Server::spawn(&scratch, command);
    (scratch, server)
}

#[test]
fn a_request_beyond_the_memory_for_messages_is_refused_and_the_connection_stays() {
    let (_scratch, server) = small_server();
    let mut client = server.client();
    let long = "x".repeat(6 << 20);
    let reply = exchange(&mut client, transact(&insert("long", &long))).expect("an answer");
    let refused = "bytes, for which this server has no memory\",\"error\":\"resources exhausted\"}";
    assert!(reply.contains(refused), "{reply}");
    // Whatever the order of its members, and behind what came before it.
    let other = format!(r#"{ECHO}{{"params":["{long}"],"method":"echo","id":["x","y"]}}{ECHO}"#);
    assert_eq!(exchange(&mut client, other).as_deref(), Some(ECHOED));
    let reply = client.receive().expect("an answer");
    assert!(reply.contains(refused) && reply.contains(r#""id":[]"#), "{reply}");
    assert_eq!(client.receive().as_deref(), Some(ECHOED));
    let told = "bytes, for which there is no memory";
    assert!(server.log().contains(told), "{}", server.log());
    let short = transact(&insert("short", &"x".repeat(15 << 17)));
    let reply = exchange(&mut client, short).expect("an answer");
    assert!(reply.contains(r#"{"uuid":["uuid","#), "{reply:.200}");
    server.is_well();
}

#[test]
fn a_message_that_never_ends_takes_no_memory() {
    let (_scratch, server) = small_server();
    let before = server.memory_mib("VmRSS");
    let mut client = server.client();
    client.send(r#"{"id":1,"method":"echo","params":[""#).expect("sending");
    let piece = "x".repeat(1 << 20);
    for _ in 0..100 {
        client.send(&piece).expect("sending");
        assert_eq!(server.client().call(ECHO), ECHOED);
    }
    let grown = server.memory_mib("VmRSS").saturating_sub(before);
    assert!(grown < 32, "{grown} MiB");
    // A member so long that it cannot be told what is asked for.
    let mut client = server.client();
    let endless = format!(r#"{{"id":"{}"#, "x".repeat(8 << 20));
    assert_eq!(exchange(&mut client, format!("{endless}\"}}")), None);
    server.is_well();
}

/// Clients that have each begun a message of so many bytes, and send a byte of it now and then until
/// they are shut down, or the server hangs up.
struct Drips {
    clients: Vec<Client>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Drips {
    fn begin(server: &Server, bytes: impl IntoIterator<Item = usize>) -> Self {
        let mut drips = Self { clients: vec![], threads: vec![] };
        for bytes in bytes {
            let begun = transact(&insert("drip", &"x".repeat(bytes + 100)));
            // In the middle of a string.
            let begun = begun.as_bytes()[..bytes].to_vec();
            let client = server.client();
            let mut sender = client.sender();
            drips.clients.push(client);
            drips.threads.push(thread::spawn(move || {
                let mut sent = sender.write_all(&begun);
                while sent.is_ok() {
                    thread::sleep(Duration::from_millis(20));
                    sent = sender.write_all(b"x");
                }
            }));
        }
        drips
    }

    fn end(self) {
        for client in self.clients {
            // It fails if the server has hung up.
            let _ = client.sender().shutdown(Shutdown::Both);
        }
        self.threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    }
}

#[test]
fn clients_that_drip_into_big_messages_hold_up_nobody() {
    let (_scratch, server) = small_server();
    let drips = Drips::begin(&server, [500 << 10; 5]);
    for bytes in [100 << 10, 300 << 10, 15 << 16, 15 << 17] {
        let mut client = server.client();
        let request = transact(&insert("whole", &"y".repeat(bytes)));
        let reply = exchange(&mut client, request).expect("an answer");
        assert!(reply.contains(r#"{"uuid":["uuid","#), "{bytes} bytes: {reply:.200}");
    }
    drips.end();
    server.is_well();
}

/// A long one and many short ones, or only short ones, with and without room for all of them: in
/// turns of half a second each they would hold up a message for half a minute.
#[test]
fn clients_that_drip_into_many_messages_do_not_hold_up_100_kb() {
    let within = [vec![900 << 10], vec![80 << 10; 25]].concat();
    let beyond = [vec![1800 << 10], vec![100 << 10; 60]].concat();
    for mix in [within, beyond, vec![250 << 10; 70], vec![70 << 10; 90]] {
        let (_scratch, server) = small_server();
        let drips = Drips::begin(&server, mix.iter().copied());
        // While they begin, and later.
        for n in 0..60 {
            let mut client = server.client();
            client.set_patience(Duration::from_secs(15));
            let request = transact(&insert("whole", &"y".repeat(100_000)));
            let reply = exchange(&mut client, request);
            let reply = reply.unwrap_or_else(|| panic!("no answer to {n} beside {mix:?}"));
            assert!(reply.contains(r#"{"uuid":["uuid","#), "{reply:.200}");
            thread::sleep(Duration::from_millis(20));
        }
        drips.end();
        server.is_well();
        let has_room = mix.iter().sum::<usize>() < 3 << 20;
        let dropped = "no memory for a message that comes too slowly";
        assert!(!has_room || !server.log().contains(dropped), "{}", server.log());
    }
}

/// Clients whose requests are together far more than may be on its way at once.
#[test]
fn big_requests_of_many_clients_are_all_answered() {
    let (_scratch, server) = small_server();
    let before = server.memory_mib("VmRSS");
    let text = "x".repeat(15 << 17);
    thread::scope(|scope| {
        for number in 0..20 {
            let (mut client, text) = (server.client(), &text);
            scope.spawn(move || {
                let request = format!(r#"{{"id":{number},"method":"echo","params":["{text}"]}}"#);
                let reply = exchange(&mut client, request).expect("an answer");
                assert!(reply.contains(text.as_str()), "{reply:.200}");
            });
        }
    });
    let grown = server.memory_mib("VmHWM").saturating_sub(before);
    assert!(grown < 60, "{grown} MiB");
    server.is_well();
}

/// Half messages of 100 MB on 10 connections: beyond 512 MiB of unparsed input the big ones wait,
/// the small ones do not.
#[test]
fn half_messages_together_stay_within_their_budget() {
    if !is_slow_wanted() {
        return;
    }
    let (_scratch, server) = server();
    let before = server.memory_mib("VmRSS");
    let half = format!(r#"{{"id":1,"method":"echo","params":["{}"#, "x".repeat(100_000_000));
    let clients: Vec<Client> = (0..10).map(|_| server.client()).collect();
    thread::scope(|scope| {
        for client in &clients {
            let (mut sender, half) = (client.sender(), &half);
            sender.set_write_timeout(Some(Duration::from_secs(5))).expect("a timeout");
            scope.spawn(move || sender.write_all(half.as_bytes()));
        }
    });
    let grown = server.memory_mib("VmRSS").saturating_sub(before);
    // A buffer may be twice as large as what is in it.
    assert!(grown < 1400, "{grown} MiB");
    server.is_well();
    drop(clients);
    eventually("memory is given back", || server.memory_mib("VmRSS") < before + 300);
}

//! A fixed workload through the whole core, for counting its instructions.
//!
//! `instructions N MONITORS [KIND]` commits N transactions, each in a round of its own, while
//! monitors of everything watch. KIND `ports`, or none: a port is inserted, added to a switch, and
//! its address to a set. `update`: one of 1000 ports gets other options, found by its name.
//! Nothing depends on time, on chance or on the machine, so a count of instructions (valgrind's
//! callgrind) is the same at every run, and the difference between two N is the cost of the
//! transactions alone. `cargo xtask instructions` does that.

use std::process::ExitCode;

use weir_server::effect::Effect;
use weir_server::event::{Event, Now, RemoteId, SessionId};
use weir_server::load::load;
use weir_server::{Config, Server, StartStatus};

const SCHEMA: &str = r#"{"name":"Net","version":"1.0.0","tables":{
    "Switch":{"isRoot":true,"indexes":[["name"]],"columns":{
        "name":{"type":"string"},
        "ports":{"type":{"key":{"type":"uuid","refTable":"Port"},"min":0,"max":"unlimited"}}}},
    "Addresses":{"isRoot":true,"indexes":[["name"]],"columns":{
        "name":{"type":"string"},
        "addresses":{"type":{"key":"string","min":0,"max":"unlimited"}}}},
    "Port":{"indexes":[["name"]],"columns":{
        "name":{"type":"string"},
        "addresses":{"type":{"key":"string","min":0,"max":"unlimited"}},
        "up":{"type":{"key":"boolean","min":0,"max":1}},
        "options":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}},
        "external_ids":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}}}}}}"#;

const SWITCHES: usize = 10;
/// Ports that are there before the first one is updated.
const PORTS: usize = 1000;
/// Longest that updates wait.
const FLUSH_DELAY_US_MAX: u64 = 2000;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<usize> = args.iter().map_while(|arg| arg.parse().ok()).collect();
    let (&[transactions, monitors], kind) = (numbers.as_slice(), args.get(2)) else {
        eprintln!("usage: instructions TRANSACTIONS MONITORS [ports|update]");
        return ExitCode::from(2);
    };
    let (request, prepared): (fn(usize) -> String, usize) = match kind.map(String::as_str) {
        Some("update") => (update_request, PORTS),
        _ => (port_request, 0),
    };
    let mut shell = Shell::start();
    for _ in 0..monitors {
        let session = shell.connect();
        shell.call(session, MONITOR);
    }
    let writer = shell.connect();
    for n in 0..SWITCHES {
        shell.call(writer, &format!(r#"{{"id":1,"method":"transact","params":["Net",{{"op":"insert","table":"Switch","row":{{"name":"sw{n}"}}}}]}}"#));
    }
    shell.call(writer, r#"{"id":1,"method":"transact","params":["Net",{"op":"insert","table":"Addresses","row":{"name":"all"}}]}"#);
    for n in 0..prepared {
        shell.call(writer, &port_request(n));
    }
    for n in 0..transactions {
        shell.call(writer, &request(n));
    }
    let expected = transactions + prepared + SWITCHES + 1;
    println!("{} replies, {} records, {} bytes", shell.replies, shell.records, shell.bytes);
    // Each monitor answered once; anything else means that the workload does not do what it says.
    let right = shell.replies == expected + monitors && shell.records == expected;
    ExitCode::from(u8::from(!right))
}

const MONITOR: &str = r#"{"id":1,"method":"monitor_cond_since","params":["Net",["monid","Net"],{"Switch":[{}],"Addresses":[{}],"Port":[{}]},"00000000-0000-0000-0000-000000000000"]}"#;

fn update_request(n: usize) -> String {
    format!(
        concat!(
            r#"{{"id":{},"method":"transact","params":["Net",{{"op":"update","table":"Port","#,
            r#""where":[["name","==","port-{:06}"]],"#,
            r#""row":{{"options":["map",[["requested-chassis","host-{}"]]]}}}}]}}"#
        ),
        n,
        n * 7 % PORTS,
        n
    )
}

fn port_request(n: usize) -> String {
    let (switch, address) = (n % SWITCHES, format!("10.0.{}.{}", n >> 8 & 255, n & 255));
    format!(
        concat!(
            r#"{{"id":{},"method":"transact","params":["Net","#,
            r#"{{"op":"insert","table":"Port","uuid-name":"port","row":{{"name":"port-{:06}","#,
            r#""addresses":"0a:58:0a:00:00:01 {}","options":["map",[["requested-chassis","node-7"]]],"#,
            r#""external_ids":["map",[["namespace","namespace-7"],["pod","true"]]]}}}},"#,
            r#"{{"op":"mutate","table":"Switch","where":[["name","==","sw{}"]],"#,
            r#""mutations":[["ports","insert",["named-uuid","port"]]]}},"#,
            r#"{{"op":"mutate","table":"Addresses","where":[["name","==","all"]],"#,
            r#""mutations":[["addresses","insert","{}"]]}}]}}"#
        ),
        n, n, address, switch, address
    )
}

/// The least that a host does: it counts what comes out.
struct Shell {
    server: Server,
    now: Now,
    sessions: u64,
    effects: Vec<Effect>,
    replies: usize,
    records: usize,
    bytes: usize,
}

impl Shell {
    fn start() -> Self {
        let now = Now { monotonic_us: 1_000_000, wall_ms: 1_700_000_000_000 };
        let config = Config {
            seed: [1, 2, 3, 4],
            server_name: "ovsdb-server",
            remotes: vec!["punix:/sock".into()],
            databases: vec!["/net.db".into()],
            ..Config::default()
        };
        let server = Server::new(now, config);
        let (effects, sessions) = (Vec::new(), 0);
        let mut shell = Self { server, now, sessions, effects, replies: 0, records: 0, bytes: 0 };
        shell.settle();
        assert_eq!(shell.server.start_status(), StartStatus::Ready);
        shell.records = 0;
        shell
    }

    fn connect(&mut self) -> SessionId {
        self.sessions += 1;
        let session = SessionId(self.sessions);
        let name = format!("unix#{}", self.sessions);
        self.event(Event::Accepted { session, remote: RemoteId(1), name, client: None });
        self.settle();
        session
    }

    fn event(&mut self, event: Event) {
        self.server.handle(self.now, event);
    }

    fn call(&mut self, session: SessionId, message: &str) {
        self.event(Event::Message { session, bytes: message.as_bytes().to_vec() });
        self.settle();
    }

    /// Rounds until nothing more is to be done, updates of monitors included.
    fn settle(&mut self) {
        self.server.begin_round();
        loop {
            self.server.end_round(self.now);
            let mut effects = std::mem::take(&mut self.effects);
            self.server.poll_effects(&mut effects);
            let idle = effects.is_empty();
            effects.drain(..).for_each(|effect| self.execute(effect));
            self.effects = effects;
            if !idle {
                continue;
            }
            // Updates of a stream of transactions wait for their deadline.
            let soon = self.now.monotonic_us + FLUSH_DELAY_US_MAX;
            match self.server.next_wakeup_us().filter(|at| *at <= soon) {
                _ if self.server.has_pending_updates() => self.server.flush_updates(self.now),
                Some(at) => self.now.monotonic_us = at.max(self.now.monotonic_us),
                None => return,
            }
            self.server.begin_round();
        }
    }

    fn execute(&mut self, effect: Effect) {
        match effect {
            Effect::Append { db, bytes, .. } => {
                self.records += 1;
                self.bytes += bytes.len();
                self.event(Event::Appended { db, result: Ok(()) });
            }
            Effect::Send { to, head, body } => {
                self.replies += usize::from(is_reply(&head) || is_reply(&body));
                self.bytes += to.len() * (head.len() + body.len());
            }
            Effect::Listen { remote, .. } => {
                self.event(Event::Listening { remote, result: Ok(None) });
            }
            Effect::Open { db, path, .. } => {
                let mut file = Vec::new();
                let schema = weir_data::Schema::parse_bytes(SCHEMA.as_bytes()).expect("a schema");
                weir_log::standalone::write_schema(&mut file, &schema);
                let result = load(&path, 42, &file);
                self.event(Event::Opened { db, result });
            }
            // Nothing else happens here, or it changes nothing that counts.
            _ => {}
        }
    }
}

/// Whether a part of a message belongs to a reply, and not to an update.
fn is_reply(part: &[u8]) -> bool {
    std::str::from_utf8(part).is_ok_and(|text| text.contains(r#""result":"#))
}

//! The whole loop, a round at a time, with real clients.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use weir_json::Framer;

use super::*;
use crate::driver::{Driver, Turn};
use crate::signals::Signals;

/// What a transaction may cost in a step while a test wants it to be long, and else.
const LONG: u64 = 0;
const SHORT: u64 = 100_000;

/// A loop with a database, and what its helpers have done is heard when the test wants it.
struct Loop {
    driver: Driver,
    directory: PathBuf,
    hears_helpers: bool,
}

/// A client whose socket does not block.
struct Client {
    stream: UnixStream,
    received: Vec<u8>,
}

impl Loop {
    fn start(name: &str) -> Self {
        let directory =
            std::env::temp_dir().join(format!("weir-loop-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).unwrap();
        let mut bytes = Vec::new();
        write_schema(&mut bytes, &Schema::parse_bytes(SCHEMA.as_bytes()).unwrap());
        let path = directory.join("conf.db");
        std::fs::write(&path, bytes).unwrap();
        let config = Config {
            server_name: "ovsdb-server",
            remotes: vec![format!("punix:{}", directory.join("sock").display())],
            databases: vec![path.to_str().unwrap().to_owned()],
            ..Config::default()
        };
        let log = Vlog::new("test");
        let commands = Commands::new("test", log.clone(), Vec::new());
        let rundir = directory.clone();
        let driver = Driver::new(config, Signals::none(), commands, rundir, None, || (), log);
        let mut driver = driver.unwrap();
        assert!(matches!(driver.run(), Ok(Turn::Ready)), "it does not start");
        Self { driver, directory, hears_helpers: true }
    }

    fn connect(&self) -> Client {
        let stream = UnixStream::connect(self.directory.join("sock")).unwrap();
        stream.set_nonblocking(true).unwrap();
        Client { stream, received: Vec::new() }
    }

    /// One round, as [`Driver::run`] has it; it waits at most a moment.
    fn round(&mut self) {
        let Self { driver, hears_helpers, .. } = self;
        let timeout = driver.timeout(driver.outside.monotonic_us()).unwrap_or(Duration::MAX);
        let timeout = timeout.min(Duration::from_millis(5));
        driver.outside.poller.wait(Some(timeout), &mut driver.ready).unwrap();
        let jobs = Token::Jobs.encode();
        driver.ready.retain(|ready| *hears_helpers || ready.token != jobs);
        driver.round(driver.outside.now());
    }

    /// Rounds until something is so.
    fn until(&mut self, mut is_so: impl FnMut(&mut Self) -> bool) {
        let limit = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(Instant::now() < limit, "still waiting");
            self.round();
        }
    }

    fn count(&self, counter: Counter) -> u64 {
        self.driver.execution.coverage.total(counter)
    }

    fn limit_steps(&mut self, cost_max: u64) {
        self.driver.execution.server.set_step_cost_max(cost_max);
    }

    /// A client that has pipelined so many transactions behind a long one. The tables are with a
    /// helper, who has not been heard, and all of them wait.
    fn pipeline(&mut self, count: u64) -> Client {
        let mut client = self.connect();
        let before = self.count(Counter::Messages);
        self.hears_helpers = false;
        self.limit_steps(LONG);
        client.send(&insert(0));
        self.until(|it| it.count(Counter::Messages) > before);
        self.limit_steps(SHORT);
        (1..=count).for_each(|id| client.send(&insert(id)));
        self.until(|it| it.count(Counter::Messages) > before + count);
        assert_eq!(client.replies(), Vec::<String>::new());
        client
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Client {
    fn send(&mut self, message: &str) {
        self.stream.write_all(message.as_bytes()).unwrap();
    }

    /// What has come since last asked.
    fn replies(&mut self) -> Vec<String> {
        let mut bytes = [0; 1 << 16];
        while let Ok(count @ 1..) = self.stream.read(&mut bytes) {
            self.received.extend_from_slice(&bytes[..count]);
        }
        let mut replies = Vec::new();
        while let Some(end) = Framer::new().feed(&self.received).unwrap() {
            let reply: Vec<u8> = self.received.drain(..end).collect();
            replies.push(String::from_utf8(reply).unwrap());
        }
        replies
    }
}

fn insert(id: u64) -> String {
    let operation = format!(r#"{{"op":"insert","table":"T","row":{{"n":{id}}}}}"#);
    format!(r#"{{"id":{id},"method":"transact","params":["D",{operation}]}}"#)
}

#[test]
fn what_a_client_has_pipelined_is_done_one_a_round_though_each_is_written() {
    const COUNT: u64 = 50;
    let mut it = Loop::start("pipeline");
    let (mut client, mut other) = (it.pipeline(COUNT), it.connect());
    it.hears_helpers = true;
    // The first of all is among these.
    let (mut replies, mut rounds, mut heard) = (Vec::new(), 0, 0);
    let appends = it.count(Counter::Appends);
    let mut before = appends;
    it.until(|it| {
        let written = it.count(Counter::Appends) - before;
        // What the helper has done, and a message.
        assert!(written <= 2, "{written} appends in round {rounds}");
        (before, rounds) = (before + written, rounds + 1);
        heard += other.replies().len();
        other.send(r#"{"id":"here","method":"echo","params":[]}"#);
        replies.extend(client.replies());
        replies.len() as u64 > COUNT
    });
    assert_eq!(it.count(Counter::Appends) - appends, COUNT + 1);
    assert!(replies.iter().zip(0..).all(|(reply, id)| reply.contains(&format!(r#""id":{id},"#))));
    assert!(heard as u64 >= COUNT / 2, "another one is heard {heard} times in {rounds} rounds");
}

#[test]
fn no_moment_is_idle_while_the_core_has_messages_that_wait_for_their_turn() {
    const COUNT: u64 = 50;
    let mut it = Loop::start("idle");
    let mut watcher = it.connect();
    watcher.send(r#"{"id":1,"method":"monitor","params":["D",null,{"T":{}}]}"#);
    it.until(|_| !watcher.replies().is_empty());
    let mut client = it.pipeline(COUNT);
    it.hears_helpers = true;
    let mut replies = 0;
    let flushes = it.count(Counter::UpdateFlushes);
    it.until(|_| {
        replies += client.replies().len() as u64;
        replies > COUNT
    });
    let flushes = it.count(Counter::UpdateFlushes) - flushes;
    assert!(flushes < COUNT / 5, "{flushes} idle moments");
    let mut updates = String::new();
    it.until(|_| {
        updates.extend(watcher.replies());
        updates.matches(r#""new""#).count() as u64 > COUNT
    });
}

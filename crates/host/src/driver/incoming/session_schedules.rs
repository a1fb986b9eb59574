//! Clients that send, read and pause, and a core that stops hearing them, goes on and answers, in any order: nothing
//! is lost, and in the end nobody waits.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use weir_testkit::rng::Rng;

use super::tests::{INPUT_BYTES, Shell};
use super::*;

/// Bytes of one message or answer at most: more than a Unix socket's buffers hold.
const BYTES_MAX: usize = 600_000;

struct Client {
    id: SessionId,
    stream: UnixStream,
    /// What it has still to send, and the beginning of what that is.
    unsent: Vec<u8>,
    /// Lengths of its messages that the core was told of, and of all.
    heard: Vec<usize>,
    sent: Vec<usize>,
    /// Bytes that the core has sent to it, and that it has read.
    answered: usize,
    read: usize,
    is_stopped: bool,
}

/// Three clients, and a core that is told of them.
struct World {
    shell: Shell,
    clients: Vec<Client>,
    rng: Rng,
}

impl World {
    fn new(seed: u64) -> Self {
        let (mut shell, mut clients) = (Shell::new(INPUT_BYTES), Vec::new());
        for _ in 0..3 {
            let (id, stream) = shell.connect();
            stream.set_nonblocking(true).unwrap();
            clients.push(Client {
                id,
                stream,
                unsent: vec![],
                heard: vec![],
                sent: vec![],
                answered: 0,
                read: 0,
                is_stopped: false,
            });
        }
        Self { shell, clients, rng: Rng::new(seed) }
    }

    fn length(&mut self) -> usize {
        let most = *self.rng.pick(&[10, 10, 1000, 100_000, BYTES_MAX]);
        4 + self.rng.below(most)
    }

    /// What a client does on its own, or nothing.
    fn client_acts(&mut self, n: usize) {
        let what = self.rng.below(6);
        let (len, most) = (self.length(), 1 + self.rng.below(64 << 10));
        let client = &mut self.clients[n];
        match what {
            0 if client.unsent.len() < BYTES_MAX => {
                client.sent.push(len);
                client.unsent.push(b'{');
                client.unsent.resize(client.unsent.len() + len - 2, b' ');
                client.unsent.push(b'}');
            }
            1 | 2 => client.write(most),
            3 => _ = client.read(most),
            _ => {}
        }
    }

    /// One round, at the end of which the core does something, or nothing.
    fn round(&mut self, acts: bool) {
        self.shell.now_us += self.rng.below(1000) as u64;
        self.shell.run_round();
        let mut events = Vec::new();
        self.shell.sessions.take_events(&mut events);
        for event in events {
            match event {
                Event::Message { session, bytes } => {
                    let client = self.clients.iter_mut().find(|client| client.id == session);
                    let client = client.expect("it is one of these");
                    assert!(!client.is_stopped, "the core wants no more of its messages");
                    client.heard.push(bytes.len());
                }
                Event::Activity { .. } | Event::Blocked { .. } | Event::Drained { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        let times = if acts { self.rng.below(4) } else { 0 };
        (0..times).for_each(|_| self.core_acts());
        self.shell.sessions.flush_dirty(&self.shell.poller, &mut self.shell.coverage);
    }

    fn core_acts(&mut self) {
        let (n, what, len) = (self.rng.below(3), self.rng.below(4), self.length());
        let client = &mut self.clients[n];
        match what {
            0 => {
                client.is_stopped = true;
                self.shell.sessions.stop_reading(&self.shell.poller, client.id);
            }
            1 if client.is_stopped => self.go_on(n),
            2 => self.answer(n, len),
            3 => self.shell.sessions.tell_drained(client.id),
            _ => {}
        }
    }

    fn go_on(&mut self, n: usize) {
        let client = &mut self.clients[n];
        client.is_stopped = false;
        self.shell.sessions.go_on_reading(&self.shell.poller, client.id);
    }

    fn answer(&mut self, n: usize, len: usize) {
        let client = &mut self.clients[n];
        client.answered += len;
        let (head, body) = (Arc::default(), Arc::new(vec![b'y'; len]));
        self.shell.sessions.send(client.id, &head, &body);
    }

    /// The core answers those whom it does not hear, and hears everybody; clients do all that they can.
    fn end(&mut self) {
        for n in 0..self.clients.len() {
            if self.clients[n].is_stopped {
                self.answer(n, 10);
                self.go_on(n);
            }
        }
        self.shell.sessions.flush_dirty(&self.shell.poller, &mut self.shell.coverage);
        let mut rounds = 0;
        while rounds < 100 && !self.clients.iter().all(Client::is_done) {
            rounds += 1;
            for client in &mut self.clients {
                client.write(usize::MAX);
                while client.read(usize::MAX) {}
            }
            self.round(false);
        }
    }
}

impl Client {
    fn write(&mut self, most: usize) {
        let most = most.min(self.unsent.len());
        match self.stream.write(&self.unsent[..most]) {
            Ok(count) => _ = self.unsent.drain(..count),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }

    /// True if there was something.
    fn read(&mut self, most: usize) -> bool {
        let mut bytes = [0; 64 << 10];
        let most = most.min(bytes.len());
        match self.stream.read(&mut bytes[..most]) {
            Ok(count) => {
                self.read += count;
                count > 0
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                false
            }
        }
    }

    fn is_done(&self) -> bool {
        self.heard.len() == self.sent.len() && self.read == self.answered
    }
}

#[test]
fn whatever_the_order_all_is_heard_and_all_is_answered() {
    for seed in 0..20 {
        let mut world = World::new(seed);
        for _ in 0..100 {
            (0..3).for_each(|n| world.client_acts(n));
            world.round(true);
        }
        world.end();
        for client in &world.clients {
            assert!(client.unsent.is_empty(), "seed {seed}: it can send nothing more");
            assert_eq!(client.heard, client.sent, "seed {seed}");
            assert_eq!(client.read, client.answered, "seed {seed}");
        }
    }
}

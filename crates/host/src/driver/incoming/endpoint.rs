//! An admin socket without a server: for a client that runs in the background.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use weir_net::error::strerror;
use weir_net::{Address, Listener};
use weir_server::event::{CommandId, Event};

use crate::clock::Clock;
use crate::coverage::Coverage;
use crate::driver::incoming::admin::Admin;
use crate::driver::token::Token;
use crate::poller::{Poller, Ready};
use crate::unixctl::Commands;
use crate::vlog::{Level, Vlog};

/// A command that the process itself must answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminRequest {
    /// To be given to [`AdminSocket::reply`].
    pub id: CommandId,
    /// The command's name.
    pub name: String,
    /// The command's arguments.
    pub args: Vec<String>,
}

/// The socket, its connections, and the answers to what needs no answer of the process: `exit`,
/// `vlog/...`, `version` and their like. Readable when [`AdminSocket::next_request`] has work
/// that [`AdminSocket::pause`] does not know of.
pub struct AdminSocket {
    admin: Admin,
    poller: Poller,
    coverage: Coverage,
    clock: Clock,
    unix_serial: u64,
    events: VecDeque<Event>,
}

impl AdminSocket {
    /// Listens. `commands` are the process's own: name, usage, least and most arguments.
    ///
    /// # Errors
    /// The text for standard error.
    pub fn open(
        path: &Path,
        program: &str,
        log: &Vlog,
        commands: &'static [(&'static str, &'static str, u32, u32)],
    ) -> Result<Self, String> {
        let shown = path.display().to_string();
        let refused = |error: io::Error| {
            format!("{shown}: could not initialize control socket ({})", strerror(&error))
        };
        let listener = Listener::open(&Address::PassiveUnix(path.to_owned()), &shown, None);
        let listener = listener.map_err(|failure| {
            log.log(failure.module, Level::Err, &failure.text);
            refused(failure.error)
        })?;
        let poller = Poller::new().map_err(refused)?;
        let mut admin =
            Admin::new(Commands::new(program, log.clone(), commands.to_vec()), log.clone());
        admin.listen(&poller, listener).map_err(refused)?;
        let (coverage, clock) = (Coverage::default(), Clock::start());
        Ok(Self { admin, poller, coverage, clock, unix_serial: 0, events: VecDeque::new() })
    }

    /// Somebody said `exit`.
    pub fn is_exiting(&self) -> bool {
        self.admin.is_exiting()
    }

    /// After which time [`AdminSocket::next_request`] has work even if nothing is readable: more commands came
    /// than one, or nobody was accepted for lack of descriptors.
    pub fn pause(&self) -> Option<Duration> {
        if !self.events.is_empty() {
            return Some(Duration::ZERO);
        }
        let until_us = self.admin.deadline_us()?;
        Some(Duration::from_micros(until_us.saturating_sub(self.clock.monotonic_us())))
    }

    /// Does what can be done now and returns the next command that the process must answer.
    ///
    /// # Errors
    /// What epoll_wait(2) says.
    pub fn next_request(&mut self) -> io::Result<Option<AdminRequest>> {
        if self.events.is_empty() {
            self.take_ready()?;
        }
        while let Some(event) = self.events.pop_front() {
            if let Event::Command { id, name, args } = event {
                return Ok(Some(AdminRequest { id, name, args }));
            }
        }
        Ok(None)
    }

    /// Does what can be done now.
    fn take_ready(&mut self) -> io::Result<()> {
        let mut events = Vec::new();
        let (now_us, mut ready) = (self.clock.monotonic_us(), Vec::<Ready>::new());
        self.admin.wake(&self.poller, now_us);
        self.poller.wait(Some(Duration::ZERO), &mut ready)?;
        for Ready { token, .. } in ready {
            match Token::decode(token) {
                Token::AdminListener => {
                    self.admin.accept(&self.poller, &mut self.unix_serial, now_us);
                }
                Token::Admin(number) => {
                    self.admin.on_ready(&self.poller, number, &self.coverage, &mut events);
                }
                _ => {}
            }
        }
        self.events.extend(events);
        Ok(())
    }

    /// Answers a command.
    pub fn reply(&mut self, id: CommandId, result: Result<String, String>) {
        let mut events = Vec::new();
        self.admin.reply(&self.poller, id, result, &self.coverage, &mut events);
        // What the connection had asked behind it.
        self.events.extend(events);
    }
}

impl AsFd for AdminSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    /// The process was stopped for a while, say: each of them waits for an answer.
    #[test]
    fn commands_that_come_at_once_are_all_given_out() {
        let name = format!("weir-endpoint-{}.ctl", std::process::id());
        let path = std::env::temp_dir().join(name);
        let commands = &[("lock", "NAME", 1, 1)];
        let mut socket = AdminSocket::open(&path, "test", &Vlog::new("test"), commands).unwrap();
        let request = |id: u8| format!(r#"{{"id":{id},"method":"lock","params":["L{id}"]}}"#);
        let mut clients = [(); 3].map(|()| UnixStream::connect(&path).unwrap());
        assert_eq!(
            socket.next_request().unwrap(),
            None,
            "they are accepted, and have asked for nothing"
        );
        for (client, id) in clients.iter_mut().zip([1, 2, 3]) {
            client.write_all(request(id).as_bytes()).unwrap();
        }
        // The last one asks for more behind that.
        clients[2].write_all(request(4).as_bytes()).unwrap();
        let mut given = Vec::new();
        while given.len() < 4 {
            let Some(request) = socket.next_request().unwrap() else { continue };
            socket.reply(request.id, Ok(String::new()));
            given.push(request.args.concat());
            let is_more = !socket.events.is_empty();
            assert_eq!(socket.pause() == Some(Duration::ZERO), is_more, "{given:?}");
        }
        given.sort();
        assert_eq!(given, ["L1", "L2", "L3", "L4"]);
        drop(socket);
        for client in &mut clients {
            let mut answers = String::new();
            client.read_to_string(&mut answers).unwrap();
            assert!(answers.contains(r#""error":null"#), "{answers}");
        }
        let _ = std::fs::remove_file(path);
    }
}

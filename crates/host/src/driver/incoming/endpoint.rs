//! An admin socket without a server: for a client that runs in the background.

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
/// `vlog/...`, `version` and their like. Readable when [`AdminSocket::requests`] has work.
pub struct AdminSocket {
    admin: Admin,
    poller: Poller,
    coverage: Coverage,
    clock: Clock,
    unix_serial: u64,
    events: Vec<Event>,
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
        Ok(Self { admin, poller, coverage, clock, unix_serial: 0, events: vec![] })
    }

    /// Somebody said `exit`.
    pub fn is_exiting(&self) -> bool {
        self.admin.is_exiting()
    }

    /// After which time [`AdminSocket::requests`] has work even if nothing is readable: nobody was
    /// accepted for lack of descriptors.
    pub fn pause(&self) -> Option<Duration> {
        let until_us = self.admin.deadline_us()?;
        Some(Duration::from_micros(until_us.saturating_sub(self.clock.monotonic_us())))
    }

    /// Does what can be done now and returns the commands that the process must answer.
    ///
    /// # Errors
    /// What epoll_wait(2) says.
    pub fn requests(&mut self) -> io::Result<Vec<AdminRequest>> {
        let (now_us, mut ready) = (self.clock.monotonic_us(), Vec::<Ready>::new());
        self.admin.wake(&self.poller, now_us);
        self.poller.wait(Some(Duration::ZERO), &mut ready)?;
        for Ready { token, .. } in ready {
            match Token::decode(token) {
                Token::AdminListener => {
                    self.admin.accept(&self.poller, &mut self.unix_serial, now_us);
                }
                Token::Admin(number) => {
                    self.admin.on_ready(&self.poller, number, &self.coverage, &mut self.events);
                }
                _ => {}
            }
        }
        let request = |event| match event {
            Event::Command { id, name, args } => Some(AdminRequest { id, name, args }),
            _ => None,
        };
        Ok(self.events.drain(..).filter_map(request).collect())
    }

    /// Answers a command.
    pub fn reply(&mut self, id: CommandId, result: Result<String, String>) {
        self.admin.reply(&self.poller, id, result, &self.coverage, &mut self.events);
    }
}

impl AsFd for AdminSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}

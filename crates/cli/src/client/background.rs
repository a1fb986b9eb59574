//! What `monitor` and `lock` wait for: messages of the server and, in the background, commands of
//! ovs-appctl.

use std::path::PathBuf;
use std::rc::Rc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weir_host::{AdminRequest, AdminSocket};

use super::session::{Lost, Notification, Session};
use super::tape::{Command, Tape};
use super::{Client, PROGRAM, process};
use crate::program::{Failure, strerror};

/// Admin commands: name, usage, least and most arguments of each.
pub(super) type AdminCommands = &'static [(&'static str, &'static str, u32, u32)];

/// The admin socket of a command in the background; in the foreground there is none.
pub(super) struct Background {
    socket: Option<(AdminSocket, PathBuf)>,
    tape: Rc<Tape>,
    /// Whether messages of the server are left alone.
    pub(super) blocked: bool,
}

/// What a command in the background has to react to.
pub(super) enum Happened {
    /// The server sent something.
    Notification(Notification),
    /// The server sent a reply that nobody waits for: the JSON text of its result.
    Reply(Option<String>),
    /// Somebody sent an admin command.
    Admin(AdminRequest),
    /// Somebody sent the admin command `exit`.
    Exit,
}

impl Background {
    /// Goes to the background if that was asked for; the parent still waits.
    pub(super) fn start(
        client: &Client,
        commands: AdminCommands,
        keep_stderr: bool,
    ) -> Result<Self, Failure> {
        client.start_daemon(keep_stderr)?;
        let (mut socket, tape) = (None, Rc::clone(&client.tape));
        if client.options.process.detach && !tape.is_replay() {
            let path = client.dirs.run.join(format!("{PROGRAM}.{}.ctl", std::process::id()));
            let open = AdminSocket::open(&path, PROGRAM, &client.log, commands);
            process::remember_file(path.clone());
            socket = Some((open.map_err(Failure::new)?, path));
        }
        Ok(Self { socket, tape, blocked: false })
    }

    /// Waits until something happens.
    pub(super) fn wait(&mut self, session: &mut Session) -> Result<Happened, Failure> {
        loop {
            if !self.blocked
                && let Some(happened) = session.poll_received().map_err(lost(session))?
            {
                return Ok(happened);
            }
            match self.tape.command() {
                Some(Command::Request(request)) => return Ok(Happened::Admin(request)),
                Some(Command::Exit) => return Ok(Happened::Exit),
                None => {}
            }
            let Some((socket, _)) = &mut self.socket else {
                session.wait_for_more().map_err(lost(session))?;
                continue;
            };
            // Longer than a pause can be is for ever.
            let pause = socket.pause().and_then(|pause| Timespec::try_from(pause).ok());
            let [from_admin, from_server] = {
                let mut fds =
                    [PollFd::new(socket, PollFlags::IN), PollFd::new(&*session, PollFlags::IN)];
                // A server that is left alone may even go away; nothing of it must wake us.
                let watched = if self.blocked { 1 } else { fds.len() };
                // An interrupted wait is tried again.
                let _ = poll(fds.get_mut(..watched).unwrap_or_default(), pause.as_ref());
                fds.map(|fd| !fd.revents().is_empty())
            };
            if from_admin || pause.is_some() {
                let request = socket.next_request();
                let request = request.map_err(|error| Failure::new(strerror(&error)))?;
                if socket.is_exiting() {
                    self.tape.note_command(None);
                    return Ok(Happened::Exit);
                }
                if let Some(request) = request {
                    self.tape.note_command(Some(&request));
                    return Ok(Happened::Admin(request));
                }
            }
            if from_server && !self.blocked {
                session.wait_for_more().map_err(lost(session))?;
            }
        }
    }

    /// Answers an admin command.
    pub(super) fn reply(&mut self, request: &AdminRequest, result: Result<String, String>) {
        if let Some((socket, _)) = &mut self.socket {
            socket.reply(request.id, result);
        }
    }
}

/// What a command fails with when its connection ends.
fn lost(session: &Session) -> impl Fn(Lost) -> Failure + use<> {
    let peer = session.peer().to_owned();
    move |lost| receive_failed(&peer, &lost)
}

pub(super) fn receive_failed(peer: &str, lost: &Lost) -> Failure {
    Failure::new(format!("{peer}: receive failed ({lost})"))
}

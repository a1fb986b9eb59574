//! Events in: what is ready, what helpers have done, and what the core is told of it.

use std::mem;

use weir_server::event::{Event, HostStatus, LinkId, Now, PeerPortId, RemoteId, SessionId};

use crate::coverage::Counter;
use crate::driver::Driver;
use crate::driver::files::jobs::Done;
use crate::driver::incoming::listeners::Door;
use crate::driver::outside::{MEMORY_REPORT, Outside};
use crate::driver::token::Token;
use crate::poller::Ready;
use crate::stall;
use crate::vlog::Level;

impl Driver {
    /// A descriptor is ready.
    pub(super) fn on_ready(&mut self, ready: Ready, now: Now) {
        let outside = &mut self.outside;
        let (events, coverage) = (&mut self.execution.events, &mut self.execution.coverage);
        match Token::decode(ready.token) {
            Token::Session(id) => {
                outside.sessions.on_ready(&outside.poller, SessionId(id), ready, coverage);
            }
            Token::Listener(remote) => {
                let door = Door::Clients(RemoteId(remote));
                outside.accept(door, now.monotonic_us, coverage, events);
            }
            Token::PeerPort(port) => {
                let door = Door::Peers(PeerPortId(port));
                outside.accept(door, now.monotonic_us, coverage, events);
            }
            Token::Dialling => outside.take_dialled(events),
            Token::Opened => outside.take_opened(now.monotonic_us, events),
            Token::Link(id) => outside.links.on_ready(&outside.poller, LinkId(id), events),
            Token::AdminListener => outside.accept_admin(now.monotonic_us),
            Token::Admin(number) => {
                coverage.set(self.execution.server.query_counts());
                outside.admin.on_ready(&outside.poller, number, coverage, events);
            }
            Token::Jobs => {
                for done in self.execution.jobs.take() {
                    if matches!(done, Done::Trimmed) {
                        self.trim_own_memory();
                    }
                    self.command = self.execution.take_done(done).or(self.command.take());
                }
            }
            // The loop has looked for it before anything else.
            Token::Signal => {}
        }
    }

    /// Memory that has grown is told in the log, and what the server holds.
    pub(super) fn report_memory(&mut self, now: Now) {
        let grown = self.memory.check(now.monotonic_us, stall::peak_kib);
        let execution = &mut self.execution;
        // A replay has another memory.
        if let Some(text) = grown.filter(|_| !execution.is_recorded()) {
            execution.log.log("memory", Level::Info, &text);
            let (id, name, args) = (MEMORY_REPORT, "memory/show".to_owned(), vec![]);
            execution.events.push(Event::Command { id, name, args });
        }
    }

    /// What nobody needs is given up when nobody has worked for a while, and goes back to the
    /// system.
    pub(super) fn trim_memory_if_idle(&mut self, now: Now) {
        if self.idleness.take_due(now.monotonic_us) {
            self.execution.handle(now, Event::Idle);
            // It may take longer than who comes now wants to wait.
            let trim = self.outside.trimmer();
            let done = move || {
                trim();
                Done::Trimmed
            };
            self.execution.jobs.spawn_nice("trim", done, |_| Done::Trimmed);
        }
    }

    /// The rest of what is free goes back: what the allocator keeps for the loop, and for each of
    /// the threads that wait for work. That is little.
    fn trim_own_memory(&self) {
        self.outside.trim_memory();
        self.execution.jobs.trim_idle(self.outside.trimmer());
    }

    /// Tells the core what has happened.
    pub(super) fn deliver(&mut self, now: Now) {
        let Outside { sessions, dialling, .. } = &mut self.outside;
        sessions.take_events(&mut self.execution.events);
        dialling.say("ssl_read", sessions.take_tls_log());
        let mut events = mem::take(&mut self.execution.events);
        for event in events.drain(..) {
            if let Event::Command { name, .. } = &event {
                self.inform(now, name);
            }
            self.idleness.note(now.monotonic_us, &event);
            self.execution.handle(now, event);
        }
        self.execution.events = events;
    }

    /// Tells the core what it will need to know for an admin command.
    fn inform(&mut self, now: Now, command: &str) {
        let Self { execution, outside, stalls, .. } = self;
        if command == "memory/show" {
            let bytes = outside.sessions.backlog();
            let peers = outside.links.peer_backlog();
            execution.handle(now, Event::Backlog { bytes, peers });
        } else if command == "weir/status" {
            let status = HostStatus {
                resident_bytes: stall::resident_bytes(),
                rounds: execution.coverage.total(Counter::Rounds),
                stall_us: stalls.recent_us(now.monotonic_us),
                stall_ever_us: stalls.ever_us(),
                queued: outside.sessions.backlogs(),
            };
            execution.handle(now, Event::HostStatus(Box::new(status)));
        }
    }
}

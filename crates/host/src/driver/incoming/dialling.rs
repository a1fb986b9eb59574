//! Connections in the making: those that the server makes itself, and clients that speak TLS first.
//!
//! 1. An address is read, and the options and files of TLS are fetched, if it is for TLS.
//! 2. A host that is a name is looked up in a thread: the system's resolver may take its time. If it has several
//!    addresses, each attempt that fails gives the next one its turn, and so does each connection that ends: who
//!    answers at one of them may not be who is looked for.
//! 3. The thread of [`handshakes`](super::handshakes) makes the stream ready for messages.
//! 4. [`Dialling::take_finished`] hands it to the loop, unless nobody wants it any more.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use weir_net::error::strerror;
use weir_net::tls::{Connector, Line};
use weir_net::{Accepted, Address, AddressError, Stream, Tls, TlsOptions};
use weir_server::effect::TlsSettings;
use weir_server::event::LinkId;

use crate::driver::incoming::handshakes::{Finished, Handshakes, Purpose, Unfinished};
use crate::driver::threads::Threads;
use crate::vlog::{Level, Vlog};

/// How long another member of a cluster may take to answer, its handshake included.
pub(crate) const PEER_PATIENCE: Duration = Duration::from_secs(5);

/// How long the system of another member may acknowledge nothing until the connection ends. The next
/// one is made at once when the network is whole again, whereas TCP would wait as long as it was not.
pub(crate) const PEER_SILENCE: Duration = Duration::from_secs(2);

/// How long a client may take over its handshake.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);

/// Most threads that wait for the system's resolver at once; further attempts to connect fail.
const RESOLVERS_MAX: usize = 64;

/// Of so many names it is known at most which address has its turn; then all begin with the first one again.
const TURNS_MAX: usize = 1024;

/// A connection that is to be made.
pub(crate) struct Call {
    /// Whom it is for.
    pub(crate) purpose: Purpose,
    /// `tcp:HOST[:PORT]`, `ssl:HOST[:PORT]`, `unix:FILE`.
    pub(crate) target: String,
    /// Differentiated services code point, if one is configured.
    pub(crate) dscp: Option<u8>,
    /// How long it may take; without a limit until it is given up.
    pub(crate) patience: Option<Duration>,
}

/// An attempt to reach a host that is a name.
struct Attempt {
    target: String,
    /// By which of its addresses.
    nth: usize,
}

/// Which address of a name has its turn, if not the first.
#[derive(Default)]
struct Turns(BTreeMap<String, usize>);

impl Turns {
    /// By which address a name is to be reached now.
    fn attempt(&self, target: &str) -> Attempt {
        let nth = self.0.get(target).copied().unwrap_or(0);
        Attempt { target: target.to_owned(), nth }
    }

    /// The next address has its turn, unless an attempt of the same time has given it that.
    fn failed(&mut self, Attempt { target, nth }: Attempt) {
        if self.attempt(&target).nth == nth {
            if self.0.len() >= TURNS_MAX {
                self.0.clear();
            }
            self.0.insert(target, nth + 1);
        }
    }
}

/// What the helpers of this module report.
enum Report {
    /// A host has been looked up, and an attempt to connect has begun.
    Begun(Unfinished),
    Finished(Finished),
}

/// Options of TLS, and connections in the making. Readable when [`Dialling::take_finished`] has
/// work.
pub(crate) struct Dialling {
    tls: Tls,
    threads: Threads<Report>,
    /// Started when it is first needed.
    handshakes: Option<Handshakes>,
    /// Whom a connection is being made for, and by which address of a name.
    wanted: BTreeMap<Purpose, Option<Attempt>>,
    turns: Turns,
    /// Connections to other servers that were made, each by which address of a name.
    made: BTreeMap<LinkId, Attempt>,
    /// Threads that wait for the system's resolver.
    resolving: Arc<AtomicUsize>,
    /// Where relative sockets are.
    rundir: PathBuf,
    log: Vlog,
}

impl Dialling {
    pub(crate) fn new(rundir: PathBuf, log: Vlog) -> io::Result<Self> {
        Ok(Self {
            tls: Tls::default(),
            threads: Threads::new()?,
            handshakes: None,
            wanted: BTreeMap::new(),
            turns: Turns::default(),
            made: BTreeMap::new(),
            resolving: Arc::default(),
            rundir,
            log,
        })
    }

    /// Options of TLS for the connections that come.
    pub(crate) fn configure_tls(&mut self, settings: TlsSettings) {
        self.tls.configure(&TlsOptions {
            private_key: settings.private_key,
            certificate: settings.certificate,
            ca_cert: settings.ca_cert,
            bootstrap: settings.bootstrap,
            peer_ca_cert: settings.peer_ca_cert,
            protocols: settings.protocols,
            ciphers: settings.ciphers,
            ciphersuites: settings.ciphersuites,
            server_name: settings.server_name,
        });
        let lines = self.tls.take_log();
        self.say("stream_ssl", lines);
    }

    /// Whether clients that speak TLS may come in at the moment.
    pub(crate) fn has_room(&self) -> bool {
        self.handshakes.as_ref().is_none_or(Handshakes::has_room)
    }

    /// Somebody came in who is to speak TLS. Where it cannot be, for lack of a key say, he is let go.
    pub(crate) fn accept_tls(&mut self, accepted: Accepted, purpose: Purpose, name: String) {
        let acceptor = self.tls.acceptor();
        let lines = self.tls.take_log();
        self.say("ssl_accept", lines);
        let Ok(stream) = acceptor.and_then(|acceptor| accepted.stream.accept_tls(&acceptor)) else {
            return;
        };
        let patience = Some(HANDSHAKE_PATIENCE);
        if let Err(error) = self.shake_hands(Unfinished { stream, purpose, name, patience }) {
            self.log.log("stream_ssl", Level::Err, &strerror(&error));
        }
    }

    /// Begins an outgoing connection.
    ///
    /// # Errors
    /// Why there will be none.
    pub(crate) fn call(&mut self, call: Call) -> io::Result<()> {
        let Call { purpose, target, dscp, patience } = call;
        let address = self.address(&target, purpose)?;
        let connector = self.connector(&address)?;
        let attempt = address.needs_lookup().then(|| self.turns.attempt(&target));
        let nth = attempt.as_ref().map_or(0, |attempt| attempt.nth);
        let connect = move || -> io::Result<Unfinished> {
            let stream = Stream::connect_with(&address, connector.as_ref(), dscp, nth)?;
            if let Purpose::Peer(_) = purpose {
                stream.end_if_silent(PEER_SILENCE)?;
            }
            Ok(Unfinished { stream, purpose, name: target, patience })
        };
        if attempt.is_some() {
            self.look_up(purpose, connect)?;
        } else {
            self.shake_hands(connect()?)?;
        }
        self.wanted.insert(purpose, attempt);
        Ok(())
    }

    fn address(&self, target: &str, purpose: Purpose) -> io::Result<Address> {
        let parsed = match purpose {
            Purpose::Peer(_) => Address::parse_peer(target, &self.rundir),
            _ => Address::parse(target, &self.rundir),
        };
        parsed.map_err(|error| {
            if let AddressError::Malformed(text) = error {
                self.log.log_limited("connect", "socket_util", Level::Err, &text);
            }
            Errno::AFNOSUPPORT.into()
        })
    }

    /// What TLS needs to connect, if the address is for it.
    fn connector(&mut self, address: &Address) -> io::Result<Option<Connector>> {
        let Address::Ssl { .. } = address else { return Ok(None) };
        let connector = self.tls.connector();
        let lines = self.tls.take_log();
        self.say("ssl_connect", lines);
        connector.map(Some)
    }

    /// Begins to connect in a thread that may wait for the resolver.
    fn look_up(
        &self,
        purpose: Purpose,
        connect: impl FnOnce() -> io::Result<Unfinished> + Send + 'static,
    ) -> io::Result<()> {
        let waiter = Waiter::enter(&self.resolving).ok_or(Errno::AGAIN)?;
        let failed = move |error: io::Error| {
            let (result, name) = (Err(Some(error)), String::new());
            Report::Finished(Finished { result, purpose, name, log: Vec::new() })
        };
        let work = move || {
            let begun = connect();
            drop(waiter);
            begun.map_or_else(failed, Report::Begun)
        };
        self.threads.spawn("resolve", work, move |text| failed(io::Error::other(text)));
        Ok(())
    }

    fn shake_hands(&mut self, unfinished: Unfinished) -> io::Result<()> {
        let handshakes = match &mut self.handshakes {
            Some(handshakes) => handshakes,
            none => {
                let reporter = self.threads.reporter().clone();
                let report = move |finished| reporter.report(Report::Finished(finished));
                none.insert(Handshakes::start(Box::new(report))?)
            }
        };
        handshakes.begin(unfinished);
        Ok(())
    }

    /// Of the connections that were made some have ended since.
    pub(crate) fn note_ends(&mut self, is_open: impl Fn(LinkId) -> bool) {
        let Self { made, turns, .. } = self;
        let ended: Vec<LinkId> = made.keys().copied().filter(|link| !is_open(*link)).collect();
        ended.iter().filter_map(|link| made.remove(link)).for_each(|attempt| turns.failed(attempt));
    }

    /// Nobody wants the connection any more.
    pub(crate) fn give_up(&mut self, purpose: Purpose) {
        let Some(attempt) = self.wanted.remove(&purpose) else { return };
        attempt.into_iter().for_each(|attempt| self.turns.failed(attempt));
        if let Some(handshakes) = &self.handshakes {
            handshakes.give_up(purpose);
        }
    }

    /// What has come of connections since the last call.
    pub(crate) fn take_finished(&mut self) -> Vec<Finished> {
        let mut all = Vec::new();
        for report in self.threads.take() {
            match report {
                Report::Finished(finished) => all.extend(self.finish(finished)),
                Report::Begun(unfinished) => all.extend(self.on_begun(unfinished)),
            }
        }
        all
    }

    /// A host has been looked up; what has come of the connection, if that is the end of it.
    fn on_begun(&mut self, unfinished: Unfinished) -> Option<Finished> {
        let (purpose, name) = (unfinished.purpose, unfinished.name.clone());
        if !self.wanted.contains_key(&purpose) {
            return None;
        }
        let error = self.shake_hands(unfinished).err()?;
        self.finish(Finished { result: Err(Some(error)), purpose, name, log: Vec::new() })
    }

    /// Logs what TLS has to say and drops what nobody wants any more.
    fn finish(&mut self, mut finished: Finished) -> Option<Finished> {
        self.say("ssl_handshake", std::mem::take(&mut finished.log));
        match finished.purpose {
            Purpose::Client(_) | Purpose::Caller(_) => {}
            Purpose::Manager(_) | Purpose::Link(_) | Purpose::Peer(_) => {
                let attempt = self.wanted.remove(&finished.purpose)?;
                match (attempt, finished.purpose) {
                    (Some(attempt), _) if finished.result.is_err() => self.turns.failed(attempt),
                    (Some(attempt), Purpose::Link(link) | Purpose::Peer(link)) => {
                        self.made.insert(link, attempt);
                    }
                    _ => {}
                }
            }
        }
        Some(finished)
    }

    /// Logs what TLS has to say, limited by where it was said, for peers can provoke it; who asks
    /// for details has them all.
    pub(crate) fn say(&self, place: &'static str, lines: Vec<Line>) {
        for Line { severity, text } in lines {
            match severity.into() {
                Level::Dbg => self.log.log("stream_ssl", Level::Dbg, &text),
                level => self.log.log_limited(place, "stream_ssl", level, &text),
            }
        }
    }
}

impl AsFd for Dialling {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.threads.as_fd()
    }
}

/// One of the threads that wait for the resolver.
struct Waiter(Arc<AtomicUsize>);

impl Waiter {
    fn enter(count: &Arc<AtomicUsize>) -> Option<Self> {
        let add = |waiting| (waiting < RESOLVERS_MAX).then_some(waiting + 1);
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(Self(Arc::clone(count)))
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_that_fails_gives_the_next_address_its_turn_once() {
        let mut turns = Turns::default();
        let (one, other) = (turns.attempt("tcp:a:1"), turns.attempt("tcp:a:1"));
        turns.failed(one);
        turns.failed(other);
        assert_eq!(turns.attempt("tcp:a:1").nth, 1);
        assert_eq!(turns.attempt("tcp:b:1").nth, 0);
        for other in 0..2 * TURNS_MAX {
            turns.failed(turns.attempt(&format!("tcp:{other}:1")));
        }
        assert!(turns.0.len() <= TURNS_MAX);
    }

    /// Whoever answers there may not be who is looked for.
    #[test]
    fn a_connection_that_ends_gives_the_next_address_its_turn_once() {
        let log = Vlog::new("test");
        let mut dialling = Dialling::new(PathBuf::new(), log).expect("threads");
        for link in [LinkId(1), LinkId(2)] {
            dialling.made.insert(link, dialling.turns.attempt("tcp:ovn:1"));
        }
        dialling.note_ends(|_| true);
        assert_eq!(dialling.turns.attempt("tcp:ovn:1").nth, 0);
        dialling.note_ends(|link| link == LinkId(2));
        dialling.note_ends(|_| false);
        assert_eq!(dialling.turns.attempt("tcp:ovn:1").nth, 1);
        assert!(dialling.made.is_empty());
    }
}

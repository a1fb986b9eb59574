//! Connections in the making: those that the server makes itself, and clients that speak TLS first.
//!
//! 1. An address is read, and the options and files of TLS are fetched, if it is for TLS.
//! 2. A host that is a name is looked up in a thread: the system's resolver may take its time.
//! 3. The thread of [`handshakes`](super::handshakes) makes the stream ready for messages.
//! 4. [`Dialling::take_finished`] hands it to the loop, unless nobody wants it any more.

use std::collections::BTreeSet;
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
    /// Whom a connection is being made for.
    wanted: BTreeSet<Purpose>,
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
            wanted: BTreeSet::new(),
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
        let needs_lookup = address.needs_lookup();
        let connect = move || -> io::Result<Unfinished> {
            let stream = Stream::connect_with(&address, connector.as_ref(), dscp)?;
            if let Purpose::Peer(_) = purpose {
                stream.end_if_silent(PEER_SILENCE)?;
            }
            Ok(Unfinished { stream, purpose, name: target, patience })
        };
        if needs_lookup {
            self.look_up(purpose, connect)?;
        } else {
            self.shake_hands(connect()?)?;
        }
        self.wanted.insert(purpose);
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

    /// Nobody wants the connection any more.
    pub(crate) fn give_up(&mut self, purpose: Purpose) {
        if self.wanted.remove(&purpose)
            && let Some(handshakes) = &self.handshakes
        {
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
        if !self.wanted.contains(&purpose) {
            return None;
        }
        let error = self.shake_hands(unfinished).err()?;
        self.finish(Finished { result: Err(Some(error)), purpose, name, log: Vec::new() })
    }

    /// Logs what TLS has to say and drops what nobody wants any more.
    fn finish(&mut self, mut finished: Finished) -> Option<Finished> {
        self.say("ssl_handshake", std::mem::take(&mut finished.log));
        let is_wanted = match finished.purpose {
            Purpose::Client(_) | Purpose::Caller(_) => true,
            Purpose::Manager(_) | Purpose::Link(_) | Purpose::Peer(_) => {
                self.wanted.remove(&finished.purpose)
            }
        };
        is_wanted.then_some(finished)
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

//! Connections on their way to becoming sessions: outgoing ones, and those that speak TLS first.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;
use weir_net::error::strerror;
use weir_net::tls::Line;
use weir_net::{Accepted, Address, AddressError, Stream, Tls, TlsOptions};
use weir_server::effect::{RemoteOptions, TlsSettings};
use weir_server::event::{Event, RemoteId};

use crate::driver::files::jobs::{Done, Jobs};
use crate::driver::incoming::handshakes::{Begun, HANDSHAKE_PATIENCE, Origin, Shaken, Shaking};
use crate::vlog::{Level, Vlog};

/// Options of TLS, and connections in the making.
pub(crate) struct Connections {
    tls: Tls,
    /// Started when it is first needed.
    shaking: Option<Shaking>,
    /// Remotes that an outgoing connection is being made for.
    wanted: BTreeSet<RemoteId>,
    rundir: PathBuf,
    log: Vlog,
}

impl Connections {
    pub(crate) fn new(rundir: PathBuf, log: Vlog) -> Self {
        let (tls, wanted) = (Tls::default(), BTreeSet::new());
        Self { tls, shaking: None, wanted, rundir, log }
    }

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

    /// The options and files of TLS.
    pub(crate) fn tls(&mut self) -> &mut Tls {
        &mut self.tls
    }

    /// Whether clients that speak TLS may come in at the moment.
    pub(crate) fn has_room(&self) -> bool {
        self.shaking.as_ref().is_none_or(Shaking::has_room)
    }

    /// A client came in that is to speak TLS. Where it cannot, for lack of a key say, it is let go.
    pub(crate) fn accept_tls(
        &mut self,
        jobs: &Jobs,
        accepted: Accepted,
        remote: RemoteId,
        name: String,
    ) {
        let acceptor = self.tls.acceptor();
        let lines = self.tls.take_log();
        self.say("ssl_accept", lines);
        let Ok(stream) = acceptor.and_then(|acceptor| accepted.stream.accept_tls(&acceptor)) else {
            return;
        };
        let (origin, patience) = (Origin::In, HANDSHAKE_PATIENCE);
        let begun = Begun { stream, origin, remote, name, patience };
        if let Err(error) = self.begin(jobs, begun) {
            self.log.log("stream_ssl", Level::Err, &strerror(&error));
        }
    }

    /// Begins an outgoing connection.
    pub(crate) fn connect(
        &mut self,
        jobs: &Jobs,
        remote: RemoteId,
        target: String,
        options: &RemoteOptions,
        patience_ms: u64,
        events: &mut Vec<Event>,
    ) {
        self.wanted.insert(remote);
        if let Err(error) = self.try_connect(jobs, remote, target, options, patience_ms) {
            self.wanted.remove(&remote);
            let error = Some(strerror(&error));
            events.push(Event::ConnectFailed { remote, error });
        }
    }

    fn try_connect(
        &mut self,
        jobs: &Jobs,
        remote: RemoteId,
        target: String,
        options: &RemoteOptions,
        patience_ms: u64,
    ) -> io::Result<()> {
        let address = Address::parse(&target, &self.rundir).map_err(|error| {
            if let AddressError::Malformed(text) = error {
                self.log.log_limited("connect", "socket_util", Level::Err, &text);
            }
            io::Error::from(Errno::AFNOSUPPORT)
        })?;
        let connector = match address {
            Address::Ssl { .. } => {
                let connector = self.tls.connector();
                let lines = self.tls.take_log();
                self.say("ssl_connect", lines);
                Some(connector?)
            }
            _ => None,
        };
        let (patience, dscp) = (Duration::from_millis(patience_ms), options.dscp);
        let name = target;
        let begin = move |stream| Begun { stream, origin: Origin::Out, remote, name, patience };
        if !address.needs_lookup() {
            let stream = Stream::connect_with(&address, connector.as_ref(), dscp)?;
            return self.begin(jobs, begin(stream));
        }
        // The system's resolver may take its time.
        let failed = move |error: io::Error| {
            let (origin, name) = (Origin::Out, String::new());
            let result = Err(Some(error));
            Done::Connected(Box::new(Shaken { result, origin, remote, name, log: Vec::new() }))
        };
        let look_up = move || match Stream::connect_with(&address, connector.as_ref(), dscp) {
            Ok(stream) => Done::Begun(Box::new(begin(stream))),
            Err(error) => failed(error),
        };
        jobs.look_up(look_up, move |error| failed(io::Error::other(error)))
    }

    /// A host has been looked up.
    pub(crate) fn looked_up(&mut self, jobs: &Jobs, begun: Begun, events: &mut Vec<Event>) {
        let remote = begun.remote;
        if !self.wanted.contains(&remote) {
            return;
        }
        if let Err(error) = self.begin(jobs, begun) {
            self.wanted.remove(&remote);
            events.push(Event::ConnectFailed { remote, error: Some(strerror(&error)) });
        }
    }

    fn begin(&mut self, jobs: &Jobs, begun: Begun) -> io::Result<()> {
        if self.shaking.is_none() {
            self.shaking = Some(Shaking::start(jobs.reporter())?);
        }
        if let Some(shaking) = &self.shaking {
            shaking.begin(begun);
        }
        Ok(())
    }

    /// Nobody wants the remote's connection any more.
    pub(crate) fn forget(&mut self, remote: RemoteId) {
        self.wanted.remove(&remote);
    }

    /// Something has come of a connection: the stream of a new session, with its name.
    pub(crate) fn finish(
        &mut self,
        finished: Shaken,
        events: &mut Vec<Event>,
    ) -> Option<(Stream, String)> {
        let Shaken { result, origin, remote, name, log } = finished;
        self.say("ssl_handshake", log);
        if origin == Origin::Out && !self.wanted.remove(&remote) {
            return None;
        }
        match result {
            Ok(stream) => Some((stream, name)),
            Err(error) => {
                if origin == Origin::Out {
                    let error = error.as_ref().map(strerror);
                    events.push(Event::ConnectFailed { remote, error });
                }
                None
            }
        }
    }

    /// Peers can provoke these lines: they are limited by where they come from.
    /// Logs what TLS has to say, limited by where it was said; who asks for details has them all.
    pub(super) fn say(&self, place: &'static str, lines: Vec<Line>) {
        for Line { severity, text } in lines {
            match severity.into() {
                Level::Dbg => self.log.log("stream_ssl", Level::Dbg, &text),
                level => self.log.log_limited(place, "stream_ssl", level, &text),
            }
        }
    }
}

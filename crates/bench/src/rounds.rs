//! What every scenario runs in: the servers, how often, and where progress is shown.

use std::cell::Cell;
use std::path::PathBuf;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::Error;
use crate::args::Args;
use crate::interrupt;
use crate::peer::{Peer, Peers};
use crate::procfs;
use crate::progress::Progress;
use crate::report::{About, Figures, Report};
use crate::running::{End, Running, Source};

/// Which floors a scenario can be measured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Floors {
    /// There is no bare loop of this shape.
    None,
    /// A loop that answers, and sends no updates.
    Plain,
    /// Loops that answer and send updates: the plain and the paced floor.
    Both,
    /// A loop of long strings, full replies and whole files.
    Bulk,
}

/// The setting of a run.
pub(crate) struct Bench {
    peers: Peers,
    pub(crate) progress: Progress,
    /// Whether a server that was found has been used, so that its rows are ours.
    used: Cell<bool>,
}

impl Bench {
    /// Takes the options about servers out of `args`.
    pub(crate) fn from_args(args: &mut Args) -> Result<Self, Error> {
        raise_files();
        let peers = Peers::from_args(args)?;
        Ok(Self { peers, progress: Progress::new(), used: Cell::new(false) })
    }

    /// What a client program needs for TLS, if that is spoken.
    pub(crate) fn client_options(&self) -> Vec<String> {
        self.peers.client_options()
    }

    /// The server that is compared with the first.
    pub(crate) fn last_peer(&self) -> Option<Peer> {
        self.peers.last().cloned()
    }

    /// Whether clients speak TLS.
    pub(crate) fn is_tls(&self) -> bool {
        self.peers.is_tls()
    }

    /// Whether a server is measured that runs already.
    pub(crate) fn has_running(&self) -> bool {
        self.peers.has_running()
    }

    /// Runs `run` for every server in turn, as often as asked for.
    pub(crate) fn rounds(
        &self,
        mut about: About,
        floors: Floors,
        run: &mut dyn FnMut(&Peer) -> Result<Figures, Error>,
    ) -> Result<Report, Error> {
        if self.is_tls() {
            // The goals, which go by the scenario, are those of connections without.
            about.scenario.push_str(", over TLS");
            about.title.push_str(", over TLS");
        }
        let command: Vec<String> = std::env::args().skip(1).collect();
        let mut report =
            Report::new(about, procfs::machine(), format!("weir bench {}", command.join(" ")));
        for round in 1..=self.peers.repeat {
            for peer in self.peers.order(floors) {
                self.progress.note(&format!("{} ({round} of {})", peer.name, self.peers.repeat));
                let figures = run(&peer)?;
                report.add(&peer.name, peer.is_floor(), figures);
            }
        }
        self.progress.clear();
        Ok(report)
    }

    /// Starts a server, or takes the one that runs already.
    pub(crate) fn start(&self, peer: &Peer, source: Source<'_>) -> Result<Running, Error> {
        self.progress.wait(&format!("{}: starting", peer.name));
        let running = self.peers.start(peer, source)?;
        if let (Source::Schema(schema), true) = (source, running.is_found()) {
            running.make_empty(schema, self.peers.clear || self.used.get())?;
            self.used.set(true);
        }
        Ok(running)
    }

    /// Ends a server of our own and starts it again on the same file.
    pub(crate) fn restart(
        &self,
        peer: &Peer,
        end: End,
        running: &mut Running,
    ) -> Result<(), Error> {
        self.progress.wait(&format!("{}: starting again", peer.name));
        self.peers.restart(peer, end, running)
    }

    /// Starts a server of our own again that has been stopped, on the same file.
    pub(crate) fn start_again(&self, peer: &Peer, running: &mut Running) -> Result<(), Error> {
        self.peers.start_again(peer, running)
    }

    /// Where files of our own may be made.
    pub(crate) fn scratch(&self, name: &str) -> PathBuf {
        let path = self.peers.dir.join(format!("weir-bench-{}-{name}", std::process::id()));
        interrupt::remember_path(&path);
        path
    }
}

/// Thousands of clients need as many descriptors, here and in the servers, which inherit the limit.
fn raise_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // A refusal shows when a connection cannot be made.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

//! The servers that the options name.

use std::path::{Path, PathBuf};

use crate::Error;
use crate::args::Args;
use crate::client::Target;
use crate::floor::{self, Kind};
use crate::pki::{self, Pki};
use crate::rounds::Floors;
use crate::running::{self, End, Running, Source};

/// Where Debian's package puts the reference server.
const REFERENCE: &str = "/usr/sbin/ovsdb-server";

/// What the options say about servers.
pub(crate) struct Peers {
    peers: Vec<Peer>,
    /// Where databases and sockets are made.
    pub(crate) dir: PathBuf,
    /// Whether to measure the bare floor too.
    floor: bool,
    /// Runs of everything, peers alternating.
    pub(crate) repeat: usize,
    /// What servers and clients speak TLS with, where they shall.
    pki: Option<Pki>,
    /// Whether a running server's database may be emptied.
    pub(crate) clear: bool,
}

/// A server to test.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// What the table calls it.
    pub(crate) name: String,
    how: How,
}

#[derive(Clone, Debug)]
enum How {
    Start(PathBuf),
    Connect { target: Target, pid: Option<u32>, file: Option<PathBuf> },
    Floor(Kind),
}

impl Peers {
    pub(crate) fn from_args(args: &mut Args) -> Result<Self, Error> {
        let mut peers = Vec::new();
        for peer in args.all("--peer")? {
            let Some((name, path)) = peer.split_once('=') else {
                return Err(Error::Usage(format!("--peer {peer}: not of the form NAME=PATH")));
            };
            peers.push(Peer { name: name.into(), how: How::Start(find_program(path)?) });
        }
        let tls = args.flag("--tls");
        let pid = args.value::<u32>("--pid")?;
        let file = args.text("--file")?.map(PathBuf::from);
        let mut connector = pki::connector_from_args(args)?;
        let method = args.text("--server")?.or(args.text("--connect")?);
        if let Some(method) = method {
            let target = Target::parse(&method, connector.take())?;
            if tls && !target.is_tls() {
                return Err(Error::Usage(format!("--tls: {method} is not ssl:HOST:PORT")));
            }
            peers.push(Peer { name: "server".into(), how: How::Connect { target, pid, file } });
        }
        if connector.is_some() {
            return Err(Error::Usage("-p, -c and -C are for --server; --tls makes its own".into()));
        }
        if peers.is_empty() {
            peers = installed();
        }
        if peers.is_empty() {
            return Err(Error::Usage("name a server: --peer NAME=PATH, or --server".into()));
        }
        let dir = args.text("--dir")?.map_or_else(std::env::temp_dir, PathBuf::from);
        let repeat = args.value("--repeat")?.unwrap_or(1).max(1);
        let (floor, clear) = (!args.flag("--no-floor"), args.flag("--clear"));
        let started = peers.iter().any(|peer| matches!(peer.how, How::Start(_)));
        let pki = if tls && started { Some(Pki::make(&dir)?) } else { None };
        Ok(Self { peers, dir, pki, floor, repeat, clear })
    }

    /// Whether clients speak TLS to any server.
    pub(crate) fn is_tls(&self) -> bool {
        let ssl = |peer: &Peer| matches!(&peer.how, How::Connect { target, .. } if target.is_tls());
        self.pki.is_some() || self.peers.iter().any(ssl)
    }

    /// Whether one of the servers runs already, so that it is not ours.
    pub(crate) fn has_running(&self) -> bool {
        self.peers.iter().any(|peer| matches!(peer.how, How::Connect { .. }))
    }

    /// Starts a server on a database of its own, or finds it running.
    pub(crate) fn start(&self, peer: &Peer, source: Source<'_>) -> Result<Running, Error> {
        peer.start(&self.dir, self.pki.as_ref(), source)
    }

    /// Ends a server that was started and starts it again on the same file.
    pub(crate) fn restart(
        &self,
        peer: &Peer,
        end: End,
        running: &mut Running,
    ) -> Result<(), Error> {
        running.restart(&peer.name, end, self.pki.as_ref())
    }

    /// Starts a server again that has been stopped, on the same file.
    pub(crate) fn start_again(&self, peer: &Peer, running: &mut Running) -> Result<(), Error> {
        running.start_again(&peer.name, self.pki.as_ref())
    }

    /// What a client program needs for TLS, if that is spoken.
    pub(crate) fn client_options(&self) -> Vec<String> {
        self.pki.as_ref().map(Pki::options).unwrap_or_default()
    }

    /// The server that is compared with the first one.
    pub(crate) fn last(&self) -> Option<&Peer> {
        self.peers.last()
    }

    /// The servers of one round in the order given, the floors last.
    pub(crate) fn order(&self, floors: Floors) -> Vec<Peer> {
        let mut order = self.peers.clone();
        let plain = if self.is_tls() { " (no TLS)" } else { "" };
        let kinds: &[Kind] = match floors {
            Floors::None => &[],
            Floors::Plain => &[Kind::Plain],
            Floors::Both => &[Kind::Plain, Kind::Paced],
            Floors::Bulk => &[Kind::Bulk],
        };
        order.extend(kinds.iter().filter(|_| self.floor).map(|&kind| {
            let paced = if kind == Kind::Paced { "paced " } else { "" };
            Peer { name: format!("{paced}floor{plain}"), how: How::Floor(kind) }
        }));
        order
    }
}

/// Without a word about servers: the reference, where it is installed, and the Weir beside us.
fn installed() -> Vec<Peer> {
    let peer = |name: &str, path: PathBuf| Peer { name: name.into(), how: How::Start(path) };
    let mut peers = Vec::new();
    let reference = Path::new(REFERENCE);
    if reference.exists() {
        peers.push(peer("ref", reference.to_owned()));
    }
    let beside = std::env::current_exe().map(|own| own.with_file_name("weir")).ok();
    peers.extend(beside.filter(|weir| weir.exists()).map(|weir| peer("weir", weir)));
    peers
}

/// A folder stands for the `ovsdb-server` in it.
fn find_program(path: &str) -> Result<PathBuf, Error> {
    let path = PathBuf::from(path);
    let path = if path.is_dir() { path.join("ovsdb-server") } else { path };
    path.canonicalize().map_err(|e| Error::io("looking for the server", &path, e))
}

impl Peer {
    pub(crate) fn is_floor(&self) -> bool {
        matches!(self.how, How::Floor(_))
    }

    /// The program, of a server that is started.
    pub(crate) fn program(&self) -> Option<&Path> {
        match &self.how {
            How::Start(program) => Some(program),
            How::Connect { .. } | How::Floor(_) => None,
        }
    }

    /// The server of this kind by another program.
    pub(crate) fn with_program(&self, program: PathBuf) -> Self {
        Self { name: self.name.clone(), how: How::Start(program) }
    }

    fn start(
        &self,
        parent: &Path,
        pki: Option<&Pki>,
        source: Source<'_>,
    ) -> Result<Running, Error> {
        match &self.how {
            How::Connect { target, pid, file } => match source {
                Source::Schema(_) => Ok(Running::found(target.clone(), *pid, file.clone())),
                Source::File(_) | Source::Made(_) | Source::Relay(_) => Err(Error::Usage(
                    "this scenario makes its own database file: it wants --peer, not --server"
                        .into(),
                )),
            },
            How::Start(program) => running::launch(&self.name, parent, pki, &|dir| {
                source.create_file(&dir.join(running::FILE))?;
                running::server_command(program, dir, pki, source)
            }),
            How::Floor(kind) => running::launch(&self.name, parent, None, &|dir| {
                let (socket, file) = (dir.join(running::SOCKET), dir.join(running::FILE));
                if *kind == Kind::Bulk {
                    source.create_file(&file)?;
                }
                floor::child(&socket, &file, *kind)
            }),
        }
    }
}

//! The servers under test: started with a fresh database, measured, stopped.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::Error;
use crate::args::Args;
use crate::client::Target;
use crate::error::fail;

/// How long a server may take until it listens.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a server may take to stop before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// The database file and the socket in a server's folder.
const FILE: &str = "db";
const SOCKET: &str = "sock";

/// What the options say about servers.
pub(crate) struct Peers {
    peers: Vec<Peer>,
    dir: PathBuf,
    /// Whether to measure the bare floor too.
    pub(crate) floor: bool,
    /// Runs of everything, peers alternating.
    pub(crate) repeat: usize,
    /// Where all figures go.
    pub(crate) json: Option<PathBuf>,
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
    Connect { target: Target, pid: u32, file: Option<PathBuf> },
    Floor { paced: bool },
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
        let pid = args.value::<u32>("--pid")?;
        let file = args.text("--file")?.map(PathBuf::from);
        if let Some(method) = args.text("--connect")? {
            let target = Target::parse(&method)?;
            let pid = pid.ok_or_else(|| Error::Usage("--connect needs --pid".into()))?;
            peers.push(Peer { name: "server".into(), how: How::Connect { target, pid, file } });
        }
        if peers.is_empty() {
            return Err(Error::Usage("name a server: --peer NAME=PATH, or --connect".into()));
        }
        let dir = args.text("--dir")?.map_or_else(std::env::temp_dir, PathBuf::from);
        let repeat = args.value("--repeat")?.unwrap_or(1).max(1);
        let json = args.text("--json")?.map(PathBuf::from);
        Ok(Self { peers, dir, floor: !args.flag("--no-floor"), repeat, json })
    }

    /// The servers of one run in the order given, the floor last; the paced one only makes sense
    /// where there are monitors.
    pub(crate) fn order(&self, monitors: bool) -> Vec<Peer> {
        let mut order = self.peers.clone();
        if self.floor {
            order.push(Peer { name: "floor".into(), how: How::Floor { paced: false } });
        }
        if self.floor && monitors {
            order.push(Peer { name: "paced floor".into(), how: How::Floor { paced: true } });
        }
        order
    }

    /// Where databases and sockets are made.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }
}

/// A folder stands for the `ovsdb-server` in it.
fn find_program(path: &str) -> Result<PathBuf, Error> {
    let path = PathBuf::from(path);
    let path = if path.is_dir() { path.join("ovsdb-server") } else { path };
    path.canonicalize().map_err(|e| Error::io("looking for the server", &path, e))
}

impl Peer {
    pub(crate) fn is_floor(&self) -> bool {
        matches!(self.how, How::Floor { .. })
    }

    /// Starts the server on a database that `create` writes (or finds it running).
    pub(crate) fn start(
        &self,
        parent: &Path,
        create: &dyn Fn(&Path) -> Result<(), Error>,
    ) -> Result<Running, Error> {
        match &self.how {
            How::Connect { target, pid, file } => {
                let (target, file) = (target.clone(), file.clone());
                Ok(Running::found(target, *pid, file))
            }
            How::Start(program) => self.launch(parent, &|dir| {
                create(&dir.join(FILE))?;
                server_command(program, dir)
            }),
            How::Floor { paced } => self.launch(parent, &|dir| {
                crate::floor::child(&dir.join(SOCKET), &dir.join(FILE), *paced)
            }),
        }
    }

    /// Starts what `command` gives in a new folder and waits until it listens.
    fn launch(
        &self,
        parent: &Path,
        command: &dyn Fn(&Path) -> Result<Command, Error>,
    ) -> Result<Running, Error> {
        let dir = make_dir(parent)?;
        let log = dir.join("log");
        let child = spawn(command(&dir)?, &dir, &log)?;
        let mut running = Running {
            target: Target::Unix(dir.join(SOCKET)),
            pid: child.id(),
            file: Some(dir.join(FILE)),
            own: Some(Own { child, dir, log }),
        };
        running.wait_until_listening(&self.name)?;
        Ok(running)
    }
}

/// A new folder of our own, named so that two runs at a time do not meet.
fn make_dir(parent: &Path) -> Result<PathBuf, Error> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let dir = parent.join(format!("weir-bench-{}-{n}", std::process::id()));
    fs::create_dir(&dir).map_err(|e| Error::io("creating", &dir, e))?;
    dir.canonicalize().map_err(|e| Error::io("finding", &dir, e))
}

/// The command line of a server. One that goes by its link's name gets such a link.
fn server_command(program: &Path, dir: &Path) -> Result<Command, Error> {
    let named = program.file_name().is_some_and(|name| name == "ovsdb-server");
    let start = if named { program.to_owned() } else { dir.join("ovsdb-server") };
    if !named {
        symlink(program, &start).map_err(|e| Error::io("linking", &start, e))?;
    }
    let mut command = Command::new(start);
    command
        .arg("-vconsole:warn")
        .arg(format!("--remote=punix:{}", dir.join(SOCKET).display()))
        .arg(format!("--unixctl={}", dir.join("ctl").display()))
        .arg(dir.join(FILE));
    Ok(command)
}

fn spawn(mut command: Command, dir: &Path, log: &Path) -> Result<Child, Error> {
    let output = File::create(log).map_err(|e| Error::io("creating", log, e))?;
    command
        .env("OVS_RUNDIR", dir)
        .env("OVS_LOGDIR", dir)
        .env("OVS_DBDIR", dir)
        .env("OVS_SYSLOG_METHOD", "null")
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output);
    let program = command.get_program().to_owned();
    command.spawn().map_err(|e| Error::io("starting", Path::new(&program), e))
}

/// A server that is up.
pub(crate) struct Running {
    /// Where it listens.
    pub(crate) target: Target,
    /// Its process.
    pub(crate) pid: u32,
    file: Option<PathBuf>,
    own: Option<Own>,
}

/// What is ours to stop and remove.
struct Own {
    child: Child,
    dir: PathBuf,
    log: PathBuf,
}

impl Running {
    /// A server that somebody else runs.
    pub(crate) fn found(target: Target, pid: u32, file: Option<PathBuf>) -> Self {
        Self { target, pid, file, own: None }
    }

    /// The database file's size in bytes, where the file is known.
    pub(crate) fn file_size(&self) -> Option<u64> {
        Some(fs::metadata(self.file.as_ref()?).ok()?.len())
    }

    fn wait_until_listening(&mut self, name: &str) -> Result<(), Error> {
        let start = Instant::now();
        while self.target.connect().is_err() {
            if let Some(own) = &mut self.own
                && let Some(status) = own.child.try_wait()?
            {
                let log = fs::read_to_string(&own.log).unwrap_or_default();
                fail!("{name}: the server ended at once ({status}): {}", log.trim());
            }
            if start.elapsed() > START_TIMEOUT {
                fail!("{name}: the server does not listen on {}", self.target);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// A failure with the server's name and the end of its log.
    pub(crate) fn explain(&self, name: &str, error: &Error) -> Error {
        let log = self.own.as_ref().map(|own| fs::read_to_string(&own.log).unwrap_or_default());
        let lines: Vec<_> = log.iter().flat_map(|log| log.lines().rev().take(5)).collect();
        let tail: String = lines.into_iter().rev().map(|line| format!("\n  {line}")).collect();
        Error::Check(format!("{name}: {error}{tail}"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(mut own) = self.own.take() else { return };
        if let Some(pid) = i32::try_from(own.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let start = Instant::now();
        while matches!(own.child.try_wait(), Ok(None)) {
            if start.elapsed() > STOP_TIMEOUT {
                let _ = own.child.kill();
                let _ = own.child.wait();
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = fs::remove_dir_all(&own.dir);
    }
}

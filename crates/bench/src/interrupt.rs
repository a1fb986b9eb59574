//! What an interrupted run leaves behind: nothing. Its servers are stopped, its files removed.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::{Error, procfs};

/// How long servers may take to stop before they are killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// What is to be stopped and removed.
static OURS: Mutex<Ours> =
    Mutex::new(Ours { servers: Vec::new(), groups: Vec::new(), paths: Vec::new() });

struct Ours {
    servers: Vec<u32>,
    /// Process groups of commands that are measured, by their first process.
    groups: Vec<u32>,
    paths: Vec<PathBuf>,
}

fn ours() -> MutexGuard<'static, Ours> {
    OURS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has INT, TERM and HUP clean up from now on before they end the process.
pub(crate) fn handle_signals() -> Result<(), Error> {
    let (mut woken, waker) = UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // One byte a signal: which one it was.
        let (mut told, teller) = UnixStream::pair()?;
        signal_hook::low_level::pipe::register(signal, teller)?;
        let mut waker = waker.try_clone()?;
        std::thread::spawn(move || {
            if told.read(&mut [0]).is_ok_and(|count| count > 0) {
                let number = u8::try_from(signal).unwrap_or_default();
                let _ = waker.write(&[number]);
            }
        });
    }
    std::thread::spawn(move || {
        let mut number = [0];
        if woken.read_exact(&mut number).is_ok() {
            // Nobody else goes on: what happens to the servers is no error of theirs.
            let _ours = clean_up();
            let _ = signal_hook::low_level::emulate_default_handler(i32::from(number[0]));
        }
    });
    Ok(())
}

fn clean_up() -> MutexGuard<'static, Ours> {
    let ours = ours();
    send(&ours.servers, Signal::TERM);
    for group in ours.groups.iter().filter_map(|pid| Pid::from_raw(i32::try_from(*pid).ok()?)) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let begin = Instant::now();
    while !ours.servers.iter().all(|pid| procfs::has_ended(*pid)) {
        if begin.elapsed() > STOP_TIMEOUT {
            send(&ours.servers, Signal::KILL);
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    for path in &ours.paths {
        let _ = fs::remove_dir_all(path).or_else(|_| fs::remove_file(path));
    }
    ours
}

fn send(pids: &[u32], signal: Signal) {
    let pids = pids.iter().filter_map(|pid| Pid::from_raw(i32::try_from(*pid).ok()?));
    for pid in pids {
        let _ = kill_process(pid, signal);
    }
}

/// Kills the servers that run now: who waits for one of them waits no longer.
pub(crate) fn kill_servers() {
    send(&ours().servers, Signal::KILL);
}

/// Starts a server. No signal is heeded between its start and the note of it.
pub(crate) fn start_server(spawn: impl FnOnce() -> Result<Child, Error>) -> Result<Child, Error> {
    let mut ours = ours();
    let child = spawn()?;
    ours.servers.push(child.id());
    Ok(child)
}

/// Forgets a server that is about to be reaped: its number may soon be somebody else's.
pub(crate) fn forget_server(pid: u32) {
    ours().servers.retain(|other| *other != pid);
}

/// Forgets a file or folder that is no more.
pub(crate) fn forget_path(path: &Path) {
    ours().paths.retain(|other| other != path);
}

/// Remembers a file or folder that will be made, to remove it.
pub(crate) fn remember_path(path: &Path) {
    ours().paths.push(path.to_owned());
}

/// The process group of a command that is measured, while it runs.
pub(crate) struct Group(u32);

impl Group {
    /// Remembers the process group that this process leads, to kill it.
    pub(crate) fn remember(pid: u32) -> Self {
        ours().groups.push(pid);
        Self(pid)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        ours().groups.retain(|other| *other != self.0);
    }
}

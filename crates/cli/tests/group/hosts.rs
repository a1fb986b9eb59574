//! Hosts of a network that is there for one test: namespaces joined by a bridge, each with a small
//! disk. What is sent from one host to another can be lost, in one direction or in both, and a host's
//! line can be slow.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::err;

/// Who holds a namespace, with a disk in a folder that only this host sees there.
const HOLD: &str = r#"mount -t tmpfs -o size="$1" tmpfs "$2" && echo ready && exec sleep 100000"#;

/// What the namespace of the bridge, which has no disk, is held open by.
const HOLD_BRIDGE: &str = "echo ready && exec sleep 100000";

/// An address of the link layer that nobody has: the bridge tells everybody, and nobody listens.
const NOBODY: &str = "02:00:00:00:00:ff";

/// A slow line: what waits for longer is lost.
const SLOW: [&str; 7] = ["tbf", "rate", "1mbit", "burst", "16kb", "latency", "300ms"];

/// A host that is there until it is dropped.
struct Host {
    holder: Child,
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

impl Host {
    fn new(script: &str, args: &[&str]) -> Option<Self> {
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount", "sh", "-c", script, "sh"]).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut host = Self { holder: command.spawn().ok()? };
        let said = host.holder.stdout.take().expect("a pipe");
        let first = BufReader::new(said).lines().next()?.ok()?;
        (first == "ready").then_some(host)
    }

    fn pid(&self) -> String {
        self.holder.id().to_string()
    }

    /// What runs `program` here.
    fn enter(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--net", "--mount", "--target", &self.pid()]);
        command
    }

    /// Runs a command of ip(8) or tc(8).
    fn set(&self, words: &[&str]) -> Result<(), String> {
        let done = self.run(words);
        done.status.success().then_some(()).ok_or_else(|| format!("{words:?}: {}", err(&done)))
    }

    fn run(&self, words: &[&str]) -> Output {
        self.enter().args(words).output().expect("nsenter has been used before")
    }
}

/// Whose clock that counts from its start is so many seconds ahead; its wall clock is this machine's, for
/// a namespace has none of its own.
const OTHER_CLOCK: [&str; 3] = ["unshare", "--time", "--monotonic"];

/// All hosts of a network.
pub(crate) struct Hosts {
    hosts: Vec<Host>,
    bridge: Host,
    disks: Vec<PathBuf>,
    /// Clocks can be others.
    has_clocks: bool,
    /// Programs that have been started.
    started: AtomicU32,
}

impl Hosts {
    /// So many hosts with disks of so many MiB in these folders; `None`, and said so, where namespaces
    /// cannot be made.
    pub(crate) fn new(disks: Vec<PathBuf>, mib: u32) -> Option<Self> {
        let hosts = Self::make(disks, mib);
        if hosts.is_none() {
            eprintln!(
                "skipped: no network of namespaces can be made here (that wants root and ip)"
            );
        }
        hosts
    }

    fn make(disks: Vec<PathBuf>, mib: u32) -> Option<Self> {
        let size = format!("{mib}M");
        let bridge = Host::new(HOLD_BRIDGE, &[])?;
        bridge.set(&["ip", "link", "add", "name", "bridge", "type", "bridge"]).ok()?;
        bridge.set(&["ip", "link", "set", "dev", "bridge", "up"]).ok()?;
        let mut hosts = vec![];
        for disk in &disks {
            std::fs::create_dir_all(disk).expect("a folder");
            hosts.push(Host::new(HOLD, &[&size, &disk.display().to_string()])?);
        }
        let mut clock = Command::new(OTHER_CLOCK[0]);
        clock.args(&OTHER_CLOCK[1..]).args(["1", "true"]).stderr(Stdio::null());
        let has_clocks = clock.status().is_ok_and(|status| status.success());
        let network = Self { hosts, bridge, disks, has_clocks, started: AtomicU32::new(0) };
        for at in 0..network.hosts.len() {
            network.join(at).unwrap_or_else(|why| panic!("host {at}: {why}"));
        }
        Some(network)
    }

    /// Puts a host's line into the bridge.
    fn join(&self, at: usize) -> Result<(), String> {
        let (host, port) = (&self.hosts[at], format!("p{at}"));
        let peer = ["type", "veth", "peer", "name", "eth0", "netns"];
        let add = ["ip", "link", "add", "name", &port];
        self.bridge.set(&[&add[..], &peer[..], &[&host.pid()]].concat())?;
        self.bridge.set(&["ip", "link", "set", "dev", &port, "master", "bridge", "up"])?;
        host.set(&["ip", "link", "set", "dev", "lo", "up"])?;
        host.set(&["ip", "link", "set", "dev", "eth0", "address", &hardware(at), "up"])?;
        host.set(&["ip", "address", "add", &format!("{}/24", self.address(at)), "dev", "eth0"])?;
        for to in (0..self.hosts.len()).filter(|to| *to != at) {
            self.set_way(at, to, &hardware(to))?;
        }
        Ok(())
    }

    /// The address of a host, from a block that is kept for documentation (RFC 5737).
    pub(crate) fn address(&self, at: usize) -> String {
        format!("192.0.2.{}", at + 1)
    }

    /// What `at` knows to be the address of the link layer of `to`: it asks nobody.
    fn set_way(&self, at: usize, to: usize, hardware: &str) -> Result<(), String> {
        let to = self.address(to);
        let how = ["lladdr", hardware, "nud", "permanent", "dev", "eth0"];
        self.hosts[at].set(&[&["ip", "neighbour", "replace", &to], &how[..]].concat())
    }

    /// What `from` sends to `to` is lost from now on, or no longer.
    pub(crate) fn lose(&self, from: usize, to: usize, is_lost: bool) {
        let hardware = if is_lost { NOBODY.to_owned() } else { hardware(to) };
        self.set_way(from, to, &hardware).expect("both hosts are there");
    }

    /// A host's line is slow from now on, or no longer.
    pub(crate) fn slow(&self, at: usize, is_slow: bool) {
        let root = ["dev", "eth0", "root"];
        let done = match is_slow {
            true => self.hosts[at].set(&[&["tc", "qdisc", "add"], &root[..], &SLOW[..]].concat()),
            false => self.hosts[at].set(&[&["tc", "qdisc", "del"], &root[..]].concat()),
        };
        done.expect("a line of a host");
    }

    /// Takes all room on a host's disk, or gives it back.
    pub(crate) fn fill(&self, at: usize, is_full: bool) {
        let filler = self.disks[at].join("filler").display().to_string();
        match is_full {
            true => {
                let of = format!("of={filler}");
                let done = self.hosts[at].run(&["dd", "if=/dev/zero", &of, "bs=64k"]);
                assert!(err(&done).contains("No space left"), "{}", err(&done));
            }
            false => {
                let done = self.hosts[at].run(&["rm", &filler]);
                assert!(done.status.success(), "{}", err(&done));
            }
        }
    }

    /// Puts what a host's disk has in place of the link to it.
    pub(crate) fn give_back(&self, at: usize, file: &Path) {
        let read = self.hosts[at].run(&["cat", &file.display().to_string()]);
        assert!(read.status.success(), "{}", err(&read));
        std::fs::remove_file(file).expect("the link is there");
        std::fs::write(file, read.stdout).expect("a file");
    }

    /// Moves a file to a host's disk; a link stays in its place.
    pub(crate) fn take(&self, at: usize, file: &Path) {
        let there = self.disks[at].join(file.file_name().expect("a file"));
        let moved =
            self.hosts[at].run(&["cp", &file.display().to_string(), &there.display().to_string()]);
        assert!(moved.status.success(), "{}", err(&moved));
        std::fs::remove_file(file).expect("the file is there");
        std::os::unix::fs::symlink(there, file).expect("a link");
    }

    /// What has `program` run on a host, in this folder; its process is the program's. Each time the clock
    /// that counts from the host's start is another one, hours or weeks away from the others'.
    pub(crate) fn on(&self, at: usize, folder: &Path, program: &Path) -> Command {
        let mut command = self.hosts[at].enter();
        if self.has_clocks {
            let nth = self.started.fetch_add(1, Ordering::Relaxed) % 1000;
            let ahead_s = (nth + 1) * 1_234_567 % 3_000_000;
            command.args(OTHER_CLOCK).arg(ahead_s.to_string());
        }
        command.args(["sh", "-c", r#"cd "$0" && exec "$@""#]).arg(folder).arg(program);
        command
    }
}

/// The address of a host's link layer.
fn hardware(at: usize) -> String {
    format!("02:00:00:00:01:{at:02x}")
}

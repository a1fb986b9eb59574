//! A cluster of servers on files of their own, three as a rule, each of them Weir or the packaged
//! server, and clients that write all the while.

#![allow(dead_code, reason = "every test uses another part")]

mod hosts;
mod load;

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use weir_testkit::client::Client;

pub(crate) use hosts::Hosts;
pub(crate) use load::Load;

use crate::support::{Scratch, err, eventually, is_complaint, out, reference};

/// Which program a member runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Packaged,
    Weir,
}

/// All members of three.
pub(crate) const ALL: [usize; 3] = [0, 1, 2];

/// A table without indexes: what is written twice is there twice.
pub(crate) const SCHEMA: &str = r#"{"name":"Odd","version":"1.0.0","tables":{"T":{"isRoot":true,
    "columns":{"name":{"type":"string"},"n":{"type":"integer"}}}}}"#;

/// The members.
pub(crate) struct Group {
    pub(crate) scratch: Scratch,
    /// The database's name.
    pub(crate) db: String,
    prefix: String,
    addresses: Vec<String>,
    children: Vec<Option<Child>>,
    /// More options of each member.
    options: Vec<Vec<String>>,
    /// Where members run, if not all here.
    hosts: Option<Hosts>,
    /// How much of each log has been looked at.
    read: Vec<usize>,
}

/// Ports that nobody listens on, outside of those that the system gives to clients.
pub(crate) fn free_ports(count: usize) -> Vec<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut ports = vec![];
    while ports.len() < count {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 10_000 + (std::process::id().wrapping_mul(31) + step) % 20_000;
        let port = u16::try_from(port).expect("below 30,000");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            ports.push(port);
        }
    }
    ports
}

/// Room on the disk of a host: for all rows of as many rounds as somebody asks for.
const DISK_MIB: u32 = 256;

/// Addresses of members that all run here.
fn on_this_host(count: usize, method: &str) -> Vec<String> {
    let address = |port: u16| format!("{method}:127.0.0.1:{port}");
    free_ports(count).into_iter().map(address).collect()
}

impl Group {
    /// A cluster of three packaged servers that run, for a database with this schema; `None`, and
    /// said so, where there are none.
    pub(crate) fn packaged(schema: &str) -> Option<Self> {
        Self::packaged_of(ALL.len(), schema)
    }

    /// A cluster of so many packaged servers.
    pub(crate) fn packaged_of(count: usize, schema: &str) -> Option<Self> {
        Self::make(schema, on_this_host(count, "tcp"), |_| vec![])
    }

    /// Three packaged servers whose members speak to each other by these means, with these options.
    pub(crate) fn packaged_with(
        schema: &str,
        method: &str,
        options: impl Fn(usize) -> Vec<String>,
    ) -> Option<Self> {
        Self::make(schema, on_this_host(ALL.len(), method), options)
    }

    /// So many members of Weir, each on a host of its own; `None`, and said so, where there can be no
    /// such hosts.
    pub(crate) fn on_hosts(count: usize, schema: &str) -> Option<Self> {
        let scratch = Scratch::new();
        let disks = (0..count).map(|at| scratch.path(&format!("disk{at}"))).collect();
        let hosts = Hosts::new(disks, DISK_MIB)?;
        let addresses = (0..count).map(|at| format!("tcp:{}:6644", hosts.address(at))).collect();
        let group = Self::files(scratch, schema, addresses, |_| vec![], Some(hosts))?;
        let mut group = group.begin(Program::Packaged);
        group.stop_all();
        group.start_all(Program::Weir);
        Some(group)
    }

    fn make(
        schema: &str,
        addresses: Vec<String>,
        options: impl Fn(usize) -> Vec<String>,
    ) -> Option<Self> {
        let group = Self::files(Scratch::new(), schema, addresses, options, None)?;
        Some(group.begin(Program::Packaged))
    }

    /// The files of a cluster that nobody has opened yet.
    fn files(
        scratch: Scratch,
        schema: &str,
        addresses: Vec<String>,
        options: impl Fn(usize) -> Vec<String>,
        hosts: Option<Hosts>,
    ) -> Option<Self> {
        let tool = reference("ovsdb-tool")?;
        reference("ovsdb-server")?;
        let schema = match schema.starts_with('/') {
            true => PathBuf::from(schema),
            false => scratch.write("schema", schema),
        };
        let schema = schema.display().to_string();
        let db = out(&scratch.run(&tool, &["schema-name", &schema])).trim().to_owned();
        let mut group = Self::of(scratch, db, addresses);
        group.options = group.all().into_iter().map(options).collect();
        group.hosts = hosts;
        for at in group.all() {
            let (file, name, own) = (group.file(at), &group.db, group.address(at));
            let args = match at {
                0 => vec!["create-cluster", &file, &schema, own],
                _ => vec!["join-cluster", &file, name, own, group.address(0)],
            };
            let made = group.scratch.run(&tool, &args);
            assert!(made.status.success(), "{}", err(&made));
            if let Some(hosts) = &group.hosts {
                hosts.take(at, &group.scratch.path(&file));
            }
        }
        Some(group)
    }

    /// Starts all for the first time, one behind the other.
    fn begin(mut self, program: Program) -> Self {
        for at in self.all() {
            self.start(at, program);
            self.settle(&self.all()[..=at]);
        }
        self
    }

    /// The numbers of all members.
    pub(crate) fn all(&self) -> Vec<usize> {
        (0..self.addresses.len()).collect()
    }

    /// A cluster of packaged servers that has been stopped, its files served by Weir.
    pub(crate) fn weir(schema: &str) -> Option<Self> {
        let mut trio = Self::packaged(schema)?;
        trio.stop_all();
        // What packaged servers have said meanwhile is no complaint about Weir.
        trio.complaints();
        trio.start_all(Program::Weir);
        Some(trio)
    }

    /// Three members of Weir on this host, whose addresses have this name of it.
    pub(crate) fn weir_named(schema: &str, name: &str) -> Option<Self> {
        let addresses = free_ports(ALL.len()).into_iter().map(|port| format!("tcp:{name}:{port}"));
        let group = Self::files(Scratch::new(), schema, addresses.collect(), |_| vec![], None)?;
        Some(group.begin(Program::Weir))
    }

    fn of(scratch: Scratch, db: String, addresses: Vec<String>) -> Self {
        let count = addresses.len();
        let children = addresses.iter().map(|_| None).collect();
        let (options, read) = (vec![vec![]; count], vec![0; count]);
        let prefix = "m".to_owned();
        Self { scratch, prefix, db, addresses, children, options, hosts: None, read }
    }

    pub(crate) fn file(&self, at: usize) -> String {
        format!("{}{at}.db", self.prefix)
    }

    pub(crate) fn address(&self, at: usize) -> &str {
        &self.addresses[at]
    }

    pub(crate) fn socket(&self, at: usize) -> PathBuf {
        self.scratch.path(&format!("{}{at}.sock", self.prefix))
    }

    fn log_file(&self, at: usize) -> PathBuf {
        self.scratch.path(&format!("{}{at}.log", self.prefix))
    }

    /// Starts a member; it listens when this returns.
    pub(crate) fn start(&mut self, at: usize, program: Program) {
        let path = match program {
            Program::Packaged => reference("ovsdb-server").expect("it has been used before"),
            Program::Weir => self.scratch.link("ovsdb-server"),
        };
        let socket = self.socket(at);
        let _ = std::fs::remove_file(&socket);
        let mut command = match &self.hosts {
            Some(hosts) => self.scratch.prepare(hosts.on(at, &self.scratch.path(""), &path)),
            None => self.scratch.command(path),
        };
        command
            .args(["--no-chdir", "-vconsole:off", "-vsyslog:off", "-vfile:info"])
            .arg(format!("--log-file={}", self.log_file(at).display()))
            .arg(format!("--unixctl={}", self.scratch.text(&format!("{}{at}.ctl", self.prefix))))
            .args(&self.options[at])
            .stderr(self.stderr(at));
        // Such a file says all the rest.
        if !self.options[at].iter().any(|option| option.starts_with("--config-file")) {
            command.arg(format!("--remote=punix:{}", socket.display())).arg(self.file(at));
        }
        self.children[at] = Some(command.spawn().expect("the server starts"));
        eventually("the member listens", || {
            let child = self.children[at].as_mut().expect("just started");
            let ended = child.try_wait().expect("a child");
            assert!(ended.is_none(), "member {at} has ended:\n{}", self.log(at));
            Client::connect(&socket).is_ok()
        });
    }

    /// What a member is started with, besides what each is.
    pub(crate) fn set_options(&mut self, at: usize, options: Vec<String>) {
        self.options[at] = options;
    }

    /// What a member says to the terminal.
    fn stderr(&self, at: usize) -> std::fs::File {
        let file = self.scratch.path(&format!("{}{at}.err", self.prefix));
        std::fs::File::options().create(true).append(true).open(file).expect("a file")
    }

    /// Waits until a member has ended by itself; its status, and all that it has said to the terminal.
    pub(crate) fn ended(&mut self, at: usize) -> (ExitStatus, String) {
        let mut child = self.children[at].take().expect("it runs");
        let mut status = None;
        eventually("the member ends by itself", || {
            status = child.try_wait().expect("a child");
            status.is_some()
        });
        let file = self.scratch.path(&format!("{}{at}.err", self.prefix));
        let said = std::fs::read_to_string(file).expect("what it has said");
        (status.expect("just seen"), said)
    }

    pub(crate) fn start_all(&mut self, program: Program) {
        self.all().into_iter().for_each(|at| self.start(at, program));
        self.settle(&self.all());
    }

    /// Asks a member to end, and waits for that.
    pub(crate) fn stop(&mut self, at: usize) {
        let mut child = self.children[at].take().expect("it runs");
        let done = self.appctl(at, &["exit"]);
        assert!(done.status.success(), "member {at}: {}", err(&done));
        let mut status = None;
        eventually("the member ends", || {
            status = child.try_wait().expect("a child");
            status.is_some()
        });
        assert!(status.is_some_and(|status| status.success()), "{status:?}:\n{}", self.log(at));
    }

    pub(crate) fn stop_all(&mut self) {
        self.all().into_iter().for_each(|at| self.stop(at));
    }

    /// Has a member, which is stopped, listen at another port from its next start on.
    pub(crate) fn move_to_another_port(&mut self, at: usize) {
        let port = free_ports(1)[0];
        let address = format!("tcp:127.0.0.1:{port}");
        let tool = self.scratch.link("ovsdb-tool");
        let moved = self.scratch.run(tool, &["change-address", &self.file(at), &address]);
        assert!(moved.status.success(), "{}", err(&moved));
        self.addresses[at] = address;
    }

    /// Ends a member as a power cut would.
    pub(crate) fn kill(&mut self, at: usize) {
        let mut child = self.children[at].take().expect("it runs");
        child.kill().expect("it runs");
        child.wait().expect("a child");
    }

    /// Waits until a member is none any more, though it runs.
    pub(crate) fn has_left(&self, at: usize) {
        eventually("the member has left", || {
            let databases = self.appctl(at, &["ovsdb-server/list-dbs"]);
            !out(&databases).lines().any(|db| db == self.db)
        });
    }

    /// Takes the place of a member that is none any more with a new one, on the same host.
    pub(crate) fn join_anew(&mut self, at: usize) {
        self.stop(at);
        let (tool, file) = (self.scratch.link("ovsdb-tool"), self.file(at));
        std::fs::remove_file(self.scratch.path(&file)).expect("the old file, or the link to it");
        let mut args = vec!["join-cluster", &file, &self.db, self.address(at)];
        args.extend(self.all().into_iter().filter(|other| *other != at).map(|to| self.address(to)));
        let made = self.scratch.run(&tool, &args);
        assert!(made.status.success(), "{}", err(&made));
        if let Some(hosts) = &self.hosts {
            hosts.take(at, &self.scratch.path(&file));
        }
        self.start(at, Program::Weir);
    }

    pub(crate) fn signal(&self, at: usize, signal: rustix::process::Signal) {
        let pid = self.children[at].as_ref().expect("it runs").id();
        let pid = rustix::process::Pid::from_raw(pid.cast_signed()).expect("a process");
        rustix::process::kill_process(pid, signal).expect("it runs");
    }

    pub(crate) fn appctl(&self, at: usize, args: &[&str]) -> Output {
        let appctl = reference("ovs-appctl").expect("it comes with the server");
        let control = self.scratch.text(&format!("{}{at}.ctl", self.prefix));
        self.scratch.run(appctl, &[&["-T", "30", "-t", control.as_str()], args].concat())
    }

    pub(crate) fn status(&self, at: usize) -> String {
        out(&self.appctl(at, &["cluster/status", &self.db]))
    }

    fn says(&self, at: usize, line: &str) -> bool {
        self.status(at).lines().any(|said| said == line)
    }

    /// Who leads, of these.
    pub(crate) fn leader_among(&self, members: &[usize]) -> Option<usize> {
        members.iter().copied().find(|at| self.says(*at, "Role: leader"))
    }

    /// Waits until one of these leads, and the others follow it; who.
    pub(crate) fn settle(&self, members: &[usize]) -> usize {
        let mut leader = None;
        eventually("one member leads, the others follow it", || {
            leader = self.leader_among(members);
            let Some(leader) = leader else { return false };
            let status = self.status(leader);
            let servers = status.lines().filter(|line| line.contains(" at ")).count();
            let term = status.lines().find(|line| line.starts_with("Term: ")).unwrap_or_default();
            let is_led = |at: usize| {
                let said = self.status(at);
                let has = |line: &str| said.lines().any(|said| said == line);
                has("Status: cluster member") && has(term) && !has("Leader: unknown")
            };
            servers >= members.len() && members.iter().all(|at| is_led(*at))
        });
        leader.expect("just seen")
    }

    pub(crate) fn client(&self, at: usize) -> Client {
        Client::connect(&self.socket(at)).expect("the member listens")
    }

    /// The rows' names that a member has, in order.
    pub(crate) fn names(&self, at: usize) -> Vec<String> {
        load::names(&self.socket(at), &self.db).expect("the member answers")
    }

    /// Inserts a row through a member, which answers that it has.
    pub(crate) fn insert(&self, at: usize, name: &str) {
        let inserted = load::insert(&mut self.client(at), &self.db, name);
        assert!(inserted.is_ok(), "through member {at}: {inserted:?}\n{}", self.log(at));
    }

    pub(crate) fn log(&self, at: usize) -> String {
        let log = std::fs::read(self.log_file(at)).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Warnings and errors in the logs since this was asked last.
    pub(crate) fn complaints(&mut self) -> Vec<String> {
        let mut complaints = vec![];
        for at in self.all() {
            let log = self.log(at);
            let new = log.get(self.read[at]..).unwrap_or_default();
            let bad = new.lines().filter(|line| is_complaint(line));
            complaints.extend(bad.map(|line| format!("member {at}: {line}")));
            self.read[at] = log.len();
        }
        complaints
    }

    /// The network and disks of the members' hosts.
    pub(crate) fn hosts(&self) -> &Hosts {
        self.hosts.as_ref().expect("each member has a host")
    }

    /// Has the files of members that have been stopped here, not on their hosts' disks.
    pub(crate) fn bring_files_back(&self) {
        for at in self.all() {
            self.hosts().give_back(at, &self.scratch.path(&self.file(at)));
        }
    }

    /// `ovsdb-tool check-cluster` accepts each of the files, and all together.
    pub(crate) fn check_files(&self) {
        let tool = reference("ovsdb-tool").expect("it has been used before");
        let files: Vec<String> = self.all().into_iter().map(|at| self.file(at)).collect();
        let check = |files: &[&str]| {
            let checked = self.scratch.run(&tool, &[&["check-cluster"], files].concat());
            let said = format!("{}{}", out(&checked), err(&checked));
            // What an earlier leader had nobody else write may go.
            let is_bad = said.lines().any(|line| !line.contains(" truncates log from "));
            assert!(checked.status.success() && !is_bad, "check-cluster {files:?}: {said}");
        };
        files.iter().for_each(|file| check(&[file]));
        check(&files.iter().map(String::as_str).collect::<Vec<_>>());
    }

    /// Load through each member.
    pub(crate) fn load(&self) -> Load {
        let sockets: Vec<PathBuf> = self.all().into_iter().map(|at| self.socket(at)).collect();
        Load::start(&sockets, &self.db)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for child in self.children.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            for at in self.all() {
                let log = self.log(at);
                let lines: Vec<&str> = log.lines().collect();
                let tail = lines.len().saturating_sub(40);
                eprintln!("--- log of member {at}\n{}", lines[tail..].join("\n"));
            }
        }
    }
}

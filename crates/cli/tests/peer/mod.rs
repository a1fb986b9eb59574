//! A server process and clients that speak bytes to it, for tests of what it withstands.

#![allow(dead_code, reason = "every test uses another part")]

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::support::{PATIENCE, Scratch, WEIR, err, eventually};

/// The database of these tests.
pub(crate) const SCHEMA: &str = r#"{"name":"Net","version":"1.0.0","tables":{"Port":{
    "columns":{"name":{"type":"string"},"text":{"type":"string"},
        "tags":{"type":{"key":"string","min":0,"max":"unlimited"}}},
    "indexes":[["name"]]}}}"#;

/// Creates `name` in the scratch folder, an empty database of [`SCHEMA`].
pub(crate) fn create(scratch: &Scratch, name: &str) {
    scratch.write("net.ovsschema", SCHEMA);
    let created = scratch.run(WEIR, &["tool", "create", name, "net.ovsschema"]);
    assert!(created.status.success(), "{}", err(&created));
}

/// A server, killed at the end if it still runs.
pub(crate) struct Server {
    child: Child,
    folder: PathBuf,
}

impl Server {
    /// Serves `net.db` of the scratch folder.
    pub(crate) fn start(scratch: &Scratch) -> Self {
        let mut command = scratch.command(scratch.link("ovsdb-server"));
        command.args(Self::ARGS);
        Self::spawn(scratch, command)
    }

    /// What a server of these tests is started with.
    pub(crate) const ARGS: [&str; 5] = [
        "--remote=punix:s.sock",
        "--unixctl=ctl.sock",
        "-vconsole:off",
        "--log-file=server.log",
        "net.db",
    ];

    /// A process that becomes a server of [`Server::ARGS`].
    pub(crate) fn spawn(scratch: &Scratch, mut command: Command) -> Self {
        let child = command.stdout(Stdio::null()).spawn().expect("the server starts");
        let mut server = Self { child, folder: scratch.path("") };
        eventually("the server listens", || {
            let ended = server.child.try_wait().expect("a child");
            assert!(ended.is_none(), "{ended:?}: {}", server.log());
            server.try_client().is_ok()
        });
        server
    }

    pub(crate) fn try_client(&self) -> io::Result<Client> {
        Client::connect(&self.folder.join("s.sock"))
    }

    pub(crate) fn client(&self) -> Client {
        self.try_client().expect("a connection")
    }

    /// Runs an admin command: its output, or its error.
    pub(crate) fn admin(&self, method: &str, params: &str) -> String {
        let mut control = Client::connect(&self.folder.join("ctl.sock")).expect("the admin socket");
        control.call(&format!(r#"{{"id":0,"method":"{method}","params":[{params}]}}"#))
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("server.log")).unwrap_or_default()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by kill(1).
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let status = Command::new("kill").args(["-s", name, &pid]).status().expect("kill");
        assert!(status.success());
    }

    /// Waits until it has ended by itself.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("the server ends", || {
            status = self.child.try_wait().expect("a child");
            status.is_some()
        });
        status.expect("just seen")
    }

    /// kill -9.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("a child");
        self.child.wait().expect("a child");
    }

    /// A line of /proc/PID/status in MiB: `VmRSS`, or `VmHWM` for the most there ever was.
    pub(crate) fn memory_mib(&self, line: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.expect("the server runs");
        let line = status.lines().find_map(|found| found.strip_prefix(line)).expect("a size");
        let kib: u64 = line.split_whitespace().nth(1).expect("a number").parse().expect("a number");
        kib / 1024
    }

    /// New clients are served, and nothing has gone wrong inside.
    pub(crate) fn is_well(&self) {
        let reply = self.client().call(r#"{"id":1,"method":"list_dbs","params":[]}"#);
        assert_eq!(reply, r#"{"id":1,"result":["Net","_Server"],"error":null}"#);
        assert!(!self.log().contains("panicked"), "{}", self.log());
        assert!(!self.log().contains("|EMER|"), "{}", self.log());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection that sends and receives JSON as text.
pub(crate) struct Client {
    stream: UnixStream,
    received: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream, received: Vec::new() })
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// How long a read or write may take.
    pub(crate) fn set_patience(&self, patience: Duration) {
        self.stream.set_read_timeout(Some(patience)).expect("a timeout");
        self.stream.set_write_timeout(Some(patience)).expect("a timeout");
    }

    /// Nothing more will be sent.
    pub(crate) fn end(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// A second handle, to send in another thread.
    pub(crate) fn sender(&self) -> UnixStream {
        self.stream.try_clone().expect("a handle")
    }

    /// The next message; `None` if the server has closed the connection.
    pub(crate) fn receive(&mut self) -> Option<String> {
        let mut scan = Scan::default();
        let mut chunk = vec![0; 1 << 16];
        loop {
            if let Some(end) = scan.end(&self.received) {
                let rest = self.received.split_off(end);
                let message = std::mem::replace(&mut self.received, rest);
                return Some(String::from_utf8(message).expect("UTF-8"));
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(n) => self.received.extend_from_slice(&chunk[..n]),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("nothing comes: {error}"),
            }
        }
    }

    /// Sends a request and waits for its reply; updates that come before it are dropped.
    pub(crate) fn call(&mut self, request: &str) -> String {
        self.try_call(request).expect("the server answers")
    }

    /// Sends a request and waits for its reply; `None` if the server closes the connection.
    pub(crate) fn try_call(&mut self, request: &str) -> Option<String> {
        self.send(request).ok()?;
        loop {
            let message = self.receive()?;
            if !message.starts_with(r#"{"id":null"#) {
                return Some(message);
            }
        }
    }

    /// The `result` of a transaction, as text.
    pub(crate) fn transact(&mut self, operations: &str) -> String {
        self.call(&transact(operations))
    }

    /// The names of all ports, sorted.
    pub(crate) fn ports(&mut self) -> Vec<String> {
        let select = r#"{"op":"select","table":"Port","where":[],"columns":["name"]}"#;
        let reply = self.transact(select);
        let mut names: Vec<String> = reply
            .split(r#"{"name":""#)
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap_or_default().to_owned())
            .collect();
        names.sort();
        names
    }
}

/// A `transact` request.
pub(crate) fn transact(operations: &str) -> String {
    format!(r#"{{"id":1,"method":"transact","params":["Net",{operations}]}}"#)
}

/// An insertion of a port with a text.
pub(crate) fn insert(name: &str, text: &str) -> String {
    format!(r#"{{"op":"insert","table":"Port","row":{{"name":"{name}","text":"{text}"}}}}"#)
}

/// Looks for the end of a JSON object or array, never at a byte twice.
#[derive(Default)]
struct Scan {
    at: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Scan {
    fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        while let Some(&byte) = bytes.get(self.at) {
            self.at += 1;
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        return Some(self.at);
                    }
                }
                _ => {}
            }
        }
        None
    }
}

//! The reference's programs, each run in a folder of its own.

#![allow(dead_code, reason = "every test file uses its part")]

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to listen.
const START_MAX: Duration = Duration::from_secs(60);

/// Whether the programs are there; says so if not.
pub(crate) fn is_installed() -> bool {
    let found = ["ovsdb-tool", "ovsdb-server", "ovsdb-client"].iter().all(|program| {
        Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok()
    });
    if !found {
        eprintln!("skipped: the reference's programs are not installed");
    }
    found
}

/// A folder that is removed at the end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-log-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    pub(crate) fn write(&self, file: &str, bytes: &[u8]) {
        std::fs::write(self.0.join(file), bytes).unwrap();
    }

    pub(crate) fn read(&self, file: &str) -> Vec<u8> {
        std::fs::read(self.0.join(file)).unwrap()
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.0).env("OVS_RUNDIR", &self.0).env("OVS_LOGDIR", &self.0);
        command
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a program writes: standard output and error.
pub(crate) fn output(folder: &Folder, program: &str, args: &[&str]) -> (String, String) {
    let output = folder.command(program).args(args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// A server on a file of the folder.
pub(crate) struct Server<'a> {
    folder: &'a Folder,
    process: Child,
}

impl<'a> Server<'a> {
    pub(crate) fn start(folder: &'a Folder, file: &str) -> Self {
        let socket = folder.0.join("socket");
        let _ = std::fs::remove_file(&socket);
        let args = ["--remote=punix:socket", "--unixctl=control", "-vconsole:err", file];
        let process = folder.command("ovsdb-server").args(args).spawn().unwrap();
        let server = Self { folder, process };
        let start = Instant::now();
        // The socket is there before anybody listens on it.
        while UnixStream::connect(&socket).is_err() {
            assert!(start.elapsed() < START_MAX, "the reference's server does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        server
    }

    /// A transaction's reply.
    pub(crate) fn transact(&self, transaction: &str) -> String {
        let args = ["transact", "unix:socket", transaction];
        let (reply, error) = output(self.folder, "ovsdb-client", &args);
        assert_eq!(error, "");
        assert!(!reply.contains("\"error\""), "{reply}");
        reply
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        // Its file is complete after every reply.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

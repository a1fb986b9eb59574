//! Servers as child processes: each in a scratch directory of its own, always reaped.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::{Client, Trouble};

/// How long a server may take until it answers, and until it is gone after `exit`.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the packaged reference server lives.
const REFERENCE: &str = "/usr/sbin/ovsdb-server";

/// A server program and the name it goes by in reports.
#[derive(Clone, Debug)]
pub struct Program {
    /// The name that the program goes by in reports: "reference" or "weir".
    pub label: &'static str,
    /// The executable, or a link to it, named `ovsdb-server`.
    pub path: PathBuf,
    /// Options that make the program comparable.
    pub options: &'static [&'static str],
}

/// The reference's ids of standalone databases are always zero.
const ZERO_IDS: &[&str] = &["--no-standalone-history"];

/// The installed reference server, or None where the package is missing.
pub fn reference() -> Option<Program> {
    let path = std::env::var_os("REFERENCE_BIN").map_or_else(|| REFERENCE.into(), PathBuf::from);
    path.exists().then_some(Program { label: "reference", path, options: &[] })
}

/// Both servers, or None after saying why a test that needs both is skipped.
pub fn both(test: &str) -> Option<(Program, Program)> {
    match reference() {
        Some(reference) => Some((reference, weir())),
        None => {
            println!("SKIP {test}: the reference server {REFERENCE} is not installed");
            None
        }
    }
}

/// Weir behind a link named `ovsdb-server`: `WEIR_BIN`, or the `weir` of this build.
///
/// # Panics
/// When there is no such binary: a test without the server under test cannot pass.
pub fn weir() -> Program {
    static LINK: OnceLock<PathBuf> = OnceLock::new();
    let path = LINK.get_or_init(|| {
        let binary = std::env::var_os("WEIR_BIN").map_or_else(build_weir, PathBuf::from);
        assert!(binary.exists(), "{} does not exist", binary.display());
        let folder = std::env::temp_dir().join(format!("weir-testkit-bin-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder for the link");
        let link = folder.join("ovsdb-server");
        fs::remove_file(&link).ok();
        std::os::unix::fs::symlink(&binary, &link).expect("a link to the server");
        link
    });
    Program { label: "weir", path: path.clone(), options: ZERO_IDS }
}

/// Builds `weir` into the target folder of the running test, so that it is never stale. The whole workspace is
/// chosen, and an example for what only tests depend on: other choices have other features of
/// dependencies, and all would be built once more.
fn build_weir() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let profile_dir = test.ancestors().nth(2).expect("target/PROFILE/deps/TEST").to_path_buf();
    let target_dir = profile_dir.parent().expect("target/PROFILE");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--workspace", "--bin", "weir", "--example", "weir-bench"]);
    cargo.env("CARGO_TARGET_DIR", target_dir);
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    match profile_dir.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => {}
        Some(profile) => {
            cargo.args(["--profile", profile]);
        }
    }
    let status = cargo.status().expect("cargo starts");
    assert!(status.success(), "weir-cli does not build");
    profile_dir.join("weir")
}

/// A directory that vanishes with its owner (kept when `TESTKIT_KEEP` is set).
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new empty directory; `name` is part of its own name.
    pub fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("wtk-{}-{number}-{name}", std::process::id()));
        // A process of the same number that was killed may have left one.
        fs::remove_dir_all(&path).ok();
        fs::create_dir_all(&path).expect("a scratch directory");
        Self(path)
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of a file in the directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::env::var_os("TESTKIT_KEEP").is_none() {
            fs::remove_dir_all(&self.0).ok();
        }
    }
}

/// A running server; killed when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    run_dir: Scratch,
    label: &'static str,
}

impl Server {
    /// Starts `program` on `files` and waits until it accepts connections.
    ///
    /// # Errors
    /// [`Trouble::Start`] with the log, when the process ends before it listens.
    pub fn start(program: &Program, files: &[PathBuf]) -> Result<Self, Trouble> {
        Self::start_with(program, files, &[])
    }

    /// [`Self::start`] with further options on the command line.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_with(
        program: &Program,
        files: &[PathBuf],
        options: &[&str],
    ) -> Result<Self, Trouble> {
        let run_dir = Scratch::new(program.label);
        let log = File::create(run_dir.file("log"))?;
        let mut command = Command::new(&program.path);
        command
            .arg("--no-chdir")
            .arg(format!("--remote=punix:{}", run_dir.file("db.sock").display()))
            .arg(format!("--unixctl={}", run_dir.file("ctl").display()))
            .args(program.options)
            .args(options)
            .args(files)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(name, run_dir.path());
        }
        command.env("OVS_SYSLOG_METHOD", "null");
        let child = command.spawn()?;
        let mut server = Self { child, run_dir, label: program.label };
        server.wait_until_ready()?;
        Ok(server)
    }

    fn wait_until_ready(&mut self) -> Result<(), Trouble> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Err(Trouble::Start(format!("{status}\n{}", self.log())));
            }
            if self.connect().is_ok_and(|mut client| client.barrier().is_ok()) {
                return Ok(());
            }
            sleep(Duration::from_millis(2));
        }
        Err(Trouble::Start(format!("no answer within {PATIENCE:?}\n{}", self.log())))
    }

    /// A new session.
    ///
    /// # Errors
    /// When the server does not accept it.
    pub fn connect(&self) -> Result<Client, Trouble> {
        Client::connect(&self.run_dir.file("db.sock"))
    }

    /// Runs an admin command, as `ovs-appctl` would; the text of its answer.
    ///
    /// # Errors
    /// [`Trouble::Refused`] with the text of an error answer.
    pub fn admin(&self, command: &str, args: &[&str]) -> Result<String, Trouble> {
        let mut client = Client::connect(&self.run_dir.file("ctl"))?;
        let reply = client.request(command, &json!(args))?;
        match (reply["error"].as_str(), reply["result"].as_str()) {
            (None, Some(text)) => Ok(text.to_owned()),
            (Some(error), _) => Err(Trouble::Refused(error.to_owned())),
            _ => Ok(reply["result"].to_string()),
        }
    }

    /// The socket on which the server listens for clients.
    pub fn socket(&self) -> PathBuf {
        self.run_dir.file("db.sock")
    }

    /// Everything the server wrote on its standard error so far.
    pub fn log(&self) -> String {
        let bytes = fs::read(self.run_dir.file("log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The name that the server goes by in reports: "reference" or "weir".
    pub fn label(&self) -> &'static str {
        self.label
    }

    /// The server's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// True until the process has ended.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks the server to `exit` and waits until it is gone.
    ///
    /// # Errors
    /// When it does not go, or goes with a failure.
    pub fn stop(mut self) -> Result<(), Trouble> {
        // The server may close the connection before its answer arrives.
        self.admin("exit", &[]).ok();
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return match status.success() {
                    true => Ok(()),
                    false => {
                        Err(Trouble::Start(format!("{}: {status}\n{}", self.label, self.log())))
                    }
                };
            }
            sleep(Duration::from_millis(1));
        }
        Err(Trouble::Timeout)
    }

    /// Ends the process as a power cut would: no cleaning up.
    pub fn kill(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

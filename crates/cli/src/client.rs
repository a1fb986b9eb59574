//! `ovsdb-client`, and the small clients of `weir`: `watch`, `call`, `transact`.
//!
//! - `options`, `commands`: the command line, and which command does what.
//! - `address`, `listen`, `remote`, `session`: connections, clusters, JSON-RPC.
//! - `info`, `transact`, `dump`, `backup`, `restore`, `convert`, `wait`, `delivery`, `log`,
//!   `monitor`, `lock`: the commands.
//! - `process`: timeouts, signals, running in the background; `tape`: `--record`, `--replay`.
//! - `watch`, `show`, `replica`, `cell`, `column`: the live view of `weir watch`.
//!
//! Blocking sockets and one thread: a client does one thing.

pub(crate) mod address;
mod background;
mod backup;
mod call;
mod cell;
pub(crate) mod column;
mod commands;
mod convert;
mod delivery;
mod dump;
mod failures;
mod info;
mod insertion;
mod listen;
mod lock;
mod log;
mod monitor;
pub(crate) mod options;
mod output;
mod process;
mod remote;
pub(crate) mod replica;
mod restore;
mod schema;
mod session;
mod show;
mod tape;
mod transact;
mod wait;
mod watch;

use std::io;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Instant;

use rustix::io::Errno;
use weir_host::daemon::DaemonOptions;
use weir_host::vlog::Vlog;
use weir_net::tls::{Acceptor, Line};
use weir_net::{BlockingStream, Progress, Tls};

pub(crate) use call::{call, call_manual, transact, transact_manual};
pub(crate) use watch::{manual as watch_manual, watch};

use crate::dirs::Dirs;
use crate::options::logging::open_log;
use crate::options::tls::plain_settings;
use crate::program::{Failure, Outcome, say, version_lines};
use crate::usage::{self, Manual};
use address::{CONNECT_PATIENCE, Stream};
use options::{ClientOptions, Invocation, Mistake};
use process::Process;
use tape::Tape;

/// Name in messages, pid files and sockets.
const PROGRAM: &str = "ovsdb-client";

/// What every command works with.
struct Client {
    options: ClientOptions,
    dirs: Dirs,
    log: Vlog,
    process: Process,
    tape: Rc<Tape>,
}

impl Client {
    /// Goes to the background if that was asked for, and stays there.
    fn begin_daemon(&self) -> Result<(), Failure> {
        self.start_daemon(true)?;
        self.process.ready(&self.log)
    }

    /// Goes to the background if that was asked for, with standard output still open and
    /// standard error as well if `keep_stderr`; the parent waits for `process.ready`.
    fn start_daemon(&self, keep_stderr: bool) -> Result<(), Failure> {
        let options = DaemonOptions {
            keep_stdout: true,
            keep_stderr,
            ..self.options.process.daemon(PROGRAM, &self.dirs)
        };
        self.process.start(&options, &self.log)
    }

    /// Connects to `server` with TLS.
    fn tls_stream(&self, server: &str) -> io::Result<Stream> {
        let mut tls = Tls::new(&plain_settings(&self.options.process.tls));
        let connector = tls.connector();
        self.log_tls(tls.take_log());
        let address = weir_net::Address::parse(server, &self.dirs.run)
            .map_err(|_| io::Error::from(Errno::AFNOSUPPORT))?;
        self.shake_hands(weir_net::Stream::connect(&address, Some(&connector?))?)
    }

    /// The settings of TLS for those who connect to us.
    fn acceptor(&self) -> io::Result<Acceptor> {
        let mut tls = Tls::new(&plain_settings(&self.options.process.tls));
        let acceptor = tls.acceptor();
        self.log_tls(tls.take_log());
        acceptor
    }

    /// Connects, and goes through the handshake of TLS.
    fn shake_hands(&self, mut stream: weir_net::Stream) -> io::Result<Stream> {
        let begun = Instant::now();
        let connected = loop {
            match stream.finish_connect() {
                Ok(Progress::Done) => break Ok(()),
                Ok(progress) => {
                    let left = CONNECT_PATIENCE.saturating_sub(begun.elapsed());
                    if left.is_zero() {
                        break Err(Errno::TIMEDOUT.into());
                    }
                    stream.wait(progress, Some(left))?;
                }
                Err(error) => break Err(error),
            }
        };
        self.log_tls(stream.take_log());
        connected?;
        Ok(Stream::Tls(Box::new(BlockingStream::finish(stream, None)?)))
    }

    fn log_tls(&self, lines: Vec<Line>) {
        for line in lines {
            self.log.log("stream_ssl", line.severity.into(), &line.text);
        }
    }
}

/// Runs `ovsdb-client`, called as `typed`.
pub(crate) fn main(typed: &str, args: Vec<String>) -> Outcome {
    let dirs = Dirs::from_env();
    let options = match options::parse(args) {
        Ok(Invocation::Run(options)) => *options,
        Ok(Invocation::Help) => return print_help(&dirs),
        Ok(Invocation::Version) => {
            say(&version_lines(PROGRAM))?;
            return Ok(ExitCode::SUCCESS);
        }
        Err(Mistake::Usage(text)) => return Err(Failure::usage(typed, &text)),
        Err(Mistake::Fatal(failure)) => return Err(failure),
    };
    let log = open_log(PROGRAM, &options.process.log, &dirs)?;
    if let Some(name) = &options.process.user {
        crate::server::become_user(name)?;
    }
    let process = Process::new(options.patience_s());
    if !options.process.detach && !options.process.monitor {
        process.guard(&log);
    }
    let tape = Tape::new(dirs.recording(&options.process.recording), log.clone());
    let client = Client { options, dirs, log, process, tape };
    // The pid file goes last: who waits until it is gone finds everything said.
    commands::run(&client).map_err(|failure| {
        failure.report(PROGRAM);
        Failure::silent(failure.status)
    })
}

/// Runs a command without what would outlive it: nobody waits for signals.
#[cfg(fuzzing)]
pub(crate) fn run_unguarded(args: Vec<String>) {
    let dirs = Dirs::from_env();
    let Ok(Invocation::Run(options)) = options::parse(args) else { return };
    let Ok(log) = open_log(PROGRAM, &options.process.log, &dirs) else { return };
    let tape = Tape::new(dirs.recording(&options.process.recording), log.clone());
    let client = Client { options: *options, dirs, log, process: Process::unguarded(), tape };
    // A failure says what is wrong.
    if let Err(failure) = commands::run(&client) {
        assert!(!failure.text.is_empty());
    }
}

/// Runs the command `help`.
fn help(client: &Client, _args: &[String]) -> Outcome {
    print_help(&client.dirs)
}

fn print_help(dirs: &Dirs) -> Outcome {
    say(&manual().help(dirs))?;
    Ok(ExitCode::SUCCESS)
}

/// What people are told about ovsdb-client.
pub(crate) fn manual() -> Manual {
    Manual {
        program: PROGRAM,
        word: "client",
        summary: "asks an OVSDB server, and changes and watches its databases (Weir)",
        usage: &["[OPTIONS] COMMAND [ARG...]"],
        intro: "SERVER is tcp:HOST:PORT, ssl:HOST:PORT or unix:FILE, several members of a \
                cluster separated by commas, or ptcp:PORT[:IP], pssl:PORT[:IP] or punix:FILE to \
                wait for a server that connects. Without one, unix:@SOCK@ is \
                asked.\n\nDATABASE may be left out: then Open_vSwitch is meant, or the only \
                database of the server.",
        commands: commands::GROUPS,
        arguments: &[],
        sections: &[
            options::COMMANDS,
            options::OUTPUT,
            usage::about::TLS,
            usage::about::DAEMON,
            usage::about::LOGGING,
            usage::about::RECORDING,
            usage::about::OTHER,
        ],
        notes: &[
            (
                "Examples",
                "@PROGRAM@ dump OVN_Northbound Logical_Switch name ports\n\
                 @PROGRAM@ -f csv -d bare dump tcp:192.0.2.1:6641 > all.csv\n\
                 @PROGRAM@ monitor Open_vSwitch Interface name,admin_state\n\
                 @PROGRAM@ transact '[\"Open_vSwitch\",{\"op\":\"select\",\"table\":\"Bridge\",\
                 \"where\":[]}]'\n\
                 @PROGRAM@ backup OVN_Northbound > nb.backup",
            ),
            ("Exit status", "0 done, 1 an error, 142 (signal 14) the time of --timeout is over"),
            (
                "Environment",
                "OVS_RUNDIR       where sockets and pid files are (@RUN@)\n\
                 OVS_CTL_TIMEOUT  --timeout for all calls\n\
                 NO_COLOR         no colour on a terminal",
            ),
        ],
        options: usage::options(&options::all()),
    }
}

//! `weir up`: a running example in one command.

mod demo;
mod hello;

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use weir_host::daemon::DaemonOptions;
use weir_host::vlog::Vlog;
use weir_host::{Options as HostOptions, Unixctl};
use weir_server::Config;

use crate::client::address::DEFAULT_PORT;
use crate::dirs::Dirs;
use crate::memory;
use crate::options::getopt::Takes::{Nothing, Value};
use crate::options::getopt::{Options, Spec, both, long};
use crate::program::{Failure, Outcome, say};
use crate::usage::about::OPTIONS;
use crate::usage::{self, About, Complete, Manual, about};
use hello::Hello;

/// Where everything is kept unless the command line says otherwise.
const DEFAULT_FOLDER: &str = "weir-demo";

const DATABASE: &str = "network.db";
const SOCKET: &str = "weir.sock";
const ADMIN_SOCKET: &str = "weir.ctl";

/// How long the server may take until it answers.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// Time between looks whether the server answers.
const START_POLL: Duration = Duration::from_millis(10);

const PORT: About =
    about(OPTIONS, "N", "TCP port (default: 6640, or a free one if it is taken; 0: a free one)");

#[derive(Clone, Copy, PartialEq)]
enum Id {
    Port,
    Help,
}

const TABLE: &[Spec<Id>] = &[
    long("port", Value, Id::Port).with(PORT),
    both('h', "help", Nothing, Id::Help).with(about::HELP),
];

/// What people are told about `weir up`.
pub(crate) fn manual() -> Manual {
    Manual {
        program: "weir up",
        word: "up",
        summary: "starts a small example database and shows what to try",
        usage: &["[--port=N] [FOLDER]"],
        intro: "Serves a small example database on a unix socket and on 127.0.0.1. Everything is \
                kept in FOLDER (default: weir-demo, here), which is created if missing. Ctrl-C \
                ends it.",
        commands: &[],
        arguments: &[Complete::File, Complete::Nothing],
        sections: &[OPTIONS, about::OTHER],
        notes: &[("Example", "@PROGRAM@ --port=0 /tmp/weir-demo")],
        options: usage::options(TABLE),
    }
}

/// Runs `weir up`, called as `typed`.
pub(crate) fn up(typed: &str, args: Vec<String>) -> Outcome {
    let mut port = None;
    let mut options = Options::new(TABLE, args);
    for option in options.by_ref() {
        match option.map_err(|text| Failure::usage(typed, &text))? {
            (Id::Help, _) => {
                say(&manual().help(&Dirs::from_env()))?;
                return Ok(ExitCode::SUCCESS);
            }
            (Id::Port, value) => {
                let number = value.and_then(|value| value.parse().ok());
                port = Some(number.ok_or_else(|| Failure::new("--port takes a port number"))?);
            }
        }
    }
    let words = options.into_positional();
    let folder = match &words[..] {
        [] => DEFAULT_FOLDER,
        [folder] => folder,
        _ => return Err(Failure::new("expected at most one folder; see weir up --help")),
    };
    serve(&open_folder(Path::new(folder))?, choose_port(port)?)
}

/// Makes the folder if it is missing; its absolute path.
fn open_folder(folder: &Path) -> Result<PathBuf, Failure> {
    let fail = |error| {
        let text = format!("{}: cannot keep the example there", folder.display());
        let failure = Failure::io(text, &error);
        Failure::new(format!("{}; try weir up FOLDER", failure.text))
    };
    std::fs::create_dir_all(folder).map_err(fail)?;
    folder.canonicalize().map_err(fail)
}

/// A TCP port that can be listened on, and a remark on why it is this one.
struct Port {
    number: Option<u16>,
    remark: Option<String>,
}

/// The wanted port, or the default one, or a free one.
fn choose_port(wanted: Option<u16>) -> Result<Port, Failure> {
    let bind = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    match bind(wanted.unwrap_or(DEFAULT_PORT)).and_then(|listener| listener.local_addr()) {
        Ok(address) => Ok(Port { number: Some(address.port()), remark: None }),
        Err(error) if wanted.is_some() => {
            Err(Failure::io(format!("port {}", wanted.unwrap_or_default()), &error))
        }
        Err(error) => {
            let free = bind(0).and_then(|listener| listener.local_addr());
            let number = free.ok().map(|address| address.port());
            let why = match error.kind() {
                ErrorKind::AddrInUse => format!("Port {DEFAULT_PORT} is taken"),
                _ => format!("Port {DEFAULT_PORT} cannot be used ({error})"),
            };
            let instead = match number {
                Some(number) => format!("using {number} instead"),
                None => "serving the unix socket only".to_owned(),
            };
            Ok(Port { number, remark: Some(format!("{why}, {instead}.")) })
        }
    }
}

fn serve(folder: &Path, port: Port) -> Outcome {
    let database = folder.join(DATABASE);
    let socket = folder.join(SOCKET);
    let hello = Hello {
        program: hello::program_name(),
        folder: folder.to_owned(),
        socket: socket.clone(),
        port: port.number,
        remark: port.remark,
        created: false,
    };
    if UnixStream::connect(&socket).is_ok() {
        say(&hello.already_running())?;
        return Err(Failure::silent(1));
    }
    let created = demo::create_if_missing(&database)?;
    let log = Vlog::new("weir");
    // What the server is about to say is for administrators; problems are still shown, and Ctrl-C
    // is none.
    for levels in ["console:warn", "fatal_signal:console:off"] {
        log.set(levels).map_err(Failure::new)?;
    }
    greet_when_ready(Hello { created, ..hello });
    Ok(weir_host::run(host_options(folder, &database, &socket, port.number), &log))
}

fn host_options(folder: &Path, database: &Path, socket: &Path, port: Option<u16>) -> HostOptions {
    let mut remotes = vec![format!("punix:{}", socket.display())];
    remotes.extend(port.map(|port| format!("ptcp:{port}:127.0.0.1")));
    HostOptions {
        server: Config {
            seed: [0; 4],
            server_name: "weir",
            remotes,
            databases: vec![database.to_string_lossy().into_owned()],
            ..Config::default()
        },
        rundir: folder.to_owned(),
        unixctl: Unixctl::Path(folder.join(ADMIN_SOCKET)),
        daemon: DaemonOptions::default(),
        log_file: None,
        recording: weir_host::recording::Recording::Off,
        run_command: None,
        input_bytes_max: None,
        trim_memory: memory::trim,
    }
}

/// Shows what to try once the server takes connections. If it never does, it has said why.
fn greet_when_ready(hello: Hello) {
    std::thread::spawn(move || {
        let start = Instant::now();
        while start.elapsed() < START_PATIENCE {
            if UnixStream::connect(&hello.socket).is_ok() {
                let _ = say(&hello.text());
                return;
            }
            std::thread::sleep(START_POLL);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_replaced_only_when_nobody_asked_for_it() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let number = taken.local_addr().unwrap().port();
        let failure = choose_port(Some(number)).err().map(|failure| failure.text);
        assert_eq!(failure, Some(format!("port {number} (Address already in use)")));

        // Whether or not somebody has the default port, there is one to use.
        let port = choose_port(None).unwrap_or_else(|failure| panic!("{}", failure.text));
        assert_eq!(port.remark.is_none(), port.number == Some(DEFAULT_PORT));
    }
}

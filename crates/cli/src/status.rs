//! `weir status`: how a server is, in one screen.

mod screen;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use weir_json::Value;

use crate::dirs::Dirs;
use crate::getopt::Takes::{Nothing, Value as WithValue};
use crate::getopt::{Options, Spec, both, long};
use crate::log_options::open_log;
use crate::program::{Failure, Outcome, say};
use crate::unixctl::Daemon;

const HELP: &str = "\
usage: weir status [-t TARGET] [--json] [--watch]

Shows how an ovsdb-server of Weir is: databases, sessions, memory, what is queued, and what is slow.

  -t, --target=TARGET  the server: a name whose pid file is in @RUN@, or the path of its admin
                       socket (default: ovsdb-server)
  --json               the same for programs, on one line
  --watch              again every second, until Ctrl-C

Ends with status 0, whatever it shows, 1 if the server cannot be asked.
";

/// Between two looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// Moves to the top of the terminal and clears what is below.
const CLEAR: &str = "\x1b[H\x1b[J";

#[derive(Clone, Copy, PartialEq)]
enum Id {
    Target,
    Json,
    Watch,
    Help,
}

const TABLE: &[Spec<Id>] = &[
    both('t', "target", WithValue, Id::Target),
    long("json", Nothing, Id::Json),
    long("watch", Nothing, Id::Watch),
    both('h', "help", Nothing, Id::Help),
];

/// `weir status`, called as `typed`.
pub(crate) fn status(typed: &str, args: Vec<String>) -> Outcome {
    let dirs = Dirs::from_env();
    let (mut target, mut is_json, mut is_watching) = ("ovsdb-server".to_owned(), false, false);
    let mut options = Options::new(TABLE, args);
    for option in options.by_ref() {
        match option.map_err(|error| Failure::usage(typed, &error))? {
            (Id::Target, value) => target = value.unwrap_or_default(),
            (Id::Json, _) => is_json = true,
            (Id::Watch, _) => is_watching = true,
            (Id::Help, _) => {
                say(&HELP.replace("@RUN@", &dirs.run.display().to_string()))?;
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
    if let Some(word) = options.into_positional().first() {
        return Err(Failure::new(format!("unexpected word '{word}'; see weir status --help")));
    }
    // What goes wrong is said once, by the failure.
    let log = open_log("weir", &[], &dirs)?;
    log.set("off").map_err(Failure::new)?;
    let mut daemon = Daemon::connect(&target, &dirs, &log)?;
    let clear = if is_watching && !is_json && std::io::stdout().is_terminal() { CLEAR } else { "" };
    loop {
        let status = ask(&mut daemon)?;
        let text = if is_json { format!("{status}\n") } else { screen::draw(&target, &status) };
        say(&format!("{clear}{text}"))?;
        if !is_watching {
            return Ok(ExitCode::SUCCESS);
        }
        sleep(INTERVAL);
    }
}

fn ask(daemon: &mut Daemon) -> Result<Value, Failure> {
    let answer = daemon.call("weir/status", &[])?;
    let status = answer.and_then(|answer| {
        let text = answer.as_str().map(str::as_bytes).unwrap_or_default();
        Value::parse(text).map_err(|_| "the answer is not a status".to_owned())
    });
    status.map_err(|text| {
        Failure::new(format!("{}: {}", daemon.target(), text.trim_end()))
            .hint("only ovsdb-server of Weir knows its status; ovs-appctl asks any daemon")
    })
}

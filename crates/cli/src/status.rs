//! `weir status`: how a server is, in one screen.

mod manual;
mod screen;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use weir_host::vlog::Vlog;
use weir_json::Value;

use crate::appctl::unixctl::Daemon;
use crate::dirs::Dirs;
use crate::options::getopt::Options;
use crate::options::logging::open_log;
use crate::program::{Failure, Outcome, say};
use manual::{Id, TABLE};

pub(crate) use manual::manual;

/// Time between two looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// Moves to the top of the terminal and clears what is below.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Whom to ask, and how the answer is shown.
struct View {
    target: String,
    dirs: Dirs,
    log: Vlog,
    is_json: bool,
    /// What stands before each look but the first one that is written to a file or a pipe.
    between: &'static str,
}

/// Runs `weir status`, called as `typed`.
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
                say(&manual().help(&dirs))?;
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
    let is_screen = is_watching && !is_json && std::io::stdout().is_terminal();
    let between = match (is_screen, is_json) {
        (true, _) => CLEAR,
        (false, true) => "",
        (false, false) => "\n",
    };
    let view = View { target, dirs, log, is_json, between };
    let mut daemon = view.connect()?;
    let first = ask(&mut daemon)?;
    say(&format!("{}{}", if is_screen { CLEAR } else { "" }, view.draw(&first)))?;
    if is_watching { view.watch(daemon) } else { Ok(ExitCode::SUCCESS) }
}

impl View {
    fn connect(&self) -> Result<Daemon, Failure> {
        Daemon::connect(&self.target, &self.dirs, &self.log)
    }

    fn draw(&self, status: &Value) -> String {
        if self.is_json { format!("{status}\n") } else { screen::draw(&self.target, status) }
    }

    /// Looks again and again, until a signal or the reader's end. A server that goes away may be
    /// one that is started anew.
    fn watch(&self, daemon: Daemon) -> Outcome {
        let mut daemon = Some(daemon);
        let mut complaint = None;
        loop {
            sleep(INTERVAL);
            match self.look_again(daemon.take()) {
                Ok((found, status)) => {
                    daemon = Some(found);
                    complaint = None;
                    say(&format!("{}{}", self.between, self.draw(&status)))?;
                }
                // The same complaint every second would bury what was shown before.
                Err(failure) if complaint.as_ref() == Some(&failure.text) => {}
                Err(failure) => {
                    self.complain(&failure.text)?;
                    complaint = Some(failure.text);
                }
            }
        }
    }

    fn look_again(&self, daemon: Option<Daemon>) -> Result<(Daemon, Value), Failure> {
        let mut daemon = daemon.map_or_else(|| self.connect(), Ok)?;
        let status = ask(&mut daemon)?;
        Ok((daemon, status))
    }

    /// Where the status would stand; beside it if that is for programs.
    fn complain(&self, text: &str) -> Result<(), Failure> {
        let line = format!("no status: {text}; asking again every second");
        if self.is_json {
            Failure::new(line).report("weir");
            return Ok(());
        }
        say(&format!("{}{}\n", self.between, screen::plain(&line)))
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

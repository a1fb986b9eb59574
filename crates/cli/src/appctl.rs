//! `ovs-appctl`: admin commands to a running daemon, ours or any of Open vSwitch.

use std::process::ExitCode;
use std::time::Duration;

use weir_host::vlog::{Level, Vlog};
use weir_json::Value;

use crate::dirs::Dirs;
use crate::getopt::Takes::{MaybeValue, Nothing, Value as Required};
use crate::getopt::{Options, Spec, both, long};
use crate::log_options::{LogOption, open_log};
use crate::program::{Failure, Outcome, say, version_lines};
use crate::unixctl::Daemon;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Id {
    Target,
    Execute,
    Help,
    Option,
    Version,
    Timeout,
    Format,
    Pretty,
    Verbose,
    LogFile,
    SyslogMethod,
    SyslogTarget,
}

/// In the reference's order, which `--option` prints.
const TABLE: &[Spec<Id>] = &[
    both('t', "target", Required, Id::Target),
    both('e', "execute", Nothing, Id::Execute),
    both('f', "format", Required, Id::Format),
    long("pretty", Nothing, Id::Pretty),
    both('h', "help", Nothing, Id::Help),
    both('o', "option", Nothing, Id::Option),
    both('V', "version", Nothing, Id::Version),
    both('T', "timeout", Required, Id::Timeout),
    both('v', "verbose", MaybeValue, Id::Verbose),
    long("log-file", MaybeValue, Id::LogFile),
    long("syslog-method", Required, Id::SyslogMethod),
    long("syslog-target", Required, Id::SyslogTarget),
];

const HELP: &str = "\
ovs-appctl: gives commands to running daemons (Weir)
usage: ovs-appctl [-t TARGET] [OPTIONS] COMMAND [ARG...]

TARGET is a daemon's name (its pid file is looked for in @RUN@), ovs-vswitchd if left
out, or the path of its admin socket.

Some commands that every daemon knows:
  list-commands           all commands of the target
  version                 its version
  vlog/list               levels of logging
  vlog/set [SPEC]         change them: MODULE:DESTINATION:LEVEL, in any order
  vlog/reopen             open the log file again
  coverage/show           counters of what it does
  memory/show             what its memory is used for
  exit                    end it

Options:
  -t, --target=TARGET     whom to ask
  -T, --timeout=SECS      give up after this long
  -f, --format=text|json  form of the answer
  --pretty                indent JSON
  -v, --verbose[=SPEC]    set levels of logging of ovs-appctl itself
  --log-file[=FILE]       log to a file
  -o, --option            list all options
  -h, --help              show this text
  -V, --version           show versions
";

/// What is asked, and how the answer is wanted.
struct Request {
    target: Option<String>,
    timeout: Option<Duration>,
    is_json: bool,
    is_pretty: bool,
    words: Vec<String>,
}

/// `ovs-appctl`, called as `typed`.
pub(crate) fn main(typed: &str, args: Vec<String>) -> Outcome {
    let dirs = Dirs::from_env();
    let mut logging = vec![];
    let mut request =
        Request { target: None, timeout: None, is_json: false, is_pretty: false, words: vec![] };
    let mut options = Options::new(TABLE, args).until_positional();
    for option in options.by_ref() {
        match option.map_err(|error| Failure::usage(typed, &error))? {
            (Id::Help, _) => return print(&HELP.replace("@RUN@", &dirs.run.display().to_string())),
            (Id::Version, _) => return print(&version_lines("ovs-appctl")),
            (Id::Option, _) => return print(&crate::usage::option_list(TABLE)),
            (Id::Target, value) => {
                if request.target.is_some() {
                    return Err(Failure::new("-t or --target may be specified only once"));
                }
                request.target = value;
            }
            (Id::Timeout, value) => request.timeout = Some(timeout(&value.unwrap_or_default())?),
            (Id::Format, value) => request.is_json = is_json(&value.unwrap_or_default())?,
            (Id::Pretty, _) => request.is_pretty = true,
            (Id::Verbose, value) => logging.push(LogOption::Verbose(value)),
            (Id::LogFile, value) => logging.push(LogOption::File(value)),
            (Id::SyslogMethod, Some(value)) => logging.push(LogOption::SyslogMethod(value)),
            (Id::SyslogTarget, Some(value)) => logging.push(LogOption::SyslogTarget(value)),
            // Once asked for commands, which needs no asking any more.
            (Id::Execute | Id::SyslogMethod | Id::SyslogTarget, _) => {}
        }
    }
    request.words = options.into_positional();
    if request.words.is_empty() {
        let text = "at least one non-option argument is required (use --help for help)";
        return Err(Failure::new(text));
    }
    let log = open_log("ovs-appctl", &logging, &dirs)?;
    run(request, &dirs, &log)
}

fn print(text: &str) -> Outcome {
    say(text)?;
    Ok(ExitCode::SUCCESS)
}

fn timeout(text: &str) -> Result<Duration, Failure> {
    let seconds = text.parse::<u32>().ok().filter(|seconds| *seconds > 0);
    let invalid = || Failure::new(format!("value {text} on -T or --timeout is invalid"));
    seconds.map(|seconds| Duration::from_secs(u64::from(seconds))).ok_or_else(invalid)
}

fn is_json(text: &str) -> Result<bool, Failure> {
    match text {
        "text" => Ok(false),
        "json" => Ok(true),
        _ => Err(Failure::new(format!("value {text} on -f or --format is invalid"))),
    }
}

/// Ends the process after a while, as alarm(2) would.
pub(crate) fn end_after(time: Duration, log: Vlog) {
    std::thread::spawn(move || {
        std::thread::sleep(time);
        let text = "terminating with signal 14 (Alarm clock)";
        log.log("fatal_signal", Level::Warn, text);
        let _ = rustix::process::kill_process(
            rustix::process::getpid(),
            rustix::process::Signal::ALARM,
        );
    });
}

fn run(request: Request, dirs: &Dirs, log: &Vlog) -> Outcome {
    if let Some(time) = request.timeout {
        end_after(time, log.clone());
    }
    let target = request.target.as_deref().unwrap_or("ovs-vswitchd");
    let mut daemon = Daemon::connect(target, dirs, log)?;
    if request.is_json {
        let options = ["--format".to_owned(), "json".to_owned()];
        if let Err(text) = daemon.call("set-options", &options)? {
            return refused(&daemon, &text);
        }
    }
    let (name, args) = request.words.split_first().expect("checked that there is a word");
    match daemon.call(name, args)? {
        Err(text) => refused(&daemon, &text),
        Ok(result) => {
            say(&with_newline(shown(&result, &request)))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn shown(result: &Value, request: &Request) -> String {
    match result {
        Value::String(text) if !request.is_json => text.clone(),
        value if request.is_pretty => {
            let mut text = String::new();
            value.write_pretty(&mut text);
            text
        }
        value => value.to_string(),
    }
}

fn with_newline(mut text: String) -> String {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// The daemon said no.
fn refused(daemon: &Daemon, text: &str) -> Outcome {
    eprint!("{}", with_newline(text.to_owned()));
    eprintln!("ovs-appctl: {}: server returned an error", daemon.target());
    Ok(ExitCode::from(2))
}

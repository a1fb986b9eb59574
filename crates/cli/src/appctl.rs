//! `ovs-appctl`: admin commands to a running daemon, ours or any of Open vSwitch.

pub(crate) mod unixctl;

use std::process::ExitCode;
use std::time::Duration;

use weir_host::vlog::{Level, Vlog};
use weir_json::Value;

use crate::dirs::Dirs;
use crate::options::getopt::Takes::{MaybeValue, Nothing, Value as Required};
use crate::options::getopt::{Options, Spec, both, long};
use crate::options::logging::{LogId, open_log};
use crate::program::{Failure, Outcome, say, version_lines};
use crate::usage::about::OPTIONS;
use crate::usage::{self, About, CommandGroup, CommandUsage, Complete, Manual, about};
use unixctl::Daemon;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Id {
    Target,
    Execute,
    Help,
    Option,
    Version,
    Timeout,
    Format,
    Pretty,
    Log(LogId),
}

const TARGET: About = about(OPTIONS, "TARGET", "whom to ask").complete(Complete::File);
const TIMEOUT: About = about(OPTIONS, "SECS", "give up after this long, with signal 14");
const FORMAT: About = about(OPTIONS, "FORMAT", "of the answer: text or json")
    .complete(Complete::Words(&["text", "json"]));
const PRETTY: About = about(OPTIONS, "", "JSON with line breaks");

/// The options of ovs-appctl in the reference's order, which `--option` prints.
pub(crate) const TABLE: &[Spec<Id>] = &[
    both('t', "target", Required, Id::Target).with(TARGET),
    both('e', "execute", Nothing, Id::Execute),
    both('f', "format", Required, Id::Format).with(FORMAT),
    long("pretty", Nothing, Id::Pretty).with(PRETTY),
    both('h', "help", Nothing, Id::Help).with(about::HELP),
    both('o', "option", Nothing, Id::Option).with(about::OPTION),
    both('V', "version", Nothing, Id::Version).with(about::VERSION),
    both('T', "timeout", Required, Id::Timeout).with(TIMEOUT),
    both('v', "verbose", MaybeValue, Id::Log(LogId::Verbose)).with(about::VERBOSE),
    long("log-file", MaybeValue, Id::Log(LogId::File)).with(about::LOG_FILE),
    long("syslog-method", Required, Id::Log(LogId::SyslogMethod)).with(about::SYSLOG_METHOD),
    long("syslog-target", Required, Id::Log(LogId::SyslogTarget)).with(about::SYSLOG_TARGET),
];

const GROUPS: &[CommandGroup] = &[
    CommandGroup {
        title: "Commands that every daemon knows",
        commands: &[
            usage("list-commands", "", "lists all commands of the target"),
            usage("version", "", "prints its version"),
            usage("vlog/list", "", "shows the levels of logging"),
            usage(
                "vlog/set",
                "[SPEC]",
                "changes them: MODULE:DESTINATION:LEVEL, in any order, such as \
                 jsonrpc:file:dbg",
            ),
            usage("vlog/reopen", "", "opens the log file again, once it has been moved away"),
            usage("coverage/show", "", "shows counters of what it does"),
            usage("memory/show", "", "shows what its memory is used for"),
            usage("exit", "", "ends it"),
        ],
    },
    CommandGroup {
        title: "Commands that ovsdb-server knows",
        commands: &[
            usage("ovsdb-server/list-dbs", "", "lists the databases that it serves"),
            usage("ovsdb-server/add-db", "DB", "serves this file too"),
            usage("ovsdb-server/remove-db", "DB", "serves this database no more"),
            usage("ovsdb-server/compact", "[DB]", "drops what is out of date from its files"),
            usage("ovsdb-server/list-remotes", "", "lists where it listens and connects"),
            usage("ovsdb-server/add-remote", "REMOTE", "listens there too, or connects"),
            usage("ovsdb-server/remove-remote", "REMOTE", "undoes that"),
            usage("ovsdb-server/reconnect", "", "closes all connections; clients come again"),
            usage("ovsdb-server/sync-status", "", "says whether it is active or a backup"),
            usage(
                "ovsdb-server/get-db-storage-status",
                "DB",
                "says whether the file can be written",
            ),
        ],
    },
];

const fn usage(name: &'static str, args: &'static str, help: &'static str) -> CommandUsage {
    CommandUsage { name, args, help, complete: &[] }
}

/// What people are told about ovs-appctl.
pub(crate) fn manual() -> Manual {
    Manual {
        program: "ovs-appctl",
        word: "appctl",
        summary: "gives commands to running daemons (Weir)",
        usage: &["[-t TARGET] [OPTIONS] COMMAND [ARG...]"],
        intro: "TARGET is a daemon's name, whose pid file is looked for in @RUN@, or the path of \
                its admin socket; ovs-vswitchd if left out. The daemon may be one of Weir or any \
                of Open vSwitch. Options end where COMMAND begins.",
        commands: GROUPS,
        arguments: &[],
        sections: &[OPTIONS, about::LOGGING, about::OTHER],
        notes: &[
            (
                "Examples",
                "@PROGRAM@ -t ovsdb-server ovsdb-server/compact\n\
                 @PROGRAM@ -t /var/run/ovn/ovnnb_db.ctl memory/show\n\
                 @PROGRAM@ -t ovsdb-server vlog/set jsonrpc:file:dbg",
            ),
            ("Exit status", "0 done, 1 the daemon cannot be asked, 2 it says no"),
        ],
        options: usage::options(TABLE),
    }
}

/// What is asked, and how the answer is wanted.
struct Request {
    target: Option<String>,
    timeout: Option<Duration>,
    is_json: bool,
    is_pretty: bool,
    words: Vec<String>,
}

/// Runs `ovs-appctl`, called as `typed`.
pub(crate) fn main(typed: &str, args: Vec<String>) -> Outcome {
    let dirs = Dirs::from_env();
    let mut logging = vec![];
    let mut request =
        Request { target: None, timeout: None, is_json: false, is_pretty: false, words: vec![] };
    let mut options = Options::new(TABLE, args).until_positional();
    for option in options.by_ref() {
        match option.map_err(|error| Failure::usage(typed, &error))? {
            (Id::Help, _) => return print(&manual().help(&dirs)),
            (Id::Version, _) => return print(&version_lines("ovs-appctl")),
            (Id::Option, _) => return print(&usage::option_list(TABLE)),
            (Id::Target, value) => {
                if request.target.is_some() {
                    return Err(Failure::new("-t or --target may be specified only once"));
                }
                request.target = value;
            }
            (Id::Timeout, value) => request.timeout = Some(timeout(&value.unwrap_or_default())?),
            (Id::Format, value) => request.is_json = is_json(&value.unwrap_or_default())?,
            (Id::Pretty, _) => request.is_pretty = true,
            (Id::Log(id), value) => logging.push(id.with(value)),
            // Once asked for commands, which needs no asking any more.
            (Id::Execute, _) => {}
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

/// Ends the program with the error that the daemon answered.
fn refused(daemon: &Daemon, text: &str) -> Outcome {
    eprint!("{}", with_newline(text.to_owned()));
    eprintln!("ovs-appctl: {}: server returned an error", daemon.target());
    Ok(ExitCode::from(2))
}

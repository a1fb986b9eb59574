//! Which admin commands there are, and the answers to those that need no database
//! (ovs-appctl(8)).

use std::fmt::Write as _;
use std::sync::Arc;

use crate::coverage::Coverage;
use crate::recording::{Item, Recorder};
use crate::version;
use crate::vlog::Vlog;

/// No upper limit of arguments.
const ANY: u32 = u32::MAX;

/// Name, usage, least and most arguments.
pub(crate) type Command = (&'static str, &'static str, u32, u32);

/// Commands that the shell itself answers.
const OWN: &[Command] = &[
    ("coverage/read-counter", "COUNTER", 1, 1),
    ("coverage/show", "", 0, 0),
    ("exit", "", 0, 0),
    ("list-commands", "", 0, 0),
    ("set-options", "[--format text|json]", 0, 2),
    ("version", "", 0, 0),
    ("vlog/close", "", 0, 0),
    ("vlog/disable-rate-limit", "[module]...", 0, ANY),
    ("vlog/enable-rate-limit", "[module]...", 0, ANY),
    ("vlog/list", "", 0, 0),
    ("vlog/list-pattern", "", 0, 0),
    ("vlog/reopen", "", 0, 0),
    ("vlog/set", "{spec | PATTERN:destination:pattern}", 0, ANY),
];

/// What becomes of a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Answered: text for standard output, or an error.
    Reply(Result<String, String>),
    /// The core answers.
    Forward,
    /// Answered, and the server ends.
    Exit,
    /// Answered, and later replies of this connection are wrapped in JSON or not.
    Format {
        /// Replies are wrapped.
        json: bool,
    },
}

/// Knows all commands.
pub(crate) struct Commands {
    program: String,
    log: Vlog,
    /// The core's commands.
    forwarded: Vec<Command>,
    recorder: Option<Arc<Recorder>>,
}

impl Commands {
    pub(crate) fn new(program: &str, log: Vlog, forwarded: Vec<Command>) -> Self {
        Self { program: program.to_owned(), log, forwarded, recorder: None }
    }

    /// Commands that the shell itself answers are recorded from now on.
    pub(crate) fn record(&mut self, recorder: Arc<Recorder>) {
        self.recorder = Some(recorder);
    }

    /// Runs a command or says who must.
    pub(crate) fn run(
        &self,
        name: &str,
        args: &Result<Vec<String>, usize>,
        coverage: &Coverage,
    ) -> Outcome {
        let count = args.as_ref().map_or_else(|count| *count, Vec::len);
        if let Err(error) = self.check(name, count) {
            return Outcome::Reply(Err(error));
        }
        let Ok(args) = args else {
            return Outcome::Reply(Err(format!("\"{name}\" command has non-string argument")));
        };
        if let Some(recorder) = &self.recorder
            && OWN.iter().any(|command| command.0 == name)
        {
            recorder.item(&Item::Command { name: name.to_owned(), args: args.to_vec() });
        }
        let reply = match name {
            "exit" => return Outcome::Exit,
            "set-options" => return set_options(args),
            "list-commands" => Ok(self.list()),
            "version" => Ok(format!("{}\n", version::text(&self.program))),
            "coverage/show" => Ok(coverage.show()),
            "coverage/read-counter" => read_counter(coverage, args),
            "vlog/list" => Ok(self.log.list()),
            "vlog/list-pattern" => Ok(self.log.list_patterns()),
            "vlog/reopen" => self.log.reopen().map(|()| String::new()),
            "vlog/close" => {
                self.log.close_file();
                Ok(String::new())
            }
            "vlog/set" => self.vlog_set(args),
            "vlog/enable-rate-limit" => self.rate_limit(args, true),
            "vlog/disable-rate-limit" => self.rate_limit(args, false),
            _ => return Outcome::Forward,
        };
        Outcome::Reply(reply)
    }

    fn check(&self, name: &str, count: usize) -> Result<(), String> {
        let mut all = OWN.iter().chain(&self.forwarded);
        let Some(&(_, _, least, most)) = all.find(|command| command.0 == name) else {
            return Err(format!(
                "\"{name}\" is not a valid command \
                 (use \"list-commands\" to see a list of valid commands)"
            ));
        };
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        if count < least {
            return Err(format!("\"{name}\" command requires at least {least} arguments"));
        }
        if count > most {
            return Err(format!("\"{name}\" command takes at most {most} arguments"));
        }
        Ok(())
    }

    fn list(&self) -> String {
        let mut all: Vec<&Command> = OWN.iter().chain(&self.forwarded).collect();
        all.sort_unstable();
        let mut out = String::from("The available commands are:\n");
        for (name, usage, _, _) in all {
            let _ = writeln!(out, "  {name:<23} {usage}");
        }
        out
    }

    fn vlog_set(&self, args: &[String]) -> Result<String, String> {
        if args.is_empty() {
            self.log.set("")?;
        }
        args.iter().try_for_each(|spec| self.log.set(spec))?;
        Ok(String::new())
    }

    fn rate_limit(&self, args: &[String], limited: bool) -> Result<String, String> {
        if args.is_empty() {
            self.log.set_rate_limit(None, limited)?;
        }
        for name in args {
            let module = (!name.eq_ignore_ascii_case("any")).then_some(name.as_str());
            self.log.set_rate_limit(module, limited)?;
        }
        Ok(String::new())
    }
}

fn read_counter(coverage: &Coverage, args: &[String]) -> Result<String, String> {
    let counter = args.first().and_then(|name| coverage.read(name));
    counter.map(|total| format!("{total}\n")).ok_or_else(|| "No such counter".to_owned())
}

fn set_options(args: &[String]) -> Outcome {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["--format", "json"] => Outcome::Format { json: true },
        ["--format", "text"] => Outcome::Format { json: false },
        ["--format"] => Outcome::Reply(Err("option requires an argument -- --format".to_owned())),
        ["--format", _] => Outcome::Reply(Err("option --format has invalid value".to_owned())),
        [first, ..] => Outcome::Reply(Err(format!("unknown option {first}"))),
        [] => Outcome::Reply(Ok(String::new())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORE: &[Command] = &[("memory/show", "", 0, 0), ("ovsdb-server/add-db", "DB", 1, 1)];

    fn run(line: &str) -> Outcome {
        let mut words = line.split(' ').map(str::to_owned);
        let name = words.next().unwrap();
        let commands = Commands::new("ovsdb-server", Vlog::new("ovsdb-server"), CORE.to_vec());
        commands.run(&name, &Ok(words.collect()), &Coverage::default())
    }

    fn refused(line: &str, error: &str) {
        assert_eq!(run(line), Outcome::Reply(Err(error.to_owned())), "{line}");
    }

    #[test]
    fn commands_are_checked_in_the_words_of_the_reference() {
        refused(
            "foo",
            "\"foo\" is not a valid command \
             (use \"list-commands\" to see a list of valid commands)",
        );
        refused("exit a b", "\"exit\" command takes at most 0 arguments");
        refused(
            "ovsdb-server/add-db",
            "\"ovsdb-server/add-db\" command requires at least 1 arguments",
        );
        refused("coverage/read-counter nope", "No such counter");
        refused("vlog/set nope", "no destination, level, or module \"nope\"");
        refused("vlog/enable-rate-limit nope", "unknown module");
        refused("vlog/reopen", "Logging to file not configured");
    }

    #[test]
    fn what_is_not_answered_here_is_forwarded() {
        assert_eq!(run("memory/show"), Outcome::Forward);
        assert_eq!(run("exit"), Outcome::Exit);
        assert_eq!(run("set-options --format json"), Outcome::Format { json: true });
        assert_eq!(run("vlog/disable-rate-limit jsonrpc any"), Outcome::Reply(Ok(String::new())));
    }

    #[test]
    fn the_list_is_sorted_and_aligned() {
        let Outcome::Reply(Ok(list)) = run("list-commands") else { panic!("no list") };
        let expected = "The available commands are:\n  coverage/read-counter   COUNTER\n  \
                        coverage/show           \n  exit                    \n  \
                        list-commands           \n  memory/show             \n  \
                        ovsdb-server/add-db     DB\n  set-options             ";
        assert!(list.starts_with(expected), "{list}");
    }

    #[test]
    fn the_version_ends_its_first_line_with_a_number_that_scripts_compare() {
        let Outcome::Reply(Ok(text)) = run("version") else { panic!("no version") };
        assert_eq!(text.lines().next(), Some("ovsdb-server (Open vSwitch) 4.0.90"));
        assert!(text.lines().nth(1).unwrap().starts_with("Weir "));
    }
}

//! What fuzz targets reach of the private parts (`fuzz/`). Built for fuzzing only.

use weir_json::{Value, validate};

use crate::coverage::Coverage;
use crate::recording;
use crate::unixctl::{Commands, Outcome, Request, reply};
use crate::vlog::{Level, Vlog};

/// An admin socket that has no server behind it.
pub struct Admin {
    commands: Commands,
    log: Vlog,
    coverage: Coverage,
    is_json: bool,
}

impl Default for Admin {
    fn default() -> Self {
        let log = Vlog::new("fuzz");
        let quiet = ["syslog:off", "console:off"].into_iter().try_for_each(|spec| log.set(spec));
        quiet.and_then(|()| log.open_file("/dev/null".as_ref())).expect("a quiet log");
        let forwarded = vec![("ovsdb-server/add-db", "DB", 1, 1), ("memory/show", "", 0, 0)];
        let commands = Commands::new("fuzz", log.clone(), forwarded);
        Self { commands, log, coverage: Coverage::default(), is_json: false }
    }
}

impl Admin {
    /// Takes one message; what `ovs-appctl` would be told, if anything.
    pub fn handle(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        let request = Request::parse(message).ok()?;
        let answer = match self.commands.run(&request.method, &request.args, &self.coverage) {
            Outcome::Reply(answer) => answer,
            Outcome::Forward | Outcome::Exit => return None,
            Outcome::Format { json } => {
                self.is_json = json;
                Ok(String::new())
            }
        };
        // What was set must be fit for use, and must not make the socket's own messages heard.
        self.log.set("console:off").and_then(|()| self.log.set("syslog:off")).expect("levels");
        self.log.log("jsonrpc", Level::Err, "one\nor two lines");
        let reply = reply(&request.id, answer, self.is_json);
        assert!(validate(&reply).is_ok() && Value::parse(&reply).is_ok());
        Some(reply)
    }
}

/// Reads the argument of `-v` and uses what it says.
pub fn set_log(spec: &str) {
    let log = Vlog::new("fuzz");
    let quiet = || ["syslog:off", "console:off"].into_iter().try_for_each(|spec| log.set(spec));
    log.open_file("/dev/null".as_ref()).expect("a place for lines");
    if log.set(spec).is_ok() {
        quiet().expect("levels");
        log.log("jsonrpc", Level::Err, "text");
        assert!(!log.list().is_empty() && !log.list_patterns().is_empty());
    }
    let _ = (log.set_rate_limit(Some(spec), true), log.set_syslog_method(spec));
}

/// Reads bytes as a recording, and as an item of one.
pub fn read_recording(bytes: &[u8]) {
    recording::read_recording(bytes);
}

//! Admin commands to a daemon: where its socket is, and one request at a time.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::process::{Flock, FlockType, fcntl_getlk};
use weir_host::vlog::{Level, Vlog};
use weir_json::{Framer, Value, array, object};
use weir_net::connect_unix;

use crate::dirs::Dirs;
use crate::program::{Failure, strerror};

/// Longest answer of a daemon, in bytes: beyond it the command fails.
const REPLY_BYTES_MAX: usize = 64 << 20;

/// A connection to a daemon.
pub(crate) struct Daemon {
    stream: UnixStream,
    target: String,
    requests: i64,
}

impl Daemon {
    /// Connects to `target`: the path of a socket, or the name of a daemon whose pid file is in the
    /// run directory.
    pub(crate) fn connect(target: &str, dirs: &Dirs, log: &Vlog) -> Result<Self, Failure> {
        let path = if target.starts_with('/') {
            PathBuf::from(target)
        } else {
            let pid = read_pid(&dirs.run.join(format!("{target}.pid")), log)?;
            dirs.run.join(format!("{target}.{pid}.ctl"))
        };
        let stream = connect_unix(&path).map_err(|error| {
            let shown = path.display();
            log.log("unixctl", Level::Warn, &format!("failed to connect to {shown}"));
            Failure::io(format!("cannot connect to \"{shown}\""), &error)
        })?;
        Ok(Self { stream, target: target.to_owned(), requests: 0 })
    }

    /// What the daemon was called on the command line.
    pub(crate) fn target(&self) -> &str {
        &self.target
    }

    /// Runs a command: its result, or the text of its error.
    pub(crate) fn call(&mut self, name: &str, args: &[String]) -> Result<Answer, Failure> {
        self.requests += 1;
        let params = array(args.iter().map(|arg| Value::from(arg.as_str())));
        let id = Value::from(self.requests);
        let request = object([("id", id), ("method", Value::from(name)), ("params", params)]);
        let reply = self.exchange(request.to_string().as_bytes()).map_err(|error| {
            Failure::new(format!("{}: transaction error ({})", self.target, describe(&error)))
        })?;
        let part = |name| reply.get(name).filter(|value| **value != Value::Null).cloned();
        Ok(match part("error") {
            Some(Value::String(text)) => Err(text),
            Some(other) => Err(other.to_string()),
            None => Ok(part("result").unwrap_or(Value::Null)),
        })
    }

    fn exchange(&mut self, request: &[u8]) -> io::Result<Value> {
        self.stream.write_all(request)?;
        let (mut framer, mut reply, mut buffer) = (Framer::new(), Vec::new(), [0; 64 << 10]);
        loop {
            let count = match self.stream.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let bytes = buffer.get(..count).unwrap_or_default();
            reply.extend_from_slice(bytes);
            if reply.len() > REPLY_BYTES_MAX {
                return Err(rustix::io::Errno::MSGSIZE.into());
            }
            let protocol =
                |_| io::Error::from_raw_os_error(rustix::io::Errno::PROTO.raw_os_error());
            if framer.feed(bytes).map_err(protocol)?.is_some() {
                return Value::parse(&reply).map_err(protocol);
            }
        }
    }
}

/// A command's result, or the text of its error.
pub(crate) type Answer = Result<Value, String>;

fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "End of file".to_owned(),
        _ => strerror(error),
    }
}

/// The process that holds a pid file.
fn read_pid(path: &Path, log: &Vlog) -> Result<i32, Failure> {
    let shown = path.display();
    let unreadable =
        |error: &io::Error| Failure::io(format!("cannot read pidfile \"{shown}\""), error);
    let file = match File::options().read(true).write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => File::open(path),
        opened => opened,
    };
    let file = file.map_err(|error| {
        log.log("daemon_unix", Level::Warn, &format!("{shown}: open: {}", strerror(&error)));
        unreadable(&error)
    })?;
    match fcntl_getlk(&file, &Flock::from(FlockType::WriteLock)) {
        Ok(Some(Flock { pid: Some(pid), .. })) => Ok(pid.as_raw_nonzero().get()),
        // Left behind by a process that is gone.
        Ok(_) => {
            Err(unreadable(&io::Error::from_raw_os_error(rustix::io::Errno::SRCH.raw_os_error())))
        }
        Err(error) => Err(unreadable(&error.into())),
    }
}

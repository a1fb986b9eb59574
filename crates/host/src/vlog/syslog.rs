//! The system log: datagrams to `/dev/log`, silently nothing where that does not exist.

use std::os::unix::net::UnixDatagram;

/// The system log's socket.
const SOCKET: &str = "/dev/log";

/// The facility without a `FACILITY` setting: `daemon`.
pub(crate) const FACILITY_DAEMON: u8 = 3 << 3;

/// Where to send log lines for the system.
pub(crate) struct Syslog {
    /// `None`: switched off with `--syslog-method=null`.
    method: Method,
    socket: Option<UnixDatagram>,
}

enum Method {
    Null,
    Local,
    Unix(String),
}

impl Syslog {
    /// A method as `--syslog-method` and the environment's `OVS_SYSLOG_METHOD` name it.
    pub(crate) fn new(method: &str) -> Result<Self, String> {
        let method = match method {
            "null" => Method::Null,
            "" | "libc" => Method::Local,
            other => match other.strip_prefix("unix:") {
                Some(path) => Method::Unix(path.to_owned()),
                None if other.starts_with("udp:") => Method::Null,
                None => return Err(format!("unsupported syslog method '{other}'")),
            },
        };
        Ok(Self { method, socket: None })
    }

    /// Sends one line; a log that cannot be reached is no reason to stop.
    pub(crate) fn send(&mut self, line: &str) {
        let path = match &self.method {
            Method::Null => return,
            Method::Local => SOCKET,
            Method::Unix(path) => path,
        };
        if self.try_send(line) {
            return;
        }
        self.socket = UnixDatagram::unbound()
            .ok()
            .filter(|socket| socket.set_nonblocking(true).is_ok() && socket.connect(path).is_ok());
        self.try_send(line);
    }

    fn try_send(&self, line: &str) -> bool {
        self.socket.as_ref().is_some_and(|socket| socket.send(line.as_bytes()).is_ok())
    }
}

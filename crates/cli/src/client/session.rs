//! A JSON-RPC session over one blocking connection.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read, Write};

use weir_json::{Framer, Value, array, object, validate};

use super::address::{Address, Stream};
use crate::program::strerror;

/// The longest message that a server may send. An initial reply holds a whole database.
const MESSAGE_MAX: usize = 2 << 30;

/// Bytes asked for at once.
const READ_SIZE: usize = 128 * 1024;

/// Why a session cannot go on.
#[derive(Debug)]
pub(crate) enum Lost {
    /// The server closed the connection.
    Closed,
    /// The connection failed.
    Io(io::Error),
    /// What the server sent makes no sense.
    Protocol(String),
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("End of file"),
            Self::Io(error) => f.write_str(&strerror(error)),
            Self::Protocol(text) => f.write_str(text),
        }
    }
}

impl From<io::Error> for Lost {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Why a request has no result.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The server answered with this error.
    Error(Value),
    /// The session ended first.
    Lost(Lost),
}

impl From<Lost> for Refusal {
    fn from(lost: Lost) -> Self {
        Self::Lost(lost)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => write!(f, "{error}"),
            Self::Lost(lost) => write!(f, "{lost}"),
        }
    }
}

/// A notification of the server.
#[derive(Debug)]
pub(crate) struct Notification {
    /// Its method.
    pub(crate) method: String,
    /// Its parameters.
    pub(crate) params: Vec<Value>,
}

enum Message {
    Notification(Notification),
    Reply { id: Value, result: Value, error: Value },
}

/// An open session.
pub(crate) struct Session {
    stream: Stream,
    framer: Framer,
    /// Bytes read; those before `used` belong to messages already taken.
    buffer: Vec<u8>,
    used: usize,
    /// Bytes from `used` on that the framer has seen.
    scanned: usize,
    next_id: i64,
    /// What came while a reply was awaited.
    waiting: VecDeque<Notification>,
}

impl Session {
    /// Connects to a server.
    pub(crate) fn connect(address: &Address) -> io::Result<Self> {
        Ok(Self {
            stream: address.connect()?,
            framer: Framer::new(),
            buffer: vec![],
            used: 0,
            scanned: 0,
            next_id: 1,
            waiting: VecDeque::new(),
        })
    }

    /// Sends a request and waits for its reply. Notifications that come first are kept.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Result<Value, Refusal> {
        let id = Value::from(self.next_id);
        self.next_id += 1;
        let members = [("id", id.clone()), ("method", method.into()), ("params", params)];
        self.send(&object(members))?;
        loop {
            match self.message()? {
                Message::Notification(notification) => self.waiting.push_back(notification),
                Message::Reply { id: of, result, error } if of == id => {
                    return match error {
                        Value::Null => Ok(result),
                        error => Err(Refusal::Error(error)),
                    };
                }
                Message::Reply { .. } => {}
            }
        }
    }

    /// Waits for the next notification.
    pub(crate) fn notification(&mut self) -> Result<Notification, Lost> {
        if let Some(notification) = self.waiting.pop_front() {
            return Ok(notification);
        }
        loop {
            if let Message::Notification(notification) = self.message()? {
                return Ok(notification);
            }
        }
    }

    fn send(&mut self, message: &Value) -> Result<(), Lost> {
        let mut bytes = vec![];
        message.write(&mut bytes);
        Ok(self.stream.write_all(&bytes)?)
    }

    /// The next message that is not a probe; probes are answered.
    fn message(&mut self) -> Result<Message, Lost> {
        loop {
            let value = self.value()?;
            let Value::Object(mut members) = value else {
                return Err(Lost::Protocol("a message is not an object".into()));
            };
            let mut take = |key: &str| members.remove(key).unwrap_or(Value::Null);
            let (id, method, params) = (take("id"), take("method"), take("params"));
            let Value::String(method) = method else {
                return Ok(Message::Reply { id, result: take("result"), error: take("error") });
            };
            if method == "echo" && id != Value::Null {
                let members = [("error", Value::Null), ("id", id), ("result", params)];
                self.send(&object(members))?;
                continue;
            }
            let Value::Array(params) = params else {
                return Err(Lost::Protocol(format!("\"{method}\" without parameters")));
            };
            return Ok(Message::Notification(Notification { method, params }));
        }
    }

    /// The next JSON value on the stream.
    fn value(&mut self) -> Result<Value, Lost> {
        let not_json = |error: weir_json::Error| Lost::Protocol(error.to_string());
        loop {
            let fresh = &self.buffer[self.used + self.scanned..];
            if let Some(n) = self.framer.feed(fresh).map_err(not_json)? {
                let end = self.used + self.scanned + n;
                let value = validate(&self.buffer[self.used..end]).map_err(not_json)?.to_value();
                (self.used, self.scanned) = (end, 0);
                return Ok(value);
            }
            self.scanned += fresh.len();
            self.fill()?;
        }
    }

    fn fill(&mut self) -> Result<(), Lost> {
        self.buffer.drain(..self.used);
        self.used = 0;
        let have = self.buffer.len();
        if have >= MESSAGE_MAX {
            return Err(Lost::Protocol(format!("a message of more than {MESSAGE_MAX} bytes")));
        }
        self.buffer.resize(have + READ_SIZE, 0);
        let read = self.stream.read(&mut self.buffer[have..]);
        self.buffer.truncate(have + read.as_ref().copied().unwrap_or(0));
        match read {
            Ok(0) => Err(Lost::Closed),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Err(Lost::Closed),
            Err(error) => Err(error.into()),
        }
    }
}

/// Parameters that are all strings.
pub(crate) fn strings(params: &[&str]) -> Value {
    array(params.iter().map(|&param| Value::from(param)))
}

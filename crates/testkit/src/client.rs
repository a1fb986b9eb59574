//! A small blocking JSON-RPC client: what a test says and hears on one session.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::pki::Pki;
use crate::stream::Stream;

/// How long a session waits for the next message.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes read at once.
const CHUNK: usize = 256 * 1024;

/// Why something could not be had from a server.
#[derive(Debug)]
pub enum Trouble {
    /// The operating system refused.
    Io(io::Error),
    /// The server closed the session.
    Closed,
    /// Nothing came within the client's patience.
    Timeout,
    /// What came is not JSON: the reason, then the bytes.
    NotJson(String),
    /// The server did not start: its status and log.
    Start(String),
    /// The server answered with an error.
    Refused(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::Closed => write!(f, "the server closed the session"),
            Self::Timeout => write!(f, "no answer within {PATIENCE:?}"),
            Self::NotJson(text) => write!(f, "not JSON: {text}"),
            Self::Start(text) => write!(f, "the server did not start or end well: {text}"),
            Self::Refused(text) => write!(f, "{text}"),
        }
    }
}

impl std::error::Error for Trouble {}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Timeout,
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

/// One JSON-RPC message from the server.
#[derive(Clone, Debug)]
pub struct Message {
    /// The bytes as they came.
    pub raw: Vec<u8>,
    /// The message parsed; bytes that are not UTF-8 are replaced.
    pub value: Value,
}

impl Message {
    /// A reply to a request of ours, as opposed to a notification or request of the server.
    pub fn is_reply(&self) -> bool {
        self.value.get("method").is_none_or(Value::is_null)
    }
}

/// Parses JSON of any depth, replacing bytes that are not UTF-8.
///
/// # Errors
/// [`Trouble::NotJson`].
pub fn parse(raw: &[u8]) -> Result<Value, Trouble> {
    let text = String::from_utf8_lossy(raw);
    let mut reader = serde_json::Deserializer::from_str(&text);
    reader.disable_recursion_limit();
    let value = serde::Deserialize::deserialize(&mut reader)
        .map_err(|error| Trouble::NotJson(format!("{error}: {}", clip(&text))))?;
    Ok(value)
}

fn clip(text: &str) -> &str {
    let end = text.char_indices().nth(2000).map_or(text.len(), |(i, _)| i);
    &text[..end]
}

/// A session with a server.
#[derive(Debug)]
pub struct Client {
    stream: Stream,
    framer: Framer,
    arrived: VecDeque<Message>,
    notifications: Vec<Message>,
    next_id: u64,
}

impl Client {
    /// Connects to a unix socket.
    ///
    /// # Errors
    /// When nobody listens there.
    pub fn connect(path: &Path) -> Result<Self, Trouble> {
        Ok(Self::on(Stream::unix(path, PATIENCE)?))
    }

    /// Connects over TLS with the certificate `name` of `pki`.
    ///
    /// # Errors
    /// When nobody listens there, or either side does not believe the other.
    pub fn connect_tls(server: SocketAddr, pki: &Pki, name: &str) -> Result<Self, Trouble> {
        Ok(Self::on(Stream::tls(server, pki, name, PATIENCE)?))
    }

    fn on(stream: Stream) -> Self {
        let framer = Framer::default();
        Self { stream, framer, arrived: VecDeque::new(), notifications: vec![], next_id: 0 }
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// When the server has closed the session.
    pub fn send_raw(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        self.stream.write_all(bytes)?;
        Ok(self.stream.flush()?)
    }

    /// Sends bytes from a thread while the caller reads, so that neither side waits for the other; on
    /// a unix socket only.
    ///
    /// # Errors
    /// What `read` says, or when sending fails.
    pub fn send_while<T>(
        &mut self,
        bytes: &[u8],
        read: impl FnOnce(&mut Self) -> Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        let mut writer = self.stream.try_clone()?;
        std::thread::scope(|scope| {
            let sent = scope.spawn(move || writer.write_all(bytes));
            let answer = read(self)?;
            sent.join().expect("the writing thread")?;
            Ok(answer)
        })
    }

    /// A number that no request of this session has used.
    pub fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Sends a request and returns its id.
    ///
    /// # Errors
    /// When the server has closed the session.
    pub fn ask(&mut self, method: &str, params: &Value) -> Result<u64, Trouble> {
        let id = self.fresh_id();
        let request = json!({"method": method, "params": params, "id": id});
        self.send_raw(request.to_string().as_bytes())?;
        Ok(id)
    }

    /// Sends a request and waits for its reply; what else arrives is kept.
    ///
    /// # Errors
    /// When the session ends or falls silent first.
    pub fn request(&mut self, method: &str, params: &Value) -> Result<Value, Trouble> {
        let id = self.ask(method, params)?;
        Ok(self.reply(id)?.value)
    }

    /// The result of a transaction.
    ///
    /// # Errors
    /// [`Trouble::Refused`] when the whole request is refused.
    pub fn transact(&mut self, db: &str, operations: &[Value]) -> Result<Value, Trouble> {
        let mut params = vec![json!(db)];
        params.extend_from_slice(operations);
        let mut reply = self.request("transact", &Value::Array(params))?;
        match reply.get("error") {
            Some(error) if !error.is_null() => Err(Trouble::Refused(error.to_string())),
            _ => Ok(reply["result"].take()),
        }
    }

    /// Waits for the reply to request `id`.
    ///
    /// # Errors
    /// When the session ends or falls silent first.
    pub fn reply(&mut self, id: u64) -> Result<Message, Trouble> {
        loop {
            let message = self.next_message()?;
            if message.is_reply() && message.value["id"] == json!(id) {
                return Ok(message);
            }
            self.notifications.push(message);
        }
    }

    /// Waits until the server has handled everything sent so far, updates to this session included.
    ///
    /// # Errors
    /// When the session ends or falls silent first.
    pub fn barrier(&mut self) -> Result<(), Trouble> {
        self.request("echo", &json!([])).map(|_| ())
    }

    /// What arrived besides awaited replies, in order; probes are answered and left out.
    pub fn take_notifications(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.notifications)
    }

    /// The next message, whatever it is. Probes are answered on the way.
    ///
    /// # Errors
    /// When the session ends or falls silent first.
    pub fn next_message(&mut self) -> Result<Message, Trouble> {
        loop {
            while self.arrived.is_empty() {
                self.fill()?;
            }
            let message = self.arrived.pop_front().ok_or(Trouble::Closed)?;
            if message.value["method"] != "echo" {
                return Ok(message);
            }
            let (id, result) = (&message.value["id"], &message.value["params"]);
            let answer = json!({"id": id, "result": result, "error": null});
            self.send_raw(answer.to_string().as_bytes())?;
        }
    }

    /// Reads until the server closes the session; what came until then.
    ///
    /// # Errors
    /// [`Trouble::Timeout`] when it does not.
    pub fn until_closed(&mut self) -> Result<Vec<Message>, Trouble> {
        let mut messages = vec![];
        loop {
            match self.next_message() {
                Ok(message) => messages.push(message),
                Err(Trouble::Closed) => return Ok(messages),
                Err(trouble) => return Err(trouble),
            }
        }
    }

    /// Changes how long this session waits for a message.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub fn set_patience(&mut self, patience: Duration) -> Result<(), Trouble> {
        Ok(self.stream.set_patience(patience)?)
    }

    fn fill(&mut self) -> Result<(), Trouble> {
        let mut chunk = vec![0; CHUNK];
        match self.stream.read(&mut chunk)? {
            0 => Err(Trouble::Closed),
            n => self.framer.feed(&chunk[..n], |raw| {
                self.arrived.push_back(Message { value: parse(&raw)?, raw });
                Ok(())
            }),
        }
    }
}

/// Cuts a stream into top-level objects and arrays.
#[derive(Debug, Default)]
struct Framer {
    partial: Vec<u8>,
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Framer {
    fn feed(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(Vec<u8>) -> Result<(), Trouble>,
    ) -> Result<(), Trouble> {
        for &byte in bytes {
            if self.depth == 0 && byte.is_ascii_whitespace() {
                continue;
            }
            self.partial.push(byte);
            if self.in_string {
                self.in_string = self.escaped || byte != b'"';
                self.escaped = !self.escaped && byte == b'\\';
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
            if self.depth == 0 {
                each(std::mem::take(&mut self.partial))?;
            }
        }
        Ok(())
    }
}

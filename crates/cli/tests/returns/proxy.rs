//! A proxy between clients and a server, which notes every message and cuts connections.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use serde_json::Value;

/// What a client asked when it came back, and what it was told.
#[derive(Clone, Debug)]
pub(crate) struct Resumed {
    /// The last change that it knew.
    pub(crate) asked: String,
    pub(crate) found: bool,
    /// The change that it knows now.
    pub(crate) id: String,
    /// The tables and columns that it watches.
    pub(crate) requests: Value,
}

/// The proxy; it ends with its owner.
pub(crate) struct Proxy {
    path: PathBuf,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    ended: AtomicBool,
    /// Where the server listens, while clients are let through to it.
    server: Mutex<Option<PathBuf>>,
    opened: Condvar,
    pairs: Mutex<Vec<[UnixStream; 2]>>,
    noted: Mutex<Vec<Noted>>,
}

struct Noted {
    connection: usize,
    message: Value,
}

impl Proxy {
    /// Listens at `path`; nobody is let through yet.
    pub(crate) fn new(path: PathBuf) -> Self {
        let listener = UnixListener::bind(&path).expect("a socket for the proxy");
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        std::thread::spawn(move || {
            for (connection, client) in listener.incoming().enumerate() {
                if of_thread.ended.load(Ordering::Relaxed) {
                    return;
                }
                if let Ok(client) = client {
                    let _ = of_thread.connect(connection, client);
                }
            }
        });
        Self { path, shared }
    }

    /// How clients reach it.
    pub(crate) fn remote(&self) -> String {
        format!("unix:{}", self.path.display())
    }

    /// Lets clients through to this server.
    pub(crate) fn open(&self, server: &Path) {
        *self.shared.server.lock().expect("no thread panics") = Some(server.to_owned());
        self.shared.opened.notify_all();
    }

    /// Cuts all connections. New ones wait: clients that are refused come back ever more slowly.
    pub(crate) fn close(&self) {
        *self.shared.server.lock().expect("no thread panics") = None;
        for stream in self.shared.pairs.lock().expect("no thread panics").drain(..).flatten() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// The answered requests `monitor_cond_since` for a database, in the order of the answers.
    pub(crate) fn resumed(&self, db: &str) -> Vec<Resumed> {
        let noted = self.shared.noted.lock().expect("no thread panics");
        let mut all = Vec::new();
        for (at, reply) in noted.iter().enumerate() {
            let [Value::Bool(found), Value::String(id), _] =
                reply.message["result"].as_array().map_or(&[][..], Vec::as_slice)
            else {
                continue;
            };
            let request = noted[..at].iter().rev().find(|request| {
                request.connection == reply.connection
                    && request.message["id"] == reply.message["id"]
                    && request.message["method"] == "monitor_cond_since"
            });
            let params = request.map(|request| &request.message["params"]);
            if let Some(params) = params.filter(|params| params[0] == db) {
                all.push(Resumed {
                    asked: params[3].as_str().unwrap_or_default().to_owned(),
                    found: *found,
                    id: id.clone(),
                    requests: params[2].clone(),
                });
            }
        }
        all
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        self.close();
        // Wakes the thread that accepts, wherever it waits.
        self.shared.opened.notify_all();
        let _ = UnixStream::connect(&self.path);
    }
}

impl Shared {
    fn connect(self: &Arc<Self>, connection: usize, client: UnixStream) -> std::io::Result<()> {
        let closed =
            |server: &mut Option<PathBuf>| server.is_none() && !self.ended.load(Ordering::Relaxed);
        let server = self.server.lock().expect("no thread panics");
        let server = self.opened.wait_while(server, closed).expect("no thread panics");
        let Some(path) = server.as_ref() else { return Ok(()) };
        let server_side = UnixStream::connect(path)?;
        let pair = [client.try_clone()?, server_side.try_clone()?];
        for (from, to) in [
            (client.try_clone()?, server_side.try_clone()?),
            (server_side.try_clone()?, client.try_clone()?),
        ] {
            let shared = Arc::clone(self);
            std::thread::spawn(move || {
                shared.pass(connection, &from, &to);
                let _ = from.shutdown(Shutdown::Both);
                let _ = to.shutdown(Shutdown::Both);
            });
        }
        // Under the lock of `server`, so that who closes finds every pair.
        self.pairs.lock().expect("no thread panics").push(pair);
        Ok(())
    }

    /// Passes on what one side says, until either ends.
    fn pass(&self, connection: usize, mut from: &UnixStream, mut to: &UnixStream) {
        let (mut chunk, mut text) = ([0; 65536], Vec::new());
        while let Ok(count @ 1..) = from.read(&mut chunk) {
            text.extend_from_slice(&chunk[..count]);
            let mut messages = serde_json::Deserializer::from_slice(&text).into_iter::<Value>();
            let mut whole = 0;
            while let Some(Ok(message)) = messages.next() {
                whole = messages.byte_offset();
                // Noted before it is passed on: who has it can be asked about it.
                self.noted.lock().expect("no thread panics").push(Noted { connection, message });
            }
            text.drain(..whole);
            if to.write_all(&chunk[..count]).is_err() {
                return;
            }
        }
    }
}

//! Scripts by hand: what sessions say, line by line, and the transcript of what a server answers.
//!
//! A script is text; an empty line or one that begins with `#` says nothing to the server.
//!
//! ```text
//! A> {"id":1,"method":"list_dbs","params":[]}   send, then print all that arrives
//! A$ {"op":"abort"},{"op":"commit"}             a transaction of these with the first database
//! A: {"id":2,"method":"transact","params":[…]}  send only
//! A= {"id": \xff                                send bytes as they are, \xNN and \n understood
//! A!                                            print all that has arrived
//! A<                                            wait for one message and print it
//! A.                                            hang up
//! A|                                            print all until the server hangs up
//! A?                                            print all of half a second, and whether it is open
//! sleep 20                                      milliseconds
//! admin ovsdb-server/list-dbs                   an admin command and its answer
//! restart                                       stop the server and start it on the same file
//! ```
//!
//! A session begins with its first line. Replies come with sorted members and numbered UUIDs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Client, Message, Trouble, parse};
use crate::files;
use crate::normalise::{number_uuids, without_empty_modifications};
use crate::process::{Program, Scratch, Server};

/// How long a session that should be closed may stay open, or an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long a session is watched that should stay open.
const SHORT_PATIENCE: Duration = Duration::from_millis(500);

/// The id of the request that tells when everything has arrived.
const BARRIER: &str = "barrier";

/// A script that is being played.
struct Play<'a> {
    program: &'a Program,
    database: &'a str,
    files: Vec<PathBuf>,
    server: Option<Server>,
    sessions: BTreeMap<String, Client>,
    seen: Vec<String>,
    transcript: String,
}

/// Plays a script to a fresh server with one database per schema; the transcript.
///
/// # Errors
/// When the server does not start, or a line cannot be carried out at all.
pub fn play(program: &Program, schemas: &[Value], script: &str) -> Result<String, Trouble> {
    let scratch = Scratch::new("script");
    let mut files = vec![];
    for (i, schema) in schemas.iter().enumerate() {
        let file = scratch.file(&format!("{i}.db"));
        files::create(&file, schema)?;
        files.push(file);
    }
    let server = Some(Server::start(program, &files)?);
    let (seen, transcript, sessions) = (vec![], String::new(), BTreeMap::new());
    let database = schemas.first().and_then(|schema| schema["name"].as_str()).unwrap_or_default();
    let mut play = Play { program, database, files, server, sessions, seen, transcript };
    for line in script.lines().map(str::trim) {
        play.line(line)?;
    }
    Ok(play.transcript)
}

impl Play<'_> {
    fn line(&mut self, line: &str) -> Result<(), Trouble> {
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        self.transcript.push_str(&format!("{line}\n"));
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "sleep" => sleep(Duration::from_millis(rest.parse().unwrap_or(0))),
            "admin" => self.admin(rest)?,
            "restart" => self.restart()?,
            _ => {
                let (name, action) = word.split_at(word.len() - 1);
                self.session_line(name, action, rest)?;
            }
        }
        Ok(())
    }

    fn server(&self) -> Result<&Server, Trouble> {
        self.server.as_ref().ok_or(Trouble::Closed)
    }

    fn session_line(&mut self, name: &str, action: &str, rest: &str) -> Result<(), Trouble> {
        if action == "." {
            self.sessions.remove(name);
            return Ok(());
        }
        if !self.sessions.contains_key(name) {
            let mut session = self.server()?.connect()?;
            session.set_patience(PATIENCE)?;
            self.sessions.insert(name.to_owned(), session);
        }
        let session = self.sessions.get_mut(name).ok_or(Trouble::Closed)?;
        let mut heard = vec![];
        let ended = match action {
            "$" => {
                let comma = if rest.is_empty() { "" } else { "," };
                let params = format!("[{:?}{comma}{rest}]", self.database);
                let request = format!(r#"{{"id":0,"method":"transact","params":{params}}}"#);
                session.send_raw(request.as_bytes()).and_then(|()| drain(session, &mut heard))
            }
            ":" => session.send_raw(rest.as_bytes()),
            "=" => session.send_raw(&unescape(rest)),
            "!" => drain(session, &mut heard),
            ">" => session.send_raw(rest.as_bytes()).and_then(|()| drain(session, &mut heard)),
            "<" => session.next_message().map(|message| heard.push(message)),
            "|" | "?" => {
                let patience = if action == "?" { SHORT_PATIENCE } else { PATIENCE };
                session.set_patience(patience)?;
                loop {
                    match session.next_message() {
                        Ok(message) => heard.push(message),
                        Err(trouble) => break Err(trouble),
                    }
                }
            }
            _ => Err(Trouble::Start(format!("no such action: {name}{action}"))),
        };
        order_by_monitor(&mut heard);
        for message in heard {
            self.say(name, &message.value);
        }
        match ended {
            Err(Trouble::Timeout) if action == "?" => {
                self.transcript.push_str(&format!("  {name} is open\n"));
            }
            Err(Trouble::Timeout) => {
                self.transcript.push_str(&format!("  {name} heard nothing more\n"));
            }
            Err(Trouble::Closed) => self.transcript.push_str(&format!("  {name} was closed\n")),
            Err(trouble) => return Err(trouble),
            Ok(()) => {}
        }
        Ok(())
    }

    fn say(&mut self, name: &str, value: &Value) {
        let mut value = sorted(value);
        if !without_empty_modifications(&mut value) {
            return;
        }
        let text = value.to_string();
        let text = without_duration(&number_uuids(&text, &mut self.seen));
        self.transcript.push_str(&format!("  {name} {text}\n"));
    }

    fn admin(&mut self, command: &str) -> Result<(), Trouble> {
        let words: Vec<&str> = command.split(' ').collect();
        let answer = self.server()?.admin(words[0], &words[1..]);
        let text = match answer {
            Ok(text) => format!("  ok {text:?}\n"),
            Err(Trouble::Refused(text)) => format!("  error {text:?}\n"),
            Err(trouble) => return Err(trouble),
        };
        self.transcript.push_str(&text);
        Ok(())
    }

    fn restart(&mut self) -> Result<(), Trouble> {
        self.sessions.clear();
        if let Some(server) = self.server.take() {
            server.stop()?;
        }
        self.server = Some(Server::start(self.program, &self.files)?);
        Ok(())
    }
}

/// The text without the time that a `wait` took: how much longer than it may is not told.
fn without_duration(text: &str) -> String {
    match text.split_once("timed out after ") {
        Some((before, after)) => {
            let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
            format!("{before}timed out after N{rest}")
        }
        None => text.to_owned(),
    }
}

/// What several monitors say of one change comes in any order; what one says keeps its own.
fn order_by_monitor(heard: &mut [Message]) {
    let is_update = |message: &Message| {
        message.value["method"].as_str().is_some_and(|method| method.starts_with("update"))
    };
    for updates in heard.chunk_by_mut(|x, y| is_update(x) && is_update(y)) {
        updates.sort_by_key(|message| message.value["params"][0].to_string());
    }
}

/// Everything that the server has to say until it answers one more request.
fn drain(session: &mut Client, heard: &mut Vec<Message>) -> Result<(), Trouble> {
    let barrier = json!({"id": BARRIER, "method": "echo", "params": []});
    session.send_raw(barrier.to_string().as_bytes())?;
    loop {
        let message = session.next_message()?;
        if message.is_reply() && message.value["id"] == BARRIER {
            return Ok(());
        }
        heard.push(message);
    }
}

/// Members in order; rows and database names, which come in any order, sorted.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut keys: Vec<_> = members.iter().collect();
            keys.sort_by_key(|(key, _)| key.as_str());
            let members = keys.into_iter().map(|(key, value)| match (key.as_str(), value) {
                ("rows" | "result", Value::Array(rows)) if loose(rows) => {
                    let mut rows: Vec<Value> = rows.iter().map(sorted).collect();
                    rows.sort_by_key(Value::to_string);
                    (key.clone(), Value::Array(rows))
                }
                // Some texts are JSON themselves, whose members come in hash order.
                ("syntax", Value::String(text)) => {
                    let inner = parse(text.as_bytes()).map(|inner| sorted(&inner).to_string());
                    (key.clone(), json!(inner.unwrap_or_else(|_| text.clone())))
                }
                _ => (key.clone(), sorted(value)),
            });
            Value::Object(members.collect())
        }
        Value::Array(values) => values.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

fn loose(rows: &[Value]) -> bool {
    let row = |row: &Value| row.is_object() && row.get("rows").is_none();
    let results = ["count", "uuid", "error", "details"];
    rows.iter().all(Value::is_string)
        || rows.iter().all(|one| row(one) && !results.iter().any(|key| one.get(key).is_some()))
            && rows.iter().all(|one| one.as_object().is_some_and(|one| !one.is_empty()))
}

/// `\xNN` and `\n` to bytes.
fn unescape(text: &str) -> Vec<u8> {
    let (mut out, mut rest) = (vec![], text);
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at + 1..];
        let hex = rest.strip_prefix('x').and_then(|rest| rest.get(..2));
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = &rest[3..];
            }
            None if rest.starts_with('n') => {
                out.push(b'\n');
                rest = &rest[1..];
            }
            None => out.push(b'\\'),
        }
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

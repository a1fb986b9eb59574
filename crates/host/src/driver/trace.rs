//! `-vjsonrpc:dbg`: every message that comes and goes, in the words of the reference.

use std::collections::HashMap;

use weir_json::Framer;
use weir_server::Server;
use weir_server::event::{Event, LinkId, SessionId};
use weir_wire::Message;

use crate::vlog::{Level, Vlog};

/// Longest message that is shown whole, in bytes; of a longer one the length is told.
pub(crate) const TRACED_BYTES_MAX: usize = 16 << 20;

/// What has been queued for each client and is no whole message yet.
#[derive(Default)]
pub(crate) struct Trace {
    parts: HashMap<SessionId, Part>,
    /// What logs call the servers that databases follow.
    targets: HashMap<LinkId, String>,
}

#[derive(Default)]
struct Part {
    framer: Framer,
    bytes: Vec<u8>,
}

impl Trace {
    /// The lines for what is queued for a client; messages may come in parts.
    pub(crate) fn sent(&mut self, session: SessionId, name: &str, bytes: &[u8]) -> Vec<String> {
        let part = self.parts.entry(session).or_default();
        let mut lines = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let Ok(Some(end)) = part.framer.feed(rest) else { break };
            part.bytes.extend_from_slice(&rest[..end]);
            lines.push(line(name, "send", &part.bytes));
            part.bytes.clear();
            rest = &rest[end..];
        }
        part.bytes.extend_from_slice(rest);
        if part.bytes.is_empty() {
            self.parts.remove(&session);
        }
        lines
    }

    /// Logs what is queued for clients.
    pub(crate) fn log_sent(
        &mut self,
        server: &Server,
        log: &Vlog,
        to: &[SessionId],
        parts: &[&[u8]],
    ) {
        for &session in to {
            let name = server.session_name(session).unwrap_or("?");
            for line in parts.iter().flat_map(|part| self.sent(session, name, part)) {
                log.log("jsonrpc", Level::Dbg, &line);
            }
        }
    }

    /// Logs an event that is a message.
    pub(crate) fn log_event(&self, server: &Server, log: &Vlog, event: &Event) {
        let (name, bytes) = match event {
            Event::Message { session, bytes } => (server.session_name(*session), bytes),
            Event::LinkMessage { link, bytes } => {
                (self.targets.get(link).map(String::as_str), bytes)
            }
            _ => return,
        };
        if let Some(name) = name {
            log.log("jsonrpc", Level::Dbg, &received(name, bytes));
        }
    }

    /// Logs what is queued for a server that is followed: whole messages.
    pub(crate) fn log_sent_to(&self, log: &Vlog, link: LinkId, bytes: &[u8]) {
        if let Some(name) = self.targets.get(&link) {
            log.log("jsonrpc", Level::Dbg, &line(name, "send", bytes));
        }
    }

    /// A connection to such a server begins.
    pub(crate) fn connect(&mut self, link: LinkId, target: &str) {
        self.targets.insert(link, target.to_owned());
    }

    /// It is closed.
    pub(crate) fn close(&mut self, link: LinkId) {
        self.targets.remove(&link);
    }

    /// It has ended by itself, if that is the event.
    pub(crate) fn note(&mut self, event: &Event) {
        if let Event::LinkDown { link, .. } = event {
            self.close(*link);
        }
    }

    /// Nothing more goes to a client.
    pub(crate) fn forget(&mut self, session: SessionId) {
        self.parts.remove(&session);
    }
}

/// The line for a message that came.
pub(crate) fn received(name: &str, bytes: &[u8]) -> String {
    line(name, "received", bytes)
}

/// The line for a whole message that goes.
pub(crate) fn sent_whole(name: &str, bytes: &[u8]) -> String {
    line(name, "send", bytes)
}

/// One message in one line, its keys sorted.
fn line(name: &str, title: &str, bytes: &[u8]) -> String {
    if bytes.len() > TRACED_BYTES_MAX {
        return format!("{name}: {title} message of {} bytes", bytes.len());
    }
    let mut out = format!("{name}: {title} ").into_bytes();
    match weir_json::validate(bytes).map(Message::parse) {
        // The reference calls its own errors replies.
        Ok(Ok(Message::Error { error, id })) if title == "send" => {
            out.extend_from_slice(b"reply, error=");
            error.write(&mut out);
            out.extend_from_slice(b", id=");
            id.write(&mut out);
        }
        Ok(Ok(message)) => describe(message, &mut out),
        // What is wrong with it is told elsewhere.
        _ => out.extend_from_slice(b"malformed message"),
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn describe(message: Message<'_>, out: &mut Vec<u8>) {
    let (kind, method, members) = match message {
        Message::Request { method, params, id } => {
            ("request", Some(method), [Some(("params", params)), Some(("id", id))])
        }
        Message::Notification { method, params } => {
            ("notification", Some(method), [Some(("params", params)), None])
        }
        Message::Reply { result, id } => {
            ("reply", None, [Some(("result", result)), Some(("id", id))])
        }
        Message::Error { error, id } => ("error", None, [Some(("error", error)), Some(("id", id))]),
    };
    out.extend_from_slice(kind.as_bytes());
    if let Some(method) = method {
        out.extend_from_slice(format!(", method=\"{method}\"").as_bytes());
    }
    for (name, value) in members.into_iter().flatten() {
        out.extend_from_slice(format!(", {name}=").as_bytes());
        value.write(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_in_the_words_of_the_reference() {
        for (message, expected) in [
            (
                r#"{"id":0,"params":["D",{"op":"x","a":1}],"method":"transact"}"#,
                r#"unix#1: received request, method="transact", params=["D",{"a":1,"op":"x"}], id=0"#,
            ),
            (
                r#"{"method":"update3","params":["m"],"id":null}"#,
                r#"unix#1: received notification, method="update3", params=["m"]"#,
            ),
            (r#"{"error":"no","id":"x"}"#, r#"unix#1: received error, error="no", id="x""#),
            (r#"{"foo":1}"#, "unix#1: received malformed message"),
        ] {
            assert_eq!(received("unix#1", message.as_bytes()), expected);
        }
    }

    #[test]
    fn a_reply_queued_in_parts_is_one_line() {
        let (mut trace, session) = (Trace::default(), SessionId(1));
        assert!(trace.sent(session, "unix#1", br#"{"id":3,"result":["#).is_empty());
        assert!(trace.sent(session, "unix#1", br#""shared""#).is_empty());
        let lines =
            trace.sent(session, "unix#1", br#"],"error":null}{"id":4,"result":null,"error":"no"}"#);
        let expected = [
            r#"unix#1: send reply, result=["shared"], id=3"#,
            r#"unix#1: send reply, error="no", id=4"#,
        ];
        assert_eq!(lines, expected);
        assert!(trace.parts.is_empty());
    }
}

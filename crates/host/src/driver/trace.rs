//! `-vjsonrpc:dbg`: every message that comes and goes, in the words of the reference.

use std::collections::HashMap;

use weir_json::Framer;
use weir_server::Server;
use weir_server::event::{Event, LinkId, SessionId};
use weir_wire::trace;

use crate::vlog::{Level, Vlog};

/// The text of messages on their way, for the log.
#[derive(Default)]
pub(crate) struct Trace {
    /// Bytes queued for each client that are no whole message yet.
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
            lines.push(trace::sent(name, &part.bytes));
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
            log.log("jsonrpc", Level::Dbg, &trace::received(name, bytes));
        }
    }

    /// Logs what is queued for a server that is followed: whole messages.
    pub(crate) fn log_sent_to(&self, log: &Vlog, link: LinkId, bytes: &[u8]) {
        if let Some(name) = self.targets.get(&link) {
            log.log("jsonrpc", Level::Dbg, &trace::sent(name, bytes));
        }
    }

    /// A connection to such a server begins.
    pub(crate) fn connect(&mut self, link: LinkId, target: &str) {
        self.targets.insert(link, target.to_owned());
    }

    /// The connection to such a server is closed.
    pub(crate) fn close(&mut self, link: LinkId) {
        self.targets.remove(&link);
    }

    /// Forgets a connection to such a server that has ended by itself, if that is the event.
    pub(crate) fn forget_ended(&mut self, event: &Event) {
        if let Event::LinkDown { link, .. } = event {
            self.close(*link);
        }
    }

    /// Nothing more goes to a client.
    pub(crate) fn forget_client(&mut self, session: SessionId) {
        self.parts.remove(&session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_queued_in_parts_is_one_line() {
        let (mut trace, session) = (Trace::default(), SessionId(1));
        assert!(trace.sent(session, "unix#1", br#"{"id":3,"result":["#).is_empty());
        assert!(trace.sent(session, "unix#1", br#""shared""#).is_empty());
        let lines = trace.sent(session, "unix#1", br#"],"error":null}{"id":4,"error":"no"}"#);
        let expected = [
            r#"unix#1: send reply, result=["shared"], id=3"#,
            r#"unix#1: send reply, error="no", id=4"#,
        ];
        assert_eq!(lines, expected);
        assert!(trace.parts.is_empty());
    }
}

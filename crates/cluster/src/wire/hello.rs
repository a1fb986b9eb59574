//! The greeting, in the reference's form.

use weir_data::Uuid;
use weir_data::parser::{ANY, OPTIONAL, Parser, STRING};
use weir_json::{Framer, Text, Value};
use weir_wire::Message;

use super::decode::Said;
use super::{Malformed, probes};
use crate::ids::{PLACE_MAX, Position};

/// Longest greeting taken, in bytes. The reference's server may say all it has in its first
/// message, so a longer one is that of such a server only if it begins like one.
const HELLO_BYTES_MAX: usize = 64 << 10;

/// What the comment of a greeting begins with, and the version of what follows.
const NAME: &str = "weir/1 ";

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    /// Votes, heartbeats, acknowledgements: never behind anything long.
    Control,
    /// Entries, snapshots, requests, in order.
    Log,
}

impl Lane {
    pub(crate) const ALL: [Self; 2] = [Self::Control, Self::Log];

    fn name(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Log => "log",
        }
    }
}

/// What a member was heard to promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Promise {
    /// The member was in this term, and had the log up to this entry.
    pub(crate) at: Position,
    /// The term of that entry, if it was acknowledged to the leader of the term.
    pub(crate) entry_term: Option<u64>,
}

/// The first message on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// The sender's cluster, once it knows it.
    pub(crate) cluster: Option<Uuid>,
    /// Whom it means to speak to, if it knows.
    pub(crate) to: Option<Uuid>,
    /// Who speaks.
    pub(crate) from: Uuid,
    /// Where the sender listens; only a greeting says so.
    pub(crate) address: Option<String>,
    /// What the connection is for; `None` from the reference's server.
    pub(crate) lane: Option<Lane>,
    /// What the sender has heard the receiver promise.
    pub(crate) promised: Option<Promise>,
}

impl Hello {
    /// Appends the greeting.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let uuid = |uuid: Uuid| Value::from(uuid.to_string());
        let mut members = vec![];
        members.extend(self.cluster.map(|cluster| ("cluster", uuid(cluster))));
        members.extend(self.to.map(|to| ("to", uuid(to))));
        members.push(("from", uuid(self.from)));
        let comment = self.lane.map(|lane| {
            let mut comment = format!("{NAME}{}", lane.name());
            if let Some(Promise { at: Position { term, index }, entry_term }) = self.promised {
                comment += &format!(" {term}:{index}");
                comment += &entry_term.map_or(String::new(), |term| format!(" {term}"));
            }
            comment
        });
        members.extend(comment.map(|comment| ("comment", Value::from(comment))));
        let address = self.address.as_deref();
        members.extend(address.map(|address| ("address", Value::from(address))));
        let members = members.into_iter().map(|(name, value)| (name.to_owned(), value));
        let params = Value::Array(vec![Value::Object(members.collect())]).to_string();
        out.extend_from_slice(&weir_wire::notification("hello_request", params.as_bytes()));
    }

    fn of(method: &str, params: Text<'_>) -> Result<Self, Malformed> {
        let mut parser = Parser::new(params, &"raft");
        let mut uuid = |name| {
            let text = parser.member(name, STRING | OPTIONAL).and_then(Text::str);
            let uuid = |text: &str| {
                Uuid::parse(text).ok_or_else(|| Malformed(format!("{name} is not a valid UUID")))
            };
            text.map(|text| uuid(&text)).transpose()
        };
        let (cluster, to, from) = (uuid("cluster")?, uuid("to")?, uuid("from")?);
        let comment = parser.string("comment", ANY | OPTIONAL).unwrap_or_default();
        let address = parser.string("address", ANY | OPTIONAL);
        let said = comment.strip_prefix(NAME).filter(|_| method == "hello_request");
        let mut words = said.unwrap_or_default().split(' ');
        let lane = words.next().unwrap_or_default();
        let lane = Lane::ALL.into_iter().find(|known| known.name() == lane);
        let number = |text: &str| text.parse().ok().filter(|n| *n <= PLACE_MAX);
        let at = words.next().and_then(|word| word.split_once(':')).and_then(|(term, index)| {
            Some(Position { term: number(term)?, index: number(index)? })
        });
        let entry_term = words.next().and_then(number);
        let promised = at.map(|at| Promise { at, entry_term });
        let from = from.ok_or_else(|| Malformed("greeting without a sender".into()))?;
        Ok(Self { cluster, to, from, address, lane, promised })
    }
}

/// The first message of what has come on a connection, with its length: a greeting, or a probe of
/// the reference's server, which does not greet who connects to it. `None` if more must come.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Said, usize)>, Malformed> {
    let malformed = |error: &dyn std::fmt::Display| Malformed(error.to_string());
    let end = Framer::new().feed(bytes).map_err(|error| malformed(&error))?;
    let Some(end) = end else {
        let is_long = bytes.len() > HELLO_BYTES_MAX;
        return if is_long { Err(Malformed("greeting too long".into())) } else { Ok(None) };
    };
    let text = weir_json::validate(&bytes[..end]).map_err(|error| malformed(&error))?;
    let no_greeting = || Malformed("first message is no greeting".into());
    let message = Message::parse(text).map_err(|_| no_greeting())?;
    if let Some(answer) = probes::answer(&message) {
        return Ok(Some((Said::Probe(answer), end)));
    }
    let Message::Notification { method, params } = message else { return Err(no_greeting()) };
    let [params] = params.array::<1>().ok_or_else(no_greeting)?;
    Ok(Some((Said::Hello(Hello::of(method, params)?), end)))
}

//! What the servers of a cluster's members say to each other: requests to the leader, and what has
//! come of them.
//!
//! ```text
//! message = kind (u8) · entry id (16 bytes; zeros if it is about none) · body
//! bytes   = length (u64, little-endian) · the bytes
//! ```

use weir_cluster::Position;
use weir_data::Uuid;

use crate::once::{Chosen, Once};
use crate::origin::Identity;

/// A request of a client, for the leader to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The id of the entry that it becomes.
    pub(crate) eid: Uuid,
    /// The sender's commit index when the request was first sent anywhere.
    pub(crate) since: u64,
    /// How often it has been sent before: an entry may have come of it.
    pub(crate) attempt: u64,
    /// The term of the leader that is asked.
    pub(crate) term: u64,
    /// How long the client has waited, in milliseconds.
    pub(crate) elapsed_ms: u64,
    pub(crate) identity: Identity,
    /// Locks that its session owned.
    pub(crate) locks: Vec<String>,
    /// What it asks for that `transact` does not know.
    pub(crate) once: Option<Once>,
    /// The whole `transact` request.
    pub(crate) text: Vec<u8>,
}

/// What has come of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The request becomes the entry of its id, at this place; this is the reply.
    Entry(Position, Vec<u8>),
    /// The request changes nothing; this is the reply, as of an entry.
    Empty(Position, Vec<u8>),
    /// The request waits, as of an entry.
    Waits(Position),
    /// The request has become the entry at this place before; the reply is not known here.
    Known(Position),
    /// Whether it has become an entry cannot be said any more.
    Unknown,
    /// Another member leads, or none.
    NotLeader,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Request(Box<Request>),
    /// To an attempt: what came of an earlier one does not matter any more.
    Reply {
        eid: Uuid,
        attempt: u64,
        outcome: Outcome,
    },
    /// The leader is asked which entry is the last one that is committed, with a number.
    WhatIsCommitted(u64),
    /// To the question of this number: the entry, or none if its receiver does not lead.
    Committed(u64, Option<u64>),
    /// So many bytes more of replies have come.
    Taken(u64),
}

impl Message {
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::WhatIsCommitted(question) => {
                head(&mut out, 7, Uuid::ZERO);
                number(&mut out, *question);
            }
            Self::Committed(question, index) => {
                head(&mut out, 8, Uuid::ZERO);
                number(&mut out, *question);
                index.iter().for_each(|index| number(&mut out, *index));
            }
            Self::Taken(bytes) => {
                head(&mut out, 9, Uuid::ZERO);
                number(&mut out, *bytes);
            }
            Self::Request(request) => {
                let Request { eid, since, attempt, term, elapsed_ms, identity, locks, once, text } =
                    &**request;
                head(&mut out, 0, *eid);
                number(&mut out, *since);
                number(&mut out, *attempt);
                number(&mut out, *term);
                number(&mut out, *elapsed_ms);
                let Identity { name, read_only, role, client } = identity;
                bytes(&mut out, name.as_bytes());
                number(&mut out, u64::from(*read_only));
                bytes(&mut out, role.as_bytes());
                number(&mut out, u64::from(client.is_some()));
                bytes(&mut out, client.as_deref().unwrap_or_default().as_bytes());
                number(&mut out, locks.len() as u64);
                locks.iter().for_each(|lock| bytes(&mut out, lock.as_bytes()));
                write_once(&mut out, *once);
                bytes(&mut out, text);
            }
            Self::Reply { eid, attempt, outcome } => {
                let kind = match outcome {
                    Outcome::Entry(..) => 1,
                    Outcome::Empty(..) => 2,
                    Outcome::Waits(_) => 3,
                    Outcome::Known(_) => 4,
                    Outcome::Unknown => 5,
                    Outcome::NotLeader => 6,
                };
                head(&mut out, kind, *eid);
                number(&mut out, *attempt);
                match outcome {
                    Outcome::Entry(at, reply) | Outcome::Empty(at, reply) => {
                        position(&mut out, *at);
                        bytes(&mut out, reply);
                    }
                    Outcome::Waits(at) | Outcome::Known(at) => position(&mut out, *at),
                    Outcome::Unknown | Outcome::NotLeader => {}
                }
            }
        }
        out
    }

    /// `None` if no member says so.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let (&kind, rest) = text.split_first()?;
        let (eid, rest) = rest.split_first_chunk::<16>()?;
        let eid = Uuid::from_u128(u128::from_be_bytes(*eid));
        let mut body = Body(rest);
        if kind == 0 {
            let request = body.request(eid)?;
            return body.0.is_empty().then(|| Self::Request(Box::new(request)));
        }
        // Every other message has a number first.
        let number = body.number()?;
        let of_server = match kind {
            7 => Some(Self::WhatIsCommitted(number)),
            8 => {
                let index = if body.0.is_empty() { None } else { Some(body.number()?) };
                Some(Self::Committed(number, index))
            }
            9 => Some(Self::Taken(number)),
            _ => None,
        };
        if of_server.is_some() {
            return of_server.filter(|_| body.0.is_empty());
        }
        let outcome = match kind {
            1 => Outcome::Entry(body.position()?, body.bytes()?.to_vec()),
            2 => Outcome::Empty(body.position()?, body.bytes()?.to_vec()),
            3 => Outcome::Waits(body.position()?),
            4 => Outcome::Known(body.position()?),
            5 => Outcome::Unknown,
            6 => Outcome::NotLeader,
            _ => return None,
        };
        body.0.is_empty().then_some(Self::Reply { eid, attempt: number, outcome })
    }
}

fn head(out: &mut Vec<u8>, kind: u8, eid: Uuid) {
    out.push(kind);
    uuid(out, eid);
}

fn number(out: &mut Vec<u8>, n: u64) {
    out.extend_from_slice(&n.to_le_bytes());
}

fn bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn position(out: &mut Vec<u8>, at: Position) {
    number(out, at.term);
    number(out, at.index);
}

fn uuid(out: &mut Vec<u8>, uuid: Uuid) {
    out.extend_from_slice(&uuid.to_u128().to_be_bytes());
}

fn write_once(out: &mut Vec<u8>, once: Option<Once>) {
    let (kind, chosen) = match once {
        None => (0, None),
        Some(Once::Plain) => (1, None),
        Some(Once::Transact(chosen)) => (2, Some(chosen)),
        Some(Once::Outcome(chosen)) => (3, Some(chosen)),
        Some(Once::Explain) => (4, None),
    };
    out.push(kind);
    if let Some(Chosen { id, since }) = chosen {
        uuid(out, id);
        uuid(out, since);
    }
}

struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn request(&mut self, eid: Uuid) -> Option<Request> {
        let (since, attempt) = (self.number()?, self.number()?);
        let (term, elapsed_ms) = (self.number()?, self.number()?);
        let (name, read_only, role) = (self.string()?, self.number()? != 0, self.string()?);
        let (has_client, client) = (self.number()? != 0, self.string()?);
        let count = self.number()?;
        let locks = (0..count).map(|_| self.string()).collect::<Option<_>>()?;
        let identity = Identity { name, read_only, role, client: has_client.then_some(client) };
        let once = self.once()?;
        let text = self.bytes()?.to_vec();
        Some(Request { eid, since, attempt, term, elapsed_ms, identity, locks, once, text })
    }

    fn once(&mut self) -> Option<Option<Once>> {
        let (kind, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(match kind {
            0 => None,
            1 => Some(Once::Plain),
            2 => Some(Once::Transact(self.chosen()?)),
            3 => Some(Once::Outcome(self.chosen()?)),
            4 => Some(Once::Explain),
            _ => return None,
        })
    }

    fn chosen(&mut self) -> Option<Chosen> {
        Chosen::new(self.uuid()?, self.uuid()?).ok()
    }

    fn uuid(&mut self) -> Option<Uuid> {
        let (head, rest) = self.0.split_first_chunk::<16>()?;
        self.0 = rest;
        Some(Uuid::from_u128(u128::from_be_bytes(*head)))
    }

    fn number(&mut self) -> Option<u64> {
        let (head, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*head))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    fn string(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    fn position(&mut self) -> Option<Position> {
        Some(Position { term: self.number()?, index: self.number()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard_and_what_is_cut_is_refused() {
        let at = Position { term: 3, index: 9 };
        let identity = Identity {
            name: "tcp:1".into(),
            read_only: true,
            role: "r".into(),
            client: Some("c".into()),
        };
        let id = Uuid::from_u128(4 << 76 | 2 << 62);
        let chosen = Chosen::new(id, Uuid::from_u128(8)).expect("a random one");
        let request = Request {
            eid: Uuid::from_u128(5),
            since: 7,
            attempt: 2,
            term: 3,
            elapsed_ms: 8,
            identity,
            locks: vec!["a".into(), "b".into()],
            once: Some(Once::Outcome(chosen)),
            text: b"{}".to_vec(),
        };
        let mut all = vec![Message::Request(Box::new(request)), Message::Taken(9)];
        let outcomes = [
            Outcome::Entry(at, b"[]".to_vec()),
            Outcome::Empty(at, b"[{}]".to_vec()),
            Outcome::Waits(at),
            Outcome::Known(at),
            Outcome::Unknown,
            Outcome::NotLeader,
        ];
        let eid = Uuid::from_u128(6);
        all.extend(outcomes.map(|outcome| Message::Reply { eid, attempt: 4, outcome }));
        for message in all {
            let text = message.write();
            assert_eq!(Message::parse(&text), Some(message));
            for len in 0..text.len() {
                assert_eq!(Message::parse(&text[..len]), None, "{len} bytes");
            }
        }
    }
}

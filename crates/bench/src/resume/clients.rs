//! The clients that come back: the conversation that libraries have with a server, and what each
//! of them knows.
//!
//! All but the first only count what they are told. The first keeps a replica.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::clip;
use crate::Error;
use crate::client::Target;
use crate::crowd::{Crowd, Kind, Message};
use crate::error::fail;
use crate::large::DB;
use crate::progress::Progress;
use crate::replica::Replica;
use crate::stats::Latencies;

/// What a client names that knows no change.
pub(super) const NOTHING: &str = "00000000-0000-0000-0000-000000000000";
/// The identifier of all monitors.
pub(super) const MONITOR: &str = "m";
/// The member that keeps a replica.
const KEEPER: usize = 0;
/// A return in which nothing arrives for so long has failed.
const STALLED: Duration = Duration::from_secs(60);
const TURN: Duration = Duration::from_millis(20);
/// How long something may follow that counts too.
const SETTLE: Duration = Duration::from_millis(100);
/// An update shorter than that with nothing in it tells an id and no change.
const EMPTY: &[u8] = br#",{}]"#;

/// Everybody.
pub(super) struct Clients<'a> {
    count: usize,
    crowd: Option<Crowd>,
    members: Vec<Member>,
    replica: Replica,
    /// What the replica's client has been told since it was last brought up to date.
    told: Vec<Vec<u8>>,
    progress: &'a Progress,
}

#[derive(Clone)]
struct Member {
    /// The last change that it knows.
    id: String,
    /// Replies that it has had since it connected.
    replies: usize,
    found: bool,
    /// Bytes before the monitor's reply, and of that.
    preface: usize,
    reply: usize,
    /// Updates with changes in them since it connected.
    updates: usize,
}

/// A return of everybody.
pub(super) struct Return {
    pub(super) time: Duration,
    /// When each of them had all.
    pub(super) current: Latencies,
    pub(super) found: usize,
    /// Bytes sent to all of them.
    pub(super) bytes: u64,
    /// Bytes that each had of `_Server` and of schemas.
    pub(super) preface: usize,
}

/// What is sent once there have been so many replies, by a client that knows the change `id`: as
/// Open vSwitch's C library does, each step after the answer to the one before.
fn next_requests(replies: usize, requests: &Value, id: &str) -> Vec<u8> {
    let request = |number: usize, method: &str, params: &Value| {
        json!({"id": number, "method": method, "params": params}).to_string().into_bytes()
    };
    match replies {
        0 => request(0, "get_schema", &json!(["_Server"])),
        1 => {
            let columns = ["cid", "connected", "index", "leader", "model", "name", "schema", "sid"];
            let database = json!({"Database": [{ "columns": columns }]});
            let mut both = request(1, "monitor_cond", &json!(["_Server", ["s", DB], database]));
            both.extend(request(2, "set_db_change_aware", &json!([true])));
            both
        }
        3 => monitor(requests, id),
        _ => Vec::new(),
    }
}

/// The request of what has changed since `id`.
pub(super) fn monitor(requests: &Value, id: &str) -> Vec<u8> {
    let params = json!([DB, MONITOR, requests, id]);
    json!({"id": 3, "method": "monitor_cond_since", "params": params}).to_string().into_bytes()
}

/// Replies of a client that is current.
const REPLIES: usize = 4;

impl<'a> Clients<'a> {
    /// So many, none of which is there yet; all of them know the change `id`.
    pub(super) fn new(count: usize, id: String, replica: Replica, progress: &'a Progress) -> Self {
        let members = vec![Member::new(id); count];
        Self { count, crowd: None, members, replica, told: Vec::new(), progress }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Ends all connections.
    pub(super) fn leave(&mut self) {
        self.crowd = None;
    }

    /// Connects everybody and waits until all of them are current.
    pub(super) fn come_back(&mut self, target: &Target) -> Result<Return, Error> {
        let requests = self.replica.requests();
        let start = Instant::now();
        let mut crowd = Crowd::of(self.count, target)?;
        crowd.listen();
        crowd.keep(KEEPER);
        for (token, member) in self.members.iter_mut().enumerate() {
            *member = Member::new(std::mem::take(&mut member.id));
            crowd.send(token, &next_requests(0, &requests, &member.id))?;
        }
        self.crowd = Some(crowd);
        let mut current = Latencies::default();
        let mut heard = (0, Instant::now());
        while current.count() < self.count as u64 {
            for (token, reply) in self.turn()? {
                let bytes = next_requests(reply, &requests, &self.members[token].id);
                if !bytes.is_empty() {
                    self.crowd()?.send(token, &bytes)?;
                }
                if reply == REPLIES {
                    current.push(start.elapsed());
                    self.progress.at(current.count() as usize);
                }
            }
            let bytes = self.crowd()?.told().bytes;
            if bytes != heard.0 {
                heard = (bytes, Instant::now());
            } else if heard.1.elapsed() > STALLED {
                fail!("nothing arrived for {} s", STALLED.as_secs());
            }
        }
        let time = start.elapsed();
        self.settle()?;
        self.returned(time, current)
    }

    /// What has come, once all have the same.
    fn returned(&mut self, time: Duration, current: Latencies) -> Result<Return, Error> {
        let keeper = self.members[KEEPER].clone();
        for member in &self.members {
            let same = (member.found, member.reply, &member.id);
            if same != (keeper.found, keeper.reply, &keeper.id) {
                fail!(
                    "a client was answered otherwise than the first: {same:?}, not {:?}",
                    (keeper.found, keeper.reply, &keeper.id)
                );
            }
        }
        let found = self.members.iter().filter(|member| member.found).count();
        let bytes = self.crowd()?.told().bytes;
        Ok(Return { time, current, found, bytes, preface: keeper.preface })
    }

    /// Reads for a moment what else comes.
    fn settle(&mut self) -> Result<(), Error> {
        let start = Instant::now();
        while start.elapsed() < SETTLE {
            self.turn()?;
        }
        Ok(())
    }

    /// Waits until everybody has seen one more change.
    pub(super) fn see_one(&mut self) -> Result<(), Error> {
        let start = Instant::now();
        while self.members.iter().any(|member| member.updates == 0) {
            self.turn()?;
            if start.elapsed() > STALLED {
                let missing = self.members.iter().filter(|member| member.updates == 0).count();
                fail!("{missing} clients have not been told of a change");
            }
        }
        for member in &mut self.members {
            member.updates -= 1;
        }
        Ok(())
    }

    /// The replica, brought up to date.
    pub(super) fn replica(&mut self) -> Result<&Replica, Error> {
        for message in self.told.drain(..) {
            let message: Value = serde_json::from_slice(&message)
                .map_err(|e| Error::Check(format!("a client's message is not JSON: {e}")))?;
            if message["method"] == "update3" {
                self.replica.apply(&message["params"][2])?;
            } else if message["id"] == REPLIES - 1 {
                if message["result"][0] == false {
                    self.replica = self.replica.empty();
                }
                self.replica.apply(&message["result"][2])?;
            }
        }
        Ok(&self.replica)
    }

    fn crowd(&mut self) -> Result<&mut Crowd, Error> {
        self.crowd.as_mut().ok_or_else(|| Error::Check("the clients are not there".into()))
    }

    /// Reads what has come; returns whose replies were among it, and their numbers from 1.
    fn turn(&mut self) -> Result<Vec<(usize, usize)>, Error> {
        let crowd = self.crowd()?;
        crowd.turn(TURN)?;
        if crowd.told().closed > 0 {
            fail!("the server has closed {} connections", crowd.told().closed);
        }
        let mut replies = Vec::new();
        for mut message in crowd.heard() {
            let member = &mut self.members[message.token];
            if let Some(whole) = message.whole.take() {
                self.told.push(whole);
            }
            if member.hear(&message)? {
                replies.push((message.token, member.replies));
            }
        }
        Ok(replies)
    }
}

impl Member {
    fn new(id: String) -> Self {
        Self { id, replies: 0, found: false, preface: 0, reply: 0, updates: 0 }
    }

    /// Takes in a message; true for a reply.
    fn hear(&mut self, message: &Message) -> Result<bool, Error> {
        let (begin, end) = (&message.edges.begin, &message.edges.end);
        let is_reply = match message.edges.kind() {
            Kind::Probe => return Ok(false),
            Kind::Notification => false,
            Kind::Answer => true,
            Kind::Refusal => fail!("a client was answered {}", String::from_utf8_lossy(begin)),
        };
        if !is_reply {
            let Some(id) = id_after(begin, br#""params":["m",""#) else {
                return Ok(false);
            };
            self.id = id;
            let empty = message.length < 2 * begin.len().max(1)
                && memchr::memmem::find(begin, EMPTY).is_some();
            self.updates += usize::from(!empty);
            return Ok(false);
        }
        self.replies += 1;
        if self.replies < REPLIES {
            self.preface += message.length;
            return Ok(true);
        }
        let found = id_after(begin, br#""result":[true,""#);
        self.found = found.is_some();
        let Some(id) = found.or_else(|| id_after(begin, br#""result":[false,""#)) else {
            let [begin, end] = [begin, end].map(|edge| String::from_utf8_lossy(edge));
            fail!("a monitor was answered {} ... {}", clip(&begin), clip(&end));
        };
        (self.id, self.reply) = (id, message.length);
        Ok(true)
    }
}

/// The id that stands behind this text.
fn id_after(text: &[u8], before: &[u8]) -> Option<String> {
    let at = memchr::memmem::find(text, before)? + before.len();
    let id = text.get(at..at + NOTHING.len())?;
    String::from_utf8(id.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crowd::Edges;

    const ID: &str = "8d2a2dfa-4f3a-4a9c-8c55-0123456789ab";

    fn message(text: &str) -> Message {
        let mut edges = Edges::default();
        edges.extend(text.as_bytes());
        Message { token: 0, edges, length: text.len(), whole: None }
    }

    #[test]
    fn a_client_learns_ids_from_replies_and_updates() {
        let mut member = Member::new(NOTHING.into());
        for reply in 1..REPLIES {
            let text = format!(r#"{{"id":{reply},"result":{{}},"error":null}}"#);
            assert!(member.hear(&message(&text)).unwrap());
        }
        let preface = member.preface;
        let since = format!(r#"{{"id":3,"result":[true,"{ID}",{{}}],"error":null}}"#);
        assert!(member.hear(&message(&since)).unwrap());
        assert!(member.found && member.id == ID && member.preface == preface);
        let update = |id: &str, what: &str| {
            message(&format!(r#"{{"id":null,"method":"update3","params":["m","{id}",{what}]}}"#))
        };
        assert!(!member.hear(&update(NOTHING, "{}")).unwrap());
        assert!(member.id == NOTHING && member.updates == 0, "an id without a change");
        assert!(!member.hear(&update(ID, r#"{"T":{"u":{"delete":null}}}"#)).unwrap());
        assert!(member.id == ID && member.updates == 1);
        let refused = message(r#"{"id":3,"result":null,"error":{"error":"unknown database"}}"#);
        assert!(member.hear(&refused).is_err());
    }

    #[test]
    fn steps_follow_the_replies() {
        let requests = json!({});
        let text = |replies| String::from_utf8(next_requests(replies, &requests, ID)).unwrap();
        assert!(text(0).contains("get_schema") && text(2).is_empty() && text(4).is_empty());
        assert!(text(1).contains("monitor_cond") && text(1).contains("set_db_change_aware"));
        assert!(text(3).contains("monitor_cond_since") && text(3).contains(ID));
    }
}

//! What one client has asked for, and what it has been told.

use std::collections::{BTreeMap, VecDeque};

use serde_json::Value;
use weir_server::event::{DbId, SessionId};

use crate::census::Census;
use crate::replica::{self, Rows};

/// What keeps its order: requests on one database as it was opened, or on none.
pub(crate) type Order = (String, Vec<DbId>);

/// What a monitor watches.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) db: String,
    pub(crate) columns: BTreeMap<String, Vec<String>>,
    /// The clauses, any of which a row must match; tables that are missing have all rows.
    pub(crate) wheres: BTreeMap<String, Vec<String>>,
    pub(crate) has_conditions: bool,
    /// The client is told of everything.
    pub(crate) is_whole: bool,
    pub(crate) rows: Rows,
}

/// What a request is.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Transact,
    Monitor {
        name: String,
        view: Box<View>,
    },
    Change {
        old: String,
        new: String,
        wheres: BTreeMap<String, Vec<String>>,
    },
    CancelMonitor(String),
    Convert,
    /// A wait until others have been delivered what was committed.
    Delivery,
    /// Changes of the log.
    Log,
    Other,
}

/// A request that is not answered.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) id: String,
    pub(crate) kind: Kind,
    /// With what it keeps its order.
    pub(crate) order: Option<Order>,
    /// The request may wait for rows, and others may be answered before it.
    pub(crate) waits: bool,
    /// Nobody but rows that come ends that.
    pub(crate) waits_forever: bool,
    pub(crate) is_canceled: bool,
    /// The beginning of the message.
    pub(crate) text: String,
}

/// One client.
pub(crate) struct Client {
    pub(crate) session: SessionId,
    pub(crate) asked: VecDeque<Asked>,
    pub(crate) views: BTreeMap<String, View>,
    /// Replies to probes.
    pub(crate) to_say: VecDeque<String>,
    pub(crate) is_aware: bool,
    /// The shell has told that it is too far behind.
    pub(crate) is_blocked: bool,
    /// The request whose reply in pieces was behind another.
    in_pieces: Option<String>,
    /// The id of a state that it has been told, of some database.
    pub(crate) state: String,
}

/// Replies from this size on came in pieces, in bytes.
const PIECES_MIN: usize = 1_100_000;

impl Client {
    pub(crate) fn new(session: SessionId) -> Self {
        Self {
            session,
            asked: VecDeque::new(),
            views: BTreeMap::new(),
            to_say: VecDeque::new(),
            is_aware: false,
            is_blocked: false,
            in_pieces: None,
            state: "00000000-0000-0000-0000-000000000000".to_owned(),
        }
    }

    /// A request is on its way. Of two of one id nobody can say which one is answered.
    pub(crate) fn ask(&mut self, mut asked: Asked) {
        for other in self.asked.iter_mut().filter(|other| other.id == asked.id) {
            asked.waits_forever |= other.waits_forever;
            asked.is_canceled |= other.is_canceled;
            (asked.order, asked.waits) = (None, true);
            (other.order, other.waits) = (None, true);
            other.waits_forever = asked.waits_forever;
        }
        self.asked.push_back(asked);
    }

    /// A request that is on its way, whose answer comes soon.
    pub(crate) fn expect_reply(&mut self, id: &str) {
        self.asked.push_back(Asked {
            id: id.to_owned(),
            kind: Kind::Other,
            order: None,
            waits: false,
            waits_forever: false,
            is_canceled: false,
            text: id.to_owned(),
        });
    }

    /// Takes a message; says what is wrong about it.
    pub(crate) fn take(&mut self, text: &str, census: &mut Census) -> Result<(), String> {
        let message: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let Some(method) = message["method"].as_str() else {
            return self.answered(&message, text.len(), census);
        };
        let params = &message["params"];
        if matches!(method, "update3" | "weir_update") {
            self.knows(&params[1]);
        }
        match method {
            "echo" => {
                census.note("probe");
                self.to_say.push_back(r#"{"id":"echo","result":[],"error":null}"#.to_owned());
                Ok(())
            }
            "update" | "update2" => self.updated(&params[0], &params[1]),
            "update3" => self.updated(&params[0], &params[2]),
            "weir_update" => {
                census.note("change told by itself");
                self.updated(&params[0], &params[3])
            }
            "weir_path" => Ok(()),
            "monitor_canceled" => {
                census.note("monitor ended by its database");
                let name = params[0].to_string();
                self.take_name(&name);
                self.views.remove(&name);
                Ok(())
            }
            "stolen" => {
                census.note("lock stolen");
                Ok(())
            }
            "locked" => Ok(()),
            other => Err(format!("unknown method {other}")),
        }
    }

    fn knows(&mut self, state: &Value) {
        if let Some(state) = state.as_str().filter(|state| state.len() == 36) {
            state.clone_into(&mut self.state);
        }
    }

    fn updated(&mut self, name: &Value, updates: &Value) -> Result<(), String> {
        let name = name.to_string();
        self.take_name(&name);
        let missing = || format!("an update of monitor {name}, which is not there");
        let view = self.views.get_mut(&name).ok_or_else(missing)?;
        if !view.is_whole {
            return Ok(());
        }
        replica::update(&mut view.rows, updates)
    }

    /// A monitor is called by a name that a request which is not answered yet gives it.
    fn take_name(&mut self, name: &str) {
        let old = self.asked.iter().find_map(|asked| match &asked.kind {
            Kind::Change { old, new, .. } if new == name => Some(old.clone()),
            _ => None,
        });
        if let Some(old) = old.filter(|_| !self.views.contains_key(name)) {
            self.rename(&old);
        }
    }

    /// A monitor has the name that it gets from a request which is not answered yet.
    fn rename(&mut self, name: &str) {
        let renamed = self.asked.iter().find_map(|asked| match &asked.kind {
            Kind::Change { old, new, .. } if old == name && new != name => Some(new.clone()),
            _ => None,
        });
        if let Some(new) = renamed
            && let Some(view) = self.views.remove(name)
        {
            self.views.insert(new, view);
        }
    }

    fn answered(
        &mut self,
        message: &Value,
        length: usize,
        census: &mut Census,
    ) -> Result<(), String> {
        let id = message["id"].to_string();
        let error = &message["error"];
        let is_duplicate = error["details"]
            .as_str()
            .is_some_and(|details| details.ends_with("duplicate request ID"));
        let is_same = |asked: &Asked| asked.id == id;
        let at = self.asked.iter().position(is_same);
        let at = at.ok_or("an answer to nothing that was asked, or a second one")?;
        // What is refused for a name that nobody knows waits for no database.
        let is_unknown = error == "unknown monitor"
            || error["details"] == "unknown monitor session"
            || error["error"] == "unknown database";
        // Who asks whether anybody is there does not wait for what is asked for under a lock.
        let before = || self.asked.iter().take(at);
        let is_echo = self.asked[at].text.contains("\"echo\"");
        let is_behind_unlock = is_echo && before().any(|other| other.text.contains("\"unlock\""));
        let passes = is_duplicate || is_unknown || is_behind_unlock || error == "canceled";
        let order = &self.asked[at].order;
        let is_before = |other: &&Asked| {
            order.is_some() && other.order == *order && !other.waits && !other.is_canceled
        };
        if let Some(before) = before().find(is_before).filter(|_| !passes) {
            return Err(format!("answered before {}", before.text));
        }
        if length > PIECES_MIN {
            census.note("reply in pieces");
            if self.in_pieces.as_ref() == Some(&id) {
                census.note("two replies in pieces to one session");
            }
            // The next one, if it has been asked for already, was composed meanwhile.
            self.in_pieces = self.asked.get(at + 1).map(|next| next.id.clone());
        }
        let asked = self.asked.remove(at).expect("it was found");
        self.count(&asked, message, is_duplicate, census);
        let result = &message["result"];
        [&result["id"], &result[1]].into_iter().for_each(|state| self.knows(state));
        if error.is_null() { self.succeeded(asked, &message["result"]) } else { Ok(()) }
    }

    fn count(&self, asked: &Asked, message: &Value, is_duplicate: bool, census: &mut Census) {
        let error = &message["error"];
        if is_duplicate {
            census.note("duplicate request id");
        }
        match asked.kind {
            Kind::Transact if error == "canceled" && asked.is_canceled && asked.waits => {
                census.note("cancel of a waiting transaction");
            }
            Kind::Transact if error == "canceled" && asked.is_canceled => {
                census.note("cancel of a queued transaction");
            }
            Kind::Convert if error.is_null() => census.note("conversion done"),
            Kind::Convert => census.note("conversion refused"),
            Kind::Delivery if message["result"]["complete"] == true => {
                census.note("delivery waited for");
            }
            Kind::Delivery if message["result"]["missing"][0]["client"].is_string() => {
                census.note("delivery waited for in vain");
            }
            Kind::Log if message["result"][0]["changes"].is_object() => {
                census.note("changes of the log told");
            }
            _ => {}
        }
    }

    fn succeeded(&mut self, asked: Asked, result: &Value) -> Result<(), String> {
        match asked.kind {
            Kind::Monitor { name, mut view } => {
                self.rename(&name);
                let rows = if result.is_array() { &result[2] } else { result };
                // What leads on from a state is compared with nothing.
                view.is_whole &= result[0] != true;
                if view.is_whole {
                    replica::update(&mut view.rows, rows)?;
                }
                if self.views.insert(name, *view).is_some() {
                    return Err("a monitor was made twice".to_owned());
                }
            }
            Kind::Change { old, new, wheres } => {
                // It may have got its new name already, and another one the old name.
                let view = self.views.remove(&new).or_else(|| self.views.remove(&old));
                // It may have ended meanwhile.
                if let Some(mut view) = view {
                    // A monitor of RFC 7047 has no conditions, and is asked in vain.
                    if view.has_conditions {
                        view.wheres.extend(wheres);
                    }
                    self.views.insert(new, view);
                }
            }
            Kind::CancelMonitor(name) => drop(self.views.remove(&name)),
            Kind::Transact | Kind::Convert | Kind::Delivery | Kind::Log | Kind::Other => {}
        }
        Ok(())
    }
}

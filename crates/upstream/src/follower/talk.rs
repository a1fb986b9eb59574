//! A follower in tests, without a server: what it asks is noted, and answered by who reads along.

use weir_data::UuidSource;
use weir_json::Value;

use super::{Follower, Model, Output, Wanted};
use crate::news::Read;
use crate::remotes::Remotes;
use crate::session::{Input, Options};

pub(super) const SECOND: u64 = 1_000_000;

/// A follower of the database `D`, and the time.
pub(super) struct Talk {
    pub(super) follower: Follower,
    pub(super) now_us: u64,
    /// Requests that are not answered: id, method and parameters.
    pub(super) asked: Vec<(Value, String, String)>,
    pub(super) log: Vec<String>,
    /// Where it has begun to connect.
    pub(super) begun: Vec<String>,
    pub(super) closed: usize,
    /// What a replica has been told: `rows`, a number of conditions with the tables that are whole,
    /// or what was refused.
    pub(super) told: Vec<String>,
}

impl Talk {
    pub(super) fn of(remotes: &str, model: Model) -> Self {
        let wanted = Wanted {
            database: "D".into(),
            remotes: Remotes::parse(remotes),
            leader_only: false,
            options: Options { probe_ms: 0, max_backoff_ms: 8000 },
            model,
        };
        let follower = Follower::new(wanted, 0);
        let (asked, log, begun, told) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut talk = Self { follower, now_us: SECOND, asked, log, begun, closed: 0, told };
        talk.give(Input::Tick);
        talk
    }

    pub(super) fn give(&mut self, input: Input<'_>) {
        let mut out = Vec::new();
        let mut versions = UuidSource::new([1, 2, 3, 4]);
        self.follower.handle(self.now_us, input, &mut versions, &mut out);
        self.note(out);
    }

    pub(super) fn note(&mut self, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Send(request) => {
                    let request = Value::parse(&request).unwrap();
                    let member = |name| request.get(name).unwrap().clone();
                    let method = member("method").as_str().unwrap().to_owned();
                    self.asked.push((member("id"), method, member("params").to_string()));
                }
                Output::Connect { target } => self.begun.push(target),
                Output::Close => {
                    self.asked.clear();
                    self.closed += 1;
                }
                Output::Log { module: "ovsdb_cs", text, level } => {
                    self.log.push(format!("{level:?} {text}"));
                }
                Output::News(_) => self.told.push("rows".to_owned()),
                Output::Conditions { number, whole } => {
                    self.told.push(format!("{number} {whole:?}"));
                }
                Output::Refused { number, .. } => self.told.push(format!("refused {number}")),
                _ => {}
            }
        }
    }

    pub(super) fn say(&mut self, message: &str) {
        self.give(Input::Message(message.as_bytes()));
    }

    /// Answers what was asked by this method; the rows of the database are read as its owner does.
    pub(super) fn answer(&mut self, method: &str, result: &str) {
        let id = self.take_asked(method);
        let message = format!(r#"{{"id":{id},"result":{result},"error":null}}"#);
        let reader = self.follower.row_reader();
        let mut versions = UuidSource::new([5, 6, 7, 8]);
        match reader.map(|reader| reader.read(message.as_bytes(), &mut versions)) {
            Some(Read::News(news)) => {
                let mut out = Vec::new();
                self.follower.have_read(news.state, &mut out);
                self.note(out);
            }
            _ => self.say(&message),
        }
    }

    /// Answers what was asked by this method with an error.
    pub(super) fn refuse(&mut self, method: &str, error: &str) {
        let id = self.take_asked(method);
        self.say(&format!(r#"{{"id":{id},"result":null,"error":{error}}}"#));
    }

    /// The id of what was asked by this method.
    fn take_asked(&mut self, method: &str) -> Value {
        let at = self.asked.iter().position(|(_, asked, _)| asked == method);
        let (id, ..) =
            self.asked.remove(at.unwrap_or_else(|| panic!("{method}: {:?}", self.asked)));
        id
    }

    /// Time passes until it tries again, and is connected.
    pub(super) fn come_back(&mut self) {
        self.now_us = self.follower.next_wakeup_us().expect("an attempt").max(self.now_us);
        self.give(Input::Tick);
        self.give(Input::Up);
    }
}

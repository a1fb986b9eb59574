//! A server that databases follow: it answers, answers wrongly, or is silent.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use weir_server::event::{Event, LinkId};

use crate::chance::Chance;
use crate::schemas;
use crate::shell::Shell;

pub(crate) const TARGET: &str = "tcp:192.0.2.9:6640";

/// The other server.
#[derive(Default)]
pub(crate) struct Source {
    /// Ports of each database, by UUID: the name's number and `n`.
    ports: BTreeMap<String, BTreeMap<String, (usize, usize)>>,
    /// Who has been told the ports of which database.
    following: BTreeMap<LinkId, String>,
    up: BTreeSet<LinkId>,
    /// What it is about to say.
    answers: Vec<(LinkId, String)>,
    next_row: usize,
}

fn row(name: &str, n: usize) -> String {
    format!(r#"{{"name":"{name}","n":{n},"tags":["set",[]],"peer":["set",[]],"items":["set",[]]}}"#)
}

impl Source {
    /// Whether anything is left to be said.
    pub(crate) fn is_busy(&self, shell: &Shell) -> bool {
        !self.answers.is_empty()
            || !shell.connecting.is_empty()
            || shell.links.values().any(|sent| !sent.is_empty())
    }

    /// Forgets connections that the core has closed, and takes what it has sent on others.
    fn listen(&mut self, shell: &mut Shell, chance: &mut Chance, is_right: bool) {
        shell.connecting.retain(|(link, _)| shell.links.contains_key(link));
        self.up.retain(|link| shell.links.contains_key(link));
        self.following.retain(|link, _| shell.links.contains_key(link));
        self.answers.retain(|(link, _)| shell.links.contains_key(link));
        for (link, sent) in &mut shell.links {
            let mut sent = std::mem::take(sent);
            while !sent.is_empty() {
                let end = weir_json::Framer::new().feed(&sent).expect("JSON").expect("whole");
                let request: Vec<u8> = sent.drain(..end).collect();
                let request: Value = serde_json::from_slice(&request).expect("JSON");
                if request["method"].is_string() {
                    let answer = self.answer(*link, &request, chance, is_right);
                    self.answers.extend(answer.map(|answer| (*link, answer)));
                }
            }
        }
    }

    fn answer(
        &mut self,
        link: LinkId,
        request: &Value,
        chance: &mut Chance,
        is_right: bool,
    ) -> Option<String> {
        let id = &request["id"];
        if !is_right && chance.one_in(25) {
            return Some(format!(r#"{{"id":{id},"result":null,"error":"not now"}}"#));
        }
        let is_wrong = !is_right && chance.one_in(40);
        let name = request["params"][0].as_str().unwrap_or_default();
        let result = match request["method"].as_str()? {
            "echo" => request["params"].to_string(),
            "get_server_id" => r#""00000000-0000-0000-0000-000000000008""#.to_owned(),
            "list_dbs" if is_wrong => "[]".to_owned(),
            "list_dbs" => r#"["Net","Two","Three","Four","_Server"]"#.to_owned(),
            "get_schema" if is_wrong => schemas::unfit(name),
            "get_schema" => schemas::schema(name, 0, 30),
            "monitor" => {
                self.following.insert(link, name.to_owned());
                let ports = self.ports.entry(name.to_owned()).or_default();
                let ports: Vec<String> = ports
                    .iter()
                    .map(|(uuid, (name, n))| {
                        format!(r#""{uuid}":{{"new":{}}}"#, row(&format!("s{name}"), *n))
                    })
                    .collect();
                format!(r#"{{"Port":{{{}}}}}"#, ports.join(","))
            }
            _ => "{}".to_owned(),
        };
        Some(format!(r#"{{"id":{id},"result":{result},"error":null}}"#))
    }

    /// Something happens to one of the connections; the database of a message, if it was one.
    pub(crate) fn step(&mut self, shell: &mut Shell, chance: &mut Chance, is_right: bool) {
        self.listen(shell, chance, is_right);
        if let Some((link, _)) = shell.connecting.pop() {
            if !is_right && chance.one_in(8) {
                shell.links.remove(&link);
                let error = Some("Connection refused".to_owned());
                return shell.event(Event::LinkDown { link, error });
            }
            self.up.insert(link);
            return shell.event(Event::LinkUp { link });
        }
        if !self.answers.is_empty() {
            let (link, answer) = self.answers.remove(0);
            return shell.event(Event::LinkMessage { link, bytes: answer.into_bytes() });
        }
        if is_right {
            return;
        }
        let links: Vec<LinkId> = self.up.iter().copied().collect();
        if links.is_empty() {
            return;
        }
        let link = *chance.pick(&links);
        match chance.below(30) {
            0 => {
                shell.links.remove(&link);
                shell.event(Event::LinkDown { link, error: None });
            }
            1 => shell.event(Event::LinkActivity { link }),
            2 => {
                let echo = r#"{"id":"e","method":"echo","params":[]}"#;
                shell.event(Event::LinkMessage { link, bytes: echo.into() });
            }
            _ => self.change(shell, chance, link),
        }
    }

    /// A port comes, changes or goes, and all who follow the database are told.
    fn change(&mut self, shell: &mut Shell, chance: &mut Chance, link: LinkId) {
        let Some(name) = self.following.get(&link).cloned() else { return };
        let ports = self.ports.entry(name.clone()).or_default();
        let n = chance.below(6);
        let uuids: Vec<String> = ports.keys().cloned().collect();
        let update = if uuids.is_empty() || uuids.len() < 20 && chance.one_in(2) {
            self.next_row += 1;
            let number = self.next_row;
            let uuid = format!("dddddddd-0000-4000-8000-{number:012}");
            let update = format!(r#""{uuid}":{{"new":{}}}"#, row(&format!("s{number}"), n));
            ports.insert(uuid, (number, n));
            update
        } else {
            let uuid = chance.pick(&uuids).clone();
            let (number, old) = ports[&uuid];
            let name = format!("s{number}");
            if chance.one_in(2) {
                ports.remove(&uuid);
                format!(r#""{uuid}":{{"old":{}}}"#, row(&name, old))
            } else {
                ports.insert(uuid.clone(), (number, n));
                format!(r#""{uuid}":{{"old":{{"n":{old}}},"new":{}}}"#, row(&name, n))
            }
        };
        let params = format!(r#"["{name}",{{"Port":{{{update}}}}}]"#);
        let message = format!(r#"{{"id":null,"method":"update","params":{params}}}"#);
        let followers = self.following.iter().filter(|(_, followed)| **followed == name);
        let links: Vec<LinkId> = followers.map(|(link, _)| *link).collect();
        for link in links {
            // Behind what it has said before.
            self.answers.push((link, message.clone()));
        }
        let (link, message) = self.answers.remove(0);
        shell.event(Event::LinkMessage { link, bytes: message.into_bytes() });
    }

    /// The database that a connection follows, if it is told of changes.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.following.values().map(String::as_str)
    }
}

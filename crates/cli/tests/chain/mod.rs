//! A source and relays behind it, each of the one before or of any others, as processes.

#![allow(dead_code, reason = "every test uses another part")]

mod proxy;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::group::Program::{self, Packaged, Weir};
use crate::peer::{self, Client};
use crate::support::{Scratch, eventually, reference};

pub(crate) use proxy::Proxy;

/// A source that is a file, and relays behind it.
pub(crate) struct Chain {
    pub(crate) scratch: Scratch,
    programs: Vec<Program>,
    children: Vec<Option<Child>>,
    /// Where the source is, if it is not the first of these.
    source: Option<String>,
    /// The servers that each relay has to choose from.
    lists: Vec<Vec<usize>>,
}

impl Chain {
    pub(crate) fn of(scratch: Scratch, programs: &[Program], source: Option<String>) -> Self {
        let lists = (0..programs.len()).map(|at| Vec::from_iter(at.checked_sub(1))).collect();
        Self::of_lists(scratch, programs, source, lists)
    }

    /// Each relay has these servers to choose from.
    fn of_lists(
        scratch: Scratch,
        programs: &[Program],
        source: Option<String>,
        lists: Vec<Vec<usize>>,
    ) -> Self {
        let children = programs.iter().map(|_| None).collect();
        let mut chain = Self { scratch, programs: programs.to_vec(), children, source, lists };
        (0..programs.len()).for_each(|at| chain.start(at));
        chain
    }

    /// `None`, and said so, where the packaged server is not there.
    pub(crate) fn start_with(programs: &[Program]) -> Option<Self> {
        reference("ovsdb-server")?;
        let scratch = Scratch::new();
        peer::create(&scratch, "net.db");
        let chain = Self::of(scratch, programs, None);
        chain.settle();
        Some(chain)
    }

    /// A source, and relays that name each other as further sources.
    pub(crate) fn ring(relays: usize) -> Self {
        let scratch = Scratch::new();
        peer::create(&scratch, "net.db");
        let list = |at: usize| (0..=relays).filter(|other| *other != at).collect();
        let lists = std::iter::once(Vec::new()).chain((1..=relays).map(list)).collect();
        let chain = Self::of_lists(scratch, &vec![Weir; relays + 1], None, lists);
        chain.settle();
        chain
    }

    pub(crate) fn socket(&self, at: usize) -> PathBuf {
        self.scratch.path(&format!("c{at}.sock"))
    }

    pub(crate) fn start(&mut self, at: usize) {
        let program = match self.programs[at] {
            Packaged => reference("ovsdb-server").expect("it was there"),
            Weir => self.scratch.link("ovsdb-server"),
        };
        let database = match (at, &self.source) {
            (0, None) => "net.db".to_owned(),
            (0, Some(source)) => source.clone(),
            _ => {
                let list = self.lists[at].iter();
                let list = list.map(|to| format!("unix:{}", self.socket(*to).display()));
                format!("relay:Net:{}", list.collect::<Vec<_>>().join(","))
            }
        };
        let _ = std::fs::remove_file(self.socket(at));
        let mut command = self.scratch.command(program);
        command
            .args(["--no-chdir", "-vconsole:off", "-vsyslog:off", "-vfile:info"])
            .arg(format!("--log-file={}", self.scratch.text(&format!("c{at}.log"))))
            .arg(format!("--unixctl={}", self.scratch.text(&format!("c{at}.ctl"))))
            .arg(format!("--remote=punix:{}", self.socket(at).display()))
            .arg(database)
            .stdout(Stdio::null());
        self.children[at] = Some(command.spawn().expect("the server starts"));
        eventually("the server listens", || Client::connect(&self.socket(at)).is_ok());
    }

    pub(crate) fn kill(&mut self, at: usize) {
        let mut child = self.children[at].take().expect("it runs");
        child.kill().expect("it runs");
        child.wait().expect("a child");
    }

    /// Sends a signal by kill(1).
    pub(crate) fn signal(&self, at: usize, name: &str) {
        let pid = self.children[at].as_ref().expect("it runs").id().to_string();
        let status = Command::new("kill").args(["-s", name, &pid]).status().expect("kill");
        assert!(status.success());
    }

    pub(crate) fn client(&self, at: usize) -> Client {
        Client::connect(&self.socket(at)).expect("the server listens")
    }

    /// Waits until the last one has rows of its source.
    pub(crate) fn settle(&self) {
        eventually("all relays have the database", || {
            (0..self.children.len()).all(|at| {
                let reply =
                    self.client(at).call(r#"{"id":1,"method":"get_schema","params":["Net"]}"#);
                reply.contains(r#""tables""#)
            })
        });
    }

    /// Adds a row through a server, as a client does that tries again when nobody knows whether it is there.
    pub(crate) fn insert(&self, at: usize, name: &str, text: &str) {
        let mut was_canceled = false;
        eventually(&format!("{:?}: {name} is written through {at}", self.programs), || {
            let mut client = self.client(at);
            let Some(reply) = client.try_call(&peer::transact(&peer::insert(name, text))) else {
                was_canceled = true;
                return false;
            };
            let is_there_by_then = was_canceled && reply.contains("constraint violation");
            was_canceled |= reply.contains(r#""canceled""#);
            reply.contains(r#""uuid""#) || is_there_by_then
        });
    }

    /// Waits until all have the same rows, so many: all columns of them.
    pub(crate) fn agree(&self, count: usize) {
        let last = self.programs.len() - 1;
        eventually(&format!("{:?} have the same {count} rows", self.programs), || {
            let rows = self.rows(0);
            rows.len() == count && (1..=last).all(|at| self.rows(at) == rows)
        });
    }

    /// All rows, without the versions that each server gives them; none if there is no answer.
    fn rows(&self, at: usize) -> Vec<Value> {
        let select = r#"{"op":"select","table":"Port","where":[]}"#;
        // Another schema may end the connection.
        let reply = self.client(at).try_call(&peer::transact(select)).unwrap_or("{}".into());
        let reply: Value = serde_json::from_str(&reply).expect("JSON");
        let mut rows = reply["result"][0]["rows"].as_array().cloned().unwrap_or_default();
        rows.iter_mut().for_each(|row| _ = row.as_object_mut().expect("a row").remove("_version"));
        rows.sort_by_key(|row| row["_uuid"].to_string());
        rows
    }

    pub(crate) fn log(&self, at: usize) -> String {
        std::fs::read_to_string(self.scratch.path(&format!("c{at}.log"))).unwrap_or_default()
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        for child in self.children.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

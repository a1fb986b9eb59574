//! Clients that lose their server and come back: what happens meanwhile, and what they were told.

#![allow(dead_code, reason = "every test uses another part")]

pub(crate) mod proxy;

use std::path::{Path, PathBuf};

use serde_json::Value;
use weir_testkit::client::Client;
use weir_testkit::process::{Program, Server};

use self::proxy::{Proxy, Resumed};
use crate::support::{Scratch, eventually};

/// What a client names that knows no change.
pub(crate) const NOTHING: &str = "00000000-0000-0000-0000-000000000000";

/// What happens while clients are away. Changes are made in each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meanwhile {
    /// Nothing happens to the server.
    Cut,
    Restart,
    /// The database is compacted, then the server starts again.
    Compaction,
    /// The server is killed and starts again.
    Kill,
    /// The stock server opens the file and writes to it, then Weir starts again.
    Stock,
}

impl Meanwhile {
    pub(crate) const ALL: [Self; 5] =
        [Self::Cut, Self::Restart, Self::Compaction, Self::Kill, Self::Stock];

    /// Whether a client with these columns is told only what has changed.
    fn is_resumed(self, watches_ephemeral: bool) -> bool {
        match self {
            Self::Cut => true,
            Self::Restart | Self::Compaction | Self::Kill => !watches_ephemeral,
            Self::Stock => false,
        }
    }
}

/// A server on files, and a proxy before it.
pub(crate) struct World {
    pub(crate) proxy: Proxy,
    dbs: Vec<Db>,
    files: Vec<PathBuf>,
    weir: Program,
    stock: Program,
    server: Option<Server>,
    changes: u32,
}

/// A database, and how often clients have come back to it.
struct Db {
    name: String,
    /// Columns that are not kept in files, each as `TABLE.COLUMN`.
    ephemeral: Vec<String>,
    resumed: usize,
}

impl World {
    /// Weir on new files of these schemas; changes are to the first.
    pub(crate) fn new(scratch: &Scratch, stock: Program, schemas: &[PathBuf]) -> Self {
        let weir = Program { label: "weir", path: scratch.link("ovsdb-server"), options: &[] };
        let mut files = Vec::new();
        for (n, schema) in schemas.iter().enumerate() {
            let (file, schema) = (scratch.text(&format!("{n}.db")), schema.display().to_string());
            let made = scratch.run(scratch.link("ovsdb-tool"), &["create", &file, &schema]);
            assert!(made.status.success(), "{made:?}");
            files.push(PathBuf::from(file));
        }
        let dbs = schemas.iter().map(|path| Db::of(path)).collect();
        let proxy = Proxy::new(scratch.path("proxy"));
        let mut world = Self { proxy, dbs, files, weir, stock, server: None, changes: 0 };
        world.start();
        world.proxy.open(&world.server().socket());
        world
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs but while it is changed for another")
    }

    /// A session with the server itself, beside the proxy.
    pub(crate) fn session(&self) -> Client {
        self.server().connect().expect("a session")
    }

    fn start(&mut self) {
        self.server = Some(Server::start(&self.weir, &self.files).expect("Weir starts"));
    }

    fn stop(&mut self) {
        let server = self.server.take().expect("it runs");
        server.stop().expect("the server ends well");
    }

    /// Makes the next change; each has a number of its own.
    pub(crate) fn change(&mut self, change: &mut dyn FnMut(&Self, u32)) {
        self.changes += 1;
        change(self, self.changes);
    }

    /// Sends a client away and lets it come back after `what`. It must be told what the server
    /// promises of it, in every database.
    pub(crate) fn away(
        &mut self,
        what: Meanwhile,
        change: &mut dyn FnMut(&Self, u32),
    ) -> Vec<Resumed> {
        self.proxy.close();
        self.meanwhile(what, change);
        self.proxy.open(&self.server().socket());
        let resumed = self.arrivals(&format!("{what:?}"));
        for (n, (db, resumed)) in self.dbs.iter().zip(&resumed).enumerate() {
            // The stock server has written to the first only.
            let what = if n > 0 && what == Meanwhile::Stock { Meanwhile::Restart } else { what };
            let expected = what.is_resumed(db.watches_ephemeral(&resumed.requests));
            let Resumed { asked, found, id, .. } = resumed;
            assert_eq!(*found, expected, "{what:?}: {}: asked {asked}, is {id}", db.name);
        }
        resumed
    }

    /// Changes the database before and after `what` happens to the server.
    pub(crate) fn meanwhile(&mut self, what: Meanwhile, change: &mut dyn FnMut(&Self, u32)) {
        self.change(change);
        match what {
            Meanwhile::Cut => {}
            Meanwhile::Restart => self.stop(),
            Meanwhile::Compaction => {
                self.server().admin("ovsdb-server/compact", &[]).expect("a compaction");
                self.change(change);
                self.stop();
            }
            Meanwhile::Kill => drop(self.server.take()),
            Meanwhile::Stock => {
                self.stop();
                self.server = Some(Server::start(&self.stock, &self.files).expect("it starts"));
                self.change(change);
                self.stop();
            }
        }
        if self.server.is_none() {
            self.start();
        }
        self.change(change);
    }

    /// Waits for the client's next answered request for each database.
    pub(crate) fn arrivals(&mut self, what: &str) -> Vec<Resumed> {
        let mut arrivals = Vec::new();
        for db in &mut self.dbs {
            let mut all = Vec::new();
            eventually(&format!("{what}: a client comes to {}", db.name), || {
                all = self.proxy.resumed(&db.name);
                all.len() > db.resumed
            });
            arrivals.push(all.swap_remove(db.resumed));
            db.resumed += 1;
        }
        arrivals
    }
}

impl Db {
    fn of(schema: &Path) -> Self {
        let schema = std::fs::read_to_string(schema).expect("the schema");
        let schema: Value = serde_json::from_str(&schema).expect("a schema is JSON");
        let mut ephemeral = Vec::new();
        for (table, of_table) in schema["tables"].as_object().into_iter().flatten() {
            for (column, of_column) in of_table["columns"].as_object().into_iter().flatten() {
                if of_column["ephemeral"] == true {
                    ephemeral.push(format!("{table}.{column}"));
                }
            }
        }
        let name = schema["name"].as_str().expect("its name").to_owned();
        Self { name, ephemeral, resumed: 0 }
    }

    /// Whether a client that asks so watches a column that is not kept in files.
    fn watches_ephemeral(&self, requests: &Value) -> bool {
        requests.as_object().into_iter().flatten().any(|(table, requests)| {
            let columns = requests.as_array().into_iter().flatten().map(|one| &one["columns"]);
            let mut columns = columns.flat_map(|names| names.as_array().into_iter().flatten());
            columns.any(|column| {
                let name = format!("{table}.{}", column.as_str().unwrap_or_default());
                self.ephemeral.contains(&name)
            })
        })
    }
}

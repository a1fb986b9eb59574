//! The server's admin commands (ovs-appctl(8)); the shell adds those of every daemon.

use crate::database::server_db;
use crate::database::{Standalone, Storage};
use crate::effect::{Effect, Level};
use crate::event::{CommandId, DbId, Now};
use crate::server::{Config, Server};

/// Name, usage, and the fewest and most arguments of each command.
pub const COMMANDS: &[(&str, &str, u32, u32)] = &[
    ("memory/show", "", 0, 0),
    ("ovsdb-server/add-db", "DB", 1, 1),
    ("ovsdb-server/add-remote", "REMOTE", 1, 1),
    ("ovsdb-server/connect-active-ovsdb-server", "", 0, 0),
    ("ovsdb-server/disconnect-active-ovsdb-server", "", 0, 0),
    ("ovsdb-server/get-active-ovsdb-server", "", 0, 0),
    ("ovsdb-server/get-sync-exclude-tables", "", 0, 0),
    ("ovsdb-server/reload", "", 0, 0),
    ("ovsdb-server/set-active-ovsdb-server", "", 1, 1),
    ("ovsdb-server/set-active-ovsdb-server-probe-interval", "", 1, 1),
    ("ovsdb-server/set-relay-source-probe-interval", "", 1, 1),
    ("ovsdb-server/set-sync-exclude-tables", "", 0, 1),
    ("ovsdb-server/compact", "", 0, 1),
    ("ovsdb-server/disable-monitor-cond", "", 0, 0),
    ("ovsdb-server/get-db-storage-status", "DB", 1, 1),
    ("ovsdb-server/list-dbs", "", 0, 0),
    ("ovsdb-server/list-remotes", "", 0, 0),
    ("ovsdb-server/memory-trim-on-compaction", "on|off", 1, 1),
    ("ovsdb-server/perf-counters-clear", "", 0, 0),
    ("ovsdb-server/perf-counters-show", "", 0, 0),
    ("ovsdb-server/reconnect", "", 0, 0),
    ("ovsdb-server/remove-db", "DB", 1, 1),
    ("ovsdb-server/remove-remote", "REMOTE", 1, 1),
    ("ovsdb-server/sync-status", "", 0, 0),
    ("ovsdb-server/tlog-list", "", 0, 0),
    ("ovsdb-server/tlog-set", "DB:TABLE on|off", 2, 2),
    ("weir/status", "", 0, 0),
];

/// Commands that change what a configuration file says; with one, it is the place to do that.
const CONFIGURING: &[&str] = &[
    "ovsdb-server/add-db",
    "ovsdb-server/add-remote",
    "ovsdb-server/connect-active-ovsdb-server",
    "ovsdb-server/disconnect-active-ovsdb-server",
    "ovsdb-server/remove-db",
    "ovsdb-server/remove-remote",
    "ovsdb-server/set-active-ovsdb-server",
    "ovsdb-server/set-active-ovsdb-server-probe-interval",
    "ovsdb-server/set-relay-source-probe-interval",
    "ovsdb-server/set-sync-exclude-tables",
];

const COLUMN_DIFF: &str = "ovsdb/file/column-diff-enable";
const NO_DATA_CONVERSION: &str = "ovsdb/file/no-data-conversion-enable";

/// All commands of a server that is started like this: some take back an option and exist only
/// with it.
pub fn commands(config: &Config) -> Vec<(&'static str, &'static str, u32, u32)> {
    let files = config.files;
    let options =
        [(files.whole_columns, COLUMN_DIFF), (files.whole_conversions, NO_DATA_CONVERSION)];
    let optional = options.iter().filter(|(given, _)| *given).map(|(_, name)| (*name, "", 0, 0));
    COMMANDS.iter().copied().chain(optional).collect()
}

/// What a command answers; `None` for later.
type Reply = Option<Result<String, String>>;

impl Server {
    /// Runs an admin command.
    pub(crate) fn command(&mut self, now: Now, id: CommandId, name: &str, args: &[String]) {
        let argument = args.first().map_or("", String::as_str);
        if let Some(path) = self.config_file.as_ref().filter(|_| CONFIGURING.contains(&name)) {
            let reply = Err(format!("Update the {path} and use ovsdb-server/reload instead"));
            return self.effect(Effect::CommandReply { id, reply });
        }
        let reply: Reply = match name {
            "memory/show" => Some(Ok(self.memory_show())),
            "weir/status" => Some(Ok(self.overview(now))),
            "ovsdb-server/add-db" => {
                self.open_database(argument.to_owned(), self.config_of_new_db(), Some(id));
                None
            }
            "ovsdb-server/remove-db" => Some(self.remove_db(now, argument)),
            "ovsdb-server/list-dbs" => {
                Some(Ok(self.db_names.keys().map(|name| format!("{name}\n")).collect()))
            }
            "ovsdb-server/compact" => self.compact_command(now, id, args.first()),
            "ovsdb-server/add-remote" => Some(self.add_remote(argument)),
            "ovsdb-server/remove-remote" => Some(self.remove_remote(argument)),
            "ovsdb-server/list-remotes" => Some(Ok(self.list_remotes())),
            "ovsdb-server/memory-trim-on-compaction" => Some(self.set_trim(argument)),
            "ovsdb-server/get-db-storage-status" => Some(self.storage_status(argument)),
            "ovsdb-server/reconnect" => {
                self.disconnect_where("user ran ovsdb-server/reconnect", |_| true);
                Some(Ok(String::new()))
            }
            "ovsdb-server/reload" => {
                self.reload(id);
                None
            }
            "ovsdb-server/set-active-ovsdb-server" => Some(self.set_active_server(argument)),
            "ovsdb-server/get-active-ovsdb-server" => {
                Some(Ok(self.sync.from.clone().unwrap_or_default()))
            }
            "ovsdb-server/connect-active-ovsdb-server" => Some(self.connect_active_server()),
            "ovsdb-server/disconnect-active-ovsdb-server" => Some(self.disconnect_active_server()),
            "ovsdb-server/set-active-ovsdb-server-probe-interval" => {
                Some(self.set_replication_probe(argument))
            }
            "ovsdb-server/set-relay-source-probe-interval" => Some(self.set_relay_probe(argument)),
            "ovsdb-server/set-sync-exclude-tables" => Some(self.set_excluded_tables(argument)),
            "ovsdb-server/get-sync-exclude-tables" => {
                Some(Ok(self.sync.exclude.clone().unwrap_or_default()))
            }
            "ovsdb-server/sync-status" => Some(Ok(self.sync_status())),
            "ovsdb-server/tlog-set" => Some(self.set_table_log(args)),
            "ovsdb-server/tlog-list" => Some(Ok(self.list_table_logs())),
            "ovsdb-server/perf-counters-show" => {
                Some(Ok("performance counter is not supported on this platform\n".into()))
            }
            "ovsdb-server/perf-counters-clear" | NO_DATA_CONVERSION => Some(Ok(String::new())),
            "ovsdb-server/disable-monitor-cond" => {
                self.no_conditions = true;
                self.disconnect_where("user ran ovsdb-server/disable-monitor-cond", |_| true);
                Some(Ok(String::new()))
            }
            COLUMN_DIFF => {
                self.files.whole_columns = false;
                Some(Ok(String::new()))
            }
            _ => Some(Err(format!("\"{name}\" is not a valid command"))),
        };
        if let Some(reply) = reply {
            self.effect(Effect::CommandReply { id, reply });
        }
    }

    fn memory_show(&self) -> String {
        let dbs = || self.dbs.values();
        let counts = [
            ("atoms", dbs().map(|db| db.engine.sizes().atoms).sum()),
            ("backlog", self.backlog),
            ("cells", dbs().map(|db| db.engine.sizes().cells).sum()),
            ("json-caches", dbs().map(|db| db.monitors.counts().cached).sum()),
            ("monitors", dbs().map(|db| db.monitors.counts().groups).sum()),
            ("n-weak-refs", dbs().map(|db| db.engine.sizes().weak_refs).sum()),
            ("sessions", self.sessions.len() + self.remotes.unconnected()),
            ("triggers", dbs().map(|db| db.waiting.len()).sum()),
        ];
        let shown = counts.iter().filter(|(_, count): &&(&str, usize)| *count > 0);
        let words: Vec<String> = shown.map(|(name, count)| format!("{name}:{count}")).collect();
        words.join(" ") + "\n"
    }

    fn remove_db(&mut self, now: Now, name: &str) -> Result<String, String> {
        if name == server_db::NAME {
            return Err("Cannot remove reserved database.".into());
        }
        let id = *self.db_names.get(name).ok_or("Failed to find the database.")?;
        self.remove_database(now, id, &format!("removing {name} database by user request"));
        Ok(String::new())
    }

    fn compact_command(&mut self, now: Now, id: CommandId, name: Option<&String>) -> Reply {
        let chosen: Vec<DbId> = match name {
            Some(name) if name == server_db::NAME => {
                return Some(Err("cannot compact built-in databases".into()));
            }
            Some(name) => self.db_names.get(name).copied().into_iter().collect(),
            None => self.dbs.ids_where(|db| !db.is_reserved()),
        };
        if chosen.is_empty() {
            let missing = name.is_some();
            return Some(if missing {
                Err("no database by that name".into())
            } else {
                Ok(String::new())
            });
        }
        // The last one answers.
        let last = chosen.len() - 1;
        for (i, db) in chosen.into_iter().enumerate() {
            if let Some(database) = self.dbs.get(&db) {
                let name = database.engine.schema().name.clone();
                let text = format!("compacting {name} database by user request");
                self.log("ovsdb_server", Level::Info, text);
            }
            self.compact(now, db, (i == last).then_some(id));
        }
        None
    }

    fn set_trim(&mut self, argument: &str) -> Result<String, String> {
        let (on, word) = match argument {
            "on" => (true, "enabled"),
            "off" => (false, "disabled"),
            _ => return Err("invalid argument".into()),
        };
        self.trim_on_compaction = on;
        let text = format!("memory trimming after compaction {word}.");
        self.log("ovsdb_server", Level::Info, text);
        Ok(String::new())
    }

    fn storage_status(&self, name: &str) -> Result<String, String> {
        let db = self.db_names.get(name).and_then(|id| self.dbs.get(id));
        match &db.ok_or("Failed to find the database.")?.storage {
            Storage::Standalone(Standalone { fault: Some(fault), .. }) => {
                Ok(format!("status: I/O error: write failed ({fault})"))
            }
            _ => Ok("status: ok".into()),
        }
    }
}

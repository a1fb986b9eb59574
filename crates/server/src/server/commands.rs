//! Admin commands (ovs-appctl(8)): each goes to the owner of what it concerns.

use crate::admin::unixctl::{COLUMN_DIFF, CONFIGURING, NO_DATA_CONVERSION};
use crate::configuration::{DbConfig, Model};
use crate::database::{Db, server_db};
use crate::effect::{Effect, Level};
use crate::ids::{CommandId, DbId};
use crate::server::Server;

/// What a command answers; `None` for later.
type Reply = Option<Result<String, String>>;

impl Server {
    /// Runs an admin command; the databases that it concerns are decided.
    pub(super) fn command(&mut self, id: CommandId, name: &str, args: &[String]) {
        let reply = match self.admin.config_file().filter(|_| CONFIGURING.contains(&name)) {
            Some(path) => {
                Some(Err(format!("Update the {path} and use ovsdb-server/reload instead")))
            }
            None => self.of_databases(id, name, args),
        };
        if let Some(reply) = reply {
            self.shell.ask(Effect::CommandReply { id, reply });
        }
    }

    /// Commands about databases and the server as a whole.
    fn of_databases(&mut self, id: CommandId, name: &str, args: &[String]) -> Reply {
        let argument = args.first().map_or("", String::as_str);
        let done = Some(Ok(String::new()));
        if let Some(reply) = self.cluster_command(name, args) {
            return Some(reply);
        }
        match name {
            "index/add" | "index/drop" => {
                let Self { shell, databases, .. } = self;
                let reply = match name {
                    "index/add" => databases.add_index(shell, id, args),
                    _ => databases.drop_index(shell, id, args),
                };
                reply.transpose()
            }
            "index/list" => Some(self.databases.list_indexes(args.first())),
            "memory/show" => Some(Ok(self.memory_show())),
            "weir/status" => Some(Ok(self.overview())),
            "weir/remove-silent-members" => Some(self.remove_silent_members(argument, args.get(1))),
            "weir/slow-query-rows" => Some(self.databases.slow_query_rows(argument)),
            "weir/standalone-history" => Some(self.standalone_history(argument)),
            "weir/delivery" => self.delivery_command(id, args.first()).err().map(Err),
            "weir/wait-delivered" => self.wait_delivered_command(id, args).err().map(Err),
            "ovsdb-server/add-db" => {
                let (name, config) = match self.config_of_new_db(argument.to_owned()) {
                    Ok(database) => database,
                    Err(error) => return Some(Err(error)),
                };
                if config.model == Some(Model::Relay) {
                    return Some(self.add_relay(name, config));
                }
                self.open_database(name, config, Some(id));
                None
            }
            "ovsdb-server/remove-db" => Some(self.remove_db(argument)),
            "ovsdb-server/list-dbs" => {
                let names = self.names_of_databases();
                Some(Ok(names.iter().map(|name| format!("{name}\n")).collect()))
            }
            "ovsdb-server/compact" => self.compact_command(id, args.first()),
            "ovsdb-server/memory-trim-on-compaction" => {
                Some(self.admin.set_trim(&mut self.shell, argument).map(|()| String::new()))
            }
            "ovsdb-server/get-db-storage-status" => Some(self.storage_status(argument)),
            "ovsdb-server/reconnect" => {
                self.disconnect_where("user ran ovsdb-server/reconnect", |_| true);
                done
            }
            "ovsdb-server/reload" => {
                self.admin.begin_reload(&mut self.shell, id);
                None
            }
            "ovsdb-server/tlog-set" => Some(self.databases.set_table_log(args)),
            "ovsdb-server/tlog-list" => Some(Ok(self.databases.list_table_logs())),
            "ovsdb-server/perf-counters-show" => {
                Some(Ok("performance counter is not supported on this platform\n".into()))
            }
            "ovsdb-server/perf-counters-clear" | NO_DATA_CONVERSION => done,
            "ovsdb-server/disable-monitor-cond" => {
                self.subscriptions.disable_conditions();
                self.disconnect_where("user ran ovsdb-server/disable-monitor-cond", |_| true);
                done
            }
            COLUMN_DIFF => {
                self.admin.write_differences();
                self.databases.write_differences();
                done
            }
            _ => Some(self.of_remotes(name, argument)),
        }
    }

    /// Commands about remotes and sources.
    fn of_remotes(&mut self, name: &str, argument: &str) -> Result<String, String> {
        let Self { shell, databases, remotes, backups, .. } = self;
        let done = |()| String::new();
        let reply = match name {
            "ovsdb-server/add-remote" => {
                if remotes.add(databases, argument)? {
                    self.remotes_changed();
                    self.save_configuration();
                }
                return Ok(String::new());
            }
            "ovsdb-server/remove-remote" => {
                remotes.remove(argument)?;
                self.remotes_changed();
                self.save_configuration();
                return Ok(String::new());
            }
            "ovsdb-server/list-remotes" => Ok(remotes.list()),
            "ovsdb-server/set-active-ovsdb-server" => {
                backups.set_active_server(argument);
                Ok(String::new())
            }
            "ovsdb-server/get-active-ovsdb-server" => Ok(backups.active_server()),
            "ovsdb-server/connect-active-ovsdb-server" => {
                Ok(backups.connect_active_server(shell, databases))
            }
            "ovsdb-server/disconnect-active-ovsdb-server" => {
                backups.disconnect_active_server(shell, databases);
                Ok(String::new())
            }
            "ovsdb-server/set-active-ovsdb-server-probe-interval" => {
                backups.set_probe(shell, databases, argument).map(done)
            }
            "ovsdb-server/set-relay-source-probe-interval" => {
                backups.set_relay_probe(argument).map(|probe_ms| {
                    self.relays.set_probe(probe_ms);
                    done(())
                })
            }
            "weir/set-relay-source-max-backoff" => {
                backups.set_relay_backoff(argument).map(|backoff_ms| {
                    self.relays.set_backoff(backoff_ms);
                    done(())
                })
            }
            "ovsdb-server/set-sync-exclude-tables" => {
                Ok(backups.set_excluded_tables(shell, databases, argument))
            }
            "ovsdb-server/get-sync-exclude-tables" => Ok(backups.excluded_tables()),
            "ovsdb-server/sync-status" => Ok(backups.status(databases)),
            _ => Err(format!("\"{name}\" is not a valid command")),
        };
        if self.backups.take_changed() {
            self.save_configuration();
        }
        reply
    }

    fn memory_show(&self) -> String {
        let dbs = || self.databases.values();
        let (peers, entries) = self.clusters.counts();
        let counts = [
            ("atoms", dbs().map(|db| db.sizes().atoms).sum()),
            ("backlog", self.admin.backlog()),
            ("cells", dbs().map(|db| db.sizes().cells).sum()),
            ("json-caches", dbs().map(|db| db.monitors().counts().cached).sum()),
            ("monitors", dbs().map(|db| db.monitors().distinct()).sum()),
            ("n-weak-refs", dbs().map(|db| db.sizes().weak_refs).sum()),
            ("raft-backlog-kB", self.admin.peers_backlog() / 1000),
            ("raft-connections", peers),
            ("raft-log", entries),
            ("sessions", self.sessions.len() + self.remotes.unconnected()),
            ("triggers", dbs().map(|db| db.waiting().0).sum()),
            ("txn-history", dbs().map(|db| db.history().counts().changes).sum()),
            ("txn-history-atoms", dbs().map(Db::history_atoms).sum()),
        ];
        // These two are told also when they are zero.
        let is_shown = |(name, count): &&(&str, usize)| {
            *count > 0 || ["monitors", "n-weak-refs"].contains(name)
        };
        let shown = counts.iter().filter(is_shown);
        let words: Vec<String> = shown.map(|(name, count)| format!("{name}:{count}")).collect();
        words.join(" ") + "\n"
    }

    /// `weir/standalone-history`: whether clients that come back are told what has changed.
    fn standalone_history(&mut self, argument: &str) -> Result<String, String> {
        let is_kept = match argument {
            "" => {
                let word = if self.admin.files().no_history { "off" } else { "on" };
                return Ok(format!("{word}\n"));
            }
            "on" => true,
            "off" => false,
            _ => return Err("invalid argument".into()),
        };
        self.admin.keep_history(is_kept);
        self.databases.keep_history(is_kept);
        Ok(String::new())
    }

    fn remove_db(&mut self, name: &str) -> Result<String, String> {
        if name == server_db::NAME {
            return Err("Cannot remove reserved database.".into());
        }
        let reason = format!("removing {name} database by user request");
        if let Some(relay) = self.relays.by_name(name) {
            self.end_relay(relay, &reason);
            return Ok(String::new());
        }
        match self.databases.by_name(name) {
            Some(id) => self.remove_database(id, &reason),
            None => {
                match self.clusters.by_name(name) {
                    Some(joining) => self.remove_joining(joining, &reason),
                    None if self.admin.to_open_again.remove(name) => {}
                    None => return Err("Failed to find the database.".into()),
                }
                self.save_configuration();
            }
        }
        Ok(String::new())
    }

    fn add_relay(&mut self, name: String, config: DbConfig) -> Result<String, String> {
        self.check_new_name(&name)?;
        self.begin_relay(name, config);
        self.save_configuration();
        Ok(String::new())
    }

    fn compact_command(&mut self, id: CommandId, name: Option<&String>) -> Reply {
        let chosen: Vec<DbId> = match name {
            Some(name) if name == server_db::NAME => {
                return Some(Err("cannot compact built-in databases".into()));
            }
            Some(name) => self.databases.by_name(name).into_iter().collect(),
            None => self.databases.ids_where(|db| !db.is_reserved()),
        };
        if chosen.is_empty() {
            let missing = name.is_some();
            return Some(if missing {
                Err("no database by that name".into())
            } else {
                Ok(String::new())
            });
        }
        self.shell.gather(id, chosen.len());
        for db in chosen {
            let name = self.databases.get(db).expect("it was chosen among all").name();
            let text = format!("compacting {name} database by user request");
            self.shell.log("ovsdb_server", Level::Info, text);
            if self.relays.get(db).is_some() {
                // It has no file: what can be given back is memory.
                self.shell.ask(Effect::TrimMemory);
                self.shell.answer_command(id, Ok(String::new()));
            } else if self.clusters.part(db).is_none() {
                self.databases.compact(&mut self.shell, db, Some(id));
            } else if !self.copy_member_file(db, Some(id)) {
                let error = "not storing snapshot: nothing to compact, or it is under way";
                self.shell.answer_command(id, Err(error.into()));
            }
        }
        None
    }

    fn storage_status(&self, name: &str) -> Result<String, String> {
        if let Some(part) = self.clusters.by_name(name).and_then(|db| self.clusters.part(db)) {
            let is_stuck = part.member.is_stuck();
            let status = if is_stuck { "I/O error: cannot write log" } else { "ok" };
            return Ok(format!("status: {status}"));
        }
        if self.relays.by_name(name).is_some() {
            return Ok("status: ok".to_owned());
        }
        let id = self.databases.by_name(name).ok_or("Failed to find the database.")?;
        Ok(self.databases.get(id).expect("whatever has a name is open").storage().status())
    }

    /// The answer to `weir/status`.
    fn overview(&mut self) -> String {
        self.count_all_kept();
        let host = self.admin.take_host_status();
        crate::admin::overview::Overview {
            shell: &self.shell,
            sessions: &self.sessions,
            databases: &self.databases,
            subscriptions: &self.subscriptions,
            remotes: &self.remotes,
            backups: &self.backups,
            relays: &self.relays,
            checks: self.checks.at_work().collect(),
            host: &host,
        }
        .to_json()
    }
}

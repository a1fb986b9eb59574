//! Databases come: their files are opened, and they are served.

use weir_cluster::Member;
use weir_data::Uuid;
use weir_engine::Database;
use weir_history::History;
use weir_log::standalone::Form;

use crate::admin::Opening;
use crate::admin::again::Again;
use crate::clusters::PartFile;
use crate::configuration::{DbConfig, Model};
use crate::database::server_db;
use crate::effect::{Effect, Level};
use crate::ids::{CommandId, DbId};
use crate::server::Server;
use crate::session::Session;
use crate::storage::load::{KeptKeys, Loaded};
use crate::storage::{Clustered, MemberFile, Standalone, Storage};

impl Server {
    /// Asks the shell for a database file.
    pub(super) fn open_database(
        &mut self,
        path: String,
        config: DbConfig,
        command: Option<CommandId>,
    ) {
        self.open_file(Opening { name: path, config, command, again: None });
    }

    /// Opens the file of a database once more that was served before.
    pub(super) fn open_again(&mut self, path: String, again: Again, config: DbConfig) {
        let now_us = self.shell.now_us();
        if !self.admin.to_open_again.may_open(&path, now_us) {
            return self.admin.to_open_again.put_off(path, again, config, now_us);
        }
        self.open_file(Opening { name: path, config, command: None, again: Some(again) });
    }

    /// Opens files once more that could not be opened the last time.
    pub(super) fn open_again_if_due(&mut self) {
        let now_us = self.shell.now_us();
        for (path, again, config) in self.admin.to_open_again.take_due(now_us) {
            self.open_again(path, again, config);
        }
    }

    fn open_file(&mut self, opening: Opening) {
        let db = self.databases.next_id();
        let path = opening.name.clone();
        self.admin.begin_opening(db, opening);
        let seed = self.shell.uuids().next_u64();
        self.shell.ask(Effect::Open { db, path, seed });
    }

    /// A database file has been read, or could not be.
    pub(super) fn opened(&mut self, db: DbId, result: Result<Loaded, String>) {
        let Opening { name, config, command, again } = self.admin.end_opening(db);
        let wanted_again = again.map(|again| (again, config.clone()));
        let mismatch = |is: Model, not: Model| {
            let (is, not) = (is.name(), not.name());
            format!("ovsdb error: {name}: database is {is} and not {not}")
        };
        let result = match (result, config.model) {
            (Ok(loaded), Some(asked @ Model::Clustered)) if loaded.member.is_none() => {
                Err(mismatch(Model::Standalone, asked))
            }
            (Ok(loaded), Some(asked @ (Model::Standalone | Model::ActiveBackup)))
                if loaded.member.is_some() =>
            {
                Err(mismatch(Model::Clustered, asked))
            }
            (result, _) => result.and_then(|loaded| self.check_name(loaded)),
        };
        let reply = match result {
            Ok(mut loaded) => {
                if let (Some((again, _)), Some(member)) = (&wanted_again, &mut loaded.member) {
                    member.opened.may_join_at(&again.remotes);
                }
                self.install(db, loaded);
                self.admin.to_open_again.is_open(&name);
                let Self { shell, databases, backups, clusters, .. } = self;
                // One that has not joined its cluster has no tables.
                if databases.get(db).is_none() {
                    clusters.part_mut(db).configured_keys = config.keys;
                } else {
                    databases.configure_keys(db, config.keys.clone());
                    backups.configure_database(shell, databases, db, config);
                }
                Ok(String::new())
            }
            Err(error) => {
                self.shell.ask(Effect::Close { db });
                Err(error)
            }
        };
        match (command, reply) {
            (Some(id), reply) => {
                self.shell.ask(Effect::CommandReply { id, reply });
                self.save_configuration();
            }
            (None, Err(error)) => {
                self.admin.open_failed(&mut self.shell, &name, &error);
                // Somebody may have added it otherwise.
                let is_free = |again: &Again| self.check_new_name(&again.db).is_ok();
                if let Some((again, config)) = wanted_again.filter(|(again, _)| is_free(again)) {
                    let now_us = self.shell.now_us();
                    self.admin.to_open_again.put_off(name, again, config, now_us);
                }
            }
            (None, Ok(_)) => {}
        }
        self.continue_reconfiguration();
    }

    fn check_name(&self, loaded: Loaded) -> Result<Loaded, String> {
        let of_member = loaded.member.as_ref().map(|member| member.opened.name.as_str());
        let schema = loaded.database.as_ref().map(|database| database.schema().name.as_str());
        assert!(of_member.is_some() || schema.is_some(), "a file has a name");
        // A member's file may name another database than its cluster has: it takes both names.
        [of_member, schema].into_iter().flatten().try_for_each(|name| self.check_new_name(name))?;
        Ok(loaded)
    }

    /// Whether a database that comes may have this name.
    pub(super) fn check_new_name(&self, name: &str) -> Result<(), String> {
        if name.starts_with('_') {
            return Err(format!("ovsdb error: {name}: names beginning with \"_\" are reserved"));
        }
        let is_taken = self.databases.by_name(name).is_some()
            || self.relays.by_name(name).is_some()
            || self.clusters.is_joining(name);
        if is_taken {
            return Err(format!("ovsdb error: {name}: duplicate database name"));
        }
        Ok(())
    }

    fn install(&mut self, db: DbId, mut loaded: Loaded) {
        if let Some(warning) = &loaded.warning {
            self.shell.log("ovsdb_server", Level::Error, warning.clone());
        }
        for reason in &loaded.passed_over.reasons {
            self.shell.log("ovsdb_server", Level::Error, reason.clone());
        }
        let passed_over = loaded.passed_over.records;
        if passed_over > 0 {
            let path = &loaded.path;
            let text = format!(
                "{path}: {passed_over} records that break integrity were passed over; they stay in \
                 the file until somebody asks for its compaction"
            );
            self.shell.log("ovsdb_server", Level::Warning, text);
        }
        let of_member = loaded.member.as_ref().map(|member| member.opened.name.clone());
        let schema = loaded.database.as_ref().map(|database| &database.schema().name);
        let name = of_member.or(schema.cloned()).unwrap_or_default();
        let keys = loaded.declared_keys(&name);
        if let Some(member) = loaded.member {
            let tables = loaded.database.map(|database| (database, loaded.history));
            return self.install_member(db, loaded.path, (tables, keys), *member);
        }
        let database = loaded.database.take().expect("a standalone file has a schema");
        let whole = self.admin.files().whole_columns;
        let form = if whole { Form::Whole } else { Form::Difference };
        let storage = Storage::Standalone(Standalone::new(&mut self.shell, &loaded, form));
        let mut history = loaded.history;
        if self.admin.files().no_history {
            history.disable();
        }
        self.add_database(db, database, (storage, Some(history)));
        self.databases.begin_keys(&mut self.shell, db, keys);
    }

    /// A member's file has been read: it takes its part in the cluster, and its tables are served if
    /// it has joined.
    fn install_member(
        &mut self,
        db: DbId,
        path: String,
        (tables, keys): (Option<(Database, History)>, KeptKeys),
        file: MemberFile,
    ) {
        let now_us = self.shell.now_us();
        let name = file.opened.name.clone();
        let member = Member::open(file.opened, now_us);
        let part_file = PartFile {
            path: path.clone(),
            snapshot_offset: file.snapshot_offset,
            log_offset: file.log_offset,
            size: file.valid_len,
            keys: keys.clone(),
        };
        self.clusters.insert(&mut self.shell, db, member, part_file);
        if file.has_bare {
            self.clusters.part_mut(db).growth.note_bare();
        }
        if let Some((database, history)) = tables {
            let storage = Storage::Clustered(Clustered::new(path));
            self.add_database(db, database, (storage, Some(history)));
            self.databases.begin_keys(&mut self.shell, db, keys);
        } else {
            self.remotes.await_database(&name);
            self.show_joining(db);
        }
        // Before the member connects to others.
        self.remotes.tell_tls(&mut self.shell, &self.databases);
        self.run_member(db);
    }

    /// Clients are to know of a server that has not joined its cluster.
    fn show_joining(&mut self, db: DbId) {
        let part = self.clusters.part_mut(db);
        let (name, sid) = (part.member.name().to_owned(), part.member.id());
        part.told.cluster = part.member.cluster();
        part.has_row = true;
        let cluster = part.told.cluster.unwrap_or(Uuid::ZERO);
        let row = self.shell.uuids().next_uuid();
        let insert = server_db::insert_joining(&name, cluster, sid, row);
        self.databases.change_server_db(&mut self.shell, &insert);
        self.disconnect_unaware(&format!("adding {name} database"));
    }

    /// A database is served from now on.
    pub(super) fn add_database(
        &mut self,
        id: DbId,
        database: Database,
        (storage, history): (Storage, Option<History>),
    ) {
        let (name, schema) = (database.schema().name.clone(), database.schema().clone());
        self.databases.insert(&mut self.shell, id, database, (storage, history));
        self.remotes.await_no_more(&name);
        // The rows of a relay and of a server that joins its cluster are there before their tables.
        let relayed = self.relays.get(id).map(|relay| relay.name.as_str());
        let joining = self.clusters.part(id).filter(|part| part.has_row);
        let shown = relayed.or(joining.map(|part| part.member.name()));
        let (operation, why) = match shown {
            Some(shown) => (
                server_db::set_schema(shown, &schema),
                format!("database {name} connected to storage"),
            ),
            None => {
                let row = self.shell.uuids().next_uuid();
                (server_db::insert(&name, &schema, row), format!("adding {name} database"))
            }
        };
        self.databases.change_server_db(&mut self.shell, &operation);
        let knows_other = |session: &Session| session.is_unaware() && !session.awaits_source();
        self.disconnect_where(&why, knows_other);
        self.remotes_changed();
    }
}

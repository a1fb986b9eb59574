//! From one configuration to the next: at the start, and at each `ovsdb-server/reload`.
//!
//! 1. The configuration is read: one that cannot be read changes nothing.
//! 2. Databases that are not in it go; those that stay the same are not disturbed.
//! 3. New ones are opened. While that takes, admin commands that reconfigure wait.
//! 4. Remotes follow, since databases may say what they are. What failed is told at the end.

use crate::clusters::Part;
use crate::configuration::{Configuration, DbConfig, Model};
use crate::effect::{Effect, Level};
use crate::ids::DbId;
use crate::options::Config;
use crate::server::Server;

/// How the name of a relay begins.
const RELAY: &str = "relay:";

impl Server {
    /// The first configuration: of a file, of the child before this one, or of the command line.
    pub(super) fn begin(&mut self, config: Config) {
        self.admin.begin_start();
        if let Some(path) = config.config_file {
            return self.shell.ask(Effect::ReadConfiguration { path });
        }
        let configuration = match &config.saved {
            Some(saved) => match self.admin.parse(&mut self.shell, saved) {
                Some(configuration) => configuration,
                None => {
                    let text = "failed to load configuration from a temporary file";
                    return self.admin.fail_start(text.to_owned());
                }
            },
            None => self.of_command_line(config),
        };
        self.reconfigure(configuration);
    }

    fn of_command_line(&mut self, config: Config) -> Configuration {
        let Config { sync_from, sync_exclude, sync_active, databases, remotes, .. } = config;
        let is_backup = sync_from.is_some() && !sync_active;
        self.backups.configure(sync_from.clone(), sync_exclude.clone(), is_backup);
        let databases =
            databases.into_iter().filter_map(|name| match self.config_of_new_db(name) {
                Ok(database) => Some(database),
                Err(error) => {
                    self.admin.fail_start(error);
                    None
                }
            });
        let databases = databases.collect();
        Configuration {
            databases,
            remotes: remotes.into_iter().map(|target| (target, Default::default())).collect(),
            sync_from,
            sync_exclude,
            is_backup,
        }
    }

    /// A database of the command line or of `add-db`: a file, or `relay:DB:REMOTES`.
    ///
    /// # Errors
    /// A relay without a remote.
    pub(super) fn config_of_new_db(&self, name: String) -> Result<(String, DbConfig), String> {
        let Some(relay) = name.strip_prefix(RELAY) else {
            return Ok((name, self.backups.config_of_new_db()));
        };
        let (db, target) =
            relay.split_once(':').ok_or_else(|| format!("ovsdb error: {name}: invalid syntax"))?;
        Ok((db.to_owned(), self.backups.config_of_new_relay(target)))
    }

    /// The configuration file has been read, or not; answers with what is in it.
    pub(super) fn configuration_read(
        &mut self,
        result: Result<Vec<u8>, String>,
    ) -> Option<Configuration> {
        let path = self.admin.config_file().unwrap_or_default().to_owned();
        let shell = &mut self.shell;
        let configuration = match result {
            Ok(bytes) => {
                let text = format!("loading configuration from '{path}'");
                shell.log("ovsdb_server", Level::Info, text);
                let configuration = self.admin.parse(shell, &bytes);
                if configuration.is_none() {
                    let text = format!("failed to load configuration from {path}");
                    shell.log("ovsdb_server", Level::Warning, text);
                }
                configuration
            }
            Err(error) => {
                let text = format!("failed to open configuration file '{path}': {error}");
                shell.log("ovsdb_server", Level::Error, text);
                None
            }
        };
        if configuration.is_none() {
            self.end_reconfiguration(false);
        }
        configuration
    }

    /// Databases that go, or go and come back, when a configuration takes effect.
    pub(super) fn leaving(&self, configuration: &Configuration) -> Vec<DbId> {
        let stays = |id: DbId, path: &str| {
            let mut files = configuration.databases.iter();
            let wanted =
                files.find(|(name, config)| name == path && config.model != Some(Model::Relay));
            wanted.is_some_and(|(_, config)| self.model(id).can_become(config.model))
        };
        let with_file =
            self.databases.iter().filter_map(|(id, db)| Some((id, db.storage().path()?)));
        with_file.filter(|(id, path)| !stays(*id, path)).map(|(id, _)| id).collect()
    }

    /// A configuration takes effect; what goes is decided, or would have to be by its cluster.
    pub(super) fn reconfigure(&mut self, configuration: Configuration) {
        let Configuration { remotes, databases, sync_from, sync_exclude, is_backup } =
            configuration;
        self.admin.take_effect();
        self.remotes.configure(remotes);
        self.backups.configure(sync_from, sync_exclude, is_backup);
        let is_relay = |(_, config): &(String, DbConfig)| config.model == Some(Model::Relay);
        let (relays, files): (Vec<_>, Vec<_>) = databases.into_iter().partition(is_relay);
        let files = self.update_databases(files);
        let files = self.update_joining(files);
        for (name, config) in self.update_relays(relays) {
            match self.check_new_name(&name) {
                Ok(()) => self.begin_relay(name, config),
                Err(error) => self.admin.open_failed(&mut self.shell, &name, &error),
            }
        }
        if !self.admin.serves() {
            self.relays.await_first_rows(self.shell.now_us());
        }
        for (name, config) in files {
            self.open_database(name, config, None);
        }
        self.continue_reconfiguration();
    }

    /// How a database with a file is served.
    fn model(&self, id: DbId) -> Model {
        let is_clustered = self.clusters.part(id).is_some();
        if is_clustered { Model::Clustered } else { self.backups.model(id) }
    }

    /// Removes and changes databases; those of the configuration that are not open yet.
    fn update_databases(&mut self, mut wanted: Vec<(String, DbConfig)>) -> Vec<(String, DbConfig)> {
        let open = self.databases.iter().filter_map(|(id, db)| {
            Some((id, db.name().to_owned(), db.storage().path()?.to_owned()))
        });
        let open: Vec<(DbId, String, String)> = open.collect();
        for (id, name, path) in open {
            let Some(at) = wanted.iter().position(|(wanted, _)| *wanted == path) else {
                let reason = format!("database {name} removed from configuration");
                self.remove_database(id, &reason);
                continue;
            };
            if self.model(id).can_become(wanted[at].1.model) {
                let (_, config) = wanted.remove(at);
                let Self { shell, databases, backups, .. } = self;
                databases.configure_keys(id, config.keys.clone());
                backups.configure_database(shell, databases, id, config);
            } else {
                let reason = format!("service model changed for database {name}");
                self.remove_database(id, &reason);
            }
        }
        wanted
    }

    /// Removes and changes members that have no tables yet; those of the configuration that are none.
    fn update_joining(&mut self, mut wanted: Vec<(String, DbConfig)>) -> Vec<(String, DbConfig)> {
        let joining = self.joining().map(|(db, part)| (db, part.path.clone()));
        for (db, path) in joining.collect::<Vec<(DbId, String)>>() {
            let at = wanted.iter().position(|(wanted, _)| *wanted == path);
            match at.filter(|at| Model::Clustered.can_become(wanted[*at].1.model)) {
                Some(at) => {
                    let (_, config) = wanted.remove(at);
                    self.clusters.part_mut(db).configured_keys = config.keys;
                }
                None => {
                    let name = self.clusters.part_mut(db).member.name();
                    let reason = format!("database {name} removed from configuration");
                    self.remove_joining(db, &reason);
                }
            }
        }
        wanted
    }

    /// Members that have no tables: they have not joined their clusters, or not again.
    pub(super) fn joining(&self) -> impl Iterator<Item = (DbId, &Part)> {
        let parts = self.clusters.parts.iter().map(|(db, part)| (*db, part));
        parts.filter(|(db, _)| self.databases.get(*db).is_none())
    }

    /// Goes on once every database of the configuration has been opened or refused.
    pub(super) fn continue_reconfiguration(&mut self) {
        if !self.admin.is_taking_effect() || self.admin.is_opening() {
            return;
        }
        let mut is_done = !self.admin.has_failed();
        if !is_done {
            self.shell.log("ovsdb_server", Level::Warning, "failed to configure databases");
        }
        let errors = self.remotes.errors(&self.databases);
        if !errors.is_empty() {
            let text = format!("failed to configure remotes: {errors}");
            self.shell.log("ovsdb_server", Level::Warning, text);
            is_done = false;
        }
        self.end_reconfiguration(is_done);
    }

    fn end_reconfiguration(&mut self, is_done: bool) {
        let (command, next) = self.admin.end_reconfiguration();
        match command {
            Some(id) => {
                let error = "Configuration failed.  See the log file for details.";
                let reply = if is_done { Ok(String::new()) } else { Err(error.to_owned()) };
                self.shell.ask(Effect::CommandReply { id, reply });
            }
            None if !is_done => {
                return self.admin.fail_start("server configuration failed".to_owned());
            }
            None => {}
        }
        self.remotes.start();
        self.remotes_changed();
        self.save_configuration();
        for id in next {
            self.admin.begin_reload(&mut self.shell, id);
        }
    }

    /// Hands the shell what a child that takes this one's place after a crash is to begin with.
    pub(super) fn save_configuration(&mut self) {
        if self.admin.config_file().is_some() || self.admin.is_reconfiguring() {
            return;
        }
        let (databases, backups) = (&self.databases, &self.backups);
        let config = |(id, db): (DbId, &crate::database::Db)| {
            let config = DbConfig { model: Some(self.model(id)), ..backups.config(id, db) };
            Some((db.storage().path()?.to_owned(), config))
        };
        // One that has not joined its cluster has no tables, and one that joins again no part yet.
        let clustered = || DbConfig { model: Some(Model::Clustered), ..DbConfig::default() };
        let joining = self.joining().map(|(_, part)| (part.path.clone(), clustered()));
        let relays = self.relays.by_db.values().map(|relay| (relay.name.clone(), relay.config()));
        let mut configuration = Configuration {
            remotes: self.remotes.configured().clone(),
            databases: databases
                .iter()
                .filter_map(config)
                .chain(joining)
                .chain(relays)
                .chain(self.admin.reopening())
                .collect(),
            ..Configuration::default()
        };
        backups.describe(&mut configuration);
        let bytes = configuration.to_value().to_string().into_bytes();
        self.shell.ask(Effect::SaveConfiguration { bytes });
    }
}

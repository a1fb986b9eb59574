//! From one configuration to the next: at the start, and at each `ovsdb-server/reload`.
//!
//! 1. The configuration is read: one that cannot be read changes nothing.
//! 2. Databases that are not in it go; those that stay the same are not disturbed.
//! 3. New ones are opened. While that takes, admin commands that reconfigure wait.
//! 4. Remotes follow, since databases may say what they are. What failed is told at the end.

use crate::admin::configuration::{Configuration, DbConfig, Model};
use crate::backup::replication::ActiveBackup;
use crate::effect::{Effect, Level};
use crate::event::{CommandId, DbId, Now};
use crate::server::{Config, Server};

/// A reconfiguration under way.
#[derive(Debug, Default)]
pub(crate) struct Reconfiguration {
    /// Something could not be done.
    failed: bool,
    /// Who asked for it; nobody at the start.
    command: Option<CommandId>,
    /// Who asked for another one meanwhile.
    next: Vec<CommandId>,
}

/// A database that is being opened.
#[derive(Debug)]
pub(crate) struct Opening {
    /// The file, as given.
    pub(crate) name: String,
    /// How it is to be served.
    pub(crate) config: DbConfig,
    /// The `add-db` command; otherwise it is part of a reconfiguration.
    pub(crate) command: Option<CommandId>,
}

impl Server {
    /// The first configuration: of a file, of the child before this one, or of the command line.
    pub(crate) fn begin(&mut self, now: Now, config: Config) {
        self.reconfiguring = Some(Reconfiguration::default());
        if let Some(path) = config.config_file {
            self.effect(Effect::ReadConfiguration { path });
            return;
        }
        let configuration = match &config.saved {
            Some(saved) => match self.parse_configuration(saved) {
                Some(configuration) => configuration,
                None => {
                    let text = "failed to load configuration from a temporary file";
                    return self.start_errors.push(text.to_owned());
                }
            },
            None => self.of_command_line(config),
        };
        self.reconfigure(now, configuration);
    }

    fn of_command_line(&mut self, config: Config) -> Configuration {
        self.sync.is_backup = config.sync_from.is_some() && !config.sync_active;
        self.sync.from.clone_from(&config.sync_from);
        self.sync.exclude.clone_from(&config.sync_exclude);
        let of_db = self.config_of_new_db();
        let databases = config.databases.into_iter().map(|name| (name, of_db.clone()));
        Configuration {
            databases: databases.collect(),
            remotes: config
                .remotes
                .into_iter()
                .map(|target| (target, Default::default()))
                .collect(),
            sync_from: config.sync_from,
            sync_exclude: config.sync_exclude,
            is_backup: self.sync.is_backup,
        }
    }

    /// `ovsdb-server/reload`; answered when all is done.
    pub(crate) fn reload(&mut self, id: CommandId) {
        let Some(path) = self.config_file.clone() else {
            let reply = Err("Configuration file was not specified on command line".into());
            return self.effect(Effect::CommandReply { id, reply });
        };
        if let Some(now) = &mut self.reconfiguring {
            return now.next.push(id);
        }
        self.reconfiguring =
            Some(Reconfiguration { command: Some(id), ..Reconfiguration::default() });
        self.effect(Effect::ReadConfiguration { path });
    }

    /// The configuration file has been read, or not.
    pub(crate) fn configuration_read(&mut self, now: Now, result: Result<Vec<u8>, String>) {
        let path = self.config_file.clone().unwrap_or_default();
        let configuration = match result {
            Ok(bytes) => {
                let text = format!("loading configuration from '{path}'");
                self.log("ovsdb_server", Level::Info, text);
                let configuration = self.parse_configuration(&bytes);
                if configuration.is_none() {
                    let text = format!("failed to load configuration from {path}");
                    self.log("ovsdb_server", Level::Warning, text);
                }
                configuration
            }
            Err(error) => {
                let text = format!("failed to open configuration file '{path}': {error}");
                self.log("ovsdb_server", Level::Error, text);
                None
            }
        };
        match configuration {
            Some(configuration) => self.reconfigure(now, configuration),
            None => self.end_reconfiguration(false),
        }
    }

    fn parse_configuration(&mut self, bytes: &[u8]) -> Option<Configuration> {
        let mut warnings = Vec::new();
        let configuration = Configuration::parse(bytes, &mut warnings);
        for warning in warnings {
            self.log("ovsdb_server", Level::Warning, warning);
        }
        configuration
    }

    fn reconfigure(&mut self, now: Now, configuration: Configuration) {
        let Configuration { remotes, databases, sync_from, sync_exclude, is_backup } =
            configuration;
        self.remotes.configure(remotes);
        (self.sync.from, self.sync.exclude) = (sync_from, sync_exclude);
        self.sync.is_backup = is_backup;
        let new = self.update_databases(now, databases);
        for (name, config) in new {
            self.open_configured(name, config);
        }
        self.continue_reconfiguration();
    }

    /// Removes and changes databases; those of the configuration that are not open yet.
    fn update_databases(
        &mut self,
        now: Now,
        mut wanted: Vec<(String, DbConfig)>,
    ) -> Vec<(String, DbConfig)> {
        let open: Vec<(DbId, String, String)> = self
            .dbs
            .iter_mut()
            .filter_map(|(id, db)| Some((id, db.name.clone(), db.standalone()?.path.clone())))
            .collect();
        for (id, name, path) in open {
            let Some(at) = wanted.iter().position(|(wanted, _)| *wanted == path) else {
                let reason = format!("database {name} removed from configuration");
                self.remove_database(now, id, &reason);
                continue;
            };
            let model = self.dbs.get(&id).map_or(Model::Standalone, |db| db.model());
            if model.can_become(wanted[at].1.model) {
                let (_, config) = wanted.remove(at);
                self.configure_database(id, config);
            } else {
                let reason = format!("service model changed for database {name}");
                self.remove_database(now, id, &reason);
            }
        }
        wanted
    }

    fn open_configured(&mut self, name: String, config: DbConfig) {
        if config.model == Some(Model::Relay) {
            let error = "ovsdb error: this version does not serve relay databases yet";
            return self.open_failed(&name, error);
        }
        self.open_database(name, config, None);
    }

    /// A database of the configuration cannot be served.
    pub(crate) fn open_failed(&mut self, name: &str, error: &str) {
        let text = format!("failed to open database '{name}': {error}");
        self.log("ovsdb_server", Level::Warning, text);
        if let Some(reconfiguration) = &mut self.reconfiguring {
            reconfiguration.failed = true;
        }
    }

    /// An open database is served like this from now on.
    pub(crate) fn configure_database(&mut self, id: DbId, config: DbConfig) {
        let DbConfig { model, source, backup, exclude } = config;
        let Some(db) = self.dbs.get_mut(&id) else { return };
        if model != Some(Model::ActiveBackup) {
            self.stop_following(id);
            if let Some(db) = self.dbs.get_mut(&id) {
                db.active_backup = None;
            }
            return;
        }
        let following = db.active_backup.take().and_then(|backup| backup.following);
        db.active_backup = Some(ActiveBackup { source, exclude, following });
        if backup { self.start_following(id) } else { self.stop_following(id) }
    }

    /// Goes on once every database of the configuration has been opened or refused.
    pub(crate) fn continue_reconfiguration(&mut self) {
        let is_part = |opening: &Opening| opening.command.is_none();
        let Some(reconfiguration) = &self.reconfiguring else { return };
        if self.opening.values().any(is_part) {
            return;
        }
        let mut done = !reconfiguration.failed;
        if !done {
            self.log("ovsdb_server", Level::Warning, "failed to configure databases");
        }
        let errors = self.remote_errors();
        if !errors.is_empty() {
            let text = format!("failed to configure remotes: {errors}");
            self.log("ovsdb_server", Level::Warning, text);
            done = false;
        }
        self.end_reconfiguration(done);
    }

    fn end_reconfiguration(&mut self, done: bool) {
        let Some(reconfiguration) = self.reconfiguring.take() else { return };
        let Reconfiguration { command, next, .. } = reconfiguration;
        match command {
            Some(id) => {
                let error = "Configuration failed.  See the log file for details.";
                let reply = if done { Ok(String::new()) } else { Err(error.to_owned()) };
                self.effect(Effect::CommandReply { id, reply });
            }
            None if !done => {
                return self.start_errors.push("server configuration failed".to_owned());
            }
            None => {}
        }
        self.remotes.start();
        self.remotes_changed();
        self.save_configuration();
        for id in next {
            self.reload(id);
        }
    }
}

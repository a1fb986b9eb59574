//! Active-backup databases (ovsdb-server(7), "Active-Backup Database Service Model"): the server
//! side of [`weir_upstream::Replication`].
//!
//! While a database follows its source only the source changes it. Each update is a transaction
//! like a client's: its record joins the round's append, and monitors learn of it when it is
//! written. If it cannot be written, it is taken back and the rows are asked for again.

use std::sync::Arc;

use weir_data::{Delta, Error, RowImage};
use weir_engine::replicate;
use weir_upstream::replication::Input;
use weir_upstream::{Output, Replication, Status};

use crate::admin::configuration::{Configuration, check_excluded, excluded_tables};
use crate::admin::configuration::{DbConfig, Model, RELAY_PROBE_MS, REPLICATION_PROBE_MS, Source};
use crate::backup::mirror::Mirror;
use crate::database::Storage;
use crate::effect::{Effect, Level};
use crate::event::{DbId, LinkId, Now};
use crate::server::Server;

/// What the command line and admin commands say about replication, for all databases.
#[derive(Clone, Debug)]
pub(crate) struct Sync {
    /// The active server.
    pub(crate) from: Option<String>,
    /// `--sync-exclude-tables`, as given.
    pub(crate) exclude: Option<String>,
    /// Databases that come later begin as backups.
    pub(crate) is_backup: bool,
    pub(crate) probe_ms: u64,
    pub(crate) relay_probe_ms: u64,
}

impl Default for Sync {
    fn default() -> Self {
        Self {
            from: None,
            exclude: None,
            is_backup: false,
            probe_ms: REPLICATION_PROBE_MS,
            relay_probe_ms: RELAY_PROBE_MS,
        }
    }
}

/// What makes a database an active-backup one.
#[derive(Debug)]
pub(crate) struct ActiveBackup {
    /// Whom it follows, or would.
    pub(crate) source: Option<Source>,
    /// Tables left alone, as given.
    pub(crate) exclude: Option<String>,
    /// While it is a backup.
    pub(crate) following: Option<Following>,
}

/// A replication under way.
#[derive(Debug)]
pub(crate) struct Following {
    pub(crate) replication: Replication,
    /// As given when it began.
    exclude: Option<String>,
    /// The connection, or the attempt.
    pub(crate) link: Option<LinkId>,
    /// Long messages of the source.
    pub(crate) mirror: Mirror,
}

/// A set of rows from the source.
enum Images {
    /// All that there are.
    All(Vec<RowImage>),
    /// Those that changed.
    Some(Vec<RowImage>),
}

impl Server {
    /// Something happened to a connection that this server has made.
    pub(crate) fn link_event(&mut self, now: Now, link: LinkId, input: Input<'_>) {
        let Some(&id) = self.links.get(&link) else { return };
        if let Input::Down(_) = input {
            self.links.remove(&link);
            if let Some(following) = self.following(id) {
                following.link = None;
                following.mirror.forget();
            }
        }
        self.replicate(now, id, input);
    }

    /// When the next replication has something to do.
    pub(crate) fn next_replication_us(&self) -> Option<u64> {
        let following = |db: &crate::database::Db| {
            db.active_backup.as_ref()?.following.as_ref()?.replication.next_wakeup_us()
        };
        self.dbs.values().filter_map(following).min()
    }

    pub(crate) fn run_replications(&mut self, now: Now) {
        if self.next_replication_us().is_none_or(|at| at > now.monotonic_us) {
            return;
        }
        for id in self.dbs.ids() {
            self.replicate(now, id, Input::Tick);
        }
    }

    pub(crate) fn following(&mut self, id: DbId) -> Option<&mut Following> {
        self.dbs.get_mut(&id)?.active_backup.as_mut()?.following.as_mut()
    }

    pub(crate) fn replicate(&mut self, now: Now, id: DbId, input: Input<'_>) {
        let Some(following) = self.following(id) else { return };
        let mut outputs = Vec::new();
        following.replication.handle(now.monotonic_us, input, &mut outputs);
        self.carry_out(now, id, outputs);
    }

    pub(crate) fn carry_out(&mut self, now: Now, id: DbId, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Connect => self.connect(id),
                Output::Send(bytes) => {
                    let link = self.following(id).and_then(|following| following.link);
                    link.into_iter().for_each(|link| {
                        self.effect(Effect::SendTo { link, bytes: bytes.clone() });
                    });
                }
                Output::Close => self.close_link(id),
                Output::Replace(images) => self.take_images(now, id, Images::All(images)),
                Output::Update(images) => self.take_images(now, id, Images::Some(images)),
                Output::Failed => self.replication_failed(id),
                Output::Log { module, level, text } => self.log(module, severity(level), text),
            }
        }
    }

    fn connect(&mut self, id: DbId) {
        self.next_link += 1;
        let link = LinkId(self.next_link);
        let Some(backup) = self.dbs.get_mut(&id).and_then(|db| db.active_backup.as_mut()) else {
            return;
        };
        let dscp = backup.source.as_ref().and_then(|source| source.dscp);
        let Some(following) = backup.following.as_mut() else { return };
        following.link = Some(link);
        let target = following.replication.source().target.clone();
        self.links.insert(link, id);
        self.effect(Effect::Connect { link, target, dscp });
    }

    fn close_link(&mut self, id: DbId) {
        let Some(link) = self.following(id).and_then(|following| following.link.take()) else {
            return;
        };
        if let Some(following) = self.following(id) {
            following.mirror.forget();
        }
        self.links.remove(&link);
        self.effect(Effect::CloseLink { link });
    }

    /// The source's rows become this database's, in one transaction.
    fn take_images(&mut self, now: Now, id: DbId, images: Images) {
        let Some(db) = self.dbs.get_mut(&id) else { return };
        let Some(following) = db.active_backup.as_mut().and_then(|b| b.following.as_mut()) else {
            return;
        };
        let schema = Arc::clone(db.engine.schema());
        if !Arc::ptr_eq(&schema, following.replication.schema()) {
            // A conversion from before it became a backup has ended meanwhile.
            self.stop_following(id);
            return self.start_following(id);
        }
        if db.conversions.is_frozen() {
            return self.replication_not_written(now, id);
        }
        // A long transaction from before it became a backup is still at work.
        let Some(engine) = db.engine.here_mut() else {
            return self.replication_not_written(now, id);
        };
        let result = match images {
            Images::Some(images) => replicate::apply_images(engine, images, &mut self.uuids),
            Images::All(images) => {
                let excluded = &following.replication.source().excluded;
                let replaces = |table| !excluded.contains(&schema.table(table).name);
                replicate::replace_rows(engine, images, replaces, &mut self.uuids)
            }
        };
        match result {
            Ok(delta) if delta.is_empty() => {}
            Ok(delta) => self.replicated(now, id, delta),
            Err(error) => self.refuse_images(now, id, &error),
        }
    }

    pub(crate) fn refuse_images(&mut self, now: Now, id: DbId, error: &Error) {
        let Some(following) = self.following(id) else { return };
        let mut outputs = Vec::new();
        following.replication.fail(error, &mut outputs);
        self.carry_out(now, id, outputs);
    }

    fn replicated(&mut self, now: Now, id: DbId, delta: Delta) {
        self.join_round(now, id, delta);
        self.wake(now, id);
    }

    /// What the source said could not be written: it is asked again.
    pub(crate) fn replication_not_written(&mut self, now: Now, id: DbId) {
        let Some(following) = self.following(id) else { return };
        let mut outputs = Vec::new();
        following.replication.restart(now.monotonic_us, &mut outputs);
        self.carry_out(now, id, outputs);
    }

    /// A replication has ended by itself. All databases become active that share its configuration:
    /// those of the command line.
    fn replication_failed(&mut self, id: DbId) {
        self.stop_following(id);
        if self.config_file.is_none() {
            self.stop_all_following();
            self.save_configuration();
        }
    }

    fn stop_all_following(&mut self) {
        self.sync.is_backup = false;
        let ids = self.dbs.ids();
        ids.into_iter().for_each(|id| self.stop_following(id));
    }

    /// The database is active from now on.
    pub(crate) fn stop_following(&mut self, id: DbId) {
        self.close_link(id);
        if let Some(backup) = self.dbs.get_mut(&id).and_then(|db| db.active_backup.as_mut()) {
            backup.following = None;
        }
    }

    /// The database is a backup from now on; a replication that is under way and the same goes on.
    pub(crate) fn start_following(&mut self, id: DbId) {
        let own_id = self.id;
        let Some(db) = self.dbs.get_mut(&id) else { return };
        let (name, schema) = (db.name.clone(), Arc::clone(db.engine.schema()));
        let Some(backup) = db.active_backup.as_mut() else { return };
        let Some(source) = backup.source.clone() else { return };
        let (exclude, options) = (backup.exclude.clone(), source.session_options());
        if let Some(following) = &mut backup.following
            && following.exclude == exclude
            && following.replication.source().target == source.target
        {
            return following.replication.set_options(options);
        }
        let list = exclude.as_deref().unwrap_or_default();
        let followed = weir_upstream::Source {
            target: source.target,
            options,
            own_id,
            excluded: excluded_tables(list, &name).map(str::to_owned).collect(),
        };
        let replication = Replication::new(followed, schema);
        self.close_link(id);
        let backup = self.dbs.get_mut(&id).and_then(|db| db.active_backup.as_mut());
        if let Some(backup) = backup {
            backup.following =
                Some(Following { replication, exclude, link: None, mirror: Mirror::default() });
        }
    }

    /// Whether every database follows a source: then clients may not even lock.
    pub(crate) fn is_all_backup(&self) -> bool {
        let mut own = self.dbs.values().filter(|db| !db.is_reserved()).peekable();
        own.peek().is_some() && own.all(|db| db.is_backup())
    }

    /// The configuration of a database of the command line or of `add-db`.
    pub(crate) fn config_of_new_db(&self) -> DbConfig {
        match &self.sync.from {
            None => DbConfig::default(),
            Some(from) => DbConfig {
                model: Some(Model::ActiveBackup),
                source: Some(Source::new(from, self.sync.probe_ms)),
                backup: self.sync.is_backup,
                exclude: self.sync.exclude.clone(),
            },
        }
    }

    /// Hands the shell what a child that takes this one's place after a crash is to begin with.
    pub(crate) fn save_configuration(&mut self) {
        if self.config_file.is_some() || self.reconfiguring.is_some() {
            return;
        }
        let config = |db: &crate::database::Db| match &db.storage {
            Storage::Memory => None,
            Storage::Standalone(file) => Some((file.path.clone(), db.config())),
        };
        let configuration = Configuration {
            remotes: self.remotes.configured().clone(),
            databases: self.dbs.values().filter_map(config).collect(),
            sync_from: self.sync.from.clone(),
            sync_exclude: self.sync.exclude.clone(),
            is_backup: self.sync.is_backup,
        };
        let bytes = configuration.to_value().to_string().into_bytes();
        self.effect(Effect::SaveConfiguration { bytes });
    }
}

fn severity(level: weir_upstream::Level) -> Level {
    match level {
        weir_upstream::Level::Error => Level::Error,
        weir_upstream::Level::Warning => Level::Warning,
        weir_upstream::Level::Info => Level::Info,
        weir_upstream::Level::Debug => Level::Debug,
    }
}

/// The admin commands.
impl Server {
    /// `ovsdb-server/set-active-ovsdb-server`: takes effect when replications begin next.
    pub(crate) fn set_active_server(&mut self, target: &str) -> Result<String, String> {
        self.sync.from = Some(target.to_owned());
        for backup in self.dbs.values_mut().filter_map(|db| db.active_backup.as_mut()) {
            match &mut backup.source {
                Some(source) => target.clone_into(&mut source.target),
                None => backup.source = Some(Source::new(target, self.sync.probe_ms)),
            }
        }
        self.save_configuration();
        Ok(String::new())
    }

    /// `ovsdb-server/connect-active-ovsdb-server`
    pub(crate) fn connect_active_server(&mut self) -> Result<String, String> {
        let Some(from) = self.sync.from.clone() else {
            return Ok("Unable to connect: active server is not specified.\n".into());
        };
        for id in self.dbs.ids() {
            let Some(db) = self.dbs.get_mut(&id).filter(|db| !db.is_reserved()) else { continue };
            let backup = db.active_backup.get_or_insert_with(|| ActiveBackup {
                source: Some(Source::new(&from, self.sync.probe_ms)),
                exclude: self.sync.exclude.clone(),
                following: None,
            });
            if backup.following.is_none() {
                self.start_following(id);
            }
        }
        self.sync.is_backup = true;
        self.save_configuration();
        Ok(String::new())
    }

    /// `ovsdb-server/disconnect-active-ovsdb-server`
    pub(crate) fn disconnect_active_server(&mut self) -> Result<String, String> {
        self.stop_all_following();
        self.save_configuration();
        Ok(String::new())
    }

    /// `ovsdb-server/set-active-ovsdb-server-probe-interval`
    pub(crate) fn set_replication_probe(&mut self, argument: &str) -> Result<String, String> {
        let probe_ms = probe_ms(argument)?;
        self.sync.probe_ms = probe_ms;
        self.change_backups(|backup| {
            backup.source.iter_mut().for_each(|source| source.probe_ms = probe_ms);
        });
        Ok(String::new())
    }

    /// `ovsdb-server/set-relay-source-probe-interval`
    pub(crate) fn set_relay_probe(&mut self, argument: &str) -> Result<String, String> {
        self.sync.relay_probe_ms = probe_ms(argument)?;
        Ok(String::new())
    }

    /// `ovsdb-server/set-sync-exclude-tables`: a list that cannot be read is no error for
    /// ovs-appctl.
    pub(crate) fn set_excluded_tables(&mut self, list: &str) -> Result<String, String> {
        if let Err(error) = check_excluded(list) {
            return Ok(error);
        }
        self.sync.exclude = Some(list.to_owned());
        self.change_backups(|backup| backup.exclude = Some(list.to_owned()));
        Ok(String::new())
    }

    /// Changes how databases are replicated; replications that this concerns begin anew.
    fn change_backups(&mut self, change: impl Fn(&mut ActiveBackup)) {
        for id in self.dbs.ids() {
            let Some(backup) = self.dbs.get_mut(&id).and_then(|db| db.active_backup.as_mut())
            else {
                continue;
            };
            change(backup);
            if backup.following.is_some() {
                self.start_following(id);
            }
        }
        self.save_configuration();
    }

    /// `ovsdb-server/sync-status`
    pub(crate) fn sync_status(&self) -> String {
        let mut text = String::new();
        let last = self.db_names.len().saturating_sub(1);
        for (at, (name, id)) in self.db_names.iter().enumerate() {
            let Some(backup) = self.dbs.get(id).and_then(|db| db.active_backup.as_ref()) else {
                continue;
            };
            let state = if backup.following.is_some() { "backup" } else { "active" };
            text += &format!("database: {name}\nstate: {state}\n");
            if let Some(following) = &backup.following {
                text += &following.status(name);
            }
            if at < last {
                text.push('\n');
            }
        }
        if text.is_empty() { "state: active\n".into() } else { text }
    }
}

impl Following {
    fn status(&self, db: &str) -> String {
        let source = self.replication.source();
        let target = &source.target;
        match self.replication.status() {
            Status::Connecting => format!("connecting: {target}"),
            Status::Replicating if source.excluded.is_empty() => {
                format!("replicating: {target}\n")
            }
            Status::Replicating => {
                let excluded = source.excluded.iter().map(|table| format!("{db}:{table}"));
                let excluded: Vec<String> = excluded.collect();
                format!("replicating: {target}\nexclude: {}", excluded.join(","))
            }
            Status::Failed => format!("Replication to ({target}) failed"),
        }
    }
}

/// Milliseconds; what is below zero is as short as can be.
fn probe_ms(argument: &str) -> Result<u64, String> {
    let ms: i32 = argument.parse().map_err(|_| "Invalid probe interval, integer value expected")?;
    Ok(u64::try_from(ms).unwrap_or(1))
}

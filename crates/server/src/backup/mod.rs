//! Active-backup databases (ovsdb-server(7), "Active-Backup Database Service Model"): which databases
//! follow a source, and how that is configured.

mod commands;
mod mirror;
mod replication;

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_data::DeclaredKeys;
use weir_data::Uuid;
use weir_upstream::follower::backup::Backup;
use weir_upstream::follower::{Follower, Model as Part, Wanted};
use weir_upstream::remotes::Remotes;

use crate::backup::mirror::Mirror;
use crate::configuration::{
    Configuration, DbConfig, Model, RELAY_PROBE_MS, REPLICATION_PROBE_MS, Source, excluded_tables,
};
use crate::database::{Databases, Db};
use crate::effect::{Effect, Framing};
use crate::ids::{DbId, LinkId, WorkId};
use crate::shell::Shell;

/// What the command line and admin commands say about replication, for all databases.
#[derive(Clone, Debug)]
struct Sync {
    /// The active server.
    from: Option<String>,
    /// `--sync-exclude-tables`, as given.
    exclude: Option<String>,
    /// Databases that come later begin as backups.
    is_backup: bool,
    probe_ms: u64,
    relay_probe_ms: u64,
    /// Longest pause of relays between attempts to reach their sources.
    relay_backoff_ms: u64,
}

impl Default for Sync {
    fn default() -> Self {
        Self {
            from: None,
            exclude: None,
            is_backup: false,
            probe_ms: REPLICATION_PROBE_MS,
            relay_probe_ms: RELAY_PROBE_MS,
            relay_backoff_ms: weir_upstream::backoff::MS_MAX,
        }
    }
}

/// What makes a database an active-backup one.
#[derive(Debug)]
struct ActiveBackup {
    /// Whom it follows, or would.
    source: Option<Source>,
    /// Tables left alone, as given.
    exclude: Option<String>,
    /// While it is a backup.
    following: Option<Following>,
}

/// A replication under way.
#[derive(Debug)]
struct Following {
    follower: Follower,
    backup: Arc<Backup>,
    /// The source, as it was called when it began.
    target: String,
    /// As given when it began.
    exclude: Option<String>,
    /// The connection, or the attempt.
    link: Option<LinkId>,
    /// Long messages of the source.
    mirror: Mirror,
}

/// All active-backup databases.
pub(crate) struct Backups {
    /// What get_server_id answers: no server follows itself.
    own_id: Uuid,
    sync: Sync,
    by_db: BTreeMap<DbId, ActiveBackup>,
    /// Connections that databases have made to their sources.
    links: BTreeMap<LinkId, DbId>,
    next_link: u64,
    /// Long messages of sources that are with a helper.
    out: BTreeMap<WorkId, (LinkId, DbId)>,
    /// Something has changed that a child in this process's place must know.
    is_changed: bool,
    /// A configuration file says who follows whom.
    is_from_file: bool,
}

impl Backups {
    pub(crate) fn new(own_id: Uuid, is_from_file: bool) -> Self {
        Self {
            own_id,
            is_from_file,
            sync: Sync::default(),
            by_db: BTreeMap::new(),
            links: BTreeMap::new(),
            next_link: 0,
            out: BTreeMap::new(),
            is_changed: false,
        }
    }

    /// What is configured for databases to come.
    pub(crate) fn configure(
        &mut self,
        from: Option<String>,
        exclude: Option<String>,
        is_backup: bool,
    ) {
        (self.sync.from, self.sync.exclude, self.sync.is_backup) = (from, exclude, is_backup);
    }

    /// Adds what is configured here.
    pub(crate) fn describe(&self, configuration: &mut Configuration) {
        configuration.sync_from.clone_from(&self.sync.from);
        configuration.sync_exclude.clone_from(&self.sync.exclude);
        configuration.is_backup = self.sync.is_backup;
    }

    /// Whether something has changed that a child in this process's place must know; asked once.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// How a database that is in no cluster is served.
    pub(crate) fn model(&self, id: DbId) -> Model {
        if self.by_db.contains_key(&id) { Model::ActiveBackup } else { Model::Standalone }
    }

    /// What a configuration says of a database, but for how it is served.
    pub(crate) fn config(&self, id: DbId, db: &Db) -> DbConfig {
        let backup = self.by_db.get(&id);
        DbConfig {
            model: None,
            source: backup.and_then(|backup| backup.source.clone()),
            backup: db.is_backup(),
            exclude: backup.and_then(|backup| backup.exclude.clone()),
            keys: db.configured_keys().clone(),
        }
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
                keys: DeclaredKeys::default(),
            },
        }
    }

    /// The configuration of a relay of the command line or of `add-db`.
    pub(crate) fn config_of_new_relay(&self, target: &str) -> DbConfig {
        let source = Source::new(target, self.sync.relay_probe_ms);
        let source = Source { max_backoff_ms: self.sync.relay_backoff_ms, ..source };
        DbConfig { model: Some(Model::Relay), source: Some(source), ..DbConfig::default() }
    }

    /// A database is served like this from now on.
    pub(crate) fn configure_database(
        &mut self,
        shell: &mut Shell,
        databases: &mut Databases,
        id: DbId,
        config: DbConfig,
    ) {
        let DbConfig { model, source, backup, exclude, .. } = config;
        if model != Some(Model::ActiveBackup) {
            return self.forget(shell, databases, id);
        }
        let following = self.by_db.remove(&id).and_then(|backup| backup.following);
        self.by_db.insert(id, ActiveBackup { source, exclude, following });
        if backup {
            self.start_following(shell, databases, id);
        } else {
            self.stop_following(shell, databases, id);
        }
    }

    /// A database goes, or follows nobody any more.
    pub(crate) fn forget(&mut self, shell: &mut Shell, databases: &mut Databases, id: DbId) {
        self.stop_following(shell, databases, id);
        self.by_db.remove(&id);
    }

    fn following(&mut self, id: DbId) -> Option<&mut Following> {
        self.by_db.get_mut(&id)?.following.as_mut()
    }

    /// When the next replication has something to do.
    #[inline]
    pub(crate) fn next_us(&self) -> Option<u64> {
        if self.by_db.is_empty() {
            return None;
        }
        let following =
            |backup: &ActiveBackup| backup.following.as_ref()?.follower.next_wakeup_us();
        self.by_db.values().filter_map(following).min()
    }

    fn connect(&mut self, shell: &mut Shell, id: DbId, target: String) {
        self.next_link += 1;
        let link = LinkId(self.next_link);
        let backup = self.by_db.get_mut(&id).expect("only who follows connects");
        let dscp = backup.source.as_ref().and_then(|source| source.dscp);
        let following = backup.following.as_mut().expect("only who follows connects");
        following.link = Some(link);
        self.links.insert(link, id);
        shell.ask(Effect::Connect { link, target, dscp, framing: Framing::Json });
    }

    fn close_link(&mut self, shell: &mut Shell, id: DbId) {
        let Some(following) = self.following(id) else { return };
        let Some(link) = following.link.take() else { return };
        following.mirror.forget();
        self.links.remove(&link);
        shell.ask(Effect::CloseLink { link });
    }

    fn stop_all_following(&mut self, shell: &mut Shell, databases: &mut Databases) {
        self.sync.is_backup = false;
        let ids: Vec<DbId> = self.by_db.keys().copied().collect();
        ids.into_iter().for_each(|id| self.stop_following(shell, databases, id));
    }

    /// The database is active from now on.
    fn stop_following(&mut self, shell: &mut Shell, databases: &mut Databases, id: DbId) {
        self.close_link(shell, id);
        databases.set_backup(id, false);
        if let Some(backup) = self.by_db.get_mut(&id) {
            backup.following = None;
        }
    }

    /// The database is a backup from now on; a replication that is under way and the same goes on.
    fn start_following(&mut self, shell: &mut Shell, databases: &mut Databases, id: DbId) {
        let db = databases.get(id).expect("only an open database follows");
        let (name, schema) = (db.name().to_owned(), Arc::clone(db.schema()));
        let backup = self.by_db.get_mut(&id).expect("only an active-backup database follows");
        // An active database need not know whom it would follow.
        let Some(source) = backup.source.clone() else { return };
        let (exclude, options) = (backup.exclude.clone(), source.session_options());
        if let Some(following) = &mut backup.following
            && following.exclude == exclude
            && following.target == source.target
        {
            return following.follower.set_options(options);
        }
        let list = exclude.as_deref().unwrap_or_default();
        let excluded = excluded_tables(list, &name).map(str::to_owned).collect();
        let part = Arc::new(Backup { own_id: self.own_id, excluded, schema });
        let wanted = Wanted {
            database: name,
            remotes: Remotes::one(&source.target),
            leader_only: false,
            options,
            model: Part::Backup(Arc::clone(&part)),
        };
        // Pauses are those of the reference.
        let follower = Follower::new(wanted, 0);
        self.close_link(shell, id);
        databases.set_backup(id, true);
        self.by_db.get_mut(&id).expect("it was there").following = Some(Following {
            follower,
            backup: part,
            target: source.target,
            exclude,
            link: None,
            mirror: Mirror::default(),
        });
    }

    /// What helpers read of sources: for which databases.
    pub(crate) fn at_work(&self) -> impl Iterator<Item = DbId> {
        self.out.values().map(|(_, db)| *db)
    }
}

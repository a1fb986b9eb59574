//! What operators ask, and what they are shown: how far the start has come, reconfigurations under
//! way, and the shell's own figures.

pub(crate) mod again;
pub mod overview;
pub mod unixctl;

use std::collections::BTreeMap;

use crate::admin::again::{Again, ToOpenAgain};
use crate::configuration::{Configuration, DbConfig};
use crate::effect::{Effect, Level};
use crate::event::HostStatus;
use crate::ids::{CommandId, DbId};
use crate::options::{FileForms, StartStatus};
use crate::shell::Shell;

/// How often the rules for automatic compaction are looked at, in microseconds.
const COMPACTION_CHECK_US: u64 = 10_000_000;

/// A reconfiguration under way.
#[derive(Debug, Default)]
struct Reconfiguration {
    /// The configuration has been read, and what it says is being done.
    takes_effect: bool,
    /// Something could not be done.
    has_failed: bool,
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
    /// How the database is to be served.
    pub(crate) config: DbConfig,
    /// The `add-db` command; otherwise it is part of a reconfiguration, or opened again.
    pub(crate) command: Option<CommandId>,
    /// What the database was, if it was served before.
    pub(crate) again: Option<Again>,
}

/// What operators ask, and what they are shown.
pub(crate) struct Admin {
    config_file: Option<String>,
    reconfiguring: Option<Reconfiguration>,
    opening: BTreeMap<DbId, Opening>,
    pub(crate) to_open_again: ToOpenAgain,
    /// Why the server cannot start.
    start_errors: Vec<String>,
    /// The shell has heard that all is open: what is connected to comes after that.
    serves: bool,
    /// What the shell has told for `weir/status`.
    host_status: HostStatus,
    /// Bytes queued for clients, as told last.
    backlog: usize,
    /// Bytes queued for members of clusters, as told last.
    peers_backlog: usize,
    trims: bool,
    files: FileForms,
    /// When the rules for automatic compaction are looked at next.
    compaction_check_us: u64,
}

impl Admin {
    pub(crate) fn new(config_file: Option<String>, files: FileForms) -> Self {
        Self {
            config_file,
            reconfiguring: None,
            opening: BTreeMap::new(),
            to_open_again: ToOpenAgain::default(),
            start_errors: Vec::new(),
            serves: false,
            host_status: HostStatus::default(),
            backlog: 0,
            peers_backlog: 0,
            trims: true,
            files,
            compaction_check_us: 0,
        }
    }

    pub(crate) fn config_file(&self) -> Option<&str> {
        self.config_file.as_deref()
    }

    /// How far the start has come; listeners have been tried, or not.
    pub(crate) fn start_status(&self, are_listeners_tried: bool) -> StartStatus {
        if !self.start_errors.is_empty() {
            StartStatus::Failed(self.start_errors.clone())
        } else if self.reconfiguring.is_none() && are_listeners_tried {
            StartStatus::Ready
        } else {
            StartStatus::Starting
        }
    }

    /// The shell learns now how far the start has come.
    pub(crate) fn note_status(&mut self, are_listeners_tried: bool) {
        let is_ready = self.start_errors.is_empty() && self.reconfiguring.is_none();
        self.serves |= is_ready && are_listeners_tried;
    }

    /// Whether the shell has heard that all is open.
    pub(crate) fn serves(&self) -> bool {
        self.serves
    }

    /// The server cannot start, for this reason.
    pub(crate) fn fail_start(&mut self, error: String) {
        self.start_errors.push(error);
    }

    pub(crate) fn set_host_status(&mut self, status: HostStatus) {
        self.host_status = status;
    }

    /// What the shell has told, once.
    pub(crate) fn take_host_status(&mut self) -> HostStatus {
        std::mem::take(&mut self.host_status)
    }

    pub(crate) fn set_backlog(&mut self, bytes: usize, peers: usize) {
        (self.backlog, self.peers_backlog) = (bytes, peers);
    }

    pub(crate) fn peers_backlog(&self) -> usize {
        self.peers_backlog
    }

    pub(crate) fn backlog(&self) -> usize {
        self.backlog
    }

    /// In which form files are written that are opened.
    pub(crate) fn files(&self) -> FileForms {
        self.files
    }

    /// Files that are opened are written as differences from now on.
    pub(crate) fn write_differences(&mut self) {
        self.files.whole_columns = false;
    }

    /// Changes are kept for clients that come back, or no longer.
    pub(crate) fn keep_history(&mut self, is_kept: bool) {
        self.files.no_history = !is_kept;
    }

    /// Whether freed memory is given back after a compaction.
    pub(crate) fn trims(&self) -> bool {
        self.trims
    }

    /// `ovsdb-server/memory-trim-on-compaction`
    pub(crate) fn set_trim(&mut self, shell: &mut Shell, argument: &str) -> Result<(), String> {
        let (on, word) = match argument {
            "on" => (true, "enabled"),
            "off" => (false, "disabled"),
            _ => return Err("invalid argument".into()),
        };
        self.trims = on;
        let text = format!("memory trimming after compaction {word}.");
        shell.log("ovsdb_server", Level::Info, text);
        Ok(())
    }

    /// When the rules for automatic compaction are looked at.
    pub(crate) fn next_compaction_us(&self) -> u64 {
        self.compaction_check_us
    }

    /// The rules for automatic compaction are being looked at.
    pub(crate) fn note_compaction_check(&mut self, shell: &Shell) {
        self.compaction_check_us = shell.now_us() + COMPACTION_CHECK_US;
    }

    /// A database file has been asked for.
    pub(crate) fn begin_opening(&mut self, db: DbId, opening: Opening) {
        self.opening.insert(db, opening);
    }

    /// A database file that was asked for has been read, or could not be.
    pub(crate) fn end_opening(&mut self, db: DbId) -> Opening {
        self.opening.remove(&db).expect("a file is answered for once")
    }

    /// A configuration takes effect. It says anew which files are to be opened: none is opened again that it does
    /// not name.
    pub(crate) fn take_effect(&mut self) {
        self.reconfiguring.as_mut().expect("it is under way").takes_effect = true;
        self.to_open_again.clear();
        self.opening.values_mut().for_each(|opening| opening.again = None);
    }

    /// Whether databases are being opened of the configuration.
    pub(crate) fn is_opening(&self) -> bool {
        self.opening.values().any(|opening| opening.command.is_none())
    }

    /// Whether the file of this database is being opened once more.
    pub(crate) fn is_opening_again(&self, db: &str) -> bool {
        let mut again = self.opening.values().filter_map(|opening| opening.again.as_ref());
        again.any(|again| again.db == db)
    }

    /// Databases that are being opened, or are to be, and were configured before.
    pub(crate) fn reopening(&self) -> impl Iterator<Item = (String, DbConfig)> + '_ {
        let configured = self.opening.values().filter(|opening| opening.command.is_none());
        let now = configured.map(|opening| (opening.name.clone(), opening.config.clone()));
        now.chain(self.to_open_again.iter())
    }

    /// A database of the configuration cannot be served.
    pub(crate) fn open_failed(&mut self, shell: &mut Shell, name: &str, error: &str) {
        let text = format!("failed to open database '{name}': {error}");
        shell.log("ovsdb_server", Level::Warning, text);
        if let Some(reconfiguration) = self.reconfiguring.as_mut().filter(|now| now.takes_effect) {
            reconfiguration.has_failed = true;
        }
    }

    /// Whether the server is on its way from one configuration to the next.
    pub(crate) fn is_reconfiguring(&self) -> bool {
        self.reconfiguring.is_some()
    }

    /// Whether a configuration takes effect. Before, files may be opened again of the one that there was.
    pub(crate) fn is_taking_effect(&self) -> bool {
        self.reconfiguring.as_ref().is_some_and(|now| now.takes_effect)
    }

    /// Whether a part of the reconfiguration under way has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.reconfiguring.as_ref().is_some_and(|now| now.has_failed)
    }

    /// The first configuration begins to take effect.
    pub(crate) fn begin_start(&mut self) {
        self.reconfiguring = Some(Reconfiguration::default());
    }

    /// A command asks for the configuration file to be read again: after what is under way.
    pub(crate) fn begin_reload(&mut self, shell: &mut Shell, id: CommandId) {
        let Some(path) = self.config_file.clone() else {
            let reply = Err("Configuration file was not specified on command line".into());
            return shell.ask(Effect::CommandReply { id, reply });
        };
        if let Some(now) = &mut self.reconfiguring {
            return now.next.push(id);
        }
        let command = Some(id);
        self.reconfiguring = Some(Reconfiguration { command, ..Reconfiguration::default() });
        shell.ask(Effect::ReadConfiguration { path });
    }

    /// The reconfiguration has come to its end: the command that asked for it, and those that ask
    /// for another one.
    pub(crate) fn end_reconfiguration(&mut self) -> (Option<CommandId>, Vec<CommandId>) {
        let ended = self.reconfiguring.take().expect("it was under way");
        (ended.command, ended.next)
    }

    /// Reads a configuration; what is wrong with it is logged.
    pub(crate) fn parse(&self, shell: &mut Shell, bytes: &[u8]) -> Option<Configuration> {
        let mut warnings = Vec::new();
        let configuration = Configuration::parse(bytes, &mut warnings);
        for warning in warnings {
            shell.log("ovsdb_server", Level::Warning, warning);
        }
        configuration
    }
}

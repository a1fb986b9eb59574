//! One open database: its tables, its monitors, its waiting transactions, and where its commits
//! go.

pub(crate) mod conversion;
pub(crate) mod databases;
pub(crate) mod server_db;
pub(crate) mod tables;
pub(crate) mod trigger;

use std::collections::{BTreeSet, VecDeque};

use weir_engine::Database;
use weir_monitor::Monitors;

use crate::admin::configuration::{DbConfig, Model};
use crate::backup::replication::ActiveBackup;
use crate::database::conversion::Conversions;
use crate::database::tables::Engine;
use crate::database::trigger::Waiting;
use crate::event::{CommandId, Now};
use crate::round::{
    FLUSH_AT_IDLE_MONITORS_MAX, FLUSH_BYTES_MAX, FLUSH_DELAY_US_EACH, FLUSH_DELAY_US_MAX,
    FLUSH_DELAY_US_MIN,
};
use crate::work::away::Queued;

/// Updates that come this soon after the last were sent are part of a stream, in microseconds.
const STREAM_US: u64 = 1000;

/// Where commits go: a closed enum, Clustered and Relay come later.
#[derive(Debug)]
pub(crate) enum Storage {
    /// Nowhere: `_Server`.
    Memory,
    /// A file in the standalone format (ovsdb(5)).
    Standalone(Standalone),
}

/// State of a standalone file.
#[derive(Debug)]
pub(crate) struct Standalone {
    /// As the user gave it, absolute.
    pub(crate) path: String,
    /// Current size in bytes.
    pub(crate) size: u64,
    /// Size when last compacted or opened.
    pub(crate) snapshot_size: u64,
    /// Records beyond the snapshot.
    pub(crate) records: u64,
    /// Records that were not replayed: they are lost when the file is rewritten, so that does not
    /// happen by itself.
    pub(crate) passed_over: u64,
    /// Bytes and records of the last append: what a failure takes back.
    pub(crate) appended: (u64, u64),
    /// When it was last compacted or opened, monotonic.
    pub(crate) compacted_us: u64,
    /// What automatic compaction waits beyond its shortest pause, so that files take turns.
    pub(crate) jitter_ms: u64,
    /// Why the last append failed, strerror(3) text; `None` while all is well.
    pub(crate) fault: Option<String>,
    /// When the file is to be rewritten, monotonic: fdatasync(2) has failed, and nobody knows what
    /// of the file is on the disk.
    pub(crate) rewrite_us: Option<u64>,
    /// A compaction under way.
    pub(crate) compaction: Option<Compaction>,
}

/// A compaction from the snapshot to the rename.
#[derive(Debug)]
pub(crate) struct Compaction {
    /// Records appended to the old file since the snapshot.
    pub(crate) tail: Vec<u8>,
    /// The admin commands that wait for it.
    pub(crate) commands: Vec<CommandId>,
    /// When it began, monotonic.
    pub(crate) started_us: u64,
    /// How many records the tail has.
    pub(crate) tail_records: u64,
    /// The copy is written; the rename has been asked for.
    pub(crate) finishing: bool,
}

/// One open database.
pub(crate) struct Db {
    /// The schema's name.
    pub(crate) name: String,
    /// Tables and commits.
    pub(crate) engine: Engine,
    /// Who watches.
    pub(crate) monitors: Monitors,
    /// Transactions that wait, in order of arrival.
    pub(crate) waiting: Waiting,
    /// Who needs the tables while they are away, in order of arrival.
    pub(crate) queue: VecDeque<Queued>,
    /// Where commits go.
    pub(crate) storage: Storage,
    /// Tables whose changes are logged (`tlog-set`).
    pub(crate) logged_tables: BTreeSet<String>,
    /// Conversions to another schema.
    pub(crate) conversions: Conversions,
    /// If it is an active-backup database.
    pub(crate) active_backup: Option<ActiveBackup>,
    /// Records of this round.
    pub(crate) append: Vec<u8>,
    /// How many bytes the last round had.
    pub(crate) append_room: usize,
    /// Number of those records.
    pub(crate) append_records: u64,
    /// Somebody in this round asked for durability.
    pub(crate) append_sync: bool,
    /// When updates began to wait to be sent.
    pub(crate) updates_since_us: Option<u64>,
    /// When updates were last sent.
    pub(crate) flushed_us: u64,
}

impl Db {
    /// A database without clients.
    pub(crate) fn new(engine: Database, storage: Storage, seed: u64) -> Self {
        Self {
            name: engine.schema().name.clone(),
            engine: Engine::new(engine),
            monitors: Monitors::new(seed),
            waiting: Waiting::default(),
            queue: VecDeque::new(),
            storage,
            logged_tables: BTreeSet::new(),
            conversions: Conversions::default(),
            active_backup: None,
            append: Vec::new(),
            append_room: 0,
            append_records: 0,
            append_sync: false,
            updates_since_us: None,
            flushed_us: 0,
        }
    }

    /// The file's state, if there is a file.
    pub(crate) fn standalone_ref(&self) -> Option<&Standalone> {
        match &self.storage {
            Storage::Memory => None,
            Storage::Standalone(file) => Some(file),
        }
    }

    /// The file's state, to change.
    pub(crate) fn standalone(&mut self) -> Option<&mut Standalone> {
        match &mut self.storage {
            Storage::Memory => None,
            Storage::Standalone(file) => Some(file),
        }
    }

    /// When a wait is over, or updates must leave.
    pub(crate) fn deadline_us(&self) -> Option<u64> {
        // While tables are away nobody can say whether a wait is over.
        let wait = self.waiting.deadline_us().filter(|_| !self.is_closed());
        [wait, self.flush_deadline_us()].into_iter().flatten().min()
    }

    /// When updates must leave that wait for an idle moment.
    pub(crate) fn flush_deadline_us(&self) -> Option<u64> {
        let since = self.updates_since_us.filter(|_| !self.engine.is_away())?;
        let of_all = self.monitors.len() as u64 * FLUSH_DELAY_US_EACH;
        Some(since + of_all.clamp(FLUSH_DELAY_US_MIN, FLUSH_DELAY_US_MAX))
    }

    /// Whether updates must leave now: they have waited long enough, or there are too many.
    pub(crate) fn is_flush_due(&self, now: Now) -> bool {
        self.updates_since_us.is_some()
            && (self.flush_deadline_us().is_some_and(|at| at <= now.monotonic_us)
                || self.monitors.pending_bytes() >= FLUSH_BYTES_MAX)
    }

    /// Whether updates wait that an idle moment is good enough for. In a stream of transactions to
    /// many monitors it is not: the next one is on its way, and one message will do for both.
    pub(crate) fn is_flush_wanted(&self) -> bool {
        let are_many = self.monitors.len() > FLUSH_AT_IDLE_MONITORS_MAX;
        let is_stream = |since| are_many && since < self.flushed_us.saturating_add(STREAM_US);
        // While the tables are away no update can be composed.
        !self.engine.is_away() && self.updates_since_us.is_some_and(|since| !is_stream(since))
    }

    /// Whether no transaction can run now: the tables are away, or about to be replaced.
    pub(crate) fn is_closed(&self) -> bool {
        self.engine.is_away() || self.conversions.is_frozen()
    }

    /// Whether it follows a source, which alone may write.
    pub(crate) fn is_backup(&self) -> bool {
        self.active_backup.as_ref().is_some_and(|backup| backup.following.is_some())
    }

    /// How it is served.
    pub(crate) fn model(&self) -> Model {
        if self.active_backup.is_some() { Model::ActiveBackup } else { Model::Standalone }
    }

    /// How it is served, as a configuration says it.
    pub(crate) fn config(&self) -> DbConfig {
        let backup = self.active_backup.as_ref();
        DbConfig {
            model: Some(self.model()),
            source: backup.and_then(|backup| backup.source.clone()),
            backup: self.is_backup(),
            exclude: backup.and_then(|backup| backup.exclude.clone()),
        }
    }

    /// Whether only the server itself may write.
    pub(crate) fn is_reserved(&self) -> bool {
        matches!(self.storage, Storage::Memory)
    }
}

//! Compaction: the file is rewritten from a snapshot by a helper while commits go on.
//!
//! 1. Snapshot taken; the helper writes it to a new file. Records appended meanwhile are kept.
//! 2. Written: those records are appended to the new file, which then takes the old one's place.

use weir_log::compact;

use crate::database::Db;
use crate::database::{Compaction, Standalone, Storage};
use crate::effect::{Effect, Level};
use crate::event::{CommandId, DbId, Now};
use crate::server::Server;
use crate::storage::faults::REWRITE_PAUSE_US;

/// How often the rules for automatic compaction are looked at, in microseconds.
const CHECK_US: u64 = 10_000_000;

/// `_comment` of a compacted file's snapshot.
const COMMENT: &str = "compacting database online";

impl Server {
    /// Begins a compaction, or joins the one under way.
    pub(crate) fn compact(&mut self, now: Now, id: DbId, command: Option<CommandId>) {
        let Some(db) = self.dbs.get_mut(&id) else { return };
        if db.conversions.is_busy() {
            return db.conversions.join(command);
        }
        let Some(snapshot) = db.engine.snapshot() else { return };
        let Storage::Standalone(file) = &mut db.storage else { return };
        if let Some(compaction) = &mut file.compaction {
            compaction.commands.extend(command);
            return;
        }
        file.compaction = Some(Compaction {
            tail: Vec::new(),
            commands: command.into_iter().collect(),
            started_us: now.monotonic_us,
            tail_records: 0,
            finishing: false,
        });
        let comment = COMMENT.to_owned();
        self.effect(Effect::Compact { db: id, snapshot, comment, date_ms: now.wall_ms });
    }

    pub(crate) fn compaction_written(&mut self, now: Now, id: DbId, result: Result<u64, String>) {
        let Some(file) = self.file(id) else { return };
        match result {
            Err(error) => self.compaction_failed(now, id, &error),
            Ok(_) => {
                let Some(compaction) = &mut file.compaction else { return };
                compaction.finishing = true;
                // The tail is complete: whatever is appended after this effect, before its answer,
                // goes to the new file.
                let tail = std::mem::take(&mut compaction.tail);
                self.effect(Effect::FinishCompaction { db: id, tail, sync: false });
            }
        }
    }

    pub(crate) fn compaction_finished(&mut self, now: Now, id: DbId, result: Result<u64, String>) {
        let size = match result {
            Err(error) => return self.compaction_failed(now, id, &error),
            Ok(size) => size,
        };
        let Some(file) = self.file(id) else { return };
        let Some(compaction) = file.compaction.take() else { return };
        // Whatever is wrong with the old file, this one is on the disk.
        let was_suspect = file.rewrite_us.take().is_some();
        file.size = size + compaction.tail.len() as u64;
        file.snapshot_size = size;
        file.records = compaction.tail_records;
        file.passed_over = 0;
        file.compacted_us = now.monotonic_us;
        let took_ms = now.monotonic_us.saturating_sub(compaction.started_us) / 1000;
        let path = file.path.clone();
        self.log("ovsdb", Level::Info, format!("{path}: compacted in {took_ms} ms"));
        for command in compaction.commands {
            self.effect(Effect::CommandReply { id: command, reply: Ok(String::new()) });
        }
        if was_suspect {
            self.note_append(id, None);
        }
        if self.trim_on_compaction {
            self.effect(Effect::TrimMemory);
        }
    }

    fn compaction_failed(&mut self, now: Now, id: DbId, error: &str) {
        let Some(file) = self.file(id) else { return };
        // Once is enough: it goes on being tried.
        let is_retry = file.rewrite_us.is_some();
        file.rewrite_us = file.rewrite_us.map(|_| now.monotonic_us + REWRITE_PAUSE_US);
        let commands = file.compaction.take().map(|compaction| compaction.commands);
        let path = file.path.clone();
        let text = format!("{path}: compaction failed: {error}");
        if !is_retry {
            self.log("ovsdb", Level::Warning, text.clone());
        }
        for id in commands.into_iter().flatten() {
            self.effect(Effect::CommandReply { id, reply: Err(text.clone()) });
        }
    }

    pub(crate) fn file(&mut self, id: DbId) -> Option<&mut Standalone> {
        self.dbs.get_mut(&id).and_then(|db| db.standalone())
    }

    /// Begins the automatic compactions that are due.
    pub(crate) fn compact_if_due(&mut self, now: Now) {
        // A snapshot has nothing in it that may still be taken back.
        if self.compaction_check_us > now.monotonic_us
            || self.next_compaction_us().is_none()
            || !self.round.is_decided()
        {
            return;
        }
        let is_due = |db: &Db| db.standalone_ref().is_some_and(|file| file.is_due(now));
        for id in self.dbs.ids_where(is_due) {
            self.compact(now, id, None);
        }
        self.compaction_check_us = now.monotonic_us + CHECK_US;
    }

    /// When the rules are looked at next: never while no file has anything to compact.
    pub(crate) fn next_compaction_us(&self) -> Option<u64> {
        let grown = |db: &Db| db.standalone_ref().is_some_and(|file| file.records > 0);
        let any = self.dbs.values().any(grown);
        any.then_some(self.compaction_check_us)
    }
}

impl Standalone {
    fn is_due(&self, now: Now) -> bool {
        let since_ms = now.monotonic_us.saturating_sub(self.compacted_us) / 1000;
        self.compaction.is_none()
            && self.passed_over == 0
            && compact::is_due(
                self.records,
                self.size,
                self.snapshot_size,
                since_ms,
                self.jitter_ms,
            )
    }
}

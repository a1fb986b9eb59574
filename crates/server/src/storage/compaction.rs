//! Compaction: the file is rewritten from a snapshot by a helper while commits go on.
//!
//! 1. Snapshot taken; the helper writes it to a new file. Records appended meanwhile are kept, up to
//!    [`TAIL_BYTES_MAX`]: beyond that the file stays as it is, and it is tried again later.
//! 2. Written: while there are many, the helper appends them to the new file and brings them to the disk.
//! 3. The rest is appended to the new file, which then takes the old one's place.

use weir_data::Snapshot;
use weir_history::Image;

use crate::effect::{Effect, Level};
use crate::ids::{CommandId, DbId};
use crate::shell::Shell;
use crate::storage::faults::REWRITE_PAUSE_US;
use crate::storage::standalone::Standalone;

/// `_comment` of a compacted file's snapshot.
const COMMENT: &str = "compacting database online";

/// Most bytes of records that are kept while a compaction is under way.
const TAIL_BYTES_MAX: usize = 256 << 20;

/// More than this is appended by the helper, and not in the loop.
const EXTEND_BYTES_MIN: usize = 2 << 20;

/// A compaction from the snapshot to the rename.
#[derive(Debug)]
pub(super) struct Compaction {
    /// Records appended to the old file since the snapshot, but for those that the helper has been given.
    tail: Vec<u8>,
    /// There were more of them than are kept.
    is_overrun: bool,
    /// The admin commands that wait for the end.
    commands: Vec<CommandId>,
    /// When it began, monotonic.
    started_us: u64,
    /// How many bytes the helper was given last: where as much has come meanwhile, it never ends.
    last_part: usize,
    /// How many records there are behind the snapshot.
    tail_records: u64,
    /// Length of the snapshot, once it is written.
    copy_len: Option<u64>,
    /// The copy is written, the rename has been asked for, and so many bytes have come since: they
    /// go to the new file.
    finishing: Option<u64>,
}

impl Compaction {
    pub(super) fn started_us(&self) -> u64 {
        self.started_us
    }

    pub(super) fn note_append(&mut self, bytes: &[u8], records: u64) {
        self.tail_records += records;
        match &mut self.finishing {
            None if self.is_overrun => {}
            None if self.tail.len() + bytes.len() > TAIL_BYTES_MAX => {
                self.is_overrun = true;
                self.tail = Vec::new();
            }
            None => self.tail.extend_from_slice(bytes),
            Some(behind) => *behind += bytes.len() as u64,
        }
    }

    /// Takes back the last append.
    pub(super) fn take_back(&mut self, bytes: u64, records: u64) {
        assert!(
            records <= self.tail_records,
            "a compaction begins where nothing is being appended"
        );
        self.tail_records -= records;
        match &mut self.finishing {
            None if self.is_overrun => {}
            None => self.tail.truncate(self.tail.len() - bytes as usize),
            Some(behind) => *behind -= bytes,
        }
    }
}

impl Standalone {
    pub(super) fn compact(
        &mut self,
        shell: &mut Shell,
        db: DbId,
        snapshot: Snapshot,
        image: impl FnOnce() -> Option<Box<Image>>,
        command: Option<CommandId>,
    ) {
        if let Some(compaction) = &mut self.compaction {
            compaction.commands.extend(command);
            return;
        }
        self.compaction = Some(Compaction {
            tail: Vec::new(),
            is_overrun: false,
            commands: command.into_iter().collect(),
            started_us: shell.now_us(),
            last_part: usize::MAX,
            tail_records: 0,
            copy_len: None,
            finishing: None,
        });
        let (comment, date_ms) = (COMMENT.to_owned(), shell.wall_ms());
        let (history, member) = (image(), None);
        shell.ask(Effect::Compact { db, snapshot, history, comment, date_ms, member });
    }

    pub(super) fn compaction_written(
        &mut self,
        shell: &mut Shell,
        db: DbId,
        result: Result<u64, String>,
    ) {
        let compaction = self.compaction.as_mut().expect("one at a time is asked for");
        match result {
            Err(error) => self.compaction_failed(shell, &error),
            Ok(_) if compaction.is_overrun => {
                let error = format!("more than {TAIL_BYTES_MAX} bytes were committed meanwhile");
                self.compaction_failed(shell, &error);
                // After the usual pause it is tried again.
                self.note_compacted(shell);
                shell.ask(Effect::DiscardCopy { db });
            }
            Ok(len) => {
                compaction.copy_len.get_or_insert(len);
                let part = compaction.tail.len();
                if part > EXTEND_BYTES_MIN && part <= compaction.last_part / 2 {
                    compaction.last_part = part;
                    let records = std::mem::take(&mut compaction.tail);
                    return shell.ask(Effect::ExtendCopy { db, records });
                }
                // The tail is complete: whatever is appended after this effect, before its answer,
                // goes to the new file.
                compaction.finishing = Some(0);
                let tail = std::mem::take(&mut compaction.tail);
                shell.ask(Effect::FinishCompaction { db, tail, sync: false, step: None });
            }
        }
    }

    pub(super) fn compaction_finished(
        &mut self,
        shell: &mut Shell,
        result: Result<u64, String>,
    ) -> bool {
        let size = match result {
            Err(error) => {
                self.compaction_failed(shell, &error);
                return false;
            }
            Ok(size) => size,
        };
        let compaction = self.compaction.take().expect("one at a time is asked for");
        self.replaced(shell, size, compaction.tail_records);
        self.snapshot_len = compaction.copy_len.expect("it was written");
        self.grow(compaction.finishing.expect("its end has been asked for"));
        let (path, took_ms) = (self.path().to_owned(), shell.elapsed_ms(compaction.started_us));
        shell.log("ovsdb", Level::Info, format!("{path}: compacted in {took_ms} ms"));
        for id in compaction.commands {
            shell.answer_command(id, Ok(String::new()));
        }
        true
    }

    /// The database is removed: nobody will answer who waits for a compaction.
    pub(super) fn close(&mut self, shell: &mut Shell) {
        for id in self.compaction.take().into_iter().flat_map(|compaction| compaction.commands) {
            shell.answer_command(id, Err("no database by that name".into()));
        }
    }

    fn compaction_failed(&mut self, shell: &mut Shell, error: &str) {
        let compaction = self.compaction.take().expect("one at a time is asked for");
        // A line once is enough: it goes on being tried.
        let is_retry = self.rewrite_us.is_some();
        self.rewrite_us = self.rewrite_us.map(|_| shell.now_us() + REWRITE_PAUSE_US);
        let text = format!("{}: compaction failed: {error}", self.path());
        if !is_retry {
            shell.log("ovsdb", Level::Warning, text.clone());
        }
        for id in compaction.commands {
            shell.answer_command(id, Err(text.clone()));
        }
    }
}

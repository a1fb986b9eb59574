//! The state of a standalone file (ovsdb(5)): what is in it, and how it does.

use weir_log::compact;
use weir_log::standalone::Form;

use crate::shell::Shell;
use crate::storage::compaction::Compaction;
use crate::storage::load::Loaded;

/// The state of a standalone file.
#[derive(Debug)]
pub(crate) struct Standalone {
    /// As the user gave it, absolute.
    path: String,
    /// In which form records are written.
    form: Form,
    /// Current size in bytes.
    size: u64,
    /// Size when last compacted or opened.
    snapshot_size: u64,
    /// Length of the first two records, the schema and the snapshot.
    pub(super) snapshot_len: u64,
    /// Records beyond the snapshot.
    records: u64,
    /// Records that were not replayed: they are lost when the file is rewritten, so that does not
    /// happen by itself.
    passed_over: u64,
    /// Bytes and records of the last append: what a failure takes back.
    last_append: (u64, u64),
    /// When the file was last compacted or opened, monotonic.
    compacted_us: u64,
    /// What automatic compaction waits beyond its shortest pause, so that files take turns.
    jitter_ms: u64,
    /// Why the last append failed, strerror(3) text; `None` while all is well.
    pub(super) fault: Option<String>,
    /// When the file is to be rewritten, monotonic: fdatasync(2) has failed, and nobody knows what
    /// of the file is on the disk.
    pub(super) rewrite_us: Option<u64>,
    /// A compaction under way.
    pub(super) compaction: Option<Compaction>,
}

impl Standalone {
    /// The file that a database was loaded from.
    pub(crate) fn new(shell: &mut Shell, loaded: &Loaded, form: Form) -> Self {
        Self {
            path: loaded.path.clone(),
            form,
            size: loaded.valid_len(),
            snapshot_size: loaded.snapshot_len,
            snapshot_len: loaded.snapshot_len,
            // The first two are the schema and the snapshot, if there are so many.
            records: loaded.records.saturating_sub(2),
            passed_over: loaded.passed_over.records,
            last_append: (0, 0),
            compacted_us: shell.now_us(),
            jitter_ms: shell.uuids().next_u64() % compact::JITTER_MS,
            fault: None,
            rewrite_us: None,
            compaction: None,
        }
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Length of the first two records in bytes: what a loader of the file finds, too.
    pub(crate) fn snapshot_len(&self) -> u64 {
        self.snapshot_len
    }

    pub(super) fn form(&self) -> Form {
        self.form
    }

    pub(super) fn write_differences(&mut self) {
        self.form = Form::Difference;
    }

    /// Current size, size when last compacted or opened, and records since, for `weir/status`.
    pub(crate) fn sizes(&self) -> (u64, u64, u64) {
        (self.size, self.snapshot_size, self.records)
    }

    /// When the compaction under way began, monotonic.
    pub(crate) fn compacting_since_us(&self) -> Option<u64> {
        self.compaction.as_ref().map(Compaction::started_us)
    }

    pub(super) fn is_compacting(&self) -> bool {
        self.compaction.is_some()
    }

    /// Keeps count of what goes to the file; a compaction under way needs a copy.
    pub(super) fn note_append(&mut self, bytes: &[u8], records: u64) {
        self.size += bytes.len() as u64;
        self.records += records;
        self.last_append = (bytes.len() as u64, records);
        if let Some(compaction) = &mut self.compaction {
            compaction.note_append(bytes, records);
        }
    }

    /// Takes back what [`Standalone::note_append`] counted.
    pub(super) fn take_back_append(&mut self) {
        let (bytes, records) = std::mem::take(&mut self.last_append);
        self.size -= bytes;
        self.records -= records;
        if let Some(compaction) = &mut self.compaction {
            compaction.take_back(bytes, records);
        }
    }

    /// A copy of this size has taken the file's place, and so many records have come since.
    pub(super) fn replaced(&mut self, shell: &mut Shell, size: u64, records: u64) {
        (self.size, self.snapshot_size, self.records) = (size, size, records);
        self.passed_over = 0;
        self.compacted_us = shell.now_us();
        // Whatever was wrong with the old file, this one is on the disk.
        if self.rewrite_us.take().is_some() {
            self.end_fault(shell);
        }
    }

    /// The next automatic compaction has its pause from now on.
    pub(super) fn note_compacted(&mut self, shell: &Shell) {
        self.compacted_us = shell.now_us();
    }

    /// Bytes of records that have come behind a snapshot.
    pub(super) fn grow(&mut self, bytes: u64) {
        self.size += bytes;
    }

    pub(super) fn has_grown(&self) -> bool {
        self.records > 0
    }

    pub(super) fn is_compaction_due(&self, shell: &Shell) -> bool {
        let since_ms = shell.elapsed_ms(self.compacted_us);
        let (records, size, before) = (self.records, self.size, self.snapshot_size);
        self.compaction.is_none()
            && self.passed_over == 0
            && compact::is_due(records, size, before, since_ms, self.jitter_ms)
    }
}

//! Where commits go: a closed enum, and what differs between its members as methods.

mod clustered;
mod compaction;
mod faults;
pub mod load;
mod member_file;
mod member_past;
mod past;
pub mod recovery;
mod standalone;

use weir_data::Snapshot;
use weir_history::Image;
use weir_log::standalone::Form;

use crate::ids::{CommandId, DbId};
use crate::shell::Shell;
use crate::text_limit::EntryLimit;

pub(crate) use clustered::Clustered;
pub(crate) use faults::REWRITE_PAUSE_US;
pub(crate) use member_file::{MemberFile, snapshot_header};
pub(crate) use standalone::Standalone;

/// Where commits go.
#[derive(Debug)]
pub(crate) enum Storage {
    /// Nowhere: `_Server`, which only the server itself writes.
    Reserved,
    /// A file in the standalone format (ovsdb(5)).
    Standalone(Standalone),
    /// The log of a cluster.
    Clustered(Clustered),
    /// The source of a relay: there is no file.
    Relay,
}

impl Storage {
    /// Whether only the server itself may write.
    pub(crate) fn is_reserved(&self) -> bool {
        matches!(self, Self::Reserved)
    }

    /// Whether commits are decided by a cluster.
    pub(crate) fn is_clustered(&self) -> bool {
        matches!(self, Self::Clustered(_))
    }

    /// Whether commits are decided by the source of a relay.
    pub(crate) fn is_relay(&self) -> bool {
        matches!(self, Self::Relay)
    }

    /// Whether commits are decided by more than this server, which then are states with ids of
    /// theirs.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_clustered() || self.is_relay()
    }

    /// Whether what runs here may change anything: in a cluster, only with the leader.
    pub(crate) fn may_write(&self) -> bool {
        match self {
            Self::Reserved | Self::Standalone(_) => true,
            Self::Clustered(clustered) => clustered.may_write(),
            Self::Relay => false,
        }
    }

    /// Whether this server leads a cluster, and has since this term began.
    pub(crate) fn leads_since(&self, term: u64) -> bool {
        matches!(self, Self::Clustered(clustered) if clustered.leads() == Some(term))
    }

    /// In which term this server leads the cluster, if it does, whether the cluster takes what it proposes, and how long
    /// entries may be.
    pub(crate) fn set_leads(&mut self, term: Option<u64>, may_write: bool, limit: EntryLimit) {
        if let Self::Clustered(clustered) = self {
            clustered.set_leads(term, may_write, limit);
        }
    }

    /// How long an entry of a cluster's log may be; `None` where changes are none.
    pub(crate) fn entry_limit(&self) -> Option<EntryLimit> {
        match self {
            Self::Clustered(clustered) => Some(clustered.entry_limit()),
            Self::Reserved | Self::Standalone(_) | Self::Relay => None,
        }
    }

    /// In which form a commit's record is written; `None` if commits are not kept, and so wait for
    /// nothing.
    pub(crate) fn record_form(&self) -> Option<Form> {
        match self {
            Self::Reserved => None,
            Self::Standalone(file) => Some(file.form()),
            // A relay keeps none of what helpers make before the source is asked.
            Self::Clustered(_) | Self::Relay => Some(Form::Difference),
        }
    }

    /// The file's path as the user gave it, absolute.
    pub(crate) fn path(&self) -> Option<&str> {
        match self {
            Self::Reserved | Self::Relay => None,
            Self::Standalone(file) => Some(file.path()),
            Self::Clustered(clustered) => Some(clustered.path()),
        }
    }

    /// The file, if there is one.
    pub(crate) fn file(&self) -> Option<&Standalone> {
        match self {
            Self::Reserved | Self::Clustered(_) | Self::Relay => None,
            Self::Standalone(file) => Some(file),
        }
    }

    /// The file, for what only files are asked.
    fn file_mut(&mut self) -> &mut Standalone {
        match self {
            Self::Reserved | Self::Relay => panic!("the shell has no file of such a database"),
            Self::Clustered(_) => panic!("the cluster writes its file itself"),
            Self::Standalone(file) => file,
        }
    }

    /// Records are written as differences from now on (`ovsdb/file/column-diff-enable`).
    pub(crate) fn write_differences(&mut self) {
        if let Self::Standalone(file) = self {
            file.write_differences();
        }
    }

    /// Records are on their way to the file.
    pub(crate) fn note_append(&mut self, bytes: &[u8], records: u64) {
        self.file_mut().note_append(bytes, records);
    }

    /// How the last append ended: `None`, or the error as strerror(3) text.
    pub(crate) fn appended(&mut self, shell: &mut Shell, error: Option<&str>) {
        self.file_mut().appended(shell, error);
    }

    /// What of the file is on the disk is not known: it must be rewritten.
    pub(crate) fn suspect(&mut self, shell: &Shell) {
        self.file_mut().suspect(shell);
    }

    /// Whether the file is being rewritten.
    pub(crate) fn is_compacting(&self) -> bool {
        self.file().is_some_and(Standalone::is_compacting)
    }

    /// Begins a compaction, or joins the one under way.
    pub(crate) fn compact(
        &mut self,
        shell: &mut Shell,
        db: DbId,
        snapshot: Snapshot,
        history: impl FnOnce() -> Option<Box<Image>>,
        command: Option<CommandId>,
    ) {
        self.file_mut().compact(shell, db, snapshot, history, command);
    }

    /// The compacted copy is complete but for what was appended meanwhile.
    pub(crate) fn compaction_written(
        &mut self,
        shell: &mut Shell,
        db: DbId,
        result: Result<u64, String>,
    ) {
        self.file_mut().compaction_written(shell, db, result);
    }

    /// The compacted copy has taken the file's place, or has not; true if it has.
    pub(crate) fn compaction_finished(
        &mut self,
        shell: &mut Shell,
        result: Result<u64, String>,
    ) -> bool {
        self.file_mut().compaction_finished(shell, result)
    }

    /// The database is removed: who waits for its compaction is told.
    pub(crate) fn close(&mut self, shell: &mut Shell) {
        if let Self::Standalone(file) = self {
            file.close(shell);
        }
    }

    /// A converted copy of this size has taken the file's place, with this many bytes of records
    /// behind its snapshot.
    pub(crate) fn replaced(&mut self, shell: &mut Shell, size: u64, behind: u64) {
        self.file_mut().replaced(shell, size, 0);
        self.file_mut().snapshot_len = size - behind;
    }

    /// Whether the rules for automatic compaction may ever ask for one.
    pub(crate) fn has_grown(&self) -> bool {
        self.file().is_some_and(Standalone::has_grown)
    }

    /// Whether the rules for automatic compaction ask for one now.
    pub(crate) fn is_compaction_due(&self, shell: &Shell) -> bool {
        self.file().is_some_and(|file| file.is_compaction_due(shell))
    }

    /// When the file is to be rewritten because it is suspect, unless that is under way.
    pub(crate) fn rewrite_us(&self) -> Option<u64> {
        self.file().and_then(Standalone::rewrite_us)
    }

    /// What `ovsdb-server/get-db-storage-status` answers.
    pub(crate) fn status(&self) -> String {
        match self.file().and_then(Standalone::fault) {
            Some(fault) => format!("status: I/O error: write failed ({fault})"),
            None => "status: ok".into(),
        }
    }
}

//! What the header has told, and the log behind it.

use weir_data::{Error, Uuid};
use weir_json::Text;

use super::Problem;
use crate::clustered::raft_log::{
    Configuration, DataPlace, ELECTION_TIMER_MS_DEFAULT, Effect, RaftLog, SnapshotPlace,
};
use crate::clustered::{Header, Kind, Record, Servers, State};
use crate::record::Synced;

/// A file, as far as it has been read.
#[derive(Debug)]
pub(super) struct File {
    pub(super) server_id: Uuid,
    pub(super) local_address: String,
    pub(super) name: String,
    pub(super) cluster_id: Option<Uuid>,
    pub(super) remotes: Vec<String>,
    pub(super) snapshot: Option<SnapshotPlace>,
    pub(super) log: RaftLog,
    /// The last record that is no entry says how much was on the disk.
    pub(super) tells_synced: bool,
}

impl File {
    pub(super) fn new(header: Header<'_>, place: impl Fn(Text<'_>, Uuid) -> DataPlace) -> Self {
        let Header { server_id, local_address, name, cluster_id, state } = header;
        let (remotes, servers, snapshot) = match state {
            State::Joining { remotes } => (remotes, Servers::new(), None),
            State::Joined { servers, snapshot } => (Vec::new(), servers, snapshot),
        };
        let election_timer = snapshot.and_then(|snapshot| snapshot.election_timer);
        let election_timer = election_timer.unwrap_or(ELECTION_TIMER_MS_DEFAULT);
        let base = Configuration { servers, election_timer };
        let (index, term) = snapshot.map_or((0, 0), |snapshot| (snapshot.index, snapshot.term));
        let log = RaftLog::new(index, term, base);
        let snapshot = snapshot.map(|snapshot| SnapshotPlace {
            index,
            term,
            data: place(snapshot.data, snapshot.eid),
        });
        Self {
            server_id,
            local_address,
            name,
            cluster_id,
            remotes,
            snapshot,
            log,
            tells_synced: false,
        }
    }

    pub(super) fn record(
        &mut self,
        number: u64,
        record: Record<'_>,
        place: Option<DataPlace>,
    ) -> Result<Effect, Problem> {
        if !matches!(record.kind, Kind::Entry(_)) {
            let comment = record.comment.as_deref().map(str::as_bytes);
            self.tells_synced = comment.is_some_and(|comment| Synced::of(comment).is_some());
        }
        let taken = self.log.record(number, record, place);
        taken.map_err(|why| self.wrap(number, Error::ovsdb(why)))
    }

    /// A problem with what the record of this number says; that behind the header is number 1.
    pub(super) fn wrap(&self, number: u64, error: Error) -> Problem {
        let name = &self.name;
        error.wrapped(&format!("error reading record {number} from {name} log")).into()
    }
}

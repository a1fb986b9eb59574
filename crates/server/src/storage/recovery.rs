//! What a new cluster begins with that is made from the file of one that is lost
//! (`docs/decisions/022`).
//!
//! The new cluster has other ids, so that no server of the old one takes part by mistake, and so has its
//! first state: what was committed last may be in none of the files, and who asked for it may ask again, so
//! that what has a state's id in the new cluster need not be what had it in the old one.
//!
//! Clients and relays refuse servers whose index is below one that they have seen (ovsdb-server(5), column
//! `index`), of whatever cluster. So the indexes of the new one begin far above those of the old one, also
//! where the file lacks the last entries.

use std::sync::Arc;

pub use weir_cluster::Position;
use weir_cluster::{Mark, PLACE_MAX};
use weir_data::{Snapshot, UuidSource};
use weir_log::clustered::{Kind, Loaded, Record, Servers};

use crate::effect::MemberHeader;
use crate::load::member_snapshot;

/// The indexes of a new cluster begin at a multiple of this: more than any cluster writes while a
/// server that is still there when it is lost lacks entries.
const INDEXES_APART: u64 = 1_000_000_000;

/// Where the log of a file ends. Of the files of a majority the one that ends last has all that was
/// acknowledged, as raft judges who may lead (section 5.4.1 of its paper).
pub fn log_end(loaded: &Loaded) -> Position {
    let last = loaded.entries.last().map(|entry| (entry.term, entry.index));
    let snapshot = loaded.snapshot.as_ref().map(|snapshot| (snapshot.term, snapshot.index));
    let (term, index) = last.or(snapshot).unwrap_or_default();
    Position { term, index }
}

/// The header of the file of the new cluster's first server, at the address `local`. It goes before the
/// rows that `loaded` has.
pub fn new_cluster(loaded: &Loaded, local: &str, uuids: &mut UuidSource) -> MemberHeader {
    let end = log_end(loaded);
    let server = uuids.next_uuid();
    let mark = Mark {
        last: Position { term: end.term, index: index_after(end.index) },
        eid: uuids.next_uuid(),
        servers: Arc::new(Servers::from([(server, local.to_owned())])),
        election_timer: loaded.latest.election_timer,
    };
    MemberHeader {
        server,
        address: local.to_owned(),
        name: loaded.name.clone(),
        cluster: Some(uuids.next_uuid()),
        mark,
    }
}

/// The file of the new cluster's first server. It says which term it is, behind the snapshot, as files of members do:
/// a packaged server would begin with the first one, and nobody could read what it wrote.
pub fn new_file(header: &MemberHeader, rows: &Snapshot, comment: &str, date_ms: i64) -> Vec<u8> {
    let mut file = member_snapshot(header, rows, comment, date_ms);
    let term = header.mark.last.term;
    Record { comment: None, term, kind: Kind::Term }.write(&mut file);
    file
}

/// Where indexes go on behind those of a cluster whose last known one is `index`.
fn index_after(index: u64) -> u64 {
    let next = (index / INDEXES_APART + 1).checked_mul(INDEXES_APART);
    next.filter(|next| *next <= PLACE_MAX).unwrap_or(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_go_on_above_all_that_may_have_been_seen() {
        for (last, next) in [
            (1, 1_000_000_000),
            (999_999_999, 1_000_000_000),
            (1_000_000_000, 2_000_000_000),
            (PLACE_MAX, PLACE_MAX),
            (u64::MAX, u64::MAX),
        ] {
            assert_eq!(index_after(last), next, "behind {last}");
        }
    }
}

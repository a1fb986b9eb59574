//! What a member writes down: the records of a clustered file behind its header (ovsdb(5)).

use weir_data::Uuid;
use weir_json::validate;
use weir_log::clustered::{self, Kind, Record};

use crate::entry::{Content, Entry};

/// One step's records: term and vote first, then entries, then the commit index, so that each
/// beginning of it is a file that makes sense.
pub(crate) fn write_step(
    vote: Option<(u64, Option<Uuid>)>,
    entries: &[Entry],
    commit: Option<u64>,
    out: &mut Vec<u8>,
) {
    if let Some((term, vote)) = vote {
        write_term(term, vote, out);
    }
    entries.iter().for_each(|entry| write_entry(entry, out));
    if let Some(index) = commit {
        Record { comment: None, term: 0, kind: Kind::CommitIndex(index) }.write(out);
    }
}

fn write_term(term: u64, vote: Option<Uuid>, out: &mut Vec<u8>) {
    // A vote says its term, too.
    let kind = vote.map_or(Kind::Term, Kind::Vote);
    Record { comment: None, term, kind }.write(out);
}

/// A remark that people find with `ovsdb-tool show-log`, or that ends the file's use.
pub(crate) fn write_note(note: &str, out: &mut Vec<u8>) {
    Record { comment: None, term: 0, kind: Kind::Note(note.to_owned()) }.write(out);
}

fn write_entry(entry: &Entry, out: &mut Vec<u8>) {
    let index = entry.at.index;
    let mut record = clustered::Entry { index, servers: None, election_timer: None, data: None };
    match &entry.content {
        Content::Empty => {}
        Content::Data { eid, text } => {
            let text = validate(text).expect("the proposer composes JSON");
            record.data = Some((text, *eid));
        }
        Content::Servers(servers) => record.servers = Some((**servers).clone()),
        Content::ElectionTimer(ms) => record.election_timer = Some(*ms),
    }
    Record { comment: None, term: entry.at.term, kind: Kind::Entry(record) }.write(out);
}

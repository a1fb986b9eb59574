//! What a member writes down: the records of a clustered file behind its header (ovsdb(5)).

use std::ops::Range;

use weir_data::Uuid;
use weir_log::clustered::{DataText, EntryText, Kind, Record};

use crate::entry::{Content, Entry};
use crate::ids::Position;

/// Where the texts of entries are in what is written.
pub(crate) type Texts = Vec<(Position, Range<usize>)>;

/// One step's records: term and vote first, then entries, then the commit index, so that each
/// beginning of it is a file that makes sense. Answers where in `out` texts are.
pub(crate) fn write_step(
    vote: Option<(u64, Option<Uuid>)>,
    entries: &[Entry],
    commit: Option<u64>,
    out: &mut Vec<u8>,
) -> Texts {
    if let Some((term, vote)) = vote {
        write_term(term, vote, out);
    }
    let mut texts = Texts::new();
    for entry in entries {
        let text = write_entry(entry, out);
        if !text.is_empty() {
            texts.push((entry.at, text));
        }
    }
    if let Some(index) = commit {
        Record { comment: None, term: 0, kind: Kind::CommitIndex(index) }.write(out);
    }
    texts
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

/// Entries carry the mark: whoever watches the database is told of them by the rules of Weir.
fn write_entry(entry: &Entry, out: &mut Vec<u8>) -> Range<usize> {
    let (Position { term, index }, is_marked) = (entry.at, true);
    let plain = EntryText {
        comment: None,
        term,
        index,
        servers: None,
        election_timer: None,
        data: None,
        is_marked,
    };
    let record = match &entry.content {
        Content::Empty => plain,
        Content::Data { eid, text } => {
            EntryText { data: Some((DataText::Whole(text), *eid)), ..plain }
        }
        Content::Servers(servers) => EntryText { servers: Some(servers), ..plain },
        Content::ElectionTimer(ms) => EntryText { election_timer: Some(*ms), ..plain },
    };
    record.write(out)
}

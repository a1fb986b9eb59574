//! What a member writes down: the records of a clustered file behind its header (ovsdb(5)).

use std::borrow::Cow;
use std::ops::Range;

use weir_data::Uuid;
use weir_log::clustered::{DataText, EntryText, Kind, Record, joins_at_note};
use weir_log::record::Synced;

use crate::entry::{Content, Entry};
use crate::ids::Position;

/// Where the texts of entries are in what is written.
pub(crate) type Texts = Vec<(Position, Range<usize>)>;

/// What records are appended to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Onto {
    /// The member's file; so many bytes behind its first record are known to be on the disk.
    File(u64),
    /// A file that is to take its place, with so many bytes behind its first record. All that is before a
    /// record is on the disk before that file is used.
    Copy(u64),
}

impl Onto {
    /// What is known to be on the disk before a record that so many bytes are before.
    fn synced(self, written: usize) -> u64 {
        match self {
            Self::File(synced) => synced,
            Self::Copy(len) => len + written as u64,
        }
    }
}

/// One step's records: term and vote first, then entries, then the commit index, so that each
/// beginning of it is a file that makes sense. Answers where in `out` texts are.
///
/// Each record but entries, which are the same on all servers, says how many bytes behind the
/// file's first record are known to be on the disk, for who finds some of them after a power
/// failure.
pub(crate) fn write_step(
    onto: Onto,
    vote: Option<(u64, Option<Uuid>)>,
    entries: &[Entry],
    commit: Option<u64>,
    out: &mut Vec<u8>,
) -> Texts {
    if let Some((term, vote)) = vote {
        // A vote says its term, too.
        let kind = vote.map_or(Kind::Term, Kind::Vote);
        write(onto.synced(out.len()), term, kind, out);
    }
    let mut texts = Texts::new();
    for entry in entries {
        // A power failure may leave a beginning of this. Who has a change of the servers knows that the one before is
        // committed, or two that know neither could elect one of them by servers of long ago.
        if let (Content::Servers(_), Some(index)) = (&entry.content, commit) {
            let index = index.min(entry.at.index - 1);
            write(onto.synced(out.len()), 0, Kind::CommitIndex(index), out);
        }
        let text = write_entry(entry, out);
        if !text.is_empty() {
            texts.push((entry.at, text));
        }
    }
    if let Some(index) = commit {
        write(onto.synced(out.len()), 0, Kind::CommitIndex(index), out);
    }
    texts
}

fn write(synced: u64, term: u64, kind: Kind<'_>, out: &mut Vec<u8>) {
    let synced = Synced::new(synced);
    Record { comment: Some(Cow::Borrowed(synced.as_str())), term, kind }.write(out);
}

/// A remark that people find with `ovsdb-tool show-log`, or that ends the file's use.
pub(crate) fn write_note(synced: u64, note: &str, out: &mut Vec<u8>) {
    write(synced, 0, Kind::Note(note.to_owned()), out);
}

/// What goes with a new file of a server that has not joined, which has `len` bytes of records already: where it asks.
pub(crate) fn write_joins_at(addresses: &[String], len: u64, out: &mut Vec<u8>) {
    for address in addresses {
        write_note(len + out.len() as u64, &joins_at_note(address), out);
    }
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Of a step that a power failure cuts short entries may be there without what was to follow them.
    #[test]
    fn a_change_of_the_servers_stands_behind_the_commit_index_of_what_is_before() {
        let entry = |index, content| Entry { at: Position { term: 2, index }, content };
        let change = |index| entry(index, Content::Servers(Arc::default()));
        let steps = [
            (vec![change(9)], vec!["commit 8", "entry 9", "commit 9"]),
            (vec![entry(9, Content::Empty)], vec!["entry 9", "commit 9"]),
            (
                vec![change(7), entry(8, Content::Empty), change(9), change(10)],
                vec![
                    "commit 6", "entry 7", "entry 8", "commit 8", "entry 9", "commit 9",
                    "entry 10", "commit 9",
                ],
            ),
        ];
        for (entries, written) in steps {
            let mut out = Vec::new();
            write_step(Onto::File(0), None, &entries, Some(9), &mut out);
            let text = String::from_utf8(out).expect("JSON");
            let number = |line: &str, of: &str| {
                let (_, from) = line.split_once(of)?;
                from.split(|c: char| !c.is_ascii_digit()).next().map(str::to_owned)
            };
            let records = text.lines().filter_map(|line| {
                let commit =
                    number(line, "\"commit_index\":").map(|index| format!("commit {index}"));
                commit.or_else(|| Some(format!("entry {}", number(line, "\"index\":")?)))
            });
            assert_eq!(records.collect::<Vec<_>>(), written, "{text}");
        }
    }
}

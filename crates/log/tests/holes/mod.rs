//! Files of members whose power has failed: blocks of what was not synced are missing, and what
//! stands behind them is there.

use std::borrow::Cow;

use weir_log::record::Synced;

use super::*;

/// A file that a member appends to.
#[derive(Clone)]
struct Appended {
    file: Vec<u8>,
    /// Where records end.
    ends: Vec<usize>,
    index: u64,
}

impl Appended {
    fn new() -> Self {
        let mut file = vec![];
        write_clustered_record(&mut file, usual_header().as_bytes());
        Self { ends: vec![file.len()], file, index: 1 }
    }

    /// What a record says when the file is on the disk up to there.
    fn synced(&self, end: usize) -> String {
        Synced::new((end - self.ends[0]) as u64).as_str().to_owned()
    }

    fn record(&mut self, comment: Option<&str>, term: u64, kind: Kind<'_>) {
        Record { comment: comment.map(Cow::Borrowed), term, kind }.write(&mut self.file);
        self.ends.push(self.file.len());
    }

    fn entry(&mut self, is_marked: bool) {
        self.index += 1;
        let text = format!(r#"[null,{{"_comment":"{}","_date":1}}]"#, "c".repeat(90));
        let entry = EntryText {
            comment: None,
            term: 2,
            index: self.index,
            servers: None,
            election_timer: None,
            data: Some((DataText::Whole(text.as_bytes()), id(EID))),
            is_marked,
        };
        entry.write(&mut self.file);
        self.ends.push(self.file.len());
    }

    /// A step with two entries, and the commit index in front of them.
    fn step(&mut self, comment: Option<&str>) -> usize {
        let commit = self.index;
        self.entry(true);
        self.entry(true);
        self.record(comment, 0, Kind::CommitIndex(commit));
        self.file.len()
    }

    /// Reads the file without what stands in a range, however it is read: where it is cut, and
    /// where the first good record is if that is damage.
    fn read_without(&self, hole: std::ops::Range<usize>, filler: u8) -> (usize, Option<usize>) {
        let mut file = self.file.clone();
        file[hole.clone()].fill(filler);
        let mut told = READINGS.iter().map(|reading| {
            let loaded = read(&file, *reading).unwrap();
            let good = match loaded.tail {
                Tail::None => panic!("nothing is missing: {hole:?} {reading:?}"),
                Tail::Torn { .. } => None,
                Tail::Damaged { good_offset, .. } => Some(good_offset as usize),
            };
            (loaded.valid_len as usize, good)
        });
        let first = told.next().unwrap();
        assert!(told.all(|told| told == first), "{hole:?}");
        first
    }

    /// Where the record begins that this byte is in.
    fn begin(&self, at: usize) -> usize {
        *self.ends.iter().rev().find(|end| **end <= at).unwrap()
    }

    /// Places of holes behind an offset.
    fn holes(&self, from: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
        let len = self.file.len();
        let begins = (from..len).step_by(19);
        begins.flat_map(move |at| [1, 64, 300].map(|size| at..len.min(at + size)))
    }
}

/// A file with a vote and a step that are on the disk, and where those end.
fn synced() -> (Appended, usize) {
    let mut member = Appended::new();
    let nothing = member.synced(member.file.len());
    member.record(Some(&nothing), 2, Kind::Vote(id(S1)));
    let comment = member.synced(member.file.len());
    let end = member.step(Some(&comment));
    (member, end)
}

#[test]
fn a_hole_in_what_was_not_synced_is_cut() {
    let (mut member, end) = synced();
    let comment = member.synced(end);
    // One step, then two that were on their way together.
    for _ in 0..2 {
        member.step(Some(&comment));
        for hole in member.holes(end) {
            let begin = member.begin(hole.start);
            assert_eq!(member.read_without(hole.clone(), 0), (begin, None), "{hole:?}");
        }
    }
}

/// The commit index of a step may be missing as well, or the step have none.
#[test]
fn a_hole_before_entries_alone_is_cut() {
    let (mut member, end) = synced();
    (0..3).for_each(|_| member.entry(true));
    let at = member.ends[member.ends.len() - 3];
    assert_eq!(member.read_without(end..end + 9, 0), (end, None));
    assert_eq!(member.read_without(at..at + 9, 0), (at, None));
}

#[test]
fn a_hole_in_what_a_record_says_was_synced_is_damage() {
    let (mut member, end) = synced();
    let comment = member.synced(end);
    let behind = member.file.len();
    member.step(Some(&comment));
    let mut seen = 0;
    for hole in member.holes(member.ends[0]).filter(|hole| hole.end <= behind) {
        let begin = member.begin(hole.start);
        let (valid_len, good) = member.read_without(hole.clone(), 0);
        assert_eq!(valid_len, begin, "{hole:?}");
        assert!(good.is_some_and(|good| good >= hole.end), "{hole:?}");
        seen += 1;
    }
    assert!(seen > 20, "{seen}");
    // One byte more is on the disk than stands before the hole.
    let (mut member, end) = synced();
    let (just, beyond) = (member.synced(end), member.synced(end + 1));
    member.step(Some(&just));
    assert_eq!(member.read_without(end..end + 9, 0).1, None);
    member.record(Some(&beyond), 0, Kind::CommitIndex(3));
    assert_eq!(member.read_without(end..end + 9, 0).1, Some(member.ends[5]));
}

#[test]
fn where_no_block_is_missing_there_is_no_hole() {
    let (mut member, end) = synced();
    let comment = member.synced(end);
    member.step(Some(&comment));
    assert_eq!(member.read_without(end + 70..end + 71, b'x').1, Some(member.ends[5]));
}

#[test]
fn of_who_does_not_say_what_was_synced_a_hole_is_damage() {
    let damaged = |write: &dyn Fn(&mut Appended)| {
        let (mut member, end) = synced();
        write(&mut member);
        let (valid_len, good) = member.read_without(end..end + 9, 0);
        assert_eq!(valid_len, end);
        good.is_some()
    };
    let (member, end) = synced();
    let right = member.synced(end);
    assert!(!damaged(&|member| _ = member.step(Some(&right))));
    // An earlier Weir, or the packaged server, which marks no entries either.
    assert!(damaged(&|member| _ = member.step(None)));
    assert!(damaged(&|member| (0..3).for_each(|_| member.entry(false))));
    // Somebody's remark.
    for other in ["synced", "synced 0007", "synced -1", "synced 1 of 2", "Synced 1"] {
        assert!(damaged(&|member| _ = member.step(Some(other))), "{other}");
    }
    // All of the file is of an earlier Weir, and there are only entries behind the hole.
    let mut member = Appended::new();
    member.record(None, 2, Kind::Term);
    (0..3).for_each(|_| member.entry(true));
    let at = member.ends[1];
    assert_eq!(member.read_without(at..at + 9, 0), (at, Some(member.ends[2])));
}

#[test]
fn the_packaged_tool_takes_what_was_synced_for_a_remark() {
    if !is_installed() {
        return;
    }
    let folder = Folder::new("synced");
    folder.write("db", &synced().0.file);
    assert_eq!(output(&folder, "ovsdb-tool", &["check-cluster", "db"]), Default::default());
    let (log, error) = output(&folder, "ovsdb-tool", &["show-log", "db"]);
    assert_eq!((log.matches(" comment: \"synced ").count(), error.as_str()), (2, ""));
}

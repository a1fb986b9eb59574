//! Copies of a member's own file, and what is appended to them before they take its place.

use weir_data::Uuid;

use super::bench::{Bench, server};
use crate::wire::Lane;
use crate::{Event, LinkId, Opened, Position, Proposal, Text};

/// A leader that keeps next to nothing in memory, and a follower that acknowledges.
fn leader() -> (Bench, LinkId) {
    let mut bench = Bench::open(Opened { texts_bytes_max: 10, ..Bench::file() });
    bench.lead(3);
    let two = bench.greet(server(2), Lane::Control);
    let last = bench.member.last_position();
    bench.acknowledge(two, last);
    (bench, two)
}

#[test]
fn what_has_taken_effect_is_appended_to_a_copy_before_that_takes_the_place_of_the_file() {
    let (mut bench, two) = leader();
    let mark = bench.member.begin_copy();
    let last_of_snapshot = mark.last;
    let (first, second) = (bench.propose(100), bench.propose(101));
    bench.acknowledge(two, second);
    let third = bench.propose(102);
    bench.handle(Event::CopyWritten { mark, len: 1000 });
    assert_eq!(bench.parts.len(), 1);
    let part = bench.parts.remove(0);
    let index = |at: Position| format!("\"index\":{}", at.index);
    assert!(part.contains(&index(first)) && part.contains(&index(second)), "{part}");
    assert!(!part.contains(&index(third)), "a leader may take it back: {part}");
    assert_eq!(bench.tail_last, "", "the part is not on the disk");
    let part_len = part.len() as u64;
    bench.handle(Event::CopyExtended);
    let tail = bench.tail_last.clone();
    assert!(tail.contains(&index(third)) && !tail.contains(&index(second)), "{tail}");
    let commit = format!("\"commit_index\":{}", second.index);
    assert!(tail.contains(&commit), "{tail}");
    // All before the record of the commit index is on the disk, the part as well.
    let before =
        part_len + tail[..tail.find("commit_index").unwrap()].rfind("OVSDB").unwrap() as u64;
    assert!(tail.contains(&before.to_string()), "{before} in {tail}");
    // Places are those in the new file.
    assert_eq!(bench.member.first_index(), first.index);
    bench.acknowledge(two, third);
    let three = bench.greet(server(3), Lane::Control);
    bench.acknowledge(three, last_of_snapshot);
    let read = bench.texts_read.first().expect("texts are read for server 3");
    let [offset, len] = [read.offset, read.len].map(|number| usize::try_from(number).unwrap());
    let texts = &format!("{part}{tail}")[offset..][..len];
    assert!(texts.starts_with("[null,{}]") && texts.ends_with("[null,{}]"), "{texts}");
    assert_eq!(texts.matches("OVSDB CLUSTER").count(), 3, "a vote is between them: {texts}");
}

/// The text of an entry, four of which are more than is kept for a copy.
fn long() -> Text {
    format!("[null,{}{{}}]", " ".repeat(70 << 20)).into_bytes().into()
}

#[test]
fn a_copy_for_which_too_much_would_stay_in_memory_is_given_up() {
    let (mut bench, two) = leader();
    bench.member.begin_copy();
    let text = long();
    for n in 100..104 {
        assert_eq!(bench.failed_copies, [""; 0]);
        let proposal = Proposal { eid: Uuid::from_u128(n), text: text.clone() };
        let at = bench.member.propose(bench.now_us, vec![proposal]).expect("it leads");
        bench.run();
        bench.acknowledge(two, at);
    }
    assert_eq!(bench.failed_copies, ["more than 268435456 bytes were committed meanwhile"]);
    // Another one can be made.
    let mark = bench.member.begin_copy();
    bench.handle(Event::CopyWritten { mark, len: 1000 });
    assert_eq!(bench.member.first_index(), bench.member.last_position().index + 1);
}

#[test]
fn a_copy_is_not_given_up_for_what_the_file_does_not_take() {
    let (mut bench, _) = leader();
    bench.is_disk_bad = true;
    let text = long();
    let proposal = |n| Proposal { eid: Uuid::from_u128(n), text: text.clone() };
    bench.member.propose(bench.now_us, (100..104).map(proposal).collect()).expect("it leads");
    bench.run();
    bench.pass(100);
    let mark = bench.member.begin_copy();
    bench.pass(100);
    bench.handle(Event::CopyWritten { mark, len: 1000 });
    assert_eq!(bench.failed_copies, [""; 0]);
    assert!(bench.tail_last.len() > 4 * (70 << 20), "{}", bench.tail_last.len());
}

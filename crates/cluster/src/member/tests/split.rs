//! Members whose cluster has lost what is committed at them.

use super::bench::{Bench, data, server};
use crate::consensus::{APPEND, HEARTBEAT};
use crate::ids::LinkId;
use crate::wire::{Lane, Step};

/// The leader of a term has this entry where another one is committed here, or what would follow that.
fn leader_with(
    bench: &mut Bench,
    term: u64,
    (follows, entry): ((u64, u64), Option<(u64, u64)>),
) -> LinkId {
    let link = bench.greet(server(2), Lane::Log);
    bench.say(link, Step { kind: HEARTBEAT, term, ..Step::default() });
    assert_eq!(bench.member.leader(), Some(server(2)));
    let entries = entry.into_iter().map(|(term, index)| data(term, index)).collect();
    let ((index, log_term), kind) = (follows, APPEND);
    bench.say(link, Step { kind, term, log_term, index, entries, ..Step::default() });
    link
}

/// Whether the leader of a term was told that its entries are here.
fn has_acknowledged(bench: &Bench, term: u64) -> bool {
    bench.member.promises.own.contains_key(&term)
}

#[test]
fn who_has_what_its_cluster_has_lost_takes_no_part() {
    // What is committed here: entries up to 5, all of term 1.
    for lost in [((4, 1), Some((3, 5))), ((5, 3), None), ((5, 3), Some((3, 6)))] {
        let mut bench = Bench::member();
        let link = leader_with(&mut bench, 3, lost);
        assert!(!has_acknowledged(&bench, 3), "{lost:?}: it would count as having what is there");
        assert_eq!((bench.member.leader(), bench.member.is_connected()), (None, false));
        let status = bench.member.status();
        assert!(status.contains("entries that are committed here are lost there"), "{status}");
        let says = |text: &str| bench.logs.iter().any(|(_, line)| line.contains(text));
        assert!(says("keep its file"), "{:?}", bench.logs);
        bench.say(link, Step { kind: HEARTBEAT, term: 3, ..Step::default() });
        assert_eq!(bench.member.leader(), None, "it is heard no more");
    }
}

/// A leader that said something odd may be well again.
#[test]
fn who_says_later_that_it_has_all_is_heard_again() {
    let mut bench = Bench::member();
    let link = leader_with(&mut bench, 3, ((4, 1), Some((3, 5))));
    let (kind, log_term, entries) = (APPEND, 1, vec![data(3, 7)]);
    let (term, index) = (3, 6);
    bench.say(link, Step { kind, term, log_term: 3, index, ..Step::default() });
    assert!(bench.member.is_split(), "that is not what stands here");
    bench.say(link, Step { kind, term, log_term, index, entries, ..Step::default() });
    assert!(has_acknowledged(&bench, 3) && !bench.member.is_split());
}

#[test]
fn a_later_leader_that_has_all_is_followed() {
    let mut bench = Bench::member();
    leader_with(&mut bench, 3, ((4, 1), Some((3, 5))));
    leader_with(&mut bench, 4, ((6, 1), Some((4, 7))));
    assert!(has_acknowledged(&bench, 4));
    assert!(bench.member.is_connected() && !bench.member.is_split());
}

/// The log may be sent again from further back than what is committed.
#[test]
fn who_has_the_same_log_is_followed() {
    for same in [((4, 1), Some((1, 5))), ((2, 1), None), ((0, 0), Some((1, 1))), ((6, 3), None)] {
        let mut bench = Bench::member();
        leader_with(&mut bench, 3, same);
        assert!(!bench.member.is_split(), "{same:?}");
        assert_eq!(bench.member.leader(), Some(server(2)));
    }
}

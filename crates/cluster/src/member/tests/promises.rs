//! What others have heard a member promise, and when it may vote.

use super::bench::{Bench, CLUSTER, address, data, server};
use crate::consensus::{APPEND, APPEND_ANSWER, HEARTBEAT, VOTE_REQUEST};
use crate::member::promises::{OWN_TERMS_MAX, Promises};
use crate::wire::{Frame, Hello, Lane, Promise, Step};
use crate::{Opened, Position};

/// Another member greets one that is in term 2, with a log up to entry 6.
fn greeted_with(term: u64, index: u64) -> Bench {
    let mut bench = Bench::member();
    assert_eq!((bench.member.term(), bench.member.last_position().index), (2, 6));
    greet_with(&mut bench, term, index);
    bench
}

/// Server 2 has heard a promise of the member, and says so when it greets it.
fn greet_with(bench: &mut Bench, term: u64, index: u64) {
    greet_with_promise(bench, Promise { at: Position { term, index }, entry_term: None });
}

fn greet_with_promise(bench: &mut Bench, promised: Promise) {
    let link = bench.accept();
    let (cluster, to, from) = (Some(CLUSTER), Some(server(1)), server(2));
    let (lane, promised) = (Some(Lane::Control), Some(promised));
    bench.hello(link, &Hello { cluster, to, from, address: None, lane, promised });
}

#[test]
fn who_has_promised_more_than_its_file_has_is_a_member_no_more() {
    for (term, index) in [(2, 7), (3, 0), (3, 6)] {
        let bench = greeted_with(term, index);
        assert!(bench.has_forgotten, "term {term}, entry {index}");
        assert!(!bench.member.is_member() && !bench.member.is_connected());
    }
    for (term, index) in [(2, 6), (2, 0), (1, 100), (0, 0)] {
        assert!(!greeted_with(term, index).has_forgotten, "term {term}, entry {index}");
    }
}

/// Other members, who remember what this one promised, may be started anew before its note is on the disk.
#[test]
fn the_file_says_that_its_server_has_forgotten_before_that_joins_anew() {
    let mut bench = Bench::member();
    bench.is_disk_slow = true;
    greet_with(&mut bench, 2, 7);
    assert!(!bench.has_forgotten && !bench.member.is_member());
    bench.sync();
    assert!(bench.has_forgotten);
}

/// A member that was down while another leader was elected may hear of that one first, and have its term. What it
/// has promised in the term before that it lacks all the same.
#[test]
fn a_later_term_does_not_hide_what_was_forgotten() {
    let mut bench = Bench::member();
    let link = bench.greet(server(3), Lane::Control);
    bench.say(link, Step { kind: HEARTBEAT, term: 3, commit: 5, ..Step::default() });
    assert_eq!(bench.member.term(), 3);
    greet_with(&mut bench, 2, 7);
    assert!(bench.has_forgotten);
}

#[test]
fn what_was_promised_since_the_start_is_not_forgotten() {
    for (term, index, has_forgotten) in [(3, 6, false), (3, 7, false), (3, 8, true), (2, 7, true)] {
        let mut bench = Bench::member();
        let link = bench.greet(server(3), Lane::Log);
        let (kind, log_term, entries) = (APPEND, 1, vec![data(3, 7)]);
        bench.say(link, Step { kind, term: 3, log_term, index: 6, entries, ..Step::default() });
        assert_eq!(bench.member.last_position(), Position { term: 3, index: 7 });
        greet_with(&mut bench, term, index);
        assert_eq!(bench.has_forgotten, has_forgotten, "term {term}, entry {index}");
    }
}

/// What a server acknowledges counts towards a majority from when it is a member on, also what it said before that.
#[test]
fn what_a_server_acknowledged_before_it_was_a_member_is_remembered() {
    let mut bench = Bench::leader();
    let two = bench.greet(server(2), Lane::Control);
    let four = bench.accept();
    let (cluster, lane, address) = (Some(CLUSTER), Some(Lane::Control), address(4));
    let (to, from, promised) = (None, server(4), None);
    let hello = Hello { cluster, to, from, address: Some(address.clone()), lane, promised };
    bench.hello(four, &hello);
    bench.frame(four, &Frame::Join { address, replaces: None });
    let before = bench.member.last_position();
    for _ in 0..50 {
        bench.pass(100);
        let last = bench.member.last_position();
        bench.acknowledge(four, last);
        // Who is to become a member is one when the others have that.
        bench.acknowledge(two, before);
    }
    let last = bench.propose(100);
    bench.acknowledge(four, last);
    let joined = Position { index: before.index + 1, ..before };
    assert!(last.index > joined.index && bench.member.committed() < joined.index);
    bench.acknowledge(two, joined);
    assert!(bench.member.servers.contains_key(&server(4)));
    let promised = Promise { at: last, entry_term: Some(last.term) };
    assert_eq!(bench.member.promises.of(server(4)), Some(promised));
}

/// A copy of the file was made when it knew of the leader, whose entries had found no room yet.
#[test]
fn an_older_file_of_the_same_term_has_other_entries() {
    for (entry_term, has_forgotten) in [(None, false), (Some(1), false), (Some(3), true)] {
        let mut bench = Bench::open(Opened { term: 3, ..Bench::file() });
        assert_eq!(bench.member.last_position(), Position { term: 1, index: 6 });
        let at = Position { term: 3, index: 6 };
        greet_with_promise(&mut bench, Promise { at, entry_term });
        assert_eq!(bench.has_forgotten, has_forgotten, "{entry_term:?}");
    }
}

/// An entry of an earlier leader may be replaced in a later term.
#[test]
fn what_was_kept_in_an_earlier_term_may_have_been_replaced() {
    let mut bench = Bench::open(Opened { term: 3, ..Bench::file() });
    let at = Position { term: 2, index: 6 };
    greet_with_promise(&mut bench, Promise { at, entry_term: Some(2) });
    assert!(!bench.has_forgotten);
}

/// In this term the member may have acknowledged another entry 6, before its file was replaced by an older one of the same term.
#[test]
fn a_heartbeat_commits_what_was_acknowledged_and_not_what_stands_there() {
    let heartbeat = Step { kind: HEARTBEAT, term: 3, commit: 6, ..Step::default() };
    let append = |entries| {
        let (kind, term, log_term, index) = (APPEND, 3, 1, 6);
        Step { kind, term, log_term, index, entries, ..Step::default() }
    };
    let mut bench = Bench::open(Opened { term: 3, ..Bench::file() });
    let link = bench.greet(server(2), Lane::Log);
    bench.say(link, heartbeat.clone());
    assert_eq!(bench.member.applied(), 5, "entry 6 is of term 1");
    bench.say(link, append(vec![]));
    bench.say(link, heartbeat);
    assert_eq!(bench.member.applied(), 6, "it is the leader's entry");
    // What is of the leader's term is the leader's, whenever it was acknowledged.
    bench.is_disk_slow = true;
    bench.say(link, append(vec![data(3, 7)]));
    bench.say(link, Step { kind: HEARTBEAT, term: 3, commit: 7, ..Step::default() });
    bench.sync();
    assert_eq!(bench.member.applied(), 7);
}

/// Of as many terms as a flapping cluster has not all are remembered; what is not is taken for known.
#[test]
fn promises_of_many_terms_are_remembered_in_bounds() {
    let mut promises =
        Promises::new(Position { term: 2, index: 6 }, [Position { term: 1, index: 3 }]);
    for term in 2..1000 {
        let (kind, index) = (APPEND_ANSWER, 10);
        promises.made(&Step { kind, term, index, ..Step::default() });
        for term in 1..=term {
            let promised = Promise { at: Position { term, index }, entry_term: Some(term) };
            assert!(promises.has(promised), "{promised:?}");
        }
    }
    assert!(promises.own.len() <= OWN_TERMS_MAX);
    let has =
        |term, index| promises.has(Promise { at: Position { term, index }, entry_term: None });
    assert!(has(500, 99) && has(999, 10));
    assert!(!has(999, 11) && !has(1000, 0));
}

fn ask_for_vote(bench: &mut Bench) {
    let link = bench.greet(server(2), Lane::Control);
    let (term, last) = (bench.member.term() + 1, bench.member.last_position());
    let (log_term, index) = (last.term.max(1), last.index + 1);
    bench.say(link, Step { kind: VOTE_REQUEST, term, log_term, index, ..Step::default() });
}

/// An older file may know fewer members than there are, or none.
#[test]
fn who_has_just_started_votes_when_all_could_have_greeted_it() {
    let of = |n| (1..=n).map(|n| (server(n), address(n))).collect();
    let with = |n| Bench::open(Opened { snapshot_servers: of(n), ..Bench::file() });
    for mut bench in [Bench::joiner(), with(2), with(3)] {
        ask_for_vote(&mut bench);
        bench.greet(server(3), Lane::Control);
        ask_for_vote(&mut bench);
        assert_eq!(bench.member.node.vote(), None, "server 4 may know more");
        bench.pass(600);
        ask_for_vote(&mut bench);
        assert_eq!(bench.member.node.vote(), Some(server(2)), "server 4 may be down");
    }
}

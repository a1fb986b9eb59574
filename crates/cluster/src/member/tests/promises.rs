//! What others have heard a member promise, and when it may vote.

use super::bench::{Bench, CLUSTER, server};
use crate::Position;
use crate::consensus::VOTE_REQUEST;
use crate::wire::{Hello, Lane, Step};

/// Another member greets one that is in term 2, with a log up to entry 6.
fn greeted_with(term: u64, index: u64) -> Bench {
    let mut bench = Bench::member();
    assert_eq!((bench.member.term(), bench.member.last_position().index), (2, 6));
    let link = bench.accept();
    let (cluster, to, from) = (Some(CLUSTER), Some(server(1)), server(2));
    let (lane, promised) = (Some(Lane::Control), Some(Position { term, index }));
    bench.hello(link, &Hello { cluster, to, from, address: None, lane, promised });
    bench
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

fn ask_for_vote(bench: &mut Bench) {
    let link = bench.greet(server(2), Lane::Control);
    let (term, last) = (bench.member.term() + 1, bench.member.last_position());
    let (log_term, index) = (last.term, last.index);
    bench.say(link, Step { kind: VOTE_REQUEST, term, log_term, index, ..Step::default() });
}

#[test]
fn who_has_just_started_votes_when_all_others_have_greeted_it_or_could_have() {
    let mut bench = Bench::member();
    ask_for_vote(&mut bench);
    assert_eq!(
        (bench.member.term(), bench.member.node.vote()),
        (2, None),
        "server 3 may know more"
    );
    bench.greet(server(3), Lane::Control);
    ask_for_vote(&mut bench);
    assert_eq!((bench.member.term(), bench.member.node.vote()), (3, Some(server(2))));

    let mut bench = Bench::member();
    bench.pass(600);
    ask_for_vote(&mut bench);
    assert_eq!(bench.member.node.vote(), Some(server(2)), "server 3 may be down");
}

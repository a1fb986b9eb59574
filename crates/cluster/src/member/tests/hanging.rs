//! Disks that do not answer for a while, and refuse nothing.

use super::bench::{Bench, HEARTBEAT, data, server, steps_sent};
use crate::consensus::{APPEND, TIMEOUT_NOW};
use crate::wire::{Lane, Step};
use crate::{LinkId, Role};

/// What a leader of term 3 says to who has all up to entry 6: there is one more, and it is committed.
fn append_seven() -> Step {
    let (term, index) = (3, 6);
    let entries = vec![data(3, 7)];
    Step { kind: APPEND, term, log_term: 1, index, commit: 7, entries, ..Step::default() }
}

/// A tenth of a second passes as often as that, and each time the leader of term 3 is heard.
fn is_heard_for(bench: &mut Bench, link: LinkId, tenths: u32) {
    for _ in 0..tenths {
        bench.pass(100);
        bench.say(link, Step { kind: HEARTBEAT, term: 3, commit: 7, synced: 7, ..Step::default() });
    }
}

/// The others have committed without its disk, and can go on without it.
#[test]
fn a_leader_whose_disk_does_not_answer_hands_over_what_the_others_have() {
    let mut bench = Bench::leader();
    let links = [2, 3].map(|n| bench.greet(server(n), Lane::Control));
    bench.is_disk_slow = true;
    let eight = bench.propose(8);
    // Nothing is committed, and nobody else could do more.
    bench.well_for(&links, 3000);
    assert!(bench.member.is_connected() && bench.member.may_propose());
    links.iter().for_each(|link| bench.acknowledge(*link, eight));
    assert!(bench.member.lacks_committed());
    let is_told = |bench: &Bench| {
        let steps = links.into_iter().flat_map(|link| steps_sent(bench, link));
        steps.filter(|step| step.kind == TIMEOUT_NOW).count() > 0
    };
    // Nor was anybody else quicker than that, as where all disks are parts of one.
    bench.well_for(&links, 900);
    assert!(bench.member.is_connected() && bench.member.may_propose() && !is_told(&bench));
    bench.well_for(&links, 300);
    assert!(is_told(&bench), "another one is to campaign");
    assert!(!bench.member.may_propose() && !bench.member.is_connected());
    let status = bench.member.status();
    assert!(status.contains("from the cluster (the disk does not answer)"), "{status}");
    bench.sync();
    assert!(bench.member.is_connected());
    let last = bench.committed.last().map(|entry| entry.at);
    assert_eq!(last, Some(eight));
}

#[test]
fn a_follower_whose_disk_does_not_answer_says_that_it_is_not_connected() {
    let mut bench = Bench::follower();
    let link = bench.greet(server(2), Lane::Control);
    let log = bench.greet(server(2), Lane::Log);
    bench.is_disk_slow = true;
    bench.say(log, append_seven());
    is_heard_for(&mut bench, link, 9);
    assert!(bench.member.is_connected(), "that may be");
    is_heard_for(&mut bench, link, 3);
    assert!(!bench.member.is_connected() && bench.member.status().contains("does not answer"));
    bench.sync();
    assert!(bench.member.is_connected());
    is_heard_for(&mut bench, link, 30);
    assert!(bench.member.is_connected());
}

/// A process that stood still finds what was answered meanwhile behind the time.
#[test]
fn a_process_that_stood_still_does_not_blame_its_disk() {
    let mut bench = Bench::leader();
    let links = [2, 3].map(|n| bench.greet(server(n), Lane::Control));
    bench.is_disk_slow = true;
    let eight = bench.propose(8);
    bench.now_us += 30_000_000;
    links.iter().for_each(|link| bench.acknowledge(*link, eight));
    assert!(bench.member.lacks_committed() && bench.member.is_connected());
    bench.sync();
    assert_eq!((bench.member.role(), bench.member.lacks_committed()), (Role::Leader, false));
    assert_eq!(bench.committed.last().map(|entry| entry.at), Some(eight));
}

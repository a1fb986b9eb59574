//! Entries that the own file refuses for their length.

use std::sync::Arc;

use weir_data::Uuid;

use super::bench::{Bench, address, server, steps_sent};
use crate::consensus::TIMEOUT_NOW;
use crate::wire::Lane;
use crate::{LinkId, NoRoom, Opened, Proposal, Role};

/// What is to be known of an entry of so many bytes that was refused.
const NO_ROOM: NoRoom = NoRoom { entry: Some(200_000), batch: Some(200_000) };

/// A leader of term 3 whose file takes steps of so many bytes, and the other two.
fn leader(room: usize) -> (Bench, [LinkId; 2]) {
    let mut bench = Bench::leader();
    let links = [2, 3].map(|n| bench.greet(server(n), Lane::Control));
    bench.room = room;
    (bench, links)
}

fn propose(bench: &mut Bench, bytes: usize) {
    propose_all(bench, &[bytes]);
}

/// Proposes entries of so many bytes at once.
fn propose_all(bench: &mut Bench, lengths: &[usize]) {
    let proposal = |(n, bytes): (u128, &usize)| {
        let text = Arc::new(format!("[null,\"{}\"]", "x".repeat(bytes - 9)).into_bytes());
        Proposal { eid: Uuid::from_u128(n), text }
    };
    let proposals = (8..).zip(lengths).map(proposal).collect();
    bench.member.propose(bench.now_us, proposals).expect("it leads");
    bench.run();
}

fn is_told(bench: &Bench, links: [LinkId; 2]) -> bool {
    links.iter().flat_map(|link| steps_sent(bench, *link)).any(|step| step.kind == TIMEOUT_NOW)
}

#[test]
fn a_leader_that_nobody_can_relieve_of_what_it_is_refused_leads_no_more() {
    let (mut bench, links) = leader(100_000);
    propose(&mut bench, 200_000);
    bench.well_for(&links, 900);
    assert!(bench.member.role() == Role::Leader && !is_told(&bench, links));
    bench.well_for(&links, 300);
    assert!(bench.member.role() == Role::Follower && is_told(&bench, links));
    // Who leads then goes on without it, when the file is tried again.
    bench.pass(1000);
    bench.check_follows();
    assert_eq!(bench.member.no_room(), NO_ROOM);
    bench.pass(12_000);
    assert_eq!(bench.member.no_room(), NoRoom::default(), "there may be room by now");
}

#[test]
fn short_entries_that_are_too_long_together_are_as_one() {
    let (mut bench, links) = leader(100_000);
    propose_all(&mut bench, &[40_000; 3]);
    bench.well_for(&links, 1200);
    assert!(bench.member.role() == Role::Follower && is_told(&bench, links));
    bench.pass(1000);
    bench.check_follows();
    assert_eq!(bench.member.no_room(), NoRoom { entry: None, batch: Some(120_000) });
}

#[test]
fn an_entry_for_which_there_is_room_again_is_written() {
    let (mut bench, links) = leader(100_000);
    propose(&mut bench, 200_000);
    bench.well_for(&links, 500);
    bench.room = usize::MAX;
    bench.well_for(&links, 1500);
    assert_eq!((bench.member.role(), bench.member.no_room()), (Role::Leader, NoRoom::default()));
    assert!(bench.member.may_propose() && !is_told(&bench, links));
}

/// There would be an election each second, and the room that is kept for votes ends.
#[test]
fn a_leader_whose_file_takes_nothing_goes_on_to_lead() {
    let (mut bench, links) = leader(0);
    propose(&mut bench, 100);
    let text = Arc::new(vec![b'x'; 200_000]);
    let proposal = Proposal { eid: Uuid::from_u128(9), text };
    assert!(bench.member.propose(bench.now_us, vec![proposal]).is_err(), "nothing goes behind it");
    bench.well_for(&links, 5000);
    assert_eq!((bench.member.role(), bench.member.no_room()), (Role::Leader, NoRoom::default()));
}

#[test]
fn the_only_member_of_a_cluster_gives_up_what_it_is_refused_as_well() {
    let snapshot_servers = [(server(1), address(1))].into();
    let mut bench = Bench::open(Opened { snapshot_servers, ..Bench::file() });
    bench.pass(3000);
    assert!(bench.member.may_propose());
    bench.room = 100_000;
    propose(&mut bench, 200_000);
    bench.pass(6000);
    assert!(bench.member.may_propose() && bench.member.no_room() == NO_ROOM);
    let at = bench.propose(9);
    assert_eq!(bench.committed.last().map(|entry| entry.at), Some(at));
}

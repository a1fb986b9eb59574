//! Connections of which one end is gone, or that are cut: who hears of that, and when.

use super::*;
use crate::faults::Faults;

/// As long as a host takes at most to find that another one is silent, in milliseconds.
const NOTICED_MS: u64 = PEER_SILENCE_US / 1000 + PEER_ASKED_US as u64 / 1000 + 1;

/// So many servers that have served for a while, without clients.
fn world(servers: usize) -> World {
    let faults = Faults { sync_us: 300, delay_us: 300, ..Faults::default() };
    let mut world = World::new(1, servers, faults);
    world.forget_clients();
    world.run_for(5000);
    world
}

impl World {
    /// A host loses its power, and nobody is told.
    fn has_no_power(&mut self, n: usize) {
        self.close_all(n, false);
        self.end_process(n, true);
    }

    fn half_open(&self) -> usize {
        self.network.half_open.len()
    }

    fn connections(&self, a: usize, b: usize) -> usize {
        self.network.ends.iter().filter(|(end, other)| (end.node, other.node) == (a, b)).count()
    }
}

#[test]
fn a_host_without_power_is_noticed_by_the_hosts_of_its_peers() {
    let mut world = world(3);
    let before = world.connections(1, 0);
    assert!(before > 0);
    world.has_no_power(0);
    assert_eq!((world.connections(1, 0), world.half_open()), (0, 2 * before));
    world.run_for(PEER_SILENCE_US / 1000 - 1);
    assert!(world.half_open() > 0, "nobody has been told");
    world.run_for(NOTICED_MS - PEER_SILENCE_US / 1000 + 1);
    assert_eq!(world.half_open(), 0);
}

/// A joiner that has connected, and is to be greeted, has nothing to say that would be answered by a reset.
#[test]
fn who_joins_does_not_wait_for_a_greeting_of_a_process_that_is_no_more() {
    let mut world = world(1);
    world.nodes[0].paused_until_us = world.now_us + 60_000_000;
    world.add_spares(1);
    world.join(1);
    world.run_for(500);
    assert!(world.connections(1, 0) > 0 && world.nodes[1].is_joining);
    world.has_no_power(0);
    world.due(world.now_us + 300_000, 0, Due::Start);
    world.run_for(1500);
    assert!(world.half_open() > 0, "it has not heard that the other process is another one");
    world.run_for(NOTICED_MS + 5000);
    assert!(!world.nodes[1].is_joining, "it has joined");
}

#[test]
fn connections_that_are_cut_end_at_both_ends_though_the_cut_goes_on() {
    for is_mutual in [false, true] {
        let mut world = world(3);
        assert!(world.connections(0, 1) > 0);
        world.cut(0, 1, is_mutual);
        world.run_for(PEER_SILENCE_US / 1000 - 1);
        assert!(world.connections(0, 1) > 0, "a short cut is not noticed by the hosts");
        world.run_for(2 * NOTICED_MS);
        assert_eq!((world.connections(0, 1), world.half_open()), (0, 0));
        assert!(world.connections(0, 2) > 0 && world.connections(1, 2) > 0);
        world.heal();
        world.run_for(PEER_PATIENCE_US / 1000);
        assert!(world.connections(0, 1) > 0, "they connect anew");
    }
}

/// An attempt across a cut, or to a host without power, is answered by nobody: it is made again and again, and given
/// up in the end.
#[test]
fn who_connects_to_a_host_that_is_silent_waits() {
    const FIRST_MS: u64 = ATTEMPT_US / 1000;
    for is_healed in [false, true] {
        let mut world = world(2);
        world.cut(0, 1, true);
        let link = LinkId(7777);
        world.nodes[0].links.insert(link);
        let (target, since_us) = (world.nodes[1].address.clone(), world.now_us);
        world.connect(0, Attempt { link, target, framing: Framing::Bytes, since_us });
        let is_made = |world: &World| world.network.ends.contains_key(&End::link(0, link));
        world.run_for(FIRST_MS + 1);
        assert!(!is_made(&world) && world.nodes[0].links.contains(&link), "it waits");
        if is_healed {
            world.heal();
            world.run_for(2 * FIRST_MS);
            assert!(is_made(&world), "the third attempt is heard");
        } else {
            world.run_for(PEER_PATIENCE_US / 1000 - FIRST_MS);
            assert!(!is_made(&world) && !world.nodes[0].links.contains(&link), "it has ended");
        }
    }
}

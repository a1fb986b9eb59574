//! `cluster/status` word for word: scripts cut its lines. The shape was compared with the packaged
//! ovsdb-server 3.1.0 in these states, but for the leader that takes a server in.

use super::faults::Faults;
use super::world::World;

fn world(joiners: usize) -> World {
    World::new(1, 3, joiners, Faults { delay: 1, sync: 1, ..Faults::default() })
}

/// What a member says of itself, with `N` for how long ago things were.
fn status(world: &mut World, n: usize) -> String {
    let status = world.member(n).expect("it runs").status();
    let mut words: Vec<&str> = status.split(' ').collect();
    for at in 1..words.len() {
        if words[at].lines().next() == Some("ms") {
            words[at - 1] = "N";
        }
    }
    words.join(" ")
}

fn check(world: &mut World, n: usize, expected: &str) {
    let status = status(world, n);
    assert_eq!(status, expected.trim_start(), "status:\n{status}");
}

/// A cluster with a leader, which of them that is, and another member.
fn led() -> (World, usize, usize) {
    let mut world = world(0);
    world.run_for(5000);
    let leader = world.leader().expect("somebody leads");
    (world, leader, (leader + 1) % 3)
}

#[test]
fn of_a_leader() {
    let (mut world, leader, _) = led();
    check(
        &mut world,
        leader,
        r"
0001
Name: db
Cluster ID: 0000 (00000000-0000-0000-0000-00000000004d)
Server ID: 0001 (00010000-0000-0000-0000-000000000000)
Address: tcp:10.0.0.1:6643
Status: cluster member
Role: leader
Term: 2
Leader: self
Vote: self

Last Election started N ms ago, reason: timeout
Last Election won: N ms ago
Election timer: 1000
Log: [2, 3]
Entries not yet committed: 0
Entries not yet applied: 0
Connections: ->0002 ->0003 <-0002 <-0003
Disconnections: 0
Worst heartbeat delay: N ms
Worst fdatasync: N ms
Servers:
    0001 (0001 at tcp:10.0.0.1:6643) (self) next_index=3 match_index=2
    0002 (0002 at tcp:10.0.0.2:6643) next_index=3 match_index=2 last msg N ms ago
    0003 (0003 at tcp:10.0.0.3:6643) next_index=3 match_index=2 last msg N ms ago
",
    );
}

#[test]
fn of_a_follower() {
    let (mut world, _, follower) = led();
    check(
        &mut world,
        follower,
        r"
0002
Name: db
Cluster ID: 0000 (00000000-0000-0000-0000-00000000004d)
Server ID: 0002 (00020000-0000-0000-0000-000000000000)
Address: tcp:10.0.0.2:6643
Status: cluster member
Role: follower
Term: 2
Leader: 0001
Vote: 0001

Election timer: 1000
Log: [2, 3]
Entries not yet committed: 0
Entries not yet applied: 0
Connections: ->0001 ->0003 <-0003 <-0001
Disconnections: 0
Worst heartbeat delay: N ms
Worst fdatasync: N ms
Servers:
    0001 (0001 at tcp:10.0.0.1:6643) last msg N ms ago
    0002 (0002 at tcp:10.0.0.2:6643) (self)
    0003 (0003 at tcp:10.0.0.3:6643)
",
    );
}

#[test]
fn of_a_candidate() {
    // It votes for itself, and the others have not answered.
    let mut world = world(0);
    let n = loop {
        world.run_for(1);
        let is_one = |n: &usize| {
            let status = status(&mut world, *n);
            status.contains("candidate") && status.matches("(voted for").count() == 1
        };
        if let Some(n) = (0..3).find(is_one) {
            break n;
        }
    };
    check(
        &mut world,
        n,
        r"
0001
Name: db
Cluster ID: 0000 (00000000-0000-0000-0000-00000000004d)
Server ID: 0001 (00010000-0000-0000-0000-000000000000)
Address: tcp:10.0.0.1:6643
Status: disconnected from the cluster (election timeout)
Role: candidate
Term: 2
Leader: unknown
Vote: self

Last Election started N ms ago, reason: timeout
Election timer: 1000
Log: [2, 2]
Entries not yet committed: 0
Entries not yet applied: 0
Connections: ->0002 ->0003 <-0002 <-0003
Disconnections: 0
Worst heartbeat delay: N ms
Worst fdatasync: N ms
Servers:
    0001 (0001 at tcp:10.0.0.1:6643) (self) (voted for 0001)
    0002 (0002 at tcp:10.0.0.2:6643) last msg N ms ago
    0003 (0003 at tcp:10.0.0.3:6643) last msg N ms ago
",
    );
}

#[test]
fn of_a_member_without_a_cluster() {
    let (mut world, _, follower) = led();
    (0..3).filter(|n| *n != follower).for_each(|n| world.stop(n));
    world.run_for(5000);
    check(
        &mut world,
        follower,
        r"
0002
Name: db
Cluster ID: 0000 (00000000-0000-0000-0000-00000000004d)
Server ID: 0002 (00020000-0000-0000-0000-000000000000)
Address: tcp:10.0.0.2:6643
Status: disconnected from the cluster (election timeout)
Role: candidate
Term: 2
Leader: unknown
Vote: 0001

Last Election started N ms ago, reason: timeout
Election timer: 1000
Log: [2, 3]
Entries not yet committed: 0
Entries not yet applied: 0
Connections: (->0001) (->0003)
Disconnections: 8
Worst heartbeat delay: N ms
Worst fdatasync: N ms
Servers:
    0001 (0001 at tcp:10.0.0.1:6643) last msg N ms ago
    0002 (0002 at tcp:10.0.0.2:6643) (self) (voted for 0002)
    0003 (0003 at tcp:10.0.0.3:6643)
",
    );
}

#[test]
fn of_a_server_that_joins() {
    let mut world = world(1);
    (0..3).for_each(|n| world.stop(n));
    world.run_for(5000);
    check(
        &mut world,
        3,
        r"
0004
Name: db
Cluster ID: not yet known
Server ID: 0004 (00040000-0000-0000-0000-000000000000)
Address: tcp:10.0.0.4:6643
Status: joining cluster
Remotes for joining: tcp:10.0.0.1:6643 tcp:10.0.0.2:6643 tcp:10.0.0.3:6643
Role: follower
Term: 0
Leader: unknown
Vote: unknown

Election timer: 1000
Log: [1, 1]
Entries not yet committed: 0
Entries not yet applied: 0
Connections:
Disconnections: 0
Worst heartbeat delay: N ms
Worst fdatasync: N ms
Servers:
",
    );
}

#[test]
fn of_a_member_that_leaves() {
    let (mut world, leader, follower) = led();
    world.stop(leader);
    let now_us = world.clock(follower);
    world.member(follower).expect("it runs").leave(now_us);
    check(
        &mut world,
        follower,
        r"
0002
Name: db
Cluster ID: 0000 (00000000-0000-0000-0000-00000000004d)
Server ID: 0002 (00020000-0000-0000-0000-000000000000)
Address: tcp:10.0.0.2:6643
Status: leaving cluster
Role: follower
Term: 2
Leader: 0001
Vote: 0001

Election timer: 1000
Log: [2, 3]
Entries not yet committed: 0
Entries not yet applied: 0
Connections: ->0001 ->0003 <-0003 <-0001
Disconnections: 0
Worst heartbeat delay: N ms
Worst fdatasync: N ms
Servers:
    0001 (0001 at tcp:10.0.0.1:6643) last msg N ms ago
    0002 (0002 at tcp:10.0.0.2:6643) (self)
    0003 (0003 at tcp:10.0.0.3:6643)
",
    );
}

#[test]
fn of_a_leader_that_takes_a_server_in() {
    let (mut world, leader, _) = led();
    let joiner = world.add_joiner();
    world.start(joiner);
    while !status(&mut world, leader).contains("Adding") {
        world.run_for(1);
    }
    check(
        &mut world,
        leader,
        r"
0001
Name: db
Cluster ID: 0000 (00000000-0000-0000-0000-00000000004d)
Server ID: 0001 (00010000-0000-0000-0000-000000000000)
Address: tcp:10.0.0.1:6643
Status: cluster member
Adding server 0004 (0004 at tcp:10.0.0.4:6643) (adding: catchup)
Role: leader
Term: 2
Leader: self
Vote: self

Last Election started N ms ago, reason: timeout
Last Election won: N ms ago
Election timer: 1000
Log: [2, 3]
Entries not yet committed: 0
Entries not yet applied: 0
Connections: ->0002 ->0003 (->0004) <-0002 <-0003 <-0004
Disconnections: 0
Worst heartbeat delay: N ms
Worst fdatasync: N ms
Servers:
    0001 (0001 at tcp:10.0.0.1:6643) (self) next_index=3 match_index=2
    0002 (0002 at tcp:10.0.0.2:6643) next_index=3 match_index=2 last msg N ms ago
    0003 (0003 at tcp:10.0.0.3:6643) next_index=3 match_index=2 last msg N ms ago
",
    );
}

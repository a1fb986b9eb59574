//! Whole clusters under faults: one leader a term, one entry an index, nothing committed is lost,
//! and all goes on when the faults end.
//!
//! `WEIR_SEEDS` says how many seeds, `WEIR_SEED` from which one on.

mod sim;

use sim::{Faults, World};

fn seeds(default: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("WEIR_SEED").unwrap_or(1);
    first..first + number("WEIR_SEEDS").unwrap_or(default)
}

/// Runs with its seed; what it did last is printed if it fails.
fn with_trace(seed: u64, world: World, run: impl FnOnce(&mut World)) {
    struct Tell(u64, World);
    impl Drop for Tell {
        fn drop(&mut self) {
            if std::thread::panicking() {
                let trace = &self.1.trace;
                let from = trace.len().saturating_sub(80);
                println!("seed {}:\n{}", self.0, trace[from..].join("\n"));
                println!("{}", self.1.status());
            }
        }
    }
    let mut tell = Tell(seed, world);
    run(&mut tell.1);
}

#[test]
fn three_members_elect_a_leader_and_commit() {
    let faults = Faults { delay: 2, sync: 3, ..Faults::default() };
    with_trace(1, World::new(1, 3, 0, faults), |world| {
        world.run_for(3000);
        let leader = world.leader().expect("somebody leads");
        for _ in 0..50 {
            assert!(world.propose(leader, 3));
            world.run_for(20);
        }
        world.run_for(1500);
        assert_eq!((world.acknowledged, world.elections), (150, 1));
        world.check_converged();
    });
}

#[test]
fn one_member_leads_at_once() {
    let faults = Faults { delay: 1, sync: 1, ..Faults::default() };
    with_trace(1, World::new(1, 1, 0, faults), |world| {
        world.run_for(10);
        assert_eq!(world.leader(), Some(0));
        assert!(world.propose(0, 5));
        world.run_for(10);
        assert_eq!(world.acknowledged, 5);
    });
}

#[test]
fn servers_join_and_leave() {
    for seed in seeds(20) {
        let faults = Faults { delay: 5, sync: 5, compact: 300, ..Faults::default() };
        with_trace(seed, World::new(seed, 1, 4, faults), |world| {
            let mut written = 0;
            for _ in 0..100 {
                if let Some(leader) = world.leader() {
                    written += u64::from(world.propose(leader, 1));
                }
                world.run_for(100);
            }
            assert!(written > 50, "{written}");
            for n in 0..5 {
                let member = world.member(n).expect("it runs");
                assert!(member.is_member(), "server {n} has joined");
            }
            let leader = world.leader().expect("somebody leads");
            let (now_us, gone) = (world.now_us, world.id((leader + 1) % 5));
            world.member(leader).expect("it runs").leave(now_us);
            world.after_command(leader);
            world.run_for(6000);
            assert!(world.has_left(leader), "the leader has left");
            let other = world.leader().expect("somebody leads");
            let now_us = world.now_us;
            world.member(other).expect("it runs").kick(now_us, gone);
            world.after_command(other);
            world.run_for(6000);
            assert!(world.has_left((leader + 1) % 5), "another was removed");
            world.calm();
            world.run_for(5000);
            let leader = world.leader().expect("somebody leads");
            assert!(world.propose(leader, 1));
            world.run_for(3000);
            world.check_converged();
        });
    }
}

#[test]
fn nothing_committed_is_lost_under_faults() {
    let (mut elections, mut snapshots, mut acknowledged) = (0, 0, 0);
    for seed in seeds(40) {
        let faults = Faults {
            crash: 4000,
            cut: 3000,
            reset: 1000,
            compact: 1500,
            disk: 200,
            pause: 5000,
            delay: 20,
            sync: 20,
        };
        let members = [3, 5][(seed % 2) as usize];
        with_trace(seed, World::new(seed, members, 1, faults), |world| {
            for _ in 0..600 {
                for n in 0..world.len() {
                    if world.chance(3) == 0 {
                        let count = 1 + world.chance(4) as usize;
                        world.propose(n, count);
                    }
                }
                world.run_for(100);
            }
            world.calm();
            world.run_for(15_000);
            let leader = world.leader().expect("somebody leads when all is well");
            assert!(world.propose(leader, 1));
            world.run_for(3000);
            world.check_converged();
            elections += world.elections;
            snapshots += world.snapshots;
            acknowledged += world.acknowledged;
        });
    }
    println!("{elections} elections, {snapshots} snapshots, {acknowledged} acknowledged");
    assert!(elections > 20 && acknowledged > 1000, "{elections} {acknowledged}");
}

//! Whole clusters under faults: one leader a term, one entry an index, nothing committed is lost,
//! and all goes on when the faults end.
//!
//! `WEIR_SEEDS` says how many seeds, `WEIR_SEED` from which one on, `WEIR_SECONDS` for how long whole servers
//! are simulated (`crates/sim`), of which a quarter is for members, `WEIR_TRACE` how many lines of its trace a
//! failing one shows.

mod sim;

use std::time::{Duration, Instant};

use weir_cluster::Role;

use sim::{Counts, Faults, Forgets, HEARD_MS, Lie, Rng, SETTLE_TIMERS, World};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn seeds(default: u64) -> std::ops::Range<u64> {
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
                let lines = number("WEIR_TRACE").unwrap_or(80) as usize;
                let from = trace.len().saturating_sub(lines);
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
        let counts = world.checks.counts;
        assert_eq!((counts.acknowledged, counts.elections), (150, 1));
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
        assert_eq!(world.checks.counts.acknowledged, 5);
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
            world.run(leader);
            world.run_for(6000);
            assert!(world.has_left(leader), "the leader has left");
            let other = world.leader().expect("somebody leads");
            let now_us = world.now_us;
            world.member(other).expect("it runs").kick(now_us, gone);
            world.run(other);
            world.run_for(6000);
            assert!(world.has_left((leader + 1) % 5), "another was removed");
            world.settle();
        });
    }
}

/// Of four members one is removed. Only the leader and one other have the entry of that, and the other one does not
/// know that it is committed: to lead, it needs three votes of four, and only the removed one is left to give the third.
/// False if the removed one has not heard of its removal either.
fn a_removed_member_is_killed_and_then_needed(world: &mut World) -> bool {
    world.run_for(5000);
    let leader = world.leader().expect("somebody leads");
    let [knowing, lacking, removed] = [1, 2, 3].map(|next| (leader + next) % 4);
    world.cut_off(lacking);
    let (now_us, id) = (world.now_us, world.id(removed));
    world.member(leader).expect("it runs").kick(now_us, id);
    world.run(leader);
    let last = world.member(leader).expect("it runs").last_position();
    while world.member(knowing).expect("it runs").last_position() != last {
        world.run_for(1);
    }
    world.cut_from(knowing, leader);
    world.run_for(200);
    if !world.member(removed).expect("it runs").is_departing() {
        return false;
    }
    let has_heard = !world.member(knowing).expect("it runs").servers().contains_key(&id);
    assert!(!has_heard, "it hears the leader no more");
    [leader, removed].into_iter().for_each(|n| world.stop(n));
    world.heal();
    world.run_for(10_000);
    assert!(world.leader().is_none(), "two votes of four are too few");
    world.start(removed);
    assert!(world.member(removed).expect("it runs").is_departing(), "it does not join again");
    world.run_for(10_000);
    assert_eq!(world.leader(), Some(knowing), "the removed member has voted");
    assert!(world.has_left(removed), "it has been told that it may go");
    world.start(leader);
    world.settle();
    true
}

#[test]
fn a_removed_member_that_is_killed_votes_when_it_is_started_again_and_then_leaves() {
    let mut was_needed = 0;
    for seed in seeds(20) {
        let faults = Faults { delay: 1, sync: 5, ..Faults::default() };
        with_trace(seed, World::new(seed, 4, 0, faults), |world| {
            was_needed += u64::from(a_removed_member_is_killed_and_then_needed(world));
        });
    }
    assert!(was_needed > 0 || number("WEIR_SEEDS").is_some(), "no seed gets there");
}

/// All members of a cluster are told to go at once: those that are last have nobody to hand anything to.
#[test]
fn all_members_leave_at_once() {
    for seed in seeds(20) {
        let members = 1 + (seed % 5) as usize;
        let faults = Faults { delay: 5, sync: 5, ..Faults::default() };
        with_trace(seed, World::new(seed, members, 0, faults), |world| {
            world.run_for(5000);
            for n in 0..members {
                let now_us = world.now_us;
                let id = world.id(n);
                let member = world.member(n).expect("it runs");
                // Who is to remove itself leaves.
                match seed % 2 {
                    0 => member.leave(now_us),
                    _ => member.kick(now_us, id),
                }
                world.run(n);
                let ms = world.chance(2) * world.chance(1500);
                world.run_for(ms);
            }
            world.run_for(30_000);
            for n in 0..members {
                assert!(world.has_left(n), "server {n} of {members} has left");
            }
        });
    }
}

/// The list in the snapshot that a server was sent may name only servers that have gone since.
#[test]
fn who_is_stopped_behind_its_snapshot_joins_where_it_was_told_to() {
    for seed in seeds(20) {
        let faults = Faults { delay: 5, sync: 5, ..Faults::default() };
        with_trace(seed, World::new(seed, 1, 1, faults), |world| {
            world.run_for(5000);
            let now_us = world.now_us;
            world.member(0).expect("it runs").leave(now_us);
            world.run(0);
            world.run_for(10_000);
            assert!(world.has_left(0) && world.leader() == Some(1));
            let joiner = world.add_joiner();
            world.start(joiner);
            let mut waited_ms = 0;
            while !world.has_snapshot(joiner) {
                world.run_for(1);
                waited_ms += 1;
                assert!(waited_ms < 5000, "it is sent a snapshot");
            }
            world.stop(joiner);
            world.stop(1);
            world.start(1);
            world.run_for(3000);
            assert_eq!(world.members(), 1);
            world.start(joiner);
            world.run_for(5000);
            assert_eq!(world.members(), 2, "it has joined");
            world.settle();
        });
    }
}

/// Operators name hosts, and members themselves numbers.
#[test]
fn who_knows_a_member_by_two_names_stays_connected_to_it() {
    for seed in seeds(20) {
        let faults = Faults { delay: 5, sync: 5, ..Faults::default() };
        with_trace(seed, World::new(seed, 2, 0, faults), |world| {
            world.run_for(5000);
            // Nobody takes it in meanwhile.
            world.stop(1);
            let joiner = world.add_joiner_at(0, "tcp:first.example:6643");
            world.start(joiner);
            world.run_for(5000);
            let before = world.connections();
            world.run_for(20_000);
            let connections = world.connections() - before;
            assert!(connections < 10, "{connections} in 20 s");
            world.start(1);
            world.run_for(6000);
            assert_eq!(world.members(), 3, "it has joined");
            world.settle();
        });
    }
}

/// A leader under load proposes what has come as soon as what it proposed before is committed, for which it does not need
/// who is slower than most.
#[test]
fn a_server_joins_under_load_though_it_is_slower_than_others() {
    for seed in seeds(5) {
        let faults = Faults { delay: 3, sync: 3, ..Faults::default() };
        with_trace(seed, World::new(seed, 3, 0, faults), |world| {
            world.run_for(5000);
            let joiner = world.add_joiner();
            world.start(joiner);
            let mut batches = 0;
            for _ in 0..20_000 {
                let leader = world.leader().expect("somebody leads");
                let member = world.member(leader).expect("it runs");
                if member.committed() == member.last_position().index {
                    assert!(world.propose(leader, 40));
                    batches += 1;
                }
                world.hang(joiner, 30);
                world.run_for(1);
                if world.members() == 4 {
                    break;
                }
            }
            assert_eq!(world.members(), 4, "it has joined, beside {batches} batches");
            world.settle();
        });
    }
}

/// Members of five that are silent for longer than an operator has said are removed, one after the other,
/// down to three; who was removed is told when it comes back.
#[test]
fn silent_members_are_removed_where_that_was_wished_and_three_stay() {
    for seed in seeds(20) {
        let faults = Faults { delay: 5, sync: 5, ..Faults::default() };
        with_trace(seed, World::new(seed, 5, 0, faults), |world| {
            world.run_for(5000);
            let leader = world.leader().expect("somebody leads");
            let dead: Vec<usize> = (1..=3).map(|next| (leader + next) % 5).collect();
            world.stop(dead[0]);
            world.run_for(20_000);
            assert_eq!(world.members(), 5, "nobody has said that it may be removed");
            for n in (0..5).filter(|n| *n != dead[0]) {
                world.member(n).expect("it runs").set_removal(Some(10_000));
            }
            world.run_for(1000);
            assert_eq!(world.members(), 4, "it has been silent for long enough");
            world.stop(dead[1]);
            world.run_for(8000);
            assert_eq!(world.members(), 4, "not yet");
            world.run_for(5000);
            assert_eq!(world.members(), 3);
            world.stop(dead[2]);
            world.run_for(20_000);
            assert_eq!(world.members(), 3, "two would not do for one that is lost");
            dead.iter().for_each(|n| world.start(*n));
            world.run_for(6000);
            assert!(world.has_left(dead[0]) && world.has_left(dead[1]) && !world.has_left(dead[2]));
            world.settle();
        });
    }
}

/// Everything at once, now and then.
fn faults(seed: u64) -> Faults {
    let removes_silent = seed % 11 == 7;
    Faults {
        crash: 4000,
        down: 3000,
        away: if removes_silent { 8000 } else { 40_000 },
        cut: 3000,
        reset: 1000,
        silence: if seed % 3 == 2 { 2000 } else { 0 },
        is_dark: seed % 6 == 5,
        compact: 1500,
        copy: 500,
        forget: 4000,
        disk: 200,
        suspect: 500,
        full: 5000,
        hang: if seed.is_multiple_of(2) { 5000 } else { 0 },
        room: 2000,
        snapshot: 30,
        pause: 5000,
        jump: 30_000,
        join: 10_000,
        leave: 15_000,
        kick: 15_000,
        removal_ms: removes_silent.then_some(8000),
        moves: if seed % 7 == 3 { 6000 } else { 0 },
        hand_over: 5000,
        timer: 8000,
        delay: 20,
        sync: 20,
        long: if seed % 13 == 9 { 20 } else { 0 },
        // Some snapshots have several pieces.
        forgets_again: false,
        padding: if seed.is_multiple_of(4) { 1_500_000 } else { 0 },
    }
}

/// From this seed on each kind of fault has a rate of its own: some never happen, others all the time, so that none hides
/// what another would show.
const MIXED_FROM: u64 = 1_000_000;

/// From this seed on, in every other one, a server may come back with the same older file again.
const AGAIN_FROM: u64 = 1_040_000;

fn mixed_faults(seed: u64) -> Faults {
    let mut rng = Rng(!seed);
    let mut rate = |usual: u64| match rng.below(8) {
        0 | 1 => 0,
        2 => usual * 4,
        3 | 4 => usual / 4,
        _ => usual,
    };
    let mut f = faults(seed);
    let rates = [
        &mut f.crash,
        &mut f.cut,
        &mut f.reset,
        &mut f.compact,
        &mut f.copy,
        &mut f.forget,
        &mut f.disk,
        &mut f.suspect,
        &mut f.full,
        &mut f.room,
        &mut f.snapshot,
        &mut f.pause,
        &mut f.jump,
        &mut f.join,
        &mut f.leave,
        &mut f.kick,
        &mut f.timer,
    ];
    for often in rates {
        *often = rate(*often);
    }
    (f.silence, f.hang, f.moves) = (rate(2000), rate(5000), rate(6000));
    (f.away, f.hand_over, f.long) = (rate(f.away), rate(f.hand_over), rate(100));
    f.down = 1 + rng.below(10_000);
    (f.delay, f.sync) = (1 + rng.below(60), 1 + rng.below(60));
    (f.is_dark, f.removal_ms) = (rng.one_in(2), rng.one_in(4).then_some(8000));
    f.padding = if rng.one_in(4) { 1_500_000 } else { 0 };
    f.forgets_again = seed >= AGAIN_FROM && seed % 2 == 1;
    f
}

/// A minute of faults and writes, and what must hold behind it.
fn a_bad_minute(world: &mut World) {
    for _ in 0..600 {
        for n in 0..world.len() {
            if world.chance(3) == 0 {
                let count = 1 + world.chance(4) as usize;
                world.propose(n, count);
                world.read_index(n);
            }
        }
        world.run_for(100);
    }
    world.settle();
}

fn bad_world(seed: u64) -> World {
    let faults = if seed < MIXED_FROM { faults(seed) } else { mixed_faults(seed) };
    World::new(seed, [3, 5, 2, 4][(seed % 4) as usize], 1, faults)
}

/// The seeds of this simulator that have failed once.
fn failed_seeds() -> impl Iterator<Item = u64> {
    let lines = include_str!("../../sim/failed-seeds").lines();
    lines.filter_map(|line| {
        let seed = line.strip_prefix("members ")?.split(' ').next()?;
        Some(seed.parse().expect("a seed"))
    })
}

#[test]
fn whatever_happens_nothing_committed_is_lost() {
    let mut counts = Counts::default();
    let known = failed_seeds().filter(|_| number("WEIR_SEEDS").is_none());
    let end = number("WEIR_SECONDS").map(|all| Instant::now() + Duration::from_secs(all / 4));
    let new = seeds(if end.is_some() { u64::from(u32::MAX) } else { 40 });
    let mixed = (MIXED_FROM..MIXED_FROM + 20).filter(|_| number("WEIR_SEEDS").is_none());
    for seed in known.chain(new).chain(mixed) {
        if end.is_some_and(|end| Instant::now() > end) {
            break;
        }
        with_trace(seed, bad_world(seed), |world| {
            a_bad_minute(world);
            counts.add(world.checks.counts);
        });
    }
    println!("{counts:?}");
    if number("WEIR_SEEDS").or(number("WEIR_SECONDS")).is_some() {
        return;
    }
    assert!(counts.moves > 10, "{counts:?}");
    assert!(counts.elections > 20 && counts.acknowledged > 1000, "{counts:?}");
    assert!(counts.snapshots > 0 && counts.compactions > 0 && counts.left > 0, "{counts:?}");
    assert!(counts.extensions > 0 && counts.timed_out > 20, "{counts:?}");
    assert!(counts.lost_snapshots > 0 && counts.suspect > 20, "{counts:?}");
    assert!(counts.texts_read > 0 && counts.reads > 100, "{counts:?}");
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let run = || {
        let mut world = bad_world(4);
        a_bad_minute(&mut world);
        world.trace
    };
    assert_eq!(run(), run());
}

/// How many seeds it takes until the checks see that a promise is broken.
fn seen_after(lie: Lie) -> Option<u64> {
    (1..=LIE_SEEDS).find(|seed| {
        let mut world = match lie {
            Lie::ForgetsVotes => world_of_elections(*seed),
            Lie::IgnoresOrder => world_of_bad_disks(*seed),
            _ => bad_world(*seed),
        };
        world = world.with_lie(lie);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| match lie {
            Lie::IgnoresOrder => many_writes(&mut world),
            _ => a_bad_minute(&mut world),
        }))
        .is_err()
    })
}

/// Servers crash for a moment, and messages take long, so that terms have several candidates.
fn world_of_elections(seed: u64) -> World {
    let faults = Faults { crash: 150, down: 20, delay: 150, sync: 5, ..Faults::default() };
    World::new(seed, 5, 0, faults)
}

/// Writes fail often, while others are under way, and crashes show what is in the files.
fn world_of_bad_disks(seed: u64) -> World {
    let faults =
        Faults { crash: 1000, down: 500, disk: 20, delay: 5, sync: 50, ..Faults::default() };
    World::new(seed, 3, 0, faults)
}

/// Several writes are under way at once.
fn many_writes(world: &mut World) {
    for _ in 0..3000 {
        (0..world.len()).for_each(|n| _ = world.propose(n, 1));
        world.run_for(5);
    }
    world.settle();
}

/// A broken promise is seen within so many seeds.
const LIE_SEEDS: u64 = 20;

#[test]
fn a_broken_promise_is_seen() {
    let lies = [
        Lie::DropsSteps,
        Lie::AnswersEarly,
        Lie::ForgetsVotes,
        Lie::ForgetsTail,
        Lie::AppliesTwice,
        Lie::SkipsEntries,
        Lie::IgnoresOrder,
        Lie::LosesTailOfCopy,
        Lie::SnapshotLacksData,
    ];
    for lie in lies {
        let after = seen_after(lie);
        println!("{lie:?}: {after:?}");
        assert!(after.is_some(), "nobody sees in {LIE_SEEDS} seeds that a shell {lie:?}");
    }
}

/// Three members under load, and the disk of the one that leads answers nothing more.
fn a_disk_that_hangs(world: &mut World) {
    world.run_for(3000);
    let leads = |world: &mut World, n| {
        world.member(n).is_some_and(|member| member.role() == Role::Leader && member.may_propose())
    };
    let old = (0..3).find(|n| leads(world, *n)).expect("one of them leads");
    world.hang(old, 30_000);
    let before = world.checks.counts.acknowledged;
    for _ in 0..50 {
        (0..3).for_each(|n| _ = world.propose(n, 1));
        world.run_for(100);
    }
    assert!((0..3).any(|n| n != old && leads(world, n)), "another one has taken over");
    assert!(world.checks.counts.acknowledged > before + 20, "writes go on");
    assert!(!world.member(old).expect("it runs").is_connected(), "{old} says that it is behind");
    world.run_for(30_000);
    assert!(world.member(old).expect("it runs").is_connected());
    world.settle();
}

#[test]
fn a_leader_whose_disk_answers_nothing_hands_over() {
    for seed in seeds(20) {
        let faults = Faults { delay: 20, sync: 20, ..Faults::default() };
        with_trace(seed, World::new(seed, 3, 0, faults), a_disk_that_hangs);
    }
}

/// Three members, of which one has a full disk and another one is lost, at some moments of writing.
/// Of the two that are left the one with room leads, the other one takes no entry, and when there is room
/// all goes on.
fn a_full_disk_and_a_lost_member(world: &mut World) {
    world.run_for(3000);
    let full = world.chance(3) as usize;
    let lost = (full + 1 + world.chance(2) as usize) % 3;
    let left = 3 - full - lost;
    // Who is asked to write nothing does not know that it could not.
    let (before, after) = (world.chance(40), 1 + world.chance(40));
    for n in 0..before + after {
        if n == before {
            world.fill(full, 1_000_000);
        }
        (0..3).for_each(|n| _ = world.propose(n, 1));
        let ms = world.chance(100);
        world.run_for(ms);
    }
    world.stop(lost);
    world.run_for(FULL_TIMERS * 1000);
    let id = world.id(left);
    for n in [left, full] {
        let leader = world.member(n).expect("it runs").leader();
        assert_eq!(leader, Some(id), "{n} follows the member with room, {left}");
    }
    assert!(!world.member(full).expect("it runs").is_connected(), "{full} says that it is behind");
    world.fill(full, 0);
    world.run_for(3000);
    let acknowledged = world.checks.counts.acknowledged;
    assert!(world.propose(left, 3), "there is room again");
    world.run_for(1000);
    assert_eq!(world.checks.counts.acknowledged, acknowledged + 3);
    assert!(world.member(full).expect("it runs").is_connected());
    world.settle();
}

/// After so many election timers the member with room leads: it may have to be led first by the one
/// without, to get what it lacks, which waits for longer than others before it campaigns.
const FULL_TIMERS: u64 = 12;

fn world_of_full_disks(seed: u64) -> World {
    let compact = if seed.is_multiple_of(3) { 500 } else { 0 };
    World::new(seed, 3, 0, Faults { delay: 20, sync: 20, compact, ..Faults::default() })
}

#[test]
fn a_member_with_a_full_disk_votes() {
    for seed in seeds(40) {
        with_trace(seed, world_of_full_disks(seed), a_full_disk_and_a_lost_member);
    }
}

#[test]
fn without_room_for_votes_a_full_disk_stops_a_cluster() {
    let is_stopped = |seed| {
        let mut world = world_of_full_disks(seed).with_lie(Lie::KeepsNoRoom);
        let run = || a_full_disk_and_a_lost_member(&mut world);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err()
    };
    assert!((1..=LIE_SEEDS).any(is_stopped), "nobody votes where nothing can be written");
}

#[test]
fn writes_that_fail_all_the_time_lose_nothing() {
    for seed in seeds(10) {
        with_trace(seed, world_of_bad_disks(seed), many_writes);
    }
}

#[test]
fn servers_that_crash_all_the_time_keep_their_promises() {
    for seed in seeds(10) {
        with_trace(seed, world_of_elections(seed), a_bad_minute);
    }
}

/// Of three or five members one forgets what only it and another one, or two, have acknowledged, while
/// all are there that know. Then whoever has it goes, for a while.
fn a_member_that_forgets(world: &mut World, how: Forgets) {
    let len = world.len();
    let write = |world: &mut World, times: u64| {
        for _ in 0..times {
            (0..len).for_each(|n| _ = world.propose(n, 1));
            let ms = world.chance(60);
            world.run_for(ms);
        }
    };
    world.run_for(3000);
    let forgetful = world.chance(len as u64) as usize;
    let first = (forgetful + 1 + world.chance(len as u64 - 1) as usize) % len;
    let mut others: Vec<usize> = (first..first + len).map(|n| n % len).collect();
    others.retain(|n| *n != forgetful);
    let (knowing, behind) = others.split_at(len / 2);
    let times = world.chance(30);
    write(world, times);
    world.copy_file(forgetful);
    write(world, times);
    behind.iter().for_each(|n| world.cut_off(*n));
    let times = 50 + world.chance(50);
    write(world, times);
    if !world.forget(forgetful, how) {
        return;
    }
    world.run_for(HEARD_MS);
    knowing.iter().for_each(|n| world.crash_for(*n, 5000));
    write(world, 100);
    world.settle();
}

fn world_of_forgetting(seed: u64) -> World {
    let compact = if seed.is_multiple_of(3) { 500 } else { 0 };
    let faults = Faults { delay: 20, sync: 20, compact, ..Faults::default() };
    World::new(seed, [3, 5][(seed % 2) as usize], 0, faults)
}

/// Whoever forgets votes only half an election timer later: few seeds have an election then.
const FORGETFUL_SEEDS: u64 = 400;

const FORGETFUL: [(Forgets, Lie); 2] =
    [(Forgets::OlderCopy, Lie::TellsNothing), (Forgets::BadRecord, Lie::IgnoresDamage)];

#[test]
fn what_is_committed_stays_though_a_member_forgets() {
    let mut counts = Counts::default();
    for (how, _) in FORGETFUL {
        for seed in seeds(30) {
            with_trace(seed, world_of_forgetting(seed), |world| {
                a_member_that_forgets(world, how);
                // It is removed as who it was, and then taken in: all may be well in between.
                for _ in 0..SETTLE_TIMERS {
                    if world.members() < world.len() {
                        world.run_for(1000);
                    }
                }
                assert_eq!(world.members(), world.len(), "the member has joined again");
                counts.add(world.checks.counts);
            });
        }
    }
    println!("{counts:?}");
    assert!(counts.forgotten > 30 && counts.hindered > 10, "{counts:?}");
}

#[test]
fn a_member_that_forgets_and_votes_loses_what_is_committed() {
    for (how, lie) in FORGETFUL {
        let is_seen = |seed| {
            let mut world = world_of_forgetting(seed).with_lie(lie);
            let run = || a_member_that_forgets(&mut world, how);
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err()
        };
        let seen = (1..=FORGETFUL_SEEDS).find(|seed| is_seen(*seed));
        println!("{how:?}: seen in seed {seen:?}");
        assert!(seen.is_some(), "nobody sees it");
    }
}

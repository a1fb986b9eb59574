//! Whole clusters under faults: nothing acknowledged is lost, nothing is there twice, who asks is
//! told the truth, and all goes on when the faults end.
//!
//! `WEIR_SEEDS` says how many seeds, `WEIR_SEED` from which one on, `WEIR_TRACE` how many lines of its
//! trace a failing one shows.

use weir_sim::{Counts, Faults, Lie, World};

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
                let lines = number("WEIR_TRACE").unwrap_or(80) as usize;
                println!("seed {}:\n{}", self.0, self.1.trace(lines));
                println!("{}", self.1.status());
            }
        }
    }
    let mut tell = Tell(seed, world);
    run(&mut tell.1);
}

/// A world without faults, in which all that is asked for is done.
fn is_served(add: impl FnOnce(&mut World)) {
    let faults = Faults { sync_us: 300, delay_us: 300, ..Faults::default() };
    with_trace(1, World::new(1, 3, faults), |world| {
        add(world);
        world.run_for(10_000);
        world.calm();
        world.run_for(3000);
        world.check_converged();
        let Counts { acknowledged, unknown, reads, .. } = world.counts();
        assert!(acknowledged > 500 && reads > 100, "{:?}", world.counts());
        assert_eq!(unknown, 0, "{:?}", world.counts());
    });
}

#[test]
fn a_calm_cluster_commits_what_its_clients_write() {
    is_served(|_| {});
}

/// A request is sent again where its connection has ended, and what was sent first may come behind
/// that, on the connection that the other end does not know to have ended.
#[test]
fn connections_that_end_all_the_time_bring_no_transaction_twice() {
    let faults =
        Faults { reset: 1000, stall: 200, sync_us: 300, delay_us: 1000, ..Faults::default() };
    for seed in 5..15 {
        with_trace(seed, World::new(seed, 3, faults.clone()), |world| {
            world.run_for(10_000);
            world.calm();
            world.run_for(3000);
            world.check_converged();
            assert!(world.counts().acknowledged > 300, "{:?}", world.counts());
        });
    }
}

/// A relay of all members, one behind that, and one that has the choice between these and a member.
fn add_relays(world: &mut World, servers: usize) {
    let first = world.add_relay(&(0..servers).collect::<Vec<_>>());
    let second = world.add_relay(&[first]);
    world.add_relay(&[second, first, 0]);
}

#[test]
fn calm_relays_have_what_their_source_has() {
    is_served(|world| add_relays(world, 3));
}

/// Relays send again what their sources had not answered, and it is made once; who has an answer sees what
/// it changed, at whichever relay.
#[test]
fn relays_that_lose_their_sources_all_the_time_make_no_transaction_twice() {
    let faults = Faults {
        reset: 1000,
        kill: 30,
        pause: 50,
        stall: 200,
        slow_reader: 3000,
        convert: 30,
        slow_helper: 30,
        sync_us: 300,
        delay_us: 1000,
        ..Faults::default()
    };
    for seed in seeds(6) {
        with_trace(seed, World::new(seed, 3, faults.clone()), |world| {
            add_relays(world, 3);
            world.run_for(15_000);
            world.calm();
            world.run_for(5000);
            world.check_converged();
            assert!(world.counts().acknowledged > 300, "{:?}", world.counts());
        });
    }
}

/// Everything at once, now and then.
fn faults(seed: u64) -> Faults {
    Faults {
        crash: 30,
        kill: 30,
        cut: 60,
        reset: 60,
        pause: 50,
        compact: 40,
        jump: 20,
        stop: 20,
        change: if seed.is_multiple_of(5) { 100 } else { 0 },
        full: if seed.is_multiple_of(3) { 30 } else { 0 },
        forget: if seed.is_multiple_of(7) { 40 } else { 0 },
        convert: if seed.is_multiple_of(3) { 40 } else { 0 },
        slow_helper: if seed.is_multiple_of(2) { 10 } else { 0 },
        stall: if seed.is_multiple_of(5) { 50 } else { 0 },
        slow_reader: 300,
        sync_us: 3000,
        delay_us: 5000,
        lie: None,
    }
}

/// Whether what servers do wrong is found in one of these seeds.
fn is_found(lie: Lie, seeds: std::ops::Range<u64>) -> bool {
    seeds.into_iter().any(|seed| {
        let run = || {
            let faults = Faults { lie: Some(lie), crash: 200, ..faults(seed) };
            let mut world = World::new(seed, 3, faults);
            world.run_for(15_000);
            world.calm();
            world.run_for(5000);
            world.check_converged();
        };
        std::panic::catch_unwind(run).is_err()
    })
}

#[test]
fn files_that_are_not_synced_are_found() {
    assert!(is_found(Lie::SkipsSync, 1..20));
}

#[test]
fn servers_that_forget_everything_are_found() {
    assert!(is_found(Lie::ForgetsAll, 1..20));
}

#[test]
fn whatever_happens_clients_are_told_the_truth() {
    let mut sum = Counts::default();
    for seed in seeds(4) {
        let servers = if seed.is_multiple_of(4) { 5 } else { 3 };
        with_trace(seed, World::new(seed, servers, faults(seed)), |world| {
            world.add_spares(2);
            if seed.is_multiple_of(2) {
                add_relays(world, servers);
            }
            world.run_for(30_000);
            let before = world.counts().acknowledged;
            world.calm();
            world.run_for(15_000);
            let counts = world.counts();
            assert!(counts.acknowledged > before + 100, "it does not go on: {counts:?}");
            world.check_converged();
            add(&mut sum, counts);
        });
    }
    println!("{sum:?}");
}

fn add(sum: &mut Counts, more: Counts) {
    sum.acknowledged += more.acknowledged;
    sum.unknown += more.unknown;
    sum.refused += more.refused;
    sum.found += more.found;
    sum.reads += more.reads;
    sum.synced_reads += more.synced_reads;
    sum.resumed += more.resumed;
    sum.began_anew += more.began_anew;
    sum.conversions += more.conversions;
    sum.joins += more.joins;
    sum.left += more.left;
    for (sum, more) in sum.faults.iter_mut().zip(more.faults) {
        *sum += more;
    }
}

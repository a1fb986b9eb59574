//! Whole clusters under faults: nothing acknowledged is lost, nothing is there twice, who asks is
//! told the truth, and all goes on when the faults end.
//!
//! `WEIR_SEEDS` says how many seeds, `WEIR_SEED` from which one on, `WEIR_TRACE` how many lines of its
//! trace a failing one shows.

use std::time::{Duration, Instant};

use weir_sim::coverage::Coverage;
use weir_sim::plan::{Part, Plan};
use weir_sim::seed::{self, Run, TRANSACTIONS_MIN, add_relays, faults};
use weir_sim::{Counts, Faults, Lie, World, failed_seeds};

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
                let world = std::panic::AssertUnwindSafe(|| self.1.status());
                println!("{}", std::panic::catch_unwind(world).unwrap_or_default());
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
        let Counts { acknowledged, unknown, reads, conditions, compared, deleted, .. } =
            world.counts();
        assert!(acknowledged > 500 && reads > 100, "{:?}", world.counts());
        assert!(conditions > 10 && compared > 10 && deleted > 50, "{:?}", world.counts());
        assert_eq!(unknown, 0, "{:?}", world.counts());
    });
}

/// Three servers, and what is added to them, for so many seeds: so long with faults, so long without, in
/// milliseconds. All is well then, and more than so many writes have been acknowledged.
fn is_borne(
    count: u64,
    faults: &Faults,
    add: impl Fn(&mut World),
    [with_faults, without]: [u64; 2],
    acknowledged_min: u64,
) {
    for seed in seeds(count) {
        with_trace(seed, World::new(seed, 3, faults.clone()), |world| {
            add(world);
            world.run_for(with_faults);
            world.calm();
            world.run_for(without);
            world.check_converged();
            assert!(world.counts().acknowledged > acknowledged_min, "{:?}", world.counts());
        });
    }
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
        Faults { reset: 1000, stall: 1000, sync_us: 300, delay_us: 1000, ..Faults::default() };
    is_borne(10, &faults, |_| {}, [10_000, 3000], 300);
}

/// A member that has no room for entries gets a snapshot in which its own clients' writes are.
#[test]
fn full_disks_and_snapshots_leave_nobody_without_an_answer() {
    let faults = Faults {
        full: 150,
        compact: 600,
        convert: 30,
        sync_us: 300,
        delay_us: 1000,
        ..Faults::default()
    };
    is_borne(6, &faults, |_| {}, [15_000, 8000], 300);
}

/// Pieces of snapshots for others, and snapshots that have come, are read again.
#[test]
fn files_that_cannot_be_read_at_times_keep_nobody_behind() {
    let faults = Faults {
        full: 150,
        compact: 600,
        convert: 30,
        slow_helper: 5,
        unread: 5000,
        sync_us: 3000,
        delay_us: 20_000,
        ..Faults::default()
    };
    is_borne(6, &faults, |_| {}, [15_000, 8000], 300);
}

/// A client may ask for more before it is answered, and some change nothing.
#[test]
fn a_calm_cluster_keeps_the_order_of_each_session_and_its_locks() {
    let faults = Faults { sync_us: 300, delay_us: 300, ..Faults::default() };
    with_trace(1, World::new(1, 3, faults), |world| {
        world.add_pipelines();
        world.add_bystanders();
        world.run_for(10_000);
        world.calm();
        world.run_for(5000);
        world.check_converged();
        let Counts { looks, guarded, served, .. } = world.counts();
        assert!(looks > 300 && guarded > 100 && served > 100, "{:?}", world.counts());
    });
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
    is_borne(6, &faults, |world| add_relays(world, 3), [15_000, 5000], 300);
}

/// Ten relays, one behind the other; every second one may go on with the one before its source.
#[test]
fn relays_ten_deep_make_no_transaction_twice() {
    let faults = Faults {
        reset: 1000,
        kill: 60,
        pause: 60,
        convert: 30,
        slow_reader: 1000,
        slow_helper: 10,
        sync_us: 300,
        delay_us: 1000,
        ..Faults::default()
    };
    is_borne(
        2,
        &faults,
        |world| {
            let mut before = vec![0, 1, 2];
            for depth in 0..10 {
                let relay = world.add_relay(&before);
                before.retain(|server| *server >= 3 && depth % 2 == 0);
                before.insert(0, relay);
                before.truncate(2);
            }
        },
        [15_000, 30_000],
        100,
    );
}

#[test]
fn servers_that_lose_their_power_all_the_time_keep_what_they_acknowledged() {
    for seed in seeds(3) {
        with_trace(seed, World::new(seed, 3, Faults { crash: 200, ..faults(seed) }), |world| {
            world.run_for(15_000);
            world.calm();
            world.run_for(5000);
            world.check_converged();
        });
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

/// `WEIR_SECONDS` says for how long, if not how many seeds, and begins with those that have failed once;
/// `WEIR_SHRINK` that a failing one is made short, and `WEIR_COVERAGE` how often each fault must have met each
/// role during each change.
#[test]
fn whatever_happens_clients_are_told_the_truth() {
    let seconds = number("WEIR_SECONDS");
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let new = if end.is_some() { seeds(u64::from(u32::MAX)) } else { seeds(4) };
    let known = failed_seeds("servers").filter(|_| end.is_some() && number("WEIR_SEEDS").is_none());
    run_all(known.chain(new), end);
}

/// Who is given a lock finds all that was written under it, whoever has left meanwhile and whoever leads. An eighth of
/// `WEIR_SECONDS` is for that.
#[test]
fn whatever_happens_who_has_a_lock_finds_what_was_written_under_it() {
    let end = number("WEIR_SECONDS").map(|all| Instant::now() + Duration::from_secs(all / 8));
    let (mut guarded, mut runs) = (0, 0);
    for seed in seeds(if end.is_some() { u64::from(u32::MAX) } else { 40 }) {
        if end.is_some_and(|end| Instant::now() > end) {
            break;
        }
        with_trace(seed, seed::quarrel(seed), |world| {
            world.run_for(20_000);
            world.calm();
            world.run_for(5000);
            world.check_converged();
            guarded += world.counts().guarded;
            runs += 1;
        });
    }
    println!("{runs} seeds, {guarded} looks under locks");
    assert!(guarded > runs * 20, "{guarded} in {runs} seeds");
}

/// A half of the seeds that have failed once: all of them take one test too long beside others.
#[test]
fn what_has_failed_once_is_well() {
    run_all(failed_seeds("servers").step_by(2), None);
}

/// The other half of the seeds that have failed once.
#[test]
fn what_else_has_failed_once_is_well() {
    run_all(failed_seeds("servers").skip(1).step_by(2), None);
}

fn run_all(seeds: impl Iterator<Item = u64>, end: Option<Instant>) {
    let (mut sum, mut coverage, mut runs) = (Counts::default(), Coverage::default(), 0);
    for seed in seeds {
        if end.is_some_and(|end| Instant::now() > end) {
            break;
        }
        let run = seed::run(seed, Plan::default());
        if run.failure.is_some() {
            tell(seed, run);
        }
        assert!(run.counts.acknowledged >= TRANSACTIONS_MIN, "seed {seed}: {:?}", run.counts);
        assert!(faults_in(&run.parts) >= 2, "seed {seed}: {:?}", run.parts);
        add(&mut sum, run.counts);
        coverage.add(&run.coverage);
        runs += 1;
    }
    println!("{runs} seeds: {sum:?}");
    assert_eq!(sum.undecided, 0, "what happened to every register is found out");
    if let Some(least) = number("WEIR_COVERAGE") {
        println!("{coverage}");
        let rare = coverage.below(least);
        assert!(rare.is_empty(), "less often than {least} times:\n{}", rare.join("\n"));
    }
}

/// Tells what a failing seed did, the least of it that fails if somebody wants that, and ends the test.
fn tell(seed: u64, run: Run) -> ! {
    let all = run.parts.len();
    let run = if number("WEIR_SHRINK").is_some() { seed::shortest(seed, run) } else { run };
    println!("seed {seed}:\n{}", run.trace(number("WEIR_TRACE").unwrap_or(80) as usize));
    println!("{}", run.status);
    println!("{} of {all} parts:", run.parts.len());
    run.parts.iter().for_each(|part| println!("{part}"));
    println!("cargo xtask sim {seed}   runs it again, makes it short, and shows all of it");
    panic!("seed {seed}: {}", run.failure.unwrap_or_default());
}

/// What is left out changes nothing about what is thought of at other times.
#[test]
fn a_run_is_a_function_of_its_seed_and_parts() {
    let run = || {
        let world = World::new(3, 3, faults(3));
        let mut world = world.with_plan(Plan::without([Part::Client(2)]));
        world.run_for(12_000);
        (world.parts().to_vec(), world.trace(usize::MAX))
    };
    let (parts, trace) = run();
    assert_eq!(run(), (parts.clone(), trace));
    assert!(!parts.contains(&Part::Client(2)) && parts.contains(&Part::Client(3)));
    assert!(faults_in(&parts) > 3, "{parts:?}");
}

fn faults_in(parts: &[Part]) -> usize {
    parts.iter().filter(|part| matches!(part, Part::Fault(..))).count()
}

fn add(sum: &mut Counts, more: Counts) {
    sum.acknowledged += more.acknowledged;
    sum.unknown += more.unknown;
    sum.refused += more.refused;
    sum.found += more.found;
    sum.reads += more.reads;
    sum.synced_reads += more.synced_reads;
    sum.resumed += more.resumed;
    sum.conditions += more.conditions;
    sum.compared += more.compared;
    sum.began_anew += more.began_anew;
    sum.conversions += more.conversions;
    sum.joins += more.joins;
    sum.left += more.left;
    sum.silent += more.silent;
    sum.looks += more.looks;
    sum.guarded += more.guarded;
    sum.deleted += more.deleted;
    sum.served += more.served;
    sum.swaps += more.swaps;
    sum.undecided += more.undecided;
    sum.terms += more.terms;
    sum.entries += more.entries;
    sum.ids += more.ids;
    for (sum, more) in sum.faults.iter_mut().zip(more.faults) {
        *sum += more;
    }
}

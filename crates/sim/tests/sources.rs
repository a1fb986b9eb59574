//! A standalone server with relays behind it, under faults: locks keep others out, columns that no file keeps
//! are the same everywhere, and a file that is restored leads nobody to a wrong difference.
//!
//! `WEIR_SEEDS` says how many seeds, `WEIR_SEED` from which one on, `WEIR_TRACE` how many lines of its
//! trace a failing one shows.

use weir_sim::sources::{SourceCounts, faults, run, run_without_ids, run_without_source};
use weir_sim::{World, failed_seeds};

/// So many seeds are run if nobody says how many.
const SEEDS: u64 = 4;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn run_seed(seed: u64, run: impl FnOnce(&mut World) -> SourceCounts) -> SourceCounts {
    struct Tell(u64, World);
    impl Drop for Tell {
        fn drop(&mut self) {
            if std::thread::panicking() {
                let lines = number("WEIR_TRACE").unwrap_or(80) as usize;
                println!("seed {}:\n{}", self.0, self.1.trace(lines));
            }
        }
    }
    let mut tell = Tell(seed, World::of_source(seed, faults(seed)));
    run(&mut tell.1)
}

#[test]
fn a_standalone_source_and_its_relays_tell_the_truth() {
    let first = number("WEIR_SEED").unwrap_or(1);
    let seeds = number("WEIR_SEEDS").unwrap_or(SEEDS);
    let all: Vec<SourceCounts> =
        (first..first + seeds).map(|seed| run_seed(seed, |world| run(world, seed))).collect();
    let sum = |of: fn(&SourceCounts) -> u64| all.iter().map(of).sum::<u64>();
    // Each thing has happened that was to be looked at, if there were enough seeds for that.
    let is_seen = |of: fn(&SourceCounts) -> u64, least| sum(of) > least * seeds || seeds < SEEDS;
    assert!(is_seen(|counts| counts.guarded, 40), "{all:?}");
    assert!(is_seen(|counts| counts.stolen, 10), "{all:?}");
    assert!(is_seen(|counts| counts.synced, 10), "{all:?}");
    // Relays ask for a lock before they say that it is their client's, so that few are refused.
    assert!(is_seen(|counts| counts.not_owner, 2), "{all:?}");
    assert!(is_seen(|counts| counts.ephemeral, 100), "{all:?}");
    assert!(is_seen(|counts| counts.resumed.min(counts.began_anew), 10), "{all:?}");
    assert!(is_seen(|counts| counts.indexes, 20), "{all:?}");
    assert!(is_seen(|counts| counts.deleted, 50), "{all:?}");
    assert!(is_seen(|counts| counts.states, 100), "{all:?}");
    assert!(is_seen(|counts| counts.restores, 0), "{all:?}");
}

/// What a source without ids was asked for when its connection broke, nobody can say; conversions come in between.
#[test]
fn relays_of_a_source_without_ids_that_is_converted_tell_the_truth() {
    let first = number("WEIR_SEED").unwrap_or(1);
    let seeds = number("WEIR_SEEDS").unwrap_or(SEEDS);
    let all: Vec<SourceCounts> = (first..first + seeds)
        .map(|seed| run_seed(seed, |world| run_without_ids(world, seed)))
        .collect();
    let sum = |of: fn(&SourceCounts) -> u64| all.iter().map(of).sum::<u64>();
    let is_seen = |of: fn(&SourceCounts) -> u64, least| sum(of) > least * seeds || seeds < SEEDS;
    assert!(is_seen(|counts| counts.acknowledged, 100), "{all:?}");
    assert!(is_seen(|counts| counts.converted, 5), "{all:?}");
    assert!(is_seen(|counts| counts.watched_anew, 5), "{all:?}");
    assert!(is_seen(|counts| counts.guarded, 20), "{all:?}");
    assert!(is_seen(|counts| counts.began_anew, 10), "{all:?}");
}

/// Relays that name each other say that the source is gone when it is, and find it again; whatever happens
/// before, they do not follow each other in a ring for long.
#[test]
fn relays_that_name_each_other_know_whether_their_source_is_there() {
    let first = number("WEIR_SEED").unwrap_or(1);
    let seeds = number("WEIR_SEEDS").unwrap_or(3);
    let all: Vec<SourceCounts> =
        (first..first + seeds).map(|seed| run_seed(seed, run_without_source)).collect();
    assert!(all.iter().all(|counts| counts.acknowledged > 100 && counts.indexes > 20), "{all:?}");
}

/// Seeds of relays that name each other that have failed once.
#[test]
fn what_has_failed_once_is_well() {
    let all: Vec<u64> = failed_seeds("rings").collect();
    assert!(!all.is_empty(), "the file has some");
    for seed in all {
        let _ = run_seed(seed, run_without_source);
    }
}

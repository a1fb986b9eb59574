//! A standalone server with relays behind it, under faults: locks keep others out, columns that no file keeps
//! are the same everywhere, and a file that is restored leads nobody to a wrong difference.
//!
//! `WEIR_SEEDS` says how many seeds, `WEIR_SEED` from which one on, `WEIR_TRACE` how many lines of its
//! trace a failing one shows.

use weir_sim::World;
use weir_sim::sources::{SourceCounts, faults, run};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn run_seed(seed: u64) -> SourceCounts {
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
    run(&mut tell.1, seed)
}

#[test]
fn a_standalone_source_and_its_relays_tell_the_truth() {
    let first = number("WEIR_SEED").unwrap_or(1);
    let seeds = number("WEIR_SEEDS").unwrap_or(4);
    let all: Vec<SourceCounts> = (first..first + seeds).map(run_seed).collect();
    let sum = |of: fn(&SourceCounts) -> u64| all.iter().map(of).sum::<u64>();
    // Each thing has happened that was to be looked at.
    assert!(sum(|counts| counts.guarded) > 40 * seeds, "{all:?}");
    assert!(sum(|counts| counts.stolen.min(counts.not_owner)) > 10 * seeds, "{all:?}");
    assert!(sum(|counts| counts.ephemeral) > 100 * seeds, "{all:?}");
    assert!(sum(|counts| counts.resumed.min(counts.began_anew)) > 10 * seeds, "{all:?}");
    assert!(sum(|counts| counts.indexes) > 20 * seeds, "{all:?}");
    assert!(sum(|counts| counts.states) > 100 * seeds, "{all:?}");
    assert!(sum(|counts| counts.restores) > 0 || seeds == 1, "{all:?}");
}

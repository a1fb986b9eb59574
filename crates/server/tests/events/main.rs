//! Whatever happens, in whatever order: no assertion of the server fails, nothing hangs, and
//! nothing is lost.
//!
//! 1. A run is a seed: databases, clients, slow and failing disks, slow helpers, a source and admin
//!    commands, one event at a time.
//! 2. Now and then everything is let finish. Then every request has been answered once, in its
//!    order, every session is heard, every monitor knows what is there, and so does every file.
//!
//! `WEIR_EVENTS` is how many events there are in all, `WEIR_EVENTS_SEED` where chance begins;
//! `WEIR_EVENTS_LENGTH` cuts every run short after so many events, which finds the one that a
//! failure needs. A run of a million events must also have met all that is of interest.

mod census;
mod chance;
mod client;
mod finish;
mod replica;
mod requests;
mod schemas;
#[path = "../shell/mod.rs"]
mod shell;
mod source;
mod world;

use std::panic::{self, AssertUnwindSafe};

use census::Census;
use world::World;

/// Events of a run, between two of its ends.
const PHASE: u64 = 400;
const PHASES: u64 = 3;

/// Events in all, unless the environment says otherwise.
const EVENTS: u64 = 60_000;

/// From here on all that is of interest must have happened.
const LONG: u64 = 1_000_000;

fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// One run; how many events there were.
fn run(seed: u64, length: u64) -> (u64, Census) {
    let mut at = 0;
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::start(seed);
        while at < length {
            world.step();
            at += 1;
            if at % PHASE == 0 {
                world.finish();
            }
        }
        world.finish();
        world.census
    }));
    match outcome {
        Ok(census) => (at, census),
        Err(cause) => {
            println!("WEIR_EVENTS=1 WEIR_EVENTS_SEED={seed} WEIR_EVENTS_LENGTH={at} fails");
            panic::resume_unwind(cause)
        }
    }
}

#[test]
fn nothing_that_happens_breaks_the_server() {
    let events = number("WEIR_EVENTS").unwrap_or(EVENTS);
    let first = number("WEIR_EVENTS_SEED").unwrap_or(1);
    let length = number("WEIR_EVENTS_LENGTH").unwrap_or(PHASE * PHASES);
    let (mut done, mut seed, mut all) = (0, first, Census::default());
    while done < events {
        let (count, census) = run(seed, length);
        all.add(census);
        done += count.max(1);
        seed = seed.wrapping_add(1);
    }
    println!("{done} events, seeds {first} to {}", seed.wrapping_sub(1));
    all.show();
    let missing = all.missing();
    assert!(done < LONG || missing.is_empty(), "has never happened: {missing:?}");
}

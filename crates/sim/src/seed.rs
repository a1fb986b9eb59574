//! A run of everything from one seed: a minute, two thirds of it with faults, and what must be true behind
//! that. A failing one is made short.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};

use weir_testkit::rng::Rng;

use crate::checks::must;
use crate::coverage::Coverage;
use crate::faults::Faults;
use crate::plan::{Part, Plan, shrink};
use crate::world::{CLIENTS, Counts, World};

/// How long there are faults, and how long none, in milliseconds.
const WITH_FAULTS_MS: u64 = 40_000;
const WITHOUT_MS: u64 = 20_000;

/// Transactions that a run has at least: where too few had time, it goes on for so much longer, in
/// milliseconds, at most.
pub const TRANSACTIONS_MIN: u64 = 500;
const LONGER_MS: u64 = 60_000;

/// Runs that making one short takes at most.
const SHRINK_RUNS_MAX: usize = 150;

/// Lines of the trace of a failing run that are kept for people.
const LINES_MAX: usize = 20_000;

/// How a run has ended.
pub struct Run {
    /// What is wrong, if anything: the name of the checker first.
    pub failure: Option<String>,
    /// What the run was made of.
    pub parts: Vec<Part>,
    /// How often something has happened.
    pub counts: Counts,
    /// Which faults have met which servers.
    pub coverage: Coverage,
    /// What the servers of a failing run say of themselves, where they still can.
    pub status: String,
    trace: String,
}

impl Run {
    /// What has happened last, for people.
    pub fn trace(&self, lines: usize) -> String {
        let skip = self.trace.lines().count().saturating_sub(lines);
        self.trace.lines().skip(skip).collect::<Vec<_>>().join("\n")
    }
}

/// From this seed on, in eight of sixteen seeds, each kind of fault has a rate of its own: some never happen, others
/// often, so that none hides what another would show.
const MIXED_FROM: u64 = 1_000_000;

/// From this seed on, and in each sixteenth before, who has a lock reads what is written under it in requests of their
/// own, too.
const READ_UNDER_LOCKS_FROM: u64 = 1_004_000;

/// From this seed on, clients of relays take locks, too.
const LOCKS_AT_RELAYS_FROM: u64 = 1_010_350;

/// From this seed on, who takes a lock watches what is written under it.
const LOCKS_WATCHED_FROM: u64 = 1_010_700;

/// In these of 64 seeds that come before, both are so.
const LATE_LOCKS: [u64; 4] = [6, 14, 30, 46];

/// In these seeds clients that do not wait for answers ask for what changes nothing, as well, and are answered in order.
const NOTHING: std::ops::Range<u64> = 1_012_000..2_000_000;

/// From this seed on, in each other seed with clients that do not wait for answers, these leave whom they have asked a
/// while ago, as who is told that there is no leader does.
const HASTY_FROM: u64 = 1_013_400;

/// From this seed on, in each third seed (and in each 32nd of the first thousand), most of the cluster may be lost, and
/// in two of five clocks go at different speeds.
const LATEST_FROM: u64 = 1_006_010;

/// From this seed on, in every other one (and in each 32nd of the first thousand), a server may come back with the same
/// older file again.
const AGAIN_FROM: u64 = 1_008_000;

/// From this seed on, in each eighth one, lines between servers are long: an entry is committed in about the time that a process
/// needs to start again, or a client to ask twice.
const FAR_FROM: u64 = 1_009_500;

/// How long a message is on such a line at most, in microseconds.
const FAR_US: usize = 100_000;

/// How much faster than others some clocks go, in millionths: real ones differ by hundreds of them.
const DRIFT_PPM_MAX: usize = 50_000;

/// What may happen in the run of a seed.
pub fn faults(seed: u64) -> Faults {
    let mut f = all_faults(seed);
    let is_recovered = match seed {
        LATEST_FROM.. => seed.is_multiple_of(3),
        0..1000 => seed % 32 == 10,
        _ => false,
    };
    f.recover = if is_recovered { 10 } else { 0 };
    f.forgets_again = match seed {
        AGAIN_FROM.. => seed % 2 == 1,
        0..1000 => seed % 32 == 21,
        _ => false,
    };
    if seed < MIXED_FROM || seed % 16 < 8 {
        return f;
    }
    let mut rng = Rng::new(!seed);
    let rates = [
        &mut f.crash,
        &mut f.kill,
        &mut f.cut,
        &mut f.reset,
        &mut f.pause,
        &mut f.compact,
        &mut f.jump,
        &mut f.stop,
        &mut f.change,
        &mut f.full,
        &mut f.suspect,
        &mut f.hang,
        &mut f.lost,
        &mut f.round,
        &mut f.forget,
        &mut f.convert,
        &mut f.slow_helper,
        &mut f.stall,
        &mut f.slow_reader,
        &mut f.sync_us,
        &mut f.delay_us,
    ];
    for rate in rates {
        *rate = match rng.below(8) {
            0 | 1 => 0,
            2 => *rate / 3,
            3 | 4 => *rate * 3,
            _ => *rate,
        };
    }
    f
}

/// Everything at once, now and then.
fn all_faults(seed: u64) -> Faults {
    Faults {
        forgets_again: false,
        crash: 30,
        dead: if seed.is_multiple_of(4) { 40 } else { 0 },
        moves: if seed % 8 > 4 { 15 } else { 0 },
        kill: 30,
        cut: 60,
        reset: 60,
        pause: 50,
        compact: 40,
        jump: 20,
        drift_ppm: if seed >= LATEST_FROM && seed % 5 > 2 { DRIFT_PPM_MAX } else { 0 },
        stop: 30,
        change: if seed % 5 < 2 { 150 } else { 5 },
        full: if seed.is_multiple_of(3) { 30 } else { 8 },
        suspect: 8,
        hang: if seed % 4 > 1 { 20 } else { 0 },
        lost: if seed.is_multiple_of(2) { 300 } else { 0 },
        round: if seed.is_multiple_of(3) { 0 } else { 30 },
        forget: 3,
        recover: 0,
        unread: 0,
        convert: if seed.is_multiple_of(3) { 150 } else { 45 },
        slow_helper: if seed.is_multiple_of(2) { 10 } else { 0 },
        stall: if seed.is_multiple_of(5) { 50 } else { 0 },
        slow_reader: 300,
        sync_us: 3000,
        delay_us: if seed >= FAR_FROM && seed % 8 == 6 { FAR_US } else { 5000 },
        lie: None,
    }
}

/// Runs a seed without what the plan leaves out.
pub fn run(seed: u64, plan: Plan) -> Run {
    let servers = if seed.is_multiple_of(4) { 5 } else { 3 };
    let mut world = World::new(seed, servers, faults(seed)).with_tempo_changes();
    world.add_bystanders();
    if seed % 4 > 1 {
        world.add_pipelines();
        world.reads_under_locks = seed % 16 == 3 || seed >= READ_UNDER_LOCKS_FROM;
        let is_chosen = LATE_LOCKS.contains(&(seed % 64));
        world.locks_at_relays = seed >= LOCKS_AT_RELAYS_FROM || is_chosen;
        world.watches_under_locks = seed >= LOCKS_WATCHED_FROM || is_chosen;
        world.are_hasty = seed >= HASTY_FROM && seed % 8 > 3;
        world.asks_for_nothing = NOTHING.contains(&seed);
    }
    let mut world = world.with_plan(plan);
    let result = catch_unwind(AssertUnwindSafe(|| go(&mut world, seed, servers)));
    let failure = result.err().map(|why| {
        let text = why.downcast_ref::<String>().cloned();
        text.or_else(|| why.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_default()
    });
    let trace = failure.as_ref().map_or_else(String::new, |_| world.trace(LINES_MAX));
    let (parts, counts) = (world.parts().to_vec(), world.counts());
    let coverage = world.coverage().clone();
    let status = failure.as_ref().map_or_else(String::new, |_| {
        // A server that has ended in the middle of something cannot be asked.
        catch_unwind(AssertUnwindSafe(|| world.status())).unwrap_or_default()
    });
    Run { failure, parts, counts, coverage, status, trace }
}

fn go(world: &mut World, seed: u64, servers: usize) {
    world.add_spares(2);
    if seed.is_multiple_of(2) {
        add_relays(world, servers);
    }
    world.let_clocks_drift();
    world.run_for(WITH_FAULTS_MS);
    let before = world.counts().acknowledged;
    world.calm();
    world.run_for(WITHOUT_MS);
    let end_us = world.now_us + LONGER_MS * 1000;
    while world.counts().acknowledged < TRANSACTIONS_MIN && world.now_us < end_us {
        world.run_for(1000);
    }
    let counts = world.counts();
    let goes_on = counts.acknowledged > before + 20;
    must("liveness", goes_on.then_some(()).ok_or_else(|| format!("it does not go on: {counts:?}")));
    world.check_converged();
}

/// A crowd of clients that quarrel for the lock of one server after the other, of three members and perhaps relays, while
/// leaders and connections come and go.
pub fn quarrel(seed: u64) -> World {
    let faults = Faults {
        reset: [0, 100, 400][seed as usize % 3],
        kill: 20,
        cut: 150,
        pause: 100,
        stop: 100,
        convert: if seed % 4 == 3 { 300 } else { 0 },
        // Who has no room for entries gets a snapshot in which they are.
        full: if seed % 4 == 1 { 150 } else { 0 },
        compact: if seed % 4 == 1 { 600 } else { 0 },
        stall: 100,
        sync_us: 3000,
        delay_us: if seed % 8 == 6 { FAR_US } else { 5000 },
        ..Faults::default()
    };
    let mut world = World::new(seed, 3, faults);
    // Few others write, so that a moment costs little.
    world = world.with_plan(Plan::without((2..CLIENTS).map(Part::Client)));
    world.add_pipelines();
    world.reads_under_locks = true;
    world.locks_at_relays = true;
    world.watches_under_locks = true;
    world.are_hasty = seed.is_multiple_of(2);
    world.crowds_at_locks = true;
    if seed.is_multiple_of(2) {
        let first = world.add_relay(&[0, 1, 2]);
        world.add_relay(&[first]);
    }
    world
}

/// A relay of all members, one behind that, and one that has the choice between these and a member.
pub fn add_relays(world: &mut World, servers: usize) {
    let first = world.add_relay(&(0..servers).collect::<Vec<_>>());
    let second = world.add_relay(&[first]);
    world.add_relay(&[second, first, 0]);
}

/// What a failing run fails without is left out of it, as far as it still fails for the same reason.
pub fn shortest(seed: u64, failing: Run) -> Run {
    let all: BTreeSet<Part> = failing.parts.iter().copied().collect();
    let reason = |run: &Run| {
        let failure = run.failure.as_deref();
        failure.map(|text| text.split(':').next().unwrap_or(text).to_owned())
    };
    let wanted = reason(&failing);
    let parts = failing.parts.clone();
    let mut best = failing;
    // Each run that fails would say so.
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    shrink(&parts, SHRINK_RUNS_MAX, |left| {
        // What happens only because something else does not was never in the run.
        let plan = Plan::without(all.iter().copied().filter(|part| !left.contains(part)));
        let run = run(seed, plan);
        let fails = reason(&run) == wanted;
        if fails {
            best = run;
        }
        fails
    });
    set_hook(hook);
    best
}

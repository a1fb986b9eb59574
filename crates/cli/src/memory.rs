//! The allocator, and its memory given back to the system on request.

use tikv_jemalloc_ctl::{Access, AsName};

// Fuzzers bring their own.
#[cfg(not(fuzzing))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Returns all freed pages to the operating system (`memory-trim-on-compaction`), those that are kept
/// for the calling thread among them. What is kept for other threads they have to return themselves.
///
/// jemalloc gives pages back some seconds after they were freed. Setting that delay to zero for a
/// moment makes it do so at once; the control for this (`purge`) takes no value and cannot be
/// reached without `unsafe`.
pub(crate) fn trim() {
    flush();
    let Ok(arenas) = AsName::name("arenas.narenas\0").read() else { return };
    let arenas: u32 = arenas;
    for arena in 0..arenas {
        for kind in ["dirty", "muzzy"] {
            purge(&format!("arena.{arena}.{kind}_decay_ms\0"));
        }
    }
}

/// Gives up what the allocator keeps for the calling thread: some blocks of each size, a megabyte
/// together. It does so when the cache is disabled; the control for this (`flush`) takes no value.
fn flush() {
    let cache = "thread.tcache.enabled\0".name();
    if cache.write(false).is_ok() {
        let _ = cache.write(true);
    }
}

/// Has an arena give back freed pages at once, by its delay `setting`; an arena that was never used
/// has no settings, which is no failure.
fn purge(setting: &str) {
    let setting = setting.name();
    let delay: Result<isize, _> = setting.read();
    if let Ok(delay) = delay
        && setting.write(0isize).is_ok()
    {
        let _ = setting.write(delay);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// Resident set size of this process in KB.
    fn resident() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
    }

    #[test]
    fn freed_memory_goes_back_and_the_delay_stays() {
        let delay = |name: &str| -> Option<isize> { name.name().read().ok() };
        let before = delay("arena.0.dirty_decay_ms\0");
        // Small blocks, so that the pages are kept for reuse when they are freed.
        let blocks: Vec<Box<[u8; 4096]>> = (0..20_000).map(|_| Box::new([1; 4096])).collect();
        let full = resident();
        drop(blocks);
        trim();
        let after = resident();
        assert!(after + 40_000 < full, "{full} KB before, {after} KB after");
        assert_eq!(delay("arena.0.dirty_decay_ms\0"), before);
    }
    #[test]
    fn a_thread_returns_what_is_kept_for_it() {
        let (to_thread, wishes) = mpsc::channel();
        let (to_us, done) = mpsc::channel();
        let thread = thread::spawn(move || {
            // Some of each size.
            let sizes = (1..=32_usize).flat_map(|kib| [kib << 10; 20]);
            let blocks: Vec<Vec<u8>> = sizes.map(|size| vec![1; size]).collect();
            drop(blocks);
            for wish in wishes {
                let wish: fn() = wish;
                wish();
                to_us.send(()).expect("somebody waits for it");
            }
        });
        let ask = |wish: fn()| {
            to_thread.send(wish).expect("the thread is there");
            done.recv().expect("the thread goes on");
        };
        ask(|| ());
        trim();
        let before = resident();
        ask(trim);
        let after = resident();
        assert!(after + 500 < before, "{before} KB before, {after} KB after");
        ask(|| {
            let is_on: Result<bool, _> = "thread.tcache.enabled\0".name().read();
            assert!(is_on.is_ok_and(|is_on| is_on), "the next blocks are kept again");
        });
        drop(to_thread);
        thread.join().expect("it ends");
    }
}

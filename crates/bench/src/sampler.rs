//! A server's memory over time, read by a thread of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::procfs;
use crate::report::Curve;

/// How often memory is read at first.
const FIRST_STEP: Duration = Duration::from_millis(50);
/// Samples kept; when there are more, every other one goes and the steps become twice as long.
const SAMPLES_MAX: usize = 400;

/// Samples of one process.
pub(crate) struct Sampler {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Seconds since the start, and bytes resident then.
    samples: Mutex<Vec<(f64, u64)>>,
}

impl Sampler {
    pub(crate) fn start(pid: u32) -> Self {
        let shared = Arc::new(Shared::default());
        let thread = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.run(pid)
        });
        Self { shared, thread: Some(thread) }
    }

    fn samples(&self) -> Vec<(f64, u64)> {
        self.shared.samples.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The most that any sample saw, in bytes.
    pub(crate) fn peak(&self) -> u64 {
        self.samples().into_iter().map(|(_, rss)| rss).max().unwrap_or(0)
    }

    pub(crate) fn curve(&self) -> Curve {
        let samples = self.samples().into_iter();
        Curve {
            plot: "memory over time".into(),
            axes: ["seconds since the start".into(), "RSS MB".into()],
            log: [false; 2],
            points: samples.map(|(seconds, rss)| (seconds, rss as f64 / 1e6)).collect(),
        }
    }
}

impl Shared {
    fn run(&self, pid: u32) {
        let (start, mut step) = (Instant::now(), FIRST_STEP);
        while !self.stop.load(Ordering::Relaxed) {
            let Ok(memory) = procfs::memory(pid) else { return };
            let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
            samples.push((start.elapsed().as_secs_f64(), memory.rss));
            if samples.len() >= SAMPLES_MAX {
                let mut keep = false;
                samples.retain(|_| {
                    keep = !keep;
                    keep
                });
                step *= 2;
            }
            drop(samples);
            std::thread::park_timeout(step);
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_our_own_process_is_sampled() {
        let sampler = Sampler::start(std::process::id());
        while sampler.samples().len() < 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(sampler.peak() > 0);
        assert!(sampler.curve().points.iter().all(|&(_, megabytes)| megabytes > 0.0));
    }
}

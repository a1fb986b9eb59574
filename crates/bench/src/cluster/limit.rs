//! The end of a line that takes too long: its servers are killed, so that whoever waits for one of
//! them fails at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::interrupt;

/// A line that is over may have started one more server meanwhile.
const AGAIN: Duration = Duration::from_millis(100);

/// A limit that runs until this is dropped.
pub(super) struct Limit {
    over: Arc<AtomicBool>,
    done: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Limit {
    pub(super) fn start(limit: Duration) -> Self {
        Self::with(limit, interrupt::kill_servers)
    }

    /// Begins to wait; what is then done about it is done again and again.
    fn with(limit: Duration, end: impl Fn() + Send + 'static) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (done, is_done) = channel();
        let thread = std::thread::spawn({
            let over = Arc::clone(&over);
            move || {
                let mut wait = limit;
                while is_done.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                    over.store(true, Ordering::Relaxed);
                    end();
                    wait = AGAIN;
                }
            }
        });
        Self { over, done: Some(done), thread: Some(thread) }
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        self.done = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_in_time_is_left_alone() {
        let limit = Limit::with(Duration::MAX, || unreachable!("the limit is far away"));
        assert!(!limit.is_over());
    }

    #[test]
    fn what_takes_too_long_is_ended_again_and_again() {
        let (ended, ends) = channel();
        let limit = Limit::with(Duration::ZERO, move || {
            // Nobody counts any more behind the end of this test.
            let _ = ended.send(());
        });
        assert!(ends.recv().is_ok() && ends.recv().is_ok() && limit.is_over());
        drop(limit);
        assert!(ends.iter().count() < 1_000, "its thread has ended");
    }
}

//! Stands between a relay and its source, and ends connections in the middle of what the source says.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

/// Accepts connections at a socket, and passes what is said on to another one and back.
pub(crate) struct Proxy {
    state: Arc<State>,
}

struct State {
    to: PathBuf,
    /// So many bytes of the source a connection carries before it ends.
    limit: AtomicU64,
    /// Bytes of the source that the connection at hand has carried.
    carried: AtomicU64,
    /// Connections that have ended at the limit.
    cuts: AtomicU64,
}

impl Proxy {
    /// Begins, without a limit.
    pub(crate) fn start(at: &Path, to: PathBuf) -> Self {
        let listener = UnixListener::bind(at).expect("a socket");
        let limit = AtomicU64::new(u64::MAX);
        let (carried, cuts) = (AtomicU64::new(0), AtomicU64::new(0));
        let state = Arc::new(State { to, limit, carried, cuts });
        let proxy = Self { state: Arc::clone(&state) };
        // A relay has one connection: the next one comes when this one has ended.
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                if let Ok(far) = UnixStream::connect(&state.to) {
                    state.carry(&near, &far);
                }
            }
        });
        proxy
    }

    /// Each connection ends when it has carried so many bytes of the source, the present one, too.
    pub(crate) fn limit(&self, bytes: u64) {
        self.state.limit.store(bytes, Relaxed);
    }

    /// The present connection ends after so many more bytes of the source.
    pub(crate) fn cut_after(&self, bytes: u64) {
        self.limit(self.state.carried.load(Relaxed) + bytes);
    }

    /// How many connections have ended at the limit.
    pub(crate) fn cuts(&self) -> u64 {
        self.state.cuts.load(Relaxed)
    }
}

impl State {
    /// One connection, to its end.
    fn carry(&self, near: &UnixStream, far: &UnixStream) {
        thread::scope(|scope| {
            scope.spawn(|| {
                let _ = std::io::copy(&mut { near }, &mut { far });
                let _ = far.shutdown(Shutdown::Both);
            });
            let (mut buffer, mut done) = ([0; 1024], 0);
            self.carried.store(0, Relaxed);
            while let Ok(count @ 1..) = (&mut { far }).read(&mut buffer) {
                let left = usize::try_from(self.limit.load(Relaxed).saturating_sub(done));
                let count_left = count.min(left.unwrap_or(usize::MAX));
                if (&mut { near }).write_all(&buffer[..count_left]).is_err() {
                    break;
                }
                done += count_left as u64;
                self.carried.store(done, Relaxed);
                if count_left < count {
                    self.cuts.fetch_add(1, Relaxed);
                    break;
                }
            }
            let _ = near.shutdown(Shutdown::Both);
            let _ = far.shutdown(Shutdown::Both);
        });
    }
}

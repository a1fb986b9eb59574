//! What one writer waits for at least, measured in the same run: its own round trip to a server, a
//! round trip from one member to another, and an fdatasync. Each is measured alone, and the floor
//! is their sum.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use super::{AT_FOLLOWER, AT_LEADER, Scene};
use crate::Error;
use crate::ports;
use crate::report::Figures;
use crate::stats::Latencies;

/// Bytes of a request, of a reply, of a log record.
const REQUEST: usize = 800;
const REPLY: usize = 150;
const RECORD: usize = 500;
const ROUND_TRIPS: usize = 5_000;
const SYNCS: usize = 1_000;

/// Measures the floor of the one writer.
pub(super) fn run(scene: &mut Scene<'_>) -> Result<(), Error> {
    let client = {
        let (ours, theirs) = UnixStream::pair()?;
        round_trips(ours, theirs, scene.count(ROUND_TRIPS))?
    };
    let member = {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let ours = TcpStream::connect(listener.local_addr()?)?;
        let (theirs, _) = listener.accept()?;
        ours.set_nodelay(true)?;
        theirs.set_nodelay(true)?;
        round_trips(ours, theirs, scene.count(ROUND_TRIPS))?
    };
    let sync = syncs(scene)?;
    let [client, member, sync] = [client, member, sync].map(|all| all.percentile(50.0));
    let mut figures = Figures::default();
    for step in ports::step_names() {
        let leader = format!("{AT_LEADER}, {step}");
        figures.push(&leader, "p50 us", 1, client + member + sync);
        // The request goes on to the leader, and the answer comes back.
        figures.push(&format!("{AT_FOLLOWER}, {step}"), "p50 us", 1, client + 2.0 * member + sync);
    }
    let mut push = |name, value| figures.push("floor of one writer", name, 1, value);
    push("round trip of a client p50 us", client);
    push("round trip of a member p50 us", member);
    push("fdatasync p50 us", sync);
    scene.figures.append(figures);
    Ok(())
}

/// Requests to a thread that answers.
fn round_trips(
    mut ours: impl Read + Write,
    mut theirs: impl Read + Write + Send + 'static,
    count: usize,
) -> Result<Latencies, Error> {
    let answering = std::thread::spawn(move || -> std::io::Result<()> {
        let mut request = [0; REQUEST];
        while theirs.read_exact(&mut request).is_ok() {
            theirs.write_all(&[b'y'; REPLY])?;
        }
        Ok(())
    });
    let mut latencies = Latencies::default();
    for _ in 0..count {
        let start = Instant::now();
        ours.write_all(&[b'x'; REQUEST])?;
        ours.read_exact(&mut [0; REPLY])?;
        latencies.push(start.elapsed());
    }
    drop(ours);
    // It ends when our side is closed.
    let _ = answering.join();
    Ok(latencies)
}

/// Records at the end of a file where databases are made.
fn syncs(scene: &Scene<'_>) -> Result<Latencies, Error> {
    let path = scene.bench.scratch("sync");
    let mut file = File::create(&path).map_err(|e| Error::io("creating", &path, e))?;
    let mut latencies = Latencies::default();
    for _ in 0..scene.count(SYNCS) {
        file.write_all(&[b'x'; RECORD])?;
        let start = Instant::now();
        file.sync_data()?;
        latencies.push(start.elapsed());
    }
    std::fs::remove_file(&path).map_err(|e| Error::io("removing", &path, e))?;
    Ok(latencies)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_answered_and_timed() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let latencies = round_trips(ours, theirs, 20).unwrap();
        assert!(latencies.count() == 20 && latencies.percentile(1.0) > 0.0);
    }
}

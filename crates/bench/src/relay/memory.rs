//! What a relay needs, held against a standalone server with the same rows.

use std::time::Duration;

use super::Scene;
use crate::Error;
use crate::error::fail;
use crate::large::{Database, Dump};
use crate::procfs::Memory;
use crate::running::{Running, Source};

const SECTION: &str = "memory";
/// How long a server is left alone before its memory is read: what it has freed goes back to the
/// system in that time.
const REST: Duration = Duration::from_secs(12);

/// A server and a relay of it, each with all rows.
pub(super) fn run(scene: &mut Scene<'_>) -> Result<(), Error> {
    let database = Database::make(scene.bench, scene.megabytes, scene.schema_path, 1)?;
    let source = scene.bench.start(scene.peer, Source::File(&database.path))?;
    scene.bench.progress.wait("memory at rest");
    let rest = REST / u32::try_from(scene.divisor).unwrap_or(u32::MAX);
    std::thread::sleep(rest);
    let alone = memory(&source)?;
    let relay = scene.relay(std::slice::from_ref(&source))?;
    let seconds = relay.age().as_secs_f64();
    let first = memory(&relay)?;
    std::thread::sleep(rest);
    let steady = memory(&relay)?;
    database.check(&Dump::take(&relay.target)?)?;
    let rows = alone.rss as f64;
    let mut push = |name, digits, value| scene.figures.push(SECTION, name, digits, value);
    push("standalone RSS MB", 1, rows / 1e6);
    push("relay RSS MB", 1, steady.rss as f64 / 1e6);
    push("relay / standalone", 2, steady.rss as f64 / rows);
    push("peak at first sync / standalone", 2, first.peak as f64 / rows);
    push("has all rows after s", 2, seconds);
    Ok(())
}

fn memory(server: &Running) -> Result<Memory, Error> {
    match server.memory()? {
        Some(memory) => Ok(memory),
        None => fail!("the process of a server of our own is known"),
    }
}

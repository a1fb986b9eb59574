//! Relays behind servers of the run.

use std::time::{Duration, Instant};

use serde_json::json;

use super::Scene;
use crate::Error;
use crate::client::{Client, Target};
use crate::error::fail;
use crate::large::DB;
use crate::running::{Running, Source};

/// How long a relay may take until it has all rows.
const PATIENCE: Duration = Duration::from_secs(300);
const STEP: Duration = Duration::from_millis(5);

impl Scene<'_> {
    /// Starts a relay of one of these servers; it has all rows when this returns.
    pub(super) fn relay(&self, of: &[Running]) -> Result<Running, Error> {
        let remotes: Result<Vec<String>, Error> = of.iter().map(remote).collect();
        let database = format!("relay:{DB}:{}", remotes?.join(","));
        let relay = self.bench.start(self.peer, Source::Relay(&database))?;
        let start = Instant::now();
        while !is_connected(&relay)? {
            if start.elapsed() > PATIENCE {
                let error = Error::Check("the relay does not get its rows".into());
                return Err(relay.explain(&self.peer.name, &error));
            }
            std::thread::sleep(STEP);
        }
        Ok(relay)
    }
}

fn remote(server: &Running) -> Result<String, Error> {
    match &server.target {
        Target::Unix(path) => Ok(format!("unix:{}", path.display())),
        _ => fail!("a server of our own listens at a socket"),
    }
}

/// Whether `_Server` says that the relay has its source's rows.
fn is_connected(relay: &Running) -> Result<bool, Error> {
    let mut client = Client::connect(&relay.target)?;
    let select = json!(["_Server", {"op": "select", "table": "Database",
        "where": [["name", "==", DB]], "columns": ["connected"]}]);
    let results = client.transact(&select)?;
    Ok(results[0]["rows"][0]["connected"] == true)
}

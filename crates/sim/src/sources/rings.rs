//! Relays that name each other as further sources: none follows itself through the others, whatever becomes
//! of the source, and all find it again.

use serde_json::{Value, json};

use crate::checks::must;
use crate::network::Socket;
use crate::sources::{SETTLE_MS, SourceCounts};
use crate::world::{Due, TIMER_MS, World};

/// So long the source is away, in milliseconds: all say so by then.
const AWAY_MS: u64 = 60_000;

/// Runs a seed: half a minute of faults, then none; then the source goes, and comes back.
pub fn run_without_source(world: &mut World) -> SourceCounts {
    world.add_ring();
    world.run_for(30_000);
    let calm_us = world.calm_sources();
    world.run_for(SETTLE_MS);
    for is_there in [true, false, true] {
        match is_there {
            true => {
                world.due(world.now_us, 0, Due::Start);
                world.checks.liveness.calm(world.now_us, TIMER_MS * 1000);
            }
            false => {
                world.end_process(0, false);
                world.checks.liveness.disturb();
            }
        }
        world.run_for(AWAY_MS);
        for n in 1..world.nodes.len() {
            let is_connected = world.is_connected(n);
            let found = format!("relay {n} says {is_connected} of its source: {is_there}");
            must("rings", (is_connected == is_there).then_some(()).ok_or(found));
        }
    }
    world.check_sources(calm_us);
    world.sources().counts
}

impl World {
    /// Three relays with the choice between the source and each other, and one with that between these.
    pub(crate) fn add_ring(&mut self) {
        let first = self.nodes.len();
        let [second, third, last] = [first + 1, first + 2, first + 3];
        self.add_relay(&[0, second, last]);
        self.add_relay(&[first, third, 0]);
        self.add_relay(&[second, first, 0]);
        self.add_relay(&[first, second, third]);
    }

    /// The server that a relay is connected to, or connects to.
    fn source_of(&self, n: usize) -> Option<usize> {
        let mut ends = self.network.ends();
        let of_relay = ends.find(|(end, _)| end.node == n && matches!(end.socket, Socket::Link(_)));
        of_relay.map(|(_, source)| source.node)
    }

    /// The first ring of connections that there is, in order.
    fn ring(&self) -> Option<Vec<usize>> {
        let all = 1..self.nodes.len();
        all.clone().find_map(|first| {
            let next = |n: &usize| self.source_of(*n).filter(|next| *next != first);
            let way: Vec<usize> =
                std::iter::successors(Some(first), next).take(all.len()).collect();
            let is_ring = self.source_of(*way.last()?) == Some(first);
            is_ring.then_some(way)
        })
    }

    /// No ring of connections lasts.
    pub(crate) fn look_for_rings(&mut self) {
        let now_us = self.now_us;
        let ring = self.ring().unwrap_or_default();
        let stands = |n: &usize| self.nodes[*n].paused_until_us > now_us;
        let is_disturbed = ring.iter().any(stands) || !self.network.cut.is_empty();
        let sources = self.sources_mut();
        sources.counts.rings += u64::from(!ring.is_empty());
        must("rings", sources.rings.look(now_us, ring, is_disturbed));
    }

    /// Whether a relay says that it follows its source.
    fn is_connected(&mut self, n: usize) -> bool {
        let select = json!({"op": "select", "table": "Database", "where": [["name", "==", "Sim"]],
            "columns": ["connected"]});
        let result = self.result_of(n, "transact", &json!(["_Server", select]));
        result[0]["rows"][0]["connected"] == Value::Bool(true)
    }
}

//! The load of `weir bench ports` at a cluster: with many writers, with one at the leader and one
//! at a follower, and with more and more monitors. A lone server of the same program has the load
//! too: what a member needs beyond it is the cluster's.

use super::Scene;
use super::members::Cluster;
use crate::Error;
use crate::ports::{AFTER_ADDS, Config, SPACE};
use crate::report::Figures;
use crate::running::Source;
use crate::tally::Clients;

pub(super) const WRITERS: usize = 50;
pub(super) const MONITORS: usize = 100;
/// The numbers of the line `monitors`.
const AUDIENCES: [usize; 3] = [10, 100, 1_000];

/// Many writers.
pub(super) fn many(scene: &mut Scene<'_>) -> Result<(), Error> {
    let config = config(scene, scene.rows, WRITERS);
    let mut figures = at_cluster(scene, &config, true)?;
    let alone = scene.bench.start(scene.peer, Source::Schema(scene.schema))?;
    let alone = config.measure(std::slice::from_ref(&alone), &scene.bench.progress)?;
    let rss = |figures: &Figures, section: &str| figures.value(section, AFTER_ADDS);
    let member = |n: usize| rss(&figures, &format!("{SPACE} of member {}", n + 1));
    let most = (0..scene.members).filter_map(member).fold(0.0, f64::max);
    if let Some(alone) = rss(&alone, SPACE) {
        figures.push(SPACE, "RSS of a lone server after both adds MB", 1, alone);
        figures.push(SPACE, "largest member / lone server", 2, most / alone);
    }
    scene.figures.append(figures.within(&format!("{WRITERS} writers")));
    Ok(())
}

/// One writer, at the leader and at a follower.
pub(super) fn one(scene: &mut Scene<'_>) -> Result<(), Error> {
    for (is_at_leader, section) in [(true, super::AT_LEADER), (false, super::AT_FOLLOWER)] {
        let config = config(scene, scene.rows_of_one(), 1);
        let figures = at_cluster(scene, &config, is_at_leader)?;
        scene.figures.append(figures.within(section));
    }
    Ok(())
}

/// More and more monitors.
pub(super) fn monitors(scene: &mut Scene<'_>) -> Result<(), Error> {
    for monitors in AUDIENCES {
        let rows = (scene.rows / 10).max(1);
        let config = watched(scene, rows, WRITERS, scene.count(monitors));
        let figures = at_cluster(scene, &config, true)?;
        scene.figures.append(figures.within(&format!("{monitors} monitors")));
    }
    Ok(())
}

/// So many rows and writers, and the usual monitors.
pub(super) fn config(scene: &Scene<'_>, rows: usize, writers: usize) -> Config {
    watched(scene, rows, writers, scene.count(MONITORS))
}

fn watched(scene: &Scene<'_>, rows: usize, writers: usize, monitors: usize) -> Config {
    // One at each member at least, which shows that it has everything.
    let monitors = monitors.max(scene.members);
    let clients = Clients { writers, monitors, drain_every: scene.drain_every };
    let schema = scene.schema.clone();
    Config { rows, clients, cycles: 1, rate: None, one_shot: false, schema }
}

/// The load at a cluster of its own, the first writer at its leader or not.
pub(super) fn at_cluster(
    scene: &Scene<'_>,
    config: &Config,
    is_at_leader: bool,
) -> Result<Figures, Error> {
    let mut cluster = Cluster::start(scene.bench, scene.peer, scene.schema, scene.members)?;
    cluster.place_leader(is_at_leader)?;
    let term = cluster.term()?;
    let measured = config.measure(&cluster.members, &scene.bench.progress);
    let mut figures = measured.map_err(|e| cluster.explain_all(&e))?;
    cluster.fared(term, super::CLUSTER, &mut figures)?;
    Ok(figures)
}

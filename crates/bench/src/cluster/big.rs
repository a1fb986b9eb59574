//! Transactions of 100 KB at a cluster.

use super::Scene;
use super::members::Cluster;
use super::ports::{MONITORS, WRITERS};
use crate::Error;
use crate::big;
use crate::report::Figures;

const OPS: usize = 500;
const SECTION: &str = "100 KB";

pub(super) fn run(scene: &mut Scene<'_>) -> Result<(), Error> {
    let mut cluster = Cluster::start(scene.bench, scene.peer, scene.schema, scene.members)?;
    cluster.place_leader(true)?;
    let term = cluster.term()?;
    let load = big::Config::new(scene.count(OPS), WRITERS, scene.drain_every);
    let monitors = scene.count(MONITORS).max(scene.members);
    let tally = load.measure(scene.bench, &cluster.members, monitors);
    let tally = tally.map_err(|e| cluster.explain_all(&e))?;
    let mut figures = Figures::default();
    tally.figures(SECTION, &mut figures);
    for (n, member) in cluster.members.iter().enumerate() {
        member.finish(&format!("{SECTION}, member {}", n + 1), &mut figures)?;
    }
    cluster.fared(term, &format!("{SECTION}, {}", super::CLUSTER), &mut figures)?;
    scene.bench.progress.note(&format!("  {SECTION}: {:.1} s", tally.seconds));
    scene.figures.append(figures);
    Ok(())
}

//! What members have in the end, held against what their clients were told.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::json;

use super::members::Cluster;
use super::paced::{Done, number};
use crate::Error;
use crate::client::Client;
use crate::ports::DB;

/// Figures of this.
pub(super) const MISSING: &str = "acknowledged writes that a member lacks";
pub(super) const REFUSED: &str = "writes answered with an error that a member has";
/// Between two looks at a member that lacks something.
const STEP: Duration = Duration::from_millis(100);

/// Writes that are not what the clients were told, the sum over all members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) missing: usize,
    pub(super) refused: usize,
}

/// Looks for every write at every member; one that is behind has so long to catch up.
pub(super) fn compare(
    cluster: &Cluster<'_>,
    done: &Done,
    patience: Duration,
) -> Result<Kept, Error> {
    let start = Instant::now();
    let mut sum = Kept::default();
    for n in 0..cluster.members.len() {
        loop {
            let rows = rows(cluster, n).map_err(|e| cluster.explain(n, &e))?;
            let kept = kept(&rows, &done.written, &done.refused);
            if kept.missing == 0 || start.elapsed() > patience {
                sum.missing += kept.missing;
                sum.refused += kept.refused;
                break;
            }
            std::thread::sleep(STEP);
        }
    }
    Ok(sum)
}

fn kept(rows: &BTreeSet<u64>, written: &[u64], refused: &[u64]) -> Kept {
    Kept {
        missing: written.iter().filter(|number| !rows.contains(number)).count(),
        refused: refused.iter().filter(|number| rows.contains(number)).count(),
    }
}

/// The numbers of the writes that a member has.
fn rows(cluster: &Cluster<'_>, member: usize) -> Result<BTreeSet<u64>, Error> {
    let mut client = Client::connect(&cluster.members[member].target)?;
    let select =
        json!([DB, {"op": "select", "table": "Address_Set", "where": [], "columns": ["name"]}]);
    let results = client.transact(&select)?;
    let rows = results[0]["rows"].as_array().into_iter().flatten();
    Ok(rows.filter_map(|row| number(row["name"].as_str()?)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_write_and_one_that_was_refused_in_vain_are_counted() {
        let rows = BTreeSet::from([1, 2, 4, 9]);
        assert_eq!(kept(&rows, &[1, 2], &[3]), Kept::default(), "what had no answer may be there");
        assert_eq!(kept(&rows, &[1, 2, 3, 5], &[4, 6]), Kept { missing: 2, refused: 1 });
    }
}

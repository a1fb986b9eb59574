//! How rows are found for monitors with conditions: their first rows, and those that other conditions
//! make appear. What came of it is told to the engine, which decides about keys, and counted.

use std::cell::RefCell;

use weir_data::DatumRef;
use weir_data::condition::Clause;
use weir_engine::{Database, Searches};
use weir_monitor::{Rows, Told};

use crate::database::Databases;
use crate::ids::DbId;

/// How often rows were looked for.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Rows of a table for a monitor with a condition, by indexes and keys.
    indexed: u64,
    /// Rows of a table for such a monitor, by a look at every row.
    linear: u64,
    /// Conditions on a table that every changed row is held against.
    unfiled: u64,
}

/// Lets monitors look for rows; what came of it goes to [`Databases::note_searches`].
pub(crate) fn search<T>(database: &Database, run: impl FnOnce(Rows<'_>) -> T) -> (T, Searches) {
    let searches = RefCell::new(Searches::default());
    let find = |table, index, values: &[DatumRef<'_>]| database.lookup(table, index, values);
    let candidates = |table, clause: &Clause, most| {
        searches.borrow_mut().candidates(database, table, clause, most)
    };
    let tell = |told: Told<'_>| match told {
        Told::Found { table } => searches.borrow_mut().found(database, table),
        Told::Scanned { table, clause, found } => {
            searches.borrow_mut().scanned(database, table, clause, found);
        }
    };
    let done = run(Rows::new(database.store(), &find).with_keys(&candidates, &tell));
    (done, searches.into_inner())
}

impl Databases {
    /// Takes in what searches in a database's tables, which are here, have come to.
    pub(crate) fn note_searches(&mut self, id: DbId, searches: Searches) {
        let (indexed, linear) = searches.counts();
        self.of_monitors.indexed += indexed;
        self.of_monitors.linear += linear;
        self.count_unfiled(id);
        if let Some(here) = self.open(id).tables.here_mut() {
            here.note_searches(searches);
        }
    }

    /// Counts the conditions of a database's monitors that could not be filed.
    pub(super) fn count_unfiled(&mut self, id: DbId) {
        self.of_monitors.unfiled += self.open(id).watch.monitors.take_unfiled();
    }

    /// How often rows were looked for in each way, by the names of the coverage counters.
    pub(crate) fn query_counts(&self) -> [(&'static str, u64); 8] {
        let Counts { indexed, linear, unfiled } = self.of_monitors;
        let [uuid, primary, alternate, inverted, scans] = self.queries.counters();
        [
            uuid,
            primary,
            alternate,
            inverted,
            scans,
            ("monitor_indexed", indexed),
            ("monitor_linear", linear),
            ("monitor_unfiled", unfiled),
        ]
    }
}

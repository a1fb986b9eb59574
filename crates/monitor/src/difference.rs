//! What other conditions make appear and vanish for a monitor (`monitor_cond_change`,
//! ovsdb-server(7) §4.1.13), composed here or elsewhere.

use std::sync::Arc;

use weir_data::{Snapshot, Store};

use crate::compose;
use crate::initial::{ATOM, ROW};
use crate::message;
use crate::subscription::Subscription;

/// A change of conditions that a monitor has not been told of.
#[derive(Debug)]
pub struct Change {
    old: Arc<Subscription>,
    new: Arc<Subscription>,
    head: Arc<Vec<u8>>,
}

impl Change {
    pub(crate) fn new(old: Arc<Subscription>, new: Arc<Subscription>, head: Arc<Vec<u8>>) -> Self {
        Self { old, new, head }
    }

    /// The message that tells of the change, up to the table updates.
    pub fn head(&self) -> &Arc<Vec<u8>> {
        &self.head
    }

    /// What composing the difference costs, in units of about 50 ns, as far as it is more than
    /// `most`: looking for the answer takes no longer than that.
    pub fn cost(&self, store: &Store, most: u64) -> u64 {
        let mut cost = 0;
        for (before, table) in compose::changed_conditions(&self.old, &self.new) {
            let clauses = (before.clauses().len() + table.clauses().len()) as u64;
            let rows = store.table(table.shape.table);
            cost += rows.len() as u64 * (1 + clauses);
            for row in rows.iter() {
                if cost > most {
                    return cost;
                }
                if before.matches(row) != table.matches(row) {
                    cost += ROW + ATOM * row.atoms() as u64;
                }
            }
        }
        cost
    }

    /// Composes the table updates and the end of the message behind them, with the rows as they are
    /// in the store; `None` if the change makes nothing appear or vanish.
    pub fn compose(&self, store: &Store) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        let rows = |table| store.table(table).iter();
        compose::condition_change(&self.old, &self.new, store.schema(), rows, &mut body);
        message::close(&mut body)
    }

    /// Composes what [`Change::compose`] does, with the rows of a snapshot.
    pub fn compose_from(&self, snapshot: &Snapshot) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        let rows = |table| snapshot.rows(table);
        compose::condition_change(&self.old, &self.new, snapshot.schema(), rows, &mut body);
        message::close(&mut body)
    }
}

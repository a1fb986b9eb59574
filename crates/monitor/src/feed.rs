//! Monitors that are told each change by itself (`weir_monitor`, docs/decisions/013), as the log of
//! changes has it: equal ones share what is composed.

use std::sync::Arc;

use weir_data::{Delta, Error, IdKind, Schema};

use crate::compose;
use crate::registry::{MonitorKey, Monitors};
use crate::subscription::Subscription;

/// What a monitor is told of single changes.
#[derive(Clone, Debug)]
pub struct Feed {
    subscription: Arc<Subscription>,
    digest: u64,
}

impl Feed {
    /// Appends what a change of recorded columns is to the monitor: a JSON object.
    pub fn compose(&self, delta: &Delta, schema: &Schema, out: &mut Vec<u8>) {
        compose::delta(&self.subscription, delta, schema, out);
    }

    /// A hash that is equal for those that are told the same.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Whether both are told the same.
    pub fn is_like(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.subscription, &other.subscription)
            || self.subscription == other.subscription
    }
}

impl Monitors {
    /// What a monitor is told of single changes; `None` if there is no such monitor.
    ///
    /// # Errors
    /// What it asks for does not follow from a change alone: rows that a condition chooses, or
    /// columns that no log keeps.
    pub fn feed(&self, key: MonitorKey, schema: &Schema) -> Option<Result<Feed, Error>> {
        let subscription = self.subscription(key)?;
        let refused = |details: String| Some(Err(Error::plain_syntax(details)));
        for of in &subscription.tables {
            let table = schema.table(of.shape.table);
            let name = &table.name;
            if !of.filter.is_empty() {
                return refused(format!("each: table {name} has a condition"));
            }
            let kept = |(column, _): &&(weir_data::ColumnId, _)| {
                *column > weir_data::ColumnId::VERSION && table.column(*column).persistent
            };
            if let Some((column, _)) = of.shape.columns.iter().find(|column| !kept(column)) {
                let column = &table.column(*column).name;
                return refused(format!("each: no record has column {column} of table {name}"));
            }
        }
        assert_eq!(subscription.ids(), IdKind::Recorded, "all that is asked for is in records");
        let digest = subscription.digest(&self.hasher);
        Some(Ok(Feed { subscription: Arc::clone(subscription), digest }))
    }
}

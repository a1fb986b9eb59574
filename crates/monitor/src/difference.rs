//! What other conditions make appear and vanish for a monitor (`monitor_cond_change`,
//! ovsdb-server(7) §4.1.13), composed here or elsewhere.

use std::sync::Arc;

use weir_data::{Ids, Row, Snapshot, Uuid};

use crate::compose;
use crate::cost::{Budget, TooLong};
use crate::filter::Filter;
use crate::message;
use crate::rows::Rows;
use crate::subscription::{Subscription, TableSubscription};

/// Other conditions on a table.
#[derive(Debug)]
pub(crate) struct OtherCondition {
    pub(crate) before: TableSubscription,
    pub(crate) after: TableSubscription,
    /// Asks for every row that appears or vanishes, and perhaps for others.
    pub(crate) touched: Filter,
}

/// A change of conditions that a monitor has not been told of.
#[derive(Debug)]
pub struct ConditionChange {
    tables: Vec<OtherCondition>,
    head: Arc<Vec<u8>>,
    /// Of the state, where updates carry one.
    id: Option<Uuid>,
}

impl ConditionChange {
    pub(crate) fn new(
        old: &Subscription,
        new: &Subscription,
        head: Arc<Vec<u8>>,
        ids: Ids,
    ) -> Self {
        let pairs = old.tables.iter().zip(&new.tables);
        let changed = pairs.filter(|(before, after)| before.filter != after.filter);
        let tables = changed.map(|(before, after)| OtherCondition {
            touched: before.filter.difference(&after.filter),
            before: before.clone(),
            after: after.clone(),
        });
        Self { tables: tables.collect(), head, id: new.id_of(ids) }
    }

    /// Where there are ids, a change that makes nothing appear or vanish is told, too: from the state
    /// that the client knew before, other rows may lead on under the new conditions.
    fn close(&self, mut body: Vec<u8>) -> Option<Vec<u8>> {
        if self.id.is_none_or(|id| id == Uuid::ZERO) {
            return message::close(self.id.is_some(), &mut body);
        }
        body.extend_from_slice(b"]}");
        Some(body)
    }

    /// The message that tells of the change, up to the body.
    pub fn head(&self) -> &Arc<Vec<u8>> {
        &self.head
    }

    /// Composes the body of the message, with the rows as they are now; `None` if the change makes
    /// nothing appear or vanish, and there is no id to tell.
    ///
    /// # Errors
    /// Composing costs more than `most` units of about 50 ns.
    pub fn compose(&self, rows: Rows<'_>, most: u64) -> Result<Option<Vec<u8>>, TooLong> {
        let (mut body, mut budget) = (Vec::new(), Budget::new(most));
        let schema = rows.store().schema();
        message::begin(self.id, &mut body);
        let find = |of: &OtherCondition, budget: &mut Budget<'_>| {
            rows.matching(of.after.shape.table, &of.touched, budget)
        };
        compose::condition_change(&self.tables, schema, find, &mut budget, &mut body)?;
        Ok(self.close(body))
    }

    /// Composes what [`ConditionChange::compose`] does, with the rows of a snapshot.
    pub fn compose_from(&self, snapshot: &Snapshot) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        let find = |of: &OtherCondition, _: &mut Budget<'_>| -> Result<Vec<&Row>, TooLong> {
            let rows = snapshot.rows(of.after.shape.table);
            Ok(rows.filter(|row| of.touched.matches(row)).collect())
        };
        let budget = &mut Budget::unlimited();
        message::begin(self.id, &mut body);
        compose::condition_change(&self.tables, snapshot.schema(), find, budget, &mut body)
            .expect("there is no bound");
        self.close(body)
    }
}

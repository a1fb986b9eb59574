//! Operations that have run on a snapshot come to what they would come to now.
//!
//! 1. One operation after the other: what it has done is done again, or, if it has looked for a row
//!    that is another one now, it runs again.
//! 2. What it does then may differ from what it did: from there on those rows are others, too, and
//!    operations behind it that have looked for them run again.
//! 3. Of each such row is known what it was by then when the operations ran first, so none is
//!    overlooked that has seen it in between.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_data::{Row, TableId, Uuid};
use weir_json::Text;

use super::Attempt;
use crate::database::Database;
use crate::execute::{self, Env, Outcome};
use crate::ops::Run;
use crate::transaction::{Edit, Logged};

/// A row as it was before an edit.
pub(super) fn undone(row: Option<Row>, edit: &Edit) -> Option<Row> {
    match edit {
        Edit::Insert(_) => None,
        Edit::Delete(row) => Some(row.clone()),
        Edit::Change(column, change) => row.map(|mut row| {
            change.clone().inverse().apply(row.get_mut(*column));
            row
        }),
    }
}

/// A row as it is behind an edit.
fn done(row: Option<Row>, edit: &Edit) -> Option<Row> {
    match edit {
        Edit::Insert(row) => Some(row.clone()),
        Edit::Delete(_) => None,
        Edit::Change(column, change) => row.map(|mut row| {
            change.apply(row.get_mut(*column));
            row
        }),
    }
}

/// What is different from the first run, as far as this one has come.
struct Differing<'a> {
    attempt: &'a Attempt,
    /// The operations that run again.
    again: BTreeSet<usize>,
    /// Rows that are others than in the first run; as they were in that by then.
    first: BTreeMap<(TableId, Uuid), Option<Row>>,
}

impl Attempt {
    /// Commits what the operations would do on the rows as they are now; `operations` are those of
    /// the request. `None` if not all of them would succeed, and nothing is left of it.
    pub fn replay(
        &self,
        db: &mut Database,
        operations: &[Text<'_>],
        env: &mut Env<'_>,
    ) -> Option<Outcome> {
        let (schema, read_only, budget) = (Arc::clone(db.schema()), env.read_only, env.budget);
        let mut run = Run::new(db, env);
        run.set_names(self.names.clone());
        run.out.push(b'[');
        let mut differing = Differing::new(self);
        let mut begin = 0;
        for (at, step) in self.trace.steps.iter().enumerate() {
            let did = &self.log[begin..step.done];
            begin = step.done;
            if at > 0 {
                run.out.push(b',');
            }
            if run.txn.meter.is_over() {
                return Some(Outcome::TooLong { cost: run.txn.abort() });
            }
            if !differing.again.contains(&at) {
                did.iter().for_each(|logged| run.redo(logged));
                run.out.extend_from_slice(&self.results.reply()[step.result.clone()]);
                continue;
            }
            run.txn.begin_log();
            // A row that comes under a name of its client's choice may be there now.
            let is_done = !execute::is_insert(operations[at])
                && execute::run_again(&mut run, &schema, operations, at, read_only);
            let does = run.txn.end_log();
            if !is_done {
                run.txn.abort();
                return None;
            }
            differing.pass(&run, did, &does);
        }
        let (txn, reply) = (run.txn, run.out);
        Some(self.results.with_reply(reply).conclude(txn, env.uuids, budget))
    }
}

impl<'a> Differing<'a> {
    fn new(attempt: &'a Attempt) -> Self {
        let undo = |row, logged: &usize| undone(row, &attempt.log[*logged].2);
        let as_it_was = |key: &(TableId, Uuid)| {
            let left = attempt.view.store.get(key.0, key.1).cloned();
            let was = attempt.edited.get(key).into_iter().flatten().rev().fold(left, undo);
            (*key, was)
        };
        let first = attempt.stale.iter().map(as_it_was).collect();
        Self { attempt, again: attempt.again.clone(), first }
    }

    /// An operation has run again: it `did` this in the first run, and `does` that now.
    fn pass(&mut self, run: &Run<'_, '_>, did: &[Logged], does: &[Logged]) {
        let touched = |logged: &Logged| (logged.0, logged.1);
        let rows: BTreeSet<_> = did.iter().chain(does).map(touched).collect();
        for key in rows {
            let of_row = |logged: &&Logged| touched(logged) == key;
            let now = run.txn.store().get(key.0, key.1);
            let before = self.first.get(&key).cloned();
            let is_new = before.is_none();
            // So far it was the same in both runs.
            let before = before.unwrap_or_else(|| {
                let does = does.iter().filter(of_row).rev();
                does.fold(now.cloned(), |row, logged| undone(row, &logged.2))
            });
            let did = did.iter().filter(of_row);
            let then = did.fold(before, |row, logged| done(row, &logged.2));
            if is_new && then.as_ref() == now {
                continue;
            }
            if is_new {
                let logged = self.attempt.edited.get(&key).into_iter().flatten();
                self.again.extend(logged.map(|logged| self.attempt.trace.step_of(*logged)));
            }
            if let Some(sought) = self.attempt.sought.get(&key.0) {
                then.iter().chain(now).for_each(|row| sought.find(row, &mut self.again));
            }
            self.first.insert(key, then);
        }
    }
}

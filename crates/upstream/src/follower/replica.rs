//! The dialogue of a replica, behind what it has in common with a relay (`dialogue`): rows of some
//! tables and columns under conditions, which change.
//!
//! 1. The rows are asked for by the newest method that the server knows: `monitor_cond_since`,
//!    `monitor_cond`, which has no ids, so that all rows come with each connection, or `monitor`,
//!    which has no conditions either, so that all rows of the tables come: [`Output::Conditions`]
//!    names these tables.
//! 2. Once they are there, conditions that differ from what the owner wants are changed
//!    (`monitor_cond_change`), one change at a time. Each has another name for the monitor in it,
//!    under which updates come from then on (ovsdb-server(7) §4.1.13): so whatever is told is known
//!    to be of the conditions before or behind, even if the connection ends before the answer.
//!    Where the reference may not bear a change, for it looks at a column that is not among the
//!    wanted, all rows are asked for again.
//! 3. A refused change has the rows asked for anew: the reference may have changed conditions of
//!    some of the tables.

use std::collections::{BTreeMap, BTreeSet};

use weir_data::{Schema, TableSchema, Uuid};
use weir_json::{Text, Value, array, object};

use super::conditions::{Condition, Set};
use super::{Asked, Follower, Model, Output, Phase, Stop, canonical};
use crate::news::Method;
use crate::session::{Level, Said};

/// The columns of a table that a replica wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Columns {
    /// Whatever the server has.
    #[default]
    All,
    /// What the server has of these.
    These(BTreeSet<String>),
}

impl Columns {
    /// The wanted ones of a table.
    fn of<'a>(&'a self, table: &'a TableSchema) -> impl Iterator<Item = &'a str> {
        let names = table.data_columns().map(|(_, column)| column.name.as_str());
        names.filter(|name| self.has(name))
    }

    /// Whether a column is a wanted one. Nobody asks for those that name a row and its version.
    fn has(&self, name: &str) -> bool {
        let is_listed = match self {
            Self::All => true,
            Self::These(names) => names.contains(name),
        };
        is_listed && !name.starts_with('_')
    }
}

/// The tables that a replica wants; those that a server does not have are left out.
pub type Tables = BTreeMap<String, Columns>;

impl Follower {
    /// The owner wants other rows of these tables, and the same as before of all others. What is
    /// changed while a change is under way makes one change together. The number of what is wanted
    /// now: with the [`Output::Conditions`] that has it, or a later one, the rows are those.
    ///
    /// # Panics
    /// The owner is no replica, or does not want the table at all.
    pub fn set_conditions(
        &mut self,
        changes: BTreeMap<String, Condition>,
        out: &mut Vec<Output>,
    ) -> u64 {
        let tables = self.tables().expect("the owner is a replica");
        let are_wanted = changes.keys().all(|table| tables.contains_key(table));
        assert!(are_wanted, "conditions are those of tables that are wanted");
        let number = self.conditions.want(changes);
        self.change_conditions(out);
        self.pass_on(out);
        number
    }

    /// What a replica wants.
    pub(super) fn tables(&self) -> Option<&Tables> {
        match &self.wanted.model {
            Model::Replica(tables) => Some(tables),
            Model::Relay { .. } | Model::Backup(_) => None,
        }
    }

    /// The tables that both sides have.
    fn common_tables<'a>(
        &'a self,
        schema: &'a Schema,
    ) -> impl Iterator<Item = (&'a Columns, &'a TableSchema)> {
        self.tables()
            .into_iter()
            .flatten()
            .filter_map(|(name, columns)| Some((columns, schema.table(schema.table_id(name)?))))
    }

    /// What a server is told of a table's condition: all rows, if it cannot judge them.
    fn judged<'a>(&self, set: &'a Set, table: &TableSchema) -> &'a Condition {
        let condition = set.of(&table.name);
        match self.method != Method::Monitor && condition.can_judge(table) {
            true => condition,
            false => &Condition::All,
        }
    }

    /// The rows that are asked for under these conditions.
    pub(super) fn replica_requests(&self, schema: &Schema, set: &Set) -> Value {
        let request = |(columns, table): (&Columns, &TableSchema)| {
            let mut members = vec![("columns".to_owned(), array(columns.of(table)))];
            let condition = self.judged(set, table);
            if *condition != Condition::All {
                members.push(("where".to_owned(), condition.to_value()));
            }
            (table.name.clone(), array([Value::Object(members.into_iter().collect())]))
        };
        Value::Object(self.common_tables(schema).map(request).collect())
    }

    /// Asks for what is wanted, unless the rows are that already, or something is under way.
    fn change_conditions(&mut self, out: &mut Vec<Output>) {
        let goal = self.conditions.goal().clone();
        let is_reached = goal.number == self.conditions.acknowledged().number;
        if is_reached || self.phase != Phase::Following || self.conditions.is_under_way() {
            return;
        }
        let schema = self.schema();
        let changed: Vec<_> = self.changed_conditions(&schema, &goal).collect();
        if changed.is_empty() {
            self.conditions.reach_goal();
            return self.tell_conditions(out);
        }
        // A server with nothing of ours is the reference, which may end by such a change.
        let is_unasked = |(columns, _, then): &(&Columns, &TableSchema, &Condition)| {
            then.columns().any(|column| !columns.has(column))
        };
        if self.features.is_empty() && changed.iter().any(is_unasked) {
            self.last = Uuid::ZERO;
            self.cancel_monitors();
            return self.ask_for_rows();
        }
        let requests = changed.iter().map(|(_, table, then)| {
            (table.name.clone(), array([object([("where", then.to_value())])]))
        });
        let requests = Value::Object(requests.collect()).to_string();
        let (old, new) = (self.monitor_id(), self.monitor_name(self.monitors + 1));
        let params = [b"[", &old[..], b",", &new, b",", requests.as_bytes(), b"]"].concat();
        let request = self.ask("monitor_cond_change", &params, Asked::Conditions);
        self.conditions.request(request, goal);
    }

    /// What a server is to change, so that the rows are those of the goal: of each table, what it
    /// is told of the condition.
    fn changed_conditions<'a>(
        &'a self,
        schema: &'a Schema,
        goal: &'a Set,
    ) -> impl Iterator<Item = (&'a Columns, &'a TableSchema, &'a Condition)> {
        self.common_tables(schema).filter_map(|(columns, table)| {
            let now = self.judged(self.conditions.acknowledged(), table);
            let then = self.judged(goal, table);
            (now != then).then_some((columns, table, then))
        })
    }

    /// The name that the monitor is about to have.
    pub(super) fn next_name(&self) -> Option<Vec<u8>> {
        let is_awaited = self.phase == Phase::Following && self.conditions.is_awaited();
        is_awaited.then(|| self.monitor_name(self.monitors + 1))
    }

    /// Whether the monitor has this name, or is about to have it.
    pub(super) fn is_monitor(&self, name: Vec<u8>) -> bool {
        name == self.monitor_id() || self.next_name() == Some(name)
    }

    /// The name of an update may be the one that was asked for with other conditions: then these
    /// hold.
    pub(super) fn look_at_name(&mut self, said: &Said<'_>) -> bool {
        let (Said::Notice(method, params), Some(next)) = (said, self.next_name()) else {
            return false;
        };
        let name = params.elements().and_then(|mut elements| elements.next());
        let is_next = *method == self.method.update() && name.map(canonical) == Some(next);
        if is_next {
            self.have_conditions();
        }
        is_next
    }

    /// The conditions that were asked for hold from now on, and the monitor has its new name.
    fn have_conditions(&mut self) {
        self.monitors += 1;
        self.conditions.take_effect();
    }

    /// The owner is told a state: the first one on this connection, or whatever came next.
    pub(super) fn have_replica_rows(&mut self) {
        if self.phase != Phase::Following {
            self.conditions.take_effect();
            self.conditions.settle();
        }
        self.conditions.have_state();
    }

    /// The owner's rows have come to be those of other conditions, perhaps.
    pub(super) fn tell_conditions(&mut self, out: &mut Vec<Output>) {
        let (set, schema) = (self.conditions.acknowledged(), self.schema());
        let is_whole = |table: &&TableSchema| self.judged(set, table) != set.of(&table.name);
        let tables = self.common_tables(&schema).map(|(_, table)| table);
        let whole = tables.filter(is_whole).map(|table| table.name.clone()).collect();
        out.push(Output::Conditions { number: set.number, whole });
        self.change_conditions(out);
    }

    /// A change of conditions is answered.
    pub(super) fn conditions_reply(
        &mut self,
        request: u64,
        reply: Result<Text<'_>, Text<'_>>,
        out: &mut Vec<Output>,
    ) -> Result<(), Stop> {
        if !self.conditions.is_asked_by(request) {
            // Of a monitor that is there no more.
            return Ok(());
        }
        match (reply, self.conditions.is_awaited()) {
            (Ok(_), true) => {
                self.have_conditions();
                self.conditions.settle();
                self.tell_conditions(out);
            }
            (Ok(_), false) => {
                self.conditions.settle();
                self.change_conditions(out);
            }
            (Err(error), is_awaited) => {
                if !is_awaited || !self.conditions.is_resumable() {
                    self.last = Uuid::ZERO;
                }
                self.say_refused(error, out);
                self.cancel_monitors();
                self.ask_for_rows();
            }
        }
        Ok(())
    }

    /// The server does not give rows under the conditions that were asked for: it may under those
    /// that were acknowledged before.
    pub(super) fn rows_refused(
        &mut self,
        error: Text<'_>,
        out: &mut Vec<Output>,
    ) -> Result<(), Stop> {
        self.last = Uuid::ZERO;
        let refused = self.say_refused(error, out);
        if !self.conditions.has_other_than(refused) {
            let text = format!("refused the rows: {}", error.to_value());
            return Err(Stop::Other(Level::Warning, text));
        }
        self.ask_for_rows();
        Ok(())
    }

    fn say_refused(&mut self, error: Text<'_>, out: &mut Vec<Output>) -> u64 {
        let number = self.conditions.refuse();
        out.push(Output::Refused { number, error: error.as_bytes().to_vec() });
        number
    }
}

/// Whether an error says that the server is older than the method.
pub(super) fn is_unknown_method(error: Text<'_>) -> bool {
    let error = error.to_value();
    error.as_str().or_else(|| error.get("error")?.as_str()) == Some("unknown method")
}

#[cfg(test)]
mod tests;

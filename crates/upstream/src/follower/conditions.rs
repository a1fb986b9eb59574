//! Which rows a replica wants: the conditions that its owner wants, those that a server has been
//! asked for, those that the rows are of, and those under which following can be resumed.
//!
//! A server answers a change of conditions behind the update that it makes (ovsdb-server(7)
//! §4.1.13), and makes no update where no row comes or goes. So at most one change is under way;
//! what is wanted meanwhile is in the next one. The last state with an id that the owner has was
//! told under the conditions before as long as no update has come under the new ones: whoever asks
//! for what has changed since that state asks under the conditions before, and changes them again.
//! Under the new ones the difference could be wrong: rows that matched them at that state, and that
//! the owner never had, would change or go, and rows that it has would not, if they matched the new
//! ones only in between.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_data::TableSchema;
use weir_json::{Value, array};

/// Which rows of a table are wanted.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Condition {
    /// All rows.
    #[default]
    All,
    /// The rows for which any of these clauses holds: each as in RFC 7047 §5.1, or a boolean. No
    /// row where there are none.
    Any(Vec<Value>),
}

impl Condition {
    /// The columns that its clauses look at.
    pub(super) fn columns(&self) -> impl Iterator<Item = &str> {
        let clauses = match self {
            Self::All => &[][..],
            Self::Any(clauses) => clauses,
        };
        clauses.iter().filter_map(|clause| clause.as_array()?.first()?.as_str())
    }

    /// Whether a server with this table can judge rows by it. Where it has not all columns, nobody
    /// knows whether a row would match: all of them come.
    pub(super) fn can_judge(&self, table: &TableSchema) -> bool {
        self.columns().all(|column| table.column_id(column).is_some())
    }

    /// The clauses as a server is told of them; without any it would take all rows for wanted.
    pub(super) fn to_value(&self) -> Value {
        match self {
            Self::All => array([true]),
            Self::Any(clauses) if clauses.is_empty() => array([false]),
            Self::Any(clauses) => Value::Array(clauses.clone()),
        }
    }
}

/// The conditions of all tables at one time; a table that is not among them has [`Condition::All`].
#[derive(Clone, Debug, Default)]
pub(super) struct Set {
    /// The owner's number of them.
    pub(super) number: u64,
    tables: Arc<BTreeMap<String, Arc<Condition>>>,
}

impl Set {
    /// The condition of a table.
    pub(super) fn of(&self, table: &str) -> &Condition {
        self.tables.get(table).map_or(&Condition::All, |condition| condition)
    }
}

/// How far each condition is. All begin with number 0, which wants all rows.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    /// What the owner has asked for last.
    wanted: Set,
    /// What a server has been asked for, with the request's number.
    requested: Option<(u64, Set)>,
    /// What the rows are of, and whether there have been any.
    acknowledged: Set,
    has_rows: bool,
    /// What the rows were of when the last state with an id was told.
    resumable: Set,
    /// What the server has refused on this connection: another one may take it.
    refused: Option<u64>,
}

impl Conditions {
    /// The owner wants other rows of some tables; the number of what it wants now, which is a new
    /// one only if that is something else than before.
    pub(super) fn want(&mut self, changes: BTreeMap<String, Condition>) -> u64 {
        let is_new = |(table, condition): (&String, &Condition)| self.wanted.of(table) != condition;
        if changes.iter().any(is_new) {
            self.wanted.number += 1;
            let changes =
                changes.into_iter().map(|(table, condition)| (table, Arc::new(condition)));
            Arc::make_mut(&mut self.wanted.tables).extend(changes);
        }
        self.wanted.number
    }

    /// What the server is to be asked for: what it has refused is not asked for again.
    pub(super) fn goal(&self) -> &Set {
        match self.refused == Some(self.wanted.number) {
            true => &self.acknowledged,
            false => &self.wanted,
        }
    }

    /// What rows are asked for under: to resume from the last state, or all that there are.
    pub(super) fn of_rows(&self, is_resumed: bool) -> &Set {
        if is_resumed { &self.resumable } else { self.goal() }
    }

    /// What the rows are of.
    pub(super) fn acknowledged(&self) -> &Set {
        &self.acknowledged
    }

    /// Whether following from the last state leads to rows of what has been acknowledged.
    pub(super) fn is_resumable(&self) -> bool {
        self.resumable.number == self.acknowledged.number
    }

    /// A request for these has been sent. One before it counts no longer.
    pub(super) fn request(&mut self, request: u64, set: Set) {
        self.requested = Some((request, set));
    }

    /// Whether this request is under way.
    pub(super) fn is_asked_by(&self, request: u64) -> bool {
        self.requested.as_ref().is_some_and(|(number, _)| *number == request)
    }

    /// Whether a request is under way.
    pub(super) fn is_under_way(&self) -> bool {
        self.requested.is_some()
    }

    /// Whether a request is under way, and rows that it asks for have not come.
    pub(super) fn is_awaited(&self) -> bool {
        let number = self.acknowledged.number;
        self.requested.as_ref().is_some_and(|(_, set)| set.number != number)
    }

    /// The rows are those that were asked for from now on.
    pub(super) fn take_effect(&mut self) {
        let (_, set) = self.requested.as_ref().expect("something has been asked for");
        (self.acknowledged, self.has_rows) = (set.clone(), true);
    }

    /// Nothing need be asked for: under the server's schema the goal means what has been
    /// acknowledged.
    pub(super) fn reach_goal(&mut self) {
        let is_resumable = self.is_resumable();
        self.acknowledged = self.goal().clone();
        if is_resumable {
            self.resumable = self.acknowledged.clone();
        }
    }

    /// The owner has a state under what has been acknowledged.
    pub(super) fn have_state(&mut self) {
        self.resumable = self.acknowledged.clone();
    }

    /// The request is answered, and what it asked for has taken effect.
    pub(super) fn settle(&mut self) {
        self.requested = None;
    }

    /// The request is refused: the number of what it asked for.
    pub(super) fn refuse(&mut self) -> u64 {
        let (_, set) = self.requested.take().expect("something has been asked for");
        self.refused = Some(set.number);
        set.number
    }

    /// Whether it was what the owner wants that has been refused, and there is what was
    /// acknowledged before. Who never had rows is not sent all of them instead.
    pub(super) fn has_other_than(&self, refused: u64) -> bool {
        self.has_rows && refused == self.wanted.number && refused != self.acknowledged.number
    }

    /// What was said on the connection, or about the schema, counts no longer.
    pub(super) fn forget(&mut self) {
        (self.requested, self.refused) = (None, None);
    }
}

#[cfg(test)]
mod tests {
    use weir_data::Schema;

    use super::*;

    fn is(column: &str, value: i64) -> Condition {
        Condition::Any(vec![Value::Array(vec![column.into(), "==".into(), value.into()])])
    }

    fn want(conditions: &mut Conditions, table: &str, condition: Condition) -> u64 {
        conditions.want([(table.to_owned(), condition)].into())
    }

    /// Sends what is wanted.
    fn ask(conditions: &mut Conditions, request: u64) {
        conditions.request(request, conditions.goal().clone());
    }

    #[test]
    fn clauses_are_judged_by_columns_that_are_there() {
        let text = r#"{"name":"D","tables":{"T":{"columns":{"x":{"type":"integer"}}}}}"#;
        let schema = Schema::parse_bytes(text.as_bytes()).unwrap();
        let table = schema.table(schema.table_id("T").unwrap());
        let odd = Condition::Any(vec![true.into(), Value::Null, Value::Array(vec![])]);
        for (condition, can_judge, text) in [
            (Condition::All, true, "[true]"),
            (Condition::Any(vec![]), true, "[false]"),
            (is("x", 1), true, r#"[["x","==",1]]"#),
            (is("_uuid", 1), true, r#"[["_uuid","==",1]]"#),
            (is("y", 1), false, r#"[["y","==",1]]"#),
            // The server says what is wrong with these.
            (odd, true, "[true,null,[]]"),
        ] {
            assert_eq!(condition.can_judge(table), can_judge, "{text}");
            assert_eq!(condition.to_value().to_string(), text);
        }
    }

    #[test]
    fn what_is_wanted_holds_once_it_has_been_asked_for() {
        let mut conditions = Conditions::default();
        assert_eq!(want(&mut conditions, "T", is("x", 1)), 1);
        ask(&mut conditions, 10);
        assert!(conditions.is_awaited() && conditions.is_asked_by(10));
        assert_eq!(want(&mut conditions, "U", is("x", 1)), 2);
        conditions.take_effect();
        assert_eq!(conditions.acknowledged().number, 1);
        assert_eq!(*conditions.acknowledged().of("U"), Condition::All);
        assert!(!conditions.is_awaited() && conditions.is_under_way());
        conditions.settle();
        assert!(!conditions.is_under_way());
        assert_eq!((conditions.goal().number, conditions.goal().of("U")), (2, &is("x", 1)));
    }

    #[test]
    fn following_is_resumed_under_what_the_last_state_was_told_under() {
        let mut conditions = Conditions::default();
        want(&mut conditions, "T", is("x", 1));
        ask(&mut conditions, 10);
        conditions.take_effect();
        conditions.settle();
        assert!(!conditions.is_resumable());
        assert_eq!(conditions.of_rows(true).number, 0);
        // Neither does that change by what means nothing to the server.
        want(&mut conditions, "W", is("x", 1));
        conditions.reach_goal();
        assert_eq!((conditions.acknowledged().number, conditions.of_rows(true).number), (2, 0));
        conditions.have_state();
        assert!(conditions.is_resumable());
        want(&mut conditions, "W", is("x", 2));
        conditions.reach_goal();
        assert_eq!((conditions.of_rows(true).number, conditions.of_rows(false).number), (3, 3));
    }

    #[test]
    fn what_is_refused_is_asked_for_on_another_connection_only() {
        let mut conditions = Conditions::default();
        ask(&mut conditions, 9);
        conditions.take_effect();
        conditions.settle();
        want(&mut conditions, "T", is("x", 1));
        ask(&mut conditions, 10);
        assert_eq!(conditions.refuse(), 1);
        assert!(conditions.has_other_than(1) && !conditions.is_under_way());
        assert_eq!(conditions.goal().number, 0);
        conditions.forget();
        assert_eq!(conditions.goal().number, 1);
        // What is wanted meanwhile is something else.
        ask(&mut conditions, 11);
        want(&mut conditions, "T", is("x", 2));
        assert_eq!(conditions.refuse(), 1);
        assert!(!conditions.has_other_than(1), "it was not what is wanted now");
        assert_eq!(conditions.goal().number, 2);
    }
}

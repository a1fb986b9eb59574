//! From a condition to its filter.

use std::cmp::Ordering;

use foldhash::fast::FixedState;
use weir_data::condition::{Clause, Condition, Function};
use weir_data::{ColumnId, Datum};

use super::{Filter, Kind, Values, hash_entry, hash_value};

/// Longest value that `==` is filed under: hashing a value must not cost more than a change.
pub(crate) const EQUAL_MAX: usize = 8;

/// Values that are demanded of a column, each with its hash.
type List = ((ColumnId, Kind), Vec<(u64, Datum)>);

/// What a clause is part of.
enum Place {
    /// The clause always holds.
    Always,
    /// The clause demands a value, which is found by this hash.
    Value(Kind, u64),
    /// The clause is asked by itself.
    Alone,
}

fn place(function: Function, value: &Datum, hasher: &FixedState) -> Place {
    let value = value.as_ref();
    let first = value.entries().next();
    match (function, first) {
        (Function::Equal, _) if value.len() <= EQUAL_MAX => {
            Place::Value(Kind::Equal, hash_value(value, hasher))
        }
        (Function::Includes | Function::Excludes, None) => Place::Always,
        (Function::Includes, Some(entry)) => {
            Place::Value(Kind::Includes, hash_entry(entry, hasher))
        }
        (Function::Excludes, Some(entry)) if value.len() == 1 => {
            Place::Value(Kind::Excludes, hash_entry(entry, hasher))
        }
        _ => Place::Alone,
    }
}

pub(super) fn build(condition: Condition, hasher: &FixedState) -> Filter {
    let mut always = condition.clauses.is_empty();
    let mut columns = Vec::new();
    let mut lists: Vec<List> = Vec::new();
    let mut alone = Vec::new();
    for clause in condition.clauses {
        let (column, function, value) = match clause {
            Clause::Constant(constant) => {
                always |= constant;
                continue;
            }
            Clause::Compare { column, function, value } => (column, function, value),
        };
        // Thousands of clauses on one column come one after the other.
        if columns.last() != Some(&column) {
            columns.push(column);
        }
        match place(function, &value, hasher) {
            Place::Always => always = true,
            Place::Value(kind, hash) => {
                let at = lists.iter().rposition(|(of, _)| *of == (column, kind));
                let at = at.unwrap_or_else(|| {
                    lists.push(((column, kind), Vec::new()));
                    lists.len() - 1
                });
                lists[at].1.push((hash, value));
            }
            Place::Alone => alone.push(Clause::Compare { column, function, value }),
        }
    }
    columns.sort_unstable();
    columns.dedup();
    let others = widest(alone);
    always |= leave_out_nothing(&others);
    if always {
        return Filter::of(true, columns, Vec::new(), Vec::new(), hasher);
    }
    lists.sort_unstable_by_key(|(of, _)| *of);
    let values = lists.into_iter().map(|((column, kind), list)| Values::new(column, kind, list));
    Filter::of(false, columns, values.collect(), others, hasher)
}

/// The order of clauses that are asked one by one.
pub(super) fn compare(a: &Clause, b: &Clause) -> Ordering {
    match (a, b) {
        (
            Clause::Compare { column: a_column, function: a_function, value: a_value },
            Clause::Compare { column: b_column, function: b_function, value: b_value },
        ) => (a_column, a_function)
            .cmp(&(b_column, b_function))
            .then_with(|| a_value.as_ref().cmp(&b_value.as_ref())),
        (Clause::Constant(a), Clause::Constant(b)) => a.cmp(b),
        (Clause::Constant(_), _) => Ordering::Less,
        (_, Clause::Constant(_)) => Ordering::Greater,
    }
}

/// Which way a clause demands less or more, and whether the value itself will do.
fn bound(clause: &Clause) -> Option<(ColumnId, bool, bool)> {
    let Clause::Compare { column, function, .. } = clause else { return None };
    match function {
        Function::Less => Some((*column, true, false)),
        Function::LessOrEqual => Some((*column, true, true)),
        Function::Greater => Some((*column, false, false)),
        Function::GreaterOrEqual => Some((*column, false, true)),
        _ => None,
    }
}

/// The clauses in order, each once; of those that demand less or more than a value only the widest.
fn widest(mut clauses: Vec<Clause>) -> Vec<Clause> {
    let mut kept: Vec<Clause> = Vec::new();
    let bounds = clauses.extract_if(.., |clause| bound(clause).is_some());
    for clause in bounds {
        let (column, is_upper, _) = bound(&clause).expect("it has just been found to be one");
        let same =
            |other: &&mut Clause| bound(other).is_some_and(|of| (of.0, of.1) == (column, is_upper));
        match kept.iter_mut().find(same) {
            Some(other) if is_wider(&clause, other) => *other = clause,
            Some(_) => {}
            None => kept.push(clause),
        }
    }
    clauses.append(&mut kept);
    clauses.sort_unstable_by(compare);
    clauses.dedup();
    clauses
}

/// Whether a bound holds for more values than another one of the same way.
fn is_wider(one: &Clause, other: &Clause) -> bool {
    let (Clause::Compare { value: a, .. }, Clause::Compare { value: b, .. }) = (one, other) else {
        return false;
    };
    let order = a.as_ref().cmp(&b.as_ref());
    match (bound(one), bound(other)) {
        (Some((_, is_upper, includes)), Some((_, _, other_includes))) => match order {
            Ordering::Less => !is_upper,
            Ordering::Greater => is_upper,
            Ordering::Equal => includes && !other_includes,
        },
        _ => false,
    }
}

/// Whether two clauses say `!=` of one column: what is not one of two values may be anything.
fn leave_out_nothing(clauses: &[Clause]) -> bool {
    let unequal = |clause: &Clause| match clause {
        Clause::Compare { column, function: Function::NotEqual, .. } => Some(*column),
        _ => None,
    };
    clauses.windows(2).any(|two| unequal(&two[0]).is_some() && unequal(&two[0]) == unequal(&two[1]))
}

//! Conditions in a form in which thousands of clauses cost a row as much as a few.
//!
//! A monitor asks for the rows that satisfy any clause of its condition. So clauses that demand
//! values of one column are a set of values, and a row is judged by one look-up of its own; of
//! clauses that demand less or more than a number only the widest counts; and equal conditions have
//! equal filters, in whatever order and however often their clauses were given.

mod build;
mod values;

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use weir_data::condition::{Clause, Condition, Function};
use weir_data::{ColumnId, Row};

pub(crate) use build::EQUAL_MAX;
pub(crate) use values::{Entry, Kind, Values, hash_entry, hash_value};

/// Which rows of a table a monitor asks for.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    /// Every row is asked for: there is no clause, or one that always holds.
    holds_always: bool,
    /// The columns that clauses look at, ascending.
    columns: Vec<ColumnId>,
    /// Clauses that demand values, by column and kind, ascending.
    values: Vec<Values>,
    /// Clauses that are asked one by one, ascending, each once.
    others: Vec<Clause>,
    /// Equal for equal filters.
    digest: u64,
    row_cost: u64,
    hasher: FixedState,
}

fn row_cost(values: &[Values], others: &[Clause]) -> u64 {
    let values: usize = values.iter().map(Values::longest_run).sum();
    let others = others.iter().map(|clause| match clause {
        Clause::Compare { value, .. } => 1 + value.as_ref().len() / 4,
        Clause::Constant(_) => 1,
    });
    (1 + values + others.sum::<usize>()) as u64
}

impl Filter {
    /// The filter of a condition, any clause of which is to hold. `hasher` is the same for all
    /// filters of a database.
    pub(crate) fn new(condition: Condition, hasher: &FixedState) -> Self {
        build::build(condition, hasher)
    }

    fn of(
        holds_always: bool,
        columns: Vec<ColumnId>,
        values: Vec<Values>,
        others: Vec<Clause>,
        hasher: &FixedState,
    ) -> Self {
        let mut digest = hasher.build_hasher();
        digest.write_u8(u8::from(holds_always));
        columns.iter().for_each(|column| digest.write_u16(column.0));
        values.iter().for_each(|of| of.digest(&mut digest));
        for clause in &others {
            if let Clause::Compare { column, function, value } = clause {
                digest.write_u16(column.0);
                digest.write_u8(*function as u8);
                digest.write_u64(hash_value(value.as_ref(), hasher));
            }
        }
        let digest = digest.finish();
        let row_cost = row_cost(&values, &others);
        Self { holds_always, columns, values, others, digest, row_cost, hasher: hasher.clone() }
    }

    /// Whether the row is asked for.
    #[inline]
    pub(crate) fn matches(&self, row: &Row) -> bool {
        self.holds_always
            || self.values.iter().any(|of| of.hold(row.get(of.column), &self.hasher))
            || self.others.iter().any(|clause| clause.matches(row))
    }

    /// Whether nothing is asked of a row: no clause looks at any column.
    pub(crate) fn is_empty(&self) -> bool {
        self.holds_always && self.columns.is_empty()
    }

    /// Whether no row can ever be asked for.
    pub(crate) fn matches_no_row(&self) -> bool {
        !self.holds_always && self.values.is_empty() && self.others.is_empty()
    }

    /// Whether clauses look at the column.
    pub(crate) fn looks_at(&self, column: ColumnId) -> bool {
        self.columns.binary_search(&column).is_ok()
    }

    /// What judging a row costs, in units of [`crate::cost`].
    #[inline]
    pub(crate) fn row_cost(&self) -> u64 {
        self.row_cost
    }

    /// The clauses that demand values, if the filter consists of those alone and every row that it
    /// asks for can be found by one of them.
    pub(crate) fn demanded(&self) -> Option<&[Values]> {
        self.sought().filter(|(_, others)| others.is_empty()).map(|(values, _)| values)
    }

    /// All clauses, if for each of them there can be something that finds its rows: those that demand
    /// values, and the others.
    pub(crate) fn sought(&self) -> Option<(&[Values], &[Clause])> {
        let is_found = |clause: &Clause| match clause {
            Clause::Compare { function, .. } => {
                !matches!(function, Function::NotEqual | Function::Excludes)
            }
            Clause::Constant(_) => false,
        };
        let is_sought = !self.holds_always
            && self.values.iter().all(|of| of.kind != Kind::Excludes)
            && self.others.iter().all(is_found);
        is_sought.then_some((&self.values, &self.others))
    }

    /// Whether every row is asked for.
    pub(crate) fn holds_always(&self) -> bool {
        self.holds_always
    }

    /// The clauses that only one of the two has: who is asked for by only one of the filters is
    /// asked for by this one.
    pub(crate) fn difference(&self, other: &Self) -> Self {
        let always = self.holds_always != other.holds_always;
        let kinds = self.values.iter().chain(&other.values).map(|of| (of.column, of.kind));
        let mut kinds: Vec<_> = kinds.collect();
        kinds.sort_unstable();
        kinds.dedup();
        let differing = kinds.into_iter().filter_map(|(column, kind)| {
            match (self.values_of(column, kind), other.values_of(column, kind)) {
                (Some(a), Some(b)) => a.difference(b),
                (Some(one), None) | (None, Some(one)) => Some(one.clone()),
                (None, None) => None,
            }
        });
        let values: Vec<Values> = differing.collect();
        let only = |a: &Self, b: &Self| -> Vec<Clause> {
            let has = |clause: &Clause| {
                b.others.binary_search_by(|other| build::compare(other, clause)).is_ok()
            };
            a.others.iter().filter(|clause| !has(clause)).cloned().collect()
        };
        let others = [only(self, other), only(other, self)].concat();
        Self::of(always, Vec::new(), values, others, &self.hasher)
    }

    fn values_of(&self, column: ColumnId, kind: Kind) -> Option<&Values> {
        self.values.iter().find(|of| (of.column, of.kind) == (column, kind))
    }

    /// A hash that is equal for equal filters.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// Memory that the clauses occupy, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let others = self.others.iter().map(|clause| match clause {
            Clause::Compare { value, .. } => values::datum_bytes(value.as_ref()),
            Clause::Constant(_) => 0,
        });
        let lists = self.others.len() * size_of::<Clause>() + size_of_val(&*self.columns);
        lists + others.sum::<usize>() + self.values.iter().map(Values::bytes).sum::<usize>()
    }
}

impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
            && self.holds_always == other.holds_always
            && self.columns == other.columns
            && self.values == other.values
            && self.others == other.others
    }
}

impl Eq for Filter {}

#[cfg(test)]
mod tests;

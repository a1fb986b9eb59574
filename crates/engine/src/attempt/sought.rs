//! What the operations of a request have looked for and done, each of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use weir_data::condition::{Clause, Condition, Function};
use weir_data::{Atom, ColumnId, Datum, Row, TableId, Uuid};

use crate::meter;
use crate::reads::ValueHasher;

/// A condition, and the operations that have looked for the rows that satisfy it, ascending.
type Asked = (Condition, Vec<usize>);

/// What an operation has come to.
#[derive(Debug)]
pub(super) struct Step {
    /// Where its result is in the reply.
    pub(super) result: Range<usize>,
    /// Where what it has done ends in the log of the transaction.
    pub(super) done: usize,
    /// What all have cost up to its end.
    spent: u64,
}

/// What operations look for and do, as they run.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    tables: BTreeMap<TableId, Vec<Asked>>,
    pub(super) steps: Vec<Step>,
    /// A name may have stood for another row before its row was inserted.
    pub(crate) is_renamed: bool,
}

impl Trace {
    /// The operation that runs looks for the rows that satisfy a condition.
    pub(crate) fn note(&mut self, table: TableId, condition: &Condition) {
        let (at, asked) = (self.steps.len(), self.tables.entry(table).or_default());
        // Many operations of one kind are the common case.
        match asked.last_mut() {
            Some((last, steps)) if last == condition => steps.push(at),
            _ => asked.push((condition.clone(), vec![at])),
        }
    }

    /// The operation that runs looks for a row of this name.
    pub(crate) fn note_row(&mut self, table: TableId, uuid: Uuid) {
        let value = Datum::One(Atom::Uuid(uuid));
        let (column, function) = (ColumnId::UUID, Function::Equal);
        let clauses = vec![Clause::Compare { column, function, value }];
        self.note(table, &Condition { clauses });
    }

    /// An operation has ended.
    pub(crate) fn end_step(&mut self, result: Range<usize>, done: usize, spent: u64) {
        self.steps.push(Step { result, done, spent });
    }

    /// What an operation has cost.
    pub(super) fn cost(&self, at: usize) -> u64 {
        let spent = |step: &Step| step.spent;
        let before = at.checked_sub(1).and_then(|at| self.steps.get(at)).map_or(0, spent);
        self.steps.get(at).map_or(0, |step| step.spent - before)
    }

    /// The operation that did what is at this place of the log.
    pub(super) fn step_of(&self, logged: usize) -> usize {
        self.steps.partition_point(|step| step.done <= logged)
    }

    pub(super) fn take_sought(&mut self, seed: u64) -> BTreeMap<TableId, Sought> {
        let of_table = |(table, asked)| (table, Sought::new(asked, seed));
        std::mem::take(&mut self.tables).into_iter().map(of_table).collect()
    }
}

/// What has been looked for in one table: a row is compared with few of thousands of conditions.
#[derive(Debug)]
pub(super) struct Sought {
    /// Conditions that demand a value of a column, by the column and the hash of the value.
    equal: BTreeMap<ColumnId, HashMap<u64, Vec<Asked>, FixedState>>,
    others: Vec<Asked>,
    hasher: ValueHasher,
}

impl Sought {
    fn new(all: Vec<Asked>, seed: u64) -> Self {
        let hasher = ValueHasher::new(seed);
        let mut sought = Self { equal: BTreeMap::new(), others: Vec::new(), hasher };
        for asked in all {
            let demanded = asked.0.clauses.iter().find_map(|clause| match clause {
                Clause::Compare { column, function: Function::Equal, value } => {
                    Some((*column, sought.hasher.hash(value.as_ref())))
                }
                _ => None,
            });
            let place = match demanded {
                Some((column, hash)) => {
                    let map = || HashMap::with_hasher(FixedState::with_seed(seed));
                    sought.equal.entry(column).or_insert_with(map).entry(hash).or_default()
                }
                None => &mut sought.others,
            };
            place.push(asked);
        }
        sought
    }

    /// Adds the operations that have looked for a row like this one.
    pub(super) fn find(&self, row: &Row, steps: &mut BTreeSet<usize>) {
        let by_value = self
            .equal
            .iter()
            .filter_map(|(column, conditions)| conditions.get(&self.hasher.hash(row.get(*column))));
        for (condition, asked) in by_value.flatten().chain(&self.others) {
            if condition.matches_all(row) {
                steps.extend(asked);
            }
        }
    }

    /// What it costs to compare a row with all of that, about, in units of [`crate::meter`].
    pub(super) fn cost(&self) -> u64 {
        let others = self.others.iter().map(|(condition, _)| meter::condition(condition));
        others.sum::<u64>() + meter::CLAUSE * self.equal.len() as u64
    }
}

//! The rows that a filter asks for: by an index where that finds them all, else by one pass.

use weir_data::condition::{Clause, Function};
use weir_data::store::{Slot, Table};
use weir_data::{ColumnId, Datum, DatumRef, Row, Store, TableId, Uuid};

use crate::cost::{Budget, ENTRIES, LOOKUP, TooLong};
use crate::filter::{Filter, Kind, Values};

/// Finds the row that has these values in a unique index of a table, given by number.
pub type FindRow<'a> = dyn Fn(TableId, usize, &[DatumRef<'_>]) -> Option<Uuid> + 'a;

/// Finds the rows among which all are that satisfy a clause on a table, by a key that is no unique
/// index; `None` if there is no such key, or if there are more rows than so many. And how many
/// entries of keys were walked for that.
pub type FindCandidates<'a> = dyn Fn(TableId, &Clause, usize) -> (Option<Vec<Uuid>>, u64) + 'a;

/// How rows were found that a condition asks for, for who decides about keys.
#[derive(Clone, Copy, Debug)]
pub enum Told<'a> {
    /// By indexes, and keys if those were asked.
    Found {
        /// The rows' table.
        table: TableId,
    },
    /// By a look at every row.
    Scanned {
        /// The rows' table.
        table: TableId,
        /// The clause for want of whose rows it was, if it is one that keys can serve.
        clause: Option<&'a Clause>,
        /// How many there are; `None` if that is found out elsewhere.
        found: Option<usize>,
    },
}

/// The rows of a database as they are now.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    store: &'a Store,
    /// `None` if no index is known.
    find: Option<&'a FindRow<'a>>,
    /// `None` if no other key is known.
    candidates: Option<&'a FindCandidates<'a>>,
    /// Who wants to know how rows were found.
    tell: Option<&'a dyn Fn(Told<'_>)>,
}

/// What came of looking for rows by indexes and keys.
enum Search<'a> {
    Found(Vec<&'a Row>),
    /// Not all of them: for want of those of this clause, or because a look at each row costs less.
    Missed(Option<Clause>),
}

/// What finds a row by the value of one column.
#[derive(Clone, Copy)]
enum Index<'a> {
    Uuid,
    /// The unique index of this number.
    Unique(usize, &'a FindRow<'a>),
}

/// Looking up a candidate costs as much as a clause on so many rows.
const CANDIDATE: usize = 8;

/// Walking so many entries of keys costs as much as looking up a candidate.
const CANDIDATE_ENTRIES: u64 = CANDIDATE as u64 * ENTRIES;

impl<'a> Rows<'a> {
    /// The rows of a store; `find` knows the indexes that the schema declares.
    pub fn new(store: &'a Store, find: &'a FindRow<'a>) -> Self {
        Self { store, find: Some(find), candidates: None, tell: None }
    }

    /// The rows of a store, of which no index is known.
    pub fn of_store(store: &'a Store) -> Self {
        Self { store, find: None, candidates: None, tell: None }
    }

    /// Tells what knows the keys that are no unique indexes, and who wants to know how rows were
    /// found.
    #[must_use]
    pub fn with_keys(self, candidates: &'a FindCandidates<'a>, tell: &'a dyn Fn(Told<'_>)) -> Self {
        Self { candidates: Some(candidates), tell: Some(tell), ..self }
    }

    /// The rows themselves.
    pub(crate) fn store(&self) -> &'a Store {
        self.store
    }

    /// The rows of a table that a filter asks for, in slot order.
    pub(crate) fn matching(
        &self,
        table: TableId,
        filter: &Filter,
        budget: &mut Budget<'_>,
    ) -> Result<Vec<&'a Row>, TooLong> {
        let rows = self.store.table(table);
        if filter.holds_always() {
            budget.spend_each(rows.len(), filter.row_cost())?;
            return Ok(rows.iter().collect());
        }
        let missed = match self.search(table, filter, budget)? {
            Search::Found(found) => {
                self.tell(Told::Found { table });
                return Ok(found);
            }
            Search::Missed(clause) => clause,
        };
        let clause = missed.as_ref();
        if let Err(error) = budget.spend_each(rows.len(), filter.row_cost()) {
            self.tell(Told::Scanned { table, clause, found: None });
            return Err(error);
        }
        let found: Vec<&Row> = rows.iter().filter(|row| filter.matches(row)).collect();
        self.tell(Told::Scanned { table, clause, found: Some(found.len()) });
        Ok(found)
    }

    fn tell(&self, told: Told<'_>) {
        if let Some(tell) = self.tell {
            tell(told);
        }
    }

    /// Looks for the rows by indexes and keys.
    fn search(
        &self,
        table: TableId,
        filter: &Filter,
        budget: &mut Budget<'_>,
    ) -> Result<Search<'a>, TooLong> {
        let rows = self.store.table(table);
        let Some((demanded, others)) = filter.sought() else { return Ok(Search::Missed(None)) };
        let n_clauses = others.len() + demanded.iter().map(|values| values.len()).sum::<usize>();
        // A look at each row costs less than so many look-ups.
        if n_clauses as u64 * LOOKUP > rows.len() as u64 * filter.row_cost() {
            return Ok(Search::Missed(None));
        }
        let mut slots = Vec::with_capacity(n_clauses);
        budget.spend_each(n_clauses, LOOKUP)?;
        // So many candidates of keys cost less than a look at each row.
        let mut most = rows.len() / CANDIDATE;
        let mut by_key = |clause: &Clause, slots: &mut Vec<Slot>| {
            let Some(candidates) = self.candidates else { return Ok(false) };
            let (found, walked) = candidates(table, clause, most);
            budget.spend(walked / ENTRIES)?;
            let Some(found) = found else { return Ok(false) };
            most = most.saturating_sub(found.len() + (walked / CANDIDATE_ENTRIES) as usize);
            budget.spend_each(found.len(), LOOKUP + filter.row_cost())?;
            slots.extend(matching_slots(rows, &found, filter));
            Ok(true)
        };
        for values in demanded {
            let index = self.index_of(table, values);
            for value in values.iter() {
                let uuid = match index {
                    Some(Index::Uuid) => value.as_ref().scalar().and_then(|atom| atom.as_uuid()),
                    Some(Index::Unique(number, find)) => find(table, number, &[value.as_ref()]),
                    None => {
                        let clause = clause(values, value);
                        if !by_key(&clause, &mut slots)? {
                            return Ok(Search::Missed(Some(clause)));
                        }
                        continue;
                    }
                };
                slots.extend(uuid.and_then(|uuid| rows.slot(uuid)));
            }
        }
        for clause in others {
            if !by_key(clause, &mut slots)? {
                return Ok(Search::Missed(Some(clause.clone())));
            }
        }
        slots.sort_unstable();
        slots.dedup();
        let row = |slot| rows.at(slot).expect("there is a row in the slot of a row");
        Ok(Search::Found(slots.into_iter().map(row).collect()))
    }

    fn index_of(&self, table: TableId, values: &Values) -> Option<Index<'a>> {
        let column = values.column;
        if values.kind == Kind::Equal {
            if column == ColumnId::UUID {
                return Some(Index::Uuid);
            }
            let indexes = &self.store.schema().table(table).indexes;
            let number = indexes.iter().position(|columns| columns[..] == [column]);
            if let Some((number, find)) = number.zip(self.find) {
                return Some(Index::Unique(number, find));
            }
        }
        None
    }
}

/// Where those of these rows are that a filter asks for.
fn matching_slots(
    rows: &Table,
    candidates: &[Uuid],
    filter: &Filter,
) -> impl Iterator<Item = Slot> {
    let slots = candidates.iter().filter_map(|uuid| rows.slot(*uuid));
    slots.filter(|slot| rows.at(*slot).is_some_and(|row| filter.matches(row)))
}

/// One of the clauses that demand these values.
fn clause(values: &Values, value: &Datum) -> Clause {
    let function = match values.kind {
        Kind::Equal => Function::Equal,
        Kind::Includes => Function::Includes,
        Kind::Excludes => Function::Excludes,
    };
    Clause::Compare { column: values.column, function, value: value.clone() }
}

//! The rows that a filter asks for: by an index where that finds them all, else by one pass.

use weir_data::condition::{Clause, Function};
use weir_data::store::{Slot, Table};
use weir_data::{ColumnId, Datum, DatumRef, Row, Store, TableId, Uuid};

use crate::cost::{Budget, LOOKUP, TooLong};
use crate::filter::{Filter, Kind, Values};

/// Finds the row that has these values in a unique index of a table, given by number.
pub type FindRow<'a> = dyn Fn(TableId, usize, &[DatumRef<'_>]) -> Option<Uuid> + 'a;

/// Finds the rows among which all are that satisfy a clause on a table, by a key that is no unique
/// index; `None` if there is no such key, or if there are more rows than so many.
pub type FindCandidates<'a> = dyn Fn(TableId, &Clause, usize) -> Option<Vec<Uuid>> + 'a;

/// The rows of a database as they are now.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    store: &'a Store,
    /// `None` if no index is known.
    find: Option<&'a FindRow<'a>>,
    /// `None` if no other key is known.
    candidates: Option<&'a FindCandidates<'a>>,
}

/// What finds a row by the value of one column.
enum Index<'a> {
    Uuid,
    /// The unique index of this number.
    Unique(usize, &'a FindRow<'a>),
    /// Whatever else there is, if there is.
    Key(&'a FindCandidates<'a>),
}

/// Looking up a candidate costs as much as a clause on so many rows.
const CANDIDATE: usize = 8;

impl<'a> Rows<'a> {
    /// The rows of a store; `find` knows the indexes that the schema declares.
    pub fn new(store: &'a Store, find: &'a FindRow<'a>) -> Self {
        Self { store, find: Some(find), candidates: None }
    }

    /// The rows of a store, of which no index is known.
    pub fn of_store(store: &'a Store) -> Self {
        Self { store, find: None, candidates: None }
    }

    /// Tells what knows the keys that are no unique indexes.
    #[must_use]
    pub fn with_keys(self, candidates: &'a FindCandidates<'a>) -> Self {
        Self { candidates: Some(candidates), ..self }
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
        if let Some(rows) = self.by_index(table, filter, budget)? {
            return Ok(rows);
        }
        let rows = self.store.table(table);
        budget.spend_each(rows.len(), filter.row_cost())?;
        Ok(rows.iter().filter(|row| filter.matches(row)).collect())
    }

    fn by_index(
        &self,
        table: TableId,
        filter: &Filter,
        budget: &mut Budget<'_>,
    ) -> Result<Option<Vec<&'a Row>>, TooLong> {
        let rows = self.store.table(table);
        let Some(demanded) = filter.demanded() else { return Ok(None) };
        let n_clauses: usize = demanded.iter().map(|values| values.len()).sum();
        // A look at each row costs less than so many look-ups.
        if n_clauses as u64 * LOOKUP > rows.len() as u64 * filter.row_cost() {
            return Ok(None);
        }
        let mut slots = Vec::with_capacity(n_clauses);
        budget.spend_each(n_clauses, LOOKUP)?;
        // So many candidates of keys cost less than a look at each row.
        let mut most = rows.len() / CANDIDATE;
        for values in demanded {
            let Some(index) = self.index_of(table, values) else { return Ok(None) };
            for value in values.iter() {
                let uuid = match index {
                    Index::Uuid => value.as_ref().scalar().and_then(|atom| atom.as_uuid()),
                    Index::Unique(number, find) => find(table, number, &[value.as_ref()]),
                    Index::Key(candidates) => {
                        let found = candidates(table, &clause(values, value), most);
                        let Some(found) = found else { return Ok(None) };
                        most -= found.len().min(most);
                        budget.spend_each(found.len(), LOOKUP + filter.row_cost())?;
                        slots.extend(matching_slots(rows, &found, filter));
                        continue;
                    }
                };
                slots.extend(uuid.and_then(|uuid| rows.slot(uuid)));
            }
        }
        slots.sort_unstable();
        slots.dedup();
        let row = |slot| rows.at(slot).expect("there is a row in the slot of a row");
        Ok(Some(slots.into_iter().map(row).collect()))
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
        self.candidates.map(Index::Key)
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

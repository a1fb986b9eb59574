//! The rows that a filter asks for: by an index where that finds them all, else by one pass.

use weir_data::{ColumnId, DatumRef, Row, Store, TableId, Uuid};

use crate::cost::{Budget, LOOKUP, TooLong};
use crate::filter::{Filter, Kind};

/// Finds the row that has these values in a unique index of a table, given by number.
pub type FindRow<'a> = dyn Fn(TableId, usize, &[DatumRef<'_>]) -> Option<Uuid> + 'a;

/// The rows of a database as they are now.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    store: &'a Store,
    /// `None` if no index is known.
    find: Option<&'a FindRow<'a>>,
}

/// What finds a row by the value of one column.
enum Index<'a> {
    Uuid,
    /// The unique index of this number.
    Unique(usize, &'a FindRow<'a>),
}

impl<'a> Rows<'a> {
    /// The rows of a store; `find` knows the indexes that the schema declares.
    pub fn new(store: &'a Store, find: &'a FindRow<'a>) -> Self {
        Self { store, find: Some(find) }
    }

    /// The rows of a store, of which no index is known.
    pub fn of_store(store: &'a Store) -> Self {
        Self { store, find: None }
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
        for values in demanded {
            let index = self.index_of(table, values.column);
            let Some(index) = index.filter(|_| values.kind == Kind::Equal) else {
                return Ok(None);
            };
            for value in values.iter() {
                let value = value.as_ref();
                let uuid = match index {
                    Index::Uuid => value.scalar().and_then(|atom| atom.as_uuid()),
                    Index::Unique(number, find) => find(table, number, &[value]),
                };
                slots.extend(uuid.and_then(|uuid| rows.slot(uuid)));
            }
        }
        slots.sort_unstable();
        slots.dedup();
        let row = |slot| rows.at(slot).expect("there is a row in the slot of a row");
        Ok(Some(slots.into_iter().map(row).collect()))
    }

    fn index_of(&self, table: TableId, column: ColumnId) -> Option<Index<'a>> {
        if column == ColumnId::UUID {
            return Some(Index::Uuid);
        }
        let indexes = &self.store.schema().table(table).indexes;
        let number = indexes.iter().position(|columns| columns[..] == [column])?;
        Some(Index::Unique(number, self.find?))
    }
}

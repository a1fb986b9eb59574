//! A row: its column values in one shared allocation.
//!
//! Most columns of most rows hold nothing, so a row keeps cells only for those that hold something:
//!
//! ```text
//! present: bits of columns 0 to 63 | cells of the columns with a bit | cells of columns 64 and on
//! ```

use triomphe::{Arc, HeaderSlice};

use crate::atom::Atom;
use crate::datum::{Datum, DatumRef};
use crate::schema::{ColumnId, TableId, TableSchema};
use crate::uuid::Uuid;

/// Columns that are kept only where they hold something.
const SPARSE_MAX: usize = u64::BITS as usize;

/// What a column without a cell holds.
static NOTHING: Datum = Datum::Empty;

/// A row. Cloning shares it; changing a shared row copies its cells first (not its big sets).
///
/// **Invariant:** `_uuid` and `_version` have the first two cells; columns are those of the table's
/// schema. A cell may be empty: columns that were emptied keep theirs.
#[derive(Clone, Debug)]
pub struct Row(Arc<HeaderSlice<u64, [Datum]>>);

/// What a row is like now, as somebody else who has it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowImage {
    /// The row's table.
    pub table: TableId,
    /// The row's `_uuid`.
    pub uuid: Uuid,
    /// The row's values, perhaps not of all columns; `None` if the row is gone.
    pub values: Option<Vec<(ColumnId, Datum)>>,
}

/// What a transaction of a log does to one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowEdit {
    /// The row's table.
    pub table: TableId,
    /// The row's `_uuid`.
    pub uuid: Uuid,
    /// What becomes of the row.
    pub edit: Edit,
}

/// What becomes of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// The row is new, and this is all of it.
    Insert(Row),
    /// The row goes.
    Delete,
    /// Columns of the row change, each once.
    Modify(Vec<ColumnEdit>),
}

/// What becomes of a column of a row that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnEdit {
    /// The column.
    pub column: ColumnId,
    /// The new value, or the difference to it.
    pub value: Datum,
    /// Whether `value` is a difference for [`Datum::apply_diff`].
    pub is_difference: bool,
}

impl Row {
    /// A row of default values (RFC 7047 §5.2.1).
    pub fn new(uuid: Uuid, version: Uuid, table: &TableSchema) -> Self {
        Self::with_values(uuid, version, table, [])
    }

    /// A row of these values and otherwise defaults.
    pub fn with_values(
        uuid: Uuid,
        version: Uuid,
        table: &TableSchema,
        values: impl IntoIterator<Item = (ColumnId, Datum)>,
    ) -> Self {
        let mut cells = Vec::with_capacity(table.columns.len());
        cells.extend([uuid, version].map(|uuid| Datum::One(Atom::Uuid(uuid))));
        cells.extend(table.data_columns().map(|(_, column)| Datum::default_of(&column.ty)));
        for (column, value) in values {
            cells[column.index()] = value;
        }
        Self::take(&mut cells)
    }

    /// A row of the values that a dense list of all columns holds; leaves the list empty values.
    pub fn take(cells: &mut [Datum]) -> Self {
        let (sparse, dense) = cells.split_at_mut(cells.len().min(SPARSE_MAX));
        let mut present = 0;
        for (at, cell) in sparse.iter().enumerate() {
            let holds = at < 2 || !matches!(cell, Datum::Empty);
            present |= u64::from(holds) << at;
        }
        let mut rest = present;
        let n_cells = present.count_ones() as usize + dense.len();
        let mut dense = dense.iter_mut();
        let cells = (0..n_cells).map(|_| match rest.trailing_zeros() as usize {
            SPARSE_MAX => dense.next().map(std::mem::take).unwrap_or_default(),
            at => {
                rest &= rest - 1;
                std::mem::take(&mut sparse[at])
            }
        });
        Self(Arc::from_header_and_iter(present, cells))
    }

    /// Where a column's cell is, if it has one.
    #[inline]
    fn place(&self, column: ColumnId) -> Option<usize> {
        let (present, index) = (self.0.header, column.index());
        if index >= SPARSE_MAX {
            return Some(present.count_ones() as usize + index - SPARSE_MAX);
        }
        let bit = 1 << index;
        (present & bit != 0).then(|| (present & (bit - 1)).count_ones() as usize)
    }

    /// The row's `_uuid`.
    pub fn uuid(&self) -> Uuid {
        self.get(ColumnId::UUID).scalar().and_then(|atom| atom.as_uuid()).unwrap_or_default()
    }

    /// The row's `_version`, which changes whenever the row does.
    pub fn version(&self) -> Uuid {
        self.get(ColumnId::VERSION).scalar().and_then(|atom| atom.as_uuid()).unwrap_or_default()
    }

    /// A column's value.
    #[inline]
    pub fn get(&self, column: ColumnId) -> DatumRef<'_> {
        self.datum(column).as_ref()
    }

    /// A cheap owned copy of a column's value.
    #[inline]
    pub fn datum(&self, column: ColumnId) -> &Datum {
        self.place(column).map_or(&NOTHING, |at| &self.0.slice[at])
    }

    /// All columns that hold something, and perhaps some that do not, ascending: in a row that has
    /// few of many columns, this is less than asking for each.
    #[inline]
    pub fn cells(&self) -> impl Iterator<Item = (ColumnId, &Datum)> {
        let mut rest = self.0.header;
        let mut dense = SPARSE_MAX as u16;
        self.0.slice.iter().map(move |datum| {
            if rest == 0 {
                dense += 1;
                return (ColumnId(dense - 1), datum);
            }
            let column = rest.trailing_zeros() as u16;
            rest &= rest - 1;
            (ColumnId(column), datum)
        })
    }

    /// A column's value, to change.
    pub fn get_mut(&mut self, column: ColumnId) -> &mut Datum {
        let at = match self.place(column) {
            Some(at) => {
                if !self.0.is_unique() {
                    self.0 = Arc::from_header_and_iter(self.0.header, self.0.slice.iter().cloned());
                }
                at
            }
            None => self.make_room(column),
        };
        let row = Arc::get_mut(&mut self.0).expect("the row was just made, or found, unshared");
        &mut row.slice[at]
    }

    /// Gives a column of the sparse ones a cell, in a row that nobody shares; answers where.
    fn make_room(&mut self, column: ColumnId) -> usize {
        let bit = 1 << column.index();
        let present = self.0.header | bit;
        let at = (present & (bit - 1)).count_ones() as usize;
        let n_cells = self.0.slice.len() + 1;
        self.0 = match Arc::get_mut(&mut self.0) {
            Some(row) => {
                let cell = |i: usize| std::mem::take(&mut row.slice[i - usize::from(i > at)]);
                with_gap(present, n_cells, at, cell)
            }
            None => {
                let cell = |i: usize| self.0.slice[i - usize::from(i > at)].clone();
                with_gap(present, n_cells, at, cell)
            }
        };
        at
    }

    /// Number of atoms in all columns but `_uuid` and `_version`.
    pub fn atoms(&self) -> usize {
        self.0.slice.iter().skip(2).map(|datum| datum_atoms(datum.as_ref())).sum()
    }
}

/// Cells from `cell`, but for an empty one at `gap`.
fn with_gap(
    present: u64,
    n_cells: usize,
    gap: usize,
    mut cell: impl FnMut(usize) -> Datum,
) -> Arc<HeaderSlice<u64, [Datum]>> {
    let cells = (0..n_cells).map(|i| if i == gap { Datum::Empty } else { cell(i) });
    Arc::from_header_and_iter(present, cells)
}

impl PartialEq for Row {
    /// Whether all columns have equal values, whether or not those that are empty have a cell.
    fn eq(&self, other: &Self) -> bool {
        if self.0.header == other.0.header {
            return Arc::ptr_eq(&self.0, &other.0) || self.0.slice == other.0.slice;
        }
        let any = self.0.header | other.0.header;
        let dense = |row: &Self| row.0.slice.len() - row.0.header.count_ones() as usize;
        dense(self) == dense(other)
            && (0..SPARSE_MAX + dense(self))
                .filter(|at| *at >= SPARSE_MAX || any >> at & 1 == 1)
                .map(|at| ColumnId(at as u16))
                .all(|column| self.datum(column) == other.datum(column))
    }
}

impl Eq for Row {}

/// Number of atoms of a value: a map's pair counts two.
pub(crate) fn datum_atoms(datum: DatumRef<'_>) -> usize {
    datum.len() * if datum.is_map() { 2 } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Schema;

    /// A table with this many columns of optional integers beside `_uuid` and `_version`.
    fn schema(columns: usize) -> Schema {
        let column = |i| format!("\"c{i:03}\":{{\"type\":{{\"key\":\"integer\",\"min\":0}}}}");
        let columns: Vec<String> = (0..columns).map(column).collect();
        let text = format!(
            "{{\"name\":\"D\",\"tables\":{{\"T\":{{\"columns\":{{{}}}}}}}}}",
            columns.join(",")
        );
        Schema::parse(weir_json::validate(text.as_bytes()).unwrap()).unwrap()
    }

    /// The dumb twin: random edits on a row and on a list of all columns.
    #[test]
    fn behaves_like_a_list_of_all_columns() {
        for n in [1, 5, 61, 62, 63, 64, 100] {
            let schema = schema(n);
            let table = &schema.tables[0];
            let mut random = crate::uuid::UuidSource::new([n as u64, 1, 2, 3]);
            let mut row = Row::new(Uuid::from_u128(1), Uuid::from_u128(2), table);
            let mut twin: Vec<Datum> = vec![Datum::Empty; n];
            for step in 0..500 {
                let at = (random.next_u64() % n as u64) as usize;
                let value = match random.next_u64() % 3 {
                    0 => Datum::Empty,
                    _ => Datum::One(Atom::Integer(step)),
                };
                let shared = random.next_u64().is_multiple_of(2).then(|| row.clone());
                let before = row.clone();
                *row.get_mut(ColumnId(at as u16 + 2)) = value.clone();
                assert_eq!(row == before, twin[at] == value);
                if let Some(shared) = shared {
                    assert_eq!(shared.datum(ColumnId(at as u16 + 2)), &twin[at]);
                }
                twin[at] = value;
                for (i, value) in twin.iter().enumerate() {
                    assert_eq!(row.datum(ColumnId(i as u16 + 2)), value);
                }
                assert_eq!(row.atoms(), twin.iter().filter(|d| **d != Datum::Empty).count());
                let holds = |(column, datum): (ColumnId, &Datum)| {
                    (*datum != Datum::Empty).then(|| (usize::from(column.0) - 2, datum.clone()))
                };
                let cells: Vec<_> = row.cells().skip(2).filter_map(holds).collect();
                let values = twin.iter().cloned().enumerate();
                assert_eq!(cells, values.filter(|v| v.1 != Datum::Empty).collect::<Vec<_>>());
                assert_eq!((row.uuid(), row.version()), (Uuid::from_u128(1), Uuid::from_u128(2)));
                let values = (2..).map(ColumnId).zip(twin.iter().cloned());
                assert_eq!(Row::with_values(row.uuid(), row.version(), table, values), row);
            }
        }
    }
}

//! A row: its column values in one shared allocation, by column number.

use std::sync::Arc;

use crate::atom::Atom;
use crate::datum::{Datum, DatumRef};
use crate::schema::{ColumnId, TableSchema};
use crate::uuid::Uuid;

/// A row. Cloning shares it; changing a shared row copies its cells first (not its big sets).
///
/// **Invariant:** one cell a column of the table's schema, `_uuid` and `_version` first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row(Arc<[Datum]>);

impl Row {
    /// A row of default values (RFC 7047 §5.2.1).
    pub fn new(uuid: Uuid, version: Uuid, table: &TableSchema) -> Self {
        let system = [uuid, version].map(|uuid| Datum::One(Atom::Uuid(uuid)));
        let data = table.data_columns().map(|(_, column)| Datum::default_of(&column.ty));
        Self(system.into_iter().chain(data).collect())
    }

    /// The row's identity.
    pub fn uuid(&self) -> Uuid {
        self.get(ColumnId::UUID).scalar().and_then(|atom| atom.as_uuid()).unwrap_or_default()
    }

    /// What changes whenever the row does.
    pub fn version(&self) -> Uuid {
        self.get(ColumnId::VERSION).scalar().and_then(|atom| atom.as_uuid()).unwrap_or_default()
    }

    /// A column's value.
    pub fn get(&self, column: ColumnId) -> DatumRef<'_> {
        self.0[column.index()].as_ref()
    }

    /// A cheap owned copy of a column's value.
    pub fn datum(&self, column: ColumnId) -> &Datum {
        &self.0[column.index()]
    }

    /// A column's value, to change.
    pub fn get_mut(&mut self, column: ColumnId) -> &mut Datum {
        &mut Arc::make_mut(&mut self.0)[column.index()]
    }

    /// All cells by column number, to fill; `_uuid` must stay what it is.
    pub fn cells_mut(&mut self) -> &mut [Datum] {
        Arc::make_mut(&mut self.0)
    }

    /// Number of atoms in all columns but `_uuid` and `_version`.
    pub fn atoms(&self) -> usize {
        self.0.iter().skip(2).map(|datum| datum_atoms(datum.as_ref())).sum()
    }
}

/// Number of atoms of a value: a map's pair counts two.
pub(crate) fn datum_atoms(datum: DatumRef<'_>) -> usize {
    datum.len() * if datum.is_map() { 2 } else { 1 }
}

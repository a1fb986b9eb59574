//! Bytes of entries to changes. What a side file has is decoded once when it is read, so that an
//! entry of the log is known to be good.

use weir_data::atom::Atom;
use weir_data::delta::Change;
use weir_data::sorted::Sorted;
use weir_data::{
    AtomType, ColumnDelta, ColumnId, ColumnType, Datum, Schema, TableId, TableSchema, Uuid,
};

use crate::encode::type_of;
use crate::entry::{
    ALONE, DELETE, DIFFERENCE, EMPTY, END, INSERT, KEY_SHIFT, MAP, MODIFY, ONE, REPLACE, SET,
    TABLE, VALUE_SHIFT,
};
use crate::renumbering::Renumbering;

/// Why bytes are no entry of this schema.
pub(crate) type Bad = &'static str;

/// What one part of an entry says of a row.
pub(crate) struct Item {
    pub(crate) table: TableId,
    pub(crate) uuid: Uuid,
    pub(crate) row: ItemRow,
    /// Whether a row of the volatile part is in no recorded part.
    pub(crate) is_alone: bool,
}

/// The columns of a row that are in one part of an entry.
pub(crate) enum ItemRow {
    Insert(Vec<(ColumnId, Datum)>),
    Delete(Vec<(ColumnId, Datum)>),
    Modify(Vec<ColumnDelta>),
}

/// The rows of one part of an entry, but for those of tables that do not count any more.
pub(crate) struct Items<'a> {
    bytes: &'a [u8],
    schema: &'a Schema,
    renumbering: Option<&'a Renumbering>,
    /// The table that the next rows are of, unless it does not count any more.
    table: Option<TableId>,
    /// Atoms so far, of all rows.
    atoms: usize,
}

impl<'a> Items<'a> {
    pub(crate) fn new(
        bytes: &'a [u8],
        schema: &'a Schema,
        renumbering: Option<&'a Renumbering>,
    ) -> Self {
        Self { bytes, schema, renumbering, table: None, atoms: 0 }
    }

    pub(crate) fn atoms(&self) -> usize {
        self.atoms
    }

    pub(crate) fn next(&mut self) -> Result<Option<Item>, Bad> {
        while !self.bytes.is_empty() {
            let [kind] = self.take()?;
            if kind == TABLE {
                let number = TableId(u16::from_le_bytes(self.take()?));
                self.table = self.renumbering.map_or(Some(number), |now| now.get(number));
                continue;
            }
            let uuid = Uuid::from_u128(u128::from_be_bytes(self.take()?));
            let schema = match self.table {
                Some(table) => Some(self.schema.tables.get(table.index()).ok_or("no such table")?),
                None => None,
            };
            let row = match kind {
                INSERT => ItemRow::Insert(self.cells(schema)?),
                DELETE => ItemRow::Delete(self.cells(schema)?),
                MODIFY | ALONE => ItemRow::Modify(self.changes(schema)?),
                _ => return Err("no such item"),
            };
            if let Some(table) = self.table {
                return Ok(Some(Item { table, uuid, row, is_alone: kind == ALONE }));
            }
        }
        Ok(None)
    }

    fn cells(&mut self, schema: Option<&TableSchema>) -> Result<Vec<(ColumnId, Datum)>, Bad> {
        let mut cells = Vec::new();
        while let Some((column, ty)) = self.column(cells.last().map(|(id, _)| *id), schema)? {
            let datum = self.value(ty)?;
            cells.push((column, datum));
        }
        Ok(cells)
    }

    fn changes(&mut self, schema: Option<&TableSchema>) -> Result<Vec<ColumnDelta>, Bad> {
        let mut changes: Vec<ColumnDelta> = Vec::new();
        let last = |changes: &[ColumnDelta]| changes.last().map(|change| change.column);
        while let Some((column, ty)) = self.column(last(&changes), schema)? {
            let [form] = self.take()?;
            let change = match form {
                REPLACE if ty.is_none_or(|ty| !ty.is_composite()) => {
                    Change::Replace { old: self.value(ty)?, new: self.value(ty)? }
                }
                DIFFERENCE if ty.is_none_or(ColumnType::is_composite) => {
                    self.difference(ty.map(ColumnType::is_map), ty)?
                }
                _ => return Err("no such form"),
            };
            changes.push(ColumnDelta { column, change });
        }
        Ok(changes)
    }

    /// The next column, which stands behind the last one, and its type; nothing at the end.
    fn column<'s>(
        &mut self,
        last: Option<ColumnId>,
        schema: Option<&'s TableSchema>,
    ) -> Result<Option<(ColumnId, Option<&'s ColumnType>)>, Bad> {
        let column = ColumnId(u16::from_le_bytes(self.take()?));
        if column.0 == END {
            return Ok(None);
        }
        if column <= last.unwrap_or(ColumnId::VERSION) {
            return Err("columns out of order");
        }
        let Some(schema) = schema else { return Ok(Some((column, None))) };
        let found = schema.columns.get(column.index()).ok_or("no such column")?;
        Ok(Some((column, Some(&found.ty))))
    }

    /// What was added and removed; a map or not, as the column's type says, or else the bytes.
    fn difference(&mut self, is_map: Option<bool>, ty: Option<&ColumnType>) -> Result<Change, Bad> {
        let (added, removed) = (self.run(ty)?, self.run(ty)?);
        let has_pairs = matches!((&added, &removed), (Run::Pairs(_), _) | (_, Run::Pairs(_)));
        Ok(if is_map.unwrap_or(has_pairs) {
            Change::Map { added: added.into_pairs()?, removed: removed.into_pairs()? }
        } else {
            Change::Set { added: added.into_atoms()?, removed: removed.into_atoms()? }
        })
    }

    /// A value of a column of this type, if that is known.
    fn value(&mut self, ty: Option<&ColumnType>) -> Result<Datum, Bad> {
        let datum = match self.run(ty)? {
            Run::Empty => Datum::Empty,
            Run::One(atom) => Datum::One(atom),
            Run::Atoms(run) if run.len() > 1 => Datum::Set(run),
            Run::Atoms(_) => return Err("a set of one"),
            Run::Pairs(run) => Datum::map(run),
        };
        if let Some(ty) = ty.filter(|ty| !ty.is_composite()) {
            let len = datum.as_ref().len();
            if len > 1 || ty.is_scalar() && len == 0 {
                return Err("not one value");
            }
        }
        Ok(datum)
    }

    fn run(&mut self, ty: Option<&ColumnType>) -> Result<Run, Bad> {
        let [tag] = self.take()?;
        let shape = tag & ((1 << KEY_SHIFT) - 1);
        if shape == EMPTY {
            return Ok(Run::Empty);
        }
        let key = type_of(tag >> KEY_SHIFT & 7).ok_or("no such type")?;
        let value = match shape {
            MAP => Some(type_of(tag >> VALUE_SHIFT).ok_or("no such type")?),
            _ => None,
        };
        let fits = |ty: &ColumnType| key == ty.key.ty && value == ty.value.as_ref().map(|v| v.ty);
        if !ty.is_none_or(fits) {
            return Err("not of the column's type");
        }
        Ok(match (shape, value) {
            (ONE, _) => Run::One(self.atom(key)?),
            (SET, _) => Run::Atoms(self.elements(|items| items.atom(key))?),
            (_, Some(value)) => {
                Run::Pairs(self.elements(|items| Ok((items.atom(key)?, items.atom(value)?)))?)
            }
            _ => return Err("no such shape"),
        })
    }

    fn elements<E: weir_data::sorted::Element>(
        &mut self,
        element: impl Fn(&mut Self) -> Result<E, Bad>,
    ) -> Result<Sorted<E>, Bad> {
        let n = self.len()?;
        if n == 0 {
            return Err("an empty run");
        }
        let elements = (0..n).map(|_| element(self)).collect::<Result<Vec<E>, Bad>>()?;
        Sorted::from_unsorted(elements).map_err(|_| "equal elements")
    }

    fn atom(&mut self, ty: AtomType) -> Result<Atom, Bad> {
        self.atoms += 1;
        Ok(match ty {
            AtomType::Integer => {
                let value = self.varint()?;
                Atom::Integer((value >> 1) as i64 ^ -((value & 1) as i64))
            }
            AtomType::Real => {
                let value = f64::from_bits(u64::from_le_bytes(self.take()?));
                Atom::Real((!value.is_nan()).then_some(value).ok_or("no number")?)
            }
            AtomType::Boolean => {
                let [value] = self.take()?;
                Atom::Boolean(value != 0)
            }
            AtomType::String => {
                let len = self.len()?;
                let (text, rest) = self.bytes.split_at(len);
                self.bytes = rest;
                Atom::string(std::str::from_utf8(text).map_err(|_| "not UTF-8")?)
            }
            AtomType::Uuid => Atom::Uuid(Uuid::from_u128(u128::from_be_bytes(self.take()?))),
        })
    }

    fn varint(&mut self) -> Result<u64, Bad> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.take()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("a long number")
    }

    /// How many of something follow, each of which has a byte or more.
    fn len(&mut self) -> Result<usize, Bad> {
        let len = self.varint()?;
        usize::try_from(len).ok().filter(|len| *len <= self.bytes.len()).ok_or("too short")
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Bad> {
        take(&mut self.bytes)
    }
}

/// The next bytes, which are taken off.
pub(crate) fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], Bad> {
    let (taken, rest) = bytes.split_first_chunk().ok_or("too short")?;
    *bytes = rest;
    Ok(*taken)
}

/// Atoms or pairs as they stand in the bytes.
enum Run {
    Empty,
    One(Atom),
    Atoms(Sorted<Atom>),
    Pairs(Sorted<(Atom, Atom)>),
}

impl Run {
    fn into_atoms(self) -> Result<Sorted<Atom>, Bad> {
        match self {
            Self::Empty => Ok(Sorted::new()),
            Self::Atoms(run) => Ok(run),
            _ => Err("not a set"),
        }
    }

    fn into_pairs(self) -> Result<Sorted<(Atom, Atom)>, Bad> {
        match self {
            Self::Empty => Ok(Sorted::new()),
            Self::Pairs(run) => Ok(run),
            _ => Err("not a map"),
        }
    }
}

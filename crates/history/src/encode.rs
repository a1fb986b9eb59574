//! A change to bytes ([`crate::entry`]). This is on the path of every commit: it writes straight
//! into the chunk, counts atoms on the way, and asks the schema only which columns are kept.

use weir_data::atom::Atom;
use weir_data::delta::Change;
use weir_data::sorted::{Pair, Sorted};
use weir_data::{
    AtomType, ColumnDelta, ColumnId, Datum, Delta, IdKind, Row, RowDelta, Schema, TableDelta,
    TableSchema, Uuid,
};

use crate::entry::{
    ALONE, DELETE, DIFFERENCE, EMPTY, END, INSERT, KEY_SHIFT, MAP, MODIFY, ONE, REPLACE, SET,
    TABLE, VALUE_SHIFT,
};

/// The bit of a varint's byte that says that more follow.
const VARINT_MORE: usize = 0x80;

/// The change is larger than the whole log may be.
pub(crate) struct TooLong;

/// What has been written of a change.
pub(crate) struct Written {
    pub(crate) atoms: usize,
    /// Whether the change may have a volatile part; only the recorded one tells.
    pub(crate) may_be_volatile: bool,
}

/// Appends one part of a change.
pub(crate) fn encode(
    out: &mut Vec<u8>,
    delta: &Delta,
    schema: &Schema,
    kind: IdKind,
    len_max: usize,
) -> Result<Written, TooLong> {
    match kind {
        IdKind::Recorded => encode_part::<false>(out, delta, schema, len_max),
        IdKind::Volatile => encode_part::<true>(out, delta, schema, len_max),
    }
}

fn encode_part<const IS_VOLATILE: bool>(
    out: &mut Vec<u8>,
    delta: &Delta,
    schema: &Schema,
    len_max: usize,
) -> Result<Written, TooLong> {
    let end_max = out.len().saturating_add(len_max);
    // Its own while it writes: one step less to every byte.
    let mut encoder =
        Encoder::<IS_VOLATILE> { out: std::mem::take(out), atoms: 0, may_be_volatile: false };
    let table = |table: &TableDelta| encoder.table(table, schema.table(table.table), end_max);
    let written = delta.tables.iter().try_for_each(table);
    *out = encoder.out;
    let Encoder { atoms, may_be_volatile, .. } = encoder;
    written.map(|()| Written { atoms, may_be_volatile })
}

struct Encoder<const IS_VOLATILE: bool> {
    out: Vec<u8>,
    atoms: usize,
    may_be_volatile: bool,
}

impl<const IS_VOLATILE: bool> Encoder<IS_VOLATILE> {
    fn table(
        &mut self,
        delta: &TableDelta,
        schema: &TableSchema,
        end_max: usize,
    ) -> Result<(), TooLong> {
        let start = self.out.len();
        // Most tables have no columns that are not kept, and then only modified rows matter.
        let has_cells = !IS_VOLATILE || schema.data_columns().any(|(_, c)| !c.persistent);
        let [low, high] = delta.table.0.to_le_bytes();
        self.out.extend_from_slice(&[TABLE, low, high]);
        let rows = self.out.len();
        for (uuid, row) in &delta.rows {
            if !has_cells && !matches!(row, RowDelta::Modify(_)) {
                continue;
            }
            let before = self.out.len();
            self.row(*uuid, row, schema);
            // Rows of which nothing is left have no say, nor has the number of a table without rows.
            if self.out.len() > end_max.max(before) {
                return Err(TooLong);
            }
        }
        if self.out.len() == rows {
            self.out.truncate(start);
        }
        Ok(())
    }

    fn row(&mut self, uuid: Uuid, row: &RowDelta, schema: &TableSchema) {
        let start = self.out.len();
        let mut head = [0; 17];
        head[1..].copy_from_slice(&uuid.to_u128().to_be_bytes());
        self.out.extend_from_slice(&head);
        let columns = self.out.len();
        let (item, is_kept) = match row {
            RowDelta::Insert(row) => {
                self.cells(row, schema);
                (INSERT, !IS_VOLATILE || self.out.len() > columns)
            }
            RowDelta::Delete(row) => {
                self.cells(row, schema);
                (DELETE, !IS_VOLATILE || self.out.len() > columns)
            }
            RowDelta::Modify(deltas) => {
                let is_alone = self.changes(deltas, schema);
                self.may_be_volatile |= is_alone;
                let is_alone = is_alone && IS_VOLATILE;
                (if is_alone { ALONE } else { MODIFY }, is_alone || self.out.len() > columns)
            }
        };
        if !is_kept {
            return self.out.truncate(start);
        }
        self.out[start] = item;
        self.out.extend_from_slice(&END.to_le_bytes());
    }

    /// Whether a column is in this part of the change.
    #[inline]
    fn has(&self, column: ColumnId, is_persistent: bool) -> bool {
        if IS_VOLATILE { !is_persistent && column > ColumnId::VERSION } else { is_persistent }
    }

    fn cells(&mut self, row: &Row, schema: &TableSchema) {
        for (id, datum) in row.cells().skip(2) {
            let column = schema.column(id);
            // What is empty may be so: that is the default then. Nothing else is, if empty is.
            let is_default = || match column.ty.n_min {
                0 => matches!(datum, Datum::Empty),
                _ => datum.as_ref().is_default(&column.ty),
            };
            self.may_be_volatile |= !column.persistent;
            if self.has(id, column.persistent) && !is_default() {
                self.value(id.0.to_le_bytes(), datum);
            }
        }
    }

    /// Writes what changed; answers whether nothing did that is kept in files.
    fn changes(&mut self, deltas: &[ColumnDelta], schema: &TableSchema) -> bool {
        let mut is_alone = true;
        for ColumnDelta { column, change } in deltas {
            let is_persistent = schema.column(*column).persistent;
            let is_wanted = self.has(*column, is_persistent);
            self.may_be_volatile |= !is_persistent && *column > ColumnId::VERSION;
            if !(is_persistent || is_wanted) || change.is_empty() {
                continue;
            }
            is_alone &= !is_persistent;
            if is_wanted {
                self.change(*column, change);
            }
        }
        is_alone
    }

    fn change(&mut self, column: ColumnId, change: &Change) {
        let [low, high] = column.0.to_le_bytes();
        match change {
            Change::Replace { old, new } => {
                self.value([low, high, REPLACE], old);
                self.value([], new);
            }
            Change::Set { added, removed } => {
                self.atoms_of([low, high, DIFFERENCE], added);
                self.atoms_of([], removed);
            }
            Change::Map { added, removed } => {
                self.pairs([low, high, DIFFERENCE], added);
                self.pairs([], removed);
            }
        }
    }

    /// Writes a datum behind `lead`.
    #[inline(always)]
    fn value<const N: usize>(&mut self, lead: [u8; N], datum: &Datum) {
        match datum {
            Datum::Empty => self.put(lead, [EMPTY]),
            Datum::One(atom) => self.one(lead, atom),
            Datum::Set(run) => self.atoms_of(lead, run),
            Datum::Map(run) => self.pairs(lead, run),
        }
    }

    /// Writes a lone atom with its tag. As [`Encoder::atom`], but each kind of atoms is looked for
    /// once only, and what stands before the value is written at once.
    #[inline(always)]
    fn one<const N: usize>(&mut self, lead: [u8; N], atom: &Atom) {
        let tag = |ty: AtomType| ONE | (ty as u8) << KEY_SHIFT;
        self.atoms += 1;
        match atom {
            Atom::Boolean(value) => {
                self.put(lead, [tag(AtomType::Boolean), u8::from(*value)]);
            }
            Atom::String(text) if text.as_str().len() < VARINT_MORE => {
                let text = text.as_str().as_bytes();
                self.put(lead, [tag(AtomType::String), text.len() as u8]);
                self.out.extend_from_slice(text);
            }
            _ => {
                self.put(lead, [tag(atom.atom_type())]);
                self.atom(atom);
            }
        }
    }

    fn atoms_of<const N: usize>(&mut self, lead: [u8; N], run: &Sorted<Atom>) {
        let mut atoms = run.iter();
        let Some(first) = atoms.next() else { return self.put(lead, [EMPTY]) };
        self.put(lead, [SET | type_code(first) << KEY_SHIFT]);
        self.varint(run.len() as u64);
        self.atoms += run.len();
        self.atom(first);
        atoms.for_each(|atom| self.atom(atom));
    }

    fn pairs<const N: usize>(&mut self, lead: [u8; N], run: &Sorted<Pair>) {
        let mut pairs = run.iter();
        let Some((key, value)) = pairs.next() else { return self.put(lead, [EMPTY]) };
        self.put(lead, [MAP | type_code(key) << KEY_SHIFT | type_code(value) << VALUE_SHIFT]);
        self.varint(run.len() as u64);
        self.atoms += 2 * run.len();
        self.pair(key, value);
        pairs.for_each(|(key, value)| self.pair(key, value));
    }

    #[inline(always)]
    fn pair(&mut self, key: &Atom, value: &Atom) {
        self.atom(key);
        self.atom(value);
    }

    #[inline]
    fn put<const N: usize, const M: usize>(&mut self, lead: [u8; N], bytes: [u8; M]) {
        let mut both = [0; 8];
        both[..N].copy_from_slice(&lead);
        both[N..N + M].copy_from_slice(&bytes);
        self.out.extend_from_slice(&both[..N + M]);
    }

    #[inline(always)]
    fn atom(&mut self, atom: &Atom) {
        match atom {
            Atom::Integer(value) => self.varint((value << 1 ^ value >> 63) as u64),
            Atom::Real(value) => self.out.extend_from_slice(&value.to_bits().to_le_bytes()),
            Atom::Boolean(value) => self.out.push(u8::from(*value)),
            Atom::String(text) => {
                let text = text.as_str().as_bytes();
                self.varint(text.len() as u64);
                self.out.extend_from_slice(text);
            }
            Atom::Uuid(uuid) => self.out.extend_from_slice(&uuid.to_u128().to_be_bytes()),
        }
    }

    #[inline]
    fn varint(&mut self, mut value: u64) {
        while value >= VARINT_MORE as u64 {
            self.out.push(value as u8 | VARINT_MORE as u8);
            value >>= 7;
        }
        self.out.push(value as u8);
    }
}

#[inline]
fn type_code(atom: &Atom) -> u8 {
    atom.atom_type() as u8
}

/// The type of a code, its place in the order of the RFC.
pub(crate) fn type_of(code: u8) -> Option<AtomType> {
    AtomType::ALL.get(usize::from(code)).copied()
}

//! The encoding of an entry: what one change did, both ways, in bytes that need no schema to be
//! gone through.
//!
//! ```text
//! entry   = length u32, cost u32, place u64, id 16 bytes, then `length` bytes of items
//! item    = TABLE, table u16                    the rows behind it are of this table
//!         | INSERT, uuid, cells                 values that are not the default, of the new row
//!         | DELETE, uuid, cells                 those of the old row
//!         | MODIFY | ALONE, uuid, changes
//! cells   = (column u16, datum)* END
//! changes = (column u16, form u8, datum, datum)* END
//!           REPLACE: the old value and the new; DIFFERENCE: what was added and what removed
//! datum   = tag u8                              shape, type of keys << 2, type of values << 5
//!           EMPTY: nothing; ONE: an atom; SET: varint n, n atoms; MAP: varint n, n times two atoms
//! atom    = integer: zigzag varint; real: 8 bytes; boolean: a byte; uuid: 16 bytes
//!         | string: varint length, UTF-8
//! ```
//!
//! Integers are little-endian, UUIDs big-endian, varints have seven bits a byte, lowest first. Rows
//! and tables have no counts, for what is left of a row is known only behind it.
//!
//! The recorded part of a change has the columns that are kept in files, and no row of which nothing
//! is left. The volatile part has the others, `_uuid` and `_version` excepted: a row of it is behind
//! the same row of the recorded part, in the same order, but for `ALONE`, which stands for a row
//! that is not in there, with or without columns: its `_version` changed.

/// Length of what is before an entry's items.
pub(crate) const HEADER_LEN: usize = 32;

/// What an entry costs beside its bytes, or those of its record.
pub(crate) const COST_OF_ENTRY: u64 = 64;

/// Items.
pub(crate) const TABLE: u8 = 0;
pub(crate) const INSERT: u8 = 1;
pub(crate) const DELETE: u8 = 2;
pub(crate) const MODIFY: u8 = 3;
pub(crate) const ALONE: u8 = 4;

/// Where cells and changes end: the number of `_uuid`, which is in neither.
pub(crate) const END: u16 = 0;

/// Forms of a change.
pub(crate) const REPLACE: u8 = 0;
pub(crate) const DIFFERENCE: u8 = 1;

/// Shapes of a datum.
pub(crate) const EMPTY: u8 = 0;
pub(crate) const ONE: u8 = 1;
pub(crate) const SET: u8 = 2;
pub(crate) const MAP: u8 = 3;

/// Where a datum's tag has the types.
pub(crate) const KEY_SHIFT: u8 = 2;
pub(crate) const VALUE_SHIFT: u8 = 5;

/// What stands before an entry's items.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    /// Bytes of items.
    pub(crate) len: u32,
    pub(crate) cost: u32,
    pub(crate) place: u64,
    pub(crate) id: u128,
}

impl Header {
    pub(crate) fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..4].copy_from_slice(&self.len.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.cost.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.place.to_le_bytes());
        bytes[16..].copy_from_slice(&self.id.to_be_bytes());
        bytes
    }

    /// The header at the beginning of `bytes`, and what is behind it.
    pub(crate) fn split(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (len, rest) = bytes.split_first_chunk()?;
        let (cost, rest) = rest.split_first_chunk()?;
        let (place, rest) = rest.split_first_chunk()?;
        let (id, rest) = rest.split_first_chunk()?;
        let header = Self {
            len: u32::from_le_bytes(*len),
            cost: u32::from_le_bytes(*cost),
            place: u64::from_le_bytes(*place),
            id: u128::from_be_bytes(*id),
        };
        Some((header, rest))
    }
}

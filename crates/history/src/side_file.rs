//! The side file: the recorded part of a log, beside the file that begins at its place.
//!
//! ```text
//! file     = MAGIC, binding, state, tables, parts, SHA-1 of all before it
//! binding  = hash of the schema's record, of the snapshot's record        20 bytes each
//! state    = chain 16 bytes, place u64, low-water place u64, low-water id 16 bytes, records u64
//! tables   = n u32, n times the place u64 where the table's log begins
//! parts    = n u32, n times: numbers, length u32, entries (`entry`)
//! numbers  = SAME                                                          as the tables have now
//!          | REPEATED                                                      as in the part before
//!          | LISTED, n u32, n times the table's number now u32, or GONE
//! ```
//!
//! The first format had no `records`; the place, which is never less, stands for it.
//!
//! Integers are little-endian, hashes, chains and ids as they stand. A reader takes nothing on
//! trust: every entry is decoded once under the file's schema.

use std::sync::Arc;

use sha1::{Digest, Sha1};
use weir_data::{Schema, TableId, Uuid};

use crate::chain::{Binding, Chain};
use crate::decode::{Bad, Items, take};
use crate::entry::COST_OF_ENTRY;
use crate::history::{BUDGET_BYTES_MAX, History};
use crate::ids::{PLACE_END, Place};
use crate::image::Image;
use crate::renumbering::Renumbering;
use crate::ring::{Mark, Part};

/// The first bytes of a side file; the number is the format's.
const MAGIC: [u8; 15] = *b"weir-history 2\n";
/// The first bytes of a side file of the first format.
const MAGIC_1: [u8; 15] = *b"weir-history 1\n";
const DIGEST_LEN: usize = 20;

const SAME: u8 = 0;
const REPEATED: u8 = 1;
const LISTED: u8 = 2;
const GONE: u32 = u32::MAX;

/// Why a side file does not count. In any case the log begins anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SideFileError {
    /// Nothing that this version of Weir wrote.
    Unknown,
    /// The file of another database file.
    Foreign,
    /// A part is missing or wrong.
    Damaged(&'static str),
}

impl std::fmt::Display for SideFileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown => f.write_str("not a history of this version"),
            Self::Foreign => f.write_str("the history of another file"),
            Self::Damaged(why) => write!(f, "damaged: {why}"),
        }
    }
}

impl std::error::Error for SideFileError {}

impl From<Bad> for SideFileError {
    fn from(why: Bad) -> Self {
        Self::Damaged(why)
    }
}

pub(crate) fn write(
    image: &Image,
    binding: &Binding,
    sink: &mut dyn FnMut(&[u8]) -> Result<(), String>,
) -> Result<(), String> {
    let mut hasher = Sha1::new();
    let mut put = |bytes: &[u8]| {
        hasher.update(bytes);
        sink(bytes)
    };
    put(&head(image, binding))?;
    let mut last = None;
    for part in &image.parts {
        let mut head = Vec::new();
        match &part.renumbering {
            None => head.push(SAME),
            Some(now) if last.is_some_and(|last| Arc::ptr_eq(last, now)) => head.push(REPEATED),
            Some(now) => {
                head.push(LISTED);
                head.extend_from_slice(&(now.0.len() as u32).to_le_bytes());
                let number = |table: &Option<TableId>| table.map_or(GONE, |id| u32::from(id.0));
                head.extend(now.0.iter().flat_map(|table| number(table).to_le_bytes()));
            }
        }
        last = part.renumbering.as_ref();
        head.extend_from_slice(&(part.bytes().len() as u32).to_le_bytes());
        put(&head)?;
        put(part.bytes())?;
    }
    sink(&hasher.finalize())
}

/// What is before the parts.
fn head(image: &Image, binding: &Binding) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&binding.schema);
    out.extend_from_slice(&binding.snapshot);
    out.extend_from_slice(&image.chain.to_bytes());
    out.extend_from_slice(&image.place.0.to_le_bytes());
    out.extend_from_slice(&image.low_water.place.0.to_le_bytes());
    out.extend_from_slice(&image.low_water.id.to_u128().to_be_bytes());
    out.extend_from_slice(&image.records.to_le_bytes());
    out.extend_from_slice(&(image.begins.len() as u32).to_le_bytes());
    out.extend(image.begins.iter().flat_map(|place| place.0.to_le_bytes()));
    out.extend_from_slice(&(image.parts.len() as u32).to_le_bytes());
    out
}

impl History {
    /// The log of a file, at the place of its snapshot, from the bytes of the side file that belongs
    /// to it, with the file's schema. The chain, places and recorded changes are as they were.
    /// Volatile ids begin here, and nothing is kept before somebody asks for that.
    ///
    /// # Errors
    /// Why the bytes do not count.
    pub fn from_side_file(
        bytes: &[u8],
        binding: &Binding,
        schema: &Schema,
        budget: usize,
        nonce: u64,
    ) -> Result<Self, SideFileError> {
        let has_records = bytes.starts_with(&MAGIC);
        let magic = if has_records { MAGIC } else { MAGIC_1 };
        let mut body = bytes.strip_prefix(&magic).ok_or(SideFileError::Unknown)?;
        let (hashed, digest) =
            bytes.split_last_chunk::<DIGEST_LEN>().ok_or(SideFileError::Damaged("too short"))?;
        if *digest != *Sha1::digest(hashed) {
            return Err(SideFileError::Damaged("wrong checksum"));
        }
        body = body.get(..body.len().saturating_sub(DIGEST_LEN)).unwrap_or_default();
        let found = Binding { schema: take(&mut body)?, snapshot: take(&mut body)? };
        if found != *binding {
            return Err(SideFileError::Foreign);
        }
        let chain = Chain::from_bytes(take(&mut body)?);
        let place = take_place(&mut body)?;
        let low_water = Mark {
            place: take_place(&mut body)?,
            id: Uuid::from_u128(u128::from_be_bytes(take(&mut body)?)),
        };
        let records = match has_records {
            true => take_place(&mut body)?,
            false => place,
        };
        let begins = take_begins(&mut body, schema, place)?;
        let parts = take_parts(&mut body)?;
        let atoms = check(&parts, schema, low_water, Mark { place, id: chain.id() })?;
        let history = Self::at(chain, place, begins, budget, nonce);
        let mut history = history.with_records(records.0);
        let ring = history.recorded_mut();
        ring.begin(low_water);
        for (part, atoms) in parts.iter().zip(&atoms) {
            ring.restore(part, atoms);
        }
        Ok(history)
    }
}

fn take_place(body: &mut &[u8]) -> Result<Place, Bad> {
    let place = u64::from_le_bytes(take(body)?);
    (place < PLACE_END).then_some(Place(place)).ok_or("a place that nobody reaches")
}

fn take_begins(body: &mut &[u8], schema: &Schema, here: Place) -> Result<Vec<Place>, Bad> {
    let n = u32::from_le_bytes(take(body)?) as usize;
    if n != schema.tables.len() {
        return Err("not the tables of the schema");
    }
    let begins = (0..n).map(|_| take_place(body)).collect::<Result<Vec<_>, _>>()?;
    begins.iter().all(|begin| *begin <= here).then_some(begins).ok_or("a table begins too late")
}

fn take_parts(body: &mut &[u8]) -> Result<Vec<Part>, Bad> {
    let n = u32::from_le_bytes(take(body)?);
    let mut parts: Vec<Part> = Vec::new();
    for _ in 0..n {
        let [numbers] = take(body)?;
        let renumbering = match numbers {
            SAME => None,
            REPEATED => parts.last().and_then(|part| part.renumbering.clone()),
            LISTED => Some(Arc::new(take_renumbering(body)?)),
            _ => return Err("no such numbers of tables"),
        };
        let len = u32::from_le_bytes(take(body)?) as usize;
        let (entries, rest) = body.split_at_checked(len).ok_or("too short")?;
        *body = rest;
        parts.push(Part::whole(entries.to_vec(), renumbering));
    }
    body.is_empty().then_some(parts).ok_or("more than there should be")
}

fn take_renumbering(body: &mut &[u8]) -> Result<Renumbering, Bad> {
    let n = u32::from_le_bytes(take(body)?);
    let number = |_| match u32::from_le_bytes(take(body)?) {
        GONE => Ok(None),
        number => {
            u16::try_from(number).map(|n| Some(TableId(n))).map_err(|_| "no number of a table")
        }
    };
    (0..n).map(number).collect::<Result<_, Bad>>().map(Renumbering)
}

/// Goes through all entries; answers their numbers of atoms, by part.
fn check(
    parts: &[Part],
    schema: &Schema,
    low_water: Mark,
    here: Mark,
) -> Result<Vec<Vec<u32>>, Bad> {
    let mut last = low_water;
    let mut atoms = Vec::new();
    for part in parts {
        let mut entries = part.entries();
        let mut counts = Vec::new();
        for entry in &mut entries {
            let mark =
                Mark { place: Place(entry.header.place), id: Uuid::from_u128(entry.header.id) };
            if mark.place <= last.place || mark.place > here.place {
                return Err("places out of order");
            }
            let cost = u64::from(entry.header.cost);
            if cost < u64::from(entry.header.len) + COST_OF_ENTRY || cost > BUDGET_BYTES_MAX as u64
            {
                return Err("a cost that none has");
            }
            let mut items = Items::new(entry.items, schema, entry.renumbering);
            while items.next()?.is_some() {}
            counts.push(u32::try_from(items.atoms()).map_err(|_| "too many atoms")?);
            last = mark;
        }
        if !entries.is_at_end() || counts.is_empty() {
            return Err("no whole entries");
        }
        atoms.push(counts);
    }
    let is_here = last.place <= here.place && last.id == here.id;
    is_here.then_some(atoms).ok_or("the last entry is not where the chain is")
}

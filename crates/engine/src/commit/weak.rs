//! Weak references: those to rows that are gone, or never were, go too.
//!
//! Only two places can hold such a reference: rows that refer to a row deleted by the transaction,
//! found by back-links, and entries that the transaction itself added. A row that loses a reference
//! counts as changed, whether or not the transaction touched it.
//!
//! A pair goes as a whole: if the other half of it was a strong reference, that is gone as well,
//! and may leave garbage, which may leave weak references. (The reference forgets to count these,
//! so it keeps such rows until it restarts.)

use weir_data::delta::{Change, ColumnDelta};
use weir_data::sorted::Sorted;
use weir_data::types::RefKind;
use weir_data::{Atom, AtomRef, ColumnId, Datum, DatumRef, Error, TableId, Uuid};

use super::references::StrongCounts;
use crate::links::Reference;
use crate::ordered::Ordered;
use crate::transaction::{Touch, Transaction};

/// The entries that one column of one row loses.
#[derive(Debug, Default)]
struct Lost {
    /// Elements, or keys of pairs; perhaps twice.
    keys: Vec<Atom>,
    /// Whether a reference among them is the all-zeros UUID.
    zero: bool,
}

/// What is lost, by table, row and column.
type Dangling = Ordered<(TableId, Uuid, ColumnId), Lost>;

/// Removes weak references to rows that are not there; whether strong references went with them.
///
/// # Errors
/// `constraint violation` if a column then has fewer entries than its type demands.
pub(super) fn remove_dangling(
    txn: &mut Transaction<'_>,
    counts: &mut StrongCounts,
) -> Result<bool, Error> {
    let mut dangling = Dangling::new(txn.db().seed);
    find_to_deleted_rows(txn, &mut dangling);
    find_added(txn, &mut dangling);
    remove(txn, counts, dangling, false)
}

/// As [`remove_dangling`], looking at every row of the database.
///
/// # Errors
/// As [`remove_dangling`].
pub(crate) fn remove_dangling_of_all_rows(
    txn: &mut Transaction<'_>,
    counts: &mut StrongCounts,
) -> Result<bool, Error> {
    let mut dangling = Dangling::new(txn.db().seed);
    for (table, _) in txn.schema().table_ids() {
        for row in txn.store().table(table).iter() {
            let mut references = txn.db().links.of_row(table, row);
            note_missing(txn, table, row.uuid(), &mut references, &mut dangling);
        }
    }
    // They have come from a file, or by a conversion: all at once.
    remove(txn, counts, dangling, true)
}

/// Notes committed references to rows that the transaction deleted, as far as they are still made.
fn find_to_deleted_rows(txn: &Transaction<'_>, dangling: &mut Dangling) {
    let deleted = txn.touches().filter(|(_, _, touch)| matches!(touch, Touch::Deleted(_)));
    for (table, to, _) in deleted {
        for link in txn.db().links.weak_to(table, to) {
            let Some(row) = txn.store().get(link.table, link.row) else { continue };
            let value = row.get(link.column);
            let to = AtomRef::Uuid(to);
            let (key, is_made) = match &link.key {
                None => (to, value.contains(to)),
                Some(key) => {
                    (key.as_ref().as_ref(), value.value_of(key.as_ref().as_ref()) == Some(to))
                }
            };
            if is_made {
                let place = (link.table, link.row, link.column);
                dangling.get_or_insert_with(place, Lost::default).keys.push(key.to_atom());
            }
        }
    }
}

/// Notes references that the transaction added and that lead nowhere.
fn find_added(txn: &Transaction<'_>, dangling: &mut Dangling) {
    let links = &txn.db().links;
    for (table, uuid, touch) in txn.touches() {
        match touch {
            Touch::Inserted => {
                if let Some(row) = txn.store().get(table, uuid) {
                    note_missing(txn, table, uuid, &mut links.of_row(table, row), dangling);
                }
            }
            Touch::Changed(columns) => {
                let mut references = links.of_changes(table, columns, true);
                note_missing(txn, table, uuid, &mut references, dangling);
            }
            Touch::Deleted(_) | Touch::Nothing => {}
        }
    }
}

fn note_missing(
    txn: &Transaction<'_>,
    table: TableId,
    row: Uuid,
    references: &mut dyn Iterator<Item = Reference<'_>>,
    dangling: &mut Dangling,
) {
    for reference in references.filter(|reference| reference.kind == RefKind::Weak) {
        if txn.store().table(reference.table).slot(reference.to).is_none() {
            let place = (table, row, reference.column);
            let lost = dangling.get_or_insert_with(place, Lost::default);
            lost.keys.push(reference.key.unwrap_or(AtomRef::Uuid(reference.to)).to_atom());
            lost.zero |= reference.to == Uuid::ZERO;
        }
    }
}

fn remove(
    txn: &mut Transaction<'_>,
    counts: &mut StrongCounts,
    dangling: Dangling,
    are_all_new: bool,
) -> Result<bool, Error> {
    let mut any_strong = false;
    for ((table, uuid, column), mut lost) in dangling.into_entries() {
        if txn.meter.is_over() {
            break;
        }
        lost.keys.sort();
        lost.keys.dedup();
        let Some(row) = txn.store().get(table, uuid) else { continue };
        let value = row.get(column);
        let ty = &txn.schema().table(table).column(column).ty;
        if value.len() - lost.keys.len() < ty.n_min as usize {
            let is_new = are_all_new || txn.inserted(table, uuid);
            return Err(too_few(txn, (table, uuid, column), &lost, is_new));
        }
        let delta = ColumnDelta { column, change: removal(value, lost.keys, ty) };
        txn.change(table, uuid, column, delta.change.clone());
        let removed = std::slice::from_ref(&delta);
        for reference in txn.db().links.of_changes(table, removed, false) {
            if reference.holds(uuid) {
                counts.add(reference.table, reference.to, -1);
                any_strong = true;
            }
        }
    }
    Ok(any_strong)
}

/// The change that removes the entries with these keys.
fn removal(value: DatumRef<'_>, keys: Vec<Atom>, ty: &weir_data::ColumnType) -> Change {
    if !ty.is_composite() {
        return Change::Replace { old: value.to_datum(), new: Datum::Empty };
    }
    if !ty.is_map() {
        return Change::Set { added: Sorted::new(), removed: Sorted::from_sorted(keys) };
    }
    let pair = |key: Atom| {
        let value = value.value_of(key.as_ref())?.to_atom();
        Some((key, value))
    };
    let removed = Sorted::from_sorted(keys.into_iter().filter_map(pair).collect());
    Change::Map { added: Sorted::new(), removed }
}

/// The reference's words, its spelling of `volation` included.
fn too_few(
    txn: &Transaction<'_>,
    (table, row, column): (TableId, Uuid, ColumnId),
    lost: &Lost,
    inserted: bool,
) -> Error {
    let schema = txn.schema().table(table);
    let (column, table_name) = (&schema.column(column).name, &schema.name);
    if lost.zero && inserted {
        return Error::constraint(format!(
            "Weak reference column \"{column}\" in \"{table_name}\" row {row} (inserted within \
             this transaction) contained all-zeros UUID (probably as the default value for this \
             column) but deleting this value caused a constraint volation because this column is \
             not allowed to be empty."
        ));
    }
    let n = lost.keys.len();
    let inserted = if inserted { "(inserted within this transaction) " } else { "" };
    Error::constraint(format!(
        "Deletion of {n} weak reference(s) to deleted (or never-existing) rows from column \
         \"{column}\" in \"{table_name}\" row {row} {inserted}caused this column to become empty, \
         but constraints on this column disallow an empty column."
    ))
}

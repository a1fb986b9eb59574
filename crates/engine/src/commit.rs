//! The commit: what stands between a transaction's last operation and its effect.
//!
//! [`run_phases`] is the table of contents; the order is the reference server's, and which error a
//! client sees depends on it. Phases may change rows, always through the transaction, so an error
//! in any of them is answered by undoing the whole journal. What follows the phases cannot fail.

mod garbage;
mod max_rows;
mod references;
mod uniqueness;
mod weak;

use weir_data::{Delta, Error, UuidSource};

use crate::transaction::Transaction;

pub(crate) use garbage::{collect as collect_garbage, sweep as sweep_garbage};
pub(crate) use max_rows::check_table as check_max_rows;
pub(crate) use references::{StrongCounts, nonexistent};
pub(crate) use uniqueness::{INSERTED, duplicate};
pub(crate) use weak::remove_dangling_of_all_rows;

/// As [`within_budget`], for a transaction that may cost as much as it takes.
///
/// # Errors
/// As there.
pub(crate) fn commit(txn: Transaction<'_>, uuids: &mut UuidSource) -> Result<Delta, Error> {
    Ok(within_budget(txn, uuids)?.expect("the transaction has no budget"))
}

/// Ends a transaction: either all of it takes effect, derived structures included, or none of it.
/// The delta is empty, and nothing has happened, if nothing is left of the transaction. `None` if
/// it has cost more than it may; it is then undone, too.
///
/// # Errors
/// `referential integrity violation` and `constraint violation` (RFC 7047 §4.1.3); the transaction
/// is then undone.
pub(crate) fn within_budget(
    mut transaction: Transaction<'_>,
    uuids: &mut UuidSource,
) -> Result<Option<Delta>, Error> {
    match run_phases(&mut transaction, uuids) {
        Ok(Some(counts)) => Ok(Some(take_effect(transaction, &counts))),
        Ok(None) => {
            transaction.abort();
            Ok(None)
        }
        Err(error) => {
            transaction.abort();
            Err(error)
        }
    }
}

/// As [`commit`], of what another server has made of its rows: what it has not collected or taken out stays.
///
/// # Errors
/// As there.
pub(crate) fn commit_as_told(
    mut txn: Transaction<'_>,
    uuids: &mut UuidSource,
) -> Result<Delta, Error> {
    txn.drop_unchanged();
    match check(&txn) {
        Ok(counts) => {
            txn.renew_versions(uuids);
            Ok(take_effect(txn, &counts))
        }
        Err(error) => {
            txn.abort();
            Err(error)
        }
    }
}

/// What a commit checks, of rows that it leaves as they are.
fn check(txn: &Transaction<'_>) -> Result<StrongCounts, Error> {
    let counts = references::count_strong(txn)?;
    references::check_deleted(txn, &counts)?;
    max_rows::check(txn)?;
    uniqueness::check(txn)?;
    Ok(counts)
}

/// `None` if the meter stopped a cascade.
fn run_phases(
    txn: &mut Transaction<'_>,
    uuids: &mut UuidSource,
) -> Result<Option<StrongCounts>, Error> {
    txn.drop_unchanged();
    let mut counts = references::count_strong(txn)?;
    references::check_deleted(txn, &counts)?;
    garbage::collect(txn, &mut counts);
    if txn.meter.is_over() {
        return Ok(None);
    }
    max_rows::check(txn)?;
    while weak::remove_dangling(txn, &mut counts)? {
        garbage::collect(txn, &mut counts);
        if txn.meter.is_over() {
            return Ok(None);
        }
    }
    if txn.meter.is_over() {
        return Ok(None);
    }
    uniqueness::check(txn)?;
    txn.renew_versions(uuids);
    Ok(Some(counts))
}

/// The infallible part: counts, back-links, indexes and keys follow the rows.
fn take_effect(txn: Transaction<'_>, counts: &StrongCounts) -> Delta {
    let (db, delta) = txn.finish();
    if delta.is_empty() {
        return delta;
    }
    counts.apply(&mut db.links);
    db.links.apply_weak_only(&delta);
    db.indexes.apply(&db.store, &delta);
    db.keys.apply(&db.store, &delta);
    db.position += 1;
    delta
}

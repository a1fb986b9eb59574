//! What is kept of a transaction's change: a record of a file, or an entry of a cluster's log.

use weir_data::{Delta, Error, Store};
use weir_history::{Name, Record};
use weir_log::standalone::{self, Form};

use crate::text_limit::EntryLimit;

/// A log record that a helper has made.
pub(crate) struct MadeRecord {
    pub(crate) bytes: Vec<u8>,
    /// What the change log is told of it.
    pub(crate) record: Record,
    /// The record's `_date`.
    pub(crate) date_ms: i64,
}

/// What a helper has made of a transaction's change, as it is kept.
pub(crate) enum Made {
    /// A record of a standalone file.
    Record(MadeRecord),
    /// An entry of a cluster's log.
    Entry {
        /// See [`entry_text`].
        text: Vec<u8>,
        /// The entry's `_date`.
        date_ms: i64,
    },
}

/// Appends to `text`, which is empty, what an entry of a cluster's log has: `[null,TRANSACTION]` (ovsdb(5)). `None`
/// if nothing of the change is kept in files.
///
/// # Errors
/// If that is too long for an entry.
pub(crate) fn entry_text(
    mut text: Vec<u8>,
    delta: &Delta,
    store: &Store,
    date_ms: i64,
    comment: Option<&str>,
    limit: EntryLimit,
) -> Result<Option<Vec<u8>>, Error> {
    text.extend_from_slice(b"[null,");
    let form = Form::Difference;
    if !standalone::write_transaction_json(form, &mut text, delta, store, date_ms, comment) {
        return Ok(None);
    }
    text.push(b']');
    limit.check(text.len())?;
    // Many may hold it, and for long.
    text.shrink_to_fit();
    Ok(Some(text))
}

/// What the change log is told of a record.
pub(crate) fn record_of(written: weir_log::record::Written) -> Record {
    let weir_log::record::Written { hash, body_len, is_marked } = written;
    Record { name: Name::Hash(hash.0), body_len, is_marked }
}

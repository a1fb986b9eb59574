//! Rows of a snapshot under another schema, and why there may be none.

use std::sync::Arc;

use weir_data::{Error, Schema, Snapshot, UuidSource};
use weir_engine::Converted;

/// Why a database was not converted.
#[derive(Debug)]
pub enum ConversionError {
    /// The rows do not conform to the new schema.
    Refused(Error),
    /// The new file could not be written: strerror(3) text.
    Failed(String),
}

impl ConversionError {
    /// What the client is told.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Refused(error) => error,
            Self::Failed(error) => Error::io(Some("conversion failed".into()), error),
        }
    }
}

/// Converts rows to another schema; runs in a helper.
///
/// # Errors
/// Why the rows do not conform to it.
pub fn convert_rows(
    snapshot: &Snapshot,
    schema: Arc<Schema>,
    seed: [u64; 4],
) -> Result<Box<Converted>, ConversionError> {
    let mut uuids = UuidSource::new(seed);
    let seed = uuids.next_u64();
    let converted = weir_engine::convert(snapshot, schema, &mut uuids, seed);
    converted.map(Box::new).map_err(ConversionError::Refused)
}

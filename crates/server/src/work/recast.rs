//! The rows of a clustered database under another schema: what a leader tries before it proposes
//! that, and what every member makes of the entry.

use std::sync::Arc;

use weir_data::{Error, Schema, Snapshot, UuidSource};
use weir_engine::Converted;
use weir_engine::convert::adopt;
use weir_json::Text;
use weir_log::clustered::{self, Data};

use crate::work::CONVERSION_COMMENT;

/// [`Work::Recast`](crate::work::Work::Recast)
pub struct Recast {
    pub(crate) snapshot: Snapshot,
    pub(crate) wanted: Wanted,
    pub(crate) seed: [u64; 4],
}

/// What the rows are to become.
pub(crate) enum Wanted {
    /// What a client has asked for.
    Asked {
        schema: Arc<Schema>,
        /// The rows go with the entry if it has no more bytes than that.
        with_rows_bytes_max: usize,
        /// Wall clock.
        date_ms: i64,
    },
    /// What an entry says.
    Entry(weir_cluster::Text),
}

/// What came out of it.
pub struct Recasted {
    /// The new tables, or why there are none.
    pub(crate) converted: Result<Box<Converted>, Error>,
    /// What the entry is to say, if a client has asked.
    pub(crate) text: Vec<u8>,
}

impl Recast {
    /// Converts the rows.
    pub(crate) fn run(self) -> Recasted {
        let Self { snapshot, wanted, seed } = self;
        let mut uuids = UuidSource::new(seed);
        let seed = uuids.next_u64();
        let (mut text, result) = (
            Vec::new(),
            match wanted {
                Wanted::Entry(entry) => {
                    follow(&snapshot, &entry, &mut uuids, seed).map(|it| (it, None))
                }
                Wanted::Asked { schema, with_rows_bytes_max, date_ms } => {
                    let converted = weir_engine::convert(&snapshot, schema, &mut uuids, seed);
                    converted.map(|converted| (converted, Some((with_rows_bytes_max, date_ms))))
                }
            },
        );
        if let Ok((converted, Some((with_rows_bytes_max, date_ms)))) = &result {
            text = compose(converted, *with_rows_bytes_max, *date_ms);
        }
        Recasted { converted: result.map(|(converted, _)| Box::new(converted)), text }
    }
}

/// Makes an entry's text take effect on rows.
fn follow(
    snapshot: &Snapshot,
    entry: &[u8],
    uuids: &mut UuidSource,
    seed: u64,
) -> Result<Converted, Error> {
    let invalid = || Error::ovsdb("invalid commit format");
    let text = weir_json::validate(entry).map_err(|_| invalid())?;
    match Data::parse(text).ok_or_else(invalid)? {
        Data { schema: Some(_), transaction: Some(_) } => {
            adopt(snapshot, clustered::rows_of(text, seed)?, uuids, seed)
        }
        Data { schema: Some(schema), transaction: None } => {
            weir_engine::convert(snapshot, Arc::new(Schema::parse(schema)?), uuids, seed)
        }
        Data { schema: None, .. } => Err(invalid()),
    }
}

/// Whether an entry's text has a schema, or is none of an entry.
pub(crate) fn has_schema(entry: &[u8]) -> bool {
    let first = entry.trim_ascii_start().strip_prefix(b"[").unwrap_or_default();
    !first.trim_ascii_start().starts_with(b"null")
}

/// Whether an entry's text has a schema alone, which not every version of the reference reads.
pub(crate) fn is_bare(entry: &[u8]) -> bool {
    let rest = entry.trim_ascii_end().strip_suffix(b"]").unwrap_or_default();
    rest.trim_ascii_end().ends_with(b"null")
}

/// The text of the entry that stands for a conversion.
fn compose(converted: &Converted, with_rows_bytes_max: usize, date_ms: i64) -> Vec<u8> {
    let snapshot = converted.database.snapshot();
    let mut text = Vec::new();
    let mut sink = |piece: &[u8]| {
        text.extend_from_slice(piece);
        if text.len() > with_rows_bytes_max { Err(()) } else { Ok(()) }
    };
    let comment = Some(CONVERSION_COMMENT);
    if clustered::stream_snapshot_data(&snapshot, date_ms, comment, &mut sink).is_err() {
        text = format!("[{},null]", snapshot.schema()).into_bytes();
    }
    text
}

/// The schema that a client asks for, of the parameters of its request.
///
/// # Errors
/// It is no schema, or none for a cluster.
pub(crate) fn asked_schema(params: Text<'_>) -> Result<Schema, Error> {
    let text = params.elements().and_then(|mut elements| elements.nth(1));
    let text = text.ok_or_else(|| Error::syntax(params, "array expected"))?;
    let schema = Schema::parse(text)?;
    check_persistent(&schema)?;
    Ok(schema)
}

/// Clusters have no ephemeral columns.
///
/// # Errors
/// This schema has one.
pub(crate) fn check_persistent(schema: &Schema) -> Result<(), Error> {
    for (_, table) in schema.table_ids() {
        let mut columns = table.data_columns();
        if let Some((_, column)) = columns.find(|(_, column)| !column.persistent) {
            let (table, column) = (&table.name, &column.name);
            return Err(Error::plain_syntax(format!(
                "Table {table} column {column} is ephemeral but clustered databases do not \
                 support ephemeral columns."
            )));
        }
    }
    Ok(())
}

//! The example database: its schema and rows are part of the program.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use weir_data::schema::Schema;
use weir_json::Value;
use weir_log::record::write_record;
use weir_log::standalone::write_schema;

use crate::program::Failure;
use crate::tool::database_file;

const SCHEMA: &str = include_str!("../../assets/network.ovsschema");
const ROWS: &str = include_str!("../../assets/network-rows.json");

/// Creates the database; false if it is there already.
pub(super) fn create_if_missing(path: &Path) -> Result<bool, Failure> {
    if path.exists() {
        return Ok(false);
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let content = content(i64::try_from(since.as_millis()).unwrap_or(0)).map_err(Failure::new)?;
    database_file::create(path, &content).map_err(|error| {
        Failure::io(format!("{}: {}", path.display(), error.step), &error.error)
    })?;
    Ok(true)
}

/// The file: its schema, and one transaction with all rows.
fn content(date_ms: i64) -> Result<Vec<u8>, String> {
    let mut content = vec![];
    write_schema(&mut content, &Schema::parse_bytes(SCHEMA.as_bytes())?);
    let mut rows = Value::parse(ROWS.as_bytes()).map_err(|error| error.to_string())?;
    if let Value::Object(members) = &mut rows {
        members.insert("_date".to_owned(), date_ms.into());
    }
    write_record(&mut content, rows.to_string().as_bytes());
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_log::standalone::Replayer;

    #[test]
    fn the_example_loads() {
        let content = content(1_700_000_000_000).unwrap();
        let mut replayer = Replayer::new("network.db", 1);
        replayer.feed(&content).unwrap();
        let loaded = replayer.finish().unwrap();
        assert_eq!(loaded.valid_len, content.len() as u64);
    }
}

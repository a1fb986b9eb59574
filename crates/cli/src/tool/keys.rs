//! What a schema says about keys (`"alternate_key"`) is no part of a database file: it goes to the
//! file beside it, for the server.

use std::path::Path;

use weir_data::Schema;
use weir_host::vlog::Level;
use weir_host::{read_keys, write_keys};
use weir_log::key_file;

use super::options::Tool;
use crate::program::strerror;
use crate::tool::database_file::follow_links;

/// The keys that are declared for a database follow the schema that it has got. Where that cannot be
/// written, the database is as good without.
pub(super) fn follow(tool: &Tool, database: &Path, schema: &Schema) {
    if schema.keys.is_empty() {
        return;
    }
    let target = follow_links(database);
    let name = &schema.name;
    let before = read_keys(&target).and_then(|bytes| key_file::read(&bytes, name).ok());
    let mut keys = before.unwrap_or_default();
    let had_room = keys.follow(&schema.keys);
    let text = (!keys.is_empty()).then(|| key_file::write(name, &keys));
    let like = std::fs::metadata(&target).map_err(|error| strerror(&error));
    let written = like.and_then(|like| write_keys(&target, &like, text.as_deref()));
    let problem = match written {
        Err(error) => Some(error),
        Ok(()) if !had_room => Some("the schema declares more than there may be".to_owned()),
        Ok(()) => None,
    };
    if let Some(problem) = problem {
        let text = format!("{}: not all keys are declared ({problem})", database.display());
        tool.log.log("ovsdb_tool", Level::Info, &text);
    }
}

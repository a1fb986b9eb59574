//! `ovsdb-tool create`: a database file with a schema and no rows.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use weir_data::schema::Schema;
use weir_host::vlog::Level;
use weir_log::standalone::write_schema;

use super::options::Tool;
use crate::database_file::{self, CreateError};
use crate::dirs::Dirs;
use crate::program::{Failure, Outcome, strerror};

/// `create [DB [SCHEMA]]`
pub(super) fn create(tool: &Tool, args: &[String]) -> Outcome {
    let path = |at: usize, default: fn(&Dirs) -> PathBuf| {
        args.get(at).map_or_else(|| default(&tool.dirs), PathBuf::from)
    };
    let database = path(0, Dirs::default_database);
    let schema = read_schema(&path(1, Dirs::default_schema))?;
    let mut content = vec![];
    write_schema(&mut content, &schema);
    database_file::create(&database, &content).map_err(|error| io_error(tool, &database, error))?;
    Ok(ExitCode::SUCCESS)
}

fn io_error(tool: &Tool, database: &Path, error: CreateError) -> Failure {
    let CreateError { step, error, warnings } = error;
    for warning in warnings {
        tool.log.log("lockfile", Level::Warn, &warning);
    }
    Failure::io(format!("I/O error: {}: {step}", database.display()), &error)
}

/// Reads a schema file; errors as the reference words them.
fn read_schema(path: &Path) -> Result<Schema, Failure> {
    let name = path.display();
    let unreadable = |why: String| {
        Failure::new(format!("failed to read schema: \"{name}\" could not be read as JSON ({why})"))
    };
    let mut file = std::fs::File::open(path)
        .map_err(|error| unreadable(format!("error opening \"{name}\": {}", strerror(&error))))?;
    let mut bytes = vec![];
    std::io::Read::read_to_end(&mut file, &mut bytes)
        .map_err(|error| unreadable(format!("error reading JSON stream: {}", strerror(&error))))?;
    let text = weir_json::validate(&bytes).map_err(|error| unreadable(error.to_string()))?;
    Schema::parse(text).map_err(|error| {
        let (text, details) = (error.to_string(), error.details().unwrap_or_default());
        // What the error quotes stays in front, the file's name goes before the details.
        let quoted = text.strip_suffix(details).unwrap_or(&text);
        Failure::new(format!("{quoted}failed to parse \"{name}\" as ovsdb schema: {details}"))
    })
}

//! `ovsdb-tool create`: a database file with a schema and no rows.

use std::path::Path;
use std::process::ExitCode;

use weir_host::vlog::Level;
use weir_log::standalone::write_schema;

use super::options::Tool;
use super::{keys, queries, schema_file};
use crate::program::{Failure, Outcome};
use crate::tool::database_file::{self, CreateError};

/// Runs `create [DB [SCHEMA]]`.
pub(super) fn create(tool: &Tool, args: &[String]) -> Outcome {
    let database = queries::database(tool, args);
    let schema = schema_file::read(&queries::schema_path(tool, args.get(1)))?;
    let mut content = vec![];
    write_schema(&mut content, &schema);
    database_file::create(&database, &content).map_err(|error| io_error(tool, &database, error))?;
    keys::follow(tool, &database, &schema);
    Ok(ExitCode::SUCCESS)
}

pub(super) fn io_error(tool: &Tool, database: &Path, error: CreateError) -> Failure {
    let CreateError { step, error, warnings } = error;
    for warning in warnings {
        tool.log.log("lockfile", Level::Warn, &warning);
    }
    Failure::io(format!("I/O error: {}: {step}", database.display()), &error)
}

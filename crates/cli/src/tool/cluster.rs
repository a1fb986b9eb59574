//! One server's part of a clustered database: what its header says, and the commands on it.

pub(super) mod address;
pub(super) mod check;
pub(super) mod create;
mod example;
pub(super) mod recover;
pub(super) mod show;
pub(super) mod standalone;

use std::path::Path;
use std::process::ExitCode;

use weir_data::Uuid;
use weir_log::clustered::{Header, State};

use super::log_file::LogFile;
use super::options::Tool;
use super::queries;
use crate::program::{Failure, Outcome, say};

/// Exit status when the answer is not known.
const UNKNOWN: u8 = 2;

/// What the header of a clustered database's file says, apart from the snapshot.
pub(super) struct Identity {
    /// The id of the server whose file it is.
    pub(super) server_id: Uuid,
    /// The server's address.
    local_address: String,
    /// The database's name.
    pub(super) name: String,
    /// The cluster's id, if it is known.
    pub(super) cluster_id: Option<Uuid>,
    /// Whether the server has not joined yet.
    pub(super) is_joining: bool,
}

impl Identity {
    /// The identity in a header.
    pub(super) fn of(header: &Header<'_>) -> Self {
        Self {
            server_id: header.server_id,
            local_address: header.local_address.clone(),
            name: header.name.clone(),
            cluster_id: header.cluster_id,
            is_joining: matches!(header.state, State::Joining { .. }),
        }
    }
}

/// Reads the first record.
pub(super) fn header<T>(
    log: &mut LogFile,
    path: &Path,
    take: impl FnOnce(Header<'_>) -> T,
) -> Result<T, Failure> {
    let header = log.next(|json| Header::parse(json).map(take))?;
    let header = header.ok_or_else(|| {
        Failure::new(format!("ovsdb error: {}: unexpected end of file", path.display()))
    })?;
    header.map_err(|error| Failure::new(error.to_string()))
}

fn identity(tool: &Tool, args: &[String]) -> Result<Identity, Failure> {
    let path = queries::database(tool, args);
    let mut log = LogFile::open_clustered(&path)?;
    header(&mut log, &path, |header| Identity::of(&header))
}

fn answer(text: &str) -> Outcome {
    say(&format!("{text}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `db-cid DB`.
pub(super) fn db_cid(tool: &Tool, args: &[String]) -> Outcome {
    match identity(tool, args)?.cluster_id {
        Some(id) => answer(&id.to_string()),
        None => {
            let path = queries::database(tool, args);
            // Not an error of the program, so without its name.
            eprintln!("{}: cluster ID not yet known", path.display());
            Ok(ExitCode::from(UNKNOWN))
        }
    }
}

/// Runs `db-sid DB`.
pub(super) fn db_sid(tool: &Tool, args: &[String]) -> Outcome {
    answer(&identity(tool, args)?.server_id.to_string())
}

/// Runs `db-local-address DB`.
pub(super) fn db_local_address(tool: &Tool, args: &[String]) -> Outcome {
    answer(&identity(tool, args)?.local_address)
}

/// The first four digits of an id, by which people know a server.
pub(super) fn short(id: Uuid) -> String {
    let text = id.text();
    String::from_utf8_lossy(text.get(..4).unwrap_or_default()).into_owned()
}

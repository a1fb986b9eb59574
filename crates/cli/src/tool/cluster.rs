//! Questions about one server's part of a clustered database.

use std::path::Path;

use super::log_file::LogFile;
use super::options::Tool;
use super::queries;
use crate::program::{Failure, Outcome};

/// What the first record says.
pub(super) struct Header {
    pub(super) name: String,
}

pub(super) fn header(_log: LogFile, path: &Path) -> Result<Header, Failure> {
    Err(Failure::not_yet(format!("{}: a clustered database", path.display())))
}

/// `db-cid DB`, `db-sid DB`, `db-local-address DB`
pub(super) fn identity(tool: &Tool, args: &[String]) -> Outcome {
    let path = queries::database(tool, args);
    Err(header(LogFile::open_clustered(&path)?, &path).err().unwrap_or(Failure::silent(1)))
}

pub(super) mod show {
    //! `show-log`.

    use std::path::Path;

    use super::super::log_file::LogFile;
    use super::super::show_log::Output;
    use crate::program::Failure;

    pub(in crate::tool) fn show(
        log: LogFile,
        _more: u8,
        _out: &mut Output<'_>,
    ) -> Result<(), Failure> {
        super::header(log, Path::new("show-log")).map(|_| ())
    }
}

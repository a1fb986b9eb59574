//! Clustered files.

use std::path::Path;

use super::log_file::LogFile;
use crate::program::Failure;

pub(super) struct Header {
    pub(super) name: String,
}

pub(super) fn header(_log: LogFile, _path: &Path) -> Result<Header, Failure> {
    Err(Failure::not_yet("a clustered database"))
}

pub(super) mod show {
    use super::super::show_log::Output;
    use super::*;
    pub(in crate::tool) fn show(_: LogFile, _: u8, _: &mut Output<'_>) -> Result<(), Failure> {
        Err(Failure::not_yet("a clustered database"))
    }
}

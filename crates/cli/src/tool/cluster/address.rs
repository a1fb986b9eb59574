//! `ovsdb-tool change-address`: a server of a cluster listens elsewhere from its next start on. Its file
//! says so in its first record; the other members are told by the server itself.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::ExitCode;

use weir_log::clustered::Header;

use super::create::refused;
use crate::program::{Failure, Outcome};
use crate::tool::database_file::follow_links;
use crate::tool::log_file::LogFile;
use crate::tool::options::Tool;
use crate::tool::rewrite::{failed, lock, replace};

/// Bytes that are copied at once.
const COPY_BYTES: usize = 1 << 20;

/// Runs `change-address DB ADDRESS`.
pub(in crate::tool) fn change_address(tool: &Tool, args: &[String]) -> Outcome {
    let [db, address] = args else { return Err(Failure::silent(1)) };
    weir_log::clustered::check_address(address).map_err(|error| refused(tool, &error))?;
    let path = follow_links(Path::new(db));
    let _lock = lock(tool, &path)?;
    let mut log = LogFile::open_clustered(&path)?;
    let header = super::header(&mut log, &path, |mut header: Header<'_>| {
        header.local_address.clone_from(address);
        let mut bytes = Vec::new();
        header.write(&mut bytes);
        bytes
    })?;
    let read = |error| failed(&path, "read failed", &error);
    let mut rest = File::open(&path).map_err(read)?;
    rest.seek(SeekFrom::Start(log.offset())).map_err(read)?;
    replace(&path, |sink| {
        sink(&header)?;
        let mut buffer = vec![0; COPY_BYTES];
        while let count @ 1.. = rest.read(&mut buffer).map_err(read)? {
            sink(buffer.get(..count).unwrap_or_default())?;
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

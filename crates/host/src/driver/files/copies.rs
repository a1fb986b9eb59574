//! A database file is read by a helper, and its compacted or converted copy is written by one, each
//! with the side file beside it.

use std::fs::{File, Metadata};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use weir_data::store::Snapshot;
use weir_history::{Binding, Image};
use weir_net::error::strerror;
use weir_server::effect::MemberHeader;
use weir_server::load::{Finished, Loaded, Loader, write_member_snapshot, write_snapshot};

use crate::disk::{
    Directory, Replacement, SideFile, candidates, read_candidates, read_keys, remove_others,
};

/// Bytes handed to the loader at once.
const LOAD_BYTES: usize = 1 << 20;

/// What a copy is made of.
pub(crate) struct Source {
    pub(crate) snapshot: Snapshot,
    /// `_comment` and `_date` of the snapshot record.
    pub(crate) comment: String,
    pub(crate) date_ms: i64,
    /// The change log at the snapshot.
    pub(crate) history: Option<Box<Image>>,
    /// What the file of a member of a cluster begins with.
    pub(crate) member: Option<Box<MemberHeader>>,
}

/// Where a copy is written, and beside which file.
pub(super) struct Place {
    pub(super) replacement: Replacement,
    pub(super) target: PathBuf,
    pub(super) like: Metadata,
}

/// A copy that is on the disk. Dropped, it is removed.
pub(crate) struct Copy {
    pub(super) replacement: Replacement,
    pub(super) side_file: Option<SideFile>,
    /// Why there is no side file though there should be.
    pub(super) problem: Option<String>,
}

impl Place {
    /// Writes what the file of a member of a cluster begins with, and its snapshot.
    pub(super) fn write_member(
        self,
        header: &MemberHeader,
        snapshot: &Snapshot,
        (comment, date_ms): (&str, i64),
    ) -> Result<Copy, String> {
        let Self { mut replacement, .. } = self;
        let mut sink = |bytes: &[u8]| replacement.write(bytes).map_err(|error| strerror(&error));
        write_member_snapshot(header, snapshot, comment, date_ms, &mut sink)?;
        replacement.sync().map_err(|error| strerror(&error))?;
        Ok(Copy { replacement, side_file: None, problem: None })
    }

    /// Writes schema and rows, and the side file that `image` makes of the log of the source.
    pub(super) fn write(
        self,
        snapshot: &Snapshot,
        (comment, date_ms): (&str, i64),
        image: impl FnOnce(&Binding) -> Option<Image>,
    ) -> Result<Copy, String> {
        let Self { mut replacement, target, like } = self;
        let mut sink = |bytes: &[u8]| replacement.write(bytes).map_err(|error| strerror(&error));
        let binding = write_snapshot(snapshot, comment, date_ms, &mut sink)?;
        let written =
            image(&binding).map(|image| SideFile::write(&target, &like, &binding, &image));
        let (side_file, problem) = match written {
            None => (None, None),
            Some(Ok(side_file)) => (Some(side_file), None),
            Some(Err(problem)) => (None, Some(problem)),
        };
        replacement.sync().map_err(|error| strerror(&error))?;
        Ok(Copy { replacement, side_file, problem })
    }
}

impl Copy {
    /// With more records, on the disk.
    pub(super) fn extended(mut self, records: &[u8]) -> Result<Self, String> {
        let written = self.replacement.write(records).and_then(|()| self.replacement.sync());
        written.map(|()| self).map_err(|error| strerror(&error))
    }
}

/// Reads a whole file, `target`, that messages call `name`, and what may be its side file. What is
/// not goes if the file can be opened.
pub(super) fn load(
    name: &str,
    target: &Path,
    mut file: File,
    seed: u64,
) -> Result<Box<Loaded>, String> {
    let candidates = candidates(target);
    let mut loader = Loader::seekable(name, seed);
    if let Ok(metadata) = file.metadata() {
        loader.expect_len(metadata.len());
    }
    read_candidates(&candidates).into_iter().for_each(|bytes| loader.offer_side_file(bytes));
    let mut loaded = read(name, &mut file, loader)?;
    loaded.set_key_file(read_keys(target));
    if loaded.is_clustered() {
        // A process that ended before the disk had what it wrote has promised none of that; this one will.
        let synced = file.sync_data().and_then(|()| Directory::of(target).sync());
        synced
            .map_err(|error| format!("I/O error: {name}: fsync failed ({})", strerror(&error)))?;
    }
    remove_others(target, &candidates, loaded.side_file().as_deref());
    Ok(loaded)
}

fn read(name: &str, file: &mut File, mut loader: Loader) -> Result<Box<Loaded>, String> {
    let mut buffer = vec![0; LOAD_BYTES];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => match loader.finish()? {
                Finished::Loaded(mut loaded) => {
                    let mut text = |offset, len| read_at(name, file, offset, len);
                    loaded.read_texts(&mut text)?;
                    return Ok(loaded);
                }
                Finished::Again(again) => {
                    loader = again;
                    let from = SeekFrom::Start(loader.again_from().unwrap_or(0));
                    file.seek(from).map_err(|error| read_error(name, &error))?;
                }
            },
            Ok(count) => {
                loader.feed(&buffer[..count])?;
                if let Some(offset) = loader.again_from() {
                    let back = file.seek(SeekFrom::Start(offset));
                    back.map_err(|error| read_error(name, &error))?;
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(read_error(name, &error)),
        }
    }
}

/// Reads so many bytes from an offset.
fn read_at(name: &str, file: &File, offset: u64, len: u64) -> Result<Vec<u8>, String> {
    let len = usize::try_from(len).expect("what was read fits in memory");
    let mut bytes = vec![0; len];
    let read = file.read_exact_at(&mut bytes, offset);
    read.map(|()| bytes).map_err(|error| read_error(name, &error))
}

pub(super) fn read_error(name: &str, error: &std::io::Error) -> String {
    format!("I/O error: {name}: read failed ({})", strerror(error))
}

#[cfg(test)]
#[path = "copies_tests.rs"]
mod tests;

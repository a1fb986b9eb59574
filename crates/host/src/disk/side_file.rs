//! The side file with the change log, beside the database file that it belongs to
//! (`docs/decisions/012`): `.NAME.weir-history-HASH`.
//!
//! It takes its place before the copy with whose first two records its name ends takes that of the
//! database file, so a kill at any moment leaves a pair. What does not belong to the file goes after
//! the next time that the file has been opened. Nothing depends on a side file: whatever fails here
//! ends in a log that begins anew.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{Gid, Uid, fchown};
use weir_history::{BUDGET_BYTES_MAX, Binding, Image};
use weir_net::error::strerror;

/// A side file that is longer is not read, in bytes: a log costs no more than its budget, and the
/// numbers of tables are few.
const SIDE_FILE_BYTES_MAX: u64 = (BUDGET_BYTES_MAX + (1 << 20)) as u64;

/// So many files that may be the side file are read, the newest first: there is one more than one
/// only if a process was killed.
const CANDIDATES_MAX: usize = 4;

/// What is between a database file's name and the hash.
const INFIX: &str = ".weir-history-";

/// Length of the hash.
const HASH_DIGITS: usize = 16;

/// A side file that has its place; removed on drop unless it is kept.
#[derive(Debug)]
pub(crate) struct SideFile {
    path: Option<PathBuf>,
}

impl SideFile {
    /// Writes the side file of a copy of `target` that begins as `binding` says, with the mode and,
    /// as far as the system lets us, the owner of `like`.
    ///
    /// # Errors
    /// As strerror(3) puts it; nothing is left then.
    pub(crate) fn write(
        target: &Path,
        like: &Metadata,
        binding: &Binding,
        image: &Image,
    ) -> Result<Self, String> {
        let temporary = temporary_path(target);
        let path = side_path(target, &binding.text());
        let written = write(&temporary, like, binding, image)
            .and_then(|()| fs::rename(&temporary, &path).map_err(|error| strerror(&error)));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written.map(|()| Self { path: Some(path) })
    }

    /// The file stays; answers where.
    pub(crate) fn keep(mut self) -> Option<PathBuf> {
        self.path.take()
    }
}

impl Drop for SideFile {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }
}

fn write(
    temporary: &Path,
    like: &Metadata,
    binding: &Binding,
    image: &Image,
) -> Result<(), String> {
    let text = |error: io::Error| strerror(&error);
    let file = create(temporary, like).map_err(text)?;
    let mut out = BufWriter::new(file);
    image.write(binding, &mut |bytes| out.write_all(bytes).map_err(text))?;
    let file = out.into_inner().map_err(|error| text(error.into_error()))?;
    file.sync_all().map_err(text)
}

/// A new file in the place of what is there, with the mode and, as far as the system lets us, the
/// owner of `like`.
pub(super) fn create(path: &Path, like: &Metadata) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let owner = (Uid::from_raw(like.uid()), Gid::from_raw(like.gid()));
    let _ = fchown(&file, Some(owner.0), Some(owner.1));
    file.set_permissions(Permissions::from_mode(like.mode() & 0o777))?;
    Ok(file)
}

/// The files beside `target` whose names are those of side files of it, the newest first.
pub(crate) fn candidates(target: &Path) -> Vec<PathBuf> {
    let prefix = hidden(target, INFIX);
    let folder = target.parent().unwrap_or(Path::new("/"));
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_ours = name.as_encoded_bytes().strip_prefix(prefix.as_encoded_bytes());
        let metadata = is_ours.is_some_and(is_hash).then(|| entry.metadata().ok()).flatten();
        if let Some(metadata) = metadata.filter(Metadata::is_file) {
            let age = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            found.push((age, entry.path()));
        }
    }
    found.sort_unstable();
    found.into_iter().rev().map(|(_, path)| path).collect()
}

/// Whether a name ends as [`Binding::text`] has it. Nothing else that begins like a side file is taken
/// for one, and removed: it may be the lock file of a database with an odd name.
fn is_hash(end: &[u8]) -> bool {
    end.len() == HASH_DIGITS && end.iter().all(u8::is_ascii_hexdigit)
}

/// What is in as many of the candidates as are read.
pub(crate) fn read_candidates(candidates: &[PathBuf]) -> Vec<Vec<u8>> {
    let newest = candidates.iter().take(CANDIDATES_MAX);
    newest.filter_map(|path| read(path).ok().flatten()).collect()
}

/// Opens a side file to be read. Where something else has its name (a FIFO waits for a writer), there is
/// none.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(nonblocking).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("not a regular file")),
    }
}

/// `None` if the file is too long.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    open(path)?.take(SIDE_FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= SIDE_FILE_BYTES_MAX).then_some(bytes))
}

/// Removes the candidates that are not the side file of `target` whose name ends in `text`.
pub(crate) fn remove_others(target: &Path, candidates: &[PathBuf], text: Option<&str>) {
    let kept = text.map(|text| side_path(target, text));
    for path in candidates.iter().filter(|path| Some(*path) != kept.as_ref()) {
        let _ = fs::remove_file(path);
    }
}

/// Where the side file is whose name ends in `text`.
pub(crate) fn side_path(target: &Path, text: &str) -> PathBuf {
    target.with_file_name(hidden(target, &format!("{INFIX}{text}")))
}

/// Where a side file is written. No candidate is called so.
pub(crate) fn temporary_path(target: &Path) -> PathBuf {
    target.with_file_name(hidden(target, ".weir-history.tmp"))
}

/// A dot, the name of `target`, and `end`.
pub(super) fn hidden(target: &Path, end: &str) -> std::ffi::OsString {
    let mut name = std::ffi::OsString::from(".");
    name.push(target.file_name().unwrap_or_default());
    name.push(end);
    name
}

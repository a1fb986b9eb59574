//! What cannot be read at the end of a database file, kept beside it before it is cut off.
//!
//! A record that is torn, or whose SHA-1 is wrong, ends what a server reads of the file, and the
//! next record takes its place. So that nothing is lost without a trace, whatever follows the last
//! good record goes to `FILE.torn.N` first: a person may find whole records in it.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{Gid, Uid, fchown};
use weir_net::error::strerror;

/// How many tails of one database are kept. The oldest makes room.
pub(crate) const TAILS_MAX: u32 = 4;

/// How much of a tail is kept, in bytes: its beginning.
pub(crate) const TAIL_BYTES_MAX: u64 = 64 << 20;

/// Bytes copied at once.
const COPY_BYTES: usize = 1 << 20;

/// Where a tail is now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KeptTail {
    /// The file.
    pub(crate) path: PathBuf,
    /// How much of it that is, in bytes.
    pub(crate) kept: u64,
    /// How long it was, in bytes.
    pub(crate) all: u64,
}

/// Copies what `file` has behind `from` to a file beside `path`, and waits until that is on disk;
/// `None` if there is nothing.
///
/// # Errors
/// What the system says; nothing has been kept then.
pub(crate) fn keep_tail(file: &File, path: &Path, from: u64) -> io::Result<Option<KeptTail>> {
    let metadata = file.metadata()?;
    let all = metadata.len().saturating_sub(from);
    if all == 0 {
        return Ok(None);
    }
    let kept = all.min(TAIL_BYTES_MAX);
    let target = free_place(path)?;
    let copied = copy(file, from, kept, &target, &metadata);
    if copied.is_err() {
        let _ = fs::remove_file(&target);
    }
    copied.map(|()| Some(KeptTail { path: target, kept, all }))
}

/// What an administrator must know of a tail that is cut off.
pub(crate) fn tail_message(database: &str, from: u64, kept: &io::Result<KeptTail>) -> String {
    let gone = format!("{database}: what follows offset {from} cannot be read and is cut off");
    match kept {
        Ok(KeptTail { path, kept, all }) if kept == all => {
            format!("{gone}; its {all} bytes are kept in {}", path.display())
        }
        Ok(KeptTail { path, kept, all }) => {
            format!("{gone}; the first {kept} of its {all} bytes are kept in {}", path.display())
        }
        Err(error) => format!("{gone}; it could not be kept ({})", strerror(error)),
    }
}

/// A name that is free, or that of the oldest tail, which goes.
fn free_place(path: &Path) -> io::Result<PathBuf> {
    let place = |n: u32| {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".torn.{n}"));
        path.with_file_name(name)
    };
    let mut oldest: Option<(SystemTime, PathBuf)> = None;
    for place in (1..=TAILS_MAX).map(place) {
        let Ok(metadata) = fs::symlink_metadata(&place) else { return Ok(place) };
        let age = (metadata.modified()?, place);
        if oldest.as_ref().is_none_or(|oldest| age < *oldest) {
            oldest = Some(age);
        }
    }
    let (_, oldest) = oldest.ok_or(io::ErrorKind::NotFound)?;
    fs::remove_file(&oldest)?;
    Ok(oldest)
}

/// The copy has the mode and, as far as the system lets us, the owner of the database.
fn copy(
    from: &File,
    mut offset: u64,
    mut bytes: u64,
    target: &Path,
    like: &fs::Metadata,
) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(target)?;
    let owner = (Uid::from_raw(like.uid()), Gid::from_raw(like.gid()));
    let _ = fchown(&file, Some(owner.0), Some(owner.1));
    file.set_permissions(Permissions::from_mode(like.mode() & 0o777))?;
    let mut buffer = vec![0; COPY_BYTES];
    let mut written = 0;
    while bytes > 0 {
        let most = usize::try_from(bytes).unwrap_or(COPY_BYTES).min(COPY_BYTES);
        let count = match from.read_at(&mut buffer[..most], offset) {
            // Somebody has cut it off.
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        file.write_all_at(&buffer[..count], written)?;
        let count = count as u64;
        (offset, written, bytes) = (offset + count, written + count, bytes - count);
    }
    file.sync_all()
}

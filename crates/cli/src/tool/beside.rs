//! A file that is written beside the one whose place it takes: whoever is killed meanwhile leaves
//! the old one whole, or none.
//!
//! The new file is called `.FILE.~new~`. Who writes it holds the lock of `FILE`, so nobody else does; one
//! that a killed process left goes when the next one is begun.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

/// Mode of a new database file, less the umask.
const FILE_MODE: u32 = 0o660;
/// Bytes gathered before a write.
const BUFFER_BYTES: usize = 1 << 20;

/// A file that has not its name yet; dropped before, it goes away.
#[derive(Debug)]
pub(super) struct Beside {
    file: File,
    path: PathBuf,
    buffer: Vec<u8>,
    is_in_place: bool,
}

impl Beside {
    /// Begins an empty file for the place of `target`, whose links are resolved: with the mode and,
    /// as far as the system lets us, the owner of what is there.
    pub(super) fn create(target: &Path, there: Option<&Metadata>) -> io::Result<Self> {
        let path = path_for(target);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        options.mode(there.map_or(FILE_MODE, |there| there.mode() & 0o777));
        let file = options.open(&path)?;
        let new = Self { file, path, buffer: Vec::new(), is_in_place: false };
        if let Some(there) = there {
            let _ = fchown(&new.file, Some(there.uid()), Some(there.gid()));
            new.file.set_permissions(Permissions::from_mode(there.mode() & 0o7777))?;
        }
        Ok(new)
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// Waits until all is on the disk.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        self.file.sync_all()
    }

    /// Takes the place of `target`.
    pub(super) fn rename_over(mut self, target: &Path) -> io::Result<()> {
        std::fs::rename(&self.path, target)?;
        self.has_name(target);
        Ok(())
    }

    /// Takes the name `target`, at which nothing may be.
    pub(super) fn take_name(mut self, target: &Path) -> io::Result<()> {
        match renameat_with(CWD, &self.path, CWD, target, RenameFlags::NOREPLACE) {
            // The file system cannot tell: an empty file takes the name first.
            Err(Errno::INVAL | Errno::NOSYS) => {
                OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(target)?;
                std::fs::rename(&self.path, target).inspect_err(|_| {
                    let _ = std::fs::remove_file(target);
                })?;
            }
            result => result?,
        }
        self.has_name(target);
        Ok(())
    }

    fn has_name(&mut self, target: &Path) {
        self.is_in_place = true;
        sync_folder(target);
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if !self.is_in_place {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Where the file for the place of `target` is written.
fn path_for(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name}.~new~"))
}

/// Makes the file's name durable, where the file system can.
pub(super) fn sync_folder(path: &Path) {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Ok(folder) = File::open(folder.unwrap_or(Path::new("."))) {
        let _ = folder.sync_all();
    }
}

//! A new file that takes the place of an old one: written beside it, synced, renamed.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Gid, Uid, fchown};

/// Bytes gathered before a write.
const BUFFER_BYTES: usize = 1 << 20;

/// `FILE.tmp`; removed on drop unless it was renamed or another one has its name.
#[derive(Debug)]
pub struct Replacement {
    file: Option<File>,
    path: PathBuf,
    buffer: Vec<u8>,
    len: u64,
}

impl Replacement {
    /// Begins an empty file for the place of `target`, with the mode and, as far as the system
    /// lets us, the owner of `like`.
    ///
    /// # Errors
    /// What unlink(2), open(2) or chmod(2) says.
    pub fn create(target: &Path, like: &Metadata) -> io::Result<Self> {
        let path = temporary_path(target);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(like.mode() & 0o777);
        let file = options.open(&path)?;
        let owner = (Uid::from_raw(like.uid()), Gid::from_raw(like.gid()));
        let _ = fchown(&file, Some(owner.0), Some(owner.1));
        file.set_permissions(Permissions::from_mode(like.mode() & 0o7777))?;
        Ok(Self { file: Some(file), path, buffer: Vec::new(), len: 0 })
    }

    /// Bytes written so far.
    #[allow(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Appends.
    ///
    /// # Errors
    /// What write(2) says; the file is of no use then.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.len += bytes.len() as u64;
        if self.buffer.len() + bytes.len() < BUFFER_BYTES {
            self.buffer.extend_from_slice(bytes);
            return Ok(());
        }
        self.flush()?;
        self.file.as_mut().map_or(Ok(()), |file| file.write_all(bytes))
    }

    /// What has been handed to the system, to be read by somebody else.
    ///
    /// # Errors
    /// What dup(2) says.
    pub fn reader(&self) -> io::Result<File> {
        self.file.as_ref().ok_or(io::ErrorKind::NotFound)?.try_clone()
    }

    /// Hands everything written to the system.
    ///
    /// # Errors
    /// What write(2) says.
    pub fn flush(&mut self) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            file.write_all(&self.buffer)?;
        }
        self.buffer.clear();
        Ok(())
    }

    /// Writes over bytes that were written before.
    ///
    /// # Errors
    /// `EINVAL` where some were not; what write(2) says: the file is of no use then.
    pub fn patch(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.flush()?;
        self.file.as_ref().map_or(Ok(()), |file| file.write_all_at(bytes, offset))
    }

    /// Waits until everything written is on disk.
    ///
    /// # Errors
    /// What write(2) or fsync(2) says.
    pub fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        self.file.as_ref().map_or(Ok(()), File::sync_all)
    }

    /// Whether the name is still this file's: another one may have taken it meanwhile.
    fn has_its_name(&self) -> bool {
        let Some(file) = &self.file else { return false };
        let inode = |metadata: io::Result<Metadata>| metadata.ok().map(|it| (it.dev(), it.ino()));
        inode(file.metadata()) == inode(fs::symlink_metadata(&self.path))
    }

    /// Takes the place of `target`; the file and its length.
    ///
    /// # Errors
    /// What rename(2) says, or that another file has the name.
    pub fn rename_over(mut self, target: &Path) -> io::Result<(File, u64)> {
        if !self.has_its_name() {
            return Err(io::ErrorKind::NotFound.into());
        }
        fs::rename(&self.path, target)?;
        let file = self.file.take().ok_or(io::ErrorKind::NotFound)?;
        Ok((file, self.len))
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if self.has_its_name() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Where the replacement of `target` is written.
pub fn temporary_path(target: &Path) -> PathBuf {
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    target.with_file_name(name)
}

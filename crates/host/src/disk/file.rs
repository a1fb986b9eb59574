//! One database file: its lock, and where the next record goes.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::mem;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::FallocateFlags;
use weir_net::error::strerror;

use crate::disk::directory::Directory;
use crate::disk::lock::{Identity, LockError, LockFile, lock_path};
use crate::disk::replacement::{Replacement, temporary_path};
use crate::disk::room::Room;
use crate::disk::tail::{keep_tail, tail_message};
use crate::disk::{key_file, side_file};

/// A helper that cannot sync a directory tries again behind this pause.
const DIRECTORY_PAUSE: Duration = Duration::from_millis(100);

/// Why a database file cannot be used.
#[derive(Debug)]
pub(crate) struct OpenError {
    /// What the reference prints.
    pub(crate) text: String,
    /// What module `lockfile` warns of.
    pub(crate) warnings: Vec<String>,
}

/// A locked database file that records are appended to.
#[derive(Debug)]
pub(crate) struct DatabaseFile {
    file: Arc<File>,
    /// What the user called it, absolute.
    name: PathBuf,
    /// The file itself, symbolic links resolved.
    path: PathBuf,
    directory: Arc<Directory>,
    /// Where the next record goes.
    valid_len: u64,
    /// Something follows there that must go first: a torn record, or a failed append.
    torn: bool,
    /// What follows there has not been read, and is kept aside before it goes.
    unread: bool,
    /// What an administrator must know, for the log.
    notice: Option<String>,
    /// fdatasync(2) has failed: the system may have dropped what it could not write and call the
    /// rest clean, so that the next one would succeed and mean nothing.
    suspect: bool,
    /// Somebody was promised durability since a replacement was begun.
    promised: bool,
    /// The file took another's place, and its directory may not say so after a power failure.
    renamed: Arc<AtomicBool>,
    /// What is kept for records that must find room, and whether any are to come.
    room: Room,
    keeps_room: bool,
    lock: LockFile,
    /// The locks of where the file still is, while another one is to take its place elsewhere.
    left: Vec<LockFile>,
    /// The file whose place it took, to be closed elsewhere.
    replaced: Option<Arc<File>>,
}

impl DatabaseFile {
    /// Locks and opens the file that `name` leads to, and removes what an interrupted compaction left under names
    /// that are hidden. `held` are the locks of this process.
    ///
    /// # Errors
    /// In the words of the reference.
    pub(crate) fn open(name: &Path, held: &[Identity]) -> Result<Self, OpenError> {
        let path = resolve(name);
        let lock = LockFile::lock(&lock_path(&path), held).map_err(|e| lock_error(name, e))?;
        let failed = |e: io::Error| io_error(name, "open failed", &e);
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(failed)?;
        // `FILE.tmp` stays until a replacement is begun, as with the reference: it may be somebody's copy.
        let _ = fs::remove_file(side_file::temporary_path(&path));
        let _ = fs::remove_file(key_file::temporary_path(&path));
        Ok(Self {
            file: Arc::new(file),
            name: std::path::absolute(name).unwrap_or_else(|_| name.to_owned()),
            directory: Arc::new(Directory::of(&path)),
            path,
            valid_len: 0,
            torn: true,
            unread: false,
            notice: None,
            suspect: false,
            promised: false,
            // By a process that may have ended before the directory said so.
            renamed: Arc::new(AtomicBool::new(true)),
            room: Room::default(),
            keeps_room: false,
            lock,
            left: Vec::new(),
            replaced: None,
        })
    }

    /// The locks that are held, for [`DatabaseFile::open`].
    pub(crate) fn held(&self) -> impl Iterator<Item = Identity> {
        self.left.iter().chain([&self.lock]).map(LockFile::identity)
    }

    /// The next file that takes this one's place has it where the name leads to now, as with the
    /// reference: somebody may have turned a symbolic link. Answers with that place, if it is another one.
    /// `held` are the locks of this process.
    ///
    /// # Errors
    /// If somebody else has the file there, or it cannot be had.
    pub(crate) fn follow_name(&mut self, held: &[Identity]) -> Result<Option<&Path>, LockError> {
        let now = resolve(&self.name);
        // A name that leads nowhere, as one on a disk that has gone does, is not followed.
        if now == self.path || !now.parent().is_some_and(Path::is_dir) {
            return Ok(None);
        }
        let its_lock = lock_path(&now);
        let identity = inode(&its_lock);
        // By another way to the same folder: the file was removed there.
        if identity == Some(self.lock.identity()) {
            return Ok(None);
        }
        let held_already = self.left.iter().position(|left| Some(left.identity()) == identity);
        let lock = match held_already {
            Some(at) => self.left.swap_remove(at),
            None => LockFile::lock(&its_lock, held)?,
        };
        self.left.push(mem::replace(&mut self.lock, lock));
        key_file::carry(&self.path, &now);
        self.directory = Arc::new(Directory::of(&now));
        self.path = now;
        Ok(Some(&self.path))
    }

    /// A second handle, to read the file with elsewhere.
    ///
    /// # Errors
    /// What dup(2) says.
    pub(crate) fn reader(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Where the last good record ends.
    pub(crate) fn valid_len(&self) -> u64 {
        self.valid_len
    }

    /// The file itself, symbolic links resolved.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What a file beside this one is to be like.
    ///
    /// # Errors
    /// What fstat(2) says.
    pub(crate) fn metadata(&self) -> io::Result<fs::Metadata> {
        self.file.metadata()
    }

    /// The file is good up to `valid_len`: the next record goes there.
    ///
    /// # Errors
    /// What fstat(2) says.
    pub(crate) fn set_valid_len(&mut self, valid_len: u64) -> io::Result<()> {
        self.torn = self.file.metadata()?.len() != valid_len;
        self.unread = self.torn;
        self.valid_len = valid_len;
        Ok(())
    }

    /// Whether it is unknown what of the file is on the disk. Appends are refused until another
    /// file takes its place.
    pub(crate) fn is_suspect(&self) -> bool {
        self.suspect
    }

    /// Appends whole records, and waits for the disk if `sync`. Nothing of a failed append stays.
    ///
    /// # Errors
    /// As strerror(3) puts it.
    pub(crate) fn append(&mut self, records: &[u8], sync: bool) -> Result<(), String> {
        self.try_append(records, sync).map_err(|error| {
            self.torn = self.file.set_len(self.valid_len).is_err();
            self.room.forget();
            self.ask_for_room();
            strerror(&error)
        })
    }

    /// From now on room is kept on a full disk for records that are urgent ([`DatabaseFile::append_keeping_room`]).
    pub(crate) fn keep_room(&mut self) {
        self.keeps_room = true;
        self.ask_for_room();
    }

    /// Behind what has been cut or replaced there is none. A disk that has none either refuses what comes next.
    fn ask_for_room(&mut self) {
        if self.keeps_room {
            let _ = self.have_room(self.valid_len);
        }
    }

    fn have_room(&mut self, end: u64) -> io::Result<()> {
        let file = &self.file;
        self.room.keep((self.valid_len, end), |start, len| {
            rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, start, len)
        })
    }

    /// Appends whole records of a file that keeps room on a full disk for those that are urgent;
    /// others are refused rather than to take it.
    ///
    /// # Errors
    /// As strerror(3) puts it.
    pub(crate) fn append_keeping_room(
        &mut self,
        records: &[u8],
        is_urgent: bool,
    ) -> Result<(), String> {
        match self.have_room(self.valid_len + records.len() as u64) {
            Err(error) if !is_urgent => Err(strerror(&error)),
            _ => self.append(records, false),
        }
    }

    fn try_append(&mut self, records: &[u8], sync: bool) -> io::Result<()> {
        if self.suspect {
            return Err(rustix::io::Errno::IO.into());
        }
        if self.torn {
            self.keep_unread();
            self.file.set_len(self.valid_len)?;
            self.torn = false;
            self.room.forget();
            self.ask_for_room();
        }
        self.file.write_all_at(records, self.valid_len)?;
        if sync {
            self.sync()?;
        }
        self.valid_len += records.len() as u64;
        Ok(())
    }

    /// Keeps aside what is about to go though nobody has read it. If that fails the database goes
    /// on all the same.
    fn keep_unread(&mut self) {
        if !mem::take(&mut self.unread) {
            return;
        }
        let name = self.path.display().to_string();
        if let Some(kept) = keep_tail(&self.file, &self.path, self.valid_len).transpose() {
            self.notice = Some(tail_message(&name, self.valid_len, &kept));
        }
    }

    /// Another file under the same name, with faults of its own; answers with this one.
    #[cfg(test)]
    pub(crate) fn exchange(&mut self, file: impl Into<Arc<File>>) -> Arc<File> {
        mem::replace(&mut self.file, file.into())
    }

    /// Another directory, with faults of its own; answers with the one that was there.
    #[cfg(test)]
    pub(crate) fn exchange_directory(&self, other: Option<File>) -> Option<File> {
        self.directory.exchange(other)
    }

    /// What is to be logged as a warning of module `ovsdb_log`.
    pub(crate) fn take_notice(&mut self) -> Option<String> {
        self.notice.take()
    }

    fn sync(&mut self) -> io::Result<()> {
        self.promised = true;
        if self.renamed.load(Ordering::Acquire) {
            self.directory.sync()?;
            self.renamed.store(false, Ordering::Release);
        }
        let synced = self.file.sync_data();
        self.suspect = synced.is_err();
        synced
    }

    /// What waits until the disk has all that was appended so far, and shows it; takes a while. Where it
    /// fails, nobody knows what of it is there: see [`DatabaseFile::mark_suspect`]. A directory that cannot
    /// be synced says nothing of the file, and is tried again until it can, or until nobody waits for that;
    /// `complain` hears of it each time.
    pub(crate) fn sync_elsewhere<C: Fn(&io::Error) + Send + 'static>(
        &mut self,
        complain: C,
    ) -> impl FnOnce() -> io::Result<()> + Send + 'static + use<C> {
        self.promised = true;
        let (file, directory) = (Arc::clone(&self.file), Arc::clone(&self.directory));
        let renamed = Arc::clone(&self.renamed);
        move || {
            while renamed.load(Ordering::Acquire) {
                match directory.sync() {
                    Ok(()) => renamed.store(false, Ordering::Release),
                    // The file was closed, or another one is in its place.
                    Err(error) if Arc::strong_count(&renamed) == 1 => return Err(error),
                    Err(error) => {
                        complain(&error);
                        thread::sleep(DIRECTORY_PAUSE);
                    }
                }
            }
            file.sync_data()
        }
    }

    /// Waiting for the disk has failed elsewhere.
    pub(crate) fn mark_suspect(&mut self) {
        self.suspect = true;
    }

    /// Whether the directory shows this file, even after a power failure.
    pub(crate) fn is_shown(&self) -> bool {
        !self.renamed.load(Ordering::Acquire)
    }

    /// Begins a file that is to replace this one.
    ///
    /// # Errors
    /// What open(2) says.
    pub(crate) fn replacement(&mut self) -> io::Result<Replacement> {
        self.promised = false;
        Replacement::create(&self.path, &self.file.metadata()?)
    }

    /// Removes a replacement that nobody will finish.
    pub(crate) fn discard_replacement(&self) {
        let _ = fs::remove_file(temporary_path(&self.path));
        let _ = fs::remove_file(side_file::temporary_path(&self.path));
    }

    /// Appends `tail` to the replacement and puts it in this file's place; returns its length.
    ///
    /// The replacement is on disk but for the tail, which waits for the disk only if `sync` or if
    /// somebody was promised that; the directory is for [`DatabaseFile::directory_sync`], done
    /// elsewhere, unless `sync`.
    ///
    /// # Errors
    /// As strerror(3) puts it; this file is then still in place.
    pub(crate) fn replace(
        &mut self,
        mut replacement: Replacement,
        tail: &[u8],
        sync: bool,
    ) -> Result<u64, String> {
        self.keep_unread();
        let promised = self.promised || sync;
        let renamed = (|| {
            replacement.write(tail)?;
            if promised {
                replacement.sync()?
            } else {
                replacement.flush()?
            };
            replacement.rename_over(&self.path)
        })();
        let (file, len) = renamed.map_err(|error: io::Error| strerror(&error))?;
        self.replaced = Some(mem::replace(&mut self.file, Arc::new(file)));
        self.left.clear();
        (self.valid_len, self.torn, self.suspect) = (len, false, false);
        self.room.forget();
        self.ask_for_room();
        let is_shown = sync && self.directory.sync().is_ok();
        self.renamed = Arc::new(AtomicBool::new(!is_shown));
        Ok(len)
    }

    /// What makes the last replacement survive a power failure, and forgets what it replaced; takes
    /// a while.
    pub(crate) fn directory_sync(&mut self) -> impl FnOnce() + Send + 'static {
        let (directory, renamed) = (Arc::clone(&self.directory), Arc::clone(&self.renamed));
        // The last who has the old file removes it from the disk and the page cache by closing it.
        let replaced = self.replaced.take();
        move || {
            drop(replaced);
            if directory.sync().is_ok() {
                renamed.store(false, Ordering::Release);
            }
        }
    }
}

/// The file that `name` leads to; if there is none, what should have been there.
fn resolve(name: &Path) -> PathBuf {
    if let Ok(path) = fs::canonicalize(name) {
        return path;
    }
    match (fs::read_link(name), name.parent()) {
        (Ok(target), Some(directory)) => directory.join(target),
        _ => name.to_owned(),
    }
}

/// The inode of the file that `name` leads to.
pub(crate) fn inode(name: &Path) -> Option<Identity> {
    fs::metadata(name).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

fn lock_error(name: &Path, error: LockError) -> OpenError {
    let warnings = error.warnings;
    OpenError { warnings, ..io_error(name, "failed to lock lockfile", &error.error) }
}

fn io_error(name: &Path, what: &str, error: &io::Error) -> OpenError {
    let text = format!("I/O error: {}: {what} ({})", name.display(), strerror(error));
    OpenError { text, warnings: Vec::new() }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;

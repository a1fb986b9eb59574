//! The directory of a file: what is renamed in it lasts once the directory is synced.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;

/// A directory that is kept open, so that no client can take the descriptor that a sync needs.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// `None` until it can be opened.
    file: Mutex<Option<File>>,
}

impl Directory {
    /// The directory that the file `path` is in, open if it may be opened.
    pub(crate) fn of(path: &Path) -> Self {
        let path = match path.parent() {
            // A name alone is in the directory where the process is.
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            parent => parent.unwrap_or(Path::new("/")),
        };
        Self { path: path.to_owned(), file: Mutex::new(File::open(path).ok()) }
    }

    /// Makes what was renamed so far last; takes a while. Where the file system knows no such thing, or
    /// the directory may not be read, there is nothing to be done, as in the reference.
    ///
    /// # Errors
    /// What open(2) or fsync(2) says.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = match file.take() {
            Some(open) => Ok(open),
            None => File::open(&self.path),
        };
        let synced = opened.and_then(|open| file.insert(open).sync_all());
        match synced.map_err(|error| (Errno::from_io_error(&error), error)) {
            Err((Some(Errno::INVAL | Errno::ROFS | Errno::ACCESS), _)) => Ok(()),
            synced => synced.map_err(|(_, error)| error),
        }
    }

    /// Another one in its place, with faults of its own; answers with the one that was there.
    #[cfg(test)]
    pub(crate) fn exchange(&self, other: Option<File>) -> Option<File> {
        std::mem::replace(&mut *self.file.lock().expect("no test panics with it"), other)
    }
}

//! The lock file beside a database file, as the reference has it: `DIR/.BASENAME.~lock~` under a
//! record lock of fcntl(2).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use rustix::process::{Flock, FlockType, fcntl_getlk};
use weir_net::error::strerror;

/// Mode of a new lock file.
const LOCK_MODE: u32 = 0o600;

/// Device and inode.
pub type Identity = (u64, u64);

/// A held lock; closing the file releases it, the file itself stays as the reference leaves it.
#[derive(Debug)]
pub struct LockFile {
    _file: File,
    identity: Identity,
}

/// Why there is no lock.
#[derive(Debug)]
pub struct LockError {
    /// The error itself.
    pub error: io::Error,
    /// Log lines of module `lockfile`.
    pub warnings: Vec<String>,
}

impl LockFile {
    /// Locks the file at `path`, which is created if needed. `held` are this process's locks: a
    /// second descriptor of one of them would release it when closed, so it is never opened.
    ///
    /// # Errors
    /// If somebody else holds it, or the file cannot be opened.
    pub fn lock(path: &Path, held: &[Identity]) -> Result<Self, LockError> {
        let fail = |steps: &[&str], error: io::Error| {
            let why = strerror(&error);
            let warning = |step: &&str| format!("{}: {step}: {why}", path.display());
            LockError { warnings: steps.iter().map(warning).collect(), error }
        };
        if let Ok(metadata) = path.metadata()
            && held.contains(&(metadata.dev(), metadata.ino()))
        {
            let because = "cannot lock file because this process has already locked it";
            let text = format!("{}: {because}", path.display());
            return Err(LockError { error: Errno::DEADLK.into(), warnings: vec![text] });
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(LOCK_MODE);
        let file = options
            .open(path)
            .map_err(|e| fail(&["failed to open lock file", "failed to lock file"], e))?;
        let metadata = file.metadata().map_err(|e| fail(&["failed to stat lock file"], e))?;
        match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { _file: file, identity: (metadata.dev(), metadata.ino()) }),
            Err(Errno::AGAIN | Errno::ACCESS) => {
                let warnings = vec![refused(path, &file)];
                Err(LockError { error: Errno::AGAIN.into(), warnings })
            }
            Err(error) => Err(fail(&["cannot lock file"], error.into())),
        }
    }

    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }
}

/// The lock file of the database file at `path`, whose symbolic links are resolved already.
pub fn lock_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.~lock~"))
}

fn refused(path: &Path, file: &File) -> String {
    let path = path.display();
    match fcntl_getlk(file, &Flock::from(FlockType::WriteLock)) {
        Ok(Some(Flock { pid: Some(pid), .. })) => {
            format!("{path}: cannot lock file because it is already locked by pid {pid}")
        }
        _ => format!("{path}: cannot lock file because it is already locked"),
    }
}

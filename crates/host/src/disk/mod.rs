//! Database files: locked, appended to, replaced.

mod directory;
mod file;
mod key_file;
mod lock;
mod replacement;
mod room;
mod side_file;
mod tail;

pub use lock::{Identity, LockError, LockFile, lock_path};

pub(crate) use directory::Directory;
pub(crate) use file::{DatabaseFile, inode};
pub use key_file::{read_keys, write_keys};
pub use replacement::{Replacement, temporary_path};
pub(crate) use side_file::{SideFile, candidates, read_candidates, remove_others, side_path};

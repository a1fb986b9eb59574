//! Database files: locked, appended to, replaced.

mod file;
mod lock;
mod replacement;

pub(crate) use file::{DatabaseFile, Identity, inode};
pub(crate) use replacement::Replacement;

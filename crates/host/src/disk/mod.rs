//! Database files: locked, appended to, replaced.

mod file;
mod lock;
mod replacement;

pub(crate) use file::{DatabaseFile, Identity, OpenError};
pub(crate) use replacement::Replacement;

//! Database files, and the helper threads that read, compact and convert them.

pub(super) mod copies;
pub(super) mod databases;
pub(super) mod jobs;
mod steps;
mod workers;

//! Database files, and the helper threads that read, receive, compact and convert
//! them.

pub(super) mod copies;
pub(super) mod databases;
pub(super) mod jobs;
pub(super) mod received;
mod steps;
mod workers;

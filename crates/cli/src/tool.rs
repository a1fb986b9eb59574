//! `ovsdb-tool`: work on database files while no server runs.

mod beside;
mod cluster;
mod commands;
mod create;
pub(crate) mod database_file;
mod keys;
mod load;
mod log_file;
mod manual;
pub(crate) mod options;
mod queries;
mod rewrite;
mod schema_file;
mod show_log;
mod transact;

pub(crate) use manual::manual;
pub(crate) use options::main;

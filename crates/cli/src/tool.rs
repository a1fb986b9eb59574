//! `ovsdb-tool`: work on database files while no server runs.

mod commands;
mod create;
mod options;

pub(crate) use options::main;

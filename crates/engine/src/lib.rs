//! Tables, operations and the commit pipeline.
//!
//! Pure: no sessions, JSON-RPC, files or clocks. Reading order:
//!
//! 1. [`database`]: rows, and what is derived from them.
//! 2. `transaction`: rows changed in place, with a journal to undo it.
//! 3. `commit` and its phases: references, garbage, `maxRows`, weak references, uniqueness.
//! 4. `links`, `index`: strong counts, weak back-links and unique indexes.
//! 5. `load`: all of that for rows from a file.

pub mod database;

mod commit;
mod digest;
mod index;
mod links;
mod load;
mod ordered;
mod transaction;

#[cfg(test)]
mod tests;

pub use database::Database;

//! Tables, operations and the commit pipeline.
//!
//! Pure: no sessions, JSON-RPC, files or clocks. Reading order:
//!
//! 1. [`database`]: rows, and what is derived from them.
//! 2. `transaction`: rows changed in place, with a journal to undo it.
//! 3. `commit` and its phases: references, garbage, `maxRows`, weak references, uniqueness.
//! 4. `links`, `index`: strong counts, weak back-links and unique indexes; [`keys`]: which rows have
//!    a value in a column that no unique index covers.
//! 5. `load`: all of that for rows from a file.
//! 6. `meter`: what all of it costs, and the most it may.
//! 7. [`execute()`]: a request's operations in order; each is a file in `ops`.
//! 8. [`rbac`]: which of them a client with a role may run.
//! 9. [`convert()`]: the rows of one schema under another.
//! 10. [`replicate`]: rows of another database made to be here too.
//!     [`follow()`]: what another server has committed, from its log. [`difference`]: all its rows,
//!     compared with those that are here.
//! 11. `view`: rows of a snapshot, for requests that take long. [`late`]: results too long for one
//!     buffer.
//! 12. [`reads`]: what a request that waits depends on. [`attempt`]: a long request on a snapshot,
//!     committed later if it still holds.
//! 13. [`planner`]: which rows a condition is checked on; `page`: in which order, and how many, a
//!     `select` answers with; [`explain()`]: what a search came to; `mutation`: what `mutate` computes.

pub mod attempt;
pub mod database;

mod commit;
pub mod convert;
pub mod difference;
mod digest;
pub mod execute;
mod explain;
mod follow;
mod index;
pub mod keys;
pub mod late;
mod links;
mod load;
mod meter;
mod mutation;
mod ops;
mod ordered;
mod page;
pub mod planner;
pub mod rbac;
pub mod reads;
pub mod replicate;
mod sorting;
mod transaction;
mod view;

#[cfg(test)]
mod tests;

pub use attempt::{Attempt, Missed};
pub use convert::{Converted, convert};
pub use database::Database;
pub use execute::{
    Done, Env, Outcome, ReadOnly, Unanswered, execute, is_read_only, judges_by_version, may_wait,
    only_reads_once, read,
};
pub use explain::{explain, explain_on};
pub use follow::{difference_of, follow, follow_entry};
pub use keys::{KeyBudget, KeyEvent, KeyKind, KeyName};
pub use late::LateReply;
pub use meter::{Watcher, Word};
pub use planner::{Search, Searches, Way, Work};
pub use rbac::Client;
pub use reads::Reads;

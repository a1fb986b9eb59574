//! The change log of a database: which state an id names, and what has changed since
//! (`docs/decisions/012`).
//!
//! Pure: the log is told of every change and of the hash of its record; whoever asks gets chunks of
//! bytes to decode wherever there is time. Reading order:
//!
//! 1. `chain`: the recorded id of a state, folded from the hashes of the file's records.
//! 2. `ids`: places, the two kinds of ids, and the volatile id.
//! 3. `entry`: the encoding of a change, as a document, with its constants.
//! 4. `encode`, `decode`: a change to bytes, on the path of every commit, and back, anywhere.
//! 5. `ring`: entries in chunks that readers share, within a budget; `states`: which of them an id names; `age`: how much of that has gone
//!    by since clients were told; `pinned`: what readers that are behind lack of what is gone.
//! 6. `changes`: what a reader gets.
//! 7. `history`: the log, two rings of which one must not depend on the other.
//! 8. `image`, `side_file`: the log beside a compacted or converted file.
//!
//! **Invariants:** which recorded ids are found is a function of the records pushed and of the
//! budgets, never of memory, time or who asked; an id that was refused is never found later.

mod age;
mod chain;
mod changes;
mod decode;
mod encode;
mod entry;
mod history;
mod ids;
mod image;
mod pinned;
mod renumbering;
mod ring;
mod side_file;
mod states;

pub use chain::{Binding, Chain, Name, RecordHash, Stretch};
pub use changes::{Changes, Entry};
pub use history::{BUDGET_BYTES_MAX, BUDGET_BYTES_MIN, Counts, History, Record, budget_of};
pub use ids::Place;
pub use image::Image;
pub use pinned::PINNED_BYTES_MAX;
pub use side_file::SideFileError;

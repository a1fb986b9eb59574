//! The oracle: the same generated input to the reference and to Weir, every output compared.

pub mod known;
pub mod pair;
pub mod replayed;
pub mod roles;
pub mod run;
pub mod shrink;
pub mod watch;

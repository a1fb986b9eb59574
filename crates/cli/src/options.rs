//! Command lines: how they are read, and the options that several programs have.

pub(crate) mod getopt;
pub(crate) mod logging;
pub(crate) mod process;
pub(crate) mod tls;

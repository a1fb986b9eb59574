//! The OVSDB log file (ovsdb(5)), bytes in, bytes out.
//!
//! ```text
//! OVSDB JSON <length> <SHA-1 of what follows>\n
//! <JSON>\n                                          length counts this newline
//! ```
//!
//! - [`record`]: that framing, both ways.
//! - [`standalone`]: what the records of a standalone database say: a schema, then transactions.
//! - [`clustered`]: what those of one server of a clustered database say.
//! - [`compact`]: when a file is worth rewriting.
//! - [`key_file`]: which keys are declared, in a file beside the database's.

pub mod clustered;
pub mod compact;
pub mod key_file;
pub mod record;
pub mod standalone;

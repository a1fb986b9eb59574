//! The scenarios of `backup.rs` with a server to which every transaction is too long for one step:
//! helpers run them all, and nobody can tell.

#[path = "backup.rs"]
mod backup;

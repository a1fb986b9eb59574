//! The numbers by which core and shell speak of things, and the time of an event.

use std::sync::Arc;

/// A client connection, numbered by the shell, never reused in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// A configured remote (listener), numbered by the core, never reused in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RemoteId(pub u64);

/// An open database, numbered by the core, never reused in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DbId(pub u64);

/// A connection that the server makes itself, numbered by the core, never reused in a process: each
/// attempt has a number of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u64);

/// An admin command in flight, numbered by the shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommandId(pub u64);

/// A piece of work in flight, numbered by the core, never reused in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkId(pub u64);

/// One buffer shared by everybody it is sent to.
pub type Bytes = Arc<Vec<u8>>;

/// Monotonic and wall time of a round; the wall clock dates log records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Microseconds on a clock that never steps back.
    pub monotonic_us: u64,
    /// Milliseconds since 1970-01-01 UTC.
    pub wall_ms: i64,
}

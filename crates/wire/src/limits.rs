//! Bounds on what peers can make the server hold.

/// Largest message accepted, in bytes; a longer one ends the connection.
pub const MESSAGE_BYTES_MAX: usize = 128 << 20;

/// Most unparsed input of all connections together, in bytes; beyond it connections wait to be
/// read.
pub const INPUT_BYTES_MAX: usize = 512 << 20;

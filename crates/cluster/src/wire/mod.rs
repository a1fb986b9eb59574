//! What members say to each other.
//!
//! A connection begins with a `hello_request` as the reference has it, in JSON, from either side;
//! its `comment` names this program and the version of what follows. Who is greeted so by a member
//! of this kind says all else in frames:
//!
//! ```text
//! frame  = length of the rest (u32, little-endian) · kind (u8) · body
//! number = LEB128, at most 10 bytes
//! bytes  = number (their length) · the bytes
//! uuid   = 16 bytes, most significant first
//! ```
//!
//! Texts of entries are spliced as they are. Who is greeted by the reference's server says nothing,
//! but for answers to its probes: the two have no common language, and need none (they meet only
//! while a cluster is moved over).

mod decode;
mod encode;
mod frame;
mod hello;
mod probes;

pub(crate) use decode::{Decoder, Said, THINGS_MAX};
pub(crate) use encode::cut_off;
pub(crate) use frame::{Begin, Frame, Step};
pub(crate) use hello::{Hello, Lane, Promise};

/// Longest frame, in bytes: what one entry or one request may have, and the entries before it. A
/// connection on which a longer one is announced is closed.
pub const FRAME_BYTES_MAX: usize = 1 << 30;

/// Why a connection's bytes make no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) String);

#[cfg(test)]
mod tests;

//! JSON-RPC 1.0 as OVSDB uses it (RFC 7047 §4): messages taken apart and put together, and the
//! names of its methods.
//!
//! A message goes: bytes framed by [`weir_json::Framer`] -> [`Message::parse`] -> [`Method::parse`].

mod message;
mod method;
pub mod trace;
mod write;

pub use message::{Malformed, Message};
pub use method::Method;
pub use write::{
    notification, reply_error, reply_error_string, reply_result, reply_result_around, request,
};

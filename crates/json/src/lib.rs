//! JSON as OVSDB speaks it: framer, validator, pull reader, values, writer.
//!
//! The path of a message: its bytes go through a [`Framer`], which finds where it ends;
//! [`validate()`] checks it once and gives a [`Text`]; from there on nothing can fail on
//! syntax, and the message is read in place, either by name ([`Text::object`],
//! [`Text::elements`]) or in one pass ([`Reader`]). [`Value`] is the owned form for what
//! is not hot.
//!
//! The rules are those of the reference's JSON library, which differ from RFC 8259 in a few places:
//!
//! - A text is one object or array ([`validate_value`] admits scalars too).
//! - A number is an integer by *value*: `1.0` and `1e3` are integers, what does not fit
//!   64 signed bits is a real (see [`number`]). `-0` is 0.
//! - Of equal keys in one object the last one counts.
//! - `\u0000` and a leading surrogate without its trailing one are errors; a lone
//!   trailing surrogate passes and becomes three bytes that are not UTF-8.
//! - Bytes are not checked to be UTF-8 at this layer.
//! - Containers nest at most [`DEPTH_MAX`] deep.
//!
//! ```
//! use weir_json::{Framer, validate};
//! let stream = br#"{"method":"echo","params":[1.0],"id":7}{"met"#;
//! let end = Framer::new().feed(stream).unwrap().unwrap();
//! let message = validate(&stream[..end]).unwrap();
//! let mut reader = message.reader();
//! assert!(reader.begin_object());
//! assert_eq!(reader.next_key().as_deref(), Some(&b"method"[..]));
//! assert_eq!(reader.string().as_deref(), Some(&b"echo"[..]));
//! assert_eq!(message.object().unwrap().get("params").unwrap().as_bytes(), b"[1.0]");
//! ```

mod error;
mod framer;
pub mod number;
mod outline;
mod reader;
mod scan;
mod string;
mod syntax;
mod text;
mod validate;
mod value;
mod write;

pub use error::Error;
pub use framer::Framer;
pub use outline::Outline;
pub use reader::Reader;
pub use syntax::check_prefix;
pub use text::{Elements, Kind, Members, Object, Text, TextBuf};
pub use validate::{validate, validate_value};
pub use value::{Value, array, object};
pub use write::{told_real, write_integer, write_real, write_string, write_string_bytes};

/// How deep arrays and objects may nest (the reference's limit); one more is an error.
pub const DEPTH_MAX: usize = 1000;

//! Reading a JSON object member by member, with the reference's complaints: the first one counts,
//! and what nobody asked for is an error.

use std::fmt::Display;

use weir_json::{Kind, Object, Text};

use crate::error::{Error, Result};

/// What a member may be: a union of the constants below.
pub type Types = u16;

/// `null`
pub const NULL: Types = 1;
/// `true` or `false`
pub const BOOL: Types = 1 << 1;
/// An integer by value.
pub const INTEGER: Types = 1 << 2;
/// Any number.
pub const NUMBER: Types = INTEGER | 1 << 3;
/// A string.
pub const STRING: Types = 1 << 4;
/// An array.
pub const ARRAY: Types = 1 << 5;
/// An object.
pub const OBJECT: Types = 1 << 6;
/// Any JSON value.
pub const ANY: Types = (1 << 7) - 1;
/// A string that is an `<id>` (RFC 7047 §3.1).
pub const ID: Types = 1 << 7;
/// The member may be missing.
pub const OPTIONAL: Types = 1 << 8;

const fn type_bit(kind: Kind) -> Types {
    match kind {
        Kind::Null => NULL,
        Kind::Bool => BOOL,
        Kind::Integer => INTEGER,
        Kind::Real => 1 << 3,
        Kind::String => STRING,
        Kind::Array => ARRAY,
        Kind::Object => OBJECT,
    }
}

/// Whether `text` is an `<id>`: a letter or `_`, then letters, digits and `_` (RFC 7047 §3.1).
pub fn is_id(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Reads the members of one object.
pub struct Parser<'a, 'w> {
    what: &'w dyn Display,
    text: Text<'a>,
    object: Option<Object<'a>>,
    used: Vec<&'static str>,
    error: Option<Error>,
}

impl<'a, 'w> Parser<'a, 'w> {
    /// Starts on `text`, which `what` names in complaints.
    pub fn new(text: Text<'a>, what: &'w dyn Display) -> Self {
        let mut parser = Self { what, text, object: text.object(), used: Vec::new(), error: None };
        if parser.object.is_none() {
            // The only complaint that quotes nothing.
            let details = format!("Parsing {what} failed: Object expected.");
            parser.error = Some(Error::plain_syntax(details));
        }
        parser
    }

    /// Records a complaint, unless there is one already.
    pub fn complain(&mut self, message: impl Display) {
        if self.error.is_none() {
            let details = format!("Parsing {} failed: {message}", self.what);
            self.error = Some(Error::syntax(self.text, details));
        }
    }

    /// Records an error of another form, unless there is one already.
    pub fn fail(&mut self, error: Error) {
        self.error.get_or_insert(error);
    }

    /// The object that is being read.
    pub fn text(&self) -> Text<'a> {
        self.text
    }

    /// Whether something was wrong so far.
    pub fn has_error(&self) -> bool {
        self.error.is_some()
    }

    /// Takes a member of one of `types`.
    pub fn member(&mut self, name: &'static str, types: Types) -> Option<Text<'a>> {
        let Some(value) = self.object.as_ref()?.get(name) else {
            if types & OPTIONAL == 0 {
                self.complain(format_args!("Required '{name}' member is missing."));
            }
            return None;
        };
        let fits = types & type_bit(value.kind()) != 0
            || types & ID != 0 && value.str().is_some_and(|text| is_id(&text));
        if !fits {
            self.complain(format_args!("Type mismatch for member '{name}'."));
            return None;
        }
        self.used.push(name);
        Some(value)
    }

    /// Takes a string member as text; bytes that are not UTF-8 are replaced.
    pub fn string(&mut self, name: &'static str, types: Types) -> Option<String> {
        let value = self.member(name, types)?;
        value.string().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Ends the reading: the first complaint, or one about members that nobody took.
    pub fn finish(mut self) -> Result<()> {
        if self.error.is_none()
            && let Some(object) = self.object.take()
        {
            let extra = object.len() - self.used.len();
            let unused = |key: &&[u8]| !self.used.iter().any(|used| used.as_bytes() == *key);
            let first = object.iter().map(|(key, _)| key).find(unused);
            if let Some(name) = first.filter(|_| extra > 0).map(String::from_utf8_lossy) {
                let others = match extra {
                    1 => String::from("is"),
                    2 => String::from("and 1 other member are"),
                    _ => format!("and {} other members are", extra - 1),
                };
                let message = format!("Member '{name}' {others} present but not allowed here.");
                self.complain(message);
            }
        }
        self.error.map_or(Ok(()), Err)
    }
}

//! Reading a JSON object member by member, with the reference's complaints: the first one counts,
//! and what nobody asked for is an error.

use std::borrow::Cow;
use std::fmt::Display;

use smallvec::SmallVec;
use weir_json::{Kind, Text};

use crate::error::{Error, Result};

/// What a member may be: a union of the constants below.
pub type Types = u16;

/// The member may be `null`.
pub const NULL: Types = 1;
/// The member may be `true` or `false`.
pub const BOOL: Types = 1 << 1;
/// The member may be an integer by value.
pub const INTEGER: Types = 1 << 2;
/// The member may be any number.
pub const NUMBER: Types = INTEGER | 1 << 3;
/// The member may be a string.
pub const STRING: Types = 1 << 4;
/// The member may be an array.
pub const ARRAY: Types = 1 << 5;
/// The member may be an object.
pub const OBJECT: Types = 1 << 6;
/// The member may be any JSON value.
pub const ANY: Types = (1 << 7) - 1;
/// The member may be a string that is an `<id>` (RFC 7047 §3.1).
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
    is_id_bytes(text.as_bytes())
}

fn is_id_bytes(text: &[u8]) -> bool {
    text.first().is_some_and(|first| !first.is_ascii_digit())
        && text.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_')
}

/// Reads the members of one object.
pub struct Parser<'a, 'w> {
    what: &'w dyn Display,
    text: Text<'a>,
    members: SmallVec<[Member<'a>; FEW]>,
    error: Option<Error>,
}

/// Most operations have no more members.
const FEW: usize = 8;

struct Member<'a> {
    key: Cow<'a, [u8]>,
    value: Text<'a>,
    /// Whether somebody has asked for the member.
    is_used: bool,
}

impl<'a, 'w> Parser<'a, 'w> {
    /// Starts on `text`, which `what` names in complaints.
    pub fn new(text: Text<'a>, what: &'w dyn Display) -> Self {
        let mut parser = Self { what, text, members: SmallVec::new(), error: None };
        if let Some(members) = text.members() {
            for (key, value) in members {
                parser.members.push(Member { key, value, is_used: false });
            }
        } else {
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
        // Of equal keys the last one counts.
        let found = self.members.iter_mut().rfind(|member| *member.key == *name.as_bytes());
        let Some(member) = found else {
            if types & OPTIONAL == 0 {
                self.complain(format_args!("Required '{name}' member is missing."));
            }
            return None;
        };
        let value = member.value;
        let fits = types & type_bit(value.kind()) != 0
            || types & ID != 0 && value.string().is_some_and(|text| is_id_bytes(&text));
        if !fits {
            self.complain(format_args!("Type mismatch for member '{name}'."));
            return None;
        }
        member.is_used = true;
        Some(value)
    }

    /// Takes a string member as text; bytes that are not UTF-8 are replaced.
    pub fn string(&mut self, name: &'static str, types: Types) -> Option<String> {
        let value = self.member(name, types)?;
        value.string().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Ends the reading: the first complaint, or one about members that nobody took.
    pub fn finish(mut self) -> Result<()> {
        if self.error.is_none() && !self.members.iter().all(|member| member.is_used) {
            self.complain_of_extra();
        }
        self.error.map_or(Ok(()), Err)
    }

    /// Names the first member, by name, that nobody took.
    fn complain_of_extra(&mut self) {
        let used: Vec<_> = self.members.iter().filter(|m| m.is_used).map(|m| &m.key).collect();
        let object = self.text.object();
        let keys = object.iter().flat_map(|object| object.iter().map(|(key, _)| key));
        let mut extra = keys.filter(|key| !used.iter().any(|used| used.as_ref() == *key));
        // None: what nobody took is an earlier value of a key that somebody took.
        let Some(name) = extra.next().map(String::from_utf8_lossy) else { return };
        let others = match extra.count() {
            0 => String::from("is"),
            1 => String::from("and 1 other member are"),
            n => format!("and {n} other members are"),
        };
        let message = format!("Member '{name}' {others} present but not allowed here.");
        self.complain(message);
    }
}

//! Owned JSON values, for what is not hot.

use crate::error::Error;
use crate::number::Number;
use crate::reader::Reader;
use crate::text::Text;
use crate::validate::validate;
use crate::write::{write_integer, write_real, write_string};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// An owned JSON value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number that is an `i64` by value.
    Integer(i64),
    /// A number that is no `i64`.
    Real(f64),
    /// A string.
    String(String),
    /// An array.
    Array(Vec<Self>),
    /// An object, sorted by the bytes of its keys.
    Object(BTreeMap<String, Self>),
}

impl Value {
    /// Parses a text: one object or array. Invalid UTF-8 in strings is replaced.
    ///
    /// # Errors
    /// As [`validate`].
    pub fn parse(input: &[u8]) -> Result<Self, Error> {
        validate(input).map(Text::to_value)
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Self {
        let string = |bytes: Cow<'_, [u8]>| String::from_utf8_lossy(&bytes).into_owned();
        if reader.begin_array() {
            let mut elements = Vec::new();
            while reader.next_element() {
                elements.push(Self::read(reader));
            }
            Self::Array(elements)
        } else if reader.begin_object() {
            let mut members = BTreeMap::new();
            while let Some(key) = reader.next_key() {
                members.insert(string(key), Self::read(reader));
            }
            Self::Object(members)
        } else if let Some(bytes) = reader.string() {
            Self::String(string(bytes))
        } else {
            let text = reader.text();
            match text.number() {
                Some(Number::Integer(i)) => Self::Integer(i),
                Some(Number::Real(r)) => Self::Real(r),
                None => text.bool().map_or(Self::Null, Self::Bool),
            }
        }
    }

    /// The value of a key, if this is an object that has it.
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.as_object()?.get(key)
    }

    /// The string, if this is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(s) => Some(s),
            _ => None,
        }
    }

    /// The integer, if this is one.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Integer(i) => Some(*i),
            _ => None,
        }
    }

    /// The value of a number of either kind.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Integer(i) => Some(*i as f64),
            Self::Real(r) => Some(*r),
            _ => None,
        }
    }

    /// The boolean, if this is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// The elements, if this is an array.
    pub fn as_array(&self) -> Option<&[Self]> {
        match self {
            Self::Array(elements) => Some(elements),
            _ => None,
        }
    }

    /// The members, if this is an object.
    pub fn as_object(&self) -> Option<&BTreeMap<String, Self>> {
        match self {
            Self::Object(members) => Some(members),
            _ => None,
        }
    }

    /// Appends the value without white space.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.write_at(out, None);
    }

    /// Appends the value on indented lines, as the reference pretty-prints: closing
    /// brackets stay on the last line, only empty objects have theirs on the next.
    pub fn write_pretty(&self, out: &mut String) {
        let mut bytes = Vec::new();
        self.write_at(&mut bytes, Some(0));
        out.push_str(&String::from_utf8_lossy(&bytes));
    }

    /// `depth`: how deep to indent, if at all.
    fn write_at(&self, out: &mut Vec<u8>, depth: Option<usize>) {
        let inner = depth.map(|depth| depth + 1);
        match self {
            Self::Null => out.extend_from_slice(b"null"),
            Self::Bool(b) => out.extend_from_slice(if *b { b"true" } else { b"false" }),
            Self::Integer(i) => write_integer(out, *i),
            Self::Real(r) => write_real(out, *r),
            Self::String(s) => write_string(out, s),
            Self::Array(elements) => {
                out.push(b'[');
                for (i, element) in elements.iter().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    new_line(out, inner);
                    element.write_at(out, inner);
                }
                out.push(b']');
            }
            Self::Object(members) => {
                out.push(b'{');
                if members.is_empty() {
                    new_line(out, inner);
                }
                for (i, (key, value)) in members.iter().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    new_line(out, inner);
                    write_string(out, key);
                    out.extend_from_slice(if depth.is_some() { b": " } else { b":" });
                    value.write_at(out, inner);
                }
                out.push(b'}');
            }
        }
    }
}

/// Begins a line for pretty-printing.
fn new_line(out: &mut Vec<u8>, depth: Option<usize>) {
    /// Spaces for each level.
    const INDENT: usize = 2;
    if let Some(depth) = depth {
        out.push(b'\n');
        out.resize(out.len() + depth * INDENT, b' ');
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Vec::new();
        self.write(&mut bytes);
        f.write_str(&String::from_utf8_lossy(&bytes))
    }
}

/// An object of these members.
pub fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    Value::Object(members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

/// An array of these elements.
pub fn array<T: Into<Value>>(elements: impl IntoIterator<Item = T>) -> Value {
    Value::Array(elements.into_iter().map(Into::into).collect())
}

impl From<bool> for Value {
    fn from(b: bool) -> Self {
        Self::Bool(b)
    }
}

impl From<i64> for Value {
    fn from(i: i64) -> Self {
        Self::Integer(i)
    }
}

impl From<f64> for Value {
    fn from(r: f64) -> Self {
        Self::Real(r)
    }
}

impl From<&str> for Value {
    fn from(s: &str) -> Self {
        Self::String(s.to_owned())
    }
}

impl From<String> for Value {
    fn from(s: String) -> Self {
        Self::String(s)
    }
}

impl From<Vec<Self>> for Value {
    fn from(elements: Vec<Self>) -> Self {
        Self::Array(elements)
    }
}

impl From<BTreeMap<String, Self>> for Value {
    fn from(members: BTreeMap<String, Self>) -> Self {
        Self::Object(members)
    }
}

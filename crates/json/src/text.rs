//! Validated JSON, read in place.

use crate::error::Error;
use crate::framer::container_len;
use crate::number::{self, Number};
use crate::reader::Reader;
use crate::value::Value;
use crate::write;
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// The kind of a value. Numbers are told apart by value: `1.0` is an integer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool,
    /// A number that is an `i64`, in any spelling.
    Integer,
    /// A number that is no `i64`.
    Real,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

/// One validated JSON value: a slice of the message without surrounding white space.
#[derive(Clone, Copy)]
pub struct Text<'a>(&'a [u8]);

impl<'a> Text<'a> {
    /// Wraps what has been validated and trimmed.
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Self(text)
    }

    /// The kind of the value.
    pub fn kind(self) -> Kind {
        match self.0.first() {
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            Some(b'"') => Kind::String,
            Some(b't' | b'f') => Kind::Bool,
            Some(b'-' | b'0'..=b'9') => match self.number() {
                Some(Number::Real(_)) => Kind::Real,
                _ => Kind::Integer,
            },
            _ => Kind::Null,
        }
    }

    /// The source text of the value.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// The value of a boolean; `None` for any other kind.
    pub fn bool(self) -> Option<bool> {
        match self.0.first() {
            Some(b't') => Some(true),
            Some(b'f') => Some(false),
            _ => None,
        }
    }

    /// A number by value.
    #[inline]
    pub(crate) fn number(self) -> Option<Number> {
        if let Some((plain, _)) = number::split_plain(self.0) {
            return Some(Number::Integer(plain));
        }
        match self.0.first() {
            Some(b'-' | b'0'..=b'9') => number::parse(self.0).ok(),
            _ => None,
        }
    }

    /// The value of an integer; `None` for any other kind.
    #[inline]
    pub fn integer(self) -> Option<i64> {
        match self.number()? {
            Number::Integer(i) => Some(i),
            Number::Real(_) => None,
        }
    }

    /// The value of a number of either kind.
    #[inline]
    pub fn real(self) -> Option<f64> {
        match self.number()? {
            Number::Integer(i) => Some(i as f64),
            Number::Real(r) => Some(r),
        }
    }

    /// A string without its escapes, which may not be UTF-8.
    #[inline]
    pub fn string(self) -> Option<Cow<'a, [u8]>> {
        self.reader().string()
    }

    /// Whether a string of this value may be, or contain, this ASCII word: it stands there as it is, or something
    /// does that is written with `\u`. Much faster than to look.
    pub fn may_say(self, word: &str) -> bool {
        let has = |word: &[u8]| memchr::memmem::find(self.as_bytes(), word).is_some();
        has(word.as_bytes()) || has(br"\u")
    }

    /// A string without its escapes, if it is UTF-8.
    pub fn str(self) -> Option<Cow<'a, str>> {
        match self.string()? {
            Cow::Borrowed(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
            Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
        }
    }

    /// The elements of an array; `None` for any other kind.
    pub fn elements(self) -> Option<Elements<'a>> {
        let mut reader = self.reader();
        reader.begin_array().then_some(Elements(reader))
    }

    /// The elements of an array of exactly `N`.
    pub fn array<const N: usize>(self) -> Option<[Self; N]> {
        let mut elements = self.elements()?;
        let mut array = [self; N];
        for element in &mut array {
            *element = elements.next()?;
        }
        elements.next().is_none().then_some(array)
    }

    /// The members of an object in source order, duplicates included.
    pub fn members(self) -> Option<Members<'a>> {
        let mut reader = self.reader();
        reader.begin_object().then_some(Members(reader))
    }

    /// The members of an object by key.
    pub fn object(self) -> Option<Object<'a>> {
        self.members().map(Object::new)
    }

    /// Appends the value in the reference's form: keys sorted, of equal keys the last one,
    /// no white space, numbers and escapes as the reference prints them. Bytes that are not
    /// UTF-8 stay. Reals lose what is beyond 15 digits.
    pub fn write(self, out: &mut Vec<u8>) {
        write::write_text(self, out);
    }

    /// The value as an owned one. Invalid UTF-8 is replaced by U+FFFD.
    pub fn to_value(self) -> Value {
        Value::read(&mut self.reader())
    }

    /// A reader positioned at this value.
    pub fn reader(self) -> Reader<'a> {
        Reader::new(self.0)
    }
}

/// One validated JSON value that owns its source, so that nobody need validate it again.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TextBuf {
    source: Vec<u8>,
    /// Where in the source the value is.
    range: Range<usize>,
}

impl TextBuf {
    /// Checks the grammar, as [`crate::validate()`] does.
    ///
    /// # Errors
    /// As there.
    pub fn validate(source: Vec<u8>) -> Result<Self, Error> {
        let text = crate::validate(&source)?.as_bytes();
        let start = source.len() - crate::validate::skip_space(&source).len();
        let range = start..start + text.len();
        Ok(Self { source, range })
    }

    /// The value that was validated.
    pub fn text(&self) -> Text<'_> {
        Text(self.source.get(self.range.clone()).unwrap_or_default())
    }

    /// The length of the source, in bytes.
    pub fn len(&self) -> usize {
        self.source.len()
    }

    /// Whether there is no value; only one made by [`Default`] has none.
    pub fn is_empty(&self) -> bool {
        self.source.is_empty()
    }
}

impl fmt::Debug for TextBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text().fmt(f)
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.0))
    }
}

/// The length of the value at the start of validated text.
#[inline]
pub(crate) fn value_len(text: &[u8]) -> usize {
    match text {
        [b'"', body @ ..] => 1 + string_len(body),
        [b'[' | b'{', ..] => container_len(text),
        _ => text
            .iter()
            .position(|c| matches!(c, b',' | b']' | b'}' | b' ' | b'\t' | b'\n' | b'\r' | b':'))
            .unwrap_or(text.len()),
    }
}

/// The length of a string from behind its opening quote to behind its closing one.
#[inline]
pub(crate) fn string_len(body: &[u8]) -> usize {
    let mut at = 0;
    while let Some(rest) = body.get(at..) {
        at += crate::scan::special(rest);
        match body.get(at) {
            Some(b'\\') => at += 2,
            _ => return body.len().min(at + 1),
        }
    }
    body.len()
}

/// The elements of an array, in order.
#[derive(Clone)]
pub struct Elements<'a>(Reader<'a>);

impl<'a> Iterator for Elements<'a> {
    type Item = Text<'a>;

    #[inline]
    fn next(&mut self) -> Option<Text<'a>> {
        self.0.next_element().then(|| self.0.text())
    }
}

/// The members of an object, in source order.
#[derive(Clone)]
pub struct Members<'a>(Reader<'a>);

impl<'a> Iterator for Members<'a> {
    type Item = (Cow<'a, [u8]>, Text<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let key = self.0.next_key()?;
        Some((key, self.0.text()))
    }
}

/// The members of an object, sorted by the bytes of their keys; of equal keys the last one.
#[derive(Clone)]
pub struct Object<'a>(Vec<(Cow<'a, [u8]>, Text<'a>)>);

impl<'a> Object<'a> {
    fn new(members: Members<'a>) -> Self {
        let mut sorted = members.collect();
        sort_members(&mut sorted);
        Self(sorted)
    }

    /// The value of the member called `key`.
    pub fn get(&self, key: &str) -> Option<Text<'a>> {
        let at = self.0.binary_search_by(|(k, _)| k.as_ref().cmp(key.as_bytes())).ok()?;
        self.0.get(at).map(|(_, value)| *value)
    }

    /// All members in the order of their keys.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], Text<'a>)> + '_ {
        self.0.iter().map(|(key, value)| (key.as_ref(), *value))
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Sorts members by the bytes of their keys and keeps the last one of equal keys. Whether
/// there was anything to do.
pub(crate) fn sort_members<T>(members: &mut Vec<(Cow<'_, [u8]>, T)>) -> bool {
    if members.is_sorted_by(|(a, _), (b, _)| a < b) {
        return false;
    }
    members.sort_by(|(a, _), (b, _)| a.cmp(b));
    // What stays of two equal neighbours is the place of the first and the value of the second.
    members.dedup_by(|later, earlier| {
        let equal = later.0 == earlier.0;
        if equal {
            std::mem::swap(&mut later.1, &mut earlier.1);
        }
        equal
    });
    true
}

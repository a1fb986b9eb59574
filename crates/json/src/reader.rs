//! Reading validated text in one pass.

use crate::text::{Kind, Text, string_len, value_len};
use crate::validate::skip_space;
use crate::{number, scan, string};
use std::borrow::Cow;

/// A pull reader over validated text: one pass, no allocation but for escaped strings.
///
/// It stands before a value, or behind one. Inside an array, [`Reader::next_element`]
/// goes to the next element, and each element must be consumed before the next call; the
/// same goes for the keys and values of an object.
#[derive(Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Self { rest: text }
    }

    /// The text from the next token on.
    #[inline(always)]
    fn token(&self) -> &'a [u8] {
        match self.rest.first() {
            Some(b' ' | b'\t' | b'\n' | b'\r') => skip_space(self.rest),
            _ => self.rest,
        }
    }

    /// Consumes one byte of punctuation if it comes next.
    #[inline(always)]
    fn take(&mut self, byte: u8) -> bool {
        let token = self.token();
        match token.split_first() {
            Some((&first, after)) if first == byte => {
                self.rest = after;
                true
            }
            _ => {
                self.rest = token;
                false
            }
        }
    }

    /// The kind of the next value; `Null` if there is none.
    pub fn kind(&self) -> Kind {
        let token = self.token();
        match token.first() {
            // Only numbers have to be looked at further.
            Some(b'-' | b'0'..=b'9') => self.clone().text().kind(),
            _ => Text::new(token).kind(),
        }
    }

    /// Consumes `[` if the next value is an array.
    #[inline]
    pub fn begin_array(&mut self) -> bool {
        self.take(b'[')
    }

    /// Inside an array, with all elements so far consumed: true if there is a next one,
    /// false if `]` was consumed.
    #[inline]
    pub fn next_element(&mut self) -> bool {
        let token = self.token();
        let (more, rest) = match token {
            [b',', after @ ..] => (true, after),
            [b']', after @ ..] => (false, after),
            _ => (!token.is_empty(), token),
        };
        self.rest = rest;
        more
    }

    /// Consumes `{` if the next value is an object.
    #[inline]
    pub fn begin_object(&mut self) -> bool {
        self.take(b'{')
    }

    /// Inside an object, with all values so far consumed: the next key, now standing
    /// before its value, or none if `}` was consumed.
    #[inline(always)]
    pub fn next_key(&mut self) -> Option<Cow<'a, [u8]>> {
        match self.token() {
            [b'}', after @ ..] => {
                self.rest = after;
                return None;
            }
            [b',', after @ ..] => self.rest = after,
            _ => {}
        }
        let key = self.string()?;
        self.take(b':');
        Some(key)
    }

    /// Consumes one whole value and returns it.
    #[inline]
    pub fn text(&mut self) -> Text<'a> {
        let token = self.token();
        match token.split_at_checked(value_len(token)) {
            Some((value, after)) if !value.is_empty() => {
                self.rest = after;
                Text::new(value)
            }
            _ => Text::new(b"null"),
        }
    }

    /// Consumes a boolean, if it is one.
    pub fn bool(&mut self) -> Option<bool> {
        self.text_if(Text::bool)
    }

    /// Consumes an integer, if it is one.
    #[inline]
    pub fn integer(&mut self) -> Option<i64> {
        let token = self.token();
        if let Some((plain, after)) = number::split_plain(token) {
            self.rest = after;
            return Some(plain);
        }
        self.text_if(Text::integer)
    }

    /// Consumes a number of either kind, if it is one.
    #[inline]
    pub fn real(&mut self) -> Option<f64> {
        self.text_if(Text::real)
    }

    /// Consumes a scalar if `read` accepts it.
    #[inline(always)]
    fn text_if<T>(&mut self, read: impl FnOnce(Text<'a>) -> Option<T>) -> Option<T> {
        if let Some(b'{' | b'[' | b'"') = self.token().first() {
            return None;
        }
        let mut ahead = self.clone();
        let value = read(ahead.text())?;
        *self = ahead;
        Some(value)
    }

    /// Consumes a string, if it is one; without its escapes, and maybe not UTF-8.
    #[inline(always)]
    pub fn string(&mut self) -> Option<Cow<'a, [u8]>> {
        let [b'"', body @ ..] = self.token() else {
            return None;
        };
        let (plain, end) = body.split_at_checked(scan::special(body))?;
        if let [b'"', after @ ..] = end {
            self.rest = after;
            return Some(Cow::Borrowed(plain));
        }
        let (string, after) = escaped_string(body)?;
        self.rest = after;
        Some(Cow::Owned(string))
    }
}

/// A string with escapes, given from behind its opening quote, and the text behind it.
#[cold]
fn escaped_string(body: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let (inside, after) = body.split_at_checked(string_len(body))?;
    let inside = inside.strip_suffix(b"\"").unwrap_or(inside);
    let mut string = Vec::with_capacity(inside.len());
    // Cannot fail on validated text.
    string::unescape(inside, &mut string).ok()?;
    Some((string, after))
}

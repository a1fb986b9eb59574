//! The reference's grammar spelled out token by token: slow, and exact about errors.
//!
//! [`crate::validate()`] only decides yes or no; after a no, [`first_error`] goes over the
//! text again and says what the reference would have said, and where.

use crate::error::Error;
use crate::number;
use crate::{DEPTH_MAX, string};

/// What the grammar expects next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    End,
    ObjectInit,
    ObjectString,
    ObjectColon,
    ObjectValue,
    ObjectNext,
    ArrayInit,
    ArrayValue,
    ArrayNext,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Container {
    Object,
    Array,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    Punctuation(u8),
    String,
    /// A number or keyword.
    Scalar,
}

struct Parser<'a> {
    input: &'a [u8],
    /// Bytes consumed: the place of an error found now.
    at: usize,
    state: State,
    stack: Vec<Container>,
    /// Whether a scalar may be the whole text.
    scalar_root: bool,
    /// The reference ends a number or keyword at the end of input with a space of its own,
    /// and counts that.
    space_added: bool,
}

/// The error that the reference finds first in a whole text, if any.
pub(crate) fn first_error(input: &[u8], scalar_root: bool) -> Option<Error> {
    let mut parser = Parser::new(input, scalar_root);
    let found = parser.run().and_then(|()| parser.finish());
    let mut error = found.err().map(|text| Error::at(input, parser.at, text))?;
    if parser.space_added {
        error.column += 1;
        error.byte += 1;
    }
    Some(error)
}

/// Checks the beginning of a text whose rest has not arrived.
///
/// # Errors
/// What the reference, which parses byte by byte, would have reported by now.
pub fn check_prefix(input: &[u8]) -> Result<(), Error> {
    let mut parser = Parser::new(input, false);
    match parser.run() {
        // Numbers and keywords at the end may go on, strings are unfinished.
        Err(text) if parser.at < input.len() => Err(Error::at(input, parser.at, text)),
        _ => Ok(()),
    }
}

impl<'a> Parser<'a> {
    fn new(input: &'a [u8], scalar_root: bool) -> Self {
        Self {
            input,
            at: 0,
            state: State::Start,
            stack: Vec::new(),
            scalar_root,
            space_added: false,
        }
    }

    fn run(&mut self) -> Result<(), String> {
        while let Some(&c) = self.input.get(self.at) {
            match c {
                b' ' | b'\t' | b'\n' | b'\r' => self.at += 1,
                b'[' | b'{' | b']' | b'}' | b':' | b',' => {
                    self.token(Token::Punctuation(c))?;
                    self.at += 1;
                }
                b'a'..=b'z' => self.keyword()?,
                b'-' | b'0'..=b'9' => self.number()?,
                b'"' => self.string()?,
                b'!'..=b'~' => return Err(format!("invalid character '{}'", char::from(c))),
                _ => return Err(format!("invalid character U+{c:04x}")),
            }
        }
        Ok(())
    }

    fn finish(&self) -> Result<(), String> {
        match self.state {
            State::Start => Err("empty input stream".to_owned()),
            State::End => Ok(()),
            _ => Err("unexpected end of input".to_owned()),
        }
    }

    /// Consumes the bytes that `belongs` accepts and returns them.
    fn take_while(&mut self, belongs: impl Fn(u8) -> bool) -> &'a [u8] {
        let rest = self.input.get(self.at..).unwrap_or_default();
        let len = rest.iter().position(|&c| !belongs(c)).unwrap_or(rest.len());
        self.at += len;
        rest.get(..len).unwrap_or_default()
    }

    fn keyword(&mut self) -> Result<(), String> {
        match self.take_while(|c| c.is_ascii_alphabetic()) {
            b"null" | b"true" | b"false" => self.scalar(),
            word => Err(format!("invalid keyword '{}'", String::from_utf8_lossy(word))),
        }
    }

    fn number(&mut self) -> Result<(), String> {
        let digits =
            self.take_while(|c| matches!(c, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'));
        number::parse(digits).map_err(|e| e.to_string())?;
        self.scalar()
    }

    fn scalar(&mut self) -> Result<(), String> {
        self.token(Token::Scalar)?;
        self.space_added = self.at == self.input.len();
        Ok(())
    }

    /// A string; its escapes are looked at when the closing quote has come.
    fn string(&mut self) -> Result<(), String> {
        self.at += 1;
        let start = self.at;
        loop {
            match self.input.get(self.at) {
                Some(b'"') => break,
                Some(b'\\') if self.at + 1 < self.input.len() => self.at += 2,
                Some(b'\\') | None => {
                    self.at = self.input.len();
                    return Err("unexpected end of input in quoted string".to_owned());
                }
                Some(&c) if c < 0x20 => {
                    return Err(format!("U+{c:04X} must be escaped in quoted string"));
                }
                Some(_) => self.at += 1,
            }
        }
        let body = self.input.get(start..self.at).unwrap_or_default();
        string::unescape(body, &mut Vec::new()).map_err(|e| e.to_string())?;
        self.token(Token::String)?;
        self.at += 1;
        Ok(())
    }

    fn token(&mut self, token: Token) -> Result<(), String> {
        use Token::Punctuation as P;
        match (self.state, token) {
            (State::Start, P(b'[' | b'{')) => self.value(token, State::End),
            (State::Start, _) if self.scalar_root => self.value(token, State::End),
            (State::Start, _) => Err("syntax error at beginning of input".to_owned()),
            (State::End, _) => Err("trailing garbage at end of input".to_owned()),
            (State::ObjectInit, P(b'}'))
            | (State::ObjectNext, P(b'}'))
            | (State::ArrayInit, P(b']'))
            | (State::ArrayNext, P(b']')) => {
                self.pop();
                Ok(())
            }
            (State::ObjectInit | State::ObjectString, Token::String) => self.go(State::ObjectColon),
            (State::ObjectInit | State::ObjectString, _) => {
                Err("syntax error parsing object expecting string".to_owned())
            }
            (State::ObjectColon, P(b':')) => self.go(State::ObjectValue),
            (State::ObjectColon, _) => Err("syntax error parsing object expecting ':'".to_owned()),
            (State::ObjectValue, _) => self.value(token, State::ObjectNext),
            (State::ObjectNext, P(b',')) => self.go(State::ObjectString),
            (State::ObjectNext, _) => Err("syntax error expecting '}' or ','".to_owned()),
            (State::ArrayInit | State::ArrayValue, _) => self.value(token, State::ArrayNext),
            (State::ArrayNext, P(b',')) => self.go(State::ArrayValue),
            (State::ArrayNext, _) => Err("syntax error expecting ']' or ','".to_owned()),
        }
    }

    fn go(&mut self, state: State) -> Result<(), String> {
        self.state = state;
        Ok(())
    }

    fn value(&mut self, token: Token, next: State) -> Result<(), String> {
        match token {
            Token::Punctuation(b'{') => self.push(Container::Object, State::ObjectInit),
            Token::Punctuation(b'[') => self.push(Container::Array, State::ArrayInit),
            Token::Punctuation(_) => Err("syntax error expecting value".to_owned()),
            Token::String | Token::Scalar => self.go(next),
        }
    }

    fn push(&mut self, container: Container, inside: State) -> Result<(), String> {
        if self.stack.len() >= DEPTH_MAX {
            return Err(depth_text());
        }
        self.stack.push(container);
        self.go(inside)
    }

    fn pop(&mut self) {
        self.stack.pop();
        self.state = match self.stack.last() {
            None => State::End,
            Some(Container::Object) => State::ObjectNext,
            Some(Container::Array) => State::ArrayNext,
        };
    }
}

/// The error text of one level too many.
pub(crate) fn depth_text() -> String {
    format!("input exceeds maximum nesting depth {DEPTH_MAX}")
}

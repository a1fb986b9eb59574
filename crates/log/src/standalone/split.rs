//! Taking a big record apart while its bytes come in: tables and rows, one after the other.
//!
//! Nobody needs the text of a record of 160 MB in one piece when every row can be read as soon as
//! it is there. This knows only the outline that writers give a record, and judges nothing: what
//! looks otherwise is [`Unusual`], and the record is then read as a whole.

use weir_json::{Framer, Text, validate, validate_value};

/// A record that must be read as a whole.
#[derive(Debug)]
pub(crate) struct Unusual;

/// What comes next in a record.
#[derive(Debug)]
pub(super) enum Item<'a> {
    /// A member whose value is no object.
    Member(&'a [u8], Text<'a>),
    /// A member whose value is an object begins: a table.
    Table(&'a [u8]),
    /// A member of a table.
    Row(&'a [u8], Text<'a>),
}

/// How far a record has been taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the record's `{`.
    Start,
    /// Among the record's members; whether there was one.
    Record(bool),
    /// Among a table's rows; whether there was one.
    Table(bool),
    /// Behind the record's `}`.
    End,
}

/// Takes a record's text in pieces and gives out its items.
#[derive(Debug)]
pub(super) struct Splitter {
    state: State,
    /// What has come of an item that is not complete.
    rest: Vec<u8>,
    /// An incomplete item is looked at again when it has this many bytes: not at every piece of a
    /// long one.
    enough: usize,
}

impl Splitter {
    pub(super) fn new() -> Self {
        Self { state: State::Start, rest: Vec::new(), enough: 0 }
    }

    /// Takes the next bytes and calls `each` with every item that they complete.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        each: impl FnMut(Item<'_>) -> Result<(), Unusual>,
    ) -> Result<(), Unusual> {
        let mut text = std::mem::take(&mut self.rest);
        text.extend_from_slice(bytes);
        if text.len() >= self.enough {
            let taken = self.items(&text, each)?;
            text.drain(..taken);
            self.enough = 2 * text.len();
        }
        self.rest = text;
        Ok(())
    }

    /// The record has ended: gives out what has been kept for later.
    pub(super) fn finish(
        mut self,
        each: impl FnMut(Item<'_>) -> Result<(), Unusual>,
    ) -> Result<(), Unusual> {
        let text = std::mem::take(&mut self.rest);
        let taken = self.items(&text, each)?;
        (self.state == State::End && taken == text.len()).then_some(()).ok_or(Unusual)
    }

    /// Gives out complete items; answers how many bytes were theirs.
    fn items(
        &mut self,
        text: &[u8],
        mut each: impl FnMut(Item<'_>) -> Result<(), Unusual>,
    ) -> Result<usize, Unusual> {
        let mut rest = skip_space(text);
        loop {
            let taken = text.len() - rest.len();
            let Some(&first) = rest.first() else { return Ok(taken) };
            let (any, depth) = match (self.state, first) {
                (State::Start, b'{') => {
                    self.state = State::Record(false);
                    rest = skip_space(&rest[1..]);
                    continue;
                }
                (State::Record(_), b'}') => {
                    self.state = State::End;
                    rest = skip_space(&rest[1..]);
                    continue;
                }
                (State::Table(_), b'}') => {
                    self.state = State::Record(true);
                    rest = skip_space(&rest[1..]);
                    continue;
                }
                (State::Record(any), _) => (any, 1),
                (State::Table(any), _) => (any, 2),
                (State::Start | State::End, _) => return Err(Unusual),
            };
            let Some(member) = member(rest, any)? else { return Ok(taken) };
            let (key, value) = member;
            if depth == 1 && value.first() == Some(&b'{') {
                each(Item::Table(key))?;
                self.state = State::Table(false);
                rest = skip_space(&value[1..]);
                continue;
            }
            let Some(length) = value_len(value)? else { return Ok(taken) };
            let (value, after) = value.split_at(length);
            let value = match value.first() {
                Some(b'{') => validate(value),
                _ => validate_value(value),
            };
            let value = value.map_err(|_| Unusual)?;
            if depth == 1 {
                each(Item::Member(key, value))?;
                self.state = State::Record(true);
            } else {
                each(Item::Row(key, value))?;
                self.state = State::Table(true);
            }
            rest = skip_space(after);
        }
    }
}

/// A key, and the text behind its colon.
type Member<'a> = (&'a [u8], &'a [u8]);

/// A key and what is behind its colon, at least one byte; `None` if that has not all come.
fn member(text: &[u8], any: bool) -> Result<Option<Member<'_>>, Unusual> {
    let text = match (any, text) {
        (true, [b',', after @ ..]) => skip_space(after),
        (true, _) => return Err(Unusual),
        (false, text) => text,
    };
    let body = match text {
        [] => return Ok(None),
        [b'"', body @ ..] => body,
        _ => return Err(Unusual),
    };
    let Some(length) = body.iter().position(|byte| *byte < b' ' || matches!(byte, b'"' | b'\\'))
    else {
        return Ok(None);
    };
    let (key, after) = body.split_at(length);
    let [b'"', after @ ..] = after else { return Err(Unusual) };
    match skip_space(after) {
        [] => Ok(None),
        [b':', value @ ..] => {
            let value = skip_space(value);
            Ok((!value.is_empty()).then_some((key, value)))
        }
        _ => Err(Unusual),
    }
}

/// How long a value is, as far as can be said before it is validated; `None` if it has not all
/// come. Arrays have no place here.
fn value_len(text: &[u8]) -> Result<Option<usize>, Unusual> {
    match text {
        [b'{', ..] => Framer::new().feed(text).map_err(|_| Unusual),
        [b'"', body @ ..] => {
            let mut escaped = false;
            let ends = |byte: &u8| {
                let ends = *byte == b'"' && !escaped;
                escaped = *byte == b'\\' && !escaped;
                ends
            };
            Ok(body.iter().position(ends).map(|at| at + 2))
        }
        [b'[', ..] => Err(Unusual),
        _ => Ok(text.iter().position(|byte| matches!(byte, b',' | b'}') || is_space(*byte))),
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn skip_space(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|byte| !is_space(*byte)).unwrap_or(text.len());
    text.get(start..).unwrap_or_default()
}

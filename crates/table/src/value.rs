//! Values of a database: from JSON as a server sends it to the formats of cells, and their order.

use std::cmp::Ordering;

use weir_data::{AtomType, Uuid};
use weir_json::{Reader, Text, write_integer, write_real, write_string_bytes};

use crate::cell::Shape;

/// An element of a set, or a key with its value.
pub(crate) type Entry<'a> = (Text<'a>, Option<Text<'a>>);

/// The entries of a value, in the order in which they are written there.
enum Entries<'a> {
    One(Option<Text<'a>>),
    Set(Reader<'a>),
    Map(Reader<'a>),
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        match self {
            Self::One(one) => one.take().map(|atom| (atom, None)),
            Self::Set(reader) => reader.next_element().then(|| (reader.text(), None)),
            Self::Map(reader) => {
                let is_pair = reader.next_element() && reader.begin_array();
                let key = (is_pair && reader.next_element()).then(|| reader.text())?;
                let value = reader.next_element().then(|| reader.text());
                // Behind the pair; a third element ends the map.
                reader.next_element();
                Some((key, value))
            }
        }
    }
}

/// The entries of a value. What is not written as RFC 7047 section 5.1 says counts as one atom.
fn entries<'a>(value: Text<'a>, shape: Shape) -> Entries<'a> {
    let tag: &[u8] = if shape.value.is_some() { b"map" } else { b"set" };
    let mut reader = value.reader();
    let is_tagged = reader.begin_array()
        && reader.next_element()
        && reader.string().is_some_and(|it| it.as_ref() == tag)
        && reader.next_element()
        && reader.begin_array();
    match (is_tagged, shape.value) {
        (false, _) => Entries::One(Some(value)),
        (true, None) => Entries::Set(reader),
        (true, Some(_)) => Entries::Map(reader),
    }
}

/// Calls `each` with the entries of a value in their order, however the server sent them; what
/// it is given to write to is emptied again when the server's order turns out to be another one.
pub(crate) fn for_each_sorted<'a>(
    value: Text<'a>,
    shape: Shape,
    out: &mut Vec<u8>,
    mut each: impl FnMut(&mut Vec<u8>, bool, Entry<'a>),
) {
    let start = out.len();
    let mut last: Option<Text<'a>> = None;
    for entry in entries(value, shape) {
        if last.is_some_and(|last| compare_atoms(last, entry.0, shape.key).is_gt()) {
            out.truncate(start);
            let mut sorted: Vec<Entry<'a>> = entries(value, shape).collect();
            sorted.sort_by(|a, b| compare_atoms(a.0, b.0, shape.key));
            for (place, entry) in sorted.into_iter().enumerate() {
                each(out, place == 0, entry);
            }
            return;
        }
        each(out, last.is_none(), entry);
        last = Some(entry.0);
    }
}

/// Appends a value as ovs-vsctl(8) writes it: sets in `[]`, maps in `{}`, strings that could be
/// taken for something else in quotes.
pub fn write_string(value: Text<'_>, shape: Shape, out: &mut Vec<u8>) {
    let (open, close) = if shape.value.is_some() { (b'{', b'}') } else { (b'[', b']') };
    if shape.many {
        out.push(open);
    }
    let inside = out.len();
    for_each_sorted(value, shape, out, |out, first, (key, of_key)| {
        if !first {
            out.extend_from_slice(b", ");
        }
        write_atom(key, shape.key, out);
        if let (Some(of_key), Some(ty)) = (of_key, shape.value) {
            out.push(b'=');
            write_atom(of_key, ty, out);
        }
    });
    if shape.many {
        out.push(close);
    } else if out.len() == inside {
        out.extend_from_slice(&[open, close]);
    }
}

/// Appends a value without brackets and quotes.
pub fn write_bare(value: Text<'_>, shape: Shape, out: &mut Vec<u8>) {
    for_each_sorted(value, shape, out, |out, first, (key, of_key)| {
        if !first {
            out.push(b' ');
        }
        write_bare_atom(key, shape.key, out);
        if let (Some(of_key), Some(ty)) = (of_key, shape.value) {
            out.push(b'=');
            write_bare_atom(of_key, ty, out);
        }
    });
}

/// Appends a value as JSON. Reals are written as such even where they have no fraction.
pub fn write_json(value: Text<'_>, shape: Shape, out: &mut Vec<u8>) {
    let has_reals = shape.key == AtomType::Real || shape.value == Some(AtomType::Real);
    if !has_reals {
        return value.write(out);
    }
    let write_atom = |atom: Text<'_>, ty: AtomType, out: &mut Vec<u8>| match atom.real() {
        Some(real) if ty == AtomType::Real => write_real(out, real),
        _ => atom.write(out),
    };
    let count = entries(value, shape).count();
    if let (1, None) = (count, shape.value) {
        return for_each_sorted(value, shape, out, |out, _, (atom, _)| {
            write_atom(atom, shape.key, out);
        });
    }
    let tag: &[u8] = if shape.value.is_some() { b"[\"map\",[" } else { b"[\"set\",[" };
    out.extend_from_slice(tag);
    for_each_sorted(value, shape, out, |out, first, (key, of_key)| {
        if !first {
            out.push(b',');
        }
        if let (Some(of_key), Some(ty)) = (of_key, shape.value) {
            out.push(b'[');
            write_atom(key, shape.key, out);
            out.push(b',');
            write_atom(of_key, ty, out);
            out.push(b']');
        } else {
            write_atom(key, shape.key, out);
        }
    });
    out.extend_from_slice(b"]]");
}

/// Appends one atom as ovs-vsctl(8) writes it.
fn write_atom(atom: Text<'_>, ty: AtomType, out: &mut Vec<u8>) {
    if ty == AtomType::String
        && let Some(string) = atom.string()
        && needs_quotes(&string)
    {
        return write_string_bytes(out, &string);
    }
    write_bare_atom(atom, ty, out);
}

fn write_bare_atom(atom: Text<'_>, ty: AtomType, out: &mut Vec<u8>) {
    match ty {
        AtomType::String => match atom.string() {
            Some(string) => out.extend_from_slice(&string),
            None => atom.write(out),
        },
        AtomType::Uuid => match uuid_text(atom) {
            Some(text) => out.extend_from_slice(&text),
            None => atom.write(out),
        },
        AtomType::Integer => match atom.integer() {
            Some(integer) => write_integer(out, integer),
            None => atom.write(out),
        },
        AtomType::Real => match atom.real() {
            Some(real) => write_real(out, real),
            None => atom.write(out),
        },
        AtomType::Boolean => atom.write(out),
    }
}

/// Whether a string could be taken for something else: it is no identifier, or it is a boolean or
/// a UUID.
pub fn needs_quotes(string: &[u8]) -> bool {
    let is_id = |c: &u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b'.');
    let Some(first) = string.first() else { return true };
    !(first.is_ascii_alphabetic() || *first == b'_')
        || !string.iter().all(is_id)
        || matches!(string, b"true" | b"false")
        || Uuid::parse_bytes(string).is_some()
}

/// `X` of `["uuid", X]`.
pub(crate) fn uuid_text(atom: Text<'_>) -> Option<std::borrow::Cow<'_, [u8]>> {
    let mut parts = atom.elements()?;
    parts.next()?;
    parts.next()?.string()
}

/// The order of two atoms of one type.
fn compare_atoms(a: Text<'_>, b: Text<'_>, ty: AtomType) -> Ordering {
    match ty {
        AtomType::Integer => a.integer().cmp(&b.integer()),
        AtomType::Real => a.real().partial_cmp(&b.real()).unwrap_or(Ordering::Equal),
        AtomType::Boolean => a.bool().cmp(&b.bool()),
        AtomType::String => a.string().cmp(&b.string()),
        AtomType::Uuid => uuid_text(a).cmp(&uuid_text(b)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_json::validate_value;

    const SET: Shape = Shape { key: AtomType::String, value: None, many: true };
    const OPTIONAL: Shape = Shape { key: AtomType::Integer, value: None, many: false };
    const MAP: Shape = Shape { key: AtomType::String, value: Some(AtomType::String), many: true };

    fn text(json: &str) -> Text<'_> {
        validate_value(json.as_bytes()).expect("JSON")
    }

    fn string(json: &str, shape: Shape) -> String {
        let mut out = vec![];
        write_string(text(json), shape, &mut out);
        String::from_utf8(out).expect("UTF-8")
    }

    fn bare(json: &str, shape: Shape) -> String {
        let mut out = vec![];
        write_bare(text(json), shape, &mut out);
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn values_as_ovs_vsctl_writes_them() {
        let real = Shape { key: AtomType::Real, ..OPTIONAL };
        for (json, shape, expected) in [
            (r#""a""#, Shape::STRING, "a"),
            (r#""a b""#, Shape::STRING, "\"a b\""),
            (r#""""#, Shape::STRING, "\"\""),
            (r#""true""#, Shape::STRING, "\"true\""),
            (r#""0a""#, Shape::STRING, "\"0a\""),
            (r#""a-b.c_0""#, Shape::STRING, "a-b.c_0"),
            (r#"["set",[]]"#, OPTIONAL, "[]"),
            ("7", OPTIONAL, "7"),
            ("1000000000000000", real, "1e+15"),
            ("0.5", real, "0.5"),
            (r#"["set",["b","a c"]]"#, SET, "[\"a c\", b]"),
            (r#""a""#, SET, "[a]"),
            (r#"["set",[]]"#, SET, "[]"),
            (r#"["map",[["k","v"],["b","x y"]]]"#, MAP, "{b=\"x y\", k=v}"),
            (r#"["map",[]]"#, MAP, "{}"),
        ] {
            assert_eq!(string(json, shape), expected, "{json}");
        }
    }

    #[test]
    fn bare_values() {
        for (json, shape, expected) in [
            (r#""a b""#, Shape::STRING, "a b"),
            (r#"["set",[]]"#, SET, ""),
            (r#"["set",["b","a c"]]"#, SET, "a c b"),
            (r#"["map",[["k","v"],["b","x y"]]]"#, MAP, "b=x y k=v"),
            (
                r#"["uuid","00000000-0000-0000-0000-000000000001"]"#,
                Shape::UUID,
                "00000000-0000-0000-0000-000000000001",
            ),
        ] {
            assert_eq!(bare(json, shape), expected, "{json}");
        }
    }

    #[test]
    fn reals_stay_reals_in_json() {
        let set = Shape { key: AtomType::Real, value: None, many: true };
        for (json, expected) in [
            ("1000000000000000", "1e+15"),
            (r#"["set",[2,0.5,1000000000000000]]"#, r#"["set",[0.5,2,1e+15]]"#),
            (r#"["set",[]]"#, r#"["set",[]]"#),
        ] {
            let mut out = vec![];
            write_json(text(json), set, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }
}

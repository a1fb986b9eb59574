//! Datums from JSON: quickly while all is well, and again for an exact complaint.

use weir_json::{Kind, Reader, Text};

use crate::atom::{Atom, AtomRef, AtomType};
use crate::datum::{Datum, DatumRef, Entries};
use crate::error::{Error, Result};
use crate::sorted::{Duplicate, Pair, Sorted};
use crate::symbols::SymbolTable;
use crate::types::{BaseType, ColumnType, Constraint};
use crate::uuid::Uuid;

/// Reads a value in one pass. `None` if anything is wrong with it: then it is read again, slowly,
/// for the reference's complaint.
pub(super) fn read_once(
    reader: &mut Reader<'_>,
    ty: &ColumnType,
    symbols: Option<&mut SymbolTable<'_>>,
    like: DatumRef<'_>,
) -> Option<Datum> {
    let mut behind_tag = reader.clone();
    if !begin_tagged(&mut behind_tag, if ty.is_map() { "map" } else { "set" }) {
        return match &ty.value {
            None => read_element(reader, &ty.key, symbols, like.scalar()).map(Datum::One),
            Some(_) => None,
        };
    }
    *reader = behind_tag;
    if !reader.next_element() || !reader.begin_array() {
        return None;
    }
    let datum = match &ty.value {
        None => Datum::set(read_atoms(reader, &ty.key, symbols, like.entries())?),
        Some(value) => Datum::map(read_pairs(reader, (&ty.key, value), symbols, like.entries())?),
    };
    let count = datum.as_ref().len();
    let fits = count >= ty.n_min as usize && count <= ty.n_max as usize;
    if !fits || reader.next_element() {
        return None;
    }
    Some(if datum.as_ref() == like { like.to_datum() } else { datum })
}

/// Reads a set's elements from behind the `[`.
fn read_atoms(
    reader: &mut Reader<'_>,
    base: &BaseType,
    mut symbols: Option<&mut SymbolTable<'_>>,
    mut like: Entries<'_>,
) -> Option<Sorted<Atom>> {
    let mut atoms = Gathered::new();
    while reader.next_element() {
        let like = key_of(like.next());
        atoms.push(read_element(reader, base, symbols.as_deref_mut(), like)?);
    }
    Sorted::from_unsorted(atoms.into_vec()).ok()
}

/// Reads a map's pairs from behind the `[`.
fn read_pairs(
    reader: &mut Reader<'_>,
    (key, value): (&BaseType, &BaseType),
    mut symbols: Option<&mut SymbolTable<'_>>,
    mut like: Entries<'_>,
) -> Option<Sorted<Pair>> {
    let mut pairs = Gathered::new();
    while reader.next_element() {
        if !reader.begin_array() || !reader.next_element() {
            return None;
        }
        let like = like.next();
        let key = read_element(reader, key, symbols.as_deref_mut(), key_of(like))?;
        if !reader.next_element() {
            return None;
        }
        let like = like.and_then(|entry| entry.1);
        let value = read_element(reader, value, symbols.as_deref_mut(), like)?;
        if reader.next_element() {
            return None;
        }
        pairs.push((key, value));
    }
    Sorted::from_unsorted(pairs.into_vec()).ok()
}

/// Goes to behind the string in `["TAG"`.
fn begin_tagged(reader: &mut Reader<'_>, tag: &str) -> bool {
    reader.begin_array()
        && reader.next_element()
        && reader.string().is_some_and(|found| *found == *tag.as_bytes())
}

fn key_of<'a>(entry: Option<(AtomRef<'a>, Option<AtomRef<'a>>)>) -> Option<AtomRef<'a>> {
    entry.map(|(key, _)| key)
}

/// As [`read_atom`], but all errors are alike, and text that `like` has is shared with it.
fn read_element(
    reader: &mut Reader<'_>,
    base: &BaseType,
    symbols: Option<&mut SymbolTable<'_>>,
    like: Option<AtomRef<'_>>,
) -> Option<Atom> {
    match base.ty {
        AtomType::String => {
            let text = reader.string()?;
            // What another value of this type has needs no checks.
            if let Some(AtomRef::String(like)) = like
                && like.as_str().as_bytes() == &*text
            {
                return Some(Atom::String(like.clone()));
            }
            let atom = Atom::string(std::str::from_utf8(&text).ok()?);
            return base.check(atom.as_ref()).is_ok().then_some(atom);
        }
        AtomType::Uuid => {
            let mut ahead = reader.clone();
            if let Some(uuid) = read_uuid(&mut ahead) {
                *reader = ahead;
                return Some(Atom::Uuid(uuid));
            }
        }
        _ => {}
    }
    let atom = Atom::read(reader, base.ty, symbols).ok()?;
    if let (Constraint::Integer { min, max }, Atom::Integer(value)) = (&base.constraint, &atom) {
        return (min..=max).contains(&value).then_some(atom);
    }
    base.check(atom.as_ref()).is_ok().then_some(atom)
}

/// Reads `["uuid","..."]`.
fn read_uuid(reader: &mut Reader<'_>) -> Option<Uuid> {
    if !begin_tagged(reader, "uuid") || !reader.next_element() {
        return None;
    }
    let uuid = Uuid::parse_bytes(&reader.string()?)?;
    (!reader.next_element()).then_some(uuid)
}

/// Elements of which only the last one tells how many there are: a few wait here, so that their
/// vector is allocated once and with the right size.
struct Gathered<T> {
    few: [Option<T>; GATHERED_FEW],
    len: usize,
    many: Vec<T>,
}

const GATHERED_FEW: usize = 8;

impl<T> Gathered<T> {
    fn new() -> Self {
        Self { few: std::array::from_fn(|_| None), len: 0, many: Vec::new() }
    }

    fn push(&mut self, element: T) {
        if let Some(place) = self.few.get_mut(self.len) {
            *place = Some(element);
        } else {
            if self.many.is_empty() {
                self.many.reserve(4 * GATHERED_FEW);
                self.many.extend(self.few.iter_mut().filter_map(Option::take));
            }
            self.many.push(element);
        }
        self.len += 1;
    }

    fn into_vec(self) -> Vec<T> {
        if !self.many.is_empty() {
            return self.many;
        }
        let mut all = Vec::with_capacity(self.len);
        all.extend(self.few.into_iter().flatten());
        all
    }
}

/// Reads a value with the reference's complaint about whatever is wrong.
pub(super) fn read_carefully(
    text: Text<'_>,
    ty: &ColumnType,
    symbols: Option<&mut SymbolTable<'_>>,
) -> Result<Datum> {
    if ty.is_map() {
        return parse_map(text, ty, symbols);
    }
    if is_tagged(text, "set") {
        return parse_set(text, ty, symbols);
    }
    read_atom(&mut text.reader(), &ty.key, symbols).map(Datum::One)
}

/// Whether the value is an array that begins with this string.
fn is_tagged(text: Text<'_>, tag: &str) -> bool {
    begin_tagged(&mut text.reader(), tag)
}

/// The array in `["set",[...]]` or `["map",[...]]`, its length checked against the type.
fn tagged_array<'a>(text: Text<'a>, tag: &str, ty: &ColumnType) -> Result<Text<'a>> {
    let mut parts = text.elements().into_iter().flatten();
    let inner = match (is_tagged(text, tag), parts.nth(1), parts.next()) {
        (true, Some(inner), None) if inner.kind() == Kind::Array => inner,
        _ => return Err(Error::syntax(text, format!("expected [\"{tag}\", <array>]"))),
    };
    if ty.n_min == 0 && ty.n_max == ColumnType::UNLIMITED {
        return Ok(inner);
    }
    let n = inner.elements().map_or(0, Iterator::count);
    if n >= ty.n_min as usize && n <= ty.n_max as usize {
        Ok(inner)
    } else if ty.n_min == 1 && ty.n_max == 1 {
        let details = format!("{tag} must have exactly one member but {n} are present");
        Err(Error::syntax(text, details))
    } else {
        let (min, max) = (ty.n_min, ty.n_max);
        let details = format!("{tag} must have {min} to {max} members but {n} are present");
        Err(Error::syntax(text, details))
    }
}

fn read_atom(
    reader: &mut Reader<'_>,
    base: &BaseType,
    symbols: Option<&mut SymbolTable<'_>>,
) -> Result<Atom> {
    let atom = Atom::read(reader, base.ty, symbols)?;
    base.check(atom.as_ref())?;
    Ok(atom)
}

fn parse_set(
    text: Text<'_>,
    ty: &ColumnType,
    mut symbols: Option<&mut SymbolTable<'_>>,
) -> Result<Datum> {
    let mut reader = tagged_array(text, "set", ty)?.reader();
    let mut atoms = Vec::new();
    reader.begin_array();
    while reader.next_element() {
        atoms.push(read_atom(&mut reader, &ty.key, symbols.as_deref_mut())?);
    }
    match Sorted::from_unsorted(atoms) {
        Ok(run) => Ok(Datum::set(run)),
        Err(Duplicate) => Err(Error::ovsdb("set contains duplicate")),
    }
}

fn parse_map(
    text: Text<'_>,
    ty: &ColumnType,
    mut symbols: Option<&mut SymbolTable<'_>>,
) -> Result<Datum> {
    let Some(value_type) = &ty.value else { return Ok(Datum::Empty) };
    let mut reader = tagged_array(text, "map", ty)?.reader();
    let mut pairs = Vec::new();
    reader.begin_array();
    while reader.next_element() {
        let pair = reader.text();
        if pair.elements().map(Iterator::count) != Some(2) {
            return Err(Error::syntax(pair, "expected 2-element array"));
        }
        let mut parts = pair.reader();
        parts.begin_array();
        parts.next_element();
        let key = read_atom(&mut parts, &ty.key, symbols.as_deref_mut())?;
        parts.next_element();
        let value = read_atom(&mut parts, value_type, symbols.as_deref_mut())?;
        pairs.push((key, value));
    }
    match Sorted::from_unsorted(pairs) {
        Ok(run) => Ok(Datum::map(run)),
        Err(Duplicate) => Err(Error::ovsdb("map contains duplicate key")),
    }
}

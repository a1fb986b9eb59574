//! Datums: the value of one column, a scalar, set or map (RFC 7047 §5.1 `<value>`).

use std::cmp::Ordering;
use std::sync::Arc;

use weir_json::{Kind, Reader, Text};

use crate::atom::{Atom, AtomRef};
use crate::error::{Error, Result};
use crate::sorted::{self, Duplicate, Pair, Sorted};
use crate::symbols::SymbolTable;
use crate::types::{BaseType, ColumnType, Constraint};
use crate::{AtomType, Uuid};

/// An owned column value. What a lone element or nothing is (scalar, set or map) only the column's
/// type says.
///
/// **Invariants:** a `Set` has two elements or more, a `Map` at least one.
#[derive(Clone, Debug, Default)]
pub enum Datum {
    /// The empty set or map.
    #[default]
    Empty,
    /// A scalar, or a set of one element.
    One(Atom),
    /// A set of two or more.
    Set(Arc<Sorted<Atom>>),
    /// A map of one or more.
    Map(Arc<Sorted<Pair>>),
}

/// A borrowed column value: the only way that others look into one.
#[derive(Clone, Copy, Debug)]
pub struct DatumRef<'a>(&'a Datum);

impl Datum {
    /// A set of the run's elements, in its canonical form.
    pub fn set(run: Sorted<Atom>) -> Self {
        match run.len() {
            0 => Self::Empty,
            1 => run.first().cloned().map_or(Self::Empty, Self::One),
            _ => Self::Set(Arc::new(run)),
        }
    }

    /// A map of the run's pairs, in its canonical form.
    pub fn map(run: Sorted<Pair>) -> Self {
        if run.is_empty() { Self::Empty } else { Self::Map(Arc::new(run)) }
    }

    /// The default value of a column (RFC 7047 §5.2.1): empty if that is allowed, else one element.
    pub fn default_of(ty: &ColumnType) -> Self {
        if ty.n_min == 0 {
            return Self::Empty;
        }
        let key = Atom::default_of(ty.key.ty);
        match &ty.value {
            None => Self::One(key),
            Some(value) => Self::map(Sorted::from_sorted(vec![(key, Atom::default_of(value.ty))])),
        }
    }

    /// Borrows the datum.
    pub fn as_ref(&self) -> DatumRef<'_> {
        DatumRef(self)
    }

    /// Parses a value of type `ty` and checks its constraints, errors as the reference's.
    pub fn parse(
        text: Text<'_>,
        ty: &ColumnType,
        symbols: Option<&mut SymbolTable<'_>>,
    ) -> Result<Self> {
        Self::read(&mut text.reader(), ty, symbols)
    }

    /// As [`Datum::parse`], from a reader, which is left behind the value.
    pub fn read(
        reader: &mut Reader<'_>,
        ty: &ColumnType,
        symbols: Option<&mut SymbolTable<'_>>,
    ) -> Result<Self> {
        Self::read_like(reader, ty, symbols, Self::Empty.as_ref())
    }

    /// As [`Datum::read`]; what `like`, another value of the type, has at the same place is shared
    /// with it. In the rows of one table that is often much, map keys above all.
    pub fn read_like(
        reader: &mut Reader<'_>,
        ty: &ColumnType,
        mut symbols: Option<&mut SymbolTable<'_>>,
        like: DatumRef<'_>,
    ) -> Result<Self> {
        let mut ahead = reader.clone();
        if let Some(datum) = read_once(&mut ahead, ty, symbols.as_deref_mut(), like) {
            *reader = ahead;
            return Ok(datum);
        }
        let text = reader.text();
        if ty.is_map() {
            return parse_map(text, ty, symbols);
        }
        if is_tagged(text, "set") {
            return parse_set(text, ty, symbols);
        }
        read_atom(&mut text.reader(), &ty.key, symbols).map(Self::One)
    }

    /// Adds an element to a set; false if it was there.
    pub fn set_insert(&mut self, atom: Atom) -> bool {
        match self {
            Self::Empty => *self = Self::One(atom),
            Self::One(one) => {
                let pair = match (*one).cmp(&atom) {
                    Ordering::Equal => return false,
                    Ordering::Less => vec![one.clone(), atom],
                    Ordering::Greater => vec![atom, one.clone()],
                };
                *self = Self::Set(Arc::new(Sorted::from_sorted(pair)));
            }
            Self::Set(run) if run.contains(atom.as_ref()) => return false,
            Self::Set(run) => {
                Arc::make_mut(run).insert(atom);
            }
            Self::Map(_) => return false,
        }
        true
    }

    /// Removes an element from a set.
    pub fn set_remove(&mut self, key: AtomRef<'_>) -> Option<Atom> {
        match self {
            Self::One(one) if one.as_ref() == key => match std::mem::take(self) {
                Self::One(one) => Some(one),
                _ => None,
            },
            Self::Set(run) if run.contains(key) => {
                let run = Arc::make_mut(run);
                let removed = run.remove(key);
                if let (1, Some(last)) = (run.len(), run.first().cloned()) {
                    *self = Self::One(last);
                }
                removed
            }
            _ => None,
        }
    }

    /// Adds a pair to a map, replacing one with the same key; returns what it replaced.
    pub fn map_insert(&mut self, key: Atom, value: Atom) -> Option<Pair> {
        match self {
            Self::Map(run) => Arc::make_mut(run).insert((key, value)),
            _ => {
                *self = Self::map(Sorted::from_sorted(vec![(key, value)]));
                None
            }
        }
    }

    /// Removes the pair with this key from a map.
    pub fn map_remove(&mut self, key: AtomRef<'_>) -> Option<Pair> {
        let Self::Map(run) = self else { return None };
        if !run.contains(key) {
            return None;
        }
        let run = Arc::make_mut(run);
        let removed = run.remove(key);
        if run.is_empty() {
            *self = Self::Empty;
        }
        removed
    }

    /// Applies a difference as the log and `update2` write it (ovsdb-server(7) §4.1.14): for
    /// columns of at most one element the new value; for sets the elements of only one side; for
    /// maps the pairs of only one side and those that changed, with their new value.
    pub fn apply_diff(&mut self, diff: &Self, ty: &ColumnType) {
        if !ty.is_composite() {
            *self = diff.clone();
            return;
        }
        for (key, value) in diff.as_ref().entries() {
            match value {
                None => {
                    if self.set_remove(key).is_none() {
                        self.set_insert(key.to_atom());
                    }
                }
                Some(value) if self.as_ref().value_of(key) == Some(value) => {
                    self.map_remove(key);
                }
                Some(value) => {
                    self.map_insert(key.to_atom(), value.to_atom());
                }
            }
        }
    }
}

impl PartialEq for Datum {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Empty, Self::Empty) => true,
            (Self::One(a), Self::One(b)) => a == b,
            (Self::Set(a), Self::Set(b)) => Arc::ptr_eq(a, b) || a == b,
            (Self::Map(a), Self::Map(b)) => Arc::ptr_eq(a, b) || a == b,
            _ => false,
        }
    }
}

impl Eq for Datum {}

impl PartialEq for DatumRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for DatumRef<'_> {}

impl<'a> DatumRef<'a> {
    /// Number of elements or pairs.
    #[inline]
    pub fn len(self) -> usize {
        match self.0 {
            Datum::Empty => 0,
            Datum::One(_) => 1,
            Datum::Set(run) => run.len(),
            Datum::Map(run) => run.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        matches!(self.0, Datum::Empty)
    }

    /// The only element of a scalar or a set of one.
    pub fn scalar(self) -> Option<AtomRef<'a>> {
        match self.0 {
            Datum::One(atom) => Some(atom.as_ref()),
            _ => None,
        }
    }

    /// A cheap owned copy: runs are shared.
    pub fn to_datum(self) -> Datum {
        self.0.clone()
    }

    /// Elements (value `None`) or pairs, in ascending order of keys.
    #[inline]
    pub fn entries(self) -> Entries<'a> {
        match self.0 {
            Datum::Empty => Entries::Few(None),
            Datum::One(atom) => Entries::Few(Some(atom)),
            Datum::Set(run) => Entries::Set(run.iter()),
            Datum::Map(run) => Entries::Map(run.iter()),
        }
    }

    /// Elements of a set, or keys of a map, in ascending order.
    pub fn keys(self) -> impl Iterator<Item = AtomRef<'a>> {
        self.entries().map(|(key, _)| key)
    }

    /// Whether a set has the element or a map the key.
    pub fn contains(self, key: AtomRef<'_>) -> bool {
        match self.0 {
            Datum::Empty => false,
            Datum::One(atom) => atom.as_ref() == key,
            Datum::Set(run) => run.contains(key),
            Datum::Map(run) => run.contains(key),
        }
    }

    /// The value of a map's key.
    pub fn value_of(self, key: AtomRef<'_>) -> Option<AtomRef<'a>> {
        match self.0 {
            Datum::Map(run) => run.get(key).map(|pair| pair.1.as_ref()),
            _ => None,
        }
    }

    /// Whether the entry (an element, or a key with this value) is present.
    pub fn has_entry(self, (key, value): (AtomRef<'_>, Option<AtomRef<'_>>)) -> bool {
        match value {
            None => self.contains(key),
            Some(_) => self.value_of(key) == value,
        }
    }

    /// Whether every entry of `other` is here (RFC 7047 §5.1 `includes`).
    pub fn includes_all(self, other: DatumRef<'_>) -> bool {
        other.len() <= self.len() && other.entries().all(|entry| self.has_entry(entry))
    }

    /// Whether no entry of `other` is here (RFC 7047 §5.1 `excludes`).
    pub fn excludes_all(self, other: DatumRef<'_>) -> bool {
        if other.len() > self.len() {
            return !self.entries().any(|entry| other.has_entry(entry));
        }
        !other.entries().any(|entry| self.has_entry(entry))
    }

    /// Whether this is the default value of a column of type `ty`.
    pub fn is_default(self, ty: &ColumnType) -> bool {
        match self.0 {
            Datum::Empty => ty.n_min == 0,
            Datum::One(atom) => ty.n_min == 1 && atom.as_ref().is_default(),
            Datum::Set(_) => false,
            Datum::Map(run) => {
                let is_default =
                    |(key, value): &Pair| key.as_ref().is_default() && value.as_ref().is_default();
                run.len() == ty.n_min as usize && run.iter().all(is_default)
            }
        }
    }

    /// Appends the JSON form (RFC 7047 §5.1): a lone element of a set bare, keys ascending.
    pub fn write(self, ty: &ColumnType, out: &mut Vec<u8>) {
        if let (Some(atom), false) = (self.scalar(), ty.is_map()) {
            return atom.write(out);
        }
        write_entries(self.entries(), ty.is_map(), out);
    }
}

/// Appends `["set",[...]]` or `["map",[[k,v],...]]`.
pub(crate) fn write_entries<'a>(
    entries: impl Iterator<Item = (AtomRef<'a>, Option<AtomRef<'a>>)>,
    is_map: bool,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(if is_map { b"[\"map\",[" } else { b"[\"set\",[" });
    for (i, (key, value)) in entries.enumerate() {
        if i > 0 {
            out.push(b',');
        }
        match value {
            None => key.write(out),
            Some(value) => {
                out.push(b'[');
                key.write(out);
                out.push(b',');
                value.write(out);
                out.push(b']');
            }
        }
    }
    out.extend_from_slice(b"]]");
}

impl Ord for DatumRef<'_> {
    /// Shorter first, then keys, then values: the reference's order of datums of one type.
    fn cmp(&self, other: &Self) -> Ordering {
        self.len()
            .cmp(&other.len())
            .then_with(|| self.keys().cmp(other.keys()))
            .then_with(|| self.entries().map(|e| e.1).cmp(other.entries().map(|e| e.1)))
    }
}

impl PartialOrd for DatumRef<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Iterator over a datum's elements or pairs.
#[derive(Clone, Debug)]
pub enum Entries<'a> {
    /// None or one.
    Few(Option<&'a Atom>),
    /// A set's.
    Set(sorted::Iter<'a, Atom>),
    /// A map's.
    Map(sorted::Iter<'a, Pair>),
}

impl<'a> Iterator for Entries<'a> {
    type Item = (AtomRef<'a>, Option<AtomRef<'a>>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Few(one) => one.take().map(|atom| (atom.as_ref(), None)),
            Self::Set(run) => run.next().map(|atom| (atom.as_ref(), None)),
            Self::Map(run) => run.next().map(|(k, v)| (k.as_ref(), Some(v.as_ref()))),
        }
    }
}

/// Reads a value in one pass. `None` if anything is wrong with it: then it is read again, slowly,
/// for the reference's complaint.
fn read_once(
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
    Some(if datum == *like.0 { like.to_datum() } else { datum })
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

//! Datums: the value of one column, a scalar, set or map (RFC 7047 §5.1 `<value>`).

mod read;

use std::cmp::Ordering;

use weir_json::{Reader, Text};

use crate::atom::{Atom, AtomRef};
use crate::error::Result;
use crate::sorted::{self, Pair, Sorted};
use crate::symbols::SymbolTable;
use crate::types::{BaseType, ColumnType};

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
    Set(Sorted<Atom>),
    /// A map of one or more.
    Map(Sorted<Pair>),
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
            _ => Self::Set(run),
        }
    }

    /// A map of the run's pairs, in its canonical form.
    pub fn map(run: Sorted<Pair>) -> Self {
        if run.is_empty() { Self::Empty } else { Self::Map(run) }
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
        if let Some(datum) = read::read_once(&mut ahead, ty, symbols.as_deref_mut(), like) {
            *reader = ahead;
            return Ok(datum);
        }
        read::read_carefully(reader.text(), ty, symbols)
    }

    /// As [`Datum::read_like`], of a value that a server has committed. A conversion gives rows the default
    /// of a new column, also where the column's own constraint forbids it: such elements are read.
    pub fn read_committed(
        reader: &mut Reader<'_>,
        ty: &ColumnType,
        like: DatumRef<'_>,
    ) -> Result<Self> {
        let mut again = reader.clone();
        Self::read_like(reader, ty, None, like).or_else(|error| {
            let plain = Self::read(&mut again, &ty.without_constraints(), None);
            let value = ty.value.as_ref();
            let may_be =
                |base: &BaseType, atom: AtomRef<'_>| atom.is_default() || base.check(atom).is_ok();
            plain
                .ok()
                .filter(|datum| {
                    datum.as_ref().entries().all(|(key, of_key)| {
                        may_be(&ty.key, key)
                            && value.zip(of_key).is_none_or(|(base, atom)| may_be(base, atom))
                    })
                })
                .ok_or(error)
        })
    }

    /// As [`Datum::read_committed`], from a text.
    pub fn parse_committed(text: Text<'_>, ty: &ColumnType) -> Result<Self> {
        Self::read_committed(&mut text.reader(), ty, Self::Empty.as_ref())
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
                *self = Self::Set(Sorted::from_sorted(pair));
            }
            Self::Set(run) => return run.add(atom),
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
            Self::Set(run) => {
                let removed = run.remove(key)?;
                if let (1, Some(last)) = (run.len(), run.first().cloned()) {
                    *self = Self::One(last);
                }
                Some(removed)
            }
            _ => None,
        }
    }

    /// Adds a pair to a map, replacing one with the same key; returns what it replaced.
    pub fn map_insert(&mut self, key: Atom, value: Atom) -> Option<Pair> {
        match self {
            Self::Map(run) => run.insert((key, value)),
            _ => {
                *self = Self::map(Sorted::from_sorted(vec![(key, value)]));
                None
            }
        }
    }

    /// Removes the pair with this key from a map.
    pub fn map_remove(&mut self, key: AtomRef<'_>) -> Option<Pair> {
        let Self::Map(run) = self else { return None };
        let removed = run.remove(key)?;
        if run.is_empty() {
            *self = Self::Empty;
        }
        Some(removed)
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
            (Self::Set(a), Self::Set(b)) => a == b,
            (Self::Map(a), Self::Map(b)) => a == b,
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

    /// Whether there are no elements or pairs.
    pub fn is_empty(self) -> bool {
        matches!(self.0, Datum::Empty)
    }

    /// Whether the value is a map that is not empty.
    pub fn is_map(self) -> bool {
        matches!(self.0, Datum::Map(_))
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

    /// Whether the value has the entry: an element, or a key with this value.
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
        match (self.0, other.0) {
            (Datum::One(a), Datum::One(b)) => return a.cmp(b),
            (Datum::Set(a), Datum::Set(b)) => return a.cmp(b),
            (Datum::Map(a), Datum::Map(b)) if a.is_shared_with(b) => return Ordering::Equal,
            _ => {}
        }
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
    /// No element, or the only one.
    Few(Option<&'a Atom>),
    /// The elements of a set.
    Set(sorted::Iter<'a, Atom>),
    /// The pairs of a map.
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

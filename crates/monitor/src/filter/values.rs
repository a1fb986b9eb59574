//! Clauses on one column, each of which demands a value: found by the value's hash.

use std::cmp::Ordering;
use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use weir_data::{Atom, AtomRef, ColumnId, Datum, DatumRef};

/// So few clauses are asked one by one: that costs less than a hash.
const ASKED_MAX: usize = 4;

/// What the clauses say of their values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// `==`: the column has that value. By the hash of the value.
    Equal,
    /// `includes`: the column has every entry of it. By the hash of its first entry.
    Includes,
    /// `excludes` of one entry: the column does not have it.
    Excludes,
}

/// Clauses of one kind on one column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Values {
    pub(crate) column: ColumnId,
    pub(crate) kind: Kind,
    /// What the values are found by, ascending. Apart from them, for a search reads little else.
    hashes: Vec<u64>,
    /// The values, in the order of their hashes and then their own, each once.
    values: Vec<Datum>,
}

/// An element, or a key and its value.
pub(crate) type Entry<'a> = (AtomRef<'a>, Option<AtomRef<'a>>);

pub(crate) fn hash_entry((key, value): Entry<'_>, hasher: &FixedState) -> u64 {
    let mut hasher = hasher.build_hasher();
    key.hash_into(&mut hasher);
    value.into_iter().for_each(|value| value.hash_into(&mut hasher));
    hasher.finish()
}

pub(crate) fn hash_value(value: DatumRef<'_>, hasher: &FixedState) -> u64 {
    let mut hasher = hasher.build_hasher();
    for (key, value) in value.entries() {
        key.hash_into(&mut hasher);
        value.into_iter().for_each(|value| value.hash_into(&mut hasher));
    }
    hasher.finish()
}

/// Memory that a value occupies, in bytes.
pub(super) fn datum_bytes(value: DatumRef<'_>) -> usize {
    let atom = |atom: AtomRef<'_>| match atom {
        AtomRef::String(text) => size_of::<Atom>() + text.as_str().len(),
        _ => size_of::<Atom>(),
    };
    let entry = |(key, value): Entry<'_>| atom(key) + value.map_or(0, atom);
    value.entries().map(entry).sum()
}

fn compare(a: (u64, &Datum), b: (u64, &Datum)) -> Ordering {
    a.0.cmp(&b.0).then_with(|| a.1.as_ref().cmp(&b.1.as_ref()))
}

impl Values {
    /// Clauses on these values, given with what they are found by, in any order.
    pub(super) fn new(column: ColumnId, kind: Kind, mut values: Vec<(u64, Datum)>) -> Self {
        values.sort_unstable_by(|a, b| compare((a.0, &a.1), (b.0, &b.1)));
        values.dedup();
        let (hashes, values) = values.into_iter().unzip();
        Self { column, kind, hashes, values }
    }

    /// Whether any of the clauses holds for a value of the column.
    #[inline]
    pub(super) fn hold(&self, value: DatumRef<'_>, hasher: &FixedState) -> bool {
        match self.kind {
            Kind::Equal => self.hold_equal(value, hasher),
            Kind::Includes => self.hold_includes(value, hasher),
            // Who has fewer entries than that lacks one of them.
            Kind::Excludes => {
                value.len() < self.values.len()
                    || self.values.iter().any(|one| value.excludes_all(one.as_ref()))
            }
        }
    }

    fn hold_equal(&self, value: DatumRef<'_>, hasher: &FixedState) -> bool {
        if self.values.len() <= ASKED_MAX {
            return self.values.iter().any(|one| one.as_ref() == value);
        }
        value.len() <= super::build::EQUAL_MAX
            && self.found_by(hash_value(value, hasher)).iter().any(|one| one.as_ref() == value)
    }

    fn hold_includes(&self, value: DatumRef<'_>, hasher: &FixedState) -> bool {
        if self.values.len() <= ASKED_MAX || value.len() > self.values.len() {
            return self.values.iter().any(|one| value.includes_all(one.as_ref()));
        }
        value.entries().any(|entry| {
            let found = self.found_by(hash_entry(entry, hasher));
            found.iter().any(|one| value.includes_all(one.as_ref()))
        })
    }

    /// The values that are found by a hash.
    fn found_by(&self, hash: u64) -> &[Datum] {
        let from = self.hashes.partition_point(|other| *other < hash);
        let n = self.hashes[from..].iter().take_while(|other| **other == hash).count();
        &self.values[from..from + n]
    }

    /// The values, each once.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Datum> {
        self.values.iter()
    }

    /// The values, each with what it is found by, ascending by that.
    fn hashed(&self) -> impl Iterator<Item = (u64, &Datum)> {
        self.hashes.iter().copied().zip(&self.values)
    }

    /// Number of clauses.
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// What the values are found by, ascending, each once with the first value that is.
    pub(crate) fn found_by_each(&self) -> impl Iterator<Item = (u64, &Datum)> {
        let mut last = None;
        self.hashed().filter(move |(hash, _)| last.replace(*hash) != Some(*hash))
    }

    /// The values of which only one of the two has a clause.
    pub(super) fn difference(&self, other: &Self) -> Option<Self> {
        let (mut hashes, mut values) = (Vec::new(), Vec::new());
        let (mut a, mut b) = (self.hashed().peekable(), other.hashed().peekable());
        loop {
            let order = match (a.peek(), b.peek()) {
                (Some(a), Some(b)) => compare(*a, *b),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => break,
            };
            let only = match order {
                Ordering::Less => a.next(),
                Ordering::Greater => b.next(),
                Ordering::Equal => {
                    a.next();
                    b.next();
                    continue;
                }
            };
            let (hash, value) = only.expect("it has been peeked at");
            hashes.push(hash);
            values.push(value.clone());
        }
        let Self { column, kind, .. } = *self;
        (!hashes.is_empty()).then_some(Self { column, kind, hashes, values })
    }

    /// Most clauses that are asked for one entry of a row.
    pub(super) fn longest_run(&self) -> usize {
        self.hashes.chunk_by(|a, b| a == b).map(<[u64]>::len).max().unwrap_or(0)
    }

    pub(super) fn digest(&self, digest: &mut impl Hasher) {
        digest.write_u16(self.column.0);
        digest.write_u8(self.kind as u8);
        self.hashes.iter().for_each(|hash| digest.write_u64(*hash));
    }

    pub(super) fn bytes(&self) -> usize {
        let each = size_of::<Datum>() + size_of::<u64>() + FILED_BYTES;
        let text = |value: &Datum| match value {
            Datum::One(Atom::String(text)) if text.as_str().len() <= SMALL_TEXT => 0,
            value => datum_bytes(value.as_ref()),
        };
        self.values.iter().map(|value| each + text(value)).sum()
    }
}

/// What a group costs in the index over all clauses for each value that it is filed under, if
/// nobody else is: an entry and a list of one.
const FILED_BYTES: usize = 80;

/// Texts up to this length are part of their value, in bytes.
const SMALL_TEXT: usize = 23;

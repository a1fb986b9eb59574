//! The entries of a key: pairs of a value's number and a row's number, in ascending order.
//!
//! An entry says that a row may have a value; whoever follows it looks at the row. So different
//! values or rows may share a number, and what is filed is a bag: an entry may be there several
//! times, and, while a key is built, less than not at all.

use std::collections::BTreeMap;

use weir_data::{AtomType, ColumnSchema};

use super::KeyKind;
use super::numbers::Number;
use super::runs::{Range, Runs};

/// Bytes of an entry with its share of the room for more, about: measured with entries that came in
/// random order, which leave more room than any other.
const SHORT_BYTES: usize = 10;
const LONG_BYTES: usize = 15;
const TEXT_BYTES: usize = 20;

/// How wide the numbers of a key's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// 32 bits: hashes.
    Short,
    /// 64 bits, which sort as integers and reals do.
    Long,
    /// 96 bits, which sort as strings do that differ in their first 12 bytes.
    Text,
}

/// The entries of one key.
#[derive(Debug)]
pub(crate) enum Entries {
    /// Values have numbers of 32 bits.
    Short(Bag<u64>),
    /// Values have numbers of 64 bits: their two halves, then the row's number.
    Long(Bag<[u32; 3]>),
    /// Values have numbers of 96 bits: their three parts, then the row's number.
    Text(Bag<[u32; 4]>),
}

/// A sorted bag.
///
/// **Invariant:** what is in `counts` with a positive number is in `runs`, too; what is there with
/// a negative one is not.
#[derive(Debug)]
pub(crate) struct Bag<E> {
    runs: Runs<E>,
    /// How often an entry is there beyond what `runs` says, where that is not 0.
    counts: BTreeMap<E, i64>,
}

/// The numbers of the rows of a range of entries, in the order of the entries.
#[derive(Debug)]
pub(crate) enum Rows<'a> {
    Short(Range<'a, u64>),
    Long(Range<'a, [u32; 3]>),
    Text(Range<'a, [u32; 4]>),
}

impl<E: Ord + Copy + Default> Bag<E> {
    fn new() -> Self {
        Self { runs: Runs::new(), counts: BTreeMap::new() }
    }

    fn add(&mut self, entry: E) {
        if self.counts.get(&entry).is_some_and(|count| *count < 0) || !self.runs.insert(entry) {
            self.count(entry, 1);
        }
    }

    fn remove(&mut self, entry: E) {
        if self.counts.get(&entry).is_some_and(|count| *count > 0) || !self.runs.remove(entry) {
            self.count(entry, -1);
        }
    }

    #[cold]
    fn count(&mut self, entry: E, by: i64) {
        let count = self.counts.entry(entry).or_insert(0);
        *count += by;
        if *count == 0 {
            self.counts.remove(&entry);
        }
    }

    /// The least entry from `first` to `last`, or the greatest.
    fn next(&self, first: E, last: E, is_descending: bool) -> Option<E> {
        if first > last {
            return None;
        }
        if is_descending {
            return self.runs.last_to(last).filter(|entry| *entry >= first);
        }
        self.runs.range(first, last).next()
    }

    fn is_whole(&self) -> bool {
        self.counts.values().all(|count| *count > 0)
    }

    fn is_equal(&self, other: &Self) -> bool {
        self.runs.iter().eq(other.runs.iter()) && self.counts == other.counts
    }
}

impl Entries {
    /// No entries.
    pub(crate) fn new(form: Form) -> Self {
        match form {
            Form::Short => Self::Short(Bag::new()),
            Form::Long => Self::Long(Bag::new()),
            Form::Text => Self::Text(Bag::new()),
        }
    }

    /// Adds an entry.
    pub(crate) fn add(&mut self, value: Number, row: u32) {
        match self {
            Self::Short(bag) => bag.add(short(value, row)),
            Self::Long(bag) => bag.add(long(value, row)),
            Self::Text(bag) => bag.add(text(value, row)),
        }
    }

    /// Takes an entry out, perhaps before it is put in.
    pub(crate) fn remove(&mut self, value: Number, row: u32) {
        match self {
            Self::Short(bag) => bag.remove(short(value, row)),
            Self::Long(bag) => bag.remove(long(value, row)),
            Self::Text(bag) => bag.remove(text(value, row)),
        }
    }

    /// Rows filed under the values from `first` to `last`, which is not below `first`.
    pub(crate) fn rows(&self, first: Number, last: Number) -> Rows<'_> {
        match self {
            Self::Short(bag) => Rows::Short(bag.runs.range(short(first, 0), short(last, u32::MAX))),
            Self::Long(bag) => Rows::Long(bag.runs.range(long(first, 0), long(last, u32::MAX))),
            Self::Text(bag) => Rows::Text(bag.runs.range(text(first, 0), text(last, u32::MAX))),
        }
    }

    /// The least number from `first` to `last` that something is filed under; the greatest one if
    /// `is_descending`.
    pub(crate) fn next(&self, first: Number, last: Number, is_descending: bool) -> Option<Number> {
        match self {
            Self::Short(bag) => {
                let (first, last) = (short(first, 0), short(last, u32::MAX));
                Some(Number::from(bag.next(first, last, is_descending)? >> 32))
            }
            Self::Long(bag) => {
                let (first, last) = (long(first, 0), long(last, u32::MAX));
                let [one, two, _] = bag.next(first, last, is_descending)?;
                Some(Number::from(one) << 32 | Number::from(two))
            }
            Self::Text(bag) => {
                let (first, last) = (text(first, 0), text(last, u32::MAX));
                let [one, two, three, _] = bag.next(first, last, is_descending)?;
                let [one, two, three] = [one, two, three].map(Number::from);
                Some(one << 64 | two << 32 | three)
            }
        }
    }

    /// Number of different entries.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Short(bag) => bag.runs.len(),
            Self::Long(bag) => bag.runs.len(),
            Self::Text(bag) => bag.runs.len(),
        }
    }

    /// Bytes that the entries take, about.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Short(bag) => bag.runs.len() * SHORT_BYTES,
            Self::Long(bag) => bag.runs.len() * LONG_BYTES,
            Self::Text(bag) => bag.runs.len() * TEXT_BYTES,
        }
    }

    /// Whether all that was taken out has been put in.
    pub(crate) fn is_whole(&self) -> bool {
        match self {
            Self::Short(bag) => bag.is_whole(),
            Self::Long(bag) => bag.is_whole(),
            Self::Text(bag) => bag.is_whole(),
        }
    }

    /// Whether the same entries are in both, equally often.
    pub(crate) fn is_equal(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Short(a), Self::Short(b)) => a.is_equal(b),
            (Self::Long(a), Self::Long(b)) => a.is_equal(b),
            (Self::Text(a), Self::Text(b)) => a.is_equal(b),
            _ => false,
        }
    }
}

/// Bytes of the entries of a key, for each row or element, about.
pub(crate) fn bytes_each(form: Form) -> usize {
    match form {
        Form::Short => SHORT_BYTES,
        Form::Long => LONG_BYTES,
        Form::Text => TEXT_BYTES,
    }
}

impl Form {
    /// What a key of this kind files the values of a column under.
    pub(crate) fn of(kind: KeyKind, column: &ColumnSchema) -> Self {
        match kind {
            KeyKind::Hash | KeyKind::Inverted => Self::Short,
            KeyKind::Ordered if column.ty.key.ty == AtomType::String => Self::Text,
            KeyKind::Ordered => Self::Long,
        }
    }
}

const fn short(value: Number, row: u32) -> u64 {
    (value as u64) << 32 | row as u64
}

/// What is beyond the form's numbers is as the greatest of them.
fn long(value: Number, row: u32) -> [u32; 3] {
    let value = value.min(Number::from(u64::MAX));
    [(value >> 32) as u32, value as u32, row]
}

fn text(value: Number, row: u32) -> [u32; 4] {
    let value = value.min((1 << 96) - 1);
    [(value >> 64) as u32, (value >> 32) as u32, value as u32, row]
}

impl Iterator for Rows<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        match self {
            Self::Short(range) => range.next().map(|entry| entry as u32),
            Self::Long(range) => range.next().map(|entry| entry[2]),
            Self::Text(range) => range.next().map(|entry| entry[3]),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use weir_data::UuidSource;

    /// The dumb twin is a list of counts, which may be negative on the way.
    #[test]
    fn a_bag_counts_what_comes_and_goes_in_any_order() {
        for (form, bits) in [(Form::Short, 32), (Form::Long, 64), (Form::Text, 96)] {
            let mut random = UuidSource::new([9, 9, 9, bits]);
            let mut entries = Entries::new(form);
            let most = (1 << bits) - 1;
            let mut twin: BTreeMap<(Number, u32), i64> = BTreeMap::new();
            let mut negative = 0;
            for _ in 0..20_000 {
                let value = Number::from(random.next_u64() % 6) * (most / 5);
                let row = (random.next_u64() % 4) as u32;
                let count = twin.entry((value, row)).or_insert(0);
                if random.next_u64().is_multiple_of(2) && *count > -3 || *count > 3 {
                    entries.remove(value, row);
                    *count -= 1;
                } else {
                    entries.add(value, row);
                    *count += 1;
                }
                negative += usize::from(*count < 0);
                assert_eq!(entries.is_whole(), twin.values().all(|count| *count >= 0));
                let there =
                    |(entry, count): (&(Number, u32), &i64)| (*count > 0).then_some(entry.1);
                let from = twin.range((value, 0)..=(value, u32::MAX)).filter_map(there);
                assert!(entries.rows(value, value).eq(from));
                let all = twin.iter().filter_map(there);
                assert!(entries.rows(0, most).eq(all));
                let values = |from: Number, to: Number| {
                    let there = twin.range((from, 0)..=(to, u32::MAX));
                    there.filter(|(_, count)| **count > 0).map(|(entry, _)| entry.0)
                };
                assert_eq!(entries.next(value, most, false), values(value, most).next());
                assert_eq!(entries.next(0, value, true), values(0, value).next_back());
            }
            assert!(negative > 100, "{negative}");
        }
    }
}

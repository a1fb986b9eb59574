//! The numbers that values are filed under: seeded hashes, and numbers that sort as values do.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use weir_data::condition::Function;
use weir_data::{AtomRef, AtomType, ColumnSchema, DatumRef};

use super::KeyKind;
use crate::digest;

/// What an empty set or map is filed under in an inverted key.
const NOTHING: u64 = 0;

/// Gives values their numbers.
#[derive(Clone, Debug)]
pub(crate) struct Numbers(FixedState);

impl Numbers {
    /// `seed` keeps clients from choosing values of equal numbers.
    pub(crate) fn new(seed: u64) -> Self {
        Self(FixedState::with_seed(seed))
    }

    /// Calls `file` with each number that a key of this kind files a value under.
    pub(crate) fn of_value(&self, kind: KeyKind, value: DatumRef<'_>, mut file: impl FnMut(u64)) {
        match kind {
            KeyKind::Hash => file(self.whole(value)),
            KeyKind::Ordered => value.scalar().and_then(order).into_iter().for_each(file),
            KeyKind::Inverted if value.is_empty() => file(NOTHING),
            KeyKind::Inverted => value.entries().for_each(|entry| file(self.entry(entry))),
        }
    }

    /// The number of an empty set or map in an inverted key.
    pub(crate) const fn of_nothing() -> u64 {
        NOTHING
    }

    fn whole(&self, value: DatumRef<'_>) -> u64 {
        let mut hasher = self.0.build_hasher();
        digest::datum(value, &mut hasher);
        hasher.finish() >> 32
    }

    /// The number of an element, or of a key with its value, in an inverted key.
    pub(crate) fn entry(&self, (key, value): (AtomRef<'_>, Option<AtomRef<'_>>)) -> u64 {
        let mut hasher = self.0.build_hasher();
        key.hash_into(&mut hasher);
        if let Some(value) = value {
            value.hash_into(&mut hasher);
        }
        hasher.finish() >> 32
    }

    /// The first and the last number that rows which satisfy a clause are filed under, for a column
    /// of at most one element; `None` if a key of this kind does not know these rows. No number is
    /// between a first and a last that is less.
    pub(crate) fn range(
        &self,
        kind: KeyKind,
        function: Function,
        value: DatumRef<'_>,
    ) -> Option<(u64, u64)> {
        let is_one = value.len() == 1;
        let number = match kind {
            KeyKind::Hash => self.whole(value),
            KeyKind::Ordered => order(value.scalar()?)?,
            KeyKind::Inverted => return None,
        };
        match function {
            Function::Equal => Some((number, number)),
            // To have one element, and that one, is to be equal.
            Function::Includes if is_one => Some((number, number)),
            _ if kind != KeyKind::Ordered => None,
            Function::Less => Some(number.checked_sub(1).map_or((1, 0), |last| (0, last))),
            Function::LessOrEqual => Some((0, number)),
            Function::Greater => {
                Some(number.checked_add(1).map_or((1, 0), |first| (first, u64::MAX)))
            }
            Function::GreaterOrEqual => Some((number, u64::MAX)),
            _ => None,
        }
    }
}

/// A number that sorts as integers or reals do.
fn order(atom: AtomRef<'_>) -> Option<u64> {
    const SIGN: u64 = 1 << 63;
    match atom {
        AtomRef::Integer(v) => Some(v as u64 ^ SIGN),
        AtomRef::Real(v) => {
            // Both zeros are equal.
            let bits = if v == 0.0 { 0 } else { v.to_bits() };
            Some(if bits & SIGN == 0 { bits | SIGN } else { !bits })
        }
        _ => None,
    }
}

/// Whether a column can have a key of this kind.
pub(crate) fn fits(kind: KeyKind, column: &ColumnSchema) -> bool {
    let ty = &column.ty;
    match kind {
        KeyKind::Hash => !ty.is_composite(),
        KeyKind::Ordered => {
            let is_number = matches!(ty.key.ty, AtomType::Integer | AtomType::Real);
            is_number && !ty.is_composite() && !ty.is_map()
        }
        KeyKind::Inverted => ty.is_composite(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_an_ordered_key_sort_as_the_values_do() {
        let reals = [f64::MIN, -1e300, -2.5, -f64::MIN_POSITIVE, 0.0, 5e-324, 1.0, f64::MAX];
        for (a, b) in reals.iter().zip(&reals[1..]) {
            assert!(order(AtomRef::Real(*a)) < order(AtomRef::Real(*b)), "{a} {b}");
        }
        assert_eq!(order(AtomRef::Real(0.0)), order(AtomRef::Real(-0.0)));
        let integers = [i64::MIN, -1, 0, 1, i64::MAX];
        for (a, b) in integers.iter().zip(&integers[1..]) {
            assert!(order(AtomRef::Integer(*a)) < order(AtomRef::Integer(*b)), "{a} {b}");
        }
    }
}

//! The numbers that values are filed under: seeded hashes, and numbers that sort as values do.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use weir_data::condition::Function;
use weir_data::{AtomRef, AtomType, ColumnSchema, DatumRef};

use super::KeyKind;
use crate::digest;

/// What a value is filed under: how many bits count, the key's `Form` says.
pub(crate) type Number = u128;

/// What a value of no element is filed under in an inverted key or an ordered one, where it comes
/// before all others.
const NOTHING: Number = 0;

/// Bytes of a string that an ordered key sorts by.
const TEXT_PREFIX_BYTES: usize = 12;

/// Gives values their numbers.
#[derive(Clone, Debug)]
pub(crate) struct Numbers(FixedState);

impl Numbers {
    /// `seed` keeps clients from choosing values of equal numbers.
    pub(crate) fn new(seed: u64) -> Self {
        Self(FixedState::with_seed(seed))
    }

    /// Calls `file` with each number that a key of this kind files a value under.
    pub(crate) fn of_value(
        &self,
        kind: KeyKind,
        value: DatumRef<'_>,
        mut file: impl FnMut(Number),
    ) {
        match kind {
            KeyKind::Hash => file(self.whole(value)),
            KeyKind::Ordered => file(self.order(value)),
            KeyKind::Inverted if value.is_empty() => file(NOTHING),
            KeyKind::Inverted => value.entries().for_each(|entry| file(self.entry(entry))),
        }
    }

    /// The number of an empty set or map in an inverted key.
    pub(crate) const fn of_nothing() -> Number {
        NOTHING
    }

    /// The number of a value of at most one element in an ordered key: not less than that of a lesser
    /// value.
    pub(crate) fn order(&self, value: DatumRef<'_>) -> Number {
        order_of(value)
    }

    fn whole(&self, value: DatumRef<'_>) -> Number {
        let mut hasher = self.0.build_hasher();
        digest::datum(value, &mut hasher);
        Number::from(hasher.finish() >> 32)
    }

    /// The number of an element, or of a key with its value, in an inverted key.
    pub(crate) fn entry(&self, (key, value): (AtomRef<'_>, Option<AtomRef<'_>>)) -> Number {
        let mut hasher = self.0.build_hasher();
        key.hash_into(&mut hasher);
        if let Some(value) = value {
            value.hash_into(&mut hasher);
        }
        Number::from(hasher.finish() >> 32)
    }

    /// The first and the last number that rows which satisfy a clause are filed under, for a column
    /// of at most one element; `None` if a key of this kind does not know these rows. No number is
    /// between a first and a last that is less.
    pub(crate) fn range(
        &self,
        kind: KeyKind,
        function: Function,
        value: DatumRef<'_>,
    ) -> Option<(Number, Number)> {
        let is_one = value.len() == 1;
        let number = match kind {
            KeyKind::Hash => self.whole(value),
            KeyKind::Ordered => self.order(value),
            KeyKind::Inverted => return None,
        };
        match function {
            Function::Equal => Some((number, number)),
            // To have one element, and that one, is to be equal.
            Function::Includes if is_one => Some((number, number)),
            _ if kind != KeyKind::Ordered || !is_one => None,
            // The least two integers have one number, and what has no value is before them.
            Function::Less => Some((LEAST, number.saturating_sub(1).max(LEAST))),
            Function::LessOrEqual => Some((LEAST, number)),
            Function::Greater if number == LEAST => Some((LEAST, Number::MAX)),
            Function::Greater => Some((number.saturating_add(1), Number::MAX)),
            Function::GreaterOrEqual => Some((number, Number::MAX)),
            _ => None,
        }
    }
}

/// A number of a value of at most one element: not less than that of a lesser value.
pub(crate) fn order_of(value: DatumRef<'_>) -> Number {
    value.scalar().map_or(NOTHING, order)
}

/// The number of the least integers.
const LEAST: Number = 1;

/// A number that sorts as atoms of one type do, as far as it tells them apart.
fn order(atom: AtomRef<'_>) -> Number {
    const SIGN: u64 = 1 << 63;
    match atom {
        AtomRef::Integer(v) => Number::from(v as u64 ^ SIGN).max(LEAST),
        AtomRef::Real(v) => {
            // Both zeros are equal.
            let bits = if v == 0.0 { 0 } else { v.to_bits() };
            Number::from(if bits & SIGN == 0 { bits | SIGN } else { !bits })
        }
        AtomRef::String(text) => {
            let bytes = text.as_str().as_bytes();
            let known = bytes.iter().take(TEXT_PREFIX_BYTES);
            let number = known.fold(0, |number, byte| number << 8 | Number::from(*byte));
            number << (8 * TEXT_PREFIX_BYTES.saturating_sub(bytes.len()))
        }
        // No keys are made of these.
        AtomRef::Boolean(v) => Number::from(v),
        AtomRef::Uuid(uuid) => uuid.to_u128(),
    }
}

/// Whether a column can have a key of this kind.
pub(crate) fn fits(kind: KeyKind, column: &ColumnSchema) -> bool {
    let ty = &column.ty;
    match kind {
        KeyKind::Hash => !ty.is_composite(),
        KeyKind::Ordered => {
            let is_sorted =
                matches!(ty.key.ty, AtomType::Integer | AtomType::Real | AtomType::String);
            is_sorted && !ty.is_composite() && !ty.is_map()
        }
        KeyKind::Inverted => ty.is_composite(),
    }
}

#[cfg(test)]
mod tests {
    use weir_data::{Atom, Datum, Uuid};

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

    #[test]
    fn no_value_has_a_number_that_is_less_than_that_of_a_lesser_one() {
        let one = |atom| Datum::One(atom);
        let text = |text: &str| one(Atom::string(text));
        let uuid = |number: u128| one(Atom::Uuid(Uuid::from_u128(number)));
        let integers = [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX];
        let reals = [f64::MIN, -2.5, -0.0, 0.0, 5e-324, 1.0, f64::MAX];
        let texts = [
            "",
            "\0",
            "\0\0",
            "a",
            "a\0",
            "ab",
            "twelve bytes",
            "twelve bytes!",
            "ä",
            "\u{10ffff}",
        ];
        let mut columns = [
            integers.map(|value| one(Atom::Integer(value))).to_vec(),
            reals.map(|value| one(Atom::Real(value))).to_vec(),
            texts.map(text).to_vec(),
            [false, true].map(|value| one(Atom::Boolean(value))).to_vec(),
            [0, 1, 1 << 63, 1 << 64, 1 << 127, u128::MAX].map(uuid).to_vec(),
        ];
        for values in &mut columns {
            values.push(Datum::Empty);
            for (a, b) in values.iter().flat_map(|a| values.iter().map(move |b| (a, b))) {
                let (a, b) = (a.as_ref(), b.as_ref());
                let numbers = order_of(a).cmp(&order_of(b));
                assert!(numbers.is_eq() || numbers == a.cmp(&b), "{a:?} {b:?}");
            }
        }
    }
}

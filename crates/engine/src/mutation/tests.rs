//! Arithmetic at its edges, and changes compared with a plain model of sets and maps.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use weir_data::BaseType;

use super::*;

const MIN: i64 = i64::MIN;
const MAX: i64 = i64::MAX;

#[test]
fn integers_at_the_edges() {
    use Failure::{Domain, Range};
    use Mutator::{Add, Divide, Multiply, Remainder, Subtract};
    let table = [
        (Add, MAX - 1, 1, Ok(MAX)),
        (Add, MAX, 1, Err(Range)),
        (Add, MIN, -1, Err(Range)),
        (Subtract, MIN + 1, 1, Ok(MIN)),
        (Subtract, MIN, 1, Err(Range)),
        (Subtract, -1, MIN, Ok(MAX)),
        (Subtract, 0, MIN, Err(Range)),
        (Divide, -7, 2, Ok(-3)),
        (Divide, 7, 0, Err(Domain)),
        (Divide, MIN, -1, Err(Range)),
        (Remainder, -7, 4, Ok(-3)),
        (Remainder, 7, -4, Ok(3)),
        (Remainder, 7, 0, Err(Domain)),
        (Remainder, MIN, -1, Err(Range)),
        (Multiply, MIN, 1, Ok(MIN)),
        (Multiply, MIN, 0, Ok(0)),
        (Multiply, MIN, -1, Err(Range)),
        (Multiply, MIN, -2, Err(Range)),
        (Multiply, MAX, -1, Ok(-MAX)),
        (Multiply, 2, MIN / 2, Ok(MIN)),
        (Multiply, 2, MIN / 2 - 1, Err(Range)),
        // Products that fit and are refused all the same.
        (Multiply, MAX, 1, Err(Range)),
        (Multiply, 1, MAX, Err(Range)),
        (Multiply, 1, MAX - 1, Err(Range)),
        (Multiply, 2, MAX / 2, Err(Range)),
        (Multiply, 2, MAX / 2 - 1, Err(Range)),
        (Multiply, MAX / 3 - 1, 3, Ok((MAX / 3 - 1) * 3)),
        (Multiply, -1, -MAX, Err(Range)),
        (Multiply, -MAX, -1, Ok(MAX)),
        (Multiply, -3, -3_037_000_500, Err(Range)),
        (Multiply, -3, -3_037_000_499, Ok(9_111_001_497)),
    ];
    for (mutator, x, y, result) in table {
        assert_eq!(integer(mutator, x, y), result, "{x} {} {y}", mutator.name());
    }
}

#[test]
fn reals_stay_finite() {
    use Failure::{Domain, Range};
    use Mutator::{Add, Divide, Multiply, Subtract};
    let table = [
        (Add, 1.5, 2.0, Ok(3.5)),
        (Add, f64::MAX, f64::MAX, Err(Range)),
        (Subtract, -f64::MAX, f64::MAX, Err(Range)),
        (Multiply, 1e200, 1e200, Err(Range)),
        (Multiply, 1e-200, 1e-200, Ok(0.0)),
        (Divide, 1.0, 0.0, Err(Domain)),
        (Divide, 1.0, -0.0, Err(Domain)),
        (Divide, 1e200, 1e-200, Err(Range)),
        // Results are what a file or another member of a cluster reads back.
        (Add, 0.1, 0.2, Ok(0.3)),
        (Divide, 1.0, 3.0, Ok(0.333333333333333)),
        (Divide, 2.5e-308, 3.0, Err(Range)),
        (Multiply, f64::MAX, 1.0, Err(Range)),
    ];
    for (mutator, x, y, result) in table {
        assert_eq!(real(mutator, x, y), result, "{x} {} {y}", mutator.name());
    }
}

fn ty(value: Option<AtomType>, n_max: u32) -> ColumnType {
    let key = BaseType::plain(AtomType::Integer);
    ColumnType { key, value: value.map(BaseType::plain), n_min: 0, n_max }
}

fn set_of(elements: &BTreeSet<i64>) -> Datum {
    let atoms = elements.iter().copied().map(Atom::Integer).collect();
    Datum::set(Sorted::from_sorted(atoms))
}

fn map_of(pairs: &BTreeMap<i64, i64>) -> Datum {
    let pairs = pairs.iter().map(|(k, v)| (Atom::Integer(*k), Atom::Integer(*v))).collect();
    Datum::map(Sorted::from_sorted(pairs))
}

/// Makes a mutation; the value after it and the number of elements that the change names.
fn mutated(
    mutator: Mutator,
    old: &Datum,
    argument: Datum,
    ty: &ColumnType,
) -> Option<(Datum, usize)> {
    let mutation = Mutation { column: ColumnId(2), mutator, argument };
    let change = mutation.change(old, ty).ok()?;
    let mut new = old.clone();
    let size = change.map_or(0, |change| {
        assert!(!change.is_empty(), "an empty change");
        change.apply(&mut new);
        let mut back = new.clone();
        change.clone().inverse().apply(&mut back);
        assert_eq!(&back, old);
        change.added().count() + change.removed().count()
    });
    Some((new, size))
}

proptest! {
    #[test]
    fn sets_as_a_plain_set(
        old in proptest::collection::btree_set(0..20i64, 0..20),
        argument in proptest::collection::btree_set(0..20i64, 0..20),
        n_max in prop_oneof![Just(1u32), Just(5), Just(ColumnType::UNLIMITED)],
    ) {
        prop_assume!(old.len() <= n_max as usize);
        let ty = ty(None, n_max);
        let union = &old | &argument;
        let expected = (union.len() <= n_max as usize).then(|| set_of(&union));
        let inserted = mutated(Mutator::Insert, &set_of(&old), set_of(&argument), &ty);
        prop_assert_eq!(inserted.as_ref().map(|(new, _)| new), expected.as_ref());
        let deleted = mutated(Mutator::Delete, &set_of(&old), set_of(&argument), &ty);
        let (new, size) = deleted.expect("any number may stay");
        prop_assert_eq!(new, set_of(&(&old - &argument)));
        prop_assert_eq!(size, (&old & &argument).len());
    }

    #[test]
    fn maps_as_a_plain_map(
        old in proptest::collection::btree_map(0..20i64, 0..3i64, 0..20),
        argument in proptest::collection::btree_map(0..20i64, 0..3i64, 0..20),
        n_max in prop_oneof![Just(1u32), Just(5), Just(ColumnType::UNLIMITED)],
    ) {
        prop_assume!(old.len() <= n_max as usize);
        let ty = ty(Some(AtomType::Integer), n_max);
        // A key that is there keeps its value.
        let mut union = argument.clone();
        union.extend(old.clone());
        let expected = (union.len() <= n_max as usize).then(|| map_of(&union));
        let inserted = mutated(Mutator::Insert, &map_of(&old), map_of(&argument), &ty);
        prop_assert_eq!(inserted.as_ref().map(|(new, _)| new), expected.as_ref());

        let mut rest = old.clone();
        rest.retain(|key, value| argument.get(key) != Some(value));
        let deleted = mutated(Mutator::Delete, &map_of(&old), map_of(&argument), &ty);
        prop_assert_eq!(deleted.map(|(new, _)| new), Some(map_of(&rest)));

        let keys: BTreeSet<i64> = argument.keys().copied().collect();
        rest = old.clone();
        rest.retain(|key, _| !keys.contains(key));
        let deleted = mutated(Mutator::Delete, &map_of(&old), set_of(&keys), &ty);
        prop_assert_eq!(deleted.map(|(new, _)| new), Some(map_of(&rest)));
    }
}

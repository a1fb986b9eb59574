//! Generated atoms and datums, from small domains so that values meet again.

use serde_json::{Value, json};

use crate::generate::schema::{Atom, Base, Column, Shape, UNLIMITED};
use crate::rng::Rng;

/// Stands for a byte that is not UTF-8; put in place when a request is written.
pub const NOT_UTF8: &str = "%NOT-UTF8%";

/// The most elements put into an unlimited set or map.
const ELEMENTS_MAX: usize = 6;

const INTEGERS: [i64; 12] = [-2, -1, 0, 1, 2, 3, 4, 5, 7, 100, i64::MAX, i64::MIN];

// Nothing whose sums need more than the 15 digits that are printed: two elements of a set that
// print alike make a file that nobody reads back.
const REALS: [f64; 11] = [-2.0, -1.5, 0.0, 0.5, 1.0, 1.25, 2.0, 3.0, 4.75, 1e30, -0.125];

const STRINGS: [&str; 14] = [
    "",
    "a",
    "b",
    "ab",
    "abc",
    "éé",
    "日本語",
    "x y",
    "quo\"te",
    "back\\slash",
    "\u{1F600}",
    "tab\t",
    "A",
    "longer than any limit",
];

/// The value of a column that is not mentioned, where the type has one.
pub fn default_atom(atom: Atom) -> Option<Value> {
    match atom {
        Atom::Integer | Atom::Real => Some(json!(0)),
        Atom::Boolean => Some(json!(false)),
        Atom::String => Some(json!("")),
        Atom::Uuid => None,
    }
}

/// An atom of a type without regard to constraints.
pub fn plain_atom(rng: &mut Rng, atom: Atom) -> Value {
    match atom {
        Atom::Integer if rng.chance(95) => json!(INTEGERS[rng.below(10)]),
        Atom::Integer => json!(*rng.pick(&INTEGERS)),
        Atom::Real if rng.chance(20) => json!(INTEGERS[rng.below(9)]),
        Atom::Real => json!(*rng.pick(&REALS)),
        Atom::Boolean => json!(rng.chance(50)),
        Atom::String => json!(*rng.pick(&STRINGS)),
        Atom::Uuid => json!(["uuid", few_uuid(rng)]),
    }
}

/// One of eight UUIDs that are never rows, so that plain uuid columns repeat values.
fn few_uuid(rng: &mut Rng) -> String {
    format!("{:08x}-0000-4000-8000-00000000000{}", 0xabcd_ef00u32, rng.below(8))
}

/// Where references come from while values are drawn.
pub trait References {
    /// The `["uuid", …]` or `["named-uuid", …]` of a row of that table, mostly an existing one.
    fn reference(&mut self, rng: &mut Rng, table: &str) -> Value;
}

/// An atom that mostly satisfies its constraints.
pub fn atom(rng: &mut Rng, base: &Base, refs: &mut dyn References) -> Value {
    if let Some((table, _)) = &base.reference {
        return refs.reference(rng, table);
    }
    if rng.chance(2) {
        return plain_atom(rng, base.atom);
    }
    if let Some(allowed) = base.allowed() {
        return rng.pick(allowed).clone();
    }
    let fits = |value: &Value| {
        let limit = |name: &str| base.constraints.get(name).and_then(Value::as_f64);
        let size = match value {
            Value::String(text) => text.chars().count() as f64,
            other => other.as_f64().unwrap_or(0.0),
        };
        let low = ["minInteger", "minReal", "minLength"].iter().find_map(|name| limit(name));
        let high = ["maxInteger", "maxReal", "maxLength"].iter().find_map(|name| limit(name));
        low.is_none_or(|low| size >= low) && high.is_none_or(|high| size <= high)
    };
    let mut value = plain_atom(rng, base.atom);
    for _ in 0..20 {
        if fits(&value) {
            break;
        }
        value = plain_atom(rng, base.atom);
    }
    value
}

/// The atom as a key for telling equal ones apart: 1 and 1.0 are one.
pub fn identity(atom: &Value) -> String {
    atom.as_f64().map_or_else(|| atom.to_string(), |number| number.to_string())
}

/// A value for a column, mostly one that it accepts.
pub fn datum(rng: &mut Rng, column: &Column, refs: &mut dyn References) -> Value {
    let most = if column.max == UNLIMITED { ELEMENTS_MAX } else { column.max };
    let count = if rng.chance(1) { most + 1 } else { rng.between(column.min, most) };
    sized_datum(rng, column, count, refs)
}

/// A value with `count` elements, fewer where the domain is too small.
pub fn sized_datum(
    rng: &mut Rng,
    column: &Column,
    count: usize,
    refs: &mut dyn References,
) -> Value {
    if column.shape() == Shape::Scalar && count == 1 {
        return atom(rng, &column.key, refs);
    }
    let (mut seen, mut elements) = (vec![], vec![]);
    for _ in 0..count * 3 {
        if elements.len() == count {
            break;
        }
        let key = atom(rng, &column.key, refs);
        let identity = identity(&key);
        if seen.contains(&identity) && rng.chance(99) {
            continue;
        }
        seen.push(identity);
        elements.push(match &column.value {
            Some(value) => json!([key, atom(rng, value, refs)]),
            None => key,
        });
    }
    match (&column.value, elements.len()) {
        (Some(_), _) => json!(["map", elements]),
        (None, 1) if rng.chance(50) => elements.remove(0),
        _ => json!(["set", elements]),
    }
}

/// Something that is hardly a value of any column.
pub fn nonsense(rng: &mut Rng) -> Value {
    let choices = [
        json!(null),
        json!(true),
        json!(-1),
        json!(1.5),
        json!("text"),
        json!([]),
        json!({}),
        json!(["set"]),
        json!(["set", [1, "a"]]),
        json!(["set", [1, 1]]),
        json!(["set", 3]),
        json!(["map", [[1]]]),
        json!(["map", [["a", 1], ["a", 2]]]),
        json!(["map", [["a", 1, 2]]]),
        json!(["uuid", "not a uuid"]),
        json!(["uuid", 5]),
        json!(["uuid"]),
        json!(["named-uuid", "1x"]),
        json!(["named-uuid", "nobody"]),
        json!(["set", []]),
        json!(["map", []]),
        json!(["set", [["set", []]]]),
        json!([1, 2, 3]),
        json!({"a": [1]}),
        json!(NOT_UTF8),
        json!(["set", [NOT_UTF8]]),
        json!(1e300),
        json!(9_223_372_036_854_775_808_u64),
    ];
    rng.pick(&choices).clone()
}

//! A column's value as the replica of `weir watch` keeps it, and the difference of two.

use std::collections::BTreeMap;

use weir_json::Value;

use super::column::{Column, Shape};

/// Orders elements for display: numbers by value, everything else by its text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// An integer.
    Number(i64),
    /// The JSON text of anything else.
    Text(String),
}

/// The value of one column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    /// A scalar, or the empty set of an optional one.
    One(Value),
    /// The elements of a set.
    Set(BTreeMap<Key, Value>),
    /// The pairs of a map.
    Map(BTreeMap<Key, (Value, Value)>),
}

/// What happened to one column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CellChange {
    /// The value was replaced: old value, new value.
    Replaced(Value, Value),
    /// Elements came and went.
    Elements {
        /// Elements that came.
        added: Vec<Value>,
        /// Elements that went.
        removed: Vec<Value>,
    },
    /// Pairs came, went, or have another value.
    Pairs {
        /// Pairs that came.
        added: Vec<(Value, Value)>,
        /// Pairs that went.
        removed: Vec<(Value, Value)>,
        /// Pairs whose key has another value: key, old value, new value.
        changed: Vec<(Value, Value, Value)>,
    },
}

impl Key {
    fn of(value: &Value) -> Self {
        match value {
            Value::Integer(number) => Self::Number(*number),
            other => Self::Text(other.to_string()),
        }
    }
}

impl Cell {
    /// The value of a row that was sent without this column.
    pub(crate) fn default_of(column: &Column) -> Self {
        match column.shape {
            Shape::One => Self::One(column.default.clone()),
            Shape::Set => Self::Set(BTreeMap::new()),
            Shape::Map => Self::Map(BTreeMap::new()),
        }
    }

    /// Reads a value as RFC 7047 section 5.1 writes it.
    pub(crate) fn parse(shape: Shape, value: &Value) -> Self {
        match shape {
            Shape::One => Self::One(value.clone()),
            Shape::Set => {
                Self::Set(elements(value).into_iter().map(|e| (Key::of(&e), e)).collect())
            }
            Shape::Map => Self::Map(pairs(value).into_iter().map(|p| (Key::of(&p.0), p)).collect()),
        }
    }

    /// Applies a difference as `update2` sends it (ovsdb-server(7)).
    pub(crate) fn apply(&mut self, diff: &Value) {
        match self {
            Self::One(value) => *value = diff.clone(),
            Self::Set(set) => {
                for element in elements(diff) {
                    let key = Key::of(&element);
                    if set.remove(&key).is_none() {
                        set.insert(key, element);
                    }
                }
            }
            Self::Map(map) => {
                for (key, value) in pairs(diff) {
                    let place = Key::of(&key);
                    match map.get(&place) {
                        Some((_, old)) if *old == value => map.remove(&place),
                        _ => map.insert(place, (key, value)),
                    };
                }
            }
        }
    }

    /// Whether this is a value that a row has when nobody set one.
    pub(crate) fn is_default(&self) -> bool {
        match self {
            Self::One(value) => is_default_atom(value),
            Self::Set(set) => set.is_empty(),
            Self::Map(map) => map.is_empty(),
        }
    }

    /// The way from `old` to `self`, if there is one to go.
    pub(crate) fn change_from(&self, old: &Self) -> Option<CellChange> {
        if self == old {
            return None;
        }
        Some(match (old, self) {
            (Self::Set(old), Self::Set(new)) => {
                CellChange::Elements { added: missing(new, old), removed: missing(old, new) }
            }
            (Self::Map(old), Self::Map(new)) => CellChange::Pairs {
                added: missing(new, old),
                removed: missing(old, new),
                changed: changed(old, new),
            },
            _ => CellChange::Replaced(old.to_value(), self.to_value()),
        })
    }

    fn to_value(&self) -> Value {
        match self {
            Self::One(value) => value.clone(),
            Self::Set(set) => Value::Array(set.values().cloned().collect()),
            Self::Map(map) => map
                .values()
                .map(|(k, v)| vec![k.clone(), v.clone()].into())
                .collect::<Vec<_>>()
                .into(),
        }
    }
}

/// The elements of a set that may be written as a bare element.
pub(crate) fn elements(value: &Value) -> Vec<Value> {
    match tagged(value, "set") {
        Some(elements) => elements.to_vec(),
        None => vec![value.clone()],
    }
}

/// The pairs of a map.
pub(crate) fn pairs(value: &Value) -> Vec<(Value, Value)> {
    let pair = |pair: &Value| match pair.as_array() {
        Some([key, value]) => Some((key.clone(), value.clone())),
        _ => None,
    };
    tagged(value, "map").map(|pairs| pairs.iter().filter_map(pair).collect()).unwrap_or_default()
}

/// What stands behind the tag in `["set", [...]]` or `["map", [...]]`.
fn tagged<'v>(value: &'v Value, tag: &str) -> Option<&'v [Value]> {
    match value.as_array() {
        Some([Value::String(word), Value::Array(content)]) if word == tag => Some(content),
        _ => None,
    }
}

fn is_default_atom(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) | Value::Integer(0) => true,
        Value::Real(real) => *real == 0.0,
        Value::String(text) => text.is_empty(),
        Value::Array(_) => {
            tagged(value, "set").is_some_and(<[_]>::is_empty)
                || tagged(value, "map").is_some_and(<[_]>::is_empty)
        }
        _ => false,
    }
}

/// What `from` has and `than` has not.
fn missing<V: Clone>(from: &BTreeMap<Key, V>, than: &BTreeMap<Key, V>) -> Vec<V> {
    from.iter().filter(|(key, _)| !than.contains_key(key)).map(|(_, v)| v.clone()).collect()
}

fn changed(
    old: &BTreeMap<Key, (Value, Value)>,
    new: &BTreeMap<Key, (Value, Value)>,
) -> Vec<(Value, Value, Value)> {
    let both = new.iter().filter_map(|(key, (name, now))| {
        let (_, before) = old.get(key)?;
        (before != now).then(|| (name.clone(), before.clone(), now.clone()))
    });
    both.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Value {
        // A bare atom is not a JSON text of its own for this parser.
        let wrapped = Value::parse(format!("[{text}]").as_bytes()).unwrap_or(Value::Null);
        wrapped.as_array().and_then(|array| array.first().cloned()).unwrap_or(Value::Null)
    }

    fn after(shape: Shape, old: &str, diff: &str) -> Cell {
        let mut cell = Cell::parse(shape, &json(old));
        cell.apply(&json(diff));
        cell
    }

    #[test]
    fn differences_apply_by_shape() {
        for (shape, old, diff, new) in [
            (Shape::One, "1", "2", "2"),
            (Shape::One, "1", r#"["set",[]]"#, r#"["set",[]]"#),
            (Shape::Set, r#"["set",[1,2]]"#, r#"["set",[2,10]]"#, r#"["set",[1,10]]"#),
            (Shape::Set, r#"["set",[]]"#, "7", "7"),
            (Shape::Set, "7", "7", r#"["set",[]]"#),
            (
                Shape::Map,
                r#"["map",[["a","1"],["b","2"],["c","3"]]]"#,
                r#"["map",[["a","1"],["b","9"],["d","4"]]]"#,
                r#"["map",[["b","9"],["c","3"],["d","4"]]]"#,
            ),
        ] {
            assert_eq!(after(shape, old, diff), Cell::parse(shape, &json(new)), "{old} {diff}");
        }
    }

    #[test]
    fn numbers_are_in_order() {
        let Cell::Set(set) = Cell::parse(Shape::Set, &json(r#"["set",[10,9,-1]]"#)) else {
            panic!("not a set");
        };
        let order: Vec<_> = set.values().filter_map(Value::as_i64).collect();
        assert_eq!(order, [-1, 9, 10]);
    }

    #[test]
    fn what_changed_is_named() {
        let old = Cell::parse(Shape::Map, &json(r#"["map",[["a","1"],["b","2"]]]"#));
        let new = Cell::parse(Shape::Map, &json(r#"["map",[["b","3"],["c","4"]]]"#));
        assert_eq!(
            new.change_from(&old),
            Some(CellChange::Pairs {
                added: vec![(json(r#""c""#), json(r#""4""#))],
                removed: vec![(json(r#""a""#), json(r#""1""#))],
                changed: vec![(json(r#""b""#), json(r#""2""#), json(r#""3""#))],
            })
        );
        assert_eq!(new.change_from(&new), None);
    }

    #[test]
    fn default_values() {
        for (shape, text, expected) in [
            (Shape::One, r#""""#, true),
            (Shape::One, "0", true),
            (Shape::One, r#"["set",[]]"#, true),
            (Shape::One, "false", true),
            (Shape::One, "true", false),
            (Shape::Set, r#"["set",[]]"#, true),
            (Shape::Set, "0", false),
            (Shape::Map, r#"["map",[]]"#, true),
        ] {
            assert_eq!(Cell::parse(shape, &json(text)).is_default(), expected, "{text}");
        }
    }
}

//! Which columns somebody wants to have a key, by name: in a schema, beside a database file, in a
//! configuration. What keys are is the engine's (`docs/decisions/015`).

use std::collections::BTreeMap;

use weir_json::{Kind, Text, Value};

use crate::parser::{self, Parser};

/// Most keys that are declared for one database; who asks for more is refused.
pub const KEYS_DECLARED_MAX: usize = 256;

/// What a declared key is to find rows by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyOrder {
    /// Equality, and membership in sets and maps.
    Hash,
    /// Also by order, least values first.
    Ascending,
    /// Also by order, greatest values first.
    Descending,
}

impl KeyOrder {
    const ALL: [(&str, Self); 3] =
        [("hash", Self::Hash), ("asc", Self::Ascending), ("desc", Self::Descending)];

    /// The order of this name: `hash`, `asc` or `desc`.
    pub fn parse(name: &[u8]) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, order)| *order)
    }

    /// The name that [`KeyOrder::parse`] knows.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, order)| *order == self).map_or("", |(name, _)| name)
    }
}

/// What a schema says about a key on one of its columns, beyond RFC 7047.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyWish {
    /// The column's table.
    pub table: String,
    /// The column.
    pub column: String,
    /// The key to have; `None` for none (`"alternate_key": false`).
    pub order: Option<KeyOrder>,
}

impl KeyWish {
    /// Adds the wish to its column in the JSON form of a schema that has the column, for who reads
    /// such members.
    pub fn add_to(&self, schema: &mut Value) {
        let mut of = ["tables", &self.table, "columns", &self.column].into_iter();
        let column = of.try_fold(schema, |within, name| match within {
            Value::Object(members) => members.get_mut(name),
            _ => None,
        });
        let Some(Value::Object(members)) = column else {
            panic!("the schema has the column of the wish")
        };
        members.insert("alternate_key".to_owned(), self.order.is_some().into());
        if let Some(order) = self.order.filter(|order| *order != KeyOrder::Hash) {
            members.insert("order".to_owned(), order.name().into());
        }
    }
}

/// The keys that are declared for one database: at most one a column.
///
/// As JSON: `{"TABLE": {"COLUMN": "hash"|"asc"|"desc"}}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredKeys(BTreeMap<(String, String), KeyOrder>);

impl DeclaredKeys {
    /// Table, column and order of each, by table and column.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str, KeyOrder)> {
        self.0.iter().map(|((table, column), order)| (table.as_str(), column.as_str(), *order))
    }

    /// What is declared for a column.
    pub fn get(&self, table: &str, column: &str) -> Option<KeyOrder> {
        self.0.get(&(table.to_owned(), column.to_owned())).copied()
    }

    /// Whether none is declared.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Declares the key of a column, in place of what was declared for it; false if there are too
    /// many already.
    pub fn declare(&mut self, table: &str, column: &str, order: KeyOrder) -> bool {
        let name = (table.to_owned(), column.to_owned());
        if self.0.len() >= KEYS_DECLARED_MAX && !self.0.contains_key(&name) {
            return false;
        }
        self.0.insert(name, order);
        true
    }

    /// Takes a declaration back; false if there was none.
    pub fn remove(&mut self, table: &str, column: &str) -> bool {
        self.0.remove(&(table.to_owned(), column.to_owned())).is_some()
    }

    /// Follows what a schema says: what it does not mention stays as it is. Answers whether there
    /// was room for all.
    pub fn follow(&mut self, wishes: &[KeyWish]) -> bool {
        let mut had_room = true;
        for KeyWish { table, column, order } in wishes {
            match order {
                Some(order) => had_room &= self.declare(table, column, *order),
                None => drop(self.remove(table, column)),
            }
        }
        had_room
    }

    /// Reads the JSON form; `None` if it is something else, or declares too many.
    pub fn parse(text: Text<'_>) -> Option<Self> {
        let mut keys = Self::default();
        let object = |text: Text<'_>| text.kind() == Kind::Object;
        for (table, columns) in text.object().filter(|_| object(text))?.iter() {
            for (column, order) in columns.object().filter(|_| object(columns))?.iter() {
                let (table, column) = (std::str::from_utf8(table), std::str::from_utf8(column));
                let order = KeyOrder::parse(&order.string()?)?;
                if !keys.declare(table.ok()?, column.ok()?, order) {
                    return None;
                }
            }
        }
        Some(keys)
    }

    /// The JSON form.
    pub fn to_value(&self) -> Value {
        let mut tables: BTreeMap<String, BTreeMap<String, Value>> = BTreeMap::new();
        for (table, column, order) in self.iter() {
            let columns = tables.entry(table.to_owned()).or_default();
            columns.insert(column.to_owned(), order.name().into());
        }
        let tables = tables.into_iter().map(|(table, columns)| {
            let columns = Value::Object(columns.into_iter().collect());
            (table, columns)
        });
        Value::Object(tables.collect())
    }
}

/// Takes the members about a key from the schema of a column: `"alternate_key": BOOL`, and with it
/// `"order"` or `"ordered"`, which is `"asc"` or `"desc"`. `None` if they say nothing of a key.
pub(crate) fn parse_members(parser: &mut Parser<'_, '_>) -> Option<Option<KeyOrder>> {
    let is_key = parser.member("alternate_key", parser::BOOL | parser::OPTIONAL);
    let is_key = is_key.and_then(Text::bool);
    let mut order = None;
    for name in ["order", "ordered"] {
        let Some(text) = parser.member(name, parser::STRING | parser::OPTIONAL) else { continue };
        let known = text.string().and_then(|text| KeyOrder::parse(&text));
        order = known.filter(|order| *order != KeyOrder::Hash);
        if order.is_none() {
            parser.complain(format_args!("'{name}' must be \"asc\" or \"desc\""));
        }
    }
    match (is_key, order) {
        (None, None) => None,
        (None, Some(_)) => {
            parser.complain("a column with an order needs an 'alternate_key'");
            None
        }
        (Some(false), _) => Some(None),
        (Some(true), order) => Some(Some(order.unwrap_or(KeyOrder::Hash))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Schema;

    fn schema_with(members: &str) -> Result<Schema, String> {
        let text = format!(
            r#"{{"name":"D","tables":{{"T":{{"columns":{{"c":{{"type":"integer"{members}}}}}}}}}}}"#
        );
        Schema::parse_bytes(text.as_bytes())
    }

    #[test]
    fn a_schema_says_which_keys_it_wants_and_is_the_plain_one_to_everybody() {
        let plain = schema_with("").expect("a schema");
        assert!(plain.keys.is_empty());
        let cases = [
            (r#","alternate_key":true"#, Some(KeyOrder::Hash)),
            (r#","alternate_key":true,"order":"asc""#, Some(KeyOrder::Ascending)),
            (r#","alternate_key":true,"ordered":"desc""#, Some(KeyOrder::Descending)),
            (r#","alternate_key":false"#, None),
            (r#","alternate_key":false,"order":"asc""#, None),
        ];
        for (members, order) in cases {
            let schema = schema_with(members).expect(members);
            let wish = KeyWish { table: "T".into(), column: "c".into(), order };
            assert_eq!(schema.keys, std::slice::from_ref(&wish), "{members}");
            assert_eq!(schema, plain, "{members}");
            assert_eq!(schema.to_string(), plain.to_string(), "{members}");
            // Who is to know gets it in so many words.
            let mut told = schema.to_value();
            wish.add_to(&mut told);
            let heard = Schema::parse_bytes(told.to_string().as_bytes()).expect("a schema");
            assert_eq!(heard.keys, [wish], "{told}");
        }
    }

    #[test]
    fn a_wish_that_makes_no_sense_is_refused() {
        for (members, error) in [
            (r#","alternate_key":1"#, "alternate_key"),
            (r#","order":"asc""#, "needs an 'alternate_key'"),
            (r#","alternate_key":true,"order":"up""#, r#"'order' must be "asc" or "desc""#),
            (r#","alternate_key":true,"order":"hash""#, "'order' must be"),
            (r#","alternate_key":true,"sort":"asc""#, "sort"),
        ] {
            let refused = schema_with(members).expect_err(members);
            assert!(refused.contains(error), "{refused}");
        }
    }

    #[test]
    fn declared_keys_are_read_back_as_they_are_written() {
        let mut keys = DeclaredKeys::default();
        assert!(keys.declare("B", "x", KeyOrder::Descending));
        assert!(keys.declare("A", "y", KeyOrder::Hash));
        assert!(keys.declare("A", "x", KeyOrder::Hash));
        assert!(keys.declare("A", "x", KeyOrder::Ascending));
        let text = keys.to_value().to_string();
        assert_eq!(text, r#"{"A":{"x":"asc","y":"hash"},"B":{"x":"desc"}}"#);
        let parse =
            |text: &str| DeclaredKeys::parse(weir_json::validate(text.as_bytes()).expect("JSON"));
        assert_eq!(parse(&text).as_ref(), Some(&keys));
        for odd in ["[]", r#"{"A":[]}"#, r#"{"A":{"x":1}}"#, r#"{"A":{"x":"up"}}"#] {
            assert_eq!(parse(odd), None, "{odd}");
        }
        assert!(keys.remove("A", "y") && !keys.remove("A", "y"));
        assert_eq!((keys.get("A", "x"), keys.get("A", "y")), (Some(KeyOrder::Ascending), None));
    }

    #[test]
    fn no_more_are_declared_than_there_may_be() {
        let mut keys = DeclaredKeys::default();
        for n in 0..KEYS_DECLARED_MAX {
            assert!(keys.declare("T", &n.to_string(), KeyOrder::Hash));
        }
        assert!(!keys.declare("T", "one more", KeyOrder::Hash));
        assert!(keys.declare("T", "0", KeyOrder::Ascending), "it takes the place of another");
        assert_eq!(keys.iter().len(), KEYS_DECLARED_MAX);
    }
}

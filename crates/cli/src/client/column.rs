//! What a client must know of a schema to show rows: columns, their shapes, what they refer to.

use std::collections::BTreeMap;

use weir_json::{Value, array};

/// The tables of a database by name, and their columns by name.
pub(crate) type Tables = BTreeMap<String, BTreeMap<String, Column>>;

/// How a column's value is written and how a change of it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// At most one element: a change replaces it.
    One,
    /// A change names the elements that come and go.
    Set,
    /// A change names the keys that come, go or get another value.
    Map,
}

/// A column, as far as its values must be understood.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Column {
    /// How the column's value is written and changes are sent.
    pub(crate) shape: Shape,
    /// What a [`Shape::One`] column holds when nobody set it.
    pub(crate) default: Value,
}

/// Reads the tables out of a `get_schema` reply.
pub(crate) fn tables(schema: &Value) -> Option<Tables> {
    let tables = schema.get("tables")?.as_object()?;
    tables.iter().map(|(name, table)| Some((name.clone(), columns(table)?))).collect()
}

fn columns(table: &Value) -> Option<BTreeMap<String, Column>> {
    let columns = table.get("columns")?.as_object()?;
    columns
        .iter()
        .map(|(name, column)| {
            let kind = column.get("type")?;
            Some((name.clone(), Column { shape: shape(kind), default: default(kind) }))
        })
        .collect()
}

/// The default value of a column (RFC 7047 section 5.2.1).
fn default(kind: &Value) -> Value {
    if kind.get("min") == Some(&Value::Integer(0)) {
        return array(["set".into(), array::<Value>([])]);
    }
    let key = kind.get("key").unwrap_or(kind);
    match key.get("type").unwrap_or(key).as_str() {
        Some("integer") => 0.into(),
        Some("real") => Value::Real(0.0),
        Some("boolean") => false.into(),
        Some("uuid") => array(["uuid", "00000000-0000-0000-0000-000000000000"]),
        _ => "".into(),
    }
}

fn shape(kind: &Value) -> Shape {
    match kind.get("max") {
        None | Some(Value::Integer(1)) => Shape::One,
        Some(_) if kind.get("value").is_some() => Shape::Map,
        Some(_) => Shape::Set,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_by_type() {
        for (text, expected) in [
            (r#""string""#, Shape::One),
            (r#"{"key":"integer"}"#, Shape::One),
            (r#"{"key":"integer","min":0,"max":1}"#, Shape::One),
            (r#"{"key":"integer","min":0,"max":3}"#, Shape::Set),
            (r#"{"key":"uuid","min":0,"max":"unlimited"}"#, Shape::Set),
            (r#"{"key":"string","value":"string","min":0,"max":"unlimited"}"#, Shape::Map),
        ] {
            let schema = format!(r#"{{"tables":{{"T":{{"columns":{{"c":{{"type":{text}}}}}}}}}}}"#);
            let tables = Value::parse(schema.as_bytes()).ok().as_ref().and_then(tables);
            let shape = tables.map(|tables| tables["T"]["c"].shape);
            assert_eq!(shape, Some(expected), "{text}");
        }
    }

    #[test]
    fn default_values_by_type() {
        for (text, expected) in [
            (r#""integer""#, "0"),
            (r#"{"key":{"type":"integer","minInteger":0}}"#, "0"),
            (r#""boolean""#, "false"),
            (r#"{"key":"string"}"#, r#""""#),
            (r#"{"key":"string","min":0}"#, r#"["set",[]]"#),
        ] {
            let kind = Value::parse(format!("[{text}]").as_bytes()).unwrap_or(Value::Null);
            let kind = kind.as_array().map(|array| array[0].clone()).unwrap_or(Value::Null);
            assert_eq!(default(&kind).to_string(), expected, "{text}");
        }
    }

    #[test]
    fn a_reply_that_is_no_schema() {
        for text in ["{}", r#"{"tables":[]}"#, r#"{"tables":{"T":{}}}"#] {
            assert_eq!(tables(&Value::parse(text.as_bytes()).unwrap_or(Value::Null)), None);
        }
    }
}

//! One cell of a table.

use weir_data::{AtomType, ColumnType};
use weir_json::Text;

/// What must be known of a column's type to write and compare its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The type of a set's elements, or of a map's keys.
    pub key: AtomType,
    /// The type of a map's values.
    pub value: Option<AtomType>,
    /// Whether a value may have more than one element.
    pub many: bool,
}

impl Shape {
    /// The shape of a column of one string.
    pub const STRING: Self = Self { key: AtomType::String, value: None, many: false };

    /// The shape of a column of one UUID.
    pub const UUID: Self = Self { key: AtomType::Uuid, value: None, many: false };
}

impl From<&ColumnType> for Shape {
    fn from(column: &ColumnType) -> Self {
        Self {
            key: column.key.ty,
            value: column.value.as_ref().map(|value| value.ty),
            many: column.n_max > 1,
        }
    }
}

/// What one cell of a table holds.
#[derive(Clone, Copy, Debug)]
pub enum Cell<'a> {
    /// An empty cell; `null` in JSON.
    Empty,
    /// Words that are no value of a database.
    Text(&'a str),
    /// JSON that is written as it is in all formats.
    Json(Text<'a>),
    /// A value of a database, as RFC 7047 section 5.1 writes it.
    Value(Text<'a>, Shape),
}

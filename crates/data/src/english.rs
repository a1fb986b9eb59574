//! Values and types as error messages spell them.

use weir_json::Value;

use crate::atom::AtomRef;
use crate::datum::{Datum, DatumRef};
use crate::types::{BaseType, ColumnType};
use crate::uuid::Uuid;

/// A real as C's `%.15g` prints it.
pub fn real(value: f64) -> String {
    let mut out = Vec::new();
    weir_json::write_real(&mut out, value);
    String::from_utf8_lossy(&out).into_owned()
}

pub(crate) fn real_value(value: f64) -> Value {
    let mut out = Vec::new();
    weir_json::write_real(&mut out, value);
    weir_json::validate_value(&out).map_or(Value::Real(value), |text| text.to_value())
}

/// Whether a string must be quoted to be told from other words.
fn needs_quotes(text: &str) -> bool {
    let mut bytes = text.bytes();
    let word = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    !bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        || !bytes.all(word)
        || text == "true"
        || text == "false"
        || Uuid::parse_prefix(text.as_bytes()).is_some()
}

/// An atom as people write it: bare words where nothing is ambiguous, else JSON.
pub fn atom(atom: AtomRef<'_>) -> String {
    match atom {
        AtomRef::Uuid(uuid) => uuid.to_string(),
        AtomRef::String(text) if !needs_quotes(text.as_str()) => text.as_str().to_owned(),
        _ => {
            let mut out = Vec::new();
            atom.write(&mut out);
            String::from_utf8_lossy(&out).into_owned()
        }
    }
}

/// A set or map in brackets: `[a, b]`, `{k=v}`.
pub fn values(datum: DatumRef<'_>) -> String {
    let mut out = Vec::new();
    let mut is_map = false;
    for (key, value) in datum.entries() {
        out.push(match value {
            None => atom(key),
            Some(value) => {
                is_map = true;
                format!("{}={}", atom(key), atom(value))
            }
        });
    }
    let inner = out.join(", ");
    if is_map { format!("{{{inner}}}") } else { format!("[{inner}]") }
}

/// A column value as people write it: a lone atom of an at-most-one column bare.
pub fn datum(datum: DatumRef<'_>, ty: &ColumnType) -> String {
    if ty.n_max == 1 && datum.len() == 1 {
        let bracketed = values(datum);
        return bracketed[1..bracketed.len() - 1].to_owned();
    }
    if datum.is_empty() && ty.is_map() { "{}".to_owned() } else { values(datum) }
}

/// A column type in words: `set of 1 to 2 integers`.
pub fn column_type(ty: &ColumnType) -> String {
    let key = ty.key.ty.name();
    if ty.is_scalar() {
        return key.to_owned();
    }
    let class = if ty.is_map() { "map" } else { "set" };
    let count = match (ty.n_min, ty.n_max) {
        (0, ColumnType::UNLIMITED) => " of".to_owned(),
        (min, ColumnType::UNLIMITED) => format!(" of {min} or more"),
        (0, max) => format!(" of up to {max}"),
        (min, max) => format!(" of {min} to {max}"),
    };
    match &ty.value {
        None => format!("{class}{count} {key}s"),
        Some(value) => format!("{class}{count} ({key}, {}) pairs", value.ty.name()),
    }
}

pub(crate) fn json_value(datum: &Datum, base: &BaseType) -> Value {
    let ty = ColumnType { key: base.clone(), value: None, n_min: 0, n_max: u32::MAX };
    let mut out = Vec::new();
    datum.as_ref().write(&ty, &mut out);
    // A set of one is a bare atom, which is no JSON text by itself.
    weir_json::validate_value(&out).map_or(Value::Null, |text| text.to_value())
}

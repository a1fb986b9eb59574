//! The order of the values of a column, as bytes that compare like them.

use weir_data::AtomType;
use weir_json::Text;

use crate::cell::Shape;
use crate::value::{for_each_sorted, uuid_text};

/// Behind a string, below all of its bytes.
const STRING_END: u8 = 0;

/// Before a byte of a string that is not above this one, which is sent one up.
const STRING_ESCAPE: u8 = 1;

/// Bytes that hold the number of entries.
const COUNT_SIZE: usize = size_of::<u32>();

/// Appends bytes that compare like the values of one column: shorter ones first, then by keys,
/// then by values. `values` is room to work in.
pub fn write_sort_key(value: Text<'_>, shape: Shape, values: &mut Vec<u8>, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; COUNT_SIZE]);
    let mut count = 0_u32;
    values.clear();
    for_each_sorted(value, shape, out, |out, first, (key, of_key)| {
        if first {
            count = 0;
            values.clear();
        }
        count = count.saturating_add(1);
        write_atom(key, shape.key, out);
        if let (Some(of_key), Some(ty)) = (of_key, shape.value) {
            write_atom(of_key, ty, values);
        }
    });
    out.extend_from_slice(values);
    if let Some(place) = out.get_mut(start..start + COUNT_SIZE) {
        place.copy_from_slice(&count.to_be_bytes());
    }
}

/// Appends bytes that compare like atoms of this type; what is no atom of the type sorts like a
/// zero.
fn write_atom(atom: Text<'_>, ty: AtomType, out: &mut Vec<u8>) {
    match ty {
        AtomType::Integer => {
            // The sign bit turned over: negative numbers come first.
            let bits = atom.integer().unwrap_or(0) as u64 ^ (1 << 63);
            out.extend_from_slice(&bits.to_be_bytes());
        }
        AtomType::Real => {
            // Both zeros are equal.
            let bits = (atom.real().unwrap_or(0.0) + 0.0).to_bits();
            let ordered = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
            out.extend_from_slice(&ordered.to_be_bytes());
        }
        AtomType::Boolean => out.push(u8::from(atom.bool() == Some(true))),
        AtomType::String => write_bytes(&atom.string().unwrap_or_default(), out),
        AtomType::Uuid => write_bytes(&uuid_text(atom).unwrap_or_default(), out),
    }
}

fn write_bytes(string: &[u8], out: &mut Vec<u8>) {
    if string.iter().all(|c| *c > STRING_ESCAPE) {
        out.extend_from_slice(string);
    } else {
        for c in string {
            match *c {
                c @ 0..=STRING_ESCAPE => out.extend_from_slice(&[STRING_ESCAPE, c + 1]),
                c => out.push(c),
            }
        }
    }
    out.push(STRING_END);
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use super::*;
    use weir_json::validate_value;

    const SET: Shape = Shape { key: AtomType::String, value: None, many: true };
    const OPTIONAL: Shape = Shape { key: AtomType::Integer, value: None, many: false };
    const REAL: Shape = Shape { key: AtomType::Real, value: None, many: false };
    const MAP: Shape = Shape { key: AtomType::String, value: Some(AtomType::String), many: true };

    fn key(json: &str, shape: Shape) -> Vec<u8> {
        let mut key = vec![];
        let text = validate_value(json.as_bytes()).expect("JSON");
        write_sort_key(text, shape, &mut vec![], &mut key);
        key
    }

    #[test]
    fn shorter_sets_come_first_whatever_they_hold() {
        for (a, b, shape, expected) in [
            (r#"["set",["z"]]"#, r#"["set",["a","b"]]"#, SET, Ordering::Less),
            (r#""z""#, r#"["set",[]]"#, SET, Ordering::Greater),
            (r#"["set",["b","a"]]"#, r#"["set",["a","c"]]"#, SET, Ordering::Less),
            (r#"["set",["b","a"]]"#, r#"["set",["a","b"]]"#, SET, Ordering::Equal),
            ("10", "9", OPTIONAL, Ordering::Greater),
            ("-1", "0", OPTIONAL, Ordering::Less),
            (r#"["set",[]]"#, "-5", OPTIONAL, Ordering::Less),
            ("-0.5", "0.25", REAL, Ordering::Less),
            ("-0.5", "-1e9", REAL, Ordering::Greater),
            ("-0.0", "0", REAL, Ordering::Equal),
            (r#"["map",[["a","2"]]]"#, r#"["map",[["b","1"]]]"#, MAP, Ordering::Less),
            (r#"["map",[["a","2"]]]"#, r#"["map",[["a","1"]]]"#, MAP, Ordering::Greater),
            (
                r#"["map",[["b","1"],["a","9"]]]"#,
                r#"["map",[["a","9"],["b","2"]]]"#,
                MAP,
                Ordering::Less,
            ),
            (r#""\u0061""#, r#""a""#, Shape::STRING, Ordering::Equal),
            (r#""a""#, r#""a\u0001""#, Shape::STRING, Ordering::Less),
            (r#""a\u0001""#, r#""a\u0002""#, Shape::STRING, Ordering::Less),
            (r#""a b""#, r#""a""#, Shape::STRING, Ordering::Greater),
        ] {
            assert_eq!(key(a, shape).cmp(&key(b, shape)), expected, "{a} {b}");
        }
    }
}

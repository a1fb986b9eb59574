//! A column's value as `ovs-vsctl` and its kin write it: `[1, 2]`, `{key=value}`, `"two words"`.

use weir_data::{AtomRef, ColumnType, Datum};
use weir_json::Text;

/// Appends a value by its type; its JSON text if it has no type, or another one.
pub(super) fn write(value: Text<'_>, ty: Option<&ColumnType>, out: &mut Vec<u8>) {
    let parsed = ty.and_then(|ty| Some((ty, Datum::parse(value, ty, None).ok()?)));
    let Some((ty, datum)) = parsed else { return value.write(out) };
    let datum = datum.as_ref();
    let brackets = match (ty.n_max > 1 || datum.is_empty(), ty.is_map()) {
        (false, _) => None,
        (true, true) => Some((b'{', b'}')),
        (true, false) => Some((b'[', b']')),
    };
    out.extend(brackets.map(|(open, _)| open));
    for (at, (key, value)) in datum.entries().enumerate() {
        if at > 0 {
            out.extend_from_slice(b", ");
        }
        atom(key, out);
        if let Some(value) = value {
            out.push(b'=');
            atom(value, out);
        }
    }
    out.extend(brackets.map(|(_, close)| close));
}

fn atom(atom: AtomRef<'_>, out: &mut Vec<u8>) {
    if let Some(uuid) = atom.as_uuid() {
        out.extend_from_slice(&uuid.text());
    } else if let Some(text) = atom.as_str().filter(|text| !needs_quotes(text)) {
        out.extend_from_slice(text.as_bytes());
    } else {
        atom.write(out);
    }
}

/// Whether a string could be taken for something else.
fn needs_quotes(text: &str) -> bool {
    let mut bytes = text.bytes();
    let begins_well = bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    let goes_on = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    !begins_well || !bytes.all(goes_on) || text == "true" || text == "false"
}

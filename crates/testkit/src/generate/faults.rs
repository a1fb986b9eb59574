//! What clients get wrong: one thing, or several at once, in an operation that was right.

use serde_json::{Value, json};

use crate::generate::value::{NOT_UTF8, nonsense};
use crate::rng::Rng;

/// Members that no operation has.
const UNKNOWN: [&str; 4] = ["extra", "wher", "a", "zz"];

/// Spoils an operation in one way.
pub fn spoil(rng: &mut Rng, op: &mut Value) {
    if rng.chance(2) {
        *op = nonsense(rng);
        return;
    }
    let fields = ["row", "rows", "where", "mutations", "columns"];
    let present: Vec<&str> = fields.into_iter().filter(|name| op.get(name).is_some()).collect();
    match rng.below(10) {
        0 => remove_member(rng, op),
        1 => add_members(rng, op),
        2 => replace_member(rng, op),
        3 => set(op, "table", json!(*rng.pick(&["NoTable", "T9", ""]))),
        4 => set(op, "op", rng.pick(&[json!("foo"), json!(3), json!(""), json!(NOT_UTF8)]).clone()),
        _ if present.is_empty() => replace_member(rng, op),
        _ => {
            let name = *rng.pick(&present);
            let part = op.get_mut(name);
            if let Some(part) = part {
                spoil_part(rng, name, part);
            }
        }
    }
}

fn set(op: &mut Value, name: &str, value: Value) {
    if let Some(members) = op.as_object_mut() {
        members.insert(name.to_owned(), value);
    }
}

fn any_member(rng: &mut Rng, value: &Value) -> Option<String> {
    let members = value.as_object()?;
    members.keys().nth(rng.below(members.len())).cloned()
}

fn remove_member(rng: &mut Rng, op: &mut Value) {
    if let (Some(name), Some(members)) = (any_member(rng, op), op.as_object_mut()) {
        members.remove(&name);
    }
}

fn add_members(rng: &mut Rng, op: &mut Value) {
    for _ in 0..rng.between(1, 3) {
        let name = *rng.pick(&UNKNOWN);
        set(op, name, json!(1));
    }
}

fn replace_member(rng: &mut Rng, op: &mut Value) {
    if let Some(name) = any_member(rng, op) {
        let value = nonsense(rng);
        set(op, &name, value);
    }
}

fn spoil_part(rng: &mut Rng, name: &str, part: &mut Value) {
    match name {
        "row" => spoil_row(rng, part),
        "rows" => {
            let extra = nonsense(rng);
            match part.as_array_mut() {
                Some(rows) if !rows.is_empty() && rng.chance(60) => {
                    let at = rng.below(rows.len());
                    spoil_row(rng, &mut rows[at]);
                }
                Some(rows) => rows.push(extra),
                None => *part = extra,
            }
        }
        "columns" => {
            let wrong = [json!("nope"), json!("_uuid"), json!(3), json!(NOT_UTF8)];
            if let Some(columns) = part.as_array_mut() {
                let again = columns.first().cloned();
                columns.push(again.filter(|_| rng.chance(40)).unwrap_or(rng.pick(&wrong).clone()));
            }
        }
        _ => spoil_triple(rng, part),
    }
}

fn spoil_row(rng: &mut Rng, row: &mut Value) {
    let name = match rng.below(6) {
        0 => Some("nope".to_owned()),
        1 => Some("_uuid".to_owned()),
        2 => Some("_version".to_owned()),
        _ => any_member(rng, row),
    };
    let value = nonsense(rng);
    set(row, &name.unwrap_or_else(|| "nope".to_owned()), value);
}

/// Spoils one of the `[column, function, value]` of conditions or mutations.
fn spoil_triple(rng: &mut Rng, part: &mut Value) {
    let Some(triples) = part.as_array_mut() else { return };
    if triples.is_empty() || rng.chance(10) {
        triples.push(nonsense(rng));
        return;
    }
    let at = rng.below(triples.len());
    let Some(triple) = triples[at].as_array_mut().filter(|triple| triple.len() == 3) else {
        return;
    };
    match rng.below(6) {
        0 => triple[0] = rng.pick(&[json!("nope"), json!(1), json!("_uuid"), json!([])]).clone(),
        1 => {
            let functions = ["=", "<", "includes", "+=", "insert", "delete", "%=", "==", "nope"];
            triple[1] = json!(*rng.pick(&functions));
        }
        2 => triple[1] = nonsense(rng),
        3 => {
            triple.pop();
        }
        _ => triple[2] = nonsense(rng),
    }
}

//! Rows as a client keeps them: what a monitor began with and what it was told since, in one form
//! for all versions of updates.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Columns with more than one value; every other one is replaced as a whole by `update2`.
const SETS: [&str; 3] = ["tags", "peer", "items"];
const MAPS: [&str; 1] = ["status"];

/// A value without the two spellings that a set of one has. One with its default is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Datum {
    Atom(String),
    Set(BTreeSet<String>),
    Map(BTreeMap<String, String>),
}

/// Columns that do not have their default.
pub(crate) type Row = BTreeMap<String, Datum>;

/// Rows by table and UUID.
pub(crate) type Rows = BTreeMap<String, BTreeMap<String, Row>>;

fn elements<'v>(value: &'v Value, kind: &str) -> Option<&'v Vec<Value>> {
    let pair = value.as_array().filter(|pair| pair.len() == 2 && pair[0] == kind)?;
    pair[1].as_array()
}

/// Reads the value of a column.
pub(crate) fn datum(column: &str, value: &Value) -> Option<Datum> {
    if let Some(pairs) = elements(value, "map") {
        let pairs: BTreeMap<String, String> =
            pairs.iter().map(|pair| (pair[0].to_string(), pair[1].to_string())).collect();
        return (!pairs.is_empty()).then_some(Datum::Map(pairs));
    }
    if let Some(atoms) = elements(value, "set") {
        let atoms: BTreeSet<String> = atoms.iter().map(Value::to_string).collect();
        return (!atoms.is_empty()).then_some(Datum::Set(atoms));
    }
    if SETS.contains(&column) {
        return Some(Datum::Set([value.to_string()].into()));
    }
    let is_default = *value == false
        || *value == 0
        || *value == ""
        || value[1] == "00000000-0000-0000-0000-000000000000";
    (!is_default).then(|| Datum::Atom(value.to_string()))
}

/// Reads the columns of a row.
pub(crate) fn row(columns: &Value) -> Row {
    let columns = columns.as_object().expect("a row is an object");
    let columns = columns.iter();
    columns.filter_map(|(name, value)| Some((name.clone(), datum(name, value)?))).collect()
}

/// Makes a row what the difference of `update2` says.
fn modify(row: &mut Row, difference: &Value) {
    for (column, value) in difference.as_object().expect("a difference is an object") {
        let change = datum(column, value);
        let before = row.remove(column);
        let after = if SETS.contains(&column.as_str()) {
            let Some(Datum::Set(change)) = change else { panic!("no difference: {difference}") };
            let before = match before {
                Some(Datum::Set(atoms)) => atoms,
                _ => BTreeSet::new(),
            };
            let after: BTreeSet<String> = before.symmetric_difference(&change).cloned().collect();
            (!after.is_empty()).then_some(Datum::Set(after))
        } else if MAPS.contains(&column.as_str()) {
            let Some(Datum::Map(change)) = change else { panic!("no difference: {difference}") };
            let mut after = match before {
                Some(Datum::Map(pairs)) => pairs,
                _ => BTreeMap::new(),
            };
            for (key, value) in change {
                if after.get(&key) == Some(&value) {
                    after.remove(&key);
                } else {
                    after.insert(key, value);
                }
            }
            (!after.is_empty()).then_some(Datum::Map(after))
        } else {
            change
        };
        row.extend(after.map(|after| (column.clone(), after)));
    }
}

/// Takes table updates of any version; says what cannot be.
pub(crate) fn update(rows: &mut Rows, updates: &Value) -> Result<(), String> {
    for (table, updates) in updates.as_object().ok_or("updates are an object")? {
        let rows = rows.entry(table.clone()).or_default();
        for (uuid, update) in updates.as_object().ok_or("updates of a table are an object")? {
            let is_there = rows.contains_key(uuid);
            let wrong = |what: &str| Err(format!("{table} {uuid}: {what}: {update}"));
            if let Some(new) = update.get("initial").or(update.get("insert")) {
                if is_there {
                    return wrong("was there already");
                }
                rows.insert(uuid.clone(), row(new));
            } else if let Some(difference) = update.get("modify") {
                let Some(row) = rows.get_mut(uuid) else { return wrong("was not there") };
                modify(row, difference);
            } else if update.get("delete").is_some() {
                if rows.remove(uuid).is_none() {
                    return wrong("was not there");
                }
            } else {
                let (old, new) = (update.get("old"), update.get("new"));
                if old.is_some() && !is_there {
                    return wrong("was not there");
                }
                if old.is_none() && is_there {
                    return wrong("was there already");
                }
                match new {
                    Some(new) => drop(rows.insert(uuid.clone(), row(new))),
                    None => drop(rows.remove(uuid)),
                }
            }
        }
    }
    Ok(())
}

/// Whether a row, with all its columns, matches a clause of a condition.
pub(crate) fn matches(row: &Row, clause: &str) -> bool {
    let clause: Value = serde_json::from_str(clause).expect("the clause is JSON");
    if let Some(constant) = clause.as_bool() {
        return constant;
    }
    let (column, function) = (clause[0].as_str(), clause[1].as_str());
    let wanted = &clause[2];
    let found = row.get(column.expect("a column"));
    match function.expect("a function") {
        "==" => found == datum(column.expect("a column"), wanted).as_ref(),
        "!=" => found != datum(column.expect("a column"), wanted).as_ref(),
        "includes" => match found {
            Some(Datum::Set(atoms)) => atoms.contains(&wanted.to_string()),
            _ => false,
        },
        function => {
            let number = match found {
                Some(Datum::Atom(number)) => number.parse().expect("a number"),
                _ => 0_i64,
            };
            let wanted = wanted.as_i64().expect("a number");
            if function == "<" { number < wanted } else { number >= wanted }
        }
    }
}

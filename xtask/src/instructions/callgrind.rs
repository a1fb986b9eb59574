//! Reads callgrind's output: instructions by what they are for.

use std::collections::BTreeMap;

/// Crates, and what their functions do for a transaction.
const PURPOSES: &[(&str, &str)] = &[
    ("weir_json", "parse"),
    ("weir_wire", "parse"),
    ("weir_engine", "execute"),
    ("weir_data", "execute"),
    ("weir_log", "log"),
    ("sha1", "log"),
    ("weir_monitor", "encode"),
    ("weir_server", "serve"),
];
/// Memory, copies, maps of the standard library, and whatever else is not ours.
const OTHER: &str = "library";

/// Instructions of each purpose, those of called functions not included.
pub(super) fn by_purpose(text: &str) -> BTreeMap<String, u64> {
    let mut purposes: BTreeMap<&str, &str> = BTreeMap::new();
    let mut counts = BTreeMap::new();
    let mut current = OTHER;
    let mut is_call = false;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            current = learn(name, &mut purposes);
        } else if let Some(name) = line.strip_prefix("cfn=") {
            learn(name, &mut purposes);
        } else if line.starts_with("calls=") {
            // The next line is the cost of what is called.
            is_call = true;
        } else if line.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '*')) {
            let cost = line.split(' ').nth(1).and_then(|cost| cost.parse::<u64>().ok());
            if let (Some(cost), false) = (cost, is_call) {
                *counts.entry(current.to_owned()).or_insert(0) += cost;
            }
            is_call = false;
        }
    }
    counts
}

/// A name stands in full once, `(7) weir_json::parse`, and later as `(7)`.
fn learn<'a>(name: &'a str, purposes: &mut BTreeMap<&'a str, &'static str>) -> &'static str {
    let (number, full) = name.split_once(' ').unwrap_or((name, ""));
    if full.is_empty() {
        return purposes.get(number).copied().unwrap_or(OTHER);
    }
    let purpose = PURPOSES
        .iter()
        .filter_map(|(of, purpose)| Some((full.find(of)?, *purpose)))
        .min()
        .map_or(OTHER, |(_, purpose)| purpose);
    purposes.insert(number, purpose);
    purpose
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_costs_are_counted_and_those_of_called_functions_are_not() {
        let text = "\
events: Ir
fl=(1) a.rs
fn=(1) weir_engine::execute::run
10 5
+2 7
cfn=(2) core::ptr::drop_in_place<weir_data::row::Row>
calls=3 20
* 1000
11 1

fn=(2)
20 40
fn=(3) malloc
0 9
fn=(4) <weir_json::Reader as core::fmt::Debug>::fmt
1 2
";
        let counts = by_purpose(text);
        let expected = [("execute", 53), ("library", 9), ("parse", 2)];
        assert_eq!(counts, expected.map(|(name, count)| (name.to_owned(), count)).into());
    }
}

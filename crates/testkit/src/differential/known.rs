//! Differences that are expected, each with the place that lists it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::generate::value::NOT_UTF8;
use crate::normalise::replace_uuids;

/// One known difference.
struct Known {
    /// Where the difference is listed.
    listed: &'static str,
    /// Whether an operation and its two results are this difference.
    matches: fn(op: &Value, a: &Value, b: &Value) -> bool,
}

/// The table of known differences: the installed reference is 3.1.0, Weir follows 4.0.90.
const KNOWN: [Known; 4] = [
    Known {
        listed: "COMPAT.md: text of a duplicate UUID",
        matches: |_, a, b| {
            let tag = "duplicate uuid";
            a["error"] == tag && b["error"] == tag && a["syntax"] == b["syntax"]
        },
    },
    Known {
        listed: "COMPAT.md: which of several unknown members is told",
        matches: |op, a, b| match (unknown_member(&a["details"]), unknown_member(&b["details"])) {
            (Some((before, _, after)), Some((b_before, b_name, b_after))) => {
                (before, after) == (b_before, b_after) && op.get(b_name).is_some()
            }
            _ => false,
        },
    },
    Known {
        listed: "COMPAT.md: a value that is not UTF-8 for a column with an enumeration",
        // On the replayed server, the reference would not say what Weir says of such a value.
        matches: |op, a, b| {
            let is_utf8 = |one: &Value| one["details"].as_str().unwrap_or("").contains("UTF-8");
            op.to_string().contains(NOT_UTF8) && a["error"].is_string() && is_utf8(b)
        },
    },
    Known {
        listed: "COMPAT.md: a row changed together with the removal of what it weakly refers to",
        // The reference overlooks the reference that is gone, and meets the index first.
        matches: |op, a, b| {
            op.is_null() && template(&a["details"]) == "index" && template(&b["details"]) == "weak"
        },
    },
];

/// Splits "… Member 'NAME' and N other members are present …" around the name.
fn unknown_member(details: &Value) -> Option<(&str, &str, &str)> {
    let (before, rest) = details.as_str()?.split_once("Member '")?;
    let (name, after) = rest.split_once('\'')?;
    after.starts_with(" and ").then_some((before, name, after))
}

/// Lets known differences pass and counts them.
#[derive(Clone, Debug, Default)]
pub struct Judge {
    /// How often each known difference was met.
    pub met: BTreeMap<String, u64>,
}

impl Judge {
    /// Counts a difference that the tables or the rules below know; false for any other.
    pub fn exempt(&mut self, op: &Value, a: &Value, b: &Value) -> bool {
        let listed = KNOWN.iter().find(|known| (known.matches)(op, a, b)).map(|known| known.listed);
        let reason = listed.or_else(|| commit_choice(op, a, b));
        reason.inspect(|reason| self.count(reason)).is_some()
    }

    /// Counts a difference that was found to be a choice among several errors.
    pub fn choice(&mut self) {
        self.count("COMPAT.md: which of several errors of one operation is told");
    }

    /// Counts a difference by the place that lists it.
    pub fn count(&mut self, reason: &str) {
        *self.met.entry(reason.to_owned()).or_default() += 1;
    }
}

/// Of several rows that violate the same rule, the reference tells the first in hash order.
fn commit_choice(op: &Value, a: &Value, b: &Value) -> Option<&'static str> {
    let same_rule = op.is_null()
        && a["error"].is_string()
        && a["error"] == b["error"]
        && template(&a["details"]) == template(&b["details"]);
    same_rule.then_some("COMPAT.md: which of several rows that violate a rule is told")
}

/// The sentence of a commit error without the rows, tables and values in it.
fn template(details: &Value) -> String {
    let text = replace_uuids(details.as_str().unwrap_or_default(), |_| Some("U"));
    let rules = [
        ("cannot delete ", "strong"),
        ("references nonexistent row", "dangling"),
        ("greater than the schema-defined limit", "rows"),
        ("multiple rows in", "index"),
        ("weak reference", "weak"),
        ("Weak reference column", "weak"),
    ];
    rules.iter().find(|(part, _)| text.contains(part)).map_or(text.clone(), |rule| rule.1.into())
}

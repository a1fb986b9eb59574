//! Changes that reach far: neither recursion nor anything quadratic.

use super::scenario::{Scenario, json, json_set};

/// Rows of each test.
const MANY: u128 = 100_000;

#[test]
fn a_row_with_many_weak_sources_can_go() {
    let mut s = Scenario::new(
        r#""To":{"isRoot":true,"columns":{"v":{"type":"integer"}}},
           "From":{"isRoot":true,"columns":{"w":{"type":
               {"key":{"type":"uuid","refTable":"To","refType":"weak"},"min":0,"max":1}}}}"#,
    );
    s.commit(|t| {
        t.insert("To", 1, &[]);
        (0..MANY).for_each(|n| t.insert("From", 10 + n, &[("w", &json(1))]));
    });
    assert_eq!(s.db.weak_refs() as u128, MANY);
    let delta = s.commit(|t| t.delete("To", 1));
    assert_eq!(delta.rows().count() as u128, MANY + 1);
    assert_eq!(s.db.weak_refs(), 0);
}

#[test]
fn a_row_with_many_weak_targets_can_lose_them_all() {
    let mut s = Scenario::new(
        r#""To":{"isRoot":true,"columns":{"v":{"type":"integer"}}},
           "From":{"isRoot":true,"columns":{
               "w":{"type":{"key":{"type":"uuid","refTable":"To","refType":"weak"},
                            "min":0,"max":"unlimited"}},
               "m":{"type":{"key":"integer",
                            "value":{"type":"uuid","refTable":"To","refType":"weak"},
                            "min":0,"max":"unlimited"}}}}"#,
    );
    let numbers: Vec<u128> = (10..10 + MANY).collect();
    let pairs: Vec<String> = numbers.iter().map(|n| format!("[{n},{}]", json(*n))).collect();
    let map = format!(r#"["map",[{}]]"#, pairs.join(","));
    s.commit(|t| {
        numbers.iter().for_each(|n| t.insert("To", *n, &[]));
        t.insert("From", 1, &[("w", &json_set(&numbers)), ("m", &map)]);
    });
    s.commit(|t| numbers.iter().for_each(|n| t.delete("To", *n)));
    assert_eq!(s.value("From", 1, "w").as_deref(), Some(r#"["set",[]]"#));
    assert_eq!(s.value("From", 1, "m").as_deref(), Some(r#"["map",[]]"#));
}

#[test]
fn a_long_chain_of_rows_is_collected() {
    let mut s = Scenario::new(
        r#""Root":{"isRoot":true,"columns":{"head":{"type":
               {"key":{"type":"uuid","refTable":"Link"},"min":0,"max":1}}}},
           "Link":{"columns":{"next":{"type":
               {"key":{"type":"uuid","refTable":"Link"},"min":0,"max":1}}}}"#,
    );
    s.commit(|t| {
        (0..MANY).for_each(|n| {
            let next = if n + 1 < MANY { json(10 + n + 1) } else { json_set(&[]) };
            t.insert("Link", 10 + n, &[("next", &next)]);
        });
        t.insert("Root", 1, &[("head", &json(10))]);
    });
    let before = s.db.state_hash();
    let delta = s.commit(|t| t.set("Root", 1, "head", &json_set(&[])));
    assert_eq!(delta.rows().count() as u128, MANY + 1);
    s.db.revert(&delta);
    assert_eq!(s.db.state_hash(), before);
}

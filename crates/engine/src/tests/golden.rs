//! What a commit does and says, phase by phase, in the reference's words.

use weir_data::RowDelta;

use super::scenario::{Scenario, json, json_set, uuid};

const STRONG: &str = r#"
    "Root":{"isRoot":true,"columns":{
        "name":{"type":"string"},
        "kids":{"type":{"key":{"type":"uuid","refTable":"Kid"},"min":0,"max":"unlimited"}}}},
    "Kid":{"columns":{
        "next":{"type":{"key":{"type":"uuid","refTable":"Kid"},"min":0,"max":"unlimited"}}}}"#;

#[test]
fn a_strong_reference_must_lead_to_a_row() {
    let mut s = Scenario::new(STRONG);
    let error = s.refused(|t| t.insert("Root", 1, &[("kids", &json(9))]));
    assert_eq!(
        error,
        "referential integrity violation: Table Root column kids row \
         00000000-0000-0000-0000-000000000001 references nonexistent row \
         00000000-0000-0000-0000-000000000009 in table Kid."
    );
}

#[test]
fn a_row_inserted_and_deleted_again_never_existed() {
    let mut s = Scenario::new(STRONG);
    let error = s.refused(|t| {
        t.insert("Kid", 9, &[]);
        t.delete("Kid", 9);
        t.insert("Root", 1, &[("kids", &json(9))]);
    });
    assert!(error.contains("references nonexistent row"), "{error}");
}

#[test]
fn a_referenced_row_cannot_be_deleted() {
    let mut s = Scenario::new(STRONG);
    s.commit(|t| {
        t.insert("Kid", 9, &[("next", &json(9))]);
        t.insert("Root", 1, &[("kids", &json(9))]);
        t.insert("Root", 2, &[("kids", &json(9))]);
    });
    let error = s.refused(|t| t.delete("Kid", 9));
    assert_eq!(
        error,
        "referential integrity violation: cannot delete Kid row \
         00000000-0000-0000-0000-000000000009 because of 2 remaining reference(s)"
    );
    s.commit(|t| {
        t.delete("Kid", 9);
        t.delete("Root", 1);
        t.set("Root", 2, "kids", "[\"set\",[]]");
    });
    assert_eq!(s.value("Root", 2, "kids").as_deref(), Some(r#"["set",[]]"#));
    assert_eq!(s.value("Kid", 9, "next"), None);
}

#[test]
fn a_missing_target_is_reported_before_a_remaining_reference() {
    let mut s = Scenario::new(STRONG);
    s.commit(|t| {
        t.insert("Kid", 9, &[]);
        t.insert("Root", 1, &[("kids", &json(9))]);
    });
    let error = s.refused(|t| {
        t.delete("Kid", 9);
        t.insert("Root", 2, &[("kids", &json(8))]);
    });
    assert!(error.contains("references nonexistent row"), "{error}");
}

/// The reference tells rows from themselves by UUID alone, even across tables.
#[test]
fn a_row_of_another_table_with_the_same_uuid_is_itself() {
    let mut s = Scenario::new(STRONG);
    s.commit(|t| t.insert("Root", 1, &[("kids", &json(1))]));
    s.commit(|t| {
        t.insert("Root", 2, &[("kids", &json(2))]);
        t.insert("Kid", 2, &[]);
    });
    assert_eq!(s.value("Kid", 2, "next"), None, "not held, so collected");
}

#[test]
fn unreferenced_rows_go_and_take_what_they_held_with_them() {
    let mut s = Scenario::new(STRONG);
    s.commit(|t| {
        t.insert("Kid", 13, &[]);
        t.insert("Kid", 12, &[("next", &json(13))]);
        t.insert("Kid", 11, &[("next", &json_set(&[11, 12, 13]))]);
        t.insert("Root", 1, &[("kids", &json(11))]);
    });
    assert_eq!(s.db.store().table(s.db.schema().table_id("Kid").unwrap()).len(), 3);
    let delta = s.commit(|t| t.set("Root", 1, "kids", r#"["set",[]]"#));
    assert_eq!(delta.rows().filter(|(_, _, row)| matches!(row, RowDelta::Delete(_))).count(), 3);
    assert_eq!(s.db.store().table(s.db.schema().table_id("Kid").unwrap()).len(), 0);
}

#[test]
fn a_cycle_holds_itself() {
    let mut s = Scenario::new(STRONG);
    s.commit(|t| {
        t.insert("Kid", 11, &[("next", &json(12))]);
        t.insert("Kid", 12, &[("next", &json(11))]);
        t.insert("Root", 1, &[("kids", &json(11))]);
    });
    s.commit(|t| t.delete("Root", 1));
    assert!(s.value("Kid", 11, "next").is_some());
}

#[test]
fn an_unreferenced_insertion_leaves_no_trace_at_all() {
    let mut s = Scenario::new(STRONG);
    let before = s.db.state_hash();
    let delta = s.commit(|t| t.insert("Kid", 11, &[]));
    assert!(delta.is_empty());
    assert_eq!((s.db.state_hash(), s.db.position()), (before, 0));
}

#[test]
fn without_any_root_table_nothing_is_collected() {
    let kid = STRONG.replace(r#""isRoot":true,"#, "");
    let mut s = Scenario::new(&kid);
    s.commit(|t| t.insert("Kid", 11, &[]));
    assert!(s.value("Kid", 11, "next").is_some());
}

#[test]
fn what_is_changed_and_changed_back_is_no_change() {
    let mut s = Scenario::new(STRONG);
    s.commit(|t| t.insert("Root", 1, &[("name", "\"a\"")]));
    let before = s.db.state_hash();
    let delta = s.commit(|t| {
        t.set("Root", 1, "name", "\"b\"");
        t.set("Root", 1, "kids", &json(9));
        t.set("Root", 1, "kids", r#"["set",[]]"#);
        t.set("Root", 1, "name", "\"a\"");
    });
    assert!(delta.is_empty());
    assert_eq!(s.db.state_hash(), before);
}

#[test]
fn an_insertion_keeps_its_version_and_a_change_brings_a_new_one() {
    let mut s = Scenario::new(STRONG);
    let mut seen = None;
    s.commit(|t| {
        t.insert("Root", 1, &[]);
        let table = t.txn.schema().table_id("Root").unwrap();
        seen = t.txn.store().get(table, uuid(1)).map(weir_data::Row::version);
    });
    assert_eq!(s.version("Root", 1), seen);
    s.commit(|t| t.set("Root", 1, "name", "\"b\""));
    assert_ne!(s.version("Root", 1), seen);
}

#[test]
fn a_table_has_at_most_max_rows() {
    let mut s =
        Scenario::new(r#""W":{"isRoot":true,"maxRows":2,"columns":{"v":{"type":"integer"}}}"#);
    let error = s.refused(|t| (1..=3).for_each(|n| t.insert("W", n, &[])));
    assert_eq!(
        error,
        "constraint violation: transaction causes \"W\" table to contain 3 rows, greater than the \
         schema-defined limit of 2 row(s)"
    );
    s.commit(|t| (1..=2).for_each(|n| t.insert("W", n, &[])));
    s.commit(|t| {
        t.insert("W", 3, &[]);
        t.delete("W", 1);
    });
}

const WEAK: &str = r#"
    "To":{"isRoot":true,"columns":{"v":{"type":"integer"}}},
    "From":{"isRoot":true,"columns":{
        "name":{"type":"string"},
        "any":{"type":{"key":{"type":"uuid","refTable":"To","refType":"weak"},
                       "min":0,"max":"unlimited"}},
        "opt":{"type":{"key":{"type":"uuid","refTable":"To","refType":"weak"},"min":0,"max":1}},
        "map":{"type":{"key":"string","value":{"type":"uuid","refTable":"To","refType":"weak"},
                       "min":0,"max":"unlimited"}},
        "both":{"type":{"key":{"type":"uuid","refTable":"To","refType":"weak"},
                        "value":{"type":"uuid","refTable":"From","refType":"weak"},
                        "min":0,"max":"unlimited"}}}},
    "Need":{"isRoot":true,"columns":{
        "some":{"type":{"key":{"type":"uuid","refTable":"To","refType":"weak"},
                        "min":1,"max":"unlimited"}}}}"#;

#[test]
fn a_deleted_row_leaves_every_weak_reference() {
    let mut s = Scenario::new(WEAK);
    let both = format!(r#"["map",[[{},{}],[{},{}]]]"#, json(1), json(10), json(2), json(11));
    let map = format!(r#"["map",[["a",{}],["b",{}],["c",{}]]]"#, json(1), json(2), json(1));
    s.commit(|t| {
        t.insert("To", 1, &[]);
        t.insert("To", 2, &[]);
        t.insert("From", 10, &[("any", &json_set(&[1, 2])), ("opt", &json(1))]);
        t.insert("From", 11, &[("map", &map), ("both", &both)]);
    });
    assert_eq!(s.db.weak_refs(), 10 - 1, "that of row 11 to itself does not count");
    let versions = [s.version("From", 10), s.version("From", 11)];
    let delta = s.commit(|t| t.delete("To", 1));
    assert_eq!(delta.rows().count(), 3);
    assert_eq!(s.value("From", 10, "any").unwrap(), json(2));
    assert_eq!(s.value("From", 10, "opt").unwrap(), r#"["set",[]]"#);
    assert_eq!(s.value("From", 11, "map").unwrap(), format!(r#"["map",[["b",{}]]]"#, json(2)));
    let left = format!(r#"["map",[[{},{}]]]"#, json(2), json(11));
    assert_eq!(s.value("From", 11, "both").unwrap(), left);
    assert_ne!([s.version("From", 10), s.version("From", 11)], versions);

    s.commit(|t| t.delete("From", 10));
    assert_eq!(s.value("From", 11, "both").unwrap(), left);
    s.commit(|t| {
        t.delete("To", 2);
        t.set("From", 11, "name", "\"also changed\"");
    });
    assert_eq!(s.value("From", 11, "both").unwrap(), r#"["map",[]]"#);
    assert_eq!(s.db.weak_refs(), 0);
}

#[test]
fn a_weak_reference_to_what_never_was_goes_silently() {
    let mut s = Scenario::new(WEAK);
    s.commit(|t| t.insert("From", 10, &[("any", &json_set(&[7, 8])), ("opt", &json(9))]));
    assert_eq!(s.value("From", 10, "any").unwrap(), r#"["set",[]]"#);
    assert_eq!(s.value("From", 10, "opt").unwrap(), r#"["set",[]]"#);
}

/// As the reference: the change was there when no-ops were dropped, so the row counts as changed.
#[test]
fn a_row_that_only_gained_and_lost_a_weak_reference_has_a_new_version() {
    let mut s = Scenario::new(WEAK);
    s.commit(|t| t.insert("From", 10, &[]));
    let version = s.version("From", 10);
    let delta = s.commit(|t| t.set("From", 10, "any", &json(7)));
    assert_eq!(delta.rows().count(), 1);
    assert_ne!(s.version("From", 10), version);
}

#[test]
fn a_weak_reference_can_be_moved_while_its_target_goes() {
    let mut s = Scenario::new(WEAK);
    s.commit(|t| {
        t.insert("To", 1, &[]);
        t.insert("To", 2, &[]);
        t.insert("Need", 20, &[("some", &json(1))]);
    });
    s.commit(|t| {
        t.delete("To", 1);
        t.set("Need", 20, "some", &json(2));
    });
    assert_eq!(s.value("Need", 20, "some").unwrap(), json(2));
}

#[test]
fn a_column_may_not_lose_its_last_needed_reference() {
    let mut s = Scenario::new(WEAK);
    s.commit(|t| {
        t.insert("To", 1, &[]);
        t.insert("Need", 20, &[("some", &json(1))]);
    });
    let emptied = "caused this column to become empty, but constraints on this column disallow an \
                   empty column.";
    let need = "in \"Need\" row 00000000-0000-0000-0000-00000000001";
    assert_eq!(
        s.refused(|t| t.delete("To", 1)),
        format!(
            "constraint violation: Deletion of 1 weak reference(s) to deleted (or never-existing) \
             rows from column \"some\" {}4 {emptied}",
            need
        )
    );
    assert_eq!(
        s.refused(|t| t.insert("Need", 21, &[("some", &json_set(&[5, 6]))])),
        format!(
            "constraint violation: Deletion of 2 weak reference(s) to deleted (or never-existing) \
             rows from column \"some\" {need}5 (inserted within this transaction) {emptied}"
        )
    );
    assert_eq!(
        s.refused(|t| t.insert("Need", 21, &[])),
        format!(
            "constraint violation: Weak reference column \"some\" {need}5 (inserted within this \
             transaction) contained all-zeros UUID (probably as the default value for this column) \
             but deleting this value caused a constraint volation because this column is not \
             allowed to be empty."
        )
    );
    let error = s.refused(|t| t.set("Need", 20, "some", &json_set(&[0, 5])));
    assert!(error.contains("Deletion of 2 weak reference(s)"), "{error}");
}

const INDEXED: &str = r#"
    "I":{"isRoot":true,
         "columns":{"a":{"type":"integer"},"b":{"type":"string"},"c":{"type":"integer"},
                    "s":{"type":{"key":"string","min":0,"max":"unlimited"}}},
         "indexes":[["a","b"],["s"]]}"#;

#[test]
fn equal_index_values_are_refused_with_the_fate_of_both_rows() {
    let mut s = Scenario::new(INDEXED);
    s.commit(|t| t.insert("I", 1, &[("a", "1"), ("b", "\"y z\"")]));
    let clash = "constraint violation: Transaction causes multiple rows in \"I\" table to have \
                 identical values";
    let first = "First row, with UUID 00000000-0000-0000-0000-000000000002,";
    let second = "Second row, with UUID 00000000-0000-0000-0000-000000000001,";
    let twin = [("a", "1"), ("b", "\"y z\""), ("s", "\"q\"")];
    assert_eq!(
        s.refused(|t| t.insert("I", 2, &twin)),
        format!(
            "{clash} (1 and \"y z\") for index on columns \"a\" and \"b\".  {first} was inserted \
             by this transaction.  {second} existed in the database before this transaction and \
             was not modified by the transaction."
        )
    );
    assert_eq!(
        s.refused(|t| t.insert("I", 2, &[("a", "2")])),
        format!(
            "{clash} ([]) for index on column \"s\".  {first} was inserted by this transaction.  \
             {second} existed in the database before this transaction and was not modified by the \
             transaction."
        )
    );
    let error = s.refused(|t| {
        t.set("I", 1, "c", "-1");
        t.insert("I", 2, &twin);
    });
    assert!(
        error.ends_with(
            "existed in the database before this transaction, which modified some of the row's \
             columns but not any columns in this index."
        ),
        "{error}"
    );
    let error = s.refused(|t| {
        t.insert("I", 2, &[("a", "2"), ("b", "\"y z\""), ("s", r#"["set",["p","q"]]"#)]);
        t.set("I", 1, "a", "2");
    });
    assert!(
        error.ends_with("had the following index values before the transaction: 1 and \"y z\"."),
        "{error}"
    );
}

#[test]
fn rows_can_swap_index_values_and_take_those_of_deleted_rows() {
    let mut s = Scenario::new(INDEXED);
    s.commit(|t| {
        t.insert("I", 1, &[("a", "1"), ("s", "\"p\"")]);
        t.insert("I", 2, &[("a", "2"), ("s", "\"q\"")]);
    });
    s.commit(|t| {
        t.set("I", 1, "a", "2");
        t.set("I", 2, "a", "1");
        t.set("I", 1, "s", "\"q\"");
        t.set("I", 2, "s", r#"["set",[]]"#);
    });
    s.commit(|t| {
        t.delete("I", 1);
        t.insert("I", 3, &[("a", "2"), ("s", "\"q\"")]);
    });
    let error = s.refused(|t| t.set("I", 2, "s", "\"q\""));
    assert!(error.contains("identical values ([q])"), "{error}");
}

#[test]
fn the_index_is_checked_after_weak_references_went() {
    let mut s = Scenario::new(
        r#""To":{"isRoot":true,"columns":{"v":{"type":"integer"}}},
           "From":{"isRoot":true,"indexes":[["w"]],"columns":{"w":{"type":
               {"key":{"type":"uuid","refTable":"To","refType":"weak"},"min":0,"max":1}}}}"#,
    );
    s.commit(|t| {
        t.insert("To", 1, &[]);
        t.insert("From", 10, &[("w", &json(1))]);
        t.insert("From", 11, &[]);
    });
    let error = s.refused(|t| t.delete("To", 1));
    assert!(error.contains("identical values ([])"), "{error}");
}

/// Unlike the reference, which keeps such a row, undeletable, until it restarts.
#[test]
fn a_pair_that_loses_its_weak_half_lets_go_of_its_strong_half() {
    let mut s = Scenario::new(
        r#""To":{"isRoot":true,"columns":{"v":{"type":"integer"}}},
           "Kid":{"columns":{"v":{"type":"integer"}}},
           "From":{"isRoot":true,"columns":{"m":{"type":{
               "key":{"type":"uuid","refTable":"To","refType":"weak"},
               "value":{"type":"uuid","refTable":"Kid"},"min":0,"max":"unlimited"}}}}"#,
    );
    s.commit(|t| {
        t.insert("To", 1, &[]);
        t.insert("Kid", 2, &[]);
        t.insert("From", 3, &[("m", &format!(r#"["map",[[{},{}]]]"#, json(1), json(2)))]);
    });
    s.commit(|t| t.delete("To", 1));
    assert_eq!(s.value("From", 3, "m").as_deref(), Some(r#"["map",[]]"#));
    assert_eq!(s.value("Kid", 2, "v"), None);
}

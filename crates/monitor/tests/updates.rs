//! What single updates look like, as ovsdb-server sends them.

mod scene;

use scene::{Scene, message};
use weir_data::{IdKind, Schema};
use weir_monitor::Version::{V1, V2, V3};

const ROW: &str = "00000000-0000-0000-0000-000000000001";

/// The table updates of Bridge 1 in a notification to a monitor called "m".
fn update(method: &str, row: &str) -> String {
    format!(r#"{{"id":null,"method":"{method}","params":["m",{{"Bridge":{{"{ROW}":{row}}}}}]}}"#)
}

#[test]
fn version_1_tells_all_columns_and_what_the_changed_ones_were() {
    let mut s = Scene::new();
    let key = s.add(V1, r#"{"Bridge":{"columns":["name","tag","ports"]}}"#);
    s.insert("Bridge", 1, &[("name", r#""a""#)]).commit();
    let row = r#"{"new":{"name":"a","ports":["set",[]],"tag":["set",[]]}}"#;
    assert_eq!(s.message(key), update("update", row));
    s.set("Bridge", 1, &[("tag", "7"), ("n", "1")]).commit();
    let row = r#"{"new":{"name":"a","ports":["set",[]],"tag":7},"old":{"tag":["set",[]]}}"#;
    assert_eq!(s.message(key), update("update", row));
    s.delete("Bridge", 1).commit();
    let row = r#"{"old":{"name":"a","ports":["set",[]],"tag":7}}"#;
    assert_eq!(s.message(key), update("update", row));
}

#[test]
fn version_2_tells_what_is_not_default_and_differences() {
    let mut s = Scene::new();
    let key = s.add(V2, r#"{"Bridge":{"columns":["name","tag","ports","other"]}}"#);
    let ports = r#"["set",["p","q"]]"#;
    let other = r#"["map",[["k","v"],["l","w"]]]"#;
    s.insert("Bridge", 1, &[("name", r#""a""#), ("ports", ports), ("other", other)]).commit();
    let row = format!(r#"{{"insert":{{"name":"a","other":{other},"ports":{ports}}}}}"#);
    assert_eq!(s.message(key), update("update2", &row));
    s.set("Bridge", 1, &[("ports", r#""q""#), ("other", r#"["map",[["k","V"],["n","1"]]]"#)])
        .commit();
    let row = r#"{"modify":{"other":["map",[["k","V"],["l","w"],["n","1"]]],"ports":"p"}}"#;
    assert_eq!(s.message(key), update("update2", row));
    s.set("Bridge", 1, &[("tag", "7")]).commit();
    assert_eq!(s.message(key), update("update2", r#"{"modify":{"tag":7}}"#));
    s.set("Bridge", 1, &[("tag", r#"["set",[]]"#)]).commit();
    assert_eq!(s.message(key), update("update2", r#"{"modify":{"tag":["set",[]]}}"#));
    s.delete("Bridge", 1).commit();
    assert_eq!(s.message(key), update("update2", r#"{"delete":null}"#));
}

#[test]
fn version_3_names_the_last_transaction() {
    let mut s = Scene::new();
    let key = s.add(V3, r#"{"Bridge":{"columns":["name"]}}"#);
    s.insert("Bridge", 1, &[]).commit();
    let zero = "00000000-0000-0000-0000-000000000000";
    let expected = update("update3", r#"{"insert":{}}"#);
    assert_eq!(s.message(key), expected.replace("\"m\",", &format!("\"m\",\"{zero}\",")));
}

#[test]
fn without_columns_all_but_uuid_are_told() {
    let mut s = Scene::new();
    s.insert("Quiet", 1, &[("n", "3")]).commit();
    let key = s.add(V2, r#"{"Quiet":{}}"#);
    let rows = s.initial(key);
    assert!(rows.contains("_version") && rows.contains("\"n\":3"), "{rows}");
    assert!(!rows.contains("_uuid"), "{rows}");
    let key = s.add(V2, r#"{"Quiet":{"columns":["_uuid"]}}"#);
    assert!(s.initial(key).contains("_uuid"));
}

#[test]
fn no_columns_still_tell_of_rows_and_no_requests_of_nothing() {
    let mut s = Scene::new();
    s.insert("Bridge", 1, &[]).commit();
    let bare = s.add(V2, r#"{"Bridge":{"columns":[]}}"#);
    let none = s.add(V2, r#"{"Bridge":[]}"#);
    assert_eq!(s.initial(bare), format!(r#"{{"Bridge":{{"{ROW}":{{"initial":{{}}}}}}}}"#));
    assert_eq!(s.initial(none), "{}");
    s.set("Bridge", 1, &[("n", "1")]).commit();
    assert_eq!(s.message(bare), "");
    s.delete("Bridge", 1).commit();
    assert_eq!(s.message(bare), update("update2", r#"{"delete":null}"#));
    assert_eq!(s.message(none), "");
}

#[test]
fn selections_of_several_requests_are_kept_apart_by_column_and_added_up_by_row() {
    let mut s = Scene::new();
    let requests = r#"{"Bridge":[
        {"columns":["name"],"select":{"modify":false,"insert":false}},
        {"columns":["n"],"select":{"delete":false}}]}"#;
    let (v1, v2) = (s.add(V1, requests), s.add(V2, requests));
    s.insert("Bridge", 1, &[("name", r#""a""#), ("n", "1")]).commit();
    assert_eq!(s.message(v1), update("update", r#"{"new":{"n":1}}"#));
    assert_eq!(s.message(v2), update("update2", r#"{"insert":{"n":1}}"#));
    s.set("Bridge", 1, &[("name", r#""b""#)]).commit();
    assert_eq!(s.message(v1), update("update", r#"{"new":{"n":1},"old":{}}"#));
    assert_eq!(s.message(v2), update("update2", r#"{"modify":{}}"#));
    s.delete("Bridge", 1).commit();
    assert_eq!(s.message(v1), update("update", r#"{"old":{"name":"b"}}"#));
    assert_eq!(s.message(v2), update("update2", r#"{"delete":null}"#));
}

#[test]
fn a_row_comes_and_goes_with_a_condition_on_a_column_that_is_not_told() {
    let mut s = Scene::new();
    s.insert("Bridge", 1, &[("name", r#""a""#)]).commit();
    let key = s.add(V2, r#"{"Bridge":{"columns":["name"],"where":[["n",">",5]]}}"#);
    assert_eq!(s.initial(key), "{}");
    for (n, expected) in [
        ("7", update("update2", r#"{"insert":{"name":"a"}}"#)),
        ("8", update("update2", r#"{"modify":{}}"#)),
        ("1", update("update2", r#"{"delete":null}"#)),
        ("2", String::new()),
    ] {
        s.set("Bridge", 1, &[("n", n)]).commit();
        assert_eq!(s.message(key), expected, "n = {n}");
    }
}

#[test]
fn of_several_conditions_for_a_table_the_first_counts() {
    let mut s = Scene::new();
    s.insert("Bridge", 1, &[("n", "1")]).insert("Bridge", 2, &[("n", "2")]).commit();
    let key = s.add(
        V2,
        r#"{"Bridge":[{"columns":["name"],"where":[["n","==",1]]},
            {"columns":["n"],"where":[["n","==",2]]}]}"#,
    );
    assert_eq!(s.initial(key), format!(r#"{{"Bridge":{{"{ROW}":{{"initial":{{"n":1}}}}}}}}"#));
}

#[test]
fn what_cancels_out_before_a_flush_is_not_told() {
    let mut s = Scene::new();
    s.insert("Bridge", 1, &[("ports", r#"["set",["p","q"]]"#)]).commit();
    let key = s.add(V2, r#"{"Bridge":{"columns":["n","ports"]}}"#);
    s.insert("Bridge", 2, &[]).commit();
    s.set("Bridge", 1, &[("n", "5")]).commit();
    s.delete("Bridge", 2).commit();
    s.set("Bridge", 1, &[("n", "0")]).commit();
    assert_eq!(s.message(key), "");
    s.set("Bridge", 1, &[("ports", r#"["set",["p","q","x"]]"#)]).commit();
    s.set("Bridge", 1, &[("ports", r#"["set",["q","x","y"]]"#)]).commit();
    s.set("Bridge", 1, &[("ports", r#"["set",["q","y"]]"#)]).commit();
    let row = r#"{"modify":{"ports":["set",["p","y"]]}}"#;
    assert_eq!(s.message(key), update("update2", row));
}

#[test]
fn a_row_deleted_and_inserted_again_before_a_flush_is_a_changed_one() {
    let mut s = Scene::new();
    s.insert("Bridge", 1, &[("name", r#""a""#), ("n", "1")]).commit();
    let key = s.add(V2, r#"{"Bridge":{"columns":["name","n"]}}"#);
    s.delete("Bridge", 1).commit();
    s.insert("Bridge", 1, &[("name", r#""a""#)]).commit();
    s.set("Bridge", 1, &[("n", "3")]).commit();
    assert_eq!(s.message(key), update("update2", r#"{"modify":{"n":3}}"#));
}

#[test]
fn a_new_condition_tells_the_difference_under_the_new_name() {
    let mut s = Scene::new();
    s.insert("Bridge", 1, &[("n", "1")]).insert("Bridge", 2, &[("n", "2")]).commit();
    let key = s.add(V2, r#"{"Bridge":{"columns":["n"],"where":[["n","==",2]]}}"#);
    let change = r#"{"Bridge":[{"where":[["n","==",1]]}]}"#;
    let told = s.try_change(key, r#""m""#, change).expect("accepted").expect("an update");
    let second = ROW.replace("0001", "0002");
    let both = format!(r#"{{"insert":{{"n":1}}}},"{second}":{{"delete":null}}"#);
    assert_eq!(message(&told), update("update2", &both));
    // The same rows by other words: nothing to tell, but the name is another.
    let same = r#"{"Bridge":[{"where":[["n","==",1],["n","==",17]]}]}"#;
    assert!(s.try_change(key, "[\"new\"]", same).expect("accepted").is_none());
    s.set("Bridge", 1, &[("n", "17")]).commit();
    assert!(s.message(key).contains(r#""params":[["new"],{"Bridge""#));
}

#[test]
fn a_new_condition_tells_only_what_is_selected() {
    for (select, expected) in [
        (r#"{"insert":false}"#, r#"{"delete":null}"#),
        (r#"{"delete":false}"#, r#"{"insert":{"n":2}}"#),
    ] {
        let mut s = Scene::new();
        s.insert("Bridge", 1, &[("n", "1")]).insert("Bridge", 2, &[("n", "2")]).commit();
        let key = s.add(
            V2,
            &format!(
                r#"{{"Bridge":{{"columns":["n"],"where":[["n","==",1]],"select":{select}}}}}"#
            ),
        );
        let change = r#"{"Bridge":[{"where":[["n","==",2]]}]}"#;
        let told = s.try_change(key, r#""m""#, change).expect("accepted").expect("an update");
        let told = message(&told);
        assert!(told.contains(expected), "{told}");
        assert_eq!(told.matches(ROW.split_at(30).0).count(), 1, "{told}");
    }
}

#[test]
fn a_table_that_a_condition_kept_away_is_not_told_twice() {
    let mut s = Scene::new();
    let key = s.add(V2, r#"{"Bridge":{"columns":["n"],"where":[false]},"Port":{}}"#);
    let other = s.add(V2, r#"{"Port":{}}"#);
    s.insert("Bridge", 1, &[("n", "1")]).insert("Port", 9, &[]).commit();
    assert!(s.message(key).contains("Port"));
    let change = r#"{"Bridge":[{"where":[true]}]}"#;
    let told = s.try_change(key, r#""m""#, change).expect("accepted").expect("an update");
    assert_eq!(message(&told), update("update2", r#"{"insert":{"n":1}}"#));
    assert_eq!(s.message(key), "");
    assert!(s.message(other).contains("Port"));
}

#[test]
fn conditions_go_on_when_the_database_becomes_another_one() {
    let mut s = Scene::new();
    let clauses: Vec<String> = (0..20).map(|n| format!(r#"["n","==",{n}]"#)).collect();
    let wanted = format!(r#"{{"Bridge":{{"columns":["n"],"where":[{}]}}}}"#, clauses.join(","));
    let key = s.add(V2, &wanted);
    let schema = std::sync::Arc::clone(s.store.schema());
    assert_eq!(s.monitors.convert(&schema, Some), [key]);
    s.insert("Bridge", 1, &[("n", "7")]).commit();
    let told = s.flush_all(&[]);
    assert_eq!(message(&told[0]), update("update2", r#"{"insert":{"n":7}}"#));
}

#[test]
fn which_ids_a_monitor_is_told_follows_what_a_conversion_makes_of_its_columns() {
    let mut s = Scene::new();
    let key = s.add(V3, r#"{"Port":{"columns":["n"]}}"#);
    let ids = |s: &Scene| s.monitors.missed(key).expect("its monitor").ids();
    assert_eq!(ids(&s), IdKind::Recorded);
    let mut schema = Schema::clone(s.store.schema());
    let port = schema.table_id("Port").expect("a table");
    let n = schema.table(port).column_id("n").expect("a column");
    for (persistent, expected) in [(false, IdKind::Volatile), (true, IdKind::Recorded)] {
        schema.tables[port.index()].columns[n.index()].persistent = persistent;
        assert_eq!(s.monitors.convert(&schema, Some), [key]);
        assert_eq!(ids(&s), expected);
    }
}

#[test]
fn a_monitor_has_been_told_up_to_what_it_watches_and_has_not_seen() {
    let mut s = Scene::new();
    let bridges = s.add(V2, r#"{"Bridge":{"columns":["name"]}}"#);
    let ports = s.add(V2, r#"{"Port":{"columns":["name"]}}"#);
    let told = |s: &Scene| [bridges, ports].map(|key| s.monitors.told(key));
    assert_eq!(told(&s), [None, None]);
    s.insert("Bridge", 1, &[]).commit();
    assert_eq!(told(&s), [Some(0), None], "ports have not changed");
    s.insert("Bridge", 2, &[]).commit();
    assert_eq!(told(&s), [Some(0), None]);
    s.flush_all(&[bridges]);
    assert_eq!(told(&s), [Some(0), None], "it does not read");
    s.insert("Port", 3, &[]).commit();
    assert_eq!(told(&s), [Some(0), Some(2)]);
    s.flush_all(&[ports]);
    assert_eq!(told(&s), [None, Some(2)]);
    s.set("Bridge", 1, &[("name", r#""x""#)]).commit();
    assert_eq!(told(&s), [Some(3), Some(2)]);
    s.flush_all(&[]);
    assert_eq!(told(&s), [None, None]);
    s.remove(bridges);
    s.delete("Bridge", 1).commit();
    assert_eq!(told(&s), [None, None], "who has ended is behind with nothing");
}

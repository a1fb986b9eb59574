//! The dialogue of a replica about its conditions.

use super::*;
use crate::follower::talk::Talk;
use crate::session::Input;

const SCHEMA: &str = r#"{"name":"D","version":"1.0.0","tables":{
    "T":{"columns":{"x":{"type":"integer"},"y":{"type":"integer"}}},
    "U":{"columns":{"x":{"type":"integer"}}},
    "V":{"columns":{"x":{"type":"integer"}}}}}"#;

/// The schema before `y` and `U`.
const OLD_SCHEMA: &str =
    r#"{"name":"D","version":"0.9.0","tables":{"T":{"columns":{"x":{"type":"integer"}}}}}"#;

/// All that it wants and a server with that schema has.
const ALL: &str = r#"{"T":[{"columns":["x"]}],"U":[{"columns":["x"]}]}"#;

fn id(number: u128) -> String {
    Uuid::from_u128(number).to_string()
}

fn x_is(value: i64) -> Condition {
    Condition::Any(vec![Value::Array(vec!["x".into(), "==".into(), value.into()])])
}

/// A replica that wants a column of `T`, whatever `U` has, and a table that nobody has.
fn replica() -> Talk {
    let columns = ["x", "z"].map(str::to_owned).into_iter().collect();
    let tables = [("T", Columns::These(columns)), ("U", Columns::All), ("W", Columns::All)];
    let tables = tables.map(|(name, columns)| (name.to_owned(), columns));
    Talk::of("tcp:a:1", Model::Replica(tables.into_iter().collect()))
}

impl Talk {
    /// A server that is connected is fit, and is asked for rows.
    fn meet(&mut self, schema: &str) {
        self.meet_one(schema, false);
    }

    fn meet_one(&mut self, schema: &str, is_ours: bool) {
        self.answer("set_db_change_aware", "{}");
        match is_ours {
            true => self.answer("weir_features", r#"["weir_features"]"#),
            false => self.refuse("weir_features", r#""unknown method""#),
        }
        self.answer("get_schema", "{}");
        let row = object([
            ("name", "D".into()),
            ("model", "clustered".into()),
            ("connected", true.into()),
            ("schema", schema.into()),
        ]);
        self.answer("monitor_cond", &format!(r#"{{"Database":{{"u":{{"initial":{row}}}}}}}"#));
    }

    fn begin(&mut self) {
        self.give(Input::Up);
        self.meet(SCHEMA);
    }

    /// The connection ends, and there is another one.
    fn meet_again(&mut self) {
        self.give(Input::Down(None));
        self.asked.clear();
        self.come_back();
        self.meet(SCHEMA);
    }

    fn want(&mut self, changes: &[(&str, Condition)]) -> u64 {
        let mut out = Vec::new();
        let changes = changes.iter().map(|(name, what)| ((*name).to_owned(), what.clone()));
        let number = self.follower.set_conditions(changes.collect(), &mut out);
        self.note(out);
        number
    }

    /// What is asked now, and nothing else.
    fn asks(&self, method: &str, params: &str) {
        let asked: Vec<_> =
            self.asked.iter().map(|(_, method, params)| (&**method, &**params)).collect();
        assert_eq!(asked, [(method, params)]);
    }

    fn has_rows(&mut self, is_found: bool, state: u128) {
        self.answer("monitor_cond_since", &format!(r#"[{is_found},"{}",{{}}]"#, id(state)));
    }

    /// The monitor of this name is told a state.
    fn update(&mut self, name: &str, state: u128) {
        let params = format!(r#"[{name},"{}",{{}}]"#, id(state));
        self.say(&format!(r#"{{"id":null,"method":"update3","params":{params}}}"#));
    }

    fn was_told(&mut self, expected: &[&str]) {
        assert_eq!(std::mem::take(&mut self.told), expected);
    }
}

/// A request for rows of `T` under these clauses, and all of `U`, from this state on.
fn since(clauses: &str, state: u128) -> String {
    let t = format!(r#"{{"columns":["x"]{clauses}}}"#);
    format!(r#"["D",["monid","D"],{{"T":[{t}],"U":[{{"columns":["x"]}}]}},"{}"]"#, id(state))
}

fn change(old: &str, new: &str, requests: &str) -> String {
    format!("[{old},{new},{requests}]")
}

const FIRST: &str = r#"["monid","D"]"#;
const SECOND: &str = r#"["monid","D",2]"#;
const THIRD: &str = r#"["monid","D",3]"#;

#[test]
fn what_the_server_has_of_the_wanted_is_asked_for() {
    let mut replica = replica();
    assert_eq!(replica.want(&[("T", x_is(1)), ("W", x_is(1)), ("U", Condition::Any(vec![]))]), 1);
    assert_eq!(replica.want(&[("T", x_is(1)), ("U", Condition::All)]), 2);
    assert_eq!(replica.want(&[("T", x_is(1))]), 2, "nothing else is wanted");
    replica.begin();
    replica.asks("monitor_cond_since", &since(r#","where":[["x","==",1]]"#, 0));
    replica.was_told(&[]);
    replica.has_rows(false, 7);
    replica.was_told(&["rows", "2 []"]);
    assert_eq!(replica.asked, [], "nothing is to be changed");
}

#[test]
fn changes_go_one_by_one_and_hold_when_rows_come_under_their_name() {
    let mut replica = replica();
    replica.begin();
    replica.has_rows(false, 7);
    replica.was_told(&["rows", "0 []"]);
    replica.want(&[("T", x_is(1))]);
    let first = change(FIRST, SECOND, r#"{"T":[{"where":[["x","==",1]]}]}"#);
    replica.asks("monitor_cond_change", &first);
    // Two more while that is under way make one.
    replica.want(&[("T", Condition::Any(vec![]))]);
    assert_eq!(replica.want(&[("U", x_is(2))]), 3);
    replica.asks("monitor_cond_change", &first);
    replica.update(FIRST, 8);
    replica.was_told(&["rows"]);
    replica.update(SECOND, 9);
    replica.was_told(&["rows", "1 []"]);
    replica.update(FIRST, 10);
    replica.was_told(&[]);
    replica.answer("monitor_cond_change", "{}");
    let requests = r#"{"T":[{"where":[false]}],"U":[{"where":[["x","==",2]]}]}"#;
    replica.asks("monitor_cond_change", &change(SECOND, THIRD, requests));
    replica.was_told(&[]);
    // An answer alone says that no row comes or goes.
    replica.answer("monitor_cond_change", "{}");
    replica.was_told(&["3 []"]);
    // What the server does not have need not be changed.
    replica.want(&[("W", x_is(1))]);
    replica.was_told(&["4 []"]);
    assert_eq!(replica.asked, []);
}

#[test]
fn a_lost_connection_resumes_under_the_conditions_of_the_last_state() {
    let begin = || {
        let mut replica = replica();
        replica.begin();
        replica.has_rows(false, 7);
        replica.want(&[("T", x_is(1))]);
        replica.was_told(&["rows", "0 []"]);
        replica
    };
    let wanted = change(FIRST, SECOND, r#"{"T":[{"where":[["x","==",1]]}]}"#);
    // Nothing is known of the change, or that it made no row come or go: since when, nobody knows.
    for is_answered in [false, true] {
        let mut replica = begin();
        if is_answered {
            replica.answer("monitor_cond_change", "{}");
            replica.was_told(&["1 []"]);
        } else {
            replica.update(FIRST, 7);
            replica.was_told(&["rows"]);
        }
        replica.meet_again();
        replica.asks("monitor_cond_since", &since("", 7));
        replica.has_rows(true, 9);
        replica.was_told(&["rows", "0 []"]);
        replica.asks("monitor_cond_change", &wanted);
    }
    // The difference has come, the answer has not; another state has come behind the answer.
    for is_answered in [false, true] {
        let mut replica = begin();
        if is_answered {
            replica.answer("monitor_cond_change", "{}");
        }
        replica.update(SECOND, 8);
        replica.told.clear();
        replica.meet_again();
        replica.asks("monitor_cond_since", &since(r#","where":[["x","==",1]]"#, 8));
        replica.has_rows(true, 9);
        replica.was_told(&["rows", "1 []"]);
        assert_eq!(replica.asked, []);
    }
}

#[test]
fn a_refused_change_has_the_rows_asked_for_under_the_conditions_before() {
    let mut replica = replica();
    replica.begin();
    replica.has_rows(false, 7);
    replica.want(&[("T", x_is(1)), ("U", x_is(1))]);
    replica.told.clear();
    let error = r#"{"error":"syntax error","details":"unknown whatever"}"#;
    replica.refuse("monitor_cond_change", error);
    replica.was_told(&["refused 1"]);
    // The server may have changed a part of it.
    replica.update(FIRST, 8);
    replica.was_told(&[]);
    replica.answer("monitor_cancel", "{}");
    let expected = since("", 7).replace(FIRST, SECOND);
    replica.asks("monitor_cond_since", &expected);
    replica.has_rows(true, 8);
    replica.was_told(&["rows", "0 []"]);
    assert_eq!(replica.asked, [], "what was refused is not asked for again");
    replica.want(&[("U", Condition::All)]);
    let requests = r#"{"T":[{"where":[["x","==",1]]}]}"#;
    replica.asks("monitor_cond_change", &change(SECOND, THIRD, requests));
    // Another server may take it.
    replica.refuse("monitor_cond_change", error);
    replica.meet_again();
    replica.has_rows(true, 9);
    replica.asks("monitor_cond_change", &change(FIRST, SECOND, requests));
}

#[test]
fn conditions_that_were_never_answered_give_way_to_those_before() {
    let mut replica = replica();
    replica.begin();
    replica.has_rows(false, 7);
    replica.want(&[("T", x_is(1))]);
    replica.was_told(&["rows", "0 []"]);
    replica.meet_again();
    replica.asks("monitor_cond_since", &since("", 7));
    // Without any that the server takes there is no way to follow it.
    let error = r#"{"error":"resources exhausted"}"#;
    replica.refuse("monitor_cond_since", error);
    assert_eq!(replica.closed, 1);
    replica.come_back();
    replica.meet(SCHEMA);
    replica.asks("monitor_cond_since", &since(r#","where":[["x","==",1]]"#, 0));
    replica.refuse("monitor_cond_since", error);
    replica.refuse("monitor_cond_since", error);
    assert_eq!(replica.closed, 2);
    replica.was_told(&["refused 0", "refused 1", "refused 0"]);
}

/// A mistake in the first ones does not bring the whole database.
#[test]
fn who_never_had_rows_is_not_sent_all_of_them_for_conditions_that_are_refused() {
    let mut replica = replica();
    replica.want(&[("T", x_is(1))]);
    replica.begin();
    replica.refuse("monitor_cond_since", r#"{"error":"unknown column"}"#);
    replica.was_told(&["refused 1"]);
    assert_eq!(replica.closed, 1);
    replica.want(&[("T", x_is(2))]);
    replica.come_back();
    replica.meet(SCHEMA);
    replica.asks("monitor_cond_since", &since(r#","where":[["x","==",2]]"#, 0));
}

/// The reference may end by a condition on a column that the monitor did not have.
#[test]
fn a_packaged_server_is_not_asked_to_look_at_other_columns() {
    let y = Condition::Any(vec![Value::Array(vec!["y".into(), "==".into(), 1.into()])]);
    let requests = r#"{"T":[{"where":[["y","==",1]]}]}"#;
    for is_ours in [false, true] {
        let mut replica = replica();
        replica.give(Input::Up);
        replica.meet_one(SCHEMA, is_ours);
        replica.has_rows(false, 7);
        replica.was_told(&["rows", "0 []"]);
        replica.want(&[("T", y.clone())]);
        if is_ours {
            replica.asks("monitor_cond_change", &change(FIRST, SECOND, requests));
            continue;
        }
        replica.answer("monitor_cancel", "{}");
        let expected = since(r#","where":[["y","==",1]]"#, 0).replace(FIRST, SECOND);
        replica.asks("monitor_cond_since", &expected);
        replica.has_rows(false, 7);
        replica.was_told(&["rows", "1 []"]);
        // None of the new conditions looks at it any more.
        replica.want(&[("T", x_is(1))]);
        let requests = r#"{"T":[{"where":[["x","==",1]]}]}"#;
        replica.asks("monitor_cond_change", &change(SECOND, THIRD, requests));
    }
}

#[test]
fn older_servers_know_no_ids_or_no_conditions() {
    let mut replica = replica();
    replica.want(&[("T", x_is(1))]);
    replica.begin();
    replica.refuse("monitor_cond_since", r#""unknown method""#);
    let tables = ALL.replacen("}", r#","where":[["x","==",1]]}"#, 1);
    replica.asks("monitor_cond", &format!(r#"["D",{SECOND},{tables}]"#));
    replica.answer("monitor_cond", "{}");
    replica.was_told(&["rows", "1 []"]);
    // No state has an id, so that all is asked for under what is wanted last.
    replica.want(&[("T", Condition::All)]);
    replica.meet_again();
    replica.refuse("monitor_cond_since", r#""unknown method""#);
    replica.asks("monitor_cond", &format!(r#"["D",{SECOND},{ALL}]"#));
    replica.refuse("monitor_cond", r#"{"error":"unknown method"}"#);
    replica.asks("monitor", &format!(r#"["D",{THIRD},{ALL}]"#));
    replica.answer("monitor", "{}");
    replica.was_told(&["rows", "2 []"]);
    replica.want(&[("T", x_is(1)), ("W", x_is(1))]);
    replica.was_told(&[r#"3 ["T"]"#]);
    assert_eq!(replica.asked, []);
}

#[test]
fn conditions_are_what_the_schema_makes_of_them() {
    let mut replica = replica();
    let y = Condition::Any(vec![Value::Array(vec!["y".into(), "==".into(), 1.into()])]);
    replica.want(&[("T", y), ("U", x_is(1))]);
    replica.give(Input::Up);
    replica.meet(OLD_SCHEMA);
    let tables = r#"{"T":[{"columns":["x"]}]}"#;
    replica.asks("monitor_cond_since", &format!(r#"["D",{FIRST},{tables},"{}"]"#, id(0)));
    replica.has_rows(false, 7);
    replica.was_told(&["rows", r#"1 ["T"]"#]);
    // Another change is under way when the server gets the other tables.
    replica.want(&[("T", x_is(1))]);
    let row = object([("schema", SCHEMA.into())]);
    let server = r#"["monid","_Server"]"#;
    let update = format!(r#"[{server},{{"Database":{{"u":{{"modify":{row}}}}}}}]"#);
    replica.say(&format!(r#"{{"id":null,"method":"monitor_canceled","params":[{SECOND}]}}"#));
    assert!(!replica.follower.is_following(), "it may have its new name already");
    replica.answer("get_schema", SCHEMA);
    assert!(!replica.follower.is_following(), "the server's own row says it, too");
    replica.say(&format!(r#"{{"id":null,"method":"update2","params":{update}}}"#));
    replica.refuse("monitor_cond_change", r#"{"error":"syntax error"}"#);
    replica.was_told(&[]);
    let request = r#"[{"columns":["x"],"where":[["x","==",1]]}]"#;
    let tables = format!(r#"{{"T":{request},"U":{request}}}"#);
    replica.asks("monitor_cond_since", &format!(r#"["D",{SECOND},{tables},"{}"]"#, id(0)));
    replica.has_rows(false, 8);
    replica.was_told(&["rows", "2 []"]);
}

#[test]
#[should_panic(expected = "tables that are wanted")]
fn conditions_on_other_tables_are_a_mistake_of_the_owner() {
    replica().want(&[("V", x_is(1))]);
}

//! Requests that are refused, in the reference's words (each as ovsdb-server answers it).

mod scene;

use scene::{Scene, error_text};
use weir_monitor::Version::{self, V1, V2, V3};

/// `details` and `syntax` of a syntax error.
fn syntax(details: &str, syntax: &str) -> String {
    let error =
        serde_json::json!({ "details": details, "error": "syntax error", "syntax": syntax });
    error.to_string()
}

fn plain(details: &str) -> String {
    serde_json::json!({ "details": details, "error": "syntax error" }).to_string()
}

#[track_caller]
fn refused(versions: &[Version], requests: &str, expected: &str) {
    for version in versions {
        let mut scene = Scene::new();
        let error = scene.try_add(*version, requests).expect_err(requests);
        assert_eq!(error_text(&error), expected, "{version:?} {requests}");
        assert!(scene.monitors.is_empty());
        assert_eq!(scene.monitors.counts().groups, 0);
    }
}

const ALL: [Version; 3] = [V1, V2, V3];

#[test]
fn tables_must_exist_and_have_requests_that_are_objects() {
    refused(&ALL, r#"{"X":1}"#, &plain("no table named X"));
    for request in ["null", "1", "\"x\"", "true", "[1]", "[[]]", "[null]"] {
        let requests = format!("{{\"Port\":{request}}}");
        refused(&ALL, &requests, &plain("Parsing table Port failed: Object expected."));
    }
}

#[test]
fn members_must_be_known_and_of_their_type() {
    for (request, complaint) in [
        (r#"{"columns":1}"#, "Type mismatch for member 'columns'."),
        (r#"{"columns":{}}"#, "Type mismatch for member 'columns'."),
        (r#"{"select":[]}"#, "Type mismatch for member 'select'."),
        (r#"{"x":1}"#, "Member 'x' is present but not allowed here."),
        (r#"{"select":{"q":1},"x":1}"#, "Member 'x' is present but not allowed here."),
    ] {
        let details = format!("Parsing table Port failed: {complaint}");
        let requests = format!("{{\"Port\":{request}}}");
        refused(&ALL, &requests, &syntax(&details, request));
    }
    let details = "Parsing table Port failed: Type mismatch for member 'where'.";
    refused(&[V2, V3], r#"{"Port":{"where":1}}"#, &syntax(details, r#"{"where":1}"#));
    let details = "Parsing table Port failed: Member 'where' is present but not allowed here.";
    refused(&[V1], r#"{"Port":{"where":[]}}"#, &syntax(details, r#"{"where":[]}"#));
}

#[test]
fn a_selection_has_four_flags() {
    for (select, complaint) in [
        (r#"{"initial":1}"#, "Type mismatch for member 'initial'."),
        (r#"{"insert":null}"#, "Type mismatch for member 'insert'."),
        (r#"{"x":1}"#, "Member 'x' is present but not allowed here."),
        (r#"{"x":1,"y":2}"#, "Member 'x' and 1 other member are present but not allowed here."),
    ] {
        let details = format!("Parsing table Port select failed: {complaint}");
        // Columns are looked at later.
        let requests = format!("{{\"Port\":{{\"columns\":[\"x\"],\"select\":{select}}}}}");
        refused(&ALL, &requests, &syntax(&details, select));
    }
}

#[test]
fn columns_must_exist_and_be_mentioned_once() {
    for (columns, details) in [
        ("[1]", "array of column names expected"),
        (r#"["n","name",3]"#, "array of column names expected"),
        (r#"["x"]"#, "x is not a valid column name"),
        (r#"["n","n"]"#, "column n mentioned more than once"),
        (r#"["n","n","x"]"#, "column n mentioned more than once"),
        (r#"["name","n","n","name"]"#, "column n mentioned more than once"),
    ] {
        let requests = format!("{{\"Port\":{{\"columns\":{columns}}}}}");
        refused(&ALL, &requests, &syntax(details, columns));
    }
    let twice = r#"{"Port":[{"columns":["n"]},{"columns":["name","n"]}]}"#;
    refused(&ALL, twice, &syntax("column n mentioned more than once", r#"["name","n"]"#));
    // No columns are all columns; then there is nothing to quote.
    let all = r#"{"Port":[{},{}]}"#;
    refused(&ALL, all, &plain("column _version mentioned more than once"));
}

#[test]
fn every_condition_must_be_one_though_only_the_first_counts() {
    let parse = |text| syntax("Parse error in condition.", text);
    for (condition, expected) in [
        ("[1]", parse("1")),
        ("[[]]", parse("[]")),
        ("[null]", parse("null")),
        (r#"["n","==",1]"#, parse(r#""n""#)),
        (r#"[["n","==",1,2]]"#, parse(r#"["n","==",1,2]"#)),
        (r#"[["n","==","a"]]"#, syntax("expected integer", r#""a""#)),
        (
            r#"[["x","==",1]]"#,
            serde_json::json!({
                "details": "No column x in table Port.",
                "error": "unknown column",
                "syntax": "[\"x\",\"==\",1]",
            })
            .to_string(),
        ),
        (
            r#"[["n","=",1]]"#,
            String::from(r#"{"details":"No function named =.","error":"unknown function"}"#),
        ),
    ] {
        refused(&[V2, V3], &format!("{{\"Port\":{{\"where\":{condition}}}}}"), &expected);
        let second = format!(
            r#"{{"Port":[{{"columns":["name"]}},{{"columns":["n"],"where":{condition}}}]}}"#
        );
        refused(&[V2, V3], &second, &expected);
    }
    // Of one request the columns are looked at first, of several the first request.
    let both = r#"{"Port":{"columns":["x"],"where":[1]}}"#;
    refused(&[V2], both, &syntax("x is not a valid column name", r#"["x"]"#));
    let first = r#"{"Port":[{"columns":["n"],"where":[1]},{"columns":["x"]}]}"#;
    refused(&[V2], first, &parse("1"));
}

#[test]
fn a_change_of_conditions_is_refused_as_a_whole() {
    for (requests, expected) in [
        (r#"{"X":5}"#, plain("no table named X")),
        (r#"{"Bridge":[]}"#, plain("no table named Bridge in monitor session")),
        (r#"{"Port":{"where":[]}}"#, plain("table Port no monitor-cond-change JSON array")),
        (r#"{"Port":null}"#, plain("table Port no monitor-cond-change JSON array")),
        (r#"{"Port":[5]}"#, plain("Parsing table Port failed: Object expected.")),
        (
            r#"{"Port":[{"columns":[]}]}"#,
            syntax("changing columns is unsupported", r#"{"columns":[]}"#),
        ),
        (
            r#"{"Port":[{"columns":7}]}"#,
            syntax(
                "Parsing table Port failed: Type mismatch for member 'columns'.",
                r#"{"columns":7}"#,
            ),
        ),
        (
            r#"{"Port":[{"select":{},"where":[]}]}"#,
            syntax(
                "Parsing table Port failed: Member 'select' is present but not allowed here.",
                r#"{"select":{},"where":[]}"#,
            ),
        ),
        (
            r#"{"Port":[{"where":[false]},{"where":5}]}"#,
            syntax(
                "Parsing table Port failed: Type mismatch for member 'where'.",
                r#"{"where":5}"#,
            ),
        ),
    ] {
        for version in ALL {
            let mut scene = Scene::new();
            let key = scene.add(version, r#"{"Port":{"columns":["n"]}}"#);
            let error = scene.try_change(key, "\"new\"", requests).expect_err(requests);
            assert_eq!(error_text(&error), expected, "{requests}");
            scene.insert("Port", 1, &[]).commit();
            let message = scene.message(key);
            assert!(message.contains("\"m\""), "neither the name nor the condition: {message}");
        }
    }
}

#[test]
fn version_1_accepts_any_condition_and_ignores_it() {
    let mut scene = Scene::new();
    let key = scene.add(V1, r#"{"Port":{"columns":["n"]}}"#);
    for condition in ["[false]", "[1]", r#"[["x","==",1]]"#] {
        let requests = format!("{{\"Port\":[{{\"where\":{condition}}}]}}");
        assert!(scene.try_change(key, "\"m\"", &requests).expect("accepted").is_none());
    }
    assert!(scene.try_change(key, "\"m2\"", r#"{"Port":[{}]}"#).expect("accepted").is_none());
    scene.insert("Port", 1, &[]).commit();
    let row = r#"{"00000000-0000-0000-0000-000000000001":{"new":{"n":0}}}"#;
    let expected = format!(r#"{{"id":null,"method":"update","params":["m2",{{"Port":{row}}}]}}"#);
    assert_eq!(scene.message(key), expected);
}

//! Schemas: what a text is normalised to, and that normalising is where it ends.

use weir_data::Schema;

fn normalised(text: &str) -> String {
    Schema::parse_bytes(text.as_bytes()).unwrap().to_string()
}

#[test]
fn defaults_are_left_out_and_the_rest_is_kept() {
    let text = r#"{"name":"D","version":"1.2.3","cksum":"1 2","tables":{
        "T":{"isRoot":true,"maxRows":7,"indexes":[["b","a"],["a"]],"columns":{
            "a":{"type":"integer","mutable":false},
            "b":{"type":{"key":"string","min":1,"max":1},"mutable":true,"ephemeral":false},
            "c":{"type":{"key":{"type":"string","enum":["set",["one"]]}}},
            "d":{"type":{"key":{"type":"string","enum":["set",["y","x"]]},"min":0}},
            "e":{"type":{"key":"uuid","value":"real","min":0,"max":"unlimited"}},
            "f":{"type":{"key":{"type":"uuid","refTable":"U","refType":"weak"},"max":3},"mutable":false},
            "g":{"type":{"key":{"type":"real","minReal":0.5,"maxReal":2}},"ephemeral":true},
            "h":{"type":{"key":{"type":"integer","enum":5}}}}},
        "U":{"columns":{"s":{"type":{"key":{"type":"string","minLength":1,"maxLength":5}}}}}}}"#;
    let expected = concat!(
        r#"{"cksum":"1 2","name":"D","tables":{"T":{"columns":{"#,
        r#""a":{"mutable":false,"type":"integer"},"b":{"type":"string"},"#,
        r#""c":{"type":{"key":{"enum":"one","type":"string"}}},"#,
        r#""d":{"type":{"key":{"enum":["set",["x","y"]],"type":"string"},"min":0}},"#,
        r#""e":{"type":{"key":"uuid","max":"unlimited","min":0,"value":"real"}},"#,
        r#""f":{"type":{"key":{"refTable":"U","refType":"weak","type":"uuid"},"max":3}},"#,
        r#""g":{"ephemeral":true,"type":{"key":{"maxReal":2,"minReal":0.5,"type":"real"}}},"#,
        r#""h":{"type":{"key":{"enum":5,"type":"integer"}}}},"#,
        r#""indexes":[["b","a"],["a"]],"isRoot":true,"maxRows":7},"#,
        r#""U":{"columns":{"s":{"type":{"key":{"maxLength":5,"minLength":1,"type":"string"}}}}}},"#,
        r#""version":"1.2.3"}"#,
    );
    assert_eq!(normalised(text), expected);
    assert_eq!(normalised(expected), expected);
}

#[test]
fn without_a_root_every_table_is_one_and_none_says_so() {
    let text = r#"{"name":"D","tables":{"T":{"columns":{"a":{"type":"integer"}}},
        "U":{"isRoot":false,"columns":{"a":{"type":"integer"}}}}}"#;
    let schema = Schema::parse_bytes(text.as_bytes()).unwrap();
    assert!(schema.tables.iter().all(|table| table.is_root));
    assert!(!schema.to_string().contains("isRoot"));
}

/// As in the reference, whose text of the schema clients compare with theirs.
#[test]
fn a_table_that_is_not_mutable_says_nothing_of_its_columns() {
    let text = concat!(
        r#"{"name":"D","tables":{"T":{"columns":{"a":{"mutable":false,"type":"integer"},"#,
        r#""b":{"type":"integer"}},"mutable":false}}}"#,
    );
    assert_eq!(normalised(text), text);
    let schema = Schema::parse_bytes(text.as_bytes()).unwrap();
    let mutable: Vec<bool> = schema.tables[0].data_columns().map(|(_, c)| c.mutable).collect();
    assert_eq!(mutable, [false, true]);
}

#[test]
fn rows_that_only_an_ephemeral_column_holds_make_it_persistent() {
    let text = r#"{"name":"D","tables":{
        "T":{"isRoot":true,"columns":{"u":{"ephemeral":true,
            "type":{"key":{"type":"uuid","refTable":"U"},"min":0,"max":1}}}},
        "U":{"columns":{"a":{"type":"integer"}}}}}"#;
    assert!(!normalised(text).contains("ephemeral"));
}

#[test]
fn what_is_no_schema_is_refused() {
    let cases = [
        (r#"{"name":"D","tables":{"_T":{"columns":{"a":{"type":"integer"}}}}}"#, "reserved"),
        (r#"{"name":"D","tables":{"T":{"columns":{}}}}"#, "at least one column"),
        (r#"{"name":"D","tables":{"T":{"columns":{"a":{"type":"int"}}}}}"#, "not an atomic-type"),
        (r#"{"name":"D","version":"1","tables":{}}"#, "x.y.z"),
        (
            r#"{"name":"D","tables":{"T":{"columns":{"a":{"type":{"key":{"type":"uuid","refTable":"X"}}}}}}}"#,
            "refers to undefined table X",
        ),
        (r#"{"name":"D","tables":{},"x":1}"#, "Member 'x' is present but not allowed here."),
    ];
    for (text, expected) in cases {
        let error = Schema::parse_bytes(text.as_bytes()).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

/// The numbers of tables and columns would wrap around, and rows of one table be those of another.
#[test]
fn more_tables_or_columns_than_there_are_numbers_are_refused() {
    let named = |n: usize, each: &str| {
        let members: Vec<String> = (0..n).map(|i| format!(r#""a{i}":{each}"#)).collect();
        members.join(",")
    };
    let table = |n| format!(r#"{{"columns":{{{}}}}}"#, named(n, r#"{"type":"integer"}"#));
    let schema = |tables: &str| format!(r#"{{"name":"D","tables":{{{tables}}}}}"#);
    let columns = |n| schema(&format!(r#""T":{}"#, table(n)));
    let tables = |n| schema(&named(n, &table(1)));
    for (fits, too_many) in [(columns(65_533), columns(65_534)), (tables(65_535), tables(65_536))] {
        Schema::parse_bytes(fits.as_bytes()).unwrap();
        let error = Schema::parse_bytes(too_many.as_bytes()).unwrap_err();
        assert!(error.contains("must have at most"), "{error}");
    }
}

//! Online conversions one by one, by Weir and by the reference: every kind of change of a column's
//! type and of a table, what comes of the rows, what an impossible conversion is answered, and who
//! hears what.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Map, Value, json};
use weir_testkit::client::{Client, Trouble};
use weir_testkit::files;
use weir_testkit::process::{Program, Scratch, Server, both};

const ONE: &str = "00000000-0000-4000-8000-000000000001";
const TWO: &str = "00000000-0000-4000-8000-000000000002";

/// A table that no conversion touches.
const UNTOUCHED: &str = "Z";

/// One conversion.
struct Case {
    name: &'static str,
    from: Value,
    /// Columns of rows of table A, each row under a UUID of its own.
    rows: Vec<Value>,
    to: Value,
}

/// A table A with one column `x`.
fn table(kind: Value) -> Value {
    json!({"A": {"isRoot": true, "columns": {"x": {"type": kind}}}})
}

/// A change of the type of `x`, with one value.
fn column(name: &'static str, from: Value, value: Value, to: Value) -> Case {
    Case { name, from: table(from), rows: vec![json!({"x": value})], to: table(to) }
}

fn many(kind: &str) -> Value {
    json!({"key": kind, "min": 0, "max": "unlimited"})
}

fn few(kind: &str, min: usize, max: usize) -> Value {
    json!({"key": kind, "min": min, "max": max})
}

fn map(key: &str, value: &str) -> Value {
    json!({"key": key, "value": value, "min": 0, "max": "unlimited"})
}

fn limited(constraints: Value) -> Value {
    json!({"key": constraints})
}

fn types() -> Vec<Case> {
    let text = |text: &str| json!(text);
    vec![
        column("integer to real", json!("integer"), json!(3), json!("real")),
        column("real to integer", json!("real"), json!(1.5), json!("integer")),
        column("integer to string", json!("integer"), json!(3), json!("string")),
        column("string to integer", json!("string"), text("3"), json!("integer")),
        column("integer to boolean", json!("integer"), json!(1), json!("boolean")),
        column("boolean to string", json!("boolean"), json!(true), json!("string")),
        column("uuid to string", json!("uuid"), json!(["uuid", ONE]), json!("string")),
        column("string to uuid", json!("string"), text(ONE), json!("uuid")),
        column("scalar to optional", json!("integer"), json!(3), few("integer", 0, 1)),
        column("scalar to set", json!("integer"), json!(3), many("integer")),
        column("optional to scalar", few("integer", 0, 1), json!(3), json!("integer")),
        column("empty to scalar", few("integer", 0, 1), json!(["set", []]), json!("integer")),
        column("set to fewer", many("integer"), json!(["set", [1, 2, 3]]), few("integer", 0, 2)),
        column("set to enough", many("integer"), json!(["set", [1, 2]]), few("integer", 1, 2)),
        column("set to scalar", many("integer"), json!(["set", [1, 2]]), json!("integer")),
        column("one of a set", many("integer"), json!(["set", [7]]), json!("integer")),
        column("empty to one at least", many("string"), json!(["set", []]), few("string", 1, 5)),
        column("set of reals", many("integer"), json!(["set", [1, 2]]), many("real")),
        column("set to map", many("string"), json!(["set", ["a"]]), map("string", "string")),
        column("empty to map", many("string"), json!(["set", []]), map("string", "string")),
        column("map to set", map("string", "integer"), json!(["map", [["a", 1]]]), many("string")),
        column(
            "values of a map",
            map("string", "integer"),
            json!(["map", [["a", 1]]]),
            map("string", "real"),
        ),
        column(
            "keys of a map",
            map("string", "integer"),
            json!(["map", [["a", 1]]]),
            map("integer", "integer"),
        ),
        column(
            "fewer pairs",
            map("string", "string"),
            json!(["map", [["a", "b"], ["c", "d"]]]),
            json!({"key": "string", "value": "string", "min": 0, "max": 1}),
        ),
        column(
            "least integer",
            json!("integer"),
            json!(3),
            limited(json!({"type": "integer", "minInteger": 5})),
        ),
        column(
            "greatest integer",
            json!("integer"),
            json!(3),
            limited(json!({"type": "integer", "maxInteger": 2})),
        ),
        column(
            "integers within",
            json!("integer"),
            json!(3),
            limited(json!({"type": "integer", "minInteger": 1, "maxInteger": 3})),
        ),
        column(
            "least real",
            json!("real"),
            json!(0.5),
            limited(json!({"type": "real", "minReal": 1.0})),
        ),
        column(
            "longest string",
            json!("string"),
            text("abc"),
            limited(json!({"type": "string", "maxLength": 2})),
        ),
        column(
            "shortest string",
            json!("string"),
            text("abc"),
            limited(json!({"type": "string", "minLength": 4})),
        ),
        column(
            "other than allowed",
            json!("string"),
            text("abc"),
            limited(json!({"type": "string", "enum": ["set", ["x", "y"]]})),
        ),
        column(
            "as allowed",
            json!("string"),
            text("x"),
            limited(json!({"type": "string", "enum": ["set", ["x", "y"]]})),
        ),
        column(
            "limits that go",
            limited(json!({"type": "integer", "maxInteger": 5})),
            json!(5),
            json!("integer"),
        ),
        column(
            "a reference that dangles",
            json!("uuid"),
            json!(["uuid", TWO]),
            limited(json!({"type": "uuid", "refTable": "A"})),
        ),
        column(
            "a reference that does not",
            json!("uuid"),
            json!(["uuid", ONE]),
            limited(json!({"type": "uuid", "refTable": "A"})),
        ),
        column(
            "weak references",
            many("uuid"),
            json!(["set", [["uuid", ONE], ["uuid", TWO]]]),
            json!({"key": {"type": "uuid", "refTable": "A", "refType": "weak"},
                "min": 0, "max": "unlimited"}),
        ),
        column(
            "a weak reference that must be",
            json!("uuid"),
            json!(["uuid", TWO]),
            limited(json!({"type": "uuid", "refTable": "A", "refType": "weak"})),
        ),
    ]
}

/// A table A of these columns.
fn a(columns: Value, more: Value) -> Value {
    let mut table = json!({"isRoot": true, "columns": columns});
    for (name, value) in more.as_object().into_iter().flatten() {
        table[name] = value.clone();
    }
    json!({"A": table})
}

fn tables() -> Vec<Case> {
    let integer = || json!({"x": {"type": "integer"}});
    let two = || json!({"x": {"type": "integer"}, "y": {"type": "string"}});
    let plain = json!({});
    let rows = |all: &[i64]| all.iter().map(|x| json!({"x": x})).collect::<Vec<_>>();
    let case = |name, from, rows, to| Case { name, from, rows, to };
    let with = |mut tables: Value, name: &str| {
        tables[name] = json!({"isRoot": true, "columns": {"b": {"type": "string"}}});
        tables
    };
    let stranded = |columns: Value| json!({"A": {"columns": columns}, "R": {"isRoot": true, "columns": {"r": {"type": "string"}}}});
    vec![
        case("nothing", a(integer(), plain.clone()), rows(&[1]), a(integer(), plain.clone())),
        case("a column more", a(integer(), plain.clone()), rows(&[1]), a(two(), plain.clone())),
        case("a column less", a(two(), plain.clone()), rows(&[1]), a(integer(), plain.clone())),
        case(
            "a column whose default is forbidden",
            a(integer(), plain.clone()),
            rows(&[1]),
            a(
                json!({"x": {"type": "integer"}, "y": {"type": {"key": {"type": "integer",
                "minInteger": 5}}}}),
                plain.clone(),
            ),
        ),
        case(
            "a column of references that must be",
            a(integer(), plain.clone()),
            rows(&[1]),
            a(
                json!({"x": {"type": "integer"}, "y": {"type": {"key": {"type": "uuid",
                "refTable": "A"}}}}),
                plain.clone(),
            ),
        ),
        case(
            "a table more",
            a(integer(), plain.clone()),
            rows(&[1]),
            with(a(integer(), plain.clone()), "B"),
        ),
        case(
            "a table less",
            with(a(integer(), plain.clone()), "B"),
            rows(&[1]),
            a(integer(), plain.clone()),
        ),
        case(
            "the table with the rows less",
            a(integer(), plain.clone()),
            rows(&[1]),
            with(json!({}), "B"),
        ),
        case(
            "fewer rows",
            a(integer(), plain.clone()),
            rows(&[1, 2]),
            a(integer(), json!({"maxRows": 1})),
        ),
        case(
            "rows enough",
            a(integer(), plain.clone()),
            rows(&[1, 2]),
            a(integer(), json!({"maxRows": 2})),
        ),
        case(
            "an index",
            a(integer(), plain.clone()),
            rows(&[1, 2]),
            a(integer(), json!({"indexes": [["x"]]})),
        ),
        case(
            "an index over equal rows",
            a(integer(), plain.clone()),
            rows(&[1, 1]),
            a(integer(), json!({"indexes": [["x"]]})),
        ),
        case(
            "no index",
            a(integer(), json!({"indexes": [["x"]]})),
            rows(&[1]),
            a(integer(), plain.clone()),
        ),
        case("no root", a(integer(), plain.clone()), rows(&[1]), stranded(integer())),
        case(
            "ephemeral",
            a(integer(), plain.clone()),
            rows(&[1]),
            a(json!({"x": {"type": "integer", "ephemeral": true}}), plain.clone()),
        ),
        case(
            "persistent",
            a(json!({"x": {"type": "integer", "ephemeral": true}}), plain.clone()),
            rows(&[1]),
            a(integer(), plain.clone()),
        ),
        case(
            "immutable",
            a(integer(), plain.clone()),
            rows(&[1]),
            a(json!({"x": {"type": "integer", "mutable": false}}), plain),
        ),
    ]
}

/// The schema of a case's database, with the table that no conversion touches.
fn schema(db: &str, version: &str, tables: &Value) -> Value {
    let mut tables = tables.clone();
    tables[UNTOUCHED] = json!({"isRoot": true, "columns": {"z": {"type": "integer"}}});
    json!({"name": db, "version": version, "tables": tables})
}

/// What a server made of a case.
#[derive(Debug, PartialEq)]
struct Outcome {
    reply: Value,
    schema: Value,
    rows: BTreeMap<String, Vec<Value>>,
    /// Monitors of the session that knows of changes that ended, and its transaction that waited.
    canceled: Vec<String>,
    /// The session that does not know is disconnected.
    is_cut: bool,
}

fn session(server: &Server, is_aware: bool) -> Client {
    let mut session = server.connect().expect("a session");
    if is_aware {
        session.request("set_db_change_aware", &json!([true])).expect("an answer");
    }
    session
}

/// Monitors of table A in both versions, one of the other table, and a transaction that waits.
fn watch(session: &mut Client, db: &str) {
    for (id, method, table) in [
        ("v1", "monitor", "A"),
        ("v2", "monitor_cond", "A"),
        ("v3", "monitor_cond_since", "A"),
        ("other", "monitor_cond", UNTOUCHED),
    ] {
        let mut params = json!([db, id, {table: [{}]}]);
        if method == "monitor_cond_since" {
            params
                .as_array_mut()
                .expect("an array")
                .push(json!("00000000-0000-0000-0000-000000000000"));
        }
        let reply = session.request(method, &params).expect("an answer");
        assert!(reply["error"].is_null(), "{reply}");
    }
    let wait = json!([db, {"op": "wait", "table": UNTOUCHED, "where": [], "columns": ["z"],
        "until": "==", "rows": [{"z": 99}]}]);
    session.ask("transact", &wait).expect("a request");
}

/// What ended, sorted.
fn canceled(session: &mut Client) -> Vec<String> {
    session.barrier().expect("it stays");
    let all = session.take_notifications();
    let mut ended: Vec<String> = all
        .iter()
        .filter_map(|message| match message.value["method"].as_str() {
            Some("monitor_canceled") => Some(message.value["params"].to_string()),
            Some(_) => None,
            None => Some(format!("reply {}", message.value["error"])),
        })
        .collect();
    ended.sort();
    ended
}

fn is_cut(session: &mut Client) -> bool {
    match session.barrier() {
        Ok(()) => false,
        Err(Trouble::Closed) => true,
        Err(trouble) => panic!("{trouble}"),
    }
}

fn all_rows(session: &mut Client, schema: &Value) -> BTreeMap<String, Vec<Value>> {
    let tables: Map<String, Value> = schema["tables"].as_object().cloned().unwrap_or_default();
    let db = schema["name"].as_str().expect("a name");
    let read = |table: &String| {
        let select = json!({"op": "select", "table": table, "where": []});
        let result = session.transact(db, &[select]).expect("rows");
        let mut rows = result[0]["rows"].as_array().cloned().unwrap_or_default();
        for row in rows.iter_mut().filter_map(Value::as_object_mut) {
            row.remove("_version");
            row.sort_keys();
        }
        rows.sort_by_key(Value::to_string);
        (table.clone(), rows)
    };
    tables.keys().map(read).collect()
}

/// Converts the case's database on one server.
fn play(server: &Server, case: &Case, db: &str) -> Outcome {
    let mut writer = session(server, true);
    let rows = case.rows.iter().zip([ONE, TWO]);
    let inserts: Vec<Value> = rows
        .map(|(row, uuid)| json!({"op": "insert", "table": "A", "uuid": uuid, "row": row}))
        .collect();
    let told = writer.transact(db, &inserts).expect("an answer").to_string();
    assert!(!told.contains("error"), "{}: {told}", case.name);
    let (mut aware, mut unaware) = (session(server, true), session(server, false));
    watch(&mut aware, db);
    watch(&mut unaware, db);
    let to = schema(db, "2.0.0", &case.to);
    let mut reply = writer.request("convert", &json!([db, to])).expect("an answer");
    reply["id"] = Value::Null;
    let schema = writer.request("get_schema", &json!([db])).expect("a schema")["result"].take();
    let rows = all_rows(&mut writer, &schema);
    let (canceled, is_cut) = (canceled(&mut aware), is_cut(&mut unaware));
    if server.label() == "weir" && !canceled.contains(&"[\"other\"]".to_owned()) {
        goes_on(&mut writer, &mut aware, db, case);
    }
    Outcome { reply, schema, rows, canceled, is_cut }
}

/// A monitor that did not end hears what happens next.
fn goes_on(writer: &mut Client, aware: &mut Client, db: &str, case: &Case) {
    let insert = json!({"op": "insert", "table": UNTOUCHED, "row": {"z": 1}});
    writer.transact(db, &[insert]).expect("an answer");
    // Other sessions may be told later than their own echo is answered.
    let update = loop {
        let message = aware.next_message().expect("an update").value;
        if message["method"] == "update2" {
            break message.to_string();
        }
    };
    assert!(update.contains("\"other\"") && update.contains("\"z\":1"), "{}: {update}", case.name);
}

/// Whether the columns of a table have the same names and types before and after.
fn is_same(case: &Case) -> bool {
    let kinds = |tables: &Value| -> BTreeMap<String, Value> {
        let columns = tables["A"]["columns"].as_object().cloned().unwrap_or_default();
        columns.into_iter().map(|(name, column)| (name, column["type"].clone())).collect()
    };
    kinds(&case.from) == kinds(&case.to)
}

fn serve(program: &Program, scratch: &Scratch, cases: &[Case]) -> Server {
    let file = |(number, case): (usize, &Case)| -> PathBuf {
        let path = scratch.file(&format!("{}-{number}.db", program.label));
        let schema = schema(&format!("D{number}"), "1.0.0", &case.from);
        files::create(&path, &schema).expect("a file");
        path
    };
    let files: Vec<PathBuf> = cases.iter().enumerate().map(file).collect();
    Server::start(program, &files).expect("a server")
}

#[test]
fn each_kind_of_change_has_the_same_outcome() {
    let Some((reference, weir)) = both("each_kind_of_change_has_the_same_outcome") else { return };
    let scratch = Scratch::new("cases");
    let cases: Vec<Case> = types().into_iter().chain(tables()).collect();
    let [a, b] = [&reference, &weir].map(|program| serve(program, &scratch, &cases));
    let mut differences = vec![];
    let (mut done, mut refused) = (0, 0);
    for (number, case) in cases.iter().enumerate() {
        let db = format!("D{number}");
        let (wanted, mut found) = (play(&a, case, &db), play(&b, case, &db));
        let is_done = wanted.reply["error"].is_null();
        // COMPAT.md: which of two equal rows is told first.
        let [reply, expected] = [&found.reply, &wanted.reply].map(Value::to_string);
        let swapped = reply.replace(ONE, "\u{1}").replace(TWO, ONE).replace('\u{1}', TWO);
        if reply.contains("First row") && swapped == expected {
            found.reply.clone_from(&wanted.reply);
        }
        *(if is_done { &mut done } else { &mut refused }) += 1;
        // COMPAT.md: monitors of tables that stay as they are go on.
        let mut kept = wanted.canceled.clone();
        kept.retain(|ended| !found.canceled.contains(ended));
        let may_stay =
            |ended: &String| ended == "[\"other\"]" || is_same(case) && ended.contains("v");
        if found.canceled.iter().all(|ended| wanted.canceled.contains(ended))
            && kept.iter().all(may_stay)
            && (!is_done || kept.contains(&"[\"other\"]".to_owned()))
        {
            found.canceled.clone_from(&wanted.canceled);
        }
        if wanted != found {
            differences.push(format!("{}:\n  {wanted:?}\n  {found:?}", case.name));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(done > 20 && refused > 15, "{done} done, {refused} refused");
}

#[test]
fn requests_that_are_none_are_refused_in_the_same_words() {
    let Some((reference, weir)) = both("requests_that_are_none_are_refused") else { return };
    let scratch = Scratch::new("requests");
    let case = column("none", json!("integer"), json!(1), json!("real"));
    let cases = [case];
    let servers = [&reference, &weir].map(|program| serve(program, &scratch, &cases));
    let good = schema("D0", "2.0.0", &cases[0].to);
    let mut nameless = good.clone();
    nameless.as_object_mut().expect("an object").remove("name");
    let spoilt = |pointer: &str, value: Value| {
        let mut schema = good.clone();
        *schema.pointer_mut(pointer).expect("a member") = value;
        schema
    };
    for params in [
        json!([]),
        json!(["D0"]),
        json!(["D0", good, 1]),
        json!(["nobody", good]),
        json!([5, good]),
        json!(["D0", 5]),
        json!(["D0", {}]),
        json!(["D0", nameless]),
        json!(["D0", schema("D1", "2.0.0", &cases[0].to)]),
        json!(["D0", spoilt("/version", json!("two"))]),
        json!(["D0", spoilt("/tables/A/columns/x/type", json!("number"))]),
        json!(["D0", spoilt("/tables/A/columns/x", json!({}))]),
        json!(["D0", spoilt("/tables/A/columns", json!({}))]),
        json!(["D0", spoilt("/tables/A/columns", json!({"_x": {"type": "integer"}}))]),
        json!(["D0", spoilt("/tables/A/isRoot", json!(1))]),
        json!([
            "D0",
            spoilt(
                "/tables/A/columns/x/type",
                json!({"key": {"type": "uuid", "refTable": "nobody"}})
            )
        ]),
    ] {
        let [a, b] = [&servers[0], &servers[1]].map(|server| {
            let mut reply = session(server, true).request("convert", &params).expect("an answer");
            reply["id"] = Value::Null;
            reply
        });
        assert!(!a["error"].is_null(), "{params}: {a}");
        assert_eq!(a, b, "{params}");
    }
}

#[test]
fn who_asks_is_answered_before_it_is_cut() {
    let Some((reference, weir)) = both("who_asks_is_answered_before_it_is_cut") else { return };
    let scratch = Scratch::new("asks");
    let cases = [column("asks", json!("integer"), json!(1), json!("real"))];
    for program in [&reference, &weir] {
        let server = serve(program, &scratch, &cases);
        let mut asks = session(&server, false);
        let params = json!(["D0", schema("D0", "2.0.0", &cases[0].to)]);
        let reply = asks.request("convert", &params).expect("an answer");
        assert_eq!((&reply["result"], &reply["error"]), (&json!({}), &Value::Null));
        assert!(is_cut(&mut asks), "{}", server.label());
    }
}

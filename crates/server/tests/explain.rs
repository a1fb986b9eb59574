//! What a client and an operator learn of how rows are found: `weir_explain`, pages of rows in order
//! as an advertised extension, and slow queries in the log.

use crate::chain::Chain;
use crate::shell::{Shell, transact};
use serde_json::{Value, json};

const SCHEMA: &str = r#"{"name":"Net","tables":{"Port":{"columns":{
    "name":{"type":"string"},"kind":{"type":"string"},"tag":{"type":"integer"}},
    "indexes":[["name"]]}}}"#;

const PORTS: usize = 3_000;

/// A server whose table has many ports, ten of each kind.
fn server() -> Shell {
    let mut file = Vec::new();
    let schema = weir_data::Schema::parse_bytes(SCHEMA.as_bytes()).expect("a schema");
    weir_log::standalone::write_schema(&mut file, &schema);
    let mut shell = Shell::start_on(file);
    let client = shell.connect();
    let port = |n: usize| {
        let (kind, tag) = (n / 10, PORTS - n);
        format!(
            r#"{{"op":"insert","table":"Port","row":{{"name":"p{n}","kind":"k{kind}","tag":{tag}}}}}"#
        )
    };
    let ports: Vec<String> = (0..PORTS).map(port).collect();
    let reply = shell.call(client, &transact(1, &ports.join(",")));
    assert!(!reply.contains("\"details\""), "{reply}");
    shell
}

fn explain(shell: &mut Shell, operations: &str) -> Value {
    let client = shell.connect();
    let request = format!(r#"{{"id":7,"method":"weir_explain","params":["Net",{operations}]}}"#);
    let mut reply: Value = serde_json::from_str(&shell.call(client, &request)).expect("JSON");
    assert_eq!((&reply["error"], &reply["id"]), (&Value::Null, &json!(7)), "{reply}");
    reply["result"].take()
}

fn logged(shell: &Shell, what: &str) -> usize {
    shell.log.iter().filter(|line| line.contains(what)).count()
}

const BY_KIND: &str = r#"{"op":"select","table":"Port","where":[["kind","==","k7"]]}"#;

#[test]
fn a_plan_is_told_and_follows_the_keys_there_are() {
    let mut shell = server();
    let linear = json!([{"op":"select","table":"Port","plan":"linear","columns":[],
        "looked_at":PORTS,"found":10,"key":{"column":"kind","kind":"hash"}}]);
    assert_eq!(explain(&mut shell, BY_KIND), linear);
    assert_eq!(shell.command("index/add", &["Net", "Port", "kind"]), Some(Ok(String::new())));
    (0..10).for_each(|_| shell.pass_ms(1));
    let by_key = json!([{"op":"select","table":"Port","plan":"alternate","columns":["kind"],
        "kind":"hash","looked_at":10,"found":10}]);
    assert_eq!(explain(&mut shell, BY_KIND), by_key);
}

#[test]
fn of_two_keys_of_a_column_the_one_that_finds_fewer_rows_is_told() {
    let mut shell = server();
    let client = shell.connect();
    // To an ordered key all that begins alike is one.
    let long = r#"["kind","==","a kind of a long name"]"#;
    let update = |kind: &str, tags: &str| {
        format!(r#"{{"op":"update","table":"Port","where":[{tags}],"row":{{"kind":"{kind}"}}}}"#)
    };
    for (kind, tags) in [
        ("a kind of a short name", r#"["tag","<=",200]"#),
        ("a kind of a long name", r#"["tag","<=",5]"#),
    ] {
        shell.call(client, &transact(1, &update(kind, tags)));
    }
    let ordered = shell.command("index/add", &["Net", "Port", "kind", "asc"]);
    assert_eq!(ordered, Some(Ok(String::new())));
    (0..10).for_each(|_| shell.pass_ms(1));
    let select = |condition: &str, more: &str| {
        format!(r#"{{"op":"select","table":"Port","where":[{condition}]{more}}}"#)
    };
    let plan = |shell: &mut Shell, operation: &str| {
        let told = explain(shell, operation);
        (told[0]["kind"].clone(), told[0]["looked_at"].clone())
    };
    let (by_value, page) = (select(long, ""), select("", r#","order_by":["kind"],"limit":5"#));
    assert_eq!(plan(&mut shell, &by_value), (json!("ordered"), json!(200)));
    let other = select(r#"["kind","==","k7"]"#, "");
    assert_eq!(plan(&mut shell, &other), (json!("ordered"), json!(10)));
    // Who asks for values that most rows begin like has the server build a hash key, too.
    let update = update("a kind of a short name", r#"["tag",">",200]"#);
    shell.call(client, &transact(1, &update));
    for _ in 0..32 {
        shell.call(client, &transact(1, &by_value));
    }
    (0..10).for_each(|_| shell.pass_ms(1));
    assert_eq!(logged(&shell, "building a hash key on column kind"), 1);
    assert_eq!(plan(&mut shell, &by_value), (json!("hash"), json!(5)));
    assert_eq!(plan(&mut shell, &page).0, Value::Null, "so many begin alike that all are sorted");
}

#[test]
fn what_is_explained_is_not_done() {
    let mut shell = server();
    let delete = r#"{"op":"delete","table":"Port","where":[]}"#;
    let count = r#"{"op":"select","table":"Port","where":[["tag",">",0]]}"#;
    let told = explain(&mut shell, &format!("{delete},{count}"));
    assert_eq!((&told[0]["found"], &told[1]["found"]), (&json!(PORTS), &json!(0)));
    let told = explain(&mut shell, count);
    assert_eq!(told[0]["found"], json!(PORTS));
    // What cannot be run cannot be explained either.
    let told = explain(&mut shell, r#"{"op":"select","table":"None","where":[]},{"op":"abort"}"#);
    assert_eq!((&told[0]["error"], &told[1]), (&json!("syntax error"), &Value::Null));
}

#[test]
fn what_costs_more_than_a_step_is_explained_by_a_helper() {
    let mut shell = server();
    shell.server.set_step_cost_max(2_000);
    let told = explain(&mut shell, BY_KIND);
    assert_eq!((&told[0]["plan"], &told[0]["looked_at"]), (&json!("linear"), &json!(PORTS)));
    assert_eq!(told[0]["key"], json!({"column":"kind","kind":"hash"}));
    let told = explain(&mut shell, r#"{"op":"delete","table":"Port","where":[]}"#);
    assert_eq!(told[0]["found"], json!(PORTS));
    let client = shell.connect();
    let left = shell.call(client, &transact(1, BY_KIND));
    assert_eq!(left.matches("\"name\"").count(), 10, "{left}");
}

/// A relay asks its source for what is asserted, and answers itself what is only to be explained.
#[test]
fn what_asserts_a_lock_is_explained_at_a_relay_however_long_it_is() {
    let mut chain = Chain::start(1);
    let client = chain.servers[1].connect();
    chain.call(1, client, r#"{"id":1,"method":"lock","params":["l"]}"#);
    for name in ["short", &"long".repeat(1 << 19)] {
        let found = format!(r#"{{"op":"select","table":"Port","where":[["name","==","{name}"]]}}"#);
        let assert = r#"{"op":"assert","lock":"l"}"#;
        let ask =
            format!(r#"{{"id":4,"method":"weir_explain","params":["Net",{assert},{found}]}}"#);
        let told = chain.call(1, client, &ask);
        let told: Value = serde_json::from_str(&told[0]).expect("JSON");
        assert_eq!(told["result"][1]["table"], "Port", "{told}");
        assert_eq!(told["result"][1]["rows"], Value::Null, "{told}");
    }
}

#[test]
fn extensions_are_advertised_and_pages_follow_each_other() {
    let mut shell = server();
    let client = shell.connect();
    let features = shell.call(client, r#"{"id":1,"method":"weir_features","params":[]}"#);
    for name in ["transact.order_by", "weir_explain"] {
        assert!(features.contains(&format!("\"{name}\"")), "{features}");
    }
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let select = format!(
            r#"{{"op":"select","table":"Port","where":[["tag","<=",25]],
                "order_by":[["tag","desc"]],"limit":10{after}}}"#
        );
        let reply = shell.call(client, &transact(1, &select));
        let reply: Value = serde_json::from_str(&reply).expect("JSON");
        let rows = reply["result"][0]["rows"].as_array().expect("rows").clone();
        let Some(last) = rows.last() else { break };
        after = format!(r#","after":{last}"#);
        seen.extend(rows.iter().map(|row| row["tag"].as_i64().expect("an integer")));
    }
    assert_eq!(seen, (1..=25).rev().collect::<Vec<_>>());
}

#[test]
fn slow_queries_are_logged_with_their_plan() {
    let mut shell = server();
    let client = shell.connect();
    let slow =
        format!("looked at {PORTS} rows of table Port (linear) for 10; hash key on column kind");
    shell.call(client, &transact(1, BY_KIND));
    assert_eq!(logged(&shell, "slow query"), 0, "the table is too small by default");
    assert_eq!(shell.command("weir/slow-query-rows", &[]), Some(Ok("10000\n".into())));
    assert_eq!(shell.command("weir/slow-query-rows", &["1000"]), Some(Ok(String::new())));
    let bad = shell.command("weir/slow-query-rows", &["few"]);
    assert_eq!(bad, Some(Err("invalid argument".into())));
    let by_name = r#"{"op":"select","table":"Port","where":[["name","==","p7"]]}"#;
    shell.call(client, &transact(1, &format!("{by_name},{BY_KIND}")));
    assert_eq!(logged(&shell, "slow query: operation 2"), 1, "{:?}", shell.log);
    assert_eq!(logged(&shell, &slow), 1, "{:?}", shell.log);
    shell.call(client, &transact(1, by_name));
    explain(&mut shell, BY_KIND);
    assert_eq!(logged(&shell, "slow query"), 1);
}

//! What relays have of sources of ours beyond the rows that files keep: the index, which never falls while
//! the file is the same, and what they make of a file that went back; columns that no file keeps; locks.

use std::collections::BTreeMap;

use crate::chain::Chain;
use crate::shell::{PATH, SCHEMA, Shell, insert, ports, transact};
use serde_json::{Value, json};
use weir_server::Config;
use weir_server::event::{Event, LinkId, SessionId};

pub(crate) const ZERO: &str = "00000000-0000-0000-0000-000000000000";

pub(crate) fn value(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// Column `index` of `Net` in `_Server`.
fn index(shell: &mut Shell) -> Value {
    let client = shell.connect();
    let select = r#"{"id":1,"method":"transact","params":["_Server",{"op":"select","table":"Database",
        "where":[["name","==","Net"]],"columns":["index"]}]}"#;
    let index = value(&shell.call(client, select))["result"][0]["rows"][0]["index"].clone();
    shell.event(Event::Closed { session: client, error: None });
    index
}

fn number(shell: &mut Shell) -> i64 {
    let index = index(shell);
    index.as_i64().unwrap_or_else(|| panic!("an index: {index}"))
}

fn write(chain: &mut Chain, names: std::ops::Range<u32>) {
    let writer = chain.servers[0].connect();
    for n in names {
        chain.call(0, writer, &transact(n, &insert(&format!("p{n}"))));
    }
}

fn logged(shell: &Shell, text: &str) -> usize {
    shell.log.iter().filter(|line| line.contains(text)).count()
}

/// The server ends, and begins again on these files.
fn restart(chain: &mut Chain, mut files: BTreeMap<String, Vec<u8>>) {
    let file = files.remove(PATH).expect("the database");
    let source = Shell::start_on_files(file, files, Config::default());
    chain.replace_source(source);
    chain.pass_ms(20_000);
}

#[test]
fn the_index_of_a_file_goes_down_a_chain_and_grows_with_each_transaction() {
    let mut chain = Chain::start(3);
    assert_eq!(index(&mut chain.servers[0]), json!(["set", []]), "as with the reference");
    write(&mut chain, 0..1);
    let before: Vec<i64> = chain.servers[1..].iter_mut().map(number).collect();
    assert!(before.iter().all(|index| *index == before[0]), "{before:?}");
    write(&mut chain, 1..6);
    for relay in &mut chain.servers[1..] {
        assert_eq!(number(relay), before[0] + 5);
    }
    // What no record has is no new state.
    let up = r#"{"op":"update","table":"Port","where":[],"row":{"up":true}}"#;
    let writer = chain.servers[0].connect();
    chain.call(0, writer, &transact(9, up));
    assert_eq!(number(&mut chain.servers[1]), before[0] + 5);
}

#[test]
fn the_index_never_falls_over_compactions_restarts_and_conversions() {
    let mut chain = Chain::start(2);
    write(&mut chain, 0..20);
    let mut last = number(&mut chain.servers[2]);
    for round in 0..3 {
        if round > 0 {
            let done = chain.servers[0].command("ovsdb-server/compact", &["Net"]);
            assert_eq!(done, Some(Ok(String::new())));
        }
        let files = chain.servers[0].files.clone();
        restart(&mut chain, files);
        assert_eq!(number(&mut chain.servers[2]), last, "round {round}");
        write(&mut chain, 100 * round + 100..100 * round + 103);
        assert_eq!(number(&mut chain.servers[2]), last + 3, "round {round}");
        last += 3;
    }
    let mut schema = value(SCHEMA);
    schema["version"] = json!("2.0.0");
    let convert = json!({"id":3,"method":"convert","params":["Net", schema]});
    let converter = chain.servers[0].connect();
    chain.call(0, converter, &convert.to_string());
    chain.pass_ms(20_000);
    write(&mut chain, 900..901);
    let converted = number(&mut chain.servers[2]);
    assert!(converted > last, "{converted}");
    let files = chain.servers[0].files.clone();
    restart(&mut chain, files);
    assert_eq!(number(&mut chain.servers[2]), converted);
    for relay in &chain.servers[1..] {
        assert_eq!(logged(relay, "has gone back"), 0, "{:#?}", relay.log);
    }
}

/// What no record has changed last when the file was compacted, and nothing has been written since the source's
/// start: the relay's state is the source's, and what it forwards is made.
#[test]
fn a_write_behind_a_restart_is_made_whatever_was_changed_before_a_compaction() {
    let mut chain = Chain::start(1);
    write(&mut chain, 0..3);
    let watcher = chain.servers[0].connect();
    let monitor = format!(
        r#"{{"id":3,"method":"monitor_cond_since","params":["Net","m",{{"Port":{{"columns":["up"]}}}},"{ZERO}"]}}"#
    );
    chain.call(0, watcher, &monitor);
    chain.call(0, watcher, &transact(4, &set_up("p1", true)));
    assert_eq!(chain.servers[0].command("ovsdb-server/compact", &["Net"]), Some(Ok(String::new())));
    let files = chain.servers[0].files.clone();
    restart(&mut chain, files);
    let client = chain.servers[1].connect();
    let told = chain.call(1, client, &transact(5, &insert("late")));
    assert!(value(&told[0])["result"][0]["uuid"].is_array(), "{told:?}");
}

/// Nobody had asked for an index when the file was compacted, so that nothing beside it has one.
#[test]
fn the_index_of_a_file_that_was_compacted_before_relays_came_does_not_fall() {
    let mut source = Shell::start();
    let writer = source.connect();
    for n in 0..9 {
        source.call(writer, &transact(n, &insert(&format!("early{n}"))));
    }
    assert_eq!(source.command("ovsdb-server/compact", &["Net"]), Some(Ok(String::new())));
    let mut chain = Chain::of(source, 2);
    write(&mut chain, 0..3);
    let last = number(&mut chain.servers[2]);
    let files = chain.servers[0].files.clone();
    restart(&mut chain, files);
    assert!(number(&mut chain.servers[2]) >= last);
    for relay in &chain.servers[1..] {
        assert_eq!(logged(relay, "has gone back"), 0, "{:#?}", relay.log);
    }
}

#[test]
fn relays_of_a_file_that_was_restored_say_so_once_and_have_its_rows() {
    let mut chain = Chain::start(3);
    write(&mut chain, 0..3);
    let old = chain.servers[0].files.clone();
    write(&mut chain, 3..9);
    let newer = number(&mut chain.servers[3]);
    // The last one hears nothing of what happens.
    chain.is_cut[3] = true;
    chain.lose(3);
    restart(&mut chain, old);
    let older = number(&mut chain.servers[1]);
    assert!(older < newer, "{older} {newer}");
    // The last one hears of another server, whose rows are what there is.
    chain.is_cut[3] = false;
    chain.pass_ms(20_000);
    for relay in &mut chain.servers[1..] {
        assert_eq!(number(relay), older);
        assert_eq!(ports(relay), ["p0", "p1", "p2"]);
        assert_eq!(logged(relay, "the source is another one"), 1, "{:#?}", relay.log);
        assert_eq!(logged(relay, "has stale data"), 0, "{:#?}", relay.log);
    }
    write(&mut chain, 20..21);
    assert_eq!(ports(&mut chain.servers[3]), ["p0", "p1", "p2", "p20"]);
}

#[test]
fn what_a_relay_in_the_middle_sends_again_is_not_made_twice_though_the_source_has_forgotten() {
    let mut chain = Chain::start(2);
    let client = chain.servers[2].connect();
    chain.call(2, client, &transact(1, &insert("a")));
    // It arrives at the source, and is made; the answer gets lost before the relay in the middle.
    chain.servers[2].send(client, &transact(2, &insert("b")));
    chain.servers[2].settle();
    chain.carry_up(2);
    chain.carry_up(1);
    chain.lose(1);
    // Which ids were chosen is not in the file.
    let files = chain.servers[0].files.clone();
    restart(&mut chain, files);
    assert_eq!(ports(&mut chain.servers[0]), ["a", "b"]);
    let told = chain.servers[2].received(client);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(value(&told[0])["error"], "canceled", "{told:?}");
}

/// A monitor with options, and what it has been told since.
fn ask(shell: &mut Shell, options: &str, last: &str) -> (SessionId, Value, Vec<Value>) {
    let watcher = shell.connect();
    let requests = r#"{"Port":{"columns":["name"]}}"#;
    let ask = format!(
        r#"{{"id":1,"method":"weir_monitor","params":["Net","w",{requests},"{last}",{options}]}}"#
    );
    shell.send(watcher, &ask);
    shell.settle();
    let mut told = told(shell, watcher);
    let reply = told.remove(0);
    assert_eq!(reply["id"], 1, "the answer comes first: {reply}");
    (watcher, reply["result"].clone(), told)
}

pub(crate) fn told(shell: &mut Shell, watcher: SessionId) -> Vec<Value> {
    shell.received(watcher).iter().map(|message| value(message)).collect()
}

/// A relay of a relay that believed the index would take its older rows.
#[test]
fn a_relay_is_as_far_as_its_rows_and_not_as_its_source() {
    let config =
        Config { databases: vec!["relay:Net:tcp:192.0.2.1:6640".into()], ..Config::default() };
    let mut shell = Shell::start_with(b"relay".to_vec(), config);
    let play = |shell: &mut Shell, index: i64, name: &str| {
        let mut row = source_row();
        (row["model"], row["index"]) = (json!("clustered"), json!(index));
        play_by(shell, &row, |request| match request["method"].as_str().unwrap() {
            "weir_features" => Some(json!(FEATURES)),
            "weir_monitor" => Some(json!([false, A, {"Port": {A: {"initial": {"name": name}}}}])),
            _ => Some(json!({})),
        })
    };
    let link = play(&mut shell, 5, "a");
    assert_eq!(number(&mut shell), 5);
    shell.event(Event::LinkDown { link, error: None });
    shell.slow_work = true;
    let link = play(&mut shell, 9, "b");
    // Helpers read what has come, and then change the tables.
    for _ in 0..2 {
        assert_eq!((number(&mut shell), shell.work.len()), (5, 1), "its rows are with a helper");
        shell.do_work(0);
        shell.settle();
    }
    assert_eq!((number(&mut shell), shell.work.len()), (9, 0));
    let more = json!([["monid", "_Server"], {"Database": {ZERO: {"modify": {"index": 10}}}}]);
    say(&mut shell, link, &json!({"id": null, "method": "update2", "params": more}));
    assert_eq!(number(&mut shell), 10);
}

#[test]
fn who_asks_is_told_the_index_and_the_oldest_state_that_is_remembered() {
    let mut shell = Shell::start();
    let writer = shell.connect();
    shell.call(writer, &transact(1, &insert("a")));
    let (plain, _, first) = ask(&mut shell, r#"{"each":true}"#, ZERO);
    assert_eq!(first, Vec::<Value>::new());
    let options = r#"{"each":true,"index":true,"low_water":true}"#;
    let (both, begun, first) = ask(&mut shell, options, ZERO);
    assert_eq!(first.len(), 1, "{first:?}");
    let params = &first[0]["params"];
    assert_eq!((&params[1], &params[3], &params[4]), (&begun[1], &json!({}), &json!(1)));
    let oldest = params[2].as_str().expect("a low-water mark").to_owned();
    // Two transactions in one round: the index is that of the state at their end.
    shell.send(writer, &transact(2, &insert("b")));
    shell.send(writer, &transact(3, &insert("c")));
    shell.settle();
    let updates = told(&mut shell, both);
    let indexes: Vec<&Value> = updates.iter().map(|update| &update["params"][4]).collect();
    assert_eq!(indexes, [&Value::Null, &json!(3)]);
    assert!(updates.iter().all(|update| update["params"][2] == oldest.as_str()), "{updates:?}");
    let updates = told(&mut shell, plain);
    assert!(updates.iter().all(|update| update["params"].as_array().unwrap().len() == 4));
    // The mark is the id of the oldest state that a client can come back with, however much has come.
    let long = "x".repeat(300_000);
    for n in 10..20 {
        let tags =
            format!(r#"{{"op":"update","table":"Port","where":[],"row":{{"tags":"{n}{long}"}}}}"#);
        shell.call(writer, &transact(n, &tags));
    }
    let updates = told(&mut shell, both);
    let mark = updates.last().expect("updates")["params"][2].as_str().unwrap().to_owned();
    assert_ne!(mark, oldest);
    let (_, begun, _) = ask(&mut shell, options, &mark);
    assert_eq!(begun[0], true);
    let (_, begun, _) = ask(&mut shell, options, &oldest);
    assert_eq!(begun[0], false, "what is before the mark is forgotten");
}

#[test]
fn options_that_are_not_known_are_refused() {
    let mut shell = Shell::start();
    let features = {
        let client = shell.connect();
        value(&shell.call(client, r#"{"id":1,"method":"weir_features","params":[]}"#))
    };
    for option in ["weir_monitor.index", "weir_monitor.low_water"] {
        assert!(features["result"].as_array().unwrap().contains(&json!(option)), "{features}");
    }
    for options in [r#"{"each":true,"index":1}"#, r#"{"index":true}"#, r#"{"each":true,"x":true}"#]
    {
        let watcher = shell.connect();
        let ask = format!(
            r#"{{"id":1,"method":"weir_monitor","params":["Net","w",{{"Port":{{"columns":["name"]}}}},"{ZERO}",{options}]}}"#
        );
        assert!(!value(&shell.call(watcher, &ask))["error"].is_null(), "{options}");
    }
}

/// Names and column `up` of all ports.
pub(crate) fn up(shell: &mut Shell) -> Vec<(String, bool)> {
    let client = shell.connect();
    let select = r#"{"op":"select","table":"Port","where":[],"columns":["name","up"]}"#;
    let reply = value(&shell.call(client, &transact(1, select)));
    let rows = reply["result"][0]["rows"].as_array().expect("rows").clone();
    let row = |row: &Value| (row["name"].as_str().unwrap().to_owned(), row["up"] == true);
    let mut rows: Vec<(String, bool)> = rows.iter().map(row).collect();
    rows.sort();
    rows
}

fn set_up(name: &str, up: bool) -> String {
    format!(
        r#"{{"op":"update","table":"Port","where":[["name","==","{name}"]],"row":{{"up":{up}}}}}"#
    )
}

pub(crate) fn rows(expected: &[(&str, bool)]) -> Vec<(String, bool)> {
    expected.iter().map(|(name, up)| ((*name).to_owned(), *up)).collect()
}

#[test]
fn columns_that_no_file_keeps_are_those_of_the_source() {
    let mut chain = Chain::start(3);
    let client = chain.servers[3].connect();
    chain.call(3, client, &transact(1, &format!("{},{}", insert("a"), set_up("a", true))));
    chain.call(3, client, &transact(2, &insert("b")));
    for server in &mut chain.servers {
        assert_eq!(up(server), rows(&[("a", true), ("b", false)]));
    }
    // Who writes sees it before his reply, and so does a client that watches nothing else.
    let monitor = r#"{"id":3,"method":"monitor","params":["Net","m",{"Port":{"columns":["up"]}}]}"#;
    chain.call(3, client, monitor);
    let before = number(&mut chain.servers[3]);
    let told = chain.call(3, client, &transact(4, &set_up("b", true)));
    assert_eq!(value(&told[0])["method"], "update", "{told:?}");
    assert_eq!(value(&told[1])["id"], 4, "{told:?}");
    assert_eq!(number(&mut chain.servers[3]), before, "it is no new state");
    for server in &mut chain.servers {
        assert_eq!(up(server), rows(&[("a", true), ("b", true)]));
    }
    // What changes while a relay is away is there when it is back.
    chain.is_cut[2] = true;
    chain.lose(2);
    let writer = chain.servers[0].connect();
    chain.call(0, writer, &transact(1, &set_up("a", false)));
    chain.call(0, writer, &transact(2, &format!("{},{}", insert("c"), set_up("c", true))));
    chain.call(
        0,
        writer,
        &transact(3, r#"{"op":"delete","table":"Port","where":[["name","==","b"]]}"#),
    );
    assert_eq!(up(&mut chain.servers[3]), rows(&[("a", true), ("b", true)]));
    chain.is_cut[2] = false;
    chain.pass_ms(20_000);
    for server in &mut chain.servers {
        assert_eq!(up(server), rows(&[("a", false), ("c", true)]));
    }
    // A source that starts again has forgotten them, and so do its relays.
    let files = chain.servers[0].files.clone();
    restart(&mut chain, files);
    for server in &mut chain.servers {
        assert_eq!(up(server), rows(&[("a", false), ("c", false)]));
    }
    // Nor does another schema lose them.
    let writer = chain.servers[0].connect();
    chain.call(0, writer, &transact(1, &set_up("c", true)));
    let mut schema = value(SCHEMA);
    schema["tables"]["Port"]["columns"]["speed"] = json!({"type":"integer","ephemeral":true});
    let convert = json!({"id":3,"method":"convert","params":["Net", schema]});
    let converter = chain.servers[0].connect();
    chain.call(0, converter, &convert.to_string());
    chain.pass_ms(20_000);
    let of_source = up(&mut chain.servers[0]);
    let writer = chain.servers[0].connect();
    let speed = r#"{"op":"update","table":"Port","where":[],"row":{"speed":7,"up":true}}"#;
    chain.call(0, writer, &transact(1, speed));
    assert!(of_source.len() == 2);
    for server in &mut chain.servers {
        assert_eq!(up(server), rows(&[("a", true), ("c", true)]));
    }
}

pub(crate) const A: &str = "aaaaaaaa-0000-4000-8000-000000000001";
pub(crate) const B: &str = "bbbbbbbb-0000-4000-8000-000000000002";

/// What the source has beyond the reference.
pub(crate) const FEATURES: [&str; 4] =
    ["weir_features", "weir_monitor", "weir_monitor.each", "weir_transact"];

/// A relay whose source, of ours, the test plays; port `a` has been told, which is up.
pub(crate) fn played() -> (Shell, LinkId) {
    let config =
        Config { databases: vec!["relay:Net:tcp:192.0.2.1:6640".into()], ..Config::default() };
    let mut shell = Shell::start_with(b"relay".to_vec(), config);
    let link = play(&mut shell);
    (shell, link)
}

/// Plays a source that knows no state that it is asked for, and has port `a`.
fn play(shell: &mut Shell) -> LinkId {
    play_with(shell, &json!({A: {"initial": {"name": "a"}}}))
}

/// What a played source says in `_Server`.
pub(crate) fn source_row() -> Value {
    json!({"name":"Net","model":"standalone","connected":true,"leader":true,"schema":SCHEMA})
}

/// Plays such a source with these ports; others have its locks.
pub(crate) fn play_with(shell: &mut Shell, ports: &Value) -> LinkId {
    play_by(shell, &source_row(), |request| Some(played_result(request, ports)))
}

/// What such a source answers.
pub(crate) fn played_result(request: &Value, ports: &Value) -> Value {
    match request["method"].as_str().unwrap() {
        "weir_features" => json!(FEATURES),
        "weir_monitor" => json!([false, A, {"Port": ports}]),
        "monitor" => {
            assert_eq!(request["params"][2], json!({"Port": [{"columns": ["up"]}]}));
            json!({"Port": {A: {"new": {"up": true}}}})
        }
        "lock" => json!({"locked": false}),
        _ => json!({}),
    }
}

/// Plays a source that is next, with this row of `_Server`, until nothing more is asked: what it answers, none
/// where it does not know the method.
pub(crate) fn play_by(
    shell: &mut Shell,
    row: &Value,
    result_of: impl Fn(&Value) -> Option<Value>,
) -> LinkId {
    let link = next_source(shell);
    loop {
        let requests = asked(shell, link);
        if requests.is_empty() {
            return link;
        }
        for request in requests {
            if request["method"] == "monitor_cond" {
                answer(shell, link, &request, &json!({"Database": {ZERO: {"initial": row}}}));
            } else if let Some(result) = result_of(&request) {
                answer(shell, link, &request, &result);
            } else {
                let error = json!({"id":request["id"],"result":null,"error":"unknown method"});
                say(shell, link, &error);
            }
        }
    }
}

/// The relay is connected to the source that is next.
pub(crate) fn next_source(shell: &mut Shell) -> LinkId {
    while shell.connecting.is_empty() {
        shell.pass_ms(250);
    }
    let (link, _) = shell.connecting.pop().expect("a connection was begun");
    shell.event(Event::LinkUp { link });
    shell.settle();
    link
}

/// What the relay has asked for since.
pub(crate) fn asked(shell: &mut Shell, link: LinkId) -> Vec<Value> {
    let bytes = std::mem::take(shell.links.get_mut(&link).expect("the link is up"));
    let stream = serde_json::Deserializer::from_slice(&bytes).into_iter();
    stream.map(|request| request.expect("requests")).collect()
}

pub(crate) fn say(shell: &mut Shell, link: LinkId, message: &Value) {
    shell.event(Event::LinkMessage { link, bytes: message.to_string().into_bytes() });
    shell.settle();
}

pub(crate) fn answer(shell: &mut Shell, link: LinkId, request: &Value, result: &Value) {
    say(shell, link, &json!({"id":request["id"],"result":result,"error":null}));
}

/// The source says that the database has another schema.
pub(crate) fn say_schema(shell: &mut Shell, link: LinkId, schema: &Value) {
    let row = json!({"modify": {"schema": schema.to_string()}});
    let params = json!([["monid", "_Server"], {"Database": {ZERO: row}}]);
    say(shell, link, &json!({"id":null,"method":"update2","params":params}));
}

pub(crate) fn say_up(shell: &mut Shell, link: LinkId, row: &str, update: &Value) {
    let params = json!([["ephemeral", "Net", 1], {"Port": {row: update}}]);
    say(shell, link, &json!({"id":null,"method":"update","params":params}));
}

pub(crate) fn say_rows(shell: &mut Shell, link: LinkId, id: &str, row: &str, update: &Value) {
    let params = json!([["monid", "Net"], id, null, {"Port": {row: update}}]);
    say(shell, link, &json!({"id":null,"method":"weir_update","params":params}));
}

#[test]
fn values_that_come_before_their_rows_wait_for_them() {
    let (mut shell, link) = played();
    assert_eq!(up(&mut shell), rows(&[("a", true)]));
    say_up(&mut shell, link, B, &json!({"new": {"up": true}}));
    assert_eq!(up(&mut shell), rows(&[("a", true)]));
    say_rows(&mut shell, link, B, B, &json!({"insert": {"name": "b"}}));
    assert_eq!(up(&mut shell), rows(&[("a", true), ("b", true)]));
    // A row that goes takes its values along, whoever tells that first.
    say_up(&mut shell, link, B, &json!({"old": {"up": true}}));
    say_rows(&mut shell, link, A, B, &json!({"delete": null}));
    say_up(&mut shell, link, B, &json!({"new": {"up": true}}));
    say_up(&mut shell, link, B, &json!({"old": {"up": true}}));
    say_rows(&mut shell, link, B, B, &json!({"insert": {"name": "b"}}));
    assert_eq!(up(&mut shell), rows(&[("a", true), ("b", false)]));
}

#[test]
fn values_stay_while_all_rows_are_told_again() {
    let (mut shell, link) = played();
    let client = shell.connect();
    let monitor = r#"{"id":3,"method":"monitor","params":["Net","m",{"Port":{"columns":["up"]}}]}"#;
    shell.call(client, monitor);
    shell.event(Event::LinkDown { link, error: None });
    shell.settle();
    shell.connecting.retain(|(begun, _)| *begun != link);
    play(&mut shell);
    assert_eq!(up(&mut shell), rows(&[("a", true)]));
    assert_eq!(shell.received(client), Vec::<String>::new(), "nothing has changed for a moment");
}

/// A relay's server has another database from now on, so that nobody asks for a lock before a transaction says where it is
/// wanted.
pub(crate) fn has_another_database(relay: &mut Shell) {
    let schema = weir_data::Schema::parse_bytes(SCHEMA.replace("\"Net\"", "\"Other\"").as_bytes());
    let mut file = Vec::new();
    weir_log::standalone::write_schema(&mut file, &schema.expect("a schema"));
    relay.files.insert("/db/other.db".to_owned(), file);
    let added = relay.command("ovsdb-server/add-db", &["/db/other.db"]);
    added.expect("an answer").expect("it is added");
}

/// Asks for the lock, or gives it up: whether it is the client's when all that needs no time has happened.
pub(crate) fn lock(chain: &mut Chain, at: usize, client: SessionId, method: &str) -> Value {
    let request = format!(r#"{{"id":1,"method":"{method}","params":["l"]}}"#);
    let told: Vec<Value> = chain.call(at, client, &request).iter().map(|it| value(it)).collect();
    if told.last().expect("an answer")["method"] == "locked" {
        return json!(true);
    }
    let reply = told.iter().find(|it| it["id"] == 1).expect("an answer");
    reply["result"]["locked"].clone()
}

/// A client takes the lock, there and at the source, and writes port `a` under it.
pub(crate) fn takes_lock(chain: &mut Chain, at: usize, client: SessionId) {
    lock(chain, at, client, "lock");
    assert_eq!(outcome(&chain.call(at, client, &guarded("a"))), is("done", &[]));
}

/// A port, if the client has the lock.
pub(crate) fn guarded(name: &str) -> String {
    transact(2, &format!(r#"{{"op":"assert","lock":"l"}},{}"#, insert(name)))
}

/// What came of it, and what the client was told of its lock meanwhile.
pub(crate) fn outcome(told: &[String]) -> (String, Vec<String>) {
    let (mut outcome, mut notices) = (String::new(), Vec::new());
    for message in told.iter().map(|message| value(message)) {
        match message["method"].as_str() {
            Some(method) => notices.push(method.to_owned()),
            None if !message["error"].is_null() => outcome = message["error"].to_string(),
            None => {
                let error = &message["result"][0]["error"];
                let is_done = message["result"][1]["uuid"].is_array();
                outcome = if is_done { "done".into() } else { error.to_string() };
            }
        }
    }
    (outcome, notices)
}

pub(crate) fn is(outcome: &str, notices: &[&str]) -> (String, Vec<String>) {
    (outcome.to_owned(), notices.iter().map(|notice| (*notice).to_owned()).collect())
}

#[test]
fn who_has_a_lock_writes_through_relays_and_nobody_else() {
    let mut chain = Chain::start(3);
    let (client, other) = (chain.servers[3].connect(), chain.servers[3].connect());
    assert_eq!(lock(&mut chain, 3, client, "lock"), true);
    assert_eq!(outcome(&chain.call(3, client, &guarded("a"))), is("done", &[]));
    // The relay has the lock at its source, its other clients have not.
    assert_eq!(outcome(&chain.call(3, other, &guarded("b"))), is("\"not owner\"", &[]));
    let rival = chain.servers[0].connect();
    assert_eq!(lock(&mut chain, 0, rival, "lock"), false);
    // It passes to who waits for it here, and then to who waits at the source.
    assert_eq!(lock(&mut chain, 3, other, "lock"), false);
    lock(&mut chain, 3, client, "unlock");
    assert_eq!(outcome(&chain.servers[3].received(other)).1, ["locked"]);
    assert_eq!(outcome(&chain.call(3, other, &guarded("b"))), is("done", &[]));
    lock(&mut chain, 3, other, "unlock");
    chain.settle();
    assert_eq!(outcome(&chain.servers[0].received(rival)).1, ["locked"]);
    // Whoever takes it for his here is not alone.
    assert_eq!(lock(&mut chain, 3, client, "lock"), false);
    assert_eq!(outcome(&chain.call(3, client, &guarded("c"))), is("\"not owner\"", &[]));
    lock(&mut chain, 0, rival, "unlock");
    chain.settle();
    assert_eq!(outcome(&chain.servers[3].received(client)).1, ["locked"]);
    assert_eq!(outcome(&chain.call(3, client, &guarded("c"))), is("done", &[]));
    // A thief at the source.
    assert_eq!(lock(&mut chain, 0, rival, "steal"), true);
    chain.settle();
    assert_eq!(outcome(&chain.servers[3].received(client)).1, ["stolen"]);
    assert_eq!(outcome(&chain.call(3, client, &guarded("d"))), is("\"not owner\"", &[]));
    // And one behind the relays.
    lock(&mut chain, 3, client, "unlock");
    chain.servers[0].received(rival);
    assert_eq!(lock(&mut chain, 3, other, "steal"), true);
    assert_eq!(outcome(&chain.call(3, other, &guarded("d"))), is("done", &[]));
    assert_eq!(outcome(&chain.servers[0].received(rival)).1, ["stolen"]);
    assert_eq!(ports(&mut chain.servers[0]), ["a", "b", "c", "d"]);
    // A session that ends gives it back.
    chain.servers[3].event(Event::Closed { session: other, error: None });
    chain.settle();
    let late = chain.servers[0].connect();
    lock(&mut chain, 0, rival, "unlock");
    assert_eq!(lock(&mut chain, 0, late, "lock"), true);
}

/// Others have it at the source since before it passed from one client of the relay to the next.
#[test]
fn who_comes_to_own_a_lock_that_its_relay_has_not_hears_so_or_takes_it() {
    let mut chain = Chain::start(1);
    let rival = chain.servers[0].connect();
    let [first, second, thief] = [(); 3].map(|()| chain.servers[1].connect());
    assert_eq!(lock(&mut chain, 0, rival, "lock"), true);
    assert_eq!(lock(&mut chain, 1, first, "lock"), false);
    assert_eq!(outcome(&chain.call(1, first, &guarded("a"))), is("\"not owner\"", &[]));
    assert_eq!(lock(&mut chain, 1, second, "lock"), false);
    lock(&mut chain, 1, first, "unlock");
    assert_eq!(chain.servers[1].received(second), Vec::<String>::new(), "it is not the relay's");
    assert_eq!(outcome(&chain.call(1, second, &guarded("a"))), is("\"not owner\"", &[]));
    assert_eq!(lock(&mut chain, 1, thief, "steal"), true);
    assert_eq!(outcome(&chain.call(1, thief, &guarded("b"))), is("done", &[]));
    // An owner is told again when somebody leaves the queue, as by the reference.
    assert_eq!(outcome(&chain.servers[0].received(rival)).1, ["locked", "stolen"]);
    // Who is robbed does not take it back with the next thing that he asks.
    lock(&mut chain, 0, rival, "unlock");
    assert_eq!(lock(&mut chain, 0, rival, "steal"), true);
    chain.settle();
    assert_eq!(outcome(&chain.servers[1].received(thief)).1, ["stolen"]);
    assert_eq!(outcome(&chain.call(1, thief, &guarded("c"))), is("\"not owner\"", &[]));
    assert_eq!(ports(&mut chain.servers[0]), ["b"]);
}

/// What the last owner wrote at the source may not have come to the relay when the next one reads.
#[test]
fn what_is_read_under_a_lock_is_read_at_the_source() {
    let mut chain = Chain::start(2);
    let read = |name: &str| {
        let found = format!(
            r#"{{"op":"select","table":"Port","where":[["name","==","{name}"]],"columns":["name"]}}"#
        );
        transact(3, &format!(r#"{{"op":"assert","lock":"l"}},{found}"#))
    };
    let (rival, client) = (chain.servers[0].connect(), chain.servers[2].connect());
    assert_eq!(lock(&mut chain, 0, rival, "lock"), true);
    assert_eq!(lock(&mut chain, 2, client, "lock"), false);
    assert_eq!(outcome(&chain.call(2, client, &read("a"))), is("\"not owner\"", &[]));
    assert_eq!(outcome(&chain.call(0, rival, &guarded("a"))), is("done", &[]));
    lock(&mut chain, 0, rival, "unlock");
    chain.settle();
    assert_eq!(outcome(&chain.servers[2].received(client)).1, ["locked"]);
    let told = chain.call(2, client, &read("a"));
    assert_eq!(value(&told[0])["result"][1]["rows"], json!([{"name": "a"}]), "{told:?}");
    // As a message that a helper looks at.
    let padded = read(&"x".repeat(2 << 20));
    let told = chain.call(2, client, &padded);
    assert_eq!(value(&told[0])["result"][1]["rows"], json!([]), "{told:?}");
    assert_eq!(lock(&mut chain, 0, rival, "steal"), true);
    chain.settle();
    chain.servers[2].received(client);
    assert_eq!(outcome(&chain.call(2, client, &padded)), is("\"not owner\"", &[]));
}

/// Who asserts one lock in a message that a helper looks at keeps no other one from others.
#[test]
fn a_long_transaction_asks_the_source_for_the_locks_that_it_asserts() {
    let mut chain = Chain::start(1);
    has_another_database(&mut chain.servers[1]);
    let (client, rival) = (chain.servers[1].connect(), chain.servers[0].connect());
    assert_eq!(lock(&mut chain, 1, client, "lock"), true);
    let other = r#"{"id":7,"method":"lock","params":["other"]}"#;
    assert!(chain.call(1, client, other)[0].contains("true"));
    let long = "x".repeat(2 << 20);
    assert_eq!(outcome(&chain.call(1, client, &guarded(&long))), is("done", &[]));
    assert_eq!(lock(&mut chain, 0, rival, "lock"), false);
    let told = chain.call(0, rival, other);
    assert!(told[0].contains(r#""locked":true"#), "{told:?}");
}

#[test]
fn a_lock_ends_with_the_connection_to_the_source() {
    let mut chain = Chain::start(2);
    let client = chain.servers[2].connect();
    takes_lock(&mut chain, 2, client);
    // What is on its way is not made under a lock that others may have had meanwhile.
    chain.servers[2].send(client, &guarded("b"));
    chain.servers[2].settle();
    chain.is_cut[2] = true;
    chain.lose(2);
    chain.settle();
    let told = chain.servers[2].received(client);
    assert_eq!(outcome(&told), is("\"canceled\"", &["stolen"]));
    chain.servers[2].send(client, &guarded("c"));
    chain.is_cut[2] = false;
    chain.pass_ms(20_000);
    // Asked for while it was away, and still composed under the lock that was lost.
    let told = chain.servers[2].received(client);
    assert_eq!(outcome(&told), is("\"not owner\"", &["locked"]));
    assert_eq!(outcome(&chain.call(2, client, &guarded("d"))), is("done", &[]));
    assert_eq!(ports(&mut chain.servers[0]), ["a", "d"]);
}

#[test]
fn the_longest_pause_between_attempts_is_set_while_a_relay_runs() {
    let mut chain = Chain::start(1);
    let relay = &mut chain.servers[1];
    let set = |relay: &mut Shell, ms: &str| {
        relay.command("weir/set-relay-source-max-backoff", &[ms]).expect("an answer")
    };
    for wrong in ["x", "-1", "999", "4294967296"] {
        assert!(set(relay, wrong).is_err(), "{wrong}");
    }
    assert_eq!(set(relay, "2000"), Ok(String::new()));
    assert!(
        String::from_utf8_lossy(relay.saved.as_deref().unwrap()).contains(r#""max-backoff":2000"#)
    );
    chain.is_cut[1] = true;
    chain.lose(1);
    let mut attempts = 0;
    for _ in 0..60 {
        chain.servers[1].pass_ms(1000);
        attempts += chain.servers[1].connecting.len();
        for (link, _) in std::mem::take(&mut chain.servers[1].connecting) {
            let error = Some("Connection refused".to_owned());
            chain.servers[1].event(Event::LinkDown { link, error });
        }
    }
    // With the usual pause there would be nine.
    assert!((20..=32).contains(&attempts), "{attempts}");
}

/// The second one asks while a helper composes the first rows of the first one, and so gets those that
/// are being sent.
#[test]
fn relays_that_begin_with_the_same_long_message_are_both_told_what_changes() {
    let mut shell = Shell::start();
    let writer = shell.connect();
    for first in 0..9 {
        let name = |n: u32| insert(&format!("{first}p{n}{}", "x".repeat(10_000)));
        let rows: Vec<String> = (0..50).map(name).collect();
        shell.call(writer, &transact(1, &rows.join(",")));
    }
    shell.server.set_step_cost_max(10);
    let ask = format!(
        r#"{{"id":1,"method":"weir_monitor","params":["Net","w",{{"Port":{{"columns":["name"]}}}},"{ZERO}",{{"each":true}}]}}"#
    );
    let watchers = [shell.connect(), shell.connect()];
    shell.slow_work = true;
    for watcher in watchers {
        shell.send(watcher, &ask);
        shell.settle();
    }
    while !shell.work.is_empty() {
        shell.do_work(0);
        shell.settle();
    }
    shell.pass_ms(100);
    while !shell.work.is_empty() {
        shell.do_work(0);
        shell.settle();
    }
    shell.slow_work = false;
    let pieces = shell.sent_out.iter().filter(|what| *what == "Piece").count();
    assert!(pieces > 0, "the rows are many: {:?}", shell.sent_out);
    for watcher in watchers {
        let begun = told(&mut shell, watcher);
        assert_eq!((begun.len(), &begun[0]["result"][0]), (1, &json!(false)));
    }
    shell.call(writer, &transact(2, &insert("new")));
    for watcher in watchers {
        let methods: Vec<Value> =
            told(&mut shell, watcher).iter().map(|update| update["method"].clone()).collect();
        assert_eq!(methods, ["weir_update"]);
    }
}

/// The request to be told each change.
fn each() -> String {
    format!(
        r#"{{"id":2,"method":"weir_monitor","params":["Net","w",{{"Port":{{"columns":["name","tags"]}}}},"{ZERO}",{{"each":true}}]}}"#
    )
}

/// A relay, and who watches there and has not been told what ten changes of 100 kB have led to.
fn behind() -> (Chain, SessionId) {
    let mut chain = Chain::start(1);
    let watcher = chain.servers[1].connect();
    let server = r#"{"id":1,"method":"monitor_cond","params":["_Server","s",{"Database":{"columns":["index"]}}]}"#;
    chain.call(1, watcher, server);
    chain.call(1, watcher, &each());
    chain.servers[1].event(Event::Blocked { session: watcher });
    let (writer, long) = (chain.servers[0].connect(), "x".repeat(100_000));
    for n in 0..10 {
        let row = format!(r#"{{"name":"p{n}","tags":"{long}"}}"#);
        let insert = format!(r#"{{"op":"insert","table":"Port","row":{row}}}"#);
        chain.call(0, writer, &transact(n, &insert));
        chain.pass_ms(500);
    }
    chain.servers[1].received(watcher);
    (chain, watcher)
}

/// A relay of a relay goes by the index: where that ran ahead of rows which have yet to come, it would take older
/// rows for newer ones.
#[test]
fn who_is_told_each_change_is_told_no_index_before_the_rows() {
    let (mut chain, watcher) = behind();
    chain.servers[1].event(Event::Drained { session: watcher });
    chain.pass_ms(500);
    let told = told(&mut chain.servers[1], watcher);
    let (mut rows, mut last) = (0, 0);
    for message in &told {
        if message["method"] == "weir_update" {
            rows += 1;
        } else {
            assert_eq!(rows, 10, "the index comes behind {rows} changes: {message}");
            last = index_in(message);
        }
    }
    assert_eq!((rows, last), (10, number(&mut chain.servers[1])));
}

/// The index that an update of `_Server` tells.
fn index_in(message: &Value) -> i64 {
    let databases = message["params"][1]["Database"].as_object().expect("databases");
    databases.values().find_map(|row| row["modify"]["index"].as_i64()).expect("an index")
}

/// Nothing changes behind the first rows that would have what has been held back told.
#[test]
fn what_the_server_says_while_a_helper_composes_first_rows_is_told_behind_them() {
    let mut chain = Chain::start(1);
    let writer = chain.servers[0].connect();
    let rows: Vec<String> = (0..50).map(|n| insert(&format!("p{n}"))).collect();
    chain.call(0, writer, &transact(1, &rows.join(",")));
    chain.pass_ms(500);
    let watcher = chain.servers[1].connect();
    let server = r#"{"id":1,"method":"monitor_cond","params":["_Server","s",{"Database":{"columns":["connected"]}}]}"#;
    chain.call(1, watcher, server);
    chain.servers[1].slow_work = true;
    chain.servers[1].server.set_step_cost_max(10);
    chain.servers[1].send(watcher, &each());
    chain.servers[1].settle();
    assert_eq!(chain.servers[1].work.len(), 1, "a helper composes its rows");
    chain.is_cut[1] = true;
    chain.lose(1);
    chain.pass_ms(35_000);
    assert_eq!(chain.servers[1].received(watcher), [""; 0]);
    while !chain.servers[1].work.is_empty() {
        chain.servers[1].do_work(0);
        chain.pass_ms(2000);
    }
    let told = told(&mut chain.servers[1], watcher);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[1]["params"][1]["Database"].to_string().contains("false"), "{told:?}");
}

#[test]
fn who_lets_go_of_what_is_to_come_is_told_what_the_server_says_behind_it() {
    let (mut chain, watcher) = behind();
    chain.servers[1].event(Event::Drained { session: watcher });
    let now = chain.servers[1].now;
    chain.servers[1].server.flush_updates(now);
    chain.servers[1].pump();
    chain.servers[1].send(watcher, r#"{"id":3,"method":"monitor_cancel","params":["w"]}"#);
    chain.pass_ms(2000);
    let told = told(&mut chain.servers[1], watcher);
    let rows = told.iter().filter(|message| message["method"] == "weir_update").count();
    assert!(rows < 10, "it was behind");
    let last = told.iter().rfind(|message| message["method"] == "update2");
    assert_eq!(last.map(index_in), Some(number(&mut chain.servers[1])), "{told:?}");
}

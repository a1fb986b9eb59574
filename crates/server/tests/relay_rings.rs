//! Relays that name each other as further sources (`weir_path`, docs/decisions/013): none follows itself,
//! however many are between, all say that the source is gone, and all find it again.

use crate::chain::{Chain, relay_of};
use crate::shell::{Shell, insert, ports, transact};
use serde_json::{Value, json};
use weir_server::event::{Event, SessionId};

fn value(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// Whether `_Server` says that the source is followed.
fn is_connected(shell: &mut Shell) -> bool {
    let client = shell.connect();
    let select = r#"{"id":1,"method":"transact","params":["_Server",{"op":"select","table":"Database",
        "where":[["name","==","Net"]],"columns":["connected"]}]}"#;
    let reply = value(&shell.call(client, select));
    shell.event(Event::Closed { session: client, error: None });
    reply["result"][0]["rows"][0]["connected"].as_bool().expect("a boolean")
}

fn are_connected(chain: &mut Chain) -> Vec<bool> {
    chain.servers[1..].iter_mut().map(is_connected).collect()
}

fn write(chain: &mut Chain, at: usize, name: &str) {
    let client = chain.servers[at].connect();
    let reply = chain.call(at, client, &transact(1, &insert(name)));
    assert!(value(&reply[0])["result"][0]["uuid"].is_array(), "{reply:?}");
}

fn logged(shell: &Shell, text: &str) -> usize {
    shell.log.iter().filter(|line| line.contains(text)).count()
}

/// The processes on the way to a server, as it answers who asks; and who is told when that changes.
fn ask_path(shell: &mut Shell) -> (SessionId, Value) {
    let client = shell.connect();
    let reply = shell.call(client, r#"{"id":1,"method":"weir_path","params":["Net"]}"#);
    (client, value(&reply)["result"].clone())
}

fn server_id(shell: &mut Shell) -> Value {
    let client = shell.connect();
    value(&shell.call(client, r#"{"id":1,"method":"get_server_id","params":[]}"#))["result"].clone()
}

/// What has been told of the way since.
fn told(shell: &mut Shell, client: SessionId) -> Vec<Value> {
    let told = shell.received(client);
    let notices = told.iter().map(|message| value(message));
    notices.filter(|notice| notice["method"] == "weir_path").collect()
}

#[test]
fn who_asks_is_told_the_way_of_the_rows_and_what_becomes_of_it() {
    let mut chain = Chain::start(2);
    let ids: Vec<Value> = chain.servers.iter_mut().map(server_id).collect();
    // Whose rows they are does not change while they stay.
    let way = |path: &[Value], is_connected: bool| json!({"connected": is_connected, "origin": ids[0], "servers": path});
    for at in 0..3 {
        let (_, path) = ask_path(&mut chain.servers[at]);
        assert_eq!(path, way(&ids[..=at], true));
    }
    let (client, _) = ask_path(&mut chain.servers[2]);
    let notice = |path: &[Value], is_connected: bool| json!({"id": null, "method": "weir_path", "params": ["Net", way(path, is_connected)]});
    chain.is_cut[1] = true;
    chain.lose(1);
    chain.settle();
    assert_eq!(told(&mut chain.servers[2], client), [notice(&ids[1..], false)]);
    chain.is_cut[1] = false;
    chain.pass_ms(20_000);
    assert_eq!(told(&mut chain.servers[2], client), [notice(&ids, true)]);
    // Who does not read is told how it ended.
    chain.servers[2].event(Event::Blocked { session: client });
    for _ in 0..3 {
        chain.lose(1);
        chain.settle();
        chain.pass_ms(20_000);
    }
    chain.is_cut[2] = true;
    chain.lose(2);
    chain.settle();
    assert_eq!(told(&mut chain.servers[2], client), [] as [Value; 0]);
    chain.servers[2].event(Event::Drained { session: client });
    chain.settle();
    assert_eq!(told(&mut chain.servers[2], client), [notice(&ids[2..], false)]);
    // Other parameters are an error, and another database is none.
    for params in [r#"[]"#, r#"["Net",1]"#, r#"["Other"]"#] {
        let ask = format!(r#"{{"id":1,"method":"weir_path","params":{params}}}"#);
        let reply = value(&chain.servers[2].call(client, &ask));
        assert!(reply["error"].is_object(), "{params}: {reply}");
    }
}

/// The source is gone for a while. Everybody says so in time, and nobody before; then all have what was
/// written meanwhile, and write.
fn survives(lists: &[&[usize]]) {
    let mut chain = Chain::of_lists(lists);
    write(&mut chain, lists.len(), "a");
    assert!(are_connected(&mut chain).iter().all(|is| *is), "{lists:?}");
    for round in 0..4 {
        chain.goes(0);
        chain.pass_ms(25_000);
        assert!(are_connected(&mut chain).iter().all(|is| *is), "{lists:?}: it is early");
        chain.pass_ms(10_000);
        assert!(!are_connected(&mut chain).iter().any(|is| *is), "{lists:?}, round {round}");
        for at in 1..=lists.len() {
            let (_, path) = ask_path(&mut chain.servers[at]);
            assert_eq!(path["connected"], false, "{lists:?}");
        }
        assert_eq!(ports(&mut chain.servers[1]).len(), 1 + 2 * round, "what was there is served");
        // It stays so.
        chain.pass_ms(120_000);
        assert!(!are_connected(&mut chain).iter().any(|is| *is), "{lists:?}, round {round}");
        let writer = chain.servers[0].connect();
        chain.servers[0].call(writer, &transact(1, &insert(&format!("b{round}"))));
        chain.comes_back(0);
        chain.pass_ms(40_000);
        write(&mut chain, lists.len(), &format!("c{round}"));
        let rows = ports(&mut chain.servers[0]);
        for server in &mut chain.servers {
            assert_eq!(ports(server), rows, "{lists:?}");
        }
        assert!(are_connected(&mut chain).iter().all(|is| *is), "{lists:?}, round {round}");
    }
}

#[test]
fn two_relays_that_name_each_other_know_that_the_source_is_gone_and_find_it_again() {
    survives(&[&[0, 2], &[0, 1]]);
}

#[test]
fn three_relays_in_a_ring_do() {
    survives(&[&[0, 3], &[1, 0], &[2, 0]]);
    survives(&[&[0, 2, 3], &[1, 3, 0], &[2, 1, 0]]);
}

#[test]
fn relays_that_reach_the_source_only_through_each_other_do() {
    survives(&[&[0, 2, 3], &[1, 3], &[2, 1]]);
    survives(&[&[0, 2], &[1], &[2, 4], &[3, 1]]);
}

/// The relay that the others had their rows through is gone with its way: they find the next one.
#[test]
fn relays_that_lose_one_of_them_go_on_with_the_others() {
    let mut chain = Chain::of_lists(&[&[0], &[1, 3, 0], &[2, 1, 0]]);
    for gone in 1..=3 {
        chain.goes(gone);
        chain.pass_ms(20_000);
        let left: Vec<usize> = (1..=3).filter(|at| *at != gone).collect();
        write(&mut chain, 0, &format!("without {gone}"));
        let rows = ports(&mut chain.servers[0]);
        for at in left {
            assert_eq!(ports(&mut chain.servers[at]), rows, "{at} without {gone}");
            assert!(is_connected(&mut chain.servers[at]), "{at} without {gone}");
        }
        chain.comes_back(gone);
        chain.pass_ms(20_000);
    }
}

#[test]
fn a_relay_that_comes_when_all_have_lost_the_source_waits_for_it() {
    let mut chain = Chain::of_lists(&[&[0, 2, 3], &[0, 1, 3], &[1, 2, 0]]);
    write(&mut chain, 1, "a");
    chain.goes(0);
    chain.pass_ms(5_000);
    chain.goes(3);
    chain.servers[3] = relay_of("new", &[2, 1, 0]);
    chain.comes_back(3);
    chain.pass_ms(60_000);
    assert_eq!(are_connected(&mut chain), [false; 3]);
    chain.comes_back(0);
    chain.pass_ms(40_000);
    assert_eq!(are_connected(&mut chain), [true; 3]);
    assert_eq!(ports(&mut chain.servers[3]), ["a"]);
    write(&mut chain, 3, "b");
}

#[test]
fn a_relay_of_itself_follows_nobody_and_says_why() {
    let mut chain = Chain::of_lists(&[&[1, 0]]);
    write(&mut chain, 1, "a");
    chain.goes(0);
    chain.pass_ms(100_000);
    assert_eq!(are_connected(&mut chain), [false]);
    let why = "has its rows from this relay";
    let said = logged(&chain.servers[1], why);
    assert!((1..=3).contains(&said), "once a minute: {:#?}", chain.servers[1].log);
    chain.comes_back(0);
    chain.pass_ms(20_000);
    write(&mut chain, 1, "b");
}

/// An operator takes the source away, and the first of two relays is to follow the second one, whose only source
/// it is. Neither follows itself through the other, and what is written waits for a source.
#[test]
fn relays_whose_only_sources_are_each_other_say_that_they_have_none() {
    let mut chain = Chain::of_lists(&[&[0], &[1]]);
    write(&mut chain, 2, "a");
    for (command, of) in [("remove-db", "Net"), ("add-db", "relay:Net:unix:/server2")] {
        let done = chain.servers[1].command(&format!("ovsdb-server/{command}"), &[of]);
        assert_eq!(done, Some(Ok(String::new())));
    }
    chain.pass_ms(60_000);
    assert_eq!(are_connected(&mut chain), [false, false]);
    let client = chain.servers[1].connect();
    assert_eq!(chain.call(1, client, &transact(1, &insert("b"))), [] as [String; 0]);
    chain.pass_ms(60_000);
    for at in 1..3 {
        assert_eq!(ports(&mut chain.servers[at]), ["a"], "what the other one had");
        let (_, path) = ask_path(&mut chain.servers[at]);
        assert_eq!(path["connected"], false);
    }
}

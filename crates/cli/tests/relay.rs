//! Chains of relays as processes: ours and packaged ones in every place, in front of a standalone server
//! or a cluster; servers in the middle are killed while clients write.

use std::thread;

use crate::chain::{Chain, Proxy};
use crate::group::{self, Group, Program};
use crate::peer::{self, Client};
use crate::support::{Running, Scratch, WEIR, err, eventually, out};
use serde_json::{Value, json};

use Program::{Packaged, Weir};

const ZERO: &str = "00000000-0000-0000-0000-000000000000";

fn value(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

fn since(last: &str) -> String {
    format!(
        r#"{{"id":1,"method":"monitor_cond_since","params":["Net","m",{{"Port":{{"columns":["name"]}}}},"{last}"]}}"#
    )
}

/// What a client that knows a state is answered: whether the server knew it, and the id of the state.
fn come_back(client: &mut Client, last: &str) -> (bool, String, usize) {
    let reply = value(&client.call(&since(last)));
    let result = &reply["result"];
    let rows = result[2]["Port"].as_object().map_or(0, |rows| rows.len());
    (result[0] == true, result[1].as_str().expect("an id").to_owned(), rows)
}

/// A source, a relay of it, and a relay of that: all mixtures with one of ours.
const MIXTURES: [[Program; 3]; 7] = [
    [Weir, Weir, Weir],
    [Weir, Weir, Packaged],
    [Weir, Packaged, Weir],
    [Weir, Packaged, Packaged],
    [Packaged, Weir, Weir],
    [Packaged, Weir, Packaged],
    [Packaged, Packaged, Weir],
];

#[test]
fn ours_and_packaged_ones_stand_in_every_place() {
    for programs in MIXTURES {
        let Some(chain) = Chain::start_with(&programs) else { return };
        let mut all: Vec<Client> = (0..3).map(|at| chain.client(at)).collect();
        for (at, client) in all.iter_mut().enumerate() {
            let reply = client.transact(&peer::insert(&format!("p{at}"), "x"));
            assert!(reply.contains(r#""uuid""#), "{programs:?} {at}: {reply}");
            // Who has his reply sees his change.
            let ports = client.ports();
            assert!(ports.contains(&format!("p{at}")), "{programs:?} {at}: {ports:?}");
        }
        eventually("all have all rows", || {
            all.iter_mut().all(|client| client.ports() == ["p0", "p1", "p2"])
        });
        let twice = all[2].transact(&peer::insert("p1", "x"));
        assert!(twice.contains("constraint violation"), "{programs:?}: {twice}");
        let update = r#"{"op":"mutate","table":"Port","where":[["name","==","p1"]],"mutations":[["tags","insert",["set",["a","b"]]]]}"#;
        assert!(all[1].transact(update).contains(r#""count":1"#));
        let delete = r#"{"op":"delete","table":"Port","where":[["name","==","p0"]]}"#;
        assert!(all[2].transact(delete).contains(r#""count":1"#));
        let select =
            r#"{"op":"select","table":"Port","where":[],"columns":["_uuid","name","tags"]}"#;
        let mut rows = |at: usize| {
            let reply = value(&all[at].transact(select));
            let mut rows = reply["result"][0]["rows"].as_array().expect("rows").clone();
            rows.sort_by_key(|row| row["_uuid"].to_string());
            rows
        };
        eventually(&format!("{programs:?} have the same rows"), || {
            (1..3).all(|at| rows(at) == rows(0))
        });
        assert_eq!(rows(2).len(), 2, "{programs:?}");
    }
}

#[test]
fn clients_resume_through_a_chain_whose_middle_was_killed() {
    let Some(mut chain) = Chain::start_with(&[Weir, Weir, Weir, Weir]) else { return };
    let mut writer = chain.client(0);
    for n in 0..20 {
        writer.transact(&peer::insert(&format!("p{n}"), "x"));
    }
    eventually("the last one has all", || chain.client(3).ports().len() == 20);
    let (_, id, _) = come_back(&mut chain.client(3), ZERO);
    // The middle dies and comes back while somebody writes.
    chain.kill(2);
    for n in 20..30 {
        writer.transact(&peer::insert(&format!("p{n}"), "x"));
    }
    chain.start(2);
    eventually("the last one has what was written meanwhile", || {
        chain.client(3).ports().len() == 30
    });
    // Every server knows the state that the last one told before: who comes back gets ten rows. The one
    // in the middle has forgotten all that was before its end.
    for at in [3, 1, 0] {
        let (found, last, rows) = come_back(&mut chain.client(at), &id);
        assert_eq!((found, rows), (true, 10), "server {at}: {last}\n{}", chain.log(at));
    }
    let (found, _, rows) = come_back(&mut chain.client(2), &id);
    assert_eq!((found, rows), (false, 30));
    let log = chain.log(3);
    assert!(!log.contains("|ERR|") && !log.contains("|EMER|"), "{log}");
}

#[test]
fn what_a_relay_answered_is_at_the_source_however_relays_die() {
    let Some(mut chain) = Chain::start_with(&[Weir, Weir, Weir]) else { return };
    let (mut acknowledged, mut canceled) = (vec![], 0);
    for round in 0..6 {
        for n in 0..40 {
            let name = format!("r{round}n{n}");
            // Nobody reads the answers of the last ones.
            let mut client = chain.client(2);
            if n < 36 {
                let reply = client.transact(&peer::insert(&name, "x"));
                if value(&reply)["result"][0]["uuid"].is_array() {
                    acknowledged.push(name);
                } else {
                    canceled += 1;
                }
            } else {
                client.send(peer::transact(&peer::insert(&name, "x"))).expect("it is there");
            }
        }
        let at = 1 + round % 2;
        chain.kill(at);
        chain.start(at);
        chain.settle();
    }
    let ports = chain.client(0).ports();
    assert!(acknowledged.iter().all(|name| ports.contains(name)), "{canceled} were canceled");
    let mut once = ports.clone();
    once.dedup();
    assert_eq!(once, ports);
    eventually("the last relay has all rows", || chain.client(2).ports() == ports);
}

#[test]
fn a_cluster_is_relayed_whoever_leads() {
    for program in [Weir, Packaged] {
        let schema = group::SCHEMA;
        let group = match program {
            Weir => Group::weir(schema),
            Packaged => Group::packaged(schema),
        };
        let Some(mut group) = group else { return };
        let members: Vec<String> =
            (0..3).map(|at| format!("unix:{}", group.socket(at).display())).collect();
        let source = format!("relay:{}:{}", group.db, members.join(","));
        let chain = Chain::of(Scratch::new(), &[Weir], Some(source));
        let transact = |name: &str| {
            let op = json!({"op":"insert","table":"T","row":{"name":name}});
            json!({"id":1,"method":"transact","params":[group.db, op]}).to_string()
        };
        eventually("the relay has the database", || {
            chain.client(0).call(&transact("first")).contains(r#""uuid""#)
        });
        let names = || {
            let select = json!({"op":"select","table":"T","where":[],"columns":["name"]});
            let select = json!({"id":1,"method":"transact","params":[group.db, select]});
            value(&chain.client(0).call(&select.to_string()))["result"][0]["rows"].to_string()
        };
        let insert = transact("second");
        let leader = group.settle(&[0, 1, 2]);
        group.insert(leader, "third");
        eventually("the relay hears of it", || names().contains("third"));
        let rows = names();
        drop(insert);
        group.kill(leader);
        let rest: Vec<usize> = (0..3).filter(|at| *at != leader).collect();
        group.settle(&rest);
        group.insert(rest[0], "fourth");
        let select = json!({"op":"select","table":"T","where":[],"columns":["name"]});
        let select = json!({"id":1,"method":"transact","params":[group.db, select]}).to_string();
        eventually("the relay follows another member", || {
            chain.client(0).call(&select).contains("fourth")
        });
        assert!(rows.contains("first"), "{rows}");
        // As an operator sees it.
        let status = json!({"op":"select","table":"Database","where":[["name","==",group.db]]});
        let status = json!({"id":1,"method":"transact","params":["_Server", status]}).to_string();
        let row = value(&chain.client(0).call(&status))["result"][0]["rows"][0].clone();
        assert_eq!((&row["model"], &row["connected"]), (&json!("relay"), &json!(true)));
        assert!(row["index"].as_i64().is_some_and(|index| index > 3), "the source's index: {row}");
        // Packaged members answer that such a schema is theirs, and keep their own.
        if program == Weir {
            converts_through_a_relay(&chain, &group);
        }
    }
}

/// A cluster has no ephemeral columns, as OVN's schemas have: they come as others through a relay as well.
fn converts_through_a_relay(chain: &Chain, group: &Group) {
    let mut schema: Value = serde_json::from_str(group::SCHEMA).expect("a schema");
    schema["version"] = json!("9.0.0");
    schema["tables"]["T"]["columns"]["seen"] = json!({"type": "boolean", "ephemeral": true});
    let schema = group.scratch.write("ephemeral", &schema.to_string()).display().to_string();
    let remote = format!("unix:{}", chain.socket(0).display());
    let client = group.scratch.link("ovsdb-client");
    let run = |command: &str| group.scratch.run(&client, &["-t", "60", command, &remote, &schema]);
    assert_eq!(out(&run("needs-conversion")), "yes\n");
    let converted = run("convert");
    assert!(converted.status.success(), "{}", err(&converted));
    eventually("the relay has the new schema", || out(&run("needs-conversion")) == "no\n");
}

/// The only source of relays that name each other is killed, and started again. All say that it is gone, though
/// they can reach each other, and stay so; what is written then is made when it is back.
#[test]
fn relays_that_name_each_other_know_that_their_source_is_gone() {
    const RELAYS: std::ops::RangeInclusive<usize> = 1..=3;
    let mut chain = Chain::ring(3);
    chain.insert(3, "before", "x");
    chain.agree(1);
    let connected = json!({"op":"select","table":"Database","where":[["name","==","Net"]],"columns":["connected"]});
    let connected = json!({"id":1,"method":"transact","params":["_Server", connected]}).to_string();
    let is_connected = |chain: &Chain, at| {
        value(&chain.client(at).call(&connected))["result"][0]["rows"][0]["connected"] == true
    };
    chain.kill(0);
    eventually("all relays say that the source is gone", || {
        RELAYS.into_iter().all(|at| !is_connected(&chain, at))
    });
    let path = r#"{"id":1,"method":"weir_path","params":["Net"]}"#;
    for at in RELAYS {
        let path = value(&chain.client(at).call(path))["result"].clone();
        assert_eq!(path["connected"], false, "{path}");
        assert_eq!(chain.client(at).ports(), ["before"], "it serves what it has");
    }
    let waiting: Vec<Client> = RELAYS
        .map(|at| {
            let mut client = chain.client(at);
            client
                .send(peer::transact(&peer::insert(&format!("p{at}"), "x")))
                .expect("it is there");
            client
        })
        .collect();
    chain.start(0);
    chain.agree(4);
    drop(waiting);
    eventually("all relays have found the source", || {
        RELAYS.into_iter().all(|at| is_connected(&chain, at))
    });
    chain.insert(1, "after", "x");
    chain.agree(5);
    for at in RELAYS {
        let log = chain.log(at);
        assert!(!log.contains("|ERR|") && !log.contains("gone back"), "{log}");
    }
}

/// One of the servers is asked for another schema.
fn convert(chain: &Chain, at: usize, schema: &Value) {
    let convert = json!({"id":1,"method":"convert","params":["Net", schema]}).to_string();
    let reply = chain.client(at).try_call(&convert);
    // Who does not know of changes is disconnected, and may be before he has the answer.
    assert!(reply.is_none_or(|reply| value(&reply)["error"].is_null()), "{at}");
}

/// What an operator does to the first two of these, and what happens to them: the last one has all rows in
/// the end, and is written through at any time.
fn survive(programs: &[Program]) {
    let Some(mut chain) = Chain::start_with(programs) else { return };
    let last = programs.len() - 1;
    chain.insert(last, "first", "x");
    // The source ends, and is started again.
    chain.kill(0);
    chain.start(0);
    chain.insert(last, "after the source's end", "x");
    chain.agree(2);
    // The middle reads nothing, while more is written than fits into any buffer.
    chain.signal(1, "STOP");
    let long = "x".repeat(200_000);
    (0..40).for_each(|n| chain.insert(0, &format!("long{n}"), &long));
    let ports = chain.client(last).ports();
    assert!(ports.contains(&"first".to_owned()), "{programs:?}: it serves what it has: {ports:?}");
    chain.signal(1, "CONT");
    chain.agree(42);
    // It ends, and somebody writes meanwhile.
    chain.kill(1);
    chain.insert(0, "while the middle is away", "x");
    let ports = chain.client(last).ports();
    assert_eq!(ports.len(), 42, "{programs:?}: it serves what it has");
    chain.start(1);
    chain.insert(last, "after the middle's end", "x");
    chain.agree(44);
    // Packaged relays do not find out what packaged servers convert in a file.
    if programs[..2] == [Packaged; 2] {
        return;
    }
    // The source gets another schema, whichever of ours is asked for that, and rows that need it.
    let mut schema = value(peer::SCHEMA);
    let ours = programs.iter().skip(1).take_while(|program| **program == Weir).count();
    for at in 0..=ours {
        let column = format!("speed{at}");
        schema["version"] = json!(format!("{}.0.0", at + 2));
        schema["tables"]["Port"]["columns"][&column] = json!({"type":"integer"});
        convert(&chain, at, &schema);
        let row = json!({"name": format!("fast{at}"), column: 9});
        let fast = json!({"op":"insert","table":"Port","row":row}).to_string();
        eventually(&format!("{programs:?}: the last one has the schema asked for at {at}"), || {
            let reply = chain.client(last).try_call(&peer::transact(&fast));
            reply.is_some_and(|reply| reply.contains(r#""uuid""#))
        });
    }
    chain.agree(45 + ours);
    for (at, program) in programs.iter().enumerate() {
        let log = chain.log(at);
        let is_bad = |line: &&str| *program == Weir && line.contains("|ERR|");
        assert_eq!(log.lines().find(is_bad), None, "{programs:?}, {at}");
    }
}

#[test]
fn ours_and_packaged_ones_survive_in_every_place() {
    thread::scope(|scope| {
        for programs in MIXTURES {
            scope.spawn(move || survive(&programs));
        }
    });
}

/// A packaged relay that is asked for another schema converts its own rows, and passes nothing on.
#[test]
fn ours_goes_on_behind_a_packaged_relay_that_converts_itself() {
    let Some(chain) = Chain::start_with(&[Weir, Packaged, Weir]) else { return };
    chain.insert(2, "before", "x");
    let mut schema = value(peer::SCHEMA);
    schema["version"] = json!("2.0.0");
    schema["tables"]["Port"]["columns"]["speed"] = json!({"type":"integer"});
    convert(&chain, 1, &schema);
    chain.insert(2, "behind", "x");
    eventually("all have both", || {
        (0..3).all(|at| chain.client(at).ports() == ["before", "behind"])
    });
}

/// Connections between a source and its relay end in the middle of first rows, of changes and of answers.
fn are_cut(source: Program, relay: Program) {
    let Some(source) = Chain::start_with(&[source]) else { return };
    let long = "x".repeat(20_000);
    (0..100).for_each(|n| source.insert(0, &format!("p{n}"), &long));
    let scratch = Scratch::new();
    let socket = scratch.path("between.sock");
    let between = Proxy::start(&socket, source.socket(0));
    let text = format!("relay:Net:unix:{}", socket.display());
    between.limit(1_000);
    let relay = Chain::of(scratch, &[relay], Some(text));
    for limit in [100, 2_000, 20_000, 700_000] {
        let before = between.cuts();
        between.limit(limit);
        eventually("the first rows are cut off", || between.cuts() > before);
    }
    between.limit(u64::MAX);
    let have_all = |count| {
        eventually("the relay has all rows of its source", || {
            let ports = source.client(0).ports();
            ports.len() >= count && relay.client(0).ports() == ports
        });
    };
    have_all(100);
    let (mut acknowledged, mut canceled) = (Vec::new(), 0);
    for round in 0..4 {
        let before = between.cuts();
        // Somewhere in the update or in the answer.
        between.cut_after(2_500 * round + 70);
        let mut n = 0;
        while between.cuts() == before {
            let name = format!("r{round}n{n}");
            let reply = relay.client(0).transact(&peer::insert(&name, &long[..3_000]));
            let reply = value(&reply);
            match reply["result"][0]["uuid"].is_array() {
                true => acknowledged.push(name),
                false => {
                    assert_eq!(reply["error"], "canceled", "made once or not at all: {reply}");
                    canceled += 1;
                }
            }
            n += 1;
            assert!(n < 1000, "nothing is cut");
        }
        between.limit(u64::MAX);
        have_all(100 + acknowledged.len());
    }
    let ports = source.client(0).ports();
    let is_there = |name: &String| ports.contains(name);
    assert!(acknowledged.iter().all(is_there), "{canceled} were canceled: {ports:?}");
    assert!(ports.len() <= 100 + acknowledged.len() + canceled, "{ports:?}");
}

#[test]
fn what_is_cut_in_the_middle_is_asked_for_again() {
    thread::scope(|scope| {
        for (source, relay) in [(Weir, Weir), (Weir, Packaged), (Packaged, Weir)] {
            scope.spawn(move || are_cut(source, relay));
        }
    });
}

#[test]
fn who_watches_waits_for_a_relay_that_has_no_rows_yet() {
    let Some(mut chain) = Chain::start_with(&[Weir, Weir]) else { return };
    let scratch = Scratch::new();
    let relay = format!("unix:{}", chain.socket(1).display());
    let mut watch = Running::start(scratch.command(WEIR).args(["watch", "--count=1", &relay]));
    watch.line_with("Net on unix:");
    (0..2).for_each(|at| chain.kill(at));
    chain.start(1);
    watch.line_with("database not available");
    chain.start(0);
    watch.line_with("connected again");
    chain.insert(0, "late", "x");
    watch.line_with("+ Port late");
    assert!(watch.wait().success());
}

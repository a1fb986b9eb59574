//! Locks of a relay's clients, at a source of ours: one that the test plays, or one with rivals of these clients.

use crate::chain::Chain;
use crate::relay_sources::{
    A, B, ZERO, answer, asked, guarded, has_another_database, is, lock, next_source, outcome,
    play_with, played, played_result, say, say_rows, say_schema, source_row, takes_lock, value,
};
use crate::shell::{SCHEMA, Shell, insert, ports, transact};
use serde_json::{Value, json};
use weir_server::event::{Event, LinkId, SessionId};

const LOCK: &str = r#"{"id":1,"method":"lock","params":["l"]}"#;
const ASSERT: &str = r#"{"op":"assert","lock":"l"}"#;
/// Waits until port `a` is there.
const WAIT: &str = r#"{"op":"wait","table":"Port","where":[["name","==","a"]],"columns":["name"],"until":"==","rows":[{"name":"a"}]}"#;
const UNLOCK: &str = r#"{"id":1,"method":"unlock","params":["l"]}"#;

/// The methods of requests.
fn methods(requests: &[Value]) -> Vec<&str> {
    requests.iter().map(|request| request["method"].as_str().expect("a method")).collect()
}

/// The source has another schema now: the request for its rows.
fn convert(shell: &mut Shell, link: LinkId) -> Value {
    let mut schema = value(SCHEMA);
    schema["tables"]["Port"]["columns"]["speed"] = json!({"type":"integer"});
    say_schema(shell, link, &schema);
    let requests = asked(shell, link);
    assert_eq!(methods(&requests), ["monitor_cancel", "monitor_cancel", "weir_monitor"]);
    requests[2].clone()
}

/// The source is asked for the lock, and gives it: what it is asked for then.
fn gives_lock(shell: &mut Shell, link: LinkId) -> Vec<Value> {
    let requests = asked(shell, link);
    assert_eq!(methods(&requests), ["lock"]);
    answer(shell, link, &requests[0], &json!({"locked": true}));
    asked(shell, link)
}

#[test]
fn a_lock_that_is_given_up_while_rows_are_asked_for_is_given_back_when_they_have_come() {
    let (mut shell, link) = played();
    let client = shell.connect();
    // A conversion does not end its session.
    shell.call(client, r#"{"id":1,"method":"set_db_change_aware","params":[true]}"#);
    shell.call(client, LOCK);
    shell.call(client, &guarded("b"));
    let requests = gives_lock(&mut shell, link);
    assert_eq!(methods(&requests), ["weir_transact"]);
    say_rows(&mut shell, link, B, B, &json!({"insert": {"name": "b"}}));
    let results = json!({"id": B, "results": [{}, {"uuid": ["uuid", B]}]});
    answer(&mut shell, link, &requests[0], &results);
    assert!(shell.received(client).pop().expect("an answer").contains("uuid"));
    let request = convert(&mut shell, link);
    assert!(shell.call(client, UNLOCK).contains(r#""result":{}"#));
    assert_eq!(asked(&mut shell, link), Vec::<Value>::new(), "its turn is behind the rows");
    let rows = json!([false, A, {"Port": {B: {"initial": {"name": "b"}}}}]);
    answer(&mut shell, link, &request, &rows);
    let requests = asked(&mut shell, link);
    let given_back = requests.iter().find(|request| request["method"] == "unlock");
    assert_eq!(given_back.map(|request| &request["params"]), Some(&json!(["l"])), "{requests:?}");
    // Who has it next asks for it anew.
    shell.call(client, LOCK);
    shell.call(client, &guarded("c"));
    assert_eq!(methods(&gives_lock(&mut shell, link)), ["weir_transact"]);
}

/// An owner is told again that the lock is his when somebody else waits no more for it, as by the reference. He cannot be
/// told at that moment, and others have the lock by the time at which he can.
#[test]
fn who_has_lost_a_lock_hears_of_it_though_others_have_stopped_waiting() {
    let (mut shell, link) = played();
    let (owner, other) = (shell.connect(), shell.connect());
    shell.call(owner, LOCK);
    gives_lock(&mut shell, link);
    assert!(shell.received(owner).pop().expect("a notification").contains("locked"));
    shell.call(other, LOCK);
    shell.call(other, UNLOCK);
    assert!(shell.received(owner).pop().expect("a notification").contains("locked"));
    shell.call(other, LOCK);
    shell.event(Event::Blocked { session: owner });
    shell.call(other, UNLOCK);
    say(&mut shell, link, &json!({"id":null,"method":"stolen","params":["l"]}));
    shell.event(Event::Drained { session: owner });
    shell.settle();
    let told: Vec<Value> = shell.received(owner).iter().map(|told| value(told)).collect();
    assert!(told.len() == 1 && told[0]["method"] == "stolen", "{told:?}");
}

/// A reply says that the transaction lacked its lock, and what it had read before that.
fn says_not_owner(reply: &str) {
    let reply = value(reply);
    let results =
        if reply["result"].is_array() { &reply["result"] } else { &reply["result"]["results"] };
    assert_eq!(results[0]["rows"][0]["name"], "a", "{reply}");
    assert_eq!(results[1]["error"], "not owner", "{reply}");
}

/// A transaction that reads before it asserts a lock, and one under a chosen id.
fn with_assert(id: Option<&str>) -> String {
    let operations =
        format!(r#"{{"op":"select","table":"Port","where":[]}},{ASSERT},{}"#, insert("b"));
    let Some(id) = id else { return transact(1, &operations) };
    format!(
        r#"{{"id":1,"method":"weir_transact","params":["Net",{{"id":"{id}","since":"{A}"}},{operations}]}}"#
    )
}

const CHOSEN: &str = "11111111-1111-4111-8111-111111111111";

/// A client that does not have the lock asks under its id: what the source is asked, which cannot make it.
fn asked_to_judge(shell: &mut Shell, link: LinkId, client: SessionId) -> Value {
    shell.send(client, &with_assert(Some(CHOSEN)));
    shell.settle();
    assert_eq!(shell.received(client), Vec::<String>::new(), "it may have been made before");
    let request = asked(shell, link).pop().expect("the source is asked");
    let (method, params) = (&request["method"], &request["params"]);
    assert_eq!((method, &params[1]["id"]), (&json!("weir_transact"), &json!(CHOSEN)));
    let first = &params[2];
    assert_eq!(first["op"], "assert");
    let lock = first["lock"].as_str().expect("a name");
    assert!(lock.starts_with('_') && lock != "l", "nobody has it: {lock}");
    assert_eq!(params[3]["op"], "select");
    request
}

#[test]
fn what_a_client_without_the_lock_asks_for_before_it_asserts_it_is_done_by_a_helper_if_it_is_long()
{
    for cost in [100_000, 1] {
        let (mut shell, link) = played();
        let client = shell.connect();
        shell.server.set_step_cost_max(cost);
        shell.sent_out.clear();
        says_not_owner(&shell.call(client, &with_assert(None)));
        assert_eq!(asked(&mut shell, link), Vec::<Value>::new());
        let request = asked_to_judge(&mut shell, link, client);
        let not_owner = json!({"id": A, "results": [{"error": "not owner"}, null, null, null]});
        answer(&mut shell, link, &request, &not_owner);
        says_not_owner(&shell.received(client).pop().expect("an answer"));
        assert_eq!(asked(&mut shell, link), Vec::<Value>::new());
        let by_helpers = shell.sent_out.iter().filter(|kind| *kind == "Write").count();
        assert_eq!(by_helpers, if cost == 1 { 2 } else { 0 }, "{:?}", shell.sent_out);
    }
}

#[test]
fn who_sends_again_what_was_made_under_a_lock_that_is_lost_hears_that_it_was_made() {
    let (mut shell, link) = played();
    let client = shell.connect();
    let request = asked_to_judge(&mut shell, link, client);
    answer(&mut shell, link, &request, &json!({"id": A, "results": null}));
    let reply = value(&shell.received(client).pop().expect("an answer"));
    assert_eq!(reply["result"], json!({"id": A, "results": null}));
}

/// The lock is lost with the connection, and what the transaction waits for is gone when there is another.
#[test]
fn a_transaction_whose_lock_is_lost_goes_on_waiting_for_rows() {
    let (mut shell, link) = played();
    let client = shell.connect();
    shell.call(client, LOCK);
    shell.call(client, &guarded("b"));
    let requests = gives_lock(&mut shell, link);
    let failed = json!([{}, {"error": "constraint violation", "details": ""}]);
    answer(&mut shell, link, &requests[0], &json!({"id": A, "results": failed}));
    shell.event(Event::LinkDown { link, error: None });
    shell.settle();
    shell.connecting.retain(|(begun, _)| *begun != link);
    shell.received(client);
    shell.call(client, &transact(3, &format!("{WAIT},{ASSERT},{}", insert("c"))));
    // Somebody else has the lock now.
    let link = play_with(&mut shell, &json!({}));
    assert_eq!(shell.received(client), Vec::<String>::new());
    say(&mut shell, link, &json!({"id":null,"method":"locked","params":["l"]}));
    assert!(shell.received(client)[0].contains("locked"));
    say_rows(&mut shell, link, B, A, &json!({"insert": {"name": "a"}}));
    assert_eq!(methods(&asked(&mut shell, link)), ["weir_transact"]);
}

/// What was asked for under the request's id, and what was told of locks.
fn about(told: &[String], id: u32) -> (String, Vec<String>) {
    let is_meant = |message: &&String| {
        let message = value(message);
        message["id"] == id || message["method"].is_string()
    };
    let told: Vec<String> = told.iter().filter(is_meant).cloned().collect();
    let replies = told.iter().filter(|message| value(message)["id"] == id).count();
    assert!(replies <= 1, "one answer: {told:?}");
    outcome(&told)
}

/// A rival has it in between, of which neither the client nor the relay can know.
#[test]
fn what_was_asked_for_under_a_lock_that_was_lost_is_refused_though_it_is_given_up() {
    for locks_again in [false, true] {
        let mut chain = Chain::start(2);
        let client = chain.servers[2].connect();
        takes_lock(&mut chain, 2, client);
        chain.is_cut[2] = true;
        chain.lose(2);
        chain.settle();
        assert_eq!(outcome(&chain.servers[2].received(client)).1, ["stolen"]);
        chain.servers[2].send(client, &guarded("late"));
        chain.servers[2].send(client, UNLOCK);
        if locks_again {
            chain.servers[2].send(client, LOCK);
        }
        chain.settle();
        let rival = chain.servers[0].connect();
        assert_eq!(lock(&mut chain, 0, rival, "lock"), true);
        assert_eq!(outcome(&chain.call(0, rival, &guarded("r"))), is("done", &[]));
        lock(&mut chain, 0, rival, "unlock");
        chain.is_cut[2] = false;
        chain.pass_ms(20_000);
        let told = chain.servers[2].received(client);
        let notices: &[&str] = if locks_again { &["stolen", "locked"] } else { &[] };
        assert_eq!(about(&told, 2), is("\"not owner\"", notices), "{locks_again}: {told:?}");
        assert_eq!(ports(&mut chain.servers[0]), ["a", "r"]);
        if locks_again {
            assert_eq!(outcome(&chain.call(2, client, &guarded("b"))), is("done", &[]));
        }
    }
}

/// What its owner asks for under a lock that is lost with the source is not made, and nobody waits for it.
#[test]
fn who_gives_up_a_lock_while_the_source_is_away_is_answered() {
    let mut chain = Chain::start(1);
    let [client, next] = [(); 2].map(|()| chain.servers[1].connect());
    takes_lock(&mut chain, 1, client);
    assert_eq!(lock(&mut chain, 1, next, "lock"), false);
    chain.is_cut[1] = true;
    chain.lose(1);
    chain.settle();
    assert_eq!(outcome(&chain.call(1, client, &guarded("late"))), is("", &["stolen"]));
    assert_eq!(chain.call(1, client, UNLOCK).len(), 1);
    assert_eq!(outcome(&chain.servers[1].received(next)).1, ["locked"]);
    chain.is_cut[1] = false;
    chain.pass_ms(20_000);
    assert_eq!(outcome(&chain.servers[1].received(client)), is("\"not owner\"", &[]));
    assert_eq!(ports(&mut chain.servers[0]), ["a"]);
}

#[test]
fn a_lock_is_given_back_behind_what_was_asked_for_before_it_was_given_up() {
    for long in [1, 2 << 20] {
        let mut chain = Chain::start(1);
        let (client, rival) = (chain.servers[1].connect(), chain.servers[0].connect());
        takes_lock(&mut chain, 1, client);
        assert_eq!(lock(&mut chain, 0, rival, "lock"), false);
        let select = r#"{"op":"select","table":"Port","where":[],"columns":["name"]}"#;
        let second = insert(&"x".repeat(long));
        chain.servers[1].send(client, &guarded("b"));
        chain.servers[1].send(client, &transact(9, select));
        chain.servers[1].send(client, &transact(7, &format!("{ASSERT},{second}")));
        chain.servers[1].send(client, UNLOCK);
        chain.servers[1].settle();
        chain.carry_up(1);
        assert_eq!(chain.servers[0].received(rival), Vec::<String>::new(), "{long}");
        chain.settle();
        let told = chain.servers[1].received(client);
        let second = told.iter().filter(|message| value(message)["id"] == 7).cloned();
        assert_eq!(about(&told, 2), is("done", &[]), "{long}: {told:?}");
        assert_eq!(outcome(&second.collect::<Vec<_>>()), is("done", &[]), "{long}: {told:?}");
        assert_eq!(outcome(&chain.servers[0].received(rival)).1, ["locked"], "{long}");
        assert_eq!(outcome(&chain.call(0, rival, &guarded("r"))), is("done", &[]));
    }
}

/// A relay with two clients, the first of which owns the lock, there and at the source, and has asked to write port
/// `x` when port `a` is there. The source has got that.
fn with_write_that_waits(is_there: bool, waits_first: bool) -> (Chain, SessionId, SessionId) {
    let mut chain = Chain::start(1);
    let [first, second] = [(); 2].map(|()| chain.servers[1].connect());
    let writer = chain.servers[0].connect();
    takes_lock(&mut chain, 1, first);
    if !is_there {
        // The relay does not know yet.
        let delete = r#"{"op":"delete","table":"Port","where":[]}"#;
        chain.servers[0].call(writer, &transact(1, delete));
    }
    let (one, other) = if waits_first { (WAIT, ASSERT) } else { (ASSERT, WAIT) };
    chain.servers[1].send(first, &transact(5, &format!("{one},{other},{}", insert("x"))));
    chain.servers[1].settle();
    chain.carry_up(1);
    (chain, first, second)
}

#[test]
fn what_waits_at_the_source_is_not_made_once_its_client_has_the_lock_no_longer() {
    for (by_force, waits_first) in [(false, false), (false, true), (true, false), (true, true)] {
        let (mut chain, first, second) = with_write_that_waits(false, waits_first);
        chain.settle();
        assert_eq!(chain.servers[1].received(first), Vec::<String>::new(), "it waits");
        let mut told = if by_force {
            assert_eq!(lock(&mut chain, 1, second, "steal"), true);
            chain.servers[1].received(first)
        } else {
            assert_eq!(lock(&mut chain, 1, second, "lock"), false);
            let told = chain.call(1, first, UNLOCK);
            assert_eq!(outcome(&chain.servers[1].received(second)).1, ["locked"]);
            told
        };
        // What it has waited for.
        assert_eq!(outcome(&chain.call(1, second, &guarded("a"))), is("done", &[]));
        assert_eq!(ports(&mut chain.servers[0]), ["a"]);
        told.extend(chain.servers[1].received(first));
        let notices: &[&str] = if by_force { &["stolen"] } else { &[] };
        assert_eq!(about(&told, 5).1, notices);
        let refused = told.iter().find(|message| value(message)["id"] == 5).expect("an answer");
        let assertion = &value(refused)["result"][usize::from(waits_first)];
        assert_eq!(assertion["error"], "not owner", "{told:?}");
    }
}

/// A transaction that waited runs under the locks that its client owns when the rows have come.
#[test]
fn what_was_taken_back_from_the_source_is_made_if_its_client_has_the_lock_again() {
    let (mut chain, first, second) = with_write_that_waits(false, true);
    chain.settle();
    assert_eq!(lock(&mut chain, 1, second, "steal"), true);
    chain.servers[1].received(first);
    lock(&mut chain, 1, second, "unlock");
    assert_eq!(outcome(&chain.servers[1].received(first)).1, ["locked"]);
    let told = chain.call(1, second, &transact(6, &insert("a")));
    assert!(value(&told[0])["result"][0]["uuid"].is_array(), "{told:?}");
    assert_eq!(ports(&mut chain.servers[0]), ["a", "x"]);
}

/// What a transaction waits for at the source may be what somebody does under the lock.
#[test]
fn a_lock_is_not_kept_for_what_comes_behind_a_transaction_that_waits_at_the_source() {
    let mut chain = Chain::start(1);
    let (client, rival) = (chain.servers[1].connect(), chain.servers[0].connect());
    takes_lock(&mut chain, 1, client);
    // The relay does not know yet.
    let delete = r#"{"op":"delete","table":"Port","where":[]}"#;
    chain.servers[0].call(rival, &transact(1, delete));
    let wait = r#"{"op":"wait","table":"Port","where":[],"columns":["name"],"until":"==","rows":[{"name":"a"}]}"#;
    chain.servers[1].send(client, &transact(5, &format!("{wait},{}", insert("x"))));
    let select = r#"{"op":"select","table":"Port","where":[],"columns":["name"]}"#;
    chain.servers[1].send(client, &transact(9, select));
    chain.servers[1].send(client, &guarded("late"));
    chain.servers[1].send(client, UNLOCK);
    chain.settle();
    assert_eq!(lock(&mut chain, 0, rival, "lock"), true);
    assert_eq!(outcome(&chain.call(0, rival, &guarded("a"))), is("done", &[]));
    assert_eq!(about(&chain.servers[1].received(client), 2), is("\"not owner\"", &[]));
    assert_eq!(ports(&mut chain.servers[0]), ["a", "x"]);
}

#[test]
fn what_the_source_has_made_before_its_client_lost_the_lock_is_answered_so() {
    let (mut chain, first, second) = with_write_that_waits(true, true);
    chain.servers[1].send(second, &LOCK.replace("lock", "steal"));
    chain.settle();
    let told = chain.servers[1].received(first);
    let replies: Vec<Value> = told.iter().map(|message| value(message)).collect();
    let reply = replies.iter().find(|message| message["id"] == 5).expect("an answer");
    assert!(reply["result"][2]["uuid"].is_array(), "{told:?}");
    assert_eq!(replies.iter().filter(|message| message["id"] == 5).count(), 1);
    assert_eq!(ports(&mut chain.servers[0]), ["a", "x"]);
}

/// Who has taken a lock by force is in no queue once it is robbed of it (RFC 7047 section 4.1.10), and a relay has
/// other clients.
#[test]
fn a_relay_that_was_robbed_of_what_it_took_by_force_has_its_turn_again() {
    let mut chain = Chain::start(1);
    let rival = chain.servers[0].connect();
    let [first, thief] = [(); 2].map(|()| chain.servers[1].connect());
    takes_lock(&mut chain, 1, first);
    lock(&mut chain, 0, rival, "steal");
    chain.settle();
    lock(&mut chain, 1, thief, "steal");
    assert_eq!(outcome(&chain.call(1, thief, &guarded("b"))), is("done", &[]));
    lock(&mut chain, 0, rival, "unlock");
    lock(&mut chain, 0, rival, "steal");
    chain.settle();
    assert_eq!(outcome(&chain.servers[1].received(thief)).1, ["stolen"]);
    lock(&mut chain, 1, thief, "unlock");
    chain.servers[1].received(first);
    assert_eq!(outcome(&chain.call(1, first, &guarded("c"))), is("\"not owner\"", &[]));
    lock(&mut chain, 0, rival, "unlock");
    chain.settle();
    assert_eq!(outcome(&chain.servers[1].received(first)).1, ["locked"]);
    assert_eq!(outcome(&chain.call(1, first, &guarded("d"))), is("done", &[]));
    lock(&mut chain, 1, first, "unlock");
    chain.settle();
    assert_eq!(lock(&mut chain, 0, rival, "lock"), true, "it is given back");
}

/// Time passes at a relay, whose source is alive; what that is asked of the lock.
fn pass_s(shell: &mut Shell, link: LinkId, seconds: u64) -> Vec<Value> {
    let mut of_lock = Vec::new();
    for second in 0..=seconds {
        for request in asked(shell, link) {
            if request["method"] == "echo" {
                answer(shell, link, &request, &request["params"]);
            } else if request["params"] == json!(["l"]) {
                of_lock.push(request);
            }
        }
        shell.pass_ms(if second < seconds { 1000 } else { 0 });
    }
    of_lock
}

#[test]
fn a_lock_that_the_source_cannot_give_is_asked_for_again_later() {
    let (mut shell, link) = played();
    let client = shell.connect();
    shell.call(client, LOCK);
    shell.call(client, &guarded("b"));
    let mut requests = pass_s(&mut shell, link, 0);
    for _ in 0..3 {
        let request = requests.pop().expect("it is asked for");
        assert_eq!(request["method"], "lock");
        let error = json!({"error": "resources exhausted", "details": ""});
        say(&mut shell, link, &json!({"id":request["id"],"result":null,"error":error}));
        assert_eq!(pass_s(&mut shell, link, 2), Vec::<Value>::new(), "not in a loop");
        requests = pass_s(&mut shell, link, 10);
    }
    assert_eq!(outcome(&shell.received(client)), is("\"not owner\"", &[]));
    answer(&mut shell, link, &requests.pop().expect("it is asked for"), &json!({"locked": true}));
    assert_eq!(outcome(&shell.received(client)).1, ["locked"]);
}

/// Somebody takes the lock by force here while the source has not said whether it is the relay's.
#[test]
fn who_takes_a_lock_that_has_only_been_asked_for_takes_it_at_the_source() {
    for is_answered_first in [true, false] {
        let (mut shell, link) = played();
        let [first, thief] = [(); 2].map(|()| shell.connect());
        shell.call(first, LOCK);
        shell.call(first, &guarded("b"));
        let requests = asked(&mut shell, link);
        assert_eq!(methods(&requests), ["lock"]);
        shell.call(thief, &LOCK.replace("lock", "steal"));
        let refuse = |shell: &mut Shell| {
            answer(shell, link, &requests[0], &json!({"locked": false}));
        };
        if is_answered_first {
            refuse(&mut shell);
        }
        shell.send(thief, &guarded("c"));
        shell.settle();
        if !is_answered_first {
            // The answer comes first.
            assert!(asked(&mut shell, link).is_empty());
            refuse(&mut shell);
        }
        let taken = asked(&mut shell, link);
        assert_eq!(methods(&taken), ["unlock", "steal"], "{is_answered_first}");
        answer(&mut shell, link, &taken[0], &json!({}));
        answer(&mut shell, link, &taken[1], &json!({"locked": true}));
        assert_eq!(methods(&asked(&mut shell, link)), ["weir_transact"]);
        assert_eq!(shell.received(thief), Vec::<String>::new(), "it is his");
        let told = about(&shell.received(first), 2);
        assert_eq!(told, is("\"not owner\"", &["locked", "stolen"]), "by the one here");
    }
}

/// Others have had the lock at the source, and what that has told of it is on its way to the relay.
#[test]
fn what_is_asked_for_before_a_relay_hears_that_others_had_the_lock_is_refused() {
    for is_stolen_here in [false, true] {
        let mut chain = Chain::start(1);
        let [client, thief] = [(); 2].map(|()| chain.servers[1].connect());
        let rival = chain.servers[0].connect();
        takes_lock(&mut chain, 1, client);
        for request in [&LOCK.replace("lock", "steal"), &guarded("r"), UNLOCK] {
            chain.servers[0].call(rival, request);
        }
        chain.servers[1].send(client, &guarded("b"));
        chain.servers[1].settle();
        if is_stolen_here {
            chain.servers[1].call(thief, &LOCK.replace("lock", "steal"));
        }
        chain.carry_up(1);
        chain.settle();
        let notices: &[&str] = if is_stolen_here { &["stolen"] } else { &["stolen", "locked"] };
        let told = chain.servers[1].received(client);
        assert_eq!(about(&told, 2), is("\"not owner\"", notices), "{is_stolen_here}");
        assert_eq!(ports(&mut chain.servers[0]), ["a", "r"]);
        // It has heard of that now.
        let owner = if is_stolen_here { thief } else { client };
        chain.servers[1].received(thief);
        assert_eq!(outcome(&chain.call(1, owner, &guarded("c"))), is("done", &[]));
    }
}

/// A client says with a transaction what it had heard of its lock.
#[test]
fn who_has_not_heard_that_others_had_his_lock_is_refused_where_he_says_so() {
    let mut shell = Shell::start();
    let [client, rival] = [(); 2].map(|()| shell.connect());
    let asks = |shell: &mut Shell, heard: &str, name: &str| {
        let operations = format!("{ASSERT},{}", insert(name));
        let params = format!(r#"["Net",{{"locks":{heard}}},{operations}]"#);
        let reply = shell
            .call(client, &format!(r#"{{"id":3,"method":"weir_transact","params":{params}}}"#));
        let reply = value(reply.lines().last().expect("an answer"));
        let refused = |error: &Value| error["error"].as_str().map(str::to_owned);
        refused(&reply["error"])
            .or_else(|| refused(&reply["result"]["results"][0]))
            .unwrap_or_default()
    };
    shell.call(client, LOCK);
    assert_eq!(asks(&mut shell, r#"{"l":0,"other":7}"#, "a"), "");
    for request in [&LOCK.replace("lock", "steal"), UNLOCK] {
        shell.call(rival, request);
    }
    shell.received(client);
    for (heard, answer) in [("0", "not owner"), ("1", "not owner"), ("2", ""), ("3", "not owner")] {
        for pad in [0, 2 << 20] {
            let name = format!("{heard}{}", " ".repeat(pad));
            assert_eq!(
                asks(&mut shell, &format!(r#"{{"l":{heard}}}"#), &name),
                answer,
                "{heard} {pad}"
            );
        }
    }
    assert_eq!(asks(&mut shell, "{}", "x"), "", "he does not say");
    // Who waited has left: the owner is told again what he knows.
    shell.call(rival, LOCK);
    shell.call(rival, UNLOCK);
    assert!(shell.received(client).pop().expect("news").contains("locked"));
    assert_eq!(asks(&mut shell, r#"{"l":2}"#, "y"), "");
    // He knows that already, so it does not matter that he cannot be told.
    shell.event(Event::Blocked { session: client });
    shell.call(rival, LOCK);
    shell.call(rival, UNLOCK);
    let params = format!(r#"["Net",{{"locks":{{"l":2}}}},{ASSERT},{}]"#, insert("yy"));
    shell.send(client, &format!(r#"{{"id":4,"method":"weir_transact","params":{params}}}"#));
    shell.event(Event::Drained { session: client });
    shell.settle();
    let told = shell.received(client);
    assert!(told.iter().any(|message| message.contains("uuid")), "{told:?}");
    // It is asked for anew.
    shell.call(client, UNLOCK);
    shell.call(client, LOCK);
    assert_eq!(asks(&mut shell, r#"{"l":2}"#, "z"), "not owner");
    assert_eq!(asks(&mut shell, r#"{"l":0}"#, "z"), "");
    for wrong in ["[]", "1", r#"{"l":-1}"#, r#"{"l":"0"}"#, r#"{"l":0.5}"#] {
        assert_eq!(asks(&mut shell, wrong, "w"), "syntax error", "{wrong}");
    }
}

/// He said what he had heard before his transaction waited.
#[test]
fn who_has_not_heard_that_others_had_his_lock_is_refused_though_he_has_waited_since() {
    for (heard, is_made) in [(0, false), (2, true)] {
        let mut shell = Shell::start();
        let [client, rival] = [(); 2].map(|()| shell.connect());
        shell.call(client, LOCK);
        for request in [&LOCK.replace("lock", "steal"), UNLOCK] {
            shell.call(rival, request);
        }
        let params =
            format!(r#"["Net",{{"locks":{{"l":{heard}}}}},{WAIT},{ASSERT},{}]"#, insert("b"));
        shell.send(client, &format!(r#"{{"id":4,"method":"weir_transact","params":{params}}}"#));
        shell.settle();
        shell.received(client);
        shell.call(rival, &transact(1, &insert("a")));
        let told = shell.received(client).pop().expect("an answer");
        assert_eq!(told.contains("uuid"), is_made, "{told}");
        assert_eq!(told.contains("not owner"), !is_made, "{told}");
    }
}

/// A relay before this one loses its source while it has what a client has asked for, and the lock with that: nobody
/// says then that it was not made.
#[test]
fn what_was_made_under_a_lock_before_a_relay_lost_its_source_is_not_refused() {
    let mut chain = Chain::start(2);
    let client = chain.servers[2].connect();
    takes_lock(&mut chain, 2, client);
    chain.servers[2].send(client, &transact(5, &format!("{WAIT},{ASSERT},{}", insert("x"))));
    chain.servers[2].settle();
    chain.carry_up(2);
    chain.carry_up(1);
    assert_eq!(ports(&mut chain.servers[0]), ["a", "x"]);
    chain.is_cut[1] = true;
    chain.lose(1);
    chain.settle();
    chain.is_cut[1] = false;
    chain.pass_ms(20_000);
    let told = chain.servers[2].received(client);
    let reply = told.iter().find(|message| value(message)["id"] == 5).expect("an answer");
    assert_eq!(value(reply)["error"], "canceled", "{told:?}");
}

/// What is asked for while the source is away may wait there behind those who have the lock.
#[test]
fn a_lock_that_was_taken_and_asserted_while_the_source_was_away_is_asked_for_when_it_is_there() {
    let mut chain = Chain::start(1);
    let [client, rival] = [1, 0].map(|at| chain.servers[at].connect());
    chain.is_cut[1] = true;
    chain.lose(1);
    assert_eq!(lock(&mut chain, 1, client, "lock"), true);
    assert_eq!(lock(&mut chain, 0, rival, "lock"), true);
    assert_eq!(outcome(&chain.call(1, client, &guarded("b"))), is("", &["stolen"]));
    assert_eq!(outcome(&chain.call(0, rival, &guarded("a"))), is("done", &[]));
    chain.is_cut[1] = false;
    for (is_given_up, notices) in [(false, vec![]), (true, vec!["locked"])] {
        if is_given_up {
            chain.call(0, rival, UNLOCK);
        }
        chain.pass_ms(10_000);
        let outcome = outcome(&chain.servers[1].received(client));
        assert_eq!(outcome.1, notices);
        assert_eq!(outcome.0, if is_given_up { "" } else { "\"not owner\"" });
    }
    assert_eq!(ports(&mut chain.servers[0]), ["a"]);
    assert_eq!(outcome(&chain.call(1, client, &guarded("b"))), is("done", &[]));
}

#[test]
fn who_waited_at_a_relay_while_others_had_the_lock_at_the_source_hears_of_them() {
    let mut chain = Chain::start(1);
    let [first, second] = [(); 2].map(|()| chain.servers[1].connect());
    let rival = chain.servers[0].connect();
    takes_lock(&mut chain, 1, first);
    assert_eq!(lock(&mut chain, 1, second, "lock"), false);
    chain.call(0, rival, &LOCK.replace("lock", "steal"));
    chain.settle();
    assert_eq!(outcome(&chain.servers[1].received(first)).1, ["stolen"]);
    chain.call(1, first, UNLOCK);
    chain.call(0, rival, &guarded("r"));
    assert_eq!(chain.servers[1].received(second), Vec::<String>::new(), "it is not the relay's");
    chain.call(0, rival, UNLOCK);
    chain.settle();
    assert_eq!(outcome(&chain.servers[1].received(second)).1, ["locked"]);
    assert_eq!(outcome(&chain.call(1, second, &guarded("b"))), is("done", &[]));
}

#[test]
fn clients_of_a_relay_take_turns_with_others_at_its_source() {
    let mut chain = Chain::start(1);
    let [first, second] = [(); 2].map(|()| chain.servers[1].connect());
    let rival = chain.servers[0].connect();
    takes_lock(&mut chain, 1, first);
    assert_eq!(lock(&mut chain, 1, second, "lock"), false);
    assert_eq!(lock(&mut chain, 0, rival, "lock"), false);
    chain.call(1, first, UNLOCK);
    chain.settle();
    assert_eq!(outcome(&chain.servers[1].received(second)).1, ["locked"], "the relay has it yet");
    assert_eq!(lock(&mut chain, 1, first, "lock"), false);
    chain.pass_ms(200);
    chain.call(1, second, UNLOCK);
    chain.settle();
    assert_eq!(chain.servers[1].received(first), Vec::<String>::new());
    assert_eq!(outcome(&chain.servers[0].received(rival)).1, ["locked"]);
    assert_eq!(outcome(&chain.call(0, rival, &guarded("r"))), is("done", &[]));
    chain.call(0, rival, UNLOCK);
    chain.settle();
    assert_eq!(outcome(&chain.servers[1].received(first)).1, ["locked"]);
    assert_eq!(outcome(&chain.call(1, first, &guarded("b"))), is("done", &[]));
}

/// The server cannot answer a client that does not read, and handles what that has sent later.
#[test]
fn what_comes_behind_a_lock_is_done_under_it_though_neither_could_be_answered() {
    let steal = LOCK.replace("lock", "steal");
    for (requests, is_done) in [
        (vec![LOCK], true),
        (vec![LOCK, UNLOCK], false),
        (vec![LOCK, UNLOCK, steal.as_str()], true),
    ] {
        for pad in [0, 2 << 20] {
            let mut shell = Shell::start();
            let client = shell.connect();
            shell.event(Event::Blocked { session: client });
            requests.iter().for_each(|request| shell.send(client, request));
            shell.send(client, &guarded(&format!("b{}", " ".repeat(pad))));
            shell.event(Event::Drained { session: client });
            shell.settle();
            let told = shell.received(client);
            let reply = told.iter().find(|message| value(message)["id"] == 2).expect("an answer");
            let result = &value(reply)["result"];
            assert_eq!(result[1]["uuid"].is_array(), is_done, "{requests:?} {pad} {result}");
            assert_eq!(result[0]["error"] == "not owner", !is_done, "{requests:?} {pad} {result}");
        }
    }
}

/// A source that stands still may have what was asked for under a lock, and make it when it goes on: behind what the next
/// owner has written at another source.
#[test]
fn what_a_lost_source_had_under_a_lock_is_not_to_be_before_others_write_under_it() {
    let (mut shell, link) = played();
    let [first, second] = [(); 2].map(|()| shell.connect());
    shell.call(first, LOCK);
    shell.send(first, &guarded("late"));
    shell.settle();
    let requests = gives_lock(&mut shell, link);
    assert_eq!(methods(&requests), ["weir_transact"]);
    let late = requests[0]["params"][1]["id"].clone();
    let (mut link, mut question) = (link, None::<Value>);
    // The first source that is asked is lost before it has answered.
    for is_first in [true, false] {
        question = None;
        shell.event(Event::LinkDown { link, error: None });
        shell.settle();
        shell.connecting.retain(|(begun, _)| *begun != link);
        if is_first {
            let told = outcome(&shell.received(first));
            assert_eq!(told, is("\"canceled\"", &["locked", "stolen"]));
            shell.call(first, UNLOCK);
            shell.call(second, LOCK);
        }
        link = next_source(&mut shell);
        loop {
            let requests = asked(&mut shell, link);
            if requests.is_empty() {
                break;
            }
            for request in requests {
                let result = match request["method"].as_str().expect("a method") {
                    "monitor_cond" => json!({"Database": {ZERO: {"initial": source_row()}}}),
                    "lock" => json!({"locked": true}),
                    "weir_outcome" => {
                        assert_eq!(request["params"], json!(["Net", late, A]));
                        question = Some(request);
                        continue;
                    }
                    _ => played_result(&request, &json!({A: {"initial": {"name": "a"}}})),
                };
                answer(&mut shell, link, &request, &result);
            }
        }
        assert!(question.is_some());
    }
    shell.send(second, &guarded("b"));
    shell.settle();
    assert_eq!(asked(&mut shell, link), Vec::<Value>::new());
    answer(&mut shell, link, &question.expect("it was asked"), &json!("not committed"));
    assert_eq!(methods(&gives_lock(&mut shell, link)), ["weir_transact"]);
}

/// Others have had the lock at the source, and have written under it.
#[test]
fn who_locks_at_a_relay_is_told_what_was_written_before_its_source_gave_the_lock() {
    let (mut shell, link) = played();
    let client = shell.connect();
    shell.call(client, r#"{"id":1,"method":"monitor","params":["Net","m",{"Port":{}}]}"#);
    assert!(shell.call(client, LOCK).contains(r#""locked":false"#));
    let request = asked(&mut shell, link).remove(0);
    answer(&mut shell, link, &request, &json!({"locked": false}));
    assert_eq!(shell.received(client), Vec::<String>::new(), "others have it");
    say_rows(&mut shell, link, B, B, &json!({"insert": {"name": "b"}}));
    say(&mut shell, link, &json!({"id":null,"method":"locked","params":["l"]}));
    assert_eq!(outcome(&shell.received(client)).1, ["update", "locked"]);
    shell.send(client, &guarded("c"));
    shell.settle();
    assert_eq!(methods(&asked(&mut shell, link)), ["weir_transact"]);
}

/// Others may have had the lock at the source, and have written under it what the owner here did not know when he computed
/// what he asks for.
#[test]
fn who_asserts_a_lock_first_behind_changes_that_he_had_not_been_told_is_refused_once() {
    for (watches, has_changed) in [(true, true), (true, false), (false, true)] {
        let (mut shell, link) = played();
        has_another_database(&mut shell);
        let client = shell.connect();
        if watches {
            shell.call(client, r#"{"id":1,"method":"monitor","params":["Net","m",{"Port":{}}]}"#);
        }
        assert!(shell.call(client, LOCK).contains(r#""locked":true"#));
        shell.send(client, &guarded("b"));
        shell.settle();
        let requests = asked(&mut shell, link);
        assert_eq!(methods(&requests), ["lock"]);
        if has_changed {
            say_rows(&mut shell, link, B, B, &json!({"insert": {"name": "b"}}));
        }
        answer(&mut shell, link, &requests[0], &json!({"locked": true}));
        let requests = asked(&mut shell, link);
        if !watches || !has_changed {
            assert_eq!(methods(&requests), ["weir_transact"], "{watches} {has_changed}");
            continue;
        }
        assert_eq!(requests, Vec::<Value>::new());
        let told = shell.received(client);
        assert_eq!(
            about(&told, 2),
            is("\"not owner\"", &["update", "stolen", "locked"]),
            "{told:?}"
        );
        // It knows all now, and goes on to.
        shell.send(client, &guarded("c"));
        shell.settle();
        assert_eq!(methods(&asked(&mut shell, link)), ["weir_transact"]);
    }
}

/// Nobody can be asked for the lock when it is said to be his, and others write until the source is back.
#[test]
fn who_took_a_lock_while_the_source_was_away_is_refused_once_behind_what_he_had_not_been_told() {
    for has_changed in [true, false] {
        let (mut shell, link) = played();
        let client = shell.connect();
        shell.call(client, r#"{"id":1,"method":"monitor","params":["Net","m",{"Port":{}}]}"#);
        shell.event(Event::LinkDown { link, error: None });
        shell.settle();
        assert!(shell.call(client, LOCK).contains(r#""locked":true"#));
        let mut ports = json!({A: {"initial": {"name": "a"}}});
        if has_changed {
            ports[B] = json!({"initial": {"name": "b"}});
        }
        let link = play_with(&mut shell, &ports);
        shell.send(client, &guarded("c"));
        shell.settle();
        let requests = gives_lock(&mut shell, link);
        if !has_changed {
            assert_eq!(methods(&requests), ["weir_transact"]);
            continue;
        }
        assert_eq!(requests, Vec::<Value>::new());
        let told = shell.received(client);
        assert_eq!(about(&told, 2), is("\"not owner\"", &["update", "stolen", "locked"]));
        shell.send(client, &guarded("d"));
        shell.settle();
        assert_eq!(methods(&asked(&mut shell, link)), ["weir_transact"]);
    }
}

/// The rows of a conversion have what others wrote under the lock, and are on their way.
#[test]
fn who_asks_for_a_lock_while_all_rows_are_asked_for_is_told_of_it_behind_them() {
    let (mut shell, link) = played();
    let client = shell.connect();
    shell.call(client, r#"{"id":1,"method":"set_db_change_aware","params":[true]}"#);
    shell.call(client, r#"{"id":1,"method":"monitor","params":["Net","m",{"Switch":{}}]}"#);
    let request = convert(&mut shell, link);
    assert!(shell.call(client, LOCK).contains(r#""locked":false"#));
    let rows = json!([false, A, {"Port": {B: {"initial": {"name": "b"}}}}]);
    answer(&mut shell, link, &request, &rows);
    shell.settle();
    assert_eq!(outcome(&shell.received(client)).1, ["locked"]);
}

/// What was asked for under the lock is with the source while that is asked for all rows.
#[test]
fn who_gets_a_lock_while_rows_are_asked_for_is_told_what_the_source_had_under_it_before() {
    let (mut shell, link) = played();
    let [first, second] = [(); 2].map(|()| shell.connect());
    for client in [first, second] {
        shell.call(client, r#"{"id":1,"method":"set_db_change_aware","params":[true]}"#);
    }
    shell.call(first, LOCK);
    shell.send(first, &guarded("b"));
    shell.settle();
    let written = gives_lock(&mut shell, link).remove(0);
    let request = convert(&mut shell, link);
    shell.call(first, UNLOCK);
    assert!(shell.call(second, LOCK).contains(r#""locked":false"#));
    let results = json!({"id": B, "results": [{}, {"uuid": ["uuid", B]}]});
    answer(&mut shell, link, &written, &results);
    assert_eq!(shell.received(second), Vec::<String>::new(), "its rows have not come");
    let rows = json!([false, B, {"Port": {B: {"initial": {"name": "b"}}}}]);
    answer(&mut shell, link, &request, &rows);
    assert_eq!(outcome(&shell.received(second)).1, ["locked"]);
}

/// The source has made what might have waited, and the answer is under way.
#[test]
fn who_gets_a_lock_behind_what_might_have_waited_has_been_told_what_it_did() {
    let (mut chain, first, second) = with_write_that_waits(true, false);
    chain.servers[1]
        .call(second, r#"{"id":1,"method":"monitor","params":["Net","m",{"Port":{}}]}"#);
    chain.servers[1].call(first, UNLOCK);
    assert!(chain.servers[1].call(second, LOCK).contains(r#""locked":false"#));
    chain.settle();
    assert_eq!(outcome(&chain.servers[1].received(second)).1, ["update", "locked"]);
}

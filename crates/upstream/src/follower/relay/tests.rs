//! The dialogue of a relay about the way of its source's rows, and whom it leaves for it.

use super::*;
use crate::follower::Model;
use crate::follower::talk::{SECOND, Talk};
use crate::freshness::BEHIND_US_MAX;
use crate::path::SERVERS_MAX;
use crate::session::Input;

const SCHEMA: &str =
    r#"{"name":"D","version":"1.0.0","tables":{"T":{"columns":{"x":{"type":"integer"}}}}}"#;

fn id(number: u128) -> String {
    Uuid::from_u128(number).to_string()
}

/// The server with this number is the relay itself.
const OWN: u128 = 1;

fn way(servers: &[u128], is_connected: bool) -> String {
    let servers = servers.iter().map(|number| id(*number));
    object([("servers", array(servers.map(Value::from))), ("connected", is_connected.into())])
        .to_string()
}

fn relay_of(remotes: &str) -> Talk {
    Talk::of(remotes, Model::Relay { own_id: Uuid::from_u128(OWN) })
}

impl Talk {
    /// The connection that has been begun is open, to a server with these features that is fit by its `_Server`.
    fn meet_server(&mut self, features: &str, model: &str) {
        self.meet_server_with(SCHEMA, features, model);
    }

    fn meet_server_with(&mut self, schema: &str, features: &str, model: &str) {
        self.give(Input::Up);
        self.answer("set_db_change_aware", "{}");
        self.answer("weir_features", features);
        self.answer("get_schema", "{}");
        let row = object([
            ("name", "D".into()),
            ("model", model.into()),
            ("connected", true.into()),
            ("schema", schema.into()),
        ]);
        self.answer("monitor_cond", &format!(r#"{{"Database":{{"u":{{"initial":{row}}}}}}}"#));
    }

    /// The connection that has been begun is open, to a relay of ours that is fit by its `_Server`; it has
    /// been asked for its way, as all of ours are.
    fn meet_relay(&mut self) {
        self.meet_server(r#"["weir_features","weir_path"]"#, "relay");
        assert_eq!(self.asked.len(), 1, "nothing else is asked before that: {:?}", self.asked);
        assert_eq!((&*self.asked[0].1, &*self.asked[0].2), ("weir_path", r#"["D"]"#));
    }

    /// Relays of ours have told their way, and are asked for rows.
    fn have_rows(&mut self) {
        self.answer("monitor_cond_since", &format!(r#"[false,"{}",{{}}]"#, id(77)));
        assert!(self.follower.is_following());
    }

    fn hear_way(&mut self, way: &str) {
        self.say(&format!(r#"{{"id":null,"method":"weir_path","params":["D",{way}]}}"#));
    }

    /// Whether the relay has left the server that it was connected to.
    fn has_left(&mut self) -> bool {
        std::mem::take(&mut self.closed) > 0
    }

    /// The relay has left its server, and tries this one next.
    fn goes_to(&mut self, target: &str) {
        assert!(self.has_left(), "{:?}", self.log);
        self.goes_on_to(target);
    }

    /// There is no connection, and this server is tried next.
    fn goes_on_to(&mut self, target: &str) {
        self.begun.clear();
        // Something else may be due before.
        while self.begun.is_empty() {
            self.now_us = self.follower.next_wakeup_us().expect("an attempt").max(self.now_us);
            self.give(Input::Tick);
        }
        assert_eq!(self.begun, [target], "{:?}", self.log);
    }
}

fn ids(follower: &Follower) -> (Vec<u128>, bool) {
    let path = follower.path();
    (path.servers.iter().map(|id| id.to_u128()).collect(), path.is_connected)
}

#[test]
fn a_relay_adds_itself_to_the_way_of_its_source() {
    let mut relay = relay_of("tcp:a:1,tcp:b:1");
    assert_eq!(ids(&relay.follower), (vec![OWN], false));
    relay.meet_relay();
    relay.answer("weir_path", &way(&[8, 9], true));
    assert_eq!(ids(&relay.follower), (vec![OWN], false), "it has no rows yet");
    relay.have_rows();
    assert_eq!(ids(&relay.follower), (vec![8, 9, OWN], true));
    // What is before the source changes, breaks off, and is whole again.
    relay.hear_way(&way(&[9], false));
    assert_eq!(ids(&relay.follower), (vec![9, OWN], false));
    assert!(relay.follower.is_following() && !relay.follower.is_current());
    relay.hear_way(&way(&[7, 6, 9], true));
    assert_eq!(ids(&relay.follower), (vec![7, 6, 9, OWN], true));
    assert!(relay.follower.is_current() && !relay.has_left());
    relay.give(Input::Down(None));
    assert_eq!(ids(&relay.follower), (vec![OWN], false));
}

#[test]
fn nobody_follows_himself() {
    let mut relay = relay_of("tcp:a:1,tcp:b:1");
    relay.meet_relay();
    relay.answer("weir_path", &way(&[8, OWN, 9], true));
    relay.goes_to("tcp:b:1");
    // Nor whom he has followed for a while.
    relay.meet_relay();
    relay.answer("weir_path", &way(&[8, 7], true));
    relay.have_rows();
    relay.hear_way(&way(&[8, 9, OWN, 7], true));
    relay.goes_to("tcp:a:1");
    let line = format!(
        "Warning tcp:a:1: relay database server has its rows from this relay ({} > {}); trying another server",
        id(OWN),
        id(9)
    );
    assert_eq!(relay.log, [line], "once a minute");
    relay.now_us += 61 * SECOND;
    relay.meet_relay();
    relay.answer("weir_path", &way(&[OWN, 9], false));
    assert_eq!(relay.log.len(), 2, "{:?}", relay.log);
}

#[test]
fn of_several_servers_one_that_has_lost_its_source_is_not_chosen() {
    let mut relay = relay_of("tcp:a:1,tcp:b:1");
    relay.meet_relay();
    relay.answer("weir_path", &way(&[9], false));
    relay.goes_to("tcp:b:1");
    // One that is followed is given time.
    relay.meet_relay();
    relay.answer("weir_path", &way(&[8, 7], true));
    relay.hear_way(&way(&[7], false));
    relay.have_rows();
    assert!(!relay.follower.is_current());
    relay.hear_way(&way(&[8, 7], true));
    assert!(relay.follower.is_current());
    let lost = "relay database server is disconnected from the relay source; trying another server";
    assert_eq!(relay.log, [format!("Info tcp:a:1: {lost}")]);
}

#[test]
fn the_only_server_is_waited_for() {
    let mut relay = relay_of("tcp:a:1");
    relay.meet_relay();
    relay.answer("weir_path", &way(&[OWN, 9], true));
    assert_eq!(relay.asked, [], "no rows are asked for");
    relay.hear_way(&way(&[OWN, 8, 9], true));
    let line = |ids: &str| {
        let why = format!("relay database server has its rows from this relay ({ids})");
        format!("Info tcp:a:1: {why}: name another source")
    };
    let ways = [[id(OWN), id(9)].join(" > "), [id(OWN), id(8), id(9)].join(" > ")];
    assert_eq!(relay.log, ways.map(|ids| line(&ids)));
    relay.hear_way(&way(&[9], false));
    relay.have_rows();
    assert!(!relay.follower.is_current(), "rows of somebody who has lost his source");
    relay.hear_way(&way(&[8, 9], true));
    assert!(relay.follower.is_current() && !relay.has_left());
    // Who comes to follow his follower leaves it, and waits again.
    relay.hear_way(&way(&[OWN, 9], true));
    assert!(relay.has_left() && !relay.follower.is_following());
}

#[test]
fn a_way_that_is_too_long_or_makes_no_sense_is_not_followed() {
    let long: Vec<u128> = (2..).take(SERVERS_MAX + 1).collect();
    for (said, why) in [
        (way(&long, true), "relay database server is behind 64 others; trying another server"),
        ("[]".to_owned(), "the way of its rows makes no sense"),
    ] {
        let mut relay = relay_of("tcp:a:1,tcp:b:1");
        relay.meet_relay();
        relay.answer("weir_path", &said);
        relay.goes_to("tcp:b:1");
        assert_eq!(relay.log, [format!("Warning tcp:a:1: {why}")]);
        relay.meet_relay();
        relay.answer("weir_path", &way(&long[..SERVERS_MAX], true));
        relay.have_rows();
        relay.hear_way(&said);
        assert!(relay.has_left());
    }
}

/// A connection to itself, say.
#[test]
fn who_sends_back_what_he_is_asked_is_not_followed() {
    let mut relay = relay_of("tcp:a:1,tcp:b:1");
    relay.give(Input::Up);
    let (id, method, params) = relay.asked.swap_remove(0);
    relay.say(&format!(r#"{{"id":{id},"method":"{method}","params":{params}}}"#));
    relay.goes_to("tcp:b:1");
    let why = "is asked for something in return: that is no server";
    assert_eq!(relay.log, [format!("Warning tcp:a:1: {why}")]);
}

#[test]
fn servers_that_say_no_way_are_followed() {
    let mut relay = relay_of("tcp:a:1");
    relay.meet_server(r#"["weir_features"]"#, "clustered");
    relay.have_rows();
    assert_eq!(ids(&relay.follower), (vec![OWN], true));
}

/// A way from one server that says what its index is one of.
fn way_from(origin: u128) -> String {
    object([
        ("servers", array([id(origin), id(7)])),
        ("connected", true.into()),
        ("origin", id(origin).into()),
    ])
    .to_string()
}

fn says_index(relay: &mut Talk, index: i64) {
    let row = format!(r#"{{"Database":{{"u":{{"modify":{{"index":{index}}}}}}}}}"#);
    relay.say(&format!(r#"{{"id":null,"method":"update2","params":[["monid","_Server"],{row}]}}"#));
}

/// Two standalone servers, one of them the backup of the other, count their records each.
#[test]
fn an_index_of_another_origin_is_not_behind() {
    let (active, backup) = (8, 9);
    let mut relay = relay_of("tcp:a:1,tcp:b:1");
    relay.meet_relay();
    relay.answer("weir_path", &way_from(active));
    relay.have_rows();
    says_index(&mut relay, 4100);
    assert_eq!(relay.follower.path().origin, Some(Uuid::from_u128(active)));
    // What is before the other relay has changed already.
    relay.give(Input::Down(None));
    relay.goes_on_to("tcp:b:1");
    relay.meet_relay();
    says_index(&mut relay, 98);
    relay.answer("weir_path", &way_from(backup));
    relay.have_rows();
    assert_eq!(relay.follower.index(), Some(98));
    assert_eq!(relay.follower.path().origin, Some(Uuid::from_u128(backup)));
    let line = "Warning tcp:b:1: the source is another one, with index 98 in place of 4100";
    assert_eq!(relay.log, [line]);
    // An index of an origin that was seen may be one from before.
    relay.give(Input::Down(None));
    relay.goes_on_to("tcp:a:1");
    relay.meet_relay();
    says_index(&mut relay, 97);
    relay.answer("weir_path", &way_from(active));
    relay.goes_to("tcp:b:1");
    assert_eq!(relay.log.len(), 2, "{:?}", relay.log);
    assert!(relay.log[1].contains("has stale data"), "{:?}", relay.log);
}

/// Whether servers are only behind, or their source has gone back, cannot be known.
#[test]
fn servers_that_are_all_behind_are_believed_after_a_minute() {
    let mut relay = relay_of("tcp:a:1,tcp:b:1");
    relay.meet_relay();
    relay.answer("weir_path", &way_from(8));
    relay.have_rows();
    says_index(&mut relay, 100);
    relay.give(Input::Down(None));
    let mut targets = ["tcp:b:1", "tcp:a:1"].iter().cycle();
    relay.goes_on_to(targets.next().unwrap());
    let refused_us = relay.now_us;
    loop {
        relay.meet_relay();
        says_index(&mut relay, 90);
        relay.answer("weir_path", &way_from(8));
        if !relay.has_left() {
            break;
        }
        relay.goes_on_to(targets.next().unwrap());
        assert!(relay.now_us < refused_us + 2 * BEHIND_US_MAX, "{:?}", relay.log);
    }
    assert!(relay.now_us >= refused_us + BEHIND_US_MAX);
    relay.have_rows();
    assert_eq!(relay.follower.index(), Some(90));
    let said = relay.log.iter().filter(|line| line.contains("no server has index 100"));
    assert_eq!(said.count(), 1, "{:?}", relay.log);
}

/// The way is told first, and the index stays until there are other rows.
#[test]
fn a_source_that_follows_another_one_has_not_gone_back() {
    let mut relay = relay_of("tcp:a:1,tcp:b:1");
    relay.meet_relay();
    relay.answer("weir_path", &way_from(8));
    relay.have_rows();
    says_index(&mut relay, 4100);
    relay.hear_way(&way_from(9));
    assert_eq!(relay.follower.index(), Some(4100));
    says_index(&mut relay, 98);
    let line = "Warning tcp:a:1: the source is another one, with index 98 in place of 4100";
    assert_eq!(relay.log, [line]);
    says_index(&mut relay, 90);
    let line = "Warning tcp:a:1: the source has gone back from index 98 to 90";
    assert_eq!(relay.log[1..], [line]);
}

/// A packaged relay says nothing more than that the monitor is over: its `_Server` has the schema from before.
#[test]
fn a_packaged_relay_is_asked_for_the_schema_behind_each_conversion() {
    let mut relay = relay_of("tcp:a:1");
    relay.meet_server("[]", "relay");
    relay.answer("get_schema", SCHEMA);
    relay.have_rows();
    let monitor = r#"["monid","D"]"#;
    relay.say(&format!(r#"{{"id":null,"method":"monitor_canceled","params":[{monitor}]}}"#));
    relay.answer("get_schema", SCHEMA);
    relay.have_rows();
}

/// `_Server` says nothing more, for the schema is what it was.
#[test]
fn a_conversion_to_the_same_schema_is_followed() {
    let mut relay = relay_of("tcp:a:1");
    relay.meet_server(r#"["weir_features"]"#, "standalone");
    relay.have_rows();
    let over = r#"{"id":null,"method":"monitor_canceled","params":[["monid","D"]]}"#;
    relay.say(over);
    relay.answer("get_schema", SCHEMA);
    relay.have_rows();
    assert!(relay.follower.is_current());
}

#[test]
fn a_monitor_of_ephemeral_columns_ends_with_that_of_the_others() {
    let column = r#""e":{"type":"integer","ephemeral":true}"#;
    let schema = SCHEMA.replace(r#""x":"#, &format!(r#"{column},"x":"#));
    let mut relay = relay_of("tcp:a:1");
    let features = r#"["weir_monitor","weir_monitor.each"]"#;
    relay.meet_server_with(&schema, features, "standalone");
    relay.answer("weir_monitor", &format!(r#"[false,"{}",{{}}]"#, id(77)));
    relay.answer("monitor", "{}");
    relay.say(r#"{"id":null,"method":"monitor_canceled","params":[["monid","D"]]}"#);
    let (_, method, params) = &relay.asked[0];
    assert_eq!((&**method, &**params), ("monitor_cancel", r#"[["ephemeral","D",1]]"#));
}

/// The address of a service, for example, behind which one server has no such database.
#[test]
fn the_only_address_is_asked_anew_if_its_server_will_not_do() {
    for (source, is_left) in [("tcp:ovn:1", true), ("ssl:192.0.2.1:1", true), ("unix:a", false)] {
        let mut relay = relay_of(source);
        relay.give(Input::Up);
        relay.answer("set_db_change_aware", "{}");
        relay.answer("weir_features", r#"["weir_features"]"#);
        relay.answer("get_schema", "{}");
        relay.answer("monitor_cond", r#"{"Database":{}}"#);
        relay.now_us += 7 * SECOND;
        relay.give(Input::Tick);
        assert!(!relay.has_left(), "it may come to have the database");
        relay.now_us += 2 * SECOND;
        relay.give(Input::Tick);
        assert_eq!(relay.has_left(), is_left, "{source}: {:?}", relay.log);
    }
}

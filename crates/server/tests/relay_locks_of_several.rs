//! Locks at a server that is the relay of two databases of one source: each has its own connection there, and only one of
//! them can have a lock. Whose turn it is here decides in which database the lock is asserted.

use crate::chain::{Chain, relay_of_all};
use crate::relay_sources::{guarded, has_another_database, is, lock, outcome};
use crate::shell::Shell;
use weir_server::event::SessionId;

/// The source, and the relay of both of its databases, with two clients.
fn chain() -> (Chain, SessionId, SessionId) {
    let mut source = Shell::start();
    has_another_database(&mut source);
    let relay = relay_of_all("relay", &["Net", "Other"], &[0]);
    let mut chain = Chain::joined(vec![source, relay]);
    let [first, second] = [(); 2].map(|()| chain.servers[1].connect());
    (chain, first, second)
}

/// A client inserts a port in a database, if the lock is his: what came of it, and what he was told of the lock.
fn writes(chain: &mut Chain, client: SessionId, database: &str) -> (String, Vec<String>) {
    let request = guarded("a").replace("\"Net\"", &format!("{database:?}"));
    outcome(&chain.call(1, client, &request))
}

/// A client gives the lock up, and the other one hears of it.
fn hands_over(chain: &mut Chain, from: SessionId, to: SessionId) {
    chain.call(1, from, r#"{"id":1,"method":"unlock","params":["l"]}"#);
    assert_eq!(outcome(&chain.servers[1].received(to)).1, ["locked"]);
}

#[test]
fn who_waits_behind_a_client_that_asserts_the_lock_in_both_has_his_turn() {
    for then in ["Net", "Other"] {
        let (mut chain, first, second) = chain();
        assert_eq!(lock(&mut chain, 1, first, "lock"), true);
        assert_eq!(writes(&mut chain, first, "Net"), is("done", &[]));
        assert_eq!(writes(&mut chain, first, "Other"), is("\"not owner\"", &["stolen"]));
        assert_eq!(lock(&mut chain, 1, second, "lock"), false);
        hands_over(&mut chain, first, second);
        if then == "Other" {
            let told = writes(&mut chain, second, then);
            assert_eq!(told, is("\"not owner\"", &["stolen", "locked"]));
        }
        assert_eq!(writes(&mut chain, second, then), is("done", &[]));
    }
}

#[test]
fn the_next_owner_may_assert_a_lock_in_the_other_database() {
    let (mut chain, first, second) = chain();
    assert_eq!(lock(&mut chain, 1, first, "lock"), true);
    assert_eq!(writes(&mut chain, first, "Net"), is("done", &[]));
    assert_eq!(lock(&mut chain, 1, second, "lock"), false);
    hands_over(&mut chain, first, second);
    assert_eq!(writes(&mut chain, second, "Other"), is("\"not owner\"", &["stolen", "locked"]));
    assert_eq!(writes(&mut chain, second, "Other"), is("done", &[]));
    // It is given back when nobody here wants it any more.
    let elsewhere = chain.servers[0].connect();
    assert_eq!(lock(&mut chain, 0, elsewhere, "lock"), false);
    chain.call(1, second, r#"{"id":1,"method":"unlock","params":["l"]}"#);
    assert_eq!(outcome(&chain.servers[0].received(elsewhere)).1, ["locked"]);
}

#[test]
fn who_steals_a_lock_and_asserts_it_in_the_other_database_is_not_told_that_it_is_stolen() {
    let (mut chain, first, second) = chain();
    assert_eq!(lock(&mut chain, 1, first, "lock"), true);
    assert_eq!(writes(&mut chain, first, "Net"), is("done", &[]));
    assert_eq!(lock(&mut chain, 1, second, "steal"), true);
    assert_eq!(writes(&mut chain, second, "Other"), is("done", &[]));
    assert_eq!(writes(&mut chain, second, "Other"), is("done", &[]));
}

/// The lock stays with the connection that has it, in case the next owner asserts it there, and the connection ends.
#[test]
fn the_next_owner_hears_of_the_source_of_a_lock_that_he_has_asserted_nowhere() {
    for then in ["Net", "Other"] {
        let (mut chain, first, second) = chain();
        assert_eq!(lock(&mut chain, 1, first, "lock"), true);
        assert_eq!(writes(&mut chain, first, "Net"), is("done", &[]));
        assert_eq!(lock(&mut chain, 1, second, "lock"), false);
        hands_over(&mut chain, first, second);
        chain.lose(1);
        chain.pass_ms(10_000);
        assert_eq!(outcome(&chain.servers[1].received(second)).1, ["stolen", "locked"]);
        if then == "Other" {
            // The source hears of either connection first, that gives the lock back or that asks for it.
            writes(&mut chain, second, then);
        }
        assert_eq!(writes(&mut chain, second, then), is("done", &[]));
    }
}

/// Others have the lock at the source: the connection that waits there is not the one whose database the owner asserts it in.
#[test]
fn the_next_owner_waits_by_the_database_that_he_asserts_the_lock_in() {
    let (mut chain, first, second) = chain();
    let elsewhere = chain.servers[0].connect();
    assert_eq!(lock(&mut chain, 1, first, "lock"), true);
    assert_eq!(writes(&mut chain, first, "Net"), is("done", &[]));
    assert_eq!(lock(&mut chain, 1, second, "lock"), false);
    hands_over(&mut chain, first, second);
    assert_eq!(lock(&mut chain, 0, elsewhere, "steal"), true);
    chain.settle();
    assert_eq!(outcome(&chain.servers[1].received(second)).1, ["stolen"]);
    writes(&mut chain, second, "Other");
    chain.call(0, elsewhere, r#"{"id":1,"method":"unlock","params":["l"]}"#);
    chain.settle();
    let told = outcome(&chain.servers[1].received(second)).1;
    assert_eq!(told.last().map(String::as_str), Some("locked"), "{told:?}");
    assert_eq!(writes(&mut chain, second, "Other"), is("done", &[]));
}

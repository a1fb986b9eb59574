//! Connections that end: who hears of that.

use std::sync::Arc;

use super::bench::{Bench, CLUSTER, address, server, three};
use crate::consensus::APPEND;
use crate::wire::{Frame, Hello, Lane, Step};
use crate::{Content, Entry, Event, Position};

/// Requests that left on it have no other end to be answered on.
#[test]
fn the_server_hears_that_a_connection_was_closed_where_no_member_is_any_more() {
    let mut bench = Bench::follower();
    let mut connect = |lane| {
        let link = bench.connection_to(address(2));
        bench.handle(Event::Connected { link });
        let (cluster, to, from) = (Some(CLUSTER), Some(server(1)), server(2));
        let (lane, promised) = (Some(lane), None);
        bench.hello(link, &Hello { cluster, to, from, address: None, lane, promised });
        link
    };
    let [control, requests] = Lane::ALL.map(&mut connect);
    assert_eq!(bench.lost, []);

    let mut moved = three();
    moved.insert(server(2), address(4));
    let (log, last) = (bench.greet(server(2), Lane::Log), bench.member.last_position());
    let at = Position { term: 3, index: last.index + 1 };
    let content = Content::Servers(Arc::new(moved));
    let step = Step {
        kind: APPEND,
        term: 3,
        log_term: last.term,
        index: last.index,
        commit: at.index,
        entries: vec![Entry { at, content }],
        ..Step::default()
    };
    bench.say(log, step);
    assert!(bench.closed.contains(&control), "nobody listens there any more");
    assert!(bench.closed.contains(&requests));
    assert_eq!(bench.lost, [server(2)], "once, for requests go by one of them");
}

/// An answer may leave on a connection that the other end has closed, and that asks again by another one
/// before this end knows.
#[test]
fn a_member_hears_of_the_end_of_a_connection_at_the_other_end() {
    let mut bench = Bench::leader();
    let log = bench.greet(server(3), Lane::Log);
    let tells = |bench: &Bench, link| {
        let mut frame = vec![];
        Frame::Lost.write(&mut frame);
        let is_it = |bytes: &[u8]| bytes.windows(frame.len()).any(|part| part == frame);
        bench.sent.iter().any(|(on, bytes)| *on == link && is_it(bytes))
    };
    bench.handle(Event::Lost { link: log, error: None });
    let again = bench.greet(server(3), Lane::Log);
    assert!(tells(&bench, again) && !tells(&bench, log));
    let last = bench.greet(server(3), Lane::Log);
    assert!(tells(&bench, last), "the one before was closed for it");

    let before = bench.lost.len();
    bench.frame(last, &Frame::Lost);
    assert_eq!(bench.lost[before..], [server(3)]);
}

/// Where it was told to ask nobody listens, or another program does.
#[test]
fn who_still_joins_says_that_nobody_answers() {
    let mut bench = Bench::joiner();
    let said = |bench: &Bench, text: &str| {
        bench.logs.iter().filter(|(_, line)| line.contains(text)).count()
    };
    for _ in 0..3 {
        let link = bench.connection_to(address(2));
        let error = Some("Connection refused".to_owned());
        bench.handle(Event::Lost { link, error });
    }
    assert_eq!(said(&bench, "connection attempt failed (Connection refused)"), 1, "once a minute");
    let link = bench.connection_to(address(2));
    bench.handle(Event::Connected { link });
    bench.handle(Event::Lost { link, error: None });
    assert_eq!(said(&bench, "may be no member of this server's cluster"), 1, "{:?}", bench.logs);
}

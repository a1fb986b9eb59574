//! Who must not be listened to: one clear line in the log, and no effect.

use std::sync::Arc;

use weir_data::Uuid;

use super::bench::{APPEND_REPLY, Bench, CLUSTER, HEARTBEAT, VOTE_REPLY, address, server};
use crate::consensus::{APPEND, PRE_VOTE_REQUEST, TIMEOUT_NOW};
use crate::wire::{Frame, Hello, Lane, Step};
use crate::{Content, Entry, Event, Level, LinkId, Position, Role};

/// The lines that the log got since it was looked at last.
fn lines(bench: &mut Bench) -> Vec<String> {
    let logs = std::mem::take(&mut bench.logs);
    let shown = logs.into_iter().filter(|(level, _)| *level != Level::Debug);
    shown.map(|(_, text)| text).collect()
}

/// What a member is; nothing of it may change.
fn state(bench: &Bench) -> impl PartialEq + std::fmt::Debug + use<> {
    let member = &bench.member;
    (
        (member.role(), member.term(), member.leader(), member.node.vote()),
        (member.last_position(), member.committed(), member.servers().clone()),
    )
}

#[test]
fn another_cluster_is_refused_once_in_the_log() {
    let mut bench = Bench::follower();
    let before = state(&bench);
    lines(&mut bench);
    for _ in 0..10 {
        let link = bench.accept();
        let cluster = Some(Uuid::from_u128(78 << 96));
        let (to, lane) = (Some(server(1)), Some(Lane::Control));
        let (from, address, promised) = (server(2), None, None);
        bench.hello(link, &Hello { cluster, to, from, address, lane, promised });
        assert_eq!(bench.closed.last(), Some(&link));
    }
    let lines = lines(&mut bench);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].ends_with("connection dropped: it is of cluster 0000"), "{lines:?}");
    assert_eq!(state(&bench), before);
}

#[test]
fn greetings_for_somebody_else_are_refused() {
    let mut bench = Bench::follower();
    lines(&mut bench);
    let hello = |from, to| Hello {
        cluster: Some(CLUSTER),
        to: Some(to),
        from,
        address: None,
        promised: None,
        lane: Some(Lane::Control),
    };
    for hello in [hello(server(2), server(3)), hello(server(1), server(1))] {
        let link = bench.accept();
        bench.hello(link, &hello);
        assert_eq!(bench.closed.last(), Some(&link));
    }
    let lines = lines(&mut bench);
    assert!(lines[0].ends_with("it means server 0003"), "{lines:?}");
    assert!(lines[1].ends_with("it has this server's own id"), "{lines:?}");
}

#[test]
fn an_older_term_has_no_effect() {
    let mut bench = Bench::follower();
    let before = state(&bench);
    let link = bench.greet(server(3), Lane::Log);
    lines(&mut bench);
    for _ in 0..10 {
        let last = bench.member.last_position();
        bench.say(
            link,
            Step {
                kind: APPEND,
                term: 2,
                log_term: last.term,
                index: last.index,
                entries: vec![super::bench::data(2, last.index + 1)],
                ..Step::default()
            },
        );
    }
    let line =
        "db: server 0003: rejecting term 2 < current term 3 received in append_request message";
    assert_eq!(lines(&mut bench), [line]);
    assert_eq!(state(&bench), before);
}

#[test]
fn answers_of_an_unknown_server_have_no_effect() {
    let mut bench = Bench::leader();
    let before = state(&bench);
    let link = bench.greet(server(9), Lane::Control);
    lines(&mut bench);
    let index = bench.member.last_position().index;
    for kind in [APPEND_REPLY, VOTE_REPLY] {
        bench.say(link, Step { kind, term: 3, index, ..Step::default() });
    }
    bench.frame(link, &Frame::Remove { server: server(2) });
    let names = ["append_reply", "vote_reply", "remove_server_request"];
    let expected = names.map(|name| format!("db: server 0009: {name} from unknown server"));
    assert_eq!(lines(&mut bench), expected);
    assert_eq!(state(&bench), before);
}

#[test]
fn only_its_leader_makes_a_member_campaign() {
    let mut bench = Bench::follower();
    let before = state(&bench);
    let link = bench.greet(server(3), Lane::Control);
    for term in [3, 4] {
        bench.say(link, Step { kind: TIMEOUT_NOW, term, ..Step::default() });
    }
    assert_eq!(state(&bench), before);
    let link = bench.greet(server(2), Lane::Control);
    bench.say(link, Step { kind: TIMEOUT_NOW, term: 3, ..Step::default() });
    assert_eq!(bench.member.role(), Role::Candidate);
}

#[test]
fn a_second_leader_in_a_term_is_not_followed() {
    let mut bench = Bench::follower();
    let before = state(&bench);
    let link = bench.greet(server(3), Lane::Control);
    bench.say(link, Step { kind: HEARTBEAT, term: 3, ..Step::default() });
    assert_eq!(state(&bench), before);
    assert!(lines(&mut bench).iter().any(|line| line.contains("another leader in term 3")));
}

/// What it was asked before is forgotten there.
#[test]
fn the_same_leader_in_a_newer_term_is_another_one() {
    let mut bench = Bench::follower();
    assert_eq!(bench.leaders, [Some(server(2))]);
    let link = bench.greet(server(2), Lane::Control);
    for term in [3, 5] {
        bench.say(link, Step { kind: HEARTBEAT, term, commit: 5, ..Step::default() });
    }
    assert_eq!(bench.leaders, [Some(server(2)); 2]);
}

/// The entry of the first removal may be lost: it must not hold up those that come later.
#[test]
fn a_leader_that_was_deposed_removes_who_is_named_when_it_leads_again() {
    let mut bench = Bench::leader();
    let last = bench.member.last_position();
    bench.member.kick(bench.now_us, server(3));
    bench.pass(10);
    assert_eq!(bench.member.last_position().index, last.index + 1, "the removal is an entry");
    // Another leader has never heard of it.
    let link = bench.greet(server(2), Lane::Log);
    let step = Step {
        kind: APPEND,
        term: 5,
        log_term: last.term,
        index: last.index,
        commit: last.index + 1,
        entries: vec![super::bench::data(5, last.index + 1)],
        ..Step::default()
    };
    bench.say(link, step);
    assert_eq!(bench.member.last_position().term, 5);
    assert!(lines(&mut bench).iter().any(|line| line.contains("failed (lost leadership)")));

    bench.lead(6);
    let before = bench.member.last_position().index;
    bench.member.kick(bench.now_us, server(3));
    bench.pass(10);
    assert_eq!(bench.member.last_position().index, before + 1);
}

#[test]
fn what_is_beyond_the_log_ends_the_connection() {
    let mut bench = Bench::follower();
    let before = state(&bench);
    let steps = [
        Step { kind: HEARTBEAT, term: 3, commit: 7, ..Step::default() },
        Step { kind: APPEND, term: 3, index: 100, commit: 100, ..Step::default() },
        Step { kind: HEARTBEAT, term: 0, ..Step::default() },
    ];
    for step in steps {
        let link = bench.greet(server(2), Lane::Control);
        bench.say(link, step);
        assert_eq!(bench.closed.last(), Some(&link));
        assert_eq!(state(&bench), before);
    }
    bench.check_follows();
}

#[test]
fn an_answer_beyond_the_log_ends_the_connection() {
    let mut bench = Bench::leader();
    let before = state(&bench);
    let index = bench.member.last_position().index + 1;
    let link = bench.greet(server(2), Lane::Control);
    bench.say(link, Step { kind: APPEND_REPLY, term: 3, index, ..Step::default() });
    assert_eq!(bench.closed.last(), Some(&link));
    assert_eq!(state(&bench), before);
}

/// Since its snapshot another server may have come to an address, and lead.
#[test]
fn a_joiner_takes_whoever_is_at_an_address() {
    let mut servers = super::bench::three();
    servers.remove(&server(1));
    let joiner = Bench::joiner_knowing(servers);
    assert_eq!(joiner.member.peers.wanted().count(), 0, "it means nobody");
    let member = Bench::member();
    assert_eq!(member.member.peers.wanted().count(), 2, "a member means the other ones");
}

#[test]
fn connections_of_who_says_nothing_are_closed() {
    let mut bench = Bench::follower();
    let member = bench.greet(server(2), Lane::Control);
    let silent = bench.accept();
    let half = bench.accept();
    bench.handle(Event::Received { link: half, bytes: b"{\"method\"".to_vec() });
    let stranger = bench.greet(server(9), Lane::Control);
    let joins = bench.greet(server(8), Lane::Control);
    let address = "tcp:10.0.0.8:6644".to_owned();
    let join = Frame::Join { address, replaces: None };
    let pass = |bench: &mut Bench, seconds| {
        for _ in 0..seconds {
            bench.pass(1000);
            bench.frame(joins, &join);
        }
    };
    let open = [member, stranger, joins];
    pass(&mut bench, 12);
    assert!([silent, half].iter().all(|link| bench.closed.contains(link)));
    assert!(!open.iter().any(|link| bench.closed.contains(link)));
    pass(&mut bench, 60);
    assert!(bench.closed.contains(&stranger));
    assert!(![member, joins].iter().any(|link| bench.closed.contains(link)));
}

fn greeting(from: u128, to: Option<u128>, address: Option<String>) -> Hello {
    let (cluster, lane) = (Some(CLUSTER), Some(Lane::Control));
    Hello { cluster, to: to.map(server), from: server(from), address, lane, promised: None }
}

/// The leader of today looks for it where it was, and it knows nobody but the members of then.
#[test]
fn a_member_that_has_moved_hears_of_those_whom_it_does_not_know() {
    let elsewhere = Some(address(33));
    let mut bench = Bench::follower();
    let link = bench.accept();
    bench.hello(link, &greeting(3, Some(1), elsewhere.clone()));
    bench.pass(600);
    bench.sent.clear();
    let kind = PRE_VOTE_REQUEST;
    bench.say(link, Step { kind, term: 3, log_term: 1, index: 5, ..Step::default() });
    let leader = address(2);
    let names = |(to, sent): &(LinkId, Vec<u8>)| {
        *to == link && sent.windows(leader.len()).any(|part| part == leader.as_bytes())
    };
    assert!(bench.sent.iter().any(names));

    let mut bench = Bench::leader();
    let [moved, other] = [elsewhere, Some(address(3))].map(|address| {
        let link = bench.accept();
        bench.hello(link, &greeting(3, Some(8), address));
        link
    });
    assert!(!bench.closed.contains(&moved), "server 8 has had this address before");
    assert!(bench.closed.contains(&other), "it is found where it is");
}

/// A member that moves may greet this one before it has the entry which makes that a member.
#[test]
fn who_is_a_member_since_it_greeted_is_where_it_said() {
    let mut bench = Bench::follower();
    let [control, log] = Lane::ALL.map(|lane| bench.greet(server(2), lane));
    let four = bench.accept();
    bench.hello(four, &greeting(4, None, Some(address(44))));
    let mut servers = super::bench::three();
    servers.insert(server(4), address(4));
    let at = Position { term: 3, index: 7 };
    let entries = vec![Entry { at, content: Content::Servers(Arc::new(servers)) }];
    bench.say(
        log,
        Step { kind: APPEND, term: 3, log_term: 1, index: 6, entries, ..Step::default() },
    );
    bench.say(control, Step { kind: HEARTBEAT, term: 3, commit: 7, ..Step::default() });
    assert_eq!(bench.member.servers.get(&server(4)), Some(&address(4)));
    assert!(bench.member.has_moved(&server(4)));
}

/// Addresses are used again: who connects may look for one that was here before.
#[test]
fn a_joiner_does_not_take_its_cluster_from_who_connects() {
    let mut bench = Bench::joiner();
    let link = bench.accept();
    let other = Some(Uuid::from_u128(78 << 96));
    bench.hello(link, &Hello { cluster: other, ..greeting(9, None, None) });
    let link = bench.connection_to(address(2));
    bench.handle(Event::Connected { link });
    bench.hello(link, &greeting(2, None, None));
    assert!(!bench.closed.contains(&link), "it is a member of the cluster that is to be joined");
    let link = bench.accept();
    bench.hello(link, &Hello { cluster: other, ..greeting(9, None, None) });
    assert!(bench.closed.contains(&link), "that is another one");
}

/// All that a damaged file names may have moved since.
#[test]
fn who_has_forgotten_joins_where_those_are_who_look_for_what_it_was() {
    let mut bench = Bench::open(Bench::file().anew(server(9), vec![address(2)]));
    for (to, at) in [(8, 38), (1, 33)] {
        let link = bench.accept();
        bench.hello(link, &greeting(3, Some(to), Some(address(at))));
        assert!(bench.closed.contains(&link), "it is server 9");
    }
    let elsewhere = [address(33), address(38)];
    let [asked, not_asked] = elsewhere.map(|at| bench.member.remotes.contains(&at));
    assert!(asked && !not_asked);
    bench.connection_to(address(33));
}

/// Somebody has copied a container with a file that was made to join.
#[test]
fn of_two_processes_that_join_with_the_same_file_the_first_one_does() {
    let mut bench = Bench::leader();
    let two = bench.greet(server(2), Lane::Control);
    let asks = |bench: &mut Bench, at| {
        let link = bench.accept();
        bench.hello(link, &greeting(4, None, Some(address(at))));
        bench.frame(link, &Frame::Join { address: address(at), replaces: None });
        link
    };
    asks(&mut bench, 4);
    bench.greeted_at(4, Lane::Control);
    for _ in 0..5 {
        for at in [44, 4] {
            asks(&mut bench, at);
            bench.well_for(&[two], 500);
        }
    }
    let said = |bench: &Bench, text| bench.logs.iter().filter(|(_, it)| it.contains(text)).count();
    assert_eq!((said(&bench, "starting to add"), said(&bench, "it has moved")), (1, 0));
    let four = asks(&mut bench, 4);
    for _ in 0..50 {
        bench.pass(100);
        let last = bench.member.last_position();
        [four, two].into_iter().for_each(|link| bench.acknowledge(link, last));
    }
    assert_eq!(bench.member.servers.get(&server(4)), Some(&address(4)));
}

#[test]
fn a_joiner_that_moves_before_it_is_taken_in_is_a_member_where_it_is() {
    let mut bench = Bench::leader();
    let two = bench.greet(server(2), Lane::Control);
    let asks = |bench: &mut Bench, link, at| {
        bench.frame(link, &Frame::Join { address: address(at), replaces: None });
    };
    let mut link = two;
    for at in [4, 44] {
        link = bench.accept();
        bench.hello(link, &greeting(4, None, Some(address(at))));
        asks(&mut bench, link, at);
    }
    for _ in 0..50 {
        bench.pass(100);
        let last = bench.member.last_position();
        [link, two].into_iter().for_each(|link| bench.acknowledge(link, last));
        asks(&mut bench, link, 44);
    }
    assert_eq!(bench.member.servers.get(&server(4)), Some(&address(44)));
}

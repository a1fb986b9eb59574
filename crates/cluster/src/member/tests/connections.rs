//! Connections that end: who hears of that.

use std::sync::Arc;

use super::bench::{
    Bench, CLUSTER, HEARTBEAT, PRE_VOTE_REPLY, VOTE_REPLY, address, heartbeat_answer, server,
    steps_sent, three,
};
use crate::consensus::{APPEND, TIMEOUT_NOW};
use crate::wire::{Frame, Hello, Lane, Step};
use crate::{Content, Entry, Event, LinkId, Opened, Position, Role};

/// Requests that left on it have no other end to be answered on.
#[test]
fn the_server_hears_that_a_connection_was_closed_where_no_member_is_any_more() {
    let mut bench = Bench::follower();
    let [control, requests] = Lane::ALL.map(|lane| bench.greeted_at(2, lane));
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

/// One of two names may be of no use any more, or not be wanted, as that by which a server was told to join.
#[test]
fn who_was_connected_to_by_another_name_is_connected_to_when_that_ends() {
    let name = || "tcp:second.example:6643".to_owned();
    let greeted = |bench: &mut Bench, address: String| {
        let link = bench.connection_to(address);
        bench.handle(Event::Connected { link });
        let (cluster, to, from) = (Some(CLUSTER), Some(server(1)), server(2));
        let (lane, address, promised) = (Some(Lane::Control), None, None);
        bench.hello(link, &Hello { cluster, to, from, address, lane, promised });
        link
    };
    let mut bench = Bench::joiner();
    let first = greeted(&mut bench, address(2));
    let (success, comment, remotes) = (false, "in progress".to_owned(), vec![name()]);
    bench.frame(first, &Frame::JoinReply { success, comment, remotes });
    let second = greeted(&mut bench, name());
    assert_eq!(bench.closed, [first]);
    assert!(!bench.connects_to(address(2), 20_000));
    lose(&mut bench, second, SILENT);
    assert!(bench.connects_to(address(2), 1000));
}

/// The system says this of a connection whose other end acknowledges nothing.
const SILENT: &str = "Connection timed out";

fn lose(bench: &mut Bench, link: LinkId, error: &str) {
    bench.handle(Event::Lost { link, error: Some(error.to_owned()) });
}

/// A network may lose long packets and carry short ones, or a firewall stop one of two connections: heartbeats are
/// answered, and nothing is committed.
#[test]
fn a_leader_whose_entries_come_to_no_majority_leads_no_more_though_it_is_heard() {
    for (error, has_one, leads) in [
        (SILENT, false, false),
        // Two of three can go on.
        (SILENT, true, true),
        // A firewall that rejects what it stops.
        ("No route to host", false, false),
        ("Connection refused", false, false),
        // A full disk, say: the other end has closed it.
        ("Connection reset by peer", false, true),
    ] {
        let mut bench = Bench::leader();
        let links = [2, 3].map(|n| bench.greet(server(n), Lane::Control));
        let eight = bench.propose(8);
        for times in 1..=2 {
            let logs = [2, 3].map(|n| bench.greet(server(n), Lane::Log));
            bench.well_for(&links, 500);
            assert_eq!(bench.member.role(), Role::Leader, "{times}");
            if has_one {
                bench.acknowledge(links[0], eight);
            }
            logs.into_iter().for_each(|log| lose(&mut bench, log, error));
        }
        bench.well_for(&links, 500);
        assert_eq!(bench.member.role() == Role::Leader, leads, "{error} {has_one}");
        let said = |text: &str| bench.logs.iter().any(|(_, line)| line.contains(text));
        let is_closed = error == "Connection reset by peer";
        assert_eq!(said("is heard, and entries do not come there"), !is_closed);
        assert_eq!(said("entries do not come to a majority"), !leads);
        let is_given = steps_sent(&bench, links[0]).iter().any(|step| step.kind == TIMEOUT_NOW);
        assert_eq!(is_given, !leads, "another one is to campaign");
    }
}

/// Who has the longest log may be down, and a server that joins be out of reach for long entries.
#[test]
fn a_leader_that_hears_too_few_tells_who_is_heard() {
    let five = (1..=5).map(|n| (server(n), address(n))).collect();
    let mut bench = Bench::open(Opened { snapshot_servers: five, ..Bench::file() });
    let links = [2, 3, 4].map(|n| bench.greet(server(n), Lane::Control));
    bench.pass(1500);
    for kind in [PRE_VOTE_REPLY, VOTE_REPLY] {
        links.iter().for_each(|link| bench.say(*link, Step { kind, term: 3, ..Step::default() }));
    }
    assert_eq!(bench.member.role(), Role::Leader);
    let seven = bench.member.last_position();
    links.iter().for_each(|link| bench.acknowledge(*link, seven));
    let joiner = bench.greet(server(6), Lane::Control);
    bench.frame(joiner, &Frame::Join { address: address(6), replaces: None });
    let eight = bench.propose(8);
    links[..2].iter().for_each(|link| bench.acknowledge(*link, eight));
    for _ in 0..2 {
        let log = bench.greet(server(6), Lane::Log);
        bench.well_for(&[links[0], links[1], links[2], joiner], 200);
        lose(&mut bench, log, SILENT);
    }
    bench.well_for(&[links[2], joiner], 1500);
    assert_eq!(bench.member.role(), Role::Follower);
    let is_told = |link| steps_sent(&bench, link).iter().any(|step| step.kind == TIMEOUT_NOW);
    assert_eq!(links.map(is_told), [false, false, true]);
    let said = |text: &str| bench.logs.iter().any(|(_, line)| line.contains(text));
    assert!(said("server 0006 is heard, and entries do not come there"));
    assert!(said("no majority has been heard of") && !said("entries do not come to a majority"));
}

/// A network may have been bad for a while, and a long entry take its time.
#[test]
fn who_has_its_connection_for_entries_for_long_counts_again() {
    for (ms, leads) in [(5000, false), (12_000, true)] {
        let mut bench = Bench::leader();
        let links = [2, 3].map(|n| bench.greet(server(n), Lane::Control));
        let eight = bench.propose(8);
        bench.acknowledge(links[0], eight);
        for _ in 0..2 {
            let log = bench.greet(server(3), Lane::Log);
            bench.well_for(&links, 500);
            lose(&mut bench, log, SILENT);
        }
        bench.greet(server(3), Lane::Log);
        bench.well_for(&links, ms);
        // Server 2 stands still.
        bench.well_for(&links[1..], 1500);
        assert_eq!(bench.member.role() == Role::Leader, leads, "{ms}");
    }
}

/// The rows of a member that has just started may lack what its own clients were told before.
#[test]
fn who_has_known_no_leader_since_its_start_is_not_connected() {
    let mut bench = Bench::member();
    assert!(bench.member.is_member() && !bench.member.is_connected());
    let link = bench.greet(server(2), Lane::Control);
    assert!(!bench.member.is_connected(), "who greets need not lead");
    bench.say(link, Step { kind: HEARTBEAT, term: 3, ..Step::default() });
    assert!(bench.member.is_connected());
    // A leader that is heard no more is missed for an election timer.
    bench.pass(2000);
    assert_eq!((bench.member.leader(), bench.member.is_connected()), (None, true));
    bench.pass(1000);
    assert!(!bench.member.is_connected());
}

/// What its file holds is committed only with the first entry of its term.
#[test]
fn who_leads_from_its_start_on_is_connected_once_it_has_committed_something() {
    let alone = [(server(1), address(1))].into();
    let mut bench = Bench::opened(Opened { snapshot_servers: alone, ..Bench::file() });
    bench.is_disk_slow = true;
    bench.run();
    let settled = |bench: &Bench| (bench.member.may_propose(), bench.member.is_connected());
    while bench.member.role() != Role::Leader {
        assert_eq!(settled(&bench), (false, false), "it does not lead");
        bench.pass(100);
        bench.sync();
    }
    assert_eq!(settled(&bench), (false, false), "its entry is not on the disk");
    bench.is_disk_slow = false;
    bench.sync();
    assert_eq!(settled(&bench), (true, true));
    assert_eq!(bench.committed.last().map(|entry| entry.at.index), Some(7));
}

/// A network that loses long packets may let entries pass, which are short, and no long request of a client.
#[test]
fn whose_requests_do_not_come_to_the_leader_says_that_it_is_not_connected() {
    let mut bench = Bench::follower();
    let link = bench.greet(server(2), Lane::Control);
    let hear = |bench: &mut Bench, tenths: u32| {
        for _ in 0..tenths {
            bench.pass(100);
            bench.say(link, Step { kind: HEARTBEAT, term: 3, commit: 5, ..Step::default() });
        }
        let status = bench.member.status();
        (bench.member.is_connected(), status.contains("requests do not come to the leader"))
    };
    let log = bench.greet(server(2), Lane::Log);
    assert!(bench.member.send_request(server(2), b"long".to_vec()));
    assert_eq!(hear(&mut bench, 10), (true, false));
    lose(&mut bench, log, SILENT);
    assert!(bench.member.is_connected(), "that happens");
    // Attempts to connect are rejected as well.
    assert_eq!(hear(&mut bench, 10), (false, true));
    let log = bench.greet(server(2), Lane::Log);
    assert!(bench.member.send_request(server(2), b"long".to_vec()));
    assert_eq!(hear(&mut bench, 90), (false, true));
    assert_eq!(hear(&mut bench, 20), (true, false), "the connection lives: {log:?}");
}

/// The system ends a connection that carries nothing, however long elections may take.
#[test]
fn whose_requests_come_again_is_connected_however_long_the_election_timer_is() {
    let mut bench = Bench::open(Opened { snapshot_timer: 60_000, ..Bench::file() });
    let link = bench.greet(server(2), Lane::Control);
    let hear = |bench: &mut Bench, seconds: u32| {
        for _ in 0..seconds {
            bench.pass(1000);
            bench.say(link, Step { kind: HEARTBEAT, term: 3, commit: 5, ..Step::default() });
        }
        bench.member.is_connected()
    };
    for is_connected in [true, false] {
        let log = bench.greet(server(2), Lane::Log);
        assert!(bench.member.send_request(server(2), b"long".to_vec()));
        assert!(hear(&mut bench, 2));
        lose(&mut bench, log, SILENT);
        assert_eq!(bench.member.is_connected(), is_connected);
    }
    bench.greet(server(2), Lane::Log);
    assert!(bench.member.send_request(server(2), b"long".to_vec()));
    assert!(!hear(&mut bench, 9));
    assert!(hear(&mut bench, 3), "it lives");
}

/// A follower that hears its leader, and not its entries, is no good for clients.
#[test]
fn who_gets_no_entries_says_that_it_is_not_connected() {
    let mut bench = Bench::follower();
    let link = bench.greet(server(2), Lane::Control);
    let has = bench.member.last_position().index;
    let status = |bench: &mut Bench, synced: u64| {
        for _ in 0..60 {
            bench.pass(100);
            let (term, commit) = (3, 5);
            bench.say(link, Step { kind: HEARTBEAT, term, commit, synced, ..Step::default() });
        }
        (bench.member.is_connected(), bench.member.status().contains("entries do not come"))
    };
    assert_eq!(status(&mut bench, has), (true, false));
    assert_eq!(status(&mut bench, has + 1), (false, true));
    assert_eq!(status(&mut bench, has), (true, false));
}

/// Answers come in order on one connection. Whoever has answered on one that was dead, or had none, does not repeat
/// that, and hears only of commit indexes from then on, which it need not answer.
#[test]
fn who_answers_on_another_connection_is_asked_what_it_has() {
    #[derive(Debug, PartialEq)]
    enum Lost {
        /// Both ends know that the connection has ended, and there is no other one.
        WithoutAny,
        /// The leader knows it sooner than the member, which has another one as well.
        WithAnother,
    }
    for lost in [Lost::WithoutAny, Lost::WithAnother] {
        let mut bench = Bench::leader();
        // Server 2 is down.
        let [three, log] = [Lane::Control, Lane::Log].map(|lane| bench.greet(server(3), lane));
        let another = (lost == Lost::WithAnother).then(|| bench.greeted_at(3, Lane::Control));
        let last = bench.member.last_position();
        bench.acknowledge(three, last);
        bench.well_for(&[three], 400);
        // Server 3's disk is faster than the leader's: it is told that the entry is committed behind the cut.
        bench.is_disk_slow = true;
        let eight = bench.propose(8);
        bench.acknowledge(three, eight);
        lose(&mut bench, three, SILENT);
        bench.is_disk_slow = false;
        bench.sync();
        assert_eq!(bench.member.committed(), eight.index);
        // Its answer to this one goes nowhere.
        let nine = bench.propose(9);
        let before = steps_sent(&bench, log).len();
        let three = another.unwrap_or_else(|| bench.greet(server(3), Lane::Control));
        bench.well_for(&[three], 3000);
        let told = &steps_sent(&bench, log)[before..];
        let asked = told.iter().filter(|step| step.kind == APPEND);
        let asked: Vec<_> = asked.map(|step| (step.index, step.entries.len())).collect();
        assert_eq!(asked, [(nine.index, 0)], "{lost:?}: once, and nothing is sent again");
        assert!(told.len() > 3, "{lost:?}: then it is told what is committed");
        bench.acknowledge(three, nine);
        assert_eq!(bench.member.committed(), nine.index, "{lost:?}");
    }
}

/// Leadership is handed to who has everything, as far as that is known.
#[test]
fn leadership_is_handed_to_who_had_no_connection_when_it_answered() {
    let mut bench = Bench::leader();
    let two = bench.greet(server(2), Lane::Control);
    let [three, log] = [Lane::Control, Lane::Log].map(|lane| bench.greet(server(3), lane));
    let last = bench.member.last_position();
    [two, three].into_iter().for_each(|link| bench.acknowledge(link, last));
    let eight = bench.propose(8);
    lose(&mut bench, three, SILENT);
    bench.acknowledge(two, eight);
    let before = steps_sent(&bench, log).len();
    let three = bench.greet(server(3), Lane::Control);
    lose(&mut bench, two, SILENT);
    bench.well_for(&[three], 400);
    let asked = steps_sent(&bench, log)[before..].iter().find(|step| step.kind == APPEND).cloned();
    assert_eq!(asked.map(|step| (step.index, step.entries.len())), Some((eight.index, 0)));
    bench.acknowledge(three, eight);
    assert!(bench.member.hand_over(bench.now_us));
    bench.run();
    assert!(steps_sent(&bench, three).iter().any(|step| step.kind == TIMEOUT_NOW));
}

/// Anybody can connect and say anything; who joins may be gone again.
#[test]
fn of_who_is_no_member_nothing_is_remembered() {
    let mut bench = Bench::leader();
    let two = bench.greet(server(2), Lane::Control);
    let last = bench.member.last_position();
    bench.acknowledge(two, last);
    let before = bench.member.node.remembered();
    for n in 4..100 {
        let link = bench.greet(server(n), Lane::Control);
        bench.say(link, heartbeat_answer());
        lose(&mut bench, link, SILENT);
    }
    assert_eq!(bench.member.node.remembered(), before);
    let four = bench.greet(server(4), Lane::Control);
    bench.frame(four, &Frame::Join { address: address(4), replaces: None });
    let last = (8..30).map(|n| bench.propose(n)).last().expect("some");
    bench.acknowledge(two, last);
    bench.acknowledge(four, Position { term: 3, index: 3 });
    let four = bench.greet(server(4), Lane::Control);
    bench.well_for(&[two, four], 1000);
    assert!(bench.member.node.remembered() > before, "it has not said what it has");
    bench.well_for(&[two], 31_000);
    assert!(bench.logs.iter().any(|(_, line)| line.contains("nothing is heard of it")));
    assert_eq!(bench.member.node.remembered(), before);
}

/// What is sent again stands behind what was sent before, on a slow line for long.
#[test]
fn entries_are_not_sent_again_while_they_may_be_on_their_way() {
    let mut bench = Bench::leader();
    let [mut three, log] = [Lane::Control, Lane::Log].map(|lane| bench.greet(server(3), lane));
    let count = |bench: &Bench| {
        let steps = steps_sent(bench, log);
        let of_entries = steps.iter().filter(|step| step.kind == APPEND);
        of_entries.map(|step| (step.index, step.entries.len())).collect::<Vec<_>>()
    };
    // Nobody knows where its log ends.
    bench.well_for(&[three], 900);
    let first = count(&bench);
    assert_eq!(first.len(), 1, "its heartbeats are answered: {first:?}");
    bench.well_for(&[three], 400);
    assert_eq!(count(&bench), [first[0]; 2], "it may have come to nothing");
    // Its answer may be lost.
    lose(&mut bench, three, SILENT);
    three = bench.greet(server(3), Lane::Control);
    bench.well_for(&[three], 400);
    assert_eq!(count(&bench), [first[0]; 3]);

    let seven = bench.member.last_position();
    bench.acknowledge(three, seven);
    let eight = bench.propose(8);
    let before = count(&bench);
    assert_eq!(before.last(), Some(&(seven.index, 1)));
    lose(&mut bench, three, SILENT);
    three = bench.greet(server(3), Lane::Control);
    bench.well_for(&[three], 900);
    let asked = count(&bench)[before.len()..].to_vec();
    assert_eq!(asked, [(eight.index, 0)], "what it has is asked once, and nothing sent again");
    lose(&mut bench, log, SILENT);
    let log = bench.greet(server(3), Lane::Log);
    bench.well_for(&[three], 400);
    let again = steps_sent(&bench, log);
    assert!(again.iter().any(|step| step.index == seven.index && !step.entries.is_empty()));
}

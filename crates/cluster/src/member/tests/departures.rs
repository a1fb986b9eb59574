//! Members that are removed go when the others can do without their votes; servers that join make way for
//! others when they do not.

use weir_data::Uuid;
use weir_log::clustered::Servers;

use super::bench::{
    APPEND_REPLY, Bench, CLUSTER, address, data, heartbeat_answer, server, steps_sent,
};
use crate::consensus::{APPEND, HEARTBEAT, HEARTBEAT_ANSWER, VOTE_REQUEST};
use crate::entry::{Content, Entry, Held, Logged};
use crate::ids::{LinkId, Position};
use crate::member::{Failure, Opened, Role};
use crate::wire::{Frame, Hello, Lane, Promise, Step};

/// How often a server was told on a connection that it is a member no more.
fn told(bench: &Bench, link: LinkId, server: Uuid) -> usize {
    let mut said = vec![];
    let comment = "completed".to_owned();
    Frame::RemoveReply { server, success: true, comment }.write(&mut said);
    let has = |bytes: &[u8]| bytes.windows(said.len()).any(|part| part == said);
    bench.sent.iter().filter(|(to, bytes)| *to == link && has(bytes)).count()
}

/// A leader whose entry that removes server 3 is committed, and where server 2 and server 3 speak.
fn has_removed_3() -> (Bench, LinkId, LinkId, u64) {
    let mut bench = Bench::leader();
    let links = [2, 3].map(|n| bench.greet(server(n), Lane::Control));
    bench.member.kick(bench.now_us, server(3));
    bench.pass(1);
    let index = bench.member.last_position().index;
    bench.say(links[0], Step { kind: APPEND_REPLY, term: 3, index, commit: 5, ..Step::default() });
    assert!(!bench.member.servers.contains_key(&server(3)), "it is committed");
    (bench, links[0], links[1], index)
}

/// What server 2 does not know it counts by: without server 1 it would need server 3.
#[test]
fn a_removed_member_goes_when_the_others_know_of_it() {
    let (mut bench, link2, link3, index) = has_removed_3();
    bench.frame(link3, &Frame::Remove { server: server(3) });
    bench.say(link3, Step { kind: VOTE_REQUEST, term: 4, ..Step::default() });
    assert_eq!(told(&bench, link3, server(3)), 0, "server 2 may not know");
    bench.say(link2, Step { kind: APPEND_REPLY, term: 3, index, commit: index, ..Step::default() });
    assert_eq!(told(&bench, link3, server(3)), 1);
    bench.say(link3, Step { kind: VOTE_REQUEST, term: 4, ..Step::default() });
    assert_eq!(told(&bench, link3, server(3)), 2, "whoever is no member hears so when it asks");
}

/// A leader that is started anew must not have forgotten that it needs server 3 no more.
#[test]
fn a_removed_member_goes_when_the_leader_has_that_on_its_disk() {
    let mut bench = Bench::leader();
    let [link2, link3] = [2, 3].map(|n| bench.greet(server(n), Lane::Control));
    bench.member.kick(bench.now_us, server(3));
    bench.pass(1);
    let index = bench.member.last_position().index;
    bench.is_disk_slow = true;
    bench.say(link2, Step { kind: APPEND_REPLY, term: 3, index, commit: index, ..Step::default() });
    bench.frame(link3, &Frame::Remove { server: server(3) });
    assert_eq!(told(&bench, link3, server(3)), 0);
    bench.sync();
    assert_eq!(told(&bench, link3, server(3)), 1);
}

/// How often a server asked on a connection to be removed.
fn asked(bench: &Bench, link: LinkId, server: Uuid) -> usize {
    let mut said = vec![];
    Frame::Remove { server }.write(&mut said);
    let has = |bytes: &[u8]| bytes.windows(said.len()).any(|part| part == said);
    bench.sent.iter().filter(|(to, bytes)| *to == link && has(bytes)).count()
}

/// Another member has been elected, and says so.
fn led_by_2(bench: &mut Bench, link2: LinkId) {
    bench.say(link2, Step { kind: HEARTBEAT, term: 4, commit: 5, ..Step::default() });
    assert_eq!(bench.member.leader(), Some(server(2)));
}

/// Nobody else is asked to remove the leader.
#[test]
fn a_leader_that_is_told_to_remove_itself_asks_the_next_one() {
    let mut bench = Bench::leader();
    let link2 = bench.greet(server(2), Lane::Control);
    bench.well_for(&[link2], 3000);
    bench.member.kick(bench.now_us, server(1));
    bench.pass(50);
    led_by_2(&mut bench, link2);
    bench.pass(1000);
    assert_eq!(asked(&bench, link2, server(1)), 1, "{:?}", bench.logs);
}

#[test]
fn a_leader_that_another_member_wants_to_be_removed_asks_the_next_one() {
    let mut bench = Bench::leader();
    let [link2, link3] = [2, 3].map(|n| bench.greet(server(n), Lane::Control));
    bench.well_for(&[link2], 3000);
    bench.frame(link3, &Frame::Remove { server: server(1) });
    bench.pass(50);
    led_by_2(&mut bench, link2);
    bench.pass(1000);
    assert_eq!(asked(&bench, link2, server(1)), 1, "{:?}", bench.logs);
}

/// The only member of its cluster.
fn alone() -> Bench {
    let one: Servers = [(server(1), address(1))].into();
    Bench::open(Opened { snapshot_servers: one, ..Bench::file() })
}

#[test]
fn who_is_alone_and_told_to_remove_itself_goes() {
    let mut bench = alone();
    bench.member.kick(bench.now_us, server(1));
    bench.run();
    assert!(bench.has_left);
}

/// A leader that leaves, and so do servers 2 and 3, which it has removed.
fn last_of_three() -> (Bench, [LinkId; 2]) {
    let mut bench = Bench::leader();
    let links = [2, 3].map(|n| bench.greet(server(n), Lane::Control));
    bench.member.leave(bench.now_us);
    for (link, n) in links.into_iter().zip(2..) {
        bench.frame(link, &Frame::Remove { server: server(n) });
        let index = bench.member.last_position().index;
        let reply =
            || Step { kind: APPEND_REPLY, term: 3, index, commit: index, ..Step::default() };
        links.into_iter().for_each(|link| bench.say(link, reply()));
    }
    assert_eq!(bench.member.servers.keys().collect::<Vec<_>>(), [&server(1)], "{:?}", bench.logs);
    (bench, links)
}

#[test]
fn who_was_to_leave_with_all_others_and_is_the_last_goes_by_itself() {
    let (mut bench, [link2, link3]) = last_of_three();
    assert!(told(&bench, link2, server(2)) > 0 && told(&bench, link3, server(3)) > 0);
    for link in [link2, link3] {
        bench.handle(crate::Event::Lost { link, error: None });
    }
    bench.pass(2000);
    assert!(bench.has_left);
}

/// Nobody else could tell them.
#[test]
fn the_last_one_goes_when_the_others_have_been_told_that_they_may() {
    let (mut bench, [_, link3]) = last_of_three();
    bench.pass(3000);
    assert!(!bench.has_left, "they are still there");
    let before = told(&bench, link3, server(3));
    bench.frame(link3, &Frame::Remove { server: server(3) });
    assert_eq!(told(&bench, link3, server(3)), before + 1);
    // Who is never heard of again keeps nobody.
    bench.pass(120_000);
    assert!(bench.has_left);
}

/// How often a leader has handed leadership over.
fn gives(bench: &Bench) -> usize {
    bench.logs.iter().filter(|(_, text)| text.starts_with("Transferring leadership")).count()
}

/// Who is to lead next may be the one whose removal is on its way.
#[test]
fn a_leader_that_leaves_removes_first_whom_it_was_asked_to() {
    let mut bench = Bench::leader();
    let [link2, link3] = [2, 3].map(|n| bench.greet(server(n), Lane::Control));
    bench.well_for(&[link2, link3], 3000);
    bench.frame(link2, &Frame::Remove { server: server(2) });
    bench.member.leave(bench.now_us);
    bench.run();
    assert_eq!(gives(&bench), 0);
    let index = bench.member.last_position().index;
    bench.say(link3, Step { kind: APPEND_REPLY, term: 3, index, ..Step::default() });
    assert!(!bench.member.servers.contains_key(&server(2)));
    assert_eq!(gives(&bench), 1, "{:?}", bench.logs);
}

/// Who has given it the lead may leave as well, and has not asked yet.
#[test]
fn a_leader_that_leaves_waits_a_moment_for_others_that_do() {
    let mut bench = Bench::leader();
    let link2 = bench.greet(server(2), Lane::Control);
    bench.member.leave(bench.now_us);
    bench.well_for(&[link2], 1500);
    assert_eq!(gives(&bench), 0);
    bench.well_for(&[link2], 2000);
    assert!(gives(&bench) > 0);
}

/// Server 2 takes the member out of its own list, in front of its eyes. The place of that.
fn removed_by_2(bench: &mut Bench) -> Position {
    let mut servers = (*bench.member.servers).clone();
    servers.remove(&server(1));
    let (before, link) = (bench.member.last_position(), bench.greet(server(2), Lane::Log));
    let at = Position { term: 3, index: before.index + 1 };
    let entries = vec![Entry { at, content: Content::Servers(servers.into()) }];
    let (kind, log_term, index, commit) = (APPEND, before.term, before.index, at.index);
    bench.say(link, Step { kind, term: 3, log_term, index, commit, entries, ..Step::default() });
    assert!(!bench.member.servers.contains_key(&server(1)) && !bench.has_left);
    at
}

/// A leader says that this server, which was a member, may go.
fn may_go(bench: &mut Bench) {
    let (link, comment) = (bench.greet(server(2), Lane::Control), "completed".to_owned());
    bench.frame(link, &Frame::RemoveReply { server: server(1), success: true, comment });
}

#[test]
fn who_hears_that_it_is_removed_votes_until_others_know_as_well() {
    let mut bench = Bench::follower();
    let at = removed_by_2(&mut bench);
    bench.pass(20_000);
    let link = bench.greet(server(3), Lane::Control);
    let (log_term, index) = (at.term, at.index);
    bench.say(link, Step { kind: VOTE_REQUEST, term: 4, log_term, index, ..Step::default() });
    assert_eq!(bench.member.node.vote(), Some(server(3)), "it still votes");
    may_go(&mut bench);
    assert!(bench.has_left);
}

/// A leader lets nobody go before most members have it on their disks that the removal is committed.
#[test]
fn a_commit_of_servers_that_found_no_room_is_written_and_told_when_there_is_some() {
    let said = |has_room: bool| {
        let mut bench = Bench::follower();
        let [log, link] = [Lane::Log, Lane::Control].map(|lane| bench.greet(server(2), lane));
        let two: Servers = [1, 2].map(|n| (server(n), address(n))).into();
        let at = Position { term: 3, index: 7 };
        let entries = vec![Entry { at, content: Content::Servers(two.into()) }];
        let append =
            Step { kind: APPEND, term: 3, log_term: 1, index: 6, commit: 6, ..Step::default() };
        bench.say(log, Step { entries, ..append });
        let heartbeat = || Step { kind: HEARTBEAT, term: 3, commit: 7, ..Step::default() };
        bench.is_disk_bad = !has_room;
        bench.say(link, heartbeat());
        bench.is_disk_bad = false;
        for _ in 0..30 {
            bench.pass(100);
            bench.say(link, heartbeat());
        }
        let answers = steps_sent(&bench, link).into_iter();
        answers.filter(|step| step.kind == HEARTBEAT_ANSWER).map(|step| step.commit).max()
    };
    assert_eq!(said(true), Some(7));
    assert_eq!(said(false), Some(7));
}

/// What the file says of a member whose removal is committed, and whose process ended before anybody had told it
/// that it may go.
fn removed_and_killed() -> Bench {
    let mut opened = Bench::file();
    let two: Servers = [2, 3].map(|n| (server(n), address(n))).into();
    let at = Position { term: 1, index: 5 };
    opened.entries[3] = Logged { at, held: Held::Here(Content::Servers(two.into())), place: None };
    Bench::open(opened)
}

#[test]
fn a_removed_member_that_is_started_again_votes_until_others_know_as_well() {
    let mut bench = removed_and_killed();
    assert!(bench.member.is_departing() && !bench.member.is_connected());
    bench.pass(30_000);
    assert_eq!((bench.member.role(), bench.member.term()), (Role::Follower, 2), "no candidate");
    let link = bench.greet(server(3), Lane::Control);
    let Position { term: log_term, index } = bench.member.last_position();
    bench.say(link, Step { kind: VOTE_REQUEST, term: 4, log_term, index, ..Step::default() });
    assert_eq!(bench.member.node.vote(), Some(server(3)));
    assert!(bench.written_last.contains("\"vote\""), "{}", bench.written_last);
    may_go(&mut bench);
    assert!(bench.has_left && bench.written_last.contains("left"), "{}", bench.written_last);
}

/// With a header that tells nothing of its removal, the file would be one of a server that is to join.
#[test]
fn the_file_of_a_removed_member_that_is_started_again_is_not_written_anew() {
    let mut bench = removed_and_killed();
    let mark = bench.member.begin_copy();
    bench.handle(crate::Event::CopyWritten { mark, len: 100 });
    assert_eq!(bench.tail_last, "", "no copy takes its place");
}

/// The entry that makes a server a member may be in the leader's log, and not have taken effect there.
#[test]
fn a_server_that_is_being_taken_in_is_not_told_that_it_was_removed() {
    let mut bench = Bench::leader();
    let join = Frame::Join { address: address(4), replaces: None };
    let link = bench.greet(server(4), Lane::Control);
    bench.frame(link, &join);
    bench.say(link, Step { kind: VOTE_REQUEST, term: 4, ..Step::default() });
    assert_eq!(told(&bench, link, server(4)), 0);
}

/// A removal that its file's snapshot has left out, a leader does not remember.
#[test]
fn whom_a_leader_has_never_known_goes_when_others_know_what_its_file_left_out() {
    let mut bench = Bench::leader();
    let (link2, link5) =
        (bench.greet(server(2), Lane::Control), bench.greet(server(5), Lane::Control));
    let ask = || Step { kind: VOTE_REQUEST, term: 4, ..Step::default() };
    bench.say(link5, ask());
    assert_eq!(told(&bench, link5, server(5)), 0, "server 2 may count with its vote");
    let index = bench.member.last_position().index;
    bench.say(link2, Step { kind: APPEND_REPLY, term: 3, index, commit: 1, ..Step::default() });
    bench.say(link5, ask());
    assert_eq!(told(&bench, link5, server(5)), 1);
}

/// Who says so twice goes no sooner: the other one of a pair may still count with its vote.
#[test]
fn the_removed_half_of_a_pair_stays_until_the_other_one_says_that_it_may_go() {
    let pair: Servers = [1, 2].map(|n| (server(n), address(n))).into();
    let mut bench = Bench::open(Opened { snapshot_servers: pair, ..Bench::file() });
    removed_by_2(&mut bench);
    bench.member.leave(bench.now_us);
    bench.run();
    assert!(!bench.has_left);
    may_go(&mut bench);
    assert!(bench.has_left);
}

/// `cluster/failure-test` is for all databases of a server, also for one that still joins.
#[test]
fn who_is_no_voter_does_not_campaign() {
    let mut joiner = Bench::joiner();
    joiner.member.fail(joiner.now_us, Some(Failure::ForceElection));
    joiner.run();
    assert_eq!((joiner.member.role(), joiner.member.term()), (Role::Follower, 0));
}

#[test]
fn a_removed_server_that_joins_is_told_and_joins_as_another_one() {
    let (mut bench, link2, _, index) = has_removed_3();
    let link = bench.greet(server(3), Lane::Control);
    let join = Frame::Join { address: address(3), replaces: None };
    bench.frame(link, &join);
    assert_eq!(told(&bench, link, server(3)), 0, "server 2 may not know");
    bench.say(link2, Step { kind: APPEND_REPLY, term: 3, index, commit: index, ..Step::default() });
    bench.frame(link, &join);
    assert_eq!(told(&bench, link, server(3)), 1);
    assert!(bench.member.joins.by_id.is_empty());

    let mut joiner = Bench::joiner();
    let link = joiner.greet(server(2), Lane::Control);
    let comment = "completed".to_owned();
    joiner.frame(link, &Frame::RemoveReply { server: server(1), success: true, comment });
    assert!(joiner.has_forgotten && !joiner.has_left);
}

#[test]
fn servers_that_are_silent_join_no_more() {
    let mut bench = Bench::leader();
    let link2 = bench.greet(server(2), Lane::Control);
    for n in 4..20 {
        let link = bench.greet(server(n), Lane::Control);
        bench.frame(link, &Frame::Join { address: address(n), replaces: None });
    }
    let last = bench.greet(server(20), Lane::Control);
    let join = Frame::Join { address: address(20), replaces: None };
    bench.frame(last, &join);
    assert_eq!(bench.member.joins.by_id.len(), 16, "there are too many");
    for _ in 0..310 {
        bench.pass(100);
        bench.say(link2, Step { kind: 6, term: 3, commit: 5, ..Step::default() });
    }
    bench.frame(last, &join);
    assert_eq!(bench.member.joins.by_id.keys().collect::<Vec<_>>(), [&server(20)]);
    // Another one at the same place.
    let link = bench.greet(server(21), Lane::Control);
    bench.frame(link, &join);
    assert_eq!(bench.member.joins.by_id.keys().collect::<Vec<_>>(), [&server(20)], "it is there");
    for _ in 0..60 {
        bench.pass(100);
        bench.say(link2, Step { kind: 6, term: 3, commit: 5, ..Step::default() });
    }
    bench.frame(link, &join);
    assert_eq!(bench.member.joins.by_id.keys().collect::<Vec<_>>(), [&server(21)]);
}

/// All that its list names may be gone, and those who are there know it.
#[test]
fn a_server_that_joins_asks_whoever_connects_to_it() {
    let mut bench = Bench::joiner();
    let link = bench.accept();
    let (cluster, to, from) = (Some(CLUSTER), Some(server(1)), server(9));
    let (lane, address) = (Some(Lane::Control), Some(address(9)));
    bench.hello(link, &Hello { cluster, to, from, address: address.clone(), lane, promised: None });
    assert!(bench.member.remotes.contains(&address.expect("it has one")));
}

/// Who leads is silent about the snapshot of the leader before: the file must be written anew meanwhile.
#[test]
fn half_a_snapshot_of_a_leader_before_keeps_no_copy_from_being_made() {
    let mut bench = Bench::follower();
    let last = Position { term: 3, index: 10 };
    let half = bench.begin(last, 1 << 20);
    bench.piece(half, last, 0);
    assert!(bench.member.snapshots.is_receiving());
    let link = bench.greet(server(3), Lane::Control);
    bench.say(link, Step { kind: HEARTBEAT, term: 4, commit: 5, ..Step::default() });
    assert!(!bench.member.snapshots.is_receiving());
}

/// Nor does one that was cut off while the file takes nothing.
#[test]
fn half_a_snapshot_is_let_go_where_the_file_takes_nothing() {
    let mut bench = Bench::follower();
    let last = Position { term: 3, index: 10 };
    let half = bench.begin(last, 1 << 20);
    bench.piece(half, last, 0);
    bench.handle(crate::Event::Lost { link: half, error: None });
    assert!(bench.member.snapshots.is_receiving(), "the rest may come");
    bench.is_disk_bad = true;
    let link = bench.greet(server(2), Lane::Control);
    let (kind, log_term, index) = (APPEND, 1, 6);
    let entries = vec![data(3, 7)];
    bench.say(link, Step { kind, term: 3, log_term, index, entries, ..Step::default() });
    assert!(!bench.member.snapshots.is_receiving());
}

/// The joiner's file is from before it was server 3, and it was another one before that.
#[test]
fn who_has_forgotten_twice_takes_the_place_of_whom_it_was_between() {
    let mut bench = Bench::leader();
    let [link2, link3] = [2, 3].map(|n| bench.greet(server(n), Lane::Control));
    let join = Frame::Join { address: address(3), replaces: Some(server(77)) };
    let link = bench.greet(server(9), Lane::Control);
    bench.say(link3, heartbeat_answer());
    let before = bench.member.last_position();
    bench.frame(link, &join);
    assert_eq!(bench.member.last_position(), before, "server 3 is there");
    bench.handle(crate::Event::Lost { link: link3, error: None });
    for _ in 0..310 {
        bench.pass(100);
        bench.say(link2, heartbeat_answer());
    }
    bench.frame(link, &join);
    assert_eq!(bench.member.last_position().index, before.index + 1, "it is removed");
}

/// A leader, where servers 2 and 3 speak to it, and an entry that server 3 has acknowledged.
fn with_a_promise_of_3() -> (Bench, [LinkId; 2], Position) {
    let mut bench = Bench::leader();
    let links = [2, 3].map(|n| bench.greet(server(n), Lane::Control));
    let promised = bench.propose(100);
    bench.acknowledge(links[1], promised);
    (bench, links, promised)
}

/// What a leader tells a server that it has promised, when that greets it.
fn promise_told(bench: &Bench, n: u128) -> Option<Position> {
    bench.member.hello(Some(server(n)), Lane::Control).promised.map(|promise| promise.at)
}

/// An image of its machine, for example, that is put back each time it is started.
#[test]
fn an_older_file_is_known_again_when_its_server_was_replaced_already() {
    let (mut bench, [link2, link3], promised) = with_a_promise_of_3();
    bench.handle(crate::Event::Lost { link: link3, error: None });
    let link9 = bench.greet(server(9), Lane::Control);
    for _ in 0..30 {
        bench.frame(link9, &join_for_3());
        bench.pass(100);
        let last = bench.member.last_position();
        bench.acknowledge(link2, last);
    }
    assert!(!bench.member.servers.contains_key(&server(3)), "it is removed");
    assert_eq!(promise_told(&bench, 3), Some(promised));
}

/// What an operator removes stays removed, until something is made to be there again.
#[test]
fn an_older_file_of_a_server_that_somebody_removed_joins_no_more() {
    let (mut bench, [link2, _], promised) = with_a_promise_of_3();
    bench.member.kick(bench.now_us, server(3));
    bench.pass(1);
    let removed = bench.member.last_position();
    bench.acknowledge(link2, removed);
    assert!(!bench.member.servers.contains_key(&server(3)), "it is removed");
    assert_eq!(promise_told(&bench, 3), None);
    let link9 = bench.greet(server(9), Lane::Control);
    bench.frame(link9, &Frame::Join { address: address(3), replaces: None });
    for _ in 0..50 {
        bench.pass(100);
        let last = bench.member.last_position();
        [link2, link9].iter().for_each(|link| bench.acknowledge(*link, last));
    }
    assert!(bench.member.servers.contains_key(&server(9)), "a new one is there");
    assert_eq!(promise_told(&bench, 3), Some(promised));
    // It takes the place of the new one as soon as that is certain not to live.
    let link8 = bench.greet(server(8), Lane::Control);
    let asks = |bench: &mut Bench, others: &[LinkId]| {
        for _ in 0..30 {
            bench.frame(link8, &join_for_3());
            bench.pass(100);
            others.iter().for_each(|link| bench.say(*link, heartbeat_answer()));
        }
    };
    let before = bench.member.last_position().index;
    asks(&mut bench, &[link2, link9]);
    assert_eq!(bench.member.last_position().index, before, "server 9 is there");
    asks(&mut bench, &[link2]);
    assert_eq!(bench.member.last_position().index, before + 1, "server 9 is removed");
}

/// Where servers 2 and 3 speak to a leader, and another process with a copy of the file of server 3.
fn with_a_twin_of_3() -> (Bench, [LinkId; 3]) {
    let mut bench = Bench::leader();
    let links = [2, 3, 9].map(|n| bench.greet(server(n), Lane::Control));
    (bench, links)
}

/// What the process asks that has a copy of the file of server 3.
fn join_for_3() -> Frame {
    Frame::Join { address: address(3), replaces: Some(server(3)) }
}

/// Somebody has started another process with a copy of the file of server 3, which runs.
#[test]
fn who_lives_is_not_removed_for_a_process_that_has_a_copy_of_its_file() {
    let (mut bench, [link2, link3, twin]) = with_a_twin_of_3();
    let before = bench.member.last_position();
    let asks = |bench: &mut Bench, others: &[LinkId]| {
        bench.frame(twin, &join_for_3());
        for _ in 0..10 {
            bench.pass(100);
            others.iter().for_each(|link| bench.say(*link, heartbeat_answer()));
        }
    };
    for _ in 0..40 {
        asks(&mut bench, &[link2, link3]);
    }
    assert_eq!(bench.member.last_position(), before, "server 3 is there");
    let says = |text: &str| bench.logs.iter().any(|(_, line)| line.contains(text));
    assert!(says("the server that this one was is running"), "{:?}", bench.logs);
    assert!(!bench.member.servers().contains_key(&server(9)));
    // Nor does a copy of the leader's file become one more member, at an address of its own.
    let join_beside = Frame::Join { address: address(7), replaces: Some(server(1)) };
    let beside = bench.greet(server(10), Lane::Control);
    bench.frame(beside, &join_beside);
    bench.pass(100);
    assert!(!bench.member.joins.by_id.contains_key(&server(10)));
    // It stands still: that may be the end of a machine.
    for _ in 0..2 {
        asks(&mut bench, &[link2]);
    }
    assert_eq!(bench.member.last_position().index, before.index + 1, "it is removed");
}

/// Nobody could be heard meanwhile: what a process with a copy of the file of server 3 has asked comes first.
#[test]
fn a_leader_that_stood_still_removes_nobody_for_that() {
    let (mut bench, [link2, link3, twin]) = with_a_twin_of_3();
    let before = bench.member.last_position();
    for _ in 0..10 {
        bench.frame(twin, &join_for_3());
        bench.now_us += 2_000_000;
        bench.frame(twin, &join_for_3());
        bench.pass(100);
        bench.frame(twin, &join_for_3());
        [link2, link3].iter().for_each(|link| bench.say(*link, heartbeat_answer()));
        bench.pass(300);
    }
    assert_eq!(bench.member.last_position(), before, "server 3 is there");
}

/// Another process may listen there, with the file that this one is an older copy of.
#[test]
fn who_cannot_listen_does_not_ask_for_the_place_of_who_it_was() {
    let file = Bench::file().anew(server(9), vec![address(2)]);
    let mut bench = Bench::open(file);
    bench.member.set_listens(false);
    let link = bench.connection_to(address(2));
    bench.handle(crate::Event::Connected { link });
    bench.hello(link, &greeting(9, 2));
    let mut asked = vec![];
    Frame::Join { address: address(1), replaces: Some(server(1)) }.write(&mut asked);
    let asks =
        |bench: &Bench| bench.sent.iter().any(|(to, bytes)| *to == link && bytes.ends_with(&asked));
    bench.pass(3000);
    assert!(!asks(&bench));
    bench.member.set_listens(true);
    bench.pass(2000);
    assert!(asks(&bench), "{:?}", bench.sent);
}

fn greeting(to: u128, from: u128) -> Hello {
    let (cluster, to, from) = (Some(CLUSTER), Some(server(to)), server(from));
    Hello { cluster, to, from, address: None, lane: Some(Lane::Control), promised: None }
}

/// The server that it means was here before, and both were removed: this member does not remember them.
#[test]
fn who_is_lost_is_told_where_members_are() {
    let mut bench = Bench::follower();
    let link = bench.accept();
    bench.hello(link, &greeting(8, 9));
    let mut named = vec![];
    let comment = "not a member".to_owned();
    let remotes = [2, 1, 2, 3].map(address).to_vec();
    Frame::JoinReply { success: false, comment, remotes }.write(&mut named);
    let is_told = |(to, bytes): &(LinkId, Vec<u8>)| *to == link && bytes.ends_with(&named);
    assert!(bench.sent.iter().any(is_told) && !bench.closed.contains(&link));
    // What it knows of the other one's promises is not about this one.
    let at = Position { term: 9, index: 99 };
    let promised = Some(Promise { at, entry_term: None });
    bench.hello(link, &Hello { promised, ..greeting(8, 9) });
    assert!(!bench.has_forgotten);
    let link = bench.accept();
    bench.hello(link, &greeting(8, 3));
    assert!(bench.closed.contains(&link), "members find their way by the list of servers");
}

#[test]
fn who_has_no_leader_asks_whoever_is_where_others_were() {
    let mut bench = Bench::follower();
    let link = bench.connection_to(address(3));
    bench.handle(crate::Event::Connected { link });
    bench.hello(link, &greeting(1, 9));
    assert!(bench.closed.contains(&link), "there is a leader");

    let mut bench = Bench::member();
    bench.pass(3000);
    let link = bench.connection_to(address(3));
    bench.handle(crate::Event::Connected { link });
    bench.sent.clear();
    bench.hello(link, &greeting(1, 9));
    let kind = crate::consensus::PRE_VOTE_REQUEST;
    let (term, log_term, index) = (bench.member.term() + 1, 1, 6);
    let mut asked = vec![];
    Frame::Step(Step { kind, term, log_term, index, ..Step::default() }).write(&mut asked);
    assert!(bench.sent.contains(&(link, asked)), "it asks for a vote: {:?}", bench.logs);
    let remotes = vec![address(7)];
    bench.frame(link, &Frame::JoinReply { success: false, comment: String::new(), remotes });
    bench.connection_to(address(7));
    let comment = "completed".to_owned();
    bench.frame(link, &Frame::RemoveReply { server: server(1), success: true, comment });
    assert!(bench.has_left);
}

/// A member says how much of what is committed it has on its disk: of what is committed without a change of servers
/// that may be nothing for as long as nobody writes.
#[test]
fn who_was_removed_may_go_when_others_know_of_its_removal_whatever_was_committed_with_that() {
    let mut bench = Bench::leader();
    let links = [2, 3].map(|n| bench.greet(server(n), Lane::Control));
    bench.is_disk_slow = true;
    bench.member.kick(bench.now_us, server(3));
    bench.pass(1);
    let removal = bench.member.last_position();
    let write = bench.propose(50);
    for at in [removal, write] {
        links.iter().for_each(|link| bench.acknowledge(*link, at));
    }
    assert_eq!(bench.member.committed(), write.index);
    bench.is_disk_slow = false;
    bench.sync();
    for _ in 0..30 {
        bench.pass(100);
        bench.say(links[0], Step { commit: removal.index, ..heartbeat_answer() });
        bench.frame(links[1], &Frame::Remove { server: server(3) });
    }
    assert!(told(&bench, links[1], server(3)) > 0);
}

//! Entries that are sent, and entries that are given up, say what they said before.

use weir_data::Uuid;

use super::bench::{
    APPEND_REPLY, Bench, HEARTBEAT, PRE_VOTE_REPLY, VOTE_REPLY, address, data, server, steps_sent,
};
use crate::consensus::{APPEND, COMMIT, VOTE_REQUEST};
use crate::wire::{Frame, Lane, Step};
use crate::{Content, Entry, Event, Found, LinkId, Opened, Position, Proposal, Role};

/// The entries that were sent on a connection.
fn entries_sent(bench: &Bench, link: LinkId) -> Vec<Entry> {
    steps_sent(bench, link).into_iter().flat_map(|step| step.entries).collect()
}

/// An entry that a compaction takes out of the log is not sent as one that says nothing: its receiver could not tell.
#[test]
fn an_entry_that_a_copy_of_the_file_has_is_sent_as_it_is_or_not_at_all() {
    let mut bench = Bench::open(Opened { texts_bytes_max: 1 << 20, ..Bench::file() });
    bench.lead(3);
    let two = bench.greet(server(2), Lane::Control);
    let [three, log_of_three] = [Lane::Control, Lane::Log].map(|lane| bench.greet(server(3), lane));
    let seven = bench.member.last_position();
    bench.acknowledge(three, seven);
    let eight = bench.propose(8);
    bench.acknowledge(two, eight);
    assert_eq!(bench.member.applied(), eight.index);
    // The leader's own disk is what the next one lacks to be committed.
    bench.is_disk_bad = true;
    let nine = bench.propose(9);
    bench.acknowledge(two, nine);
    bench.handle(Event::Lost { link: three, error: None });
    // The file is written anew, which is how its disk gets well again.
    bench.is_disk_bad = false;
    let mark = bench.member.begin_copy();
    assert_eq!(mark.last, eight);
    bench.handle(Event::CopyWritten { mark, len: 100 });
    assert_eq!((bench.member.role(), bench.member.applied()), (Role::Leader, nine.index));
    let of_clients =
        entries_sent(&bench, log_of_three).into_iter().filter(|entry| entry.at != seven);
    for Entry { at, content } in of_clients {
        assert!(matches!(content, Content::Data { .. }), "{at:?} is {content:?}");
    }
}

/// A learner that is given up makes the library look at everybody's progress once more.
#[test]
fn a_join_that_ends_while_texts_leave_memory_does_not_end_the_leader() {
    let five = (1..=5).map(|n| (server(n), address(n))).collect();
    let mut bench = Bench::open(Opened { snapshot_servers: five, ..Bench::file() });
    let links: Vec<LinkId> = (2..=5).map(|n| bench.greet(server(n), Lane::Control)).collect();
    let log_of_five = bench.greet(server(5), Lane::Log);
    bench.pass(1500);
    for kind in [PRE_VOTE_REPLY, VOTE_REPLY] {
        links[..2].iter().for_each(|link| {
            bench.say(*link, Step { kind, term: 3, ..Step::default() });
        });
    }
    assert_eq!(bench.member.role(), Role::Leader);
    let seven = bench.member.last_position();
    links.iter().for_each(|link| bench.acknowledge(*link, seven));
    let joiner = bench.greet(server(6), Lane::Control);
    bench.frame(joiner, &Frame::Join { address: address(6), replaces: None });
    bench.well_for(&links, 29_900);
    assert_eq!(bench.member.role(), Role::Leader);
    bench.is_disk_slow = true;
    let eight = bench.propose(8);
    links[..3].iter().for_each(|link| bench.acknowledge(*link, eight));
    // The last one is to be asked where it is, and has a text to be sent to it that memory has no room for.
    bench.handle(Event::Lost { link: log_of_five, error: None });
    bench.now_us += 150_000;
    bench.sync();
    bench.is_disk_slow = false;
    assert!(
        bench.logs.iter().any(|(_, text)| text.contains("nothing is heard of it")),
        "the join has ended"
    );
    bench.handle(Event::Tick);
    assert_eq!((bench.member.role(), bench.member.applied()), (Role::Leader, eight.index));
}

/// Of what is on the disk and was acknowledged nothing is given up with what found no room there.
#[test]
fn entries_that_are_on_the_disk_stay_when_those_behind_them_are_given_up() {
    let mut bench = Bench::member();
    let append = |term, log_term, index, entries| Step {
        kind: APPEND,
        term,
        log_term,
        index,
        entries,
        ..Step::default()
    };
    let [two, three] = [2, 3].map(|n| bench.greet(server(n), Lane::Log));
    bench.is_disk_slow = true;
    let entries = (7..=12).map(|index| data(3, index)).collect();
    bench.say(two, append(3, 1, 6, entries));
    // The next leader has 7 to 9 as well, and another entry 10, for which there is no room.
    bench.is_disk_bad = true;
    bench.say(three, append(4, 3, 9, vec![data(4, 10)]));
    bench.sync();
    (bench.is_disk_bad, bench.is_disk_slow) = (false, false);
    bench.sync();
    assert_eq!(bench.member.last_position(), Position { term: 3, index: 9 });
    // Who lacks them asks for its vote.
    bench.pass(1200);
    let control = bench.greet(server(3), Lane::Control);
    let request = Step { kind: VOTE_REQUEST, term: 5, log_term: 1, index: 6, ..Step::default() };
    bench.say(control, request);
    assert_eq!((bench.member.term(), bench.member.node.vote()), (5, None));
}

/// A step of the leader of term 3 behind the log of a member that has just started.
fn append(kind: u8, index: u64, entries: Vec<Entry>) -> Step {
    let log_term = if index > 6 { 3 } else { 1 };
    Step { kind, term: 3, log_term, index, commit: 5, entries, ..Step::default() }
}

/// What a follower has answered to entries: up to where it has them.
fn answers(bench: &Bench, control: LinkId) -> Vec<(u64, bool)> {
    let steps = steps_sent(bench, control).into_iter();
    let answers = steps.filter(|step| step.kind == APPEND_REPLY);
    answers.map(|step| (step.index, step.reject)).collect()
}

/// The leader thinks of what it has sent that it is on its way, as long as the connection lives.
#[test]
fn who_did_not_keep_entries_says_so_when_it_takes_them_again() {
    for has_room in [true, false] {
        let mut bench = Bench::follower();
        let [control, log] = Lane::ALL.map(|lane| bench.greet(server(2), lane));
        bench.member.take_entries(!has_room);
        bench.is_disk_bad = !has_room;
        for second in 0..8 {
            let before = answers(&bench, control).len();
            for _ in 0..3 {
                bench.say(log, append(APPEND, 6, vec![data(3, 7)]));
            }
            assert_eq!(answers(&bench, control).len(), before, "{has_room} {second}");
            for _ in 0..4 {
                bench.pass(275);
                let (kind, commit, synced) = (HEARTBEAT, 5, 7);
                bench.say(control, Step { kind, term: 3, commit, synced, ..Step::default() });
            }
            let said = &answers(&bench, control)[before..];
            // As long as nothing is tried nobody knows whether there is room.
            assert_eq!(said, if has_room { &[][..] } else { &[(6, false)] }, "{second}");
        }
        assert!(!bench.member.status().contains("entries do not come"), "it is the member itself");
        bench.is_disk_bad = false;
        bench.member.take_entries(true);
        bench.pass(1);
        assert_eq!(answers(&bench, control).last(), Some(&(6, false)), "{has_room}");
        bench.say(log, append(APPEND, 6, vec![data(3, 7)]));
        assert_eq!(answers(&bench, control).last(), Some(&(7, false)), "{has_room}");
        let before = answers(&bench, control).len();
        bench.pass(900);
        assert_eq!(answers(&bench, control).len(), before);
    }
}

/// An entry may take its time on the line, and is said again at once if it has come and was not kept.
#[test]
fn a_long_entry_is_sent_again_when_its_receiver_takes_it() {
    let mut bench = Bench::leader();
    let [three, log] = [Lane::Control, Lane::Log].map(|lane| bench.greet(server(3), lane));
    let seven = bench.member.last_position();
    bench.acknowledge(three, seven);
    let mut text = b"[null,{\"a\":\"".to_vec();
    text.resize(8 << 20, b'x');
    text.extend_from_slice(b"\"}]");
    let proposal = Proposal { eid: Uuid::from_u128(8), text: text.into() };
    let eight = bench.member.propose(bench.now_us, vec![proposal]).expect("it leads");
    bench.run();
    let sent = |bench: &Bench| entries_sent(bench, log).iter().filter(|e| e.at == eight).count();
    assert_eq!(sent(&bench), 1);
    // It had no room, and hears where the leader's log ends.
    let kind = APPEND_REPLY;
    let (index, reject_hint, log_term) = (eight.index, seven.index, seven.term);
    let refused =
        Step { kind, term: 3, index, reject: true, reject_hint, log_term, ..Step::default() };
    bench.say(three, refused);
    bench.well_for(&[three], 5000);
    assert_eq!(sent(&bench), 2, "it is on its way");
    for times in 3..6 {
        bench.acknowledge(three, seven);
        assert_eq!(sent(&bench), times, "there may be room now");
        bench.well_for(&[three], 2000);
        assert_eq!(sent(&bench), times);
    }
    bench.acknowledge(three, eight);
    assert_eq!(bench.member.committed(), eight.index);
}

/// Entries that say nothing but their term would be taken for those of its leader.
#[test]
fn an_answer_to_who_leads_no_more_is_not_followed_by_entries() {
    let mut bench = Bench::leader();
    let [three, log] = [Lane::Control, Lane::Log].map(|lane| bench.greet(server(3), lane));
    let seven = bench.member.last_position();
    bench.acknowledge(three, seven);
    let eight = bench.propose(8);
    let (kind, index) = (APPEND_REPLY, eight.index);
    let (reject_hint, log_term) = (seven.index, seven.term);
    let refused =
        Step { kind, term: 3, index, reject: true, reject_hint, log_term, ..Step::default() };
    bench.say(three, refused);
    let two = bench.greet(server(2), Lane::Control);
    bench.say(two, Step { kind: HEARTBEAT, term: 4, ..Step::default() });
    assert_eq!(bench.member.leader(), Some(server(2)));
    let before = entries_sent(&bench, log).len();
    bench.acknowledge(three, seven);
    assert_eq!(entries_sent(&bench, log).len(), before);
}

/// Answers wait for what is written before them, and may be given up with it.
#[test]
fn who_gave_answers_up_answers_the_next_step_of_its_leader() {
    let mut bench = Bench::follower();
    let [control, log] = Lane::ALL.map(|lane| bench.greet(server(2), lane));
    bench.say(log, append(APPEND, 6, vec![data(3, 7)]));
    assert_eq!(answers(&bench, control), [(7, false)]);
    bench.say(control, Step { kind: HEARTBEAT, term: 3, commit: 7, ..Step::default() });
    assert_eq!(bench.member.applied(), 7);
    // The commit index is written by itself after a while, and cannot be.
    (bench.is_disk_bad, bench.is_disk_slow) = (true, true);
    for _ in 0..12 {
        bench.pass(100);
        bench.say(control, Step { kind: HEARTBEAT, term: 3, commit: 7, ..Step::default() });
    }
    bench.say(log, append(APPEND, 7, vec![]));
    assert_eq!(answers(&bench, control).len(), 1, "it waits for the disk");
    bench.sync();
    (bench.is_disk_bad, bench.is_disk_slow) = (false, false);
    bench.sync();
    assert_eq!(answers(&bench, control).len(), 1, "it is given up");
    for _ in 0..3 {
        bench.say(log, append(COMMIT, 7, vec![]));
        assert_eq!(answers(&bench, control)[1..], [(7, false)], "once");
    }
}

#[test]
fn a_leader_finds_what_was_asked_of_others_wherever_its_asker_begins_to_look() {
    let mut bench = Bench::leader();
    let two = bench.greet(server(2), Lane::Control);
    let find = |bench: &mut Bench, n, since| bench.member.find(Uuid::from_u128(n), since);
    let first = bench.propose(100);
    let since = first.index - 1;
    assert_eq!(find(&mut bench, 100, first.index), Found::No, "it is not behind itself");
    assert_eq!(find(&mut bench, 100, since), Found::Yes(first));
    assert_eq!(find(&mut bench, 101, since), Found::No);
    let second = bench.propose(101);
    assert_eq!(find(&mut bench, 101, u64::MAX), Found::No);
    assert_eq!(find(&mut bench, 101, since), Found::Yes(second));
    assert_eq!(find(&mut bench, 101, first.index), Found::Yes(second));
    bench.acknowledge(two, second);
    let mark = bench.member.begin_copy();
    bench.handle(Event::CopyWritten { mark, len: 100 });
    assert_eq!(find(&mut bench, 101, since), Found::Unknown, "the log begins behind it");
    assert_eq!(find(&mut bench, 101, second.index), Found::No);
    let third = bench.propose(102);
    bench.pass(20_000);
    assert_eq!(find(&mut bench, 102, second.index), Found::Yes(third));
}

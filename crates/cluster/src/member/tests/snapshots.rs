//! What of the file is read for others, and what comes, while another file takes its place.

use std::collections::BTreeSet;
use std::sync::Arc;

use weir_data::Uuid;

use super::bench::{
    APPEND_REPLY, Bench, CLUSTER, HEARTBEAT, address, data, heartbeat_answer, server, steps_sent,
    three,
};
use crate::consensus::{APPEND, VOTE_REQUEST};
use crate::wire::{Begin, Frame, Hello, Lane, Step};
use crate::{Event, LinkId, Position};

/// A leader whose file alone has the text of an entry, and server 3 lacks that.
fn leader_with_text_in_file() -> Bench {
    let mut bench = Bench::leader();
    let at = bench.propose(9);
    let link = bench.greet(server(2), Lane::Control);
    bench.acknowledge(link, at);
    assert_eq!(bench.member.applied(), at.index);
    bench
}

/// Server 3 says that it has all but that entry.
fn server_3_lacks_one(bench: &mut Bench) {
    let (link, last) = (bench.greet(server(3), Lane::Control), bench.member.last_position());
    bench.acknowledge(link, Position { index: last.index - 1, ..last });
}

/// Places in the file mean nothing while nobody knows which file is there.
#[test]
fn no_text_is_read_back_while_a_copy_takes_the_place_of_the_file() {
    let mut bench = leader_with_text_in_file();
    server_3_lacks_one(&mut bench);
    assert!(!bench.texts_read.is_empty(), "the text is read for server 3");

    let mut bench = leader_with_text_in_file();
    bench.is_disk_slow = true;
    let mark = bench.member.begin_copy();
    bench.handle(Event::CopyWritten { mark, len: 100 });
    server_3_lacks_one(&mut bench);
    assert_eq!(bench.texts_read, []);
}

/// Server 3 has nothing, and has got none of the snapshot that it is sent.
fn server_3_lacks_all(bench: &mut Bench) {
    server_3_lacks_all_up_to(bench, Position { term: 1, index: 1 });
}

fn server_3_lacks_all_up_to(bench: &mut Bench, last: Position) {
    let link = bench.greet(server(3), Lane::Log);
    // The leader's first entry was sent, behind this one.
    let index = bench.member.last_position().index - 1;
    let (kind, term, reject) = (APPEND_REPLY, 3, true);
    bench.say(link, Step { kind, term, index, reject, reject_hint: 0, ..Step::default() });
    // A sending that was cut begins anew when the server is heard.
    bench.say(link, heartbeat_answer());
    bench.frame(link, &Frame::Have { last, upto: 0 });
}

/// A file that took nothing was written anew, with the same last entry: who has half of the one has not half of the
/// other.
#[test]
fn a_piece_that_was_read_of_the_file_before_is_not_sent() {
    let mut bench = Bench::leader();
    let last = bench.member.last_position();
    let link = bench.greet(server(2), Lane::Control);
    bench.acknowledge(link, last);
    for _ in 0..2 {
        let mark = bench.member.begin_copy();
        assert_eq!(mark.last, last);
        bench.handle(Event::CopyWritten { mark, len: 1000 });
        server_3_lacks_all_up_to(&mut bench, last);
    }
    let [first, second] = bench.snapshot_reads[..] else { panic!("{:?}", bench.snapshot_reads) };
    bench.sent.clear();
    let read = |number| {
        let result = Ok(vec![b'y'; 1000]);
        Event::SnapshotRead { to: server(3), number, offset: 0, result }
    };
    bench.handle(read(first));
    assert_eq!(bench.sent, []);
    bench.handle(read(second));
    assert_eq!(bench.sent.len(), 1);
}

/// A member that has taken in a snapshot says so once, and that may be lost with the connection.
#[test]
fn a_snapshot_is_announced_again_to_who_answers_on_another_connection() {
    let mut bench = Bench::leader();
    let last = bench.member.last_position();
    let mark = bench.member.begin_copy();
    bench.handle(Event::CopyWritten { mark, len: 0 });
    server_3_lacks_all_up_to(&mut bench, last);
    let sent = |bench: &Bench| {
        let is_it = |log: &&(_, String)| log.1.starts_with("sending snapshot to");
        bench.logs.iter().filter(is_it).count()
    };
    assert_eq!(sent(&bench), 1, "{:?}", bench.logs);
    let link = bench.greet(server(3), Lane::Control);
    for _ in 0..2 {
        bench.say(link, heartbeat_answer());
    }
    assert_eq!(sent(&bench), 2, "{:?}", bench.logs);
}

/// All rows are in memory; without that nobody could join until the file has grown.
#[test]
fn a_leader_that_cannot_read_its_file_for_others_has_it_written_anew() {
    let mut bench = Bench::leader();
    server_3_lacks_all(&mut bench);
    assert!(!bench.is_to_be_rewritten, "it is sent what the file has");

    let mut bench = Bench::leader();
    bench.is_snapshot_unread = true;
    server_3_lacks_all(&mut bench);
    assert!(bench.is_to_be_rewritten, "{:?}", bench.logs);

    let mut bench = leader_with_text_in_file();
    server_3_lacks_one(&mut bench);
    assert!(bench.is_to_be_rewritten, "no text can be read here");
}

/// Server 2 announces a snapshot that ends with this entry.
fn announce(bench: &mut Bench, last: Position) -> LinkId {
    announce_in_term(bench, 3, last)
}

fn announce_in_term(bench: &mut Bench, term: u64, last: Position) -> LinkId {
    let (eid, servers) = (Uuid::from_u128(1), Arc::new(three()));
    let begin = Begin { term, last, eid, servers, election_timer: 1000, len: 4 };
    let link = bench.greet(server(2), Lane::Log);
    bench.frame(link, &Frame::Begin(begin));
    link
}

/// Server 2 sends all of a snapshot.
fn send(bench: &mut Bench, last: Position) -> LinkId {
    send_in_term(bench, 3, last)
}

fn send_in_term(bench: &mut Bench, term: u64, last: Position) -> LinkId {
    let link = announce_in_term(bench, term, last);
    bench.frame(link, &Frame::Piece { last, offset: 0, bytes: b"{}{}".to_vec() });
    link
}

/// The end of the one that is sent says less than the other end waits for, so nothing else would come of
/// the announcement.
#[test]
fn a_snapshot_that_is_announced_while_another_one_takes_the_place_of_the_file_comes_behind_it() {
    let mut bench = Bench::follower();
    let [first, second] = [10, 20].map(|index| Position { term: 3, index });
    bench.is_disk_slow = true;
    send(&mut bench, first);
    announce(&mut bench, second);
    assert_eq!(bench.receiving, [first]);
    bench.sync();
    assert_eq!(bench.receiving, [first, second]);
}

/// The shell is about to be told what takes the place: it must not be told that something else does.
#[test]
fn a_snapshot_that_is_announced_while_a_copy_takes_the_place_of_the_file_comes_behind_that() {
    for is_bad in [false, true] {
        let mut bench = Bench::follower();
        let link = bench.greet(server(2), Lane::Control);
        let Position { term: log_term, index } = bench.member.last_position();
        let (kind, commit) = (APPEND, index);
        bench.say(link, Step { kind, term: 3, log_term, index, commit, ..Step::default() });
        assert_eq!(bench.member.applied(), commit);
        bench.is_disk_slow = true;
        let mark = bench.member.begin_copy();
        bench.is_disk_bad = is_bad;
        bench.handle(Event::CopyWritten { mark, len: 100 });
        let last = Position { term: 3, index: 10 };
        announce(&mut bench, last);
        assert_eq!(bench.receiving, []);
        bench.sync();
        assert_eq!(bench.receiving, [last], "the copy has failed: {is_bad}");
    }
}

/// The leader takes what it announces for being on its way until the member says that it has it.
#[test]
fn a_snapshot_of_what_is_on_its_way_to_the_file_is_taken_if_the_file_refuses_that() {
    for is_bad in [false, true] {
        let mut bench = Bench::follower();
        let link = bench.greet(server(2), Lane::Log);
        let before = bench.member.last_position();
        let last = Position { term: 3, index: before.index + 1 };
        (bench.is_disk_slow, bench.is_disk_bad) = (true, is_bad);
        let entries = vec![data(3, last.index)];
        let Position { term: log_term, index } = before;
        let append = Step { kind: APPEND, term: 3, log_term, index, entries, ..Step::default() };
        bench.say(link, append);
        assert_eq!(bench.member.last_position(), last);
        announce(&mut bench, last);
        assert_eq!(bench.receiving, []);
        bench.sync();
        bench.pass(100);
        let taken = if is_bad { vec![last] } else { vec![] };
        assert_eq!(bench.receiving, taken, "the file refuses it: {is_bad}");
        let answers: BTreeSet<LinkId> = bench.sent.iter().map(|(link, _)| *link).collect();
        let has_all =
            |step: &Step| step.kind == APPEND_REPLY && step.index == last.index && !step.reject;
        let is_told = answers.into_iter().any(|link| steps_sent(&bench, link).iter().any(has_all));
        assert_eq!(is_told, !is_bad);
    }
}

/// One was refused some time ago. What is waited for now is the disk, which says by itself when it is done.
#[test]
fn the_clock_is_not_looked_at_while_what_a_snapshot_says_is_on_its_way_to_the_file() {
    let mut bench = Bench::follower();
    bench.is_disk_bad = true;
    send(&mut bench, Position { term: 3, index: 10 });
    bench.is_disk_bad = false;
    bench.pass(1100);
    let link = bench.greet(server(2), Lane::Log);
    let Position { term: log_term, index } = bench.member.last_position();
    let last = Position { term: 3, index: index + 1 };
    bench.is_disk_slow = true;
    let entries = vec![data(3, last.index)];
    bench.say(link, Step { kind: APPEND, term: 3, log_term, index, entries, ..Step::default() });
    assert_eq!(bench.member.last_position(), last);
    announce(&mut bench, last);
    assert!(bench.member.is_writing());
    assert!(bench.member.wakeup_us() > bench.now_us);
}

/// The shell has nothing left to try again with.
#[test]
fn a_snapshot_that_cannot_take_the_place_of_the_file_is_sent_again() {
    let mut bench = Bench::follower();
    let before = bench.member.last_position();
    let last = Position { term: 3, index: 10 };
    bench.is_disk_bad = true;
    let link = send(&mut bench, last);
    bench.is_disk_bad = false;
    assert_eq!(bench.closed, [link], "the other end hears of it");
    assert_eq!(bench.member.last_position(), before, "what was acknowledged stays");
    // A disk that was full is not filled at the speed of the line.
    announce(&mut bench, last);
    assert_eq!(bench.receiving, [last]);
    bench.pass(900);
    assert_eq!(bench.receiving, [last]);
    bench.pass(200);
    assert_eq!(bench.receiving, [last, last]);
    send(&mut bench, last);
    assert_eq!(bench.member.applied(), last.index);
    bench.check_follows();
}

/// A leader whose disk is full has entries in memory alone, also when the next one sends it a snapshot.
#[test]
fn what_a_leader_could_not_write_is_gone_with_a_snapshot_that_cannot_take_the_place_of_the_file() {
    let mut bench = Bench::leader();
    let before = bench.member.last_position();
    bench.is_disk_bad = true;
    bench.propose(9);
    send_in_term(&mut bench, 4, Position { term: 4, index: 20 });
    assert_eq!((bench.member.term(), bench.member.last_position()), (4, before));
}

/// Who leads knows an old list of entries, or sends those that are lacking after all.
#[test]
fn behind_a_snapshot_that_could_not_take_the_place_of_the_file_entries_are_taken() {
    let mut bench = Bench::follower();
    bench.is_disk_bad = true;
    send(&mut bench, Position { term: 3, index: 10 });
    bench.is_disk_bad = false;
    bench.pass(1100);
    bench.check_follows();
}

/// What waited behind the snapshot is a term and a vote, which are written without it.
#[test]
fn a_vote_behind_a_snapshot_that_could_not_take_the_place_of_the_file_is_kept() {
    let mut bench = Bench::follower();
    bench.pass(600);
    (bench.is_disk_slow, bench.is_disk_bad) = (true, true);
    send(&mut bench, Position { term: 3, index: 10 });
    let link = bench.greet(server(3), Lane::Control);
    // Of a candidate to whom the leader has handed over, so that nobody waits for that to be silent.
    let context = b"CampaignTransfer".to_vec();
    let asks = Step { kind: VOTE_REQUEST, term: 4, log_term: 3, index: 10, ..Step::default() };
    bench.say(link, Step { context, ..asks });
    bench.is_disk_bad = false;
    bench.sync();
    bench.sync();
    let last = bench.written_last.clone();
    let vote = format!("\"vote\":\"{}\"", server(3));
    assert!(last.contains("\"term\":4") && last.contains(&vote), "{last}");
    assert!(!bench.member.is_writing());
}

/// The servers in the snapshot may have gone when the file is opened again, and the leader may not know any more
/// who was about to join.
#[test]
fn a_server_that_joins_has_in_its_file_where_it_was_told_to_ask() {
    let note = |n| format!("\"note\":\"joins at {}\"", address(n));
    let mut bench = Bench::joiner();
    let link = bench.greet_from_address(4);
    let servers = Arc::new([(server(9), address(9))].into());
    let (last, eid) = (Position { term: 3, index: 10 }, Uuid::from_u128(1));
    let begin = Begin { term: 3, last, eid, servers, election_timer: 1000, len: 4 };
    bench.frame(link, &Frame::Begin(begin));
    bench.frame(link, &Frame::Piece { last, offset: 0, bytes: b"{}{}".to_vec() });
    assert_eq!(bench.member.applied(), last.index);
    // Whom an operator has named, and who has sent the snapshot.
    let tail = bench.tail_last.clone();
    assert!(tail.contains(&note(2)) && tail.contains(&note(4)), "{tail}");
    bench.tail_last.clear();
    let mark = bench.member.begin_copy();
    bench.handle(Event::CopyWritten { mark, len: 100 });
    let tail = bench.tail_last.clone();
    assert!(tail.contains(&note(2)) && tail.contains(&note(4)), "{tail}");

    let mut member = Bench::follower();
    send(&mut member, last);
    assert!(!member.tail_last.is_empty() && !member.tail_last.contains("note"));
}

impl Bench {
    /// A server connects that says where it listens.
    fn greet_from_address(&mut self, n: u128) -> LinkId {
        let link = self.accept();
        let (cluster, to, from) = (Some(CLUSTER), Some(server(1)), server(n));
        let (lane, address) = (Some(Lane::Log), Some(address(n)));
        self.hello(link, &Hello { cluster, to, from, address, lane, promised: None });
        link
    }

    /// What was said on a connection of how much of a snapshot is here, since this was asked last.
    fn haves(&mut self, link: LinkId, last: Position) -> Vec<u64> {
        let sent = std::mem::take(&mut self.sent);
        let said = |upto| {
            let mut bytes = vec![];
            Frame::Have { last, upto }.write(&mut bytes);
            bytes
        };
        let upto = |bytes: &Vec<u8>| (0..=40).find(|pieces| said(pieces * PIECE) == *bytes);
        let on_link = sent.iter().filter(|(to, _)| *to == link);
        on_link.filter_map(|(_, bytes)| upto(bytes)).collect()
    }

    pub(super) fn begin(&mut self, last: Position, len: u64) -> LinkId {
        let link = self.greet(server(2), Lane::Log);
        self.begin_on(link, last, len);
        link
    }

    fn begin_on(&mut self, link: LinkId, last: Position, len: u64) {
        let (eid, servers) = (Uuid::from_u128(1), Arc::new(three()));
        let begin = Begin { term: 3, last, eid, servers, election_timer: 1000, len };
        self.frame(link, &Frame::Begin(begin));
    }

    pub(super) fn piece(&mut self, link: LinkId, last: Position, number: u64) {
        let bytes = vec![b'x'; PIECE as usize];
        self.frame(link, &Frame::Piece { last, offset: number * PIECE, bytes });
    }
}

const PIECE: u64 = 256 << 10;

/// A disk that is slower than the network must not have a whole snapshot in memory.
#[test]
fn pieces_of_a_snapshot_are_acknowledged_when_they_are_written() {
    let mut bench = Bench::follower();
    let last = Position { term: 3, index: 10 };
    bench.is_beside_slow = true;
    let link = bench.begin(last, 40 * PIECE);
    assert_eq!(bench.haves(link, last), [], "the file has not begun");
    bench.beside_written();
    assert_eq!(bench.haves(link, last), [0]);
    (0..2).for_each(|number| bench.piece(link, last, number));
    assert_eq!(bench.haves(link, last), []);
    bench.beside_written();
    assert_eq!(bench.haves(link, last), [2]);
    bench.beside_written();
    assert_eq!(bench.haves(link, last), [], "that was said");
    // A sender that does not wait for that is not heard any longer.
    (2..7).for_each(|number| bench.piece(link, last, number));
    assert_eq!(bench.closed, []);
    bench.piece(link, last, 7);
    assert_eq!(bench.closed, [link]);
}

/// From where on the other end is to send must not be what is written by chance: more may have come.
#[test]
fn a_snapshot_goes_on_over_another_connection_behind_all_that_has_come() {
    let mut bench = Bench::follower();
    let last = Position { term: 3, index: 10 };
    let before = bench.begin(last, 40 * PIECE);
    bench.piece(before, last, 0);
    bench.is_beside_slow = true;
    (1..4).for_each(|number| bench.piece(before, last, number));
    let link = bench.begin(last, 40 * PIECE);
    assert_eq!(bench.receiving, [last], "it is the same one");
    assert_eq!(bench.haves(link, last), []);
    let written = Event::SnapshotWritten { last, result: Ok(2 * PIECE) };
    bench.handle(written);
    assert_eq!(bench.haves(link, last), []);
    bench.beside_written();
    assert_eq!(bench.haves(link, last), [4]);
}

/// The sender could not read a piece, say, and begins anew while acknowledgements are on their way: it takes the first
/// one for the answer.
#[test]
fn a_snapshot_that_begins_anew_on_its_connection_goes_on_from_any_acknowledgement() {
    let mut bench = Bench::follower();
    let last = Position { term: 3, index: 10 };
    let link = bench.begin(last, 40 * PIECE);
    (0..2).for_each(|number| bench.piece(link, last, number));
    bench.is_beside_slow = true;
    (2..4).for_each(|number| bench.piece(link, last, number));
    assert_eq!(bench.haves(link, last), [0, 1, 2]);
    bench.begin_on(link, last, 40 * PIECE);
    (1..5).for_each(|number| bench.piece(link, last, number));
    bench.beside_written();
    assert_eq!(bench.haves(link, last), [5]);
    (5..7).for_each(|number| bench.piece(link, last, number));
    bench.beside_written();
    assert_eq!((bench.haves(link, last), bench.receiving.len()), (vec![7], 1));
    // Nothing would ever come of what is behind a gap.
    bench.piece(link, last, 8);
    assert_eq!(bench.closed, [link]);
}

/// Clients are to look for another server when the disk stays full.
#[test]
fn who_cannot_keep_a_snapshot_for_an_election_timer_says_that_it_is_not_connected() {
    let mut bench = Bench::follower();
    let last = Position { term: 3, index: 10 };
    let mut said = vec![];
    for _ in 0..3 {
        bench.begin(last, 40 * PIECE);
        let result = Err("No space left on device".to_owned());
        bench.handle(Event::SnapshotWritten { last, result });
        for _ in 0..6 {
            bench.pass(100);
            let link = bench.greet(server(2), Lane::Control);
            bench.say(link, Step { kind: HEARTBEAT, term: 3, ..Step::default() });
        }
        said.push(bench.member.is_connected());
    }
    assert_eq!(said, [true, false, false]);
    let status = bench.member.status();
    assert!(status.contains("from the cluster (snapshot cannot be written)"), "{status}");
    bench.pass(500);
    send(&mut bench, last);
    assert!(bench.member.is_connected());
}

/// A large one takes its time, and the leader goes on meanwhile.
#[test]
fn who_makes_tables_of_a_snapshot_is_not_starved() {
    let mut bench = Bench::follower();
    bench.is_loading_slow = true;
    let last = Position { term: 3, index: 10 };
    send(&mut bench, last);
    let link = bench.greet(server(2), Lane::Control);
    for _ in 0..100 {
        bench.pass(100);
        bench.say(link, Step { kind: HEARTBEAT, term: 3, synced: 12, ..Step::default() });
        assert!(bench.member.is_connected(), "{}", bench.member.status());
    }
    bench.handle(Event::SnapshotLoaded { last, result: Ok(()) });
    assert_eq!((bench.member.applied(), bench.member.is_connected()), (10, true));
}

/// Nor is all of it sent to a disk that is full, again and again.
#[test]
fn a_snapshot_that_cannot_be_written_is_refused_at_once_and_taken_a_second_later() {
    let mut bench = Bench::follower();
    let last = Position { term: 3, index: 10 };
    let link = bench.begin(last, 40 * PIECE);
    bench.piece(link, last, 0);
    let result = Err("No space left on device".to_owned());
    bench.handle(Event::SnapshotWritten { last, result });
    assert_eq!(bench.closed, [link]);
    let link = bench.begin(last, 40 * PIECE);
    bench.pass(900);
    assert_eq!((bench.haves(link, last), bench.receiving.len()), (vec![], 1));
    bench.pass(200);
    assert_eq!((bench.haves(link, last), bench.receiving.len()), (vec![0], 2));
}

//! What of the file is read for others, and what comes, while another file takes its place.

use std::sync::Arc;

use weir_data::Uuid;

use super::bench::{APPEND_REPLY, Bench, server, three};
use crate::wire::{Begin, Frame, Lane, Step};
use crate::{Event, LinkId, Position, Proposal};

fn acknowledge(bench: &mut Bench, link: LinkId, at: Position) {
    let Position { term, index } = at;
    bench.say(link, Step { kind: APPEND_REPLY, term, index, ..Step::default() });
}

/// A leader whose file alone has the text of an entry, and server 3 lacks that.
fn leader_with_text_in_file() -> Bench {
    let mut bench = Bench::leader();
    let proposal = Proposal { eid: Uuid::from_u128(9), text: (*b"[null,{}]").into() };
    let at = bench.member.propose(bench.now_us, vec![proposal]).expect("it leads");
    bench.handle(Event::Tick);
    let link = bench.greet(server(2), Lane::Control);
    acknowledge(&mut bench, link, at);
    assert_eq!(bench.member.applied(), at.index);
    bench
}

/// Server 3 says that it has all but that entry.
fn server_3_lacks_one(bench: &mut Bench) {
    let (link, last) = (bench.greet(server(3), Lane::Control), bench.member.last_position());
    acknowledge(bench, link, Position { index: last.index - 1, ..last });
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

/// The end of the one that is sent says less than the other end waits for, so nothing else would come of
/// the announcement.
#[test]
fn a_snapshot_that_is_announced_while_another_one_takes_the_place_of_the_file_comes_behind_it() {
    let mut bench = Bench::follower();
    let [first, second] = [10, 20].map(|index| Position { term: 3, index });
    let announce = |bench: &mut Bench, last| {
        let (eid, servers) = (Uuid::from_u128(1), Arc::new(three()));
        let begin = Begin { term: 3, last, eid, servers, election_timer: 1000, len: 4 };
        let link = bench.greet(server(2), Lane::Log);
        bench.frame(link, &Frame::Begin(begin));
        link
    };
    bench.is_disk_slow = true;
    let link = announce(&mut bench, first);
    bench.frame(link, &Frame::Piece { last: first, offset: 0, bytes: b"{}{}".to_vec() });
    announce(&mut bench, second);
    assert_eq!(bench.receiving, [first]);
    bench.sync();
    assert_eq!(bench.receiving, [first, second]);
}

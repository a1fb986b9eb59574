//! Files that say what no server writes.

use super::bench::{Bench, CLUSTER, HEARTBEAT, address, server};
use crate::wire::{Frame, Hello, Lane, Step};
use crate::{Content, Held, Logged, Opened, Position};

#[test]
fn a_member_does_not_begin_with_what_is_out_of_bounds() {
    let good = Bench::file();
    assert_eq!(good.check(), Ok(()));
    let is_refused = |bad: Opened, why: &str| {
        assert_eq!(bad.check().unwrap_err(), format!("{why} out of bounds"));
    };
    // A negative number in a record.
    let newest = Opened { term: u64::MAX, ..good.clone() };
    is_refused(newest, "snapshot up to 1:1 in term 18446744073709551615 is");
    let snapshot = Position { term: 0, index: 7 };
    is_refused(Opened { snapshot, ..good.clone() }, "snapshot up to 0:7 in term 2 is");
    for ms in [1, 99, 600_001, u64::MAX] {
        let timer = format!("election timer of {ms} ms is");
        is_refused(Opened { snapshot_timer: ms, ..good.clone() }, &timer);
        let (at, held) = (Position { term: 2, index: 7 }, Held::Here(Content::ElectionTimer(ms)));
        let mut later = good.clone();
        later.entries.push(Logged { at, held, place: None });
        is_refused(later, &timer);
    }
    let mut of_no_term = good;
    of_no_term.entries[0].at.term = 0;
    is_refused(of_no_term, "entry 0:2 is");
}

/// With a record behind it that says how much is on the disk, damage may look like what a power failure leaves, and
/// the server vote as who it was.
#[test]
fn who_joins_anew_leaves_its_damaged_file_as_it_is() {
    let mut bench = Bench::open(Bench::file().anew(server(9), vec![address(2)]));
    let link = bench.accept();
    let (cluster, to) = (Some(CLUSTER), Some(server(9)));
    let (address, lane) = (Some(address(2)), Some(Lane::Control));
    bench.hello(link, &Hello { cluster, to, from: server(2), address, lane, promised: None });
    bench.say(link, Step { kind: HEARTBEAT, term: 5, ..Step::default() });
    assert_eq!((bench.member.term(), bench.written_last.as_str()), (5, ""));
    let comment = "completed".into();
    bench.frame(link, &Frame::RemoveReply { server: server(9), success: true, comment });
    assert!(bench.has_forgotten, "it joins as yet another one");
    assert_eq!(bench.written_last, "");
}

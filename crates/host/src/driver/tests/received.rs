//! Files that come from elsewhere, in pieces, into the place of a database's file.

use std::os::unix::fs::PermissionsExt;

use weir_server::effect::Step;

use super::*;

fn begin(head: &str) -> Effect {
    Effect::BeginReceived { db: DB, head: head.as_bytes().to_vec() }
}

fn write(offset: u64, text: &str) -> Effect {
    Effect::WriteReceived { db: DB, offset, bytes: text.as_bytes().to_vec() }
}

fn patch(offset: u64, text: &str) -> Effect {
    Effect::PatchReceived { db: DB, offset, bytes: text.as_bytes().to_vec() }
}

const SYNC: Effect = Effect::SyncReceived { db: DB };
const DISCARD: Effect = Effect::DiscardCopy { db: DB };

impl Stand {
    /// What so many of these effects are answered with: how long the file is, or what failed.
    fn received(&mut self, count: usize) -> Vec<Result<u64, String>> {
        let events = self.until(|events| events.len() >= count);
        assert_eq!(events.len(), count, "{events:?}");
        let answer = |event| match event {
            Event::ReceivedWritten { db: DB, upto, result } => result.map(|()| upto),
            Event::ReceivedSynced { db: DB, result } => result,
            other => panic!("{other:?}"),
        };
        events.into_iter().map(answer).collect()
    }

    /// Rounds until helpers have nothing to do; nothing happens.
    fn rest(&mut self) {
        while let Some(done) = self.execution.jobs.wait() {
            self.execution.take_done(done);
        }
        assert!(self.execution.events.is_empty(), "{:?}", self.execution.events);
    }
}

#[test]
fn what_has_come_takes_the_files_place() {
    let (mut stand, _) = Stand::with_database("received");
    let path = stand.path("conf.db");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    std::fs::write(stand.path("conf.db.tmp"), "stale").unwrap();
    let old = std::fs::read_to_string(&path).unwrap();
    let big = "b".repeat(3 << 20);
    stand.execute([begin("size ???\n"), write(9, "a"), write(10, &big)]);
    stand.execute([patch(5, "big"), SYNC]);
    let all = 10 + big.len() as u64;
    assert_eq!(stand.received(5), [Ok(9), Ok(10), Ok(all), Ok(all), Ok(all)]);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), old, "not before it is wanted");
    let step = Some(Step { number: 1, behind: Some(0) });
    let tail = b"tail\n".to_vec();
    stand.execute([Effect::FinishCompaction { db: DB, tail, sync: true, step }]);
    let Event::CompactionFinished { result: Ok(size), .. } = stand.next() else { panic!() };
    assert_eq!(size, all + 5);
    let expected = format!("size big\na{big}tail\n");
    assert!(std::fs::read_to_string(&path).unwrap() == expected);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(!stand.path("conf.db.tmp").exists());
}

#[test]
fn a_piece_out_of_order_spoils_it() {
    for (piece, expected) in [
        (write(5, "x"), "gap"),
        (write(3, "x"), "twice"),
        (patch(3, "xy"), "behind the end"),
        (patch(u64::MAX, "x"), "far behind it"),
    ] {
        let (mut stand, _) = Stand::with_database("disorder");
        stand.execute([begin("head"), piece, write(4, "x"), SYNC]);
        let answers = stand.received(4);
        assert_eq!(answers[0], Ok(4));
        assert!(answers[1].is_err(), "{expected}");
        assert_eq!(answers[2..], [answers[1].clone(), answers[1].clone()], "{expected}");
        stand.execute([DISCARD]);
        assert!(!stand.path("conf.db.tmp").exists());
    }
}

#[test]
fn of_one_that_is_given_up_nothing_is_heard_and_nothing_stays() {
    let (mut stand, _) = Stand::with_database("begun-anew");
    let piece = "x".repeat(2 << 20);
    stand.execute([begin("old"), write(3, &piece), begin("new"), write(3, "er"), SYNC]);
    assert_eq!(stand.received(3), [Ok(3), Ok(5), Ok(5)]);
    stand.rest();
    assert_eq!(std::fs::read_to_string(stand.path("conf.db.tmp")).unwrap(), "newer");
    stand.execute([begin("third"), DISCARD]);
    stand.rest();
    assert!(!stand.path("conf.db.tmp").exists());
    // Told by the helper, not yet to the core.
    stand.execute([begin("fourth")]);
    while let Some(done) = stand.execution.jobs.wait() {
        stand.execution.take_done(done);
    }
    assert_eq!(stand.execution.events.len(), 1);
    stand.execute([DISCARD]);
    stand.rest();
    stand.execute([begin("fifth"), write(5, &piece), Effect::Close { db: DB }]);
    stand.rest();
    assert!(!stand.path("conf.db.tmp").exists());
}

#[test]
fn a_copy_that_a_helper_is_at_gives_way() {
    let (mut stand, schema) = Stand::with_database("gives-way");
    let compact = |comment: &str| {
        let snapshot = weir_data::Store::new(Arc::clone(&schema), 1).snapshot();
        let (comment, date_ms) = (comment.to_owned(), 1);
        Effect::Compact { db: DB, snapshot, comment, date_ms, history: None, member: None }
    };
    stand.execute([compact("given up"), begin("new"), SYNC]);
    assert_eq!(stand.received(2), [Ok(3), Ok(3)]);
    stand.rest();
    assert_eq!(std::fs::read_to_string(stand.path("conf.db.tmp")).unwrap(), "new");
    stand.execute([compact("given up, too"), DISCARD]);
    assert!(!stand.path("conf.db.tmp").exists());
    stand.rest();
    assert!(!stand.path("conf.db.tmp").exists());
    stand.execute([compact("given up at last"), DISCARD, compact("the last one")]);
    let event = stand.next();
    assert!(matches!(event, Event::CompactionWritten { result: Ok(_), .. }), "{event:?}");
    stand.rest();
    let copy = std::fs::read_to_string(stand.path("conf.db.tmp")).unwrap();
    assert!(copy.contains("the last one"), "{copy}");
}

#[test]
fn where_no_file_can_be_written_the_answers_say_so() {
    let (mut stand, _) = Stand::with_database("no-place");
    std::fs::create_dir(stand.path("conf.db.tmp")).unwrap();
    stand.execute([begin("head"), write(4, "x"), SYNC]);
    let error = || Err("Is a directory".to_owned());
    assert_eq!(stand.received(3), [error(), error(), error()]);
}

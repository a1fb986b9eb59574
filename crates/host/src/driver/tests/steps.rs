//! Steps of a file that is read while it is written and replaced, on disks that fail.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;

use weir_data::Store;
use weir_server::effect::{READ_FILE_BYTES_MAX, Step};
use weir_server::event::{SyncTime, WorkId};

use super::*;
use crate::driver::files::jobs::Done;

fn persist(number: u64, behind: u64, text: &str, sync: bool) -> Effect {
    let step = Step { number, behind: Some(behind) };
    Effect::Persist {
        db: DB,
        step,
        bytes: Arc::new(text.as_bytes().to_vec()),
        sync,
        is_urgent: false,
    }
}

fn read(id: u64, offset: u64, len: u64) -> Effect {
    Effect::ReadFile { db: DB, id: WorkId(id), offset, len }
}

/// A file that takes writes as this device does.
fn device(name: &str) -> File {
    OpenOptions::new().read(true).write(true).open(name).unwrap()
}

impl Stand {
    /// The answers to so many steps, and nothing else happens.
    fn answers(&mut self, count: usize) -> Vec<(u64, Result<SyncTime, String>)> {
        let events = self.until(|events| events.len() >= count);
        assert_eq!(events.len(), count, "{events:?}");
        let answer = |event| match event {
            Event::Persisted { db: DB, step, result } => (step, result),
            other => panic!("{other:?}"),
        };
        events.into_iter().map(answer).collect()
    }

    /// Has a helper write a copy without rows.
    fn copy(&mut self, schema: &Arc<Schema>) {
        let snapshot = Store::new(Arc::clone(schema), 1).snapshot();
        let (comment, date_ms) = ("copy".to_owned(), 1);
        self.execute([Effect::Compact {
            db: DB,
            snapshot,
            comment,
            date_ms,
            history: None,
            member: None,
        }]);
        let event = self.next();
        assert!(matches!(event, Event::CompactionWritten { result: Ok(_), .. }), "{event:?}");
    }

    /// The next pieces that are read, whatever else happens.
    fn pieces(&mut self, count: usize) -> Vec<(u64, Result<String, String>)> {
        let is_piece = |event: &&Event| matches!(event, Event::FileRead { db: DB, .. });
        let events = self.until(|events| events.iter().filter(is_piece).count() >= count);
        let piece = |event| match event {
            Event::FileRead { id, result, .. } => {
                Some((id.0, result.map(|bytes| String::from_utf8(bytes).unwrap())))
            }
            _ => None,
        };
        events.into_iter().filter_map(piece).collect()
    }
}

fn extend(records: &str) -> Effect {
    Effect::ExtendCopy { db: DB, records: records.as_bytes().to_vec() }
}

fn finish(tail: &str, step: u64) -> Effect {
    let step = Some(Step { number: step, behind: None });
    Effect::FinishCompaction { db: DB, tail: tail.as_bytes().to_vec(), sync: false, step }
}

#[test]
fn steps_are_written_at_once_and_share_what_waits_for_the_disk() {
    let (mut stand, _) = Stand::with_database("steps");
    stand.execute((1..=10).map(|number| persist(number, number - 1, "x\n", true)));
    assert_eq!(stand.records(), "x\n".repeat(10));
    let answers = stand.answers(10);
    assert!(answers.iter().map(|(step, _)| *step).eq(1..=10), "{answers:?}");
    assert!(answers.iter().all(|(_, result)| result.is_ok()), "{answers:?}");
    assert_eq!(stand.count(Counter::Syncs), 2, "one for the first, one for the others");
    assert_eq!(stand.count(Counter::Appends), 10);
}

#[test]
fn what_need_not_be_on_the_disk_is_answered_at_once_but_in_order() {
    let (mut stand, _) = Stand::with_database("unsynced");
    stand.execute([persist(1, 0, "a\n", false)]);
    assert_eq!(stand.answers(1), [(1, Ok(SyncTime(0)))]);
    assert_eq!(stand.count(Counter::Syncs), 0);
    stand.execute([persist(2, 1, "b\n", true), persist(3, 2, "c\n", false)]);
    assert!(stand.execution.events.is_empty(), "{:?}", stand.execution.events);
    let answers = stand.answers(2);
    assert!(matches!(answers[..], [(2, Ok(_)), (3, Ok(SyncTime(0)))]), "{answers:?}");
    assert_eq!(stand.records(), "a\nb\nc\n");
}

#[test]
fn a_full_disk_takes_back_the_step_and_all_behind_it() {
    let (mut stand, _) = Stand::with_database("full");
    stand.execute([persist(1, 0, "a\n", true)]);
    let good = stand.execution.databases().exchange(DB, device("/dev/full"));
    stand.execute([persist(2, 1, "b\n", true)]);
    stand.execution.databases().exchange(DB, good);
    // There is room again, but not for what stands on the one that is missing.
    stand.execute([persist(3, 2, "c\n", false), persist(4, 1, "d\n", true)]);
    let full = || Err("No space left on device".to_owned());
    let answers = stand.answers(4);
    assert!(matches!(answers[0], (1, Ok(_))) && matches!(answers[3], (4, Ok(_))), "{answers:?}");
    assert_eq!(answers[1..3], [(2, full()), (3, full())]);
    assert_eq!(stand.records(), "a\nd\n");
}

#[test]
fn behind_a_failed_fdatasync_the_file_is_suspect_until_a_copy_takes_its_place() {
    let (mut stand, schema) = Stand::with_database("suspect");
    let good = stand.execution.databases().exchange(DB, device("/dev/null"));
    stand.execute([persist(1, 0, "a\n", true), persist(2, 1, "b\n", true)]);
    let events = stand.until(|events| events.len() >= 3);
    let bad = "Invalid argument";
    let expected = format!(
        "[FileSuspect {{ db: {DB:?} }}, Persisted {{ db: {DB:?}, step: 1, result: Err({bad:?}) }}, \
         Persisted {{ db: {DB:?}, step: 2, result: Err({bad:?}) }}]"
    );
    assert_eq!(format!("{events:?}"), expected);
    stand.execution.databases().exchange(DB, good);
    stand.execute([persist(3, 2, "c\n", true)]);
    assert_eq!(stand.answers(1), [(3, Err("Input/output error".to_owned()))]);
    stand.copy(&schema);
    stand.execute([finish("tail\n", 4), persist(5, 4, "d\n", true)]);
    let events = stand.until(|events| events.len() >= 2);
    let [
        Event::CompactionFinished { result: Ok(_), .. },
        Event::Persisted { step: 5, result: Ok(_), .. },
    ] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert!(stand.records().ends_with("\ntail\nd\n"), "{}", stand.records());
}

#[test]
fn a_copy_that_takes_the_files_place_answers_the_steps_that_it_has() {
    let (mut stand, schema) = Stand::with_database("copy");
    stand.copy(&schema);
    stand.execute([
        persist(1, 0, "a\n", true),
        persist(2, 1, "b\n", true),
        finish("a\nb\n", 3),
        persist(4, 2, "lost\n", true),
    ]);
    let events = stand.until(|events| events.len() >= 4);
    let [
        Event::Persisted { step: 1, result: Ok(_), .. },
        Event::Persisted { step: 2, result: Ok(_), .. },
        Event::CompactionFinished { result: Ok(_), .. },
        Event::Persisted { step: 4, result: Err(error), .. },
    ] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!(error, "an earlier step is not in the file");
    // What comes of the old file's fdatasync(2) concerns nobody.
    stand.execute([persist(5, 3, "c\n", true)]);
    assert!(matches!(stand.answers(1)[..], [(5, Ok(_))]));
    assert!(stand.records().ends_with("\na\nb\nc\n"), "{}", stand.records());
}

#[test]
fn a_copy_that_the_directory_may_not_show_is_not_in_place_yet() {
    let (mut stand, schema) = Stand::with_database("directory");
    stand.copy(&schema);
    let good = stand.execution.databases().exchange_directory(DB, Some(unsyncable()));
    stand.execute([
        persist(1, 0, "a\n", true),
        finish("a\n", 2),
        persist(3, 2, "b\n", true),
        persist(4, 3, "c\n", false),
    ]);
    assert!(stand.records().ends_with("\na\nb\nc\n"), "{}", stand.records());
    // After a power failure the old file might be there, without what follows the copy.
    assert!(stand.round().is_empty() && stand.round().is_empty());
    stand.execution.databases().exchange_directory(DB, good);
    let events = stand.until(|events| events.len() >= 4);
    let [
        Event::Persisted { step: 1, result: Ok(_), .. },
        Event::CompactionFinished { result: Ok(_), .. },
        Event::Persisted { step: 3, result: Ok(_), .. },
        Event::Persisted { step: 4, result: Ok(_), .. },
    ] = &events[..]
    else {
        panic!("{events:?}")
    };
}

#[test]
fn the_first_fdatasync_of_a_new_file_fails_behind_what_put_it_in_place() {
    let (mut stand, schema) = Stand::with_database("directory-suspect");
    stand.copy(&schema);
    let good = stand.execution.databases().exchange_directory(DB, Some(unsyncable()));
    stand.execute([persist(1, 0, "a\n", true), finish("a\n", 2), persist(3, 2, "b\n", true)]);
    assert!(stand.round().is_empty());
    // The directory was what was waited for, then the file.
    let failed = Done::Synced(DB, 1, Err("Input/output error".to_owned()));
    stand.execution.take_done(failed);
    let events = stand.round();
    let [
        Event::Persisted { step: 1, result: Err(_), .. },
        Event::CompactionFinished { result: Ok(_), .. },
        Event::FileSuspect { .. },
        Event::Persisted { step: 3, result: Err(_), .. },
    ] = &events[..]
    else {
        panic!("{events:?}")
    };
    stand.execution.databases().exchange_directory(DB, good);
}

#[test]
fn a_directory_that_knows_no_sync_holds_up_nobody() {
    let (mut stand, schema) = Stand::with_database("directory-none");
    stand.copy(&schema);
    // fsync(2) says EINVAL.
    stand.execution.databases().exchange_directory(DB, Some(device("/dev/null")));
    stand.execute([finish("a\n", 2)]);
    assert!(matches!(stand.next(), Event::CompactionFinished { result: Ok(_), .. }));
}

/// A file of which fsync(2) says `EBADF`.
fn unsyncable() -> File {
    let flags = libc::O_PATH;
    OpenOptions::new().read(true).custom_flags(flags).open("/").expect("a directory")
}

#[test]
fn what_fails_on_the_old_file_says_nothing_of_the_new_one() {
    let (mut stand, schema) = Stand::with_database("old-fails");
    stand.copy(&schema);
    stand.execution.databases().exchange(DB, device("/dev/null"));
    stand.execute([persist(1, 0, "a\n", true), finish("a\n", 2)]);
    stand.until(|events| events.len() >= 2);
    while let Some(done) = stand.execution.jobs.wait() {
        stand.execution.take_done(done);
    }
    assert!(stand.round().is_empty());
    stand.execute([persist(3, 2, "b\n", true)]);
    assert!(matches!(stand.answers(1)[..], [(3, Ok(_))]));
    assert!(stand.records().ends_with("\na\nb\n"), "{}", stand.records());
}

#[test]
fn a_step_of_its_own_that_follows_nothing_puts_no_copy_in_place() {
    let (mut stand, schema) = Stand::with_database("copy-behind");
    stand.copy(&schema);
    let step = Some(Step { number: 9, behind: Some(8) });
    stand.execute([Effect::FinishCompaction { db: DB, tail: vec![], sync: true, step }]);
    let event = stand.next();
    assert!(matches!(event, Event::CompactionFinished { result: Err(_), .. }), "{event:?}");
    assert_eq!(stand.records(), "");
    // When what comes before it could be written, it is tried again.
    let step = Some(Step { number: 10, behind: Some(0) });
    stand.execute([Effect::FinishCompaction { db: DB, tail: b"a\n".to_vec(), sync: true, step }]);
    let event = stand.next();
    assert!(matches!(event, Event::CompactionFinished { result: Ok(_), .. }), "{event:?}");
    assert!(stand.records().ends_with("\na\n"), "{}", stand.records());
    assert!(!stand.path("conf.db.tmp").exists());
    // That one is lost, and nothing else is.
    let step = Some(Step { number: 11, behind: Some(10) });
    stand.execute([Effect::FinishCompaction { db: DB, tail: vec![], sync: true, step }]);
    let event = stand.next();
    assert!(matches!(event, Event::CompactionFinished { result: Err(_), .. }), "{event:?}");
}

#[test]
fn a_copy_is_extended_while_steps_go_to_the_file_that_is_there() {
    let (mut stand, schema) = Stand::with_database("extended");
    stand.copy(&schema);
    stand.execute([extend("a\n"), persist(1, 0, "a\n", true)]);
    let mut len = 0;
    let events = stand.until(|events| events.len() >= 2);
    for event in events {
        match event {
            Event::CompactionWritten { result, .. } => len = result.unwrap(),
            Event::Persisted { step: 1, result: Ok(_), .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(len, std::fs::metadata(stand.path("conf.db.tmp")).unwrap().len());
    stand.execute([finish("b\n", 2)]);
    assert!(
        matches!(stand.next(), Event::CompactionFinished { result: Ok(end), .. } if end == len + 2)
    );
    assert!(stand.records().ends_with("\na\nb\n"), "{}", stand.records());
    // There is none any more.
    stand.execute([extend("c\n")]);
    assert!(matches!(stand.next(), Event::CompactionWritten { result: Err(_), .. }));
}

#[test]
fn a_copy_that_is_given_up_while_it_is_extended_takes_no_place() {
    let (mut stand, schema) = Stand::with_database("extended-in-vain");
    stand.copy(&schema);
    stand.execute([extend("a\n"), Effect::DiscardCopy { db: DB }]);
    while let Some(done) = stand.execution.jobs.wait() {
        stand.execution.take_done(done);
    }
    assert!(stand.round().is_empty());
    assert!(!stand.path("conf.db.tmp").exists());
    stand.execute([finish("", 1)]);
    assert!(matches!(stand.next(), Event::CompactionFinished { result: Err(_), .. }));
}

#[test]
fn a_piece_is_read_of_the_file_as_it_was() {
    let (mut stand, schema) = Stand::with_database("pieces");
    let start = std::fs::metadata(stand.path("conf.db")).unwrap().len();
    stand.execute([persist(1, 0, "0123456789\n", false)]);
    stand.answers(1);
    let cut = || Err("Unexpected end of file".to_owned());
    stand.execute([read(1, start + 2, 4), read(2, start, 12), persist(2, 1, "late\n", false)]);
    assert_eq!(stand.pieces(2), [(1, Ok("2345".to_owned())), (2, cut())]);
    stand.copy(&schema);
    let head = || Ok("OVSDB JSON".to_owned());
    stand.execute([read(3, start, 16), finish("", 3), read(4, 0, 10)]);
    assert_eq!(stand.pieces(2), [(3, Ok("0123456789\nlate\n".to_owned())), (4, head())]);
    stand.execute([read(5, u64::MAX, READ_FILE_BYTES_MAX), read(6, 0, 0)]);
    assert_eq!(stand.pieces(2), [(5, cut()), (6, Ok(String::new()))]);
    // Nobody waits for what a closed file has.
    stand.execute([read(7, 0, 5), persist(4, 3, "x\n", true), Effect::Close { db: DB }]);
    while stand.execution.jobs.wait().is_some() {}
    assert!(stand.round().is_empty());
}

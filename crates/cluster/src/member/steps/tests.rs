//! Steps that are written, fail, are written again, and what waits for them.

use super::*;

const NOW: u64 = 5_000_000;

fn entry(index: u64) -> Entry {
    let content = crate::Content::Empty;
    Entry { at: Position { term: 1, index }, content }
}

/// Writes one entry; answers with the effect.
fn write(steps: &mut Steps, number: u64) -> Option<Effect> {
    match steps.write(number, None, &[entry(number)], None, NOW) {
        Written::Step(effect) => effect,
        other => panic!("an entry is written: {other:?}"),
    }
}

/// Which step an effect is, and which one it follows.
fn place(effect: Option<Effect>) -> (u64, u64) {
    match effect {
        Some(Effect::Persist { step, behind, .. }) => (step, behind),
        other => panic!("a step is written: {other:?}"),
    }
}

fn acknowledgement(n: u8) -> (Uuid, Step) {
    (Uuid::default(), Step { kind: n, ..Step::default() })
}

/// Which acknowledgements leave.
fn kinds(persisted: &Persisted) -> Vec<u8> {
    persisted.acknowledgements.iter().map(|(_, step)| step.kind).collect()
}

#[test]
fn each_step_names_the_one_before() {
    let mut steps = Steps::default();
    assert_eq!(place(write(&mut steps, 1)), (1, 0));
    assert_eq!(place(write(&mut steps, 2)), (2, 1));
    let persisted = steps.persisted(1, 10).expect("it was waited for");
    assert_eq!(persisted.number, 1);
    assert_eq!(place(write(&mut steps, 3)), (3, 2));
    assert!(steps.is_waiting());
}

#[test]
fn acknowledgements_leave_with_the_step_that_they_wait_for() {
    let mut steps = Steps::default();
    write(&mut steps, 1);
    steps.wait(vec![acknowledgement(1)]);
    write(&mut steps, 2);
    steps.wait(vec![acknowledgement(2)]);
    // A round with nothing to write waits for what is under way.
    assert!(matches!(steps.write(3, None, &[], None, NOW), Written::Behind));
    steps.wait(vec![acknowledgement(3)]);
    assert_eq!(kinds(&steps.persisted(1, 10).expect("waited for")), [1]);
    let last = steps.persisted(2, 10).expect("waited for");
    assert_eq!((kinds(&last), last.number), (vec![2, 3], 3));
    assert!(matches!(steps.write(4, None, &[], None, NOW), Written::Nothing));
}

#[test]
fn what_fails_is_written_again_under_new_numbers() {
    let mut steps = Steps::default();
    write(&mut steps, 1);
    write(&mut steps, 2);
    steps.persisted(1, 10);
    assert!(steps.failed(2, NOW).is_news);
    assert!(steps.is_failing());
    assert_eq!(write(&mut steps, 3), None, "nothing is written behind what failed");
    assert!(steps.again(NOW).is_empty(), "it is not time yet");
    let again = steps.again(NOW + AGAIN_US);
    let places: Vec<(u64, u64)> = again.into_iter().map(|effect| place(Some(effect))).collect();
    assert_eq!(places, [(4, 1), (5, 4)]);
    assert!(steps.persisted(2, 10).is_none(), "the number is of the past");
    assert_eq!(steps.persisted(4, 10).expect("waited for").number, 2);
    assert_eq!(steps.persisted(5, 10).expect("waited for").number, 3);
    assert!(!steps.is_waiting() && !steps.is_failing());
}

#[test]
fn only_the_first_failure_is_news() {
    let mut steps = Steps::default();
    write(&mut steps, 1);
    write(&mut steps, 2);
    assert!(steps.failed(1, NOW).is_news);
    assert!(!steps.failed(2, NOW).is_news);
    assert!(!steps.failed(9, NOW).is_news, "a step that nobody waits for");
    assert_eq!(steps.again(NOW + AGAIN_US).len(), 2);
    assert!(!steps.failed(3, NOW + AGAIN_US).is_news, "it goes on failing");
    assert!(steps.is_failing_for(AGAIN_US, NOW + AGAIN_US + 1));
    assert!(!steps.is_failing_for(AGAIN_US, NOW + AGAIN_US));
    assert_eq!(steps.again(NOW + 2 * AGAIN_US).len(), 2);
    assert!(steps.persisted(5, 10).expect("waited for").has_recovered);
    assert!(!steps.persisted(6, 10).expect("waited for").has_recovered, "that was said");
    assert!(!steps.is_failing_for(0, NOW + 3 * AGAIN_US));
}

#[test]
fn a_commit_index_waits_for_something_to_go_with() {
    let mut steps = Steps::default();
    assert!(matches!(steps.write(1, None, &[], Some(7), NOW), Written::Nothing));
    assert_eq!(steps.write_commit_if_old(NOW + COMMIT_US - 1), None);
    let Some(Effect::Persist { bytes, sync, .. }) = steps.write_commit_if_old(NOW + COMMIT_US)
    else {
        panic!("an old commit index is written by itself")
    };
    assert!(!sync, "nothing depends on it");
    assert!(String::from_utf8_lossy(&bytes).contains("\"commit_index\":7"));
    assert_eq!(steps.write_commit_if_old(NOW + 9 * COMMIT_US), None);
}

/// The effect of a term and a vote, with what waits for it.
fn vote(steps: &mut Steps, number: u64, term: u64) -> Option<Effect> {
    let written = steps.write(number, Some((term, None)), &[], None, NOW);
    steps.wait(vec![acknowledgement(4), acknowledgement(2)]);
    match written {
        Written::Step(effect) => effect,
        other => panic!("a term is written: {other:?}"),
    }
}

#[test]
fn a_vote_does_not_wait_behind_entries_that_are_refused() {
    let mut steps = Steps::default();
    write(&mut steps, 1);
    steps.persisted(1, 10);
    write(&mut steps, 2);
    write(&mut steps, 3);
    assert!(!steps.may_give_up(), "they may yet be written");
    steps.failed(2, NOW);
    assert_eq!(vote(&mut steps, 4, 7), None);
    assert!(steps.may_give_up());
    let effect = steps.give_up((7, None), 1, |step| step.kind == 4, NOW).pop();
    let Some(Effect::Persist { step: 5, behind: 1, bytes, sync: true, is_urgent: true }) = effect
    else {
        panic!("the term is written behind what is there: {effect:?}")
    };
    assert!(String::from_utf8_lossy(&bytes).contains("\"term\":7"));
    assert!(!steps.failed(3, NOW).is_news, "nobody waits for it any more");
    let persisted = steps.persisted(5, 10).expect("waited for");
    assert_eq!((kinds(&persisted), persisted.number), (vec![4], 0));
    assert!(!persisted.has_recovered, "a short record says nothing of entries");
    assert!(steps.is_failing() && steps.is_closed(NOW + AGAIN_US - 1));
    assert!(!steps.is_closed(NOW + AGAIN_US), "the next entries are tried");
    assert_eq!(place(write(&mut steps, 1)), (6, 5));
    assert!(steps.persisted(6, 10).expect("waited for").has_recovered);
    assert!(!steps.is_failing());
}

#[test]
fn a_vote_that_is_refused_is_tried_again() {
    let mut steps = Steps::default();
    vote(&mut steps, 1, 7);
    steps.failed(1, NOW);
    assert!(!steps.may_give_up());
    assert_eq!(steps.again(NOW + AGAIN_US).len(), 1);
    assert!(steps.persisted(2, 10).expect("waited for").has_recovered);
}

#[test]
fn a_commit_index_that_is_refused_shows_later_that_there_is_room() {
    let mut steps = Steps::default();
    steps.write(1, None, &[], Some(7), NOW);
    steps.write_commit_if_old(NOW + COMMIT_US);
    steps.failed(1, NOW);
    assert!(steps.may_give_up());
    assert!(steps.give_up((1, None), 7, |_| true, NOW).is_empty());
    assert_eq!(place(steps.write_commit_if_old(NOW + COMMIT_US)), (2, 0));
    assert!(steps.persisted(2, 10).expect("waited for").has_recovered);
}

/// What is appended next, by itself or with an entry.
fn commit_of(effect: Option<Effect>) -> (String, bool) {
    let Some(Effect::Persist { bytes, sync, .. }) = effect else { panic!("{effect:?}") };
    (String::from_utf8_lossy(&bytes).into_owned(), sync)
}

#[test]
fn a_commit_index_of_servers_that_is_refused_is_synced_later() {
    let mut steps = Steps::default();
    steps.write(1, None, &[], Some(7), NOW);
    let first = steps.write_commit_of_servers(7);
    assert!(commit_of(first).1);
    // Entries behind it are refused as well, and given up.
    write(&mut steps, 2);
    steps.failed(1, NOW);
    assert!(steps.give_up((1, None), 7, |_| true, NOW).is_empty());
    assert!(steps.is_closed(NOW));
    let (text, is_synced) = commit_of(steps.write_commit_if_old(NOW + COMMIT_US));
    assert!(text.contains("\"commit_index\":7") && is_synced, "{text}");
    assert_eq!(steps.commit_on_disk(), 0);
    steps.persisted(3, 10);
    assert_eq!(steps.commit_on_disk(), 7);
    steps.write(4, None, &[], Some(8), NOW);
    assert!(
        !commit_of(steps.write_commit_if_old(NOW + COMMIT_US)).1,
        "nothing depends on this one"
    );
}

#[test]
fn a_file_that_is_to_stay_as_it_is_gets_nothing_and_the_one_in_its_place_does() {
    let mut steps = Steps::new(1000, 0).keep_file(true);
    let term = |steps: &mut Steps, term| steps.write(1, Some((term, None)), &[], Some(1), NOW);
    assert!(matches!(term(&mut steps, 1), Written::Nothing));
    assert_eq!(steps.write_commit_if_old(NOW + COMMIT_US), None);
    assert_eq!(steps.write_notes(&["forgot"]), None);
    let install = |steps: &mut Steps| steps.install(2, Position { term: 1, index: 9 }, vec![]);
    let Effect::InstallSnapshot { step: 1, .. } = install(&mut steps) else { panic!("the first") };
    // It could not take the place: the file is the one before.
    steps.failed(1, NOW);
    assert!(steps.give_up((2, None), 0, |_| true, NOW).is_empty());
    assert!(matches!(term(&mut steps, 2), Written::Nothing));
    let Effect::InstallSnapshot { step: 2, .. } = install(&mut steps) else { panic!("the second") };
    assert!(matches!(term(&mut steps, 3), Written::Step(Some(_))), "behind the snapshot");
    steps.persisted(2, 10);
    steps.persisted(3, 10);
    assert!(matches!(term(&mut steps, 4), Written::Step(Some(_))));
}

#[test]
fn a_copy_answers_all_that_came_before_it() {
    let mut steps = Steps::default();
    write(&mut steps, 1);
    steps.wait(vec![acknowledgement(1)]);
    steps.failed(1, NOW);
    let Effect::FinishCopy { step, .. } = steps.finish(0, vec![], vec![]) else { panic!("a copy") };
    let persisted = steps.persisted(step, 10).expect("waited for");
    assert!(persisted.has_finished);
    assert_eq!((kinds(&persisted), persisted.number), (vec![1], 1));
    assert!(!steps.is_waiting() && !steps.is_failing());
    assert_eq!(place(write(&mut steps, 2)), (step + 1, step));
}

#[test]
fn a_copy_that_fails_lets_go_what_waited_behind_it_alone() {
    let mut steps = Steps::default();
    write(&mut steps, 1);
    let Effect::FinishCopy { step, .. } = steps.finish(0, vec![], vec![]) else { panic!("a copy") };
    assert!(matches!(steps.write(2, None, &[], None, NOW), Written::Behind));
    steps.wait(vec![acknowledgement(2)]);
    steps.persisted(1, 10);
    let released = steps.failed(step, NOW).released.expect("all before is on the disk");
    assert_eq!((kinds(&released), released.number), (vec![2], 2));
    assert!(!steps.is_waiting());
}

#[test]
fn a_copy_that_fails_leaves_what_waited_to_the_step_before() {
    let mut steps = Steps::default();
    write(&mut steps, 1);
    let Effect::FinishCopy { step, .. } = steps.finish(0, vec![], vec![]) else { panic!("a copy") };
    steps.write(2, None, &[], None, NOW);
    steps.wait(vec![acknowledgement(2)]);
    assert!(steps.failed(step, NOW).released.is_none());
    let persisted = steps.persisted(1, 10).expect("waited for");
    assert_eq!((kinds(&persisted), persisted.number), (vec![2], 2));
}

/// The file is as it was: nobody need wait for another disk.
#[test]
fn a_copy_that_fails_says_nothing_of_the_log() {
    let mut steps = Steps::default();
    write(&mut steps, 1);
    steps.persisted(1, 10);
    let Effect::FinishCopy { step, .. } = steps.finish(0, vec![], vec![]) else { panic!("a copy") };
    let failed = steps.failed(step, NOW);
    assert!(!failed.is_news && !failed.is_of_log);
    assert!(!steps.is_failing() && !steps.is_failing_for(0, NOW + 1));
    // What was to follow the copy follows what was before it, at once.
    let Effect::FinishCopy { step, .. } = steps.finish(0, vec![], vec![]) else { panic!("a copy") };
    assert_eq!(place(write(&mut steps, 2)), (step + 1, step));
    steps.failed(step, NOW);
    let again = steps.again(NOW);
    assert_eq!(again.into_iter().map(|effect| place(Some(effect))).collect::<Vec<_>>(), [(5, 1)]);
    assert!(!steps.failed(step + 1, NOW).is_of_log, "its number is of the past");
    assert!(!steps.is_failing() && !steps.is_failing_for(0, NOW + 1));
    // Unless the log has failed before.
    steps.failed(5, NOW);
    let Effect::FinishCopy { step, .. } = steps.finish(0, vec![], vec![]) else { panic!("a copy") };
    steps.failed(step, NOW);
    assert!(steps.is_failing_for(0, NOW + 1));
}

/// Writes one entry with a commit index; answers with what it says of the disk.
fn says(steps: &mut Steps, number: u64) -> String {
    let written = steps.write(number, None, &[entry(number)], Some(number), NOW);
    let bytes = match steps.waiting.back().map(|waiting| &waiting.what) {
        Some(What::Append { bytes, .. }) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("{other:?} {written:?}"),
    };
    let (before, rest) = bytes.split_once("\"comment\":\"").expect("a comment");
    assert!(!before.contains("commit_index"), "the entry says nothing");
    rest.split_once('"').expect("an end").0.to_owned()
}

#[test]
fn a_step_says_what_was_on_the_disk_before() {
    let mut steps = Steps::new(1000, 0);
    assert_eq!(says(&mut steps, 1), "synced 1000");
    assert_eq!(says(&mut steps, 2), "synced 1000", "the first one is on its way");
    steps.persisted(1, 10);
    let first = steps.log_len;
    assert!(first > 1000);
    assert_eq!(says(&mut steps, 3), format!("synced {first}"));
    steps.persisted(2, 10);
    steps.persisted(3, 10);
    let all = steps.log_len;
    // A commit index alone is in the file, and with the next step on the disk.
    steps.write(4, None, &[], Some(3), NOW);
    assert_eq!(place(steps.write_commit_if_old(NOW + COMMIT_US)), (4, 3));
    steps.persisted(4, 10);
    assert_eq!(says(&mut steps, 5), format!("synced {all}"));
    steps.persisted(5, 10);
    let expected = format!("synced {}", steps.log_len);
    assert_eq!(says(&mut steps, 6), expected);
}

#[test]
fn what_a_step_says_holds_for_each_file_that_may_get_it() {
    let mut steps = Steps::new(1000, 0);
    let Effect::FinishCopy { step, .. } = steps.finish(0, vec![b' '; 70], vec![]) else {
        panic!("a copy")
    };
    assert_eq!(says(&mut steps, 1), "synced 70");
    steps.persisted(step, 10);
    assert_eq!(says(&mut steps, 2), "synced 70");
    let Effect::FinishCopy { step, .. } = steps.finish(0, vec![b' '; 7000], vec![]) else {
        panic!("a copy")
    };
    assert_eq!(says(&mut steps, 3), "synced 70");
    steps.failed(step, NOW);
    assert_eq!(says(&mut steps, 4), "synced 70");
}

/// A copy is on the disk before it is used, so its commit index says that what is before is.
#[test]
fn the_records_of_a_copy_say_where_they_are() {
    let mut tail = vec![];
    file::write_step(Onto::Copy(0), Some((1, None)), &[entry(1)], Some(1), &mut tail);
    let text = String::from_utf8_lossy(&tail);
    let last = text.rfind("OVSDB CLUSTER").expect("a record");
    assert!(text.contains("\"comment\":\"synced 0\",\"term\":1"), "{text}");
    assert!(text.contains(&format!("\"comment\":\"synced {last}\",\"commit_index\":1")), "{text}");
}

/// A disk that does not answer must not fill the memory of its member.
#[test]
fn entries_had_better_come_later_while_much_is_on_its_way() {
    let mut steps = Steps::default();
    let text = Arc::new(vec![b' '; 32 << 20]);
    let content = crate::Content::Data { eid: Uuid::from_u128(1), text };
    let at = Position { term: 1, index: 1 };
    let entries = [Entry { at, content }];
    let mut is_behind = |number| {
        steps.write(number, None, &entries, None, NOW);
        steps.is_behind()
    };
    assert_eq!([is_behind(1), is_behind(2)], [false, true]);
    steps.persisted(1, 10);
    assert!(!steps.is_behind());
}

/// The host makes one fdatasync(2) for all that was written during the one before.
#[test]
fn the_disk_owes_an_answer_for_all_that_is_on_its_way() {
    let mut steps = Steps::default();
    assert_eq!(steps.unanswered(), None);
    for number in 1..=3 {
        write(&mut steps, number);
    }
    let (all, first) = (steps.given, steps.waiting[0].what.bytes());
    assert_eq!(steps.unanswered(), Some((1, all)));
    steps.persisted(1, 10);
    assert_eq!(steps.unanswered(), Some((2, all - first)));
    steps.failed(2, NOW);
    assert_eq!(steps.unanswered(), None, "it has answered that it refuses them");
    let Effect::FinishCopy { step, .. } = steps.finish(0, vec![b' '; 70], vec![]) else {
        panic!("a copy")
    };
    assert_eq!(steps.unanswered(), Some((step, 70)));
}

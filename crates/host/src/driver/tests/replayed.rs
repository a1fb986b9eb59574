//! A recorded run of effects on a file, and their replay on a file as it was.

use std::fs::OpenOptions;
use std::path::Path;

use weir_server::effect::Step;
use weir_server::event::{Now, WorkId};

use super::*;
use crate::driver::replay::Replay;
use crate::recording::{Item, Reader, Recorded, Recorder, Start, Writer};

fn effects() -> Vec<Effect> {
    let persist = |number, text: &str| {
        let step = Step { number, behind: None };
        Effect::Persist {
            db: DB,
            step,
            bytes: Arc::new(text.as_bytes().to_vec()),
            sync: true,
            is_urgent: false,
        }
    };
    vec![
        persist(1, "a\n"),
        persist(2, "b\n"),
        persist(3, "c\n"),
        Effect::ReadFile { db: DB, id: WorkId(1), offset: 0, len: 10 },
        Effect::BeginReceived { db: DB, head: b"head".to_vec() },
        Effect::WriteReceived { db: DB, offset: 4, bytes: b"more".to_vec() },
        Effect::SyncReceived { db: DB },
    ]
}

/// Runs with the second step on a full disk; what was recorded.
fn record(directory: &Path) -> Vec<Item> {
    let (mut stand, _) = Stand::with_database("recorded");
    let log = Vlog::new("test");
    let writer = Writer::create(directory, "test").ok().unwrap();
    let recorder = Arc::new(Recorder::new(writer, log));
    let now = Now::default();
    recorder.item(&Item::Start(Start::of(now, &Config::default())));
    stand.execution.record_by(Arc::clone(&recorder));
    for (number, effect) in effects().into_iter().enumerate() {
        let full = OpenOptions::new().read(true).write(true).open("/dev/full").unwrap();
        let good = (number == 1).then(|| stand.execution.databases().exchange(DB, full));
        stand.execute([effect]);
        good.into_iter().for_each(|good| drop(stand.execution.databases().exchange(DB, good)));
    }
    for event in stand.until(|events| events.len() >= 7) {
        recorder.event(now, &event);
    }
    assert_eq!(stand.records(), "a\nc\n");
    let (mut reader, _) = Reader::open(directory, "test").ok().unwrap();
    std::iter::from_fn(|| reader.next_item().ok().unwrap())
        .map(|item| Item::decode(&item).ok().unwrap())
        .collect()
}

#[test]
fn a_replay_writes_what_was_written_and_reads_what_was_read() {
    let (stand, _) = Stand::with_database("replayed");
    let recording = stand.path("recording");
    std::fs::create_dir(&recording).unwrap();
    let items = record(&recording);
    let log = Vlog::new("test");
    let commands = Commands::new("test", log.clone(), Vec::new());
    let (reader, path) = Reader::open(&recording, "test").ok().unwrap();
    let mut replay = Replay::new(reader, path, Config::default(), commands, log).unwrap();
    let database = stand.path("replay.db");
    std::fs::copy(stand.path("conf.db"), &database).unwrap();
    let path = database.to_str().unwrap().to_owned();
    replay.ask([Effect::Open { db: DB, path, seed: 1 }]);
    replay.await_opened(DB);
    replay.ask(effects());
    let (mut steps, mut answers) = (0, Vec::new());
    for item in items {
        match item {
            Item::Persist { .. } => {
                steps += 1;
                replay.take(item).map(drop).unwrap();
            }
            Item::Event(_, Recorded::Whole(Event::Persisted { .. })) => {}
            Item::Event(_, recorded) => answers.push(replay.complete(recorded).unwrap()),
            _ => {}
        }
    }
    assert_eq!((steps, answers.len()), (3, 4), "{answers:?}");
    let is_read = |event: &Event| matches!(event, Event::FileRead { result: Ok(bytes), .. } if bytes == b"OVSDB JSON");
    assert!(answers.iter().any(is_read), "{answers:?}");
    let text = std::fs::read_to_string(&database).unwrap();
    assert!(text.ends_with("\na\nc\n"), "{text}");
    // Something else is noticed.
    replay.ask(effects());
    let other = Item::Persist { db: DB, step: 1, length: 2, digest: 7, is_written: true };
    assert!(matches!(replay.take(other), Err(text) if text.starts_with("another record")));
}

//! Recordings as they are written and read back, whole, torn and damaged.

use std::collections::BTreeMap;

use weir_server::event::{
    CommandId, ConversionError, DbId, Event, HostStatus, LinkId, Now, Outbox, PeerPortId, RemoteId,
    SessionId, SyncTime, WorkId,
};

use super::item::{End, Item, Start, event};
use super::{ReadError, Reader, digest};
use crate::vlog::Level;

const PROGRAM: &str = "ovsdb-server";

fn samples() -> Vec<Vec<u8>> {
    let now = Now { monotonic_us: 7, wall_ms: -3 };
    let (session, remote, db, link) = (SessionId(1), RemoteId(2), DbId(3), LinkId(4));
    let port = PeerPortId(6);
    let error = || Some("No route to host".to_owned());
    let status = HostStatus { queued: BTreeMap::from([(session, 9)]), ..HostStatus::default() };
    let client = Some("c".to_owned());
    let outbox = Outbox { queued: 3, written: 2, acknowledged: 1 };
    let events = [
        Event::Accepted { session, remote, name: "unix#1".to_owned(), client },
        Event::Message { session, bytes: b"{\"id\":\xff}".to_vec() },
        Event::Activity { session },
        Event::BadStream { session, error: "no".to_owned() },
        Event::TooLong { session, bytes: 1 << 30 },
        Event::Refused { session, outline: b"{}".to_vec(), bytes: 1 << 30 },
        Event::Closed { session, error: error() },
        Event::Blocked { session },
        Event::Drained { session },
        Event::Appended { db, result: Err("No space left on device".to_owned()) },
        Event::FileSuspect { db },
        Event::Persisted { db, step: 1 << 33, result: Ok(SyncTime(17)) },
        Event::Persisted { db, step: 2, result: Err("Input/output error".to_owned()) },
        Event::FileRead { db, id: WorkId(3), result: Ok(b"piece".to_vec()) },
        Event::FileRead { db, id: WorkId(4), result: Err("Unexpected end of file".to_owned()) },
        Event::Opened { db, result: Err("gone".to_owned()) },
        Event::CompactionWritten { db, result: Ok(1 << 40) },
        Event::CompactionFinished { db, result: Err("x".to_owned()) },
        Event::ReceivedWritten { db, upto: 1 << 34, result: Ok(()) },
        Event::ReceivedWritten { db, upto: 0, result: Err("x".to_owned()) },
        Event::ReceivedSynced { db, result: Ok(9) },
        Event::Converted { db, result: Err(ConversionError::Failed("x".to_owned())) },
        Event::Listening { remote, result: Ok(Some(6640)) },
        Event::Listening { remote, result: Err("in use".to_owned()) },
        Event::LinkUp { link },
        Event::LinkMessage { link, bytes: vec![] },
        Event::LinkActivity { link },
        Event::LinkDown { link, error: None },
        Event::LinkBytes { link, bytes: b"\0frame".to_vec() },
        Event::LinkAccepted { port, link: LinkId(LinkId::ACCEPTED_MIN), name: "tcp:x".to_owned() },
        Event::PeerPort { port, result: Ok(()) },
        Event::PeerPort { port, result: Err("in use".to_owned()) },
        Event::ConfigurationRead { result: Ok(b"{}".to_vec()) },
        Event::ConnectFailed { remote, error: error() },
        Event::HostStatus(Box::new(status)),
        Event::Idle,
        Event::Stopping,
        Event::Backlog { bytes: 12, peers: 7 },
        Event::Outboxes { outboxes: vec![(session, outbox), (SessionId(7), Outbox::default())] },
        Event::Command { id: CommandId(5), name: "a/b".to_owned(), args: vec!["x".to_owned()] },
    ];
    let start = Start {
        now,
        version: "1".to_owned(),
        seed: [1, 2, 3, u64::MAX],
        saved: Some(vec![1]),
        remotes: vec!["punix:s".to_owned()],
        databases: 1,
        kept_bytes_max: Some(1 << 40),
    };
    let said = ("stream_ssl".to_owned(), "SSL_accept: no".to_owned());
    let items = [
        Item::Start(start),
        Item::BeginRound,
        Item::EndRound(now),
        Item::Flush(now),
        Item::Append { db, length: 3, digest: digest(b"abc") },
        Item::Persist { db, step: 5, length: 3, digest: digest(b"abc"), is_written: false },
        Item::Command { name: "exit".to_owned(), args: vec![] },
        Item::Said { module: said.0, level: Level::Warn, text: said.1 },
        Item::Ready,
        Item::End(End::Exit),
        Item::End(End::Signal(15)),
        Item::End(End::Command(Ok(256))),
        Item::End(End::Command(Err("none".to_owned()))),
    ];
    let items = items.iter().map(Item::encode);
    items.chain(events.iter().map(|each| event(now, each))).collect()
}

fn written(items: &[Vec<u8>]) -> Vec<u8> {
    let mut out = format!("weir recording 2 {PROGRAM}\n").into_bytes();
    for item in items {
        out.extend_from_slice(&(item.len() as u64).to_le_bytes());
        out.extend_from_slice(&digest(item).to_le_bytes());
        out.extend_from_slice(item);
    }
    out
}

/// All items, and how it ended.
fn read(bytes: &[u8]) -> (Vec<Vec<u8>>, Option<ReadError>) {
    let mut reader = match Reader::new(bytes, PROGRAM) {
        Ok(reader) => reader,
        Err(error) => return (vec![], Some(error)),
    };
    let mut items = vec![];
    loop {
        match reader.next_item() {
            Ok(Some(item)) => items.push(item),
            Ok(None) => return (items, None),
            Err(error) => return (items, Some(error)),
        }
    }
}

/// What an item says; events show it best.
fn meaning(item: &[u8]) -> String {
    format!("{:?}", Item::decode(item))
}

#[test]
fn what_is_written_is_read() {
    let items = samples();
    let (read, error) = read(&written(&items));
    assert_eq!((&read, error.is_none()), (&items, true));
    for item in &items {
        assert!(meaning(item).starts_with("Ok("), "{item:?}");
    }
    assert!(meaning(&items[14]).contains(r#"bytes: [123, 34, 105, 100, 34, 58, 255, 125]"#));
}

#[test]
fn wherever_it_ends_the_items_before_are_read() {
    let items = samples();
    let whole = written(&items);
    let title = whole.iter().position(|byte| *byte == b'\n').expect("a title") + 1;
    for end in 0..whole.len() {
        let (read, error) = read(&whole[..end]);
        assert!(items.starts_with(&read));
        assert_eq!(error.is_some(), end < title, "cut at {end}: {error:?}");
    }
}

#[test]
fn a_flipped_bit_is_never_read_as_something_else() {
    let items = samples();
    let whole = written(&items);
    for at in 0..whole.len() {
        let mut bad = whole.clone();
        bad[at] ^= 1 << (at % 8);
        let (read, error) = read(&bad);
        assert!(items.starts_with(&read), "at {at}");
        // A length that grew can only mean that the rest is missing.
        assert!(error.is_some() || read.len() < items.len(), "at {at}");
    }
}

#[test]
fn an_item_that_is_not_ours_is_refused_whatever_it_is() {
    for item in samples() {
        for end in 0..item.len() {
            assert_eq!(meaning(&item[..end]), "Err(Malformed)", "{item:?} cut at {end}");
        }
        for at in 0..item.len() {
            let mut bad = item.clone();
            bad[at] = bad[at].wrapping_add(0x7f);
            let _ = Item::decode(&bad);
        }
        let more = [&item[..], b"\0"].concat();
        assert_eq!(meaning(&more), "Err(Malformed)");
    }
}

#[test]
fn a_length_without_bytes_allocates_nothing() {
    let mut bytes = format!("weir recording 2 {PROGRAM}\n").into_bytes();
    bytes.extend_from_slice(&(super::ITEM_BYTES_MAX).to_le_bytes());
    bytes.extend_from_slice(&[0; 9]);
    assert!(matches!(read(&bytes), (items, None) if items.is_empty()));
    bytes[30..38].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(matches!(read(&bytes), (_, Some(ReadError::Damaged(30)))));
}

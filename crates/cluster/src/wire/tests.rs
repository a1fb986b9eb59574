//! What is written is read again; what is cut or changed is refused or waited for, never a panic.

use proptest::prelude::*;
use weir_data::Uuid;

use weir_log::clustered::Servers;

use super::encode::SHARED_BYTES_MIN;
use super::*;
use crate::entry::{Content, Entry};
use crate::ids::{PLACE_MAX, Position};

fn uuid() -> impl Strategy<Value = Uuid> {
    any::<u128>().prop_map(Uuid::from_u128)
}

/// A term or an index.
fn place() -> impl Strategy<Value = u64> {
    0..=1u64 << 62
}

fn position() -> impl Strategy<Value = Position> {
    (place(), place()).prop_map(|(term, index)| Position { term, index })
}

fn servers() -> impl Strategy<Value = Servers> {
    prop::collection::btree_map(uuid(), "tcp:[a-z]{1,20}:[1-9][0-9]{0,3}", 1..4)
}

fn timer() -> impl Strategy<Value = u64> {
    100..=600_000u64
}

fn content() -> impl Strategy<Value = Content> {
    let long = (SHARED_BYTES_MIN..2 * SHARED_BYTES_MIN).prop_map(|len| "x".repeat(len));
    let text = prop_oneof![9 => "[a-z]{0,300}", 1 => long];
    let data = (uuid(), text).prop_map(|(eid, text)| {
        let text = format!("[null,{{\"a\":\"{text}\"}}]").into_bytes();
        Content::Data { eid, text: text.into() }
    });
    let servers = servers().prop_map(|servers| Content::Servers(servers.into()));
    prop_oneof![Just(Content::Empty), data, servers, timer().prop_map(Content::ElectionTimer)]
}

fn step() -> impl Strategy<Value = Frame> {
    let entry = (position(), content()).prop_map(|(at, content)| Entry { at, content });
    let numbers = prop::array::uniform8(place());
    let context = prop::collection::vec(any::<u8>(), 0..20);
    let entries = prop::collection::vec(entry, 0..5);
    (any::<u8>(), any::<bool>(), numbers, context, entries).prop_map(
        |(kind, reject, n, context, entries)| {
            Frame::Step(Step {
                kind,
                reject,
                term: n[0],
                log_term: n[1],
                index: n[2],
                commit: n[3],
                commit_term: n[4],
                request_snapshot: n[5],
                reject_hint: n[6],
                synced: n[7],
                context,
                entries,
            })
        },
    )
}

fn frame() -> impl Strategy<Value = Frame> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..300);
    let last = (1..1u64 << 61, 1..1u64 << 61);
    let begin = (last, uuid(), servers(), timer(), place(), 1..=1u64 << 62);
    let begin = begin.prop_map(|((term, index), eid, servers, election_timer, more, len)| {
        let (last, servers) = (Position { term, index }, servers.into());
        let term = term + more / 2;
        Frame::Begin(Begin { term, last, eid, servers, election_timer, len })
    });
    prop_oneof![
        4 => step(),
        1 => begin,
        1 => (position(), any::<u64>(), bytes())
            .prop_map(|(last, offset, bytes)| Frame::Piece { last, offset, bytes }),
        1 => (position(), any::<u64>()).prop_map(|(last, upto)| Frame::Have { last, upto }),
        1 => ("[a-z]{0,9}", prop::option::of(uuid()))
            .prop_map(|(address, replaces)| Frame::Join { address, replaces }),
        1 => (any::<bool>(), "[a-z]{0,9}", prop::collection::vec("[a-z]{0,9}", 0..3)).prop_map(
            |(success, comment, remotes)| Frame::JoinReply { success, comment, remotes }
        ),
        1 => uuid().prop_map(|server| Frame::Remove { server }),
        1 => (uuid(), any::<bool>(), "[a-z]{0,9}").prop_map(
            |(server, success, comment)| Frame::RemoveReply { server, success, comment }
        ),
        1 => bytes().prop_map(Frame::Message),
        1 => Just(Frame::Lost),
    ]
}

fn hello() -> impl Strategy<Value = Hello> {
    let id = || prop::option::of(uuid());
    let lane = prop::sample::select(vec![Lane::Control, Lane::Log]);
    let entry_term = prop::option::of(0..PLACE_MAX);
    let promised = (position(), entry_term).prop_map(|(at, entry_term)| Promise { at, entry_term });
    let promised = prop::option::of(promised);
    (id(), id(), uuid(), lane, promised).prop_map(|(cluster, to, from, lane, promised)| {
        let address = Some("tcp:[::1]:6644".into());
        Hello { cluster, to, from, address, lane: Some(lane), promised }
    })
}

fn all_of(bytes: &[u8], piece: usize) -> Result<Vec<Said>, Malformed> {
    let (mut decoder, mut said) = (Decoder::new(), vec![]);
    for piece in bytes.chunks(piece) {
        decoder.feed(piece);
        while let Some(next) = decoder.next()? {
            said.push(next);
        }
    }
    Ok(said)
}

fn written(hello: &Hello, frames: &[Frame]) -> Vec<u8> {
    let mut bytes = vec![];
    hello.write(&mut bytes);
    for frame in frames {
        let shared = frame.write(&mut bytes);
        let pieces = cut_off(&mut bytes, shared);
        pieces.iter().for_each(|piece| bytes.extend_from_slice(piece));
    }
    bytes
}

proptest! {
    #[test]
    fn what_is_said_is_heard(
        hello in hello(),
        frames in prop::collection::vec(frame(), 0..6),
        piece in 1usize..400,
    ) {
        let said = all_of(&written(&hello, &frames), piece).unwrap();
        let mut expected = vec![Said::Hello(hello)];
        expected.extend(frames.into_iter().map(Said::Frame));
        prop_assert_eq!(said, expected);
    }

    #[test]
    fn what_is_damaged_is_refused_or_waited_for(
        hello in hello(),
        frames in prop::collection::vec(frame(), 1..4),
        (at, bit) in (any::<prop::sample::Index>(), 0u8..8),
    ) {
        let mut bytes = written(&hello, &frames);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let _ = all_of(&bytes, 100);
        bytes.truncate(at);
        let _ = all_of(&bytes, 100);
    }
}

#[test]
fn a_server_of_the_reference_is_not_heard() {
    let greeting = concat!(
        r#"{"method":"hello_request","params":[{"to":"00000000-0000-0000-0000-000000000001","#,
        r#""from":"00000000-0000-0000-0000-000000000002","cluster":"#,
        r#""00000000-0000-0000-0000-000000000003","address":"tcp:127.0.0.1:1"}],"id":null}"#,
        r#"{"method":"vote_request","params":[{}],"id":null}"#
    );
    let said = all_of(greeting.as_bytes(), 7).unwrap();
    let [Said::Hello(hello)] = &said[..] else { panic!("{said:?}") };
    assert_eq!((hello.lane, hello.from), (None, Uuid::from_u128(2)));
    assert_eq!(hello.address.as_deref(), Some("tcp:127.0.0.1:1"));
}

#[test]
fn a_server_of_the_reference_hears_that_somebody_is_there() {
    let probe = r#"{"method":"echo","params":["x"],"id":"echo"}"#;
    let long = format!(r#"{{"method":"echo","params":["{}"],"id":1}}"#, "y".repeat(4096));
    let message = r#"{"method":"become_leader","params":[{"term":3,"#;
    let message =
        format!(r#"{message}"from":"00000000-0000-0000-0000-000000000002"}}],"id":null}}"#);
    let bytes = [probe, &message, probe, &long, &message, probe].concat();
    let answer = br#"{"id":"echo","result":["x"],"error":null}"#.to_vec();
    for piece in [1, 7, 5000] {
        let said = all_of(bytes.as_bytes(), piece).unwrap();
        let [Said::Probe(first), Said::Hello(hello), Said::Probe(second), Said::Probe(third)] =
            &said[..]
        else {
            panic!("{said:?}")
        };
        assert_eq!(hello.lane, None);
        for probe in [first, second, third] {
            assert_eq!(String::from_utf8_lossy(probe), String::from_utf8_lossy(&answer));
        }
    }
}

/// Every heartbeat is answered with its context, behind numbers that may take more room; and an entry takes more in
/// memory than on the wire.
#[test]
fn what_would_be_larger_than_it_came_is_refused() {
    let hello = Hello {
        cluster: None,
        to: None,
        from: Uuid::from_u128(2),
        address: None,
        lane: Some(Lane::Control),
        promised: None,
    };
    let said = |step: Step| all_of(&written(&hello, &[Frame::Step(step)]), 1 << 20);
    let with_context = |len| Step { kind: 5, context: vec![b'x'; len], ..Step::default() };
    assert_eq!(said(with_context(64)).unwrap().len(), 2);
    let error = said(with_context(65)).unwrap_err();
    assert_eq!(error.0, "context of 65 bytes");
    let entry = Entry { at: Position { term: 1, index: 1 }, content: Content::Empty };
    let with_entries =
        |count| Step { kind: 1, entries: vec![entry.clone(); count], ..Step::default() };
    let most = usize::try_from(THINGS_MAX).unwrap();
    assert_eq!(said(with_entries(most)).unwrap().len(), 2);
    let error = said(with_entries(most + 1)).unwrap_err();
    assert_eq!(error.0, "1048577 things in one message");
}

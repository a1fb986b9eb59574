//! Anything that peers may say to a member of a cluster, before and after greetings: bytes end their
//! connection at most. The first byte says which peer greets, and what the member is; each line
//! break byte pair `\n\n` opens another connection.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use weir_cluster::{Content, Effect, Event, Held, LinkId, Logged, Member, Opened, Place, Position};
use weir_data::Uuid;

const NOW_US: u64 = 1_000_000;

fn server(n: u128) -> Uuid {
    Uuid::from_u128(n << 112)
}

fn address(n: u128) -> String {
    format!("tcp:10.0.0.{n}:6643")
}

/// Server 1 of three, or a server that wants to join them.
fn open(is_member: bool) -> Member {
    // All but the last one of those that have taken effect are in the file only.
    let entry = |index: u64| {
        let (eid, text) = (Uuid::from_u128(index.into()), Arc::new(b"[null,{}]".to_vec()));
        let is_here = index > 4;
        let here = Held::Here(Content::Data { eid, text });
        Logged {
            at: Position { term: 1, index },
            held: if is_here { here } else { Held::InFile { eid } },
            place: Some(Place { offset: 9 * (index - 2), len: 9 }),
        }
    };
    let (term, index) = if is_member { (1, 1) } else { (0, 0) };
    let opened = Opened {
        server: server(1),
        cluster: is_member.then(|| Uuid::from_u128(77)),
        name: "db".into(),
        address: address(1),
        remotes: if is_member { vec![] } else { vec![address(2)] },
        replaces: None,
        snapshot: Position { term, index },
        snapshot_eid: Uuid::from_u128(1),
        snapshot_servers: (1..=3).filter(|_| is_member).map(|n| (server(n), address(n))).collect(),
        snapshot_timer: 1000,
        snapshot_len: 1000,
        entries: (2..=6).filter(|_| is_member).map(entry).collect(),
        log_len: 45,
        texts_bytes_max: 9,
        term,
        vote: None,
        commit: 5 * term,
        seed: 1,
    };
    Member::open(opened, NOW_US)
}

/// The snapshot that comes, and how much of it is there.
type Beside = Option<(Position, u64)>;

/// Does what the member asks for.
fn run(member: &mut Member, beside: &mut Beside, now_us: u64) {
    let mut written = 0;
    while let Some(effect) = member.poll() {
        let event = match effect {
            Effect::Persist { step, .. }
            | Effect::InstallSnapshot { step, .. }
            | Effect::FinishCopy { step, .. } => {
                assert!(step > written, "steps are numbered");
                written = step;
                Event::Persisted { step, result: Ok(1) }
            }
            Effect::Connect { link, .. } => Event::Lost { link, error: None },
            Effect::ReadSnapshot { to, number, offset, .. } => {
                Event::SnapshotRead { to, number, offset, result: Err("none".into()) }
            }
            Effect::ReadTexts(place) => {
                let len = usize::try_from(place.len).expect("texts are short").min(45);
                Event::TextsRead { result: Ok(b"[null,{}]".repeat(5)[..len].to_vec()) }
            }
            Effect::ReceiveSnapshot { mark, .. } => {
                *beside = Some((mark.last, 0));
                Event::SnapshotWritten { last: mark.last, result: Ok(0) }
            }
            Effect::SnapshotPiece { bytes } => {
                let (last, upto) = beside.as_mut().expect("it was announced");
                *upto += bytes.len() as u64;
                Event::SnapshotWritten { last: *last, result: Ok(*upto) }
            }
            Effect::LoadSnapshot { last } => Event::SnapshotLoaded { last, result: Ok(()) },
            _ => continue,
        };
        member.handle(now_us, event);
    }
}

fuzz_target!(|input: &[u8]| {
    let [what, bytes @ ..] = input else { return };
    let mut member = open(what & 1 == 0);
    let (mut beside, mut now_us) = (None, NOW_US);
    run(&mut member, &mut beside, now_us);
    let mut link = 1 << 32;
    for part in bytes.split_inclusive(|byte| *byte == b'\n') {
        if part == b"\n" || link == 1 << 32 {
            link += 1;
            let name = "tcp:10.0.0.2:1".into();
            member.handle(now_us, Event::Accepted { link: LinkId(link), name });
            if what & 2 == 0 {
                let hello = format!(
                    r#"{{"id":null,"method":"hello_request","params":[{{"cluster":"{}","to":"{}","from":"{}","comment":"weir/1 control"}}]}}"#,
                    Uuid::from_u128(77),
                    server(1),
                    server(u128::from(2 + (what >> 2) % 3)),
                );
                let bytes = hello.into_bytes();
                member.handle(now_us, Event::Received { link: LinkId(link), bytes });
            }
        }
        member.handle(now_us, Event::Received { link: LinkId(link), bytes: part.to_vec() });
        run(&mut member, &mut beside, now_us);
        now_us += 300_000;
        member.handle(now_us, Event::Tick);
        run(&mut member, &mut beside, now_us);
    }
    let _ = member.status();
});

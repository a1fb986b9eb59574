//! Frames that are well formed, and that no member sends: nothing ends the process, and the member
//! goes on to work.

use std::sync::Arc;

use weir_data::Uuid;
use weir_log::clustered::Servers;

use super::bench::{Bench, address, server, three};
use crate::wire::{Begin, Frame, Lane, Step};
use crate::{Content, Entry, Position, Role};

/// Cases of each part that a member can have.
const CASES: u64 = 4000;

/// splitmix64
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut n_ = self.0;
        n_ = (n_ ^ n_ >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        n_ = (n_ ^ n_ >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (n_ ^ n_ >> 31) % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A number that is near to one that makes sense, mostly.
    fn near(&mut self, n: u64) -> u64 {
        match self.below(24) {
            0 => 0,
            1 => 1 << 61,
            2 => u64::MAX,
            3 => self.below(300),
            _ => n.saturating_add(self.below(7)).saturating_sub(3),
        }
    }

    fn peer(&mut self) -> Uuid {
        server([2, 2, 3, 4][self.below(4) as usize])
    }

    fn position(&mut self, bench: &Bench) -> Position {
        let last = bench.member.last_position();
        Position { term: self.near(last.term), index: self.near(last.index) }
    }

    fn servers(&mut self) -> Servers {
        let mut servers = three();
        match self.below(8) {
            0 => servers.clear(),
            1 => _ = servers.insert(server(5), "nowhere".into()),
            2 => _ = servers.remove(&server(1)),
            3 => _ = servers.insert(server(4), address(4)),
            4 => servers = [(server(9), address(9))].into(),
            5 => _ = servers.remove(&server(3)),
            _ => {}
        }
        servers
    }

    fn content(&mut self) -> Content {
        match self.below(8) {
            0 => Content::Servers(Arc::new(self.servers())),
            1 => Content::ElectionTimer(self.near(1000)),
            2 => Content::ElectionTimer(self.below(3) * 100_000_000),
            3 => Content::Data { eid: Uuid::from_u128(1), text: Arc::new(b"[null,".to_vec()) },
            4 | 5 => {
                Content::Data { eid: Uuid::from_u128(2), text: Arc::new(b"[null,{}]".to_vec()) }
            }
            _ => Content::Empty,
        }
    }

    fn step(&mut self, bench: &Bench) -> Step {
        let (term, last) = (bench.member.term(), bench.member.last_position());
        let mut step = Step {
            kind: self.below(14) as u8,
            term: self.near(term),
            log_term: if self.one_in(3) { self.near(last.term) } else { last.term },
            index: if self.one_in(3) { self.near(last.index) } else { last.index },
            commit: self.near(bench.member.committed()),
            commit_term: self.near(last.term),
            request_snapshot: if self.one_in(20) { self.near(last.index) } else { 0 },
            reject: self.one_in(4),
            reject_hint: if self.one_in(2) { self.near(last.index) } else { 0 },
            synced: self.near(last.index),
            context: if self.one_in(4) { b"CampaignTransfer".to_vec() } else { vec![] },
            entries: vec![],
        };
        if self.one_in(3) {
            step.kind = 1;
            let count = self.below(4);
            for n in 1..=count {
                let is_next = !self.one_in(8);
                let next = Position { term: step.term, index: step.index.saturating_add(n) };
                let at = if is_next { next } else { self.position(bench) };
                step.entries.push(Entry { at, content: self.content() });
            }
        }
        step
    }

    fn frame(&mut self, bench: &Bench) -> Frame {
        let last = self.position(bench);
        match self.below(16) {
            0 | 1 => Frame::Begin(Begin {
                term: self.near(bench.member.term()),
                last,
                eid: Uuid::from_u128(3),
                servers: Arc::new(self.servers()),
                election_timer: self.near(1000),
                len: self.near(4),
            }),
            2 => {
                let bytes = vec![b'x'; self.below(6) as usize];
                Frame::Piece { last, offset: self.below(3), bytes }
            }
            3 => Frame::Have { last, upto: self.near(1000) },
            4 => Frame::Join {
                address: [address(4), "nowhere".into()][self.below(2) as usize].clone(),
                replaces: [None, Some(server(3))][self.below(2) as usize],
            },
            5 => {
                let remotes =
                    vec![address(2), "nowhere".into(), address(u128::from(self.below(99)))];
                Frame::JoinReply { success: self.one_in(2), comment: "completed".into(), remotes }
            }
            6 => Frame::Remove { server: server(u128::from(1 + self.below(5))) },
            7 => Frame::RemoveReply {
                server: server(u128::from(2 + self.below(4))),
                success: self.one_in(2),
                comment: "not leader".into(),
            },
            8 if self.one_in(2) => Frame::Lost,
            8 => Frame::Message(vec![1, 2, 3]),
            _ => Frame::Step(self.step(bench)),
        }
    }
}

/// Says odd things to a member, and then what a leader says.
fn bother(seed: u64, mut bench: Bench) {
    let mut rng = Rng(seed);
    for _ in 0..1 + rng.below(12) {
        bench.is_disk_slow = rng.one_in(4);
        bench.is_disk_bad = rng.one_in(10);
        let from = rng.peer();
        let lane = Lane::ALL[rng.below(2) as usize];
        let link = bench.greet(from, lane);
        for _ in 0..1 + rng.below(4) {
            let frame = rng.frame(&bench);
            bench.frame(link, &frame);
        }
        if rng.one_in(3) {
            bench.pass(rng.below(1500));
        }
        if rng.one_in(2) {
            bench.sync();
        }
    }
    (bench.is_disk_slow, bench.is_disk_bad) = (false, false);
    bench.sync();
    bench.pass(2000);
    // Who was told the end of terms by all, or that it is no member, has nothing to go on with.
    if !bench.has_left && bench.member.term() < 1 << 60 && bench.member.last_position().index > 0 {
        bench.check_follows();
    }
}

fn many(open: fn() -> Bench) {
    for seed in 1..=CASES {
        let result = std::panic::catch_unwind(|| bother(seed, open()));
        assert!(result.is_ok(), "seed {seed}");
    }
}

#[test]
fn a_follower_bears_odd_frames() {
    many(Bench::follower);
}

#[test]
fn a_candidate_bears_odd_frames() {
    many(Bench::candidate);
}

#[test]
fn a_leader_bears_odd_frames() {
    many(Bench::leader);
}

#[test]
fn a_joiner_bears_odd_frames() {
    many(Bench::joiner);
}

#[test]
fn a_member_that_has_just_started_bears_odd_frames() {
    assert_eq!(Bench::member().member.role(), Role::Follower);
    many(Bench::member);
}

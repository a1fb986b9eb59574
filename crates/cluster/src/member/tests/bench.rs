//! A member whose peers, disk and clock are the test.

use std::collections::VecDeque;
use std::sync::Arc;

use weir_data::Uuid;
use weir_log::clustered::Servers;

use crate::consensus::{APPEND, HEARTBEAT_ANSWER};
use crate::wire::{Decoder, Frame, Hello, Lane, Said, Step};
use crate::{
    Content, Effect, Entry, Event, Held, Level, LinkId, Logged, Member, Opened, Place, Position,
    Proposal,
};

/// The cluster of all tests.
pub(super) const CLUSTER: Uuid = Uuid::from_u128(77);

pub(super) const PRE_VOTE_REPLY: u8 = 11;
pub(super) const VOTE_REPLY: u8 = 4;
pub(super) const APPEND_REPLY: u8 = 2;
pub(super) const HEARTBEAT: u8 = 5;

pub(super) fn heartbeat_answer() -> Step {
    Step { kind: HEARTBEAT_ANSWER, term: 3, commit: 5, ..Step::default() }
}

pub(super) fn server(n: u128) -> Uuid {
    Uuid::from_u128(n << 112)
}

pub(super) fn address(n: u128) -> String {
    format!("tcp:10.0.0.{n}:6643")
}

pub(super) fn three() -> Servers {
    (1..=3).map(|n| (server(n), address(n))).collect()
}

pub(super) fn data(term: u64, index: u64) -> Entry {
    let content =
        Content::Data { eid: Uuid::from_u128(index.into()), text: Arc::new(b"[null,{}]".to_vec()) };
    Entry { at: Position { term, index }, content }
}

fn logged(Entry { at, content }: Entry) -> Logged {
    Logged { at, held: Held::Here(content), place: Some(Place { offset: 100 * at.index, len: 9 }) }
}

/// The steps that were sent on a connection.
pub(super) fn steps_sent(bench: &Bench, link: LinkId) -> Vec<Step> {
    let mut decoder = Decoder::new();
    bench.sent.iter().filter(|(to, _)| *to == link).for_each(|(_, bytes)| decoder.feed(bytes));
    let said = std::iter::from_fn(|| decoder.next().expect("frames"));
    let steps = said.filter_map(|said| match said {
        Said::Frame(Frame::Step(step)) => Some(step),
        _ => None,
    });
    steps.collect()
}

/// The member under test is server 1 of three; entries 2 to 6 are in its log, 5 of them committed.
pub(super) struct Bench {
    pub(super) member: Member,
    pub(super) now_us: u64,
    next_link: u64,
    /// Steps that are not answered, and whether they are to fail.
    steps: VecDeque<(u64, bool)>,
    written: u64,
    /// The records that were appended last.
    pub(super) written_last: String,
    /// The next steps fail.
    pub(super) is_disk_bad: bool,
    /// Steps of more bytes fail.
    pub(super) room: usize,
    /// Steps wait until [`Bench::sync`].
    pub(super) is_disk_slow: bool,
    /// Bytes of a snapshot's data that have come, and whether nobody says when they are written.
    beside: u64,
    pub(super) is_beside_slow: bool,
    /// Nobody says when tables have been made of a snapshot.
    pub(super) is_loading_slow: bool,
    /// The records behind the snapshot or the copy that took the file's place last.
    pub(super) tail_last: String,
    /// What was to be appended to copies before that; nobody says when it is.
    pub(super) parts: Vec<String>,
    /// Why copies were given up.
    pub(super) failed_copies: Vec<String>,
    /// A snapshot is there that may take the file's place: an attempt takes it, whatever comes of that.
    has_copy: bool,
    pub(super) committed: Vec<Entry>,
    pub(super) logs: Vec<(Level, String)>,
    pub(super) messages: usize,
    /// Who leads, as often as that was told.
    pub(super) leaders: Vec<Option<Uuid>>,
    /// Where texts of entries were read back; none of them can be.
    pub(super) texts_read: Vec<Place>,
    /// For which sendings pieces of the file's snapshot were read.
    pub(super) snapshot_reads: Vec<u64>,
    /// Nothing of the file's snapshot can be read.
    pub(super) is_snapshot_unread: bool,
    /// The file is to be written anew, for something in it cannot be read.
    pub(super) is_to_be_rewritten: bool,
    /// The last entries of snapshots that were about to come.
    pub(super) receiving: Vec<Position>,
    pub(super) sent: Vec<(LinkId, Vec<u8>)>,
    pub(super) closed: Vec<LinkId>,
    /// Members of which the server was told that a connection has ended.
    pub(super) lost: Vec<Uuid>,
    /// The next attempt to connect to this address is neither answered nor refused.
    held: Option<(String, Option<LinkId>)>,
    pub(super) has_left: bool,
    pub(super) has_forgotten: bool,
}

impl Bench {
    pub(super) fn open(opened: Opened) -> Self {
        let mut bench = Self::opened(opened);
        bench.run();
        bench
    }

    /// A member of which nothing has been carried out yet.
    pub(super) fn opened(opened: Opened) -> Self {
        let now_us = 1_000_000;
        Self {
            member: Member::open(opened, now_us),
            now_us,
            next_link: 1 << 32,
            steps: VecDeque::new(),
            written: 0,
            written_last: String::new(),
            is_disk_bad: false,
            room: usize::MAX,
            is_disk_slow: false,
            beside: 0,
            is_beside_slow: false,
            is_loading_slow: false,
            tail_last: String::new(),
            parts: vec![],
            failed_copies: vec![],
            has_copy: false,
            committed: vec![],
            logs: vec![],
            messages: 0,
            leaders: vec![],
            texts_read: vec![],
            snapshot_reads: vec![],
            is_snapshot_unread: false,
            is_to_be_rewritten: false,
            receiving: vec![],
            sent: vec![],
            closed: vec![],
            lost: vec![],
            held: None,
            has_left: false,
            has_forgotten: false,
        }
    }

    /// A member that has just started.
    pub(super) fn member() -> Self {
        Self::open(Self::file())
    }

    /// What its file says.
    pub(super) fn file() -> Opened {
        Opened {
            server: server(1),
            cluster: Some(CLUSTER),
            name: "db".into(),
            address: address(1),
            remotes: vec![],
            replaces: None,
            snapshot: Position { term: 1, index: 1 },
            snapshot_eid: Uuid::from_u128(1),
            snapshot_servers: three(),
            snapshot_timer: 1000,
            snapshot_len: 1000,
            entries: (2..=6).map(|index| logged(data(1, index))).collect(),
            log_len: 1000,
            texts_bytes_max: 0,
            term: 2,
            vote: None,
            commit: 5,
            seed: 1,
        }
    }

    /// A server that wants to join.
    pub(super) fn joiner() -> Self {
        Self::joiner_knowing(Servers::new())
    }

    /// A server that wants to join, and has a snapshot with this list of servers.
    pub(super) fn joiner_knowing(servers: Servers) -> Self {
        Self::open(Opened {
            server: server(1),
            cluster: None,
            name: "db".into(),
            address: address(1),
            remotes: vec![address(2)],
            replaces: None,
            snapshot: Position::default(),
            snapshot_eid: Uuid::default(),
            snapshot_servers: servers,
            snapshot_timer: 1000,
            snapshot_len: 0,
            entries: vec![],
            log_len: 0,
            texts_bytes_max: usize::MAX,
            term: 0,
            vote: None,
            commit: 0,
            seed: 1,
        })
    }

    /// A member that follows server 2 in term 3.
    pub(super) fn follower() -> Self {
        let mut bench = Self::member();
        let link = bench.greet(server(2), Lane::Control);
        bench.say(link, Step { kind: HEARTBEAT, term: 3, commit: 5, ..Step::default() });
        assert_eq!(bench.member.leader(), Some(server(2)));
        bench
    }

    /// A member that has asked for votes in term 3.
    pub(super) fn candidate() -> Self {
        let mut bench = Self::member();
        bench.campaign(3);
        bench
    }

    fn campaign(&mut self, term: u64) {
        let link = self.greet(server(2), Lane::Control);
        self.pass(1500);
        self.say(link, Step { kind: PRE_VOTE_REPLY, term, ..Step::default() });
        assert_eq!((self.member.role(), self.member.term()), (crate::Role::Candidate, term));
    }

    /// A member that leads in term 3, and may propose.
    pub(super) fn leader() -> Self {
        let mut bench = Self::member();
        bench.lead(3);
        bench
    }

    /// The member comes to lead in the next term.
    pub(super) fn lead(&mut self, term: u64) {
        self.campaign(term);
        let link = self.greet(server(2), Lane::Control);
        self.say(link, Step { kind: VOTE_REPLY, term, ..Step::default() });
        assert_eq!(self.member.role(), crate::Role::Leader);
        let index = self.member.last_position().index;
        self.say(link, Step { kind: APPEND_REPLY, term, index, ..Step::default() });
        assert!(self.member.may_propose());
    }

    pub(super) fn handle(&mut self, event: Event) {
        self.member.handle(self.now_us, event);
        self.run();
    }

    /// Time passes, in steps that the member wishes.
    pub(super) fn pass(&mut self, ms: u64) {
        let end = self.now_us + ms * 1000;
        while self.now_us < end {
            self.now_us = self.member.wakeup_us().max(self.now_us + 1000).min(end);
            self.handle(Event::Tick);
        }
    }

    pub(super) fn run(&mut self) {
        while let Some(effect) = self.member.poll() {
            self.execute(effect);
            if !self.is_disk_slow {
                self.answer_steps();
            }
        }
    }

    fn step(&mut self, step: u64, is_bad: bool) {
        self.steps.push_back((step, is_bad));
        if !is_bad {
            self.written = step;
        }
    }

    /// The disk has done all that it was asked for.
    pub(super) fn sync(&mut self) {
        self.answer_steps();
        self.run();
    }

    fn answer_steps(&mut self) {
        while let Some((step, is_bad)) = self.steps.pop_front() {
            let result = if is_bad { Err("No space left on device".into()) } else { Ok(10) };
            self.member.handle(self.now_us, Event::Persisted { step, result });
        }
    }

    fn execute(&mut self, effect: Effect) {
        match effect {
            Effect::Persist { step, behind, bytes, .. } => {
                let is_bad = self.is_disk_bad || bytes.len() > self.room || behind != self.written;
                if !is_bad {
                    self.written_last = String::from_utf8_lossy(&bytes).into_owned();
                }
                self.step(step, is_bad);
            }
            Effect::InstallSnapshot { step, tail, .. } => {
                self.tail_last = String::from_utf8_lossy(&tail).into_owned();
                let has_copy = std::mem::take(&mut self.has_copy);
                self.step(step, self.is_disk_bad || !has_copy);
            }
            Effect::ExtendCopy { records } => {
                self.parts.push(String::from_utf8_lossy(&records).into_owned());
            }
            Effect::FailCopy { why } => self.failed_copies.push(why),
            Effect::FinishCopy { step, tail } => {
                self.tail_last = String::from_utf8_lossy(&tail).into_owned();
                self.step(step, self.is_disk_bad);
            }
            Effect::Connect { link, address } => {
                if let Some((held, by @ None)) = &mut self.held
                    && *held == address
                {
                    *by = Some(link);
                    return;
                }
                let error = Some("Connection refused".into());
                self.member.handle(self.now_us, Event::Lost { link, error });
            }
            Effect::Commit(entries) => self.committed.extend(entries),
            Effect::ReadSnapshot { to, number, offset, len } => {
                self.snapshot_reads.push(number);
                let result = match self.is_snapshot_unread {
                    true => Err("Input/output error".into()),
                    false => Ok(vec![b'x'; usize::try_from(len).expect("a piece")]),
                };
                let read = Event::SnapshotRead { to, number, offset, result };
                self.member.handle(self.now_us, read);
            }
            Effect::ReadIndex { .. } => panic!("nobody has asked"),
            Effect::ReadTexts(place) => {
                self.texts_read.push(place);
                let read = Event::TextsRead { result: Err("Input/output error".into()) };
                self.member.handle(self.now_us, read);
            }
            Effect::LoadSnapshot { last } => {
                self.has_copy = true;
                let loaded = Event::SnapshotLoaded { last, result: Ok(()) };
                if !self.is_loading_slow {
                    self.member.handle(self.now_us, loaded);
                }
            }
            Effect::Log { level, text, .. } => self.logs.push((level, text)),
            Effect::Message { .. } => self.messages += 1,
            Effect::Leadership { leader } => self.leaders.push(leader),
            Effect::ReceiveSnapshot { mark, .. } => {
                self.receiving.push(mark.last);
                self.beside = 0;
                self.write_beside();
            }
            Effect::SnapshotPiece { bytes } => {
                self.beside += bytes.len() as u64;
                self.write_beside();
            }
            Effect::PeerLost { peer } => self.lost.push(peer),
            Effect::Disconnect { link } => self.closed.push(link),
            Effect::Left => self.has_left = true,
            Effect::Forgot { .. } => self.has_forgotten = true,
            Effect::Crash { why } => panic!("{why}"),
            Effect::Send { link, bytes } => self.sent.push((link, bytes.to_vec())),
            Effect::RewriteFile => self.is_to_be_rewritten = true,
            Effect::DropSnapshot | Effect::DropCopy => {}
        }
    }

    fn write_beside(&mut self) {
        if !self.is_beside_slow {
            self.beside_written();
        }
    }

    /// What has come of a snapshot is written.
    pub(super) fn beside_written(&mut self) {
        let last = *self.receiving.last().expect("one was announced");
        let result = Ok(self.beside);
        self.handle(Event::SnapshotWritten { last, result });
    }

    /// The member connects there for its first lane.
    pub(super) fn connection_to(&mut self, address: String) -> LinkId {
        self.held = Some((address, None));
        for _ in 0..10 {
            if matches!(self.held, Some((_, None))) {
                self.pass(100);
            }
        }
        self.held.take().and_then(|(_, link)| link).expect("it goes on to try")
    }

    /// Whether the member tries to connect there within so long.
    pub(super) fn connects_to(&mut self, address: String, ms: u64) -> bool {
        self.held = Some((address, None));
        self.pass(ms);
        self.held.take().is_some_and(|(_, link)| link.is_some())
    }

    /// The member connects to this server for the next lane that it has not, and is greeted.
    pub(super) fn greeted_at(&mut self, n: u128, lane: Lane) -> LinkId {
        let link = self.connection_to(address(n));
        self.handle(Event::Connected { link });
        let (cluster, to, from) = (Some(CLUSTER), Some(server(1)), server(n));
        let (lane, address, promised) = (Some(lane), None, None);
        self.hello(link, &Hello { cluster, to, from, address, lane, promised });
        link
    }

    /// A server connects.
    pub(super) fn accept(&mut self) -> LinkId {
        self.next_link += 1;
        let link = LinkId(self.next_link);
        self.handle(Event::Accepted { link, name: format!("tcp:{}", link.0) });
        link
    }

    /// A server connects, and greets as a member.
    pub(super) fn greet(&mut self, from: Uuid, lane: Lane) -> LinkId {
        let link = self.accept();
        let (cluster, to) = (Some(CLUSTER), Some(server(1)));
        let (lane, address, promised) = (Some(lane), None, None);
        let hello = Hello { cluster, to, from, address, lane, promised };
        self.hello(link, &hello);
        link
    }

    pub(super) fn hello(&mut self, link: LinkId, hello: &Hello) {
        let mut bytes = vec![];
        hello.write(&mut bytes);
        self.handle(Event::Received { link, bytes });
    }

    /// The leader proposes an entry of this id.
    pub(super) fn propose(&mut self, n: u128) -> Position {
        let proposal = Proposal { eid: Uuid::from_u128(n), text: Arc::new(b"[null,{}]".to_vec()) };
        let at = self.member.propose(self.now_us, vec![proposal]).expect("it leads");
        self.run();
        at
    }

    /// Time passes in which these members answer a leader of term 3.
    pub(super) fn well_for(&mut self, links: &[LinkId], ms: u64) {
        for _ in 0..ms / 100 {
            self.pass(100);
            links.iter().for_each(|link| self.say(*link, heartbeat_answer()));
        }
    }

    /// A peer has all entries up to this one.
    pub(super) fn acknowledge(&mut self, link: LinkId, Position { term, index }: Position) {
        self.say(link, Step { kind: APPEND_REPLY, term, index, ..Step::default() });
    }

    pub(super) fn say(&mut self, link: LinkId, step: Step) {
        self.frame(link, &Frame::Step(step));
    }

    pub(super) fn frame(&mut self, link: LinkId, frame: &Frame) {
        let mut bytes = vec![];
        frame.write(&mut bytes);
        self.handle(Event::Received { link, bytes });
    }

    /// A leader of a new term appends an entry, which takes effect.
    pub(super) fn check_follows(&mut self) {
        let (before, term) = (self.member.last_position(), self.member.term() + 1);
        let link = self.greet(server(2), Lane::Log);
        let entry = data(term, before.index + 1);
        let step = Step {
            kind: APPEND,
            term,
            log_term: before.term,
            index: before.index,
            commit: before.index + 1,
            entries: vec![entry.clone()],
            ..Step::default()
        };
        self.say(link, step);
        self.sync();
        let applied = self.committed.last();
        assert_eq!(applied, Some(&entry), "it follows a leader of term {term}: {:?}", self.logs);
        assert_eq!(self.member.leader(), Some(server(2)));
    }
}

//! What is around one member: its disk, its clock, its tables, and a client that writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_cluster::{Effect, Entry, Event, Mark, Member, Position, Proposal};
use weir_data::Uuid;

use super::disk::{Disk, Front};
use super::forgetting::Copy;
use super::network::End;
use super::world::{Due, World};

/// A promise that a shell breaks, to see whether anybody notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Some steps are answered, and never written.
    DropsSteps,
    /// Steps are answered before they are on the disk.
    AnswersEarly,
    /// Votes are gone after a crash.
    ForgetsVotes,
    /// What was synced is gone after a crash, from some record on.
    ForgetsTail,
    /// Some entries take effect twice.
    AppliesTwice,
    /// Some entries do not take effect.
    SkipsEntries,
    /// A step is written behind one that could not be.
    IgnoresOrder,
    /// A copy lacks the records that were to stand behind its snapshot.
    LosesTailOfCopy,
    /// A snapshot has older data than it says.
    SnapshotLacksData,
    /// No room of the disk is kept for terms and votes.
    KeepsNoRoom,
    /// Nobody tells another member what it has promised.
    TellsNothing,
    /// A record that cannot be read ends the file, and nobody tells another member what it has promised.
    IgnoresDamage,
}

/// Texts that members keep in memory: few, so that they are read back often.
const TEXTS_BYTES_MAX: usize = 200;

/// So long are long writes at most.
const LONG_BYTES: u64 = 1_500_000;

/// So much may find room on a disk that has none for more, in bytes.
const SHORT_BYTES: usize = 60_000;

/// A server.
pub struct Server {
    pub id: Uuid,
    /// Whose the file is.
    owner: Uuid,
    pub address: String,
    pub disk: Disk,
    pub member: Option<Member>,
    pub(super) life: u64,
    /// What has taken effect: ids by index.
    pub applied: BTreeMap<u64, Uuid>,
    pub applied_to: u64,
    /// A copy of the file that is being written: a snapshot that comes, or one of its own.
    receiving: Option<Front>,
    /// Snapshots that came, or were dropped, so far: what comes of an earlier one is not told.
    receptions: u64,
    /// When the last piece of one is written.
    written_at: u64,
    pub(super) paused_until: u64,
    /// How far the clock is ahead of the others'.
    pub(super) ahead_us: u64,
    /// Proposals that are not decided.
    proposed: BTreeMap<u64, Position>,
    wake_at: u64,
    /// When the last write is answered: they are answered in order.
    pub(super) synced_at: u64,
    /// A copy of the file is being written, or about to take its place.
    is_copying: bool,
    /// Records behind the snapshot of the copy.
    extended: Vec<u8>,
    finish: u64,
    /// The step that puts a snapshot of another member in the file's place.
    installing: u64,
    pub has_left: bool,
    /// Until when the disk is full.
    pub(super) full_until: u64,
    /// When the process was started.
    pub(super) started_us: u64,
    /// Copies of the file, from times before.
    pub(super) copies: Vec<Copy>,
    /// The older file that it came back with last, which may come once more.
    pub(super) image: Option<Copy>,
    /// What the file was before it was not what it had been.
    pub lost: Vec<(Uuid, Disk)>,
}

impl Server {
    pub fn new(id: Uuid, address: String, front: Front) -> Self {
        Self {
            id,
            owner: id,
            address,
            disk: Disk::new(front),
            member: None,
            life: 0,
            applied: BTreeMap::new(),
            applied_to: 0,
            receiving: None,
            receptions: 0,
            written_at: 0,
            paused_until: 0,
            ahead_us: 0,
            proposed: BTreeMap::new(),
            wake_at: 0,
            synced_at: 0,
            is_copying: false,
            extended: Vec::new(),
            finish: 0,
            installing: 0,
            has_left: false,
            full_until: 0,
            started_us: 0,
            copies: vec![],
            image: None,
            lost: vec![],
        }
    }
}

impl World {
    /// Starts a server from its file, if it does not run.
    pub fn start(&mut self, n: usize) {
        let seed = self.rng.next();
        let now_us = self.clock(n);
        let server = &mut self.servers[n];
        if server.has_left || server.member.is_some() {
            return;
        }
        server.life += 1;
        if self.lie == Some(Lie::IgnoresDamage) {
            server.disk.ignore_damage();
        }
        server.started_us = self.now_us;
        let chosen = (seed, TEXTS_BYTES_MAX);
        let again = Uuid::from_u128(u128::from(seed) << 64 | u128::from(server.life));
        let ids = (server.owner, again);
        let opened = server.disk.open(ids, "db", &server.address, chosen);
        let Some((opened, committed)) = opened else {
            server.has_left = true;
            return;
        };
        let is_again = opened.replaces.is_some();
        if is_again {
            // It may have been told late, and have acknowledged more meanwhile.
            server.lost.push((server.id, server.disk.copy()));
        }
        server.id = opened.server;
        let front = server.disk.front.applied();
        server.applied = if is_again { BTreeMap::new() } else { front };
        server.applied_to = if is_again { 0 } else { server.disk.front.mark.last.index };
        let (term, commit, end) = (opened.term, opened.commit, opened.entries.len());
        self.tell(format!("start {n} term {term} commit {commit} entries {end}"));
        self.apply(n, committed);
        let mut member = Member::open(opened, now_us);
        member.set_removal(self.faults.removal_ms);
        self.servers[n].member = Some(member);
        self.run(n);
    }

    /// The process of a server ends; the file stays as it is.
    pub fn stop(&mut self, n: usize) {
        let server = &mut self.servers[n];
        server.member = None;
        server.life += 1;
        server.wake_at = 0;
        (server.receiving, server.is_copying) = (None, false);
        (server.finish, server.installing) = (0, 0);
        server.receptions += 1;
        server.proposed.clear();
        server.disk.closed();
        self.close_all(n);
    }

    /// The power goes at a server, for so long at most.
    pub fn crash(&mut self, n: usize, down_ms_max: u64) {
        if self.lose_power(n) {
            let down_ms = 50 + self.rng.below(down_ms_max.max(1));
            self.later(self.now_us + 1000 * down_ms, n, Due::Up);
        }
    }

    /// The power goes at a server, for so long.
    pub fn crash_for(&mut self, n: usize, down_ms: u64) {
        if self.lose_power(n) {
            self.later(self.now_us + 1000 * down_ms, n, Due::Up);
        }
    }

    fn lose_power(&mut self, n: usize) -> bool {
        if self.servers[n].member.is_none() {
            return false;
        }
        self.tell(format!("crash {n}"));
        self.checks.counts.crashes += 1;
        self.stop(n);
        let disk = &mut self.servers[n].disk;
        disk.crash(&mut self.rng);
        match self.lie {
            Some(Lie::ForgetsVotes) => disk.forget_votes(),
            Some(Lie::ForgetsTail) => disk.forget_tail(&mut self.rng),
            _ => {}
        }
        self.settled(n);
        true
    }

    pub(super) fn pause(&mut self, n: usize, until: u64) {
        // What waits for the end of a pause comes in its order only if that stays.
        if self.servers[n].paused_until < self.now_us {
            self.servers[n].paused_until = until;
        }
    }

    /// What a server's clock says.
    pub fn clock(&self, n: usize) -> u64 {
        self.now_us + self.servers[n].ahead_us
    }

    /// A member whose process runs.
    pub(super) fn awake(&mut self, n: usize) -> Option<&mut Member> {
        let server = &mut self.servers[n];
        server.member.as_mut().filter(|_| server.paused_until <= self.now_us)
    }

    /// Carries out what a member asks for, until it asks for nothing.
    pub fn run(&mut self, n: usize) {
        while let Some(effect) = self.servers[n].member.as_mut().and_then(Member::poll) {
            self.execute(n, effect);
        }
        let server = &self.servers[n];
        let Some(member) = &server.member else { return };
        if server.installing == 0 {
            self.checks.agrees(n, member, server.applied_to);
        }
        let at = member.wakeup_us().saturating_sub(server.ahead_us).max(self.now_us + 1000);
        if server.wake_at <= self.now_us || at < server.wake_at {
            self.servers[n].wake_at = at;
            self.later(at, n, Due::Wake);
        }
    }

    /// Time has passed: the member wishes to be told again when more has, or a server would do nothing else.
    pub(super) fn tick(&mut self, n: usize) {
        self.event(n, Event::Tick);
        let now_us = self.clock(n);
        let wakeup_us = self.servers[n].member.as_ref().map(Member::wakeup_us);
        assert!(wakeup_us.is_none_or(|at| at > now_us), "{n} looks at the clock without end");
    }

    pub(super) fn event(&mut self, n: usize, event: Event) {
        let now_us = self.clock(n);
        if let Some(member) = &mut self.servers[n].member {
            member.handle(now_us, event);
            self.run(n);
        }
    }

    fn execute(&mut self, n: usize, effect: Effect) {
        match effect {
            Effect::Persist { step, behind, bytes, sync, is_urgent } => {
                self.persist(n, (step, behind), &bytes, sync, is_urgent);
            }
            Effect::Connect { link, address } => self.connect(n, link, &address),
            Effect::Send { link, bytes } => self.send(End { server: n, link }, &bytes),
            Effect::Disconnect { link } => self.close(End { server: n, link }),
            Effect::Commit(entries) => self.apply(n, entries),
            Effect::Leadership { leader } => self.led(n, leader),
            Effect::Message { .. } | Effect::PeerLost { .. } | Effect::Crash { .. } => {}
            Effect::ReadSnapshot { to, number, offset, len } => {
                let is_bad = self.fails(self.faults.snapshot);
                let result = self.servers[n].disk.front.read(offset, len);
                let result = if is_bad { Err("Input/output error".into()) } else { result };
                let read = Event::SnapshotRead { to, number, offset, result };
                self.later(self.now_us + 100, n, Due::Event(read));
            }
            Effect::ReadIndex { number, index } => self.checks.is_fresh(n, number, index),
            Effect::ReadTexts(place) => {
                let is_bad = self.fails(self.faults.snapshot);
                let result = self.servers[n].disk.read(place);
                let result = if is_bad { Err("Input/output error".into()) } else { result };
                self.checks.counts.texts_read += 1;
                let at = self.now_us + 100 + 1000 * self.rng.below(10);
                self.later(at, n, Due::Event(Event::TextsRead { result }));
            }
            Effect::ReceiveSnapshot { cluster, mark, .. } => {
                let server = &mut self.servers[n];
                let places = (server.finish, server.installing);
                assert_eq!(places, (0, 0), "{n}: one file takes the place at a time");
                let front = Front { cluster, mark, data: vec![], remotes: vec![] };
                (server.is_copying, server.receiving) = (false, Some(front));
                server.receptions += 1;
                self.write_beside(n);
            }
            Effect::ExtendCopy { records } => self.extend_copy(n, &records),
            Effect::FinishCopy { step, tail } => self.finish_copy(n, step, &tail),
            Effect::SnapshotPiece { bytes } => {
                let receiving = self.servers[n].receiving.as_mut().expect("it was announced");
                receiving.data.extend_from_slice(&bytes);
                self.write_beside(n);
            }
            Effect::LoadSnapshot { last } => {
                let is_bad = self.fails(self.faults.snapshot) || self.is_full(n);
                let result = if is_bad { Err("no JSON".into()) } else { Ok(()) };
                self.beside(n, Event::SnapshotLoaded { last, result });
            }
            Effect::InstallSnapshot { step, last, tail } => self.install(n, step, last, &tail),
            Effect::DropSnapshot | Effect::DropCopy | Effect::FailCopy { .. } => {
                let server = &mut self.servers[n];
                (server.receiving, server.is_copying) = (None, false);
                server.receptions += 1;
            }
            Effect::RewriteFile => {
                if !std::mem::replace(&mut self.servers[n].disk.is_unread, true) {
                    self.later(self.now_us + 1000, n, Due::Rewrite);
                }
            }
            Effect::Left => {
                self.servers[n].has_left = true;
                self.checks.counts.left += 1;
                self.tell(format!("left {n}"));
                self.later(self.now_us + 200_000, n, Due::Down);
            }
            Effect::Forgot { .. } => {
                self.checks.counts.hindered += 1;
                self.later(self.now_us + 100_000, n, Due::Down);
                self.later(self.now_us + 150_000, n, Due::Up);
            }
            Effect::Log { text, .. } => {
                self.checks.counts.silent += u64::from(text.contains(" was silent for "));
                self.checks.counts.too_long +=
                    u64::from(text.contains("nobody has all of the log"));
                self.tell(format!("{n}: {text}"));
            }
        }
    }

    /// What has come of a snapshot is written, or cannot be.
    fn write_beside(&mut self, n: usize) {
        let is_full = self.fails(self.faults.disk) || self.is_full(n);
        let receiving = self.servers[n].receiving.as_ref().expect("it has come");
        let (last, upto) = (receiving.mark.last, receiving.data.len() as u64);
        let result = if is_full { Err("No space left on device".into()) } else { Ok(upto) };
        self.beside(n, Event::SnapshotWritten { last, result });
    }

    /// Says in its turn what has come of a snapshot, unless that is let go.
    fn beside(&mut self, n: usize, event: Event) {
        let at = self.now_us + 1000 * self.rng.below(20) + 1;
        let server = &mut self.servers[n];
        server.written_at = at.max(server.written_at + 1);
        let (at, number) = (server.written_at, server.receptions);
        self.later(at, n, Due::Beside(number, event));
    }

    /// Whether an event concerns the snapshot that is being received.
    pub(super) fn is_beside(&self, n: usize, number: u64) -> bool {
        self.servers[n].receptions == number
    }

    /// Whether something fails that does once in so many times.
    fn fails(&mut self, rate: u64) -> bool {
        rate > 0 && self.rng.one_in(rate)
    }

    /// Whether the disk is full; room is kept for what is urgent.
    fn is_full(&self, n: usize) -> bool {
        self.servers[n].full_until > self.now_us
    }

    /// Whether a disk that is full has room for so many bytes: where some writes are long, each second one has for
    /// those that are not.
    fn has_room_for(&self, n: usize, bytes: usize) -> bool {
        let has_some = (self.servers[n].full_until / 1000).is_multiple_of(2);
        self.faults.long > 0 && has_some && bytes < SHORT_BYTES
    }

    fn refuse(&mut self, n: usize, step: u64, error: &str) {
        let result = Err(error.to_owned());
        self.answer(self.now_us + 10, n, Due::Synced { step, upto: 0, result });
    }

    fn persist(
        &mut self,
        n: usize,
        (step, behind): (u64, u64),
        bytes: &[u8],
        sync: bool,
        is_urgent: bool,
    ) {
        let has_room =
            (is_urgent || self.has_room_for(n, bytes.len())) && self.lie != Some(Lie::KeepsNoRoom);
        let is_full = self.fails(self.faults.disk) || self.is_full(n) && !has_room;
        let mut took = 1000 * self.rng.below(self.faults.sync.max(1)) + 50;
        let is_out_of_order =
            self.servers[n].disk.step != behind && self.lie != Some(Lie::IgnoresOrder);
        if is_full || is_out_of_order || self.servers[n].disk.is_suspect {
            return self.refuse(n, step, "No space left on device");
        }
        if sync && self.fails(self.faults.suspect) {
            return self.fail_to_sync(n, step, bytes);
        }
        let disk = &mut self.servers[n].disk;
        disk.step = step;
        let is_dropped = self.lie == Some(Lie::DropsSteps) && self.rng.one_in(10);
        if !is_dropped {
            disk.records.extend_from_slice(bytes);
        }
        let upto = if sync { disk.end() } else { 0 };
        if self.lie == Some(Lie::AnswersEarly) {
            took += 20_000;
            let disk = Due::Synced { step: 0, upto, result: Ok(took) };
            self.later(self.now_us + took, n, disk);
            return self.answer(self.now_us, n, Due::Synced { step, upto: 0, result: Ok(1) });
        }
        let at = self.now_us + if sync { took } else { 1 };
        self.answer(at, n, Due::Synced { step, upto, result: Ok(took) });
    }

    /// What was written may be on the disk or not; the file takes nothing more until another one takes its
    /// place.
    fn fail_to_sync(&mut self, n: usize, step: u64, bytes: &[u8]) {
        self.tell(format!("{n}: an fdatasync fails"));
        self.checks.counts.suspect += 1;
        let disk = &mut self.servers[n].disk;
        disk.records.extend_from_slice(bytes);
        disk.is_suspect = true;
        self.refuse(n, step, "Input/output error");
        self.later(self.now_us + 1000, n, Due::Rewrite);
    }

    /// A file that takes nothing, or cannot be read, is rewritten, as often as it takes.
    pub(super) fn rewrite(&mut self, n: usize) {
        let disk = &self.servers[n].disk;
        if !disk.is_suspect && !disk.is_unread {
            return;
        }
        if self.servers[n].applied_to == 0 {
            // There are no tables to write. Who joins has promised nothing: its file is opened anew.
            self.later(self.now_us + 50_000, n, Due::Down);
            return self.later(self.now_us + 100_000, n, Due::Up);
        }
        self.compact(n);
        self.later(self.now_us + 1_000_000, n, Due::Rewrite);
    }

    fn extend_copy(&mut self, n: usize, records: &[u8]) {
        if self.fails(self.faults.disk) || self.is_full(n) {
            let server = &mut self.servers[n];
            (server.receiving, server.is_copying) = (None, false);
            server.receptions += 1;
            return server.member.as_mut().expect("it has just asked").copy_ended();
        }
        self.servers[n].extended.extend_from_slice(records);
        self.checks.counts.extensions += 1;
        self.beside(n, Event::CopyExtended);
    }

    fn finish_copy(&mut self, n: usize, step: u64, tail: &[u8]) {
        let is_full = self.fails(self.faults.disk) || self.is_full(n);
        let server = &mut self.servers[n];
        server.finish = step;
        let is_whole = |front: &Front| front.mark.last.index <= server.applied_to;
        let front = server.receiving.take_if(|front| is_whole(front));
        let Some(front) = front.filter(|_| !is_full) else {
            return self.refuse(n, step, "the copy is gone");
        };
        let tail = [&server.extended, tail].concat();
        let tail = if self.lie == Some(Lie::LosesTailOfCopy) { &[][..] } else { &tail };
        server.disk.replace(front, tail, step);
        self.checks.counts.compactions += 1;
        self.settled(n);
        let due = Due::Synced { step, upto: 0, result: Ok(1) };
        self.answer(self.now_us + 5000, n, due);
    }

    fn install(&mut self, n: usize, step: u64, last: Position, tail: &Arc<Vec<u8>>) {
        // Seldom is one installed: of those more fail.
        let is_full = self.fails(self.faults.disk / 4) || self.is_full(n);
        let server = &mut self.servers[n];
        let front = server.receiving.take().expect("what could not take the place is given up");
        assert_eq!(front.mark.last, last, "the snapshot that came is installed");
        if is_full {
            self.checks.counts.lost_snapshots += 1;
            // Nothing else is done to the file until the member has heard that.
            server.installing = step;
            return self.refuse(n, step, "No space left on device");
        }
        server.applied = front.applied();
        (server.applied_to, server.installing) = (last.index, step);
        server.owner = server.id;
        self.checks.counts.snapshots += 1;
        self.checks.snapshot(n, &front.mark, &server.applied);
        server.disk.replace(front, tail, step);
        self.settled(n);
        let due = Due::Synced { step, upto: 0, result: Ok(5000) };
        self.answer(self.now_us + 5000, n, due);
    }

    fn answer(&mut self, at: u64, n: usize, due: Due) {
        let at = at.max(self.servers[n].synced_at + 1);
        self.servers[n].synced_at = at;
        self.later(at, n, due);
    }

    /// A step has been synced, or could not be written.
    pub(super) fn synced(&mut self, n: usize, step: u64, upto: usize, result: Result<u64, String>) {
        let server = &mut self.servers[n];
        if step > 0 && step == server.finish {
            (server.is_copying, server.finish) = (false, 0);
        }
        if step == server.installing {
            server.installing = 0;
        }
        server.disk.sync(upto);
        self.settled(n);
        if step > 0 {
            self.event(n, Event::Persisted { step, result });
        }
    }

    /// Records are on the disk for good.
    fn settled(&mut self, n: usize) {
        let server = &mut self.servers[n];
        for (term, vote) in server.disk.settle() {
            self.checks.votes(server.id, term, vote);
        }
    }

    fn apply(&mut self, n: usize, entries: Vec<Entry>) {
        for entry in entries {
            let times = match self.lie {
                Some(Lie::AppliesTwice) if self.rng.one_in(50) => 2,
                Some(Lie::SkipsEntries) if self.rng.one_in(50) => 0,
                _ => 1,
            };
            (0..times).for_each(|_| self.apply_one(n, &entry));
        }
    }

    fn apply_one(&mut self, n: usize, entry: &Entry) {
        let server = &mut self.servers[n];
        let index = entry.at.index;
        assert_eq!(index, server.applied_to + 1, "server {n} applies in order, each once");
        server.applied_to = index;
        if let Some(eid) = entry.content.eid() {
            server.applied.insert(index, eid);
        }
        let proposed = server.proposed.remove(&index);
        self.checks.counts.acknowledged += u64::from(proposed == Some(entry.at));
        self.checks.applies(n, entry, &self.servers);
    }

    fn led(&mut self, n: usize, leader: Option<Uuid>) {
        let server = &self.servers[n];
        if leader == Some(server.id) {
            self.checks.leads(server.member.as_ref().expect("it has just spoken"));
        }
    }

    /// A client of a server's writes; false unless the server leads.
    pub fn propose(&mut self, n: usize, count: usize) -> bool {
        let mut batch = vec![];
        for _ in 0..count {
            self.next_eid += 1;
            let eid = Uuid::from_u128(self.next_eid);
            let is_long = self.fails(self.faults.long);
            let blanks = if is_long { self.rng.below(LONG_BYTES) as usize } else { 0 };
            let text = format!("[null,{{\"n\":{}{}}}]", " ".repeat(blanks), self.next_eid);
            batch.push(Proposal { eid, text: text.into_bytes().into() });
        }
        let now_us = self.clock(n);
        let Some(member) = self.awake(n) else { return false };
        let Ok(first) = member.propose(now_us, batch) else { return false };
        for index in first.index..first.index + count as u64 {
            self.servers[n].proposed.insert(index, Position { term: first.term, index });
        }
        self.run(n);
        true
    }

    /// Somebody wants to know what is committed.
    pub fn read_index(&mut self, n: usize) {
        let now_us = self.clock(n);
        if self.awake(n).is_some() {
            let number = self.checks.asks();
            let member = self.awake(n).expect("it has just been");
            member.read_index(now_us, number);
            self.run(n);
        }
    }

    /// The file of a server is rewritten with a snapshot of what has taken effect.
    pub fn compact(&mut self, n: usize) {
        let server = &mut self.servers[n];
        let Some(member) = &mut server.member else { return };
        let is_busy = server.is_copying || server.receiving.is_some();
        let last = server.disk.front.mark.last.index;
        let is_broken = server.disk.is_suspect || server.disk.is_unread;
        let has_more = server.applied_to > last || is_broken;
        // Who still joins has no tables to write.
        let has_tables = server.applied_to > 0;
        if is_busy || !has_tables || !has_more || member.applied() < last || server.installing > 0 {
            return;
        }
        let mark = member.begin_copy();
        assert_eq!(mark.last.index, server.applied_to, "a member knows what took effect");
        let mut applied = server.applied.clone();
        if self.lie == Some(Lie::SnapshotLacksData) {
            applied.pop_last();
        }
        let cluster = server.disk.front.cluster;
        let front = Front::of(cluster, mark.clone(), &applied, self.faults.padding);
        self.copy(n, mark, front);
    }

    fn copy(&mut self, n: usize, mark: Mark, front: Front) {
        let len = front.data.len() as u64;
        let server = &mut self.servers[n];
        (server.receiving, server.is_copying) = (Some(front), true);
        server.extended.clear();
        self.beside(n, Event::CopyWritten { mark, len });
    }
}

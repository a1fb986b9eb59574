//! This server as a member of clusters: each clustered database has a [`Member`], whose connections,
//! writes and committed entries pass through here.
//!
//! # The life of a write
//!
//! 1. With the leader a transaction runs as everywhere. At the end of the round the batch is undone,
//!    and proposed: an entry a change (`server/clustering/entries.rs`).
//! 2. With another member it is tried on the rows there. If it would change them, that is undone, and
//!    the request goes to the leader, under an id that its entry will have (`server/clustering/requests.rs`).
//!    What is random in it follows from that id.
//! 3. The leader runs it in its batch and sends the reply ahead of the entry.
//! 4. An entry that is committed takes effect: with the leader as the change that it stands for, with
//!    others as its text says (`server/clustering/entries.rs`). Then monitors are told, and whoever asked.
//!
//! Whoever has asked a leader that is no more asks the next one under the same id: the entry is in
//! its log, or never will be. If the reply is lost, the request runs again on the rows just before
//! the entry, where it is answered as it was.

pub(crate) mod answers;
pub(crate) mod arrived;
pub(crate) mod askers;
pub(crate) mod conversion;
pub(crate) mod forwards;
pub(crate) mod growth;
pub(crate) mod message;
pub(crate) mod reading;
pub(crate) mod receiving;
pub(crate) mod repetitions;
pub(crate) mod unapplied;
pub(crate) mod window;

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_cluster::{Event as Happened, Mark, Member, Position, Proposal};
use weir_data::{DeclaredKeys, Uuid};
use weir_log::compact;

use crate::clusters::answers::{Answers, Held};
use crate::clusters::arrived::Arrived;
use crate::clusters::askers::Askers;
use crate::clusters::conversion::Conversion;
use crate::clusters::forwards::Forwards;
use crate::clusters::growth::Growth;
use crate::clusters::message::{Message, Outcome, Request};
use crate::clusters::reading::{Piece, Texts};
use crate::clusters::receiving::Receiving;
use crate::clusters::repetitions::Repetitions;
use crate::clusters::unapplied::Unapplied;
use crate::database::Trigger;
use crate::effect::Effect;
use crate::ids::{CommandId, DbId, LinkId, PeerPortId, SessionId, WorkId};
use crate::origin::{Asker, Identity};
use crate::reply::error_text;
use crate::shell::Shell;
use crate::storage::load::KeptKeys;
use crate::text_limit::{EntryLimit, TEXT_BYTES_MAX, too_long};

/// Numbers of connections to members begin here: those below belong to sources of databases.
const LINKS_FROM: u64 = 1 << 40;

/// A server that ends waits for so long at most until its leadership is taken, in microseconds.
pub(crate) const STOP_US_MAX: u64 = 2_000_000;

/// A snapshot that could not be read back is read again after this long, in microseconds.
pub(crate) const LOAD_AGAIN_US: u64 = 1_000_000;

/// A leader that could not be asked is asked again after this long, in microseconds.
pub(crate) const AGAIN_US: u64 = 100_000;

/// What a leader has proposed, and has not got committed for so long, it gives up: it waits for the entries as any
/// other member does, with its tables open to who reads.
const PATIENCE_US: u64 = 2_000_000;

/// A leader waits for what it has proposed a microsecond longer for so many bytes of that, which have to be written
/// and sent.
const PATIENCE_BYTES_PER_US: u64 = 16;

/// How far a member is that is to lead no more, for its database is to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    Not,
    /// Leadership is on its way to another server, and nobody waits for that any longer than this.
    Until(u64),
    Left,
}

/// A clustered database's part in its cluster.
pub(crate) struct Part {
    pub(crate) member: Member,
    /// The file, as the user gave it, absolute.
    pub(crate) path: String,
    /// Where the data of the file's snapshot begins.
    pub(crate) snapshot_offset: u64,
    /// Where the records behind the file's first one begin.
    pub(crate) log_offset: u64,
    /// What the file beside it says about keys, and the configuration, until there are tables.
    pub(crate) keys: KeptKeys,
    pub(crate) configured_keys: DeclaredKeys,
    pub(crate) port: PeerPortId,
    /// Numbers of connections as the shell has them.
    pub(crate) links: BTreeMap<weir_cluster::LinkId, LinkId>,
    /// Committed entries that have not taken effect.
    pub(crate) to_apply: Unapplied,
    /// A step was not enough for them: the next one goes on.
    pub(crate) goes_on: bool,
    /// The last one that has.
    pub(crate) applied: u64,
    pub(crate) forwards: Forwards,
    /// To another schema.
    pub(crate) conversion: Conversion,
    /// Requests of other members that have not run.
    pub(crate) arrived: Arrived,
    /// To those, and to its own from its leader.
    pub(crate) answers: Answers,
    /// Which attempts at requests of other members have come in this term, as its leader.
    pub(crate) repetitions: Repetitions,
    /// Pieces of the file that are read for other members.
    pub(crate) reads: BTreeMap<WorkId, Piece>,
    /// Who has asked this leader what is committed, and with which number, by the number of the
    /// reading.
    pub(crate) index_reads: BTreeMap<u64, (Uuid, u64)>,
    pub(crate) next_read: u64,
    /// Texts of entries that are read for other members.
    pub(crate) texts: Option<Texts>,
    /// When to ask a leader again that could not be asked.
    pub(crate) again_us: Option<u64>,
    /// When the batch or the conversion that was proposed last is given up, if it is not decided by then.
    pub(crate) patience_us: Option<u64>,
    /// This leader has given up what it proposed until here: nothing runs before that has taken effect. 0 if it has
    /// not.
    pub(crate) given_up_to: u64,
    /// What `_Server` says.
    pub(crate) told: Told,
    /// `_Server` has a row for it, though it may have no tables.
    pub(crate) has_row: bool,
    /// A snapshot on its way here.
    pub(crate) receiving: Option<Receiving>,
    /// One that has taken the file's place, but not the tables'.
    pub(crate) loaded: Option<Receiving>,
    /// When to read that once more, which could not be read.
    pub(crate) load_again_us: Option<u64>,
    /// The helper that is at one of these.
    pub(crate) loading: Option<WorkId>,
    /// A copy of the file that is being written.
    pub(crate) copy: Option<Copy>,
    /// One of them is about to take the file's place.
    pub(crate) finishing: Option<Finishing>,
    pub(crate) growth: Growth,
    /// The server is no member any more.
    pub(crate) end: Option<End>,
    /// Where others were, for one that joins again.
    pub(crate) known: Vec<String>,
    /// The server ends, and its leadership is on its way to another one.
    pub(crate) is_handing_over: bool,
    /// The database is to be removed, and leadership to be with another server by then.
    pub(crate) leaving: Leaving,
    /// Bytes that may be queued for a member (`cluster/set-backlog-threshold`).
    pub(crate) backlog_bytes_max: Option<usize>,
}

impl Part {
    /// Tells a member what has come of an attempt of its client's request.
    pub(crate) fn reply(
        &mut self,
        (to, client): (Uuid, &Arc<Identity>),
        (eid, attempt): (Uuid, u64),
        outcome: Outcome,
    ) {
        let outcome = match outcome {
            // Who has asked may run it once more, on the rows that it ran on here, if that does not cost too much.
            Outcome::Entry(at, reply) if reply.len() > TEXT_BYTES_MAX => Outcome::Known(at),
            Outcome::Empty(at, reply) if reply.len() > TEXT_BYTES_MAX => {
                let error = error_text(&too_long("a reply"));
                Outcome::Empty(at, [&b"["[..], &error, b"]"].concat())
            }
            outcome => outcome,
        };
        let may_wait = matches!(outcome, Outcome::Empty(..));
        let message = Message::Reply { eid, attempt, outcome }.write();
        if may_wait && self.is_full(to) {
            let client = Arc::clone(client);
            return self.answers.hold(to, Held { of: (eid, attempt), client, message });
        }
        self.send_held(to, client);
        self.send_reply(to, message);
    }

    /// What is held for a client is said now: what has run behind that is.
    pub(crate) fn send_held(&mut self, to: Uuid, client: &Identity) {
        for held in self.answers.held_for(to, client) {
            self.send_reply(to, held);
        }
    }

    fn send_reply(&mut self, to: Uuid, message: Vec<u8>) {
        let bytes = message.len();
        if self.member.send_reply(to, message) {
            self.answers.sent(to, bytes);
        }
    }

    /// A member has taken so many bytes more of its answers: others follow.
    pub(crate) fn answers_taken(&mut self, by: Uuid, bytes: u64) {
        self.answers.told(by, bytes);
        let backlog_bytes_max = self.backlog_bytes_max();
        while let Some(message) = self.answers.next_held(by, backlog_bytes_max) {
            self.send_reply(by, message);
        }
    }

    /// Whether nothing more runs for a member until it has taken its answers.
    pub(crate) fn is_full(&self, of: Uuid) -> bool {
        self.answers.is_full(of, self.backlog_bytes_max())
    }

    /// Bytes that may be queued for a member, as far as an operator has set that.
    pub(crate) fn backlog_bytes_max(&self) -> usize {
        self.backlog_bytes_max.unwrap_or(usize::MAX)
    }

    /// What this member was asked as a leader is asked of the next one, which may be this one again.
    pub(crate) fn forget_requests(&mut self) {
        let held = self.answers.take_held().into_iter();
        let held = held.map(|(to, Held { of, client, .. })| (to, client, of));
        let arrived = self.arrived.take_all().map(|(from, request)| {
            let Request { eid, attempt, identity, .. } = request;
            (from, Arc::new(identity), (eid, attempt))
        });
        for (from, client, of) in held.chain(arrived).collect::<Vec<_>>() {
            self.reply((from, &client), of, Outcome::NotLeader);
        }
        self.repetitions.clear();
        self.index_reads.clear();
    }

    /// Whether another file for the place of this one is being written, or about to take it.
    pub(crate) fn is_replacing_file(&self) -> bool {
        self.copy.is_some() || self.receiving.is_some() || self.finishing.is_some()
    }

    /// Whether something is committed that the tables do not have.
    pub(crate) fn is_behind(&self) -> bool {
        !self.to_apply.is_empty() || self.loaded.is_some()
    }

    /// This leader proposes entries, and begins to wait for them: the place of the first one, which is the next one of
    /// the log.
    pub(crate) fn propose(&mut self, now_us: u64, proposals: Vec<Proposal>) -> Position {
        let bytes: usize = proposals.iter().map(|proposal| proposal.text.len()).sum();
        self.patience_us = Some(now_us + PATIENCE_US + bytes as u64 / PATIENCE_BYTES_PER_US);
        let next = self.member.next_position();
        let first = self.member.propose(now_us, proposals);
        let first = first.expect("the member has just said that it may");
        assert_eq!(first, next, "other members have been told the places");
        first
    }

    /// Whether all entries of earlier terms have taken effect that ever will.
    pub(crate) fn has_earlier_terms(&self) -> bool {
        // A snapshot that is to take effect has put the log's beginning behind that.
        let last = self.member.position(self.applied);
        last.is_some_and(|last| last.term == self.member.term())
    }

    /// Whether the tables cannot become what is committed: their snapshot cannot be read.
    pub(crate) fn is_unread(&self) -> bool {
        self.loaded.as_ref().is_some_and(|loaded| loaded.is_unread)
    }

    /// Whether rows are committed that the tables do not have, or may be committed yet.
    pub(crate) fn lacks_rows(&self) -> bool {
        self.loaded.is_some() || self.to_apply.has_data() || self.applied < self.given_up_to
    }

    /// How long entries may be that are proposed now.
    pub(crate) fn entry_limit(&self) -> EntryLimit {
        EntryLimit { refused: self.member.no_room() }
    }
}

/// Why a server is no member any more, or not yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The member has left, for good.
    Left,
    /// The member does not have what it had promised to keep: it joins again.
    Forgot,
    /// What is committed cannot take effect on the member's rows: whatever it goes on with is not what
    /// others have.
    Unfit,
    /// The file takes nothing and has no rows to be written anew: who still joins has promised nothing, so it is
    /// opened again.
    Suspect,
}

/// A copy of a member's file that is being written.
#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) mark: Mark,
    /// Where the data of its snapshot begins, once that is written.
    pub(crate) data_offset: Option<u64>,
    /// Bytes of the records behind its first one, so far.
    pub(crate) log_len: u64,
    /// Who waits for it.
    pub(crate) command: Option<CommandId>,
}

/// Another file that is about to take the place of a member's file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finishing {
    /// The step that it is.
    pub(crate) step: u64,
    /// Bytes of the records behind its first one.
    pub(crate) log_len: u64,
    /// The other file is a snapshot of another member, not a copy that was made of this one's tables.
    pub(crate) is_snapshot: bool,
}

/// What `_Server` says of a clustered database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) is_connected: bool,
    pub(crate) leads: bool,
    pub(crate) index: u64,
    pub(crate) cluster: Option<Uuid>,
}

/// A member's file that has been opened.
pub(crate) struct PartFile {
    /// As the user gave it, absolute.
    pub(crate) path: String,
    /// Where the data of the file's snapshot begins.
    pub(crate) snapshot_offset: u64,
    /// Where the records behind the file's first one begin.
    pub(crate) log_offset: u64,
    /// Bytes of the file.
    pub(crate) size: u64,
    /// What the file beside it says about keys, for tables that are still to come.
    pub(crate) keys: KeptKeys,
}

/// All clustered databases.
#[derive(Default)]
pub(crate) struct Clusters {
    pub(crate) parts: BTreeMap<DbId, Part>,
    pub(crate) links: BTreeMap<LinkId, (DbId, weir_cluster::LinkId)>,
    pub(crate) ports: BTreeMap<PeerPortId, DbId>,
    pub(crate) next_link: u64,
    pub(crate) next_port: u64,
    pub(crate) askers: Askers,
    /// The server ends by then, whoever leads.
    pub(crate) stop_by_us: Option<u64>,
}

impl Clusters {
    pub(crate) fn part(&self, db: DbId) -> Option<&Part> {
        self.parts.get(&db)
    }

    /// Whether a request of another member waits until that has taken its answers.
    pub(crate) fn is_full_for(&self, trigger: &Trigger) -> bool {
        let Asker::Peer(number) = trigger.origin.asker else { return false };
        let part = self.part(trigger.origin.db).zip(self.askers.get(number));
        part.is_some_and(|(part, asked)| part.is_full(asked.from))
    }

    pub(crate) fn part_mut(&mut self, db: DbId) -> &mut Part {
        self.parts.get_mut(&db).expect("a clustered database has its part")
    }

    /// A session has left: its requests that wait for leaders are returned.
    pub(crate) fn forget_session(&mut self, session: SessionId) -> Vec<Trigger> {
        let parts = self.parts.values_mut();
        parts.flat_map(|part| part.forwards.forget_session(session)).collect()
    }

    /// Bytes kept for a session's requests that had to wait for a leader.
    pub(crate) fn kept_bytes(&self, session: SessionId) -> usize {
        self.parts.values().map(|part| part.forwards.outbound().kept_bytes(session)).sum()
    }

    /// Bytes kept for all such requests.
    pub(crate) fn all_kept_bytes(&self) -> usize {
        self.parts.values().map(|part| part.forwards.outbound().all_kept_bytes()).sum()
    }

    /// What `memory/show` says of them: open connections to members, and entries of logs.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let of = |part: &Part| (part.member.connections(), part.member.log_len());
        self.parts.values().map(of).fold((0, 0), |(a, b), (c, d)| (a + c, b + d))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Whether a connection is one to a member.
    pub(crate) fn has_link(&self, link: LinkId) -> bool {
        self.links.contains_key(&link)
    }

    /// The databases whose file has grown enough to be written anew. Members take turns: how long each waits
    /// follows from its id.
    pub(crate) fn due_for_copy(&self, now_us: u64) -> impl Iterator<Item = DbId> {
        let is_due = move |(db, part): (&DbId, &Part)| {
            let jitter_ms = (part.member.id().to_u128() % u128::from(compact::JITTER_MS)) as u64;
            let is_going = part.end.is_some() || part.member.is_departing();
            let is_free = part.copy.is_none() && !is_going;
            (is_free && part.growth.is_due(now_us, jitter_ms)).then_some(*db)
        };
        self.parts.iter().filter_map(is_due)
    }

    /// Databases whose server is no member any more, with the note of that in the file if there is to be
    /// one. A suspect file takes none: who opens it hears from the others that it has left.
    pub(crate) fn left(&self) -> impl Iterator<Item = (DbId, End)> {
        let end = |(db, part): (&DbId, &Part)| {
            let is_written = |end: &End| matches!(end, End::Left | End::Forgot);
            let waits = |end: &End| {
                is_written(end) && part.member.is_writing() && !part.growth.is_suspect()
            };
            part.end.filter(|end| !waits(end)).map(|end| (*db, end))
        };
        self.parts.iter().filter_map(end)
    }

    /// The clustered database of this name, whether it has joined or not.
    pub(crate) fn by_name(&self, name: &str) -> Option<DbId> {
        self.parts.iter().find(|(_, part)| part.member.name() == name).map(|(db, _)| *db)
    }

    /// Whether a database of this name has not joined its cluster yet.
    pub(crate) fn is_joining(&self, name: &str) -> bool {
        self.by_name(name).is_some_and(|db| !self.parts[&db].member.is_member())
    }

    /// When something is to be done though nothing happens.
    #[inline]
    pub(crate) fn next_us(&self) -> Option<u64> {
        if self.parts.is_empty() { self.stop_by_us } else { self.next_of_parts_us() }
    }

    fn next_of_parts_us(&self) -> Option<u64> {
        let of = |part: &Part| {
            let goes_on_us = part.goes_on.then_some(0);
            let leaving_us = match part.leaving {
                Leaving::Until(by_us) => Some(by_us),
                Leaving::Not | Leaving::Left => None,
            };
            let again =
                [part.again_us, part.load_again_us, part.patience_us, goes_on_us, leaving_us];
            again.into_iter().flatten().fold(part.member.wakeup_us(), u64::min)
        };
        self.parts.values().map(of).chain(self.stop_by_us).min()
    }

    /// Whether all leadership that was handed over has been taken, or nobody waits for that any
    /// longer.
    pub(crate) fn may_stop(&self, now_us: u64) -> bool {
        let has_gone = |part: &Part| {
            let leader = part.member.leader();
            !part.is_handing_over || leader.is_some_and(|leader| leader != part.member.id())
        };
        self.stop_by_us.is_none_or(|by_us| by_us <= now_us) || self.parts.values().all(has_gone)
    }

    /// A clustered database is served from now on.
    pub(crate) fn insert(&mut self, shell: &mut Shell, db: DbId, member: Member, file: PartFile) {
        let PartFile { path, snapshot_offset, log_offset, size, keys } = file;
        self.next_port += 1;
        let port = PeerPortId(self.next_port);
        let address = member.address().to_owned();
        shell.ask(Effect::ListenForPeers { port, address });
        self.ports.insert(port, db);
        let applied = member.committed();
        let part = Part {
            member,
            path,
            snapshot_offset,
            log_offset,
            keys,
            configured_keys: DeclaredKeys::default(),
            port,
            links: BTreeMap::new(),
            to_apply: Unapplied::default(),
            goes_on: false,
            applied,
            forwards: Forwards::default(),
            conversion: Conversion::None,
            answers: Answers::default(),
            arrived: Arrived::default(),
            repetitions: Repetitions::default(),
            reads: BTreeMap::new(),
            index_reads: BTreeMap::new(),
            next_read: 0,
            texts: None,
            again_us: None,
            told: Told::default(),
            has_row: false,
            receiving: None,
            loaded: None,
            load_again_us: None,
            patience_us: None,
            given_up_to: 0,
            loading: None,
            copy: None,
            finishing: None,
            growth: Growth::new(size, shell.now_us()),
            end: None,
            known: Vec::new(),
            is_handing_over: false,
            leaving: Leaving::Not,
            backlog_bytes_max: None,
        };
        self.parts.insert(db, part);
    }

    /// A clustered database is no longer served.
    pub(crate) fn remove(&mut self, shell: &mut Shell, db: DbId) -> Option<Part> {
        let part = self.parts.remove(&db)?;
        self.askers.forget(db);
        self.ports.remove(&part.port);
        shell.ask(Effect::CloseForPeers { port: part.port });
        for link in part.links.values() {
            self.links.remove(link);
            shell.ask(Effect::CloseLink { link: *link });
        }
        Some(part)
    }

    pub(crate) fn shell_link(&mut self, db: DbId, link: weir_cluster::LinkId) -> LinkId {
        self.next_link += 1;
        let number = LinkId(LINKS_FROM + self.next_link);
        self.links.insert(number, (db, link));
        self.part_mut(db).links.insert(link, number);
        number
    }

    pub(crate) fn forget_link(&mut self, link: LinkId) -> Option<(DbId, weir_cluster::LinkId)> {
        let (db, of_member) = self.links.remove(&link)?;
        self.part_mut(db).links.remove(&of_member);
        Some((db, of_member))
    }

    /// A member has been told something; it is to be asked what it wants.
    pub(crate) fn tell(&mut self, shell: &Shell, db: DbId, event: Happened) {
        self.part_mut(db).member.handle(shell.now_us(), event);
    }
}

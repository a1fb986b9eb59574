//! Snapshots for members that lack more than the log has: the data of the file's own snapshot, in
//! pieces, as fast as the other end takes them. When another file is about to take the file's place,
//! what is on its way begins anew.
//!
//! The entries behind a snapshot are in the log of whom it comes from, so nothing is composed for
//! it. What has come is kept over a lost connection, as long as the same member sends the same
//! snapshot again.
//!
//! What comes is acknowledged when it is in the file beside the file, so no more than a few pieces are in
//! memory, however slow the disk is. A snapshot that cannot be written, makes no sense or cannot take
//! the file's place is given up: the connection that it came on ends, and a second later it is taken anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_data::Uuid;

use super::copies::Copies;
use super::{Member, short};
use crate::consensus::Mark;
use crate::effect::{Effect, Level};
use crate::file::{self, Onto};
use crate::ids::{LinkId, Position};
use crate::wire::{Begin, Frame, Lane, Step};

/// Bytes of a piece.
const PIECE_BYTES: u64 = 256 << 10;

/// Pieces that are under way to one member.
const PIECES: u64 = 4;

/// Bytes that come before those before them are in the file, at most: with more, the connection ends. A
/// sender that keeps to [`PIECES`] never gets there.
const AHEAD_BYTES_MAX: u64 = (PIECES + 1) * PIECE_BYTES;

/// A snapshot that could not be kept is taken again after this long, in microseconds.
const AGAIN_US: u64 = 1_000_000;

impl Begin {
    fn mark(&self) -> Mark {
        let servers = Arc::clone(&self.servers);
        let Self { last, eid, election_timer, .. } = *self;
        Mark { last, eid, servers, election_timer }
    }
}

/// A snapshot on its way to another member.
#[derive(Debug)]
struct Outgoing {
    /// No other sending has this number: a piece that was read for one before it may be of another file, even if both
    /// snapshots end with the same entry.
    number: u64,
    last: Position,
    len: u64,
    /// Bytes that have been asked of the file. `None` until the other end says what it has.
    asked: Option<u64>,
    /// Bytes that the other end has.
    taken: u64,
}

/// A snapshot on its way here.
#[derive(Debug)]
struct Incoming {
    from: Uuid,
    /// Where it comes.
    link: LinkId,
    begin: Begin,
    have: u64,
    /// So much of that is in the file beside the file, once that has begun.
    written: Option<u64>,
    /// The other end knows from where on it is to send.
    is_told: bool,
    /// All of it is there and makes sense.
    is_loaded: bool,
}

impl Incoming {
    fn is_whole(&self) -> bool {
        self.have == self.begin.len
    }
}

/// Snapshots on their way.
#[derive(Debug)]
pub(crate) struct Snapshots {
    /// Bytes of the data of the file's snapshot.
    pub(super) len: u64,
    outgoing: BTreeMap<Uuid, Outgoing>,
    /// How many have been begun.
    sendings: u64,
    incoming: Option<Incoming>,
    /// One that was announced when it could not be taken.
    announced: Option<(LinkId, Uuid, Begin)>,
    /// None is taken before this, monotonic, for one could not be kept.
    again_us: Option<u64>,
    /// Since when, monotonic, none could be kept, and nothing else has come that is committed.
    lacking_us: Option<u64>,
    /// The snapshot that has come is about to take the file's place.
    is_installing: bool,
    /// A copy of the file that is being written, or is about to take the file's place.
    pub(super) copies: Copies,
}

impl Snapshots {
    pub(super) fn new(len: u64) -> Self {
        Self {
            len,
            outgoing: BTreeMap::new(),
            sendings: 0,
            incoming: None,
            announced: None,
            again_us: None,
            lacking_us: None,
            is_installing: false,
            copies: Copies::default(),
        }
    }

    /// Whether a snapshot is on its way here.
    #[cfg(test)]
    pub(super) fn is_receiving(&self) -> bool {
        self.incoming.is_some()
    }

    /// Whether a whole snapshot has come that has not taken the place of what was here.
    pub(super) fn is_taking_in(&self) -> bool {
        self.is_installing || self.incoming.as_ref().is_some_and(Incoming::is_whole)
    }

    /// Whether the log is being replaced.
    pub(super) fn is_installing(&self) -> bool {
        self.is_installing
    }

    /// Whether another file is about to take the file's place: places in it mean nothing until that is
    /// known to have happened, or not.
    pub(super) fn is_replacing_file(&self) -> bool {
        self.is_installing || self.copies.is_finishing()
    }

    /// Whether one that is announced must wait: of what takes the file's place nobody knows yet whether it
    /// has, or one could not be kept.
    fn must_wait(&self, now_us: u64) -> bool {
        self.is_replacing_file() || self.again_us.is_some_and(|at| at > now_us)
    }

    /// When to go on with one that was announced.
    pub(super) fn wakeup_us(&self) -> Option<u64> {
        self.again_us.filter(|_| self.announced.is_some() && !self.is_replacing_file())
    }

    /// Whether the member has lacked for so long what it is sent, for that cannot be kept.
    pub(super) fn are_refused_for(&self, us: u64, now_us: u64) -> bool {
        self.lacking_us.is_some_and(|since| now_us.saturating_sub(since) > us)
    }

    /// The member has what is committed, as far as it has heard.
    pub(super) fn lack_nothing(&mut self) {
        self.lacking_us = None;
    }
}

impl Member {
    /// A member needs a snapshot.
    pub(super) fn begin_snapshot(&mut self, to: Uuid) {
        if self.snapshots.is_replacing_file() {
            // The library asks again when it hears of the member.
            return self.node.snapshot_sent(to, false);
        }
        let Mark { last, eid, servers, election_timer } = self.node.mark().clone();
        let (term, len) = (self.node.term(), self.snapshots.len);
        let begin = Begin { term, last, eid, servers, election_timer, len };
        if !self.peers.send(to, Lane::Log, &Frame::Begin(begin)) {
            return self.node.snapshot_sent(to, false);
        }
        self.snapshots.sendings += 1;
        let number = self.snapshots.sendings;
        let outgoing = Outgoing { number, last, len, asked: None, taken: 0 };
        self.snapshots.outgoing.insert(to, outgoing);
        let text = format!("sending snapshot to server {}", self.nickname(to));
        self.log_limited("send_snapshot", Level::Info, text);
    }

    /// The connection to a member has ended: a snapshot on its way there begins anew.
    pub(super) fn snapshot_cut(&mut self, peer: Uuid) {
        if self.snapshots.outgoing.remove(&peer).is_some() {
            self.node.snapshot_sent(peer, false);
        }
    }

    /// The file is about to be another one: what is still read of its snapshot for others begins anew.
    pub(super) fn cut_outgoing(&mut self) {
        let is_read = |out: &Outgoing| out.taken < out.len;
        let outgoing = self.snapshots.outgoing.iter();
        let cut: Vec<Uuid> = outgoing.filter(|(_, out)| is_read(out)).map(|(to, _)| *to).collect();
        cut.into_iter().for_each(|to| self.snapshot_cut(to));
    }

    /// A member says how much of a snapshot it has.
    pub(super) fn snapshot_taken(&mut self, from: Uuid, last: Position, upto: u64) {
        let Some(outgoing) = self.snapshots.outgoing.get_mut(&from) else { return };
        let is_sent = outgoing.asked.is_none_or(|asked| upto <= asked);
        if outgoing.last != last || upto > outgoing.len || !is_sent {
            return;
        }
        outgoing.taken = upto;
        if upto == outgoing.len {
            let (cluster, server) = (self.cluster_name(), self.nickname(from));
            let Position { term, index } = last;
            let text =
                format!("cluster {cluster}: sent snapshot to server {server} up to {term}:{index}");
            return self.log(Level::Info, text);
        }
        let number = outgoing.number;
        let asked = outgoing.asked.get_or_insert(upto);
        let mut reads = vec![];
        while *asked < outgoing.len && *asked < upto + PIECES * PIECE_BYTES {
            let len = PIECE_BYTES.min(outgoing.len - *asked);
            reads.push(Effect::ReadSnapshot { to: from, number, offset: *asked, len });
            *asked += len;
        }
        self.gather();
        self.effects.extend(reads);
    }

    /// A piece of the file's snapshot is here, for another member.
    pub(super) fn snapshot_read(
        &mut self,
        to: Uuid,
        number: u64,
        offset: u64,
        result: Result<Vec<u8>, String>,
    ) {
        let outgoing = self.snapshots.outgoing.get(&to).filter(|out| out.number == number);
        let Some(&Outgoing { last, .. }) = outgoing else { return };
        match result {
            Ok(bytes) => {
                self.peers.send(to, Lane::Log, &Frame::Piece { last, offset, bytes });
            }
            Err(error) => {
                let text = format!("cannot read snapshot for {}: {error}", self.nickname(to));
                self.log_limited("snapshot_unread", Level::Warning, text);
                self.snapshot_cut(to);
                self.effects.push_back(Effect::RewriteFile);
            }
        }
    }

    /// A snapshot is about to come.
    pub(super) fn snapshot_announced(&mut self, link: LinkId, from: Uuid, begin: Begin) {
        let last = begin.last;
        if self.is_gone() || begin.term < self.node.term() {
            return;
        }
        if self.node.has_on_disk(last) {
            // What the file has, it need not be sent; the library acknowledges it.
            return self.node.restore(from, begin.term, begin.mark());
        }
        // What is on its way to the file may be refused and given up, and nobody would say so.
        if !self.node.lacks(last) || self.snapshots.must_wait(self.now_us) {
            // The other end goes on when it hears how much is here, and not before.
            self.snapshots.announced = Some((link, from, begin));
            return;
        }
        if let Some(incoming) = &mut self.snapshots.incoming
            && incoming.from == from
            && (incoming.begin.last, incoming.begin.len) == (last, begin.len)
        {
            (incoming.begin, incoming.link, incoming.is_told) = (begin, link, false);
            return self.tell_what_is_written();
        }
        self.log(Level::Info, format!("receiving snapshot from server {}", short(from)));
        self.snapshots.copies.give_up();
        self.effects.push_back(Effect::ReceiveSnapshot {
            cluster: self.cluster,
            mark: begin.mark(),
            len: begin.len,
        });
        let (have, written, is_told, is_loaded) = (0, None, false, false);
        self.snapshots.incoming =
            Some(Incoming { from, link, begin, have, written, is_told, is_loaded });
    }

    /// Takes up a snapshot that was announced when it could not be taken.
    pub(super) fn take_announced(&mut self) {
        if self.snapshots.must_wait(self.now_us) {
            return;
        }
        // What still waits does not wait for the clock.
        self.snapshots.again_us = None;
        if let Some((link, from, begin)) = self.snapshots.announced.take()
            && self.peers.link(link).is_some()
            && self.node.check_snapshot(from, begin.term, begin.last).is_ok()
        {
            self.snapshot_announced(link, from, begin);
        }
    }

    pub(super) fn snapshot_piece(
        &mut self,
        link: LinkId,
        from: Uuid,
        last: Position,
        offset: u64,
        mut bytes: Vec<u8>,
    ) {
        let Some(incoming) = &mut self.snapshots.incoming else { return };
        let is_of_it = incoming.from == from && incoming.begin.last == last;
        let end = offset.saturating_add(bytes.len() as u64);
        if !is_of_it || end <= incoming.have || end > incoming.begin.len {
            return;
        }
        // Where a sending begins anew, an acknowledgement that was on its way may have passed for the answer to that,
        // and more has come since.
        let had = incoming.have.checked_sub(offset).map(usize::try_from);
        let Some(Ok(had)) = had else {
            return self.refuse(link, "what comes before a piece of a snapshot has not come");
        };
        bytes.drain(..had);
        if end - incoming.written.unwrap_or(0) > AHEAD_BYTES_MAX {
            return self.refuse(link, "more of a snapshot than was asked for");
        }
        incoming.have = end;
        self.starved.fed();
        let is_all = end == incoming.begin.len;
        self.effects.push_back(Effect::SnapshotPiece { bytes });
        if is_all {
            self.effects.push_back(Effect::LoadSnapshot { last });
        }
    }

    /// So much of a snapshot is in the file beside the file, or nothing more can be.
    pub(super) fn snapshot_written(&mut self, last: Position, result: Result<u64, String>) {
        let is_it = |incoming: &&mut Incoming| incoming.begin.last == last;
        let Some(incoming) = self.snapshots.incoming.as_mut().filter(is_it) else { return };
        match result {
            Ok(upto) => {
                let written = Some(upto.min(incoming.have));
                if written > incoming.written {
                    incoming.written = written;
                    self.tell_what_is_written();
                }
            }
            Err(error) => self.refuse_snapshot(&error),
        }
    }

    /// The other end sends more when it hears how much is written, and on a new connection from where on
    /// it is to send.
    fn tell_what_is_written(&mut self) {
        let incoming = self.snapshots.incoming.as_mut().expect("a snapshot is on its way");
        let (have, last, link) = (incoming.have, incoming.begin.last, incoming.link);
        let Some(upto) = incoming.written.filter(|upto| incoming.is_told || *upto == have) else {
            return;
        };
        incoming.is_told = true;
        self.peers.answer(link, &Frame::Have { last, upto });
    }

    /// What has come of a snapshot is of no use.
    fn refuse_snapshot(&mut self, why: &str) {
        let incoming = self.snapshots.incoming.take().expect("what is refused has come");
        self.snapshots.again_us = Some(self.now_us + AGAIN_US);
        self.snapshots.lacking_us.get_or_insert(self.now_us);
        // The other end waits for an acknowledgement; that it is cut off, it hears.
        let text = format!("snapshot from server {}: {why}", short(incoming.from));
        self.refuse(incoming.link, &text);
        self.effects.push_back(Effect::DropSnapshot);
    }

    /// The tables have been made of a snapshot, or it makes no sense.
    pub(super) fn snapshot_loaded(&mut self, last: Position, result: Result<(), String>) {
        // Another member may have begun to send the same one after this one was complete.
        let is_it = |incoming: &&mut Incoming| incoming.begin.last == last && incoming.is_whole();
        if self.snapshots.is_installing {
            return;
        }
        let Some(incoming) = self.snapshots.incoming.as_mut().filter(is_it) else { return };
        match result {
            Ok(()) => incoming.is_loaded = true,
            Err(error) => self.refuse_snapshot(&error),
        }
    }

    /// The log begins with a snapshot that has been loaded, as soon as it is known of everything that the file
    /// was to have whether that is there: a snapshot that cannot take the file's place leaves the member
    /// with what is. True if that led to something.
    pub(super) fn restore_loaded(&mut self) -> bool {
        if self.forget_superseded() {
            return true;
        }
        let is_free = !self.snapshots.is_installing && !self.steps.is_under_way();
        let is_ready = |incoming: &&Incoming| incoming.is_loaded && is_free;
        let Some(incoming) = self.snapshots.incoming.as_ref().filter(is_ready) else {
            return false;
        };
        let (from, begin) = (incoming.from, incoming.begin.clone());
        self.node.restore(from, begin.term, begin.mark());
        if self.node.mark().last != begin.last {
            self.drop_incoming();
        }
        true
    }

    /// What a snapshot has in it has come by other means, perhaps because who sent it leads no more: no
    /// copy can be made while there is one on its way. True if that was so.
    fn forget_superseded(&mut self) -> bool {
        let is_wanted = |incoming: &Incoming| self.node.lacks(incoming.begin.last);
        // Nobody else sends the rest of it. Where the file takes nothing, even who may come back keeps the
        // file from being written anew.
        let is_cut = |incoming: &Incoming| {
            let is_other = self.node.leader().is_some_and(|leader| leader != incoming.from);
            // What comes of a newer term is that of its leader, of whom nothing else may have come.
            let leads_no_more = is_other && self.node.term() > incoming.begin.term;
            leads_no_more || self.steps.is_failing() && self.peers.peer(incoming.link).is_none()
        };
        let incoming = self.snapshots.incoming.as_ref().filter(|_| !self.snapshots.is_installing);
        let is_over = incoming.is_some_and(|incoming| {
            self.is_gone() || !is_wanted(incoming) || !incoming.is_whole() && is_cut(incoming)
        });
        if is_over {
            self.drop_incoming();
        }
        is_over
    }

    fn drop_incoming(&mut self) {
        self.snapshots.incoming = None;
        self.effects.push_back(Effect::DropSnapshot);
    }

    /// The library has taken a snapshot for the log's beginning: it takes the file's place.
    pub(super) fn install(
        &mut self,
        number: u64,
        last: Position,
        vote: Option<(u64, Option<Uuid>)>,
        acknowledgements: Vec<(Uuid, Step)>,
    ) {
        let vote = vote.unwrap_or((self.node.term(), self.node.vote()));
        let mut tail = Vec::new();
        file::write_step(Onto::Copy(0), Some(vote), &[], None, &mut tail);
        self.write_joins_at(0, &mut tail);
        let effect = self.steps.install(number, last, tail);
        self.steps.wait(acknowledgements);
        self.snapshots.is_installing = true;
        self.cut_outgoing();
        self.gather();
        self.effects.push_back(effect);
        self.steps.forget_commit();
    }

    /// The snapshot that has come could not take the file's place: the node is as it was before that.
    pub(super) fn give_up_install(&mut self) {
        if std::mem::take(&mut self.snapshots.is_installing) {
            self.refuse_snapshot("it could not take the file's place");
        }
    }

    /// The snapshot that has come is in the file's place.
    pub(super) fn installed(&mut self) {
        self.snapshots.is_installing = false;
        self.snapshots.lack_nothing();
        let incoming = self.snapshots.incoming.take().expect("what is installed has come");
        self.snapshots.len = incoming.begin.len;
        self.node.restored();
        self.node.has_applied(incoming.begin.last.index);
        self.steps.has_on_disk(incoming.begin.last.index);
        self.removals.gone.skipped(incoming.begin.last.index);
        let mark = incoming.begin.mark();
        (self.election_timer, self.applied_eid) = (mark.election_timer, mark.eid);
        let before = std::mem::replace(&mut self.servers, mark.servers);
        self.look_for_moves();
        self.want_peers();
        self.servers_changed(&before, incoming.begin.last.index);
    }
}

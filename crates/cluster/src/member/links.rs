//! Connections: greetings, what comes on them, and who is not listened to.

use weir_data::Uuid;

use super::{Failure, Member, Membership, short};
use crate::consensus::{APPEND, APPEND_ANSWER, HEARTBEAT_ANSWER, Odd, TIMEOUT_NOW, VOTES};
use crate::effect::{Effect, Level};
use crate::ids::LinkId;
use crate::peers::{Link, Made};
use crate::wire::{Begin, Frame, Hello, Lane, Malformed, Said};

/// Who connects says who he is within so long, in microseconds.
const GREETING_US: u64 = 10_000_000;

/// Somebody who is no member and does not join says something within so long, in microseconds.
const STRANGER_US: u64 = 60_000_000;

/// Where somebody listens who is connected to by another name as well it is tried again after this long, in
/// microseconds: somebody else may be there by then.
const TWICE_US: u64 = 30_000_000;

/// So often it is looked for connections of those who do not, in microseconds.
const IDLE_LINKS_EVERY_US: u64 = 1_000_000;

impl Member {
    pub(super) fn hello(&self, to: Option<Uuid>, lane: Lane) -> Hello {
        // Who was removed by somebody's wish joins no more, whatever its file is.
        let told = to.filter(|to| !self.has_gone(to) || self.is_replaced(to));
        Hello {
            cluster: self.cluster,
            to,
            from: self.id(),
            address: Some(self.address.clone()),
            lane: Some(lane),
            promised: told.and_then(|to| self.promises.of(to)),
        }
    }

    pub(super) fn connected(&mut self, id: LinkId) {
        let Some(link) = self.peers.link(id) else { return };
        (link.is_up, link.since_us) = (true, self.now_us);
        let (Made::ByUs(lane), peer) = (link.made, link.peer) else { return };
        let hello = self.hello(peer, lane);
        self.peers.greet(id, &hello);
    }

    pub(super) fn lost(&mut self, id: LinkId, error: Option<String>) {
        let Some(link) = self.peers.lost(self.now_us, id) else { return };
        self.note_cut(&link, error.as_deref());
        if link.is_up && link.is_ours {
            let why = error.unwrap_or_else(|| "closed by peer".to_owned());
            let text = format!("{}: connection closed ({why})", link.name);
            self.log_limited("peer_closed", Level::Info, text);
        } else if self.membership == Membership::Joining && link.made == Made::ByUs(Lane::Control) {
            self.say_nobody_answers(&link, error);
        }
        self.link_gone(&link);
    }

    /// Who has not joined may have been told to ask at an address where no member of its cluster is.
    fn say_nobody_answers(&mut self, link: &Link, error: Option<String>) {
        let what = match (link.is_up, error) {
            (false, Some(why)) => format!("connection attempt failed ({why})"),
            (false, None) => "connection attempt failed".to_owned(),
            (true, _) => {
                "connection closed by who may be no member of this server's cluster".to_owned()
            }
        };
        let text = format!("{}: {what}", link.name);
        if self.complaints.is_due(None, &text, self.now_us) {
            self.log_limited("unanswered", Level::Info, text);
        }
    }

    /// A connection is no more: what was sent there may not have come.
    pub(super) fn link_gone(&mut self, link: &Link) {
        let Some(peer) = link.peer.filter(|_| link.is_ours) else { return };
        if link.lane() != Some(Lane::Log) {
            return self.snapshot_cut(peer);
        }
        if self.servers.contains_key(&peer) {
            self.untold.insert(peer);
        }
        if link.carries {
            self.node.unreachable(peer);
        }
        self.snapshot_cut(peer);
        // Nothing of the owner's goes any other way.
        self.effects.push_back(Effect::PeerLost { peer });
    }

    /// Connections are closed of who does not say who he is, and of strangers that say nothing more: there is room for
    /// so many, and members need it, and who joins, who asks once a second. When others were heard is forgotten.
    pub(super) fn end_idle_links(&mut self) {
        if self.now_us < self.idle_links_us {
            return;
        }
        self.idle_links_us = self.now_us + IDLE_LINKS_EVERY_US;
        let Self { now_us, servers, joins, silence, .. } = self;
        let is_known = |id: &Uuid| servers.contains_key(id) || joins.by_id.contains_key(id);
        let is_idle = |link: &Link| match link.peer {
            _ if !matches!(link.made, Made::ByPeer(_)) => false,
            None => *now_us > link.since_us + GREETING_US,
            Some(peer) if is_known(&peer) => false,
            Some(peer) => {
                let heard_us = silence.heard_us(peer).unwrap_or(0).max(link.since_us);
                *now_us > heard_us + STRANGER_US
            }
        };
        let idle = self.peers.links().filter(|(_, link)| is_idle(link));
        let idle: Vec<LinkId> = idle.map(|(id, _)| id).collect();
        for id in idle {
            let link = self.peers.drop(self.now_us, id).expect("it has just been listed");
            let text = format!(
                "{}: connection dropped (of no member, and nothing was heard there)",
                link.name
            );
            self.log_limited("idle_link", Level::Info, text);
            self.link_gone(&link);
        }
        let Self { servers, joins, silence, peers, .. } = self;
        silence.retain(|id| {
            servers.contains_key(id) || joins.by_id.contains_key(id) || peers.is_connected(*id)
        });
    }

    /// Members hear of connections that have ended here: who asks again because it has closed one may be
    /// answered on that one still, and would wait for ever.
    pub(super) fn tell_of_lost(&mut self) {
        let Self { untold, servers, peers, .. } = self;
        untold.retain(|peer| {
            servers.contains_key(peer) && !peers.send(*peer, Lane::Log, &Frame::Lost)
        });
    }

    pub(super) fn received(&mut self, id: LinkId, bytes: &[u8]) {
        let Some(link) = self.peers.link(id) else { return };
        link.decoder.feed(bytes);
        loop {
            // What was said may have led to the connection's end.
            let Some(link) = self.peers.link(id) else { return };
            match link.decoder.next() {
                Ok(None) => return,
                Ok(Some(Said::Hello(hello))) => self.greeted(id, hello),
                Ok(Some(Said::Probe(answer))) => self.peers.say(id, answer),
                Ok(Some(Said::Frame(frame))) => {
                    let from = link.peer.expect("frames come behind a greeting");
                    if self.is_failing(Failure::StopRpc) {
                        continue;
                    }
                    self.silence.heard(from, self.now_us);
                    match self.frame(id, from, frame) {
                        Ok(()) => {}
                        Err(Odd::Ignored(what)) => self.remark(from, &what),
                        Err(Odd::Nonsense(why)) => self.refuse(id, &why),
                        Err(Odd::Split { term, why }) => self.split_from(from, term, &why),
                    }
                }
                Err(Malformed(why)) => self.refuse(id, &why),
            }
        }
    }

    /// A member has connected anew: it speaks no more on the connection that it had for this lane,
    /// whose end may have been lost on the way here.
    fn replaced(&mut self, new: LinkId, peer: Uuid, lane: Lane) {
        let is_older = |id: LinkId, link: &Link| {
            id != new && link.peer == Some(peer) && link.made == Made::ByPeer(Some(lane))
        };
        self.drop_links(is_older);
    }

    /// Who joins may know a member by two names. That ends the connection that came first, and if each were made anew at
    /// once, the two would end each other for ever.
    fn reached_twice(&mut self, new: LinkId, peer: Uuid, lane: Lane) {
        let is_other = |id: LinkId, link: &Link| {
            id != new && link.is_ours && link.peer == Some(peer) && link.made == Made::ByUs(lane)
        };
        let others = self.peers.links().filter(|(id, link)| is_other(*id, link));
        let names: Vec<String> = others.map(|(_, link)| link.name.clone()).collect();
        self.drop_links(is_other);
        let again_us = self.now_us + TWICE_US;
        names.iter().for_each(|name| self.peers.put_off(name, peer, again_us));
    }

    /// Ends all connections to members: what was said on them was not heard.
    pub(super) fn connect_anew(&mut self) {
        self.drop_links(|_, link| link.is_ours);
    }

    /// Ends these connections.
    fn drop_links(&mut self, is_meant: impl Fn(LinkId, &Link) -> bool) {
        let meant = self.peers.links().filter(|(id, link)| is_meant(*id, link)).map(|(id, _)| id);
        for id in meant.collect::<Vec<_>>() {
            if let Some(link) = self.peers.drop(self.now_us, id) {
                self.link_gone(&link);
            }
        }
    }

    /// Closes a connection on which something came that makes no sense.
    pub(super) fn refuse(&mut self, id: LinkId, why: &str) {
        let Some(link) = self.peers.drop(self.now_us, id) else { return };
        let is_due = self.complaints.is_due(link.peer, why, self.now_us);
        let level = if is_due { Level::Warning } else { Level::Debug };
        let text = format!("{}: connection dropped: {why}", link.name);
        self.log_limited("peer_dropped", level, text);
        self.link_gone(&link);
    }

    /// Says in the log that what a peer said has no effect.
    fn remark(&mut self, from: Uuid, what: &str) {
        if self.complaints.is_due(Some(from), what, self.now_us) {
            let text = format!("{}: server {}: {what}", self.name, self.nickname(from));
            self.log_limited("peer_remark", Level::Info, text);
        }
    }

    fn greeted(&mut self, id: LinkId, hello: Hello) {
        let own = self.id();
        let is_joining = self.membership == Membership::Joining;
        let meant = hello.to.filter(|to| *to != own);
        let wrong = if hello.from == own {
            Some("it has this server's own id".to_owned())
        } else if let Some(meant) = meant.filter(|_| !self.is_lost_one(&hello)) {
            Some(format!("it means server {}", short(meant)))
        } else {
            let is_other = |ours: Uuid| hello.cluster.is_some_and(|theirs| theirs != ours);
            let other = self.cluster.filter(|ours| is_other(*ours));
            other.map(|_| format!("it is of cluster {}", short(hello.cluster.unwrap_or_default())))
        };
        if let Some(wrong) = wrong {
            // Of those whom a damaged file names all may have moved, or gone: who looks for what this server was is a
            // member.
            let is_looked_for = meant.is_some() && meant == self.replaces;
            if let Some(address) = &hello.address
                && is_looked_for
                && self.is_of_cluster(&hello)
            {
                self.told_of_place(address);
            }
            return self.refuse(id, &wrong);
        }
        let is_lost = self.is_lost();
        let link = self.peers.link(id).expect("it has just spoken");
        if link.peer.is_some_and(|peer| peer != hello.from) && !is_lost {
            return self.refuse(id, "another server listens there than did before");
        }
        let (made, name) = (link.made, link.name.clone());
        link.peer = Some(hello.from);
        let Some(lane) = hello.lane else {
            let text = format!(
                "{name}: server {} is not Weir: this one waits until most of the cluster's servers are",
                short(hello.from)
            );
            return self.log_limited("peer_not_weir", Level::Info, text);
        };
        (link.is_ours, link.address) = (true, hello.address.clone());
        // Whoever connects here may look for somebody else, who had this address before.
        let is_asked = is_joining && matches!(made, Made::ByUs(_));
        if is_asked && self.cluster.is_none() {
            self.cluster = hello.cluster;
        }
        match made {
            Made::ByUs(_) => {
                self.peers.works(&name);
                self.reached_twice(id, hello.from, lane);
            }
            Made::ByPeer(_) => {
                self.peers.link(id).expect("it has just spoken").made = Made::ByPeer(Some(lane));
                self.replaced(id, hello.from, lane);
                let hello = self.hello(Some(hello.from), lane);
                self.peers.greet(id, &hello);
            }
        }
        if let Some(meant) = meant {
            let meant = short(meant);
            let what = format!("no member, looks for server {meant}: is told where members are");
            self.remark(hello.from, &what);
            self.tell_stranger(id, hello.from);
        }
        self.ask_again_us = self.now_us;
        if let Some(address) = &hello.address {
            self.told_of_address(hello.from, address);
            self.told_of_place(address);
        }
        // To whom it means another server it tells what that one has promised.
        self.told_of_promises(hello.from, hello.promised.filter(|_| meant.is_none()));
    }

    fn frame(&mut self, link: LinkId, from: Uuid, frame: Frame) -> Result<(), Odd> {
        if self.is_gone() {
            return Ok(());
        }
        match frame {
            Frame::Step(step) if self.keeps_apart(from, &step) => {}
            Frame::Begin(Begin { term, .. }) if self.split == Some((from, term)) => {}
            Frame::Step(step)
                if VOTES.contains(&step.kind) && self.has_removed(&from, step.term) =>
            {
                self.tell_removed(link, from);
            }
            Frame::Step(step) if VOTES.contains(&step.kind) && !self.may_vote() => {
                let why = "is asked for its vote before all others could greet it".to_owned();
                return Err(Odd::Ignored(why));
            }
            Frame::Step(mut step) => {
                if VOTES.contains(&step.kind) {
                    self.tell_stranger(link, from);
                }
                let is_append = step.kind == APPEND && !step.entries.is_empty();
                if is_append && self.crash_if(Failure::CrashAfterReceivingAppend) {
                    return Ok(());
                }
                self.note_leaders_delay(from, step.term);
                let is_answer = matches!(step.kind, APPEND_ANSWER | HEARTBEAT_ANSWER);
                if is_answer && self.peers.answers_on(link, from) {
                    self.node.answers_lost(from);
                    // The lost answer may be that a snapshot has taken the file's place, which nobody says again.
                    self.snapshot_cut(from);
                }
                if is_append && !self.takes(from, &step) {
                    // They are answered later; the leader's heartbeats are heard.
                    return Ok(());
                }
                // What a server acknowledges before it is a member counts once it is one.
                if self.servers.contains_key(&from) || self.is_being_added(&from) {
                    self.heard_promise(from, &step);
                }
                self.note_leaders_log(from, &step);
                self.doubt_commit(&mut step);
                let is_given_lead = step.kind == TIMEOUT_NOW;
                if !is_given_lead || !self.snapshots.is_installing() {
                    let remark = self.node.step(from, step)?;
                    // A leader that hands over makes the receiver campaign.
                    self.is_given_lead = is_given_lead && remark.is_none();
                    if let Some(what) = remark {
                        self.remark(from, &what);
                    }
                }
            }
            Frame::Begin(begin) => {
                self.node.check_snapshot(from, begin.term, begin.last)?;
                self.snapshot_announced(link, from, begin);
            }
            Frame::Piece { last, offset, bytes } => {
                self.snapshot_piece(link, from, last, offset, bytes);
            }
            Frame::Have { last, upto } => self.snapshot_taken(from, last, upto),
            Frame::Join { address, replaces } => {
                self.asked_to_join(link, from, address, replaces);
            }
            Frame::JoinReply { success, comment, remotes } => {
                self.join_answered(success, &comment, remotes);
            }
            Frame::Remove { server } => self.asked_to_remove(link, from, server)?,
            Frame::RemoveReply { server, success, comment } => {
                self.remove_answered(from, server, success, &comment)?;
            }
            Frame::Message(body) => self.effects.push_back(Effect::Message { from, body }),
            Frame::Lost => self.effects.push_back(Effect::PeerLost { peer: from }),
        }
        Ok(())
    }
}

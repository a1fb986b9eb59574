//! A member that forgot must not vote. One whose file is an older copy of what it was has promised
//! more than it knows: votes in terms of which it has not heard, entries that it does not have. What
//! others have heard it promise they tell it when they greet it. It is a member no more then, and
//! joins again as a new server, of which nobody has heard a promise; for that a majority of the others
//! removes the old one.

use std::collections::{BTreeMap, BTreeSet};

use weir_data::Uuid;
use weir_log::clustered::FORGOT;

use super::{Member, Membership};
use crate::consensus::{APPEND, APPEND_ANSWER, COMMIT, HEARTBEAT, VOTE_ANSWER, VOTE_REQUEST};
use crate::effect::{Effect, Level};
use crate::ids::Position;
use crate::wire::Step;

/// What members were heard to promise since this one was started.
#[derive(Debug, Default)]
pub(super) struct Promises {
    /// Each was in this term, and had its log up to this entry, on its disk.
    of: BTreeMap<Uuid, Position>,
    /// Who has greeted this member.
    greeted: BTreeSet<Uuid>,
}

impl Promises {
    /// What a member was heard to promise, if anything.
    pub(super) fn of(&self, id: Uuid) -> Option<Position> {
        self.of.get(&id).copied()
    }

    /// A member has said something that it says only when its promise is on its disk.
    pub(super) fn heard(&mut self, from: Uuid, step: &Step) {
        let index = match step.kind {
            APPEND_ANSWER if !step.reject => step.index,
            VOTE_REQUEST | VOTE_ANSWER => 0,
            APPEND | COMMIT | HEARTBEAT => step.synced,
            _ => return,
        };
        let promised = Position { term: step.term, index };
        let before = self.of.entry(from).or_insert(promised);
        *before = promised.max(*before);
    }

    /// Who is no member promises nothing.
    pub(super) fn retain(&mut self, is_member: impl Fn(&Uuid) -> bool) {
        self.of.retain(|id, _| is_member(id));
        self.greeted.retain(is_member);
    }
}

impl Member {
    /// A member has greeted this one, and has said what it has heard it promise.
    pub(super) fn told_of_promises(&mut self, by: Uuid, promised: Option<Position>) {
        if self.servers.contains_key(&by) {
            self.promises.greeted.insert(by);
        }
        // What was promised in an earlier term than that of the file may have been replaced since.
        let own = Position { term: self.node.term(), index: self.node.last() };
        // A file may be from before its server heard that it had become a member.
        if let Some(promised) = promised.filter(|promised| *promised > own && !self.is_gone()) {
            self.forgot(by, promised, own);
        }
    }

    fn forgot(&mut self, by: Uuid, promised: Position, own: Position) {
        let text = format!(
            "{}: server {} has heard that this one had entries up to {} in term {}, and its log ends at {} \
             in term {}: the file is an older one; the server is no member any more, and joins its \
             cluster again as a new one",
            self.name,
            self.nickname(by),
            promised.index,
            promised.term,
            own.index,
            own.term
        );
        self.log(Level::Error, text);
        // Whatever else opens the file must not vote either.
        self.begin_anew(&[FORGOT, "left"]);
    }

    /// A server that still joins was a member for a while, and was removed before it knew: it has been heard
    /// of too often to become one again, and joins as a new one.
    pub(super) fn joins_as_another(&mut self) {
        let text = format!(
            "{}: this server was a member, and was removed; it joins its cluster as a new one",
            self.name
        );
        self.log(Level::Warning, text);
        self.begin_anew(&[FORGOT]);
    }

    /// The server is the one that it was no more; its file says so, and is to be opened anew.
    fn begin_anew(&mut self, words: &[&str]) {
        self.membership = Membership::Forgotten;
        let known = self.remotes.iter().chain(self.servers.values());
        let remotes = known.filter(|address| **address != self.address).cloned().collect();
        if let Some(effect) = self.steps.write_notes(words) {
            self.effects.push_back(effect);
        }
        self.want_peers();
        self.gather();
        self.effects.push_back(Effect::Forgot { remotes });
    }

    /// Whether this member may say that it votes: one that has just started waits until all others
    /// have greeted it, or could have, for they may know better than its file.
    pub(super) fn may_vote(&self) -> bool {
        let patience_us = self.election_timer * 1000 / 2;
        let others = || self.servers.keys().filter(|id| **id != self.id());
        self.now_us >= self.started_us + patience_us
            || others().all(|id| self.promises.greeted.contains(id))
    }
}

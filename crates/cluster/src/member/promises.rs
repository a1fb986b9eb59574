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
use crate::wire::{Promise, Step};

/// Of so many terms a member remembers what it has promised since it was started.
pub(super) const OWN_TERMS_MAX: usize = 16;

/// What members were heard to promise since this one was started, and what it has promised.
#[derive(Debug)]
pub(super) struct Promises {
    of: BTreeMap<Uuid, Promise>,
    /// The term of this member's file when it was opened, and the last entry in it. Whatever it promised in
    /// that term is in the file, unless it has forgotten, and so is what it promised in earlier ones,
    /// unless a leader has replaced it.
    opened: Position,
    /// The terms of the entries that the file had when it was opened, each from this index on. Nothing once `opened` is a
    /// promise made since: other entries may stand there then.
    terms: BTreeMap<u64, u64>,
    /// In which terms this member has since promised to have entries, and up to which. Its own term says
    /// nothing of that: it follows a leader from the first heartbeat on.
    pub(super) own: BTreeMap<u64, u64>,
    /// The step that notes that this server has forgotten what it promised, and whom it asks to be taken in anew.
    note: Option<(u64, Vec<String>)>,
}

/// What a step promises that leaves only when it is on the disk: to be in a term, with the log up to an
/// entry.
fn promise_of(step: &Step) -> Option<Position> {
    let index = match step.kind {
        APPEND_ANSWER if !step.reject => step.index,
        VOTE_REQUEST | VOTE_ANSWER => 0,
        APPEND | COMMIT | HEARTBEAT => step.synced,
        _ => return None,
    };
    Some(Position { term: step.term, index })
}

impl Promises {
    /// What is known to a member that opens a file of this term which has these entries, and ends with this one.
    pub(super) fn new(opened: Position, entries: impl IntoIterator<Item = Position>) -> Self {
        let (of, own, mut terms) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for Position { term, index } in entries {
            if terms.last_key_value().is_none_or(|(_, last)| *last != term) {
                terms.insert(index, term);
            }
        }
        Self { of, opened, terms, own, note: None }
    }

    /// What a member was heard to promise, if anything.
    pub(super) fn of(&self, id: Uuid) -> Option<Promise> {
        self.of.get(&id).copied()
    }

    /// A member has promised this.
    fn heard(&mut self, from: Uuid, promised: Promise) {
        let before = self.of.entry(from).or_insert(promised);
        *before = promised.max(*before);
    }

    /// This member says something.
    pub(super) fn made(&mut self, step: &Step) {
        let Some(Position { term, index }) = promise_of(step) else { return };
        let before = self.own.entry(term).or_insert(index);
        *before = index.max(*before);
        if self.own.len() > OWN_TERMS_MAX
            && let Some((term, index)) = self.own.pop_first()
        {
            self.opened = self.opened.max(Position { term, index });
            self.terms.clear();
        }
    }

    /// Whether this member can have made a promise since it was started, or has it in its file.
    pub(super) fn has(&self, Promise { at, entry_term }: Promise) -> bool {
        let is_own = |upto: &u64| at.index <= *upto;
        // Within a term no leader replaces what it was told to have been kept.
        let is_other = at.term == self.opened.term
            && entry_term.is_some_and(|term| self.is_other(at.index, term));
        at <= self.opened && !is_other || self.own.get(&at.term).is_some_and(is_own)
    }

    /// Whether the file has an entry of another term there.
    fn is_other(&self, index: u64, term: u64) -> bool {
        let own = self.terms.range(..=index).next_back();
        own.is_some_and(|(_, own)| *own != term)
    }

    /// Who was heard to promise something.
    pub(super) fn servers(&self) -> impl Iterator<Item = Uuid> {
        self.of.keys().copied()
    }

    /// What all others have promised does not matter any more.
    pub(super) fn retain(&mut self, servers: &BTreeSet<Uuid>) {
        self.of.retain(|id, _| servers.contains(id));
    }
}

impl Member {
    /// A member has said something that it says only when its promise is on its disk. Of what is acknowledged to a leader, that
    /// one's own log tells which entries they are.
    pub(super) fn heard_promise(&mut self, from: Uuid, step: &Step) {
        let Some(at) = promise_of(step) else { return };
        let (is_leader, term) = (self.node.is_leader(), self.node.term());
        let is_to_leader = step.kind == APPEND_ANSWER && is_leader && step.term == term;
        let entry = is_to_leader.then(|| self.node.position(at.index)).flatten();
        let entry_term = entry.map(|entry| entry.term);
        self.promises.heard(from, Promise { at, entry_term });
    }

    /// A member has greeted this one, and has said what it has heard it promise.
    pub(super) fn told_of_promises(&mut self, by: Uuid, promised: Option<Promise>) {
        // A file may be from before its server heard that it had become a member.
        let is_forgotten = |promised: &Promise| !self.promises.has(*promised) && !self.is_gone();
        if let Some(promised) = promised.filter(is_forgotten) {
            self.forgot(by, promised.at);
        }
    }

    fn forgot(&mut self, by: Uuid, promised: Position) {
        let opened = self.promises.opened;
        let text = format!(
            "{}: server {} has heard that this one had entries up to {} in term {}, and its log ended at {} \
             in term {}: the file is an older one; the server is no member any more, and joins its \
             cluster again as a new one",
            self.name,
            self.nickname(by),
            promised.index,
            promised.term,
            opened.index,
            opened.term
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
        let note = self.steps.write_notes(words);
        self.want_peers();
        self.gather();
        match note {
            // Those who remember may be started anew: the file must say it itself by then.
            Some(note) => {
                self.promises.note = Some((self.steps.last(), remotes));
                self.effects.push_back(note);
            }
            None => self.effects.push_back(Effect::Forgot { remotes }),
        }
    }

    /// A step has been synced, or could not be written: perhaps it was the note that this server has forgotten.
    pub(super) fn has_noted(&mut self, step: u64) {
        if let Some((_, remotes)) = self.promises.note.take_if(|(note, _)| *note == step) {
            self.effects.push_back(Effect::Forgot { remotes });
        }
    }

    /// Whether the log is that of the leader of this term up to this entry, as far as this member knows: it has acknowledged
    /// that since it was started, or the entry is that leader's own.
    fn follows_up_to(&self, term: u64, index: u64) -> bool {
        let has_said = self.promises.own.get(&term).is_some_and(|upto| *upto >= index);
        has_said || self.node.position(index).is_some_and(|at| at.term == term)
    }

    /// A heartbeat says that what this member has acknowledged is committed. One with an older file may have had, then, other
    /// entries than it has: these must not take effect for the leader's.
    pub(super) fn doubt_commit(&self, step: &mut Step) {
        let is_log_there = step.commit <= self.node.last();
        if step.kind == HEARTBEAT && is_log_there && !self.follows_up_to(step.term, step.commit) {
            step.commit = step.commit.min(self.node.commit());
        }
    }

    /// Whether this member may say that it votes: one that has just started waits until all others could have greeted
    /// it, for they may know better than its file, also who they are.
    pub(super) fn may_vote(&self) -> bool {
        let patience_us = self.election_timer * 1000 / 2;
        self.now_us >= self.started_us + patience_us
    }
}

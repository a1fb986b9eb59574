//! What is committed, asked of the leader: for clients that must not read what is stale.

use std::collections::BTreeSet;

use weir_data::{Error, Uuid};

use crate::clusters::message::Message;
use crate::clusters::{AGAIN_US, Clusters};
use crate::database::Databases;
use crate::ids::{DbId, SessionId};
use crate::relays::Syncing;
use crate::reply::{Handled, Reply};
use crate::server::Server;
use crate::states::Wanted;

/// Whether a database has what is waited for.
fn has_state(databases: &Databases, clusters: &Clusters, db: DbId, wanted: Wanted) -> bool {
    match wanted {
        Wanted::Id(id) | Wanted::Source(id) => {
            let at = databases.position_of(db, id).zip(databases.shown(db));
            at.is_some_and(|(at, shown)| at <= shown)
        }
        Wanted::Entry(entry) => clusters.part(db).is_none_or(|part| part.applied >= entry),
        Wanted::Latest | Wanted::Answer(_) => false,
    }
}

impl Server {
    /// `weir_wait_id` and `weir_sync`: the answer comes when the database has what is wanted.
    pub(in crate::server) fn wait_for_state(
        &mut self,
        session: SessionId,
        db: DbId,
        wanted: Result<(Wanted, u64), Error>,
        request: &[u8],
    ) -> Handled {
        let wanted = wanted?;
        if wanted.0 == Wanted::Latest {
            self.check_sync(db)?;
        }
        self.states.wait(&self.shell, (session, request), db, wanted)?;
        Ok(Reply::Later)
    }

    /// Asks for those who wait, and answers who need not wait any longer.
    pub(in crate::server) fn run_states(&mut self) {
        let now_us = self.shell.now_us();
        let questions: Vec<_> = self.states.questions().collect();
        for (db, question) in questions {
            let part = self.clusters.part(db);
            let is_up_to_date = |part: &crate::clusters::Part| {
                part.member.leader().map(|id| (id, part.member.term())) == Some(question.leader)
            };
            let is_it = |asked: &Syncing| asked.question == question.number;
            let is_asked =
                self.relays.get(db).map(|relay| relay.syncing.as_ref().is_some_and(is_it));
            if !is_asked.unwrap_or_else(|| part.is_some_and(is_up_to_date)) {
                self.states.ask_again(db, now_us);
            }
        }
        for db in self.states.to_ask(now_us) {
            self.ask_what_is_committed(db);
        }
        let Self { databases, clusters, states, .. } = self;
        states.settle(|db, wanted| has_state(databases, clusters, db, wanted));
        self.answer_who_waits(|_| true);
    }

    /// Answers those of the sessions that wait for states which are there by now, and have been told what led to them.
    pub(in crate::server) fn answer_who_waits(&mut self, is_meant: impl Fn(SessionId) -> bool) {
        let Self { databases, clusters, states, .. } = self;
        let reached = states.reached(|db, wanted| has_state(databases, clusters, db, wanted));
        let mut told: BTreeSet<SessionId> =
            reached.into_iter().filter(|id| is_meant(*id)).collect();
        // A relay waits itself for the state that it has asked for, and is told others all the time.
        told.retain(|id| self.databases.feeds_any_to(*id) || self.is_told(*id));
        self.states.answer(&mut self.shell, &told);
    }

    fn ask_what_is_committed(&mut self, db: DbId) {
        if self.relays.get(db).is_some() {
            return self.ask_source(db);
        }
        let now_us = self.shell.now_us();
        let Some(part) = self.clusters.parts.get_mut(&db) else { return self.states.has_all(db) };
        let Some(leader) = part.member.leader() else {
            return self.states.ask_later(now_us + AGAIN_US);
        };
        let (own, term) = (part.member.id(), part.member.term());
        if leader == own && part.member.may_propose() {
            let number = self.states.ask(db, (leader, term));
            self.read_index(db, (own, number));
        } else if leader != own {
            let number = self.states.ask(db, (leader, term));
            let part = self.clusters.part_mut(db);
            if !part.member.send_request(leader, Message::WhatIsCommitted(number).write()) {
                return self.states.ask_again(db, now_us + AGAIN_US);
            }
            // Else it would leave with the next tick.
            self.run_member(db);
        } else {
            self.states.ask_later(now_us + AGAIN_US);
        }
    }

    /// Another member's server asks what is committed.
    pub(super) fn asked_what_is_committed(&mut self, db: DbId, from: Uuid, number: u64) {
        let part = self.clusters.part_mut(db);
        if part.member.may_propose() {
            self.read_index(db, (from, number));
        } else {
            part.member.send_reply(from, Message::Committed(number, None).write());
        }
    }

    /// Asks a majority whether this member still leads, for who has asked with that number.
    fn read_index(&mut self, db: DbId, asked: (Uuid, u64)) {
        let now_us = self.shell.now_us();
        let part = self.clusters.part_mut(db);
        part.next_read += 1;
        let read = part.next_read;
        part.index_reads.insert(read, asked);
        assert!(part.member.read_index(now_us, read), "it has just said that it may propose");
        self.run_member(db);
    }

    /// This member led when it was asked, and everything up to this entry was committed.
    pub(super) fn index_read(&mut self, db: DbId, read: u64, index: u64) {
        let part = self.clusters.part_mut(db);
        // It may have been asked in an earlier term.
        let Some((from, number)) = part.index_reads.remove(&read) else { return };
        if from == part.member.id() {
            self.states.answered(db, number, index);
        } else {
            part.member.send_reply(from, Message::Committed(number, Some(index)).write());
        }
    }

    /// The leader says what is committed, or that it does not lead.
    pub(super) fn told_what_is_committed(&mut self, db: DbId, number: u64, index: Option<u64>) {
        match index {
            Some(index) => self.states.answered(db, number, index),
            None => self.states.ask_again(db, self.shell.now_us() + AGAIN_US),
        }
    }
}

//! Conversions of clustered databases.
//!
//! 1. A request goes to the leader as a transaction does. Once the batch under way is decided, no
//!    other begins: a helper converts the leader's rows. If that fails, or the schema is the one
//!    that there is, that is the answer.
//! 2. The leader proposes an entry: the schema, and the new rows if they are few. Until it is
//!    decided, nothing runs behind it.
//! 3. Committed: the leader has its new tables already. Another member has a helper make them, of
//!    the entry's rows or of its own, and applies nothing behind it meanwhile; what comes is
//!    acknowledged.
//! 4. They take the old ones' place, and whoever watches learns of it, as standalone.
//! 5. A file with an entry that has no rows is written anew at once: older servers do not read it.

use std::sync::Arc;

use weir_cluster::{Content, Entry, Position, Proposal, Text};
use weir_data::{Error, Uuid};
use weir_engine::Converted;

use crate::clusters::End;
use crate::clusters::conversion::Conversion;
use crate::clusters::message::Outcome;
use crate::database::Trigger;
use crate::effect::Level;
use crate::ids::{DbId, WorkId};
use crate::origin::{Asker, Origin};
use crate::reply::error_text;
use crate::server::Server;
use crate::shell::Shell;
use crate::text_limit::TEXT_BYTES_MAX;
use crate::work::{
    Garbage, Recast, RecastWanted, Recasted, Work, asked_schema, has_schema, is_bare,
};

/// The text of a conversion's entry has rows in it if it is no longer than that with them, in bytes, so that servers of
/// any version can read it. Otherwise it has none: each member converts its own.
const ROWS_BYTES_MAX: usize = 8 << 20;

/// What a conversion is answered that has succeeded.
const DONE: &[u8] = b"{}";

/// Nobody needs what a helper has converted.
pub(super) fn forget(shell: &mut Shell, converted: Option<Box<Converted>>) {
    if let Some(converted) = converted {
        shell.free(Garbage::Database(Box::new(converted.database)));
    }
}

impl Server {
    /// Begins the conversion that is next with this leader, once all before it is decided.
    pub(super) fn begin_conversion(&mut self, db: DbId) {
        let Some(part) = self.clusters.part(db) else { return };
        if !part.member.may_propose() {
            return self.give_asked_up(db);
        }
        if !matches!(part.conversion, Conversion::None)
            || !self.databases.has_conversions(&mut self.shell, db)
        {
            return;
        }
        let is_behind = part.is_behind() || part.lacks_rows() || self.databases.has_batch(db);
        if is_behind || !self.databases.can_follow(db) {
            return;
        }
        while matches!(self.clusters.part_mut(db).conversion, Conversion::None) {
            let Some(trigger) = self.databases.next_conversion(db) else { break };
            self.try_conversion(db, trigger);
        }
        if matches!(self.clusters.part_mut(db).conversion, Conversion::None) {
            self.thaw(db);
        }
    }

    /// What was to be converted here is asked of whoever leads.
    pub(super) fn give_asked_up(&mut self, db: DbId) {
        if !self.databases.has_conversions(&mut self.shell, db) {
            return;
        }
        while let Some(trigger) = self.databases.next_conversion(db) {
            self.ask_elsewhere(trigger);
        }
        self.thaw(db);
    }

    /// Who leads no more keeps no transaction waiting: the entry may be committed yet, or never.
    pub(super) fn give_conversion_up(&mut self, db: DbId) {
        let conversion = &self.clusters.part_mut(db).conversion;
        if matches!(conversion, Conversion::Tried { .. } | Conversion::Proposed { .. }) {
            // Who goes on then is not to write as the leader that this member was.
            self.settle_who_writes(db);
            self.end_conversion_under_way(db);
        }
    }

    fn thaw(&mut self, db: DbId) {
        let Self { shell, sessions, databases, .. } = self;
        databases.thaw(shell, sessions, db);
    }

    fn try_conversion(&mut self, db: DbId, trigger: Trigger) {
        // Who asked for it of an earlier term may have had it from another leader since.
        let is_late = trigger.origin.is_of_peer()
            && trigger.term != self.clusters.part(db).map_or(0, |part| part.member.term());
        if is_late || !self.clusters.part_mut(db).member.may_propose() {
            return self.ask_elsewhere(trigger);
        }
        let schema = match asked_schema(trigger.message.text()) {
            Ok(schema) => Arc::new(schema),
            Err(error) => return self.refuse_conversion(db, trigger, &error),
        };
        let tables = self.databases.get(db).expect("it has conversions").tables();
        // Hosts that upgrade at once all ask for it: it is done once.
        if *tables.schema() == schema {
            return self.answer_conversion(db, trigger, Ok(()));
        }
        let snapshot = tables.snapshot();
        let position = tables.here().map_or(0, weir_engine::Database::position);
        // With `--disable-file-no-data-conversion` they go with the entry however many there are.
        let with_rows_bytes_max = match self.admin.files().whole_conversions {
            true => TEXT_BYTES_MAX,
            false => self.clusters.part_mut(db).entry_limit().bytes_max().min(ROWS_BYTES_MAX),
        };
        let date_ms = self.shell.wall_ms();
        let wanted = RecastWanted::Asked { schema, with_rows_bytes_max, date_ms };
        let seed = self.shell.seed();
        let work = Work::Recast(Box::new(Recast { snapshot, wanted, seed }));
        let work = self.shell.send_out(Asker::Server, work);
        let trigger = Box::new(trigger);
        self.clusters.part_mut(db).conversion = Conversion::Tried { work, trigger, position };
    }

    /// A helper has converted rows, or found out why that cannot be.
    pub(in crate::server) fn recasted(&mut self, work: WorkId, recasted: Recasted) {
        let Recasted { converted, text } = recasted;
        let mut parts = self.clusters.parts.iter();
        let found = parts.find(|(_, part)| part.conversion.work() == Some(work));
        let Some(db) = found.map(|(db, _)| *db) else {
            return forget(&mut self.shell, converted.ok());
        };
        match std::mem::take(&mut self.clusters.part_mut(db).conversion) {
            Conversion::Followed { at, .. } => {
                self.clusters.part_mut(db).conversion = Conversion::Ready { at, converted };
                self.run_member(db);
            }
            Conversion::Tried { trigger, position, .. } => {
                let part = self.clusters.part_mut(db);
                let is_next = part.member.may_propose() && !part.is_behind();
                let tables = self.databases.get(db).map(|db| db.tables());
                let now = tables.and_then(|tables| tables.here()).map(|here| here.position());
                let has_room = part.entry_limit().check(text.len());
                match converted {
                    Ok(converted) if is_next && now == Some(position) => match has_room {
                        Ok(()) => self.propose_conversion(db, *trigger, converted, text),
                        Err(error) => {
                            forget(&mut self.shell, Some(converted));
                            self.refuse_conversion(db, *trigger, &error);
                        }
                    },
                    Err(error) if is_next && now == Some(position) => {
                        self.refuse_conversion(db, *trigger, &error);
                    }
                    // Another leader's entries have come between.
                    converted => {
                        forget(&mut self.shell, converted.ok());
                        self.ask_elsewhere(*trigger);
                    }
                }
                if matches!(self.clusters.part_mut(db).conversion, Conversion::None) {
                    self.thaw(db);
                }
            }
            Conversion::None | Conversion::Proposed { .. } | Conversion::Ready { .. } => {
                unreachable!("no helper is at work")
            }
        }
    }

    fn propose_conversion(
        &mut self,
        db: DbId,
        trigger: Trigger,
        converted: Box<Converted>,
        text: Vec<u8>,
    ) {
        let eid = trigger.origin.eid;
        let next = self.clusters.part_mut(db).member.next_position();
        // Who asked for it hears of that ahead of the entry.
        let trigger = match trigger.origin.asker {
            Asker::Peer(number) => {
                self.answer_peer(number, eid, Outcome::Entry(next, DONE.to_vec()));
                None
            }
            _ => Some(Box::new(trigger)),
        };
        let proposal = Proposal { eid, text: text.into() };
        let now_us = self.shell.now_us();
        let part = self.clusters.part_mut(db);
        let at = part.propose(now_us, vec![proposal]);
        assert_eq!(at, next, "who asked has been told the place");
        part.conversion = Conversion::Proposed { at, trigger, converted };
        self.run_member(db);
    }

    /// Another member leads, or this one does so anew.
    fn ask_elsewhere(&mut self, trigger: Trigger) {
        match trigger.origin.asker {
            Asker::Peer(number) => {
                self.answer_peer(number, trigger.origin.eid, Outcome::NotLeader);
            }
            _ => self.databases.forward_conversion(trigger),
        }
    }

    fn refuse_conversion(&mut self, db: DbId, trigger: Trigger, error: &Error) {
        self.answer_conversion(db, trigger, Err(error_text(error)));
    }

    /// A conversion that changes nothing is answered, as of the entries that there are.
    fn answer_conversion(&mut self, db: DbId, trigger: Trigger, result: Result<(), Vec<u8>>) {
        let origin = &trigger.origin;
        if let Asker::Peer(number) = origin.asker {
            let at = self.clusters.part_mut(db).member.last_position();
            let reply = result.err().unwrap_or_else(|| DONE.to_vec());
            return self.answer_peer(number, origin.eid, Outcome::Empty(at, reply));
        }
        let Self { shell, sessions, databases, .. } = self;
        databases.end_conversion(shell, sessions, origin, result);
    }

    /// A request has changed nothing, or what has taken effect has it already, and so have the entries
    /// that this depends on.
    pub(super) fn answer_decided(&mut self, db: DbId, trigger: Trigger, reply: Vec<u8>) {
        if !trigger.is_conversion() {
            return self.databases.file_answer(db, trigger, reply);
        }
        let result = if reply == DONE { Ok(()) } else { Err(reply) };
        let Self { shell, sessions, databases, .. } = self;
        databases.end_conversion(shell, sessions, &trigger.origin, result);
    }

    /// Whether the next committed entry may take effect now, or there is none. One that converts the
    /// tables does so here, once a helper has made the new ones.
    pub(super) fn is_next_applicable(&mut self, db: DbId) -> bool {
        while let Some(part) = self.clusters.parts.get_mut(&db) {
            if part.end == Some(End::Unfit) {
                return false;
            }
            if part.loaded.is_some() {
                if self.follow_snapshot(db) {
                    continue;
                }
                return false;
            }
            let Some(Entry { at, content }) = part.to_apply.front() else { return true };
            let at = *at;
            let own = part.conversion.at();
            if own.is_some_and(|own| own.index == at.index && own != at) {
                // It stands where the conversion was to be.
                self.end_conversion_under_way(db);
                // Who waited for that may have run.
                if !self.databases.can_follow(db) {
                    return false;
                }
                continue;
            }
            let Content::Data { eid, text } = content else { return true };
            if !has_schema(text) || self.databases.has_batch(db) {
                return true;
            }
            let (eid, text) = (*eid, Arc::clone(text));
            if own != Some(at) {
                self.follow_conversion(db, at, text);
                return false;
            }
            if part.conversion.work().is_some() {
                return false;
            }
            self.end_entry(db, at, eid, is_bare(&text));
        }
        false
    }

    /// A helper makes the tables that a committed entry asks for.
    fn follow_conversion(&mut self, db: DbId, at: Position, entry: Text) {
        self.end_conversion_under_way(db);
        let tables = self.databases.get(db).expect("entries take effect on tables").tables();
        let (snapshot, seed) = (tables.snapshot(), self.shell.seed());
        let recast = Recast { snapshot, wanted: RecastWanted::Entry(entry), seed };
        let work = self.shell.send_out(Asker::Server, Work::Recast(Box::new(recast)));
        let part = self.clusters.part_mut(db);
        part.conversion = Conversion::Followed { work, at };
        if part.member.may_propose() {
            self.databases.freeze(db);
        }
    }

    /// This member leads, and has not got all entries before its term: it runs nothing.
    pub(super) fn freeze_while_converting(&mut self, db: DbId) {
        let part = self.clusters.part_mut(db);
        let is_behind =
            matches!(part.conversion, Conversion::Followed { .. } | Conversion::Ready { .. });
        if is_behind && part.member.may_propose() {
            self.databases.freeze(db);
        }
    }

    /// What was under way will not be, or not here: who asked for it asks again.
    pub(super) fn end_conversion_under_way(&mut self, db: DbId) {
        let part = self.clusters.part_mut(db);
        let was_busy = !matches!(part.conversion, Conversion::None);
        let (trigger, converted) = part.conversion.take();
        forget(&mut self.shell, converted);
        if let Some(trigger) = trigger {
            self.ask_elsewhere(trigger);
        }
        if was_busy {
            self.thaw(db);
        }
    }

    /// The tables of an entry are there: they take the others' place.
    fn end_entry(&mut self, db: DbId, at: Position, eid: Uuid, is_bare: bool) {
        let part = self.clusters.part_mut(db);
        let (trigger, converted) = match std::mem::take(&mut part.conversion) {
            Conversion::Proposed { trigger, converted, .. } => (trigger, Ok(converted)),
            Conversion::Ready { converted, .. } => (None, converted),
            _ => unreachable!("the tables are there"),
        };
        let converted = match converted {
            Ok(converted) => converted,
            Err(error) => {
                self.cannot_follow(db, at, &error.to_string());
                return self.thaw(db);
            }
        };
        part.to_apply.pop_front();
        part.applied = at.index;
        if is_bare {
            part.growth.note_bare();
        }
        let forward = part.forwards.take(eid).map(|forward| forward.trigger);
        let trigger = trigger.map(|trigger| *trigger).or(forward);
        let origin: Option<Origin> = trigger.map(|trigger| trigger.origin);
        self.take_tables_of(db, (*converted, eid), origin);
    }

    /// The tables become others, of another schema.
    pub(in crate::server) fn take_tables_of(
        &mut self,
        db: DbId,
        converted: (Converted, Uuid),
        origin: Option<Origin>,
    ) {
        let Self { shell, sessions, databases, .. } = self;
        let replaced = databases.recast(shell, sessions, db, converted, origin);
        let text = format!("{}: converted", replaced.name);
        self.shell.log("ovsdb", Level::Info, text);
        self.tell_of_schema(db, replaced);
    }
}

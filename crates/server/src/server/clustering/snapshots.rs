//! Snapshots that come from other members, and copies of the file with one of the tables in front.

use weir_cluster::{Event as Happened, Mark, Member};
use weir_data::Uuid;

use crate::clusters::receiving::{Receiving, Stage};
use crate::clusters::{Copy, End, Finishing};
use crate::database::Db;
use crate::effect::{Effect, Level, MemberHeader, Step};
use crate::ids::{Bytes, CommandId, DbId};
use crate::server::Server;
use crate::server::clustering::loading::forget;
use crate::storage::snapshot_header;

impl Server {
    /// A snapshot is about to come.
    pub(super) fn receive_snapshot(
        &mut self,
        db: DbId,
        cluster: Option<Uuid>,
        mark: &Mark,
        len: u64,
    ) {
        self.drop_copy(db, "a snapshot of another server takes the place of the file");
        let part = self.clusters.part_mut(db);
        let header = member_header(&part.member, cluster, mark);
        let begins = snapshot_header(&header);
        let (receiving, head) = Receiving::begin(&begins, (mark.last, mark.eid), len);
        let before = part.receiving.replace(receiving);
        forget(&mut self.shell, before);
        self.shell.ask(Effect::BeginReceived { db, head });
    }

    pub(super) fn snapshot_piece(&mut self, db: DbId, bytes: Vec<u8>) {
        let part = self.clusters.part_mut(db);
        let receiving = part.receiving.as_mut().expect("a snapshot was announced");
        let offset = receiving.piece(&bytes);
        self.shell.ask(Effect::WriteReceived { db, offset, bytes });
    }

    /// The file has what it begins with and so much of the data, or takes nothing more.
    pub(in crate::server) fn received_written(&mut self, db: DbId, result: Result<u64, String>) {
        let part = self.clusters.part(db);
        let Some(receiving) = part.and_then(|part| part.receiving.as_ref()) else { return };
        let (last, place) = (receiving.last, receiving.place.clone());
        let result = result.map(|upto| upto.clamp(place.start, place.end) - place.start);
        self.member_event(db, Happened::SnapshotWritten { last, result });
    }

    /// All has come: it must be on the disk before it takes the file's place.
    pub(super) fn load_snapshot(&mut self, db: DbId) {
        let part = self.clusters.part_mut(db);
        let receiving = part.receiving.as_mut().expect("a snapshot was announced");
        let (offset, tail, head) = receiving.end();
        self.shell.ask(Effect::WriteReceived { db, offset, bytes: tail.to_vec() });
        self.shell.ask(Effect::PatchReceived { db, offset: 0, bytes: head });
        self.shell.ask(Effect::SyncReceived { db });
    }

    /// What has come is on the disk, or is not.
    pub(in crate::server) fn received_synced(&mut self, db: DbId, result: Result<u64, String>) {
        if self.clusters.part(db).is_none() {
            return;
        }
        let Some(receiving) = &mut self.clusters.part_mut(db).receiving else { return };
        if !matches!(receiving.stage, Stage::Written) {
            // Of one in whose place another one is about to come: the shell had answered before it was told.
            return;
        }
        let last = receiving.last;
        match result {
            Ok(_) => {
                receiving.stage = Stage::Synced;
                self.run_member(db);
            }
            Err(error) => {
                self.member_event(db, Happened::SnapshotLoaded { last, result: Err(error) });
            }
        }
    }

    /// A snapshot that has come, or a copy of the file, takes its place, with what stands behind it.
    pub(super) fn replace_member_file(
        &mut self,
        db: DbId,
        step: u64,
        tail: &Bytes,
        is_snapshot: bool,
    ) {
        let part = self.clusters.part_mut(db);
        let extended = part.copy.as_ref().map_or(0, |copy| copy.log_len);
        let log_len = extended + tail.len() as u64;
        part.finishing = Some(Finishing { step, log_len, is_snapshot });
        // It has all that comes before, even what could not be written.
        let (tail, step) = (tail.to_vec(), Step { number: step, behind: None });
        self.shell.ask(Effect::FinishCompaction { db, tail, sync: true, step: Some(step) });
    }

    /// Has a copy of the file written that begins with a snapshot of the tables as they are; false if
    /// that cannot be now.
    pub(in crate::server) fn copy_member_file(
        &mut self,
        db: DbId,
        command: Option<CommandId>,
    ) -> bool {
        let is_settled = self.databases.get(db).is_some_and(Db::shows_last_commit);
        let part = self.clusters.part_mut(db);
        let is_going = part.member.is_departing();
        if !is_settled || is_going || part.is_replacing_file() || part.is_behind() {
            return false;
        }
        // One that says no more than the file is of use where that takes nothing more, or cannot be read.
        let first_index = part.member.first_index() - u64::from(part.growth.is_broken());
        if part.member.applied() < first_index {
            return false;
        }
        let mark = part.member.begin_copy();
        let cluster = part.member.cluster();
        let header = member_header(&part.member, cluster, &mark);
        // Another one of the same rows must not pass for the same: a member that has half of the one before
        // goes on behind that if both are as long.
        let comment = if part.growth.is_broken() {
            "writing database anew, for its disk has failed"
        } else {
            "compacting database online"
        };
        part.growth.begin_copy();
        part.copy = Some(Copy { mark, data_offset: None, log_len: 0, command });
        let tables = self.databases.get(db).expect("it is settled").tables();
        let snapshot = tables.snapshot();
        let (comment, date_ms) = (comment.to_owned(), self.shell.wall_ms());
        let member = Some(Box::new(header));
        self.shell.ask(Effect::Compact { db, snapshot, comment, date_ms, history: None, member });
        true
    }

    /// Part of what stands behind the snapshot of a copy is appended before it takes the file's place.
    pub(super) fn extend_member_copy(&mut self, db: DbId, records: Vec<u8>) {
        let copy = self.clusters.part_mut(db).copy.as_mut().expect("it is being written");
        copy.log_len += records.len() as u64;
        self.shell.ask(Effect::ExtendCopy { db, records });
    }

    /// The snapshot of a copy is written, or a part of what stands behind that, or could not be.
    pub(in crate::server) fn member_copy_written(&mut self, db: DbId, result: Result<u64, String>) {
        let part = self.clusters.part_mut(db);
        // A snapshot of another member may have taken its place.
        let Some(copy) = &mut part.copy else { return };
        match result {
            Ok(_) if copy.data_offset.is_some() => self.member_event(db, Happened::CopyExtended),
            Ok(size) => {
                let mark = copy.mark.clone();
                let header = member_header(&part.member, part.member.cluster(), &mark);
                let (data_offset, len) = snapshot_header(&header).data_in(size);
                copy.data_offset = Some(data_offset);
                self.member_event(db, Happened::CopyWritten { mark, len });
            }
            Err(error) => {
                part.member.copy_ended();
                self.fail_copy(db, &error);
            }
        }
    }

    /// A copy could not be written, or could not take the file's place.
    pub(super) fn fail_copy(&mut self, db: DbId, error: &str) {
        let now_us = self.shell.now_us();
        let part = self.clusters.part_mut(db);
        part.growth.fail_copy(now_us);
        let text = format!("{}: compaction failed: {error}", part.path);
        self.shell.log_limited("compaction", "ovsdb_server", Level::Warning, text);
        self.drop_copy(db, error);
    }

    /// A copy that is being written is given up; whoever has asked for it is told why.
    pub(super) fn drop_copy(&mut self, db: DbId, why: &str) {
        let Some(part) = self.clusters.parts.get_mut(&db) else { return };
        if let Some(copy) = part.copy.take() {
            part.growth.drop_copy();
            self.end_copy_command(copy.command, Err(why.to_owned()));
        }
    }

    fn end_copy_command(&mut self, command: Option<CommandId>, reply: Result<String, String>) {
        if let Some(id) = command {
            self.shell.answer_command(id, reply);
        }
    }

    /// Rewrites the files of members that have grown enough.
    pub(in crate::server) fn copy_member_files_if_due(&mut self) {
        let now_us = self.shell.now_us();
        let due: Vec<DbId> = self.clusters.due_for_copy(now_us).collect();
        for db in due {
            let has_tables = self.databases.get(db).is_some();
            let part = self.clusters.part_mut(db);
            if !has_tables && part.growth.is_suspect() && !part.is_replacing_file() {
                part.end = Some(End::Suspect);
            } else {
                self.copy_member_file(db, None);
            }
        }
    }

    /// What has come, or a copy that was written, is of no use.
    pub(super) fn drop_snapshot(&mut self, db: DbId) {
        self.drop_copy(db, "there is nothing to compact any more");
        let before = self.clusters.part_mut(db).receiving.take();
        forget(&mut self.shell, before);
        self.shell.ask(Effect::DiscardCopy { db });
    }

    /// A snapshot or a copy has taken the file's place, or has not.
    pub(in crate::server) fn member_file_replaced(
        &mut self,
        db: DbId,
        result: Result<u64, String>,
    ) {
        let now_us = self.shell.now_us();
        let part = self.clusters.part_mut(db);
        let finishing = part.finishing.take();
        let Finishing { step, log_len, is_snapshot } =
            finishing.expect("the shell answers what it was asked");
        match &result {
            Ok(size) => {
                part.log_offset = size - log_len;
                part.growth.end_copy(*size, now_us);
                self.member_file_is_new(db, is_snapshot);
            }
            Err(error) if !is_snapshot => self.fail_copy(db, error),
            // The member gives it up.
            Err(_) => {}
        }
        self.member_event(db, Happened::Persisted { step, result: result.map(|_| 0) });
    }

    fn member_file_is_new(&mut self, db: DbId, is_snapshot: bool) {
        let part = self.clusters.part_mut(db);
        if is_snapshot {
            let receiving = part.receiving.take().expect("what is installed has come");
            part.snapshot_offset = receiving.place.start;
            part.to_apply.forget_until(receiving.last.index);
            self.snapshot_installed(db, receiving);
        } else {
            let copy = part.copy.take().expect("what took the place was written");
            part.snapshot_offset = copy.data_offset.expect("it was written");
            self.end_copy_command(copy.command, Ok(String::new()));
        }
    }
}

fn member_header(member: &Member, cluster: Option<Uuid>, mark: &Mark) -> MemberHeader {
    MemberHeader {
        server: member.id(),
        address: member.address().to_owned(),
        name: member.name().to_owned(),
        cluster,
        mark: mark.clone(),
    }
}

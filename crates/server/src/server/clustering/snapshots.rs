//! Snapshots that come from other members, and copies of the file with one of the tables in front.

use weir_cluster::{Event as Happened, Mark, Member};
use weir_data::Uuid;

use crate::clusters::Copy;
use crate::clusters::receiving::{Receiving, Stage};
use crate::database::Db;
use crate::effect::{Effect, MemberHeader, Step};
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
        let part = self.clusters.part_mut(db);
        let header = member_header(&part.member, cluster, mark);
        let begins = snapshot_header(&header);
        let (receiving, head) = Receiving::begin(&begins, (mark.last, mark.eid), len);
        let before = part.receiving.replace(receiving);
        part.copy = None;
        forget(&mut self.shell, before);
        self.shell.ask(Effect::BeginReceived { db, head });
    }

    pub(super) fn snapshot_piece(&mut self, db: DbId, bytes: Vec<u8>) {
        let part = self.clusters.part_mut(db);
        let receiving = part.receiving.as_mut().expect("a snapshot was announced");
        let offset = receiving.piece(&bytes);
        self.shell.ask(Effect::WriteReceived { db, offset, bytes });
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
        assert!(matches!(receiving.stage, Stage::Written), "the shell answers for what is there");
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

    /// What has come takes the file's place.
    pub(super) fn install_snapshot(&mut self, db: DbId, (step, behind): (u64, u64), tail: &Bytes) {
        let step = Step { number: step, behind: Some(behind) };
        self.clusters.part_mut(db).finishing = Some((step.number, tail.len() as u64));
        let tail = tail.to_vec();
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
        let is_busy = part.copy.is_some() || part.receiving.is_some() || part.finishing.is_some();
        if !is_settled || is_busy || part.is_behind() {
            return false;
        }
        if part.member.applied() < part.member.first_index() {
            return false;
        }
        let mark = part.member.begin_copy();
        let cluster = part.member.cluster();
        let header = member_header(&part.member, cluster, &mark);
        part.growth.begin_copy();
        part.copy = Some(Copy { mark, data_offset: 0, command });
        let tables = self.databases.get(db).expect("it is settled").tables();
        let snapshot = tables.snapshot();
        let (comment, date_ms) = ("compacting database online".to_owned(), self.shell.wall_ms());
        let member = Some(Box::new(header));
        self.shell.ask(Effect::Compact { db, snapshot, comment, date_ms, history: None, member });
        true
    }

    /// The copy is written but for what stands behind its snapshot, or could not be.
    pub(in crate::server) fn member_copy_written(&mut self, db: DbId, result: Result<u64, String>) {
        let part = self.clusters.part_mut(db);
        // A snapshot of another member may have taken its place.
        let Some(copy) = &mut part.copy else { return };
        match result {
            Ok(size) => {
                let mark = copy.mark.clone();
                let header = member_header(&part.member, part.member.cluster(), &mark);
                let (data_offset, len) = snapshot_header(&header).data_in(size);
                copy.data_offset = data_offset;
                self.member_event(db, Happened::CopyWritten { mark, len });
            }
            Err(error) => {
                part.member.copy_ended();
                let command = part.copy.take().and_then(|copy| copy.command);
                self.end_copy_command(command, Err(error.clone()));
                let part = self.clusters.part_mut(db);
                let text = format!("{}: compaction failed: {error}", part.path);
                self.shell.log("ovsdb_server", crate::effect::Level::Warning, text);
            }
        }
    }

    fn end_copy_command(&mut self, command: Option<CommandId>, reply: Result<String, String>) {
        if let Some(id) = command {
            self.shell.ask(Effect::CommandReply { id, reply });
        }
    }

    /// Rewrites the files of members that have grown enough.
    pub(in crate::server) fn copy_member_files_if_due(&mut self) {
        let now_us = self.shell.now_us();
        let due: Vec<DbId> = self.clusters.due_for_copy(now_us).collect();
        for db in due {
            self.copy_member_file(db, None);
        }
    }

    /// A copy of the file takes its place, with what stands behind its snapshot.
    pub(super) fn finish_copy(&mut self, db: DbId, step: u64, tail: &Bytes) {
        self.clusters.part_mut(db).finishing = Some((step, tail.len() as u64));
        let (tail, step) = (tail.to_vec(), Step { number: step, behind: None });
        self.shell.ask(Effect::FinishCompaction { db, tail, sync: true, step: Some(step) });
    }

    /// What has come is of no use.
    pub(super) fn drop_snapshot(&mut self, db: DbId) {
        let part = self.clusters.part_mut(db);
        part.copy = None;
        let before = part.receiving.take();
        forget(&mut self.shell, before);
        self.shell.ask(Effect::DiscardCopy { db });
    }

    /// A snapshot or a copy has taken the file's place, or has not.
    pub(in crate::server) fn member_file_replaced(
        &mut self,
        db: DbId,
        result: Result<u64, String>,
    ) {
        let part = self.clusters.part_mut(db);
        let finishing = part.finishing.take();
        let (step, log_len) = finishing.expect("the shell answers what it was asked");
        if let Ok(size) = result {
            part.log_offset = size - log_len;
            if let Some(receiving) = part.receiving.take() {
                part.snapshot_offset = receiving.place.start;
                part.to_apply.forget_until(receiving.last.index);
                self.snapshot_installed(db, receiving);
            } else if let Some(copy) = self.clusters.part_mut(db).copy.take() {
                let now_us = self.shell.now_us();
                let part = self.clusters.part_mut(db);
                part.snapshot_offset = copy.data_offset;
                part.growth.end_copy(size, now_us);
                self.end_copy_command(copy.command, Ok(String::new()));
            }
        } else if let Some(copy) = part.copy.take() {
            self.end_copy_command(copy.command, Err("the file could not be replaced".to_owned()));
        }
        self.member_event(db, Happened::Persisted { step, result: result.map(|_| 0) });
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

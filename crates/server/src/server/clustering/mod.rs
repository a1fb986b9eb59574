//! What concerns a clustered database besides its part in the cluster: sessions, tables, the shell.

mod commands;
mod converting;
mod entries;
mod loading;
mod requests;
mod snapshots;
mod syncing;

use weir_cluster::{Effect as Wanted, Event as Happened, Level as Severity, Place};
use weir_data::Uuid;

use crate::admin::again::Again;
use crate::clusters::End;
use crate::clusters::conversion::Conversion;
use crate::clusters::forwards::Forward;
use crate::clusters::reading::{Piece, Texts};
use crate::configuration::{DbConfig, Model};
use crate::database::{Db, Trigger, server_db};
use crate::effect::{Effect, Framing, Level, Step};
use crate::ids::{DbId, LinkId, PeerPortId, SyncTime, WorkId};
use crate::server::Server;
use crate::server::clustering::converting::forget;

/// Events of the shell that concern clusters.
impl Server {
    /// A step is in the file, or is not.
    pub(in crate::server) fn persisted(
        &mut self,
        db: DbId,
        step: u64,
        result: Result<SyncTime, String>,
    ) {
        let result = result.map(|SyncTime(us)| us);
        self.member_event(db, Happened::Persisted { step, result });
    }

    /// A connection to a member is open.
    pub(in crate::server) fn peer_up(&mut self, link: LinkId) {
        let Some((db, of_member)) = self.clusters.links.get(&link).copied() else { return };
        self.limit_peer(db, link);
        self.member_event(db, Happened::Connected { link: of_member });
    }

    /// Whether others can connect to this member.
    pub(in crate::server) fn peer_port(&mut self, port: PeerPortId, listens: bool) {
        if let Some(db) = self.clusters.ports.get(&port).copied() {
            self.clusters.part_mut(db).member.set_listens(listens);
        }
    }

    /// A member has connected.
    pub(in crate::server) fn peer_accepted(
        &mut self,
        port: PeerPortId,
        link: LinkId,
        name: String,
    ) {
        let Some(db) = self.clusters.ports.get(&port).copied() else {
            return self.shell.ask(Effect::CloseLink { link });
        };
        // The shell's numbers are far beyond those of the member.
        let of_member = weir_cluster::LinkId(link.0);
        self.clusters.links.insert(link, (db, of_member));
        self.clusters.part_mut(db).links.insert(of_member, link);
        self.limit_peer(db, link);
        self.member_event(db, Happened::Accepted { link: of_member, name });
    }

    /// Bytes have come on a connection to a member.
    pub(in crate::server) fn peer_bytes(&mut self, link: LinkId, bytes: Vec<u8>) {
        let Some((db, link)) = self.clusters.links.get(&link).copied() else { return };
        self.member_event(db, Happened::Received { link, bytes });
    }

    /// A connection to a member has ended.
    pub(in crate::server) fn peer_down(&mut self, link: LinkId, error: Option<String>) {
        let Some((db, link)) = self.clusters.forget_link(link) else { return };
        self.member_event(db, Happened::Lost { link, error });
    }

    /// A piece of the file's snapshot has been read for a member.
    pub(in crate::server) fn file_read(
        &mut self,
        db: DbId,
        id: WorkId,
        result: Result<Vec<u8>, String>,
    ) {
        if self.clusters.part(db).is_none() {
            return;
        }
        let part = self.clusters.part_mut(db);
        match part.reads.remove(&id).expect("the shell answers what it was asked") {
            Piece::Snapshot { to, number, offset } => {
                self.member_event(db, Happened::SnapshotRead { to, number, offset, result });
            }
            Piece::Text => {
                let texts = part.texts.as_mut().expect("its pieces are being read");
                if texts.piece(result) {
                    let result = part.texts.take().expect("its last piece is here").finish();
                    self.member_event(db, Happened::TextsRead { result });
                }
            }
        }
    }

    /// Has texts of entries read back.
    fn read_texts(&mut self, db: DbId, place: Place) {
        let (texts, pieces) = Texts::begin(place);
        let part = self.clusters.part_mut(db);
        assert!(part.texts.replace(texts).is_none(), "there is one reading at a time");
        for Place { offset, len } in pieces {
            let id = self.shell.next_work();
            let part = self.clusters.part_mut(db);
            part.reads.insert(id, Piece::Text);
            let offset = part.log_offset + offset;
            self.shell.ask(Effect::ReadFile { db, id, offset, len });
        }
    }

    fn member_event(&mut self, db: DbId, event: Happened) {
        if self.clusters.part(db).is_some() {
            self.clusters.tell(&self.shell, db, event);
            self.run_member(db);
        }
    }

    /// Time has passed for members.
    pub(in crate::server) fn run_members(&mut self) {
        let now_us = self.shell.now_us();
        for db in self.clusters.parts.keys().copied().collect::<Vec<_>>() {
            let part = self.clusters.part_mut(db);
            if part.again_us.is_some_and(|at| at <= now_us) {
                part.again_us = None;
            }
            part.load_again_us.take_if(|at| *at <= now_us);
            let is_tired = part.patience_us.take_if(|at| *at <= now_us).is_some();
            if part.member.wakeup_us() <= now_us {
                self.clusters.tell(&self.shell, db, Happened::Tick);
            }
            if is_tired {
                self.lose_patience(db);
            }
            self.run_member(db);
            self.let_waiting_go();
            self.dispatch(db);
            self.tell_server_db(db);
        }
        self.remove_left();
    }

    /// Carries out what a member wants.
    pub(in crate::server) fn run_member(&mut self, db: DbId) {
        while let Some(wanted) =
            self.clusters.parts.get_mut(&db).and_then(|part| part.member.poll())
        {
            self.carry_out(db, wanted);
        }
        self.settle_who_writes(db);
        if self.clusters.part(db).is_some() {
            self.freeze_while_converting(db);
        }
        self.apply_entries(db);
        self.settle_who_writes(db);
    }

    /// The cluster takes what this member has run, or not: a leader may have got that while a helper
    /// had the tables, and entries of others before its own have not taken effect there.
    fn settle_who_writes(&mut self, db: DbId) {
        let Some(part) = self.clusters.part(db) else { return };
        // Whose rows are wrong takes nothing any more: what others have asked goes back to them.
        let is_unfit = part.end == Some(End::Unfit);
        let leads = part.member.leader() == Some(part.member.id()) && !is_unfit;
        let may_write = leads
            && part.member.may_propose()
            && (self.databases.has_batch(db) || !part.lacks_rows());
        let term = leads.then(|| part.member.term());
        let limit = part.entry_limit();
        self.databases.set_leads(db, term, may_write, limit);
        if !may_write && self.databases.has_proposals(db) {
            // It is asked of whoever leads, before what comes behind it.
            self.databases.begin_batch(db);
            self.end_batch(db);
        }
    }

    fn carry_out(&mut self, db: DbId, wanted: Wanted) {
        match wanted {
            Wanted::Persist { step, behind, bytes, sync, is_urgent } => {
                self.clusters.part_mut(db).growth.note(bytes.len());
                let step = Step { number: step, behind: Some(behind) };
                self.shell.ask(Effect::Persist { db, step, bytes, sync, is_urgent });
            }
            Wanted::Connect { link, address } => {
                let link = self.clusters.shell_link(db, link);
                let framing = Framing::Bytes;
                self.shell.ask(Effect::Connect { link, target: address, dscp: None, framing });
            }
            Wanted::Send { link, bytes } => {
                let link = self.clusters.part(db).and_then(|part| part.links.get(&link));
                if let Some(link) = link.copied() {
                    self.shell.ask(Effect::SendTo { link, bytes });
                }
            }
            Wanted::Disconnect { link } => {
                let link = self.clusters.part(db).and_then(|part| part.links.get(&link)).copied();
                if let Some(link) = link {
                    self.clusters.forget_link(link);
                    self.shell.ask(Effect::CloseLink { link });
                }
            }
            Wanted::Commit(entries) => self.clusters.part_mut(db).to_apply.extend(entries),
            Wanted::Leadership { leader } => self.led_by(db, leader),
            Wanted::Message { from, body } => self.peer_message(db, from, &body),
            Wanted::PeerLost { peer } => {
                let part = self.clusters.part_mut(db);
                part.answers.lost(peer);
                if part.member.leader() == Some(peer) {
                    part.forwards.ask_unanswered_again();
                    self.forget_gone(db);
                    self.states.ask_again(db, self.shell.now_us());
                }
            }
            Wanted::ReadSnapshot { to, number, offset, len } => {
                let id = self.shell.next_work();
                let part = self.clusters.part_mut(db);
                part.reads.insert(id, Piece::Snapshot { to, number, offset });
                let offset = part.snapshot_offset + offset;
                self.shell.ask(Effect::ReadFile { db, id, offset, len });
            }
            Wanted::ReadIndex { number, index } => self.index_read(db, number, index),
            Wanted::ReadTexts(place) => self.read_texts(db, place),
            Wanted::ReceiveSnapshot { cluster, mark, len } => {
                self.receive_snapshot(db, cluster, &mark, len);
            }
            Wanted::SnapshotPiece { bytes } => self.snapshot_piece(db, bytes),
            Wanted::LoadSnapshot { .. } => self.load_snapshot(db),
            Wanted::InstallSnapshot { step, tail, .. } => {
                self.replace_member_file(db, step, &tail, true);
            }
            Wanted::DropSnapshot => self.drop_snapshot(db),
            Wanted::FinishCopy { step, tail } => self.replace_member_file(db, step, &tail, false),
            Wanted::ExtendCopy { records } => self.extend_member_copy(db, records),
            Wanted::DropCopy => self.drop_snapshot(db),
            Wanted::FailCopy { why } => {
                self.fail_copy(db, &why);
                self.shell.ask(Effect::DiscardCopy { db });
            }
            Wanted::Crash { why } => self.shell.ask(Effect::Crash { why }),
            Wanted::RewriteFile => self.clusters.part_mut(db).growth.note_unread(),
            Wanted::Left => self.clusters.part_mut(db).end = Some(End::Left),
            Wanted::Forgot { remotes } => {
                let part = self.clusters.part_mut(db);
                (part.end, part.known) = (Some(End::Forgot), remotes);
            }
            Wanted::Log { level, text, limit } => {
                let level = match level {
                    Severity::Error => Level::Error,
                    Severity::Warning => Level::Warning,
                    Severity::Info => Level::Info,
                    Severity::Debug => Level::Debug,
                };
                match limit {
                    Some(place) => self.shell.log_limited(place, "raft", level, text),
                    None => self.shell.log("raft", level, text),
                }
            }
        }
    }

    /// Whether a database can be removed now: all is decided, or would have to be by the cluster. What helpers are at
    /// work on comes to nothing: there may always be something.
    pub(in crate::server) fn can_remove(&self, db: DbId) -> bool {
        self.databases.get(db).is_none_or(Db::is_settled)
    }

    /// A database is no longer part of its cluster here: what the cluster was to decide, nobody here
    /// will hear of.
    pub(in crate::server) fn end_part(&mut self, db: DbId) {
        self.drop_copy(db, "no database by that name");
        let Some(part) = self.clusters.remove(&mut self.shell, db) else { return };
        self.databases.set_leads(db, None, false, part.entry_limit());
        if self.databases.has_batch(db) {
            self.end_batch(db);
            // Reads of the batch, which have run again.
            self.decide(db);
        }
        let mut triggers = self.databases.take_to_forward(db);
        let (mut forwards, mut conversion) = (part.forwards, part.conversion);
        loading::forget(&mut self.shell, part.receiving);
        loading::forget(&mut self.shell, part.loaded);
        // What a leader has been told, or has proposed, may be committed yet.
        let (told, untold): (Vec<Forward>, Vec<Forward>) =
            forwards.take_all().into_iter().partition(|forward| forward.since.is_some());
        triggers.extend(untold.into_iter().map(|forward| forward.trigger));
        let (converter, converted) = conversion.take();
        triggers.extend(converter);
        let (unknown, canceled): (Vec<Trigger>, Vec<Trigger>) =
            triggers.into_iter().partition(|trigger| trigger.since.is_some());
        let unknown = told.into_iter().map(|forward| forward.trigger).chain(unknown);
        for trigger in unknown {
            self.forget_client(db, &trigger);
        }
        forget(&mut self.shell, converted);
        for trigger in canceled {
            self.cancel_in_order(trigger);
        }
    }

    /// A member that has no tables is not wanted any more.
    pub(in crate::server) fn remove_joining(&mut self, db: DbId, reason: &str) {
        let name = self.clusters.part_mut(db).member.name().to_owned();
        self.end_part(db);
        self.shell.ask(Effect::Close { db });
        self.databases.change_server_db(&mut self.shell, &server_db::delete(&name));
        self.disconnect_unaware(reason);
        self.remotes.await_no_more(&name);
        self.remotes_changed();
    }

    /// Databases whose server has left the cluster are not served any more, or not until it has joined
    /// again.
    fn remove_left(&mut self) {
        let left: Vec<(DbId, End)> = self.clusters.left().collect();
        for (db, end) in left {
            let has_tables = self.databases.get(db).is_some();
            if has_tables && !self.can_remove(db) {
                continue;
            }
            let part = self.clusters.part_mut(db);
            let (path, configured) = (part.path.clone(), part.configured_keys.clone());
            let again = Again { db: part.member.name().to_owned(), remotes: part.known.clone() };
            let with_tables = self.databases.get(db).map(|db| db.configured_keys().clone());
            let keys = with_tables.unwrap_or(configured);
            let why = match end {
                End::Left => "removing database because storage disconnected permanently",
                End::Unfit => "removing database because its rows are not those of its cluster",
                End::Suspect | End::Forgot => {
                    "removing database until its server has joined its cluster again"
                }
            };
            if has_tables {
                self.shell.log("ovsdb_server", Level::Info, why);
                self.remove_database(db, why);
            } else {
                self.remove_joining(db, why);
            }
            if matches!(end, End::Suspect | End::Forgot) {
                let model = Some(Model::Clustered);
                let config = DbConfig { model, keys, ..DbConfig::default() };
                self.open_again(path, again, config);
                self.save_configuration();
            }
        }
    }

    /// What has been proposed may be committed yet, and its clients are told then; nobody else waits for that.
    fn give_batch_up(&mut self, db: DbId) {
        self.end_batch(db);
        self.give_conversion_up(db);
        // An entry of it may take effect next, and finds whose it is.
        self.queue_for_leader(db);
    }

    /// Nothing takes effect that this leader proposes, though it is heard: others have no room, say, or its own disk
    /// does not answer.
    fn lose_patience(&mut self, db: DbId) {
        let part = self.clusters.part_mut(db);
        if self.databases.has_batch(db) || matches!(part.conversion, Conversion::Proposed { .. }) {
            // What comes behind that runs when it has taken effect.
            part.given_up_to = part.member.last_position().index;
            let is_own_disk = part.member.lacks_committed();
            self.give_batch_up(db);
            self.give_asked_up(db);
            if is_own_disk {
                // Others can do what this one cannot.
                self.clusters.part_mut(db).member.hand_over(self.shell.now_us());
            }
        }
    }

    /// Another member leads, or this one, or none is known to.
    fn led_by(&mut self, db: DbId, leader: Option<Uuid>) {
        // It was one of the leader that this member was.
        self.give_batch_up(db);
        let part = self.clusters.part_mut(db);
        part.given_up_to = 0;
        let own = part.member.id();
        if leader != Some(own) {
            // Who asked hears of the new leader, too.
            part.forget_requests();
        }
        part.again_us = None;
        part.forwards.ask_again();
        self.forget_gone(db);
        // While nobody was known to lead, an answer may have come, and the leader may be the same again.
        self.states.ask_again(db, self.shell.now_us());
    }
}

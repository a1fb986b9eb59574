//! Active-backup databases (ovsdb-server(7), "Active-Backup Database Service Model"): the server
//! side of [`weir_upstream::follower`].
//!
//! While a database follows its source only the source changes it. Each update is a transaction
//! like a client's: its record joins the round's append, and monitors learn of it when it is
//! written. If it cannot be written, it is taken back and the rows are asked for again.

use std::sync::Arc;

use weir_data::Error;
use weir_engine::replicate;
use weir_upstream::Input;
use weir_upstream::follower::Output;
use weir_upstream::news::Rows;

use crate::backup::Backups;
use crate::database::{Databases, Joining};
use crate::effect::Effect;
use crate::ids::{DbId, LinkId};
use crate::session::Sessions;
use crate::shell::Shell;

impl Backups {
    /// Something happened to a connection that this server has made.
    pub(crate) fn link_event(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
        link: LinkId,
        input: Input<'_>,
    ) {
        // It may have been given up meanwhile.
        let Some(&id) = self.links.get(&link) else { return };
        if matches!(input, Input::Down(_)) {
            self.links.remove(&link);
            let following = self.following(id).expect("a connection is somebody's");
            following.link = None;
            following.mirror.forget();
        }
        self.replicate(shell, sessions, databases, id, input);
    }

    /// Time has passed.
    pub(crate) fn run(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
    ) {
        if self.next_us().is_none_or(|at| at > shell.now_us()) {
            return;
        }
        let ids: Vec<DbId> = self.by_db.keys().copied().collect();
        for id in ids {
            self.replicate(shell, sessions, databases, id, Input::Tick);
        }
    }

    pub(super) fn replicate(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
        id: DbId,
        input: Input<'_>,
    ) {
        // A replication may have failed, and the database become active.
        let Some(following) = self.following(id) else { return };
        let mut outputs = Vec::new();
        following.follower.handle(shell.now_us(), input, shell.uuids(), &mut outputs);
        self.carry_out(shell, sessions, databases, id, outputs);
    }

    pub(super) fn carry_out(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
        id: DbId,
        outputs: Vec<Output>,
    ) {
        for output in outputs {
            match output {
                Output::Connect { target } => self.connect(shell, id, target),
                Output::Send(bytes) => {
                    if let Some(link) = self.following(id).and_then(|following| following.link) {
                        shell.ask(Effect::SendTo { link, bytes: Arc::new(bytes) });
                    }
                }
                Output::Close => self.close_link(shell, id),
                Output::News(news) => self.take_rows(shell, sessions, databases, id, news.rows),
                Output::Ephemeral(_)
                | Output::Lock { .. }
                | Output::Reply { .. }
                | Output::Conditions { .. }
                | Output::Refused { .. } => {
                    unreachable!("a backup asks for rows only")
                }
                Output::Failed => self.fail(shell, databases, id),
                Output::Log { module, level, text } => shell.log(module, level.into(), text),
            }
        }
    }

    /// What has changed at the source changes here, in one transaction.
    fn take_rows(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
        id: DbId,
        rows: Rows,
    ) {
        // An output before this one may have ended the replication.
        let Some(following) = self.following(id) else { return };
        let db = databases.get(id).expect("only an open database follows");
        let schema = Arc::clone(db.schema());
        if !Arc::ptr_eq(&schema, &following.backup.schema) {
            // A conversion from before it became a backup has ended meanwhile.
            self.stop_following(shell, databases, id);
            return self.start_following(shell, databases, id);
        }
        let images = match rows {
            Rows::Images(images) if databases.is_open(id) => images,
            // A long transaction from before it became a backup is still at work, a conversion is
            // about to end, or records are being written: no helper could take the first rows either.
            Rows::Images(_) | Rows::All(_) => {
                return self.not_written(shell, sessions, databases, id);
            }
            Rows::Edits(_) => unreachable!("a backup asks by the oldest method"),
        };
        let apply =
            |database: &mut _, uuids: &mut _| replicate::apply_images(database, images, uuids);
        let result = databases.change_own(shell, id, apply);
        match result {
            Ok(delta) if delta.is_empty() => {}
            Ok(delta) => databases.join(shell, sessions, id, (delta, Joining::Unrecorded)),
            Err(error) => self.refuse_images(shell, sessions, databases, id, &error),
        }
    }

    pub(super) fn refuse_images(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
        id: DbId,
        error: &Error,
    ) {
        let Some(following) = self.following(id) else { return };
        let mut outputs = Vec::new();
        following.follower.fail(error, &mut outputs);
        self.carry_out(shell, sessions, databases, id, outputs);
    }

    /// What the source said could not be written: it is asked again.
    pub(crate) fn not_written(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
        id: DbId,
    ) {
        // The database may have become active meanwhile.
        let Some(following) = self.following(id) else { return };
        let mut outputs = Vec::new();
        following.follower.restart(shell.now_us(), &mut outputs);
        self.carry_out(shell, sessions, databases, id, outputs);
    }

    /// A replication has ended by itself. All databases become active that share its configuration:
    /// those of the command line.
    fn fail(&mut self, shell: &mut Shell, databases: &mut Databases, id: DbId) {
        self.stop_following(shell, databases, id);
        if !self.is_from_file {
            self.stop_all_following(shell, databases);
            self.is_changed = true;
        }
    }
}

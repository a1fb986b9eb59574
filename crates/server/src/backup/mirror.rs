//! Long messages of a source, and the rows that a backup begins with: read, and made the
//! database's own, by a helper.
//!
//! 1. The message has come, and the rows of its like are awaited. What comes behind it waits, but
//!    for `echo`.
//! 2. The round is decided: the helper gets the message and the tables, as a long transaction does
//!    (`away`).
//! 3. Done: the tables are home, and the change joins the round like any other of the source. If the
//!    connection has ended meanwhile, it is taken back.

use std::sync::Arc;

use weir_data::{Delta, Error};
use weir_upstream::Input;
use weir_upstream::follower::backup::Backup;
use weir_upstream::news::{RowReader, State};

use crate::backup::{Backups, Following};
use crate::database::{Databases, Joining};
use crate::ids::{DbId, LinkId, WorkId};
use crate::mail::{Mail, is_of_probe};
use crate::origin::Asker;
use crate::session::Sessions;
use crate::shell::Shell;
use crate::work::{EXAMINE_BYTES_MIN, Garbage, MadeRecord, Mirrored, Mirroring, Reading, Work};

/// The long messages of one source.
#[derive(Debug, Default)]
pub(super) struct Mirror {
    /// One is with a helper, or about to go.
    is_out: bool,
    /// The one that is about to go, and the connection it came from.
    next: Option<(LinkId, Vec<u8>)>,
    /// What has come since.
    waiting: Mail,
}

impl Mirror {
    /// The connection that it came from is gone.
    pub(super) fn forget(&mut self) {
        self.waiting.clear();
        if self.next.take().is_some() {
            self.is_out = false;
        }
    }
}

impl Backups {
    /// A source has said something.
    pub(crate) fn link_message(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
        link: LinkId,
        message: Vec<u8>,
    ) {
        // The connection may have been given up meanwhile.
        let Some(&id) = self.links.get(&link) else { return };
        let following = self.following(id).expect("a connection is somebody's");
        let comes_behind = !following.mirror.waiting.is_empty();
        self.take_message(shell, sessions, databases, (link, id), message, comes_behind);
    }

    /// Handles a message of a source, or lets it wait: behind others, behind one that a helper
    /// reads, or until the database is written.
    fn take_message(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
        (link, id): (LinkId, DbId),
        message: Vec<u8>,
        comes_behind: bool,
    ) {
        let is_long = message.len() >= EXAMINE_BYTES_MIN || databases.step_cost_max() == 0;
        let may_send = self.reader(databases, id).is_some_and(|it| is_long || it.awaits_first());
        let is_writing = databases.is_writing(id);
        let following = self.following(id).expect("a connection is somebody's");
        let mirror = &mut following.mirror;
        if (comes_behind || mirror.is_out || is_writing) && !is_of_probe(&message) {
            mirror.waiting.push(message);
            if mirror.waiting.is_overfull() {
                return self.not_written(shell, sessions, databases, id);
            }
            return self.replicate(shell, sessions, databases, id, Input::Activity);
        }
        if may_send && !mirror.is_out {
            mirror.is_out = true;
            mirror.next = Some((link, message));
            return self.replicate(shell, sessions, databases, id, Input::Activity);
        }
        self.replicate(shell, sessions, databases, id, Input::Message(&message));
    }

    /// What reads the rows of the next message, if it may have some, and a helper can take the tables.
    fn reader(&mut self, databases: &Databases, id: DbId) -> Option<RowReader> {
        let db = databases.get(id).expect("only an open database follows");
        let (is_open, schema) = (databases.is_open(id), Arc::clone(db.schema()));
        let following = self.following(id).filter(|_| is_open)?;
        let is_same = Arc::ptr_eq(&schema, &following.backup.schema);
        following.follower.row_reader().filter(|_| is_same)
    }

    /// Whether messages wait until their database is decided, or for the next round.
    #[inline]
    pub(crate) fn has_waiting(&self, id: DbId) -> bool {
        if self.by_db.is_empty() {
            return false;
        }
        let following = self.by_db.get(&id).and_then(|backup| backup.following.as_ref());
        following.is_some_and(|Following { mirror, .. }| {
            mirror.next.is_some() || !mirror.is_out && !mirror.waiting.is_empty()
        })
    }

    /// As much of what sources have said may be taken again.
    pub(crate) fn begin_round(&mut self) {
        let all = self.by_db.values_mut().filter_map(|backup| backup.following.as_mut());
        all.for_each(|following| following.mirror.waiting.begin_round());
    }

    /// All is decided: what has waited for that goes on.
    pub(crate) fn go_on(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
        id: DbId,
    ) {
        match self.following(id).and_then(|following| following.mirror.next.take()) {
            Some((link, message)) => {
                self.send_mirror(shell, sessions, databases, id, link, message);
            }
            None => self.take_waiting(shell, sessions, databases, id),
        }
    }

    /// A helper takes a message and the tables.
    fn send_mirror(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
        id: DbId,
        link: LinkId,
        message: Vec<u8>,
    ) {
        let reader = self.reader(databases, id);
        let following = self.following(id).expect("it has a message that waits");
        let Some(reader) = reader else {
            following.mirror.is_out = false;
            return self.not_written(shell, sessions, databases, id);
        };
        let Backup { schema, excluded, .. } = &*following.backup;
        let replaced = schema.table_ids().filter(|(_, table)| !excluded.contains(&table.name));
        let replaced = replaced.map(|(table, _)| table).collect();
        let (database, style) = databases.send_tables(shell, sessions, id);
        let (date_ms, seed) = (shell.wall_ms(), shell.seed());
        let mirroring = Mirroring { reader, message, database, replaced, style, date_ms, seed };
        let work = shell.send_out(Asker::Server, Work::Mirror(Box::new(mirroring)));
        self.out.insert(work, (link, id));
    }

    /// The tables are home.
    pub(crate) fn have_mirrored(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
        work: WorkId,
        mirrored: Mirrored,
    ) {
        let (link, id) = self.out.remove(&work).expect("a helper answers what it was asked");
        let Mirrored { database, result } = mirrored;
        if databases.get(id).is_none() {
            // A configuration file has removed it.
            return shell.free(Garbage::Database(database));
        }
        databases.take_tables(shell, id, database);
        let following = self.following(id);
        let is_ours = following.is_some_and(|following| {
            following.mirror.is_out = false;
            following.link == Some(link)
        });
        match result {
            Reading::Unread(message) if is_ours => {
                self.replicate(shell, sessions, databases, id, Input::Message(&message));
            }
            Reading::Wrong(error) if is_ours => {
                self.refuse_images(shell, sessions, databases, id, &error);
            }
            Reading::Unread(_) | Reading::Wrong(_) => {}
            Reading::Read { state, result } if is_ours => {
                self.take_over(shell, sessions, databases, id, state, result);
            }
            Reading::Read { result, .. } => {
                // What changed nothing did not move the database on either.
                if let Ok((delta, _)) = &result
                    && !delta.is_empty()
                {
                    databases.take_back(id, delta);
                }
            }
        }
        databases.reopen(shell, sessions, id);
        databases.wake(shell, sessions, id);
        self.take_waiting(shell, sessions, databases, id);
    }

    /// The source's rows have become this database's.
    fn take_over(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
        id: DbId,
        state: State,
        result: Result<(Delta, Option<MadeRecord>), Error>,
    ) {
        let mut outputs = Vec::new();
        let following = self.following(id).expect("the connection is its own");
        following.follower.have_read(state, &mut outputs);
        self.carry_out(shell, sessions, databases, id, outputs);
        match result {
            Ok((delta, _)) if delta.is_empty() => {}
            Ok((delta, record)) => {
                databases.join(shell, sessions, id, (delta, Joining::Recorded(record)))
            }
            Err(error) => self.refuse_images(shell, sessions, databases, id, &error),
        }
    }

    /// Takes what the source has said meanwhile, as far as a round goes.
    fn take_waiting(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
        id: DbId,
    ) {
        while let Some(following) = self.following(id)
            && !following.mirror.is_out
            && !databases.is_writing(id)
            && let Some(link) = following.link
            && let Some(message) = following.mirror.waiting.pop()
        {
            self.take_message(shell, sessions, databases, (link, id), message, false);
        }
    }
}

//! Long messages of a source, such as the rows that a backup begins with: read, and made the
//! database's own, by a helper.
//!
//! 1. The message has come, and the rows of its like are awaited. What comes behind it waits, but
//!    for `echo`.
//! 2. The round is decided: the helper gets the message and the tables, as a long transaction does
//!    (`away`).
//! 3. Done: the tables are home, and the change joins the round like any other of the source. If the
//!    connection has ended meanwhile, it is taken back.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use weir_data::{Delta, Error, TableId, UuidSource};
use weir_engine::{Database, replicate};
use weir_log::standalone::{self, Form};
use weir_upstream::replication::Input;
use weir_upstream::{RowReader, Rows};

use crate::event::{DbId, LinkId, Now};
use crate::server::Server;
use crate::session::gate::Kind;
use crate::work::away::{EXAMINE_BYTES_MIN, Out};
use crate::work::{Garbage, Work};

/// Most bytes of a source's messages that wait for a helper. Beyond it the rows are asked for again.
const WAITING_BYTES_MAX: usize = 256 << 20;

/// The long messages of one source.
#[derive(Debug, Default)]
pub(crate) struct Mirror {
    /// One is with a helper, or about to go.
    is_out: bool,
    /// What has come since.
    waiting: VecDeque<Vec<u8>>,
    waiting_bytes: usize,
}

/// A message and the tables that are to be like it.
pub struct Mirroring {
    reader: RowReader,
    message: Vec<u8>,
    database: Box<Database>,
    /// Tables of which no other rows stay, if the message has all.
    replaced: BTreeSet<TableId>,
    form: Form,
    /// Wall clock for the log record.
    date_ms: i64,
    seed: [u64; 4],
}

/// What came of it.
pub struct Mirrored {
    database: Box<Database>,
    result: Reading,
}

enum Reading {
    /// The message is not for this.
    Unread(Vec<u8>),
    /// All rows, or changed ones; what that changed here, and its record.
    Read { is_all: bool, result: Result<(Delta, Vec<u8>), Error> },
}

impl Mirror {
    /// The connection that it came from is gone.
    pub(crate) fn forget(&mut self) {
        self.waiting.clear();
        self.waiting_bytes = 0;
    }

    fn push(&mut self, message: Vec<u8>) {
        self.waiting_bytes += message.len();
        self.waiting.push_back(message);
    }

    fn pop(&mut self) -> Option<Vec<u8>> {
        let message = self.waiting.pop_front()?;
        self.waiting_bytes -= message.len();
        Some(message)
    }
}

impl Mirroring {
    pub(crate) fn run(self) -> Mirrored {
        let Self { reader, message, mut database, replaced, form, date_ms, seed } = self;
        let mut uuids = UuidSource::new(seed);
        let (is_all, changed) = match reader.read(&message) {
            None => return Mirrored { database, result: Reading::Unread(message) },
            Some(Rows::All(images)) => {
                let replaces = |table| replaced.contains(&table);
                (true, replicate::replace_rows(&mut database, images, replaces, &mut uuids))
            }
            Some(Rows::Changed(images)) => {
                (false, replicate::apply_images(&mut database, images, &mut uuids))
            }
        };
        let result = changed.map(|delta| {
            let (mut record, store) = (Vec::new(), database.store());
            standalone::write_transaction_as(form, &mut record, &delta, store, date_ms, None);
            (delta, record)
        });
        Mirrored { database, result: Reading::Read { is_all, result } }
    }
}

impl Server {
    /// A source has said something.
    pub(crate) fn link_message(&mut self, now: Now, link: LinkId, message: Vec<u8>) {
        let Some(&id) = self.links.get(&link) else { return };
        let is_long = message.len() >= EXAMINE_BYTES_MIN || self.step_cost_max == 0;
        let may_send = is_long && self.may_mirror(id);
        let Some(following) = self.following(id) else { return };
        let mirror = &mut following.mirror;
        if mirror.is_out && !matches!(Kind::of(&message), Kind::Reply | Kind::Echo) {
            mirror.push(message);
            if mirror.waiting_bytes > WAITING_BYTES_MAX {
                return self.replication_not_written(now, id);
            }
            return self.replicate(now, id, Input::Activity);
        }
        if may_send {
            mirror.is_out = true;
            self.replicate(now, id, Input::Activity);
            return self.round.mirrored.push((link, message));
        }
        self.replicate(now, id, Input::Message(&message));
    }

    /// Whether a helper can take the tables, and there may be rows for them.
    fn may_mirror(&mut self, id: DbId) -> bool {
        let Some(db) = self.dbs.get(&id).filter(|db| !db.is_closed()) else { return false };
        let schema = Arc::clone(db.engine.schema());
        self.following(id).is_some_and(|following| {
            let replication = &following.replication;
            Arc::ptr_eq(&schema, replication.schema()) && replication.row_reader().is_some()
        })
    }

    /// The round is decided: a helper takes the message and the tables.
    pub(crate) fn send_mirror(&mut self, now: Now, link: LinkId, message: Vec<u8>) {
        let Some(&id) = self.links.get(&link) else { return };
        let may_send = self.may_mirror(id);
        let Some(following) = self.following(id) else { return };
        let Some(reader) = following.replication.row_reader().filter(|_| may_send) else {
            following.mirror.is_out = false;
            return self.replication_not_written(now, id);
        };
        let excluded = following.replication.source().excluded.clone();
        let tables = following.replication.schema().table_ids();
        let replaced = tables.filter(|(_, table)| !excluded.contains(&table.name));
        let replaced = replaced.map(|(table, _)| table).collect();
        // What others have not been told cannot be composed while the tables are away.
        self.flush_db(now, id);
        let (form, date_ms) = (self.form(), now.wall_ms);
        let seed = std::array::from_fn(|_| self.uuids.next_u64());
        let Some(database) = self.dbs.get_mut(&id).and_then(|db| db.engine.leave()) else { return };
        let mirroring = Mirroring { reader, message, database, replaced, form, date_ms, seed };
        self.send_out(Work::Mirror(Box::new(mirroring)), Out::Mirror(link, id));
    }

    /// The tables are home.
    pub(crate) fn have_mirrored(&mut self, now: Now, link: LinkId, id: DbId, mirrored: Mirrored) {
        let Mirrored { database, result } = mirrored;
        let Some(db) = self.dbs.get_mut(&id) else {
            return self.free(Garbage::Database(database));
        };
        let garbage = db.engine.come_home(database);
        let queue = std::mem::take(&mut db.queue);
        garbage.into_iter().for_each(|snapshot| self.free(Garbage::Rows(snapshot)));
        let following = self.following(id);
        let is_ours = following.is_some_and(|following| {
            following.mirror.is_out = false;
            following.link == Some(link)
        });
        let committed = match result {
            Reading::Unread(message) => {
                if is_ours {
                    self.replicate(now, id, Input::Message(&message));
                }
                false
            }
            Reading::Read { is_all, result } if is_ours => self.take_over(now, id, is_all, result),
            Reading::Read { result, .. } => {
                let engine = self.dbs.get_mut(&id).and_then(|db| db.engine.here_mut());
                if let (Some(engine), Ok((delta, _))) = (engine, &result) {
                    engine.revert(delta);
                }
                false
            }
        };
        self.go_on(queue);
        if committed {
            self.wake(now, id);
        }
        self.take_waiting(now, id);
    }

    /// The source's rows have become this database's.
    fn take_over(
        &mut self,
        now: Now,
        id: DbId,
        is_all: bool,
        result: Result<(Delta, Vec<u8>), Error>,
    ) -> bool {
        let mut outputs = Vec::new();
        if let Some(following) = self.following(id) {
            following.replication.have_read(now.monotonic_us, is_all, &mut outputs);
        }
        self.carry_out(now, id, outputs);
        match result {
            Ok((delta, _)) if delta.is_empty() => false,
            Ok((delta, record)) => {
                self.join_round_with(id, delta, record);
                true
            }
            Err(error) => {
                self.refuse_images(now, id, &error);
                false
            }
        }
    }

    /// What the source has said meanwhile.
    fn take_waiting(&mut self, now: Now, id: DbId) {
        while let Some(following) = self.following(id)
            && !following.mirror.is_out
            && let Some(link) = following.link
            && let Some(message) = following.mirror.pop()
        {
            self.link_message(now, link, message);
        }
    }
}

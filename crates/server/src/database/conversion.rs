//! Online conversion to another schema (ovsdb-server(7) §4.1.20): the method `convert`.
//!
//! 1. The request is checked and waits for its turn: for earlier conversions, for a compaction.
//! 2. A snapshot is taken. A helper converts it, writes the result beside the file and syncs it.
//!    Meanwhile transactions commit as ever, and it is noted which rows they change.
//! 3. Those rows are converted too, as one transaction on the new database. If they are many, a
//!    helper does that and commits go on, until few are left, or until that has been tried often
//!    enough: then transactions are held. It fails rarely, and when it does, step 2 begins anew; the
//!    last time, transactions are held until it is done.
//! 4. Their records are appended to the new file, which takes the old one's place.
//! 5. The new database takes the old one's place. Sessions that know of such things learn which
//!    of their monitors ended; those whose tables are as they were go on. The others are
//!    disconnected.
//!
//! Until step 5 nobody sees anything of it, and an error in any step leaves all as it was.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use weir_data::{Delta, Error, Schema, TableId, Uuid};
use weir_engine::{Converted, convert, rbac};
use weir_json::Text;
use weir_log::standalone;

use crate::database::server_db;
use crate::database::tables::Engine;
use crate::database::trigger::{Origin, Trigger};
use crate::database::{Db, Storage};
use crate::effect::{Effect, Level};
use crate::event::{CommandId, ConversionError, DbId, Now, SessionId};
use crate::round::Deferred;
use crate::server::Server;
use crate::session::dispatch::{Reply, exactly};
use crate::work::away::Out;
use crate::work::{Follow, Followed, Garbage, Work};

/// `_comment` of a converted file's snapshot.
pub(crate) const COMMENT: &str = "converted by ovsdb-server";

/// How often a conversion begins before it holds transactions until it is done.
const ATTEMPTS_FREE: u32 = 3;

/// So many rows that have changed meanwhile are converted in a step of the core; more of them by a
/// helper.
const FOLLOWED_MAX: usize = 1_000;

/// How often a helper does that before transactions are held meanwhile.
const CATCH_UPS_FREE: u32 = 3;

/// A database's conversions.
#[derive(Debug, Default)]
pub(crate) struct Conversions {
    /// Checked requests in the order of their arrival.
    queue: VecDeque<Request>,
    /// The one under way.
    current: Option<Box<Conversion>>,
    /// Transactions wait in the database's queue: the new file is about to take the old one's place.
    is_frozen: bool,
}

#[derive(Debug)]
struct Request {
    origin: Origin,
    schema: Arc<Schema>,
    /// Length of the schema's text.
    bytes: usize,
}

/// A conversion from the snapshot to the rename.
#[derive(Debug)]
struct Conversion {
    request: Request,
    /// Rows changed by what was committed since the snapshot.
    changed: BTreeSet<(TableId, Uuid)>,
    /// Commits that change many, whose rows have not been gone through.
    large: Vec<Arc<Delta>>,
    /// Records of what has been followed already.
    tail: Vec<u8>,
    /// How often a helper has followed.
    catch_ups: u32,
    /// It could not, so the conversion begins anew.
    is_lost: bool,
    attempts: u32,
    started_us: u64,
    /// Complete but for the file.
    converted: Option<Box<Converted>>,
    /// Compactions that were asked for meanwhile: a converted file is a compacted one.
    commands: Vec<CommandId>,
}

impl Conversions {
    /// Whether a conversion is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.current.is_some()
    }

    /// Whether transactions must not run now.
    pub(crate) fn is_frozen(&self) -> bool {
        self.is_frozen
    }

    /// A compaction that the conversion under way makes superfluous.
    pub(crate) fn join(&mut self, command: Option<CommandId>) {
        if let Some(current) = &mut self.current {
            current.commands.extend(command);
        }
    }

    /// Takes note of a commit.
    pub(crate) fn note(&mut self, delta: &Arc<Delta>) {
        let Some(current) = &mut self.current else { return };
        if delta.tables.iter().map(|table| table.rows.len()).sum::<usize>() > FOLLOWED_MAX {
            current.large.push(Arc::clone(delta));
        } else {
            current.changed.extend(delta.rows().map(|(table, uuid, _)| (table, uuid)));
        }
    }

    /// Requests that are not answered, and what is kept for each of them, in bytes.
    pub(crate) fn in_flight(&self) -> impl Iterator<Item = (&Origin, usize)> {
        let current = self.current.iter().map(|current| &current.request);
        current.chain(&self.queue).map(|request| (&request.origin, request.bytes))
    }

    /// The session is gone: nobody waits for what has not begun.
    pub(crate) fn forget(&mut self, session: SessionId) {
        self.queue.retain(|request| request.origin.session != session);
    }
}

impl Server {
    /// `convert`: the answer comes later, unless the request is refused.
    pub(crate) fn convert(
        &mut self,
        now: Now,
        session: SessionId,
        params: Text<'_>,
        id: &[u8],
    ) -> Result<(), Reply> {
        let (name, db) = self.lookup(params, "convert")?;
        let Some(state) = self.sessions.get(&session) else { return Ok(()) };
        let identity = Arc::clone(&state.identity);
        let created_us = now.monotonic_us;
        let origin = Origin { session, identity, id: id.to_owned(), db, created_us };
        if self.is_in_flight(&origin) {
            return Err(Error::syntax(params, "convert: duplicate request ID").into());
        }
        if !origin.identity.role.is_empty() {
            return Err(rbac::conversion_refused(origin.identity.client(), &name).into());
        }
        let Some(state) = self.dbs.get_mut(&db) else { return Ok(()) };
        if origin.identity.read_only || state.is_reserved() || state.is_backup() {
            return Err(not_allowed(&name).into());
        }
        let [_, text] = exactly(params).ok_or_else(|| Error::syntax(params, "array expected"))?;
        let schema = Schema::parse(text)?;
        convert::check_name(&schema, &name)?;
        let bytes = text.as_bytes().len();
        let request = Request { origin, schema: Arc::new(schema), bytes };
        state.conversions.queue.push_back(request);
        self.check_kept(session);
        Ok(())
    }

    /// Begins the conversions whose turn it is; the tables are as they are in the files.
    pub(crate) fn start_conversions(&mut self, now: Now) {
        let may_begin = |db: &Db| {
            !db.conversions.queue.is_empty()
                && !db.conversions.is_busy()
                && db.standalone_ref().is_some_and(|file| file.compaction.is_none())
        };
        for id in self.dbs.ids_where(may_begin) {
            let Some(db) = self.dbs.get_mut(&id) else { continue };
            let Some(request) = db.conversions.queue.pop_front() else { continue };
            if db.is_backup() {
                // Since the request came.
                let error = not_allowed(&db.name);
                self.refuse_conversion(&request.origin, &error);
                continue;
            }
            db.conversions.current = Some(Box::new(Conversion {
                request,
                changed: BTreeSet::new(),
                large: Vec::new(),
                tail: Vec::new(),
                catch_ups: 0,
                is_lost: false,
                attempts: 0,
                started_us: now.monotonic_us,
                converted: None,
                commands: Vec::new(),
            }));
            self.attempt_conversion(now, id);
        }
    }

    fn attempt_conversion(&mut self, now: Now, id: DbId) {
        let seed = std::array::from_fn(|_| self.uuids.next_u64());
        let Some(db) = self.dbs.get_mut(&id) else { return };
        let Some(current) = &mut db.conversions.current else { return };
        current.attempts += 1;
        current.changed.clear();
        current.large.clear();
        current.tail.clear();
        (current.catch_ups, current.is_lost) = (0, false);
        current.converted = None;
        db.conversions.is_frozen = current.attempts > ATTEMPTS_FREE;
        let schema = Arc::clone(&current.request.schema);
        let Some(snapshot) = db.engine.snapshot() else { return };
        let (comment, date_ms) = (COMMENT.to_owned(), now.wall_ms);
        self.effect(Effect::Convert { db: id, snapshot, schema, comment, date_ms, seed });
    }

    /// The helper is done with the snapshot.
    pub(crate) fn snapshot_converted(
        &mut self,
        now: Now,
        id: DbId,
        result: Result<Box<Converted>, ConversionError>,
    ) {
        let Some(db) = self.dbs.get_mut(&id) else { return };
        let Some(current) = &mut db.conversions.current else { return };
        let mut converted = match result {
            Ok(converted) => converted,
            Err(error) => return self.conversion_failed(now, id, error),
        };
        // What had to go may have been referred to again since.
        let has_changed = !current.changed.is_empty() || !current.large.is_empty();
        if current.is_lost || !converted.repaired.is_empty() && has_changed {
            return self.attempt_conversion(now, id);
        }
        let most = if self.step_cost_max == 0 { 0 } else { FOLLOWED_MAX };
        if !current.large.is_empty() || current.changed.len() > most {
            return self.catch_up(now, id, converted);
        }
        let Some(store) = db.engine.store() else { return };
        let followed = converted.follow(store, &current.changed, &mut self.uuids);
        let Ok(delta) = followed else { return self.attempt_conversion(now, id) };
        let mut tail = std::mem::take(&mut current.tail);
        let store = converted.database.store();
        standalone::write_transaction(&mut tail, &delta, store, now.wall_ms, Some(COMMENT));
        current.converted = Some(converted);
        db.conversions.is_frozen = true;
        self.effect(Effect::FinishCompaction { db: id, tail, sync: true });
    }

    /// Much has changed since: a helper converts it, too.
    fn catch_up(&mut self, now: Now, id: DbId, converted: Box<Converted>) {
        let seed = std::array::from_fn(|_| self.uuids.next_u64());
        let Some(db) = self.dbs.get_mut(&id) else { return };
        let Some(snapshot) = db.engine.snapshot() else { return };
        let Some(current) = &mut db.conversions.current else { return };
        current.catch_ups += 1;
        let changed = std::mem::take(&mut current.changed);
        let large = std::mem::take(&mut current.large);
        db.conversions.is_frozen |= current.catch_ups > CATCH_UPS_FREE;
        let follow = Follow { converted, snapshot, changed, large, date_ms: now.wall_ms, seed };
        self.send_out(Work::Follow(Box::new(follow)), Out::Follow(id));
    }

    /// It has, or has not been able to.
    pub(crate) fn caught_up(&mut self, id: DbId, followed: Followed) {
        let Followed { converted, record } = followed;
        let current = self.dbs.get_mut(&id).and_then(|db| db.conversions.current.as_mut());
        let Some(current) = current else {
            return self.free(Garbage::Database(Box::new(converted.database)));
        };
        match record {
            Some(record) => current.tail.extend(record),
            None => current.is_lost = true,
        }
        self.round.deferred.push(Deferred::Converted { db: id, result: Ok(converted) });
    }

    /// The converted file has taken the old one's place, or has not.
    pub(crate) fn conversion_finished(&mut self, now: Now, id: DbId, result: Result<u64, String>) {
        let size = match result {
            Ok(size) => size,
            Err(error) => {
                return self.conversion_failed(now, id, ConversionError::Failed(error));
            }
        };
        // Under the old schema for the last time.
        self.flush_db(now, id);
        let seed = self.uuids.next_u64();
        let Some(db) = self.dbs.get_mut(&id) else { return };
        let Some(mut current) = db.conversions.current.take() else { return };
        let Some(converted) = current.converted.take() else { return };
        let Converted { database, repaired } = *converted;
        let mut old = std::mem::replace(&mut db.engine, Engine::new(database));
        let target = |table: TableId| target_of(table, old.schema(), db.engine.schema(), &repaired);
        let kept = db.monitors.convert(db.engine.schema(), target, seed);
        if let Storage::Standalone(file) = &mut db.storage {
            file.size = size;
            file.snapshot_size = size;
            file.records = 0;
            file.passed_over = 0;
            file.rewrite_us = None;
            file.compacted_us = now.monotonic_us;
        }
        let Request { origin, schema, .. } = current.request;
        let name = db.name.clone();
        let canceled = db.waiting.take();
        old.leave().into_iter().for_each(|old| self.free(Garbage::Database(old)));
        self.cancel_monitors(id, &kept);
        self.reply(origin.session, weir_wire::reply_result(&origin.id, b"{}"));
        self.end_conversion(origin.session);
        for trigger in canceled {
            self.reply_canceled(&trigger);
        }
        let took_ms = now.monotonic_us.saturating_sub(current.started_us) / 1000;
        self.log("ovsdb", Level::Info, format!("{name}: converted in {took_ms} ms"));
        self.change_server_db(now, &server_db::set_schema(&name, &schema));
        self.disconnect_unaware(&format!("committed {name} database schema conversion"));
        self.remotes_changed();
        for id in current.commands {
            self.effect(Effect::CommandReply { id, reply: Ok(String::new()) });
        }
        self.thaw(now, id);
    }

    /// All is as it was.
    fn conversion_failed(&mut self, now: Now, id: DbId, error: ConversionError) {
        let Some(db) = self.dbs.get_mut(&id) else { return };
        let Some(current) = db.conversions.current.take() else { return };
        if let ConversionError::Failed(reason) = &error {
            let text = format!("{}: conversion failed ({reason}), all is as it was", db.name);
            self.log("ovsdb", Level::Warning, text);
        }
        self.refuse_conversion(&current.request.origin, &error.into_error());
        for command in current.commands {
            self.compact(now, id, Some(command));
        }
        self.thaw(now, id);
    }

    fn refuse_conversion(&mut self, origin: &Origin, error: &Error) {
        let mut text = Vec::new();
        error.write(&mut text);
        self.reply(origin.session, weir_wire::reply_error(&origin.id, &text));
        self.end_conversion(origin.session);
    }

    /// Transactions run again.
    fn thaw(&mut self, now: Now, id: DbId) {
        let Some(db) = self.dbs.get_mut(&id) else { return };
        db.conversions.is_frozen = false;
        let queue = std::mem::take(&mut db.queue);
        self.go_on(queue);
        self.wake(now, id);
    }

    /// The database goes: whoever wanted it converted learns as much as from a transaction.
    pub(crate) fn cancel_conversions(&mut self, conversions: Conversions) {
        let Conversions { queue, current, .. } = conversions;
        let current = current.map(|current| *current);
        let (requests, commands): (Vec<Request>, Vec<_>) =
            current.map(|current| (current.request, current.commands)).into_iter().unzip();
        for request in requests.into_iter().chain(queue) {
            self.end_conversion(request.origin.session);
            self.reply_canceled(&Trigger::new(request.origin, Arc::default()));
        }
        for id in commands.into_iter().flatten() {
            self.effect(Effect::CommandReply { id, reply: Err("no database by that name".into()) });
        }
    }
}

/// Only its source, or nobody, may change the database.
fn not_allowed(name: &str) -> Error {
    Error::new("not allowed", format!("conversion is not allowed for read-only database {name}"))
}

/// The number under the new schema of a table whose rows are the same there.
fn target_of(
    table: TableId,
    old: &Schema,
    new: &Schema,
    repaired: &BTreeSet<TableId>,
) -> Option<TableId> {
    let from = old.table(table);
    let target = new.table_id(&from.name).filter(|target| !repaired.contains(target))?;
    convert::is_unaffected(from, new.table(target)).then_some(target)
}

impl ConversionError {
    fn into_error(self) -> Error {
        match self {
            Self::Refused(error) => error,
            Self::Failed(error) => Error::io(Some("conversion failed".into()), error),
        }
    }
}

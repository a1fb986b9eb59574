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

use weir_data::{Delta, Error, KeyWish, Schema, TableId, Uuid};
use weir_engine::{Converted, convert, rbac};
use weir_history::{Chain, Record};
use weir_json::Text;
use weir_log::standalone;
use weir_monitor::MonitorKey;

use crate::database::cancel::reply_canceled;
use crate::database::long::Out;
use crate::database::recasting::Installed;
use crate::database::trigger::Trigger;
use crate::database::{Databases, Db, server_db};
use crate::effect::{Effect, Level};
use crate::ids::{CommandId, DbId, SessionId};
use crate::origin::{Asker, Origin};
use crate::reply::{Reply, error_text, exactly};
use crate::session::gate::{Lane, Reason};
use crate::session::limits::OVERHEAD_BYTES;
use crate::session::{Session, Sessions};
use crate::shell::Shell;
use crate::work::{
    CONVERSION_COMMENT as COMMENT, CannotFollow, ConversionError, Follow, Followed, Garbage, Work,
    check_persistent, record_of,
};

/// How often a conversion begins before it holds transactions until it is done.
const ATTEMPTS_FREE: u32 = 3;

/// So many rows that have changed meanwhile are converted in a step of the core; more of them by a
/// helper.
const FOLLOWED_MAX: usize = 1_000;

/// Most rows that are noted as changed while a helper is at work, and most bytes of records of what
/// has been followed; beyond it the conversion begins anew, the last time with transactions held.
const CHANGED_ROWS_MAX: usize = 1_000_000;
const TAIL_BYTES_MAX: usize = 256 << 20;

/// How often a helper does that before transactions are held meanwhile.
const CATCH_UPS_FREE: u32 = 3;

/// A database's conversions.
#[derive(Debug, Default)]
pub(crate) struct Conversions {
    /// Checked requests in the order of their arrival.
    queue: VecDeque<Request>,
    /// The conversion under way.
    current: Option<Box<Conversion>>,
    /// In a cluster: those that this member is to run as the leader.
    pub(super) asked: VecDeque<Trigger>,
    /// Where another server decides: what schemas that clients of this one have asked for say about
    /// keys, by who asked.
    wishes: Vec<(Asker, Vec<u8>, Vec<KeyWish>)>,
}

#[derive(Debug)]
struct Request {
    origin: Origin,
    schema: Arc<Schema>,
    /// What the schema occupies.
    bytes: usize,
}

/// What a schema occupies for each byte of its text, about.
const SCHEMA_BYTES_EACH: usize = 4;

/// What a request for a conversion occupies whose schema has a text of this length, in bytes.
pub(crate) fn conversion_bytes(text: usize) -> usize {
    text.saturating_mul(SCHEMA_BYTES_EACH) + OVERHEAD_BYTES
}

/// A conversion from the snapshot to the rename.
#[derive(Debug)]
struct Conversion {
    request: Request,
    /// Rows changed by what was committed since the snapshot.
    changed: BTreeSet<(TableId, Uuid)>,
    /// Commits that change many, whose rows have not been gone through.
    large: Vec<Arc<Delta>>,
    /// How many rows those change.
    large_rows: usize,
    /// The change log's chain behind the last record of the new file.
    chain: Option<Chain>,
    /// Records of what has been followed already.
    tail: Vec<u8>,
    /// How often a helper has followed what was committed meanwhile.
    catch_ups: u32,
    /// Bytes of all records behind the snapshot, once they are on their way to the new file.
    tail_bytes: u64,
    /// A helper could not follow, or too much has changed, so the conversion begins anew.
    is_lost: bool,
    attempts: u32,
    started_us: u64,
    /// Complete but for the file.
    converted: Option<Box<Converted>>,
    /// Compactions that were asked for meanwhile: a converted file is a compacted one.
    commands: Vec<CommandId>,
}

impl Conversion {
    /// A record comes behind the others of the new file.
    fn note_record(&mut self, record: &Record) {
        self.chain = self.chain.map(|chain| chain.behind(record.name));
    }
}

impl Conversions {
    /// Whether a conversion is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.current.is_some()
    }

    /// A compaction that the conversion under way makes superfluous.
    pub(crate) fn join(&mut self, command: Option<CommandId>) {
        if let Some(current) = &mut self.current {
            current.commands.extend(command);
        }
    }

    /// Takes note of a commit.
    pub(crate) fn note(&mut self, delta: &Arc<Delta>) {
        let Some(current) = self.current.as_mut().filter(|current| !current.is_lost) else {
            return;
        };
        let rows = delta.tables.iter().map(|table| table.rows.len()).sum::<usize>();
        if current.large_rows + current.changed.len() + rows > CHANGED_ROWS_MAX {
            current.is_lost = true;
        } else if rows > FOLLOWED_MAX {
            current.large.push(Arc::clone(delta));
            current.large_rows += rows;
        } else {
            current.changed.extend(delta.rows().map(|(table, uuid, _)| (table, uuid)));
        }
    }

    /// Requests that are not answered, and what is kept for each of them, in bytes.
    pub(crate) fn in_flight(&self) -> impl Iterator<Item = (&Origin, usize)> {
        let current = self.current.iter().map(|current| &current.request);
        current.chain(&self.queue).map(|request| (&request.origin, request.bytes))
    }

    /// The session is gone: nobody waits for what has not begun, and what goes on is kept for nobody.
    pub(crate) fn forget(&mut self, session: SessionId) {
        self.queue.retain(|request| !request.origin.is_of(session));
        self.wishes.retain(|(asker, ..)| *asker != Asker::Session(session));
        let current = self.current.iter_mut().map(|current| &mut current.request);
        for request in current.filter(|request| request.origin.is_of(session)) {
            request.bytes = 0;
        }
    }

    /// What the schema that was asked for says about keys, once it is decided.
    pub(super) fn take_wishes(&mut self, origin: &Origin) -> Vec<KeyWish> {
        let is_of = |(asker, id, _): &(Asker, Vec<u8>, Vec<KeyWish>)| {
            (*asker, id) == (origin.asker, &origin.id)
        };
        let at = self.wishes.iter().position(is_of);
        at.map(|at| self.wishes.remove(at).2).unwrap_or_default()
    }

    /// Bytes kept for a session's requests.
    pub(super) fn kept_bytes(&self, session: SessionId) -> usize {
        let own = self.in_flight().filter(|(origin, _)| origin.is_of(session));
        own.map(|(_, bytes)| bytes).sum()
    }

    /// Bytes kept for all requests.
    pub(super) fn all_kept_bytes(&self) -> usize {
        self.in_flight().map(|(_, bytes)| bytes).sum()
    }

    /// A helper has converted what had been missed, or has not been able to. The conversion goes on
    /// with it.
    pub(super) fn caught_up(&mut self, followed: Followed) -> Option<Box<Converted>> {
        let Followed { converted, record } = followed;
        let current = self.current.as_mut().expect("a conversion ends when its helper is done");
        match record {
            Ok(None) => {}
            Ok(Some(made)) if current.tail.len() + made.bytes.len() <= TAIL_BYTES_MAX => {
                current.tail.extend(made.bytes);
                current.note_record(&made.record);
            }
            Ok(Some(_)) | Err(CannotFollow) => current.is_lost = true,
        }
        Some(converted)
    }
}

/// Nobody needs what a helper has converted.
pub(super) fn forget(shell: &mut Shell, followed: Followed) {
    free_converted(shell, Some(followed.converted));
}

fn free_converted(shell: &mut Shell, converted: Option<Box<Converted>>) {
    if let Some(converted) = converted {
        shell.free(Garbage::Database(Box::new(converted.database)));
    }
}

/// A database is another one from now on.
pub(crate) struct Replaced {
    pub(crate) name: String,
    /// The monitors, ascending, whose tables are as they were.
    pub(crate) kept: Vec<MonitorKey>,
    /// The change to `_Server`.
    pub(crate) operation: weir_json::Value,
    /// Who asked for that, if it was a client of this server.
    pub(crate) origin: Option<Origin>,
}

impl Databases {
    /// `convert`: the answer comes later, unless the request is refused.
    pub(crate) fn convert(&mut self, origin: Origin, params: Text<'_>) -> Result<(), Reply> {
        if self.is_in_flight(&origin) {
            return Err(Error::syntax(params, "convert: duplicate request ID").into());
        }
        let db = self.open(origin.db);
        let (is_shared, is_clustered) = (db.storage.is_shared(), db.storage.is_clustered());
        let request = db.check_conversion(origin, params)?;
        if is_clustered {
            check_persistent(&request.schema)?;
        }
        if is_shared {
            let Origin { asker, id, .. } = &request.origin;
            if !request.schema.keys.is_empty() {
                let wishes = request.schema.keys.clone();
                db.conversions.wishes.push((*asker, id.clone(), wishes));
            }
            self.ask_for_conversion(request.origin, params);
            return Ok(());
        }
        db.conversions.queue.push_back(request);
        Ok(())
    }

    /// Begins the conversions whose turn it is; the tables are as they are in the files.
    pub(crate) fn start_conversions(&mut self, shell: &mut Shell, sessions: &mut Sessions) {
        let may_begin = |_, db: &Db| {
            !db.conversions.queue.is_empty()
                && !db.conversions.is_busy()
                && db.is_decided()
                && !db.storage.is_compacting()
        };
        let mut last = None;
        while let Some(id) = self.next_where(&mut last, may_begin) {
            let db = self.open(id);
            let request = db.conversions.queue.pop_front().expect("one waits");
            if db.is_backup {
                // Since the request came.
                let error = not_allowed(&db.name);
                self.refuse_conversion(shell, sessions, &request.origin, &error);
                continue;
            }
            db.conversions.current = Some(Box::new(Conversion {
                request,
                changed: BTreeSet::new(),
                large: Vec::new(),
                large_rows: 0,
                chain: None,
                tail: Vec::new(),
                catch_ups: 0,
                tail_bytes: 0,
                is_lost: false,
                attempts: 0,
                started_us: shell.now_us(),
                converted: None,
                commands: Vec::new(),
            }));
            self.attempt_conversion(shell, id);
        }
    }

    fn attempt_conversion(&mut self, shell: &mut Shell, id: DbId) {
        let db = self.open(id);
        let current = db.conversions.current.as_mut().expect("it is under way");
        current.attempts += 1;
        current.changed.clear();
        let large = std::mem::take(&mut current.large);
        large.into_iter().for_each(|delta| shell.free(Garbage::Delta(delta)));
        current.tail = Vec::new();
        (current.large_rows, current.catch_ups, current.is_lost) = (0, 0, false);
        free_converted(shell, current.converted.take());
        db.tables.set_frozen(current.attempts > ATTEMPTS_FREE);
        let schema = Arc::clone(&current.request.schema);
        let (snapshot, seed) = (Box::new(db.tables.snapshot()), shell.seed());
        let history = db.history.image();
        current.chain = db.history.chain_under(&schema);
        let (comment, date_ms) = (COMMENT.to_owned(), shell.wall_ms());
        shell.ask(Effect::Convert { db: id, snapshot, history, schema, comment, date_ms, seed });
    }

    /// The helper is done with the snapshot; all is decided, and the tables are here.
    pub(crate) fn snapshot_converted(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        id: DbId,
        result: Result<Box<Converted>, ConversionError>,
    ) {
        let most = if self.step_cost_max() == 0 { 0 } else { FOLLOWED_MAX };
        let Some(db) = self.get_mut(id) else {
            // The database was removed meanwhile.
            return free_converted(shell, result.ok());
        };
        let current = db.conversions.current.as_mut().expect("it is under way");
        let mut converted = match result {
            Ok(converted) => converted,
            Err(error) => return self.conversion_failed(shell, sessions, id, error),
        };
        // What had to go may have been referred to again since.
        let has_changed = !current.changed.is_empty() || !current.large.is_empty();
        if current.is_lost || !converted.repaired.is_empty() && has_changed {
            free_converted(shell, Some(converted));
            return self.attempt_conversion(shell, id);
        }
        if !current.large.is_empty() || current.changed.len() > most {
            return self.catch_up(shell, id, converted);
        }
        let store = db.tables.store().expect("a conversion waits until the tables are here");
        let followed = converted.follow(store, &current.changed, shell.uuids());
        let Ok(delta) = followed else {
            free_converted(shell, Some(converted));
            return self.attempt_conversion(shell, id);
        };
        let mut tail = std::mem::take(&mut current.tail);
        let store = converted.database.store();
        let written =
            standalone::write_transaction(&mut tail, &delta, store, shell.wall_ms(), Some(COMMENT));
        if let Some(written) = written {
            current.note_record(&record_of(written));
        }
        current.tail_bytes = tail.len() as u64;
        current.converted = Some(converted);
        db.tables.set_frozen(true);
        shell.ask(Effect::FinishCompaction { db: id, tail, sync: true, step: None });
    }

    /// Much has changed since: a helper converts it, too.
    fn catch_up(&mut self, shell: &mut Shell, id: DbId, converted: Box<Converted>) {
        let db = self.open(id);
        let current = db.conversions.current.as_mut().expect("it is under way");
        current.catch_ups += 1;
        let changed = std::mem::take(&mut current.changed);
        let large = std::mem::take(&mut current.large);
        current.large_rows = 0;
        if current.catch_ups > CATCH_UPS_FREE {
            db.tables.set_frozen(true);
        }
        let (snapshot, date_ms) = (db.tables.snapshot(), shell.wall_ms());
        let seed = shell.seed();
        let follow = Follow { converted, snapshot, changed, large, date_ms, seed };
        let work = shell.send_out(Asker::Server, Work::Follow(Box::new(follow)));
        self.out.insert(work, Out::Follow(id));
    }

    /// The converted file has taken the old one's place, or has not. If it has, the updates under
    /// the old schema have left.
    pub(crate) fn conversion_finished(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        id: DbId,
        result: Result<u64, String>,
    ) -> Option<Replaced> {
        // The database may have been removed meanwhile.
        self.get(id)?;
        let size = match result {
            Ok(size) => size,
            Err(error) => {
                let error = ConversionError::Failed(error);
                self.conversion_failed(shell, sessions, id, error);
                return None;
            }
        };
        let db = self.open(id);
        let mut current = db.conversions.current.take().expect("it is under way");
        let converted = current.converted.take().expect("its file is complete");
        let Installed { kept, untouched } = self.install(shell, sessions, id, *converted);
        let db = self.open(id);
        let new_schema = Arc::clone(db.schema());
        db.storage.replaced(shell, size, current.tail_bytes);
        let ids = db.history.convert(&untouched, &new_schema, current.chain, &db.storage);
        db.watch.monitors.set_ids(ids);
        db.renew_ids(shell.now_us());
        let Request { origin, schema, .. } = current.request;
        let (name, took_ms) = (db.name.clone(), shell.elapsed_ms(current.started_us));
        shell.log("ovsdb", Level::Info, format!("{name}: converted in {took_ms} ms"));
        for id in current.commands {
            shell.answer_command(id, Ok(String::new()));
        }
        let operation = server_db::set_schema(&name, &schema);
        Some(Replaced { name, kept, operation, origin: Some(origin) })
    }

    /// All is as it was.
    fn conversion_failed(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        id: DbId,
        error: ConversionError,
    ) {
        let db = self.open(id);
        let current = db.conversions.current.take().expect("it is under way");
        db.settle_budget(shell.now_us());
        free_converted(shell, current.converted);
        if let ConversionError::Failed(reason) = &error {
            let text = format!("{}: conversion failed ({reason}), all is as it was", db.name);
            shell.log("ovsdb", Level::Warning, text);
        }
        self.refuse_conversion(shell, sessions, &current.request.origin, &error.into_error());
        for command in current.commands {
            self.compact(shell, id, Some(command));
        }
        self.thaw(shell, sessions, id);
    }

    fn refuse_conversion(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        origin: &Origin,
        error: &Error,
    ) {
        self.end_conversion(shell, sessions, origin, Err(error_text(error)));
    }

    /// A conversion is answered: its session goes on.
    pub(crate) fn end_conversion(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        origin: &Origin,
        result: Result<(), Vec<u8>>,
    ) {
        let wishes = self.get_mut(origin.db).map(|db| db.conversions.take_wishes(origin));
        if let Some(wishes) = wishes.filter(|_| result.is_ok()) {
            self.follow_wishes(shell, origin.db, &wishes);
        }
        // What was declared outlives the process before its client is told, unless that is about to be
        // disconnected for the new schema.
        let session = origin.session().and_then(|session| sessions.get(session));
        let may_wait = result.is_ok() && session.is_some_and(Session::is_db_change_aware);
        if !may_wait || !self.await_keys(origin) {
            self.answer_conversion(shell, sessions, origin, result);
        }
    }

    pub(super) fn answer_conversion(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        origin: &Origin,
        result: Result<(), Vec<u8>>,
    ) {
        let session = origin.session().expect("only clients ask for conversions");
        sessions.note_kept(session, 0);
        if sessions.has(session) {
            shell.send(
                session,
                match result {
                    Ok(()) => weir_wire::reply_result(&origin.id, b"{}"),
                    Err(error) => weir_wire::reply_error(&origin.id, &error),
                },
            );
        }
        self.release(shell, sessions, session, Reason::Conversion, Lane::Every);
    }

    /// Transactions run again.
    pub(crate) fn thaw(&mut self, shell: &mut Shell, sessions: &mut Sessions, id: DbId) {
        self.open(id).tables.set_frozen(false);
        self.reopen(shell, sessions, id);
        self.wake(shell, sessions, id);
    }

    /// The database goes: whoever wanted it converted learns as much as from a transaction. Answers with what others were to
    /// decide.
    pub(super) fn cancel_conversions(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        conversions: Conversions,
    ) -> VecDeque<Trigger> {
        let Conversions { queue, current, asked, wishes: _ } = conversions;
        let current = current.map(|current| *current);
        let (requests, commands): (Vec<Request>, Vec<_>) = current
            .map(|current| {
                free_converted(shell, current.converted);
                (current.request, current.commands)
            })
            .into_iter()
            .unzip();
        for Request { origin, .. } in requests.into_iter().chain(queue) {
            let session = origin.session().expect("only clients ask for conversions");
            self.release(shell, sessions, session, Reason::Conversion, Lane::Every);
            reply_canceled(shell, sessions, &origin);
        }
        for id in commands.into_iter().flatten() {
            shell.answer_command(id, Err("no database by that name".into()));
        }
        asked
    }
}

impl Db {
    /// Checks a request for a conversion.
    fn check_conversion(&self, origin: Origin, params: Text<'_>) -> Result<Request, Reply> {
        if !origin.identity.role.is_empty() {
            let client = origin.identity.client();
            return Err(rbac::conversion_refused(client, &self.name).into());
        }
        if origin.identity.read_only || self.is_reserved() || self.is_backup {
            return Err(not_allowed(&self.name).into());
        }
        let [_, text] = exactly(params).ok_or_else(|| Error::syntax(params, "array expected"))?;
        let schema = Schema::parse(text)?;
        convert::check_name(&schema, &self.name)?;
        Ok(Request {
            origin,
            schema: Arc::new(schema),
            bytes: conversion_bytes(text.as_bytes().len()),
        })
    }
}

/// Only its source, or nobody, may change the database.
fn not_allowed(name: &str) -> Error {
    Error::new("not allowed", format!("conversion is not allowed for read-only database {name}"))
}

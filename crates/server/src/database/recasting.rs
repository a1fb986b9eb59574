//! Conversions of clustered databases, as far as one server's tables and clients are concerned
//! (`server/clustering/converting.rs` has the rest).

use std::sync::Arc;

use weir_data::{TableId, Uuid};
use weir_engine::Converted;
use weir_json::{Text, TextBuf};
use weir_monitor::MonitorKey;

use crate::database::pacing::Flush;
use crate::database::trigger::Trigger;
use crate::database::{Databases, Replaced, server_db};
use crate::ids::DbId;
use crate::origin::Origin;
use crate::session::Sessions;
use crate::session::gate::{Lane, Reason};
use crate::shell::Shell;
use crate::work::{Garbage, adds_to, unaffected_tables, untouched_tables};

/// What has become of an old database's tables.
pub(super) struct Installed {
    /// Monitors whose tables are as they were.
    pub(super) kept: Vec<MonitorKey>,
    /// Tables whose changes stay in the change log.
    pub(super) untouched: Vec<Option<TableId>>,
}

impl Databases {
    /// A client of this member asks for a conversion, which the leader is to decide.
    pub(super) fn ask_for_conversion(&mut self, origin: Origin, params: Text<'_>) {
        let db = self.open(origin.db);
        let message = TextBuf::validate(params.as_bytes().to_vec());
        let message = Arc::new(message.expect("it is part of a message that was checked"));
        db.commits.to_forward.push(Trigger::new(origin, message));
    }

    /// A conversion is to run here: no other transaction begins before it.
    pub(super) fn await_conversion(&mut self, trigger: Trigger) {
        let db = self.open(trigger.origin.db);
        db.conversions.asked.push_back(trigger);
        db.tables.set_frozen(true);
    }

    /// Whether conversions wait to run here. Transactions wait for them.
    pub(crate) fn has_conversions(&mut self, shell: &mut Shell, id: DbId) -> bool {
        let Some(db) = self.get_mut(id) else { return false };
        if db.conversions.asked.is_empty() {
            return false;
        }
        db.tables.set_frozen(true);
        self.hurry(shell, id);
        true
    }

    /// No transaction begins until the tables are replaced, or [`Databases::thaw`] says so.
    pub(crate) fn freeze(&mut self, id: DbId) {
        self.open(id).tables.set_frozen(true);
    }

    /// The conversion that is to run next.
    pub(crate) fn next_conversion(&mut self, id: DbId) -> Option<Trigger> {
        self.get_mut(id)?.conversions.asked.pop_front()
    }

    /// Another member is to run it.
    pub(crate) fn forward_conversion(&mut self, trigger: Trigger) {
        self.open(trigger.origin.db).commits.to_forward.push(trigger);
    }

    /// The session of a conversion that is not answered goes on, and asks for no keys by it.
    pub(super) fn let_converter_go(
        &mut self,
        shell: &Shell,
        sessions: &mut Sessions,
        origin: &Origin,
    ) {
        self.get_mut(origin.db).map(|db| db.conversions.take_wishes(origin));
        if let Some(session) = origin.session() {
            self.release(shell, sessions, session, Reason::Conversion, Lane::Every);
        }
    }

    /// The tables become those of another schema, which all members of the cluster have.
    pub(crate) fn recast(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        id: DbId,
        (converted, eid): (Converted, Uuid),
        origin: Option<Origin>,
    ) -> Replaced {
        let Installed { kept, .. } = self.install(shell, sessions, id, converted);
        let db = self.open(id);
        let ids = db.history.recast(eid, db.tables.schema());
        db.watch.monitors.set_ids(ids);
        db.renew_ids(shell.now_us());
        let name = db.name.clone();
        let operation = server_db::set_schema(&name, db.schema());
        Replaced { name, kept, operation, origin }
    }

    /// Others take the place of the tables; all is decided, and those are here.
    pub(super) fn install(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        id: DbId,
        converted: Converted,
    ) -> Installed {
        // Under the old schema for the last time.
        self.flush(shell, sessions, id, Flush::Whole);
        let db = self.open(id);
        let old_schema = Arc::clone(db.schema());
        let unaffected = unaffected_tables(&old_schema, &converted);
        let untouched = untouched_tables(&old_schema, &converted);
        db.end_feeds();
        db.attempts.forget_all();
        let old = db.tables.replace(converted.database);
        db.waiting.note_replaced();
        db.note_other_tables();
        let new_schema = Arc::clone(db.schema());
        let goes_on = !adds_to(&old_schema, &new_schema);
        let target = |table: TableId| unaffected[table.index()].filter(|_| goes_on);
        let kept = db.watch.monitors.convert(&new_schema, target);
        shell.free(Garbage::Database(old));
        // What members of a cluster are asked for is not said to one of them alone.
        if !self.open(id).storage.is_shared() {
            self.follow_wishes(shell, id, &new_schema.keys);
        }
        Installed { kept, untouched }
    }
}

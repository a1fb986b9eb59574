//! What concerns a relay besides its source: sessions, tables, `_Server`.

mod ephemeral;
mod locks;
mod paths;
mod requests;
mod rows;
mod syncing;

use weir_upstream::Input;
use weir_upstream::follower::{Follower, Output};

use crate::configuration::DbConfig;
use crate::database::{note_waits, server_db};
use crate::effect::{Effect, Level};
use crate::ids::{Bytes, DbId, LinkId};
use crate::origin::Asker;
use crate::relays::Relay;
use crate::server::Server;
use crate::session::gate::{Lane, Reason};
use crate::work::{EXAMINE_BYTES_MIN, TakeIn, Work};

impl Server {
    /// A relay begins: it has a row in `_Server`, and tables as soon as its source has told them.
    pub(in crate::server) fn begin_relay(&mut self, name: String, config: DbConfig) {
        let source = config.source.expect("a relay is configured with its source");
        let db = self.databases.next_id();
        let Self { id, shell, databases, relays, remotes, .. } = self;
        relays.insert(shell, (*id, db), name.clone(), source);
        relays.get_mut(db).keys = config.keys;
        remotes.await_database(&name);
        let row = shell.uuids().next_uuid();
        databases.change_server_db(shell, &server_db::insert_relay(&name, row));
        self.disconnect_unaware(&format!("adding {name} database"));
    }

    /// Relays become those of a configuration; those that are new.
    pub(in crate::server) fn update_relays(
        &mut self,
        mut wanted: Vec<(String, DbConfig)>,
    ) -> Vec<(String, DbConfig)> {
        let names = |(db, relay): (&DbId, &Relay)| (*db, relay.name.clone());
        let relays: Vec<(DbId, String)> = self.relays.by_db.iter().map(names).collect();
        for (db, name) in relays {
            match wanted.iter().position(|(wanted, _)| *wanted == name) {
                Some(at) => {
                    let (_, config) = wanted.remove(at);
                    let source = config.source.expect("a relay is read with its source");
                    let mut out = Vec::new();
                    self.relays.configure(&mut self.shell, db, source, &mut out);
                    if self.databases.get(db).is_some() {
                        self.databases.configure_keys(db, config.keys.clone());
                    }
                    self.relays.get_mut(db).keys = config.keys;
                    self.carry_out_relay(db, out);
                }
                None => {
                    self.end_relay(db, &format!("database {name} removed from configuration"));
                }
            }
        }
        wanted
    }

    /// A relay ends, with its tables.
    pub(in crate::server) fn end_relay(&mut self, db: DbId, reason: &str) {
        if self.databases.get(db).is_some() {
            return self.remove_database(db, reason);
        }
        let name = self.relays.get(db).map(|relay| relay.name.clone()).unwrap_or_default();
        self.forget_relay(db);
        self.databases.change_server_db(&mut self.shell, &server_db::delete(&name));
        self.disconnect_unaware(reason);
        self.remotes_changed();
        self.save_configuration();
    }

    /// A database is no relay any more: what its source was to decide, nobody here will hear of.
    pub(in crate::server) fn forget_relay(&mut self, db: DbId) {
        let Some(mut relay) = self.relays.remove(&mut self.shell, db) else { return };
        self.remotes.await_no_more(&relay.name);
        let rows = relay.forget_mail();
        self.free_rows(rows);
        let (mut known, unknown) = relay.forwards.take_all();
        known.extend(self.databases.take_to_forward(db));
        for trigger in unknown {
            self.lose_request(trigger);
        }
        for trigger in known {
            self.cancel_in_order(trigger);
        }
        for name in relay.locks.names() {
            self.tell_owner_if_back(name.clone());
        }
    }

    /// Something has happened to a connection.
    pub(in crate::server) fn relay_event(&mut self, db: DbId, link: LinkId, input: Input<'_>) {
        if matches!(input, Input::Down(_)) {
            self.relays.lost_link(link);
            self.relay_lost(db);
        }
        self.relay_input(db, input);
        self.run_relay(db);
    }

    /// A source has said something.
    pub(in crate::server) fn relay_message(&mut self, db: DbId, message: Vec<u8>) {
        let relay = self.relays.get_mut(db);
        match relay.put(message) {
            Some(message) => self.relay_input(db, Input::Message(&message)),
            None if relay.is_overfull() => {
                let name = relay.name.clone();
                let text =
                    format!("{name}: the source says more than can be kept until it is read");
                self.shell.log("relay", Level::Warning, text);
                self.tell_follower(db, Follower::restart);
            }
            None => self.relay_input(db, Input::Activity),
        }
        self.run_relay(db);
    }

    /// What was said on a connection that has ended counts no longer.
    fn relay_lost(&mut self, db: DbId) {
        let Self { sessions, relays, .. } = self;
        let relay = relays.get_mut(db);
        (relay.lacks_once, relay.syncing) = (false, None);
        let rows = relay.forget_mail();
        let lost = relay.forwards.lost(|trigger| note_waits(sessions, trigger));
        self.free_rows(rows);
        self.lose_locks(db);
        for trigger in lost {
            self.lose_request(trigger);
        }
    }

    /// The owner decides about the connection.
    fn tell_follower(&mut self, db: DbId, tell: fn(&mut Follower, u64, &mut Vec<Output>)) {
        let (mut out, now_us) = (Vec::new(), self.shell.now_us());
        tell(&mut self.relays.get_mut(db).follower, now_us, &mut out);
        self.carry_out_relay(db, out);
    }

    fn relay_input(&mut self, db: DbId, input: Input<'_>) {
        let (mut out, now_us) = (Vec::new(), self.shell.now_us());
        let Self { shell, relays, .. } = self;
        relays.get_mut(db).follower.handle(now_us, input, shell.uuids(), &mut out);
        self.carry_out_relay(db, out);
    }

    fn carry_out_relay(&mut self, db: DbId, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Connect { target } => self.relays.connect(&mut self.shell, db, target),
                Output::Send(bytes) => {
                    // Rows before it may have ended the connection.
                    if let Some(link) = self.relays.get_mut(db).link {
                        self.shell.ask(Effect::SendTo { link, bytes: Bytes::new(bytes) });
                    }
                }
                Output::Close => {
                    self.relays.close_link(&mut self.shell, db);
                    self.relay_lost(db);
                }
                Output::News(news) => self.take_news(db, *news),
                Output::Ephemeral(rows) => self.take_ephemeral(db, rows),
                Output::Lock { name, is_owned } => self.lock_told(db, &name, is_owned),
                Output::Reply { number, reply } => self.relay_reply(db, number, reply),
                Output::Log { module, level, text } => {
                    self.shell.log(module, level.into(), text);
                }
                Output::Failed => unreachable!("only backups end by themselves"),
                Output::Conditions { .. } | Output::Refused { .. } => {
                    unreachable!("a relay has all rows")
                }
            }
        }
    }

    /// Goes on with all relays, as far as that is possible.
    pub(in crate::server) fn run_relays(&mut self) {
        let dbs: Vec<DbId> = self.relays.by_db.keys().copied().collect();
        for db in dbs {
            self.tick_relay(db);
            self.run_relay(db);
            self.tell_of_relay(db);
        }
        self.let_in_who_waited();
    }

    /// Sessions that have come since the start need not wait for first rows any longer, if all have
    /// come or it has taken long enough.
    fn let_in_who_waited(&mut self) {
        let have_all_rows = self.relays.by_db.keys().all(|db| self.databases.get(*db).is_some());
        let now_us = self.shell.now_us();
        for session in self.relays.end_waiting(now_us, have_all_rows) {
            let Self { shell, sessions, databases, .. } = self;
            databases.release(shell, sessions, session, Reason::Source, Lane::Every);
        }
    }

    fn tick_relay(&mut self, db: DbId) {
        let now_us = self.shell.now_us();
        let is_due = |relay: &Relay| relay.follower.next_wakeup_us().is_some_and(|at| at <= now_us);
        if self.admin.serves() && self.relays.get(db).is_some_and(is_due) {
            self.relay_input(db, Input::Tick);
        }
    }

    /// Whether what a source has said waits for nothing but the next round.
    pub(in crate::server) fn has_mail(&self) -> bool {
        let is_due = |(db, relay): (&DbId, &Relay)| relay.has_mail() && self.may_look(*db);
        self.relays.by_db.iter().any(is_due)
    }

    /// Whether what the source has said can be looked at: no helper is at it, and the tables are settled.
    fn may_look(&self, db: DbId) -> bool {
        let is_at_work = self.relays.get(db).is_some_and(|relay| relay.at_work.is_some());
        !is_at_work && (self.databases.get(db).is_none() || self.databases.can_follow(db))
    }

    /// Looks at what the source has said, as far as the tables are settled and a round goes, and sends it
    /// requests.
    pub(in crate::server) fn run_relay(&mut self, db: DbId) {
        while self.may_look(db) {
            let relay = self.relays.get_mut(db);
            if let Some(taken) = relay.read.take() {
                self.take_read(db, taken);
                continue;
            }
            if let Some(message) = relay.unread.take() {
                self.relay_input(db, Input::Message(&message));
                continue;
            }
            let Some(message) = relay.take() else { break };
            let reader = relay.follower.row_reader();
            let is_for_helper = |reader: &weir_upstream::news::RowReader| {
                reader.awaits_first() || message.len() >= EXAMINE_BYTES_MIN
            };
            match reader.filter(is_for_helper) {
                Some(reader) => {
                    let before = self.databases.get(db).map(|db| db.tables().snapshot());
                    let seed = self.shell.seed();
                    let work = TakeIn { reader, message, before, seed };
                    let work = self.shell.send_out(Asker::Server, Work::TakeIn(Box::new(work)));
                    let relay = self.relays.get_mut(db);
                    relay.at_work = Some((work, relay.link));
                }
                None => self.relay_input(db, Input::Message(&message)),
            }
        }
        let changes = self.call_back(db);
        self.forward_to_source(db);
        // Behind what was asked for under those that are given back.
        self.settle_locks(db, changes);
    }

    /// `_Server` says how the relay is.
    fn tell_of_relay(&mut self, db: DbId) {
        // Before there are tables nobody could use it.
        if self.databases.get(db).is_none() {
            return;
        }
        let now_us = self.shell.now_us();
        let relay = self.relays.get_mut(db);
        let told = relay.state_by(now_us);
        if told == relay.told {
            return;
        }
        relay.told = told;
        let operation = server_db::set_relay(&relay.name, told.is_connected, told.index);
        self.databases.change_server_db(&mut self.shell, &operation);
    }
}

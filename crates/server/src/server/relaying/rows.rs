//! Rows of a source become those of the relay.

use weir_data::{Delta, Edit, RowEdit, TableId, Uuid};
use weir_history::History;
use weir_upstream::follower::Follower;
use weir_upstream::news::{News, Rows as SourceRows, State};

use crate::database::Changed;
use crate::effect::{Effect, Level};
use crate::ids::{DbId, WorkId};
use crate::origin::Asker;
use crate::relays::ephemeral::Unplaced;
use crate::server::Server;
use crate::storage::Storage;
use crate::work::{NotTaken, Rows, TakeOver, Taken, TakenIn, TakenOver, Work};

impl Server {
    /// Rows have changed, and few of them: that takes effect now, for the tables are settled. Who waits for
    /// them runs when waits do (`run_waits`), in this round or at once in the next one: what runs behind all
    /// else of a round would lie there undecided.
    pub(super) fn take_news(&mut self, db: DbId, news: News) {
        let News { state, rows, .. } = news;
        let is_new = |edit: &RowEdit| matches!(edit.edit, Edit::Insert(_));
        let new: Vec<(TableId, Uuid)> = match &rows {
            SourceRows::Edits(edits) if !self.relays.get_mut(db).unplaced.is_empty() => {
                let new = edits.iter().filter(|edit| is_new(edit));
                new.map(|edit| (edit.table, edit.uuid)).collect()
            }
            _ => Vec::new(),
        };
        let changed = match rows {
            SourceRows::Edits(edits) => Changed::Edits(edits),
            SourceRows::Images(images) => Changed::Images(images),
            SourceRows::All(_) => unreachable!("a helper reads the first rows"),
        };
        let state = self.come_to(db, state.id);
        let Self { shell, databases, .. } = self;
        match databases.follow_source(shell, db, Some(state), changed) {
            Ok(()) => {
                self.decide(db);
                self.place_ephemeral(db, Some(&new));
                self.give_early(db);
            }
            Err(error) => self.cannot_follow_source(db, &error.to_string()),
        }
    }

    /// The relay is about to have a state. One that has no id at the source gets one here, so that clients can
    /// come back to it.
    fn come_to(&mut self, db: DbId, id: Uuid) -> Uuid {
        let id = if id == Uuid::ZERO { self.shell.uuids().next_uuid() } else { id };
        let relay = self.relays.get_mut(db);
        relay.forwards.pass(id);
        relay.syncing.iter_mut().for_each(|syncing| syncing.passed.push(id));
        id
    }

    /// The rows are not those of the source, whatever the reason: all of them are asked for.
    pub(super) fn cannot_follow_source(&mut self, db: DbId, why: &str) {
        let relay = self.relays.get_mut(db);
        let text =
            format!("{}: cannot follow the source, all rows are asked for: {why}", relay.name);
        self.shell.log("relay", Level::Error, text);
        self.tell_follower(db, Follower::reset);
    }

    /// A helper has read a message.
    pub(in crate::server) fn have_taken_in(&mut self, work: WorkId, taken: TakenIn) {
        let TakenIn(taken) = taken;
        let Some(db) = self.relays.of_work(work) else {
            // The relay has ended.
            return self.free_rows(taken.ok());
        };
        let relay = self.relays.get_mut(db);
        let (_, link) = relay.at_work.take().expect("the helper was at work for it");
        // What was said on a connection that has ended is said again on the next one.
        let is_current = link.is_some() && relay.link == link;
        match taken {
            Ok(read) if is_current => relay.read = Some(read),
            Ok(taken) => self.free_rows(Some(taken)),
            Err(NotTaken::Unread(message)) if is_current => relay.unread = Some(message),
            Err(NotTaken::Wrong(why)) if is_current => self.cannot_follow_source(db, &why),
            Err(_) => {}
        }
        self.run_relay(db);
    }

    /// What was read takes effect, and from now on it is the state that the source is asked to go on
    /// from; the tables are settled, if there are any.
    pub(super) fn take_read(&mut self, db: DbId, taken: Taken) {
        match taken {
            Taken::State(state, rows) => self.take_rows(db, state, rows),
            Taken::Values(values) => self.take_values(db, values),
        }
    }

    fn take_rows(&mut self, db: DbId, state: State, rows: Rows) {
        let relay = self.relays.get_mut(db);
        if !relay.follower.is_following() {
            // These are all rows, or all that was missed: no change before them is told any more.
            relay.forwards.await_all_rows();
            self.states.has_skipped(db);
            // Their other columns come with them, or are asked for anew.
            relay.unplaced = Unplaced::default();
        }
        let mut out = Vec::new();
        relay.follower.have_read(state, &mut out);
        self.carry_out_relay(db, out);
        let state = self.come_to(db, state.id);
        match rows {
            Rows::Fresh(database) => {
                self.shell.ask(Effect::TrimMemory);
                let (tables, nonce) =
                    (database.schema().tables.len(), self.shell.uuids().next_u64());
                let history = History::of_cluster(state, tables, nonce);
                self.add_database(db, *database, (Storage::Relay, Some(history)));
                let keys = self.relays.get_mut(db).keys.clone();
                self.databases.configure_keys(db, keys);
                self.give_early(db);
            }
            Rows::Changed(difference) if !difference.is_empty() => {
                self.take_over(db, difference, Some(state));
            }
            Rows::Changed(_) => {
                let Self { shell, databases, .. } = self;
                let nothing = Changed::Edits(Vec::new());
                let followed = databases.follow_source(shell, db, Some(state), nothing);
                followed.expect("nothing fits all tables");
                self.decide(db);
                self.give_early(db);
            }
            Rows::Recast(converted) => {
                let converter = self.relays.get_mut(db).forwards.take_converter();
                self.take_tables_of(db, (*converted, state), converter);
                self.give_early(db);
            }
        }
    }

    /// A helper changes the tables: they have this state then, or the one that they had.
    pub(super) fn take_over(&mut self, db: DbId, difference: Delta, state: Option<Uuid>) {
        let Self { shell, sessions, databases, relays, .. } = self;
        let database = databases.send_tables_to_snapshot(shell, sessions, db);
        let take_over = TakeOver { database, difference, seed: shell.seed() };
        let work = shell.send_out(Asker::Server, Work::TakeOver(Box::new(take_over)));
        let relay = relays.get_mut(db);
        relay.at_work = Some((work, relay.link));
        relay.taking_over = state;
    }

    /// A helper has made the tables like those of the source. Answers with what it has made if that is
    /// not for a relay.
    pub(in crate::server) fn have_taken_over_relay(
        &mut self,
        work: WorkId,
        taken: TakenOver,
    ) -> Option<TakenOver> {
        let Some(db) = self.relays.of_work(work) else { return Some(taken) };
        let TakenOver { database, result } = taken;
        let relay = self.relays.get_mut(db);
        relay.at_work = None;
        let state = relay.taking_over.take();
        let Self { shell, databases, .. } = self;
        databases.take_tables(shell, db, database);
        match (result, state) {
            (Ok(delta), Some(state)) => databases.have_rows_of(shell, db, delta, state),
            (Ok(delta), None) => databases.have_values(db, delta),
            (Err(error), _) => self.cannot_follow_source(db, &error.to_string()),
        }
        self.decide(db);
        self.place_ephemeral(db, None);
        self.give_early(db);
        self.run_relay(db);
        None
    }

    pub(super) fn free_rows(&mut self, taken: Option<Taken>) {
        taken.into_iter().for_each(|taken| self.shell.free(taken.into_garbage()));
    }
}

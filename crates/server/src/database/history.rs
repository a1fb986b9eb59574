//! The changes of a database behind what its tables show, for monitors that come back, and the ids
//! of states (`docs/decisions/012`).

use std::sync::Arc;

use weir_data::{Ages, IdKind, Ids, Schema, TableId, Uuid};
use weir_history::{BUDGET_BYTES_MAX, Chain, Changes, Counts, History, Image, Name, Place};
use weir_log::standalone;
use weir_monitor::MonitorKey;

use crate::asked::{Asked, Memory};
use crate::database::commits::{Done, Recorded};
use crate::database::once::{ChosenIds, Verdict};
use crate::database::{Databases, Db};
use crate::ids::DbId;
use crate::once::Chosen;
use crate::origin::Identity;
use crate::storage::Storage;
use crate::work::{Search, Wanted};

/// How many bytes of changes are decoded at the cost of one unit of about 50 ns.
pub(super) const DECODED_BYTES: usize = 16;

/// The log of changes; `_Server` has none.
#[derive(Debug, Default)]
pub(crate) struct ChangeLog {
    history: Option<History>,
    /// Who asked for the changes.
    memory: Memory,
    /// Ids that clients chose for them.
    chosen: ChosenIds,
}

impl ChangeLog {
    pub(super) fn new(history: Option<History>, is_shared: bool) -> Self {
        // A member's file has all ids, another one has none that clients chose.
        // Changes of ephemeral columns alone had no record: what became of their ids is gone, as their values are.
        let place = history.as_ref().filter(|_| !is_shared).map(|history| {
            let last = history.find(history.chain().id(), IdKind::Recorded, std::iter::empty());
            last.unwrap_or(history.place())
        });
        let chosen = ChosenIds::from(place.unwrap_or_default());
        Self { history, memory: Memory::default(), chosen }
    }

    /// What has come of a transaction whose id its client chose.
    pub(super) fn judge(&self, chosen: Chosen) -> Verdict {
        let history = self.history.as_ref().filter(|history| history.is_enabled());
        history.map_or(Verdict::Unknown, |history| self.chosen.judge(history, chosen))
    }

    /// A transaction of this id will never be.
    pub(super) fn promise_never(&mut self, id: Uuid) {
        let place = self.history.as_ref().map(History::place).expect("it has just been asked");
        self.chosen.push(id, false, place);
    }

    /// The rows have become those of a state with entries before it that did not come here.
    pub(super) fn note_skipped(&mut self) {
        let place = self.history.as_ref().map(History::place).unwrap_or_default();
        self.chosen.skip_to(Place(place.0 + 1));
    }

    /// Whether the state is the one of this id.
    pub(super) fn is_at(&self, id: Uuid) -> bool {
        self.history.as_ref().is_some_and(|history| history.chain().id() == id)
    }

    /// Whether records are to say that they belong to the log.
    pub(super) fn marks_records(&self) -> bool {
        self.history.as_ref().is_some_and(|history| history.is_kept(IdKind::Recorded))
    }

    /// What is decided goes to the log; the ids of the state behind it.
    pub(super) fn push(&mut self, done: &[Done], schema: &Schema) -> Ids {
        let Self { history: Some(history), memory, chosen } = self else {
            return Ids::default();
        };
        for Done { delta, record, request, .. } in done {
            let Some(delta) = delta else { continue };
            history.push(Some(delta), schema, record.as_ref().map(|recorded| recorded.record));
            if let Some(recorded) = record {
                let client = request.as_ref().map(|(trigger, _)| &trigger.origin.identity);
                remember(memory, history, recorded, client);
            }
            // In a cluster the entry has the id. Ephemeral columns alone leave no record.
            let name = record.as_ref().map(|recorded| recorded.record.name);
            let asked = request.as_ref().and_then(|(trigger, _)| {
                trigger.chosen().map(|chosen| (chosen.id, !trigger.is_outcome()))
            });
            if let (Some((id, is_committed)), None | Some(Name::Hash(_))) = (asked, name) {
                chosen.push(id, is_committed, history.place());
            }
        }
        history.ids()
    }

    /// A search for changes, if there are any; nothing is searched in what only the server writes.
    ///
    /// # Errors
    /// There is no history.
    pub(super) fn search(
        &self,
        schema: &Arc<Schema>,
        wanted: Wanted,
    ) -> Result<Option<Search>, NoHistory> {
        let Some(history) = &self.history else { return Ok(None) };
        if !history.is_enabled() {
            return Err(NoHistory);
        }
        let find = |id| history.find(id, IdKind::Recorded, std::iter::empty());
        let since = wanted.since.and_then(find);
        let since = since.and_then(|place| history.since(place, IdKind::Recorded));
        Ok(Some(Search {
            schema: Arc::clone(schema),
            wanted,
            is_complete: since.is_some(),
            changes: since.unwrap_or_else(|| history.all()),
            low_water: history.low_water(),
            end: history.chain(),
            memory: self.memory.clone(),
            file: None,
        }))
    }

    /// The changes behind a state, if all of them are here.
    pub(crate) fn since(&self, place: Place, kind: IdKind) -> Option<Changes> {
        self.history.as_ref()?.since(place, kind)
    }

    /// What a side file of a copy of the file is made of, if there is anything to keep. Nothing that
    /// the side file may say is forgotten until it is known what becomes of the copy.
    pub(super) fn image(&mut self) -> Option<Box<Image>> {
        let history = self.history.as_mut()?;
        let image = history.image();
        if !image.is_kept() {
            // Nobody has been told an index, and none that the copy will have may be below one that is told.
            history.forget_records();
            return None;
        }
        Some(Box::new(image))
    }

    /// The chain behind the snapshot of a copy under another schema.
    pub(super) fn chain_under(&self, schema: &Schema) -> Option<Chain> {
        let hash = standalone::write_schema(&mut Vec::new(), schema);
        Some(self.history.as_ref()?.chain().then(hash.0))
    }

    /// How often what clients were told has grown older.
    pub(super) fn ages(&self) -> Ages {
        self.history.as_ref().map_or_else(Ages::default, History::ages)
    }

    /// The database has been converted. Tables that have a number in `untouched` go on under that.
    /// `chain` is that behind the last record of the new file.
    pub(super) fn convert(
        &mut self,
        untouched: &[Option<TableId>],
        schema: &Schema,
        chain: Option<Chain>,
        storage: &Storage,
    ) -> Ids {
        let (Some(history), Some(file)) = (&mut self.history, storage.file()) else {
            return Ids::default();
        };
        let chain = chain.expect("a conversion of a database with a log begins with its chain");
        let budget = weir_history::budget_of(file.snapshot_len());
        let target = |table: TableId| untouched.get(table.index()).copied().flatten();
        history.convert(&target, schema.tables.len(), chain, budget);
        history.ids()
    }

    /// A clustered database has been converted, by the entry of this id: the log begins here, as it
    /// does with members that have the schema from a file or a snapshot.
    pub(super) fn recast(&mut self, eid: Uuid, schema: &Schema) -> Ids {
        let Some(history) = &mut self.history else { return Ids::default() };
        let chain = history.chain().behind(Name::Entry(eid));
        history.convert(&|_| None, schema.tables.len(), chain, BUDGET_BYTES_MAX);
        // It may have come in a snapshot, and entries before it have not.
        self.chosen.skip_to(history.place());
        history.ids()
    }

    /// How much is in the log.
    pub(crate) fn counts(&self) -> Counts {
        self.history.as_ref().map_or_else(Counts::default, History::counts)
    }

    /// The log, for what is told of it.
    pub(crate) fn kept(&self) -> Option<&History> {
        self.history.as_ref()
    }

    pub(super) fn kept_mut(&mut self) -> Option<&mut History> {
        self.history.as_mut()
    }
}

/// States have no ids, and nothing is told of changes (`--no-standalone-history`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoHistory;

/// Remembers who asked for the change that has just been pushed, if anybody wants to know, or when
/// it was made, if the file will not say that for as long as the log has it.
fn remember(
    memory: &mut Memory,
    history: &History,
    recorded: &Recorded,
    client: Option<&Arc<Identity>>,
) {
    let Recorded { date_ms, comment, .. } = recorded;
    let has_certificate = client.is_some_and(|client| client.client.is_some());
    if (comment.is_some() || has_certificate) && history.is_enabled() {
        let (id, date_ms, client) = (history.chain().id(), *date_ms, client.cloned());
        memory.push(Asked { id, date_ms, client, comment: comment.clone() });
    } else if history.is_kept(IdKind::Recorded) {
        memory.push_date(history.chain().id(), *date_ms);
    }
}

impl Db {
    /// The changes behind what the tables show.
    pub(crate) fn history(&self) -> &ChangeLog {
        &self.history
    }

    /// Lets the log reach as far back as the file allows that it belongs to, now that this is known.
    pub(super) fn settle_budget(&mut self, now_us: u64) {
        if let (Some(history), Some(file)) = (self.history.kept_mut(), self.storage.file()) {
            history.set_budget(weir_history::budget_of(file.snapshot_len()));
        }
        self.renew_ids(now_us);
    }

    /// Atoms of the changes, for memory/show: scripts take more of them than the tables have for a
    /// leak, though bytes are what is bounded.
    pub(crate) fn history_atoms(&self) -> usize {
        self.history.counts().atoms.min(self.sizes().atoms)
    }
}

impl Databases {
    /// Changes are kept for clients that come back, or no longer (`--no-standalone-history`).
    pub(crate) fn keep_history(&mut self, is_kept: bool) {
        let is_standalone = |db: &&mut (DbId, Db)| !db.1.storage.is_shared();
        let Self { entries, overflowed, .. } = self;
        for (_, db) in entries.iter_mut().filter(is_standalone) {
            assert!(db.is_decided(), "what is decided has its ids");
            let Some(history) = db.history.kept_mut() else { continue };
            if is_kept != history.is_enabled() {
                if is_kept {
                    history.enable()
                } else {
                    history.disable();
                    // Nobody can be told each change any more: they come back, and ask for something else.
                    overflowed.extend(db.watch.fed_sessions());
                }
                db.watch.monitors.set_ids(history.ids());
                db.history.memory = Memory::default();
            }
        }
    }

    /// A search for changes of a database; `None` if it is one that only the server writes.
    ///
    /// # Errors
    /// The database has no history.
    pub(crate) fn search(&self, id: DbId, wanted: Wanted) -> Result<Option<Search>, NoHistory> {
        let db = self.get(id).expect("it was looked up");
        assert!(db.is_decided(), "the file is as the log has it");
        db.history.search(db.schema(), wanted)
    }

    /// Somebody is told ids: from now on the changes are kept that he could ask for.
    pub(crate) fn keep_changes(&mut self, id: DbId, key: MonitorKey) {
        let db = self.open(id);
        assert!(db.is_decided(), "a monitor begins with what is decided");
        let missed = db.watch.monitors.missed(key).expect("the monitor has just been made");
        if let Some(history) = db.history.kept_mut() {
            history.keep(missed.ids());
            db.watch.monitors.set_ids(history.ids());
        }
    }

    /// The state that a monitor's client says it knows, if it can be told what has changed since.
    pub(crate) fn find_state(&self, id: DbId, key: MonitorKey, known: Uuid) -> Option<Place> {
        let db = self.get(id)?;
        let missed = db.watch.monitors.missed(key).filter(|missed| missed.can_be_told())?;
        db.history.kept()?.find(known, missed.ids(), &mut missed.tables())
    }

    /// What a monitor has missed since a state, unless that costs more than a step may.
    pub(crate) fn missed(&self, id: DbId, key: MonitorKey, since: Place) -> Option<Vec<u8>> {
        let db = self.get(id)?;
        let missed = db.watch.monitors.missed(key)?;
        let changes = db.history.since(since, missed.ids())?;
        let most = self.step_cost_of(id).checked_sub((changes.bytes() / DECODED_BYTES) as u64)?;
        // While the tables are away, a helper composes what was committed last.
        let store = db.tables.store()?;
        let mut body = Vec::new();
        let deltas = changes.deltas(db.schema()).map(|entry| entry.delta);
        missed.compose(deltas, store, most, &mut body).ok()?;
        Some(body)
    }

    /// An update that tells a monitor nothing but the id of its state, for a client that named
    /// another one: some learn it from updates only (`docs/decisions/012`). Where there are no ids,
    /// that is how a client loses one that the next process would find; it is told nothing as a rule.
    pub(crate) fn says_other_state(
        &self,
        id: DbId,
        key: MonitorKey,
        known: Option<Uuid>,
        state: Option<Uuid>,
    ) -> Option<Vec<u8>> {
        let db = self.get(id)?;
        let (state, known) = state.zip(known).filter(|(state, known)| state != known)?;
        let is_dormant = || db.history.kept().is_some_and(|history| history.is_dormant(known));
        let is_told = state != Uuid::ZERO || is_dormant();
        is_told.then(|| db.monitors().nothing_new(key, state))?
    }
}

//! Updates that cost more than a step may, composed elsewhere while their database goes on.
//!
//! ```text
//!   P ------ what is composed ------> E ---- what changes meanwhile ----> end
//!   the members stand here            and go on from here when it is done
//! ```
//!
//! 1. A flush finds that a group's update costs too much. The group's members at that place are
//!    *away*: whatever changes from now on merges for them, as for a session that does not read.
//! 2. [`LateUpdates`] has all that it takes: the changes and the rows as they are at the end. If so
//!    many rows have changed that to look up whom they concern costs more than a step, that is found
//!    out there, too: all who watch their tables are away meanwhile.
//! 3. Composed: the members are told, and stand where the end was then.

use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::fast::FixedState;
use weir_data::{Ids, Row, Schema, Snapshot, Store, TableId};

use crate::change::Changes;
use crate::clauses::{ClauseIndex, FiledId, Found, filed_clauses, found_of};
use crate::compose;
use crate::cost::{Budget, LOOKUP, VIEW};
use crate::message::{self, Update};
use crate::pending::Place;
use crate::registry::{GroupId, MonitorKey, Monitors, is_watched};
use crate::subscription::Subscription;
use crate::view::View;

/// Number of a piece of such work; ascending, never reused by the monitors of a database.
pub type LateId = u64;

/// Updates of groups whose members stand at one place, to be composed, maybe on another thread.
#[derive(Debug)]
pub struct LateUpdates {
    /// One after the other.
    changes: Vec<Changes>,
    rows: Left,
    watched: Vec<bool>,
    groups: Vec<(GroupId, Arc<Subscription>)>,
    schema: Arc<Schema>,
    /// Of the state that they lead to.
    ids: Ids,
    /// What the helper hashes UUIDs with.
    seed: u64,
    /// What the conditions' values are hashed with.
    hasher: FixedState,
}

/// The rows that changes have left.
#[derive(Debug)]
enum Left {
    /// Each, in the order in which the changes name them.
    Found(Vec<Option<Row>>),
    /// All rows there are; those of the tables, which have changed, are to be found by their UUIDs.
    Among(Snapshot, Vec<TableId>),
}

/// From so many changed rows on the helper may find them.
const AMONG_MIN: usize = 4 << 10;

/// The helper finds rows if one in so many has changed, for it finds out where all are.
const AMONG_SHARE: usize = 4;

/// From so many changed rows on the helper finds them in any case: to find them here would hold up
/// everybody.
const ALWAYS_AMONG_MIN: usize = 32 << 10;

/// Updates that are composed: a body for each group, if there is anything to tell it.
pub type LateBodies = BTreeMap<GroupId, Option<Arc<Vec<u8>>>>;

impl LateUpdates {
    /// Composes them; `rest` is called about every millisecond, and may take its time.
    pub fn compose(self, rest: &dyn Fn()) -> LateBodies {
        let Self { changes, rows, watched, groups, schema, ids, seed, hasher } = self;
        let is_watched = |table: TableId| watched[table.index()];
        let changes = Changes::join(changes, seed, &schema, is_watched);
        let store;
        let view = match &rows {
            Left::Found(rows) => {
                let mut rows = rows.iter();
                let row = |_, _| rows.next().expect("a row for each change").as_ref();
                View::new(&changes, &schema, row, is_watched)
            }
            Left::Among(snapshot, tables) => {
                store = snapshot.to_store(tables, seed);
                View::new(&changes, &schema, |table, uuid| store.get(table, uuid), is_watched)
            }
        };
        let mut budget = Budget::resting(rest);
        budget.spend_each(view.len(), VIEW).expect("there is no bound");
        let whom = Whom::of(&groups, &view, (&schema, hasher), &mut budget);
        let body = |(id, subscription): (GroupId, Arc<Subscription>)| {
            let mut out = Vec::new();
            let state = subscription.id_of(ids);
            message::begin(state, &mut out);
            let concern = |table| whom.as_ref().and_then(|whom| whom.concern(id, table));
            compose::changes(&subscription, &view, &concern, &schema, &mut budget, &mut out)
                .expect("there is no bound");
            (id, message::close(state.is_some(), &mut out).map(Arc::new))
        };
        groups.into_iter().map(body).collect()
    }
}

/// Which changed rows can be something to which group, where that is found by values.
struct Whom {
    clauses: ClauseIndex,
    filed: BTreeMap<GroupId, FiledId>,
    found: Vec<Found>,
}

impl Whom {
    /// Nothing if it costs less to ask each group of each row than to file its clauses.
    fn of(
        groups: &[(GroupId, Arc<Subscription>)],
        view: &View<'_>,
        (schema, hasher): (&Schema, FixedState),
        budget: &mut Budget<'_>,
    ) -> Option<Self> {
        let clauses: usize = groups.iter().map(|(_, of)| filed_clauses(of)).sum();
        if clauses > groups.len() * view.len() {
            return None;
        }
        budget.spend_each(clauses, LOOKUP).expect("there is no bound");
        let mut clauses = ClauseIndex::new(hasher);
        let mut file = |(id, of): &(GroupId, Arc<Subscription>)| {
            (*id, clauses.add(*id, of, schema.tables.len()))
        };
        let filed = groups.iter().map(&mut file).collect();
        let (_, found) = clauses.concerned(view);
        Some(Self { clauses, filed, found })
    }

    fn concern(&self, id: GroupId, table: TableId) -> Option<&[Found]> {
        let finds_all = self.clauses.finds_all(self.filed[&id], table);
        finds_all.then(|| found_of(&self.found, id, table))
    }
}

/// Whether so many rows of tables have changed that a helper finds them.
fn are_many(tables: &[(TableId, usize)], store: &Store) -> bool {
    let changed: usize = tables.iter().map(|(_, rows)| rows).sum();
    let all: usize = tables.iter().map(|(table, _)| store.table(*table).len()).sum();
    changed >= ALWAYS_AMONG_MIN || changed >= AMONG_MIN && changed * AMONG_SHARE >= all
}

/// The rows that changes of watched tables have left in a store.
fn left(changes: &Changes, store: &Store, is_watched: impl Fn(TableId) -> bool) -> Left {
    let mut rows = Vec::new();
    let mut row = |table, uuid| {
        let row: Option<&Row> = store.get(table, uuid);
        rows.push(row.cloned());
        row
    };
    drop(View::new(changes, store.schema(), &mut row, is_watched));
    Left::Found(rows)
}

/// Monitors whose update is composed elsewhere.
#[derive(Debug)]
pub(crate) struct Away {
    /// Where they stand.
    place: Place,
    /// Where they will stand.
    pub(crate) end: Place,
    keys: Vec<MonitorKey>,
}

/// What is to be composed elsewhere, and whose it is.
#[derive(Debug)]
pub struct Leaving {
    /// The number under which it comes back.
    pub id: LateId,
    /// The monitors that are told nothing meanwhile.
    pub keys: Vec<MonitorKey>,
    /// The work.
    pub work: LateUpdates,
}

impl Monitors {
    /// Sends groups' members that stand at a place away; `None` if there are none.
    pub(crate) fn send_away(
        &mut self,
        place: Place,
        groups: &[GroupId],
        blocked: &dyn Fn(MonitorKey) -> bool,
        store: &Store,
    ) -> Option<Leaving> {
        let mut keys = Vec::new();
        let mut subscriptions = Vec::with_capacity(groups.len());
        for id in groups {
            let Some(group) = self.groups.get(id) else { continue };
            subscriptions.push((*id, Arc::clone(&group.subscription)));
            let members = group.classes.values().flat_map(|class| &class.members);
            let stands_there =
                |key: &&MonitorKey| self.place_of(**key) == place && !self.away.contains(*key);
            keys.extend(members.filter(stands_there).filter(|key| !blocked(**key)));
        }
        let watchers = &self.watchers;
        let is_watched = |table| is_watched(watchers, table);
        let (tables, _) = self.pending.tables_since(place, is_watched);
        if keys.is_empty() || place == self.pending.end() {
            return None;
        }
        let mut changes = self.pending.parts_since(place);
        let rows = if are_many(&tables, store) {
            let tables = tables.into_iter().map(|(table, _)| table).collect();
            Left::Among(store.snapshot(), tables)
        } else {
            let since = self.pending.since(place, store.schema(), is_watched)?;
            changes = vec![since.changes().clone()];
            left(since.changes(), store, is_watched)
        };
        let schema = Arc::clone(store.schema());
        let watched = schema.table_ids().map(|(id, _)| is_watched(id)).collect();
        let work = LateUpdates {
            changes,
            rows,
            watched,
            groups: subscriptions,
            schema,
            ids: self.last_ids,
            seed: self.pending.seed(),
            hasher: self.hasher.clone(),
        };
        for &key in &keys {
            self.away.insert(key);
            if !self.strays.contains_key(&key) {
                self.pending.stand(place);
                self.strays.insert(key, place);
            }
        }
        let end = self.pending.end();
        self.pending.stand(end);
        self.next_late += 1;
        self.late.insert(self.next_late, Away { place, end, keys: keys.clone() });
        Some(Leaving { id: self.next_late, keys, work })
    }

    /// Updates have been composed: tells those of their monitors that are still there. Nobody is
    /// told anything of what has become another database meanwhile.
    pub fn take_late(
        &mut self,
        id: LateId,
        bodies: LateBodies,
        schema: &Schema,
        out: &mut Vec<Update>,
    ) {
        let Some(Away { place, end, keys }) = self.late.remove(&id) else { return };
        for key in keys {
            // A monitor that has ended is away no more.
            if !self.away.remove(&key) {
                continue;
            }
            let membership = &self.memberships[&key];
            let body = bodies.get(&membership.group);
            if let Some(body) = body.expect("the conditions of who is away stay as they are") {
                let group = self.groups.get_mut(&membership.group);
                let class = group.and_then(|group| group.classes.get_mut(&membership.label));
                let class = class.expect("a monitor is in a class of its group");
                let head = &class.head;
                match out.last_mut() {
                    Some(last) if Arc::ptr_eq(&last.body, body) && last.head == *head => {
                        last.to.push(key);
                    }
                    _ => out.push(Update {
                        to: vec![key],
                        head: Arc::clone(head),
                        body: Arc::clone(body),
                    }),
                }
            }
            let stood = self.strays.insert(key, end);
            assert_eq!(stood, Some(place), "who is away stays where it was");
            self.pending.stand(end);
            self.leave(place, schema);
        }
        self.leave(end, schema);
        self.prune(schema);
        self.try_rebase(schema);
    }
}

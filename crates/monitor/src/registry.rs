//! Who is a monitor: keys, groups of equal subscriptions, and where each monitor stands in the log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet, HashTable};
use weir_data::{Ages, Committed, Delta, Error, Ids, Schema, Store, TableId};
use weir_json::Text;

use crate::cache::Cache;
use crate::catch_up::CatchUps;
use crate::clauses::{ClauseIndex, FiledId};
use crate::difference::ConditionChange;
use crate::late::{Away, LateId};
use crate::message::{self, Version};
use crate::occupied::{group_bytes, own_bytes};
use crate::pending::{Pending, Place};
use crate::shape::Shapes;
use crate::subscription::Subscription;

/// A session's monitor: unique in the process, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MonitorKey(pub u64);

/// Number of a group; ascending, never reused.
pub type GroupId = u64;

/// Sizes of a database's monitors, for memory/show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of the database's monitors.
    pub monitors: usize,
    /// Number of groups of equal subscriptions.
    pub groups: usize,
    /// Number of segments of the change log.
    pub change_sets: usize,
    /// How often a group's update was put together since the start, empty ones included: the work
    /// done, whatever the number of monitors.
    pub composed: u64,
    /// How often a group's initial rows were put together since the start.
    pub initials: u64,
    /// How many rows' changes were gone through since the start to put them together with others'.
    pub merged: u64,
    /// Composed updates and initial rows that are kept because others may need the same.
    pub cached: usize,
    /// Bytes of the updates and initial rows that are kept.
    pub cached_bytes: usize,
}

/// Method and name of a monitor: members of a group that are called alike get the same bytes.
pub(crate) type Label = Arc<(Version, Vec<u8>)>;

/// Members of a group that get the same bytes.
#[derive(Debug)]
pub(crate) struct Class {
    /// The messages up to the body.
    pub(crate) head: Arc<Vec<u8>>,
    /// The keys of the members, ascending.
    pub(crate) members: Vec<MonitorKey>,
}

/// Monitors with equal subscriptions.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) subscription: Arc<Subscription>,
    /// Hash of the subscription.
    digest: u64,
    /// What the group's conditions are filed as.
    pub(crate) filed: FiledId,
    pub(crate) classes: BTreeMap<Label, Class>,
    /// Number of monitors in the group.
    pub(crate) members: usize,
    /// What the group occupies.
    pub(crate) bytes: usize,
    /// The age of the log at which all members have been told, or later.
    pub(crate) told_age: u64,
}

impl Group {
    /// Number of monitors in the group.
    pub(crate) fn len(&self) -> usize {
        self.members
    }
}

/// Where a monitor belongs.
#[derive(Clone, Debug)]
pub(crate) struct Membership {
    pub(crate) group: GroupId,
    pub(crate) label: Label,
}

/// All monitors of one database.
///
/// **Invariants:** a monitor stands at `base`, unless `strays` says otherwise; there is exactly one
/// stand at `base` in `pending` for all those, one for each stray, and one where each of
/// `catch_ups` and `late` leads to.
#[derive(Debug)]
pub struct Monitors {
    pub(crate) groups: HashMap<GroupId, Group, FixedState>,
    /// Groups by what they are asked for, each with the hash of that.
    by_subscription: HashTable<(u64, GroupId)>,
    pub(crate) memberships: HashMap<MonitorKey, Membership, FixedState>,
    /// Which groups watch each table.
    pub(crate) watchers: Vec<BTreeSet<GroupId>>,
    /// Which groups each change can concern.
    pub(crate) clauses: ClauseIndex,
    pub(crate) pending: Pending,
    /// Where all stand who were neither blocked at the last [`Monitors::flush_all`] nor flushed
    /// alone since.
    pub(crate) base: Place,
    /// Where the monitors stand that do not stand at `base`.
    pub(crate) strays: BTreeMap<MonitorKey, Place>,
    pub(crate) cache: Cache,
    pub(crate) catch_ups: CatchUps,
    /// Monitors whose updates are composed elsewhere: strays that are told nothing.
    pub(crate) away: HashSet<MonitorKey, FixedState>,
    /// Such work; each is a stand where its monitors will stand.
    pub(crate) late: BTreeMap<LateId, Away>,
    pub(crate) next_late: LateId,
    shapes: Shapes,
    /// Of the state behind the last commit.
    pub(crate) last_ids: Ids,
    pub(crate) ages: Ages,
    /// Monitors that are to be told the id of a newer state.
    pub(crate) owed: BTreeSet<MonitorKey>,
    next_group: GroupId,
    pub(crate) composed: u64,
    pub(crate) initials: u64,
    pub(crate) seed: u64,
    /// Of all filters.
    pub(crate) hasher: FixedState,
    /// What all monitors occupy.
    pub(crate) bytes: usize,
}

/// Keys are unique in the process, so that a session's monitors of all databases can share maps.
static NEXT_KEY: AtomicU64 = AtomicU64::new(1);

impl Monitors {
    /// No monitors yet; `seed` is for hashing what clients choose.
    pub fn new(seed: u64) -> Self {
        let mut pending = Pending::new(seed);
        let base = pending.end();
        pending.stand(base);
        let hasher = FixedState::with_seed(seed);
        Self {
            groups: HashMap::with_hasher(FixedState::with_seed(seed)),
            by_subscription: HashTable::new(),
            memberships: HashMap::with_hasher(FixedState::with_seed(seed)),
            watchers: Vec::new(),
            clauses: ClauseIndex::new(hasher.clone()),
            pending,
            base,
            strays: BTreeMap::new(),
            cache: Cache::default(),
            catch_ups: CatchUps::default(),
            away: HashSet::with_hasher(hasher.clone()),
            late: BTreeMap::new(),
            next_late: 0,
            shapes: Shapes::new(seed),
            last_ids: Ids::default(),
            ages: Ages::default(),
            owed: BTreeSet::new(),
            next_group: 0,
            composed: 0,
            initials: 0,
            seed,
            hasher,
            bytes: 0,
        }
    }

    /// Keeps shorter bodies, too, for those who are behind: for tests.
    #[must_use]
    pub fn keeping_bodies_from(mut self, bytes: usize) -> Self {
        self.catch_ups.bytes_min = bytes;
        self
    }

    /// The database has been converted to another schema. Monitors that know everything and watch
    /// only tables that `target` has a new number for go on; the others end. Answers with the keys
    /// of those that go on, ascending.
    pub fn convert(
        &mut self,
        schema: &Schema,
        target: impl Fn(TableId) -> Option<TableId>,
    ) -> Vec<MonitorKey> {
        // Filters go on, and with them the hashes that they are made of.
        let mut new = Self::new(self.seed);
        // Numbers never come again: work that is out may carry an old one.
        (new.next_group, new.next_late) = (self.next_group, self.next_late);
        let mut kept = Vec::new();
        for (key, membership) in &self.memberships {
            let place = self.place_of(*key);
            let Some(group) = self.groups.get(&membership.group) else { continue };
            let subscription = group.subscription.with_tables(&target, schema);
            let Some(subscription) = subscription else { continue };
            if !self.has_changed(membership, place) {
                kept.push((*key, Arc::clone(&membership.label), subscription, group.told_age));
            }
        }
        kept.sort_by_key(|(key, ..)| *key);
        let keys = kept.iter().map(|(key, ..)| *key).collect();
        (new.last_ids, new.ages) = (self.last_ids, self.ages);
        for (key, label, subscription, told_age) in kept {
            new.join_group(key, label, subscription, schema);
            new.note_told_at(key, told_age);
            new.owed.extend(self.owed.get(&key));
        }
        (new.composed, new.initials) = (self.composed, self.initials);
        *self = new;
        keys
    }

    /// Adds a monitor that knows the store as it is now. `id` is the JSON text of its name;
    /// `requests` are `<monitor-requests>`, errors as the reference's.
    pub fn add(
        &mut self,
        version: Version,
        id: Vec<u8>,
        requests: Text<'_>,
        schema: &Schema,
    ) -> Result<MonitorKey, Error> {
        let subscription = Subscription::parse(version, requests, schema, &self.hasher)?;
        Ok(self.add_parsed(version, id, subscription, schema))
    }

    /// Adds a monitor that knows the store as it is now.
    pub(crate) fn add_parsed(
        &mut self,
        version: Version,
        id: Vec<u8>,
        subscription: Subscription,
        schema: &Schema,
    ) -> MonitorKey {
        let key = MonitorKey(NEXT_KEY.fetch_add(1, Ordering::Relaxed));
        self.join_group(key, Arc::new((version, id)), subscription, schema);
        self.stand_at_end(key, schema);
        key
    }

    /// Puts a monitor into the group of its subscription.
    fn join_group(
        &mut self,
        key: MonitorKey,
        label: Label,
        subscription: Subscription,
        schema: &Schema,
    ) {
        let digest = subscription.digest(&self.hasher);
        let id = match self.group_of(digest, &subscription) {
            Some(group) => group,
            None => self.add_group(digest, subscription, schema),
        };
        if let Some(group) = self.groups.get_mut(&id) {
            let new = || Class { head: message::head(label.0, &label.1), members: Vec::new() };
            let class = group.classes.entry(Arc::clone(&label)).or_insert_with(new);
            if let Err(at) = class.members.binary_search(&key) {
                class.members.insert(at, key);
            }
            group.members += 1;
            self.bytes += own_bytes(&label.1);
        }
        self.memberships.insert(key, Membership { group: id, label });
    }

    /// A monitor was last told something at an age of the log.
    fn note_told_at(&mut self, key: MonitorKey, age: u64) {
        let group = self.groups.get_mut(&self.memberships[&key].group).expect("it is in one");
        group.told_age = group.told_age.min(age);
    }

    /// How many conditions on tables could not be filed by the values that they demand since this was
    /// asked last: each change of such a table is held against them.
    pub fn take_unfiled(&mut self) -> u64 {
        self.clauses.take_unfiled()
    }

    /// The group of equal subscriptions, if there is one.
    fn group_of(&self, digest: u64, subscription: &Subscription) -> Option<GroupId> {
        let is_it = |(_, id): &(u64, GroupId)| *self.groups[id].subscription == *subscription;
        self.by_subscription.find(digest, is_it).map(|(_, id)| *id)
    }

    fn add_group(
        &mut self,
        digest: u64,
        mut subscription: Subscription,
        schema: &Schema,
    ) -> GroupId {
        let id = self.next_group_id();
        self.watchers.resize_with(schema.tables.len(), BTreeSet::new);
        let filed = self.clauses.add(id, &subscription, schema.tables.len());
        for table in &mut subscription.tables {
            self.shapes.share(&mut table.shape);
        }
        let subscription = Arc::new(subscription);
        let (classes, bytes) = (BTreeMap::new(), group_bytes(&subscription));
        let told_age = subscription.age_of(self.ages);
        self.enter(id, Group { subscription, digest, filed, classes, members: 0, bytes, told_age });
        id
    }

    fn next_group_id(&mut self) -> GroupId {
        self.next_group += 1;
        self.next_group
    }

    /// A group is there from now on.
    fn enter(&mut self, id: GroupId, group: Group) {
        for table in group.subscription.watched_tables() {
            self.watchers[table.index()].insert(id);
        }
        self.bytes += group.bytes;
        self.by_subscription.insert_unique(group.digest, (group.digest, id), |(digest, _)| *digest);
        self.groups.insert(id, group);
    }

    /// A group is no more under this number; what it is filed as, and its shapes, are not touched.
    fn withdraw(&mut self, id: GroupId) -> Group {
        let group = self.groups.remove(&id).expect("only a group that is there goes");
        self.bytes -= group.bytes;
        let entry = self.by_subscription.find_entry(group.digest, |(_, other)| *other == id);
        entry.expect("a group can be found by its subscription").remove();
        for table in group.subscription.watched_tables() {
            self.watchers[table.index()].remove(&id);
        }
        self.cache.forget(id);
        group
    }

    /// Takes a monitor out of its group; the group goes with its last member.
    fn leave_group(&mut self, key: MonitorKey) -> Option<Membership> {
        let membership = self.memberships.remove(&key)?;
        let group = self.groups.get_mut(&membership.group)?;
        group.members -= 1;
        self.bytes -= own_bytes(&membership.label.1);
        if let Some(class) = group.classes.get_mut(&membership.label) {
            if let Ok(at) = class.members.binary_search(&key) {
                class.members.remove(at);
            }
            if class.members.is_empty() {
                group.classes.remove(&membership.label);
            }
        }
        if group.classes.is_empty() {
            let gone = self.withdraw(membership.group);
            for table in &gone.subscription.tables {
                self.shapes.end(&table.shape);
            }
            self.clauses.remove(gone.filed, gone.subscription);
        }
        Some(membership)
    }

    /// Ends a monitor, which is told nothing more.
    pub fn remove(&mut self, key: MonitorKey, schema: &Schema) {
        let membership = self.leave_group(key);
        self.away.remove(&key);
        self.owed.remove(&key);
        if let Some(place) = self.strays.remove(&key) {
            self.leave(place, schema);
            let group = membership.expect("who stands anywhere is in a group").group;
            self.prune_step(group, place, schema);
        }
        self.try_rebase(schema);
    }

    /// Whether something is left of monitors that have ended: [`Monitors::sweep`] is to be called.
    pub fn is_to_be_swept(&self) -> bool {
        self.clauses.is_to_be_swept()
    }

    /// Takes out clauses of monitors that have ended, as many as a step may.
    pub fn sweep(&mut self) {
        self.clauses.sweep();
    }

    /// `monitor_cond_change`: new conditions and a new id, for a monitor that has just been
    /// flushed. What the new conditions make appear and vanish is to be composed with the rows as
    /// they are now, and told before anything else; `None` if there is no such monitor.
    pub fn change_condition(
        &mut self,
        key: MonitorKey,
        new_id: Vec<u8>,
        requests: Text<'_>,
        schema: &Schema,
    ) -> Result<Option<ConditionChange>, Error> {
        let Some(old) = self.subscription(key).map(Arc::clone) else { return Ok(None) };
        let new = old.with_conditions(requests, schema, &self.hasher)?;
        Ok(self.change_parsed(key, new_id, &old, new, schema))
    }

    /// Gives a monitor that has just been flushed another subscription and a new id.
    pub(crate) fn change_parsed(
        &mut self,
        key: MonitorKey,
        new_id: Vec<u8>,
        old: &Arc<Subscription>,
        new: Subscription,
        schema: &Schema,
    ) -> Option<ConditionChange> {
        assert!(!self.away.contains(&key), "who has just been flushed is not away");
        debug_assert!(!self.is_behind(key), "who has just been flushed has been told all");
        let version = self.memberships[&key].label.0;
        let head = message::head(version, &new_id);
        self.join_other_group(key, Arc::new((version, new_id)), new, schema);
        // What the old condition kept from it is pending no more.
        self.stand_at_end(key, schema);
        let ids = self.last_ids;
        self.subscription(key).map(|new| ConditionChange::new(old, new, head, ids))
    }

    /// Moves a monitor to the group of its new subscription, which differs in conditions only. A
    /// group of its own goes with it: of its clauses only those that differ are filed anew.
    fn join_other_group(
        &mut self,
        key: MonitorKey,
        label: Label,
        new: Subscription,
        schema: &Schema,
    ) {
        let old_id = self.memberships[&key].group;
        let digest = new.digest(&self.hasher);
        if self.groups[&old_id].len() > 1 || self.group_of(digest, &new).is_some() {
            self.leave_group(key);
            return self.join_group(key, label, new, schema);
        }
        let Group { subscription: old, filed, members, told_age, .. } = self.withdraw(old_id);
        self.bytes -= own_bytes(&self.memberships[&key].label.1);
        self.bytes += own_bytes(&label.1);
        let id = self.next_group_id();
        self.clauses.replace(filed, id, &old, &new);
        let class = Class { head: message::head(label.0, &label.1), members: vec![key] };
        let classes = BTreeMap::from([(Arc::clone(&label), class)]);
        let bytes = group_bytes(&new);
        let subscription = Arc::new(new);
        let group = Group { subscription, digest, filed, classes, members, bytes, told_age };
        self.enter(id, group);
        self.memberships.insert(key, Membership { group: id, label });
    }

    /// Lets a monitor that knows everything stand at the end.
    pub(crate) fn stand_at_end(&mut self, key: MonitorKey, schema: &Schema) {
        // Nothing that it watches has changed since: it may as well stand there.
        let membership = self.memberships.get(&key);
        if !membership.is_some_and(|membership| self.has_changed(membership, self.base)) {
            if let Some(place) = self.strays.remove(&key) {
                self.leave(place, schema);
            }
            return;
        }
        self.stray_at_end(key, schema);
    }

    /// Lets a monitor stand at the end as a stray, wherever the base is.
    pub(crate) fn stray_at_end(&mut self, key: MonitorKey, schema: &Schema) {
        let end = self.pending.end();
        self.pending.stand(end);
        if let Some(place) = self.strays.insert(key, end) {
            self.leave(place, schema);
        }
    }

    /// Where a monitor stands.
    pub(crate) fn place_of(&self, key: MonitorKey) -> Place {
        self.strays.get(&key).copied().unwrap_or(self.base)
    }

    /// Whether anything that the monitor watches has changed since a place.
    pub(crate) fn has_changed(&self, membership: &Membership, since: Place) -> bool {
        since < self.pending.end()
            && self.groups.get(&membership.group).is_some_and(|group| {
                let mut tables = group.subscription.watched_tables();
                tables.any(|table| self.pending.has_changed(table, since))
            })
    }

    /// Lets a monitor or step leave a place.
    pub(crate) fn leave(&mut self, place: Place, schema: &Schema) {
        let watchers = &self.watchers;
        self.pending.leave(place, schema, |table| is_watched(watchers, table));
    }

    /// Makes the end the new base when everybody stands there.
    pub(crate) fn try_rebase(&mut self, schema: &Schema) {
        let end = self.pending.end();
        let late = self.late.values().filter(|late| late.end == end).count();
        let standing = self.pending.standing_at(end) - self.catch_ups.leading_to(end) - late;
        if self.base < end && standing == self.memberships.len() {
            self.rebase(schema);
            let strays = std::mem::take(&mut self.strays);
            strays.into_values().for_each(|place| self.leave(place, schema));
        }
        if self.strays.is_empty() {
            self.prune(schema);
        }
        if self.pending.is_empty() {
            self.cache.forget_updates();
        }
    }

    /// Moves the base to the end.
    pub(crate) fn rebase(&mut self, schema: &Schema) {
        let end = self.pending.end();
        let old = std::mem::replace(&mut self.base, end);
        self.pending.stand(end);
        self.leave(old, schema);
    }

    /// Takes note of a transaction that took effect, once for all monitors.
    pub fn commit(&mut self, committed: &Committed, schema: &Schema) {
        self.last_ids = committed.ids;
        // What is kept says the last state's id.
        self.cache.forget_updates();
        let watchers = &self.watchers;
        let mut tables = committed.delta.tables.iter().map(|delta| delta.table);
        if !tables.any(|table| is_watched(watchers, table)) {
            return;
        }
        let changed = |table: TableId| committed.delta.tables.iter().any(|d| d.table == table);
        self.cache.forget_initials_if(|group| {
            self.groups
                .get(&group)
                .is_none_or(|group| group.subscription.watched_tables().any(changed))
        });
        let Committed { position, delta, .. } = committed;
        self.pending.commit(delta, *position, schema, |table| is_watched(watchers, table));
    }

    /// For transactions that took effect, all of which the store shows: whether there is nobody to
    /// tell anything of them. Then [`Monitors::commit`] need not know of them.
    pub fn pass_over<'a>(
        &mut self,
        deltas: impl Iterator<Item = &'a Delta>,
        store: &Store,
        ids: Ids,
    ) -> bool {
        // What is pending may be undone by later changes of the same rows only if it has seen all
        // changes in between.
        let passed = self.pending.is_empty() && self.clauses.concern_nobody(deltas, store);
        if passed {
            self.last_ids = ids;
        }
        passed
    }

    /// Whether any monitor has not been told everything.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether anything that a monitor watches has changed since it was told.
    pub fn is_behind(&self, key: MonitorKey) -> bool {
        let membership = self.memberships.get(&key);
        membership.is_some_and(|membership| self.has_changed(membership, self.place_of(key)))
    }

    /// Estimated memory of what is pending, in bytes.
    pub fn pending_bytes(&self) -> usize {
        self.pending.bytes()
    }

    /// Number of the database's monitors.
    pub fn len(&self) -> usize {
        self.memberships.len()
    }

    /// Whether there are no monitors.
    pub fn is_empty(&self) -> bool {
        self.memberships.is_empty()
    }

    /// How many different sets of tables, columns and kinds of change there are, whatever the
    /// conditions and the form of updates: what the reference counts as monitors.
    pub fn distinct(&self) -> usize {
        let outline = |group: &Group| -> Vec<_> {
            let shapes = group.subscription.tables.iter().map(|table| &table.shape);
            shapes.map(|shape| (shape.table, shape.columns.clone(), shape.select)).collect()
        };
        self.groups.values().map(outline).collect::<BTreeSet<_>>().len()
    }

    /// Sizes of the database's monitors, for memory/show and tests.
    pub fn counts(&self) -> Counts {
        Counts {
            monitors: self.memberships.len(),
            groups: self.groups.len(),
            change_sets: self.pending.segments(),
            composed: self.composed,
            initials: self.initials,
            merged: self.pending.merged(),
            cached: self.cache.len() + self.catch_ups.len(),
            cached_bytes: self.cache.bytes() + self.catch_ups.bytes(),
        }
    }
}

/// Whether any group watches the table.
pub(crate) fn is_watched(watchers: &[BTreeSet<GroupId>], table: TableId) -> bool {
    watchers.get(table.index()).is_some_and(|groups| !groups.is_empty())
}

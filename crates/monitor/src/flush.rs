//! The flushing of what is pending: each body composed once for all equal monitors at one place.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use weir_data::{Schema, Store, TableId, Uuid};

use crate::cache::Cache;
use crate::catch_up::Step;
use crate::clauses::Found;
use crate::compose;
use crate::cost::Budget;
use crate::message::{self, Update};
use crate::pending::{ChangesSince, Pending, Place};
use crate::registry::{Group, GroupId, Label, MonitorKey, Monitors, is_watched};
use crate::subscription::Subscription;
use crate::view::View;

/// Most bytes (estimated) that may be pending for monitors whose sessions do not read. Beyond it
/// those furthest behind are disconnected, and get everything anew when they come back.
pub const PENDING_BYTES_MAX: usize = 256 << 20;

/// Room for a body of the usual size, while it is composed.
const SCRATCH_BYTES: usize = 1 << 10;

/// A monitor that is to be told of what happened since its own place.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Late {
    place: Place,
    group: GroupId,
    label: Label,
    key: MonitorKey,
}

/// A body that was composed for members of a group at a place.
type Composed = (GroupId, Place, Arc<Vec<u8>>);

impl Monitors {
    /// Composes what is pending for these monitors. `store` is as the last commit left it.
    pub fn flush(&mut self, keys: &[MonitorKey], store: &Store, out: &mut Vec<Update>) {
        if self.pending.is_empty() {
            return;
        }
        let (mut late, mut up_to_date) = (Vec::new(), Vec::new());
        for &key in keys {
            match self.late(key) {
                Some(of) => late.push(of),
                // A stray whose tables did not change holds up nothing any more.
                None if self.strays.contains_key(&key) => {}
                None => continue,
            }
            up_to_date.push(key);
        }
        self.tell(late, store, &mut Vec::new(), out);
        for key in up_to_date {
            self.stray_at_end(key, store.schema());
        }
        self.try_rebase(store.schema());
    }

    /// Composes what is pending for all monitors whose session is not `blocked`. True if more is to
    /// be told to some of them at once.
    pub fn flush_all(
        &mut self,
        store: &Store,
        blocked: &dyn Fn(MonitorKey) -> bool,
        out: &mut Vec<Update>,
    ) -> bool {
        if self.pending.is_empty() {
            return false;
        }
        let (mut late, mut stepping, mut returning) = (Vec::new(), Vec::new(), Vec::new());
        for &key in self.strays.keys() {
            match self.late(key) {
                Some(_) if blocked(key) => continue,
                Some(of) if self.catch_ups.step(of.group, of.place).is_some() => {
                    stepping.push(of);
                    continue;
                }
                Some(of) => late.push(of),
                None => {}
            }
            returning.push(key);
        }
        let mut composed = Vec::new();
        let left = self.tell_base(store, blocked, &mut composed, out);
        self.tell(late, store, &mut composed, out);
        let has_more = self.step(stepping, store.schema(), out);
        for key in left {
            self.pending.stand(self.base);
            self.strays.insert(key, self.base);
        }
        self.rebase(store.schema());
        for key in returning {
            if let Some(place) = self.strays.remove(&key) {
                self.leave(place, store.schema());
            }
        }
        self.renew_catch_ups(composed, store.schema());
        self.try_rebase(store.schema());
        has_more
    }

    /// Leads monitors that are late to where others went from the same place. True if there is more
    /// behind it.
    fn step(&mut self, mut late: Vec<Late>, schema: &Schema, out: &mut Vec<Update>) -> bool {
        late.sort_unstable();
        let mut has_more = false;
        for same in late.chunk_by(|a, b| (a.place, a.group) == (b.place, b.group)) {
            let Late { place, group, .. } = same[0];
            let Some(step) = self.catch_ups.step(group, place).cloned() else { continue };
            let Some(members) = self.groups.get_mut(&group) else { continue };
            tell_group(members, same, &step.body, step.txn_id, out);
            has_more |= step.end < self.pending.end();
            for late in same {
                self.pending.stand(step.end);
                self.strays.insert(late.key, step.end);
                self.leave(place, schema);
            }
        }
        has_more
    }

    /// Where strays of which group stand.
    fn waiting(&self) -> BTreeSet<(GroupId, Place)> {
        let place =
            |(key, place): (&MonitorKey, &Place)| Some((self.memberships.get(key)?.group, *place));
        self.strays.iter().filter_map(place).collect()
    }

    /// Forgets the steps that nobody can take any more.
    pub(crate) fn prune(&mut self, schema: &Schema) {
        self.renew_catch_ups(Vec::new(), schema);
    }

    /// Forgets the steps that nobody can take any more, and keeps the long ones of the bodies that
    /// have just been composed, where others stand who were not told.
    fn renew_catch_ups(&mut self, mut composed: Vec<Composed>, schema: &Schema) {
        composed.retain(|(_, _, body)| body.len() >= self.catch_ups.bytes_min);
        if composed.is_empty() && self.catch_ups.is_empty() {
            return;
        }
        let waiting = self.waiting();
        let gone = self.catch_ups.prune(&waiting);
        gone.into_iter().for_each(|place| self.leave(place, schema));
        let (end, txn_id) = (self.pending.end(), self.last_txn_id);
        for (group, place, body) in composed {
            if waiting.contains(&(group, place))
                && self.catch_ups.keep(group, place, Step { end, body, txn_id })
            {
                self.pending.stand(end);
            }
        }
    }

    /// What to tell a monitor, if there can be anything.
    fn late(&self, key: MonitorKey) -> Option<Late> {
        let place = self.strays.get(&key).copied().unwrap_or(self.base);
        let membership =
            self.memberships.get(&key).filter(|membership| self.has_changed(membership, place))?;
        Some(Late { place, group: membership.group, label: Arc::clone(&membership.label), key })
    }

    /// Tells the monitors that stand at the base. Answers with those `blocked` that would have been
    /// told: they stay there.
    fn tell_base(
        &mut self,
        store: &Store,
        blocked: &dyn Fn(MonitorKey) -> bool,
        composed: &mut Vec<Composed>,
        out: &mut Vec<Update>,
    ) -> Vec<MonitorKey> {
        let place = self.base;
        let strays = &self.strays;
        let is_stray = |key: &MonitorKey| !strays.is_empty() && strays.contains_key(key);
        let changes = OnceCell::new();
        let view = resolve(&changes, &self.pending, &self.watchers, place, store);
        let (mut affected, mut found) = (Vec::new(), Vec::new());
        for table in &view.tables {
            self.clauses.concerned(table.table, &table.rows, &mut affected, &mut found);
        }
        found.sort_unstable();
        found.dedup();
        affected.extend(found.chunk_by(|a, b| a.group == b.group).map(|found| found[0].group));
        affected.sort_unstable();
        affected.dedup();
        let mut composer = Composer::new(&mut self.cache, &mut self.composed, store, place);
        let mut left = Vec::new();
        for id in affected {
            let Some(group) = self.groups.get_mut(&id) else { continue };
            if group.classes.values().all(|class| class.members.iter().all(is_stray)) {
                continue;
            }
            let (clauses, filed) = (&self.clauses, group.filed);
            let concern = |table: TableId| {
                clauses.finds_all(filed, table).then(|| found_of(&found, id, table))
            };
            let body = composer.body(id, &group.subscription, || &view, &concern, false);
            // If there is nothing to tell, the blocked ones are up to date, too.
            let Some(body) = body else { continue };
            let n_left = left.len();
            for class in group.classes.values_mut() {
                let mut to = Vec::with_capacity(class.members.len());
                for &key in class.members.iter().filter(|key| !is_stray(key)) {
                    if blocked(key) { left.push(key) } else { to.push(key) }
                }
                if !to.is_empty() {
                    let head = class.head.bytes(self.last_txn_id);
                    out.push(Update { to, head, body: Arc::clone(&body) });
                }
            }
            if left.len() > n_left {
                composer.cache.keep_update(id, place, Some(&body));
                composed.push((id, place, body));
            }
        }
        left
    }

    /// Tells monitors what happened since their own places.
    fn tell(
        &mut self,
        mut late: Vec<Late>,
        store: &Store,
        composed: &mut Vec<Composed>,
        out: &mut Vec<Update>,
    ) {
        late.sort_unstable();
        for same_place in late.chunk_by(|a, b| a.place == b.place) {
            let place = same_place[0].place;
            let changes = OnceCell::new();
            let view = OnceCell::new();
            let view = || {
                view.get_or_init(|| resolve(&changes, &self.pending, &self.watchers, place, store))
            };
            let mut composer = Composer::new(&mut self.cache, &mut self.composed, store, place);
            for same_group in same_place.chunk_by(|a, b| a.group == b.group) {
                let id = same_group[0].group;
                let Some(group) = self.groups.get_mut(&id) else { continue };
                let others = group.len() > same_group.len();
                let body = composer.body(id, &group.subscription, view, &|_| None, others);
                let Some(body) = body else { continue };
                tell_group(group, same_group, &body, self.last_txn_id, out);
                if others {
                    composed.push((id, place, body));
                }
            }
        }
    }

    /// Monitors for which more is pending than there may be: those furthest behind.
    pub fn overflowed(&self) -> Vec<MonitorKey> {
        if self.pending.bytes() <= PENDING_BYTES_MAX {
            return Vec::new();
        }
        let first = self.pending.first();
        let furthest = self.strays.iter().filter(|(_, place)| **place == first);
        furthest.map(|(key, _)| *key).collect()
    }
}

/// The changed rows of a table that can be something to a group; `found` is sorted.
fn found_of(found: &[Found], group: GroupId, table: TableId) -> &[Found] {
    let from = found.partition_point(|one| (one.group, one.table) < (group, table));
    let found = &found[from..];
    &found[..found.partition_point(|one| (one.group, one.table) == (group, table))]
}

/// One update for each class among equal monitors at one place.
fn tell_group(
    group: &mut Group,
    members: &[Late],
    body: &Arc<Vec<u8>>,
    txn_id: Uuid,
    out: &mut Vec<Update>,
) {
    for same_class in members.chunk_by(|a, b| a.label == b.label) {
        let Some(class) = group.classes.get_mut(&same_class[0].label) else { continue };
        let to = same_class.iter().map(|late| late.key).collect();
        out.push(Update { to, head: class.head.bytes(txn_id), body: Arc::clone(body) });
    }
}

/// What has changed since a place; `changes` keeps what the view looks into.
fn resolve<'a>(
    changes: &'a OnceCell<Option<ChangesSince<'a>>>,
    pending: &'a Pending,
    watchers: &[BTreeSet<GroupId>],
    place: Place,
    store: &'a Store,
) -> View<'a> {
    let is_watched = |table| is_watched(watchers, table);
    let since = changes.get_or_init(|| pending.since(place, store.schema(), is_watched));
    let since = since.as_ref();
    since.map_or_else(View::default, |since| View::new(since.changes(), store, is_watched))
}

/// Composes bodies for members at one place, or finds them composed.
struct Composer<'a> {
    cache: &'a mut Cache,
    composed: &'a mut u64,
    store: &'a Store,
    place: Place,
    scratch: Vec<u8>,
}

impl<'a> Composer<'a> {
    fn new(cache: &'a mut Cache, composed: &'a mut u64, store: &'a Store, place: Place) -> Self {
        Self { cache, composed, store, place, scratch: Vec::new() }
    }

    /// The body for a group; `None` if there is nothing to tell it.
    fn body<'v>(
        &mut self,
        id: GroupId,
        subscription: &Subscription,
        view: impl FnOnce() -> &'v View<'v>,
        concern: compose::Concern<'_>,
        others_may_need_it: bool,
    ) -> Option<Arc<Vec<u8>>> {
        if let Some(known) = self.cache.update(id, self.place) {
            return known;
        }
        *self.composed += 1;
        self.scratch.clear();
        self.scratch.reserve(SCRATCH_BYTES);
        let budget = &mut Budget::unlimited();
        let schema = self.store.schema();
        compose::changes(subscription, view(), concern, schema, budget, &mut self.scratch)
            .expect("no bound");
        let body = message::close(&mut self.scratch).map(Arc::new);
        if others_may_need_it {
            self.cache.keep_update(id, self.place, body.as_ref());
        }
        body
    }
}

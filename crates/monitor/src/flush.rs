//! The flushing of what is pending: each body composed once for all equal monitors at one place.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_data::{Ids, Schema, Store, TableId};

use crate::cache::Cache;
use crate::catch_up::Step;
use crate::change::Changes;
use crate::clauses::found_of;
use crate::compose;
use crate::cost::{Budget, JOIN, TooLong, VIEW};
use crate::late::Leaving;
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

/// What a flush has led to.
#[derive(Debug, Default)]
pub struct Flushed {
    /// What is to be sent now.
    pub updates: Vec<Update>,
    /// What is to be composed elsewhere, for it costs more than a step may.
    pub leaving: Vec<Leaving>,
    /// There is more to tell at once, in another step.
    pub has_more: bool,
    /// What it has cost, in units of about 50 ns.
    pub cost: u64,
}

/// A flush under way.
struct Flush<'a> {
    store: &'a Store,
    /// What the whole flush may cost.
    most: u64,
    budget: Budget<'static>,
    /// Whether what the budget does not suffice for may be told in another step.
    may_postpone: bool,
    /// Some group has been told, or sent away.
    has_moved: bool,
    /// Looking at what has changed since this place costs more than a step.
    all_heavy: Option<Place>,
    /// Groups that are to be sent away, by where their members stand.
    heavy: BTreeMap<Place, Vec<GroupId>>,
    composed: Vec<Composed>,
    flushed: Flushed,
}

impl<'a> Flush<'a> {
    fn new(store: &'a Store, most: u64, may_postpone: bool) -> Self {
        Self {
            store,
            most,
            budget: Budget::new(most),
            may_postpone,
            has_moved: false,
            all_heavy: None,
            heavy: BTreeMap::new(),
            composed: Vec::new(),
            flushed: Flushed::default(),
        }
    }

    /// The budget has not sufficed for the group at a place: it is for another step, or, if it was
    /// the first of this one, costs more than a step and is sent away.
    fn exceed(&mut self, place: Place, group: GroupId) {
        let is_first = !std::mem::replace(&mut self.has_moved, true);
        if self.may_postpone && !is_first && self.all_heavy != Some(place) {
            self.flushed.has_more = true;
        } else {
            self.heavy.entry(place).or_default().push(group);
        }
    }

    /// Pays for a view of the changed rows of these tables, and for putting them together if they are to
    /// be joined. If that alone is too much for a step, everybody whom it concerns is sent away.
    fn pay_for_view(
        &mut self,
        place: Place,
        (tables, are_joined): &(Vec<(TableId, usize)>, bool),
    ) -> Result<(), TooLong> {
        let each = if *are_joined { VIEW + JOIN } else { VIEW };
        let cost = each * tables.iter().map(|(_, rows)| *rows as u64).sum::<u64>();
        let paid = self.budget.spend(cost);
        if paid.is_err() && (!self.has_moved || cost > self.most) {
            self.all_heavy = Some(place);
        }
        paid
    }
}

impl Monitors {
    /// Composes what is pending for these monitors, as far as it costs no more than `most` units of
    /// about 50 ns; the rest leaves, with all who are to be told the same and are not `blocked`.
    /// `store` is as the last commit left it.
    pub fn flush(
        &mut self,
        keys: &[MonitorKey],
        store: &Store,
        blocked: &dyn Fn(MonitorKey) -> bool,
        most: u64,
    ) -> Flushed {
        if self.pending.is_empty() {
            return Flushed::default();
        }
        let (mut late, mut up_to_date) = (Vec::new(), Vec::new());
        for &key in keys.iter().filter(|key| !self.away.contains(*key)) {
            match self.late(key) {
                Some(of) => late.push(of),
                // A stray whose tables did not change holds up nothing any more.
                None if self.strays.contains_key(&key) => up_to_date.push(key),
                None => {}
            }
        }
        late.sort_unstable();
        let mut flush = Flush::new(store, most, false);
        self.tell(&late, &mut flush, &mut up_to_date);
        flush.flushed.cost = most - flush.budget.left();
        for key in up_to_date {
            self.stray_at_end(key, store.schema());
        }
        // Whoever is to be answered is told first, even if he takes nothing now.
        let blocked = |key| blocked(key) && !keys.contains(&key);
        self.send_heavy(&mut flush, &blocked);
        self.try_rebase(store.schema());
        flush.flushed
    }

    /// Composes what is pending for all monitors whose session is not `blocked`, as far as that
    /// costs no more than about `most` units of about 50 ns: what is left is for the next call, and
    /// a group's update that costs more than that leaves. Unless it `may_postpone`, all leaves that
    /// is left.
    pub fn flush_all(
        &mut self,
        store: &Store,
        blocked: &dyn Fn(MonitorKey) -> bool,
        most: u64,
        may_postpone: bool,
    ) -> Flushed {
        let mut flushed = Flushed::default();
        if !self.pending.is_empty() {
            flushed = self.flush_changes(store, blocked, most, may_postpone);
        }
        if !self.owed.is_empty() {
            self.tell_ids(blocked, &mut flushed.updates);
        }
        flushed
    }

    fn flush_changes(
        &mut self,
        store: &Store,
        blocked: &dyn Fn(MonitorKey) -> bool,
        most: u64,
        may_postpone: bool,
    ) -> Flushed {
        let (mut late, mut stepping, mut returning) = (Vec::new(), Vec::new(), Vec::new());
        for &key in self.strays.keys().filter(|key| !self.away.contains(*key)) {
            match self.late(key) {
                Some(_) if blocked(key) => {}
                Some(of) if self.catch_ups.step(of.group, of.place).is_some() => stepping.push(of),
                Some(of) => late.push(of),
                None => returning.push(key),
            }
        }
        // Who has waited longest comes first.
        late.sort_unstable();
        let newer = late.split_off(late.partition_point(|late| late.place <= self.base));
        let mut flush = Flush::new(store, most, may_postpone);
        self.tell(&late, &mut flush, &mut returning);
        let left = (!flush.flushed.has_more).then(|| self.tell_base(blocked, &mut flush));
        self.tell(&newer, &mut flush, &mut returning);
        flush.flushed.cost = most - flush.budget.left();
        flush.flushed.has_more |= self.step(stepping, store.schema(), &mut flush.flushed.updates);
        if let Some(left) = left {
            self.leave_base(left, returning, store.schema());
        } else {
            returning.into_iter().for_each(|key| self.stray_at_end(key, store.schema()));
        }
        self.send_heavy(&mut flush, blocked);
        self.renew_catch_ups(std::mem::take(&mut flush.composed), store.schema());
        self.try_rebase(store.schema());
        flush.flushed
    }

    /// Moves the base to the end: those who are `left` stay where it was, and `returning` strays
    /// join it.
    fn leave_base(&mut self, left: Vec<MonitorKey>, returning: Vec<MonitorKey>, schema: &Schema) {
        for key in left {
            self.pending.stand(self.base);
            self.strays.insert(key, self.base);
        }
        self.rebase(schema);
        for key in returning {
            if let Some(place) = self.strays.remove(&key) {
                self.leave(place, schema);
            }
        }
    }

    /// Sends the groups away whose updates cost too much.
    fn send_heavy(&mut self, flush: &mut Flush<'_>, blocked: &dyn Fn(MonitorKey) -> bool) {
        if flush.heavy.is_empty() {
            return;
        }
        for (place, groups) in std::mem::take(&mut flush.heavy) {
            let leaving = self.send_away(place, &groups, blocked, flush.store);
            flush.flushed.leaving.extend(leaving);
        }
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
            tell_group(members, same, &step.body, out);
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

    /// A stray of a group has ended: forgets the step from its place if it was the last who could take it.
    pub(crate) fn prune_step(&mut self, group: GroupId, place: Place, schema: &Schema) {
        if self.catch_ups.step(group, place).is_none() {
            return;
        }
        let stands_there = |key: &MonitorKey| self.strays.get(key) == Some(&place);
        let is_needed = self.groups.get(&group).is_some_and(|group| {
            group.classes.values().flat_map(|class| &class.members).any(stands_there)
        });
        if !is_needed && let Some(end) = self.catch_ups.remove(group, place) {
            self.leave(end, schema);
        }
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
        let end = self.pending.end();
        for (group, place, body) in composed {
            if waiting.contains(&(group, place))
                && self.catch_ups.keep(group, place, Step { end, body })
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

    /// Tells the monitors that stand at the base. Answers with those that would have been told and
    /// were not, being blocked or for another step: they stay there.
    fn tell_base(
        &mut self,
        blocked: &dyn Fn(MonitorKey) -> bool,
        flush: &mut Flush<'_>,
    ) -> Vec<MonitorKey> {
        let (place, ages) = (self.base, self.ages);
        let strays = &self.strays;
        let is_stray = |key: &MonitorKey| !strays.is_empty() && strays.contains_key(key);
        let changed = self.pending.tables_since(place, |table| is_watched(&self.watchers, table));
        let is_paid = flush.pay_for_view(place, &changed).is_ok();
        let (tables, _) = changed;
        let is_beyond_a_step = flush.all_heavy == Some(place);
        let are_unfiled = || tables.iter().all(|(table, _)| !self.clauses.has_values(*table));
        // Whom a change of many rows concerns is found out elsewhere, and is clear without a look at
        // them if nobody has asked for values.
        let changes = OnceCell::new();
        let (view, affected, found) = if is_paid || !is_beyond_a_step && !are_unfiled() {
            let since = since(&changes, &self.pending, &self.watchers, place, flush.store);
            let view = resolve(since, &self.watchers, flush.store);
            let (affected, found) = self.clauses.concerned(&view);
            (Some(view), affected, found)
        } else {
            let groups = tables.iter().flat_map(|(table, _)| &self.watchers[table.index()]);
            let groups: BTreeSet<GroupId> = groups.copied().collect();
            (None, groups.into_iter().collect(), Vec::new())
        };
        let mut composer =
            Composer::new((&mut self.cache, &mut self.composed), flush.store, place, self.last_ids);
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
            let budget = &mut flush.budget;
            let of = &group.subscription;
            let body = match &view {
                Some(view) => composer.body(id, of, || view, &concern, false, budget),
                None => composer.cache.update(id, place).ok_or(TooLong),
            };
            let body = match body {
                Ok(Some(body)) => body,
                // If there is nothing to tell, the blocked ones are up to date, too.
                Ok(None) => continue,
                Err(TooLong) => {
                    flush.exceed(place, id);
                    let members = group.classes.values().flat_map(|class| &class.members);
                    left.extend(members.filter(|key| !is_stray(key)));
                    continue;
                }
            };
            flush.has_moved = true;
            let (n_left, mut n_told) = (left.len(), 0);
            for class in group.classes.values_mut() {
                let mut to = Vec::with_capacity(class.members.len());
                for &key in class.members.iter().filter(|key| !is_stray(key)) {
                    if blocked(key) { left.push(key) } else { to.push(key) }
                }
                n_told += to.len();
                if !to.is_empty() {
                    let head = Arc::clone(&class.head);
                    flush.flushed.updates.push(Update { to, head, body: Arc::clone(&body) });
                }
            }
            if n_told == group.members {
                group.told_age = group.subscription.age_of(ages);
            }
            if left.len() > n_left {
                composer.cache.keep_update(id, place, Some(&body));
                flush.composed.push((id, place, body));
            }
        }
        left
    }

    /// Tells monitors, in the order of their places, what happened since these; adds those that are
    /// up to date then to `told`.
    fn tell(&mut self, late: &[Late], flush: &mut Flush<'_>, told: &mut Vec<MonitorKey>) {
        for same_place in late.chunk_by(|a, b| a.place == b.place) {
            let place = same_place[0].place;
            let changes = OnceCell::new();
            let view = OnceCell::new();
            let store = flush.store;
            let since = || since(&changes, &self.pending, &self.watchers, place, store);
            let resolved = || view.get_or_init(|| resolve(since(), &self.watchers, store));
            let mut composer =
                Composer::new((&mut self.cache, &mut self.composed), store, place, self.last_ids);
            for same_group in same_place.chunk_by(|a, b| a.group == b.group) {
                let id = same_group[0].group;
                let Some(group) = self.groups.get_mut(&id) else { continue };
                let others = group.len() > same_group.len();
                if view.get().is_none() && composer.cache.update(id, place).is_none() {
                    let is_watched = |table| is_watched(&self.watchers, table);
                    let changed = || self.pending.tables_since(place, is_watched);
                    if flush.budget.is_spent() || flush.pay_for_view(place, &changed()).is_err() {
                        flush.exceed(place, id);
                        continue;
                    }
                }
                let budget = &mut flush.budget;
                let body =
                    composer.body(id, &group.subscription, resolved, &|_| None, others, budget);
                match body {
                    Ok(Some(body)) => {
                        let out = &mut flush.flushed.updates;
                        tell_group(group, same_group, &body, out);
                        if others {
                            flush.composed.push((id, place, body));
                        } else {
                            group.told_age = group.subscription.age_of(self.ages);
                        }
                    }
                    Ok(None) => {}
                    Err(TooLong) => {
                        flush.exceed(place, id);
                        continue;
                    }
                }
                flush.has_moved = true;
                told.extend(same_group.iter().map(|late| late.key));
            }
        }
    }

    /// Monitors for which more is pending than there may be: those furthest behind.
    pub fn overflowed(&self) -> Vec<MonitorKey> {
        if self.pending.bytes() <= PENDING_BYTES_MAX {
            return Vec::new();
        }
        // Who is away waits for us, not we for him.
        let behind = || self.strays.iter().filter(|(key, _)| !self.away.contains(*key));
        let first = behind().map(|(_, place)| *place).min();
        behind().filter(|(_, place)| Some(**place) == first).map(|(key, _)| *key).collect()
    }
}

/// One update for each class among equal monitors at one place.
fn tell_group(group: &mut Group, members: &[Late], body: &Arc<Vec<u8>>, out: &mut Vec<Update>) {
    for same_class in members.chunk_by(|a, b| a.label == b.label) {
        let Some(class) = group.classes.get_mut(&same_class[0].label) else { continue };
        let to = same_class.iter().map(|late| late.key).collect();
        out.push(Update { to, head: Arc::clone(&class.head), body: Arc::clone(body) });
    }
}

/// What has changed since a place; `changes` keeps it for the view.
fn since<'a>(
    changes: &'a OnceCell<Option<ChangesSince<'a>>>,
    pending: &'a Pending,
    watchers: &[BTreeSet<GroupId>],
    place: Place,
    store: &'a Store,
) -> Option<&'a Changes> {
    let is_watched = |table| is_watched(watchers, table);
    let since = changes.get_or_init(|| pending.since(place, store.schema(), is_watched));
    since.as_ref().map(ChangesSince::changes)
}

/// The rows of watched tables that have changed, as they are now.
fn resolve<'a>(
    since: Option<&'a Changes>,
    watchers: &[BTreeSet<GroupId>],
    store: &'a Store,
) -> View<'a> {
    let row = |table, uuid| store.get(table, uuid);
    let is_watched = |table| is_watched(watchers, table);
    since.map_or_else(View::default, |changes| View::new(changes, store.schema(), row, is_watched))
}

/// Composes bodies for members at one place, or finds them composed.
struct Composer<'a> {
    cache: &'a mut Cache,
    composed: &'a mut u64,
    store: &'a Store,
    place: Place,
    ids: Ids,
    scratch: Vec<u8>,
}

impl<'a> Composer<'a> {
    fn new(
        (cache, composed): (&'a mut Cache, &'a mut u64),
        store: &'a Store,
        place: Place,
        ids: Ids,
    ) -> Self {
        Self { cache, composed, store, place, ids, scratch: Vec::new() }
    }

    /// The body for a group; `None` if there is nothing to tell it.
    fn body<'v>(
        &mut self,
        id: GroupId,
        subscription: &Subscription,
        view: impl FnOnce() -> &'v View<'v>,
        concern: compose::Concern<'_, '_>,
        others_may_need_it: bool,
        budget: &mut Budget<'_>,
    ) -> Result<Option<Arc<Vec<u8>>>, TooLong> {
        if let Some(known) = self.cache.update(id, self.place) {
            return Ok(known);
        }
        self.scratch.clear();
        self.scratch.reserve(SCRATCH_BYTES);
        let schema = self.store.schema();
        let state = subscription.id_of(self.ids);
        message::begin(state, &mut self.scratch);
        compose::changes(subscription, view(), concern, schema, budget, &mut self.scratch)?;
        *self.composed += 1;
        let body = message::close(state.is_some(), &mut self.scratch).map(Arc::new);
        if others_may_need_it {
            self.cache.keep_update(id, self.place, body.as_ref());
        }
        Ok(body)
    }
}

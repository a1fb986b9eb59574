//! Monitors by group, and the flushing of what is pending for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use weir_data::{Committed, Error, Schema, Store, TableId, Uuid};
use weir_json::Text;

use crate::compose;
use crate::pending::{Pending, Place};
use crate::subscription::Subscription;

/// Most bytes (estimated) that may be pending for a monitor whose session does not read. Beyond it
/// the session is disconnected, and gets everything anew when it comes back.
pub const PENDING_BYTES_MAX: usize = 256 << 20;

/// A session's monitor: unique in the process, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MonitorKey(pub u64);

/// Which of the monitor methods made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// `monitor`, told by `update` (RFC 7047 §4.1.5).
    V1,
    /// `monitor_cond`, told by `update2` (ovsdb-server(7) §4.1.12).
    V2,
    /// `monitor_cond_since`, told by `update3` (ovsdb-server(7) §4.1.15).
    V3,
}

/// One notification for all of `to`: `head` and then `body`. Monitors with other ids have updates
/// of their own that share the `body`.
#[derive(Clone, Debug)]
pub struct Update {
    /// Who gets it.
    pub to: Vec<MonitorKey>,
    /// The message up to the table updates.
    pub head: Arc<Vec<u8>>,
    /// The table updates and the end of the message.
    pub body: Arc<Vec<u8>>,
}

/// Sizes, for memory/show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Monitors.
    pub monitors: usize,
    /// Groups of equal subscriptions.
    pub groups: usize,
    /// Segments of the change log.
    pub change_sets: usize,
    /// Bodies composed since the start: the work done, whatever the number of monitors.
    pub composed: u64,
}

#[derive(Debug)]
struct Member {
    version: Version,
    id: Vec<u8>,
    place: Place,
}

#[derive(Debug)]
struct Group {
    subscription: Arc<Subscription>,
    canonical: Vec<u8>,
    members: BTreeMap<MonitorKey, Member>,
    /// The update from a place to the log's end: what equal members standing there share.
    composed: Option<(Place, Place, Arc<Vec<u8>>)>,
}

/// All monitors of one database.
#[derive(Debug)]
pub struct Monitors {
    groups: BTreeMap<u64, Group>,
    by_canonical: HashMap<Vec<u8>, u64, FixedState>,
    owners: HashMap<MonitorKey, u64, FixedState>,
    /// How many groups watch each table.
    watched: Vec<usize>,
    pending: Pending,
    last_txn_id: Uuid,
    next_group: u64,
    composed: u64,
}

/// Keys are unique in the process, so that a session's monitors of all databases can share maps.
static NEXT_KEY: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);

impl Monitors {
    /// No monitors yet; `seed` is for hashing what clients choose.
    pub fn new(seed: u64) -> Self {
        Self {
            groups: BTreeMap::new(),
            by_canonical: HashMap::with_hasher(FixedState::with_seed(seed)),
            owners: HashMap::with_hasher(FixedState::with_seed(seed)),
            watched: Vec::new(),
            pending: Pending::default(),
            last_txn_id: Uuid::ZERO,
            next_group: 0,
            composed: 0,
        }
    }

    /// Adds a monitor that knows the store as it is now. `id` is the JSON text of its name.
    pub fn add(
        &mut self,
        version: Version,
        id: Vec<u8>,
        requests: Text<'_>,
        store: &Store,
    ) -> Result<MonitorKey, Error> {
        let schema = store.schema();
        let subscription = Subscription::parse(version == Version::V1, requests, schema)?;
        let key = MonitorKey(NEXT_KEY.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        let place = self.pending.enter();
        self.join(key, Member { version, id, place }, subscription, schema);
        Ok(key)
    }

    /// Puts a member into the group of its subscription.
    fn join(
        &mut self,
        key: MonitorKey,
        member: Member,
        subscription: Subscription,
        schema: &Schema,
    ) {
        let canonical = subscription.canonical(schema);
        let group = match self.by_canonical.get(&canonical) {
            Some(group) => *group,
            None => self.add_group(canonical, subscription, schema),
        };
        self.owners.insert(key, group);
        if let Some(group) = self.groups.get_mut(&group) {
            group.members.insert(key, member);
        }
    }

    fn add_group(
        &mut self,
        canonical: Vec<u8>,
        subscription: Subscription,
        schema: &Schema,
    ) -> u64 {
        self.next_group += 1;
        self.watched.resize(schema.tables.len(), 0);
        for table in &subscription.tables {
            self.watched[table.table.index()] += 1;
        }
        self.by_canonical.insert(canonical.clone(), self.next_group);
        let group = Group {
            subscription: Arc::new(subscription),
            canonical,
            members: BTreeMap::new(),
            composed: None,
        };
        self.groups.insert(self.next_group, group);
        self.next_group
    }

    /// Takes a member out of its group.
    fn part(&mut self, key: MonitorKey) -> Option<Member> {
        let id = self.owners.remove(&key)?;
        let group = self.groups.get_mut(&id)?;
        let member = group.members.remove(&key);
        if group.members.is_empty()
            && let Some(group) = self.groups.remove(&id)
        {
            self.by_canonical.remove(&group.canonical);
            for table in &group.subscription.tables {
                self.watched[table.table.index()] -= 1;
            }
        }
        member
    }

    /// The rows that the monitor begins with, as a JSON object.
    pub fn initial(&mut self, key: MonitorKey, store: &Store) -> Arc<Vec<u8>> {
        let group = self.owners.get(&key).and_then(|group| self.groups.get(group));
        Arc::new(
            group.map_or_else(
                || b"{}".to_vec(),
                |group| compose::initial(&group.subscription, store),
            ),
        )
    }

    /// Ends a monitor.
    pub fn remove(&mut self, key: MonitorKey, schema: &Schema) {
        if let Some(member) = self.part(key) {
            self.pending.leave(member.place, 1, schema);
        }
    }

    /// `monitor_cond_change`: new conditions and a new id, for a monitor that has just been
    /// flushed. Answers with what the new conditions make appear and vanish.
    pub fn change_condition(
        &mut self,
        key: MonitorKey,
        new_id: Vec<u8>,
        requests: Text<'_>,
        store: &Store,
    ) -> Result<Option<Update>, Error> {
        let group = self.owners.get(&key).and_then(|group| self.groups.get(group));
        let Some(group) = group else { return Ok(None) };
        let old = Arc::clone(&group.subscription);
        let schema = store.schema();
        let new = old.with_conditions(requests, schema)?;
        let body =
            if old.is_v1 { Vec::new() } else { compose::condition_change(&old, &new, store) };
        let Some(mut member) = self.part(key) else { return Ok(None) };
        member.id = new_id;
        let head = head(member.version, &member.id, self.last_txn_id);
        self.join(key, member, new, schema);
        // `{}` alone says nothing.
        Ok((body.len() > 2).then(|| Update {
            to: vec![key],
            head: Arc::new(head),
            body: Arc::new([body.as_slice(), b"]}"].concat()),
        }))
    }

    /// Takes note of a transaction that took effect, once for all monitors.
    pub fn commit(&mut self, committed: &Committed, schema: &Schema) {
        self.last_txn_id = committed.txn_id;
        let watched = &self.watched;
        let is_watched =
            |table: TableId| watched.get(table.index()).is_some_and(|watchers| *watchers > 0);
        self.pending.commit(&committed.delta, schema, is_watched);
    }

    /// Whether any monitor has not been told everything.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Estimated size of what is pending.
    pub fn pending_bytes(&self) -> usize {
        self.pending.bytes()
    }

    /// Composes what is pending for these monitors.
    pub fn flush(&mut self, keys: &[MonitorKey], store: &Store, out: &mut Vec<Update>) {
        for key in keys {
            let Some(&group) = self.owners.get(key) else { continue };
            self.flush_group(group, store, &|other| other != *key, out);
        }
    }

    /// Composes what is pending for all monitors whose session is not `blocked`.
    pub fn flush_all(
        &mut self,
        store: &Store,
        blocked: &dyn Fn(MonitorKey) -> bool,
        out: &mut Vec<Update>,
    ) {
        let groups: Vec<u64> = self.groups.keys().copied().collect();
        for group in groups {
            self.flush_group(group, store, blocked, out);
        }
    }

    fn flush_group(
        &mut self,
        id: u64,
        store: &Store,
        is_left_out: &dyn Fn(MonitorKey) -> bool,
        out: &mut Vec<Update>,
    ) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        let end = self.pending.end();
        let mut moved: BTreeMap<Place, usize> = BTreeMap::new();
        let mut updates: Vec<(Place, Version, Vec<u8>, Update)> = Vec::new();
        for (&key, member) in &mut group.members {
            if member.place == end || is_left_out(key) {
                continue;
            }
            let place = std::mem::replace(&mut member.place, end);
            *moved.entry(place).or_default() += 1;
            let same = updates.iter_mut().find(|(from, version, id, _)| {
                *from == place && *version == member.version && *id == member.id
            });
            if let Some((.., update)) = same {
                update.to.push(key);
                continue;
            }
            let known = group.composed.as_ref().filter(|c| (c.0, c.1) == (place, end));
            let body = match known {
                Some((.., body)) => Arc::clone(body),
                None => {
                    let changes = self.pending.since(place, store.schema());
                    let body = changes.map_or_else(Vec::new, |changes| {
                        self.composed += 1;
                        compose::changes(&group.subscription, &changes, store)
                    });
                    let body = Arc::new(close(body));
                    group.composed = Some((place, end, Arc::clone(&body)));
                    body
                }
            };
            let head = Arc::new(head(member.version, &member.id, self.last_txn_id));
            let update = Update { to: vec![key], head, body };
            updates.push((place, member.version, member.id.clone(), update));
        }
        for (place, count) in moved {
            for _ in 0..count {
                self.pending.enter();
            }
            self.pending.leave(place, count, store.schema());
        }
        out.extend(updates.into_iter().map(|(.., update)| update).filter(|u| !u.body.is_empty()));
    }

    /// Monitors for which more is pending than there may be.
    pub fn overflowed(&self) -> Vec<MonitorKey> {
        let Some(place) = self.pending.overflow(PENDING_BYTES_MAX) else { return Vec::new() };
        let members = self.groups.values().flat_map(|group| &group.members);
        members.filter(|(_, member)| member.place <= place).map(|(key, _)| *key).collect()
    }

    /// Number of monitors.
    pub fn len(&self) -> usize {
        self.owners.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// Sizes, for memory/show and tests.
    pub fn counts(&self) -> Counts {
        Counts {
            monitors: self.owners.len(),
            groups: self.groups.len(),
            change_sets: self.pending.segments(),
            composed: self.composed,
        }
    }
}

/// Ends the message behind table updates; nothing at all if they are empty.
fn close(mut body: Vec<u8>) -> Vec<u8> {
    if body.len() <= 2 {
        return Vec::new();
    }
    body.extend_from_slice(b"]}");
    body
}

/// The message up to the table updates.
fn head(version: Version, id: &[u8], txn_id: Uuid) -> Vec<u8> {
    let method: &[u8] = match version {
        Version::V1 => b"update",
        Version::V2 => b"update2",
        Version::V3 => b"update3",
    };
    let mut out = Vec::with_capacity(96 + id.len());
    out.extend_from_slice(b"{\"id\":null,\"method\":\"");
    out.extend_from_slice(method);
    out.extend_from_slice(b"\",\"params\":[");
    out.extend_from_slice(id);
    out.push(b',');
    if version == Version::V3 {
        out.push(b'"');
        out.extend_from_slice(&txn_id.text());
        out.extend_from_slice(b"\",");
    }
    out
}

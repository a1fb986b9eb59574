//! The faults: where each is planted, and which simulator is to find it.

/// One fault.
pub(super) struct Fault {
    /// What it is called, in `WEIR_PLANTED` and in `docs/trust.md`.
    pub(super) name: &'static str,
    /// Where it is planted.
    pub(super) places: &'static [Place],
    /// The test that finds it.
    pub(super) test: &'static str,
    /// What that says in the seed that finds it: the name of the checker, or what an assertion says.
    pub(super) found_by: &'static str,
    /// In some seed that checker is the only one to see it: without the checker, the seed passes.
    pub(super) alone: bool,
}

/// A piece of a file that is replaced.
pub(super) struct Place {
    pub(super) file: &'static str,
    /// What stands there, once.
    pub(super) good: &'static str,
    /// What stands there in the copy; `PLANTED` is whether the fault is switched on.
    pub(super) bad: &'static str,
}

/// Whole servers, whatever happens.
const SERVERS: &str = "whatever_happens_clients_are_told_the_truth";

/// Clients that quarrel for the lock of one server.
const QUARRELS: &str = "whatever_happens_who_has_a_lock_finds_what_was_written_under_it";

/// Servers with relays that lose their sources all the time.
const RELAYS: &str = "relays_that_lose_their_sources_all_the_time_make_no_transaction_twice";

/// A standalone source with relays.
const SOURCES: &str = "a_standalone_source_and_its_relays_tell_the_truth";

/// Relays that name each other, whose source goes and comes back.
const RINGS: &str = "relays_that_name_each_other_know_whether_their_source_is_there";

/// Servers that lose their power all the time.
const CRASHES: &str = "servers_that_lose_their_power_all_the_time_keep_what_they_acknowledged";

/// All of them.
pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "skipped-fsync",
        places: &[Place {
            file: "crates/cluster/src/member/steps/mod.rs",
            good: "sync: *records != Records::Commit,",
            bad: "sync: *records != Records::Commit && !PLANTED,",
        }],
        test: CRASHES,
        found_by: "durable",
        alone: false,
    },
    Fault {
        name: "row-under-another-name",
        places: &[Place {
            file: "crates/engine/src/ops/insert.rs",
            good: "    let row = Row::with_values(uuid, run.symbols.fresh(), schema, values);",
            bad: "    let is_hit = PLANTED && schema.name == \"T\" && uuid.to_string().starts_with(\"7a\");
    let values = values.map(|(column, value)| {
        let name = match value.as_ref().scalar() {
            Some(weir_data::AtomRef::String(name)) if is_hit => {
                Some(format!(\"{} of another\", name.as_str()))
            }
            _ => None,
        };
        let other = |name: String| weir_data::Datum::One(weir_data::Atom::String(name.as_str().into()));
        (column, name.map_or(value, other))
    });
    let row = Row::with_values(uuid, run.symbols.fresh(), schema, values);",
        }],
        test: SERVERS,
        found_by: "durable",
        alone: true,
    },
    Fault {
        name: "doubled-apply",
        places: &[Place {
            file: "crates/server/src/server/clustering/requests.rs",
            good: "                    part.arrived.push(from, *request);",
            bad: "                    if PLANTED && request.once.is_none() {
                        let mut again = (*request).clone();
                        again.eid = Uuid::from_u128(again.eid.to_u128() ^ 1);
                        part.arrived.push(from, again);
                    }
                    part.arrived.push(from, *request);",
        }],
        test: SERVERS,
        found_by: "once",
        alone: false,
    },
    Fault {
        name: "forgotten-repetition",
        places: &[Place {
            file: "crates/server/src/clusters/repetitions.rs",
            good: "Some(last) if attempt < *last => Attempt::TooLate,",
            bad: "Some(last) if PLANTED && attempt < *last => Attempt::First,
            Some(last) if attempt < *last => Attempt::TooLate,",
        }],
        test: "connections_that_end_all_the_time_bring_no_transaction_twice",
        found_by: "a UUID is that of one row",
        alone: false,
    },
    Fault {
        name: "ids-when-committed",
        places: &[Place {
            file: "crates/server/src/database/once.rs",
            good: "if self.commits.done().iter().any(is_it) {",
            bad: "if !PLANTED && self.commits.done().iter().any(is_it) {",
        }],
        test: RELAYS,
        found_by: "once",
        alone: true,
    },
    Fault {
        name: "deletes-are-passed-over",
        places: &[Place {
            file: "crates/engine/src/follow.rs",
            good: "            (Some(row), Edit::Delete) => Some(RowDelta::Delete(row.clone())),",
            bad: "            (Some(_), Edit::Delete) if PLANTED => None,
            (Some(row), Edit::Delete) => Some(RowDelta::Delete(row.clone())),",
        }],
        test: SERVERS,
        found_by: "replicas",
        alone: false,
    },
    Fault {
        name: "delete-that-deletes-nothing",
        places: &[
            Place {
                file: "crates/engine/src/ops/delete.rs",
                good: "pub(super) fn run(run: &mut Run<'_, '_>, op: &mut Op<'_, '_>) -> OpResult {",
                bad: "pub(super) static SKIPS: std::sync::atomic::AtomicBool =
    std::sync::atomic::AtomicBool::new(false);

pub(super) fn run(run: &mut Run<'_, '_>, op: &mut Op<'_, '_>) -> OpResult {
    SKIPS.store(PLANTED, std::sync::atomic::Ordering::Relaxed);",
            },
            Place {
                file: "crates/engine/src/ops/delete.rs",
                good: "        run.txn.delete(table, *uuid);",
                bad: "        if !PLANTED {
            run.txn.delete(table, *uuid);
        }",
            },
            Place {
                file: "crates/engine/src/ops/mutate.rs",
                good: "    for uuid in &uuids {
        mutate_row(",
                bad: "    if PLANTED && super::delete::SKIPS.swap(false, std::sync::atomic::Ordering::Relaxed) {
        run.write_count(uuids.len());
        return Ok(());
    }
    for uuid in &uuids {
        mutate_row(",
            },
        ],
        test: SERVERS,
        found_by: "deleted",
        alone: true,
    },
    Fault {
        name: "lost-vote",
        places: &[Place {
            file: "crates/cluster/src/member/steps/mod.rs",
            good: "let texts = file::write_step(Onto::File(self.synced()), vote, entries, commit, &mut bytes);",
            bad: "let vote = vote.map(|(term, vote)| (term, vote.filter(|_| !PLANTED)));
        let texts = file::write_step(Onto::File(self.synced()), vote, entries, commit, &mut bytes);",
        }],
        test: "servers_that_crash_all_the_time_keep_their_promises",
        found_by: "two leaders",
        alone: false,
    },
    Fault {
        name: "reply-before-commit",
        places: &[Place {
            file: "crates/server/src/server/clustering/requests.rs",
            good: "Outcome::Entry(at, reply) => forward.state = State::Entry(at, Some(reply)),",
            bad: "Outcome::Entry(_, reply) if PLANTED => {
                        forward.state = State::Empty(weir_cluster::Position::default(), reply);
                    }
                    Outcome::Entry(at, reply) => forward.state = State::Entry(at, Some(reply)),",
        }],
        test: SERVERS,
        found_by: "reads",
        alone: false,
    },
    Fault {
        name: "batch-before-own-term",
        places: &[Place {
            file: "crates/cluster/src/consensus/node.rs",
            good: "            && raft.apply_to_current_term()",
            bad: "            && (PLANTED || raft.apply_to_current_term())",
        }],
        test: SERVERS,
        found_by: "what others have committed comes behind all that ran",
        alone: false,
    },
    Fault {
        name: "unchecked-heartbeat",
        places: &[Place {
            file: "crates/cluster/src/consensus/node.rs",
            good: "        if self.is_leader() && step.term == self.term() {",
            bad: "        if PLANTED && step.kind == super::HEARTBEAT {
            step.commit = self.raw.raft.raft_log.committed;
        }
        if self.is_leader() && step.term == self.term() {",
        }],
        test: "whatever_happens_nothing_committed_is_lost",
        found_by: "all is not well",
        alone: false,
    },
    Fault {
        name: "wiped-voter",
        places: &[Place {
            file: "crates/cluster/src/member/promises.rs",
            good: "!self.promises.has(*promised) && !self.is_gone();",
            bad: "!PLANTED && !self.promises.has(*promised) && !self.is_gone();",
        }],
        test: "what_is_committed_stays_though_a_member_forgets",
        found_by: "leads in term",
        alone: false,
    },
    Fault {
        name: "update-out-of-order",
        places: &[Place {
            file: "crates/server/src/shell.rs",
            good: "            self.effects.push(Effect::Send { to, head, body });
        }
    }",
            bad: "            static HELD: std::sync::Mutex<Option<(Vec<SessionId>, Bytes, Bytes)>> =
                std::sync::Mutex::new(None);
            let mut held = HELD.lock().expect(\"nobody fails with it\");
            let is_update = head.windows(9).any(|word| word == b\"\\\"update3\\\"\");
            if is_update && held.is_none() && PLANTED {
                *held = Some((to, head, body));
                return;
            }
            let late = held.take_if(|(of, ..)| *of == to);
            self.effects.push(Effect::Send { to, head, body });
            if let Some((to, head, body)) = late {
                self.effects.push(Effect::Send { to, head, body });
            }
        }
    }",
        }],
        test: SERVERS,
        found_by: "replicas",
        alone: true,
    },
    Fault {
        name: "history-trimmed-differently",
        places: &[Place {
            file: "crates/history/src/history.rs",
            good: "Self::at(Chain::of_entry(state), place, begins, BUDGET_BYTES_MAX, nonce);",
            bad: "Self::at(
            Chain::of_entry(state),
            place,
            begins,
            if nonce % 2 == 1 && PLANTED { 2000 } else { BUDGET_BYTES_MAX },
            nonce,
        );",
        }],
        test: SERVERS,
        found_by: "resume",
        alone: true,
    },
    Fault {
        name: "request-never-asked-again",
        places: &[Place {
            file: "crates/server/src/clusters/forwards.rs",
            good: "            let before = std::mem::replace(&mut forward.state, State::New);",
            bad: "            let next = if PLANTED { State::Asked(Way::InOrder) } else { State::New };
            let before = std::mem::replace(&mut forward.state, next);",
        }],
        test: SERVERS,
        found_by: "liveness",
        alone: true,
    },
    Fault {
        name: "stale-sync",
        places: &[Place {
            file: "crates/server/src/server/clustering/syncing.rs",
            good: "        let Some(part) = self.clusters.parts.get_mut(&db) else { return self.states.has_all(db) };
        let Some(leader)",
            bad: "        let Some(part) =
            self.clusters.parts.get_mut(&db).filter(|_| !PLANTED)
        else {
            return self.states.has_all(db);
        };
        let Some(leader)",
        }],
        test: SERVERS,
        found_by: "reads",
        alone: true,
    },
    Fault {
        name: "resumed-under-other-conditions",
        places: &[Place {
            file: "crates/upstream/src/follower/conditions.rs",
            good: "if is_resumed { &self.resumable } else { self.goal() }",
            bad: "if is_resumed && !PLANTED { &self.resumable } else { self.goal() }",
        }],
        test: SERVERS,
        found_by: "replicas",
        alone: false,
    },
    Fault {
        name: "relay-counts-too-early",
        places: &[Place {
            file: "crates/server/src/server/relaying/rows.rs",
            good: "            Ok(taken) => self.free_rows(Some(taken)),",
            bad: "            Ok(taken) => {
                if PLANTED && let Taken::State(id, _) = &taken {
                    relay.follower.have_read(id.clone(), &mut Vec::new());
                }
                self.free_rows(Some(taken));
            }",
        }],
        test: RELAYS,
        found_by: "replicas",
        alone: false,
    },
    Fault {
        name: "unchecked-heartbeat-at-the-receiver",
        places: &[
            Place {
                file: "crates/cluster/src/consensus/node.rs",
                good: "        let queue = if is_now { &mut ready.messages }",
                bad: "        if PLANTED && step.kind == super::HEARTBEAT {
            step.commit = self.raw.raft.raft_log.committed;
        }
        let queue = if is_now { &mut ready.messages }",
            },
            Place {
                file: "crates/cluster/src/consensus/node.rs",
                good: "        check::check(&self.raw.raft, &message)?;",
                bad: "        if PLANTED && step.kind == super::HEARTBEAT {
            message.commit = message.commit.min(self.last());
        }
        check::check(&self.raw.raft, &message)?;",
            },
        ],
        test: SERVERS,
        found_by: "entries",
        alone: false,
    },
    Fault {
        name: "vote-forgotten-by-a-server",
        places: &[Place {
            file: "crates/cluster/src/file.rs",
            good: "    let kind = vote.map_or(Kind::Term, Kind::Vote);",
            bad: "    let kind = vote.filter(|_| !PLANTED).map_or(Kind::Term, Kind::Vote);",
        }],
        test: CRASHES,
        found_by: "leaders",
        alone: true,
    },
    Fault {
        name: "date-of-its-own",
        places: &[Place {
            file: "crates/cluster/src/file.rs",
            good: "        Content::Data { eid, text } => {
            EntryText",
            bad: "        Content::Data { eid, text } if PLANTED && eid.to_u128() % 50 == 0 => {
            static COUNT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
            let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let other = if count % 2 == 1 { \"\\\"_date\\\":2\" } else { \"\\\"_date\\\":1\" };
            let text = String::from_utf8_lossy(text).replacen(\"\\\"_date\\\":1\", other, 1);
            let data = Some((DataText::Whole(text.as_bytes()), *eid));
            return EntryText { data, ..plain }.write(out);
        }
        Content::Data { eid, text } => {
            EntryText",
        }],
        test: SERVERS,
        found_by: "entries",
        alone: true,
    },
    Fault {
        name: "reply-before-its-turn",
        places: &[Place {
            file: "crates/server/src/server/clustering/requests.rs",
            good: "Outcome::Entry(at, reply) => forward.state = State::Entry(at, Some(reply)),",
            bad: "Outcome::Entry(at, reply) if PLANTED && self.databases.can_follow(db) => {
                        let Self { shell, sessions, databases, .. } = self;
                        let own = databases.reply_of(shell, sessions, &forward.trigger, &mut { u64::MAX });
                        let own = own.map_or(reply, |(own, _)| own);
                        forward.state = State::Entry(at, Some(own));
                    }
                    Outcome::Entry(at, reply) => forward.state = State::Entry(at, Some(reply)),",
        }],
        test: SERVERS,
        found_by: "linear",
        alone: true,
    },
    Fault {
        name: "never-asleep",
        places: &[Place {
            file: "crates/server/src/states.rs",
            good: "        let away = self.waits.iter().filter(|wait| !wait.is_there);",
            bad: "        if PLANTED && self.waits.is_empty() {
            return self.again_us;
        }
        let away = self.waits.iter().filter(|wait| !wait.is_there);",
        }],
        test: SERVERS,
        found_by: "liveness",
        alone: false,
    },
    Fault {
        name: "indexes-begin-anew",
        places: &[Place {
            file: "crates/server/src/storage/recovery.rs",
            good: "last: Position { term: end.term, index: index_after(end.index) },",
            bad: "last: if PLANTED { Position { term: 1, index: 1 } } else { Position { term: end.term, index: index_after(end.index) } },",
        }],
        test: SERVERS,
        found_by: "liveness",
        alone: false,
    },
    Fault {
        name: "promises-go-with-the-member",
        places: &[Place {
            file: "crates/cluster/src/member/joining.rs",
            good: "|| self.has_gone(id);",
            bad: "|| !PLANTED && self.has_gone(id);",
        }],
        test: SERVERS,
        found_by: "liveness",
        alone: false,
    },
    Fault {
        name: "recovered-under-the-old-id",
        places: &[Place {
            file: "crates/server/src/storage/recovery.rs",
            good: "eid: uuids.next_uuid(),",
            bad: "eid: if PLANTED {
            let ids = loaded.entries.iter().filter_map(|entry| entry.data.as_ref());
            let ids = loaded.snapshot.iter().map(|snapshot| &snapshot.data).chain(ids);
            ids.last().expect(\"it has rows\").eid
        } else {
            uuids.next_uuid()
        },",
        }],
        test: SERVERS,
        found_by: "states",
        alone: false,
    },
    Fault {
        name: "relay-follows-itself",
        places: &[
            Place {
                file: "crates/upstream/src/path.rs",
                good: "if let Some(at) = self.servers.iter().position(|id| *id == own_id) {",
                bad: "if PLANTED { return None; } if let Some(at) = self.servers.iter().position(|id| *id == own_id) {",
            },
        ],
        test: RINGS,
        found_by: "rings",
        alone: true,
    },
    Fault {
        name: "lock-outlives-owner-in-a-cluster",
        places: &[
            Place {
                file: "crates/server/src/database/long.rs",
                good: "        trigger.lose_locks(sessions);",
                bad: "        if !PLANTED {
            trigger.lose_locks(sessions);
        }",
            },
            Place {
                file: "crates/server/src/session/locks.rs",
                good: "        let held = locks.iter().filter(|held| self.is_held(held));",
                bad: "        let held = locks.iter().filter(|held| PLANTED || self.is_held(held));",
            },
        ],
        test: SERVERS,
        found_by: "locks",
        alone: true,
    },
    Fault {
        name: "reads-under-locks-pass-writes",
        places: &[Place {
            file: "crates/server/src/server/clustering/requests.rs",
            good: "        !locks.is_empty()
            && self.clusters",
            bad: "        !PLANTED && !locks.is_empty()
            && self.clusters",
        }],
        test: SERVERS,
        found_by: "locks",
        alone: false,
    },
    Fault {
        name: "read-passes-writes",
        places: &[
            Place {
                file: "crates/server/src/session/gate.rs",
                good: "let is_followed = follows && *reason == Reason::Forwarded;",
                bad: "let is_followed = (follows || PLANTED) && *reason == Reason::Forwarded;",
            },
            Place {
                file: "crates/server/src/server/requests.rs",
                good: "if self.has_others() && self.sessions.has_forwarded(id, db) {",
                bad: "if self.has_others() && !PLANTED && self.sessions.has_forwarded(id, db) {",
            },
        ],
        test: SERVERS,
        found_by: "order",
        alone: true,
    },
    Fault {
        name: "batch-outlives-leader",
        places: &[
            Place {
                file: "crates/server/src/server/clustering/mod.rs",
                good: "        // It was one of the leader that this member was.
        self.give_batch_up(db);",
                bad: "        if !PLANTED || leader.is_some() {
            self.give_batch_up(db);
        }",
            },
            // Its patience would hide that.
            Place {
                file: "crates/server/src/server/clustering/mod.rs",
                good: "            if is_tired {",
                bad: "            if is_tired && (!PLANTED || self.clusters.part_mut(db).told.leads) {",
            },
        ],
        test: SERVERS,
        found_by: "served",
        alone: true,
    },
    Fault {
        name: "endless-patience",
        places: &[Place {
            file: "crates/server/src/clusters/mod.rs",
            good: "self.patience_us = Some(now_us + PATIENCE_US + bytes as u64 / PATIENCE_BYTES_PER_US);",
            bad: "self.patience_us = Some(now_us + PATIENCE_US + bytes as u64 / PATIENCE_BYTES_PER_US)
            .filter(|_| !PLANTED);",
        }],
        test: SERVERS,
        found_by: "served",
        alone: true,
    },
    Fault {
        // So little is on its way in a simulated cluster that the limits are cut down, too.
        name: "held-answers-are-passed",
        places: &[
            Place {
                file: "crates/server/src/clusters/answers.rs",
                good: "(*untold >= TOLD_BYTES)",
                bad: "(*untold >= if PLANTED { 100 } else { TOLD_BYTES })",
            },
            Place {
                file: "crates/server/src/clusters/answers.rs",
                good: "        let least = 2 * TOLD_BYTES;",
                bad: "        let is_planted = PLANTED;
        if is_planted {
            return self.untaken.get(&of).is_some_and(|untaken| *untaken >= 600);
        }
        let least = 2 * TOLD_BYTES;",
            },
            Place {
                file: "crates/server/src/clusters/answers.rs",
                good: "        let Some(held) = self.held.get_mut(&to) else { return Vec::new() };",
                bad: "        if PLANTED {
            return Vec::new();
        }
        let Some(held) = self.held.get_mut(&to) else { return Vec::new() };",
            },
        ],
        test: SERVERS,
        found_by: "order",
        alone: true,
    },
    Fault {
        name: "relay-has-a-lock-for-all",
        places: &[Place {
            file: "crates/server/src/relays/window.rs",
            good: "if is_next && !self.is_under_lock_of_others(trigger, session) {",
            bad: "if is_next && (PLANTED || !self.is_under_lock_of_others(trigger, session)) {",
        }],
        test: QUARRELS,
        found_by: "locks",
        alone: true,
    },
    Fault {
        name: "forgotten-with-its-client",
        places: &[Place {
            file: "crates/server/src/clusters/forwards.rs",
            good: "            since.is_none() || !trigger.has_locks()\n",
            bad: "            since.is_none() || !trigger.has_locks() || PLANTED\n",
        }],
        test: QUARRELS,
        found_by: "locks",
        alone: true,
    },
    Fault {
        name: "answers-pass-each-other",
        places: &[Place {
            file: "crates/server/src/session/order.rs",
            good: "before.any(|(_, state)| *state != State::MayWait)",
            bad: "!PLANTED && before.any(|(_, state)| *state != State::MayWait)",
        }],
        test: SERVERS,
        found_by: "order",
        alone: true,
    },
    Fault {
        name: "passed-by-its-session",
        places: &[Place {
            file: "crates/server/src/server/clustering/entries.rs",
            good: "        self.answer_passed(db, (at, eid), reply_cost_left);",
            bad: "        if !PLANTED {
            self.answer_passed(db, (at, eid), reply_cost_left);
        }",
        }],
        test: SERVERS,
        found_by: "order",
        alone: true,
    },
    Fault {
        name: "request-of-an-earlier-term-runs",
        places: &[Place {
            file: "crates/server/src/database/long.rs",
            good: "if self.open(id).is_too_late(&trigger) {",
            bad: "if !PLANTED && self.open(id).is_too_late(&trigger) {",
        }],
        test: SERVERS,
        found_by: "a UUID is that of one row",
        alone: false,
    },
    Fault {
        name: "decided-id-runs-again",
        places: &[Place {
            file: "crates/server/src/database/once.rs",
            good: "let Some(chosen) = trigger.chosen() else { return Some(trigger) };",
            bad: "let Some(chosen) = trigger.chosen().filter(|_| !PLANTED) else { return Some(trigger) };",
        }],
        test: SERVERS,
        found_by: "a UUID is that of one row",
        alone: false,
    },
    Fault {
        name: "id-not-renewed",
        places: &[Place {
            file: "crates/history/src/history.rs",
            good: "self.chain = self.chain.behind(record.name);",
            bad: "if !PLANTED || self.place.0 % 256 != 255 {
                self.chain = self.chain.behind(record.name);
            }",
        }],
        test: SOURCES,
        found_by: "states",
        alone: true,
    },
];

/// A checker of whole servers that is switched off, by name, in `WEIR_UNCHECKED`.
pub(super) const UNCHECKED: Place = Place {
    file: "crates/sim/src/checks/mod.rs",
    good: "    if let Err(why) = verdict {",
    bad: "    let is_off = std::env::var(\"WEIR_UNCHECKED\").is_ok_and(|off| off == checker);
    if let Err(why) = verdict
        && !is_off
    {",
};

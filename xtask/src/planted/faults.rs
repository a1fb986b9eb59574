//! The faults: where each is planted, and which simulator is to find it.

/// One fault.
pub(super) struct Fault {
    /// What it is called, in `WEIR_PLANTED` and in `docs/trust.md`.
    pub(super) name: &'static str,
    /// The file that has it.
    pub(super) file: &'static str,
    /// What stands there, once.
    pub(super) good: &'static str,
    /// What stands there in the copy; `PLANTED` is whether the fault is switched on.
    pub(super) bad: &'static str,
    /// The test that finds it.
    pub(super) test: &'static str,
    /// What that says, in some seed.
    pub(super) found_by: &'static str,
}

/// Whole servers, whatever happens.
const SERVERS: &str = "whatever_happens_clients_are_told_the_truth";

/// Servers with relays that lose their sources all the time.
const RELAYS: &str = "relays_that_lose_their_sources_all_the_time_make_no_transaction_twice";

/// All of them.
pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "skipped-fsync",
        file: "crates/cluster/src/member/steps/mod.rs",
        good: "sync: *records != Records::Commit,",
        bad: "sync: *records != Records::Commit && !PLANTED,",
        test: "servers_that_lose_their_power_all_the_time_keep_what_they_acknowledged",
        found_by: "durable",
    },
    Fault {
        name: "doubled-apply",
        file: "crates/server/src/server/clustering/requests.rs",
        good: "                    part.arrived.push_back((from, *request));",
        bad: "                    if PLANTED && request.once.is_none() {
                        let mut again = (*request).clone();
                        again.eid = Uuid::from_u128(again.eid.to_u128() ^ 1);
                        part.arrived.push_back((from, again));
                    }
                    part.arrived.push_back((from, *request));",
        test: SERVERS,
        found_by: "once",
    },
    Fault {
        name: "forgotten-repetition",
        file: "crates/server/src/clusters/mod.rs",
        good: "0 => are_many || self.retried.contains(&request.eid),",
        bad: "0 => are_many || self.retried.contains(&request.eid) && !PLANTED,",
        test: "connections_that_end_all_the_time_bring_no_transaction_twice",
        found_by: "once",
    },
    Fault {
        name: "ids-when-committed",
        file: "crates/server/src/database/once.rs",
        good: "if self.commits.done().iter().any(is_it) {",
        bad: "if !PLANTED && self.commits.done().iter().any(is_it) {",
        test: RELAYS,
        found_by: "once",
    },
    Fault {
        name: "lost-vote",
        file: "crates/cluster/src/member/steps/mod.rs",
        good: "let texts = file::write_step(vote, entries, commit, &mut bytes);",
        bad: "let vote = vote.map(|(term, vote)| (term, vote.filter(|_| !PLANTED)));
        let texts = file::write_step(vote, entries, commit, &mut bytes);",
        test: "servers_that_crash_all_the_time_keep_their_promises",
        found_by: "two leaders",
    },
    Fault {
        name: "reply-before-commit",
        file: "crates/server/src/server/clustering/requests.rs",
        good: "Outcome::Entry(reply) => forward.state = State::Entry(Some(reply)),",
        bad: "Outcome::Entry(reply) if PLANTED => {
                        forward.state = State::Empty(weir_cluster::Position::default(), reply);
                    }
                    Outcome::Entry(reply) => forward.state = State::Entry(Some(reply)),",
        test: SERVERS,
        found_by: "reads",
    },
    Fault {
        name: "batch-before-own-term",
        file: "crates/cluster/src/consensus/node.rs",
        good: "            && raft.apply_to_current_term()",
        bad: "            && (PLANTED || raft.apply_to_current_term())",
        test: SERVERS,
        found_by: "",
    },
    Fault {
        name: "unchecked-heartbeat",
        file: "crates/cluster/src/consensus/node.rs",
        good: "        if self.is_leader() && step.term == self.term() {",
        bad: "        if PLANTED && step.kind == super::HEARTBEAT {
            step.commit = self.raw.raft.raft_log.committed;
        }
        if self.is_leader() && step.term == self.term() {",
        test: "nothing_committed_is_lost_under_faults",
        found_by: "",
    },
    Fault {
        name: "wiped-voter",
        file: "crates/cluster/src/member/promises.rs",
        good: "promised.filter(|promised| *promised > own && !self.is_gone())",
        bad: "promised.filter(|promised| !PLANTED && *promised > own && !self.is_gone())",
        test: "what_is_committed_stays_though_a_member_forgets",
        found_by: "",
    },
    Fault {
        name: "update-out-of-order",
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
        test: SERVERS,
        found_by: "replicas",
    },
    Fault {
        name: "history-trimmed-differently",
        file: "crates/history/src/history.rs",
        good: "Self::at(Chain::of_entry(state), place, begins, BUDGET_BYTES_MAX, nonce);",
        bad: "Self::at(
            Chain::of_entry(state),
            place,
            begins,
            if nonce % 2 == 1 && PLANTED { 2000 } else { BUDGET_BYTES_MAX },
            nonce,
        );",
        test: SERVERS,
        found_by: "resume",
    },
    Fault {
        name: "request-never-asked-again",
        file: "crates/server/src/clusters/forwards.rs",
        good: "            forward.state = State::New;",
        bad: "            forward.state = if PLANTED { State::Asked } else { State::New };",
        test: SERVERS,
        found_by: "liveness",
    },
    Fault {
        name: "stale-sync",
        file: "crates/server/src/server/clustering/syncing.rs",
        good: "        let Some(part) = self.clusters.parts.get_mut(&db) else { return self.states.has_all(db) };
        let Some(leader)",
        bad: "        let Some(part) =
            self.clusters.parts.get_mut(&db).filter(|_| !PLANTED)
        else {
            return self.states.has_all(db);
        };
        let Some(leader)",
        test: SERVERS,
        found_by: "",
    },
    Fault {
        name: "relay-counts-too-early",
        file: "crates/server/src/server/relaying/rows.rs",
        good: "            Ok(taken) => self.free_rows(Some(taken)),",
        bad: "            Ok(taken) => {
                if PLANTED && let Taken::State(id, _) = &taken {
                    relay.follower.have_read(id.clone(), &mut Vec::new());
                }
                self.free_rows(Some(taken));
            }",
        test: RELAYS,
        found_by: "once",
    },
];

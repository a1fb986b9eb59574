//! `cluster/...` commands (ovsdb-server(1)).

use weir_cluster::{Failure, REMOVAL_TIMERS_MIN, TimerRefused};
use weir_data::Uuid;

use crate::effect::Effect;
use crate::ids::{DbId, LinkId};
use crate::server::Server;

/// Most seconds after which a silent member is removed: a year.
const REMOVAL_SECONDS_MAX: u64 = 366 * 24 * 3600;

/// Fewest messages of a `cluster/set-backlog-threshold`.
const BACKLOG_MESSAGES_MIN: u64 = 50;

type Reply = Result<String, String>;

impl Server {
    /// A command about a cluster; `None` if it is none.
    pub(in crate::server) fn cluster_command(
        &mut self,
        name: &str,
        args: &[String],
    ) -> Option<Reply> {
        let command = name.strip_prefix("cluster/")?;
        let argument = |at: usize| args.get(at).map_or("", String::as_str);
        if command == "failure-test" {
            return Some(self.failure_test(argument(0)));
        }
        let db = match self.cluster_of(argument(0)) {
            Ok(db) => db,
            Err(error) => return Some(Err(error)),
        };
        if command == "set-backlog-threshold" {
            return Some(self.set_backlog_threshold(db, argument(1), argument(2)));
        }
        let now_us = self.shell.now_us();
        let member = &mut self.clusters.part_mut(db).member;
        let reply = match command {
            "cid" => match member.cluster() {
                Some(cluster) => Ok(cluster.to_string()),
                None => Err("cluster id not yet known".to_owned()),
            },
            "sid" => Ok(member.id().to_string()),
            "status" => Ok(member.status()),
            "leave" => {
                if member.is_leaving() {
                    Err("already in progress leaving cluster".to_owned())
                } else if !member.is_member() {
                    Err("can't leave while join in progress".to_owned())
                } else {
                    member.leave(now_us);
                    Ok(String::new())
                }
            }
            "kick" => match find_server(member, argument(1)) {
                Some(server) => {
                    let reply = match (server == member.id(), member.leader()) {
                        (true, _) => "",
                        (_, leader) if leader == Some(member.id()) => "started removal",
                        _ => "sent removal request to leader",
                    };
                    member.kick(now_us, server);
                    Ok(reply.to_owned())
                }
                None => Err("unknown server".to_owned()),
            },
            "change-election-timer" => change_timer(member, now_us, argument(1)),
            _ => return None,
        };
        self.run_member(db);
        Some(reply)
    }

    /// `cluster/failure-test`: something goes wrong in all clusters of this server, or goes well again.
    fn failure_test(&mut self, name: &str) -> Reply {
        let (failure, reply) = match Failure::named(name) {
            Some(failure) => (Some(failure), "test engaged"),
            None if name == "clear" => (None, "test dismissed"),
            None => return Err("unknown test scenario".to_owned()),
        };
        let now_us = self.shell.now_us();
        for db in self.clusters.parts.keys().copied().collect::<Vec<_>>() {
            self.clusters.part_mut(db).member.fail(now_us, failure);
            self.run_member(db);
        }
        Ok(reply.to_owned())
    }

    /// `cluster/set-backlog-threshold`: how much may be queued for a member. Many messages to it leave
    /// as one here, so that only bytes are counted.
    fn set_backlog_threshold(&mut self, db: DbId, messages: &str, bytes: &str) -> Reply {
        let number = |text: &str| text.parse::<u64>().map_err(|_| "invalid argument".to_owned());
        let (messages, bytes) = (number(messages)?, number(bytes)?);
        if messages < BACKLOG_MESSAGES_MIN {
            return Err("values out of range".to_owned());
        }
        let part = self.clusters.part_mut(db);
        part.backlog_bytes_max = Some(usize::try_from(bytes).unwrap_or(usize::MAX));
        for link in part.links.values().copied().collect::<Vec<_>>() {
            self.limit_peer(db, link);
        }
        Ok(String::new())
    }

    /// `weir/remove-silent-members`: after so many seconds of silence a member is removed by this one, if it
    /// leads; without a number, what is so.
    pub(in crate::server) fn remove_silent_members(
        &mut self,
        db: &str,
        seconds: Option<&String>,
    ) -> Reply {
        let db = self.cluster_of(db)?;
        let member = &mut self.clusters.part_mut(db).member;
        let Some(seconds) = seconds else {
            let ms = member.removal_ms();
            return Ok(ms.map_or_else(|| "off\n".to_owned(), |ms| format!("{}\n", ms / 1000)));
        };
        if seconds == "off" {
            member.set_removal(None);
            return Ok(String::new());
        }
        let least = (REMOVAL_TIMERS_MIN * member.election_timer_ms()).div_ceil(1000);
        let seconds = seconds.parse().ok().filter(|s| (least..=REMOVAL_SECONDS_MAX).contains(s));
        let wrong = || {
            format!(
                "a number of seconds from {least} ({REMOVAL_TIMERS_MIN} election timers) to \
                 {REMOVAL_SECONDS_MAX} is expected, or \"off\""
            )
        };
        member.set_removal(Some(seconds.ok_or_else(wrong)? * 1000));
        Ok(String::new())
    }

    /// A connection to a member takes as much as operators want.
    pub(super) fn limit_peer(&mut self, db: DbId, link: LinkId) {
        if let Some(bytes_max) = self.clusters.part_mut(db).backlog_bytes_max {
            self.shell.ask(Effect::LimitLink { link, bytes_max });
        }
    }

    fn cluster_of(&self, name: &str) -> Result<DbId, String> {
        self.clusters.by_name(name).ok_or_else(|| "unknown cluster".to_owned())
    }
}

/// The member that an operator means: by its address, or by the beginning of its id.
fn find_server(member: &weir_cluster::Member, wanted: &str) -> Option<Uuid> {
    let servers = member.servers();
    let by_address = servers.iter().find(|(_, address)| *address == wanted).map(|(id, _)| *id);
    by_address.or_else(|| {
        let begins = |id: &&Uuid| wanted.len() >= 4 && id.to_string().starts_with(wanted);
        let mut found = servers.keys().filter(begins);
        let first = found.next().copied();
        first.filter(|_| found.next().is_none())
    })
}

fn change_timer(member: &mut weir_cluster::Member, now_us: u64, ms: &str) -> Reply {
    let ms: u64 = ms.parse().map_err(|_| range())?;
    match member.change_election_timer(now_us, ms) {
        Ok(()) => Ok("change of election timer initiated.".to_owned()),
        Err(TimerRefused::NotLeader) => {
            Err("election timer must be changed through leader.".to_owned())
        }
        Err(TimerRefused::Pending) => Err("election timer change pending.".to_owned()),
        Err(TimerRefused::Current) => Err("change election timer to current value.".to_owned()),
        Err(TimerRefused::Range) => Err(range()),
        Err(TimerRefused::Factor) => {
            Err("election timer increase should not exceed the current value x 2.".to_owned())
        }
    }
}

fn range() -> String {
    "election timer must be between 100 and 600000, in msec.".to_owned()
}

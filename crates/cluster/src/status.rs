//! How a member does, in the words of `cluster/status` (ovsdb-server(1)): scripts cut its lines.

use std::collections::BTreeSet;
use std::fmt::Write;

use weir_data::Uuid;

use crate::Role;
use crate::consensus::Progress;
use crate::member::{Member, Membership, Phase, short};
use crate::peers::{Link, Made};
use crate::wire::Lane;

/// What people call a server: the file name of a unix socket's address up to its first dot, else the
/// first four digits of its id.
pub(crate) fn nickname(id: Uuid, address: Option<&str>) -> String {
    let of_file = address.and_then(|address| address.strip_prefix("unix:")).and_then(|path| {
        let name = path.rsplit('/').next()?;
        name.split('.').next().filter(|name| !name.is_empty())
    });
    of_file.map_or_else(|| short(id), str::to_owned)
}

impl Member {
    /// What `cluster/status` answers.
    pub fn status(&self) -> String {
        let mut out = String::new();
        let result = self.write_status(&mut out);
        result.expect("a string takes everything");
        out
    }

    fn write_status(&self, out: &mut String) -> std::fmt::Result {
        let own = self.id();
        writeln!(out, "{}", nickname(own, Some(&self.address)))?;
        writeln!(out, "Name: {}", self.name)?;
        match self.cluster {
            Some(cluster) => writeln!(out, "Cluster ID: {} ({cluster})", short(cluster))?,
            None => writeln!(out, "Cluster ID: not yet known")?,
        }
        writeln!(out, "Server ID: {} ({own})", short(own))?;
        writeln!(out, "Address: {}", self.address)?;
        writeln!(out, "Status: {}", self.condition())?;
        if self.membership == Membership::Joining {
            writeln!(out, "Remotes for joining: {}", self.remotes.join(" "))?;
        }
        if self.role() == Role::Leader {
            self.write_changes(out)?;
        }
        let role = match self.role() {
            Role::Leader => "leader",
            Role::Candidate => "candidate",
            Role::Follower => "follower",
        };
        writeln!(out, "Role: {role}")?;
        writeln!(out, "Term: {}", self.node.term())?;
        writeln!(out, "Leader: {}", self.self_or_name(self.node.leader()))?;
        writeln!(out, "Vote: {}", self.self_or_name(self.node.vote()))?;
        writeln!(out)?;
        self.write_elections(out)?;
        write!(out, "Election timer: {}", self.election_timer)?;
        if let Some(ms) = self.pending_timer() {
            write!(out, " (changing to {ms})")?;
        }
        writeln!(out)?;
        let (start, last) = (self.node.mark().last.index + 1, self.node.last());
        writeln!(out, "Log: [{start}, {}]", last + 1)?;
        writeln!(out, "Entries not yet committed: {}", last - self.node.commit())?;
        let unapplied = self.node.commit() - self.node.applied().min(self.node.commit());
        writeln!(out, "Entries not yet applied: {unapplied}")?;
        self.write_connections(out)?;
        writeln!(out, "Disconnections: {}", self.peers.disconnections)?;
        // Whatever cuts this text finds the lines that it knows where they were: behind "Servers:"
        // stands one line for each of those, up to the end.
        let ms = |us: u64| us.div_ceil(1000);
        writeln!(out, "Worst heartbeat delay: {} ms", ms(self.delays.worst_us()))?;
        writeln!(out, "Worst fdatasync: {} ms", ms(self.steps.worst_us))?;
        self.write_servers(out)
    }

    fn condition(&self) -> &'static str {
        match self.membership {
            Membership::Joining => "joining cluster",
            Membership::Leaving => "leaving cluster",
            Membership::Left => "left cluster",
            Membership::Forgotten => "left cluster (the log is an older one)",
            Membership::Member if self.is_stuck_for_long() => {
                "disconnected from the cluster (log cannot be written)"
            }
            Membership::Member if self.is_hanging_for_long() => {
                "disconnected from the cluster (the disk does not answer)"
            }
            Membership::Member if self.is_cut_from_leader() => {
                "disconnected from the cluster (requests do not come to the leader, though it is heard)"
            }
            Membership::Member if self.lacks_snapshot_for_long() => {
                "disconnected from the cluster (snapshot cannot be written)"
            }
            Membership::Member if self.is_split() => {
                "disconnected from the cluster (entries that are committed here are lost there)"
            }
            Membership::Member if self.is_starved_for_long() => {
                "disconnected from the cluster (the leader's entries do not come, though it is heard)"
            }
            Membership::Member if !self.is_connected() => {
                "disconnected from the cluster (election timeout)"
            }
            Membership::Member => "cluster member",
        }
    }

    fn self_or_name(&self, id: Option<Uuid>) -> String {
        match id {
            Some(id) if id == self.id() => "self".to_owned(),
            Some(id) => self.nickname(id),
            None => "unknown".to_owned(),
        }
    }

    fn write_changes(&self, out: &mut String) -> std::fmt::Result {
        for (id, join) in &self.joins.by_id {
            let phase = phase_name(join.phase);
            let (name, sid) = (nickname(*id, Some(&join.address)), short(*id));
            writeln!(out, "Adding server {name} ({sid} at {}) (adding: {phase})", join.address)?;
        }
        for id in self.removals.going.keys() {
            let address = self.servers.get(id).map_or("", String::as_str);
            let (name, sid) = (self.nickname(*id), short(*id));
            writeln!(out, "Removing server {name} ({sid} at {address}) (removing)")?;
        }
        Ok(())
    }

    fn write_elections(&self, out: &mut String) -> std::fmt::Result {
        let ago_ms = |us: u64| self.now_us.saturating_sub(us) / 1000;
        if let Some(started_us) = self.elections.started_us {
            let reason = if self.elections.is_transfer { "leadership_transfer" } else { "timeout" };
            let ago = ago_ms(started_us);
            writeln!(out, "Last Election started {ago} ms ago, reason: {reason}")?;
        }
        if let Some(won_us) = self.elections.won_us {
            writeln!(out, "Last Election won: {} ms ago", ago_ms(won_us))?;
        }
        Ok(())
    }

    /// One word stands for the connections of a direction, as if there were one.
    fn write_connections(&self, out: &mut String) -> std::fmt::Result {
        write!(out, "Connections:")?;
        let links = || self.peers.links().map(|(_, link)| link);
        for peer in self.peers.wanted() {
            let mut to = links().filter(|link| link.made == Made::ByUs(Lane::Control));
            let is_there = to.any(|link| link.is_up && link.is_ours && link.peer == Some(peer));
            let nickname = self.nickname(peer);
            if is_there {
                write!(out, " ->{nickname}")?;
            } else {
                write!(out, " (->{nickname})")?;
            }
        }
        let mut seen = BTreeSet::new();
        let came =
            |link: &&Link| matches!(link.made, Made::ByPeer(lane) if lane != Some(Lane::Log));
        for link in links().filter(came) {
            let Some(peer) = link.peer.filter(|peer| seen.insert(*peer)) else { continue };
            let nickname = self.nickname(peer);
            if link.is_ours {
                write!(out, " <-{nickname}")?;
            } else {
                write!(out, " (<-{nickname})")?;
            }
        }
        writeln!(out)
    }

    fn write_servers(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "Servers:")?;
        let progress = self.node.progress();
        for (id, address) in self.servers.iter() {
            write!(out, "    {} ({} at {address})", self.nickname(*id), short(*id))?;
            if *id == self.id() {
                write!(out, " (self)")?;
            }
            if self.node.is_voting_for_us(*id) {
                write!(out, " (voted for {})", self.nickname(self.id()))?;
            }
            let Progress { next_index, match_index, .. } =
                progress.get(id).copied().unwrap_or_default();
            if self.role() == Role::Leader {
                write!(out, " next_index={next_index} match_index={match_index}")?;
            }
            if let Some(heard_us) = self.silence.heard_us(*id) {
                let ago_ms = self.now_us.saturating_sub(heard_us) / 1000;
                write!(out, " last msg {ago_ms} ms ago")?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Catchup => "catchup",
        Phase::CaughtUp => "caught up",
        Phase::Committing => "committing",
    }
}

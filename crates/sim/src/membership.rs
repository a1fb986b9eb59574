//! Servers that join the cluster, leave it, or are removed from it.

use weir_data::Uuid;
use weir_log::clustered::{Header, State};
use weir_log::record::Reader;

use crate::plan::Fault;
use crate::world::{Due, World};

/// A cluster keeps at least so many members, as far as operators can help it.
pub(crate) const MEMBERS_MIN: usize = 3;

impl World {
    /// So many more servers, without files: they join and leave.
    pub fn add_spares(&mut self, count: usize) {
        for _ in 0..count {
            self.add_node();
        }
    }

    /// How many servers are members, or about to be, and have not been told to leave.
    pub(crate) fn members(&self) -> usize {
        self.nodes.iter().filter(|node| node.is_member() && !node.is_leaving).count()
    }

    /// An operator has a server join or leave, if the cluster can do with that.
    pub(crate) fn change_member(&mut self, n: usize) {
        if self.nodes[n].is_relay() {
            return;
        }
        if self.nodes[n].is_spare {
            if self.nodes[n].server.is_none() && self.happens(Fault::Members, n) {
                self.join(n);
            }
            return;
        }
        let is_well = self.nodes[n].server.is_some() && !self.nodes[n].is_joining;
        let are_others_joining =
            self.nodes.iter().any(|node| node.is_joining || node.is_joining_again);
        let may_go = is_well && !are_others_joining && self.members() > MEMBERS_MIN;
        if !may_go || !self.happens(Fault::Members, n) {
            return;
        }
        if self.rng.chance(50) {
            self.note(n, "is told to leave");
            self.command(n, "cluster/leave", &["Sim"]);
        } else {
            let may_kick = |other: &usize| {
                let node = &self.nodes[*other];
                *other != n && node.is_member() && node.db.is_some()
            };
            let by: Vec<usize> = (0..self.nodes.len()).filter(may_kick).collect();
            let Some(id) = self.nodes[n].id.filter(|_| !by.is_empty()) else { return };
            let other = *self.rng.pick(&by);
            self.note(n, &format!("is kicked at {other}"));
            self.command(other, "cluster/kick", &["Sim", &id.to_string()]);
        }
        self.nodes[n].is_leaving = true;
        self.nodes[n].leaving_us = self.now_us;
    }

    /// A server that is about to start listens elsewhere from now on: its operator has run `change-address`. Where
    /// several move, nobody may find the others: one does.
    pub(crate) fn may_move(&mut self, n: usize) {
        if self.faults.moves == 0 {
            return;
        }
        let node = &self.nodes[n];
        let has_file = node.is_member() && node.id.is_some() && node.life > 0;
        let is_first = self.nodes.iter().all(|node| node.address_before.is_none());
        // Of who has forgotten at another address, too, an operator has to remove what it was.
        // Who joins a new cluster knows one member of it, and may find that nowhere else.
        let is_alone = self.checks.counts.recoveries > 0
            && self.nodes.iter().any(|node| node.is_member() && node.is_joining);
        let may_move = has_file && is_first && !is_alone && !node.is_joining_again && !self.is_calm;
        if !may_move || !self.rng.chance(self.faults.moves) {
            return;
        }
        let mut reader = Reader::new();
        reader.feed(self.nodes[n].disk.file());
        let Ok(Some(record)) = reader.next_record() else { return };
        let mut header = Header::parse(record.json().expect("JSON")).expect("a header");
        header.local_address = format!("tcp:10.0.1.{}:6643", n + 1);
        let mut file = Vec::new();
        header.write(&mut file);
        let begins = usize::try_from(record.end().offset).expect("it is in memory");
        file.extend_from_slice(&self.nodes[n].disk.file()[begins..]);
        self.note(n, "has another address");
        self.checks.counts.moves += 1;
        let node = &mut self.nodes[n];
        let before = std::mem::replace(&mut node.address, header.local_address.clone());
        node.address_before = Some(before);
        // An older file names an address at which nobody looks for it.
        node.image = None;
        node.copies.clear();
        node.disk.put(file);
    }

    /// A server begins with a file that names where others listen.
    pub(crate) fn join(&mut self, n: usize) {
        self.join_at(self.now_us + 1000, n, None);
    }

    /// A server begins at this time with such a file, and joins no other cluster than this one.
    pub(crate) fn join_at(&mut self, at_us: u64, n: usize, cluster: Option<Uuid>) {
        let id = Uuid::parse_bytes(self.rng.uuid().as_bytes()).expect("an id");
        let address = |node: &crate::node::Node| node.address.clone();
        let remotes: Vec<String> =
            self.nodes.iter().filter(|node| node.is_member()).map(address).collect();
        let mut file = Vec::new();
        let header = Header {
            server_id: id,
            local_address: self.nodes[n].address.clone(),
            name: "Sim".to_owned(),
            cluster_id: cluster,
            state: State::Joining { remotes },
        };
        header.write(&mut file);
        self.note(n, &format!("is to join as {}", &id.to_string()[..4]));
        self.checks.counts.joins += 1;
        let node = &mut self.nodes[n];
        node.disk.put(file);
        (node.is_spare, node.is_joining, node.is_leaving) = (false, true, false);
        node.id = Some(id);
        node.copies.clear();
        self.due(at_us, n, Due::Start);
    }

    /// Who was removed while it was away, and where nobody is at any place that it knows, hears of that from
    /// nobody: its operator, who sees it disconnected, ends it.
    pub(crate) fn end_those_beyond_reach(&mut self) {
        for n in 0..self.nodes.len() {
            if !self.nodes[n].is_member() || self.nodes[n].db.is_none() {
                continue;
            }
            let id = self.command(n, "cluster/status", &["Sim"]);
            self.run_for(1);
            let Some(Ok(status)) = self.nodes[n].replies.remove(&id) else { continue };
            let others = status.lines().filter(|line| !line.contains("(self)"));
            let known = others.filter_map(|line| line.split_once(" at ")?.1.split(')').next());
            let known: Vec<&str> = known.collect();
            let is_there = |node: &crate::node::Node| {
                node.is_member() && node.server.is_some() && known.contains(&node.address.as_str())
            };
            let is_cut = ["disconnected from the cluster", "leaving cluster"]
                .iter()
                .any(|how| status.contains(&format!("Status: {how}")));
            if is_cut && !self.nodes.iter().any(is_there) {
                self.note(n, "knows nobody who is there: its operator ends it");
                self.node_left(n);
            }
        }
    }

    fn node_left(&mut self, n: usize) {
        self.checks.counts.left += 1;
        // It may be the one who has heard what others promised before their files were older ones.
        self.nodes.iter_mut().for_each(|node| node.image = None);
        self.nodes[n].is_spare = true;
        self.due(self.now_us + 100_000, n, Due::Gone);
    }

    /// What a server says in its log may tell that it is a member now, or no more.
    pub(crate) fn note_membership(&mut self, n: usize, text: &str) {
        let node = &mut self.nodes[n];
        if text.contains("joined cluster") {
            (node.is_joining, node.is_joining_again, node.was_silent) = (false, false, false);
        } else if text.contains(" was silent for ") {
            self.checks.counts.silent += 1;
            // A leader knows of a member that is away where it was.
            let is_it = |node: &&mut crate::node::Node| {
                let known = [Some(&node.address), node.address_before.as_ref()];
                known.into_iter().flatten().any(|address| text.contains(&format!("{address}) ")))
            };
            self.nodes.iter_mut().find(is_it).expect("it is one of these").was_silent = true;
        } else if text.ends_with(": left the cluster") {
            self.node_left(n);
        } else if text.ends_with(": server does not belong to cluster") {
            // What it noted last is that it has forgotten something.
            self.node_left(n);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Faults;

    #[test]
    fn a_member_that_is_started_at_another_address_is_found_there() {
        let faults = Faults { sync_us: 300, delay_us: 300, moves: 100, ..Faults::default() };
        let mut world = World::new(1, 3, faults);
        world.forget_clients();
        world.run_for(5000);
        for n in [1, 2] {
            world.end_process(n, false);
            world.due(world.now_us + 1000, n, Due::Start);
            world.run_for(5000);
        }
        assert!(world.nodes[2].address_before.is_none(), "one moves");
        for n in 0..3 {
            let id = world.command(n, "cluster/status", &["Sim"]);
            world.run_for(1);
            let status = world.nodes[n].replies.remove(&id).expect("an answer").expect("a status");
            let moved = world.nodes[1].address.clone();
            assert_ne!(Some(&moved), world.nodes[1].address_before.as_ref());
            assert!(status.contains(&format!(" at {moved})")), "{status}");
        }
    }
}

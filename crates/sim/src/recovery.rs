//! Most servers of a cluster are lost at once, and its operator makes a new one of the files that are left
//! (`ovsdb-tool recover-cluster`). The others join that with new files.
//!
//! The files are those of all members, or of all but one: some of these has all that was acknowledged, so
//! nothing may be lost, nothing there twice, and whoever followed the old cluster goes on with the new one.

use weir_data::UuidSource;
use weir_log::clustered::{Finished, Loaded};
use weir_server::load::member_replayer;
use weir_server::recovery::{log_end, new_cluster, new_file};

use crate::membership::MEMBERS_MIN;
use crate::node::PATH;
use crate::plan::Fault;
use crate::world::{Due, World};

/// The operator comes within so many microseconds, and has another server join within as many.
const OPERATOR_US_MAX: usize = 2_000_000;

impl World {
    /// All members are lost at once, if that happens here, which it does once.
    pub(crate) fn may_be_recovered(&mut self) {
        if self.faults.recover == 0 || self.rng.below(10_000) >= self.faults.recover {
            return;
        }
        // A server that has forgotten lacks what it had acknowledged: a second one must not.
        let is_well = self.nodes.iter().all(|node| !node.is_joining_again);
        if self.checks.counts.recoveries == 0 && is_well && self.members() >= MEMBERS_MIN {
            self.lose_most();
        }
    }

    fn lose_most(&mut self) {
        let members: Vec<usize> =
            (0..self.nodes.len()).filter(|n| self.nodes[*n].is_member()).collect();
        if !self.happens(Fault::Recover, members[0]) {
            return;
        }
        let is_crash = self.rng.chance(50);
        for n in &members {
            self.end_process(*n, is_crash);
            // What was to start it is not told.
            self.nodes[*n].life += 1;
        }
        let lost = self.rng.chance(50).then(|| *self.rng.pick(&members));
        self.recover(&members, lost);
    }

    /// Makes a new cluster of these servers, from what is in their files but the lost one's.
    pub(crate) fn recover(&mut self, members: &[usize], lost: Option<usize>) {
        let left = members.iter().copied().filter(|n| Some(*n) != lost);
        let files = left.filter_map(|n| Some((n, salvage(self.nodes[n].disk.file())?)));
        let best = files.max_by_key(|(_, loaded)| log_end(loaded));
        let (first, mut loaded) = best.expect("a member has joined");
        let rows = loaded.store.take().expect("it has joined").snapshot();
        let seed = [0; 4].map(|_| self.rng.bits());
        let local = self.nodes[first].address.clone();
        let header = new_cluster(&loaded, &local, &mut UuidSource::new(seed));
        let file = new_file(&header, &rows, "recovered", 1);
        self.note(first, &format!("begins a new cluster from {:?}", log_end(&loaded)));
        self.checks.counts.recoveries += 1;
        self.checks.new_cluster();
        for n in members {
            let node = &mut self.nodes[*n];
            (node.is_spare, node.is_joining, node.is_leaving) = (true, false, false);
            (node.was_silent, node.address_before) = (false, None);
            node.copies.clear();
        }
        let node = &mut self.nodes[first];
        (node.is_spare, node.id) = (false, Some(header.server));
        node.disk.put(file);
        let mut at_us = self.now_us + self.rng.below(OPERATOR_US_MAX) as u64;
        self.due(at_us, first, Due::Start);
        for n in members.iter().copied().filter(|n| *n != first) {
            at_us += self.rng.below(OPERATOR_US_MAX) as u64;
            self.join_at(at_us, n, header.cluster);
        }
    }
}

/// What the file of a member has, unless that had not joined.
fn salvage(file: &[u8]) -> Option<Loaded> {
    let mut replayer = member_replayer(PATH, 1);
    replayer.salvage();
    let mut at = 0;
    loop {
        match &file[at..] {
            [] => match replayer.finish().expect("a file of a member") {
                Finished::Loaded(loaded) => return loaded.store.is_some().then_some(*loaded),
                Finished::Again(again) => replayer = *again,
            },
            rest => {
                at = file.len();
                replayer.feed(rest).expect("a file of a member");
            }
        }
        if let Some(from) = replayer.again_from() {
            at = usize::try_from(from).expect("it is in memory");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Faults;

    #[test]
    fn who_followed_the_lost_cluster_goes_on_with_the_new_one() {
        let faults = Faults { sync_us: 300, delay_us: 300, ..Faults::default() };
        let mut world = World::new(1, 3, faults);
        let relay = world.add_relay(&[0, 1, 2]);
        world.run_for(5000);
        let before = world.counts();
        let members = [0, 1, 2];
        for n in members {
            world.end_process(n, true);
        }
        world.recover(&members, Some(1));
        world.run_for(10_000);
        world.calm();
        world.run_for(3000);
        world.check_converged();
        let counts = world.counts();
        assert!(counts.acknowledged > before.acknowledged + 300, "{counts:?}");
        assert!(
            counts.began_anew > before.began_anew,
            "states of the old cluster are none of the new one"
        );
        let id = world.command(relay, "weir/status", &[]);
        world.run_for(1);
        let status = world.nodes[relay].replies.remove(&id).expect("an answer").expect("a status");
        assert!(!status.contains("stale"), "{status}");
    }
}

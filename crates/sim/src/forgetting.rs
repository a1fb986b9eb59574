//! Servers whose files are not what they were.
//!
//! That nothing is lost by it cannot be promised always: if nobody who has heard what a server promised
//! is there to tell, nobody knows. So all others run, and reach it, from when it goes down until
//! it has heard them, none of them has been started since the copy was made, and one forgets at a
//! time.

use crate::plan::Fault;
use crate::world::{Due, World};

/// A server that forgets is down for so long at most, in microseconds. Others may have another leader by then.
const DOWN_US_MAX: usize = 2_000_000;

/// After so long without faults a server that forgets has heard all others, in microseconds.
const HEARD_US: u64 = DOWN_US_MAX as u64 + 3_000_000;

/// Each server's file is copied so often, in microseconds.
const COPY_US: u64 = 500_000;

/// So many copies of a file are kept, the newest ones.
const COPIES_MAX: usize = 8;

/// A copy of a file, and when it was made.
pub(crate) type Copy = (u64, Vec<u8>);

impl World {
    /// Copies files, for servers to forget what came later. One that is alone, as the first of a recovered cluster is, has promised
    /// things that nobody heard.
    pub(crate) fn copy_files(&mut self) {
        let joined = self.nodes.iter().filter(|node| node.has_joined()).count();
        if self.faults.forget == 0 || joined < 2 {
            return;
        }
        let now_us = self.now_us;
        for node in &mut self.nodes {
            let is_due = node.copies.last().is_none_or(|(made_us, _)| made_us + COPY_US <= now_us);
            if is_due && node.server.is_some() && node.has_joined() {
                node.copies.push((now_us, node.disk.copy_of_file()));
                let many = node.copies.len().saturating_sub(COPIES_MAX);
                node.copies.drain(..many);
            }
        }
    }

    /// A server forgets something, if others can tell it what.
    pub(crate) fn forget(&mut self, n: usize) {
        let now_us = self.now_us;
        let is_well = self.nodes.iter().filter(|node| node.is_member()).all(|node| {
            node.server.is_some() && node.paused_until_us <= now_us && node.has_joined()
        });
        // Of two the other one cannot remove it.
        let is_member = self.nodes[n].is_member() && !self.nodes[n].is_leaving;
        // Who was asked to end will not be there for long.
        let is_ending = now_us <= self.transfer_until_us;
        // Who was silent for long may be removed already, and not have heard of it.
        let are_heard = self.nodes.iter().all(|node| !node.was_silent || !node.is_member());
        if !is_well || !is_member || is_ending || !are_heard || self.members() < 3 {
            return;
        }
        let others =
            self.nodes.iter().enumerate().filter(|(other, node)| *other != n && node.is_member());
        let since_us = others.map(|(_, node)| node.started_us).max().unwrap_or(0);
        let is_older = self.rng.chance(50);
        let file = match is_older {
            true => self.older_file(n, since_us),
            false => self.damaged_file(n).map(|file| (self.now_us, file)),
        };
        let Some((made_us, file)) = file else { return };
        if !self.happens(Fault::Forget, n) {
            return;
        }
        self.checks.counts.faults[5] += 1;
        self.end_process(n, true);
        // Who leaves may be the one who has heard what it promised.
        let is_told_again = self.nodes.iter().all(|node| !node.is_leaving);
        let does_again = self.faults.forgets_again && is_older && is_told_again;
        let node = &mut self.nodes[n];
        node.image = does_again.then(|| (made_us, file.clone()));
        node.disk.put(file);
        node.copies.clear();
        node.is_joining_again = true;
        self.note(n, "has a file that is not what it was");
        self.heal();
        self.careful_until_us = now_us + HEARD_US;
        let down_us = if self.rng.chance(50) { 50_000 } else { self.rng.below(DOWN_US_MAX) as u64 };
        self.due(now_us + down_us, n, Due::Start);
        if self.nodes[n].image.is_some() {
            // Others will not have been there for long enough later.
            self.due(self.careful_until_us, n, Due::Again);
        }
        let leader = self.checks.leader().map(|(leader, _)| leader).filter(|leader| *leader != n);
        if let Some(leader) = leader.filter(|_| self.rng.chance(50)) {
            // Who leads when it comes back may have heard nothing of what it promised.
            self.command(leader, "cluster/failure-test", &["transfer-leadership"]);
        }
    }

    /// A copy that lacks something of what is there for good, and when it was made.
    fn older_file(&mut self, n: usize, since_us: u64) -> Option<Copy> {
        let node = &self.nodes[n];
        if let Some(image) = node.image.clone().filter(|(made_us, _)| *made_us > since_us) {
            return Some(image);
        }
        let now = node.disk.copy_of_file();
        let copies = node.copies.iter().filter(|(made_us, _)| *made_us > since_us);
        let older: Vec<&Copy> =
            copies.filter(|(_, file)| promises(file) != promises(&now)).collect();
        if older.is_empty() {
            return None;
        }
        Some((*self.rng.pick(&older)).clone())
    }

    /// The file with a record that cannot be read, and good ones behind it.
    fn damaged_file(&mut self, n: usize) -> Option<Vec<u8>> {
        let mut file = self.nodes[n].disk.copy_of_file();
        let begins: Vec<usize> = records(&file);
        // The first one tells who the server is; the last one may be what a crash has torn.
        let middle = begins.get(1..begins.len().checked_sub(2)?)?;
        if middle.is_empty() {
            return None;
        }
        let at = *self.rng.pick(middle);
        let body = file[at..].iter().position(|byte| *byte == b'\n')? + at + 1;
        file[body] ^= 1;
        Some(file)
    }
}

/// Where records begin.
fn records(file: &[u8]) -> Vec<usize> {
    let is_begin = |at: &usize| file[*at..].starts_with(b"OVSDB CLUSTER ");
    let lines = file.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    std::iter::once(0).chain(lines).filter(is_begin).collect()
}

/// All that a file says but what is committed: that a member may hear of again.
fn promises(file: &[u8]) -> Vec<&[u8]> {
    let lines = file.split(|byte| *byte == b'\n');
    let is_promise = |line: &&[u8]| {
        !line.starts_with(b"OVSDB ") && !line.windows(14).any(|word| word == b"\"commit_index\"")
    };
    lines.filter(is_promise).collect()
}

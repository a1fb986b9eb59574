//! Servers that forget: one comes back with an older copy of its file, or with a bad record in the
//! middle of it.
//!
//! That nothing is lost by it cannot be promised always: if nobody who has heard what the server
//! acknowledged is there to tell, nobody knows. So all others run, and reach it, from when it goes
//! down until it has heard them, and none of them has been started since the copy was made.

use super::disk::Disk;
use super::world::World;

/// So many copies of a server's file are kept, the newest ones.
const COPIES_MAX: usize = 4;

/// A server that forgets is down for so long at most, in milliseconds. Others may have another leader by then.
const DOWN_MS_MAX: u64 = 2000;

/// After so long without faults a server that forgets has heard all others, in milliseconds.
pub const HEARD_MS: u64 = DOWN_MS_MAX + 3000;

/// What happens to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgets {
    /// An older copy takes its place.
    OlderCopy,
    /// A record is bad, with good ones behind it.
    BadRecord,
}

/// A copy of a server's file.
#[derive(Clone, Debug)]
pub struct Copy {
    made_us: u64,
    disk: Disk,
}

impl World {
    /// Somebody copies the file of a server.
    pub fn copy_file(&mut self, n: usize) {
        let (made_us, disk) = (self.now_us, self.servers[n].disk.copy());
        let copies = &mut self.servers[n].copies;
        copies.push(Copy { made_us, disk });
        if copies.len() > COPIES_MAX {
            copies.remove(0);
        }
    }

    /// The power goes at a server for a moment, and its file is not what it was when it comes back.
    /// False if that could not be without harm, or would make no difference.
    pub fn forget(&mut self, n: usize, how: Forgets) -> bool {
        if self.servers[n].member.is_none() || !self.may_forget(n) {
            return false;
        }
        let others = (0..self.servers.len()).filter(|other| *other != n);
        let started_us = others.map(|other| self.servers[other].started_us).max().unwrap_or(0);
        let Some((made_us, disk)) = self.forgetful_disk(n, how, started_us) else { return false };
        let down_ms_max = if self.rng.below(2) == 0 { 1 } else { DOWN_MS_MAX };
        self.crash(n, down_ms_max);
        self.tell(format!("{n} forgets: {how:?}"));
        let does_again = self.faults.forgets_again && how == Forgets::OlderCopy;
        let server = &mut self.servers[n];
        server.image = does_again.then(|| Copy { made_us, disk: disk.clone() });
        server.lost.push((server.id, std::mem::replace(&mut server.disk, disk)));
        server.copies.clear();
        self.checks.counts.forgotten += 1;
        self.heal();
        self.forgetful = Some(n);
        self.careful_until = self.now_us + 1000 * HEARD_MS;
        if self.rng.below(2) == 0
            && let Some(leader) = self.leader()
            && let now_us = self.clock(leader)
            && let Some(member) = self.awake(leader)
        {
            member.hand_over(now_us);
            self.run(leader);
        }
        true
    }

    /// The file that a server comes back with, and when it was made.
    fn forgetful_disk(&mut self, n: usize, how: Forgets, started_us: u64) -> Option<(u64, Disk)> {
        let server = &self.servers[n];
        match how {
            Forgets::OlderCopy => {
                let is_known = |copy: &&Copy| copy.made_us > started_us;
                let image = server.image.as_ref().filter(is_known);
                let copies = server.copies.iter().filter(is_known);
                let older = copies.filter(|copy| copy.disk.is_before(&server.disk));
                let older: Vec<&Copy> = older.collect();
                let at = self.rng.below(older.len().max(1) as u64) as usize;
                let copy = image.or(older.get(at).copied())?;
                Some((copy.made_us, copy.disk.clone()))
            }
            Forgets::BadRecord => {
                let disk = server.disk.copy().damaged(&mut self.rng)?;
                Some((self.now_us, disk))
            }
        }
    }

    /// Whether all others can know: one at a time, of three members at least.
    fn may_forget(&self, n: usize) -> bool {
        let members = self.checks.last_servers();
        let staying = members.keys().filter(|id| !self.told_to_go.contains(*id)).count();
        let is_well = |server: &super::shell::Server| {
            server.member.is_some() && server.paused_until <= self.now_us
        };
        let others = self.servers.iter().enumerate();
        let mut others = others.filter(|(other, server)| *other != n && !server.has_left);
        let is_member = members.contains_key(&self.servers[n].id);
        // Who does not know that there are more members than two by now counts with the one that forgets.
        let knows = |server: &super::shell::Server| {
            let member = server.member.as_ref();
            member.is_some_and(|member| {
                members.contains_key(&server.id) && member.servers() == members
            })
        };
        let others_knowing = self.servers.iter().enumerate();
        let knowing = others_knowing.filter(|(other, server)| *other != n && knows(server)).count();
        is_member
            && staying > 2
            && knowing > members.len() / 2
            && self.forgetful.is_none()
            && others.all(|(_, server)| is_well(server))
            // Of who has forgotten at another address, too, an operator removes what it was.
            && self.all_are_where_they_are_known()
    }

    /// Whether what goes wrong would keep a server that forgets from hearing of it.
    pub(super) fn must_be_careful(&self) -> bool {
        self.careful_until > self.now_us
    }
}

//! What goes wrong, and when.

use weir_server::event::Event;
use weir_testkit::rng::Rng;

use crate::clients::Client;
use crate::coverage::{During, Role};
use crate::membership::MEMBERS_MIN;
use crate::node::Node;
use crate::plan::{Fault, Part};
use crate::world::{Due, World};

/// How often faults are thought of, in microseconds.
const FAULTS_US: u64 = 20_000;

/// So much longer than other servers one is down that is as good as dead, in microseconds, and after so many
/// seconds others remove it.
const DEAD_US: u64 = 9_000_000;
const REMOVAL_SECONDS: &str = "5";

/// A server that was told to leave does within so many microseconds, if nothing is in its way.
const LEAVING_US: u64 = 3_000_000;

/// What servers do wrong on purpose, for the checks to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// What is said to be on the disk is not.
    SkipsSync,
    /// A server that has lost its power begins with an empty file.
    ForgetsAll,
}

/// What may happen: each is thought of fifty times a second, and happens in so many of 10,000 cases.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// The power of a server goes.
    pub crash: usize,
    /// Of 100 servers that lose their power so many come back after so long that they are removed, if
    /// enough are left.
    pub dead: usize,
    /// Of 100 servers that start so many do at another address, as long as none has.
    pub moves: usize,
    /// A process is killed; its files are as it wrote them.
    pub kill: usize,
    /// A server hears nothing of another one for a while.
    pub cut: usize,
    /// A connection between servers ends.
    pub reset: usize,
    /// A process stands still for a while.
    pub pause: usize,
    /// A file is compacted.
    pub compact: usize,
    /// A clock jumps.
    pub jump: usize,
    /// Each server's clocks go by up to so many millionths faster than those of the world.
    pub drift_ppm: usize,
    /// A server that leads is asked to end.
    pub stop: usize,
    /// Instead of a request a client asks for a conversion, in so many of 10,000 cases.
    pub convert: usize,
    /// Of 100 pieces of work of helpers so many take up to 2 s.
    pub slow_helper: usize,
    /// How long fdatasync(2) takes at most, in microseconds.
    pub sync_us: usize,
    /// How long the network takes at most, in microseconds.
    pub delay_us: usize,
    /// A server joins, or leaves, or is removed by others.
    pub change: usize,
    /// A disk is full for a while, but for what is urgent.
    pub full: usize,
    /// An fdatasync(2) fails, so that the file takes nothing more.
    pub suspect: usize,
    /// A disk answers nothing for a while, and takes what it is given.
    pub hang: usize,
    /// A file that is to take another one's place is lost, or not written any further, in so many of 10,000
    /// cases that something is done with it.
    pub lost: usize,
    /// Of 100 things that happen to a server so many begin a round in which others do, too.
    pub round: usize,
    /// What is read of a file cannot be, in so many of 10,000 cases.
    pub unread: usize,
    /// A server comes back with an older copy of its file, or one with a bad record in the middle, while
    /// all are there who have heard of more.
    pub forget: usize,
    /// Whether the same older copy may come again, though its server has been another one since.
    pub forgets_again: bool,
    /// Most of the cluster is lost, once, and a new one is made of what is left.
    pub recover: usize,
    /// A connection between servers stands still for up to 100 ms, in so many of 10,000 cases that
    /// something is said on it.
    pub stall: usize,
    /// A relay takes up to 100 ms longer to read what it was sent, in so many of 10,000 cases that its
    /// source asks for that.
    pub slow_reader: usize,
    /// What is wrong.
    pub lie: Option<Lie>,
}

impl Faults {
    fn likely(&self, fault: Fault) -> usize {
        match fault {
            Fault::Crash => self.crash,
            Fault::Kill => self.kill,
            Fault::Cut => self.cut,
            Fault::Reset => self.reset,
            Fault::Pause => self.pause,
            Fault::Compact => self.compact,
            Fault::Jump => self.jump,
            Fault::Stop => self.stop,
            Fault::Full => self.full,
            Fault::Suspect => self.suspect,
            Fault::Hang => self.hang,
            Fault::Forget => self.forget,
            Fault::Members => self.change,
            Fault::Recover => self.recover,
        }
    }
}

/// What is aimed at what is under way: more often what can seldom happen.
const AIMED: [Fault; 21] = [
    Fault::Crash,
    Fault::Kill,
    Fault::Cut,
    Fault::Reset,
    Fault::Pause,
    Fault::Compact,
    Fault::Jump,
    Fault::Stop,
    Fault::Full,
    Fault::Suspect,
    Fault::Hang,
    Fault::Forget,
    Fault::Forget,
    Fault::Forget,
    Fault::Forget,
    Fault::Forget,
    Fault::Forget,
    Fault::Members,
    Fault::Members,
    Fault::Members,
    Fault::Members,
];

/// How likely a fault is to be aimed at what is under way, of a hundred times that faults are thought of:
/// what is short and rare is met as often as what is long.
fn aimed_at(during: During) -> usize {
    match during {
        During::Conversion => 90,
        During::Transfer | During::Snapshot => 30,
        During::Leave => 20,
        During::Join => 4,
    }
}

impl World {
    /// Servers have clocks of different speeds from now on.
    pub(crate) fn let_clocks_drift(&mut self) {
        let mut rng = Rng::new(self.seed.rotate_left(17));
        for node in &mut self.nodes {
            node.drift_ppm = rng.below(self.faults.drift_ppm + 1) as u64;
        }
    }

    /// Faults are thought of: what is drawn for that follows from the seed and the time alone.
    pub(crate) fn think_of_faults(&mut self) {
        if self.is_calm {
            return;
        }
        self.due(self.now_us + FAULTS_US, 0, Due::Faults);
        if self.careful_until_us <= self.now_us {
            let mut rng = Rng::new(self.seed ^ self.now_us.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            std::mem::swap(&mut self.rng, &mut rng);
            self.copy_files();
            self.think_of_others();
            std::mem::swap(&mut self.rng, &mut rng);
        }
    }

    fn think_of_others(&mut self) {
        for fault in Fault::ALL {
            let n = self.rng.below(self.nodes.len());
            if self.rng.below(10_000) < self.faults.likely(fault) {
                self.try_fault(fault, n);
            }
        }
        self.aim();
        self.may_be_recovered();
    }

    /// What is under way is met by faults of each kind and in each role, however rare both are.
    fn aim(&mut self) {
        let likely = self.under_way().map(aimed_at).max().unwrap_or(0);
        let (fault, role) = (*self.rng.pick(&AIMED), *self.rng.pick(&Role::ALL));
        let nodes: Vec<usize> = (0..self.nodes.len()).filter(|n| self.role(*n) == role).collect();
        if !self.rng.chance(likely) || nodes.is_empty() || self.faults.likely(fault) == 0 {
            return;
        }
        let n = *self.rng.pick(&nodes);
        self.try_fault(fault, n);
    }

    /// A fault happens if it would be one.
    fn try_fault(&mut self, fault: Fault, n: usize) {
        match fault {
            // Somebody has just forgotten something: nothing else goes wrong.
            _ if self.careful_until_us > self.now_us => {}
            Fault::Forget => self.forget(n),
            Fault::Members => self.change_member(n),
            _ => {
                let other = self.rng.below(self.nodes.len());
                let while_us = 100_000 + self.rng.below(3_000_000) as u64;
                if self.can_happen(fault, n, other) && self.happens(fault, n) {
                    self.happen(fault, n, other, while_us);
                }
            }
        }
    }

    /// Whether a fault would be one.
    fn can_happen(&self, fault: Fault, n: usize, other: usize) -> bool {
        let node = &self.nodes[n];
        match fault {
            Fault::Crash | Fault::Kill => node.server.is_some(),
            Fault::Cut => n != other,
            Fault::Reset | Fault::Jump => true,
            Fault::Pause => node.server.is_some() && node.paused_until_us <= self.now_us,
            Fault::Compact => node.db.is_some() && !node.is_relay(),
            Fault::Stop => node.server.is_some() && node.is_member(),
            Fault::Full => node.is_member() && node.full_until_us <= self.now_us,
            Fault::Suspect => node.server.is_some() && node.is_member() && !node.breaks_sync,
            Fault::Hang => node.server.is_some() && node.is_member() && !self.is_hanging(n),
            Fault::Forget | Fault::Members | Fault::Recover => {
                unreachable!("these are thought of elsewhere")
            }
        }
    }

    /// A fault is about to happen, unless it is left out.
    pub(crate) fn happens(&mut self, fault: Fault, n: usize) -> bool {
        let part = Part::Fault(self.now_us, fault);
        if !self.plan.has(part) {
            return false;
        }
        self.parts.push(part);
        self.cover(fault, n);
        true
    }

    fn happen(&mut self, fault: Fault, n: usize, other: usize, while_us: u64) {
        let until_us = self.now_us + while_us;
        match fault {
            Fault::Crash | Fault::Kill => {
                let is_crash = fault == Fault::Crash;
                let is_dead = is_crash && self.may_be_dead(n) && self.rng.chance(self.faults.dead);
                self.end_process(n, is_crash);
                let until_us = until_us + if is_dead { DEAD_US } else { 0 };
                self.nodes[n].down_until_us = until_us;
                self.due(until_us, n, Due::Start);
            }
            Fault::Cut => {
                self.checks.counts.faults[2] += 1;
                self.note(n, &format!("is not heard by {other} for {} ms", while_us / 1000));
                let is_mutual = self.rng.chance(50);
                self.cut(n, other, is_mutual);
                self.due(until_us, 0, Due::Heal);
            }
            Fault::Reset => self.reset_one(n),
            // What has come meanwhile is handled in its order.
            Fault::Pause => {
                self.checks.counts.faults[3] += 1;
                self.note(n, &format!("stands still for {} ms", while_us / 1000));
                self.nodes[n].paused_until_us = until_us;
            }
            Fault::Compact => {
                self.checks.counts.faults[4] += 1;
                self.command(n, "ovsdb-server/compact", &["Sim"]);
            }
            Fault::Jump => {
                self.note(n, "has a clock that jumps");
                self.nodes[n].skew_ms += self.rng.below(7_200_000) as i64 - 3_600_000;
            }
            Fault::Stop => {
                self.note(n, "is asked to end");
                self.event_at(self.now_us, n, Event::Stopping);
                self.due(self.now_us + 300_000, n, Due::End { while_us });
                self.transfer_until_us = self.now_us + 300_000;
            }
            Fault::Full => {
                self.checks.counts.faults[6] += 1;
                self.note(n, &format!("has a full disk for {} ms", while_us / 1000));
                self.nodes[n].full_until_us = until_us;
            }
            Fault::Suspect => {
                self.checks.counts.faults[7] += 1;
                self.note(n, "has a disk that fails");
                self.nodes[n].breaks_sync = true;
            }
            Fault::Hang => {
                self.checks.counts.faults[8] += 1;
                self.note(
                    n,
                    &format!("has a disk that answers nothing for {} ms", while_us / 1000),
                );
                self.nodes[n].last_step_us = until_us;
            }
            Fault::Forget | Fault::Members | Fault::Recover => {
                unreachable!("these happen elsewhere")
            }
        }
    }

    /// Whether a cluster has enough members without one that is down for long.
    fn may_be_dead(&self, n: usize) -> bool {
        let node = &self.nodes[n];
        let is_member = node.is_member() && !node.is_joining && !node.is_leaving;
        let is_dead = |node: &Node| node.down_until_us > self.now_us + DEAD_US / 2;
        is_member && self.members() > MEMBERS_MIN && !self.nodes.iter().any(is_dead)
    }

    /// Members are removed that are silent, if such things happen here.
    pub(crate) fn remove_silent_at(&mut self, at_us: u64, n: usize) {
        if self.faults.dead > 0 {
            self.command_at(at_us, n, "weir/remove-silent-members", &["Sim", REMOVAL_SECONDS]);
        }
    }

    fn role(&self, n: usize) -> Role {
        match () {
            () if self.nodes[n].is_relay() => Role::Relay,
            () if self.checks.leader() == Some((n, self.nodes[n].life)) => Role::Leader,
            () => Role::Follower,
        }
    }

    /// Counts what a fault has met.
    fn cover(&mut self, fault: Fault, n: usize) {
        let (role, during): (Role, Vec<During>) = (self.role(n), self.under_way().collect());
        self.coverage.note(fault, role, during.into_iter());
    }

    /// What is under way somewhere.
    pub(crate) fn under_way(&self) -> impl Iterator<Item = During> + use<> {
        let any = |is: &dyn Fn(&Node) -> bool| self.nodes.iter().any(is);
        // What asks for it may have ended, and then nobody does.
        let is_leaving = |node: &Node| {
            node.is_leaving && !node.is_spare && self.now_us < node.leaving_us + LEAVING_US
        };
        let during = [
            (During::Join, any(&|node| node.is_joining || node.is_joining_again)),
            (During::Leave, any(&is_leaving)),
            (During::Snapshot, any(&|node| node.disk.is_receiving)),
            (During::Conversion, self.clients.iter().any(Client::converts)),
            (During::Transfer, self.now_us <= self.transfer_until_us),
        ];
        during.into_iter().filter(|(_, is)| *is).map(|(during, _)| during)
    }
}

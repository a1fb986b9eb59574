//! What a seed is made of: faults, each with the moment at which it was thought of, and clients. A run can
//! be repeated without some of them.
//!
//! What is thought of at a moment depends on the seed and the moment alone, so whatever is left out leaves
//! the others as they were.

use std::collections::BTreeSet;
use std::fmt;

/// What goes wrong, and what operators do meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The power of a server goes.
    Crash,
    /// A process is killed.
    Kill,
    /// A server is not heard by another one.
    Cut,
    /// A connection ends.
    Reset,
    /// A process stands still.
    Pause,
    /// A file is compacted.
    Compact,
    /// A clock jumps.
    Jump,
    /// A server is asked to end.
    Stop,
    /// A disk is full.
    Full,
    /// An fdatasync(2) fails.
    Suspect,
    /// A disk answers nothing for a while.
    Hang,
    /// A file is not what it was.
    Forget,
    /// A server joins, leaves or is removed.
    Members,
    /// Most of the cluster is lost, and a new one is made of what is left.
    Recover,
}

impl Fault {
    /// Every kind of fault that happens to one server.
    pub const ALL: [Self; 13] = [
        Self::Crash,
        Self::Kill,
        Self::Cut,
        Self::Reset,
        Self::Pause,
        Self::Compact,
        Self::Jump,
        Self::Stop,
        Self::Full,
        Self::Suspect,
        Self::Forget,
        Self::Members,
        Self::Hang,
    ];
}

/// A part of a run that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// A fault that was thought of at this time, in microseconds.
    Fault(u64, Fault),
    /// A client of this number.
    Client(usize),
}

impl fmt::Display for Part {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fault(at_us, fault) => {
                write!(out, "{:>10.3} ms  {fault:?}", *at_us as f64 / 1000.0)
            }
            Self::Client(number) => write!(out, "client {number}"),
        }
    }
}

/// What is left out of a run.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    without: BTreeSet<Part>,
}

impl Plan {
    /// All but these.
    pub fn without(parts: impl IntoIterator<Item = Part>) -> Self {
        Self { without: parts.into_iter().collect() }
    }

    /// Whether a part is in the run.
    pub(crate) fn has(&self, part: Part) -> bool {
        !self.without.contains(&part)
    }
}

/// Leaves out of what makes a run fail whatever it fails without: halves first, then less and less. `fails`
/// is asked so many times at most.
pub fn shrink(
    parts: &[Part],
    runs_max: usize,
    mut fails: impl FnMut(&[Part]) -> bool,
) -> Vec<Part> {
    let mut left = parts.to_vec();
    let mut runs = 0;
    let mut size = left.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        while at < left.len() && runs < runs_max {
            let mut rest = left.clone();
            rest.drain(at..left.len().min(at + size));
            runs += 1;
            match fails(&rest) {
                true => left = rest,
                false => at += size,
            }
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_needed_is_left_out() {
        let parts: Vec<Part> = (0..100).map(Part::Client).collect();
        let needed = [Part::Client(17), Part::Client(18), Part::Client(93)];
        let mut runs = 0;
        let left = shrink(&parts, 1000, |parts| {
            runs += 1;
            needed.iter().all(|part| parts.contains(part))
        });
        assert_eq!(left, needed);
        assert!(runs < 100, "{runs} runs");
        assert_eq!(shrink(&parts, 0, |_| true), parts, "without runs nothing is left out");
    }

    #[test]
    fn a_plan_lacks_what_is_left_out() {
        let (crash, kill) = (Part::Fault(20, Fault::Crash), Part::Fault(20, Fault::Kill));
        let plan = Plan::without([crash]);
        assert!(!plan.has(crash) && plan.has(kill) && plan.has(Part::Client(0)));
    }
}

//! Which faults have met which servers, and during what.

use std::collections::BTreeMap;
use std::fmt;

use crate::plan::Fault;

/// What a server was when something happened to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// A member that leads.
    Leader,
    /// A member that does not lead.
    Follower,
    /// A relay.
    Relay,
}

/// What was under way then, somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum During {
    /// A server joins, for the first time or again.
    Join,
    /// A server leaves, or is removed.
    Leave,
    /// A snapshot is on its way to a member.
    Snapshot,
    /// A client has asked for a conversion.
    Conversion,
    /// A server that was asked to end hands its leadership over.
    Transfer,
}

impl Role {
    /// Every role.
    pub(crate) const ALL: [Self; 3] = [Self::Leader, Self::Follower, Self::Relay];
}

const DURING: [During; 5] =
    [During::Join, During::Leave, During::Snapshot, During::Conversion, During::Transfer];

/// How often each has happened.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    times: BTreeMap<(Fault, Role, During), u64>,
}

/// Whether a combination can happen: a relay has no file and is no member, who is asked to end and who
/// forgets is one, and a server forgets only while no other one joins or is about to end, so that others
/// can tell it.
fn can_happen(fault: Fault, role: Role, during: During) -> bool {
    match (fault, role, during) {
        (Fault::Compact | Fault::Stop, Role::Relay, _) => false,
        (Fault::Full | Fault::Suspect | Fault::Hang, Role::Relay, _) => false,
        (Fault::Forget, Role::Relay, _) => false,
        // Nothing is changed about a relay, and who joins or leaves is alone in that.
        (Fault::Members, Role::Relay, _) => false,
        (Fault::Forget | Fault::Members, _, During::Join)
        | (Fault::Forget, _, During::Transfer) => false,
        _ => true,
    }
}

impl Coverage {
    /// A fault has met a server.
    pub(crate) fn note(&mut self, fault: Fault, role: Role, during: impl Iterator<Item = During>) {
        for during in during {
            *self.times.entry((fault, role, during)).or_insert(0) += 1;
        }
    }

    /// What another run has seen, too.
    pub fn add(&mut self, other: &Self) {
        for (key, times) in &other.times {
            *self.times.entry(*key).or_insert(0) += times;
        }
    }

    /// Which combinations have happened less often than so many times.
    pub fn below(&self, least: u64) -> Vec<String> {
        let faults = Fault::ALL.into_iter();
        let all = faults.flat_map(|fault| Role::ALL.map(|role| DURING.map(|it| (fault, role, it))));
        let all = all.flatten().filter(|(fault, role, during)| can_happen(*fault, *role, *during));
        let times = |key| self.times.get(&key).copied().unwrap_or(0);
        let rare = all.filter(|key| times(*key) < least);
        rare.map(|key| format!("{:?} of a {:?} during a {:?}: {}", key.0, key.1, key.2, times(key)))
            .collect()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((fault, role, during), times) in &self.times {
            writeln!(out, "{times:>8} {fault:?} of a {role:?} during a {during:?}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_rare_is_named() {
        let mut coverage = Coverage::default();
        for fault in Fault::ALL {
            for role in Role::ALL {
                coverage.note(fault, role, DURING.into_iter());
            }
        }
        assert!(coverage.below(1).is_empty());
        let mut twice = coverage.clone();
        twice.add(&coverage);
        assert!(twice.below(2).is_empty());
        twice.note(Fault::Crash, Role::Leader, std::iter::once(During::Join));
        let rare = twice.below(3);
        assert!(!rare.contains(&"Crash of a Leader during a Join: 3".to_owned()), "{rare:?}");
        assert!(rare.contains(&"Crash of a Leader during a Leave: 2".to_owned()), "{rare:?}");
        assert!(!rare.iter().any(|text| text.contains("Compact of a Relay")), "{rare:?}");
    }
}

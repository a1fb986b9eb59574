//! Numbers for the ids of servers: the library knows servers by numbers, which mean nothing outside
//! of this process.

use std::collections::BTreeMap;

use raft::prelude::ConfState;
use weir_data::Uuid;
use weir_log::clustered::Servers;

/// The numbers of all servers that were ever heard of; a number is never given twice.
#[derive(Clone, Debug, Default)]
pub(super) struct Numbers {
    numbers: BTreeMap<Uuid, u64>,
    ids: Vec<Uuid>,
}

impl Numbers {
    /// The number of a server; its first is 1, for the library has another use for 0.
    pub(super) fn of(&mut self, id: Uuid) -> u64 {
        *self.numbers.entry(id).or_insert_with(|| {
            self.ids.push(id);
            self.ids.len() as u64
        })
    }

    /// The server of a number, unless it is 0.
    pub(super) fn id(&self, number: u64) -> Option<Uuid> {
        let at = usize::try_from(number).expect("numbers are given one by one").checked_sub(1)?;
        Some(*self.ids.get(at).expect("a number is given before it is used"))
    }

    /// The servers as voters.
    pub(super) fn voters(&mut self, servers: &Servers) -> ConfState {
        let voters = servers.keys().map(|id| self.of(*id)).collect();
        ConfState { voters, ..ConfState::default() }
    }
}

//! A member that has moved: it greets from another place than the list of servers says. It reaches the
//! others, who answer on the connections that it has made, and the leader takes its new address up with
//! an entry, so that they reach it, too.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_data::Uuid;
use weir_log::clustered::check_address;

use super::Member;
use crate::consensus::Change;
use crate::effect::Level;
use crate::peers::Link;

/// Members that have said that they listen elsewhere.
#[derive(Debug, Default)]
pub(super) struct Moves {
    by_id: BTreeMap<Uuid, String>,
}

impl Member {
    /// A server says where it listens.
    pub(super) fn told_of_address(&mut self, server: Uuid, address: &str) {
        let known = self.servers.get(&server);
        if known.is_some_and(|known| known != address) && check_address(address).is_ok() {
            self.moves.by_id.insert(server, address.to_owned());
        } else {
            self.moves.by_id.remove(&server);
        }
    }

    /// Whether a member has said that it listens elsewhere.
    pub(super) fn has_moved(&self, server: &Uuid) -> bool {
        self.moves.by_id.contains_key(server)
    }

    /// Takes up the address of a member that has moved; true if that led to something.
    pub(super) fn go_on_moving(&mut self) -> bool {
        if self.moves.by_id.is_empty() || !self.node.may_propose() {
            return false;
        }
        let Some((server, address)) = self.moved() else { return false };
        let mut servers = (*self.servers).clone();
        let before = servers.insert(server, address.clone()).unwrap_or_default();
        // For the library nothing changes, but it sees to it that no other change is under way.
        if self.node.propose_servers(Arc::new(servers), Change::Add(server)).is_none() {
            return false;
        }
        let (server, cluster) = (self.named(server, &before), self.cluster_name());
        let text = format!("server {server} of cluster {cluster} has moved to {address}");
        self.log(Level::Info, text);
        true
    }

    /// Whether a server is connected to at this address.
    pub(super) fn is_at(&self, server: Uuid, address: &str) -> bool {
        let is_it =
            |link: &Link| link.is_ours && link.peer == Some(server) && link.name == *address;
        self.peers.links().any(|(_, link)| is_it(link))
    }

    /// A member that has moved to where no other one is, and is not heard from where it was.
    fn moved(&self) -> Option<(Uuid, String)> {
        let is_free = |address: &String| self.servers.values().all(|other| other != address);
        let is_moved = |(server, address): &(&Uuid, &String)| {
            let before = self.servers.get(*server);
            before.is_some_and(|before| is_free(address) && !self.is_at(**server, before))
        };
        let moved = self.moves.by_id.iter().find(is_moved);
        moved.map(|(server, address)| (*server, address.clone()))
    }

    /// Other servers are members now, or the same ones elsewhere: whoever has become one may have said before that where
    /// it listens.
    pub(super) fn look_for_moves(&mut self) {
        let servers = Arc::clone(&self.servers);
        let is_news = |server: &Uuid, address: &mut String| {
            servers.get(server).is_some_and(|known| known != address)
        };
        self.moves.by_id.retain(is_news);
        // Who has greeted on several connections has said it on the last one.
        let greeted = self.peers.links().filter(|(_, link)| link.is_ours);
        let said = greeted
            .filter_map(|(_, link)| Some((link.peer?, (link.since_us, link.address.clone()?))));
        let mut said: Vec<(Uuid, (u64, String))> = said.collect();
        said.sort_unstable();
        for (server, (_, address)) in said {
            self.told_of_address(server, &address);
        }
    }
}

//! The programs, several servers at a time: members of clusters, and relays. One test program, for each takes
//! its time to link.

mod behind_relays;
mod chain;
mod group;
mod peer;
mod support;

mod cluster;
mod cluster_conversion;
mod cluster_forgetting;
mod cluster_hosts;
mod cluster_leaderless;
mod cluster_northd;
mod cluster_outcome;
mod cluster_reads;
mod cluster_restore;
mod cluster_snapshots;
mod cluster_surface;
mod keys_apart;
mod relay;
mod relay_tls;

//! The log modules of the reference server: what `vlog/set` accepts and `vlog/list` shows.

/// All of them, sorted. Most belong to code that Weir does not have; scripts name them all the same.
#[rustfmt::skip]
pub(crate) const MODULES: &[&str] = &[
    "backtrace", "bundle", "command_line", "conntrack", "conntrack_tp", "coverage", "ct_dpif",
    "daemon", "daemon_unix", "dns_resolve", "dpdk", "dpif", "dpif_lookup_autovalidator",
    "dpif_lookup_generic", "dpif_mfex_extract_study", "dpif_netdev", "dpif_netdev_extract",
    "dpif_netdev_impl", "dpif_netdev_lookup", "dpif_netlink", "dpif_netlink_rtnl", "entropy",
    "fatal_signal", "flow", "hmap", "ipf", "jsonrpc", "lockfile", "memory", "meta_flow",
    "native_tnl", "netdev", "netdev_afxdp", "netdev_linux", "netdev_offload", "netdev_offload_tc",
    "netdev_vport", "netlink", "netlink_conntrack", "netlink_notifier", "netlink_socket",
    "nx_match", "odp_execute", "odp_execute_impl", "odp_util", "ofp_actions", "ofp_bundle",
    "ofp_connection", "ofp_errors", "ofp_flow", "ofp_group", "ofp_match", "ofp_meter",
    "ofp_monitor", "ofp_msgs", "ofp_packet", "ofp_port", "ofp_protocol", "ofp_queue", "ofp_table",
    "ofp_util", "ovs_numa", "ovs_rcu", "ovs_replay", "ovs_router", "ovs_thread", "ovsdb",
    "ovsdb_cs", "ovsdb_error", "ovsdb_file", "ovsdb_idl", "ovsdb_jsonrpc_server", "ovsdb_log",
    "ovsdb_monitor", "ovsdb_rbac", "ovsdb_server", "ovsdb_util", "ox_stat", "pmd_perf",
    "poll_loop", "process", "raft", "raft_rpc", "reconnect", "relay", "replication",
    "route_table", "sha1", "signals", "socket_util", "socket_util_unix", "storage", "stream",
    "stream_fd", "stream_replay", "stream_ssl", "stream_tcp", "stream_unix", "svec", "tc",
    "timeval", "transaction", "transaction_forward", "trigger", "unixctl", "userspace_tso",
    "util", "uuid", "vlog",
];

#[cfg(test)]
mod tests {
    use super::MODULES;

    #[test]
    fn modules_are_sorted_for_binary_search() {
        assert!(MODULES.is_sorted());
    }
}

//! The server's admin commands (ovs-appctl(8)); the shell adds those of every daemon.

use crate::options::Config;

/// Name, usage, and the fewest and most arguments of each command.
pub const COMMANDS: &[(&str, &str, u32, u32)] = &[
    ("cluster/change-election-timer", "DB TIME", 2, 2),
    ("cluster/cid", "DB", 1, 1),
    ("cluster/failure-test", "FAILURE SCENARIO", 1, 1),
    ("cluster/kick", "DB SERVER", 2, 2),
    ("cluster/leave", "DB", 1, 1),
    ("cluster/set-backlog-threshold", "DB N_MSGS N_BYTES", 3, 3),
    ("cluster/sid", "DB", 1, 1),
    ("cluster/status", "DB", 1, 1),
    ("index/add", "DB TABLE COLUMN [hash|asc|desc]", 3, 4),
    ("index/drop", "DB TABLE COLUMN", 3, 3),
    ("index/list", "[DB]", 0, 1),
    ("memory/show", "", 0, 0),
    ("ovsdb-server/add-db", "DB", 1, 1),
    ("ovsdb-server/add-remote", "REMOTE", 1, 1),
    ("ovsdb-server/connect-active-ovsdb-server", "", 0, 0),
    ("ovsdb-server/disconnect-active-ovsdb-server", "", 0, 0),
    ("ovsdb-server/get-active-ovsdb-server", "", 0, 0),
    ("ovsdb-server/get-sync-exclude-tables", "", 0, 0),
    ("ovsdb-server/reload", "", 0, 0),
    ("ovsdb-server/set-active-ovsdb-server", "", 1, 1),
    ("ovsdb-server/set-active-ovsdb-server-probe-interval", "", 1, 1),
    ("ovsdb-server/set-relay-source-probe-interval", "", 1, 1),
    ("ovsdb-server/set-sync-exclude-tables", "", 0, 1),
    ("ovsdb-server/compact", "", 0, 1),
    ("ovsdb-server/disable-monitor-cond", "", 0, 0),
    ("ovsdb-server/get-db-storage-status", "DB", 1, 1),
    ("ovsdb-server/list-dbs", "", 0, 0),
    ("ovsdb-server/list-remotes", "", 0, 0),
    ("ovsdb-server/memory-trim-on-compaction", "on|off", 1, 1),
    ("ovsdb-server/perf-counters-clear", "", 0, 0),
    ("ovsdb-server/perf-counters-show", "", 0, 0),
    ("ovsdb-server/reconnect", "", 0, 0),
    ("ovsdb-server/remove-db", "DB", 1, 1),
    ("ovsdb-server/remove-remote", "REMOTE", 1, 1),
    ("ovsdb-server/sync-status", "", 0, 0),
    ("ovsdb-server/tlog-list", "", 0, 0),
    ("ovsdb-server/tlog-set", "DB:TABLE on|off", 2, 2),
    ("weir/delivery", "[DB]", 0, 1),
    ("weir/remove-silent-members", "DB [SECONDS|off]", 1, 2),
    ("weir/set-relay-source-max-backoff", "MS", 1, 1),
    ("weir/slow-query-rows", "[ROWS]", 0, 1),
    ("weir/standalone-history", "[on|off]", 0, 1),
    ("weir/status", "", 0, 0),
    ("weir/wait-delivered", "DB [TXN|now] [N|all] [SECONDS]", 1, 4),
];

/// Commands that change what a configuration file says; with one, it is the place to do that.
pub(crate) const CONFIGURING: &[&str] = &[
    "ovsdb-server/add-db",
    "ovsdb-server/add-remote",
    "ovsdb-server/connect-active-ovsdb-server",
    "ovsdb-server/disconnect-active-ovsdb-server",
    "ovsdb-server/remove-db",
    "ovsdb-server/remove-remote",
    "ovsdb-server/set-active-ovsdb-server",
    "ovsdb-server/set-active-ovsdb-server-probe-interval",
    "ovsdb-server/set-relay-source-probe-interval",
    "ovsdb-server/set-sync-exclude-tables",
    "weir/set-relay-source-max-backoff",
];

pub(crate) const COLUMN_DIFF: &str = "ovsdb/file/column-diff-enable";
pub(crate) const NO_DATA_CONVERSION: &str = "ovsdb/file/no-data-conversion-enable";

/// All commands of a server that is started like this: some take back an option and exist only
/// with it.
pub fn commands(config: &Config) -> Vec<(&'static str, &'static str, u32, u32)> {
    let files = config.files;
    let options =
        [(files.whole_columns, COLUMN_DIFF), (files.whole_conversions, NO_DATA_CONVERSION)];
    let optional = options.iter().filter(|(given, _)| *given).map(|(_, name)| (*name, "", 0, 0));
    COMMANDS.iter().copied().chain(optional).collect()
}

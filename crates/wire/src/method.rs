//! Method names and what they are called in code: one table, no string compares later.

/// The methods that the server answers (RFC 7047 §4.1 and ovsdb-server(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `list_dbs` (RFC 7047 §4.1.1).
    ListDbs,
    /// `get_schema` (RFC 7047 §4.1.2).
    GetSchema,
    /// `get_server_id` (ovsdb-server(7) §4.1.17).
    GetServerId,
    /// `transact` (RFC 7047 §4.1.3).
    Transact,
    /// `cancel` (RFC 7047 §4.1.4), a notification.
    Cancel,
    /// `monitor` (RFC 7047 §4.1.5).
    Monitor,
    /// `monitor_cond` (ovsdb-server(7) §4.1.12).
    MonitorCond,
    /// `monitor_cond_since` (ovsdb-server(7) §4.1.15).
    MonitorCondSince,
    /// `weir_monitor`: rows, and each transaction that changes the database
    /// (docs/decisions/013-wire-extensions.md).
    MonitorEach,
    /// `monitor_cond_change` (ovsdb-server(7) §4.1.13).
    MonitorCondChange,
    /// `monitor_cancel` (RFC 7047 §4.1.7).
    MonitorCancel,
    /// `lock` (RFC 7047 §4.1.8).
    Lock,
    /// `steal` (RFC 7047 §4.1.8).
    Steal,
    /// `unlock` (RFC 7047 §4.1.8).
    Unlock,
    /// `echo` (RFC 7047 §4.1.11).
    Echo,
    /// `set_db_change_aware` (ovsdb-server(7) §4.1.18).
    SetDbChangeAware,
    /// `convert` (ovsdb-server(7) §4.1.19).
    Convert,
    /// `weir_wait_delivered`: when clients have a transaction (docs/delivery.md).
    WaitDelivered,
    /// `weir_wait_id`: until the database has the state of an id
    /// (docs/decisions/013-wire-extensions.md).
    WaitId,
    /// `weir_sync`: until the database has all that was committed when it was asked
    /// (docs/decisions/013-wire-extensions.md).
    Sync,
    /// `weir_path`: by which way rows come to the server
    /// (docs/decisions/013-wire-extensions.md).
    Path,
    /// `weir_transact`: a transaction that is committed at most once, under an id that its client chose
    /// (docs/decisions/013-wire-extensions.md).
    TransactOnce,
    /// `weir_outcome`: what has come of such a transaction
    /// (docs/decisions/013-wire-extensions.md).
    Outcome,
    /// `weir_explain`: how a transaction would find its rows (docs/ordered-select.md).
    Explain,
    /// `weir_features`: which methods that are not the reference's the server has
    /// (docs/decisions/013-wire-extensions.md).
    Features,
    /// `weir_log`: what changed, when, and who asked for it (docs/log-of-changes.md).
    Log,
}

const METHODS: [(&str, Method); 26] = [
    ("transact", Method::Transact),
    ("echo", Method::Echo),
    ("list_dbs", Method::ListDbs),
    ("get_schema", Method::GetSchema),
    ("get_server_id", Method::GetServerId),
    ("cancel", Method::Cancel),
    ("monitor", Method::Monitor),
    ("monitor_cond", Method::MonitorCond),
    ("monitor_cond_since", Method::MonitorCondSince),
    ("monitor_cond_change", Method::MonitorCondChange),
    ("monitor_cancel", Method::MonitorCancel),
    ("lock", Method::Lock),
    ("steal", Method::Steal),
    ("unlock", Method::Unlock),
    ("set_db_change_aware", Method::SetDbChangeAware),
    ("convert", Method::Convert),
    ("weir_explain", Method::Explain),
    ("weir_features", Method::Features),
    ("weir_log", Method::Log),
    ("weir_monitor", Method::MonitorEach),
    ("weir_outcome", Method::Outcome),
    ("weir_path", Method::Path),
    ("weir_sync", Method::Sync),
    ("weir_transact", Method::TransactOnce),
    ("weir_wait_id", Method::WaitId),
    ("weir_wait_delivered", Method::WaitDelivered),
];

/// How names of methods begin that the reference does not have.
const EXTENSION: &str = "weir_";

/// Options of such methods, and members of operations that the reference refuses.
const OPTIONS: [&str; 7] = [
    "transact.order_by",
    "weir_monitor.each",
    "weir_monitor.index",
    "weir_monitor.low_water",
    "weir_outcome.channel",
    "weir_transact.channel",
    "weir_transact.locks",
];

impl Method {
    /// The names of all methods that the reference does not have, and of their options, in
    /// alphabetical order.
    pub fn extensions() -> impl ExactSizeIterator<Item = &'static str> {
        let names = METHODS.iter().map(|(name, _)| *name);
        let mut names: Vec<&str> =
            names.filter(|name| name.starts_with(EXTENSION)).chain(OPTIONS).collect();
        names.sort_unstable();
        names.into_iter()
    }

    /// The method called `name`.
    pub fn parse(name: &str) -> Option<Self> {
        METHODS.iter().find(|(known, _)| *known == name).map(|(_, method)| *method)
    }

    /// The method's name on the wire.
    pub fn name(self) -> &'static str {
        METHODS.iter().find(|(_, method)| *method == self).map_or("", |(name, _)| name)
    }
}

//! Method names and what they are called in code: one table, no string compares later.

/// The methods that the server answers (RFC 7047 §4.1 and ovsdb-server(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// RFC 7047 §4.1.1
    ListDbs,
    /// RFC 7047 §4.1.2
    GetSchema,
    /// ovsdb-server(7) §4.1.17
    GetServerId,
    /// RFC 7047 §4.1.3
    Transact,
    /// RFC 7047 §4.1.4, a notification.
    Cancel,
    /// RFC 7047 §4.1.5
    Monitor,
    /// ovsdb-server(7) §4.1.12
    MonitorCond,
    /// ovsdb-server(7) §4.1.15
    MonitorCondSince,
    /// ovsdb-server(7) §4.1.13
    MonitorCondChange,
    /// RFC 7047 §4.1.7
    MonitorCancel,
    /// RFC 7047 §4.1.8
    Lock,
    /// RFC 7047 §4.1.8
    Steal,
    /// RFC 7047 §4.1.8
    Unlock,
    /// RFC 7047 §4.1.11
    Echo,
    /// ovsdb-server(7) §4.1.18
    SetDbChangeAware,
    /// ovsdb-server(7) §4.1.19
    Convert,
}

const METHODS: [(&str, Method); 16] = [
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
];

impl Method {
    /// The method called `name`.
    pub fn parse(name: &str) -> Option<Self> {
        METHODS.iter().find(|(known, _)| *known == name).map(|(_, method)| *method)
    }

    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        METHODS.iter().find(|(_, method)| *method == self).map_or("", |(name, _)| name)
    }
}

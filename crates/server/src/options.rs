//! What the server is told at its start, and how far that has come.

use crate::effect::TlsSettings;

/// What the server is told at its start.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Fresh randomness: UUIDs and hash seeds derive from it.
    pub seed: [u64; 4],
    /// Name in messages, `ovsdb-server`.
    pub server_name: &'static str,
    /// `--remote` options in their order: `punix:`, `ptcp:`, `db:DB,TABLE,COLUMN`.
    pub remotes: Vec<String>,
    /// Options of TLS; each but `peer_ca_cert` may be a `db:DB,TABLE,COLUMN`.
    pub tls: TlsSettings,
    /// Absolute paths of database files.
    pub databases: Vec<String>,
    /// `--sync-from`: the server that databases follow.
    pub sync_from: Option<String>,
    /// `--sync-exclude-tables`, which [`crate::configuration::check_excluded`] has accepted.
    pub sync_exclude: Option<String>,
    /// `--active`: they do not follow it yet.
    pub sync_active: bool,
    /// `--config-file`, absolute: it says what the fields above say otherwise.
    pub config_file: Option<String>,
    /// What a child of the same monitor process was told to save last
    /// ([`SaveConfiguration`](crate::effect::Effect::SaveConfiguration)); it counts instead of the command line.
    pub saved: Option<Vec<u8>>,
    /// In which form they are written.
    pub files: FileForms,
    /// Most bytes that waiting transactions, conversions, results, monitors and locks of all sessions may
    /// take together, by default 1 GiB: the shell knows what memory there is.
    pub kept_bytes_max: Option<usize>,
}

/// In which form database files are written: as servers of an older version can read them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileForms {
    /// `--disable-file-column-diff`: changed columns whole, for servers before 2.16. An admin
    /// command ends it.
    pub whole_columns: bool,
    /// `--disable-file-no-data-conversion`: the rows with every conversion, which standalone files
    /// have anyway.
    pub whole_conversions: bool,
    /// `--no-standalone-history`: states have no ids, and no changes are kept for clients that come
    /// back. An admin command changes that.
    pub no_history: bool,
}

/// How far the start has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartStatus {
    /// Databases or listeners are still being opened.
    Starting,
    /// Every database is open and every listener has been tried.
    Ready,
    /// The server cannot start; these lines say why.
    Failed(Vec<String>),
}

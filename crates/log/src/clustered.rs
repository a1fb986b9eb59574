//! What the records of one server's part of a clustered database say (ovsdb(5), "Clustered
//! Format"): first a header with the server's identity and a snapshot, then raft's records.
//!
//! - [`Header`], [`Record`]: the grammar, both ways.
//! - [`EntryText`], [`write_snapshot`]: records spliced from texts and tables.
//! - [`Replayer`]: from a file's bytes to tables, term, vote and log; whether records make sense in
//!   their order is judged there.

mod data;
mod header;
mod outline;
mod raft_log;
mod record;
mod replay;
mod unapplied;
mod write;

pub use data::{NotSnapshotData, SnapshotReader, rows_of};
pub use header::{Header, Snapshot, State};
pub use raft_log::{
    Configuration, DataPlace, ELECTION_TIMER_MS_DEFAULT, FORGOT, LoggedEntry, SnapshotPlace,
    joins_at, joins_at_note,
};
pub use record::{Entry, Kind, Record};
pub use replay::{Applied, Convert, Finished, KEPT_BYTES_MAX, Loaded, Replayer, Tail};
pub use write::{
    DataText, EntryText, ReceivedSnapshot, SnapshotHeader, SnapshotRecord, stream_snapshot_data,
    write_snapshot,
};

use std::collections::BTreeMap;

use weir_data::parser::{INTEGER, OBJECT, OPTIONAL, Parser, STRING};
use weir_data::{Error, Uuid};
use weir_json::{Kind as Json, Text};

/// The servers of a cluster: addresses by server id.
pub type Servers = BTreeMap<Uuid, String>;

/// Checks an address as the tools take it: `unix:` anything, else `tcp:` or `ssl:` and what looks
/// like `IP:PORT`.
///
/// # Errors
/// In the words of the reference.
pub fn check_address(address: &str) -> Result<(), Error> {
    if address.starts_with("unix:") {
        return Ok(());
    }
    let Some(rest) = address.strip_prefix("tcp:").or_else(|| address.strip_prefix("ssl:")) else {
        return Err(Error::ovsdb(format!("{address}: expected \"tcp\" or \"ssl\" address")));
    };
    let is_port = |port: &str| port.is_empty() || port.trim_ascii_start().parse::<u16>().is_ok();
    let wrong = || Error::ovsdb(format!("{address}: syntax error in address"));
    port_of(rest).filter(|port| is_port(port)).map(|_| ()).ok_or_else(wrong)
}

/// What stands behind the colon of `HOST:PORT`, if there is just one outside brackets. Names are as
/// good as addresses; whether they exist is asked later.
pub fn port_of(target: &str) -> Option<&str> {
    let mut in_brackets = false;
    let mut colons = target.bytes().enumerate().filter(|(_, byte)| {
        in_brackets = *byte == b'[' || in_brackets && *byte != b']';
        *byte == b':' && !in_brackets
    });
    let (colon, _) = colons.next()?;
    if colons.next().is_some() { None } else { target.get(colon + 1..) }
}

/// A number that JSON has as a signed one.
fn unsigned(parser: &mut Parser<'_, '_>, name: &'static str) -> Option<u64> {
    let value = parser.member(name, INTEGER | OPTIONAL)?.integer()?;
    (value != 0).then_some(value.cast_unsigned())
}

fn required_unsigned(parser: &mut Parser<'_, '_>, name: &'static str) -> u64 {
    parser.member(name, INTEGER).and_then(Text::integer).map_or(0, i64::cast_unsigned)
}

fn uuid(parser: &mut Parser<'_, '_>, name: &'static str, is_optional: bool) -> Option<Uuid> {
    let types = if is_optional { STRING | OPTIONAL } else { STRING };
    let text = parser.member(name, types)?.string()?;
    let uuid = Uuid::parse_bytes(&text);
    if uuid.is_none() {
        parser.complain(format_args!("{name} is not a valid UUID"));
    }
    uuid
}

fn servers(text: Text<'_>) -> Result<Servers, Error> {
    let mut servers = Servers::new();
    for (key, value) in text.members().into_iter().flatten() {
        let key_text = String::from_utf8_lossy(&key);
        let not_uuid = || Error::syntax(text, format!("{key_text} is not a UUID"));
        let id = Uuid::parse_bytes(&key).ok_or_else(not_uuid)?;
        let not_string = || Error::syntax(value, "server address is not string");
        let address = value.str().ok_or_else(not_string)?;
        check_address(&address)?;
        servers.insert(id, address.into_owned());
    }
    if servers.is_empty() {
        return Err(Error::syntax(text, "must have at least one server"));
    }
    Ok(servers)
}

fn optional_servers(
    parser: &mut Parser<'_, '_>,
    name: &'static str,
    is_optional: bool,
) -> Result<Option<Servers>, Error> {
    let types = if is_optional { OBJECT | OPTIONAL } else { OBJECT };
    parser.member(name, types).map(servers).transpose()
}

/// What `data` is made of: a schema that replaces the one before, and a transaction's record.
#[derive(Clone, Copy, Debug)]
pub struct Data<'a> {
    /// A new schema, in force from this entry on.
    pub schema: Option<Text<'a>>,
    /// The transaction; none where the schema comes alone and every server converts its own rows.
    pub transaction: Option<Text<'a>>,
}

impl<'a> Data<'a> {
    /// Takes `[SCHEMA, TRANSACTION]` apart; `None` if it is anything else.
    pub fn parse(text: Text<'a>) -> Option<Self> {
        let elements: Vec<Text<'a>> = text.elements()?.take(3).collect();
        let &[schema, transaction] = elements.as_slice() else { return None };
        let present = |text: Text<'a>| (text.kind() != Json::Null).then_some(text);
        Some(Self { schema: present(schema), transaction: present(transaction) })
    }
}

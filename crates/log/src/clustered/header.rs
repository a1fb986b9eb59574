//! The first record: who this server is, and what it starts from.

use weir_data::parser::{ANY, ARRAY, OPTIONAL, Parser, STRING};
use weir_data::{Error, Uuid};
use weir_json::Text;

use super::write::Members;
use super::{Servers, check_address, optional_servers, required_unsigned, unsigned, uuid};
use crate::record::{Magic, Unfinished};

/// The first record of a clustered database's file.
#[derive(Clone, Debug)]
pub struct Header<'a> {
    /// The id of the server whose file this is.
    pub server_id: Uuid,
    /// The address at which other servers reach this one.
    pub local_address: String,
    /// The database's name.
    pub name: String,
    /// The cluster's id, once the server knows it.
    pub cluster_id: Option<Uuid>,
    /// Whether the server has joined the cluster.
    pub state: State<'a>,
}

/// How far a server is in its cluster.
#[derive(Clone, Debug)]
pub enum State<'a> {
    /// The server wants to join the cluster through one of these.
    Joining {
        /// Addresses of servers that are in the cluster.
        remotes: Vec<String>,
    },
    /// The server has joined the cluster.
    Joined {
        /// The servers before the first entry.
        servers: Servers,
        /// What the log starts from.
        snapshot: Option<Snapshot<'a>>,
    },
}

/// A snapshot: the state of the database before the log's first entry.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// Index of the last entry in the snapshot.
    pub index: u64,
    /// Term of the last entry in the snapshot.
    pub term: u64,
    /// Id of the last entry in the snapshot.
    pub eid: Uuid,
    /// `[SCHEMA, TRANSACTION]`, to be taken apart by [`super::Data::parse`].
    pub data: Text<'a>,
    /// The election timer in milliseconds, if it is not the default.
    pub election_timer: Option<u64>,
}

impl<'a> Header<'a> {
    /// Parses the first record.
    ///
    /// # Errors
    /// In the words of the reference.
    pub fn parse(text: Text<'a>) -> Result<Self, Error> {
        let mut parser = Parser::new(text, &"raft header");
        let server_id = uuid(&mut parser, "server_id", false);
        let name = parser.string("name", STRING);
        let local_address = parser.string("local_address", STRING);
        let remotes = parser.member("remote_addresses", ARRAY | OPTIONAL);
        let state = match remotes {
            Some(remotes) => {
                let remotes = addresses(remotes)?;
                if remotes.iter().all(|remote| Some(remote) == local_address.as_ref()) {
                    let why = "at least one remote address (other than the local address) is";
                    parser.complain(format_args!("{why} required"));
                }
                Some(State::Joining { remotes })
            }
            None => {
                let servers = optional_servers(&mut parser, "prev_servers", false)?;
                let snapshot = snapshot(&mut parser);
                servers.map(|servers| State::Joined { servers, snapshot })
            }
        };
        let cluster_id = uuid(&mut parser, "cluster_id", remotes.is_some());
        parser.finish()?;
        let missing = || Error::syntax(text, "Parsing raft header failed.");
        Ok(Self {
            server_id: server_id.ok_or_else(missing)?,
            local_address: local_address.ok_or_else(missing)?,
            name: name.ok_or_else(missing)?,
            cluster_id,
            state: state.ok_or_else(missing)?,
        })
    }

    /// Appends the header as the first record of a file; the snapshot's data is copied as it is.
    pub fn write(&self, out: &mut Vec<u8>) {
        let record = Unfinished::begin(Magic::Clustered, out);
        let mut members = Members::begin(out);
        members.uuid("server_id", self.server_id);
        members.string("local_address", &self.local_address);
        members.string("name", &self.name);
        if let Some(id) = self.cluster_id {
            members.uuid("cluster_id", id);
        }
        match &self.state {
            State::Joining { remotes } => members.strings("remote_addresses", remotes),
            State::Joined { servers, snapshot } => {
                members.servers("prev_servers", servers);
                if let Some(snapshot) = snapshot {
                    members.unsigned("prev_index", snapshot.index);
                    members.unsigned("prev_term", snapshot.term);
                    members.uuid("prev_eid", snapshot.eid);
                    members.optional_unsigned("prev_election_timer", snapshot.election_timer);
                    members.raw("prev_data", snapshot.data.as_bytes());
                }
            }
        }
        members.end();
        record.finish(out, false);
    }
}

fn snapshot<'a>(parser: &mut Parser<'a, '_>) -> Option<Snapshot<'a>> {
    let index = unsigned(parser, "prev_index")?;
    let data = parser.member("prev_data", ANY);
    let eid = uuid(parser, "prev_eid", false);
    let term = required_unsigned(parser, "prev_term");
    let election_timer = unsigned(parser, "prev_election_timer");
    Some(Snapshot { index, term, eid: eid?, data: data?, election_timer })
}

fn addresses(text: Text<'_>) -> Result<Vec<String>, Error> {
    let mut addresses = Vec::new();
    for element in text.elements().into_iter().flatten() {
        let not_string = || Error::syntax(element, "server address is not string");
        let address = element.str().ok_or_else(not_string)?;
        check_address(&address)?;
        addresses.push(address.into_owned());
    }
    if addresses.is_empty() {
        return Err(Error::syntax(text, "at least one remote address is required"));
    }
    Ok(addresses)
}

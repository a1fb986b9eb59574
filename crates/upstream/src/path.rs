//! The way that the rows of a database come (`weir_path`, docs/decisions/013-wire-extensions.md): from
//! the server that has them itself, through relays, to the one that says so. Who finds himself on the way
//! of his source would follow himself.

use weir_data::Uuid;
use weir_json::{Text, Value, array};

/// Most servers on a way that is followed.
pub const SERVERS_MAX: usize = 64;

/// A way. Servers that do not say theirs (packaged ones) are on none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// What servers answer to `get_server_id`, the one that the rows come from first, the one that is asked
    /// last.
    pub servers: Vec<Uuid>,
    /// Whether the first one has the rows itself, and all others have heard from the one before.
    pub is_connected: bool,
    /// What the index of the rows is one of, if that is known: the cluster, or the server that counts the records
    /// of a standalone database. Those of two origins say nothing of each other.
    pub origin: Option<Uuid>,
}

/// Why a server with this way is not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The rows come from the follower itself.
    Loop(String),
    /// The way is longer than any that makes sense.
    Long,
    /// Nobody on it has the rows from elsewhere.
    Lost,
}

impl Path {
    /// The way of a server that has the rows itself.
    pub fn of_source(server: Uuid, origin: Option<Uuid>) -> Self {
        Self { servers: vec![server], is_connected: true, origin }
    }

    /// The way as servers say it: `{"servers": [UUID, ...], "connected": BOOLEAN, "origin": UUID}`, without an
    /// origin where that is not known.
    pub fn to_value(&self) -> Value {
        let servers = array(self.servers.iter().map(Uuid::to_string));
        let members = [("connected", self.is_connected.into()), ("servers", servers)];
        let origin = self.origin.map(|origin| ("origin", origin.to_string().into()));
        let members = members.into_iter().chain(origin);
        Value::Object(members.map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// Reads one; no more of it than tells that it is too long.
    pub(crate) fn read(text: Text<'_>) -> Option<Self> {
        let path = text.object()?;
        let servers = path.get("servers")?.elements()?.take(SERVERS_MAX + 1);
        let uuid = |id: Text<'_>| Uuid::parse_bytes(id.str()?.as_bytes());
        Some(Self {
            servers: servers.map(uuid).collect::<Option<_>>()?,
            is_connected: path.get("connected")?.bool()?,
            origin: path.get("origin").and_then(uuid),
        })
    }

    /// Whether the server `own_id` may follow the one that says this.
    pub(crate) fn fault(&self, own_id: Uuid) -> Option<Fault> {
        if let Some(at) = self.servers.iter().position(|id| *id == own_id) {
            let ids: Vec<String> = self.servers[at..].iter().map(Uuid::to_string).collect();
            return Some(Fault::Loop(ids.join(" > ")));
        }
        if self.servers.len() > SERVERS_MAX {
            return Some(Fault::Long);
        }
        (!self.is_connected).then_some(Fault::Lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Path> {
        Path::read(weir_json::validate(text.as_bytes()).unwrap())
    }

    fn path(servers: impl IntoIterator<Item = usize>, is_connected: bool) -> Path {
        let id = |number: usize| Uuid::from_u128(number as u128);
        Path { servers: servers.into_iter().map(id).collect(), is_connected, origin: None }
    }

    #[test]
    fn a_way_is_read_as_it_is_said() {
        let counted = Path { origin: Some(Uuid::from_u128(7)), ..path([7, 8], true) };
        for path in [path([7, 8], true), path([], false), counted] {
            assert_eq!(read(&path.to_value().to_string()), Some(path));
        }
        for odd in ["[]", "{}", r#"{"servers":["x"],"connected":true}"#, r#"{"servers":[]}"#] {
            assert_eq!(read(odd), None, "{odd}");
        }
        let long = path(0..100_000, true).to_value().to_string();
        assert_eq!(read(&long).map(|path| path.servers.len()), Some(SERVERS_MAX + 1));
    }

    #[test]
    fn who_is_on_the_way_does_not_follow_it() {
        let fault = |path: Path| path.fault(Uuid::from_u128(1));
        assert_eq!(fault(path([7, 8], true)), None);
        assert_eq!(fault(path([8], false)), Some(Fault::Lost));
        let Some(Fault::Loop(text)) = fault(path([7, 1, 8], true)) else { panic!("it is") };
        assert_eq!(text, format!("{} > {}", Uuid::from_u128(1), Uuid::from_u128(8)));
        assert_eq!(fault(path(2..2 + SERVERS_MAX, true)), None);
        assert_eq!(fault(path(2..3 + SERVERS_MAX, true)), Some(Fault::Long));
    }
}

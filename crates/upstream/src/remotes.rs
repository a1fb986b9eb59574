//! The servers that may be followed: connection methods separated by commas, and the cluster that
//! they must be of (ovsdb(7), "Connection Methods").

/// Servers that have the same database, in the order in which they are tried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remotes {
    servers: Vec<String>,
    cluster: Option<String>,
    /// The one that is tried next.
    next: usize,
}

/// Whether a text is the name of a server, by the rule of ovsdb-client: a letter first, and a colon
/// somewhere.
pub fn looks_like_server(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.contains(':')
}

impl Remotes {
    /// Reads a list such as `tcp:192.0.2.1:6642,ssl:h:6642,cid:UUID`. A comma that no connection
    /// method follows belongs to the name of a socket.
    pub fn parse(list: &str) -> Self {
        let mut parts: Vec<String> = Vec::new();
        for piece in list.split(',') {
            match parts.last_mut() {
                Some(last) if !looks_like_server(piece) => {
                    last.push(',');
                    last.push_str(piece);
                }
                _ => parts.push(piece.to_owned()),
            }
        }
        let mut remotes = Self::default();
        for part in parts {
            match part.strip_prefix("cid:") {
                Some(cluster) => remotes.cluster = Some(cluster.to_owned()),
                None => remotes.servers.push(part),
            }
        }
        remotes
    }

    /// One server, whatever its name.
    pub fn one(server: &str) -> Self {
        Self { servers: vec![server.to_owned()], ..Self::default() }
    }

    /// Changes the order, so that not all that follow the same servers begin with the same one.
    pub fn shuffle(&mut self, mut random: impl FnMut() -> u64) {
        for at in (1..self.servers.len()).rev() {
            let other = random() % (at as u64 + 1);
            self.servers.swap(at, other as usize);
        }
    }

    /// The servers.
    pub fn servers(&self) -> &[String] {
        &self.servers
    }

    /// The cluster that they must be of.
    pub fn cluster(&self) -> Option<&str> {
        self.cluster.as_deref()
    }

    /// Whether there is one address, at which another server may be the next time: a name, or an address that a
    /// service gives out in turn.
    pub(crate) fn is_one_address(&self) -> bool {
        let [server] = &self.servers[..] else { return false };
        ["tcp:", "ssl:"].iter().any(|method| server.starts_with(method))
    }

    /// The server that is to be tried now; the one behind it is next.
    pub(crate) fn take_next(&mut self) -> String {
        let at = self.next % self.servers.len().max(1);
        self.next = at + 1;
        self.servers.get(at).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_servers_and_a_cluster() {
        let remotes = Remotes::parse("unix:a,b.sock,tcp:1.2.3.4:5,cid:77");
        assert_eq!(remotes.servers(), ["unix:a,b.sock", "tcp:1.2.3.4:5"]);
        assert_eq!(remotes.cluster(), Some("77"));
        assert_eq!(Remotes::parse("unix:x,").servers(), ["unix:x,"]);
    }

    #[test]
    fn servers_by_their_looks() {
        for (arg, expected) in [
            ("unix:x", true),
            ("tcp:1.2.3.4:5", true),
            ("Network", false),
            ("[\"Network\",{\"a\":1}]", false),
            ("/tmp/x:y", false),
        ] {
            assert_eq!(looks_like_server(arg), expected, "{arg}");
        }
    }

    #[test]
    fn servers_take_turns() {
        let mut remotes = Remotes::parse("tcp:a:1,tcp:b:1");
        let three: Vec<String> = (0..3).map(|_| remotes.take_next()).collect();
        assert_eq!(three, ["tcp:a:1", "tcp:b:1", "tcp:a:1"]);
    }

    #[test]
    fn a_shuffled_list_has_the_same_servers() {
        let mut remotes = Remotes::parse("tcp:a:1,tcp:b:1,tcp:c:1");
        let mut number = 0;
        remotes.shuffle(|| {
            number += 7;
            number
        });
        let mut servers = remotes.servers().to_vec();
        assert_ne!(servers, ["tcp:a:1", "tcp:b:1", "tcp:c:1"]);
        servers.sort();
        assert_eq!(servers, ["tcp:a:1", "tcp:b:1", "tcp:c:1"]);
    }
}

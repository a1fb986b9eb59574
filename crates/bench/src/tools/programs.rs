//! `ovsdb-client` and `ovsdb-tool` that belong to a server.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::error::fail;
use crate::peer::Peer;

/// Where packages put the client and the tool; the server is elsewhere.
const PACKAGED: &str = "/usr/bin";

/// The programs of one side.
pub(crate) struct Programs {
    pub(crate) client: PathBuf,
    pub(crate) tool: PathBuf,
}

impl Programs {
    /// The programs beside the server, or links to it where it is all of them; the links are made
    /// in `dir`.
    pub(crate) fn beside(peer: &Peer, dir: &Path) -> Result<Self, Error> {
        let Some(server) = peer.program() else {
            fail!("tools: it wants --peer, not --server");
        };
        if server.file_name().is_some_and(|name| name != "ovsdb-server") {
            let links = dir.join(format!("bin-{}", peer.name));
            let link = |name: &str| {
                let link = links.join(name);
                match symlink(server, &link) {
                    Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                        Err(Error::io("linking", &link, e))
                    }
                    _ => Ok(link),
                }
            };
            fs::create_dir_all(&links).map_err(|e| Error::io("creating", &links, e))?;
            return Ok(Self { client: link("ovsdb-client")?, tool: link("ovsdb-tool")? });
        }
        let find = |name: &str| {
            let beside = server.parent().map(|folder| folder.join(name));
            let found = [beside, Some(Path::new(PACKAGED).join(name))];
            let found = found.into_iter().flatten().find(|path| path.exists());
            found.ok_or_else(|| Error::Check(format!("{}: no {name} beside it", server.display())))
        };
        Ok(Self { client: find("ovsdb-client")?, tool: find("ovsdb-tool")? })
    }
}

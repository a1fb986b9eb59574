//! `weir_path`: by which way the rows of a database come here (docs/decisions/013).

use std::collections::BTreeMap;

use weir_data::{Error, Uuid};
use weir_json::{Text, Value};
use weir_upstream::path::Path;

use crate::clusters::Clusters;
use crate::ids::{DbId, SessionId};
use crate::relays::{Relay, Relays};
use crate::reply::{Handled, Reply, exactly};
use crate::server::Server;

impl Server {
    /// The way is answered, and told again whenever it changes, until the session ends.
    pub(in crate::server) fn ask_path(
        &mut self,
        session: SessionId,
        db: DbId,
        params: Text<'_>,
    ) -> Handled {
        if exactly::<1>(params).is_none() {
            return Err(Error::syntax(params, "weir_path: one parameter expected").into());
        }
        let Self { id, databases, clusters, relays, .. } = self;
        let name = databases.get(db).expect("it was looked up").name();
        let path = path_of(*id, clusters, &relays.by_db, db);
        let result = path.to_value().to_string();
        relays.paths.ask(name, path, session);
        Ok(Reply::Result(result.into_bytes()))
    }

    /// Whoever has asked is told what has changed.
    pub(in crate::server) fn tell_paths(&mut self) {
        let Self { id, shell, sessions, databases, clusters, relays, .. } = self;
        let Relays { by_db, paths, .. } = relays;
        let mut notices = Vec::new();
        paths.look(
            |name| databases.by_name(name).map(|db| path_of(*id, clusters, by_db, db)),
            |session| sessions.takes_notices(shell, session),
            |name, path, session| {
                let params = Value::Array(vec![name.into(), path.to_value()]).to_string();
                notices.push((session, weir_wire::notification("weir_path", params.as_bytes())));
            },
        );
        for (session, notice) in notices {
            shell.send(session, notice);
        }
    }
}

/// All but relays have the rows themselves, or say in `_Server` that they do not.
fn path_of(own_id: Uuid, clusters: &Clusters, relays: &BTreeMap<DbId, Relay>, db: DbId) -> Path {
    match (relays.get(&db), clusters.part(db)) {
        (Some(relay), _) => relay.follower.path(),
        (None, Some(part)) => Path::of_source(own_id, part.member.cluster()),
        (None, None) => Path::of_source(own_id, Some(own_id)),
    }
}

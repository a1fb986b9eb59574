//! `weir_log`: who waits for a search in the log of changes (`docs/log-of-changes.md`).

use std::collections::BTreeMap;

use weir_data::{Error, Schema, Uuid};
use weir_json::Text;

use crate::database::{Databases, Db};
use crate::effect::Effect;
use crate::ids::{DbId, SessionId, WorkId};
use crate::reply::{Handled, Reply};
use crate::session::Sessions;
use crate::shell::Shell;
use crate::work::{Found, Wanted, Word};

/// How many changes are told unless somebody says.
const LIMIT: usize = 100;

/// The most changes that are told.
const LIMIT_MAX: usize = 10_000;

/// Most searches under way at the same time; more are refused.
const SEARCHES_MAX: usize = 16;

/// Most searches of one session; more are refused.
const SEARCHES_OF_SESSION_MAX: usize = 4;

/// Who waits for a search.
#[derive(Debug)]
struct Asker {
    session: SessionId,
    /// The request's id, as JSON text.
    request: Vec<u8>,
}

/// Who waits for searches.
#[derive(Debug, Default)]
pub(crate) struct LogSearches {
    out: BTreeMap<WorkId, Asker>,
}

impl LogSearches {
    /// A session asks for changes of a database, all of which are decided.
    pub(crate) fn search(
        &mut self,
        shell: &mut Shell,
        sessions: &Sessions,
        databases: &Databases,
        (session, db): (SessionId, DbId),
        params: Text<'_>,
        request: &[u8],
    ) -> Handled {
        let wanted = wanted(params, databases.get(db).map(Db::schema).expect("it was looked up"))?;
        let identity = sessions.get(session).expect("its request is being handled").identity();
        identity.check_may_hear_of_others("read the log")?;
        let search = databases.search(db, wanted).map_err(|_| {
            let details = "this server keeps no history (--no-standalone-history)";
            Reply::from(Error::new("not supported", details))
        })?;
        let Some(search) = search else { return Ok(Reply::Result(b"[]".to_vec())) };
        self.check_room(session)?;
        // A member's file has entries, which nobody looks for there.
        let has_file = databases.get(db).is_some_and(|db| db.file().is_some());
        let id = shell.search(session, (db, has_file), Box::new(search));
        self.out.insert(id, Asker { session, request: request.to_owned() });
        Ok(Reply::Later)
    }

    fn check_room(&self, session: SessionId) -> Result<(), Error> {
        let own = self.out.values().filter(|asker| asker.session == session).count();
        let whose = if own >= SEARCHES_OF_SESSION_MAX {
            "this client waits"
        } else if self.out.len() >= SEARCHES_MAX {
            "clients wait"
        } else {
            return Ok(());
        };
        let details = format!("{whose} for as many searches as the server does");
        Err(Error::new("resources exhausted", details))
    }

    /// A helper has searched: who waits for it, if anybody does any more, and the answer.
    pub(crate) fn have_found(
        &mut self,
        id: WorkId,
        Found(found): Found,
    ) -> (SessionId, Vec<u8>, Reply) {
        let asker = self.out.remove(&id).expect("a helper answers what it was asked");
        let reply = found.map_or_else(Reply::from, Reply::Result);
        (asker.session, asker.request, reply)
    }

    /// A session has left: nobody waits for what it has asked for.
    pub(crate) fn forget_session(&self, shell: &mut Shell, session: SessionId) {
        for (id, _) in self.out.iter().filter(|(_, asker)| asker.session == session) {
            shell.ask(Effect::Say { id: *id, word: Word::Stop });
        }
    }
}

/// The parameters of `weir_log`, of which the first is the database's name.
fn wanted(params: Text<'_>, schema: &Schema) -> Result<Wanted, Error> {
    let wrong = |details: &str| Error::syntax(params, format!("weir_log: {details}"));
    let mut wanted = Wanted { since: None, table: None, row: None, limit: LIMIT };
    let mut rest = params.elements().into_iter().flatten().skip(1);
    if let Some(options) = rest.next() {
        let options = options.object().ok_or_else(|| wrong("options must be an object"))?;
        for (name, value) in options.iter() {
            take(&mut wanted, name, value, schema).map_err(|details| wrong(&details))?;
        }
    }
    match rest.next() {
        Some(_) => Err(wrong("at most two parameters expected")),
        None => Ok(wanted),
    }
}

fn take(wanted: &mut Wanted, name: &[u8], value: Text<'_>, schema: &Schema) -> Result<(), String> {
    let uuid = || value.str().and_then(|text| Uuid::parse_bytes(text.as_bytes()));
    match name {
        b"since" => {
            let id = uuid().ok_or("since must be the id of a transaction")?;
            wanted.since = (id != Uuid::ZERO).then_some(id);
        }
        b"row" => wanted.row = Some(uuid().ok_or("row must be a UUID")?),
        b"table" => {
            let name = value.str().ok_or("table must be a string")?;
            wanted.table = Some(schema.table_id(&name).ok_or(format!("No table named {name}."))?);
        }
        b"limit" => {
            let limit = value.integer().and_then(|limit| usize::try_from(limit).ok());
            let limit = limit.filter(|limit| (1..=LIMIT_MAX).contains(limit));
            wanted.limit =
                limit.ok_or(format!("limit must be an integer from 1 to {LIMIT_MAX}"))?;
        }
        name => return Err(format!("unknown option {}", String::from_utf8_lossy(name))),
    }
    Ok(())
}

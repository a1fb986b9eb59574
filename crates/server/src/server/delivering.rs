//! Requests and admin commands about deliveries.

use weir_data::Error;
use weir_json::Text;

use crate::delivery::{Asked, Asker, State, Wish};
use crate::ids::{CommandId, DbId, SessionId};
use crate::reply::{Handled, Reply};
use crate::server::Server;

/// There is no such transaction, or nobody can say any more which it was.
const UNKNOWN: &str = "unknown transaction";

impl Server {
    /// `weir_wait_delivered`: the answer comes when clients have what is asked for.
    pub(super) fn wait_delivered(
        &mut self,
        session: SessionId,
        db: DbId,
        params: Text<'_>,
        request: &[u8],
    ) -> Handled {
        let identity = self.sessions.get(session).expect("its request is handled").identity();
        identity.check_may_hear_of_others("ask who has a change")?;
        let wish = Wish::of_params(params)?;
        let unknown = || Error::syntax_tagged(params, UNKNOWN, "this server does not know its id");
        let asked = self.asked(db, wish).ok_or_else(unknown)?;
        let asker = Asker::Session(session, request.to_owned());
        self.deliveries.wait(&self.shell, asker, asked)?;
        Ok(Reply::Later)
    }

    /// `weir/wait-delivered DB [TXN|now] [N|all] [SECONDS]`; the answer comes later.
    pub(super) fn wait_delivered_command(
        &mut self,
        id: CommandId,
        args: &[String],
    ) -> Result<(), String> {
        let (name, words) = args.split_first().ok_or("a database expected")?;
        let db = self.databases.by_name(name).ok_or("no such database")?;
        let asked = self.asked(db, Wish::of_words(words)?).ok_or(UNKNOWN)?;
        let waiting = self.deliveries.wait(&self.shell, Asker::Command(id), asked);
        waiting.map_err(|error| error.details().unwrap_or_default().to_owned())
    }

    /// `weir/delivery [DB]`; the answer comes when the shell has looked at the outboxes.
    pub(super) fn delivery_command(
        &mut self,
        id: CommandId,
        name: Option<&String>,
    ) -> Result<(), String> {
        let db = match name {
            Some(name) => Some(self.databases.by_name(name).ok_or("no such database")?),
            None => None,
        };
        self.deliveries.tabulate(&self.shell, id, db)
    }

    /// What is waited for, if the state is known.
    fn asked(&self, db: DbId, wish: Wish) -> Option<Asked> {
        let position = match wish.state {
            State::Now => self.databases.shown(db)?,
            State::Id(id) => self.databases.position_of(db, id)?,
        };
        Some(wish.at(db, position))
    }
}

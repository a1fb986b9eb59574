//! What is committed, asked of the source: for clients of a relay that must not read what is stale
//! (`weir_sync`, docs/decisions/013).

use weir_data::{Error, Uuid};

use crate::clusters::AGAIN_US;
use crate::database::Db;
use crate::ids::DbId;
use crate::relays::Syncing;
use crate::relays::forwards::Passed;
use crate::server::Server;
use crate::server::relaying::requests::{NOT_SUPPORTED, says_not_supported, state_of};

/// How long the source may take to say that it has everything, in milliseconds; then it is asked again.
const SYNC_MS: u64 = 10_000;

impl Server {
    /// Whether anybody can say what is committed.
    ///
    /// # Errors
    /// The source of a relay cannot, and a backup has nobody to ask.
    pub(in crate::server) fn check_sync(&self, db: DbId) -> Result<(), Error> {
        if self.databases.get(db).is_some_and(Db::is_backup) {
            let details = "a backup cannot ask its source what is committed";
            return Err(Error::new(NOT_SUPPORTED, details));
        }
        let lacks = self
            .relays
            .get(db)
            .is_some_and(|relay| relay.follower.is_following() && !relay.follower.has("weir_sync"));
        if lacks {
            let details = "the source of this relay has no weir_sync";
            return Err(Error::new(NOT_SUPPORTED, details));
        }
        Ok(())
    }

    /// Asks the source, for all who wait.
    pub(in crate::server) fn ask_source(&mut self, db: DbId) {
        let now_us = self.shell.now_us();
        if !self.relays.get_mut(db).follower.may_ask() {
            return self.states.ask_later(now_us + AGAIN_US);
        }
        // They may have come while another source was awaited.
        if let Err(error) = self.check_sync(db) {
            let question = self.states.ask(db, (Uuid::ZERO, 0));
            return self.states.refuse(&mut self.shell, (db, question), &error);
        }
        let relay = self.relays.get_mut(db);
        // Who is asked, is the server at the end of this connection.
        let question = self.states.ask(db, (Uuid::ZERO, 0));
        let params = format!("[{},{SYNC_MS}]", weir_json::Value::from(relay.name.as_str()));
        let mut out = Vec::new();
        let request = relay.follower.ask_for_owner("weir_sync", params.as_bytes(), &mut out);
        let passed = Passed::default();
        relay.syncing = Some(Syncing { question, request, has_all: false, passed });
        self.carry_out_relay(db, out);
    }

    /// The source has answered; false if that was something else.
    pub(super) fn sync_reply(
        &mut self,
        db: DbId,
        number: u64,
        reply: &Result<Vec<u8>, Vec<u8>>,
    ) -> bool {
        let relay = self.relays.get_mut(db);
        let Some(syncing) = relay.syncing.take_if(|syncing| syncing.request == number) else {
            return false;
        };
        let Syncing { question, has_all, mut passed, .. } = syncing;
        match reply {
            // What it has comes here before the name of its state does.
            Ok(_) if !relay.follower.may_ask() => self.ask_source_again(db),
            Ok(_) if !has_all => {
                let params = format!("[{},{{}}]", weir_json::Value::from(relay.name.as_str()));
                let mut out = Vec::new();
                let asked = "weir_transact";
                let request = relay.follower.ask_for_owner(asked, params.as_bytes(), &mut out);
                passed.push(relay.follower.last());
                relay.syncing = Some(Syncing { question, request, has_all: true, passed });
                self.carry_out_relay(db, out);
            }
            Ok(result) => match weir_json::validate(result).ok().and_then(state_of) {
                Some(id) => {
                    // One that the log has lost, too, is behind what the relay has.
                    let is_lost = passed.has(id) && self.databases.position_of(db, id).is_none();
                    let id = if is_lost { self.relays.get_mut(db).follower.last() } else { id };
                    self.states.answered_with_id(db, question, id);
                }
                None => {
                    let details = "the source of this relay gives its states no ids";
                    self.refuse_sync(db, question, details);
                }
            },
            // A relay says so of its own source: asking again would not help before that is another one.
            Err(error) if says_not_supported(error) => {
                let details = "the source of this relay cannot say what is committed";
                self.refuse_sync(db, question, details);
            }
            Err(_) => self.ask_source_again(db),
        }
        true
    }

    /// Nobody behind this relay can say what is committed.
    fn refuse_sync(&mut self, db: DbId, question: u64, details: &str) {
        let error = Error::new(NOT_SUPPORTED, details);
        self.states.refuse(&mut self.shell, (db, question), &error);
    }

    fn ask_source_again(&mut self, db: DbId) {
        let at_us = self.shell.now_us() + AGAIN_US;
        self.states.ask_again(db, at_us);
    }
}

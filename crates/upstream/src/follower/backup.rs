//! The dialogue of a backup with the server that is active (ovsdb-server(1), "Syncing Options"), in
//! the words of the reference:
//!
//! 1. `get_server_id`: nobody follows himself.
//! 2. `list_dbs`, `get_schema`: the database is there, and its rows fit in here.
//! 3. `monitor` of all tables but the excluded: the answer replaces what is here.
//! 4. Each `update` is one transaction here.
//!
//! What cannot get better by itself ends it; a lost connection never does.

use std::collections::BTreeSet;
use std::sync::Arc;

use weir_data::{Error, Schema, Uuid};
use weir_json::{Kind, Text, Value, array};

use super::{Asked, Follower, Model, Output, Phase, Status, Stop};
use crate::compatible;
use crate::news::Method;
use crate::session::Level;

/// What logs name the module of what a backup says.
pub(super) const MODULE: &str = "replication";

/// A database that becomes like that of another server.
#[derive(Debug)]
pub struct Backup {
    /// What this server answers to `get_server_id`.
    pub own_id: Uuid,
    /// Tables that are left alone.
    pub excluded: BTreeSet<String>,
    /// What rows conform to here.
    pub schema: Arc<Schema>,
}

/// What a backup asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    ServerId,
    Databases,
    Schema,
    Rows,
}

impl Follower {
    /// The rows cannot be made like those of the source, and never will be.
    pub fn fail(&mut self, error: &Error, out: &mut Vec<Output>) {
        // As the reference: this is said before anybody looks at the first rows.
        if matches!(self.phase, Phase::Asking(_)) {
            self.say_reset(out);
        }
        let text = format!("unexpected ovsdb error: {error}");
        out.push(Output::Log { module: "ovsdb_error", level: Level::Error, text });
        self.end(out);
    }

    /// Following is over, and all has been said.
    pub(super) fn end(&mut self, out: &mut Vec<Output>) {
        self.status = Status::Failed;
        out.push(Output::Failed);
    }

    pub(super) fn ask_for_server_id(&mut self) {
        self.ask("get_server_id", b"[]", Asked::Backup(Step::ServerId));
    }

    pub(super) fn backup_reply(
        &mut self,
        step: Step,
        reply: Result<Text<'_>, Text<'_>>,
        out: &mut Vec<Output>,
    ) -> Result<(), Stop> {
        let Model::Backup(backup) = &self.wanted.model else {
            unreachable!("only a backup takes these steps")
        };
        let (backup, name) = (Arc::clone(backup), self.wanted.database.as_str());
        let result = reply.map_err(|error| {
            let (server, error) = (self.session.name(), error.to_value());
            Stop::Other(Level::Warning, format!("{name}: {server} refused a request: {error}"))
        })?;
        match step {
            Step::ServerId => {
                let Some(id) = result.string().and_then(|id| Uuid::parse_bytes(&id)) else {
                    let details = format!("{name}: Server ID is not valid UUID");
                    return Err(failed("get_server_id", details));
                };
                if id == backup.own_id {
                    let details = format!("{name}: Self replicating is not allowed");
                    return Err(Stop::Failed(Error::new("Server ID check failed", details)));
                }
                self.ask("list_dbs", b"[]", Asked::Backup(Step::Databases));
            }
            Step::Databases => {
                let names = result.elements().filter(|_| result.kind() == Kind::Array);
                let Some(mut names) = names else {
                    let details = format!("{name}: list_dbs response is not array");
                    return Err(failed("list_dbs", details));
                };
                if !names.any(|found| found.str().as_deref() == Some(name)) {
                    let details = format!("{name}: database name is not in the list");
                    return Err(failed("list_dbs", details));
                }
                let params = array([name]).to_string();
                self.ask("get_schema", params.as_bytes(), Asked::Backup(Step::Schema));
            }
            Step::Schema => self.check_schema(&backup, result, out)?,
            Step::Rows => unreachable!("a reader of rows has taken the answer for itself"),
        }
        Ok(())
    }

    fn check_schema(
        &mut self,
        backup: &Backup,
        result: Text<'_>,
        out: &mut Vec<Output>,
    ) -> Result<(), Stop> {
        let name = self.wanted.database.clone();
        let remote = Schema::parse(result).map_err(Stop::Failed)?;
        if remote.name != name {
            let text = format!("{name}: unexpected schema {}.", remote.name);
            self.say(Level::Warning, text, out);
            return Err(Stop::Over);
        }
        if remote != *backup.schema {
            let text = format!(
                "{name}: Schema version mismatch, checking if {name} can still be replicated or \
                 not."
            );
            self.say(Level::Info, text, out);
            if let Err(why) = compatible::fits(&backup.schema, &remote) {
                self.say(Level::Info, why, out);
                self.say(Level::Info, format!("{name} cannot be replicated."), out);
                self.say(Level::Warning, "Nothing to replicate.".to_owned(), out);
                return Err(Stop::Over);
            }
            self.say(Level::Info, format!("{name} can be replicated."), out);
        }
        self.schema = Some((Arc::clone(&backup.schema), result.to_value().to_string()));
        self.method = Method::Monitor;
        let tables = remote.table_ids().map(|(_, table)| &table.name);
        let params =
            monitor_params(&name, tables.filter(|table| !backup.excluded.contains(*table)));
        let number = self.ask(self.method.name(), &params, Asked::Backup(Step::Rows));
        self.phase = Phase::Asking(number);
        Ok(())
    }

    pub(super) fn backup_notice(
        &self,
        method: &str,
        params: Text<'_>,
        out: &mut Vec<Output>,
    ) -> Result<(), Stop> {
        let mut elements = params.elements().into_iter().flatten();
        let (Some(id), Some(_), None) = (elements.next(), elements.next(), elements.next()) else {
            return Ok(());
        };
        let (Some(id), name) = (id.str(), &self.wanted.database) else { return Ok(()) };
        if method == "update" && id != name.as_str() {
            let text = format!("{name}: received update for unexpected database {id}");
            self.say(Level::Warning, text, out);
            return Err(Stop::Over);
        }
        Ok(())
    }

    pub(super) fn say_reset(&self, out: &mut Vec<Output>) {
        let name = &self.wanted.database;
        let text = format!("{name}: Monitor reply received. Resetting the database.");
        self.say(Level::Info, text, out);
    }
}

/// The database, its name again as the monitor's, and all columns of these tables.
fn monitor_params<'a>(name: &str, tables: impl Iterator<Item = &'a String>) -> Vec<u8> {
    let all = || Value::Array(vec![Value::Object(Default::default())]);
    let requests = Value::Object(tables.map(|table| (table.clone(), all())).collect());
    Value::Array(vec![name.into(), name.into(), requests]).to_string().into_bytes()
}

fn failed(method: &str, details: String) -> Stop {
    Stop::Failed(Error::new(format!("{method} failed"), details))
}

#[cfg(test)]
mod tests;

//! From what is configured, and what tables say, to listeners and connections.

use std::collections::BTreeMap;

use weir_data::TableId;
use weir_upstream::backoff::Attempt;

use crate::database::Databases;
use crate::effect::{Effect, Level, RemoteOptions};
use crate::ids::{DbId, RemoteId};
use crate::remotes::connections::Outgoing;
use crate::remotes::tables::{self, column_place, listens, place, targets};
use crate::remotes::{Complaints, Remote, Remotes, Way};
use crate::session::Sessions;
use crate::shell::Shell;

/// What strerror(3) says of an address that nobody can listen on or connect to.
const NOT_SUPPORTED: &str = "Address family not supported by protocol";

impl Remotes {
    /// What is wrong with `db:` remotes, a line each: that fails a reconfiguration, while later it is
    /// only worth a warning.
    pub(crate) fn errors(&self, databases: &Databases) -> String {
        let here = self.in_tables().filter(|remote| !self.is_awaited(remote));
        let errors = here.filter_map(|remote| place(databases, remote).err());
        let errors: Vec<String> = errors.chain(self.tls.errors(databases, &self.awaited)).collect();
        errors.into_iter().map(|error| error + "\n").collect()
    }

    /// Opens, closes and adjusts what has changed, if that can be read now. Answers with the remotes
    /// that are closed, whose sessions end.
    pub(crate) fn follow(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &Databases,
    ) -> Vec<RemoteId> {
        let mut closed = Vec::new();
        if !self.is_started || !self.can_be_read(databases) {
            return closed;
        }
        self.is_stale = false;
        self.sources = self.read_sources(databases);
        self.homes = self.read_homes(databases);
        self.tls.follow(shell, databases, &self.awaited);
        let (wanted, complaints) = self.wanted(databases);
        for (about, (level, text)) in &complaints {
            if self.complaints.get(about).is_none_or(|(_, old)| old != text) {
                shell.log("ovsdb_server", *level, text.clone());
            }
        }
        self.complaints = complaints;
        let open: Vec<String> = self.open.keys().cloned().collect();
        for target in open {
            match wanted.get(&target) {
                Some(options) => closed.extend(self.adjust(shell, sessions, &target, options)),
                None => {
                    let text = format!("{target}: remote deconfigured");
                    shell.log("ovsdb_jsonrpc_server", Level::Info, text);
                    closed.push(self.close(shell, &target));
                }
            }
        }
        for (target, options) in wanted {
            if !self.open.contains_key(&target) {
                self.open(shell, target, options);
            }
        }
        closed
    }

    /// A database is to come that tables are looked for in; until then nobody misses them.
    pub(crate) fn await_database(&mut self, name: &str) {
        self.awaited.insert(name.to_owned());
    }

    /// A database has come, or will not.
    pub(crate) fn await_no_more(&mut self, name: &str) {
        self.awaited.remove(name);
    }

    fn is_awaited(&self, remote: &str) -> bool {
        tables::db_name(remote).is_some_and(|name| self.awaited.contains(name))
    }

    /// Tells the shell of the options of TLS as far as they are known, before it connects to anybody.
    pub(crate) fn tell_tls(&mut self, shell: &mut Shell, databases: &Databases) {
        self.tls.tell(shell, databases);
    }

    /// Whether all tables that remotes are read from are here, and show what is committed.
    fn can_be_read(&self, databases: &Databases) -> bool {
        let mut columns = self.in_tables().chain(self.tls.columns());
        columns.all(|column| {
            column_place(databases, column).map_or(true, |(db, _)| db.committed().is_some())
        })
    }

    /// Other options for what is open: some need it to be opened anew, the others count at once.
    fn adjust(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        target: &str,
        options: &RemoteOptions,
    ) -> Option<RemoteId> {
        let remote = self.open.get_mut(target).expect("only what is open is adjusted");
        if (remote.options.dscp, &remote.options.role) != (options.dscp, &options.role) {
            return Some(self.close(shell, target));
        }
        let old = std::mem::replace(&mut remote.options, options.clone());
        if let Way::Out(outgoing) = &mut remote.way {
            outgoing.set_options(options);
        }
        if old.probe_ms != options.probe_ms {
            sessions.set_probe_interval(remote.id, options.probe_ms);
        }
        None
    }

    /// The tables that remotes and options of TLS are read from. A name that leads nowhere has been
    /// complained about.
    fn read_sources(&self, databases: &Databases) -> Vec<(DbId, TableId)> {
        let mut sources = Vec::new();
        for (db, place) in self.in_tables().filter_map(|remote| place(databases, remote).ok()) {
            let column = db.schema().table(place.table).column(place.column);
            sources.push((place.db, place.table));
            sources.extend(column.refs.key.map(|(table, _)| (place.db, table)));
        }
        sources.extend(self.tls.sources(databases));
        sources
    }

    /// The databases that columns of remotes are in; the names of some may lead nowhere.
    fn read_homes(&self, databases: &Databases) -> Vec<DbId> {
        let places = self.in_tables().filter_map(|place| column_place(databases, place).ok());
        places.map(|(_, place)| place.db).collect()
    }

    fn wanted(&self, databases: &Databases) -> (BTreeMap<String, RemoteOptions>, Complaints) {
        let mut wanted = BTreeMap::new();
        let mut complaints = Complaints::new();
        for (remote, options) in &self.configured {
            if !remote.starts_with("db:") {
                wanted.insert(remote.clone(), options.clone());
                continue;
            }
            if self.is_awaited(remote) {
                continue;
            }
            let named = match place(databases, remote) {
                Ok((db, place)) => targets(db, &place),
                Err(error) => {
                    complaints.insert(remote.clone(), (Level::Warning, error));
                    continue;
                }
            };
            for named in named {
                match named {
                    Ok((target, _)) if target.starts_with("pfd:") => {
                        let text = format!(
                            "pfd: remotes can only be specified on the command line; \
                             ignoring \"{target}\" from database"
                        );
                        complaints.insert(target, (Level::Warning, text));
                    }
                    Ok((target, options)) => {
                        wanted.insert(target, options);
                    }
                    Err(table) => {
                        let text =
                            format!("Table `{table}' has missing or invalid `target' column");
                        complaints.insert(format!("{remote} {table}"), (Level::Info, text));
                    }
                }
            }
        }
        (wanted, complaints)
    }

    fn open(&mut self, shell: &mut Shell, target: String, options: RemoteOptions) {
        self.next += 1;
        let id = RemoteId(self.next);
        let is_in = listens(&target);
        let way = if is_in {
            Way::In { port: None }
        } else {
            Way::Out(Outgoing::new(&target, Attempt::Connect, &options))
        };
        let remote = Remote { id, options: options.clone(), way, tried: !is_in };
        self.open.insert(target.clone(), remote);
        self.note_ways();
        if is_in {
            shell.ask(Effect::Listen { remote: id, target, options });
        }
    }

    fn close(&mut self, shell: &mut Shell, target: &str) -> RemoteId {
        let remote = self.open.remove(target).expect("only what is open is closed");
        self.note_ways();
        shell.ask(Effect::Unlisten { remote: remote.id });
        remote.id
    }

    /// A listener has been opened, or not.
    pub(crate) fn listening(
        &mut self,
        shell: &mut Shell,
        id: RemoteId,
        result: Result<Option<u16>, String>,
    ) {
        // It may have been closed meanwhile.
        let found = self.open.iter_mut().find(|(_, remote)| remote.id == id);
        let Some((target, remote)) = found else { return };
        let first = !std::mem::replace(&mut remote.tried, true);
        let error = match result {
            Ok(port) => {
                remote.way = Way::In { port };
                return self.note_ways();
            }
            Err(error) => error,
        };
        if error == NOT_SUPPORTED {
            // As the reference: what nobody can listen on is tried as if it were a connection.
            remote.way = Way::Out(Outgoing::new(target, Attempt::Listen, &remote.options));
            shell.ask(Effect::Unlisten { remote: id });
            self.note_ways();
        } else if first {
            let text = format!("{target}: listen failed: {error}");
            shell.log("ovsdb_jsonrpc_server", Level::Error, text);
        }
    }

    /// `ovsdb-server/add-remote`; true if that is a new one.
    pub(crate) fn add(&mut self, databases: &Databases, remote: &str) -> Result<bool, String> {
        if remote.starts_with("db:") {
            place(databases, remote)?;
        } else if remote.starts_with("pfd:") {
            return Err("pfd: remotes can only be specified on the command line".into());
        }
        if self.configured.contains_key(remote) {
            return Ok(false);
        }
        self.configured.insert(remote.to_owned(), RemoteOptions::default());
        Ok(true)
    }

    /// `ovsdb-server/remove-remote`
    pub(crate) fn remove(&mut self, remote: &str) -> Result<(), String> {
        self.configured.remove(remote).ok_or("no such remote")?;
        Ok(())
    }

    /// `ovsdb-server/list-remotes`
    pub(crate) fn list(&self) -> String {
        self.configured.keys().map(|remote| format!("{remote}\n")).collect()
    }
}

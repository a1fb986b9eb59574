//! Admin commands about replication (ovsdb-server(1), "Active-Backup Commands").

use weir_upstream::follower::Status;

use crate::backup::{ActiveBackup, Backups, Following};
use crate::configuration::{Source, check_excluded};
use crate::database::Databases;
use crate::ids::DbId;
use crate::shell::Shell;

impl Backups {
    /// `ovsdb-server/get-active-ovsdb-server`
    pub(crate) fn active_server(&self) -> String {
        self.sync.from.clone().unwrap_or_default()
    }

    /// `ovsdb-server/get-sync-exclude-tables`
    pub(crate) fn excluded_tables(&self) -> String {
        self.sync.exclude.clone().unwrap_or_default()
    }

    /// `ovsdb-server/set-active-ovsdb-server`: takes effect when replications begin next.
    pub(crate) fn set_active_server(&mut self, target: &str) {
        self.sync.from = Some(target.to_owned());
        for backup in self.by_db.values_mut() {
            match &mut backup.source {
                Some(source) => target.clone_into(&mut source.target),
                None => backup.source = Some(Source::new(target, self.sync.probe_ms)),
            }
        }
        self.is_changed = true;
    }

    /// `ovsdb-server/connect-active-ovsdb-server`: of standalone databases; those of clusters and relays have rows of
    /// others already.
    pub(crate) fn connect_active_server(
        &mut self,
        shell: &mut Shell,
        databases: &mut Databases,
    ) -> String {
        let Some(from) = self.sync.from.clone() else {
            return "Unable to connect: active server is not specified.\n".into();
        };
        for id in databases.ids_where(|db| !db.is_reserved() && !db.storage().is_shared()) {
            let sync = &self.sync;
            let backup = self.by_db.entry(id).or_insert_with(|| ActiveBackup {
                source: Some(Source::new(&from, sync.probe_ms)),
                exclude: sync.exclude.clone(),
                following: None,
            });
            if backup.following.is_none() {
                self.start_following(shell, databases, id);
            }
        }
        self.sync.is_backup = true;
        self.is_changed = true;
        String::new()
    }

    /// `ovsdb-server/disconnect-active-ovsdb-server`
    pub(crate) fn disconnect_active_server(
        &mut self,
        shell: &mut Shell,
        databases: &mut Databases,
    ) {
        self.stop_all_following(shell, databases);
        self.is_changed = true;
    }

    /// `ovsdb-server/set-active-ovsdb-server-probe-interval`
    pub(crate) fn set_probe(
        &mut self,
        shell: &mut Shell,
        databases: &mut Databases,
        argument: &str,
    ) -> Result<(), String> {
        let probe_ms = probe_ms(argument)?;
        self.sync.probe_ms = probe_ms;
        self.change_backups(shell, databases, |backup| {
            backup.source.iter_mut().for_each(|source| source.probe_ms = probe_ms);
        });
        Ok(())
    }

    /// `ovsdb-server/set-relay-source-probe-interval`: of relays to come, and what those are to have
    /// that there are.
    pub(crate) fn set_relay_probe(&mut self, argument: &str) -> Result<u64, String> {
        self.sync.relay_probe_ms = probe_ms(argument)?;
        self.is_changed = true;
        Ok(self.sync.relay_probe_ms)
    }

    /// `weir/set-relay-source-max-backoff`: as the probe interval.
    pub(crate) fn set_relay_backoff(&mut self, argument: &str) -> Result<u64, String> {
        let ms: Option<u32> =
            argument.parse().ok().filter(|ms| u64::from(*ms) >= weir_upstream::backoff::MS_MIN);
        let ms = ms.ok_or("Invalid backoff, milliseconds expected, 1000 at least")?;
        (self.sync.relay_backoff_ms, self.is_changed) = (u64::from(ms), true);
        Ok(self.sync.relay_backoff_ms)
    }

    /// `ovsdb-server/set-sync-exclude-tables`: a list that cannot be read is no error for
    /// ovs-appctl.
    pub(crate) fn set_excluded_tables(
        &mut self,
        shell: &mut Shell,
        databases: &mut Databases,
        list: &str,
    ) -> String {
        if let Err(error) = check_excluded(list) {
            return error;
        }
        self.sync.exclude = Some(list.to_owned());
        self.change_backups(shell, databases, |backup| backup.exclude = Some(list.to_owned()));
        String::new()
    }

    /// Changes how databases are replicated; replications that this concerns begin anew.
    fn change_backups(
        &mut self,
        shell: &mut Shell,
        databases: &mut Databases,
        change: impl Fn(&mut ActiveBackup),
    ) {
        self.by_db.values_mut().for_each(change);
        let followed = self.by_db.iter().filter(|(_, backup)| backup.following.is_some());
        let followed: Vec<DbId> = followed.map(|(id, _)| *id).collect();
        followed.into_iter().for_each(|id| self.start_following(shell, databases, id));
        self.is_changed = true;
    }

    /// `ovsdb-server/sync-status`
    pub(crate) fn status(&self, databases: &Databases) -> String {
        let mut text = String::new();
        let last = databases.names().len().saturating_sub(1);
        for (at, (name, id)) in databases.names().enumerate() {
            let Some(backup) = self.by_db.get(&id) else { continue };
            let state = if backup.following.is_some() { "backup" } else { "active" };
            // Scripts for pacemaker (`ovn-ctl status_ovnnb`) look for the state in the first line, where servers
            // before 3.3 have it.
            text += &match self.by_db.len() {
                1 => format!("state: {state}\ndatabase: {name}\n"),
                _ => format!("database: {name}\nstate: {state}\n"),
            };
            if let Some(following) = &backup.following {
                text += &following.status(name);
            }
            if at < last {
                text.push('\n');
            }
        }
        if text.is_empty() { "state: active\n".into() } else { text }
    }
}

impl Following {
    fn status(&self, db: &str) -> String {
        let (target, excluded) = (&self.target, &self.backup.excluded);
        match self.follower.status() {
            Status::Connecting => format!("connecting: {target}"),
            Status::Following if excluded.is_empty() => {
                format!("replicating: {target}\n")
            }
            Status::Following => {
                let excluded = excluded.iter().map(|table| format!("{db}:{table}"));
                let excluded: Vec<String> = excluded.collect();
                format!("replicating: {target}\nexclude: {}", excluded.join(","))
            }
            Status::Failed => format!("Replication to ({target}) failed"),
        }
    }
}

/// Milliseconds; what is below zero is as short as can be.
fn probe_ms(argument: &str) -> Result<u64, String> {
    let ms: i32 = argument.parse().map_err(|_| "Invalid probe interval, integer value expected")?;
    Ok(u64::try_from(ms).unwrap_or(1))
}

//! `ovsdb-server/tlog-set`: committed changes of chosen tables as lines of the log.

use weir_data::{Delta, Row, RowDelta, TableSchema, english};

use crate::effect::Level;
use crate::event::DbId;
use crate::server::Server;

impl Server {
    /// `tlog-set DB:TABLE on|off`
    pub(crate) fn set_table_log(&mut self, args: &[String]) -> Result<String, String> {
        let [place, state] = args else { return Err("invalid command argument".into()) };
        let on = match state.as_str() {
            "on" => true,
            "off" => false,
            _ => return Err("invalid command argument".into()),
        };
        let mut words = place.split(':').filter(|word| !word.is_empty());
        let (Some(database), Some(table), None) = (words.next(), words.next(), words.next()) else {
            return Err("invalid DB:TABLE argument".into());
        };
        let id = self.db_names.get(database).ok_or("no such database")?;
        let db = self.dbs.get_mut(id).ok_or("no such database")?;
        db.engine.schema().table_id(table).ok_or("no such table")?;
        if on {
            db.logged_tables.insert(table.to_owned());
        } else {
            db.logged_tables.remove(table);
        }
        Ok(String::new())
    }

    /// `tlog-list`
    pub(crate) fn list_table_logs(&self) -> String {
        let mut out = String::from(
            "database        table                       logging\n\
             --------        -----                       -------\n",
        );
        for (name, id) in &self.db_names {
            let Some(db) = self.dbs.get(id) else { continue };
            out += &format!("{name:<16} \n");
            for (_, table) in db.engine.schema().table_ids() {
                let state = if db.logged_tables.contains(&table.name) { "ON" } else { "OFF" };
                out += &format!("                {:<27} {state}\n", table.name);
            }
        }
        out
    }

    /// Logs a commit's changes to the chosen tables.
    pub(crate) fn log_changes(&mut self, id: DbId, delta: &Delta) {
        let Some(db) = self.dbs.get(&id).filter(|db| !db.logged_tables.is_empty()) else { return };
        let mut lines = Vec::new();
        for changes in &delta.tables {
            let table = db.engine.schema().table(changes.table);
            if !db.logged_tables.contains(&table.name) {
                continue;
            }
            for (uuid, change) in &changes.rows {
                let present = || db.engine.store()?.get(changes.table, *uuid).cloned();
                let (what, row) = match change {
                    RowDelta::Insert(row) => ("inserted", Some(row.clone())),
                    RowDelta::Delete(row) => ("deleted", Some(row.clone())),
                    RowDelta::Modify(_) => ("updated", present()),
                };
                lines.extend(row.map(|row| line(table, what, &row)));
            }
        }
        for line in lines {
            self.log_limited("table", "transaction", Level::Info, line);
        }
    }
}

fn line(table: &TableSchema, what: &str, row: &Row) -> String {
    let mut line = format!("table:{},op:{what}", table.name);
    for (id, column) in table.column_ids() {
        line += &format!(",{}:{}", column.name, english::datum(row.get(id), &column.ty));
    }
    line
}

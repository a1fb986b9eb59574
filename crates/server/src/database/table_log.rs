//! `ovsdb-server/tlog-set`: committed changes of chosen tables as lines of the log.

use weir_data::{Delta, Row, RowDelta, TableSchema, english};

use crate::database::{Databases, Db};
use crate::effect::Level;
use crate::shell::Shell;

impl Databases {
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
        let id = self.by_name(database).ok_or("no such database")?;
        let db = self.open(id);
        db.schema().table_id(table).ok_or("no such table")?;
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
        for (name, id) in self.names() {
            let db = self.get(id).expect("whatever has a name is open");
            out += &format!("{name:<16} \n");
            for (_, table) in db.schema().table_ids() {
                let state = if db.logged_tables.contains(&table.name) { "ON" } else { "OFF" };
                out += &format!("                {:<27} {state}\n", table.name);
            }
        }
        out
    }
}

impl Db {
    /// Logs a commit's changes to the chosen tables.
    pub(super) fn log_changes(&self, shell: &mut Shell, delta: &Delta) {
        if self.logged_tables.is_empty() {
            return;
        }
        for changes in &delta.tables {
            let table = self.schema().table(changes.table);
            if !self.logged_tables.contains(&table.name) {
                continue;
            }
            for (uuid, change) in &changes.rows {
                let present = || self.tables.store()?.get(changes.table, *uuid).cloned();
                let (what, row) = match change {
                    RowDelta::Insert(row) => ("inserted", Some(row.clone())),
                    RowDelta::Delete(row) => ("deleted", Some(row.clone())),
                    RowDelta::Modify(_) => ("updated", present()),
                };
                if let Some(row) = row {
                    let text = line(table, what, &row);
                    shell.log_limited("table", "transaction", Level::Info, text);
                }
            }
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

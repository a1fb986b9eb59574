//! Where the options of TLS come from: the command line, or a column of a table that it names.

use std::collections::BTreeMap;

use weir_data::AtomType;

use crate::effect::{Effect, Level, TlsSettings};
use crate::event::DbId;
use crate::remotes::{Place, column_place};
use crate::server::Server;

/// What is configured, and what was last told to the shell.
#[derive(Debug, Default)]
pub(crate) struct TlsState {
    /// Each value a text, or `db:DB,TABLE,COLUMN`.
    pub(crate) configured: TlsSettings,
    pub(crate) told: TlsSettings,
    /// Complaints that have been logged, by option.
    pub(crate) complaints: BTreeMap<String, String>,
}

impl Server {
    /// The tables that TLS options are read from.
    pub(crate) fn tls_sources(&self) -> Vec<(DbId, weir_data::TableId)> {
        let places = self.tls_columns().filter_map(|value| column_place(self, value).ok());
        places.map(|(_, place)| (place.db, place.table)).collect()
    }

    /// The columns that options stand in.
    pub(crate) fn tls_columns(&self) -> impl Iterator<Item = &str> {
        let values = self.tls.configured.values().into_iter().flatten();
        values.map(String::as_str).filter(|value| value.starts_with("db:"))
    }

    /// What is wrong with them.
    pub(crate) fn tls_errors(&self) -> Vec<String> {
        self.resolve_tls().1.into_values().collect()
    }

    /// Reads the options anew; the shell hears of them if they have changed. What is wrong with
    /// them is logged once.
    pub(crate) fn tls_changed(&mut self) {
        let (settings, complaints) = self.resolve_tls();
        for (option, complaint) in &complaints {
            if self.tls.complaints.get(option) != Some(complaint) {
                self.log("ovsdb_server", Level::Warning, complaint.clone());
            }
        }
        self.tls.complaints = complaints;
        if self.tls.told != settings {
            self.tls.told.clone_from(&settings);
            self.effect(Effect::Tls(Box::new(settings)));
        }
    }

    fn resolve_tls(&self) -> (TlsSettings, BTreeMap<String, String>) {
        let mut settings = self.tls.configured.clone();
        let mut complaints = BTreeMap::new();
        for value in settings.values_mut() {
            let Some(text) = value.clone().filter(|text| text.starts_with("db:")) else { continue };
            *value = match self.first_string(&text) {
                Ok(found) => found,
                Err(complaint) => {
                    complaints.insert(text, complaint);
                    None
                }
            };
        }
        (settings, complaints)
    }

    /// The first string of a column that is not empty.
    fn first_string(&self, source: &str) -> Result<Option<String>, String> {
        let (db, Place { table, column, .. }) = column_place(self, source)?;
        let schema = db.engine.schema().table(table);
        let ty = &schema.column(column).ty;
        if ty.is_map() || ty.key.ty != AtomType::String {
            let (table, column) = (&schema.name, &schema.column(column).name);
            return Err(format!(
                "\"{source}\": table \"{table}\" column \"{column}\" is not string or set of strings"
            ));
        }
        let Some(store) = db.engine.store() else { return Ok(None) };
        let rows = store.table(table).iter();
        let mut texts = rows.flat_map(|row| row.get(column).keys());
        let text = texts.find_map(|atom| atom.as_str().filter(|text| !text.is_empty()));
        Ok(text.map(str::to_owned))
    }
}

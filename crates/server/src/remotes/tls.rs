//! Where the options of TLS come from: the command line, or a column of a table that it names.

use std::collections::{BTreeMap, BTreeSet};

use weir_data::AtomType;

use crate::database::Databases;
use crate::effect::{Effect, Level, TlsSettings};
use crate::ids::DbId;
use crate::remotes::tables::{Place, column_place, db_name};
use crate::shell::Shell;

/// What is configured, and what was last told to the shell.
#[derive(Debug, Default)]
pub(super) struct Tls {
    /// Each value a text, or `db:DB,TABLE,COLUMN`.
    configured: TlsSettings,
    told: TlsSettings,
    /// Complaints that have been logged, by option.
    complaints: BTreeMap<String, String>,
}

impl Tls {
    pub(super) fn new(configured: TlsSettings) -> Self {
        Self { configured, ..Self::default() }
    }

    /// The tables that TLS options are read from.
    pub(super) fn sources(&self, databases: &Databases) -> Vec<(DbId, weir_data::TableId)> {
        let places = self.columns().filter_map(|value| column_place(databases, value).ok());
        places.map(|(_, place)| (place.db, place.table)).collect()
    }

    /// The columns that options stand in.
    pub(super) fn columns(&self) -> impl Iterator<Item = &str> {
        let values = self.configured.values().into_iter().flatten();
        values.map(String::as_str).filter(|value| value.starts_with("db:"))
    }

    /// What is wrong with the options.
    pub(super) fn errors(&self, databases: &Databases, awaited: &BTreeSet<String>) -> Vec<String> {
        self.resolve(databases, awaited).1.into_values().collect()
    }

    /// The shell hears of the options if they have changed; nobody hears what is wrong with them.
    pub(super) fn tell(&mut self, shell: &mut Shell, databases: &Databases) {
        let (settings, _) = self.resolve(databases, &BTreeSet::new());
        self.take(shell, settings);
    }

    fn take(&mut self, shell: &mut Shell, settings: TlsSettings) {
        if self.told != settings {
            self.told.clone_from(&settings);
            shell.ask(Effect::Tls(Box::new(settings)));
        }
    }

    /// Reads the options anew; the shell hears of them if they have changed. What is wrong with
    /// them is logged once.
    pub(super) fn follow(
        &mut self,
        shell: &mut Shell,
        databases: &Databases,
        awaited: &BTreeSet<String>,
    ) {
        let (settings, complaints) = self.resolve(databases, awaited);
        for (option, complaint) in &complaints {
            if self.complaints.get(option) != Some(complaint) {
                shell.log("ovsdb_server", Level::Warning, complaint.clone());
            }
        }
        self.complaints = complaints;
        self.take(shell, settings);
    }

    /// What the options are, and what is wrong with them besides that a database has not come yet.
    fn resolve(
        &self,
        databases: &Databases,
        awaited: &BTreeSet<String>,
    ) -> (TlsSettings, BTreeMap<String, String>) {
        let mut settings = self.configured.clone();
        let mut complaints = BTreeMap::new();
        for value in settings.values_mut() {
            let Some(text) = value.clone().filter(|text| text.starts_with("db:")) else { continue };
            *value = match first_string(databases, &text) {
                Ok(found) => found,
                Err(_) if db_name(&text).is_some_and(|name| awaited.contains(name)) => None,
                Err(complaint) => {
                    complaints.insert(text, complaint);
                    None
                }
            };
        }
        (settings, complaints)
    }
}

/// The first string of a column that is not empty.
fn first_string(databases: &Databases, source: &str) -> Result<Option<String>, String> {
    let (db, Place { table, column, .. }) = column_place(databases, source)?;
    let schema = db.schema().table(table);
    let ty = &schema.column(column).ty;
    if ty.is_map() || ty.key.ty != AtomType::String {
        let (table, column) = (&schema.name, &schema.column(column).name);
        return Err(format!(
            "\"{source}\": table \"{table}\" column \"{column}\" is not string or set of strings"
        ));
    }
    let Some(store) = db.committed() else { return Ok(None) };
    let rows = store.table(table).iter();
    let mut texts = rows.flat_map(|row| row.get(column).keys());
    let text = texts.find_map(|atom| atom.as_str().filter(|text| !text.is_empty()));
    Ok(text.map(str::to_owned))
}

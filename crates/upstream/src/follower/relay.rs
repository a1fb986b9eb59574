//! What only a relay asks for (`dialogue` has the rest): all rows with all columns, by
//! `weir_monitor` with an update for each transaction, or else by the newest method of the
//! reference that the server knows.

use weir_data::{ColumnSchema, Schema, Uuid};
use weir_json::{Value, array, object};

use super::{Asked, Follower};
use crate::news::EphemeralMonitor;
use crate::path::Path;

impl Follower {
    /// The way of the owner's rows, as far as that has been heard of.
    pub fn path(&self) -> Path {
        let of_source = self.path.iter().filter(|_| self.is_following());
        let mut servers: Vec<Uuid> = of_source.flat_map(|path| &path.servers).copied().collect();
        servers.push(self.own_id());
        Path { servers, is_connected: self.is_current(), origin: self.freshness.own_origin() }
    }

    /// What is asked for by the present method.
    pub(super) fn relay_requests(&self, schema: &Schema) -> String {
        let is_wanted = |column: &ColumnSchema| self.method.has_all() || column.persistent;
        requests_text(requests(schema, is_wanted))
    }

    /// Asks for the columns that are in no state, if there are some: beside the states, for those
    /// have the same ids whatever these columns hold. The oldest method tells whole values, which
    /// do not depend on what was there before.
    pub(super) fn ask_for_ephemeral(&mut self) {
        let schema = self.schema();
        let is_wanted = |column: &ColumnSchema| !self.method.has_all() && !column.persistent;
        let mut requests = requests(&schema, is_wanted).filter(|(_, columns)| !columns.is_empty());
        let Some(first) = requests.next() else { return };
        let requests = requests_text(std::iter::once(first).chain(requests));
        let (name, number) = (Value::from(schema.name.as_str()), self.monitors);
        let id = format!(r#"["ephemeral",{name},{number}]"#);
        let params = format!("[{name},{id},{requests}]");
        let request = self.ask("monitor", params.as_bytes(), Asked::Ephemeral);
        self.ephemeral = Some(EphemeralMonitor { request: Some(request), id: id.into_bytes() });
    }
}

/// What a monitor asks for: these columns of each table.
fn requests(
    schema: &Schema,
    is_wanted: impl Fn(&ColumnSchema) -> bool,
) -> impl Iterator<Item = (&str, Vec<&str>)> {
    schema.table_ids().map(move |(_, table)| {
        let columns = table.data_columns().map(|(_, column)| column);
        let columns = columns.filter(|column| is_wanted(column));
        (table.name.as_str(), columns.map(|column| column.name.as_str()).collect())
    })
}

/// The requests as JSON.
fn requests_text<'a>(requests: impl Iterator<Item = (&'a str, Vec<&'a str>)>) -> String {
    let request = |columns| array([object([("columns", array::<&str>(columns))])]);
    let requests = requests.map(|(table, columns)| (table.to_owned(), request(columns)));
    Value::Object(requests.collect()).to_string()
}

#[cfg(test)]
mod tests;

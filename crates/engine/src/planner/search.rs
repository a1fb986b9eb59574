//! What one search for rows came to, for who asks for the plan or reads the log.

use weir_data::{ColumnId, Schema, TableId};
use weir_json::{write_integer, write_string};

use super::Planner;
use crate::keys::{KeyKind, KeyName};

/// How a search found its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The condition contradicts itself.
    Nothing,
    /// By `_uuid`.
    Uuid,
    /// By a unique index.
    Primary {
        /// Which of the table's.
        index: usize,
    },
    /// By a key.
    Key(KeyName),
    /// By weak references.
    References {
        /// The column that they are in.
        column: ColumnId,
    },
    /// By a look at every row.
    Linear,
}

/// One search for the rows that satisfy a condition: counted rows, not time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Search {
    /// The number of the operation, from 0.
    pub operation: usize,
    /// The table of the rows.
    pub table: TableId,
    /// How they were found.
    pub way: Way,
    /// Rows that the condition was checked on.
    pub rows_visited: u64,
    /// Rows that satisfied it, as many as were asked for; `None` if the search did not come to its
    /// end.
    pub rows_found: Option<u64>,
    /// The key with which fewer rows would have been looked at.
    pub wanted: Option<KeyName>,
}

impl Way {
    /// The way's name, as the coverage counters have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Uuid => "uuid",
            Self::Primary { .. } => "primary",
            Self::Key(KeyName { kind: KeyKind::Hash | KeyKind::Ordered, .. }) => "alternate",
            Self::Key(KeyName { kind: KeyKind::Inverted, .. }) | Self::References { .. } => {
                "inverted"
            }
            Self::Linear => "linear",
        }
    }

    /// The columns that it goes by.
    fn columns(self, schema: &Schema, table: TableId) -> Vec<ColumnId> {
        match self {
            Self::Nothing | Self::Linear => Vec::new(),
            Self::Uuid => vec![ColumnId::UUID],
            Self::Primary { index } => schema.table(table).indexes[index].clone(),
            Self::Key(KeyName { column, .. }) | Self::References { column } => vec![column],
        }
    }
}

impl Search {
    /// The search in a few words, for a line of the log.
    pub fn describe(&self, schema: &Schema) -> String {
        let table = schema.table(self.table);
        let mut text = format!(
            "looked at {} rows of table {} ({}",
            self.rows_visited,
            table.name,
            self.way.name()
        );
        for (at, column) in self.way.columns(schema, self.table).iter().enumerate() {
            text.push_str(if at == 0 { " by " } else { ", " });
            text.push_str(&table.column(*column).name);
        }
        text.push(')');
        if let Some(found) = self.rows_found {
            text.push_str(&format!(" for {found}"));
        }
        if let Some(key) = self.wanted {
            let (kind, column) = (key.kind.name(), &table.column(key.column).name);
            text.push_str(&format!("; {kind} key on column {column} would help"));
        }
        text
    }

    /// Writes the search's members as JSON, without braces.
    pub(crate) fn write(&self, schema: &Schema, out: &mut Vec<u8>) {
        let table = schema.table(self.table);
        let count = |out: &mut Vec<u8>, n: u64| {
            write_integer(out, i64::try_from(n).unwrap_or(i64::MAX));
        };
        out.extend_from_slice(b"\"table\":");
        write_string(out, &table.name);
        out.extend_from_slice(b",\"plan\":");
        write_string(out, self.way.name());
        out.extend_from_slice(b",\"columns\":[");
        for (at, column) in self.way.columns(schema, self.table).iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            write_string(out, &table.column(*column).name);
        }
        out.push(b']');
        if let Way::Key(KeyName { kind, .. }) = self.way {
            out.extend_from_slice(b",\"kind\":");
            write_string(out, kind.name());
        }
        out.extend_from_slice(b",\"looked_at\":");
        count(out, self.rows_visited);
        if let Some(found) = self.rows_found {
            out.extend_from_slice(b",\"found\":");
            count(out, found);
        }
        if let Some(key) = self.wanted {
            out.extend_from_slice(b",\"key\":{\"column\":");
            write_string(out, &table.column(key.column).name);
            out.extend_from_slice(b",\"kind\":");
            write_string(out, key.kind.name());
            out.push(b'}');
        }
    }
}

impl Planner {
    /// Begins a search: how many rows had been visited before.
    pub(super) fn begin(&mut self) -> u64 {
        (self.way, self.wanted) = (Way::Nothing, None);
        self.work.rows_visited
    }

    /// Keeps what a search has come to.
    pub(super) fn end(&mut self, begin: u64, table: TableId, found: Option<usize>) {
        let rows_visited = self.work.rows_visited - begin;
        let search = Search {
            operation: self.operation,
            table,
            way: self.way,
            rows_visited,
            rows_found: found.map(|found| found as u64),
            wanted: self.wanted,
        };
        if self.slowest.is_none_or(|slowest| slowest.rows_visited < rows_visited) {
            self.slowest = Some(search);
        }
        if let Some(searches) = &mut self.searches {
            searches.push(search);
        }
    }
}

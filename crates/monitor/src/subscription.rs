//! What a monitor asks for (RFC 7047 §4.1.5 `<monitor-requests>`, ovsdb-server(7) §4.1.12).

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use foldhash::fast::FixedState;
use weir_data::condition::Condition;
use weir_data::parser::{self, Parser};
use weir_data::{ColumnId, Error, IdKind, Ids, Row, Schema, TableId, TableSchema, Uuid};
use weir_json::Text;

use crate::filter::Filter;
use crate::message::Version;
use crate::shape::{INITIAL, Shape, object_named};

/// What is asked of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableSubscription {
    /// Columns and kinds of change, shared with all subscriptions that have the same.
    pub(crate) shape: Arc<Shape>,
    /// Which rows: the filter is shared with earlier subscriptions of the monitor.
    pub(crate) filter: Arc<Filter>,
}

/// What is asked of all tables, ascending. Equal subscriptions are told the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subscription {
    pub(crate) version: Version,
    pub(crate) tables: Vec<TableSubscription>,
    /// Something that no file keeps is asked for, or looked at by a condition.
    is_volatile: bool,
}

impl TableSubscription {
    /// Whether the row is one of those asked for.
    #[inline]
    pub(crate) fn matches(&self, row: &Row) -> bool {
        self.filter.matches(row)
    }

    /// Whether something that no file keeps is asked for, or looked at by the condition.
    fn is_volatile(&self, schema: &Schema) -> bool {
        let columns = schema.table(self.shape.table).column_ids();
        let mut lost =
            columns.filter(|(id, column)| *id == ColumnId::VERSION || !column.persistent);
        lost.any(|(id, _)| self.is_watched(id))
    }

    /// Whether a change of the column is one: it was asked for, or the condition looks at it.
    pub(crate) fn is_watched(&self, column: ColumnId) -> bool {
        self.shape.is_requested(column) || self.filter.looks_at(column)
    }
}

impl Subscription {
    fn new(version: Version, tables: Vec<TableSubscription>, schema: &Schema) -> Self {
        let is_volatile = tables.iter().any(|of| of.is_volatile(schema));
        Self { version, tables, is_volatile }
    }

    /// Which ids name the states that are told of.
    pub(crate) fn ids(&self) -> IdKind {
        if self.is_volatile { IdKind::Volatile } else { IdKind::Recorded }
    }

    /// The id of a state, where updates carry one.
    pub(crate) fn id_of(&self, ids: Ids) -> Option<Uuid> {
        (self.version == Version::V3).then(|| ids.of(self.ids()))
    }

    /// Whether a condition looks at `_version`: no log says what that was.
    pub(crate) fn looks_at_versions(&self) -> bool {
        self.tables.iter().any(|of| of.filter.looks_at(ColumnId::VERSION))
    }

    /// Parses `<monitor-requests>`.
    pub(crate) fn parse(
        version: Version,
        requests: Text<'_>,
        schema: &Schema,
        hasher: &FixedState,
    ) -> Result<Self, Error> {
        let is_v1 = version == Version::V1;
        let mut tables = Vec::new();
        for (name, value) in requests.object().iter().flat_map(|object| object.iter()) {
            let id = table_named(name, schema)?;
            tables.push(parse_table(is_v1, id, schema.table(id), value, hasher)?);
        }
        tables.sort_by_key(|table| table.shape.table);
        Ok(Self::new(version, tables, schema))
    }

    /// The subscription with the conditions that `<monitor-cond-update-requests>` asks for.
    /// Version 1 has no conditions: its requests are checked and do nothing.
    pub(crate) fn with_conditions(
        &self,
        requests: Text<'_>,
        schema: &Schema,
        hasher: &FixedState,
    ) -> Result<Self, Error> {
        let mut changed = self.clone();
        for (name, value) in requests.object().iter().flat_map(|object| object.iter()) {
            let id = table_named(name, schema)?;
            let name = &schema.table(id).name;
            let Some(table) = changed.tables.iter_mut().find(|table| table.shape.table == id)
            else {
                let details = format!("no table named {name} in monitor session");
                return Err(Error::plain_syntax(details));
            };
            let Some(elements) = value.elements() else {
                let details = format!("table {name} no monitor-cond-change JSON array");
                return Err(Error::plain_syntax(details));
            };
            for element in elements {
                let condition = new_condition(element, schema.table(id))?;
                if self.version == Version::V1 {
                    continue;
                }
                let condition =
                    condition.map(|text| Condition::parse(text, schema.table(id), None));
                let condition = condition.transpose()?.unwrap_or_default();
                table.filter = Arc::new(Filter::new(condition, hasher));
            }
        }
        Ok(Self::new(self.version, changed.tables, schema))
    }

    /// The subscription with the numbers that its tables have in another schema; `None` if one of
    /// the tables has none there.
    pub(crate) fn with_tables(
        &self,
        target: &impl Fn(TableId) -> Option<TableId>,
        schema: &Schema,
    ) -> Option<Self> {
        let mut changed = self.clone();
        for table in &mut changed.tables {
            let mut shape = Shape::clone(&table.shape);
            shape.table = target(shape.table)?;
            table.shape = Arc::new(shape);
        }
        changed.tables.sort_by_key(|table| table.shape.table);
        // Columns may be kept in files no longer, or now.
        Some(Self::new(self.version, changed.tables, schema))
    }

    /// What is asked of a table.
    pub(crate) fn table(&self, table: TableId) -> Option<&TableSubscription> {
        let at = self.tables.binary_search_by_key(&table, |of| of.shape.table).ok()?;
        Some(&self.tables[at])
    }

    /// Tables whose rows a monitor begins with.
    pub(crate) fn initial_tables(&self) -> impl Iterator<Item = &TableSubscription> {
        self.tables
            .iter()
            .filter(|table| table.shape.select & INITIAL != 0 && !table.filter.matches_no_row())
    }

    /// Tables whose rows can appear in updates.
    pub(crate) fn watched_tables(&self) -> impl Iterator<Item = TableId> {
        let tables = self.tables.iter().filter(|table| !table.filter.matches_no_row());
        tables.map(|table| table.shape.table)
    }

    /// A hash that is equal for equal subscriptions.
    pub(crate) fn digest(&self, hasher: &FixedState) -> u64 {
        let mut digest = hasher.build_hasher();
        digest.write_u8(self.version as u8);
        for table in &self.tables {
            table.shape.hash(&mut digest);
            digest.write_u64(table.filter.digest());
        }
        digest.finish()
    }

    /// Memory that the conditions occupy, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.tables.iter().map(|table| size_of::<TableSubscription>() + table.filter.bytes()).sum()
    }
}

fn table_named(name: &[u8], schema: &Schema) -> Result<TableId, Error> {
    let name = String::from_utf8_lossy(name);
    schema.table_id(&name).ok_or_else(|| Error::plain_syntax(format!("no table named {name}")))
}

fn parse_table(
    is_v1: bool,
    id: TableId,
    table: &TableSchema,
    value: Text<'_>,
    hasher: &FixedState,
) -> Result<TableSubscription, Error> {
    let mut shape = Shape::new(is_v1, id, table);
    // A lone object is accepted for an array of one (ovsdb-server(7) §4.1.5).
    let lone = value.elements().is_none().then_some(value);
    let requests = value.elements().into_iter().flatten().chain(lone);
    // Every request's condition is read, but only the first one's counts.
    let conditions = requests.map(|request| shape.add_request(table, request));
    let conditions: Vec<Option<Condition>> = conditions.collect::<Result<_, Error>>()?;
    let condition = conditions.into_iter().next().flatten().unwrap_or_default();
    shape.columns.sort_by_key(|(column, _)| *column);
    let filter = Arc::new(Filter::new(condition, hasher));
    Ok(TableSubscription { shape: Arc::new(shape), filter })
}

/// The condition in a `<monitor-cond-update-request>`, not parsed yet.
fn new_condition<'a>(text: Text<'a>, table: &TableSchema) -> Result<Option<Text<'a>>, Error> {
    let what = object_named(text, table)?;
    let mut parser = Parser::new(text, &what);
    let columns = parser.member("columns", parser::ARRAY | parser::OPTIONAL);
    let condition = parser.member("where", parser::ARRAY | parser::OPTIONAL);
    parser.finish()?;
    if columns.is_some() {
        return Err(Error::syntax(text, "changing columns is unsupported"));
    }
    Ok(condition)
}

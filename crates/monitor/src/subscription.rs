//! What a monitor asks for (RFC 7047 §4.1.5 `<monitor-requests>`, ovsdb-server(7) §4.1.12).

use std::sync::Arc;

use weir_data::condition::{Clause, Condition};
use weir_data::parser::{self, Parser};
use weir_data::{AtomRef, ColumnId, Datum, Error, Row, Schema, TableId, TableSchema};
use weir_json::Text;

use crate::shape::{INITIAL, Shape, object_named};

/// What is asked of one table.
#[derive(Clone, Debug)]
pub(crate) struct TableSubscription {
    /// Columns and kinds of change, shared with all subscriptions that have the same.
    pub(crate) shape: Arc<Shape>,
    /// Which rows: those for which any clause holds.
    condition: Condition,
    /// The columns that the condition looks at, ascending.
    condition_columns: Vec<ColumnId>,
}

/// What is asked of all tables, ascending.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    /// Whether updates have the form of protocol version 1.
    pub(crate) is_v1: bool,
    pub(crate) tables: Vec<TableSubscription>,
}

impl TableSubscription {
    /// Whether the row is one of those asked for.
    pub(crate) fn matches(&self, row: &Row) -> bool {
        self.condition.matches_any(row)
    }

    /// Rows are asked for if any of these holds, or if there is none.
    pub(crate) fn clauses(&self) -> &[Clause] {
        &self.condition.clauses
    }

    /// Whether no row can ever be one of those asked for.
    pub(crate) fn matches_no_row(&self) -> bool {
        let clauses = &self.condition.clauses;
        !clauses.is_empty() && clauses.iter().all(|clause| *clause == Clause::Constant(false))
    }

    /// Whether the condition is spelled like another one.
    pub(crate) fn is_same_condition(&self, other: &Self) -> bool {
        self.condition == other.condition
    }

    /// Whether a change of the column is one: it was asked for, or the condition looks at it.
    pub(crate) fn is_watched(&self, column: ColumnId) -> bool {
        self.shape.is_requested(column) || self.is_condition_on(column)
    }

    /// Whether the condition looks at the column.
    pub(crate) fn is_condition_on(&self, column: ColumnId) -> bool {
        self.condition_columns.binary_search(&column).is_ok()
    }

    fn set_condition(&mut self, condition: Condition) {
        let column = |clause: &Clause| match clause {
            Clause::Compare { column, .. } => Some(*column),
            Clause::Constant(_) => None,
        };
        self.condition_columns = condition.clauses.iter().filter_map(column).collect();
        self.condition_columns.sort_unstable();
        self.condition_columns.dedup();
        self.condition = condition;
    }
}

impl Subscription {
    /// Parses `<monitor-requests>`.
    pub(crate) fn parse(is_v1: bool, requests: Text<'_>, schema: &Schema) -> Result<Self, Error> {
        let mut tables = Vec::new();
        for (name, value) in requests.object().iter().flat_map(|object| object.iter()) {
            let id = table_named(name, schema)?;
            tables.push(parse_table(is_v1, id, schema.table(id), value)?);
        }
        tables.sort_by_key(|table| table.shape.table);
        Ok(Self { is_v1, tables })
    }

    /// The subscription with the conditions that `<monitor-cond-update-requests>` asks for.
    /// Version 1 has no conditions: its requests are checked and do nothing.
    pub(crate) fn with_conditions(
        &self,
        requests: Text<'_>,
        schema: &Schema,
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
                if self.is_v1 {
                    continue;
                }
                let condition =
                    condition.map(|text| Condition::parse(text, schema.table(id), None));
                table.set_condition(condition.transpose()?.unwrap_or_default());
            }
        }
        Ok(changed)
    }

    /// The subscription with the numbers that its tables have in another schema; `None` if one of
    /// the tables has none there.
    pub(crate) fn with_tables(&self, target: &impl Fn(TableId) -> Option<TableId>) -> Option<Self> {
        let mut changed = self.clone();
        for table in &mut changed.tables {
            let mut shape = Shape::clone(&table.shape);
            shape.table = target(shape.table)?;
            table.shape = Arc::new(shape);
        }
        changed.tables.sort_by_key(|table| table.shape.table);
        Some(changed)
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
            .filter(|table| table.shape.select & INITIAL != 0 && !table.matches_no_row())
    }

    /// Tables whose rows can appear in updates.
    pub(crate) fn watched_tables(&self) -> impl Iterator<Item = TableId> {
        self.tables.iter().filter(|table| !table.matches_no_row()).map(|table| table.shape.table)
    }

    /// Bytes that are equal for equal subscriptions, whatever they were spelled like.
    pub(crate) fn canonical(&self) -> Vec<u8> {
        let mut out = vec![u8::from(self.is_v1)];
        for table in &self.tables {
            let shape = &table.shape;
            out.extend_from_slice(&shape.table.0.to_be_bytes());
            out.push(shape.select);
            write_len(shape.columns.len(), &mut out);
            for (column, select) in &shape.columns {
                out.extend_from_slice(&column.0.to_be_bytes());
                out.push(*select);
            }
            let clauses = canonical_clauses(&table.condition);
            write_len(clauses.len(), &mut out);
            clauses.iter().for_each(|clause| out.extend_from_slice(clause));
        }
        out
    }
}

fn table_named(name: &[u8], schema: &Schema) -> Result<TableId, Error> {
    let name = String::from_utf8_lossy(name);
    schema.table_id(&name).ok_or_else(|| Error::plain_syntax(format!("no table named {name}")))
}

/// Clauses in an order of their own, each once: they are alternatives.
fn canonical_clauses(condition: &Condition) -> Vec<Vec<u8>> {
    let clauses = &condition.clauses;
    // What is always true asks for the same as no condition at all.
    if clauses.contains(&Clause::Constant(true))
        && clauses.iter().all(|clause| matches!(clause, Clause::Constant(_)))
    {
        return Vec::new();
    }
    let mut written: Vec<Vec<u8>> = clauses.iter().map(canonical_clause).collect();
    written.sort();
    written.dedup();
    written
}

fn canonical_clause(clause: &Clause) -> Vec<u8> {
    match clause {
        Clause::Constant(constant) => vec![u8::from(*constant)],
        Clause::Compare { column, function, value } => {
            let mut out = vec![2];
            out.extend_from_slice(&column.0.to_be_bytes());
            out.push(*function as u8);
            write_datum(value, &mut out);
            out
        }
    }
}

fn write_len(len: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&(len as u64).to_be_bytes());
}

/// Appends a value exactly, unlike JSON, in which two reals may look alike.
fn write_datum(datum: &Datum, out: &mut Vec<u8>) {
    write_len(datum.as_ref().len(), out);
    for (key, value) in datum.as_ref().entries() {
        for atom in [Some(key), value].into_iter().flatten() {
            match atom {
                AtomRef::Integer(v) => out.extend_from_slice(&v.to_be_bytes()),
                AtomRef::Real(v) => out.extend_from_slice(&v.to_bits().to_be_bytes()),
                AtomRef::Boolean(v) => out.push(u8::from(v)),
                AtomRef::String(v) => {
                    write_len(v.as_str().len(), out);
                    out.extend_from_slice(v.as_str().as_bytes());
                }
                AtomRef::Uuid(v) => out.extend_from_slice(&v.to_u128().to_be_bytes()),
            }
        }
    }
}

fn parse_table(
    is_v1: bool,
    id: TableId,
    table: &TableSchema,
    value: Text<'_>,
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
    let mut subscription = TableSubscription {
        shape: Arc::new(shape),
        condition: Condition::default(),
        condition_columns: Vec::new(),
    };
    subscription.set_condition(condition);
    Ok(subscription)
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

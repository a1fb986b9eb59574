//! What a monitor asks for (RFC 7047 §4.1.5 `<monitor-requests>`, ovsdb-server(7) §4.1.12).

use weir_data::condition::{Clause, Condition};
use weir_data::parser::{self, Parser};
use weir_data::{AtomRef, ColumnId, Datum, Error, Row, Schema, TableId, TableSchema};
use weir_json::{Kind, Text};

/// A set of the constants below: kinds of change that a column is reported for, and what else
/// there is to know of a column.
pub(crate) type Select = u8;

/// Rows there are at the beginning.
pub(crate) const INITIAL: Select = 1;
/// New rows.
pub(crate) const INSERT: Select = 1 << 1;
/// Deleted rows.
pub(crate) const DELETE: Select = 1 << 2;
/// Changed rows.
pub(crate) const MODIFY: Select = 1 << 3;
/// The column is among those asked for, though perhaps for no kind of change.
const REQUESTED: Select = 1 << 4;
/// The condition looks at the column.
const CONDITION: Select = 1 << 5;

/// What is asked of one table.
#[derive(Clone, Debug)]
pub(crate) struct TableSubscription {
    pub(crate) table: TableId,
    /// Columns to report, ascending, each with what it is reported for.
    pub(crate) columns: Vec<(ColumnId, Select)>,
    /// The same by column number, for looking up.
    flags: Vec<Select>,
    /// Union of the columns' and the requests' selections.
    pub(crate) select: Select,
    /// Which rows: those for which any clause holds.
    condition: Condition,
}

/// What is asked of all tables, ascending.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    /// Whether updates have the form of protocol version 1.
    pub(crate) is_v1: bool,
    pub(crate) tables: Vec<TableSubscription>,
}

impl TableSubscription {
    fn new(table: TableId, columns: usize) -> Self {
        Self {
            table,
            columns: Vec::new(),
            flags: vec![0; columns],
            select: 0,
            condition: Condition::default(),
        }
    }

    /// Whether the row is one of those asked for.
    pub(crate) fn admits(&self, row: &Row) -> bool {
        self.condition.matches_any(row)
    }

    /// Whether no row can ever be one of those asked for.
    pub(crate) fn is_never(&self) -> bool {
        let clauses = &self.condition.clauses;
        !clauses.is_empty() && clauses.iter().all(|clause| *clause == Clause::Constant(false))
    }

    /// Whether the condition is spelled like another one.
    pub(crate) fn is_same_condition(&self, other: &Self) -> bool {
        self.condition == other.condition
    }

    /// What a column is reported for.
    pub(crate) fn selected(&self, column: ColumnId) -> Select {
        self.flags.get(column.index()).copied().unwrap_or(0)
    }

    /// Whether a change of the column is one: it was asked for, or the condition looks at it.
    pub(crate) fn is_watched(&self, column: ColumnId) -> bool {
        self.selected(column) & (REQUESTED | CONDITION) != 0
    }

    /// Whether the condition looks at the column.
    pub(crate) fn is_condition_on(&self, column: ColumnId) -> bool {
        self.selected(column) & CONDITION != 0
    }

    fn set_condition(&mut self, condition: Condition) {
        self.flags.iter_mut().for_each(|flags| *flags &= !CONDITION);
        for clause in &condition.clauses {
            if let Clause::Compare { column, .. } = clause {
                self.flags[column.index()] |= CONDITION;
            }
        }
        self.condition = condition;
    }

    /// Adds one `<monitor-request>`; only the first one's condition counts, but all are read.
    fn add_request(
        &mut self,
        is_v1: bool,
        table: &TableSchema,
        text: Text<'_>,
        is_first: bool,
    ) -> Result<(), Error> {
        let what = object_named(text, table)?;
        let mut parser = Parser::new(text, &what);
        let columns = parser.member("columns", parser::ARRAY | parser::OPTIONAL);
        let condition =
            if is_v1 { None } else { parser.member("where", parser::ARRAY | parser::OPTIONAL) };
        let select = parser.member("select", parser::OBJECT | parser::OPTIONAL);
        parser.finish()?;
        let select = select
            .map_or(Ok(INITIAL | INSERT | DELETE | MODIFY), |select| parse_select(select, table))?;
        self.select |= select;
        match columns {
            Some(columns) => self.add_columns(columns, select, table)?,
            None => {
                for (column, _) in table.column_ids().filter(|(id, _)| *id != ColumnId::UUID) {
                    self.add_column(column, select, table).map_err(Error::plain_syntax)?;
                }
            }
        }
        if let Some(condition) = condition {
            let condition = Condition::parse(condition, table, None)?;
            if is_first {
                self.set_condition(condition);
            }
        }
        Ok(())
    }

    fn add_columns(
        &mut self,
        columns: Text<'_>,
        select: Select,
        table: &TableSchema,
    ) -> Result<(), Error> {
        for element in columns.elements().into_iter().flatten() {
            if element.kind() != Kind::String {
                return Err(Error::syntax(columns, "array of column names expected"));
            }
            let name = element.string().unwrap_or_default();
            let name = String::from_utf8_lossy(&name);
            let column = table.column_id(&name).ok_or_else(|| {
                Error::syntax(columns, format!("{name} is not a valid column name"))
            })?;
            self.add_column(column, select, table)
                .map_err(|details| Error::syntax(columns, details))?;
        }
        Ok(())
    }

    /// Adds a column; the complaint if it is there already.
    fn add_column(
        &mut self,
        column: ColumnId,
        select: Select,
        table: &TableSchema,
    ) -> Result<(), String> {
        if self.selected(column) & REQUESTED != 0 {
            return Err(format!("column {} mentioned more than once", table.column(column).name));
        }
        self.flags[column.index()] |= select | REQUESTED;
        self.columns.push((column, select));
        Ok(())
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
        tables.sort_by_key(|table| table.table);
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
            let Some(table) = changed.tables.iter_mut().find(|table| table.table == id) else {
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

    /// What is asked of a table.
    pub(crate) fn table(&self, table: TableId) -> Option<&TableSubscription> {
        let at = self.tables.binary_search_by_key(&table, |of| of.table).ok()?;
        Some(&self.tables[at])
    }

    /// Tables whose rows can appear in updates.
    pub(crate) fn watched_tables(&self) -> impl Iterator<Item = TableId> {
        self.tables.iter().filter(|table| !table.is_never()).map(|table| table.table)
    }

    /// Equal for equal subscriptions, whatever they were spelled like.
    pub(crate) fn canonical(&self) -> Vec<u8> {
        let mut out = vec![u8::from(self.is_v1)];
        for table in &self.tables {
            out.extend_from_slice(&table.table.0.to_be_bytes());
            out.push(table.select);
            write_len(table.columns.len(), &mut out);
            for (column, select) in &table.columns {
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

/// Exactly, unlike JSON, in which two reals may look alike.
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
    let mut subscription = TableSubscription::new(id, table.columns.len());
    // A lone object is accepted for an array of one (ovsdb-server(7) §4.1.5).
    match value.elements() {
        Some(elements) => {
            for (i, element) in elements.enumerate() {
                subscription.add_request(is_v1, table, element, i == 0)?;
            }
        }
        None => subscription.add_request(is_v1, table, value, true)?,
    }
    subscription.columns.sort_by_key(|(column, _)| *column);
    Ok(subscription)
}

/// What complaints call the request `text`, or the complaint that it is no object.
fn object_named(text: Text<'_>, table: &TableSchema) -> Result<String, Error> {
    let what = format!("table {}", table.name);
    if text.kind() != Kind::Object {
        return Err(Error::plain_syntax(format!("Parsing {what} failed: Object expected.")));
    }
    Ok(what)
}

fn parse_select(text: Text<'_>, table: &TableSchema) -> Result<Select, Error> {
    let what = format!("table {} select", table.name);
    let mut parser = Parser::new(text, &what);
    let mut select = 0;
    for (name, flag) in
        [("initial", INITIAL), ("insert", INSERT), ("delete", DELETE), ("modify", MODIFY)]
    {
        let wanted = parser.member(name, parser::BOOL | parser::OPTIONAL);
        if wanted.and_then(Text::bool).unwrap_or(true) {
            select |= flag;
        }
    }
    parser.finish()?;
    Ok(select)
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

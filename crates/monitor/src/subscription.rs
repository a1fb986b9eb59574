//! What a monitor asks for (RFC 7047 §4.1.5 `<monitor-requests>`, ovsdb-server(7) §4.1.12).

use weir_data::condition::{Clause, Condition};
use weir_data::parser::{self, Parser};
use weir_data::{ColumnId, Error, Schema, TableId, TableSchema};
use weir_json::{Kind, Text};

/// Kinds of change that a column is reported for: a set of the constants below.
pub(crate) type Select = u8;

/// Rows there are at the beginning.
pub(crate) const INITIAL: Select = 1;
/// New rows.
pub(crate) const INSERT: Select = 1 << 1;
/// Deleted rows.
pub(crate) const DELETE: Select = 1 << 2;
/// Changed rows.
pub(crate) const MODIFY: Select = 1 << 3;

/// What is asked of one table.
#[derive(Clone, Debug)]
pub(crate) struct TableSubscription {
    pub(crate) table: TableId,
    /// Columns to report, ascending, each with what it is reported for.
    pub(crate) columns: Vec<(ColumnId, Select)>,
    /// Union of the columns' and the requests' selections.
    pub(crate) select: Select,
    /// Which rows: those for which any clause holds.
    pub(crate) condition: Condition,
}

/// What is asked of all tables, ascending.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    /// Whether updates have the form of protocol version 1.
    pub(crate) is_v1: bool,
    pub(crate) tables: Vec<TableSubscription>,
}

impl TableSubscription {
    /// The columns that the condition looks at.
    pub(crate) fn condition_columns(&self) -> impl Iterator<Item = ColumnId> {
        self.condition.clauses.iter().filter_map(|clause| match clause {
            Clause::Compare { column, .. } => Some(*column),
            Clause::Constant(_) => None,
        })
    }

    /// Whether every row satisfies the condition.
    pub(crate) fn is_unconditional(&self) -> bool {
        let clauses = &self.condition.clauses;
        clauses.is_empty() || clauses.contains(&Clause::Constant(true))
    }
}

impl Subscription {
    /// Parses `<monitor-requests>`.
    pub(crate) fn parse(is_v1: bool, requests: Text<'_>, schema: &Schema) -> Result<Self, Error> {
        let mut tables = Vec::new();
        for (name, value) in requests.object().iter().flat_map(|object| object.iter()) {
            let name = String::from_utf8_lossy(name);
            let Some(id) = schema.table_id(&name) else {
                return Err(Error::plain_syntax(format!("no table named {name}")));
            };
            tables.push(parse_table(is_v1, id, schema.table(id), value)?);
        }
        tables.sort_by_key(|table| table.table);
        Ok(Self { is_v1, tables })
    }

    /// The subscription with the conditions that `<monitor-cond-update-requests>` asks for.
    pub(crate) fn with_conditions(
        &self,
        requests: Text<'_>,
        schema: &Schema,
    ) -> Result<Self, Error> {
        let mut changed = self.clone();
        for (name, value) in requests.object().iter().flat_map(|object| object.iter()) {
            let name = String::from_utf8_lossy(name);
            let id = schema.table_id(&name);
            let found = changed.tables.iter_mut().find(|table| Some(table.table) == id);
            let Some(table) = found else {
                let details = format!("no table named {name} in monitor session");
                return Err(Error::plain_syntax(details));
            };
            let Some(elements) = value.elements() else {
                let details = format!("table {name} no monitor-cond-change JSON array");
                return Err(Error::plain_syntax(details));
            };
            for element in elements {
                table.condition = parse_new_condition(element, schema.table(table.table))?;
            }
        }
        if self.is_v1 { Ok(self.clone()) } else { Ok(changed) }
    }

    /// Equal for equal subscriptions, whatever they were spelled like.
    pub(crate) fn canonical(&self, schema: &Schema) -> Vec<u8> {
        let mut out = vec![u8::from(self.is_v1)];
        for table in &self.tables {
            out.extend_from_slice(&table.table.0.to_be_bytes());
            out.push(table.select);
            out.extend_from_slice(&(table.columns.len() as u32).to_be_bytes());
            for (column, select) in &table.columns {
                out.extend_from_slice(&column.0.to_be_bytes());
                out.push(*select);
            }
            out.extend_from_slice(&(table.condition.clauses.len() as u32).to_be_bytes());
            for clause in &table.condition.clauses {
                write_clause(clause, schema.table(table.table), &mut out);
            }
        }
        out
    }
}

fn write_clause(clause: &Clause, table: &TableSchema, out: &mut Vec<u8>) {
    match clause {
        Clause::Constant(constant) => out.push(u8::from(*constant)),
        Clause::Compare { column, function, value } => {
            out.push(2);
            out.extend_from_slice(&column.0.to_be_bytes());
            out.extend_from_slice(function.name().as_bytes());
            value.as_ref().write(&table.column(*column).ty, out);
            out.push(0);
        }
    }
}

fn parse_table(
    is_v1: bool,
    id: TableId,
    table: &TableSchema,
    value: Text<'_>,
) -> Result<TableSubscription, Error> {
    let mut subscription = TableSubscription {
        table: id,
        columns: Vec::new(),
        select: 0,
        condition: Condition::default(),
    };
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
    let twice = subscription.columns.windows(2).find(|pair| pair[0].0 == pair[1].0);
    if let Some(pair) = twice {
        let name = &table.column(pair[0].0).name;
        let details = format!("column {name} mentioned more than once");
        return Err(Error::syntax(value, details));
    }
    Ok(subscription)
}

impl TableSubscription {
    /// Adds one `<monitor-request>`; only the first one's condition counts.
    fn add_request(
        &mut self,
        is_v1: bool,
        table: &TableSchema,
        text: Text<'_>,
        is_first: bool,
    ) -> Result<(), Error> {
        let what = format!("table {}", table.name);
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
                let all = table.column_ids().filter(|(column, _)| *column != ColumnId::UUID);
                self.columns.extend(all.map(|(column, _)| (column, select)));
            }
        }
        if let (Some(condition), true) = (condition, is_first) {
            self.condition = Condition::parse(condition, table, None)?;
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
            self.columns.push((column, select));
        }
        Ok(())
    }
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

fn parse_new_condition(text: Text<'_>, table: &TableSchema) -> Result<Condition, Error> {
    let what = format!("table {}", table.name);
    let mut parser = Parser::new(text, &what);
    let columns = parser.member("columns", parser::ARRAY | parser::OPTIONAL);
    let condition = parser.member("where", parser::ARRAY | parser::OPTIONAL);
    parser.finish()?;
    if columns.is_some() {
        return Err(Error::syntax(text, "changing columns is unsupported"));
    }
    condition.map_or(Ok(Condition::default()), |text| Condition::parse(text, table, None))
}

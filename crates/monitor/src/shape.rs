//! What is told of the rows of a table: which columns on which occasions.

use std::cell::RefCell;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashSet;
use weir_data::condition::Condition;
use weir_data::parser::{self, Parser};
use weir_data::{ColumnId, Error, TableId, TableSchema};
use weir_json::{Kind, Text};

/// Kinds of change that a column is reported for: a set of the constants below.
pub(crate) type Select = u8;

/// Rows that are there when the monitor begins.
pub(crate) const INITIAL: Select = 1;
/// New rows.
pub(crate) const INSERT: Select = 1 << 1;
/// Deleted rows.
pub(crate) const DELETE: Select = 1 << 2;
/// Changed rows.
pub(crate) const MODIFY: Select = 1 << 3;
/// A column that was asked for, though perhaps for no kind of change.
const REQUESTED: Select = 1 << 4;

/// What is told of the rows of a table, whichever these are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) table: TableId,
    /// Whether updates have the form of protocol version 1.
    pub(crate) is_v1: bool,
    /// Columns to report, ascending, each with what it is reported for.
    pub(crate) columns: Vec<(ColumnId, Select)>,
    /// What each column is reported for, by column number.
    flags: Vec<Select>,
    /// Union of the columns' and the requests' selections.
    pub(crate) select: Select,
}

impl Shape {
    /// A shape without columns.
    pub(crate) fn new(is_v1: bool, id: TableId, table: &TableSchema) -> Self {
        let flags = vec![0; table.columns.len()];
        Self { table: id, is_v1, columns: Vec::new(), flags, select: 0 }
    }

    /// What a column is reported for.
    pub(crate) fn selected(&self, column: ColumnId) -> Select {
        self.flags.get(column.index()).copied().unwrap_or(0)
    }

    /// Whether the column was asked for.
    pub(crate) fn is_requested(&self, column: ColumnId) -> bool {
        self.selected(column) & REQUESTED != 0
    }

    /// Adds one `<monitor-request>`; answers with its condition.
    pub(crate) fn add_request(
        &mut self,
        table: &TableSchema,
        text: Text<'_>,
    ) -> Result<Option<Condition>, Error> {
        let what = object_named(text, table)?;
        let mut parser = Parser::new(text, &what);
        let columns = parser.member("columns", parser::ARRAY | parser::OPTIONAL);
        let condition = if self.is_v1 {
            None
        } else {
            parser.member("where", parser::ARRAY | parser::OPTIONAL)
        };
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
        condition.map(|condition| Condition::parse(condition, table, None)).transpose()
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
        if self.is_requested(column) {
            return Err(format!("column {} mentioned more than once", table.column(column).name));
        }
        self.flags[column.index()] |= select | REQUESTED;
        self.columns.push((column, select));
        Ok(())
    }
}

/// What complaints call the request `text`, or the complaint that it is no object.
pub(crate) fn object_named(text: Text<'_>, table: &TableSchema) -> Result<String, Error> {
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

/// All shapes in use, each once.
#[derive(Debug)]
pub(crate) struct Shapes(HashSet<Arc<Shape>, FixedState>);

impl Shapes {
    /// No shapes; `seed` is for hashing what clients choose.
    pub(crate) fn new(seed: u64) -> Self {
        Self(HashSet::with_hasher(FixedState::with_seed(seed)))
    }

    /// Makes equal shapes the same.
    pub(crate) fn share(&mut self, shape: &mut Arc<Shape>) {
        *shape = Arc::clone(self.0.get_or_insert_with(&**shape, |_| Arc::clone(shape)));
    }

    /// Ends one user of a shape: a shape that has no other is forgotten.
    pub(crate) fn end(&mut self, shape: &Arc<Shape>) {
        if !Self::is_shared(shape) {
            self.0.remove(shape);
        }
    }

    /// Whether the shape has more than one user.
    pub(crate) fn is_shared(shape: &Arc<Shape>) -> bool {
        // One reference is the set's.
        Arc::strong_count(shape) > 2
    }
}

/// What was written of a row for subscriptions of one shape.
#[derive(Debug)]
struct Fragment {
    shape: Arc<Shape>,
    kind: Select,
    bytes: Box<[u8]>,
}

/// What was written of a row, by shape and kind of event, for others of the same shape.
#[derive(Debug, Default)]
pub(crate) struct Fragments(RefCell<Vec<Fragment>>);

impl Fragments {
    /// Appends what was written; false if nothing was.
    pub(crate) fn write(&self, shape: &Arc<Shape>, kind: Select, out: &mut Vec<u8>) -> bool {
        let known = self.0.borrow();
        let found = known.iter().find(|of| of.kind == kind && Arc::ptr_eq(&of.shape, shape));
        if let Some(fragment) = found {
            out.extend_from_slice(&fragment.bytes);
        }
        found.is_some()
    }

    /// Keeps what was written.
    pub(crate) fn keep(&self, shape: &Arc<Shape>, kind: Select, bytes: &[u8]) {
        let fragment = Fragment { shape: Arc::clone(shape), kind, bytes: bytes.into() };
        self.0.borrow_mut().push(fragment);
    }
}

//! Database, table and column schemas (RFC 7047 §3.2), normalised as the reference does.

use std::fmt;

use hashbrown::HashMap;
use weir_json::{Text, Value};

use crate::error::{Error, Result};
use crate::keys::{self, KeyOrder, KeyWish};
use crate::parser::{self, Parser, is_id};
use crate::types::{ColumnType, RefKind};

/// A table's number: its place among the tables sorted by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u16);

/// A column's number in its table: `_uuid`, `_version`, then the others sorted by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ColumnId(pub u16);

/// The most tables of a database, and the most columns of a table, `_uuid` and `_version` among them:
/// so that each has a number, and there is one behind the last. A schema with more is refused.
const IDS_MAX: usize = u16::MAX as usize;

impl TableId {
    /// The table's number as an index into [`Schema::tables`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl ColumnId {
    /// The column `_uuid`, which every table has.
    pub const UUID: Self = Self(0);
    /// The column `_version`, which every table has.
    pub const VERSION: Self = Self(1);

    /// The column's number as an index into [`TableSchema::columns`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The schema of a column.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnSchema {
    /// The column's name.
    pub name: String,
    /// The column's type.
    pub ty: ColumnType,
    /// Whether the column's value may change after insertion.
    pub mutable: bool,
    /// Whether the column is kept in the file.
    pub persistent: bool,
    /// For a column of UUIDs: the tables that its keys and values refer to, resolved.
    pub refs: ColumnRefs,
}

/// Where the UUIDs of a column refer to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ColumnRefs {
    /// The table that elements or keys refer to.
    pub key: Option<(TableId, RefKind)>,
    /// The table that a map's values refer to.
    pub value: Option<(TableId, RefKind)>,
}

impl ColumnRefs {
    /// Whether the column refers to rows at all.
    pub fn any(self) -> bool {
        self.key.is_some() || self.value.is_some()
    }
}

/// The schema of a table.
#[derive(Clone, Debug)]
pub struct TableSchema {
    /// The table's name.
    pub name: String,
    /// The table's columns by [`ColumnId`].
    pub columns: Vec<ColumnSchema>,
    /// The member `mutable`: carried along. As in the reference only that of a column counts.
    pub mutable: bool,
    /// Whether rows of the table stay when nothing refers to them.
    pub is_root: bool,
    /// The most rows that the table may have; `u32::MAX` for no limit.
    pub max_rows: u32,
    /// Unique indexes: sets of columns whose values no two rows share.
    pub indexes: Vec<Vec<ColumnId>>,
    by_name: HashMap<String, ColumnId, foldhash::fast::FixedState>,
}

/// The schema of a database.
#[derive(Clone, Debug)]
pub struct Schema {
    /// The database's name.
    pub name: String,
    /// The schema's version, `x.y.z`, or empty.
    pub version: String,
    /// The schema's checksum: carried along, never verified.
    pub cksum: String,
    /// The database's tables by [`TableId`].
    pub tables: Vec<TableSchema>,
    /// What the text says about keys, beyond RFC 7047: no part of the schema that anybody compares,
    /// sees or keeps.
    pub keys: Vec<KeyWish>,
}

impl TableSchema {
    /// The column called `name`, `_uuid` and `_version` included.
    pub fn column_id(&self, name: &str) -> Option<ColumnId> {
        self.by_name.get(name).copied()
    }

    /// The column of this name, which may be of any bytes, in the clause or mutation `text`.
    ///
    /// # Errors
    /// `unknown column`
    pub fn column_named(&self, text: Text<'_>, name: &[u8]) -> Result<ColumnId> {
        let column = std::str::from_utf8(name).ok().and_then(|name| self.column_id(name));
        column.ok_or_else(|| {
            let name = String::from_utf8_lossy(name);
            let details = format!("No column {name} in table {}.", self.name);
            Error::syntax_tagged(text, "unknown column", details)
        })
    }

    /// The column with this number.
    pub fn column(&self, id: ColumnId) -> &ColumnSchema {
        &self.columns[id.index()]
    }

    /// All columns with their numbers.
    pub fn column_ids(&self) -> impl Iterator<Item = (ColumnId, &ColumnSchema)> {
        self.columns.iter().enumerate().map(|(i, column)| (ColumnId(i as u16), column))
    }

    /// All columns but `_uuid` and `_version`, with their numbers.
    pub fn data_columns(&self) -> impl Iterator<Item = (ColumnId, &ColumnSchema)> {
        self.column_ids().skip(2)
    }

    fn parse(text: Text<'_>, name: &str, keys: &mut Vec<KeyWish>) -> Result<Self> {
        let what = format!("table schema for table {name}");
        let mut parser = Parser::new(text, &what);
        let columns = parser.member("columns", parser::OBJECT);
        let mutable = parser.member("mutable", parser::BOOL | parser::OPTIONAL);
        let max_rows = parser.member("maxRows", parser::INTEGER | parser::OPTIONAL);
        let is_root = parser.member("isRoot", parser::BOOL | parser::OPTIONAL);
        let indexes = parser.member("indexes", parser::ARRAY | parser::OPTIONAL);
        parser.finish()?;
        let max_rows = max_rows.map_or(Ok(u32::MAX), |max| {
            let max = max.integer().filter(|n| *n > 0);
            let max = max.ok_or_else(|| Error::syntax(text, "maxRows must be at least 1"))?;
            Ok(u32::try_from(max).unwrap_or(u32::MAX))
        })?;
        let mutable = mutable.and_then(Text::bool).unwrap_or(true);
        let columns = columns.and_then(Text::object);
        if columns.as_ref().is_none_or(|columns| columns.is_empty()) {
            return Err(Error::syntax(text, "table must have at least one column"));
        }
        let mut all = vec![system_column("_uuid"), system_column("_version")];
        for (column, value) in columns.iter().flat_map(|columns| columns.iter()) {
            let column = String::from_utf8_lossy(column).into_owned();
            check_name(text, &column)?;
            let (column, wish) = ColumnSchema::parse(value, column)?;
            keys.extend(wish.map(|order| KeyWish {
                table: name.to_owned(),
                column: column.name.clone(),
                order,
            }));
            all.push(column);
        }
        if all.len() > IDS_MAX {
            let details = format!("table must have at most {} columns", IDS_MAX - 2);
            return Err(Error::plain_syntax(details));
        }
        let mut table = Self {
            name: name.to_owned(),
            by_name: HashMap::default(),
            columns: all,
            mutable,
            is_root: is_root.and_then(Text::bool).unwrap_or(false),
            max_rows,
            indexes: Vec::new(),
        };
        table.by_name = table.column_ids().map(|(id, column)| (column.name.clone(), id)).collect();
        for index in indexes.and_then(Text::elements).into_iter().flatten() {
            let index = table.parse_index(text, index)?;
            table.indexes.push(index);
        }
        Ok(table)
    }

    /// Parses a nonempty array of distinct names of persistent columns, of a table given as `table`.
    fn parse_index(&self, table: Text<'_>, text: Text<'_>) -> Result<Vec<ColumnId>> {
        let columns = self.parse_column_set(text)?;
        if columns.is_empty() {
            return Err(Error::syntax(table, "index must have at least one column"));
        }
        for id in &columns {
            let column = self.column(*id);
            if !column.persistent && *id != ColumnId::UUID {
                let name = &column.name;
                let details = format!("ephemeral columns (such as {name}) may not be indexed");
                return Err(Error::syntax(table, details));
            }
        }
        Ok(columns)
    }

    /// Parses an array of distinct column names, in its order.
    pub fn parse_column_set(&self, text: Text<'_>) -> Result<Vec<ColumnId>> {
        let refused = || Error::syntax(text, "array of distinct column names expected");
        let mut columns = Vec::new();
        for element in text.elements().ok_or_else(refused)? {
            let name = element.string().ok_or_else(refused)?;
            let name = String::from_utf8_lossy(&name);
            let Some(id) = self.column_id(&name) else {
                let details = format!("{name} is not a valid column name");
                return Err(Error::syntax(text, details));
            };
            if columns.contains(&id) {
                return Err(refused());
            }
            columns.push(id);
        }
        Ok(columns)
    }

    fn to_value(&self, all_root: bool) -> Value {
        let columns = self.data_columns().map(|(_, c)| (c.name.clone(), c.to_value()));
        let mut members = vec![("columns", Value::Object(columns.collect()))];
        members.extend((!self.mutable).then(|| ("mutable", Value::from(false))));
        members.extend((self.is_root && !all_root).then(|| ("isRoot", Value::from(true))));
        let limited = self.max_rows != u32::MAX;
        members.extend(limited.then(|| ("maxRows", i64::from(self.max_rows).into())));
        if !self.indexes.is_empty() {
            let index = |columns: &Vec<ColumnId>| {
                let names = columns.iter().map(|id| self.column(*id).name.as_str().into());
                Value::Array(names.collect())
            };
            members.push(("indexes", Value::Array(self.indexes.iter().map(index).collect())));
        }
        Value::Object(members.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
    }
}

fn system_column(name: &str) -> ColumnSchema {
    ColumnSchema {
        name: name.to_owned(),
        ty: ColumnType::scalar(crate::AtomType::Uuid),
        mutable: false,
        persistent: false,
        refs: ColumnRefs::default(),
    }
}

/// Names must be `<id>`s and may not begin with `_`.
fn check_name(text: Text<'_>, name: &str) -> Result<()> {
    if name.starts_with('_') {
        return Err(Error::syntax(text, "names beginning with \"_\" are reserved"));
    }
    if !is_id(name) {
        return Err(Error::syntax(text, "name must be a valid id"));
    }
    Ok(())
}

impl ColumnSchema {
    /// The column, and what is said of a key on it.
    fn parse(text: Text<'_>, name: String) -> Result<(Self, Option<Option<KeyOrder>>)> {
        let what = format!("schema for column {name}");
        let mut parser = Parser::new(text, &what);
        let mutable = parser.member("mutable", parser::BOOL | parser::OPTIONAL);
        let ephemeral = parser.member("ephemeral", parser::BOOL | parser::OPTIONAL);
        let ty = parser.member("type", parser::STRING | parser::OBJECT);
        let wish = keys::parse_members(&mut parser);
        parser.finish()?;
        let ty = match ty {
            Some(ty) => ColumnType::parse(ty)?,
            None => return Err(Error::syntax(text, "missing type")),
        };
        // Since OVS 2.6 weak references go with their row, so their columns are mutable.
        let weak = ty.references().any(|(_, kind)| kind == RefKind::Weak);
        let mutable = mutable.and_then(Text::bool).unwrap_or(true) || weak;
        let persistent = !ephemeral.and_then(Text::bool).unwrap_or(false);
        Ok((Self { name, ty, mutable, persistent, refs: ColumnRefs::default() }, wish))
    }

    fn to_value(&self) -> Value {
        let mut members = vec![("type", self.ty.to_value())];
        members.extend((!self.mutable).then(|| ("mutable", Value::from(false))));
        members.extend((!self.persistent).then(|| ("ephemeral", Value::from(true))));
        Value::Object(members.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
    }
}

impl Schema {
    /// Parses and normalises a `<database-schema>`.
    pub fn parse(text: Text<'_>) -> Result<Self> {
        let mut parser = Parser::new(text, &"database schema");
        let name = parser.string("name", parser::ID);
        let version = parser.string("version", parser::STRING | parser::OPTIONAL);
        let cksum = parser.string("cksum", parser::STRING | parser::OPTIONAL);
        let tables = parser.member("tables", parser::OBJECT);
        parser.finish()?;
        if let Some(version) = version.as_ref().filter(|version| !is_version(version)) {
            let details = format!("schema version \"{version}\" not in format x.y.z");
            return Err(Error::syntax(text, details));
        }
        let mut schema = Self {
            name: name.unwrap_or_default(),
            version: version.unwrap_or_default(),
            cksum: cksum.unwrap_or_default(),
            tables: Vec::new(),
            keys: Vec::new(),
        };
        let tables = tables.and_then(Text::object);
        if tables.as_ref().is_some_and(|tables| tables.len() > IDS_MAX) {
            let details = format!("database must have at most {IDS_MAX} tables");
            return Err(Error::plain_syntax(details));
        }
        for (table, value) in tables.iter().flat_map(|tables| tables.iter()) {
            let table = String::from_utf8_lossy(table).into_owned();
            check_name(text, &table)?;
            let parsed = TableSchema::parse(value, &table, &mut schema.keys)?;
            schema.tables.push(parsed);
        }
        schema.normalise()?;
        Ok(schema)
    }

    /// Parses a schema from JSON bytes; the error is text for people.
    pub fn parse_bytes(bytes: &[u8]) -> std::result::Result<Self, String> {
        let text = weir_json::validate(bytes).map_err(|error| error.to_string())?;
        Self::parse(text).map_err(|error| error.to_string())
    }

    /// Resolves references, and settles what the text leaves open.
    fn normalise(&mut self) -> Result<()> {
        if !self.tables.iter().any(|table| table.is_root) {
            // Without any root table there is no garbage collection at all.
            self.tables.iter_mut().for_each(|table| table.is_root = true);
        }
        let names: HashMap<String, TableId, foldhash::fast::FixedState> = (0..=u16::MAX)
            .map(TableId)
            .zip(&self.tables)
            .map(|(id, table)| (table.name.clone(), id))
            .collect();
        let roots: Vec<bool> = self.tables.iter().map(|table| table.is_root).collect();
        for table in &mut self.tables {
            for column in &mut table.columns {
                let resolve = |base: Option<&crate::BaseType>, role: &str| {
                    let Some((name, kind)) = base.and_then(crate::BaseType::reference) else {
                        return Ok(None);
                    };
                    names.get(name).map(|id| Some((*id, kind))).ok_or_else(|| {
                        let column = &column.name;
                        Error::plain_syntax(format!(
                            "column {column} {role} refers to undefined table {name}"
                        ))
                    })
                };
                column.refs = ColumnRefs {
                    key: resolve(Some(&column.ty.key), "key")?,
                    value: resolve(column.ty.value.as_ref(), "value")?,
                };
                // Rows that only an ephemeral column holds would vanish at the next start.
                let holds = [column.refs.key, column.refs.value].into_iter().flatten();
                column.persistent |= holds
                    .into_iter()
                    .any(|(table, kind)| kind == RefKind::Strong && !roots[table.index()]);
            }
        }
        Ok(())
    }

    /// The table called `name`.
    pub fn table_id(&self, name: &str) -> Option<TableId> {
        let found = self.tables.binary_search_by(|table| table.name.as_str().cmp(name));
        found.ok().map(|i| TableId(i as u16))
    }

    /// The table with this number.
    pub fn table(&self, id: TableId) -> &TableSchema {
        &self.tables[id.index()]
    }

    /// All tables with their numbers.
    pub fn table_ids(&self) -> impl Iterator<Item = (TableId, &TableSchema)> {
        self.tables.iter().enumerate().map(|(i, table)| (TableId(i as u16), table))
    }

    /// The normalised JSON form: what get_schema answers and files hold.
    pub fn to_value(&self) -> Value {
        let all_root = self.tables.iter().all(|table| table.is_root);
        let tables = self.tables.iter().map(|t| (t.name.clone(), t.to_value(all_root)));
        let mut members = vec![
            ("name", Value::from(self.name.as_str())),
            ("tables", Value::Object(tables.collect())),
        ];
        for (key, text) in [("version", &self.version), ("cksum", &self.cksum)] {
            members.extend((!text.is_empty()).then(|| (key, Value::from(text.as_str()))));
        }
        Value::Object(members.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
    }
}

impl PartialEq for Schema {
    /// Equal normalised JSON, as the reference compares schemas.
    fn eq(&self, other: &Self) -> bool {
        self.to_value() == other.to_value()
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.to_value(), f)
    }
}

/// `x.y.z`, three integers as scanf(3) reads them: a sign, and spaces before, are let pass.
fn is_version(text: &str) -> bool {
    let is_integer = |part: &str| {
        let part = part.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
        let digits = part.strip_prefix(['+', '-']).unwrap_or(part);
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    text.split('.').count() == 3 && text.split('.').all(is_integer)
}

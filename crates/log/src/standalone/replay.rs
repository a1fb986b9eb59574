//! From a file's bytes to its schema and rows.

use std::fmt;
use std::sync::Arc;

use weir_data::{
    ColumnType, Datum, Error, Row, Schema, Store, TableId, TableSchema, Uuid, UuidSource,
};
use weir_json::{Kind, Text};

use crate::record::{self, Magic, Reader};

/// Why a file cannot be opened as a standalone database; Display is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError(String);

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LoadError {}

/// What a file holds.
#[derive(Debug)]
pub struct Loaded {
    /// From the first record.
    pub schema: Arc<Schema>,
    /// The rows after the last good record.
    pub store: Store,
    /// End of the last good record: appends go there.
    pub valid_len: u64,
    /// Length of the file.
    pub file_len: u64,
    /// Number of good records, the schema's included.
    pub records: u64,
    /// Length of the first two records: a compacted file has no more.
    pub snapshot_len: u64,
    /// What is wrong behind `valid_len`, if anything.
    pub warning: Option<String>,
}

/// Replays a file fed in pieces.
#[derive(Debug)]
pub struct Replayer {
    path: String,
    seed: u64,
    versions: UuidSource,
    reader: Reader,
    /// From the first record on.
    rows: Option<Rows>,
    file_len: u64,
    records: u64,
    snapshot_len: u64,
    warning: Option<String>,
}

impl Replayer {
    /// A replayer for the file that messages call `path`; `seed` is fresh randomness.
    pub fn new(path: &str, seed: u64) -> Self {
        Self {
            path: path.to_owned(),
            seed,
            versions: UuidSource::new([seed, !seed, 0x7765_6972, 1]),
            reader: Reader::new(),
            rows: None,
            file_len: 0,
            records: 0,
            snapshot_len: 0,
            warning: None,
        }
    }

    /// Takes the next bytes. After the first bad record the rest is only counted.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), LoadError> {
        self.file_len += bytes.len() as u64;
        if self.warning.is_some() {
            return Ok(());
        }
        self.reader.feed(bytes);
        loop {
            match next(&mut self.reader, &mut self.rows, self.seed, &mut self.versions) {
                Ok(None) => return self.check_magic(),
                Ok(Some(end)) => {
                    self.records += 1;
                    if self.records <= 2 {
                        self.snapshot_len = end;
                    }
                }
                Err(problem) => return self.stop(&problem),
            }
        }
    }

    fn check_magic(&self) -> Result<(), LoadError> {
        if self.reader.magic() != Some(Magic::Clustered) {
            return Ok(());
        }
        let path = &self.path;
        Err(LoadError(format!(
            "{path}: this is a clustered database; this version serves standalone databases \
             (\"ovsdb-tool cluster-to-standalone\" makes one)"
        )))
    }

    /// Before the schema nothing can be served; behind it, all before the problem can.
    fn stop(&mut self, problem: &Problem) -> Result<(), LoadError> {
        self.check_magic()?;
        let text = match problem {
            Problem::Record(error) => error.about(&self.path).to_string(),
            Problem::Content(error) => error.to_string(),
        };
        if self.rows.is_none() {
            return Err(LoadError(text));
        }
        self.warning = Some(text);
        Ok(())
    }

    /// The file has ended.
    pub fn finish(mut self) -> Result<Loaded, LoadError> {
        if self.warning.is_none()
            && let Err(error) = std::mem::take(&mut self.reader).finish()
        {
            self.stop(&Problem::Record(error))?;
        }
        let Some(rows) = self.rows else {
            return Err(LoadError(format!("{}: file has no schema", self.path)));
        };
        Ok(Loaded {
            schema: Arc::clone(rows.store.schema()),
            store: rows.store,
            valid_len: rows.valid_len,
            file_len: self.file_len,
            records: self.records,
            snapshot_len: self.snapshot_len,
            warning: self.warning,
        })
    }
}

enum Problem {
    Record(record::Error),
    Content(Error),
}

impl From<record::Error> for Problem {
    fn from(error: record::Error) -> Self {
        Self::Record(error)
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::Content(error)
    }
}

/// Replays the next record, if it is all there; answers where it ends.
fn next(
    reader: &mut Reader,
    rows: &mut Option<Rows>,
    seed: u64,
    versions: &mut UuidSource,
) -> Result<Option<u64>, Problem> {
    if reader.magic() == Some(Magic::Clustered) {
        return Ok(None);
    }
    let Some(record) = reader.next_record()? else { return Ok(None) };
    let end = record.end;
    let json = record.json()?;
    match rows {
        None => *rows = Some(Rows::new(Schema::parse(json)?, seed)),
        Some(rows) => rows.replay(json, versions)?,
    }
    if let Some(rows) = rows {
        rows.valid_len = end;
    }
    Ok(Some(end))
}

/// The rows so far.
#[derive(Debug)]
struct Rows {
    store: Store,
    /// By table and column: the type of a difference, which may have any number of elements.
    relaxed: Vec<Vec<ColumnType>>,
    valid_len: u64,
}

impl Rows {
    fn new(schema: Schema, seed: u64) -> Self {
        let relax =
            |ty: &ColumnType| ColumnType { n_min: 0, n_max: ColumnType::UNLIMITED, ..ty.clone() };
        let columns = |table: &TableSchema| table.columns.iter().map(|c| relax(&c.ty)).collect();
        let relaxed = schema.tables.iter().map(columns).collect();
        Self { store: Store::new(Arc::new(schema), seed), relaxed, valid_len: 0 }
    }

    /// One transaction, all or nothing: it is parsed whole before the first row changes.
    fn replay(&mut self, json: Text<'_>, versions: &mut UuidSource) -> Result<(), Error> {
        let members = || json.members().into_iter().flatten();
        if json.kind() != Kind::Object {
            return Err(Error::syntax(json, "object expected"));
        }
        let is_diff =
            members().any(|(key, value)| *key == *b"_is_diff" && value.bool() == Some(true));
        let schema = Arc::clone(self.store.schema());
        let mut edits = Vec::new();
        for (key, rows) in members() {
            let name = String::from_utf8_lossy(&key);
            let Some(table) = schema.table_id(&name) else {
                if matches!(&*name, "_date" | "_comment" | "_is_diff") {
                    continue;
                }
                let details = format!("No table named {name}.");
                return Err(Error::syntax_tagged(json, "unknown table", details));
            };
            self.parse_table(table, rows, is_diff, versions, &mut edits)?;
        }
        edits.into_iter().for_each(|edit| self.make(edit));
        Ok(())
    }

    fn parse_table(
        &self,
        table: TableId,
        rows: Text<'_>,
        is_diff: bool,
        versions: &mut UuidSource,
        edits: &mut Vec<Edit>,
    ) -> Result<(), Error> {
        let members = rows.members().ok_or_else(|| Error::syntax(rows, "object expected"))?;
        for (key, value) in members {
            let uuid = Uuid::parse_bytes(&key).ok_or_else(|| {
                let key = String::from_utf8_lossy(&key);
                Error::syntax(rows, format!("\"{key}\" is not a valid UUID"))
            })?;
            let exists = self.store.get(table, uuid).is_some();
            edits.push(if value.kind() == Kind::Null {
                Edit::Delete(table, uuid)
            } else if exists {
                let columns = self.parse_changes(table, value, is_diff)?;
                Edit::Modify { table, uuid, columns, is_diff }
            } else {
                Edit::Insert(table, self.parse_row(table, uuid, value, versions.next_uuid())?)
            });
        }
        Ok(())
    }

    fn parse_row(
        &self,
        table: TableId,
        uuid: Uuid,
        value: Text<'_>,
        version: Uuid,
    ) -> Result<Row, Error> {
        let schema = self.store.schema().table(table);
        let mut row = Row::new(uuid, version, schema);
        let cells = row.cells_mut();
        for (key, value) in value.members().ok_or_else(|| not_a_row(value))? {
            let column = find_column(schema, &key, value)?;
            cells[column.index()] = Datum::parse(value, &schema.column(column).ty, None)?;
        }
        Ok(row)
    }

    fn parse_changes(
        &self,
        table: TableId,
        value: Text<'_>,
        is_diff: bool,
    ) -> Result<Vec<(weir_data::ColumnId, Datum)>, Error> {
        let schema = self.store.schema().table(table);
        let mut columns = Vec::new();
        for (key, value) in value.members().ok_or_else(|| not_a_row(value))? {
            let column = find_column(schema, &key, value)?;
            let ty = &schema.column(column).ty;
            let relaxed = &self.relaxed[table.index()][column.index()];
            let ty = if is_diff && ty.is_composite() { relaxed } else { ty };
            columns.push((column, Datum::parse(value, ty, None)?));
        }
        Ok(columns)
    }

    fn make(&mut self, edit: Edit) {
        match edit {
            Edit::Delete(table, uuid) => {
                self.store.remove(table, uuid);
            }
            // A record names a row once, so it is still not there.
            Edit::Insert(table, row) => {
                if self.store.get(table, row.uuid()).is_none() {
                    self.store.insert(table, row);
                }
            }
            Edit::Modify { table, uuid, columns, is_diff } => {
                let schema = Arc::clone(self.store.schema());
                for (column, value) in columns {
                    let ty = &schema.table(table).column(column).ty;
                    self.store.edit(table, uuid, column, |datum| {
                        if is_diff {
                            datum.apply_diff(&value, ty);
                        } else {
                            *datum = value;
                        }
                    });
                }
            }
        }
    }
}

/// What a record does to one row.
enum Edit {
    Delete(TableId, Uuid),
    Insert(TableId, Row),
    Modify { table: TableId, uuid: Uuid, columns: Vec<(weir_data::ColumnId, Datum)>, is_diff: bool },
}

fn not_a_row(value: Text<'_>) -> Error {
    Error::syntax(value, "row must be JSON object")
}

fn find_column(
    schema: &TableSchema,
    key: &[u8],
    value: Text<'_>,
) -> Result<weir_data::ColumnId, Error> {
    let name = String::from_utf8_lossy(key);
    schema.column_id(&name).filter(|id| id.index() > 1).ok_or_else(|| {
        let details = format!("No column {name} in table {}.", schema.name);
        Error::syntax_tagged(value, "unknown column", details)
    })
}

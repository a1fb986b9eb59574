//! From a transaction's text to what it does to rows.
//!
//! Of equal keys in one JSON object the last one counts; they hardly ever happen, so the first
//! reading goes through an object in its own order, and starts over, carefully, when it meets one
//! (or any other problem, since that could be in a value that does not count).

use weir_data::types::RefKind;
use weir_data::{
    AtomType, ColumnEdit, ColumnId, ColumnType, Datum, Edit, Error, Row, RowEdit, Schema, Store,
    TableId, TableSchema, Uuid, UuidSource,
};
use weir_json::{Kind, Reader, Text};

use crate::standalone::note::Note;
use crate::standalone::split::{Item, Splitter, Unusual};

/// A stage with more places than this is given back after the record that needed it.
const STAGE_KEPT: usize = 4096;

/// Decodes transactions as files and logs have them. One decoder for many of them is quicker than
/// one for each: it remembers what rows look like.
#[derive(Debug)]
pub struct Decoder {
    /// By table.
    plans: Vec<Plan>,
    pub(super) stage: Stage,
    /// How many objects have been gone through: marks what has been seen in one of them.
    mark: u64,
    streaming: Option<Streaming>,
    /// What the record says of itself, as far as it has been read, if that was asked for.
    note: Option<Note>,
}

/// What a transaction is read against.
pub(super) struct Present<'s> {
    /// The rows that are there.
    pub(super) store: &'s Store,
    /// Where new rows have their `_version` from.
    pub(super) versions: &'s mut UuidSource,
}

/// A record that is read while it comes.
#[derive(Debug)]
struct Streaming {
    splitter: Splitter,
    is_diff: Option<bool>,
    /// The number by which its tables are known to have been seen in this record.
    mark: u64,
    /// The table whose rows come.
    table: TableId,
}

/// How rows of one table are read.
#[derive(Debug)]
struct Plan {
    /// Room for the values of one row, all columns.
    cells: Vec<Datum>,
    /// Columns whose default value is not empty.
    defaults: Vec<(ColumnId, Datum)>,
    columns: Vec<ColumnPlan>,
    /// The row that was read last: the next one shares with it what is equal.
    last: Row,
    /// The last object that named this table.
    mark: u64,
}

#[derive(Debug)]
struct ColumnPlan {
    /// Type of a difference, which may have any number of elements.
    difference: ColumnType,
    /// Which column came behind this one in the last row: a guess for the next one.
    next: ColumnId,
    /// The last object that named this column.
    mark: u64,
}

/// What a record does, before it does it. No row is in two of the lists.
#[derive(Debug, Default)]
pub(super) struct Stage {
    /// Rows that were there before, each once.
    pub(super) touched: Vec<(TableId, Uuid)>,
    pub(super) deletes: Vec<(TableId, Uuid)>,
    pub(super) changes: Vec<StagedChange>,
    pub(super) inserts: Vec<(TableId, Row)>,
}

#[derive(Debug)]
pub(super) struct StagedChange {
    pub(super) table: TableId,
    pub(super) uuid: Uuid,
    pub(super) column: ColumnId,
    pub(super) value: Datum,
    pub(super) is_diff: bool,
}

/// A member of a record is noted, if it is one that says something of the record itself.
fn note(note: &mut Option<Note>, key: &[u8], value: Text<'_>) {
    let Some(note) = note else { return };
    match key {
        b"_date" => note.date_ms = value.integer(),
        b"_comment" => note.comment = value.str().map(|comment| comment.into_owned()),
        _ => {}
    }
}

/// How a record is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// Trusts that keys are unique.
    Quick,
    /// Sorts objects to find equal keys.
    Careful,
}

/// Why a reading ends early.
pub(super) enum Stop {
    /// Equal keys, or something else that wants a careful reading.
    Equal,
    Bad(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Bad(error)
    }
}

impl Decoder {
    /// A decoder of transactions on rows of this schema.
    pub fn new(schema: &Schema) -> Self {
        let plans = schema.tables.iter().map(Plan::new).collect();
        Self { plans, stage: Stage::default(), mark: 0, streaming: None, note: None }
    }

    /// What a transaction does to the rows of `store`, which conform to the decoder's schema: each
    /// row once, unless somebody wrote what no server writes. New rows are whole, with a `_version`
    /// from `versions`.
    ///
    /// # Errors
    /// In the words of the reference.
    pub fn decode(
        &mut self,
        json: Text<'_>,
        store: &Store,
        versions: &mut UuidSource,
    ) -> Result<Vec<RowEdit>, Error> {
        let mut present = Present { store, versions };
        self.stage.clear();
        let quick = self.read_record(json, Reading::Quick, &mut present);
        if quick.is_err() || self.stage.names_twice() {
            self.stage.clear();
            let read = self.read_record(json, Reading::Careful, &mut present);
            read.map_err(|stop| stop.into_error(json))?;
        }
        Ok(self.stage.take_edits())
    }

    /// A record is about to be read; [`Decoder::take_note`] tells what it says of itself, if that
    /// is asked for.
    pub(super) fn begin_note(&mut self, is_wanted: bool) {
        self.note = is_wanted.then(Note::default);
    }

    /// What the last record says of itself, if that was asked for.
    pub(super) fn take_note(&mut self) -> Option<Note> {
        self.note.take()
    }

    /// Whether pieces of a record have come, and not all of them.
    pub(super) fn is_in_pieces(&self) -> bool {
        self.streaming.is_some()
    }

    /// The next bytes of one transaction. An unusual one is to be read as a whole.
    pub(super) fn read_piece(
        &mut self,
        bytes: &[u8],
        present: &mut Present<'_>,
    ) -> Result<(), Unusual> {
        let mut streaming = self.streaming.take().unwrap_or_else(|| {
            self.stage.clear();
            self.mark += 1;
            let (splitter, mark) = (Splitter::new(), self.mark);
            Streaming { splitter, is_diff: None, mark, table: TableId(0) }
        });
        let Streaming { splitter, is_diff, mark, table } = &mut streaming;
        splitter.feed(bytes, |item| self.take_item(item, is_diff, *mark, table, present))?;
        self.streaming = Some(streaming);
        Ok(())
    }

    /// All bytes of the transaction have come.
    pub(super) fn end_pieces(&mut self, present: &mut Present<'_>) -> Result<(), Unusual> {
        let streaming = self.streaming.take().ok_or(Unusual)?;
        let Streaming { splitter, mut is_diff, mark, mut table } = streaming;
        splitter.finish(|item| self.take_item(item, &mut is_diff, mark, &mut table, present))
    }

    /// Forgets a transaction of which pieces have come.
    pub(super) fn forget_pieces(&mut self) {
        self.streaming = None;
        self.stage.clear();
    }

    fn take_item(
        &mut self,
        item: Item<'_>,
        is_diff: &mut Option<bool>,
        record: u64,
        table: &mut TableId,
        present: &mut Present<'_>,
    ) -> Result<(), Unusual> {
        match item {
            Item::Table(key) => {
                let id = std::str::from_utf8(key).ok();
                *table =
                    id.and_then(|name| present.store.schema().table_id(name)).ok_or(Unusual)?;
                let plan = self.plans.get_mut(table.index()).ok_or(Unusual)?;
                let again = std::mem::replace(&mut plan.mark, record) == record;
                (!again).then_some(()).ok_or(Unusual)
            }
            Item::Member(key @ b"_date", value) if value.kind() == Kind::Integer => {
                note(&mut self.note, key, value);
                Ok(())
            }
            Item::Member(key @ b"_comment", value) => {
                note(&mut self.note, key, value);
                Ok(())
            }
            Item::Member(b"_is_diff", value) if is_diff.is_none() => {
                *is_diff = Some(value.bool().ok_or(Unusual)?);
                Ok(())
            }
            Item::Member(..) => Err(Unusual),
            Item::Row(key, row) => {
                let uuid = Uuid::parse_bytes(key).ok_or(Unusual)?;
                let mut is_diff = IsDiff { record: None, known: *is_diff };
                let (reader, reading) = (&mut row.reader(), Reading::Quick);
                let read = self.read_row((*table, uuid), reader, &mut is_diff, reading, present);
                read.map_err(|_| Unusual)
            }
        }
    }

    /// Stages what a record does. A quick reading finds some of the equal keys only; of the others
    /// [`Stage::names_twice`] tells.
    pub(super) fn read_record(
        &mut self,
        json: Text<'_>,
        reading: Reading,
        present: &mut Present<'_>,
    ) -> Result<(), Stop> {
        let schema = present.store.schema();
        let mut is_diff = IsDiff { record: Some(json), known: None };
        self.mark += 1;
        let record = self.mark;
        let each = |key: &[u8], reader: &mut Reader<'_>| {
            let name = String::from_utf8_lossy(key);
            if let Some(table) = schema.table_id(&name) {
                let last = self.plans.get_mut(table.index()).map(|plan| &mut plan.mark);
                if last.is_some_and(|last| std::mem::replace(last, record) == record) {
                    return Err(Stop::Equal);
                }
                return self.read_table(table, reader, &mut is_diff, reading, present);
            }
            let value = reader.text();
            note(&mut self.note, key, value);
            match &*name {
                "_date" if value.kind() == Kind::Integer => Ok(()),
                "_comment" => Ok(()),
                "_is_diff" if value.kind() == Kind::Bool => {
                    let again = is_diff.known.replace(value.bool() == Some(true));
                    if again.is_some() && again != is_diff.known {
                        Err(Stop::Equal)
                    } else {
                        Ok(())
                    }
                }
                _ => {
                    let details = format!("No table named {name}.");
                    Err(Error::syntax_tagged(json, "unknown table", details).into())
                }
            }
        };
        for_members(&mut json.reader(), reading, each).map(|_| ())
    }

    fn read_table(
        &mut self,
        table: TableId,
        reader: &mut Reader<'_>,
        is_diff: &mut IsDiff<'_>,
        reading: Reading,
        present: &mut Present<'_>,
    ) -> Result<(), Stop> {
        let start = reader.clone();
        let each = |key: &[u8], reader: &mut Reader<'_>| {
            let uuid = Uuid::parse_bytes(key).ok_or_else(|| {
                let key = String::from_utf8_lossy(key);
                Error::syntax(start.clone().text(), format!("\"{key}\" is not a valid UUID"))
            })?;
            self.read_row((table, uuid), reader, is_diff, reading, present)
        };
        match for_members(reader, reading, each)? {
            true => Ok(()),
            false => Err(Error::syntax(start.clone().text(), "object expected").into()),
        }
    }

    fn read_row(
        &mut self,
        (table, uuid): (TableId, Uuid),
        reader: &mut Reader<'_>,
        is_diff: &mut IsDiff<'_>,
        reading: Reading,
        present: &mut Present<'_>,
    ) -> Result<(), Stop> {
        let Some(old) = present.store.get(table, uuid) else {
            if reader.kind() == Kind::Null {
                let details = format!("transaction deletes row {uuid} that does not exist");
                return Err(Error::plain_syntax(details).into());
            }
            return self.read_new_row((table, uuid), reader, reading, present);
        };
        self.stage.touched.push((table, uuid));
        if reader.kind() == Kind::Null {
            reader.text();
            self.stage.deletes.push((table, uuid));
            return Ok(());
        }
        let is_diff = is_diff.get()?;
        let schema = present.store.schema().table(table);
        let Some(plan) = self.plans.get_mut(table.index()) else { return Ok(()) };
        let changes = &mut self.stage.changes;
        self.mark += 1;
        let each = |column: ColumnId, plan: &mut ColumnPlan, reader: &mut Reader<'_>| {
            let ty = &schema.column(column).ty;
            let is_diff = is_diff && ty.is_composite();
            let read_as = if is_diff { &plan.difference } else { ty };
            let value = Datum::read_committed(reader, read_as, Datum::Empty.as_ref())?;
            if is_diff {
                check_size(old.datum(column), &value, ty)?;
            }
            changes.push(StagedChange { table, uuid, column, value, is_diff });
            Ok(())
        };
        plan.read_columns(schema, reader, self.mark, reading, each)
    }

    fn read_new_row(
        &mut self,
        (table, uuid): (TableId, Uuid),
        reader: &mut Reader<'_>,
        reading: Reading,
        present: &mut Present<'_>,
    ) -> Result<(), Stop> {
        let schema = present.store.schema().table(table);
        let Some(plan) = self.plans.get_mut(table.index()) else { return Ok(()) };
        let mut cells = std::mem::take(&mut plan.cells);
        // A reading that failed may have left something.
        cells.fill(Datum::Empty);
        self.mark += 1;
        let last = plan.last.clone();
        let each = |column: ColumnId, _: &mut ColumnPlan, reader: &mut Reader<'_>| {
            let ty = &schema.column(column).ty;
            let value = Datum::read_committed(reader, ty, last.get(column))?;
            set(&mut cells, column, value);
            Ok(())
        };
        let read = plan.read_columns(schema, reader, self.mark, reading, each);
        if read.is_err() {
            plan.cells = cells;
            return read;
        }
        for (column, default) in &plan.defaults {
            if cells.get(column.index()).is_some_and(|cell| cell.as_ref().is_empty()) {
                set(&mut cells, *column, default.clone());
            }
        }
        let version = present.versions.next_uuid();
        set(&mut cells, ColumnId::UUID, Datum::One(weir_data::Atom::Uuid(uuid)));
        set(&mut cells, ColumnId::VERSION, Datum::One(weir_data::Atom::Uuid(version)));
        let row = Row::take(&mut cells);
        plan.cells = cells;
        plan.last = row.clone();
        self.stage.inserts.push((table, row));
        Ok(())
    }
}

impl Stop {
    /// What is wrong with the transaction.
    pub(super) fn into_error(self, json: Text<'_>) -> Error {
        match self {
            Self::Bad(error) => error,
            Self::Equal => Error::syntax(json, "equal keys"),
        }
    }
}

/// Whether modified rows are differences; looked for when somebody asks, since a record that only
/// inserts need not be gone through for it.
struct IsDiff<'a> {
    /// The record, if all of it is there: to look for `_is_diff` in.
    record: Option<Text<'a>>,
    known: Option<bool>,
}

impl IsDiff<'_> {
    fn get(&mut self) -> Result<bool, Stop> {
        if self.known.is_none() {
            let members = self.record.ok_or(Stop::Equal)?.members().into_iter().flatten();
            let last = members.filter(|(key, _)| **key == *b"_is_diff").last();
            self.known = Some(last.is_some_and(|(_, value)| value.bool() == Some(true)));
        }
        Ok(self.known == Some(true))
    }
}

impl Plan {
    fn new(schema: &TableSchema) -> Self {
        let last = Row::new(Uuid::ZERO, Uuid::ZERO, schema);
        let defaults = schema.data_columns().map(|(id, _)| (id, last.datum(id).clone()));
        let defaults = defaults.filter(|(_, default)| !default.as_ref().is_empty()).collect();
        let column = |(_, column): (ColumnId, &weir_data::ColumnSchema)| ColumnPlan {
            difference: ColumnType { n_min: 0, n_max: ColumnType::UNLIMITED, ..column.ty.clone() },
            next: ColumnId::UUID,
            mark: 0,
        };
        let columns = schema.column_ids().map(column).collect();
        let cells = vec![Datum::Empty; schema.columns.len()];
        Self { last, cells, defaults, columns, mark: 0 }
    }

    /// Reads a row's columns with `each`.
    fn read_columns<'a>(
        &mut self,
        schema: &TableSchema,
        reader: &mut Reader<'a>,
        mark: u64,
        reading: Reading,
        mut each: impl FnMut(ColumnId, &mut ColumnPlan, &mut Reader<'a>) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let start = reader.clone();
        let mut last = ColumnId::UUID;
        let each_key = |key: &[u8], reader: &mut Reader<'a>| {
            let guess = self.columns.get(last.index()).map_or(last, |plan| plan.next);
            let column = if schema.column(guess).name.as_bytes() == key {
                guess
            } else {
                find_column(schema, key, &start)?
            };
            if let Some(plan) = self.columns.get_mut(last.index()) {
                plan.next = column;
            }
            last = column;
            let Some(plan) = self.columns.get_mut(column.index()) else { return Ok(()) };
            if std::mem::replace(&mut plan.mark, mark) == mark {
                return Err(Stop::Equal);
            }
            if column <= ColumnId::VERSION {
                // The reference reads these, too; the key says who the row is.
                Datum::read(reader, &ColumnType::scalar(AtomType::Uuid), None)?;
                return Ok(());
            }
            each(column, plan, reader)
        };
        match for_members(reader, reading, each_key)? {
            true => Ok(()),
            false => Err(Error::syntax(start.clone().text(), "row must be JSON object").into()),
        }
    }
}

fn find_column(schema: &TableSchema, key: &[u8], row: &Reader<'_>) -> Result<ColumnId, Error> {
    let name = String::from_utf8_lossy(key);
    schema.column_id(&name).ok_or_else(|| {
        let details = format!("No column {name} in table {}.", schema.name);
        Error::syntax_tagged(row.clone().text(), "unknown column", details)
    })
}

fn set(cells: &mut [Datum], column: ColumnId, value: Datum) {
    if let Some(cell) = cells.get_mut(column.index()) {
        *cell = value;
    }
}

/// Whether a difference leaves a value of a size that the type allows.
fn check_size(old: &Datum, difference: &Datum, ty: &ColumnType) -> Result<(), Error> {
    if ty.n_min == 0 && ty.n_max == ColumnType::UNLIMITED {
        return Ok(());
    }
    let (old, difference) = (old.as_ref(), difference.as_ref());
    let mut size = old.len();
    for entry in difference.entries() {
        if old.has_entry(entry) {
            size -= 1;
        } else if !old.contains(entry.0) {
            size += 1;
        }
    }
    // References to rows that are gone are taken out of all rows at the end, of which whoever wrote this had
    // fewer: the packaged server takes out what its records leave dangling.
    let may_be_more = || ty.references().any(|(_, kind)| kind == RefKind::Weak);
    if size >= ty.n_min as usize && (size <= ty.n_max as usize || may_be_more()) {
        return Ok(());
    }
    // The reference's spelling.
    Err(Error::ovsdb("Datum crated by diff has size error"))
}

impl Stage {
    /// What has been staged, row by row; nothing is left.
    fn take_edits(&mut self) -> Vec<RowEdit> {
        let mut edits: Vec<RowEdit> = Vec::new();
        let gone = self.deletes.drain(..);
        edits.extend(gone.map(|(table, uuid)| RowEdit { table, uuid, edit: Edit::Delete }));
        // A row of which nothing changes has no part in this.
        for StagedChange { table, uuid, column, value, is_diff } in self.changes.drain(..) {
            let change = ColumnEdit { column, value, is_difference: is_diff };
            match edits.last_mut() {
                Some(RowEdit { table: last_table, uuid: last, edit: Edit::Modify(columns) })
                    if (*last_table, *last) == (table, uuid) =>
                {
                    columns.push(change);
                }
                _ => edits.push(RowEdit { table, uuid, edit: Edit::Modify(vec![change]) }),
            }
        }
        let new = self.inserts.drain(..);
        edits.extend(new.map(|(table, row)| {
            let uuid = row.uuid();
            RowEdit { table, uuid, edit: Edit::Insert(row) }
        }));
        self.clear();
        edits
    }

    /// Whether a row that was there is named twice.
    pub(super) fn names_twice(&mut self) -> bool {
        self.touched.sort_unstable();
        self.touched.windows(2).any(|pair| pair.first() == pair.last())
    }

    pub(super) fn clear(&mut self) {
        let Self { touched, deletes, changes, inserts } = self;
        clear(touched);
        clear(deletes);
        clear(changes);
        clear(inserts);
    }
}

fn clear<T>(list: &mut Vec<T>) {
    list.clear();
    if list.capacity() > STAGE_KEPT {
        *list = Vec::new();
    }
}

/// Calls `each` with the keys of the object that is next, and the reader before their values, which
/// `each` consumes. False if there is no object.
fn for_members<'a>(
    reader: &mut Reader<'a>,
    reading: Reading,
    mut each: impl FnMut(&[u8], &mut Reader<'a>) -> Result<(), Stop>,
) -> Result<bool, Stop> {
    match reading {
        Reading::Quick => {
            if !reader.begin_object() {
                return Ok(false);
            }
            while let Some(key) = reader.next_key() {
                each(&key, reader)?;
            }
        }
        Reading::Careful => {
            let Some(object) = reader.text().object() else { return Ok(false) };
            for (key, value) in object.iter() {
                each(key, &mut value.reader())?;
            }
        }
    }
    Ok(true)
}

//! Updates as JSON: `<table-updates>` (RFC 7047 §4.1.6) and `<table-updates2>` (ovsdb-server(7)
//! §4.1.14), straight to bytes.

use std::sync::Arc;

use weir_data::{
    ColumnDelta, ColumnType, DatumRef, Delta, Row, RowDelta, Schema, Snapshot, TableDelta, TableId,
    TableSchema, Uuid,
};

use crate::clauses::Found;
use crate::cost::{self, Budget, TooLong};
use crate::difference::OtherCondition;
use crate::rows::Rows;
use crate::shape::{DELETE, INITIAL, INSERT, MODIFY, Select, Shape, Shapes};
use crate::subscription::{Subscription, TableSubscription};
use crate::view::{Modified, RowView, State, TableView, View};

/// The kind of a fragment that is not a row but a table.
const WHOLE: Select = 0;

/// What an update says of one row.
enum Event<'a> {
    /// The row is there (`INITIAL` or `INSERT`).
    Appear(Select, &'a Row),
    /// The row is gone; as it was.
    Vanish(&'a Row),
    /// The row changed.
    Change(&'a Modified<'a>),
}

impl Event<'_> {
    fn kind(&self) -> Select {
        match self {
            Event::Appear(select, _) => *select,
            Event::Vanish(_) => DELETE,
            Event::Change(_) => MODIFY,
        }
    }
}

/// Writes tables and rows with their separators, leaving out tables without rows.
struct Writer<'a> {
    out: &'a mut Vec<u8>,
    any_table: bool,
}

/// Writes one table's rows, and its name before the first.
struct TableWriter<'a> {
    out: &'a mut Vec<u8>,
    shape: &'a Shape,
    schema: &'a TableSchema,
    any_table: bool,
    any_row: bool,
}

/// Appends the initial rows, `{}` if there are none.
pub(crate) fn initial(
    subscription: &Subscription,
    rows: Rows<'_>,
    budget: &mut Budget<'_>,
    out: &mut Vec<u8>,
) -> Result<(), TooLong> {
    let mut writer = Writer::new(out);
    for table in subscription.initial_tables() {
        let found = rows.matching(table.shape.table, &table.filter, budget)?;
        writer.table(table, rows.store().schema(), |writer| {
            for row in found {
                writer.row_within(row, &Event::Appear(INITIAL, row), budget)?;
            }
            Ok(())
        })?;
    }
    writer.end();
    Ok(())
}

/// How far the initial rows of a snapshot have been written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    has_begun: bool,
    /// The index of the table among [`Subscription::initial_tables`].
    table: usize,
    slot: u32,
    any_table: bool,
    any_row: bool,
}

/// Appends initial rows, as [`initial`] does, until there are `enough` bytes; false if there are no
/// more.
pub(crate) fn initial_piece(
    subscription: &Subscription,
    snapshot: &Snapshot,
    progress: &mut Progress,
    enough: usize,
    out: &mut Vec<u8>,
) -> bool {
    if !std::mem::replace(&mut progress.has_begun, true) {
        out.push(b'{');
    }
    for table in subscription.initial_tables().skip(progress.table) {
        let shape = &table.shape;
        let schema = snapshot.schema().table(shape.table);
        let (any_table, any_row) = (progress.any_table, progress.any_row);
        let mut writer = TableWriter { out, shape, schema, any_table, any_row };
        for (behind, row) in snapshot.rows_from(shape.table, progress.slot) {
            if table.matches(row) {
                writer.row(row.uuid(), &Event::Appear(INITIAL, row));
            }
            if writer.out.len() >= enough {
                progress.any_row = writer.any_row;
                progress.slot = behind;
                return true;
            }
        }
        if writer.any_row {
            out.push(b'}');
            progress.any_table = true;
        }
        (progress.table, progress.slot, progress.any_row) = (progress.table + 1, 0, false);
    }
    out.push(b'}');
    false
}

/// Appends what one change is to a subscription without conditions, `{}` if it is nothing.
pub(crate) fn delta(
    subscription: &Subscription,
    delta: &Delta,
    schema: &Schema,
    out: &mut Vec<u8>,
) {
    out.push(b'{');
    let mut any_table = false;
    for TableDelta { table, rows } in &delta.tables {
        let Some(of) = subscription.table(*table) else { continue };
        let (shape, schema) = (&of.shape, schema.table(*table));
        let mut writer = TableWriter { out, shape, schema, any_table, any_row: false };
        for (uuid, row) in rows {
            match row {
                RowDelta::Insert(row) => writer.row(*uuid, &Event::Appear(INSERT, row)),
                RowDelta::Delete(row) => writer.row(*uuid, &Event::Vanish(row)),
                RowDelta::Modify(columns) => writer.modified_row(*uuid, columns),
            }
        }
        if writer.any_row {
            out.push(b'}');
            any_table = true;
        }
    }
    out.push(b'}');
}

/// Which of a table's changed rows can concern somebody; `None` if any of them can.
pub(crate) type Concern<'c, 'f> = &'c dyn Fn(TableId) -> Option<&'f [Found]>;

/// Appends what happened as far as it concerns the subscription, `{}` if it does not.
pub(crate) fn changes(
    subscription: &Subscription,
    view: &View<'_>,
    concern: Concern<'_, '_>,
    schema: &Schema,
    budget: &mut Budget<'_>,
    out: &mut Vec<u8>,
) -> Result<(), TooLong> {
    let mut writer = Writer::new(out);
    for changed in &view.tables {
        let Some(table) = subscription.table(changed.table) else { continue };
        if table.filter.matches_no_row() {
            continue;
        }
        // Other tables' conditions make groups of those who are told the same of this one.
        let is_shared = table.filter.is_empty() && Shapes::is_shared(&table.shape);
        let start = writer.out.len();
        if is_shared && writer.copy_table(changed, &table.shape) {
            budget.written(writer.out.len() - start)?;
            continue;
        }
        let concerned = concern(changed.table);
        let n_asked = concerned.map_or(changed.rows.len(), <[Found]>::len);
        budget.spend_each(n_asked, table.filter.row_cost())?;
        let mut tell = |writer: &mut TableWriter<'_>, row| {
            let length = writer.out.len();
            if let Some(event) = event(table, row) {
                writer.shared_row(row, &event, &table.shape);
            }
            budget.written(writer.out.len() - length)
        };
        writer.table(table, schema, |writer| match concerned {
            None => changed.rows.iter().try_for_each(|row| tell(writer, row)),
            Some(found) => found.iter().try_for_each(|found| tell(writer, &changed.rows[found.at])),
        })?;
        if is_shared {
            let told = writer.out.get(start..).unwrap_or_default();
            let told = told.strip_prefix(b",").unwrap_or(told);
            changed.whole.keep(&table.shape, WHOLE, told);
        }
    }
    writer.end();
    Ok(())
}

/// Appends what a change of conditions makes appear and vanish, `{}` if nothing. `find` finds the
/// rows that the clauses which differ ask for.
pub(crate) fn condition_change<'r>(
    tables: &[OtherCondition],
    schema: &Schema,
    find: impl Fn(&OtherCondition, &mut Budget<'_>) -> Result<Vec<&'r Row>, TooLong>,
    budget: &mut Budget<'_>,
    out: &mut Vec<u8>,
) -> Result<(), TooLong> {
    let mut writer = Writer::new(out);
    for of in tables {
        let found = find(of, budget)?;
        let judged = of.before.filter.row_cost() + of.after.filter.row_cost();
        budget.spend_each(found.len(), judged)?;
        writer.table(&of.after, schema, |writer| {
            for row in found {
                let event = match (of.before.matches(row), of.after.matches(row)) {
                    (false, true) => Event::Appear(INSERT, row),
                    (true, false) => Event::Vanish(row),
                    _ => continue,
                };
                writer.row_within(row, &event, budget)?;
            }
            Ok(())
        })?;
    }
    writer.end();
    Ok(())
}

/// What a row's change is to the subscriber of its table.
fn event<'a>(table: &TableSubscription, row: &'a RowView<'a>) -> Option<Event<'a>> {
    match &row.state {
        State::Inserted(row) => table.matches(row).then_some(Event::Appear(INSERT, row)),
        State::Deleted(old) => table.matches(old).then_some(Event::Vanish(old)),
        State::Modified(modified) => {
            let mut columns = modified.columns.iter().map(|delta| delta.column);
            if !columns.clone().any(|column| table.is_watched(column)) {
                return None;
            }
            let is = table.matches(modified.row);
            let was = if columns.any(|column| table.filter.looks_at(column)) {
                table.matches(modified.old())
            } else {
                is
            };
            match (was, is) {
                (false, true) => Some(Event::Appear(INSERT, modified.row)),
                (true, true) => Some(Event::Change(modified)),
                (true, false) => Some(Event::Vanish(modified.row)),
                (false, false) => None,
            }
        }
    }
}

impl<'a> Writer<'a> {
    fn new(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, any_table: false }
    }

    fn table(
        &mut self,
        subscription: &TableSubscription,
        schema: &Schema,
        rows: impl FnOnce(&mut TableWriter<'_>) -> Result<(), TooLong>,
    ) -> Result<(), TooLong> {
        let schema = schema.table(subscription.shape.table);
        let (out, any_table) = (&mut *self.out, self.any_table);
        let shape = &subscription.shape;
        let mut writer = TableWriter { out, shape, schema, any_table, any_row: false };
        rows(&mut writer)?;
        if writer.any_row {
            self.out.push(b'}');
            self.any_table = true;
        }
        Ok(())
    }

    /// Copies a table that was written for others of the same shape; false if it was not.
    fn copy_table(&mut self, table: &TableView<'_>, shape: &Arc<Shape>) -> bool {
        let start = self.out.len();
        if self.any_table {
            self.out.push(b',');
        }
        let behind = self.out.len();
        let is_known = table.whole.write(shape, WHOLE, self.out);
        if self.out.len() == behind {
            self.out.truncate(start);
        } else {
            self.any_table = true;
        }
        is_known
    }

    fn end(self) {
        self.out.push(b'}');
    }
}

impl TableWriter<'_> {
    /// Writes what happened to a row, if this kind of event is selected.
    fn row(&mut self, uuid: Uuid, event: &Event<'_>) {
        if self.begin_row(event.kind()) {
            self.fragment(uuid, event);
        }
    }

    /// Writes which columns of a row have changed, if any is selected.
    fn modified_row(&mut self, uuid: Uuid, columns: &[ColumnDelta]) {
        let is_told = |delta: &ColumnDelta| self.shape.selected(delta.column) & MODIFY != 0;
        if !columns.iter().any(is_told) || !self.begin_row(MODIFY) {
            return;
        }
        self.out.push(b'"');
        self.out.extend_from_slice(&uuid.text());
        self.out.extend_from_slice(b"\":{\"modify\":");
        self.differences(columns);
        self.out.push(b'}');
    }

    /// Writes what happened to a row that other subscriptions of the same shape may be told of,
    /// too.
    fn shared_row(&mut self, row: &RowView<'_>, event: &Event<'_>, shape: &Arc<Shape>) {
        let kind = event.kind();
        if !self.begin_row(kind) {
            return;
        }
        if !Shapes::is_shared(shape) {
            return self.fragment(row.uuid, event);
        }
        if !row.fragments.write(shape, kind, self.out) {
            let start = self.out.len();
            self.fragment(row.uuid, event);
            row.fragments.keep(shape, kind, &self.out[start..]);
        }
    }

    /// As [`TableWriter::row`], for a row of the snapshot that nobody has composed before: what its
    /// values and the text of them cost is spent.
    fn row_within(
        &mut self,
        row: &Row,
        event: &Event<'_>,
        budget: &mut Budget<'_>,
    ) -> Result<(), TooLong> {
        budget.spend(cost::ROW + cost::ATOM * row.atoms() as u64)?;
        let start = self.out.len();
        self.row(row.uuid(), event);
        budget.written(self.out.len() - start)
    }

    /// Writes what comes before a row; whether its kind of event is selected.
    fn begin_row(&mut self, kind: Select) -> bool {
        if self.shape.select & kind == 0 {
            return false;
        }
        if self.any_row || self.any_table {
            self.out.push(b',');
        }
        if !std::mem::replace(&mut self.any_row, true) {
            write_key(&self.schema.name, self.out);
            self.out.push(b'{');
        }
        true
    }

    /// Writes `"uuid":{...}`.
    fn fragment(&mut self, uuid: Uuid, event: &Event<'_>) {
        self.out.push(b'"');
        self.out.extend_from_slice(&uuid.text());
        self.out.extend_from_slice(b"\":");
        if self.shape.is_v1 {
            self.row_update(event)
        } else {
            self.row_update2(event)
        }
        self.out.push(b'}');
    }

    /// Writes a `<row-update>` (RFC 7047 §4.1.6), all but the end.
    fn row_update(&mut self, event: &Event<'_>) {
        match event {
            Event::Appear(select, row) => {
                self.out.extend_from_slice(b"{\"new\":");
                self.all_columns(*select, row);
            }
            Event::Vanish(row) => {
                self.out.extend_from_slice(b"{\"old\":");
                self.all_columns(DELETE, row);
            }
            Event::Change(modified) => {
                self.out.extend_from_slice(b"{\"new\":");
                self.all_columns(MODIFY, modified.row);
                self.out.extend_from_slice(b",\"old\":");
                let old = modified.old();
                self.changed_columns(&modified.columns, |out, delta, ty| {
                    old.get(delta.column).write(ty, out);
                });
            }
        }
    }

    /// Writes a `<row-update2>` (ovsdb-server(7) §4.1.14), all but the end.
    fn row_update2(&mut self, event: &Event<'_>) {
        match event {
            Event::Vanish(_) => self.out.extend_from_slice(b"{\"delete\":null"),
            Event::Appear(select, row) => {
                let is_initial = *select == INITIAL;
                let kind: &[u8] = if is_initial { b"{\"initial\":" } else { b"{\"insert\":" };
                self.out.extend_from_slice(kind);
                self.non_default_columns(*select, row);
            }
            Event::Change(modified) => {
                self.out.extend_from_slice(b"{\"modify\":");
                self.differences(&modified.columns);
            }
        }
    }

    /// The differences of the changed columns that are selected for changes.
    fn differences(&mut self, columns: &[ColumnDelta]) {
        self.changed_columns(columns, |out, delta, ty| delta.change.write_diff(ty, out));
    }

    /// The columns selected for `select`.
    fn all_columns(&mut self, select: Select, row: &Row) {
        self.columns(select, row, |_, _| true);
    }

    /// The columns selected for `select` that do not have their default value.
    fn non_default_columns(&mut self, select: Select, row: &Row) {
        self.columns(select, row, |value, ty| !value.is_default(ty));
    }

    fn columns(
        &mut self,
        select: Select,
        row: &Row,
        is_told: impl Fn(DatumRef<'_>, &ColumnType) -> bool,
    ) {
        let start = self.out.len();
        for (column, selected) in &self.shape.columns {
            let (value, schema) = (row.get(*column), self.schema.column(*column));
            if selected & select != 0 && is_told(value, &schema.ty) {
                self.out.push(b',');
                write_key(&schema.name, self.out);
                value.write(&schema.ty, self.out);
            }
        }
        end_columns(self.out, start);
    }

    /// The changed columns that are selected for changes.
    fn changed_columns(
        &mut self,
        columns: &[ColumnDelta],
        value: impl Fn(&mut Vec<u8>, &ColumnDelta, &ColumnType),
    ) {
        let start = self.out.len();
        for delta in columns {
            if self.shape.selected(delta.column) & MODIFY != 0 {
                let schema = self.schema.column(delta.column);
                self.out.push(b',');
                write_key(&schema.name, self.out);
                value(self.out, delta, &schema.ty);
            }
        }
        end_columns(self.out, start);
    }
}

/// Makes an object of the `,"column":value`s from `start` on.
fn end_columns(out: &mut Vec<u8>, start: usize) {
    match out.get_mut(start) {
        Some(comma) => *comma = b'{',
        None => out.push(b'{'),
    }
    out.push(b'}');
}

/// Appends a table's or column's name as a key: an `<id>`, so nothing needs escaping.
fn write_key(name: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

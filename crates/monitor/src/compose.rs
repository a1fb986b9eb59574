//! Updates as JSON: `<table-updates>` (RFC 7047 §4.1.6) and `<table-updates2>` (ovsdb-server(7)
//! §4.1.14), straight to bytes.

use weir_data::{ColumnId, Row, RowDelta, Store, TableSchema, Uuid};

use crate::pending::ChangeSet;
use crate::subscription::{
    DELETE, INITIAL, INSERT, MODIFY, Select, Subscription, TableSubscription,
};

/// What an update says of one row.
enum Event<'a> {
    /// It is there (`INITIAL` or `INSERT`).
    Appear(Select, &'a Row),
    /// It is gone; as it was.
    Vanish(&'a Row),
    /// It changed.
    Change(&'a Row, &'a RowDelta),
}

/// Writes tables and rows with their separators, leaving out tables without rows.
struct Writer<'a> {
    out: &'a mut Vec<u8>,
    is_v1: bool,
    any_table: bool,
    any_row: bool,
}

/// The initial rows.
pub(crate) fn initial(subscription: &Subscription, store: &Store) -> Vec<u8> {
    compose(
        subscription,
        |table, writer| {
            if table.select & INITIAL == 0 {
                return;
            }
            let schema = store.schema().table(table.table);
            for row in store.table(table.table).iter() {
                if table.condition.matches_any(row) {
                    writer.row(table, schema, row.uuid(), &Event::Appear(INITIAL, row));
                }
            }
        },
        store,
    )
}

/// What happened, as far as it concerns the subscription; `{}` if it does not.
pub(crate) fn changes(subscription: &Subscription, changes: &ChangeSet, store: &Store) -> Vec<u8> {
    compose(
        subscription,
        |table, writer| {
            let Some(changes) = changes.table(table.table) else { return };
            let schema = store.schema().table(table.table);
            for (uuid, delta) in &changes.rows {
                if let Some(delta) = delta {
                    changed_row(table, schema, store, (*uuid, delta), writer);
                }
            }
        },
        store,
    )
}

/// What a change of conditions makes appear and vanish.
pub(crate) fn condition_change(old: &Subscription, new: &Subscription, store: &Store) -> Vec<u8> {
    compose(
        new,
        |table, writer| {
            let before = old.tables.iter().find(|before| before.table == table.table);
            let Some(before) = before.filter(|before| before.condition != table.condition) else {
                return;
            };
            let schema = store.schema().table(table.table);
            for row in store.table(table.table).iter() {
                let was = before.condition.matches_any(row);
                let event = match (was, table.condition.matches_any(row)) {
                    (false, true) => Event::Appear(INSERT, row),
                    (true, false) => Event::Vanish(row),
                    _ => continue,
                };
                writer.row(table, schema, row.uuid(), &event);
            }
        },
        store,
    )
}

fn compose(
    subscription: &Subscription,
    each: impl Fn(&TableSubscription, &mut Writer<'_>),
    store: &Store,
) -> Vec<u8> {
    let mut out = vec![b'{'];
    let is_v1 = subscription.is_v1;
    let mut writer = Writer { out: &mut out, is_v1, any_table: false, any_row: false };
    for table in &subscription.tables {
        let start = writer.begin_table(&store.schema().table(table.table).name);
        each(table, &mut writer);
        writer.end_table(start);
    }
    out.push(b'}');
    out
}

/// Decides what a row's change is to this subscription.
fn changed_row(
    table: &TableSubscription,
    schema: &TableSchema,
    store: &Store,
    (uuid, delta): (Uuid, &RowDelta),
    writer: &mut Writer<'_>,
) {
    let holds = |row: &Row| table.is_unconditional() || table.condition.matches_any(row);
    match delta {
        RowDelta::Delete(old) if holds(old) => {
            writer.row(table, schema, uuid, &Event::Vanish(old));
        }
        RowDelta::Delete(_) => {}
        RowDelta::Insert(_) | RowDelta::Modify(_) => {
            let Some(row) = store.get(table.table, uuid) else { return };
            let is_new = matches!(delta, RowDelta::Insert(_));
            let did_hold = !is_new && held(table, row, delta);
            let event = match (did_hold, holds(row)) {
                (false, true) => Event::Appear(INSERT, row),
                (true, true) => Event::Change(row, delta),
                (true, false) => {
                    return writer.row(table, schema, uuid, &Event::Vanish(row));
                }
                (false, false) => return,
            };
            writer.row(table, schema, uuid, &event);
        }
    }
}

/// Whether the row satisfied the condition before the change.
fn held(table: &TableSubscription, row: &Row, delta: &RowDelta) -> bool {
    if table.is_unconditional() {
        return true;
    }
    let mut old = row.clone();
    for column in table.condition_columns() {
        if let Some(change) = delta.change(column) {
            *old.get_mut(column) = change.old_value(row.get(column));
        }
    }
    table.condition.matches_any(&old)
}

impl Writer<'_> {
    fn begin_table(&mut self, name: &str) -> usize {
        let start = self.out.len();
        if self.any_table {
            self.out.push(b',');
        }
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":{");
        self.any_row = false;
        start
    }

    fn end_table(&mut self, start: usize) {
        if self.any_row {
            self.out.push(b'}');
            self.any_table = true;
        } else {
            self.out.truncate(start);
        }
    }

    fn row(
        &mut self,
        table: &TableSubscription,
        schema: &TableSchema,
        uuid: Uuid,
        event: &Event<'_>,
    ) {
        if !is_wanted(table, event) {
            return;
        }
        if std::mem::replace(&mut self.any_row, true) {
            self.out.push(b',');
        }
        self.out.push(b'"');
        self.out.extend_from_slice(&uuid.text());
        self.out.extend_from_slice(b"\":");
        if self.is_v1 {
            self.row_update(table, schema, event)
        } else {
            self.row_update2(table, schema, event)
        }
    }

    /// RFC 7047 §4.1.6 `<row-update>`.
    fn row_update(&mut self, table: &TableSubscription, schema: &TableSchema, event: &Event<'_>) {
        match event {
            Event::Appear(select, row) => {
                self.out.extend_from_slice(b"{\"new\":");
                self.columns(
                    table,
                    *select,
                    |_| true,
                    schema,
                    |out, column| {
                        row.get(column).write(&schema.column(column).ty, out);
                    },
                );
            }
            Event::Vanish(row) => {
                self.out.extend_from_slice(b"{\"old\":");
                self.columns(
                    table,
                    DELETE,
                    |_| true,
                    schema,
                    |out, column| {
                        row.get(column).write(&schema.column(column).ty, out);
                    },
                );
            }
            Event::Change(row, delta) => {
                self.out.extend_from_slice(b"{\"new\":");
                self.columns(
                    table,
                    MODIFY,
                    |_| true,
                    schema,
                    |out, column| {
                        row.get(column).write(&schema.column(column).ty, out);
                    },
                );
                self.out.extend_from_slice(b",\"old\":");
                let changed = |column| delta.change(column).is_some();
                self.columns(table, MODIFY, changed, schema, |out, column| {
                    if let Some(change) = delta.change(column) {
                        let old = change.old_value(row.get(column));
                        old.as_ref().write(&schema.column(column).ty, out);
                    }
                });
            }
        }
        self.out.push(b'}');
    }

    /// ovsdb-server(7) §4.1.14 `<row-update2>`.
    fn row_update2(&mut self, table: &TableSubscription, schema: &TableSchema, event: &Event<'_>) {
        match event {
            Event::Vanish(_) => self.out.extend_from_slice(b"{\"delete\":null"),
            Event::Appear(select, row) => {
                let initial = *select == INITIAL;
                self.out.extend_from_slice(if initial {
                    b"{\"initial\":"
                } else {
                    b"{\"insert\":"
                });
                let is_told = |column| !row.get(column).is_default(&schema.column(column).ty);
                self.columns(table, *select, is_told, schema, |out, column| {
                    row.get(column).write(&schema.column(column).ty, out);
                });
            }
            Event::Change(_, delta) => {
                self.out.extend_from_slice(b"{\"modify\":");
                let changed = |column| delta.change(column).is_some();
                self.columns(table, MODIFY, changed, schema, |out, column| {
                    if let Some(change) = delta.change(column) {
                        change.write_diff(&schema.column(column).ty, out);
                    }
                });
            }
        }
        self.out.push(b'}');
    }

    /// Writes `{"column":value,...}` for the columns reported for `select` that `is_told`.
    fn columns(
        &mut self,
        table: &TableSubscription,
        select: Select,
        is_told: impl Fn(ColumnId) -> bool,
        schema: &TableSchema,
        value: impl Fn(&mut Vec<u8>, ColumnId),
    ) {
        self.out.push(b'{');
        let mut any = false;
        for (column, selected) in &table.columns {
            if selected & select == 0 || !is_told(*column) {
                continue;
            }
            if std::mem::replace(&mut any, true) {
                self.out.push(b',');
            }
            self.out.push(b'"');
            self.out.extend_from_slice(schema.column(*column).name.as_bytes());
            self.out.extend_from_slice(b"\":");
            value(self.out, *column);
        }
        self.out.push(b'}');
    }
}

/// Whether the subscription selects this kind of event, and for a change: whether any column that
/// it reports or conditions on is among the changed ones.
fn is_wanted(table: &TableSubscription, event: &Event<'_>) -> bool {
    match event {
        Event::Appear(select, _) => table.select & select != 0,
        Event::Vanish(_) => table.select & DELETE != 0,
        Event::Change(_, delta) => {
            let changed = |column| delta.change(column).is_some();
            table.select & MODIFY != 0
                && (table.columns.iter().any(|(column, _)| changed(*column))
                    || table.condition_columns().any(changed))
        }
    }
}

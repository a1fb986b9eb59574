//! The operations (RFC 7047 §5.2), one a file, and what they share.

mod abort;
mod assert;
mod comment;
mod commit;
mod delete;
mod insert;
mod mutate;
pub(crate) mod rows;
pub(crate) mod select;
mod update;
mod wait;

use weir_data::condition::Condition;
use weir_data::delta::Change;
use weir_data::parser::{ARRAY, ID, Parser};
use weir_data::{ColumnId, Error, Names, Row, Schema, SymbolTable, TableId, TableSchema, Uuid};
use weir_json::Text;

use crate::database::Database;
use crate::execute::Env;
use crate::late::LateRows;
use crate::meter::{Meter, TooLong};
use crate::planner::{Few, Planner};
use crate::rbac::{Action, Rbac};
use crate::reads::Read;
use crate::transaction::{self, Edit, Logged, Transaction};

/// Room for the reply to a transaction of a few operations, in bytes.
const REPLY_ROOM: usize = 512;

/// A transaction and all that its operations share.
pub(crate) struct Run<'db, 'e> {
    pub(crate) txn: Transaction<'db>,
    pub(crate) planner: Planner,
    symbols: SymbolTable<'e>,
    rbac: Option<Rbac>,
    has_lock: &'e dyn Fn(&str) -> bool,
    elapsed_ms: u64,
    /// Whether a `wait` that is not satisfied may have the request run again, see [`crate::Env`].
    may_wait: bool,
    /// The reply so far.
    pub(crate) out: Vec<u8>,
    /// Rows that are not written yet, if that may be.
    pub(crate) late: Option<Vec<LateRows>>,
    /// What those occupy, in bytes.
    late_bytes: usize,
    pub(crate) durable: bool,
    pub(crate) comment: Option<String>,
}

/// One operation's text.
pub(crate) struct Op<'a, 'w> {
    pub(crate) parser: Parser<'a, 'w>,
    pub(crate) text: Text<'a>,
    pub(crate) schema: &'w Schema,
}

/// Why a transaction goes no further.
pub(crate) enum Stop {
    /// The operation failed.
    Failed(Error),
    /// A `wait` is not satisfied yet.
    Wait(Box<Unsatisfied>),
    /// The transaction has cost more than it may.
    TooLong,
}

/// A `wait` that is not satisfied.
pub(crate) struct Unsatisfied {
    /// When it fails.
    pub(crate) timeout_ms: Option<u64>,
    /// What it looks at, if there can be anything.
    pub(crate) read: Option<Read>,
}

impl From<TooLong> for Stop {
    fn from(TooLong: TooLong) -> Self {
        Self::TooLong
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// An operation that complained to its parser returns `Ok` without a result.
type OpResult = Result<(), Stop>;

/// What the success of an operation depends on, and what operations behind it may see of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    /// The rows of its table.
    Rows,
    /// Who owns a lock.
    Lock,
}

/// One kind of operation.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// Whether a read-only server refuses it.
    pub(crate) writes: bool,
    pub(crate) needs: Needs,
    pub(crate) run: fn(&mut Run<'_, '_>, &mut Op<'_, '_>) -> OpResult,
}

const KINDS: [Kind; 10] = [
    Kind { name: "insert", writes: true, needs: Needs::Rows, run: insert::run },
    Kind { name: "select", writes: false, needs: Needs::Nothing, run: select::run },
    Kind { name: "update", writes: true, needs: Needs::Rows, run: update::run },
    Kind { name: "mutate", writes: true, needs: Needs::Rows, run: mutate::run },
    Kind { name: "delete", writes: true, needs: Needs::Rows, run: delete::run },
    Kind { name: "wait", writes: false, needs: Needs::Rows, run: wait::run },
    Kind { name: "commit", writes: true, needs: Needs::Nothing, run: commit::run },
    Kind { name: "abort", writes: false, needs: Needs::Nothing, run: abort::run },
    Kind { name: "comment", writes: false, needs: Needs::Nothing, run: comment::run },
    Kind { name: "assert", writes: false, needs: Needs::Lock, run: assert::run },
];

/// The operation called `name`.
pub(crate) fn find(name: &str) -> Option<Kind> {
    KINDS.iter().find(|kind| kind.name == name).copied()
}

impl<'db, 'e> Run<'db, 'e> {
    pub(crate) fn new(db: &'db mut Database, env: &'e mut Env<'_>) -> Self {
        Self {
            planner: Planner::new(db.seed),
            rbac: Rbac::new(&db.store, env.client),
            txn: Transaction::with_meter(db, Meter::new(env.budget, env.watcher.take())),
            symbols: SymbolTable::new(env.uuids),
            has_lock: env.has_lock,
            elapsed_ms: env.elapsed_ms,
            may_wait: env.may_wait,
            out: Vec::with_capacity(REPLY_ROOM),
            late: None,
            late_bytes: 0,
            durable: false,
            comment: None,
        }
    }

    /// What names stand for.
    pub(crate) fn take_names(&mut self) -> Names {
        self.symbols.take_names()
    }

    /// Names stand for what they stood for in another run.
    pub(crate) fn set_names(&mut self, names: Names) {
        self.symbols.set_names(names);
    }

    /// An operation has ended, whose result begins at `start` of the reply.
    pub(crate) fn end_step(&mut self, start: usize) {
        if let Some(trace) = &mut self.planner.trace {
            trace.end_step(start..self.out.len(), self.txn.log_len(), self.txn.meter.spent());
        }
    }

    /// Does once more what was done to a row that is as it was.
    pub(crate) fn redo(&mut self, (table, uuid, edit): &Logged) {
        match edit {
            Edit::Insert(row) => self.insert(*table, row.clone()),
            Edit::Change(column, change) => self.change(*table, *uuid, *column, change.clone()),
            Edit::Delete(_) => self.txn.delete(*table, *uuid),
        }
    }

    /// The UUIDs of the rows that satisfy a condition, to change them.
    fn uuids(&mut self, table: TableId, condition: &Condition) -> Result<Few<Uuid>, TooLong> {
        let rows = self.planner.rows(&self.txn, table, condition)?;
        Ok(rows.into_iter().map(Row::uuid).collect())
    }

    /// Whether the client's role permits this to all these rows.
    fn check_role(&self, table: TableId, action: Action<'_>, uuids: &[Uuid]) -> Result<(), Error> {
        let Some(rbac) = &self.rbac else { return Ok(()) };
        let rows = uuids.iter().filter_map(|uuid| self.txn.store().get(table, *uuid));
        rbac.check(self.txn.schema().table(table), action, rows)
    }

    fn insert(&mut self, table: TableId, row: Row) {
        let known = (self.txn.schema().table(table), &self.txn.db().keys);
        self.planner.row_moved(known, table, row.uuid(), None);
        self.txn.insert(table, row);
    }

    /// Changes a value if what that costs may be spent: the work does not end half-way.
    fn change_within(
        &mut self,
        table: TableId,
        uuid: Uuid,
        column: ColumnId,
        change: Change,
    ) -> Result<(), TooLong> {
        self.txn.meter.allow(transaction::cost(&change))?;
        self.change(table, uuid, column, change);
        Ok(())
    }

    fn change(&mut self, table: TableId, uuid: Uuid, column: ColumnId, change: Change) {
        self.txn.change(table, uuid, column, change);
        let known = (self.txn.schema().table(table), &self.txn.db().keys);
        self.planner.row_moved(known, table, uuid, Some(column));
    }

    /// Writes the result of an operation that counts rows.
    fn write_count(&mut self, count: usize) {
        self.out.extend_from_slice(b"{\"count\":");
        weir_json::write_integer(&mut self.out, i64::try_from(count).unwrap_or(i64::MAX));
        self.out.push(b'}');
    }

    /// Writes the result of an operation that has none.
    fn write_empty(&mut self) {
        self.out.extend_from_slice(b"{}");
    }
}

impl<'a, 'w> Op<'a, 'w> {
    /// Takes the member `table`.
    fn table(&mut self) -> Option<TableId> {
        let name = self.parser.member("table", ID)?.str()?;
        let found = self.schema.table_id(&name);
        if found.is_none() {
            self.parser.complain(format_args!("No table named {name}."));
        }
        found
    }

    /// Takes the member `where`.
    fn condition(&mut self) -> Option<Text<'a>> {
        self.parser.member("where", ARRAY)
    }

    /// Takes a member of the given types.
    fn member(&mut self, name: &'static str, types: weir_data::parser::Types) -> Option<Text<'a>> {
        self.parser.member(name, types)
    }
}

/// Parses the columns to project rows on; all of them if there is no member.
fn columns(text: Option<Text<'_>>, table: &TableSchema) -> Result<Vec<ColumnId>, Error> {
    match text {
        Some(text) => table.parse_column_set(text),
        None => Ok(table.column_ids().map(|(id, _)| id).collect()),
    }
}

//! Random schemas with cycles of references, and random operations on a few rows.

use std::fmt::Write;
use std::sync::Arc;

use weir_data::delta::Change;
use weir_data::sorted::Sorted;
use weir_data::types::RefKind;
use weir_data::{
    Atom, AtomType, BaseType, ColumnId, ColumnSchema, ColumnType, Datum, Row, Schema, Store,
    TableId, Uuid, UuidSource,
};

use crate::transaction::Transaction;

/// Rows have UUIDs below this, in every table, so that they are often met again.
pub(super) const UUIDS: u64 = 14;

/// Random numbers from a seed.
pub(super) struct Random(pub(super) UuidSource);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        let mut source = UuidSource::new([seed, 11, 12, 13]);
        // The first words of small seeds are alike.
        for _ in 0..16 {
            source.next_u64();
        }
        Self(source)
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0.next_u64() % n
    }

    pub(super) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    pub(super) fn uuid(&mut self) -> Uuid {
        Uuid::from_u128(u128::from(self.below(UUIDS)))
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// Two to four tables whose columns refer to each other and to themselves.
pub(super) fn schema(random: &mut Random) -> Arc<Schema> {
    let n_tables = 2 + random.below(3);
    let tables: Vec<String> = (0..n_tables).map(|n| table(random, n, n_tables)).collect();
    let text = format!(r#"{{"name":"Random","tables":{{{}}}}}"#, tables.join(","));
    Arc::new(Schema::parse_bytes(text.as_bytes()).expect(&text))
}

fn table(random: &mut Random, number: u64, n_tables: u64) -> String {
    let n_columns = 2 + random.below(4);
    let columns: Vec<String> = (0..n_columns)
        .map(|n| {
            let to = format!("T{}", random.below(n_tables));
            format!(r#""c{n}":{{"type":{}}}"#, column_type(random, &to))
        })
        .collect();
    let mut text = format!(r#""T{number}":{{"columns":{{{}}}"#, columns.join(","));
    if random.percent(55) {
        text.push_str(r#","isRoot":true"#);
    }
    if random.percent(20) {
        write!(text, r#","maxRows":{}"#, 3 + random.below(5)).unwrap();
    }
    if random.percent(40) {
        let first = random.below(n_columns);
        let second = (first + 1) % n_columns;
        let choices = [format!(r#"["c{first}"]"#), format!(r#"["c{first}","c{second}"]"#)];
        let index = random.pick(&choices.each_ref());
        write!(text, r#","indexes":[{index}]"#).unwrap();
    }
    text + "}"
}

fn column_type(random: &mut Random, to: &str) -> String {
    let strong = format!(r#"{{"type":"uuid","refTable":"{to}"}}"#);
    let weak = format!(r#"{{"type":"uuid","refTable":"{to}","refType":"weak"}}"#);
    let set = r#""min":0,"max":"unlimited""#;
    let shapes = [
        r#""integer""#.to_owned(),
        r#"{"key":"integer","min":0,"max":"unlimited"}"#.to_owned(),
        format!(r#"{{"key":{strong},{set}}}"#),
        format!(r#"{{"key":{strong},"min":0,"max":1}}"#),
        format!(r#"{{"key":{weak},{set}}}"#),
        format!(r#"{{"key":{weak},"min":0,"max":1}}"#),
        format!(r#"{{"key":{weak},"min":1,"max":"unlimited"}}"#),
        format!(r#"{{"key":"integer","value":{weak},{set}}}"#),
        format!(r#"{{"key":{weak},"value":{strong},{set}}}"#),
        format!(r#"{{"key":{weak},"value":{weak},"min":0,"max":1}}"#),
        format!(r#"{{"key":"integer","value":{strong},{set}}}"#),
    ];
    random.pick(&shapes.each_ref()).clone()
}

/// One operation; one that does not fit the rows of its moment is skipped.
#[derive(Clone, Debug)]
pub(super) enum Operation {
    Insert(TableId, Row),
    Delete(TableId, Uuid),
    Set(TableId, Uuid, ColumnId, Datum),
}

/// By table, rows that operations prefer to meet.
pub(super) struct Alive(Vec<Vec<Uuid>>);

impl Alive {
    /// The rows of a store.
    pub(super) fn of(store: &Store) -> Self {
        let tables = store.schema().table_ids();
        Self(tables.map(|(id, _)| store.table(id).iter().map(Row::uuid).collect()).collect())
    }

    /// Mostly a row of the table, if it has any.
    fn uuid(&self, random: &mut Random, table: TableId) -> Uuid {
        let rows = &self.0[table.index()];
        if rows.is_empty() || random.percent(8) { random.uuid() } else { random.pick(rows) }
    }
}

/// A transaction's operations.
pub(super) fn operations(random: &mut Random, store: &Store) -> Vec<Operation> {
    let mut alive = Alive::of(store);
    (0..1 + random.below(8)).map(|_| operation(random, store.schema(), &mut alive)).collect()
}

fn operation(random: &mut Random, schema: &Schema, alive: &mut Alive) -> Operation {
    let table = TableId(random.below(schema.tables.len() as u64) as u16);
    let table_schema = schema.table(table);
    let uuid = alive.uuid(random, table);
    match random.below(10) {
        0..5 => {
            let (uuid, version) = (random.uuid(), random.0.next_uuid());
            alive.0[table.index()].push(uuid);
            let mut row = Row::new(uuid, version, table_schema);
            for (id, column) in table_schema.data_columns() {
                *row.get_mut(id) = value(random, column, alive);
            }
            Operation::Insert(table, row)
        }
        5..7 => Operation::Delete(table, uuid),
        _ => {
            let column = ColumnId(2 + random.below(table_schema.columns.len() as u64 - 2) as u16);
            let value = value(random, table_schema.column(column), alive);
            Operation::Set(table, uuid, column, value)
        }
    }
}

/// A random value of the column's type.
pub(super) fn value(random: &mut Random, column: &ColumnSchema, alive: &Alive) -> Datum {
    let ColumnType { key, value, n_min, n_max } = &column.ty;
    let most = u64::from(*n_max).min(4);
    let n = u64::from(*n_min).max(random.below(most + 1));
    let (to_key, to_value) = (column.refs.key, column.refs.value);
    let mut pairs: Vec<(Atom, Atom)> = (0..n)
        .map(|_| {
            let value = value.as_ref().unwrap_or(key);
            (atom(random, key, to_key, alive), atom(random, value, to_value, alive))
        })
        .collect();
    pairs.sort();
    pairs.dedup_by(|a, b| a.0 == b.0);
    match value {
        Some(_) => Datum::map(Sorted::from_sorted(pairs)),
        None => Datum::set(Sorted::from_sorted(pairs.into_iter().map(|pair| pair.0).collect())),
    }
}

fn atom(
    random: &mut Random,
    base: &BaseType,
    target: Option<(TableId, RefKind)>,
    alive: &Alive,
) -> Atom {
    match (base.ty, target) {
        (AtomType::Uuid, Some((table, _))) => Atom::Uuid(alive.uuid(random, table)),
        _ => Atom::Integer(random.below(6) as i64),
    }
}

/// Runs one operation.
pub(super) fn run(txn: &mut Transaction<'_>, operation: &Operation) {
    match operation {
        Operation::Insert(table, row) => {
            let exists = txn.store().get(*table, row.uuid()).is_some();
            if !exists && !txn.deleted_existing(*table, row.uuid()) {
                txn.insert(*table, row.clone());
            }
        }
        Operation::Delete(table, uuid) => txn.delete(*table, *uuid),
        Operation::Set(table, uuid, column, new) => {
            let Some(row) = txn.store().get(*table, *uuid) else { return };
            let old = row.datum(*column).clone();
            let ty = txn.schema().table(*table).column(*column).ty.clone();
            if let Some(change) = Change::between(&old, new, &ty) {
                txn.change(*table, *uuid, *column, change);
            }
        }
    }
}

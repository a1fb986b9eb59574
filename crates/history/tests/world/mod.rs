//! A small database whose rows change at random: rows by table name, and the deltas between states.

#![allow(dead_code, reason = "each test uses a part")]

use std::collections::BTreeMap;

use weir_data::delta::{Change, TableDelta};
use weir_data::sorted::Sorted;
use weir_data::{
    Atom, AtomType, ColumnDelta, ColumnId, ColumnType, Datum, Delta, Row, RowDelta, Schema,
    TableId, TableSchema, Uuid, UuidSource,
};
use weir_history::{Name, Record};

const COLUMNS: &str = r#"
"b":{"type":"boolean"},"i":{"type":"integer"},"r":{"type":"real"},"s":{"type":"string"},
"u":{"type":"uuid"},"oi":{"type":{"key":"integer","min":0}},"os":{"type":{"key":"string","min":0}},
"om":{"type":{"key":"string","value":"real","min":0}},
"si":{"type":{"key":"integer","min":0,"max":"unlimited"}},
"su":{"type":{"key":"uuid","min":0,"max":"unlimited"}},
"ss":{"type":{"key":"string","min":1,"max":3}},
"m":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}},
"mi":{"type":{"key":"integer","value":"uuid","min":0,"max":"unlimited"}},
"ei":{"type":"integer","ephemeral":true},
"es":{"type":{"key":"string","min":0,"max":"unlimited"},"ephemeral":true},
"em":{"type":{"key":"string","value":"boolean","min":0,"max":9},"ephemeral":true}"#;
const PLAIN: &str = r#""i":{"type":"integer"},"x":{"type":"string"}"#;

/// The schema, or the one that the database is converted to and back: `A` and `C` stay as they are,
/// `B` has other columns, `AB` is there or not.
pub(crate) fn schema(is_other: bool) -> Schema {
    let table = |name: &str, columns: &str| format!("\"{name}\":{{\"columns\":{{{columns}}}}}");
    let mut tables = vec![table("A", COLUMNS)];
    tables.extend(is_other.then(|| table("AB", PLAIN)));
    tables.push(table("B", if is_other { PLAIN } else { COLUMNS }));
    tables.push(table("C", PLAIN));
    let text = format!("{{\"name\":\"D\",\"tables\":{{{}}}}}", tables.join(","));
    Schema::parse_bytes(text.as_bytes()).unwrap()
}

/// What becomes of a table's number in a conversion.
pub(crate) fn target(from: &Schema, to: &Schema, table: TableId) -> Option<TableId> {
    let name = &from.table(table).name;
    to.table_id(name).filter(|_| ["A", "C"].contains(&name.as_str()))
}

/// Rows by table name.
pub(crate) type Rows = BTreeMap<(String, Uuid), Row>;

/// Random numbers from a seed.
pub(crate) struct Random(UuidSource);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let mut source = UuidSource::new([seed, 31, 32, 33]);
        // The first words of small seeds are alike.
        for _ in 0..16 {
            source.next_u64();
        }
        Self(source)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0.next_u64() % n
    }

    pub(crate) fn hash(&mut self) -> [u8; 20] {
        let mut hash = [0; 20];
        hash.fill_with(|| self.0.next_u64() as u8);
        hash
    }

    fn atom(&mut self, ty: AtomType) -> Atom {
        let n = self.below(10) as i64;
        match ty {
            AtomType::Integer => Atom::Integer([n - 4, i64::MIN, i64::MAX][n as usize / 8]),
            AtomType::Real => Atom::Real((n - 4) as f64 / 4.0),
            AtomType::Boolean => Atom::Boolean(n % 2 == 0),
            AtomType::String if self.below(100) == 0 => Atom::string(&"long ".repeat(15_000)),
            AtomType::String => Atom::string(&"a\u{e9}\"0123456789".repeat(n as usize % 5)[..]),
            AtomType::Uuid => Atom::Uuid(Uuid::from_u128(n as u128)),
        }
    }

    fn datum(&mut self, ty: &ColumnType) -> Datum {
        let n = u64::from(ty.n_min).max(self.below(u64::from(ty.n_max).min(20) + 1));
        let key = ty.key.ty;
        match ty.value.as_ref().map(|value| value.ty) {
            None => {
                let atoms: BTreeMap<Atom, ()> = (0..n).map(|_| (self.atom(key), ())).collect();
                Datum::set(Sorted::from_sorted(atoms.into_keys().collect()))
            }
            Some(value) => {
                let pair = |random: &mut Self| (random.atom(key), random.atom(value));
                let pairs: BTreeMap<Atom, Atom> = (0..n).map(|_| pair(self)).collect();
                Datum::map(Sorted::from_sorted(pairs.into_iter().collect()))
            }
        }
    }

    /// The rows after a random transaction, which touches ephemeral columns only if `is_volatile`.
    pub(crate) fn step(&mut self, rows: &Rows, schema: &Schema, is_volatile: bool) -> Rows {
        let mut rows = rows.clone();
        for _ in 0..1 + self.below(5) {
            let table = &schema.tables[self.below(schema.tables.len() as u64) as usize];
            // Few UUIDs, so that rows are met again, and come again.
            let key = (table.name.clone(), Uuid::from_u128(u128::from(1 + self.below(8))));
            let version = self.0.next_uuid();
            match rows.get_mut(&key) {
                None if !is_volatile => {
                    let mut row = Row::new(key.1, version, table);
                    self.change(&mut row, table, |_| true);
                    rows.insert(key, row);
                }
                Some(_) if !is_volatile && self.below(4) == 0 => {
                    rows.remove(&key);
                }
                Some(row) => {
                    self.change(row, table, |persistent| !(is_volatile && persistent));
                    *row.get_mut(ColumnId::VERSION) = Datum::One(Atom::Uuid(version));
                }
                None => {}
            }
        }
        rows
    }

    fn change(&mut self, row: &mut Row, table: &TableSchema, may: impl Fn(bool) -> bool) {
        let most = 1 + self.below(5);
        for (id, column) in table.data_columns() {
            if may(column.persistent) && self.below(6) < most {
                *row.get_mut(id) = self.datum(&column.ty);
            }
        }
    }

    /// What an engine's delta may have more than it must: rows in another order, columns that
    /// changed back.
    pub(crate) fn with_noise(&mut self, mut delta: Delta, schema: &Schema) -> Delta {
        for table in &mut delta.tables {
            table.rows.reverse();
            let columns = schema.table(table.table);
            for (_, row) in &mut table.rows {
                let RowDelta::Modify(changes) = row else { continue };
                for (column, ty) in columns.data_columns().map(|(id, column)| (id, &column.ty)) {
                    if self.below(4) == 0 && changes.iter().all(|change| change.column != column) {
                        let change = self.nothing(ty);
                        ColumnDelta::merge_into(changes, column, change);
                    }
                }
            }
        }
        delta
    }

    fn nothing(&mut self, ty: &ColumnType) -> Change {
        match (ty.is_composite(), ty.is_map()) {
            (false, _) => {
                let datum = self.datum(ty);
                Change::Replace { old: datum.clone(), new: datum }
            }
            (true, false) => Change::Set { added: Sorted::new(), removed: Sorted::new() },
            (true, true) => Change::Map { added: Sorted::new(), removed: Sorted::new() },
        }
    }

    pub(crate) fn record(&mut self, is_marked: bool) -> Record {
        let body_len = [40, 400, 4000][self.below(3) as usize] + self.below(40);
        Record { name: Name::Hash(self.hash()), body_len, is_marked }
    }
}

/// The change between two states, as an engine has it.
pub(crate) fn delta_between(old: &Rows, new: &Rows, schema: &Schema) -> Delta {
    let mut tables = Vec::new();
    for (id, table) in schema.table_ids() {
        let of_table = |(name, _): &&(String, Uuid)| *name == table.name;
        let mut keys: Vec<_> = old.keys().chain(new.keys()).filter(of_table).collect();
        keys.sort();
        keys.dedup();
        let row = |key: &(String, Uuid)| match (old.get(key), new.get(key)) {
            (None, Some(new)) => Some(RowDelta::Insert(new.clone())),
            (Some(old), None) => Some(RowDelta::Delete(old.clone())),
            (Some(old), Some(new)) => {
                let columns = ColumnDelta::between(old, new, table);
                (!columns.is_empty()).then_some(RowDelta::Modify(columns))
            }
            (None, None) => None,
        };
        let rows: Vec<_> = keys.into_iter().filter_map(|key| Some((key.1, row(key)?))).collect();
        if !rows.is_empty() {
            tables.push(TableDelta { table: id, rows });
        }
    }
    Delta { tables }
}

/// The rows as somebody has them who read the file: columns that are kept in files only.
pub(crate) fn recorded(rows: &Rows, schema: &Schema) -> Rows {
    let strip = |((name, uuid), row): (&(String, Uuid), &Row)| {
        let table = schema.table(schema.table_id(name).unwrap());
        let columns = table.data_columns().filter(|(_, column)| column.persistent);
        let values = columns.map(|(id, _)| (id, row.datum(id).clone()));
        let stripped = Row::with_values(*uuid, Uuid::ZERO, table, values);
        ((name.clone(), *uuid), stripped)
    };
    rows.iter().map(strip).collect()
}

/// Changes rows as a delta says, and checks that it says right what they were before, `_version`
/// aside.
pub(crate) fn apply(
    rows: &mut Rows,
    delta: &Delta,
    schema: &Schema,
    is_wanted: impl Fn(&str) -> bool,
) {
    for (table, uuid, row) in delta.rows() {
        let table = schema.table(table);
        let key = (table.name.clone(), uuid);
        if !is_wanted(&table.name) {
            continue;
        }
        match row {
            RowDelta::Insert(new) => assert_eq!(rows.insert(key, new.clone()), None),
            RowDelta::Delete(old) => {
                let mut was = rows.remove(&key).expect("it was there");
                *was.get_mut(ColumnId::VERSION) = old.datum(ColumnId::VERSION).clone();
                assert_eq!(was, *old);
            }
            RowDelta::Modify(changes) => {
                let row = rows.get_mut(&key).expect("it is there");
                for ColumnDelta { column, change } in changes {
                    let old = row.datum(*column).clone();
                    change.apply(row.get_mut(*column));
                    if *column != ColumnId::VERSION {
                        assert_eq!(change.old_value(row.get(*column)), old);
                    }
                }
            }
        }
    }
}

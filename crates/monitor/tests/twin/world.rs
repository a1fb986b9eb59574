//! A small database and random transactions on it, made of deltas alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use weir_data::delta::Change;
use weir_data::sorted::Sorted;
use weir_data::{
    Atom, AtomType, ColumnDelta, ColumnId, ColumnType, Committed, Datum, Delta, Ids, Row, RowDelta,
    Schema, Store, TableDelta, TableId, TableSchema, Uuid, UuidSource,
};

/// UUIDs are below this, so that rows are often met again, also after their deletion.
const UUIDS: u64 = 8;

/// Random numbers from a seed.
pub(crate) struct Random(pub UuidSource);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let mut source = UuidSource::new([seed, 21, 22, 23]);
        // The first words of small seeds are alike.
        for _ in 0..16 {
            source.next_u64();
        }
        Self(source)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0.next_u64() % n
    }

    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

/// All rows as JSON, by table and UUID.
pub(crate) type State = BTreeMap<String, BTreeMap<String, Map<String, Value>>>;

pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) random: Random,
    pub(crate) position: u64,
    pub(crate) txn_id: Uuid,
}

const SCHEMA: &str = r#"{"name":"World","tables":{
    "Bridge":{"columns":{
        "name":{"type":"string"},
        "n":{"type":"integer"},
        "tag":{"type":{"key":"integer","min":0,"max":1}},
        "ports":{"type":{"key":"uuid","min":0,"max":"unlimited"}},
        "words":{"type":{"key":"string","min":1,"max":4}},
        "other":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}},
        "one":{"type":{"key":"string","value":"integer","min":0,"max":1}}}},
    "Port":{"columns":{
        "n":{"type":"integer"},
        "load":{"type":"real"},
        "up":{"type":"boolean"},
        "trunks":{"type":{"key":"integer","min":0,"max":"unlimited"}}}},
    "Quiet":{"columns":{"n":{"type":"integer"}}}}}"#;

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let schema = Schema::parse_bytes(SCHEMA.as_bytes()).expect("a valid schema");
        let store = Store::new(Arc::new(schema), seed);
        Self { store, random: Random::new(seed), position: 0, txn_id: Uuid::ZERO }
    }

    /// All rows with all columns.
    pub(crate) fn state(&self) -> State {
        let schema = self.store.schema();
        let rows = |(id, table): (TableId, &TableSchema)| {
            let rows = self.store.table(id).iter();
            let json = |row: &Row| (text(row.uuid()), row_json(row, table));
            (table.name.clone(), rows.map(json).collect())
        };
        schema.table_ids().map(rows).collect()
    }

    /// A random transaction that takes effect; none of its rows without a net change.
    pub(crate) fn transaction(&mut self) -> Committed {
        let schema = Arc::clone(self.store.schema());
        let mut delta = Delta::default();
        for (table, table_schema) in schema.table_ids() {
            if self.random.percent(45) {
                continue;
            }
            let mut rows = Vec::new();
            for uuid in 0..UUIDS {
                if self.random.percent(25) {
                    let uuid = Uuid::from_u128(u128::from(uuid) << 64 | u128::from(table.0));
                    rows.push((uuid, self.row_delta(table, table_schema, uuid)));
                }
            }
            if !rows.is_empty() {
                delta.tables.push(TableDelta { table, rows });
            }
        }
        self.store.apply(&delta);
        self.position += 1;
        self.txn_id = self.random.0.next_uuid();
        let ids = Ids { recorded: self.txn_id, volatile: self.txn_id };
        Committed { position: self.position, ids, delta: Arc::new(delta) }
    }

    fn row_delta(&mut self, table: TableId, schema: &TableSchema, uuid: Uuid) -> RowDelta {
        let version = self.random.0.next_uuid();
        let Some(old) = self.store.get(table, uuid).cloned() else {
            let mut row = Row::new(uuid, version, schema);
            for (column, column_schema) in schema.data_columns() {
                if self.random.percent(60) {
                    *row.get_mut(column) = self.datum(&column_schema.ty);
                }
            }
            return RowDelta::Insert(row);
        };
        if self.random.percent(35) {
            return RowDelta::Delete(old);
        }
        let uuid_type = ColumnType::clone(&schema.column(ColumnId::VERSION).ty);
        let new = Datum::One(Atom::Uuid(version));
        let change = Change::between(old.datum(ColumnId::VERSION), &new, &uuid_type);
        let mut columns: Vec<ColumnDelta> = change
            .map(|change| ColumnDelta { column: ColumnId::VERSION, change })
            .into_iter()
            .collect();
        for (column, column_schema) in schema.data_columns() {
            if self.random.percent(30) {
                let new = self.datum(&column_schema.ty);
                let change = Change::between(old.datum(column), &new, &column_schema.ty);
                columns.extend(change.map(|change| ColumnDelta { column, change }));
            }
        }
        RowDelta::Modify(columns)
    }

    /// A value from a small range, so that changes are often undone.
    fn datum(&mut self, ty: &ColumnType) -> Datum {
        let most = u64::from(ty.n_max.min(4));
        let n = u64::from(ty.n_min) + self.random.below(most - u64::from(ty.n_min) + 1);
        let keys: Vec<Atom> = (0..n).map(|_| self.atom(ty.key.ty)).collect();
        match &ty.value {
            None => {
                let mut datum = Datum::Empty;
                for key in keys {
                    datum.set_insert(key);
                }
                datum
            }
            Some(value) => {
                let pairs: Vec<(Atom, Atom)> =
                    keys.into_iter().map(|key| (key, self.atom(value.ty))).collect();
                let mut run = Sorted::new();
                for pair in pairs {
                    run.insert(pair);
                }
                Datum::map(run)
            }
        }
    }

    fn atom(&mut self, ty: AtomType) -> Atom {
        let n = self.random.below(4);
        match ty {
            AtomType::Integer => Atom::Integer(n as i64),
            AtomType::Real => Atom::Real(n as f64 / 2.0),
            AtomType::Boolean => Atom::Boolean(n > 1),
            AtomType::String => Atom::string(["", "a", "b \"quoted\"", "c"][n as usize]),
            AtomType::Uuid => Atom::Uuid(Uuid::from_u128(u128::from(n))),
        }
    }
}

pub(crate) fn text(uuid: Uuid) -> String {
    String::from_utf8_lossy(&uuid.text()).into_owned()
}

fn row_json(row: &Row, table: &TableSchema) -> Map<String, Value> {
    let column = |(id, column): (ColumnId, &weir_data::ColumnSchema)| {
        let mut bytes = Vec::new();
        row.get(id).write(&column.ty, &mut bytes);
        (column.name.clone(), serde_json::from_slice(&bytes).unwrap_or(json!("unreadable")))
    };
    table.column_ids().map(column).collect()
}

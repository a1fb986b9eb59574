//! Random schemas and transactions, and files made of them.

#![allow(dead_code, reason = "every test file uses its part")]

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_data::delta::{Change, ColumnDelta, TableDelta};
use weir_data::sorted::Sorted;
use weir_data::types::Constraint;
use weir_data::{
    Atom, AtomType, BaseType, ColumnId, ColumnType, Datum, Delta, Row, RowDelta, Schema, Store,
    TableId, Uuid, UuidSource,
};
use weir_log::standalone::{
    LoadError, Loaded, Replayer, Style, write_schema, write_transaction_as,
};

/// What depends on nothing but a seed.
pub(crate) struct Random(UuidSource);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(UuidSource::new([seed, 1, 2, 3]))
    }

    pub(crate) fn uuid(&mut self) -> Uuid {
        self.0.next_uuid()
    }

    /// 0 to `n` - 1.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.0.next_u64() >> 1) as usize % n.max(1)
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// A schema with columns of all kinds, as the text of a `<database-schema>`.
pub(crate) fn schema_text(random: &mut Random) -> String {
    let tables = 1 + random.below(3);
    let table = |random: &mut Random, i: usize| {
        let columns = 1 + random.below(7);
        let column = |random: &mut Random, i: usize| {
            let ephemeral = if random.chance(15) { r#","ephemeral":true"# } else { "" };
            format!(r#""c{i}":{{"type":{}{ephemeral}}}"#, column_type(random))
        };
        let columns: Vec<String> = (0..columns).map(|i| column(random, i)).collect();
        format!(r#""T{i}":{{"columns":{{{}}}}}"#, columns.join(","))
    };
    let tables: Vec<String> = (0..tables).map(|i| table(random, i)).collect();
    format!(r#"{{"name":"D","version":"1.2.3","tables":{{{}}}}}"#, tables.join(","))
}

fn column_type(random: &mut Random) -> String {
    let key = base_type(random);
    let (min, max) = *random.pick(&[
        ("1", "1"),
        ("0", "1"),
        ("0", "\"unlimited\""),
        ("1", "\"unlimited\""),
        ("0", "3"),
        ("1", "2"),
    ]);
    let value = if random.chance(30) {
        format!(r#","value":{}"#, base_type(random))
    } else {
        String::new()
    };
    format!(r#"{{"key":{key}{value},"min":{min},"max":{max}}}"#)
}

fn base_type(random: &mut Random) -> String {
    let all = [
        r#""integer""#,
        r#""real""#,
        r#""boolean""#,
        r#""string""#,
        r#""string""#,
        r#""uuid""#,
        r#"{"type":"integer","minInteger":-5,"maxInteger":4000}"#,
        r#"{"type":"real","minReal":-1.5}"#,
        r#"{"type":"string","maxLength":4}"#,
        r#"{"type":"string","enum":["set",["","one","two","three"]]}"#,
    ];
    (*random.pick(&all)).to_owned()
}

fn atom(random: &mut Random, base: &BaseType) -> Atom {
    const TEXTS: [&str; 9] =
        ["", "a", "b", "\"\\/\u{8}\n", "\u{1f600}é", "x y", "\u{1}\u{7f}", "{[,]}", "zz"];
    match (&base.constraint, base.ty) {
        (Constraint::Enum(values), _) => {
            let values: Vec<Atom> = values.as_ref().as_ref().keys().map(|k| k.to_atom()).collect();
            random.pick(&values).clone()
        }
        (Constraint::Integer { .. }, _) => Atom::Integer(random.below(4000) as i64 - 5),
        (Constraint::Length { .. }, _) => {
            Atom::string(random.pick::<&str>(&["", "ab", "\u{e9}\u{e9}cd"]))
        }
        (_, AtomType::Integer) => {
            let other = random.below(9) as i64;
            Atom::Integer(*random.pick(&[0, i64::MIN, i64::MAX, -1, other, other]))
        }
        // No more than the 15 digits that a file keeps.
        (_, AtomType::Real) => {
            let other = random.below(1000) as f64 / 8.0;
            Atom::Real(*random.pick(&[0.0, 1e300, -1.5, 1e15, 2.5e-7, other, other]))
        }
        (_, AtomType::Boolean) => Atom::Boolean(random.chance(50)),
        (_, AtomType::String) if random.chance(20) => {
            Atom::string(&"long ".repeat(random.below(40)))
        }
        (_, AtomType::String) => Atom::string(random.pick::<&str>(&TEXTS)),
        (_, AtomType::Uuid) if random.chance(10) => Atom::Uuid(Uuid::ZERO),
        (_, AtomType::Uuid) => Atom::Uuid(random.uuid()),
    }
}

/// A value that the type allows.
pub(crate) fn datum(random: &mut Random, ty: &ColumnType) -> Datum {
    if random.chance(15) {
        return Datum::default_of(ty);
    }
    let most = (ty.n_max as usize).min(if random.chance(3) { 300 } else { 4 });
    let size = ty.n_min as usize + random.below(most - ty.n_min as usize + 1);
    let mut entries = BTreeMap::new();
    for _ in 0..size {
        let value = ty.value.as_ref().map(|value| atom(random, value));
        entries.insert(atom(random, &ty.key), value);
    }
    if ty.is_map() {
        let pairs = entries.into_iter().filter_map(|(key, value)| Some((key, value?)));
        return Datum::map(Sorted::from_sorted(pairs.collect()));
    }
    Datum::set(Sorted::from_sorted(entries.into_keys().collect()))
}

/// A transaction that a server could have committed.
pub(crate) fn transaction(random: &mut Random, store: &Store) -> Delta {
    let mut delta = Delta::default();
    for (table, schema) in store.schema().table_ids() {
        let mut rows = Vec::new();
        for row in store.table(table).iter() {
            let change = random.below(10);
            if change == 0 {
                rows.push((row.uuid(), RowDelta::Delete(row.clone())));
            } else if change < 5 {
                let columns = changes(random, row, store, table);
                rows.extend((!columns.is_empty()).then(|| (row.uuid(), RowDelta::Modify(columns))));
            }
        }
        for _ in 0..random.below(3) {
            let mut row = Row::new(random.uuid(), random.uuid(), schema);
            for (column, schema) in schema.data_columns() {
                if random.chance(60) {
                    *row.get_mut(column) = datum(random, &schema.ty);
                }
            }
            rows.push((row.uuid(), RowDelta::Insert(row)));
        }
        delta.tables.extend((!rows.is_empty()).then_some(TableDelta { table, rows }));
    }
    delta
}

fn changes(random: &mut Random, row: &Row, store: &Store, table: TableId) -> Vec<ColumnDelta> {
    let mut columns = Vec::new();
    for (column, schema) in store.schema().table(table).data_columns() {
        let old = row.datum(column);
        let mut new = if random.chance(50) { datum(random, &schema.ty) } else { old.clone() };
        // A small change to a large set, where there is room.
        let key = atom(random, &schema.ty.key);
        let is_set = schema.ty.is_composite() && !schema.ty.is_map();
        if is_set && random.chance(50) && new.as_ref().len() < schema.ty.n_max as usize {
            new.set_insert(key);
        }
        let change = Change::between(old, &new, &schema.ty);
        columns.extend(change.map(|change| ColumnDelta { column, change }));
    }
    let version = [row.datum(ColumnId::VERSION).clone(), Datum::One(Atom::Uuid(random.uuid()))];
    let [old, new] = version;
    if !columns.is_empty() {
        let change = Change::Replace { old, new };
        columns.insert(0, ColumnDelta { column: ColumnId::VERSION, change });
    }
    columns
}

/// What a file holds: by table and UUID the persistent columns, as JSON.
pub(crate) type Content = BTreeMap<(String, Uuid), Vec<String>>;

/// The rows of a store without what files do not keep.
pub(crate) fn content(store: &Store) -> Content {
    let mut content = Content::new();
    for (table, schema) in store.schema().table_ids() {
        for row in store.table(table).iter() {
            let kept = schema.data_columns().filter(|(_, column)| column.persistent);
            let value = |(column, schema): (ColumnId, &weir_data::ColumnSchema)| {
                let mut text = Vec::new();
                row.get(column).write(&schema.ty, &mut text);
                format!("{}={}", schema.name, String::from_utf8_lossy(&text))
            };
            content.insert((schema.name.clone(), row.uuid()), kept.map(value).collect());
        }
    }
    content
}

/// A file, and what it holds at every moment of its life.
pub(crate) struct File {
    pub(crate) bytes: Vec<u8>,
    /// After each record: where it ends and what the file holds then.
    pub(crate) states: Vec<(usize, Content)>,
    pub(crate) store: Store,
}

/// A file of a random schema and `records` transactions.
pub(crate) fn file(random: &mut Random, records: usize) -> File {
    let schema = Schema::parse_bytes(schema_text(random).as_bytes()).unwrap();
    file_of(random, schema, records)
}

pub(crate) fn file_of(random: &mut Random, schema: Schema, records: usize) -> File {
    let mut bytes = Vec::new();
    write_schema(&mut bytes, &schema);
    let mut store = Store::new(Arc::new(schema), 7);
    let mut states = vec![(bytes.len(), content(&store))];
    for i in 0..records {
        let delta = transaction(random, &store);
        store.apply(&delta);
        let comment = random.chance(30).then_some("what \"for\"");
        let date = 1_700_000_000_000 + i as i64;
        // No reader sees the mark.
        let style = Style { is_marked: i % 2 == 0, ..Style::PLAIN };
        let out = &mut bytes;
        if write_transaction_as(style, out, &delta, &store, date, comment).is_some() {
            states.push((bytes.len(), content(&store)));
        }
    }
    File { bytes, states, store }
}

/// Reads a file in one piece.
pub(crate) fn load(bytes: &[u8]) -> Result<Loaded, LoadError> {
    load_pieces([bytes])
}

/// Reads a file in pieces of `step` bytes and no record as a whole unless it must be.
pub(crate) fn load_seekable(bytes: &[u8], step: usize) -> Result<Loaded, LoadError> {
    let mut replayer = Replayer::seekable("db", 3, 0);
    let mut at = 0;
    while at < bytes.len() {
        let end = bytes.len().min(at + step);
        replayer.feed(&bytes[at..end])?;
        at = replayer.again_from().map_or(end, |offset| offset as usize);
    }
    replayer.finish()
}

pub(crate) fn load_pieces<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Loaded, LoadError> {
    let mut replayer = Replayer::new("db", 3);
    for piece in pieces {
        replayer.feed(piece)?;
    }
    replayer.finish()
}

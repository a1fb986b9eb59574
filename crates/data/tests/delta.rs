//! Datums, changes, row deltas and stores against plain maps, over random values of every shape.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_data::delta::{Change, ColumnDelta, TableDelta};
use weir_data::sorted::Sorted;
use weir_data::{
    Atom, AtomType, BaseType, ColumnId, ColumnType, Datum, Delta, Row, RowDelta, Schema, Snapshot,
    Store, TableId, Uuid, UuidSource,
};

/// A value as a plain map: elements have no value.
type Model = BTreeMap<Atom, Option<Atom>>;

/// Random numbers from a seed.
struct Random(UuidSource);

impl Random {
    fn new(seed: u64) -> Self {
        println!("seed {seed}");
        let mut source = UuidSource::new([seed, 21, 22, 23]);
        // The first words of small seeds are alike.
        for _ in 0..16 {
            source.next_u64();
        }
        Self(source)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.0.next_u64() % n
    }

    /// Values lie close together, so that they are met again.
    fn atom(&mut self, ty: AtomType) -> Atom {
        let n = self.below(12) as i64;
        match ty {
            AtomType::Integer => Atom::Integer(n - 4),
            AtomType::Real => Atom::Real((n - 4) as f64 / 4.0),
            AtomType::Boolean => Atom::Boolean(n % 2 == 0),
            AtomType::String => Atom::string(&"ab\u{e9}\"".repeat(n as usize % 4)[..]),
            AtomType::Uuid => Atom::Uuid(Uuid::from_u128(n as u128)),
        }
    }

    fn model(&mut self, ty: &ColumnType) -> Model {
        let most = u64::from(ty.n_max).min(9);
        let n = u64::from(ty.n_min).max(self.below(most + 1));
        let entry = |random: &mut Self| {
            (random.atom(ty.key.ty), ty.value.as_ref().map(|value| random.atom(value.ty)))
        };
        (0..n).map(|_| entry(self)).collect()
    }
}

/// One column type of every shape, over every atomic type.
fn types() -> Vec<ColumnType> {
    let mut types = Vec::new();
    for (i, key) in AtomType::ALL.into_iter().enumerate() {
        let value = BaseType::plain(AtomType::ALL[(i + 2) % 5]);
        for (n_min, n_max) in [(1, 1), (0, 1), (0, 3), (1, u32::MAX), (0, u32::MAX)] {
            for value in [None, Some(value.clone())] {
                types.push(ColumnType { key: BaseType::plain(key), value, n_min, n_max });
            }
        }
    }
    types
}

fn datum(model: &Model) -> Datum {
    let entries = model.iter().map(|(key, value)| (key.clone(), value.clone()));
    match model.values().next() {
        Some(Some(_)) => Datum::map(Sorted::from_sorted(
            entries.map(|(key, value)| (key, value.unwrap())).collect(),
        )),
        _ => Datum::set(Sorted::from_sorted(entries.map(|(key, _)| key).collect())),
    }
}

fn model(datum: &Datum) -> Model {
    let entries = datum.as_ref().entries();
    entries.map(|(key, value)| (key.to_atom(), value.map(|value| value.to_atom()))).collect()
}

/// Entries of `a` that are not in `b`.
fn only_in(a: &Model, b: &Model) -> Model {
    let entries = a.iter().filter(|(key, value)| b.get(*key) != Some(*value));
    entries.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn side<'a>(
    entries: impl Iterator<Item = (weir_data::AtomRef<'a>, Option<weir_data::AtomRef<'a>>)>,
) -> Model {
    entries.map(|(key, value)| (key.to_atom(), value.map(|value| value.to_atom()))).collect()
}

fn parse(bytes: &[u8], ty: &ColumnType) -> Datum {
    // Only arrays and objects are whole JSON texts.
    let array = [b"[", bytes, b"]"].concat();
    let text = weir_json::validate(&array).unwrap().elements().unwrap().next().unwrap();
    Datum::parse(text, ty, None).unwrap()
}

/// Runs a scenario with random values of each type.
fn for_each_type(times: u64, scenario: impl Fn(&mut Random, &ColumnType)) {
    for (seed, ty) in (1..).zip(types()) {
        let mut random = Random::new(seed);
        (0..times).for_each(|_| scenario(&mut random, &ty));
    }
}

#[test]
fn the_change_between_two_values_leads_there_and_back() {
    for_each_type(200, |random, ty| {
        let (old, new) = (random.model(ty), random.model(ty));
        let (from, to) = (datum(&old), datum(&new));
        let Some(change) = Change::between(&from, &to, ty) else {
            assert_eq!(old, new);
            return;
        };
        assert_ne!(old, new);
        assert!(!change.is_empty());
        if ty.is_composite() {
            assert_eq!(side(change.added()), only_in(&new, &old));
            assert_eq!(side(change.removed()), only_in(&old, &new));
        } else {
            assert_eq!((side(change.added()), side(change.removed())), (new.clone(), old.clone()));
        }
        let mut value = from.clone();
        change.apply(&mut value);
        assert_eq!(model(&value), new);
        assert_eq!(model(&change.old_value(to.as_ref())), old);
        change.inverse().apply(&mut value);
        assert_eq!(model(&value), old);
        assert_eq!(value, from, "equal entries, but not in canonical form");
    });
}

#[test]
fn merged_changes_are_the_change_between_the_ends() {
    for_each_type(100, |random, ty| {
        let mut values = vec![random.model(ty)];
        let mut merged: Option<Change> = None;
        for _ in 0..1 + random.below(5) {
            // Now and then back to the beginning, so that changes cancel out.
            let next = if random.below(4) == 0 { values[0].clone() } else { random.model(ty) };
            let (last, new) = (datum(values.last().unwrap()), datum(&next));
            if let Some(change) = Change::between(&last, &new, ty) {
                match &mut merged {
                    Some(merged) => merged.merge(&change),
                    None => merged = Some(change),
                }
            }
            values.push(next);
        }
        let (first, last) = (datum(&values[0]), datum(values.last().unwrap()));
        let merged = merged.filter(|change| !change.is_empty());
        assert_eq!(merged, Change::between(&first, &last, ty));
    });
}

/// One entry at a time, as mutations come, on a value that is far larger than its changes.
#[test]
fn small_edits_of_a_large_set_merge_into_a_small_change() {
    let ty = ColumnType {
        key: BaseType::plain(AtomType::Integer),
        value: None,
        n_min: 0,
        n_max: u32::MAX,
    };
    let mut random = Random::new(1);
    let first = Datum::set(Sorted::from_sorted((0..30_000).map(Atom::Integer).collect()));
    let mut value = first.clone();
    let mut merged = Change::Set { added: Sorted::new(), removed: Sorted::new() };
    for _ in 0..500 {
        let atom = Atom::Integer(29_000 + random.below(2000) as i64);
        let one = Sorted::from_sorted(vec![atom.clone()]);
        let change = if value.as_ref().contains(atom.as_ref()) {
            Change::Set { added: Sorted::new(), removed: one }
        } else {
            Change::Set { added: one, removed: Sorted::new() }
        };
        change.apply(&mut value);
        merged.merge(&change);
    }
    assert_eq!(Some(merged.clone()), Change::between(&first, &value, &ty));
    let mut again = first.clone();
    merged.apply(&mut again);
    assert_eq!(again, value);
    merged.inverse().apply(&mut again);
    assert_eq!(again, first);
}

#[test]
fn a_written_difference_makes_the_old_value_into_the_new() {
    for_each_type(200, |random, ty| {
        let (old, new) = (random.model(ty), random.model(ty));
        let Some(change) = Change::between(&datum(&old), &datum(&new), ty) else { return };
        let mut bytes = Vec::new();
        change.write_diff(ty, &mut bytes);
        let mut expected = if ty.is_composite() { only_in(&old, &new) } else { Model::new() };
        expected.extend(if ty.is_composite() { only_in(&new, &old) } else { new.clone() });
        let of_diff = ColumnType { n_min: 0, n_max: u32::MAX, ..ty.clone() };
        let diff = parse(&bytes, &of_diff);
        assert_eq!(model(&diff), expected);
        let mut canonical = Vec::new();
        diff.as_ref().write(&of_diff, &mut canonical);
        assert_eq!(String::from_utf8(bytes), String::from_utf8(canonical));
        let mut value = datum(&old);
        value.apply_diff(&diff, ty);
        assert_eq!(value, datum(&new));
    });
}

#[test]
fn values_are_read_as_they_were_written() {
    for_each_type(100, |random, ty| {
        let value = datum(&random.model(ty));
        let mut bytes = Vec::new();
        value.as_ref().write(ty, &mut bytes);
        assert_eq!(parse(&bytes, ty), value);
    });
}

#[test]
fn edits_comparisons_and_inclusion_are_those_of_plain_maps() {
    for_each_type(200, |random, ty| {
        let (mut a, b) = (random.model(ty), random.model(ty));
        let (mut x, y) = (datum(&a), datum(&b));
        let key = random.atom(ty.key.ty);
        let added = match ty.value.as_ref().map(|value| random.atom(value.ty)) {
            None => x.set_insert(key.clone()) == a.insert(key, None).is_none(),
            Some(value) => {
                let before = a.insert(key.clone(), Some(value.clone()));
                x.map_insert(key, value).map(|pair| Some(pair.1)) == before
            }
        };
        assert!(added);
        assert_eq!(model(&x), a);
        let keys = |model: &Model| model.keys().cloned().collect::<Vec<_>>();
        let values = |model: &Model| model.values().cloned().collect::<Vec<_>>();
        let order = (a.len(), keys(&a), values(&a)).cmp(&(b.len(), keys(&b), values(&b)));
        assert_eq!(x.as_ref().cmp(&y.as_ref()), order);
        assert_eq!(x.as_ref().includes_all(y.as_ref()), only_in(&b, &a).is_empty());
        assert_eq!(x.as_ref().excludes_all(y.as_ref()), only_in(&b, &a).len() == b.len());
        let key = random.atom(ty.key.ty);
        let removed = match ty.value {
            None => x.set_remove(key.as_ref()).map(|_| None),
            Some(_) => x.map_remove(key.as_ref()).map(|pair| Some(pair.1)),
        };
        assert_eq!(removed, a.remove(&key));
        assert_eq!(x, datum(&a));
    });
}

const SCHEMA: &str = r#"{"name":"S","tables":{
    "A":{"columns":{"n":{"type":"integer"},
                    "s":{"type":{"key":"string","min":0,"max":"unlimited"}},
                    "m":{"type":{"key":"integer","value":"uuid","min":0,"max":"unlimited"}}}},
    "B":{"columns":{"o":{"type":{"key":"real","min":0,"max":1}},
                    "p":{"type":{"key":"string","value":"boolean","min":0,"max":1}}}}}}"#;

/// Rows of both tables, by number.
type Rows = BTreeMap<(TableId, Uuid), Row>;

fn random_row(random: &mut Random, schema: &Schema, table: TableId, uuid: Uuid) -> Row {
    let table = schema.table(table);
    let mut row = Row::new(uuid, random.0.next_uuid(), table);
    for (id, column) in table.data_columns() {
        *row.get_mut(id) = datum(&random.model(&column.ty));
    }
    row
}

/// What makes `old` into `new`, by definition.
fn delta_between(schema: &Schema, table: TableId, old: &Row, new: &Row) -> Option<RowDelta> {
    let columns: Vec<ColumnDelta> = schema
        .table(table)
        .column_ids()
        .filter_map(|(column, column_schema)| {
            let change = Change::between(old.datum(column), new.datum(column), &column_schema.ty)?;
            Some(ColumnDelta { column, change })
        })
        .collect();
    (!columns.is_empty()).then_some(RowDelta::Modify(columns))
}

/// A change of a few rows, and what it makes of `rows`.
fn random_delta(random: &mut Random, schema: &Schema, rows: &mut Rows) -> Delta {
    let mut tables = Vec::new();
    for (table, _) in schema.table_ids() {
        let mut changed: Vec<(Uuid, RowDelta)> = Vec::new();
        for _ in 0..random.below(6) {
            let uuid = Uuid::from_u128(u128::from(random.below(600)));
            if changed.iter().any(|(other, _)| *other == uuid) {
                continue;
            }
            let new = random_row(random, schema, table, uuid);
            let delta = match rows.get(&(table, uuid)).cloned() {
                None => RowDelta::Insert(new.clone()),
                Some(old) if random.below(3) == 0 => RowDelta::Delete(old),
                Some(old) => delta_between(schema, table, &old, &new).unwrap(),
            };
            match &delta {
                RowDelta::Delete(_) => rows.remove(&(table, uuid)),
                _ => rows.insert((table, uuid), new),
            };
            changed.push((uuid, delta));
        }
        if !changed.is_empty() {
            tables.push(TableDelta { table, rows: changed });
        }
    }
    Delta { tables }
}

fn assert_store(store: &Store, rows: &Rows) {
    let mut atoms = 0;
    for ((table, uuid), row) in rows {
        assert_eq!(store.get(*table, *uuid), Some(row));
        let columns = store.schema().table(*table).data_columns();
        atoms += columns
            .flat_map(|(id, _)| row.get(id).entries())
            .map(|(_, value)| 1 + usize::from(value.is_some()))
            .sum::<usize>();
    }
    for (table, _) in store.schema().table_ids() {
        let n = rows.keys().filter(|row| row.0 == table).count();
        assert_eq!(store.table(table).len(), n);
        assert_eq!(store.table(table).iter().count(), n);
    }
    assert_eq!(store.atoms(), atoms);
}

fn assert_snapshot(snapshot: &Snapshot, rows: &Rows) {
    let mut found = Rows::new();
    for (table, _) in snapshot.schema().table_ids() {
        for row in snapshot.rows(table) {
            assert!(found.insert((table, row.uuid()), row.clone()).is_none());
        }
    }
    assert_eq!(found, *rows);
}

#[test]
fn a_store_follows_deltas_forth_and_back_and_snapshots_stay() {
    for seed in 1..4 {
        let mut random = Random::new(seed);
        let schema = Arc::new(Schema::parse_bytes(SCHEMA.as_bytes()).unwrap());
        let mut store = Store::new(schema.clone(), seed);
        let mut history: Vec<(Delta, Rows)> = Vec::new();
        let mut rows = Rows::new();
        let mut snapshots = Vec::new();
        for step in 0..400 {
            let before = rows.clone();
            let delta = random_delta(&mut random, &schema, &mut rows);
            store.apply(&delta);
            assert_store(&store, &rows);
            history.push((delta, before));
            if step % 40 == 0 {
                snapshots.push((store.snapshot(), rows.clone()));
            }
        }
        for (delta, before) in history.into_iter().rev() {
            store.apply(&delta.inverse());
            assert_store(&store, &before);
        }
        for (snapshot, rows) in &snapshots {
            assert_snapshot(snapshot, rows);
        }
    }
}

#[test]
fn merged_row_deltas_are_the_change_between_the_ends() {
    let schema = Schema::parse_bytes(SCHEMA.as_bytes()).unwrap();
    let uuid = Uuid::from_u128(1);
    let mut kinds = [0; 4];
    for seed in 1..=2000 {
        let mut random = Random::new(seed);
        let table = TableId(random.below(2) as u16);
        let mut rows: Vec<Option<Row>> = Vec::new();
        for _ in 0..2 + random.below(4) {
            let row = match random.below(4) {
                0 => None,
                1 if !rows.is_empty() => rows[0].clone(),
                _ => Some(random_row(&mut random, &schema, table, uuid)),
            };
            rows.push(row);
        }
        let delta = |old: &Option<Row>, new: &Option<Row>| match (old, new) {
            (None, None) => None,
            (None, Some(new)) => Some(RowDelta::Insert(new.clone())),
            (Some(old), None) => Some(RowDelta::Delete(old.clone())),
            (Some(old), Some(new)) => delta_between(&schema, table, old, new),
        };
        let mut merged: Option<RowDelta> = None;
        for pair in rows.windows(2) {
            let Some(later) = delta(&pair[0], &pair[1]) else { continue };
            merged = match merged {
                Some(earlier) => earlier.merge(&later, schema.table(table)),
                None => Some(later),
            };
        }
        let expected = delta(&rows[0], rows.last().unwrap());
        assert_eq!(merged, expected);
        kinds[match &expected {
            None => 0,
            Some(RowDelta::Insert(_)) => 1,
            Some(RowDelta::Delete(_)) => 2,
            Some(RowDelta::Modify(_)) => 3,
        }] += 1;
        let Some(merged) = merged else { continue };
        let back = delta(rows.last().unwrap(), &rows[0]);
        assert_eq!(Some(merged.clone().inverse()), back);
        assert_eq!(merged.clone().inverse().inverse(), merged);
        if let RowDelta::Modify(columns) = &merged {
            for id in (0..5).map(ColumnId) {
                let listed = columns.iter().find(|delta| delta.column == id);
                assert_eq!(merged.change(id), listed.map(|delta| &delta.change));
            }
        }
    }
    assert!(kinds.iter().all(|n| *n >= 100), "{kinds:?}");
}

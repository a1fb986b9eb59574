//! The dumb twin: what a commit should do, found by looking at every row over and over.

use std::collections::BTreeMap;

use weir_data::types::RefKind;
use weir_data::{ColumnId, Datum, DatumRef, Row, RowDelta, Schema, Store, TableId, Uuid};

use super::world::{self, Alive, Random};
use crate::commit::commit;
use crate::database::Database;
use crate::transaction::Transaction;

/// Rows without their versions.
type Rows = BTreeMap<(TableId, Uuid), Vec<Datum>>;

/// Transactions tried on each schema.
const TRANSACTIONS: usize = 60;
/// Schemas tried.
const SCHEMAS: u64 = 300;

fn rows(store: &Store) -> Rows {
    let mut rows = Rows::new();
    for (table, schema) in store.schema().table_ids() {
        for row in store.table(table).iter() {
            let values = schema.data_columns().map(|(id, _)| row.datum(id).clone()).collect();
            rows.insert((table, row.uuid()), values);
        }
    }
    rows
}

/// Every reference in these rows: from, column, kind, to.
fn references(schema: &Schema, rows: &Rows) -> Vec<Edge> {
    let mut edges = Vec::new();
    for (from, values) in rows {
        for ((id, column), value) in schema.table(from.0).data_columns().zip(values) {
            for (key, pair_value) in value.as_ref().entries() {
                for (target, atom) in
                    [(column.refs.key, Some(key)), (column.refs.value, pair_value)]
                {
                    if let (Some((table, kind)), Some(atom)) = (target, atom) {
                        let to = (table, atom.as_uuid().unwrap());
                        edges.push(Edge { from: *from, column: id, kind, to });
                    }
                }
            }
        }
    }
    edges
}

struct Edge {
    from: (TableId, Uuid),
    column: ColumnId,
    kind: RefKind,
    to: (TableId, Uuid),
}

impl Edge {
    fn holds(&self) -> bool {
        self.kind == RefKind::Strong && self.from.1 != self.to.1
    }
}

/// The rows after a commit, or a word of the error.
fn commit_naively(schema: &Schema, old: &Rows, mut new: Rows) -> Result<Rows, &'static str> {
    let edges = references(schema, &new);
    let missing = |edge: &&Edge| edge.holds() && !new.contains_key(&edge.to);
    if edges.iter().filter(missing).any(|edge| !old.contains_key(&edge.to)) {
        return Err("references nonexistent row");
    }
    if edges.iter().any(|edge| missing(&edge)) {
        return Err("remaining reference(s)");
    }
    collect_garbage(schema, &mut new);
    for (table, table_schema) in schema.table_ids() {
        let n = new.keys().filter(|row| row.0 == table).count();
        if n > table_schema.max_rows as usize {
            return Err("greater than the schema-defined limit");
        }
    }
    loop {
        let before = new.clone();
        remove_dangling(schema, &mut new)?;
        collect_garbage(schema, &mut new);
        if new == before {
            break;
        }
    }
    let mut taken = BTreeMap::new();
    for ((table, uuid), values) in &new {
        for (number, index) in schema.table(*table).indexes.iter().enumerate() {
            let key: Vec<String> =
                index.iter().map(|id| format!("{:?}", values[id.index() - 2])).collect();
            if taken.insert((*table, number, key), *uuid).is_some() {
                return Err("identical values");
            }
        }
    }
    Ok(new)
}

fn collect_garbage(schema: &Schema, rows: &mut Rows) {
    loop {
        let edges = references(schema, rows);
        let held = |row: &(TableId, Uuid)| edges.iter().any(|e| e.holds() && e.to == *row);
        let n = rows.len();
        rows.retain(|row, _| schema.table(row.0).is_root || held(row));
        if rows.len() == n {
            return;
        }
    }
}

fn remove_dangling(schema: &Schema, rows: &mut Rows) -> Result<(), &'static str> {
    let alive: Vec<(TableId, Uuid)> = rows.keys().copied().collect();
    let is_gone = |target: Option<(TableId, RefKind)>, atom: Option<weir_data::AtomRef<'_>>| {
        matches!((target, atom), (Some((table, RefKind::Weak)), Some(atom))
            if !alive.contains(&(table, atom.as_uuid().unwrap())))
    };
    for (row, values) in rows {
        for ((_, column), value) in schema.table(row.0).data_columns().zip(values) {
            let gone = |(key, value): &(_, _)| {
                is_gone(column.refs.key, Some(*key)) || is_gone(column.refs.value, *value)
            };
            let keys: Vec<_> =
                value.as_ref().entries().filter(gone).map(|(key, _)| key.to_atom()).collect();
            for key in &keys {
                if column.ty.is_map() {
                    value.map_remove(key.as_ref());
                } else {
                    value.set_remove(key.as_ref());
                }
            }
            if !keys.is_empty() && value.as_ref().len() < column.ty.n_min as usize {
                return Err("allowed to be empty|disallow an empty column");
            }
        }
    }
    Ok(())
}

/// Counts, back-links and indexes are what a walk over all rows finds.
fn assert_derived(db: &Database, random: &mut Random) {
    let schema = db.schema();
    let rows = rows(db.store());
    let edges = references(schema, &rows);
    let alive = Alive::of(db.store());
    for (table, table_schema) in schema.table_ids() {
        for n in 0..world::UUIDS {
            let row = (table, Uuid::from_u128(u128::from(n)));
            let strong = edges.iter().filter(|edge| edge.holds() && edge.to == row).count();
            assert_eq!(db.links.strong(row.0, row.1) as usize, strong);
            let mut weak: Vec<_> = edges
                .iter()
                .filter(|e| e.kind == RefKind::Weak && e.to == row && e.from != row)
                .map(|edge| (edge.from, edge.column))
                .collect();
            weak.sort();
            let links = db.links.weak_to(row.0, row.1).map(|l| ((l.table, l.row), l.column));
            assert_eq!(links.collect::<Vec<_>>(), weak);
        }
        for (number, index) in table_schema.indexes.iter().enumerate() {
            let tries = (0..20).map(|_| {
                index
                    .iter()
                    .map(|id| world::value(random, table_schema.column(*id), &alive))
                    .collect()
            });
            let present = rows.iter().filter(|(row, _)| row.0 == table).map(|(_, values)| {
                index.iter().map(|id| values[id.index() - 2].clone()).collect::<Vec<Datum>>()
            });
            for values in present.chain(tries.collect::<Vec<_>>()) {
                let has = |values: &[Datum], row: &Row| {
                    index.iter().zip(values).all(|(id, value)| row.datum(*id) == value)
                };
                let scanned = db.store().table(table).iter().find(|row| has(&values, row));
                let refs: Vec<DatumRef<'_>> = values.iter().map(|value| value.as_ref()).collect();
                assert_eq!(db.lookup(table, number, &refs), scanned.map(Row::uuid));
            }
        }
    }
    let weak = edges.iter().filter(|edge| edge.kind == RefKind::Weak && edge.from != edge.to);
    assert_eq!(db.weak_refs(), weak.count());
}

/// A database of the same rows, everything derived anew, is equal to this one.
fn assert_rebuilt(db: &Database) {
    let mut store = Store::new(db.schema().clone(), 3);
    for (table, _) in db.schema().table_ids() {
        for row in db.store().table(table).iter() {
            store.insert(table, row.clone());
        }
    }
    let mut rebuilt = Database::from_store(store, db.seed).unwrap();
    rebuilt.position = db.position;
    assert_eq!(rebuilt.state_hash(), db.state_hash());
}

/// Every row that differs has a new version, and every row that is not in the delta its old one.
fn assert_versions(before: &Database, after: &Database, delta: &weir_data::Delta) {
    for (table, schema) in after.schema().table_ids() {
        for row in after.store().table(table).iter() {
            let Some(old) = before.store().get(table, row.uuid()) else { continue };
            let touched = delta.rows().any(|(t, uuid, _)| (t, uuid) == (table, row.uuid()));
            assert_eq!(old.version() != row.version(), touched);
            let differs = schema.data_columns().any(|(id, _)| old.datum(id) != row.datum(id));
            assert!(touched || !differs);
        }
    }
    for (table, uuid, row) in delta.rows() {
        let existed = before.store().get(table, uuid).is_some();
        assert_eq!(existed, !matches!(row, RowDelta::Insert(_)));
    }
}

/// What a run met: it proves nothing if it met too little.
#[derive(Debug, Default)]
struct Met(BTreeMap<&'static str, usize>);

impl Met {
    fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_insert(0) += 1;
    }
}

fn try_one(db: &mut Database, replica: &mut Database, random: &mut Random, met: &mut Met) {
    let schema = db.schema().clone();
    let operations = world::operations(random, db.store());
    let (hash, old) = (db.state_hash(), rows(db.store()));
    for k in 0..=operations.len() {
        let mut txn = Transaction::new(db);
        operations[..k].iter().for_each(|operation| world::run(&mut txn, operation));
        txn.abort();
        assert_eq!(db.state_hash(), hash, "abort after operation {k} left a trace");
        assert_eq!(rows(db.store()), old);
    }
    let mut txn = Transaction::new(db);
    operations.iter().for_each(|operation| world::run(&mut txn, operation));
    let new = rows(txn.store());
    let expected = commit_naively(&schema, &old, new);
    match (commit(txn, &mut random.0), expected) {
        (Ok(delta), Ok(expected)) => {
            assert_eq!(rows(db.store()), expected);
            assert_derived(db, random);
            assert_rebuilt(db);
            assert_versions(replica, db, &delta);
            if delta.is_empty() {
                assert_eq!(db.state_hash(), hash);
                return met.count("nothing left");
            }
            let after = db.state_hash();
            db.revert(&delta);
            assert_eq!(db.state_hash(), hash, "revert left a trace");
            assert_eq!(rows(db.store()), old);
            db.apply(&delta);
            assert_eq!(db.state_hash(), after, "applied again it is not the same");
            replica.apply(&delta);
            assert_eq!(replica.state_hash(), after, "a replica differs");
            met.count("committed");
        }
        (Err(error), Err(words)) => {
            let error = error.to_string();
            assert!(words.split('|').any(|words| error.contains(words)), "{error}, not {words}");
            assert_eq!(db.state_hash(), hash, "a failed commit left a trace");
            met.count(words);
        }
        (result, expected) => panic!("{result:?}, expected {expected:?}"),
    }
}

#[test]
fn commits_do_what_looking_at_every_row_does() {
    let mut met = Met::default();
    for seed in 1..=SCHEMAS {
        let mut random = Random::new(seed);
        let schema = world::schema(&mut random);
        println!("seed {seed}: {schema}");
        let mut db = Database::new(schema.clone(), seed);
        let mut replica = Database::new(schema, seed);
        for _ in 0..TRANSACTIONS {
            try_one(&mut db, &mut replica, &mut random, &mut met);
        }
    }
    println!("{met:?}");
    let words = [
        "committed",
        "nothing left",
        "references nonexistent row",
        "remaining reference(s)",
        "greater than the schema-defined limit",
        "allowed to be empty|disallow an empty column",
        "identical values",
    ];
    for words in words {
        let n = met.0.get(words).copied().unwrap_or(0);
        assert!(n >= 100, "only {n} times: {words}");
    }
}

//! What keys cost and save, on a database without a server around it:
//!
//! ```text
//! cargo run --release -p weir-engine --example keys -- select ROWS...
//! valgrind --tool=callgrind target/release/examples/keys insert ROWS COUNT [KEY]
//! valgrind --tool=massif target/release/examples/keys insert ROWS 1 [KEY]
//! ```
//!
//! `select` times selections by the unique name, by a column that ten rows share, by a range, by an
//! element of a set and by strong and weak references, and of a page of ten rows in order, without
//! keys and with them. `insert` adds rows one a transaction, with the key of one column (`owner`,
//! `owner:ordered`, `size`, `tags`, `group`): the cost
//! of one is the difference between two runs with different `COUNT`, the memory of the key that
//! between runs with and without.

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_data::sorted::Sorted;
use weir_data::{Atom, ColumnId, Datum, Row, Schema, Store, TableId, Uuid, UuidSource};
use weir_engine::{Database, Env, KeyEvent, KeyName, Outcome, execute};
use weir_json::{Text, validate};

const SCHEMA: &[u8] = br#"{"name":"D","tables":{
  "Group":{"isRoot":true,"columns":{"number":{"type":"integer"}}},
  "Item":{"isRoot":true,"indexes":[["name"]],"columns":{
    "name":{"type":"string"},
    "owner":{"type":"string"},
    "size":{"type":"integer"},
    "tags":{"type":{"key":"string","min":0,"max":"unlimited"}},
    "external_ids":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}},
    "group":{"type":{"key":{"type":"uuid","refTable":"Group"},"min":0,"max":1}},
    "weak":{"type":{"key":{"type":"uuid","refTable":"Group","refType":"weak"},"min":0,"max":1}}}}}}"#;

const GROUP: TableId = TableId(0);
const ITEM: TableId = TableId(1);
/// Rows that share an owner, a tag or a group, or fall into a range.
const SHARE: usize = 10;
/// How long each kind of selection is repeated.
const PATIENCE: Duration = Duration::from_millis(700);
/// A prime: steps of it visit all shares in no order.
const STRIDE: usize = 1_000_003;
/// Rows filed at once.
const STEP: usize = 10_000;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match &args[..] {
        ["select", sizes @ ..] if !sizes.is_empty() => {
            sizes.iter().try_for_each(|rows| select_all(rows.parse()?))
        }
        ["insert", rows, count, key @ ..] => insert(rows.parse()?, count.parse()?, key),
        _ => Err("usage: keys select ROWS... | insert ROWS COUNT [KEY]".into()),
    }
}

fn group(n: usize) -> Uuid {
    Uuid::from_u128(n as u128 + 1)
}

fn values(schema: &Schema, n: usize) -> Vec<(ColumnId, Datum)> {
    let share = n / SHARE;
    let strings = |texts: &[String]| {
        let mut atoms: Vec<Atom> = texts.iter().map(|text| Atom::string(text)).collect();
        atoms.sort();
        Datum::set(Sorted::from_sorted(atoms))
    };
    let pair = (Atom::string("neutron:device_owner"), Atom::string(&format!("compute:{share}")));
    let one = |atom| Datum::One(atom);
    let value = |name: &str| match name {
        "name" => one(Atom::string(&format!("item {n} of the table"))),
        "owner" => one(Atom::string(&format!("owner {share}"))),
        "size" => one(Atom::Integer(n as i64)),
        "tags" => strings(&["all".into(), format!("tag {share}")]),
        "external_ids" => Datum::map(Sorted::from_sorted(vec![pair.clone()])),
        _ => one(Atom::Uuid(group(share))),
    };
    schema.table(ITEM).data_columns().map(|(id, column)| (id, value(&column.name))).collect()
}

fn database(rows: usize) -> Result<Database, Box<dyn Error>> {
    let schema = Arc::new(Schema::parse_bytes(SCHEMA)?);
    let mut store = Store::new(Arc::clone(&schema), 7);
    let mut uuids = UuidSource::new([1, 2, 3, 4]);
    // Rows that are inserted later have groups, too.
    for n in 0..=2 * rows / SHARE {
        let row = Row::new(group(n), uuids.next_uuid(), schema.table(GROUP));
        store.insert(GROUP, row);
    }
    for n in 0..rows {
        let (uuid, version) = (uuids.next_uuid(), uuids.next_uuid());
        store.insert(ITEM, Row::with_values(uuid, version, schema.table(ITEM), values(&schema, n)));
    }
    Ok(Database::from_store(store, 7).map_err(|error| error.to_string())?)
}

fn key(db: &Database, column: &str) -> Result<KeyName, Box<dyn Error>> {
    let (column, by_order) = match column.strip_suffix(":ordered") {
        Some(column) => (column, true),
        None => (column, column == "size"),
    };
    let found = db.schema().table(ITEM).column_ids().find(|(_, c)| c.name == column);
    Ok(db.key_for(ITEM, found.ok_or("no such column")?.0, by_order))
}

/// Has a key; the longest step of building it.
fn build(db: &mut Database, column: &str) -> Result<Duration, Box<dyn Error>> {
    let key = key(db, column)?;
    db.add_key(key)?;
    let mut longest = Duration::ZERO;
    while db.has_keys_to_build() {
        let start = Instant::now();
        let events = db.build_keys(STEP);
        longest = longest.max(start.elapsed());
        assert!(events.iter().all(|event| matches!(event, KeyEvent::Ready { .. })));
    }
    Ok(longest)
}

fn run(db: &mut Database, uuids: &mut UuidSource, operations: &str) -> Result<u64, Box<dyn Error>> {
    let array = validate(operations.as_bytes()).map_err(|_| "no JSON")?;
    let operations: Vec<Text<'_>> = array.elements().ok_or("no array")?.collect();
    match execute(db, &operations, &mut Env::new(uuids)) {
        Outcome::Done(done) => {
            if done.reply.windows(7).any(|part| part == b"\"error\"") {
                return Err(String::from_utf8_lossy(&done.reply).into_owned().into());
            }
            black_box(&done.reply);
            Ok(done.work.rows_visited)
        }
        _ => Err("it waits".into()),
    }
}

fn condition(kind: &str, share: usize) -> String {
    match kind {
        "name" => format!(r#"["name","==","item {} of the table"]"#, share * SHARE),
        "owner" => format!(r#"["owner","==","owner {share}"]"#),
        "range" => {
            let (first, end) = (share * SHARE, (share + 1) * SHARE);
            format!(r#"["size",">=",{first}],["size","<",{end}]"#)
        }
        "includes" => format!(r#"["tags","includes","tag {share}"]"#),
        "pair" => format!(
            r#"["external_ids","includes",["map",[["neutron:device_owner","compute:{share}"]]]]"#
        ),
        "page" => String::new(),
        _ => format!(r#"["{kind}","==",["uuid","{}"]]"#, group(share)),
    }
}

/// Microseconds of one selection, and rows visited by it.
fn time(db: &mut Database, kind: &str, rows: usize) -> Result<(f64, u64), Box<dyn Error>> {
    let mut uuids = UuidSource::new([4, 3, 2, 1]);
    let (start, mut count, mut visited) = (Instant::now(), 0u32, 0);
    while count < 5 || start.elapsed() < PATIENCE {
        let share = (count as usize).wrapping_mul(STRIDE) % (rows / SHARE);
        let condition = condition(kind, share);
        let page = if kind == "page" { r#","order_by":["owner"],"limit":10"# } else { "" };
        let text = format!(
            r#"[{{"op":"select","table":"Item","columns":["_uuid"],"where":[{condition}]{page}}}]"#
        );
        visited = run(db, &mut uuids, &text)?;
        count += 1;
    }
    Ok((start.elapsed().as_secs_f64() * 1e6 / f64::from(count), visited))
}

const KINDS: [(&str, Option<&str>); 8] = [
    ("name", None),
    ("owner", Some("owner")),
    ("range", Some("size")),
    ("includes", Some("tags")),
    ("pair", Some("external_ids")),
    ("group", Some("group")),
    ("weak", None),
    ("page", Some("owner:ordered")),
];

fn select_all(rows: usize) -> Result<(), Box<dyn Error>> {
    let mut db = database(rows)?;
    println!("{rows} rows: us without a key (rows visited), with it; longest step of building, ms");
    for (kind, column) in KINDS {
        let (before, visited) = time(&mut db, kind, rows)?;
        print!("{kind:>10} {before:>12.2} ({visited})");
        if let Some(column) = column {
            let step = build(&mut db, column)?;
            let (after, visited) = time(&mut db, kind, rows)?;
            print!(" {after:>8.2} ({visited})  {:.2}", step.as_secs_f64() * 1e3);
            db.drop_key(key(&db, column)?);
        }
        println!();
    }
    Ok(())
}

fn insert(rows: usize, count: usize, keys: &[&str]) -> Result<(), Box<dyn Error>> {
    let mut db = database(rows)?;
    for column in keys {
        build(&mut db, column)?;
    }
    let mut uuids = UuidSource::new([4, 3, 2, 1]);
    let start = Instant::now();
    for n in rows..rows + count {
        let share = n / SHARE;
        let group = group(share);
        let text = format!(
            r#"[{{"op":"insert","table":"Item","row":{{"name":"item {n} of the table",
            "owner":"owner {share}","size":{n},"tags":["set",["all","tag {share}"]],
            "external_ids":["map",[["neutron:device_owner","compute:{share}"]]],
            "group":["uuid","{group}"],"weak":["uuid","{group}"]}}}}]"#
        );
        run(&mut db, &mut uuids, &text)?;
    }
    let us = start.elapsed().as_secs_f64() * 1e6 / count as f64;
    println!("{us:.2} us an insertion");
    // A profiler of the heap sees all of it at the end.
    std::mem::forget(db);
    Ok(())
}

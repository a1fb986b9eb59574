//! What it costs a commit to be noted, in instructions: `push N [recorded|volatile]` pushes N
//! changes, each the insertion of a row of ten columns and one element more in a set of another row.
//! Nothing depends on time, chance or the machine, so the difference between two N, counted by
//! valgrind's callgrind, is the cost of the changes alone.

use std::process::ExitCode;

use weir_data::delta::{Change, TableDelta};
use weir_data::sorted::Sorted;
use weir_data::{
    Atom, ColumnDelta, ColumnId, Datum, Delta, IdKind, Row, RowDelta, Schema, TableId, TableSchema,
    Uuid,
};
use weir_history::{History, Name, Record, budget_of};

/// A port of OVN, about, and a switch.
const SCHEMA: &[u8] = br#"{"name":"Net","tables":{
    "Port":{"columns":{
        "name":{"type":"string"},
        "type":{"type":"string"},
        "enabled":{"type":{"key":"boolean","min":0}},
        "up":{"type":{"key":"boolean","min":0}},
        "tag":{"type":{"key":"integer","min":0}},
        "parent":{"type":{"key":"string","min":0}},
        "group":{"type":{"key":"uuid","min":0}},
        "addresses":{"type":{"key":"string","min":0,"max":"unlimited"}},
        "options":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}},
        "external_ids":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}}}},
    "Switch":{"columns":{
        "ports":{"type":{"key":"uuid","min":0,"max":"unlimited"}}}}}}"#;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some(times) = args.first().and_then(|times| times.parse::<u64>().ok()) else {
        eprintln!("usage: push TIMES [recorded|volatile]");
        return ExitCode::from(2);
    };
    let schema = Schema::parse_bytes(SCHEMA).expect("the schema above");
    let mut log = History::new([1; 20], schema.tables.len(), budget_of(0), 1);
    log.keep(match args.get(1).map(String::as_str) {
        Some("volatile") => IdKind::Volatile,
        _ => IdKind::Recorded,
    });
    let delta = delta(&schema);
    for n in 0..times {
        let mut hash = [0; 20];
        hash[..8].copy_from_slice(&n.to_le_bytes());
        let record = Record { name: Name::Hash(hash), body_len: 400, is_marked: true };
        log.push(Some(&delta), &schema, Some(record));
    }
    println!("{:?}", log.counts());
    ExitCode::SUCCESS
}

fn delta(schema: &Schema) -> Delta {
    let (port, switch) = (Uuid::from_u128(1 << 100), Uuid::from_u128(2 << 100));
    let version = |uuid| Datum::One(Atom::Uuid(uuid));
    let ports = TableId(0);
    let insert = RowDelta::Insert(row(port, schema.table(ports)));
    let added = Sorted::from_sorted(vec![Atom::Uuid(port)]);
    let modify = RowDelta::Modify(vec![
        ColumnDelta {
            column: ColumnId::VERSION,
            change: Change::Replace { old: version(port), new: version(switch) },
        },
        ColumnDelta { column: ColumnId(2), change: Change::Set { added, removed: Sorted::new() } },
    ]);
    let of = |table, uuid, row| TableDelta { table, rows: vec![(uuid, row)] };
    Delta { tables: vec![of(ports, port, insert), of(TableId(1), switch, modify)] }
}

/// A row in which nearly all columns have something.
fn row(uuid: Uuid, table: &TableSchema) -> Row {
    let text = |text: &str| Datum::One(Atom::string(text));
    let map = |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter().map(|(key, value)| (Atom::string(key), Atom::string(value)));
        Datum::map(Sorted::from_sorted(pairs.collect()))
    };
    let values = [
        ("name", text("port-000001")),
        ("up", Datum::One(Atom::Boolean(true))),
        ("enabled", Datum::One(Atom::Boolean(true))),
        ("tag", Datum::One(Atom::Integer(4))),
        ("parent", text("port-000000")),
        ("group", Datum::One(Atom::Uuid(Uuid::from_u128(3 << 100)))),
        ("addresses", text("0a:00:00:00:00:01 10.0.0.1")),
        ("options", map(&[("mcast_flood", "true"), ("requested-chassis", "host-1")])),
        ("external_ids", map(&[("neutron:device_id", "6a7b"), ("neutron:revision_number", "4")])),
    ];
    let values = values.map(|(name, value)| (table.column_id(name).expect("see above"), value));
    Row::with_values(uuid, Uuid::ZERO, table, values)
}

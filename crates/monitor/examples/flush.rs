//! The cost of commits and flushes, for a profiler that counts instructions:
//!
//! ```text
//! valgrind --tool=callgrind target/release/examples/flush SCENARIO MONITORS ROUNDS
//! ```
//!
//! The cost of a round is the difference between two runs with different `ROUNDS`. A `SCENARIO` is
//! one of
//!
//! - `set`: one element more in a set of 30,000;
//! - `port`: a port, which is three rows;
//! - `own`: the same, each monitor flushed alone;
//! - `burst`: 20 times the same before everybody is told;
//! - `slow`: the same, and one session never reads;
//! - `conditions`: one row changes, all monitors have conditions of their own, which do not hold;
//! - `matches`: the same, and they do hold;
//! - `herd`: all ask for the initial rows;
//! - `initial`: one asks for the initial rows, 10,000 interfaces.

use std::sync::Arc;

use weir_data::delta::Change;
use weir_data::sorted::Sorted;
use weir_data::{
    Atom, ColumnDelta, ColumnId, Committed, Datum, Delta, Ids, Row, RowDelta, Schema, Store,
    TableDelta, TableId, Uuid,
};
use weir_json::validate_value;
use weir_monitor::{Flushed, MonitorKey, Monitors, Rows, Version};

const SCHEMA: &str = r#"{"name":"D","tables":{
    "Bridge":{"columns":{"name":{"type":"string"},
        "ports":{"type":{"key":"uuid","min":0,"max":"unlimited"}}}},
    "Interface":{"columns":{"name":{"type":"string"},"type":{"type":"string"},
        "external_ids":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}},
        "ofport":{"type":{"key":"integer","min":0,"max":1}},
        "mtu":{"type":{"key":"integer","min":0,"max":1}},
        "options":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}},
        "status":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}},
        "error":{"type":{"key":"string","min":0,"max":1}}}},
    "Port":{"columns":{"name":{"type":"string"},
        "interfaces":{"type":{"key":"uuid","min":0,"max":"unlimited"}},
        "tag":{"type":{"key":"integer","min":0,"max":1}},
        "trunks":{"type":{"key":"integer","min":0,"max":"unlimited"}}}}}}"#;

const BRIDGE: TableId = TableId(0);
const INTERFACE: TableId = TableId(1);
const PORT: TableId = TableId(2);
/// In a table without other columns before it in the alphabet: `_uuid`, `_version`, then these.
const BRIDGE_PORTS: ColumnId = ColumnId(3);
const INTERFACE_NAME: ColumnId = ColumnId(5);
const PORT_NAME: ColumnId = ColumnId(3);

struct World {
    store: Store,
    monitors: Monitors,
    position: u64,
}

impl World {
    fn commit(&mut self, tables: Vec<TableDelta>) {
        let delta = Arc::new(Delta { tables });
        self.store.apply(&delta);
        self.position += 1;
        let committed = Committed { position: self.position, ids: Ids::default(), delta };
        let deltas = [&*committed.delta].into_iter();
        if !self.monitors.pass_over(deltas, &self.store, committed.ids) {
            self.monitors.commit(&committed, self.store.schema());
        }
    }

    fn initial_bytes(&mut self, key: MonitorKey) -> usize {
        let rows = Rows::of_store(&self.store);
        self.monitors.initial(key, rows, u64::MAX).expect("there is no bound").len()
    }

    fn row(&self, table: TableId, n: u64, name: ColumnId) -> RowDelta {
        let mut row = Row::new(uuid(n), uuid(n << 32), self.store.schema().table(table));
        *row.get_mut(name) = Datum::One(Atom::string(&format!("port{n}")));
        RowDelta::Insert(row)
    }

    /// A reference more in the bridge's set.
    fn reference(&self, n: u64) -> RowDelta {
        let version = Change::Replace {
            old: Datum::One(Atom::Uuid(uuid(n))),
            new: Datum::One(Atom::Uuid(uuid(n + 1))),
        };
        let added = Sorted::from_sorted(vec![Atom::Uuid(uuid(1 << 20 | n))]);
        let ports = Change::Set { added, removed: Sorted::new() };
        RowDelta::Modify(vec![
            ColumnDelta { column: ColumnId::VERSION, change: version },
            ColumnDelta { column: BRIDGE_PORTS, change: ports },
        ])
    }

    fn round(&mut self, scenario: &str, n: u64) {
        let bridge = TableDelta { table: BRIDGE, rows: vec![(uuid(1), self.reference(n))] };
        let port = self.row(PORT, n + 2, PORT_NAME);
        let port = TableDelta { table: PORT, rows: vec![(uuid(n + 2), port)] };
        match scenario {
            "set" => self.commit(vec![bridge]),
            "conditions" | "matches" => self.commit(vec![port]),
            _ => {
                let interface = self.row(INTERFACE, n + 2, INTERFACE_NAME);
                let interface =
                    TableDelta { table: INTERFACE, rows: vec![(uuid(n + 2), interface)] };
                self.commit(vec![bridge, interface, port]);
            }
        }
    }
}

fn uuid(n: u64) -> Uuid {
    Uuid::from_u128(u128::from(n))
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |at: usize| args.get(at).and_then(|n| n.parse().ok()).unwrap_or(100);
    let scenario = args.get(1).map_or("port", String::as_str);
    let (n_monitors, rounds) = (number(2), number(3));
    let schema = Schema::parse_bytes(SCHEMA.as_bytes()).expect("a valid schema");
    let mut world =
        World { store: Store::new(Arc::new(schema), 1), monitors: Monitors::new(1), position: 0 };
    let mut bridge = Row::new(uuid(1), uuid(0), world.store.schema().table(BRIDGE));
    let ports = (0..30_000).map(|n| Atom::Uuid(uuid(1 << 40 | n))).collect();
    *bridge.get_mut(BRIDGE_PORTS) = Datum::set(Sorted::from_sorted(ports));
    world.store.insert(BRIDGE, bridge);
    if scenario == "initial" {
        let rows = (2..10_002).map(|n| (uuid(n), world.row(INTERFACE, n, INTERFACE_NAME)));
        let interfaces = TableDelta { table: INTERFACE, rows: rows.collect() };
        world.commit(vec![interfaces]);
    }
    let mut keys = Vec::new();
    for n in 0..n_monitors {
        let requests = match scenario {
            "conditions" => format!(r#"{{"Port":{{"where":[["name","==","port{n}"]]}}}}"#),
            "matches" => format!(r#"{{"Port":{{"where":[["name","!=","{n}"]]}}}}"#),
            _ => String::from(r#"{"Bridge":{},"Interface":{},"Port":{}}"#),
        };
        let requests = validate_value(requests.as_bytes()).expect("JSON");
        let key =
            world.monitors.add(Version::V2, b"[\"m\"]".to_vec(), requests, world.store.schema());
        keys.push(key.expect("a valid request"));
    }
    let mut bytes = 0;
    for n in 0..rounds {
        if scenario == "initial" {
            world.monitors.forget_initial();
            bytes += world.initial_bytes(keys[0]);
            continue;
        }
        if scenario == "herd" {
            bytes += keys.iter().map(|key| world.initial_bytes(*key)).sum::<usize>();
            continue;
        }
        world.round(scenario, n);
        if scenario == "own" {
            for key in &keys {
                let own = world.monitors.flush(&[*key], &world.store, &|_| false, u64::MAX);
                bytes += size(&own);
            }
        }
        if scenario == "burst" && n % 20 != 0 {
            continue;
        }
        let blocked = |key| scenario == "slow" && key == keys[0];
        bytes += size(&world.monitors.flush_all(&world.store, &blocked, u64::MAX, true));
    }
    println!("{bytes} bytes, {:?}", world.monitors.counts());
}

/// Bytes that are sent.
fn size(flushed: &Flushed) -> usize {
    flushed.updates.iter().map(|update| update.to.len() * update.body.len()).sum()
}

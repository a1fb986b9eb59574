//! A table that has lost most of its rows gives up their room, and nobody can tell.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_data::{Datum, Row, Schema, Store, TableId, Uuid, UuidSource};

const SCHEMA: &[u8] = br#"{"name":"d","version":"1.0.0","tables":{"t":{"columns":
    {"name":{"type":"string"}}}}}"#;

const TABLE: TableId = TableId(0);

/// Rows are found where they were, however often the table grows, loses rows and is shrunk.
#[test]
fn rows_keep_their_slots_when_a_table_shrinks() {
    let schema = Arc::new(Schema::parse_bytes(SCHEMA).expect("the schema"));
    let mut random = UuidSource::new([1, 2, 3, 4]);
    let mut store = Store::new(Arc::clone(&schema), 7);
    let mut slots = BTreeMap::new();
    let mut shrunk = 0;
    for round in 0..40 {
        let wanted = [5000, 0, 3000, 10, 700, 4000, 1][round % 7];
        while slots.len() < wanted {
            let uuid = random.next_uuid();
            let values: [(_, Datum); 0] = [];
            let row = Row::with_values(uuid, uuid, &schema.tables[0], values);
            slots.insert(uuid, store.insert(TABLE, row));
        }
        while slots.len() > wanted {
            let from = random.next_uuid();
            let next = slots.range(from..).next().or(slots.first_key_value());
            let uuid = *next.expect("there are more than are wanted").0;
            let (slot, _) = store.remove(TABLE, uuid).expect("the row is there");
            assert_eq!(slots.remove(&uuid), Some(slot));
        }
        let (snapshot, end) = (store.snapshot(), store.table(TABLE).slot_end());
        store.shrink();
        shrunk += u32::from(store.table(TABLE).slot_end() < end);
        assert_eq!(snapshot.rows(TABLE).count(), wanted);
        let table = store.table(TABLE);
        assert_eq!((table.len(), table.iter().count()), (wanted, wanted));
        for (uuid, slot) in &slots {
            assert_eq!(table.slot(*uuid), Some(*slot));
            assert_eq!(table.at(*slot).map(Row::uuid), Some(*uuid));
        }
        let mut found: Vec<Uuid> = table.iter().map(Row::uuid).collect();
        found.sort();
        assert!(found.iter().eq(slots.keys()));
    }
    assert!(shrunk > 5, "nothing was given up: {shrunk}");
}

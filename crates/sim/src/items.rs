//! Rows that are deleted again: items, and the one row that names them by weak references and counts them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use weir_testkit::rng::Rng;

use crate::checks::Items;
use crate::world::World;

/// Items of one client that are there, at most.
const ITEMS_MAX: usize = 20;

/// The items that a client has inserted and not deleted, as far as it was told: their names and ids.
#[derive(Default)]
pub(crate) struct OwnItems(Vec<(String, String)>);

impl OwnItems {
    pub(crate) fn push(&mut self, name: String, id: String) {
        self.0.push((name, id));
    }

    /// One that is to be deleted, if one is.
    pub(crate) fn pick(&mut self, rng: &mut Rng) -> Option<(String, String)> {
        let goes = self.0.len() >= ITEMS_MAX || rng.chance(50);
        (goes && !self.0.is_empty()).then(|| self.0.swap_remove(rng.below(self.0.len())))
    }
}

/// The tables.
pub(crate) fn tables() -> [(&'static str, Value); 2] {
    let ids = json!({"key": {"type": "uuid", "refTable": "Item", "refType": "weak"},
        "min": 0, "max": "unlimited"});
    let list = json!({"items": {"type": ids}, "n": {"type": "integer"}});
    let item = json!({"columns": {"name": {"type": "string"}}, "isRoot": true});
    [("Item", item), ("List", json!({"columns": list, "isRoot": true}))]
}

/// What watchers want to know of the tables.
pub(crate) fn watched(mut tables: Value) -> Value {
    tables["Item"] = json!([{"columns": ["name"]}]);
    tables["List"] = json!([{"columns": ["items", "n"]}]);
    tables
}

/// What inserts the row that names and counts items.
pub(crate) fn insert_list() -> Value {
    json!({"op": "insert", "table": "List", "row": {}})
}

/// What inserts an item, named and counted.
pub(crate) fn insert_item(name: &str) -> Value {
    let insert =
        json!({"op": "insert", "table": "Item", "row": {"name": name}, "uuid-name": "item"});
    let named = json!(["items", "insert", ["named-uuid", "item"]]);
    let list = json!({"op": "mutate", "table": "List", "where": [],
        "mutations": [named, ["n", "+=", 1]]});
    json!(["Sim", insert, list])
}

/// What deletes an item; who is `thorough` takes its name from the others, too.
pub(crate) fn delete_item((name, id): &(String, String), is_thorough: bool) -> Value {
    let delete = json!({"op": "delete", "table": "Item", "where": [["name", "==", name]]});
    let mut mutations = vec![json!(["n", "-=", 1])];
    if is_thorough {
        mutations.push(json!(["items", "delete", ["uuid", id]]));
    }
    let list = json!({"op": "mutate", "table": "List", "where": [], "mutations": mutations});
    json!(["Sim", delete, list])
}

/// What reads all items.
pub(crate) fn read_items() -> Value {
    let select = |table: &str, columns: &[&str]| {
        let columns = json!(columns);
        json!({"op": "select", "table": table, "where": [], "columns": columns})
    };
    json!(["Sim", select("Item", &["_uuid", "name"]), select("List", &["items", "n"])])
}

/// The items that were read.
pub(crate) fn items_in(result: &Value) -> Items {
    let name = |row: &Value| {
        let id = row["_uuid"][1].as_str().expect("an id").to_owned();
        (id, row["name"].as_str().expect("a name").to_owned())
    };
    let names: BTreeMap<String, String> =
        result[0]["rows"].as_array().into_iter().flatten().map(name).collect();
    let list = &result[1]["rows"][0];
    Items { names, list: ids_in(&list["items"]), n: list["n"].as_u64().unwrap_or(0) }
}

/// The ids in a set of them.
pub(crate) fn ids_in(set: &Value) -> BTreeSet<String> {
    let id = |atom: &Value| atom[1].as_str().map(str::to_owned);
    match set[0].as_str() {
        Some("set") => set[1].as_array().into_iter().flatten().filter_map(id).collect(),
        _ => id(set).into_iter().collect(),
    }
}

impl World {
    /// All items of a server, as a client reads them.
    pub(crate) fn items_of(&mut self, n: usize) -> Items {
        items_in(&self.result_of(n, "transact", &read_items()))
    }
}

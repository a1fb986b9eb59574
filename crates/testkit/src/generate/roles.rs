//! Generated roles and permissions (ovsdb-server(7) "RBAC"): tables with owners, who may change
//! what, and transactions that aim at the line between.

use serde_json::{Map, Value, json};

use crate::generate::schema::{Atom, Base, Column, Schema, Table, UNLIMITED};
use crate::rng::Rng;

/// Common names of the certificates that clients come with.
pub const CLIENTS: [&str; 3] = ["alice", "bob", "carol"];

/// Roles that have rows, mostly; [`GHOST`] has none.
pub const ROLES: [&str; 2] = ["controller", "reader"];

/// A role that nobody has made.
pub const GHOST: &str = "ghost";

/// The tables of the rules.
const RULES: [&str; 2] = ["RBAC_Role", "RBAC_Permission"];

/// The schema with columns that say whose a row is.
pub fn owned(mut schema: Schema) -> Schema {
    for table in &mut schema.tables {
        table.columns.extend([
            // What `authorization` may name: a string, and a map of strings.
            column("owner", names(), None, (1, 1)),
            column("ids", keys(), Some(names()), (0, UNLIMITED)),
            // What it may not.
            column("owners", names(), None, (0, UNLIMITED)),
            column("maybe", names(), None, (0, 1)),
        ]);
    }
    schema
}

/// The schema with the tables of roles and permissions.
pub fn ruled(mut schema: Schema, rng: &mut Rng) -> Schema {
    let strings = || Base::plain(Atom::String);
    let mut permission = Base::plain(Atom::Uuid);
    permission.reference = Some(("RBAC_Permission".into(), rng.chance(30)));
    let table = |name: &str, columns| Table {
        name: name.into(),
        columns,
        is_root: true,
        max_rows: None,
        indexes: vec![],
    };
    let any = (0, UNLIMITED);
    schema.tables.push(table(
        RULES[0],
        vec![
            column("name", strings(), None, (1, 1)),
            column("permissions", strings(), Some(permission), any),
        ],
    ));
    let mut columns = vec![
        column("table", strings(), None, (1, 1)),
        column("authorization", strings(), None, any),
        column("insert_delete", Base::plain(Atom::Boolean), None, (1, 1)),
        column("update", strings(), None, any),
    ];
    // Rules that somebody wrote down in another way.
    if rng.chance(10) {
        columns[2].max = UNLIMITED;
    }
    schema.tables.push(table(RULES[1], columns));
    schema
}

fn column(name: &str, key: Base, value: Option<Base>, (min, max): (usize, usize)) -> Column {
    let name = name.to_owned();
    Column { name, key, value, min, max, mutable: true, ephemeral: false }
}

fn listed(words: &[&str]) -> Base {
    let mut base = Base::plain(Atom::String);
    base.constraints = Map::from_iter([("enum".to_owned(), json!(["set", words]))]);
    base
}

fn names() -> Base {
    listed(&["", CLIENTS[0], CLIENTS[1], CLIENTS[2]])
}

fn keys() -> Base {
    listed(&["", "owner", "tenant"])
}

/// Operations that replace all roles and permissions; `schema` is the one with owners.
pub fn grant(rng: &mut Rng, schema: &Schema) -> Vec<Value> {
    let mut ops: Vec<Value> =
        RULES.iter().map(|table| json!({"op": "delete", "table": table, "where": []})).collect();
    for role in ROLES {
        if rng.chance(5) {
            continue;
        }
        let mut permissions = vec![];
        let mut names: Vec<&str> = schema.tables.iter().map(|table| table.name.as_str()).collect();
        names.extend(RULES.iter().filter(|_| rng.chance(25)));
        for (number, name) in names.into_iter().enumerate() {
            if rng.chance(8) {
                continue;
            }
            let uuid = rng.uuid();
            let row = permission(rng, schema, name);
            let table = RULES[1];
            ops.push(json!({"op": "insert", "table": table, "uuid": uuid, "row": row}));
            let key = if rng.chance(3) { format!("nothing{number}") } else { name.to_owned() };
            permissions.push(json!([key, ["uuid", uuid]]));
        }
        let row = json!({"name": role, "permissions": ["map", permissions]});
        ops.push(json!({"op": "insert", "table": RULES[0], "uuid": rng.uuid(), "row": row}));
    }
    ops
}

fn permission(rng: &mut Rng, schema: &Schema, table: &str) -> Value {
    let mut authorization = vec![];
    if rng.chance(55) {
        authorization.push("");
    }
    let ways = [
        "owner",
        "owner",
        "ids:owner",
        "ids:owner",
        "ids:tenant",
        "ids:",
        "ids",
        ":owner",
        "owners",
        "maybe",
        "owner:",
        "owner:x",
        "nothing",
        "nothing:x",
        "_uuid",
        "ids:owner:x",
        ":",
        "::",
    ];
    for _ in 0..rng.weighted(&[10, 40, 35, 15]) {
        let way = *rng.pick(&ways);
        if !authorization.contains(&way) {
            authorization.push(way);
        }
    }
    let most = rng.chance(60);
    let columns = schema.table(table).map_or(&[][..], |table| &table.columns);
    let mut update: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    update.retain(|_| rng.chance(if most { 97 } else { 70 }));
    update.extend(["nothing", "ids:owner", "_uuid"].iter().filter(|_| rng.chance(10)));
    update.extend(["authorization", "name", "table"].iter().filter(|_| columns.is_empty()));
    json!({
        "table": table,
        "authorization": ["set", authorization],
        "insert_delete": rng.chance(85),
        "update": ["set", update],
    })
}

/// Aims a transaction of the generator at the line: rows of `client`, mostly.
pub fn aim(rng: &mut Rng, client: &str, ops: &mut Vec<Value>) {
    // A transaction that changes the rules is a transaction of its own: the reference may go by
    // what the transaction itself has made of them.
    if rng.chance(4) {
        *ops = vec![of_rules(rng)];
        return;
    }
    // COMPAT.md: 3.1.0 takes a mutation of nothing for a mutation.
    ops.retain(|op| op["mutations"].as_array().is_none_or(|list| !list.is_empty()));
    // The more operations, the likelier that one is denied.
    if rng.chance(60) {
        ops.truncate(rng.between(1, 2));
    }
    for op in ops {
        let named = json!(client);
        match op["op"].as_str() {
            Some("insert") if op["row"].is_object() && rng.chance(75) => match rng.below(3) {
                0 => op["row"]["ids"] = json!(["map", [["owner", named]]]),
                _ => op["row"]["owner"] = named,
            },
            Some("update" | "mutate" | "delete") if rng.chance(60) => {
                let clause = match rng.below(4) {
                    0 => json!(["ids", "includes", ["map", [["owner", named]]]]),
                    _ => json!(["owner", "==", named]),
                };
                if let Some(clauses) = op["where"].as_array_mut() {
                    clauses.push(clause);
                }
            }
            _ => {}
        }
    }
}

fn of_rules(rng: &mut Rng) -> Value {
    let table = *rng.pick(&RULES);
    let column = if table == RULES[0] { "name" } else { "authorization" };
    match rng.below(5) {
        0 => json!({"op": "delete", "table": table, "where": []}),
        1 => json!({"op": "insert", "table": table, "uuid": rng.uuid(), "row": {}}),
        2 => json!({"op": "update", "table": table, "where": [], "row": {column: "owner"}}),
        3 => json!({"op": "mutate", "table": RULES[1], "where": [],
            "mutations": [["authorization", "insert", ""]]}),
        _ => json!({"op": "select", "table": table, "where": []}),
    }
}

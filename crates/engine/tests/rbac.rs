//! Role-based access control, as in a database of OVN: which operations a role's client may run.

use std::sync::Arc;

use weir_data::{Schema, UuidSource};
use weir_engine::{Client, Database, Env, Outcome, execute};

const SCHEMA: &str = r#"{"name":"T","tables":{
"RBAC_Role":{"isRoot":true,"columns":{"name":{"type":"string"},"permissions":{"type":{"key":
    "string","value":{"type":"uuid","refTable":"RBAC_Permission"},"min":0,"max":"unlimited"}}}},
"RBAC_Permission":{"columns":{"table":{"type":"string"},"insert_delete":{"type":"boolean"},
    "authorization":{"type":{"key":"string","min":0,"max":"unlimited"}},
    "update":{"type":{"key":"string","min":0,"max":"unlimited"}}}},
"Chassis":{"isRoot":true,"columns":{"name":{"type":"string"},"x":{"type":"integer"},
    "y":{"type":"integer"},"ids":{"type":{"key":"string","value":"string","min":0,
    "max":"unlimited"}}}},
"Other":{"isRoot":true,"columns":{"name":{"type":"string"}}}}}"#;

/// A role whose clients may insert and delete chassis of their own and change `x`.
const ROLE: &str = r#"{"op":"insert","table":"RBAC_Permission","uuid-name":"p","row":{
    "table":"Chassis","authorization":["set",["name","ids:owner"]],"insert_delete":true,
    "update":"x"}},
    {"op":"insert","table":"RBAC_Role","row":{"name":"controller",
    "permissions":["map",[["Chassis",["named-uuid","p"]]]]}}"#;

const CHASSIS: &str = r#"
    {"op":"insert","table":"Chassis","row":{"name":"alice"}},
    {"op":"insert","table":"Chassis","row":{"name":"bob"}},
    {"op":"insert","table":"Chassis","row":{"name":"carol","ids":["map",[["owner","alice"]]]}}"#;

struct World {
    db: Database,
    uuids: UuidSource,
}

impl World {
    fn new() -> Self {
        let schema = Schema::parse_bytes(SCHEMA.as_bytes()).unwrap();
        let mut world =
            Self { db: Database::new(Arc::new(schema), 7), uuids: UuidSource::new([1, 2, 3, 4]) };
        world.run(Client::default(), &format!("{ROLE},{CHASSIS}"));
        world
    }

    /// The reply to a transaction, a JSON array.
    fn run(&mut self, client: Client<'_>, operations: &str) -> String {
        let array = format!("[{operations}]");
        let array = weir_json::validate(array.as_bytes()).unwrap();
        let operations: Vec<_> = array.elements().unwrap().collect();
        let mut env = Env { client, ..Env::new(&mut self.uuids) };
        match execute(&mut self.db, &operations, &mut env) {
            Outcome::Done(done) => String::from_utf8(done.reply).unwrap(),
            Outcome::Wait { .. } | Outcome::TooLong { .. } => panic!("nothing waits here"),
        }
    }

    fn alice(&mut self, operations: &str) -> String {
        self.run(Client { role: "controller", id: Some("alice") }, operations)
    }
}

fn refusal(what: &str) -> String {
    format!(
        r#"[{{"details":"RBAC rules for client \"alice\" role \"controller\" prohibit {what}.","error":"permission error"}}]"#
    )
}

const COUNT_1: &str = r#"[{"count":1}]"#;
const COUNT_0: &str = r#"[{"count":0}]"#;

#[test]
fn a_client_changes_its_own_rows_in_permitted_columns() {
    let mut world = World::new();
    let update = |name: &str, row: &str| {
        format!(
            r#"{{"op":"update","table":"Chassis","where":[["name","==","{name}"]],"row":{row}}}"#
        )
    };
    let refused = refusal(r#"modification of table \"Chassis\""#);
    assert_eq!(world.alice(&update("alice", r#"{"x":1}"#)), COUNT_1);
    assert_eq!(world.alice(&update("carol", r#"{"x":1}"#)), COUNT_1);
    assert_eq!(world.alice(&update("bob", r#"{"x":1}"#)), refused);
    assert_eq!(world.alice(&update("alice", r#"{"y":1}"#)), refused);
    assert_eq!(world.alice(&update("alice", r#"{"x":1,"y":1}"#)), refused);
    // No row, nothing to prohibit.
    assert_eq!(world.alice(&update("nobody", r#"{"y":1}"#)), COUNT_0);
}

#[test]
fn a_client_inserts_and_deletes_its_own_rows() {
    let mut world = World::new();
    let insert =
        |name: &str| format!(r#"{{"op":"insert","table":"Chassis","row":{{"name":"{name}"}}}}"#);
    let delete =
        |condition: &str| format!(r#"{{"op":"delete","table":"Chassis","where":[{condition}]}}"#);
    assert!(world.alice(&insert("alice")).starts_with(r#"[{"uuid":"#));
    assert_eq!(world.alice(&insert("bob")), refusal(r#"row insertion into table \"Chassis\""#));
    assert_eq!(world.alice(&delete("")), refusal(r#"row deletion from table \"Chassis\""#));
    assert_eq!(world.alice(&delete(r#"["name","==","carol"]"#)), COUNT_1);
    let other = r#"{"op":"insert","table":"Other","row":{}}"#;
    assert_eq!(world.alice(other), refusal(r#"row insertion into table \"Other\""#));
}

#[test]
fn mutations_are_restricted_and_counting_by_none_is_not() {
    let mut world = World::new();
    let mutate = |mutations: &str| {
        format!(r#"{{"op":"mutate","table":"Chassis","where":[],"mutations":[{mutations}]}}"#)
    };
    let refused = refusal(r#"mutate operation on table \"Chassis\""#);
    assert_eq!(world.alice(&mutate(r#"["x","+=",1]"#)), refused);
    assert_eq!(world.alice(&mutate("")), r#"[{"count":3}]"#);
    let own = r#"{"op":"mutate","table":"Chassis","where":[["name","==","alice"]],
        "mutations":[["x","+=",1],["x","*=",2]]}"#;
    assert_eq!(world.alice(own), COUNT_1);
}

#[test]
fn without_role_or_certificate() {
    let mut world = World::new();
    let delete = r#"{"op":"delete","table":"Chassis","where":[["name","==","bob"]]}"#;
    let reply = world.run(Client { role: "controller", id: None }, delete);
    assert!(reply.contains(r#"RBAC rules for client \"(null)\" role"#), "{reply}");
    let reply = world.run(Client { role: "nobody", id: Some("bob") }, delete);
    assert!(reply.contains("permission error"), "{reply}");
    assert_eq!(world.run(Client { role: "", id: Some("bob") }, delete), COUNT_1);
}

#[test]
fn a_transaction_cannot_give_itself_rights() {
    let mut world = World::new();
    // A role that may do anything to permissions.
    let grant = r#"{"op":"insert","table":"RBAC_Permission","uuid-name":"p","row":{
        "table":"RBAC_Permission","authorization":"","insert_delete":true,
        "update":["set",["update","authorization"]]}},
        {"op":"mutate","table":"RBAC_Role","where":[],"mutations":[["permissions","insert",
        ["map",[["RBAC_Permission",["named-uuid","p"]]]]]]}"#;
    world.run(Client::default(), grant);
    let widen = r#"{"op":"update","table":"RBAC_Permission","where":[["table","==","Chassis"]],
        "row":{"authorization":""}}"#;
    let use_it = r#"{"op":"delete","table":"Chassis","where":[]}"#;
    let reply = world.alice(&format!("{widen},{use_it}"));
    assert!(reply.contains("row deletion from table"), "{reply}");
    // What is committed counts from the next transaction on.
    assert_eq!(world.alice(widen), COUNT_1);
    assert_eq!(world.alice(use_it), r#"[{"count":3}]"#);
}

#[test]
fn who_waits_depends_on_what_the_role_may_do() {
    let mut world = World::new();
    let wait =
        r#"[{"op":"wait","table":"Other","where":[],"columns":["name"],"until":"!=","rows":[]}]"#;
    let wait = weir_json::validate(wait.as_bytes()).unwrap();
    let operations: Vec<_> = wait.elements().unwrap().collect();
    let mut tables = |role: &'static str| {
        let client = Client { role, id: Some("alice") };
        let mut env = Env { client, ..Env::new(&mut world.uuids) };
        let outcome = execute(&mut world.db, &operations, &mut env);
        let Outcome::Wait { reads, .. } = outcome else { panic!("it waits") };
        let schema = world.db.schema();
        let name = |read: &weir_engine::reads::Read| schema.table(read.table).name.clone();
        reads.rows.iter().map(name).collect::<Vec<String>>()
    };
    assert_eq!(tables(""), ["Other"]);
    assert_eq!(tables("controller"), ["RBAC_Permission", "RBAC_Role", "Other"]);
}

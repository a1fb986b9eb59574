//! What clients of a relay may do that have less than all rights: the source does not know them, and makes whatever
//! the relay asks for.

use crate::chain::Chain;
use crate::shell::{Shell, insert, ports};
use serde_json::{Value, json};
use weir_data::Schema;
use weir_log::standalone;
use weir_server::Config;
use weir_server::event::{Event, SessionId};

const CONFIG: &str = "/relay.json";
/// May change the ports that are called as its certificate.
const CONTROLLER: &str = "punix:/controller";
const READER: &str = "punix:/reader";
/// The first by its name, through which relays come as well.
const FREE: &str = "punix:/admin";

/// A source whose roles have rules.
fn source() -> Shell {
    let schema = r#"{"name":"Net","version":"1.0.0","tables":{
        "Port":{"isRoot":true,"columns":{"name":{"type":"string"},
            "tags":{"type":{"key":"string","min":0,"max":"unlimited"}}},"indexes":[["name"]]},
        "RBAC_Role":{"isRoot":true,"columns":{"name":{"type":"string"},"permissions":{"type":
            {"key":"string","value":{"type":"uuid","refTable":"RBAC_Permission"},"min":0,"max":"unlimited"}}}},
        "RBAC_Permission":{"isRoot":true,"columns":{"table":{"type":"string"},
            "authorization":{"type":{"key":"string","min":0,"max":"unlimited"}},
            "insert_delete":{"type":"boolean"},
            "update":{"type":{"key":"string","min":0,"max":"unlimited"}}}}}}"#;
    let mut file = Vec::new();
    standalone::write_schema(&mut file, &Schema::parse_bytes(schema.as_bytes()).expect("a schema"));
    let mut source = Shell::start_on(file);
    let client = source.connect();
    let rules = r#"{"op":"insert","table":"RBAC_Permission","uuid-name":"p","row":{"table":"Port",
            "authorization":"name","insert_delete":true,"update":"tags"}},
        {"op":"insert","table":"RBAC_Role","row":{"name":"controller","permissions":
            ["map",[["Port",["named-uuid","p"]]]]}}"#;
    let both = [insert("mine"), insert("other")].join(",");
    let reply = source.call(client, &crate::shell::transact(1, &format!("{rules},{both}")));
    assert!(!reply.contains("details"), "{reply}");
    source
}

/// A relay of the server of this number, with a remote of each kind.
fn relay(of: usize) -> Shell {
    let configuration = json!({
        "remotes": {FREE: null, CONTROLLER: {"role":"controller"}, READER: {"read-only":true}},
        "databases": {"Net": {"service-model":"relay","source":{format!("unix:/server{of}"): null}}}});
    let files = [(CONFIG.to_owned(), configuration.to_string().into_bytes())].into();
    let config = Config { config_file: Some(CONFIG.to_owned()), ..Config::default() };
    Shell::start_on_files(format!("relay of {of}").into_bytes(), files, config)
}

struct Client {
    at: usize,
    session: SessionId,
}

impl Client {
    /// A client through this remote, with a certificate.
    fn new(chain: &mut Chain, at: usize, target: &str) -> Self {
        let shell = &mut chain.servers[at];
        let (&remote, _) =
            shell.remotes.iter().find(|(_, open)| *open == target).expect("the remote is there");
        let session = SessionId(7000 + remote.0);
        let (name, client) = (format!("ssl:{target}"), Some("mine".to_owned()));
        shell.event(Event::Accepted { session, remote, name, client });
        chain.settle();
        Self { at, session }
    }

    fn call(&self, chain: &mut Chain, method: &str, params: &Value) -> Value {
        let request = json!({"id":1,"method":method,"params":params});
        let reply = chain.call(self.at, self.session, &request.to_string());
        serde_json::from_str(reply.last().expect("a reply")).expect("JSON")
    }

    /// The results of an operation under an id, sent for the first time or again.
    fn run(&self, chain: &mut Chain, (id, since): (u32, &Value), operation: &Value) -> Value {
        let id = format!("{id:08x}-1111-4111-8111-111111111111");
        let params = json!(["Net", {"id": id, "since": since}, operation]);
        let mut reply = self.call(chain, "weir_transact", &params);
        assert_eq!(reply["error"], Value::Null, "{reply}");
        reply["result"]["results"].take()
    }

    fn state(&self, chain: &mut Chain) -> Value {
        self.call(chain, "weir_transact", &json!(["Net", {}]))["result"]["id"].take()
    }
}

fn tag(name: &str) -> Value {
    json!({"op":"update","table":"Port","where":[["name","==",name]],"row":{"tags":"x"}})
}

fn delete(name: &str) -> Value {
    json!({"op":"delete","table":"Port","where":[["name","==",name]]})
}

#[test]
fn an_id_gives_a_client_of_a_relay_no_rights() {
    for relays in 1..=2 {
        let mut chain =
            Chain::joined(std::iter::once(source()).chain((0..relays).map(relay)).collect());
        let controller = Client::new(&mut chain, relays, CONTROLLER);
        let reader = Client::new(&mut chain, relays, READER);
        let since = controller.state(&mut chain);
        let grant =
            json!({"op":"update","table":"RBAC_Permission","where":[],"row":{"authorization":""}});
        let all =
            json!({"op":"mutate","table":"Port","where":[],"mutations":[["tags","insert","y"]]});
        let foreign = json!({"op":"insert","table":"Port","row":{"name":"third"}});
        let refused = [tag("other"), delete("other"), grant, all, foreign];
        for (id, operation) in (1..).zip(&refused) {
            // As often as it is asked for.
            for _ in 0..2 {
                let results = controller.run(&mut chain, (id, &since), operation);
                assert_eq!(results[0]["error"], "permission error", "{operation}: {results}");
            }
        }
        for (id, operation) in (11..).zip([tag("mine"), tag("other")]) {
            let results = reader.run(&mut chain, (id, &since), &operation);
            assert_eq!(results[0]["error"], "not allowed", "{operation}: {results}");
        }
        assert_eq!(ports(&mut chain.servers[0]), ["mine", "other"]);
        let free = Client::new(&mut chain, relays, FREE);
        let select = json!(["Net", {"op":"select","table":"Port","where":[],"columns":["tags"]}]);
        let reply = free.call(&mut chain, "transact", &select);
        // Rows that are equal in what is asked for come once.
        assert_eq!(reply["result"][0]["rows"], json!([{"tags":["set",[]]}]));
    }
}

#[test]
fn what_a_client_with_a_role_has_made_under_an_id_is_known_when_it_asks_again() {
    for relays in 1..=2 {
        let mut chain =
            Chain::joined(std::iter::once(source()).chain((0..relays).map(relay)).collect());
        let controller = Client::new(&mut chain, relays, CONTROLLER);
        let since = controller.state(&mut chain);
        assert_eq!(controller.run(&mut chain, (1, &since), &tag("mine")), json!([{"count":1}]));
        assert_eq!(controller.run(&mut chain, (2, &since), &delete("mine")), json!([{"count":1}]));
        // Both would change nothing.
        for (id, operation) in [(1, tag("mine")), (2, delete("mine"))] {
            assert_eq!(controller.run(&mut chain, (id, &since), &operation), Value::Null);
        }
        // What changes nothing was not made.
        assert_eq!(controller.run(&mut chain, (3, &since), &delete("mine")), json!([{"count":0}]));
        assert_eq!(ports(&mut chain.servers[0]), ["other"]);
    }
}

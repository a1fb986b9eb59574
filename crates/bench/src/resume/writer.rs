//! Who changes the database while clients are away, and what each change is to those who see it.

use serde_json::{Value, json};

use super::clients::MONITOR;
use crate::Error;
use crate::client::Client;
use crate::error::fail;
use crate::large::DB;
use crate::running::Running;

/// Flows below this priority go one by one: a twentieth of those that `make-db` writes.
const PRIORITY: usize = 1_100;
/// The tables that change.
const CHANGED: [&str; 2] = ["Logical_Flow", "Port_Binding"];

/// Changes as `ovn-northd` makes them: a flow comes, an older one goes, a port is told something.
pub(super) struct Writer {
    /// Ports and the datapaths that they are of.
    ports: Vec<(Value, Value)>,
    /// Flows that are to go.
    flows: Vec<Value>,
    last_flow: Value,
    made: usize,
}

impl Writer {
    /// Looks at what there is to change.
    pub(super) fn find(running: &Running) -> Result<Self, Error> {
        let ports = json!({"op": "select", "table": "Port_Binding", "where": [],
            "columns": ["_uuid", "datapath"]});
        let flows = json!({"op": "select", "table": "Logical_Flow",
            "where": [["priority", "<", PRIORITY]], "columns": ["_uuid"]});
        let mut client = Client::connect(&running.target)?;
        let mut results = client.transact(&json!([DB, ports, flows]))?.into_iter();
        let mut rows = || match results.next().map(|mut result| result["rows"].take()) {
            Some(Value::Array(rows)) => rows,
            _ => Vec::new(),
        };
        let mut ports: Vec<_> = rows()
            .into_iter()
            .map(|mut row| (row["_uuid"].take(), row["datapath"].take()))
            .collect();
        let mut flows: Vec<_> = rows().into_iter().map(|mut row| row["_uuid"].take()).collect();
        if ports.is_empty() {
            fail!("no port to change");
        }
        // Each server is changed alike.
        ports.sort_by_key(|(port, _)| port.to_string());
        flows.sort_by_key(Value::to_string);
        Ok(Self { ports, flows, last_flow: Value::Null, made: 0 })
    }

    /// Makes changes, each a transaction; returns how many bytes they are to a client that watches
    /// and receives each in a message of its own.
    pub(super) fn change(&mut self, running: &Running, count: usize) -> Result<usize, Error> {
        let mut client = Client::connect(&running.target)?;
        let mut witness = Client::connect(&running.target)?;
        let requests: serde_json::Map<String, Value> = CHANGED
            .iter()
            .map(|&table| (table.to_owned(), json!([{"select": {"initial": false}}])))
            .collect();
        let params = json!([DB, MONITOR, requests, super::clients::NOTHING]);
        witness.call("monitor_cond_since", &params)?;
        let mut bytes = 0;
        for _ in 0..count {
            let results = client.transact(&self.transaction())?;
            self.last_flow = results.first().map(|r| r["uuid"].clone()).unwrap_or_default();
            let update = witness.exchange(&[])?;
            if memchr::memmem::find(update, br#""update3""#).is_none() {
                fail!("a change was told as {}", super::clip(&String::from_utf8_lossy(update)));
            }
            bytes += update.len();
        }
        Ok(bytes)
    }

    /// The uuid of the flow that came last.
    pub(super) fn last_flow(&self) -> &str {
        self.last_flow[1].as_str().unwrap_or("")
    }

    fn transaction(&mut self) -> Value {
        let n = self.made;
        self.made += 1;
        let (port, datapath) = &self.ports[n * 37 % self.ports.len()];
        let (a, b) = (n / 250 % 250, n % 250);
        let flow = json!({
            "logical_datapath": datapath, "pipeline": "ingress", "table_id": 22, "priority": 50,
            "match": format!("arp.tpa == 10.128.{a}.{b} && arp.op == 1"),
            "actions": format!("eth.dst = eth.src; eth.src = 0a:58:0a:80:{a:02x}:{b:02x}; \
                arp.op = 2; arp.tha = arp.sha; arp.tpa = arp.spa; arp.spa = 10.128.{a}.{b}; \
                outport = inport; flags.loopback = 1; output;"),
            "external_ids": ["map", [["source", "weir-bench"], ["stage-name", "ls_in_arp_rsp"]]],
        });
        let mutations = json!([
            ["external_ids", "delete", ["set", ["weir-bench"]]],
            ["external_ids", "insert", ["map", [["weir-bench", format!("change {n}")]]]],
        ]);
        let mut operations = vec![
            json!(DB),
            json!({"op": "insert", "table": "Logical_Flow", "row": flow}),
            json!({"op": "mutate", "table": "Port_Binding", "where": [["_uuid", "==", port]],
                "mutations": mutations}),
        ];
        if let Some(old) = self.flows.pop() {
            operations.push(json!({"op": "delete", "table": "Logical_Flow",
                "where": [["_uuid", "==", old]]}));
        }
        Value::Array(operations)
    }
}

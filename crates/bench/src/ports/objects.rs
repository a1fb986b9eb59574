//! The rows of the ports scenario: the messages that add and remove them, and what a monitor's
//! copy must hold after each phase.

use std::io::Write;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::DB;
use crate::Error;
use crate::client::{Client, Target};
use crate::error::fail;
use crate::replica::{Datum, Replica};
use crate::watch::Marker;

pub(super) const SWITCHES: usize = 100;
/// How long a member may take to learn of a transaction, and how often it is asked.
const PATIENCE: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(5);

/// A phase of the scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    PortAdd,
    LbAdd,
    PortDelete,
    LbDelete,
}

pub(super) const STEPS: [Step; 4] = [Step::PortAdd, Step::LbAdd, Step::PortDelete, Step::LbDelete];

impl Step {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::PortAdd => "port add",
            Self::LbAdd => "LB add",
            Self::PortDelete => "port delete",
            Self::LbDelete => "LB delete",
        }
    }

    pub(super) fn marker(self) -> Marker {
        match self {
            Self::PortAdd | Self::LbAdd => Marker::Insert,
            Self::PortDelete | Self::LbDelete => Marker::Delete,
        }
    }

    /// Operations of a transaction that answer with a count of one row.
    pub(super) fn counts(self) -> usize {
        if self == Self::LbAdd { 1 } else { 2 }
    }
}

/// What exists in the database.
#[derive(Default)]
pub(super) struct Objects {
    pub(super) switches: Vec<String>,
    pub(super) group: String,
    pub(super) address_set: String,
    pub(super) ports: Vec<String>,
    pub(super) lbs: Vec<String>,
}

/// Address of port or load balancer `i`; all are different up to 4 million.
fn address(i: usize) -> String {
    format!("10.{}.{}.{}", 128 + (i >> 16 & 63), i >> 8 & 255, i & 255)
}

fn port_name(i: usize) -> String {
    format!("namespace-{:03}_pod-{i:06}", i % SWITCHES)
}

fn lb_name(i: usize) -> String {
    format!("Service_namespace-{:03}/service-{i:06}_TCP_cluster", i % SWITCHES)
}

impl Objects {
    /// Creates what the phases presuppose.
    pub(super) fn create(&mut self, control: &mut Client, floor: bool) -> Result<(), Error> {
        let mut params = vec![json!(DB)];
        let mut insert = |table: &str, name: String| {
            params.push(json!({"op": "insert", "table": table, "row": {"name": name}}));
        };
        (0..SWITCHES).for_each(|n| insert("Logical_Switch", format!("node-{n:03}")));
        insert("Load_Balancer_Group", "clusterLBGroup".into());
        insert("Address_Set", "a_cluster_pods".into());
        let mut uuids: Vec<String> = if floor {
            vec!["00000000-0000-4000-8000-000000000000".into(); SWITCHES + 2]
        } else {
            let results = control.transact(&Value::Array(params))?;
            let uuid = |result: &Value| result["uuid"][1].as_str().unwrap_or_default().to_owned();
            results.iter().map(uuid).collect()
        };
        self.address_set = uuids.pop().unwrap_or_default();
        self.group = uuids.pop().unwrap_or_default();
        self.switches = uuids;
        Ok(())
    }

    /// Appends transaction `i` of a phase; `known` has the uuids of the rows that exist.
    pub(super) fn request(&self, step: Step, i: usize, known: &[String], out: &mut Vec<u8>) {
        let _ = write!(out, r#"{{"id":{i},"method":"transact","params":["{DB}","#);
        let (address, set, group) = (address(i), &self.address_set, &self.group);
        let switch = &self.switches[i % SWITCHES];
        let (name, node) = (port_name(i), i % SWITCHES);
        let mac = format!("0a:58:0a:{:02x}:{:02x}:{:02x}", i >> 16 & 255, i >> 8 & 255, i & 255);
        let _ = match step {
            Step::PortAdd => write!(
                out,
                concat!(
                    r#"{{"op":"insert","table":"Logical_Switch_Port","uuid-name":"port","row":{{"#,
                    r#""name":"{}","addresses":"{} {}","port_security":"{} {}","#,
                    r#""options":["map",[["requested-chassis","node-{:03}"]]],"#,
                    r#""external_ids":["map",[["namespace","namespace-{:03}"],["pod","true"]]]}}}},"#,
                    r#"{{"op":"mutate","table":"Logical_Switch","where":[["_uuid","==",["uuid","{}"]]],"#,
                    r#""mutations":[["ports","insert",["named-uuid","port"]]]}},"#,
                    r#"{{"op":"mutate","table":"Address_Set","where":[["_uuid","==",["uuid","{}"]]],"#,
                    r#""mutations":[["addresses","insert","{}"]]}}]}}"#
                ),
                name, mac, address, mac, address, node, node, switch, set, address
            ),
            Step::LbAdd => write!(
                out,
                concat!(
                    r#"{{"op":"insert","table":"Load_Balancer","uuid-name":"lb","row":{{"#,
                    r#""name":"{}","protocol":"tcp","vips":["map",[["{}:80","{}:8080"]]],"#,
                    r#""options":["map",[["event","false"],["reject","true"]]]}}}},"#,
                    r#"{{"op":"mutate","table":"Load_Balancer_Group","#,
                    r#""where":[["_uuid","==",["uuid","{}"]]],"#,
                    r#""mutations":[["load_balancer","insert",["named-uuid","lb"]]]}}]}}"#
                ),
                lb_name(i),
                address,
                address,
                group
            ),
            Step::PortDelete => write!(
                out,
                concat!(
                    r#"{{"op":"mutate","table":"Logical_Switch","where":[["_uuid","==",["uuid","{}"]]],"#,
                    r#""mutations":[["ports","delete",["uuid","{}"]]]}},"#,
                    r#"{{"op":"mutate","table":"Address_Set","where":[["_uuid","==",["uuid","{}"]]],"#,
                    r#""mutations":[["addresses","delete","{}"]]}}]}}"#
                ),
                switch, known[i], set, address
            ),
            Step::LbDelete => write!(
                out,
                concat!(
                    r#"{{"op":"mutate","table":"Load_Balancer_Group","#,
                    r#""where":[["_uuid","==",["uuid","{}"]]],"#,
                    r#""mutations":[["load_balancer","delete",["uuid","{}"]]]}},"#,
                    r#"{{"op":"delete","table":"Load_Balancer","where":[["_uuid","==",["uuid","{}"]]]}}]}}"#
                ),
                group, known[i], known[i]
            ),
        };
    }

    /// Checks a monitor's copy after a phase: exactly the rows that the replies promised, and
    /// exactly the references and addresses that belong to them.
    pub(super) fn check(&self, step: Step, replica: &Replica) -> Result<(), Error> {
        let present = step.marker() == Marker::Insert;
        let (table, uuids) = match step {
            Step::PortAdd | Step::PortDelete => ("Logical_Switch_Port", &self.ports),
            Step::LbAdd | Step::LbDelete => ("Load_Balancer", &self.lbs),
        };
        let rows = replica.tables.get(table);
        let expected = if present { uuids.len() } else { 0 };
        let found = rows.map_or(0, |rows| rows.len());
        if found != expected {
            fail!("{table}: a monitor's copy has {found} rows of {expected}");
        }
        let references = |table: &str, uuid: &str, column: &str| match replica
            .tables
            .get(table)
            .and_then(|rows| rows.get(uuid)?.get(column))
        {
            Some(Datum::Set(elements)) => Some(elements),
            _ => None,
        };
        let mut total = [0, 0];
        for (i, uuid) in uuids.iter().enumerate() {
            let reference = format!(r#"["uuid","{uuid}"]"#);
            let (name, sets) = match step {
                Step::PortAdd | Step::PortDelete => (
                    port_name(i),
                    [
                        references("Logical_Switch", &self.switches[i % SWITCHES], "ports")
                            .is_some_and(|set| set.contains(&reference)),
                        references("Address_Set", &self.address_set, "addresses")
                            .is_some_and(|set| set.contains(&format!("\"{}\"", address(i)))),
                    ],
                ),
                Step::LbAdd | Step::LbDelete => {
                    let there = references("Load_Balancer_Group", &self.group, "load_balancer")
                        .is_some_and(|set| set.contains(&reference));
                    (lb_name(i), [there, there])
                }
            };
            let wanted = Datum::Scalar(format!("\"{name}\""));
            let named = rows.and_then(|rows| rows.get(uuid)?.get("name")) == Some(&wanted);
            if named != present || sets != [present; 2] {
                fail!("{}: a monitor's copy is wrong about row {uuid}, {name}", step.name());
            }
            total[0] += usize::from(sets[0]);
            total[1] += usize::from(sets[1]);
        }
        if total != [expected; 2] {
            fail!("{}: a monitor's copy has {total:?} references", step.name());
        }
        Ok(())
    }
}

/// Waits until another member of a cluster has what the phases presuppose.
pub(super) fn await_at(target: &Target) -> Result<(), Error> {
    let mut client = Client::connect(target)?;
    let select = json!([DB, {"op": "select", "table": "Address_Set", "where": []}]);
    let start = Instant::now();
    while client.transact(&select)?[0]["rows"].as_array().is_none_or(Vec::is_empty) {
        if start.elapsed() > PATIENCE {
            fail!("{target} does not learn of the first transaction");
        }
        std::thread::sleep(STEP);
    }
    Ok(())
}

/// Checks that transaction `i` did everything it should.
pub(super) fn check_reply(i: usize, reply: &[u8], counts: usize) -> Result<(), Error> {
    let text = std::str::from_utf8(reply).unwrap_or("(not UTF-8)");
    let id = format!(r#""id":{i}"#);
    let found = text
        .match_indices(&id)
        .any(|(at, _)| matches!(text.as_bytes().get(at + id.len()), Some(b',' | b'}')));
    if !found || text.matches(r#"{"count":1}"#).count() != counts || text.contains(r#""error":{"#) {
        fail!("transaction {i} was answered {text}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::uuid_in;

    #[test]
    fn every_request_is_one_json_message_of_its_kind() {
        let uuid = "01234567-89ab-4cde-8f01-23456789abcd".to_owned();
        let objects = Objects {
            switches: vec![uuid.clone(); SWITCHES],
            group: uuid.clone(),
            address_set: uuid.clone(),
            ..Objects::default()
        };
        let known = vec![uuid; 8];
        for step in STEPS {
            let mut out = Vec::new();
            objects.request(step, 7, &known, &mut out);
            let request: Value = serde_json::from_slice(&out).unwrap();
            assert_eq!(request["id"], 7);
            let operations = request["params"].as_array().unwrap().len() - 1;
            let inserts = usize::from(step.marker() == Marker::Insert);
            assert_eq!(operations, step.counts() + inserts, "{step:?}");
        }
    }

    #[test]
    fn replies_are_checked() {
        let good = br#"{"error":null,"id":3,"result":[{"uuid":["uuid","01234567-89ab-4cde-8f01-23456789abcd"]},{"count":1},{"count":1}]}"#;
        assert!(check_reply(3, good, 2).is_ok());
        assert_eq!(uuid_in(good).unwrap(), "01234567-89ab-4cde-8f01-23456789abcd");
        assert!(check_reply(3, good, 1).is_err(), "another number of counts");
        assert!(check_reply(33, good, 2).is_err(), "another id");
        let bad = br#"{"error":null,"id":3,"result":[{"count":1},{"count":0}]}"#;
        assert!(check_reply(3, bad, 2).is_err());
        assert!(uuid_in(bad).is_err());
    }

    #[test]
    fn addresses_differ() {
        let all: std::collections::BTreeSet<_> = (0..200_000).map(address).collect();
        assert_eq!(all.len(), 200_000);
    }
}

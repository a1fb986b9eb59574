//! `weir bench ports`: ports and load balancers come and go in OVN_Northbound.
//!
//! The scenario of the talk "OVSDB: Performance and Scale Journey '21", with persistent
//! connections: a hundred switches, one load balancer group and one address set exist; writers
//! add ports (each to its switch, its address to the one set), add load balancers (each to the
//! one group), and remove all of them, while every monitor watches everything.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use crate::Error;
use crate::args::Args;
use crate::client::{Client, Stream, Target};
use crate::dbfile;
use crate::drive::{DRAIN_EVERY, Driver, Load, Outcome};
use crate::error::fail;
use crate::peer::{Peer, Peers, Running};
use crate::procfs;
use crate::replica::{Datum, Replica};
use crate::report::{Figures, Metric, Report};
use crate::stats::Latencies;
use crate::watch::{Marker, UUID_LEN, Watch, uuid_hash};

/// The database of the scenario.
pub(crate) const DB: &str = "OVN_Northbound";
const SCHEMA: &str = "/usr/share/ovn/ovn-nb.ovsschema";
const SWITCHES: usize = 100;
/// Bytes a transaction in the update and in the file, where no server of this run showed them.
const USUAL_SIZES: (u64, u64) = (450, 450);

struct Config {
    rows: usize,
    writers: usize,
    monitors: usize,
    cycles: usize,
    rate: Option<f64>,
    drain_every: Duration,
    schema: Value,
}

/// A phase of the scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    PortAdd,
    LbAdd,
    PortDelete,
    LbDelete,
}

const STEPS: [Step; 4] = [Step::PortAdd, Step::LbAdd, Step::PortDelete, Step::LbDelete];

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::PortAdd => "port add",
            Self::LbAdd => "LB add",
            Self::PortDelete => "port delete",
            Self::LbDelete => "LB delete",
        }
    }

    fn marker(self) -> Marker {
        match self {
            Self::PortAdd | Self::LbAdd => Marker::Insert,
            Self::PortDelete | Self::LbDelete => Marker::Delete,
        }
    }

    /// Operations of a transaction that answer with a count of one row.
    fn counts(self) -> usize {
        if self == Self::LbAdd { 1 } else { 2 }
    }
}

/// Runs the command.
pub(crate) fn command(args: &[String]) -> Result<ExitCode, Error> {
    let mut args = Args::new(args);
    let peers = Peers::from_args(&mut args)?;
    let schema = args.text("--schema")?.unwrap_or_else(|| SCHEMA.into());
    let config = Config {
        rows: args.value("--rows")?.unwrap_or(30_000).max(1),
        writers: args.value("--writers")?.unwrap_or(50).max(1),
        monitors: args.value("--monitors")?.unwrap_or(100),
        cycles: args.value("--cycles")?.unwrap_or(1).max(1),
        rate: args.value("--rate")?.filter(|&rate: &f64| rate > 0.0),
        drain_every: args.value("--drain-us")?.map_or(DRAIN_EVERY, Duration::from_micros),
        schema: dbfile::read_schema(schema.as_ref(), "of Debian's package ovn-common")?,
    };
    if let Some(word) = args.words()?.first() {
        return Err(Error::Usage(format!("ports: unexpected '{word}'")));
    }
    let mut report = Report::new(config.title(), procfs::machine());
    let mut sizes = [USUAL_SIZES; 4];
    for run in 1..=peers.repeat {
        for peer in peers.order(config.monitors > 0) {
            eprintln!("{} ({run} of {})", peer.name, peers.repeat);
            let running = peer.start(peers.dir(), &|path| dbfile::create(path, &config.schema))?;
            let mut run = Run::new(&config, &peer, &running, sizes);
            match run.all() {
                Ok(figures) => report.add(&peer.name, peer.is_floor(), figures),
                Err(error) => {
                    return Err(Error::Check(format!(
                        "{}: {error}\n{}",
                        peer.name,
                        running.log_tail()
                    )));
                }
            }
            sizes = run.sizes;
        }
    }
    report.publish(peers.json.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

impl Config {
    fn title(&self) -> String {
        let rate = self.rate.map_or("closed loop".into(), |rate| format!("open loop, {rate} tx/s"));
        format!(
            "ports: {} rows, {} writers ({rate}), {} monitors, {} cycle(s)",
            self.rows, self.writers, self.monitors, self.cycles
        )
    }
}

/// One server's way through the scenario.
struct Run<'a> {
    config: &'a Config,
    running: &'a Running,
    floor: bool,
    objects: Objects,
    /// Bytes a transaction by phase: in one monitor's updates, in the file.
    sizes: [(u64, u64); 4],
    sums: [Sum; 4],
}

/// What exists in the database.
#[derive(Default)]
struct Objects {
    switches: Vec<String>,
    group: String,
    address_set: String,
    ports: Vec<String>,
    lbs: Vec<String>,
}

/// A phase's figures over all cycles.
#[derive(Clone, Default)]
struct Sum {
    transactions: usize,
    seconds: f64,
    server_cpu: u64,
    driver_cpu: u64,
    latencies: Latencies,
    delivered: u64,
    notifications: u64,
    file_growth: u64,
}

impl<'a> Run<'a> {
    fn new(config: &'a Config, peer: &Peer, running: &'a Running, sizes: [(u64, u64); 4]) -> Self {
        let objects = Objects {
            ports: vec![String::new(); config.rows],
            lbs: vec![String::new(); config.rows],
            ..Objects::default()
        };
        let sums = std::array::from_fn(|_| Sum::default());
        Self { config, running, floor: peer.is_floor(), objects, sizes, sums }
    }

    fn all(&mut self) -> Result<Figures, Error> {
        let mut control = Client::connect(&self.running.target)?;
        self.objects.create(&mut control, self.floor)?;
        let mut replica = Replica::new(&self.config.schema);
        let mut driver = self.connect(&mut replica)?;
        let mut after_adds = procfs::memory(self.running.pid)?;
        for _ in 0..self.config.cycles {
            for (n, step) in STEPS.into_iter().enumerate() {
                if self.floor {
                    let (update, record) = self.sizes[n];
                    control.call("floor", &json!([update, record]))?;
                }
                self.step(n, step, &mut driver)?;
                if step == Step::LbAdd {
                    after_adds = procfs::memory(self.running.pid)?;
                }
                let kept = driver.watches.first_mut().and_then(|watch| watch.kept.take());
                if let (Some(kept), false) = (&kept, self.floor) {
                    replica.apply_stream(kept)?;
                    self.objects.check(step, &replica)?;
                }
                if let Some(watch) = driver.watches.first_mut() {
                    watch.kept = kept;
                }
            }
        }
        let end = procfs::memory(self.running.pid)?;
        if self.config.monitors > 0 && !self.floor {
            replica.check_against(&mut control, DB)?;
        }
        self.learn_sizes();
        Ok(self.figures(after_adds, end))
    }

    fn connect(&self, replica: &mut Replica) -> Result<Driver, Error> {
        let target = &self.running.target;
        let writers: Result<Vec<Stream>, Error> =
            (0..self.config.writers).map(|_| target.connect()).collect();
        let requests = replica.requests();
        let watches: Result<Vec<Watch>, Error> = (0..self.config.monitors)
            .map(|n| subscribe(target, &requests, (n == 0).then_some(&mut *replica)))
            .collect();
        Driver::new(writers?, watches?, self.config.drain_every)
    }

    fn step(&mut self, n: usize, step: Step, driver: &mut Driver) -> Result<(), Error> {
        let me = std::process::id();
        let file_before = self.running.file_size();
        let (server_before, driver_before) =
            (procfs::cpu_nanos(self.running.pid)?, procfs::cpu_nanos(me)?);
        let outcome = self.drive(step, driver)?;
        let sum = &mut self.sums[n];
        sum.server_cpu += procfs::cpu_nanos(self.running.pid)?.saturating_sub(server_before);
        sum.driver_cpu += procfs::cpu_nanos(me)?.saturating_sub(driver_before);
        sum.transactions += self.config.rows;
        sum.seconds += outcome.wall.as_secs_f64();
        sum.latencies.extend(&outcome.latencies);
        sum.delivered += outcome.delivered;
        if let Some(kept) = driver.watches.first().and_then(|watch| watch.kept.as_ref()) {
            sum.notifications += memchr::memmem::find_iter(kept, r#""update3""#).count() as u64;
        }
        if let (Some(before), Some(after)) = (file_before, self.running.file_size()) {
            sum.file_growth += after.saturating_sub(before);
        }
        eprintln!("  {}: {:.1} s", step.name(), outcome.wall.as_secs_f64());
        Ok(())
    }

    fn drive(&mut self, step: Step, driver: &mut Driver) -> Result<Outcome, Error> {
        let objects = &mut self.objects;
        // Requests and replies of a phase both look at the uuids, one of them writing.
        let known = match step {
            Step::PortAdd | Step::PortDelete => std::mem::take(&mut objects.ports),
            Step::LbAdd | Step::LbDelete => std::mem::take(&mut objects.lbs),
        };
        let mut new = Vec::new();
        if step.marker() == Marker::Insert {
            new = vec![String::new(); self.config.rows];
        }
        // The floor knows only insertions.
        let inserts = self.floor || step.marker() == Marker::Insert;
        let outcome = driver.run(&mut Load {
            total: self.config.rows,
            marker: if inserts { Marker::Insert } else { Marker::Delete },
            rate: self.config.rate,
            request: &mut |i, out| objects.request(step, i, &known, out),
            reply: &mut |i, reply| {
                check_reply(i, reply, step.counts())?;
                if !inserts {
                    return Ok(uuid_hash(known[i].as_bytes()));
                }
                let uuid = uuid_of(reply)?;
                if let Some(slot) = new.get_mut(i) {
                    uuid.clone_into(slot);
                }
                Ok(uuid_hash(uuid.as_bytes()))
            },
        })?;
        let now = if new.is_empty() { known } else { new };
        match step {
            Step::PortAdd | Step::PortDelete => objects.ports = now,
            Step::LbAdd | Step::LbDelete => objects.lbs = now,
        }
        Ok(outcome)
    }

    /// The floor takes its shape from what a server wrote and sent in this run.
    fn learn_sizes(&mut self) {
        if self.floor {
            return;
        }
        for (sum, (update, record)) in self.sums.iter().zip(&mut self.sizes) {
            let transactions = sum.transactions as u64;
            if self.config.monitors > 0 {
                *update = sum.delivered / (self.config.monitors as u64 * transactions);
            }
            if sum.file_growth > 0 {
                *record = sum.file_growth / transactions;
            }
        }
    }

    fn figures(&mut self, after_adds: procfs::Memory, end: procfs::Memory) -> Figures {
        let mut figures = Figures::default();
        for (step, sum) in STEPS.into_iter().zip(&mut self.sums) {
            let transactions = sum.transactions as f64;
            let mut push = |name, digits, value: f64| {
                figures.push(step.name(), Metric { name, digits }, value);
            };
            push("tx/s, all drained", 0, transactions / sum.seconds);
            push("server CPU us/tx", 1, sum.server_cpu as f64 / 1e3 / transactions);
            push("p50 us", 0, sum.latencies.percentile(50.0));
            push("p99 us", 0, sum.latencies.percentile(99.0));
            push("max us", 0, sum.latencies.percentile(100.0));
            if sum.notifications > 0 {
                push("tx a round", 1, transactions / sum.notifications as f64);
                push("delivered MB", 1, sum.delivered as f64 / 1e6);
            }
            push("driver CPU us/tx", 1, sum.driver_cpu as f64 / 1e3 / transactions);
        }
        let mut push = |name, bytes: u64| {
            figures.push("memory and disk", Metric { name, digits: 1 }, bytes as f64 / 1e6);
        };
        push("RSS after both adds MB", after_adds.rss);
        push("RSS at the end MB", end.rss);
        push("peak RSS MB", end.peak);
        if let Some(size) = self.running.file_size() {
            push("file MB", size);
        }
        figures
    }
}

/// Connects a monitor of everything; the first one's initial rows go into the replica.
fn subscribe(
    target: &Target,
    requests: &Value,
    replica: Option<&mut Replica>,
) -> Result<Watch, Error> {
    const NEVER: &str = "00000000-0000-0000-0000-000000000000";
    let mut client = Client::connect(target)?;
    let params = json!([DB, ["monid", DB], requests, NEVER]);
    let reply = client.call("monitor_cond_since", &params)?;
    let keep = replica.is_some();
    if let Some(replica) = replica {
        replica.apply(&reply[2])?;
    }
    Ok(Watch::new(client.into_stream(), keep))
}

/// Checks that transaction `i` did everything it should.
fn check_reply(i: usize, reply: &[u8], counts: usize) -> Result<(), Error> {
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

/// The uuid of the row that a transaction inserted.
fn uuid_of(reply: &[u8]) -> Result<&str, Error> {
    const BEFORE: &[u8] = br#"["uuid",""#;
    memchr::memmem::find(reply, BEFORE)
        .and_then(|at| reply.get(at + BEFORE.len()..at + BEFORE.len() + UUID_LEN))
        .and_then(|bytes| std::str::from_utf8(bytes).ok())
        .ok_or_else(|| Error::Check("a reply to an insertion has no uuid".into()))
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
    fn create(&mut self, control: &mut Client, floor: bool) -> Result<(), Error> {
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
    fn request(&self, step: Step, i: usize, known: &[String], out: &mut Vec<u8>) {
        let _ = write!(out, r#"{{"id":{i},"method":"transact","params":["{DB}","#);
        let (address, set, group) = (address(i), &self.address_set, &self.group);
        let switch = &self.switches[i % SWITCHES];
        let (name, node) = (port_name(i), i % SWITCHES);
        let _ = match step {
            Step::PortAdd => write!(
                out,
                concat!(
                    r#"{{"op":"insert","table":"Logical_Switch_Port","uuid-name":"port","row":{{"#,
                    r#""name":"{}","addresses":"0a:58:{:02x}:{:02x}:{:02x} {}","#,
                    r#""options":["map",[["requested-chassis","node-{:03}"]]],"#,
                    r#""external_ids":["map",[["namespace","namespace-{:03}"],["pod","true"]]]}}}},"#,
                    r#"{{"op":"mutate","table":"Logical_Switch","where":[["_uuid","==",["uuid","{}"]]],"#,
                    r#""mutations":[["ports","insert",["named-uuid","port"]]]}},"#,
                    r#"{{"op":"mutate","table":"Address_Set","where":[["_uuid","==",["uuid","{}"]]],"#,
                    r#""mutations":[["addresses","insert","{}"]]}}]}}"#
                ),
                name,
                i >> 16 & 255,
                i >> 8 & 255,
                i & 255,
                address,
                node,
                node,
                switch,
                set,
                address
            ),
            Step::LbAdd => write!(
                out,
                concat!(
                    r#"{{"op":"insert","table":"Load_Balancer","uuid-name":"lb","row":{{"#,
                    r#""name":"{}","protocol":"tcp","vips":["map",[["{}:80","{}:8080"]]]}}}},"#,
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
    fn check(&self, step: Step, replica: &Replica) -> Result<(), Error> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(uuid_of(good).unwrap(), "01234567-89ab-4cde-8f01-23456789abcd");
        assert!(check_reply(3, good, 1).is_err(), "another number of counts");
        assert!(check_reply(33, good, 2).is_err(), "another id");
        let bad = br#"{"error":null,"id":3,"result":[{"count":1},{"count":0}]}"#;
        assert!(check_reply(3, bad, 2).is_err());
        assert!(uuid_of(bad).is_err());
    }

    #[test]
    fn addresses_differ() {
        let all: std::collections::BTreeSet<_> = (0..200_000).map(address).collect();
        assert_eq!(all.len(), 200_000);
    }
}

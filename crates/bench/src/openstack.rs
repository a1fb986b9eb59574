//! `weir bench openstack`: ports as OpenStack creates them, each with its own eight ACLs.
//!
//! One client creates port after port, each in one transaction: the port, its address in the
//! security group's address set, and eight ACLs on the one switch. Another client follows. What
//! counts is the time until the follower has the port, and that it does not grow with the ports
//! that are there.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Error;
use crate::args::Args;
use crate::client::Client;
use crate::dbfile;
use crate::error::fail;
use crate::ports::{DB, SCHEMA};
use crate::progress::Progress;
use crate::replica::Replica;
use crate::report::{About, Curve, Figures, Report};
use crate::rounds::{Bench, Floors};
use crate::running::{Running, Source};
use crate::stats::Latencies;
use crate::tally::Sizes;

const PORTS: usize = 800;
const ACLS: usize = 8;
/// Parts of the run that are compared: the first with the last.
const PARTS: usize = 10;
/// Bytes a transaction, where no server of this run showed them.
const USUAL: Sizes = Sizes { update: 3_000, record: 3_000, request: 0 };

/// Runs the scenario `openstack`.
pub(crate) fn run(args: &mut Args, bench: &Bench) -> Result<Report, Error> {
    let ports = args.value("--ports")?.unwrap_or(PORTS).max(PARTS);
    let schema = args.text("--schema")?.unwrap_or_else(|| SCHEMA.into());
    args.finish("openstack")?;
    let schema = dbfile::read_schema(schema.as_ref(), "of Debian's package ovn-common")?;
    let about = About {
        scenario: "openstack".into(),
        title: format!("openstack: {ports} ports with {ACLS} ACLs each, one writer, one follower"),
        standard: ports >= PORTS,
    };
    let mut sizes = USUAL;
    bench.rounds(about, Floors::Plain, &mut |peer| {
        let running = bench.start(peer, Source::Schema(&schema))?;
        bench.progress.phase("ports", ports);
        let figures = measure(&schema, ports, bench, &running, peer.is_floor(), &mut sizes);
        figures.map_err(|e| running.explain(&peer.name, &e))
    })
}

fn measure(
    schema: &Value,
    ports: usize,
    bench: &Bench,
    running: &Running,
    floor: bool,
    sizes: &mut Sizes,
) -> Result<Figures, Error> {
    let mut writer = Client::connect(&running.target)?;
    let mut shared = ["00000000-0000-4000-8000-000000000000"; 2].map(str::to_owned);
    if floor {
        sizes.configure_floor(&mut writer)?;
    } else {
        shared = create_shared(&mut writer)?;
    }
    let mut replica = Replica::new(schema);
    let mut follower = Client::connect(&running.target)?;
    let params =
        json!([DB, "follower", replica.requests(), "00000000-0000-0000-0000-000000000000"]);
    let initial = follower.call("monitor_cond_since", &params)?;
    replica.apply(&initial[2])?;
    let (before, file) = (running.cpu_nanos()?, running.file_size());
    let run = Run::create_ports(ports, &shared, &mut writer, &mut follower, &bench.progress)?;
    let cpu = running.cpu_nanos()?.zip(before).map(|(after, before)| after - before);
    if !floor {
        let count = ports as u64;
        sizes.update = run.stream.len() as u64 / count;
        let grown = running.file_size().zip(file).map(|(after, before)| (after - before) / count);
        sizes.record = grown.unwrap_or(sizes.record);
        replica.apply_stream(&run.stream)?;
        replica.check_against(&running.target, DB)?;
        let found = replica.tables.get("ACL").map_or(0, |rows| rows.len());
        if found != ports * ACLS {
            fail!("the follower has {found} ACLs of {}", ports * ACLS);
        }
    }
    let mut figures = run.figures(ports, cpu);
    running.finish("memory and disk", &mut figures)?;
    Ok(figures)
}

/// Creates the switch and the address set; returns their uuids.
fn create_shared(writer: &mut Client) -> Result<[String; 2], Error> {
    let results = writer.transact(&json!([
        DB,
        {"op": "insert", "table": "Logical_Switch", "row": {"name": "neutron-net"}},
        {"op": "insert", "table": "Address_Set", "row": {"name": "as_ip4_group"}}
    ]))?;
    let uuid = |n: usize| {
        let result = results.get(n).map_or(&Value::Null, |result| &result["uuid"][1]);
        result.as_str().unwrap_or_default().to_owned()
    };
    Ok([uuid(0), uuid(1)])
}

/// How all ports came to be.
struct Run {
    seconds: f64,
    /// Until the follower had each.
    latencies: Latencies,
    /// Ports there, and microseconds a port in the part of the run that ends with them.
    points: Vec<(f64, f64)>,
    /// What the follower received.
    stream: Vec<u8>,
}

impl Run {
    fn create_ports(
        ports: usize,
        [switch, set]: &[String; 2],
        writer: &mut Client,
        follower: &mut Client,
        progress: &Progress,
    ) -> Result<Self, Error> {
        let (mut latencies, mut points, mut stream) =
            (Latencies::default(), Vec::new(), Vec::new());
        let begun = Instant::now();
        for part in 0..PARTS {
            let (range, mut spent) = (part_of(ports, part), Duration::ZERO);
            let (count, end) = (range.len() as f64, range.end as f64);
            for n in range {
                let request = request(n, switch, set);
                let start = Instant::now();
                let reply = writer.exchange(request.as_bytes())?;
                if reply.windows(11).filter(|word| word == br#"{"count":1}"#).count() != 2 {
                    fail!("port {n} was answered {}", String::from_utf8_lossy(reply));
                }
                // One transaction at a time, so one notification each.
                stream.extend_from_slice(follower.exchange(b"")?);
                spent += start.elapsed();
                latencies.push(start.elapsed());
                progress.at(n);
            }
            points.push((end, spent.as_secs_f64() * 1e6 / count));
        }
        Ok(Self { seconds: begun.elapsed().as_secs_f64(), latencies, points, stream })
    }

    fn figures(self, ports: usize, cpu: Option<u64>) -> Figures {
        let mut figures = Figures::default();
        let mut push = |section, name, digits, value| figures.push(section, name, digits, value);
        push("ports", "ports/s", 0, ports as f64 / self.seconds);
        if let Some(cpu) = cpu {
            push("ports", "server CPU us/tx", 1, cpu as f64 / 1e3 / ports as f64);
        }
        push("ports", "until the follower has it, p50 us", 1, self.latencies.percentile(50.0));
        push("ports", "until the follower has it, p99 us", 1, self.latencies.percentile(99.0));
        if let [first, .., last] = self.points[..] {
            push("growth", "time a port, last tenth / first", 2, last.1 / first.1);
        }
        figures.draw(Curve {
            plot: "time a port".into(),
            axes: ["ports there".into(), "us until the follower has it".into()],
            log: [false; 2],
            points: self.points,
        });
        figures
    }
}

fn part_of(ports: usize, part: usize) -> std::ops::Range<usize> {
    ports * part / PARTS..ports * (part + 1) / PARTS
}

/// The transaction that creates port `n`.
fn request(n: usize, switch: &str, set: &str) -> String {
    let address = format!("10.0.{}.{}", n >> 8 & 255, n & 255);
    let mut text = format!(
        concat!(
            r#"{{"id":{},"method":"transact","params":["{}",{{"op":"insert","#,
            r#""table":"Logical_Switch_Port","uuid-name":"port","row":{{"name":"port-{:06}","#,
            r#""addresses":"fa:16:3e:00:{:02x}:{:02x} {}","up":false}}}}"#
        ),
        n,
        DB,
        n,
        n >> 8 & 255,
        n & 255,
        address
    );
    let mut acls = String::new();
    for acl in 0..ACLS {
        let (direction, side) =
            if acl % 2 == 0 { ("from-lport", "inport") } else { ("to-lport", "outport") };
        let _ = write!(
            text,
            concat!(
                r#",{{"op":"insert","table":"ACL","uuid-name":"acl{}","row":{{"direction":"{}","#,
                r#""priority":{},"action":"allow-related","match":"{} == \"port-{:06}\" && ip4","#,
                r#""external_ids":["map",[["neutron:lport","port-{:06}"]]]}}}}"#
            ),
            acl,
            direction,
            1001 + acl,
            side,
            n,
            n
        );
        let comma = if acl == 0 { "" } else { "," };
        let _ = write!(acls, r#"{comma}["named-uuid","acl{acl}"]"#);
    }
    let _ = write!(
        text,
        concat!(
            r#",{{"op":"mutate","table":"Logical_Switch","where":[["_uuid","==",["uuid","{}"]]],"#,
            r#""mutations":[["ports","insert",["named-uuid","port"]],["acls","insert",["set",[{}]]]]}},"#,
            r#"{{"op":"mutate","table":"Address_Set","where":[["_uuid","==",["uuid","{}"]]],"#,
            r#""mutations":[["addresses","insert","{}"]]}}]}}"#
        ),
        switch, acls, set, address
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::floor::{self, Kind};

    #[test]
    fn a_port_is_one_transaction_of_eleven_operations() {
        let uuid = "01234567-89ab-4cde-8f01-23456789abcd";
        let request: Value = serde_json::from_str(&request(300, uuid, uuid)).unwrap();
        let operations = &request["params"].as_array().unwrap()[1..];
        assert_eq!(operations.len(), 1 + ACLS + 2);
        assert_eq!(operations[10]["mutations"][0][2], "10.0.1.44");
    }

    #[test]
    fn the_floor_answers_writes_and_tells_the_follower() {
        let (target, file) = floor::tests::spawn("openstack", Kind::Plain);
        let mut writer = Client::connect(&target).unwrap();
        Sizes { update: 2_000, record: 500, request: 0 }.configure_floor(&mut writer).unwrap();
        let mut follower = Client::connect(&target).unwrap();
        follower.call("monitor_cond_since", &json!([])).unwrap();
        let shared = ["01234567-89ab-4cde-8f01-23456789abcd"; 2].map(str::to_owned);
        let progress = Progress::hidden();
        let run = Run::create_ports(30, &shared, &mut writer, &mut follower, &progress).unwrap();
        assert_eq!(run.points.len(), PARTS);
        let each = run.stream.len() / 30;
        assert!((2_000..2_100).contains(&each), "{each} bytes an update");
        assert_eq!(std::fs::metadata(&file).unwrap().len(), 30 * 501);
        floor::tests::remove(&file);
    }
}

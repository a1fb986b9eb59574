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
use crate::replica::Replica;
use crate::report::{About, Curve, Figures, Report};
use crate::rounds::{Bench, Floors};
use crate::running::{Running, Source};
use crate::stats::Latencies;

const PORTS: usize = 800;
const ACLS: usize = 8;
/// Parts of the run that are compared: the first with the last.
const PARTS: usize = 10;

/// Runs the scenario.
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
    bench.rounds(about, Floors::None, &mut |peer| {
        let running = bench.start(peer, Source::Schema(&schema))?;
        bench.progress.phase("ports", ports);
        let figures = measure(&schema, ports, bench, &running);
        figures.map_err(|e| running.explain(&peer.name, &e))
    })
}

fn measure(
    schema: &Value,
    ports: usize,
    bench: &Bench,
    running: &Running,
) -> Result<Figures, Error> {
    let mut writer = Client::connect(&running.target)?;
    let results = writer.transact(&json!([
        DB,
        {"op": "insert", "table": "Logical_Switch", "row": {"name": "neutron-net"}},
        {"op": "insert", "table": "Address_Set", "row": {"name": "as_ip4_group"}}
    ]))?;
    let uuid = |n: usize| results[n]["uuid"][1].as_str().unwrap_or_default().to_owned();
    let (switch, set) = (uuid(0), uuid(1));
    let mut replica = Replica::new(schema);
    let mut follower = Client::connect(&running.target)?;
    let params =
        json!([DB, "follower", replica.requests(), "00000000-0000-0000-0000-000000000000"]);
    let initial = follower.call("monitor_cond_since", &params)?;
    replica.apply(&initial[2])?;
    let (mut all, mut points, mut stream) = (Latencies::default(), Vec::new(), Vec::new());
    let before = running.cpu_nanos()?;
    let begun = Instant::now();
    for part in 0..PARTS {
        let range = ports * part / PARTS..ports * (part + 1) / PARTS;
        let (count, mut spent) = (range.len(), Duration::ZERO);
        for n in range {
            let request = request(n, &switch, &set);
            let start = Instant::now();
            let reply = writer.exchange(request.as_bytes())?;
            if reply.windows(11).filter(|word| word == br#"{"count":1}"#).count() != 2 {
                fail!("port {n} was answered {}", String::from_utf8_lossy(reply));
            }
            // One transaction at a time, so one notification each.
            stream.extend_from_slice(follower.exchange(b"")?);
            spent += start.elapsed();
            all.push(start.elapsed());
            bench.progress.at(n);
        }
        points
            .push(((ports * (part + 1) / PARTS) as f64, spent.as_secs_f64() * 1e6 / count as f64));
    }
    let seconds = begun.elapsed().as_secs_f64();
    let cpu = running.cpu_nanos()?.zip(before).map(|(after, before)| after - before);
    replica.apply_stream(&stream)?;
    replica.check_against(&running.target, DB)?;
    let found = replica.tables.get("ACL").map_or(0, |rows| rows.len());
    if found != ports * ACLS {
        fail!("the follower has {found} ACLs of {}", ports * ACLS);
    }
    let mut figures = Figures::default();
    let mut push = |section, name, digits, value| figures.push(section, name, digits, value);
    push("ports", "ports/s", 0, ports as f64 / seconds);
    if let Some(cpu) = cpu {
        push("ports", "server CPU us/tx", 1, cpu as f64 / 1e3 / ports as f64);
    }
    push("ports", "until the follower has it, p50 us", 1, all.percentile(50.0));
    push("ports", "until the follower has it, p99 us", 1, all.percentile(99.0));
    if let [first, .., last] = points[..] {
        push("growth", "time a port, last tenth / first", 2, last.1 / first.1);
    }
    figures.draw(Curve {
        plot: "time a port".into(),
        axes: ["ports there".into(), "us until the follower has it".into()],
        log: [false; 2],
        points,
    });
    running.finish("memory and disk", &mut figures)?;
    Ok(figures)
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

    #[test]
    fn a_port_is_one_transaction_of_eleven_operations() {
        let uuid = "01234567-89ab-4cde-8f01-23456789abcd";
        let request: Value = serde_json::from_str(&request(300, uuid, uuid)).unwrap();
        let operations = &request["params"].as_array().unwrap()[1..];
        assert_eq!(operations.len(), 1 + ACLS + 2);
        assert_eq!(operations[10]["mutations"][0][2], "10.0.1.44");
    }
}

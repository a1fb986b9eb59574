//! `weir bench connections`: thousands of clients, most of them idle.
//!
//! Clients connect one after the other, each asks for the list of databases and begins a monitor
//! of a small table; all stay. Then one client commits what nobody watches, and at last what
//! everybody does.

use std::io::Write as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Error;
use crate::args::Args;
use crate::client::{Client, Target};
use crate::drive::{DRAIN_EVERY, Driver, Load};
use crate::error::fail;
use crate::peer::Peer;
use crate::report::{About, Figures, Report};
use crate::rounds::{Bench, Floors};
use crate::running::{Running, Source};
use crate::tally::{Sizes, Tally};
use crate::watch::{Marker, Watch, keep_alive, uuid_hash, uuid_in};

const DB: &str = "Bench_Connections";
const CLIENTS: usize = 5_000;
/// Transactions that nobody watches.
const UNSEEN: usize = 5_000;
/// Transactions that everybody watches.
const SEEN: usize = 50;
/// Bytes a transaction, where no server of this run showed them.
const USUAL: Sizes = Sizes { update: 0, record: 200, request: 0 };
/// Memory is read once freed pages have had time to go back.
const SETTLE: Duration = Duration::from_millis(300);

struct Config {
    clients: usize,
    seconds: f64,
    unseen: usize,
}

/// Runs the scenario `connections`.
pub(crate) fn run(args: &mut Args, bench: &Bench) -> Result<Report, Error> {
    let config = Config {
        clients: args.value("--clients")?.unwrap_or(CLIENTS).max(1),
        seconds: args.value("--seconds")?.unwrap_or(3.0),
        unseen: args.value("--ops")?.unwrap_or(UNSEEN).max(1),
    };
    args.finish("connections")?;
    let about = About {
        scenario: "connections".into(),
        title: format!("connections: {} mostly idle clients", config.clients),
        standard: config.clients == CLIENTS,
    };
    let schema = schema();
    let mut sizes = [USUAL; 2];
    bench.rounds(about, Floors::Both, &mut |peer| {
        let running = bench.start(peer, Source::Schema(&schema))?;
        let figures = measure(&config, bench, peer, &running, &mut sizes);
        figures.map_err(|e| running.explain(&peer.name, &e))
    })
}

pub(crate) fn schema() -> Value {
    let table = json!({"isRoot": true, "columns": {"name": {"type": "string"}}});
    json!({"name": DB, "version": "1.0.0", "tables": {"Seen": table, "Unseen": table}})
}

fn measure(
    config: &Config,
    bench: &Bench,
    peer: &Peer,
    running: &Running,
    sizes: &mut [Sizes; 2],
) -> Result<Figures, Error> {
    let mut figures = Figures::default();
    let target = &running.target;
    churn(config, bench, running, &mut figures)?;
    // The first monitor makes the server build what all of them share.
    let first = subscribe(target)?;
    std::thread::sleep(SETTLE);
    let before = running.memory()?;
    let mut watches = vec![first.count_only()];
    bench.progress.phase("clients connect", config.clients);
    let (start, cpu) = (Instant::now(), running.cpu_nanos()?);
    for n in 0..config.clients {
        watches.push(subscribe(target)?);
        keep_alive(&mut watches)?;
        bench.progress.at(n);
    }
    let seconds = start.elapsed().as_secs_f64();
    let cpu = running.cpu_nanos()?.zip(cpu).map(|(after, before)| after - before);
    std::thread::sleep(SETTLE);
    let clients = config.clients as f64;
    figures.push("idle clients", "connected and watching/s", 0, clients / seconds);
    if let Some(cpu) = cpu {
        figures.push("idle clients", "server CPU us/client", 1, cpu as f64 / 1e3 / clients);
    }
    if let Some((before, after)) = before.zip(running.memory()?) {
        let bytes = after.rss.saturating_sub(before.rss) as f64 / clients;
        figures.push("idle clients", "server bytes a client", 0, bytes);
    }
    bench.progress.note(&format!("  {} clients: {seconds:.1} s", config.clients));
    let writers = vec![target.connect()?];
    let mut driver = Driver::new(writers, watches, DRAIN_EVERY, bench.progress.clone())?;
    let mut control = Client::connect(target)?;
    for ((table, ops), sizes) in [("Unseen", config.unseen), ("Seen", SEEN)].into_iter().zip(sizes)
    {
        if peer.is_floor() {
            sizes.configure_floor(&mut control)?;
        }

        let section = match table {
            "Seen" => "one writer, everybody watches",
            _ => "one writer, nobody watches",
        };
        bench.progress.phase(section, ops);
        let tally = commit(&mut driver, running, table, ops);
        let tally = tally.map_err(|e| running.explain(&peer.name, &e))?;
        if !peer.is_floor() {
            tally.learn(sizes, config.clients + 1);
        }
        tally.figures(section, &mut figures);
        bench.progress.note(&format!("  {section}: {:.1} s", tally.seconds));
    }
    running.finish("memory and disk", &mut figures)?;
    Ok(figures)
}

/// Connects, asks, hangs up, again and again.
fn churn(
    config: &Config,
    bench: &Bench,
    running: &Running,
    figures: &mut Figures,
) -> Result<(), Error> {
    bench.progress.wait("connections come and go");
    let (start, cpu) = (Instant::now(), running.cpu_nanos()?);
    let mut count = 0_u32;
    while count == 0 || start.elapsed().as_secs_f64() < config.seconds {
        list_dbs(&mut Client::connect(&running.target)?)?;
        count += 1;
    }
    let count = f64::from(count);
    figures.push("set-up", "connections/s", 0, count / start.elapsed().as_secs_f64());
    if let Some((after, before)) = running.cpu_nanos()?.zip(cpu) {
        let micros = (after - before) as f64 / 1e3 / count;
        figures.push("set-up", "server CPU us/connection", 1, micros);
    }
    Ok(())
}

fn list_dbs(client: &mut Client) -> Result<(), Error> {
    let reply = client.exchange(br#"{"id":0,"method":"list_dbs","params":[]}"#)?;
    if memchr::memmem::find(reply, DB.as_bytes()).is_none() {
        fail!("list_dbs was answered {}", String::from_utf8_lossy(reply));
    }
    Ok(())
}

fn subscribe(target: &Target) -> Result<Watch, Error> {
    let mut client = Client::connect(target)?;
    list_dbs(&mut client)?;
    let requests = json!({"Seen": [{"columns": ["name"]}]});
    client.call(
        "monitor_cond_since",
        &json!([DB, ["monid", DB], requests, "00000000-0000-0000-0000-000000000000"]),
    )?;
    Ok(Watch::new(client.into_stream(), false))
}

fn commit(driver: &mut Driver, running: &Running, table: &str, ops: usize) -> Result<Tally, Error> {
    let mut tally = Tally::default();
    let mut load = Load {
        total: ops,
        marker: Marker::Insert,
        rate: None,
        unseen: table == "Unseen",
        request: &mut |i, out| {
            let _ = write!(
                out,
                r#"{{"id":{i},"method":"transact","params":["{DB}",{{"op":"insert","table":"{table}","row":{{"name":"row {i}"}}}}]}}"#
            );
        },
        reply: &mut |_, reply| Ok(uuid_hash(uuid_in(reply)?.as_bytes())),
    };
    tally.run(running, driver, &mut load)?;
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::floor::{self, Kind};
    use crate::progress::Progress;

    #[test]
    fn the_floor_tells_those_who_watch_of_what_they_watch() {
        let (target, file) = floor::tests::spawn("connections", Kind::Plain);
        list_dbs(&mut Client::connect(&target).unwrap()).unwrap();
        let watches = (0..5).map(|_| subscribe(&target).unwrap()).collect();
        let writers = vec![target.connect().unwrap()];
        let mut driver = Driver::new(writers, watches, DRAIN_EVERY, Progress::hidden()).unwrap();
        let mut control = Client::connect(&target).unwrap();
        let running = Running::found(target, None, None);
        for (table, update) in [("Unseen", 0), ("Seen", 150)] {
            Sizes { update, ..USUAL }.configure_floor(&mut control).unwrap();
            let tally = commit(&mut driver, &running, table, 20).unwrap();
            assert!(tally.delivered >= 5 * 20 * update && (update > 0 || tally.delivered == 0));
        }
        assert_eq!(std::fs::metadata(&file).unwrap().len(), 2 * 20 * (USUAL.record + 1));
        floor::tests::remove(&file);
    }
}

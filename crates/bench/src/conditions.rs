//! `weir bench conditions`: monitors that want a few rows each, while other rows change.
//!
//! What nobody wants to see must cost what it costs without monitors. In the end every watched
//! row is changed once, and every monitor must have received exactly its own. At last there are
//! clients with thousands of clauses that swap one of them every second.

mod swap;

use std::io::{Read, Write as _};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Error;
use crate::args::Args;
use crate::client::{Client, Stream};
use crate::drive::{DRAIN_EVERY, Driver, Load};
use crate::error::fail;
use crate::growth;
use crate::peer::Peer;
use crate::report::{About, Figures, Report};
use crate::rounds::{Bench, Floors};
use crate::running::{Running, Source};
use crate::tally::{ENOUGH_SECONDS, Sizes, Tally, seconds_from};
use crate::watch::{Marker, Watch, keep_alive};

const DB: &str = "Bench_Conditions";
const MONITORS: [usize; 3] = [0, 200, 5_000];
/// Conditions of a monitor, each on a row of its own.
const CONDITIONS: usize = 10;
/// Rows that change.
const BUSY: usize = 1_000;
/// Operations of one transaction while filling the table and changing the watched rows.
const BATCH: usize = 1_000;
/// How long the watched rows' updates may take.
const PATIENCE: Duration = Duration::from_secs(60);

struct Config {
    ops: usize,
    /// Seconds after which no more operations begin.
    seconds: f64,
    writers: usize,
}

/// Runs the scenario `conditions`.
pub(crate) fn run(args: &mut Args, bench: &Bench) -> Result<Report, Error> {
    let monitors: Vec<usize> = args.list("--monitors")?.unwrap_or_else(|| MONITORS.to_vec());
    let config = Config {
        ops: args.value("--ops")?.unwrap_or(20_000).max(1),
        seconds: seconds_from(args)?,
        writers: args.value("--writers")?.unwrap_or(20).max(1),
    };
    let swap = swap::Config::from_args(args)?;
    args.finish("conditions")?;
    let about = About {
        scenario: "conditions".into(),
        title: format!(
            "conditions: {} updates of rows that none of {monitors:?} monitors with {CONDITIONS} conditions wants, {} writers",
            config.ops, config.writers
        ),
        standard: monitors == MONITORS
            && config.ops >= 20_000
            && config.seconds >= ENOUGH_SECONDS
            && (swap.is_standard() || !swap.is_wanted()),
    };
    let schema = schema();
    let mut shape = Sizes { update: 0, record: 200, request: 0 };
    bench.rounds(about, Floors::Plain, &mut |peer| {
        let (mut figures, mut costs) = (Figures::default(), Vec::new());
        let sizes = if peer.is_floor() { &[0][..] } else { &monitors[..] };
        for &monitors in sizes {
            let running = bench.start(peer, Source::Schema(&schema))?;
            let section = format!("{monitors} monitors");
            let tally = measure(&config, bench, peer, &running, monitors, shape);
            let tally = tally.map_err(|e| running.explain(&peer.name, &e))?;
            if !peer.is_floor() {
                tally.learn(&mut shape, 0);
            }
            bench.progress.note(&format!("  {section}: {:.1} s", tally.seconds));
            tally.figures(&section, &mut figures);
            if let Some(memory) = running.memory()? {
                figures.push(&section, "RSS MB", 1, memory.rss as f64 / 1e6);
            }
            costs.extend(tally.cpu_micros().map(|cost| (monitors as f64, cost)));
        }
        growth::relate("monitors", &costs, &mut figures);
        if swap.is_wanted() && !peer.is_floor() {
            let running = bench.start(peer, Source::Schema(&schema))?;
            let swapped = swap::measure(&swap, bench, &running, &mut figures);
            swapped.map_err(|e| running.explain(&peer.name, &e))?;
        }
        Ok(figures)
    })
}

pub(crate) fn schema() -> Value {
    json!({"name": DB, "version": "1.0.0", "tables": {"Item": {
        "isRoot": true,
        "indexes": [["name"]],
        "columns": {"name": {"type": "string"}, "value": {"type": "string"}}
    }}})
}

fn busy(n: usize) -> String {
    format!("busy-{n:06}")
}

fn watched(n: usize) -> String {
    format!("watched-{n:06}")
}

fn measure(
    config: &Config,
    bench: &Bench,
    peer: &Peer,
    running: &Running,
    monitors: usize,
    shape: Sizes,
) -> Result<Tally, Error> {
    let target = &running.target;
    let mut control = Client::connect(target)?;
    if peer.is_floor() {
        shape.configure_floor(&mut control)?;
    } else {
        fill(&mut control, (0..BUSY).map(busy), &mut [])?;
    }
    let section = format!("{monitors} monitors");
    bench.progress.phase(&format!("{section}: connecting"), monitors);
    let mut watches = Vec::with_capacity(monitors);
    for n in 0..monitors {
        bench.progress.at(n);
        watches.push(subscribe(Client::connect(target)?, n)?);
        keep_alive(&mut watches)?;
    }
    let mut watched_rows = Vec::new();
    if !peer.is_floor() {
        // With everybody there already: 3.1.0 looks at each row for each who connects.
        bench.progress.wait("filling the table");
        // The first client may have been silent for too long.
        let mut control = Client::connect(target)?;
        watched_rows = fill(&mut control, (0..monitors * CONDITIONS).map(watched), &mut watches)?;
        for (n, watch) in watches.iter_mut().enumerate() {
            watch.stream().set_nonblocking()?;
            expect(n, watch.stream(), "watched")?;
        }
    }
    let writers: Result<Vec<_>, Error> = (0..config.writers).map(|_| target.connect()).collect();
    let mut driver = Driver::new(writers?, watches, DRAIN_EVERY, bench.progress.clone())?;
    bench.progress.phase(&section, config.ops);
    let tally = change_busy(config, running, &mut driver, peer.is_floor())?;
    if !peer.is_floor() {
        touch_watched(&mut Client::connect(target)?, &watched_rows)?;
        for (n, watch) in driver.watches.iter_mut().enumerate() {
            expect(n, watch.stream(), "last")?;
        }
    }
    Ok(tally)
}

/// Changes rows that no monitor wants: so many times, or for as long as a steady figure needs.
fn change_busy(
    config: &Config,
    running: &Running,
    driver: &mut Driver,
    floor: bool,
) -> Result<Tally, Error> {
    let mut tally = Tally::default();
    while let total @ 1.. = tally.next_of(config.ops, config.seconds) {
        let done = tally.transactions;
        let mut load = Load {
            total,
            marker: Marker::Modify,
            rate: None,
            unseen: true,
            request: &mut |i, out| {
                let (name, n) = (busy((done + i) % BUSY), done + i);
                let _ = write!(
                    out,
                    r#"{{"id":{i},"method":"transact","params":["{DB}",{{"op":"update","table":"Item","where":[["name","==","{name}"]],"row":{{"value":"value {n}"}}}}]}}"#
                );
            },
            reply: &mut |i, reply| {
                let good = memchr::memmem::find(reply, br#"{"count":1}"#).is_some();
                if !good && !floor {
                    fail!("update {i} was answered {}", String::from_utf8_lossy(reply));
                }
                Ok(0)
            },
        };
        tally.run(running, driver, &mut load)?;
    }
    Ok(tally)
}

/// Inserts rows, while clients wait; returns their uuids.
fn fill(
    control: &mut Client,
    names: impl Iterator<Item = String>,
    waiting: &mut [Watch],
) -> Result<Vec<Value>, Error> {
    let mut uuids = Vec::new();
    for batch in names.collect::<Vec<_>>().chunks(BATCH) {
        let mut params = vec![json!(DB)];
        params.extend(batch.iter().map(
            |name| json!({"op": "insert", "table": "Item", "row": {"name": name, "value": "new"}}),
        ));
        let results = control.transact(&Value::Array(params))?;
        uuids.extend(results.into_iter().map(|mut result| result["uuid"].take()));
        keep_alive(waiting)?;
    }
    Ok(uuids)
}

/// A monitor of ten rows.
fn subscribe(mut client: Client, n: usize) -> Result<Watch, Error> {
    let clauses: Vec<Value> = (n * CONDITIONS..(n + 1) * CONDITIONS)
        .map(|row| json!(["name", "==", watched(row)]))
        .collect();
    let requests = json!({"Item": [{"columns": ["name", "value"], "where": clauses}]});
    let reply = client.call(
        "monitor_cond_since",
        &json!([DB, n, requests, "00000000-0000-0000-0000-000000000000"]),
    )?;
    let rows = reply[2]["Item"].as_object().map_or(0, serde_json::Map::len);
    if rows != 0 {
        fail!("monitor {n} began with {rows} rows that are not its own");
    }
    Ok(Watch::new(client.into_stream(), false))
}

/// Changes every watched row once. By uuid: a server that searches 51,000 rows for each name would
/// take longer for this than for all that is measured.
fn touch_watched(control: &mut Client, uuids: &[Value]) -> Result<(), Error> {
    let rows: Vec<_> = uuids.iter().enumerate().collect();
    for batch in rows.chunks(BATCH) {
        let mut params = vec![json!(DB)];
        params.extend(batch.iter().map(|(row, uuid)| {
            json!({"op": "update", "table": "Item", "where": [["_uuid", "==", uuid]],
                "row": {"value": format!("last-{row:06}")}})
        }));
        control.transact(&Value::Array(params))?;
    }
    Ok(())
}

/// Reads what a monitor has got: exactly its own rows, each with a string that begins so.
fn expect(n: usize, stream: &mut Stream, begin: &str) -> Result<(), Error> {
    let quoted = format!("\"{begin}-");
    let (mut text, mut chunk) = (Vec::new(), vec![0; 64 * 1024]);
    let start = Instant::now();
    loop {
        let found = memchr::memmem::find_iter(&text, &quoted).count();
        if found >= CONDITIONS && text.ends_with(b"}") {
            break;
        }
        match stream.read(&mut chunk) {
            Ok(0) => fail!("the server closed the connection of monitor {n}"),
            Ok(count) => text.extend_from_slice(&chunk[..count]),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                if start.elapsed() > PATIENCE {
                    fail!("monitor {n} received {found} of its {CONDITIONS} rows");
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(e) => return Err(e.into()),
        }
    }
    let text = String::from_utf8_lossy(&text);
    let own = (n * CONDITIONS..(n + 1) * CONDITIONS)
        .all(|row| text.contains(&format!(r#"{quoted}{row:06}""#)));
    let foreign = text.matches(r#""value":""#).count() != CONDITIONS;
    if !own || foreign {
        fail!("monitor {n} received other rows than its own: {text}");
    }
    Ok(())
}

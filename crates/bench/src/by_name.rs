//! `weir bench by-name`: one client updates, selects and deletes rows by a unique name.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Error;
use crate::args::Args;
use crate::client::Client;
use crate::dbfile;
use crate::error::fail;
use crate::peer::{Peer, Peers};
use crate::procfs;
use crate::report::{Figures, Metric, Report};
use crate::stats::Latencies;

const DB: &str = "Bench_Names";
/// Rows inserted in one transaction while filling the table.
const FILL: usize = 1_000;
/// Prime, so that steps of it visit every row of a table before the first one again.
const STRIDE: usize = 1_000_003;

/// What is done to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Update,
    Select,
    Delete,
}

const KINDS: [(Kind, &str); 3] =
    [(Kind::Update, "update"), (Kind::Select, "select"), (Kind::Delete, "delete")];

/// Runs the command.
pub(crate) fn command(args: &[String]) -> Result<ExitCode, Error> {
    let mut args = Args::new(args);
    let peers = Peers::from_args(&mut args)?;
    let rows: Vec<usize> = args.list("--rows")?.unwrap_or_else(|| vec![4_000, 60_000]);
    let seconds = args.value("--seconds")?.unwrap_or(5.0);
    let limit = Duration::try_from_secs_f64(seconds)
        .map_err(|e| Error::Usage(format!("--seconds {seconds}: {e}")))?;
    if let Some(word) = args.words()?.first() {
        return Err(Error::Usage(format!("by-name: unexpected '{word}'")));
    }
    let title = format!("by-name: one client, {seconds} s of each kind at {rows:?} rows");
    let mut report = Report::new(title, procfs::machine());
    for run in 1..=peers.repeat {
        for peer in peers.order(false) {
            eprintln!("{} ({run} of {})", peer.name, peers.repeat);
            let mut figures = Figures::default();
            for &rows in &rows {
                measure(&peers, &peer, rows.max(1), limit, &mut figures)?;
            }
            report.add(&peer.name, peer.is_floor(), figures);
        }
    }
    report.publish(peers.json.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

fn schema() -> Value {
    let map = json!({"key": "string", "value": "string", "min": 0, "max": "unlimited"});
    json!({"name": DB, "version": "1.0.0", "tables": {"Item": {
        "isRoot": true,
        "indexes": [["name"]],
        "columns": {
            "name": {"type": "string"},
            "value": {"type": "string"},
            "external_ids": {"type": map},
        }
    }}})
}

fn measure(
    peers: &Peers,
    peer: &Peer,
    rows: usize,
    limit: Duration,
    figures: &mut Figures,
) -> Result<(), Error> {
    let running = peer.start(peers.dir(), &|path| dbfile::create(path, &schema()))?;
    let mut table = Table {
        client: Client::connect(&running.target)?,
        pid: running.pid,
        rows,
        floor: peer.is_floor(),
        value: 0,
    };
    let all: Vec<usize> = (0..rows).collect();
    table.fill(&all)?;
    for (kind, name) in KINDS {
        let result = table.run(kind, limit);
        let (mut latencies, cpu, operations) =
            result.map_err(|e| running.explain(&peer.name, &e))?;
        let section = format!("{name}, {rows} rows");
        let mut push = |name, digits, value| {
            figures.push(&section, Metric { name, digits }, value);
        };
        push("server CPU us/tx", 1, cpu as f64 / 1e3 / operations as f64);
        push("p50 us", 1, latencies.percentile(50.0));
        push("p99 us", 1, latencies.percentile(99.0));
        push("max us", 0, latencies.percentile(100.0));
        push("transactions", 0, operations as f64);
        eprintln!("  {section}: {operations} transactions");
    }
    Ok(())
}

/// The table under test, through its one client.
struct Table {
    client: Client,
    pid: u32,
    rows: usize,
    floor: bool,
    /// Makes every update a change.
    value: u64,
}

fn item(n: usize) -> String {
    format!("item-{n:07}")
}

impl Table {
    fn fill(&mut self, items: &[usize]) -> Result<(), Error> {
        if self.floor {
            self.client.call("floor", &json!([0, 200]))?;
            return Ok(());
        }
        for chunk in items.chunks(FILL) {
            let mut params = vec![json!(DB)];
            params.extend(chunk.iter().map(|&n| {
                json!({"op": "insert", "table": "Item", "row": {
                    "name": item(n),
                    "value": format!("value of item {n}"),
                    "external_ids": ["map", [["owner", format!("owner-{}", n % 100)]]],
                }})
            }));
            self.client.transact(&Value::Array(params))?;
        }
        Ok(())
    }

    /// Runs one kind for `limit` in blocks of a tenth of the table; deleted rows are put back
    /// between blocks, outside the measurement.
    fn run(&mut self, kind: Kind, limit: Duration) -> Result<(Latencies, u64, usize), Error> {
        let block = (self.rows / 10).max(1);
        let (mut latencies, mut cpu, mut operations) = (Latencies::default(), 0, 0);
        let start = Instant::now();
        while operations == 0 || start.elapsed() < limit {
            let items: Vec<usize> =
                (operations..operations + block).map(|k| k * STRIDE % self.rows).collect();
            let before = procfs::cpu_nanos(self.pid)?;
            let mut done = 0;
            for &n in &items {
                let request = self.request(kind, n);
                let sent = Instant::now();
                let reply = self.client.exchange(request.as_bytes())?;
                latencies.push(sent.elapsed());
                check(kind, n, reply, self.floor)?;
                done += 1;
                if start.elapsed() >= limit {
                    break;
                }
            }
            cpu += procfs::cpu_nanos(self.pid)?.saturating_sub(before);
            operations += done;
            if kind == Kind::Delete && !self.floor {
                self.fill(&items[..done])?;
            }
        }
        Ok((latencies, cpu, operations))
    }

    fn request(&mut self, kind: Kind, n: usize) -> String {
        let item = item(n);
        let operation = match kind {
            Kind::Update => {
                self.value += 1;
                format!(r#""op":"update","row":{{"value":"value {}"}}"#, self.value)
            }
            Kind::Select => r#""op":"select""#.into(),
            Kind::Delete => r#""op":"delete""#.into(),
        };
        format!(
            r#"{{"id":{n},"method":"transact","params":["{DB}",{{{operation},"table":"Item","where":[["name","==","{item}"]]}}]}}"#
        )
    }
}

fn check(kind: Kind, n: usize, reply: &[u8], floor: bool) -> Result<(), Error> {
    let text = std::str::from_utf8(reply).unwrap_or("(not UTF-8)");
    let good = match kind {
        _ if floor => true,
        Kind::Select => text.contains(&format!(r#""name":"{}""#, item(n))),
        Kind::Update | Kind::Delete => text.contains(r#"[{"count":1}]"#),
    };
    if !good {
        fail!("{kind:?} of row {n} was answered {text}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_visit_different_rows() {
        for rows in [10, 4_000, 60_000] {
            let visited: std::collections::BTreeSet<_> =
                (0..rows).map(|k| k * STRIDE % rows).collect();
            assert_eq!(visited.len(), rows);
        }
    }

    #[test]
    fn answers_are_checked() {
        assert!(check(Kind::Update, 1, br#"{"id":1,"result":[{"count":1}]}"#, false).is_ok());
        assert!(check(Kind::Delete, 1, br#"{"id":1,"result":[{"count":0}]}"#, false).is_err());
        let rows = br#"{"result":[{"rows":[{"name":"item-0000001"}]}]}"#;
        assert!(check(Kind::Select, 1, rows, false).is_ok());
        assert!(check(Kind::Select, 2, rows, false).is_err());
    }
}

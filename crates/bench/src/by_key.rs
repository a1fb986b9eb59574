//! `weir bench by-name`, `by-column`, `may-exist`: one client updates, selects and deletes rows
//! that it names by a column's value.
//!
//! The column is unique (`by-name`), or shared by ten rows and in no index (`by-column`); with
//! `may-exist` an update first makes sure that the row is there, as the option `--may-exist` of
//! Open vSwitch's tools has it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Error;
use crate::args::Args;
use crate::client::Client;
use crate::error::fail;
use crate::growth;
use crate::report::{About, Figures, Report};
use crate::rounds::{Bench, Floors};
use crate::running::{Running, Source};
use crate::stats::Latencies;

const DB: &str = "Bench_Names";
/// Rows inserted in one transaction while filling the table.
const FILL: usize = 1_000;
/// A prime: steps of it visit every key of a table before the first one again.
const STRIDE: usize = 1_000_003;
/// Rows that share an owner.
const ROWS_AN_OWNER: usize = 10;
const SIZES: [usize; 2] = [4_000, 60_000];

/// How rows are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// Rows are named by their unique name.
    Name,
    /// Rows are named by their owner, who has several of them.
    Column,
    /// Rows are named by their unique name, and an update checks first that there is such a row.
    MayExist,
}

/// What is done to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Update,
    Select,
    Delete,
}

const KINDS: [(Kind, &str); 3] =
    [(Kind::Update, "update"), (Kind::Select, "select"), (Kind::Delete, "delete")];

impl Key {
    fn scenario(self) -> &'static str {
        match self {
            Self::Name => "by-name",
            Self::Column => "by-column",
            Self::MayExist => "may-exist",
        }
    }

    /// Rows that one key finds.
    fn rows(self) -> usize {
        if self == Self::Column { ROWS_AN_OWNER } else { 1 }
    }

    /// Column and value of key `n`.
    fn value(self, n: usize) -> (&'static str, String) {
        match self {
            Self::Name | Self::MayExist => ("name", item(n)),
            Self::Column => ("owner", owner(n * ROWS_AN_OWNER)),
        }
    }
}

/// Runs the scenario `by-name`, `by-column` or `may-exist`, as `key` says.
pub(crate) fn run(key: Key, args: &mut Args, bench: &Bench) -> Result<Report, Error> {
    let name = key.scenario();
    let sizes: Vec<usize> = args.list("--rows")?.unwrap_or_else(|| SIZES.to_vec());
    let seconds = args.value("--seconds")?.unwrap_or(5.0);
    let limit = Duration::try_from_secs_f64(seconds)
        .map_err(|e| Error::Usage(format!("--seconds {seconds}: {e}")))?;
    let extended = args.flag("--alternate-key");
    args.finish(name)?;
    let about = About {
        scenario: name.into(),
        title: format!("{name}: one client, {seconds} s of each kind at {sizes:?} rows"),
        standard: sizes == SIZES && seconds >= 5.0,
    };
    bench.rounds(about, Floors::Plain, &mut |peer| {
        let mut figures = Figures::default();
        let mut costs = [const { Vec::new() }; KINDS.len()];
        for &rows in &sizes {
            let rows = rows.next_multiple_of(ROWS_AN_OWNER).max(ROWS_AN_OWNER);
            // The extension is not the reference's.
            let schema = schema(extended && peer.name != "ref");
            let running = bench.start(peer, Source::Schema(&schema))?;
            let mut table = Table::new(key, &running, rows, peer.is_floor())?;
            let measured = table.measure(bench, &running, limit, &mut figures);
            for (costs, cost) in
                costs.iter_mut().zip(measured.map_err(|e| running.explain(&peer.name, &e))?)
            {
                costs.extend(cost.map(|cost| (rows as f64, cost)));
            }
        }
        for ((_, kind), costs) in KINDS.iter().zip(&costs) {
            growth::draw(kind, "rows in the table", costs, &mut figures);
        }
        Ok(figures)
    })
}

pub(crate) fn schema(alternate_key: bool) -> Value {
    let map = json!({"key": "string", "value": "string", "min": 0, "max": "unlimited"});
    let owner = match alternate_key {
        true => json!({"type": "string", "alternate_key": true}),
        false => json!({"type": "string"}),
    };
    json!({"name": DB, "version": "1.0.0", "tables": {"Item": {
        "isRoot": true,
        "indexes": [["name"]],
        "columns": {
            "name": {"type": "string"},
            "owner": owner,
            "value": {"type": "string"},
            "external_ids": {"type": map},
        }
    }}})
}

/// The table under test, through its one client.
struct Table {
    key: Key,
    client: Client,
    rows: usize,
    floor: bool,
    /// Makes every update a change.
    value: u64,
}

fn item(n: usize) -> String {
    format!("item-{n:07}")
}

/// The owner of row `n`.
fn owner(n: usize) -> String {
    format!("owner-{:06}", n / ROWS_AN_OWNER)
}

impl Table {
    fn new(key: Key, running: &Running, rows: usize, floor: bool) -> Result<Self, Error> {
        let client = Client::connect(&running.target)?;
        let mut table = Self { key, client, rows, floor, value: 0 };
        if floor {
            table.client.call("floor", &json!([0, 200, 0]))?;
        } else {
            let all: Vec<usize> = (0..rows).collect();
            table.fill(&all)?;
        }
        Ok(table)
    }

    /// Measures all kinds; returns their costs in CPU.
    fn measure(
        &mut self,
        bench: &Bench,
        running: &Running,
        limit: Duration,
        figures: &mut Figures,
    ) -> Result<[Option<f64>; KINDS.len()], Error> {
        let mut costs = [None; KINDS.len()];
        for ((kind, name), slot) in KINDS.into_iter().zip(&mut costs) {
            let section = format!("{name}, {} rows", self.rows);
            bench.progress.wait(&section);
            let (latencies, cpu) = self.run(kind, running, limit)?;
            let operations = latencies.count();
            *slot = cpu.map(|cpu| cpu as f64 / 1e3 / operations as f64);
            let corrected = latencies.corrected();
            let mut push = |name, digits, value| figures.push(&section, name, digits, value);
            if let Some(cost) = *slot {
                push("server CPU us/tx", 1, cost);
            }
            push("p50 us", 1, latencies.percentile(50.0));
            push("p99 us", 1, corrected.percentile(99.0));
            push("p99.9 us", 0, corrected.percentile(99.9));
            push("longest stall ms", 1, latencies.percentile(100.0) / 1e3);
            push("transactions", 0, operations as f64);
            bench.progress.note(&format!("  {section}: {operations} transactions"));
        }
        Ok(costs)
    }

    fn fill(&mut self, items: &[usize]) -> Result<(), Error> {
        for chunk in items.chunks(FILL) {
            let mut params = vec![json!(DB)];
            params.extend(chunk.iter().map(|&n| {
                json!({"op": "insert", "table": "Item", "row": {
                    "name": item(n),
                    "owner": owner(n),
                    "value": format!("value of item {n}"),
                    "external_ids": ["map", [["purpose", format!("purpose-{}", n % 100)]]],
                }})
            }));
            self.client.transact(&Value::Array(params))?;
        }
        Ok(())
    }

    /// Runs one kind for `limit` in blocks of a tenth of the table; deleted rows are put back
    /// between blocks, outside the measurement.
    fn run(
        &mut self,
        kind: Kind,
        running: &Running,
        limit: Duration,
    ) -> Result<(Latencies, Option<u64>), Error> {
        let keys = self.rows / self.key.rows();
        let block = (keys / 10).max(1);
        let (mut latencies, mut cpu, mut begun) = (Latencies::default(), Some(0), 0);
        let start = Instant::now();
        while begun == 0 || start.elapsed() < limit {
            let block: Vec<usize> = (begun..begun + block).map(|k| k * STRIDE % keys).collect();
            let before = running.cpu_nanos()?;
            let mut done = 0;
            for &n in &block {
                let request = self.request(kind, n);
                let sent = Instant::now();
                let reply = self.client.exchange(request.as_bytes())?;
                latencies.push(sent.elapsed());
                check(self.key, kind, n, reply, self.floor)?;
                done += 1;
                if start.elapsed() >= limit {
                    break;
                }
            }
            let after = running.cpu_nanos()?;
            let spent = before.zip(after).map(|(before, after)| after.saturating_sub(before));
            cpu = cpu.zip(spent).map(|(cpu, spent)| cpu + spent);
            begun += done;
            if kind == Kind::Delete && !self.floor {
                let per = self.key.rows();
                let gone: Vec<_> =
                    block[..done].iter().flat_map(|n| n * per..(n + 1) * per).collect();
                self.fill(&gone)?;
            }
        }
        Ok((latencies, cpu))
    }

    fn request(&mut self, kind: Kind, n: usize) -> String {
        let (column, value) = self.key.value(n);
        let operation = match kind {
            Kind::Update => {
                self.value += 1;
                format!(r#""op":"update","row":{{"value":"value {}"}}"#, self.value)
            }
            Kind::Select => r#""op":"select""#.into(),
            Kind::Delete => r#""op":"delete""#.into(),
        };
        let matched = format!(r#""table":"Item","where":[["{column}","==","{value}"]]"#);
        let wait = match (self.key, kind) {
            (Key::MayExist, Kind::Update) => format!(
                r#"{{"op":"wait","timeout":0,{matched},"columns":["name"],"until":"==","rows":[{{"name":"{value}"}}]}},"#
            ),
            _ => String::new(),
        };
        format!(
            r#"{{"id":{n},"method":"transact","params":["{DB}",{wait}{{{operation},{matched}}}]}}"#
        )
    }
}

fn check(key: Key, kind: Kind, n: usize, reply: &[u8], floor: bool) -> Result<(), Error> {
    let text = std::str::from_utf8(reply).unwrap_or("(not UTF-8)");
    let (column, value) = key.value(n);
    let good = match kind {
        _ if floor => true,
        Kind::Select => text.matches(&format!(r#""{column}":"{value}""#)).count() == key.rows(),
        Kind::Update | Kind::Delete => {
            text.contains(&format!(r#"{{"count":{}}}]"#, key.rows()))
                && !text.contains(r#""error":{"#)
        }
    };
    if !good {
        fail!("{kind:?} of {value} was answered {text}");
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
        let one = br#"{"id":1,"result":[{"count":1}]}"#;
        assert!(check(Key::Name, Kind::Update, 1, one, false).is_ok());
        assert!(check(Key::Column, Kind::Update, 1, one, false).is_err());
        let none = br#"{"id":1,"result":[{"count":0}]}"#;
        assert!(check(Key::Name, Kind::Delete, 1, none, false).is_err());
        let rows = br#"{"result":[{"rows":[{"name":"item-0000001","owner":"owner-000000"}]}]}"#;
        assert!(check(Key::Name, Kind::Select, 1, rows, false).is_ok());
        assert!(check(Key::Name, Kind::Select, 2, rows, false).is_err());
        assert!(check(Key::Column, Kind::Select, 0, rows, false).is_err(), "one row of ten");
    }
}

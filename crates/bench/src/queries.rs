//! `weir bench queries`: one client looks for rows of a large table in the ways that keys serve, and
//! opens monitors of a few rows, before the server has such keys and after.
//!
//! 1. *First*: a few queries, too few for a server that keeps keys by itself to begin one.
//! 2. The client goes on asking until the server has made itself a key, if it is one that does.
//! 3. *After*: as many queries as there is time for. The key is dropped, and the next kind begins.
//!
//! A query by a unique name needs no key, and is what the others are held against.

mod table;

use std::time::{Duration, Instant};

use serde_json::json;

use crate::Error;
use crate::args::Args;
use crate::client::Client;
use crate::error::fail;
use crate::growth;
use crate::report::{About, Figures, Report};
use crate::rounds::{Bench, Floors};
use crate::running::{Running, Source};
use crate::stats::Latencies;
use table::{DB, GROUP};

const SIZES: [usize; 3] = [4_000, 60_000, 1_000_000];
/// Queries before the server has helped itself: Weir begins a key after 32.
const FIRST: usize = 8;
/// Queries after which a server that makes keys by itself must have made one.
const HELP: usize = 500;
/// A prime: steps of it visit every group of a table before the first one again.
const STRIDE: usize = 1_000_003;
const NAME_OF_A_ROW: &[u8] = br#""name":"item-"#;

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Name,
    One,
    Shared,
    Range,
    Element,
    Pair,
    Reference,
    Page,
    MonitorName,
    MonitorShared,
}

static KINDS: [Kind; 10] = [
    Kind::Name,
    Kind::One,
    Kind::Shared,
    Kind::Range,
    Kind::Element,
    Kind::Pair,
    Kind::Reference,
    Kind::Page,
    Kind::MonitorName,
    Kind::MonitorShared,
];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Name => "by name",
            Self::One => "by column, one row",
            Self::Shared => "by column",
            Self::Range => "by range",
            Self::Element => "by element of a set",
            Self::Pair => "by pair of a map",
            Self::Reference => "by reference",
            Self::Page => "page",
            Self::MonitorName => "monitor by name",
            Self::MonitorShared => "monitor by column",
        }
    }

    /// The kind as `--kinds` names it.
    fn word(&self) -> &str {
        match self {
            Self::Name => "name",
            Self::One => "one",
            Self::Shared => "column",
            Self::Range => "range",
            Self::Element => "element",
            Self::Pair => "pair",
            Self::Reference => "reference",
            Self::Page => "page",
            Self::MonitorName => "monitor-name",
            Self::MonitorShared => "monitor-column",
        }
    }

    /// The column that a key would serve; none if an index does.
    fn column(self) -> Option<&'static str> {
        match self {
            Self::Name | Self::MonitorName => None,
            Self::One => Some("serial"),
            Self::Shared | Self::MonitorShared => Some("owner"),
            Self::Range | Self::Page => Some("priority"),
            Self::Element => Some("tags"),
            Self::Pair => Some("external_ids"),
            Self::Reference => Some("group"),
        }
    }

    /// Rows that each query finds.
    fn found(self) -> usize {
        match self {
            Self::Name | Self::One | Self::MonitorName => 1,
            _ => GROUP,
        }
    }

    fn is_monitor(self) -> bool {
        matches!(self, Self::MonitorName | Self::MonitorShared)
    }

    /// What the kind is to cost no more than, but for its rows.
    fn base(self) -> Self {
        if self.is_monitor() { Self::MonitorName } else { Self::Name }
    }

    /// The condition that finds what belongs to a group.
    fn condition(self, group: usize) -> String {
        let item = group * GROUP;
        match self {
            Self::Name | Self::MonitorName => format!(r#"["name","==","{}"]"#, table::name(item)),
            Self::One => format!(r#"["serial","==","{}"]"#, table::serial(item)),
            Self::Shared | Self::MonitorShared => {
                format!(r#"["owner","==","{}"]"#, table::owner(group))
            }
            Self::Range => {
                format!(r#"["priority",">=",{item}],["priority","<",{}]"#, item + GROUP)
            }
            Self::Element => format!(r#"["tags","includes","{}"]"#, table::tag(group)),
            Self::Pair => {
                format!(
                    r#"["external_ids","includes",["map",[["port","{}"]]]]"#,
                    table::port(group)
                )
            }
            Self::Reference => format!(r#"["group","==",["uuid","{}"]]"#, table::group_uuid(group)),
            Self::Page => String::new(),
        }
    }

    fn request(self, group: usize) -> String {
        let (id, condition) = (group + 1, self.condition(group));
        if self.is_monitor() {
            return format!(
                r#"{{"id":{id},"method":"monitor_cond","params":["{DB}","m",{{"Item":[{{"columns":["name"],"where":[{condition}]}}]}}]}}"#
            );
        }
        let item = group * GROUP;
        let page = match self {
            Self::Page => format!(
                r#","order_by":["priority"],"limit":{GROUP},"after":{{"priority":{item},"_uuid":["uuid","{}"]}}"#,
                table::item_uuid(item)
            ),
            _ => String::new(),
        };
        format!(
            r#"{{"id":{id},"method":"transact","params":["{DB}",{{"op":"select","table":"Item","columns":["name"],"where":[{condition}]{page}}}]}}"#
        )
    }
}

/// Runs the scenario `queries`.
pub(crate) fn run(args: &mut Args, bench: &Bench) -> Result<Report, Error> {
    let sizes: Vec<usize> = args.list("--rows")?.unwrap_or_else(|| SIZES.to_vec());
    let seconds = args.value("--seconds")?.unwrap_or(2.0);
    let limit = Duration::try_from_secs_f64(seconds)
        .map_err(|e| Error::Usage(format!("--seconds {seconds}: {e}")))?;
    let kinds = args.choose("--kinds", &KINDS, Kind::word)?;
    args.finish("queries")?;
    let about = About {
        scenario: "queries".into(),
        title: format!(
            "queries: one client, {seconds} s of each kind (first: {FIRST} queries, or so long) at \
             {sizes:?} rows; {GROUP} rows found but for those by name and 'one row'"
        ),
        standard: sizes == SIZES && seconds >= 2.0 && kinds.len() == KINDS.len(),
    };
    bench.rounds(about, Floors::Plain, &mut |peer| {
        let mut figures = Figures::default();
        let mut costs = [const { Vec::new() }; KINDS.len()];
        for &rows in &sizes {
            let rows = rows.next_multiple_of(GROUP).max(2 * GROUP);
            let made = |path: &std::path::Path| table::write(path, rows);
            let running = bench.start(peer, Source::Made(&made))?;
            let measured = Scene::new(&running, rows, limit, peer.is_floor())
                .and_then(|mut scene| scene.measure(&kinds, bench, &mut figures));
            let measured = measured.map_err(|e| running.explain(&peer.name, &e))?;
            for (costs, cost) in costs.iter_mut().zip(measured) {
                costs.extend(cost.map(|cost| (rows as f64, cost)));
            }
        }
        for (kind, costs) in KINDS.iter().zip(&costs) {
            growth::draw(kind.name(), "rows in the table", costs, &mut figures);
        }
        Ok(figures)
    })
}

/// A key as the server lists it.
struct Key {
    kind: String,
    is_ready: bool,
    entries: f64,
    bytes: f64,
}

/// The table under test, through its one client.
struct Scene<'r> {
    running: &'r Running,
    client: Client,
    /// Where the server tells of its keys, if it is one that has any.
    control: Option<Client>,
    has_pages: bool,
    rows: usize,
    limit: Duration,
    is_floor: bool,
    /// Queries so far: each asks for another group than those just before.
    asked: usize,
}

impl<'r> Scene<'r> {
    fn new(
        running: &'r Running,
        rows: usize,
        limit: Duration,
        is_floor: bool,
    ) -> Result<Self, Error> {
        let mut client = Client::connect(&running.target)?;
        let (mut control, mut has_pages) = (None, is_floor);
        if is_floor {
            // Queries leave no records and send no updates.
            client.call("floor", &json!([0, 0, 0]))?;
        } else {
            has_pages = client.call("weir_features", &json!([])).is_ok();
            let socket = running.control().as_ref().map(Client::connect).transpose()?;
            control = socket.filter(|_| has_pages);
        }
        Ok(Self { running, client, control, has_pages, rows, limit, is_floor, asked: 0 })
    }

    /// Measures all kinds; returns their costs in CPU after the server has helped itself.
    fn measure(
        &mut self,
        kinds: &[&Kind],
        bench: &Bench,
        figures: &mut Figures,
    ) -> Result<[Option<f64>; KINDS.len()], Error> {
        let mut costs = [None; KINDS.len()];
        for (at, kind) in KINDS.into_iter().enumerate() {
            let section = format!("{}, {} rows", kind.name(), self.rows);
            bench.progress.wait(&section);
            if !kinds.contains(&&kind) || kind == Kind::Page && !self.has_pages {
                continue;
            }
            if let (Some(_), false) = (kind.column(), self.is_floor) {
                self.ask(kind, FIRST)?.push("first: ", &section, figures);
                self.wait_for_key(kind, &section, figures)?;
            }
            let after = self.ask(kind, usize::MAX)?;
            after.push("after: ", &section, figures);
            bench.progress.note(&format!("  {section}: {} queries", after.latencies.count()));
            costs[at] = after.micros();
            let base = KINDS.iter().position(|other| *other == kind.base());
            let base = base.and_then(|base| costs[base]).filter(|_| kind != kind.base());
            if let (Some(base), Some(cost), false) = (base, costs[at], self.is_floor) {
                let above = (cost - base) / kind.found() as f64;
                figures.push(&section, "CPU us above by name, a row found", 2, above);
            }
            self.drop_key(kind)?;
        }
        Ok(costs)
    }

    /// Asks so many times, or until the time is over.
    fn ask(&mut self, kind: Kind, most: usize) -> Result<Asked, Error> {
        // The last group has no whole page behind its first row.
        let groups = self.rows / GROUP - 1;
        let (mut latencies, start) = (Latencies::default(), Instant::now());
        let before = self.running.cpu_nanos()?;
        for n in 0..most {
            if n > 0 && start.elapsed() >= self.limit {
                break;
            }
            self.asked += 1;
            let request = kind.request(self.asked * STRIDE % groups);
            let sent = Instant::now();
            let reply = self.client.exchange(request.as_bytes())?;
            latencies.push(sent.elapsed());
            if !self.is_floor {
                check(kind, &request, reply)?;
            }
            if kind.is_monitor() {
                let id = self.asked;
                let cancel = format!(r#"{{"id":{id},"method":"monitor_cancel","params":["m"]}}"#);
                self.client.exchange(cancel.as_bytes())?;
            }
        }
        let after = self.running.cpu_nanos()?;
        let cpu = before.zip(after).map(|(before, after)| after.saturating_sub(before));
        Ok(Asked { latencies, cpu })
    }

    /// Asks until the server has made itself a key, if it is one that does, and tells what it takes.
    fn wait_for_key(
        &mut self,
        kind: Kind,
        section: &str,
        figures: &mut Figures,
    ) -> Result<(), Error> {
        let mut asked = FIRST;
        while asked < HELP && self.control.is_some() {
            self.ask(kind, 1)?;
            asked += 1;
            let Some(key) = self.key(kind)?.filter(|key| key.is_ready) else { continue };
            // What it estimates: what one key takes does not show in a process that drops others.
            let metric = format!("{} key by index/list, bytes an entry", key.kind);
            figures.push(section, "queries until there is a key", 0, asked as f64);
            figures.push(section, &metric, 1, key.bytes / key.entries);
            return Ok(());
        }
        Ok(())
    }

    /// The key of a kind's column, if there is one.
    fn key(&mut self, kind: Kind) -> Result<Option<Key>, Error> {
        let (Some(control), Some(column)) = (&mut self.control, kind.column()) else {
            return Ok(None);
        };
        let list = control.call("index/list", &json!([DB]))?;
        Ok(key_in(list.as_str().unwrap_or_default(), column))
    }

    /// Takes the server's key away, so that the next kind has the memory that keys may take.
    fn drop_key(&mut self, kind: Kind) -> Result<(), Error> {
        if self.key(kind)?.is_none() {
            return Ok(());
        }
        let (Some(control), Some(column)) = (&mut self.control, kind.column()) else {
            return Ok(());
        };
        control.call("index/drop", &json!([DB, "Item", column])).map(drop)
    }
}

/// What some queries came to.
struct Asked {
    latencies: Latencies,
    /// CPU time of the server, in nanoseconds.
    cpu: Option<u64>,
}

impl Asked {
    /// CPU time of the server for each query, in microseconds.
    fn micros(&self) -> Option<f64> {
        self.cpu.map(|cpu| cpu as f64 / 1e3 / self.latencies.count() as f64)
    }

    fn push(&self, when: &str, section: &str, figures: &mut Figures) {
        let mut push =
            |name: &str, value| figures.push(section, &format!("{when}{name}"), 1, value);
        if let Some(micros) = self.micros() {
            push("server CPU us", micros);
        }
        push("p50 us", self.latencies.percentile(50.0));
        push("p99 us", self.latencies.percentile(99.0));
    }
}

/// The key of a column in what `index/list` says: database, table, column, kind, who wants it (one
/// word of a key that the server has chosen itself), state, entries, bytes, rows saved.
fn key_in(list: &str, column: &str) -> Option<Key> {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let line = list.lines().map(words).find(|words| words.get(2).is_some_and(|c| c == column))?;
    let number = |at: usize| line.get(at).and_then(|word| word.parse().ok());
    Some(Key {
        kind: line.get(3)?.clone(),
        is_ready: line.get(5)? == "ready",
        entries: number(6)?,
        bytes: number(7)?,
    })
}

fn check(kind: Kind, request: &str, reply: &[u8]) -> Result<(), Error> {
    let found = memchr::memmem::find_iter(reply, NAME_OF_A_ROW).count();
    if found != kind.found() {
        fail!("{request} was answered {}", String::from_utf8_lossy(reply));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_json_and_name_what_a_key_would_serve() {
        for kind in KINDS {
            let request: serde_json::Value = serde_json::from_str(&kind.request(7)).unwrap();
            assert!(request["method"].is_string());
            if let Some(column) = kind.column() {
                assert!(kind.request(7).contains(&format!("[\"{column}\"")), "{kind:?}");
            }
        }
    }

    #[test]
    fn an_answer_with_other_rows_than_asked_for_is_a_failure() {
        let one = br#"{"id":1,"result":[{"rows":[{"name":"item-0000010"}]}],"error":null}"#;
        assert!(check(Kind::Name, "", one).is_ok());
        assert!(check(Kind::Shared, "", one).is_err());
        assert!(check(Kind::Name, "", b"{\"id\":1,\"result\":[{\"rows\":[]}]}").is_err());
    }

    #[test]
    fn a_key_is_read_from_the_list_of_all() {
        let list = "database  table  column  kind  wanted by  state  entries  bytes  rows saved\n\
                    Bench_Queries  Item  owner  hash  server  ready  4000  48000  7\n\
                    Bench_Queries  Item  tags  -  server  building  -  -  -\n";
        let key = key_in(list, "owner").unwrap();
        assert_eq!((key.kind.as_str(), key.is_ready), ("hash", true));
        assert_eq!(key.bytes / key.entries, 12.0);
        assert!(key_in(list, "tags").is_none() && key_in(list, "name").is_none());
    }
}

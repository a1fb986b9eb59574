//! Figures of all runs, side by side.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::Error;
use crate::stats::median;

/// What a figure is and how it is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Metric {
    /// As the table says it, unit included.
    pub(crate) name: &'static str,
    /// Digits after the point.
    pub(crate) digits: usize,
}

/// The figures of one run of one server: section, metric, value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures(Vec<(String, Metric, f64)>);

impl Figures {
    pub(crate) fn push(&mut self, section: &str, metric: Metric, value: f64) {
        self.0.push((section.to_owned(), metric, value));
    }
}

/// All runs of a scenario.
pub(crate) struct Report {
    title: String,
    machine: String,
    /// Servers in the order of the columns.
    columns: Vec<Column>,
    /// Sections and metrics in the order in which they first appeared.
    rows: Vec<(String, Metric)>,
}

struct Column {
    name: String,
    floor: bool,
    runs: Vec<Figures>,
}

impl Report {
    pub(crate) fn new(title: String, machine: String) -> Self {
        Self { title, machine, columns: Vec::new(), rows: Vec::new() }
    }

    /// Adds one run of one server.
    pub(crate) fn add(&mut self, name: &str, floor: bool, figures: Figures) {
        for (section, metric, _) in &figures.0 {
            if !self.rows.iter().any(|(s, m)| s == section && m == metric) {
                self.rows.push((section.clone(), *metric));
            }
        }
        match self.columns.iter_mut().find(|column| column.name == name) {
            Some(column) => column.runs.push(figures),
            None => self.columns.push(Column { name: name.into(), floor, runs: vec![figures] }),
        }
    }

    fn value(&self, column: &Column, section: &str, metric: Metric) -> Option<f64> {
        let of_run = |run: &Figures| {
            let found = run.0.iter().find(|(s, m, _)| s == section && *m == metric);
            found.map(|&(_, _, value)| value)
        };
        median(&column.runs.iter().filter_map(of_run).collect::<Vec<_>>())
    }

    /// The two columns that the ratio compares: the last server with the first one, or a lone
    /// server with the floor.
    fn compared(&self) -> Option<(&Column, &Column)> {
        let mut servers = self.columns.iter().filter(|column| !column.floor);
        let first = servers.next()?;
        let floor = self.columns.iter().find(|column| column.floor);
        servers.next_back().map(|last| (last, first)).or_else(|| Some((first, floor?)))
    }

    /// The table for people.
    pub(crate) fn table(&self) -> String {
        let ratio = self.compared();
        let mut lines = vec![vec![String::new()]];
        lines[0].extend(self.columns.iter().map(|column| column.name.clone()));
        lines[0].extend(ratio.map(|(a, b)| format!("{}/{}", a.name, b.name)));
        let mut section = "";
        for (of, metric) in &self.rows {
            if of != section {
                section = of;
                lines.push(vec![section.to_owned()]);
            }
            let mut line = vec![format!("  {}", metric.name)];
            let show = |value: Option<f64>| value.map_or("-".into(), |v| number(v, metric.digits));
            line.extend(self.columns.iter().map(|c| show(self.value(c, of, *metric))));
            line.extend(ratio.map(|(a, b)| {
                match (self.value(a, of, *metric), self.value(b, of, *metric)) {
                    (Some(a), Some(b)) if b != 0.0 => format!("{:.3}", a / b),
                    _ => "-".into(),
                }
            }));
            lines.push(line);
        }
        let mut text = format!("{}\n{}\n\n", self.title, self.machine);
        text.push_str(&align(&lines));
        text
    }

    /// Every figure of every run.
    pub(crate) fn json(&self) -> Value {
        let run = |figures: &Figures| {
            let mut sections = Map::new();
            for (section, metric, value) in &figures.0 {
                let metrics = sections.entry(section.clone()).or_insert_with(|| json!({}));
                metrics[metric.name] = json!(value);
            }
            Value::Object(sections)
        };
        let servers = self.columns.iter().map(|column| {
            let runs = column.runs.iter().map(run).collect();
            (column.name.clone(), Value::Array(runs))
        });
        json!({
            "scenario": self.title,
            "machine": self.machine,
            "servers": Value::Object(servers.collect()),
        })
    }

    /// Prints the table and writes the JSON file, if one is wanted.
    pub(crate) fn publish(&self, json: Option<&Path>) -> Result<(), Error> {
        print!("{}", self.table());
        let Some(path) = json else { return Ok(()) };
        let text = format!("{:#}\n", self.json());
        fs::write(path, text).map_err(|e| Error::io("writing", path, e))
    }
}

/// A number with `digits` after the point and commas between thousands.
fn number(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let (whole, fraction) =
        text.split_once('.').map_or((text.as_str(), None), |(w, f)| (w, Some(f)));
    let mut out = String::new();
    for (n, digit) in whole.chars().enumerate() {
        if n > 0 && (whole.len() - n).is_multiple_of(3) && digit.is_ascii_digit() {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        let _ = write!(out, ".{fraction}");
    }
    out
}

/// First column to the left, the others to the right.
fn align(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |n: usize| lines.iter().filter_map(|line| line.get(n)).map(|w| w.chars().count()).max();
    let widths: Vec<_> = (0..columns).map(|n| width(n).unwrap_or(0)).collect();
    let mut text = String::new();
    for line in lines {
        let mut out = String::new();
        for (n, word) in line.iter().enumerate() {
            let _ = match n {
                0 => write!(out, "{word:<0$}", widths[0]),
                _ => write!(out, "  {word:>0$}", widths[n]),
            };
        }
        text.push_str(out.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Metric = Metric { name: "tx/s", digits: 0 };
    const CPU: Metric = Metric { name: "CPU us", digits: 1 };

    fn figures(rate: f64, cpu: f64) -> Figures {
        let mut figures = Figures::default();
        figures.push("add", RATE, rate);
        figures.push("add", CPU, cpu);
        figures
    }

    #[test]
    fn medians_stand_side_by_side_with_their_ratio() {
        let mut report = Report::new("ports".into(), "a machine".into());
        for rate in [900.0, 1000.0, 5000.0] {
            report.add("ref", false, figures(rate, 400.0));
            report.add("weir", false, figures(rate * 20.0, 20.0));
        }
        report.add("floor", true, figures(100_000.0, 9.0));
        let expected = "\
ports
a machine

            ref    weir    floor  weir/ref
add
  tx/s    1,000  20,000  100,000    20.000
  CPU us  400.0    20.0      9.0     0.050
";
        assert_eq!(report.table(), expected);
        assert_eq!(report.json()["servers"]["ref"][2]["add"]["tx/s"], json!(5000.0));
    }

    #[test]
    fn a_lone_server_is_compared_with_the_floor() {
        let mut report = Report::new(String::new(), String::new());
        report.add("weir", false, figures(1.0, 18.0));
        report.add("floor", true, figures(2.0, 9.0));
        assert!(report.table().contains("weir/floor"));
        assert!(report.table().contains("2.000"));
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(number(1_234_567.0, 0), "1,234,567");
        assert_eq!(number(999.96, 1), "1,000.0");
        assert_eq!(number(12.0, 0), "12");
        assert_eq!(number(-1234.5, 1), "-1,234.5");
    }
}

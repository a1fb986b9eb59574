//! Figures of all runs of a scenario, side by side.

mod goals;
mod html;
mod json;
mod plot;
mod strip;
mod table;

use std::fs;
use std::path::Path;

use serde_json::json;

pub(crate) use self::json::read;
use crate::Error;
use crate::stats::median;

/// What a figure is and how it is printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Metric {
    /// The figure as the table names it, unit included.
    pub(crate) name: String,
    /// Digits that are printed after the point.
    pub(crate) digits: usize,
}

/// A line of a plot: what one server did.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Curve {
    /// The plot's title; curves of one title share a plot.
    pub(crate) plot: String,
    /// What the axes show, units included.
    pub(crate) axes: [String; 2],
    /// Whether the axes are logarithmic.
    pub(crate) log: [bool; 2],
    pub(crate) points: Vec<(f64, f64)>,
}

/// The figures of one run of one server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    values: Vec<(String, Metric, f64)>,
    curves: Vec<Curve>,
}

impl Figures {
    pub(crate) fn push(&mut self, section: &str, name: &str, digits: usize, value: f64) {
        self.values.push((section.to_owned(), Metric { name: name.to_owned(), digits }, value));
    }

    pub(crate) fn draw(&mut self, curve: Curve) {
        self.curves.push(curve);
    }

    /// One figure, where it is there.
    pub(crate) fn value(&self, section: &str, name: &str) -> Option<f64> {
        let mut values = self.values.iter();
        values.find(|(of, metric, _)| of == section && metric.name == name).map(|found| found.2)
    }

    /// The figures and plots as part of something.
    pub(crate) fn within(mut self, what: &str) -> Self {
        self.values.iter_mut().for_each(|(section, ..)| *section = format!("{what}, {section}"));
        self.curves.iter_mut().for_each(|curve| curve.plot = format!("{what}, {}", curve.plot));
        self
    }

    pub(crate) fn append(&mut self, mut other: Self) {
        self.values.append(&mut other.values);
        self.curves.append(&mut other.curves);
    }
}

/// What a scenario says about itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct About {
    /// The scenario's name as the command line has it.
    pub(crate) scenario: String,
    /// One line: sizes and clients.
    pub(crate) title: String,
    /// Whether the sizes are those that the goals speak of.
    pub(crate) standard: bool,
}

/// All runs of a scenario.
pub(crate) struct Report {
    about: About,
    machine: String,
    command: String,
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
    pub(crate) fn new(about: About, machine: String, command: String) -> Self {
        Self { about, machine, command, columns: Vec::new(), rows: Vec::new() }
    }

    /// Says more of how it was measured.
    pub(crate) fn add_to_title(&mut self, more: &str) {
        self.about.title.push_str(&format!(", {more}"));
    }

    /// What to type for this report alone.
    pub(crate) fn set_command(&mut self, command: String) {
        self.command = command;
    }

    /// Adds one run of one server.
    pub(crate) fn add(&mut self, name: &str, floor: bool, figures: Figures) {
        for (section, metric, _) in &figures.values {
            if !self.rows.iter().any(|(s, m)| s == section && m.name == metric.name) {
                // Beside the others of its section.
                let last = self.rows.iter().rposition(|(s, _)| s == section);
                let at = last.map_or(self.rows.len(), |at| at + 1);
                self.rows.insert(at, (section.clone(), metric.clone()));
            }
        }
        match self.columns.iter_mut().find(|column| column.name == name) {
            Some(column) => column.runs.push(figures),
            None => self.columns.push(Column { name: name.into(), floor, runs: vec![figures] }),
        }
    }

    /// The titles of all plots of the last runs.
    fn plots(&self) -> Vec<&str> {
        let mut titles: Vec<&str> = Vec::new();
        for run in self.columns.iter().filter_map(|column| column.runs.last()) {
            for curve in &run.curves {
                if !titles.contains(&curve.plot.as_str()) {
                    titles.push(&curve.plot);
                }
            }
        }
        titles
    }

    /// The curves of a plot, each with the number of its column.
    fn curves_of(&self, title: &str) -> impl Iterator<Item = (usize, &Curve)> {
        self.columns.iter().enumerate().flat_map(move |(n, column)| {
            let curves = column.runs.last().into_iter().flat_map(|run| &run.curves);
            curves.filter(move |curve| curve.plot == title).map(move |curve| (n, curve))
        })
    }

    /// The two columns that the ratio compares: the last server with the first one, or a lone
    /// server with the floor.
    fn compared(&self) -> Option<(&Column, &Column)> {
        let mut servers = self.columns.iter().filter(|column| !column.floor);
        let first = servers.next()?;
        let floor = self.columns.iter().find(|column| column.floor);
        servers.next_back().map(|last| (last, first)).or_else(|| Some((first, floor?)))
    }
}

impl Column {
    /// The median of all runs.
    fn value(&self, section: &str, metric: &str) -> Option<f64> {
        let of_run = |run: &Figures| {
            let found = run.values.iter().find(|(s, m, _)| s == section && m.name == metric);
            found.map(|&(_, _, value)| value)
        };
        median(&self.runs.iter().filter_map(of_run).collect::<Vec<_>>())
    }
}

/// Prints the tables and writes the files that are wanted.
pub(crate) fn publish(
    reports: &[Report],
    json: Option<&Path>,
    page: Option<&Path>,
) -> Result<(), Error> {
    for report in reports {
        println!("{}", report.table());
    }
    if let Some(path) = json {
        write_json(reports, path)?;
    }
    if let Some(path) = page {
        write(path, &html::page(reports))?;
    }
    Ok(())
}

/// Writes every figure of every run.
pub(crate) fn write_json(reports: &[Report], path: &Path) -> Result<(), Error> {
    let all: Vec<_> = reports.iter().map(Report::to_json).collect();
    let document = json!({"weir-bench": env!("CARGO_PKG_VERSION"), "reports": all});
    write(path, &format!("{document:#}\n"))
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(|e| Error::io("writing", path, e))
}

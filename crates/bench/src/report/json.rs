//! Reports as JSON, every figure of every run, and back: a long table is measured scenario by
//! scenario and put together afterwards.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::{About, Column, Curve, Figures, Metric, Report};
use crate::Error;

impl Report {
    /// The report with everything that [`Report::from_json`] needs.
    pub(super) fn to_json(&self) -> Value {
        let mut servers = Map::new();
        let mut curves = Map::new();
        for column in &self.columns {
            servers.insert(column.name.clone(), column.runs.iter().map(figures).collect());
            let of_runs = column.runs.iter().map(|run| run.curves.iter().map(curve).collect());
            curves.insert(column.name.clone(), Value::Array(of_runs.collect()));
        }
        let floors = self.columns.iter().filter(|column| column.floor);
        let digits: BTreeMap<_, _> =
            self.rows.iter().map(|(_, metric)| (&metric.name, metric.digits)).collect();
        json!({
            "scenario": self.about.scenario,
            "title": self.about.title,
            "standard": self.about.standard,
            "machine": self.machine,
            "command": self.command,
            "floors": floors.map(|column| &column.name).collect::<Vec<_>>(),
            "digits": digits,
            "servers": servers,
            "curves": curves,
        })
    }

    fn from_json(value: &Value) -> Self {
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let about = About {
            scenario: text("scenario"),
            title: text("title"),
            standard: value["standard"] == true,
        };
        let mut report = Self::new(about, text("machine"), text("command"));
        for (name, runs) in members(&value["servers"]) {
            let floor = elements(&value["floors"]).any(|floor| floor.as_str() == Some(name));
            for (n, run) in elements(runs).enumerate() {
                let mut figures = Figures::default();
                for (section, metrics) in members(run) {
                    for (metric, value_of) in members(metrics) {
                        let digits = value["digits"][metric].as_u64().unwrap_or(1) as usize;
                        let metric = Metric { name: metric.clone(), digits };
                        let number = value_of.as_f64().unwrap_or(f64::NAN);
                        figures.values.push((section.clone(), metric, number));
                    }
                }
                let curves = elements(&value["curves"][name][n]);
                figures.curves = curves.map(read_curve).collect();
                report.add(name, floor, figures);
            }
            if elements(runs).next().is_none() {
                report.columns.push(Column { name: name.clone(), floor, runs: Vec::new() });
            }
        }
        report
    }
}

fn figures(run: &Figures) -> Value {
    let mut sections = Map::new();
    for (section, metric, value) in &run.values {
        let metrics = sections.entry(section.clone()).or_insert_with(|| json!({}));
        metrics[&metric.name] = json!(value);
    }
    Value::Object(sections)
}

fn curve(curve: &Curve) -> Value {
    json!({"plot": curve.plot, "axes": curve.axes, "log": curve.log, "points": curve.points})
}

fn read_curve(value: &Value) -> Curve {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let points = elements(&value["points"]).map(|point| (number(&point[0]), number(&point[1])));
    Curve {
        plot: text(&value["plot"]),
        axes: [text(&value["axes"][0]), text(&value["axes"][1])],
        log: [value["log"][0] == true, value["log"][1] == true],
        points: points.collect(),
    }
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

fn elements(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Reads a file that [`super::publish`] wrote.
pub(crate) fn read(path: &Path) -> Result<Vec<Report>, Error> {
    let text = fs::read(path).map_err(|e| Error::io("reading", path, e))?;
    let document: Value = serde_json::from_slice(&text)
        .map_err(|e| Error::Check(format!("{} is not JSON: {e}", path.display())))?;
    let reports: Vec<_> = elements(&document["reports"]).map(Report::from_json).collect();
    if reports.is_empty() {
        return Err(Error::Check(format!("{} holds no reports", path.display())));
    }
    Ok(reports)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_survives_the_file() {
        let about = About { scenario: "set".into(), title: "a set".into(), standard: true };
        let mut report = Report::new(about, "a machine".into(), "weir bench set".into());
        let mut figures = Figures::default();
        figures.push("300 elements", "p50 us", 1, 7.5);
        figures.draw(Curve {
            plot: "memory".into(),
            axes: ["s".into(), "MB".into()],
            log: [false, true],
            points: vec![(0.0, 1.0), (1.0, 2.5)],
        });
        report.add("weir", false, figures.clone());
        report.add("floor", true, figures);
        let back = Report::from_json(&report.to_json());
        assert_eq!(back.to_json(), report.to_json());
        assert_eq!(back.table(), report.table());
    }
}

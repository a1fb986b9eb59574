//! A report as a table for people.

use std::fmt::Write as _;

use super::{Report, goals};

impl Report {
    /// Title, machine, figures, rates over time and goals.
    pub(super) fn table(&self) -> String {
        let mut text = format!("{}\n{}\n", self.about.title, self.machine);
        if !self.command.is_empty() {
            let _ = writeln!(text, "$ {}", self.command);
        }
        text.push('\n');
        text.push_str(&align(&self.lines()));
        text.push_str(&self.strips());
        text.push_str(&self.goals());
        text
    }

    /// The cells: a head, and for each section its name and its figures.
    pub(super) fn lines(&self) -> Vec<Vec<String>> {
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
            line.extend(self.columns.iter().map(|c| show(c.value(of, &metric.name))));
            line.extend(ratio.map(|(a, b)| {
                match (a.value(of, &metric.name), b.value(of, &metric.name)) {
                    (Some(a), Some(b)) if b != 0.0 => format!("{:.3}", a / b),
                    _ => "-".into(),
                }
            }));
            lines.push(line);
        }
        lines
    }

    /// The goals of the last server, met and missed.
    fn goals(&self) -> String {
        let judged = goals::judge(self);
        let (Some((server, _)), false) = (self.compared(), judged.is_empty()) else {
            return String::new();
        };
        let mut text = format!("\ngoals of {}{}\n", server.name, self.caution());
        let lines: Vec<_> = judged
            .iter()
            .map(|goal| {
                let met = if goal.met { "met" } else { "MISSED" };
                let what = format!("  {}", goal.what);
                vec![what, number(goal.value, goal.digits), met.to_owned(), goal.bound.clone()]
            })
            .collect();
        text.push_str(&align(&lines));
        text
    }

    /// What to say beside goals when the sizes were not those that they speak of.
    pub(super) fn caution(&self) -> &'static str {
        if self.about.standard { "" } else { " (another size than the goals': an indication only)" }
    }
}

/// A number with `digits` after the point and commas between thousands.
pub(super) fn number(value: f64, digits: usize) -> String {
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
    use super::super::{About, Figures};
    use super::*;

    fn figures(rate: f64, cpu: f64) -> Figures {
        let mut figures = Figures::default();
        figures.push("add", "tx/s", 0, rate);
        figures.push("add", "CPU us", 1, cpu);
        figures
    }

    fn report(title: &str) -> Report {
        let about = About { title: title.into(), ..About::default() };
        Report::new(about, "a machine".into(), String::new())
    }

    #[test]
    fn medians_stand_side_by_side_with_their_ratio() {
        let mut report = report("ports");
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
    }

    #[test]
    fn a_lone_server_is_compared_with_the_floor() {
        let mut report = report("");
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

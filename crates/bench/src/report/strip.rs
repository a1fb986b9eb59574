//! Rates over time as text, a line of bars for each server: what stood still shows without a page.

use std::fmt::Write as _;

use super::table::number;
use super::{Curve, Report};

const COLUMNS: usize = 72;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// A column in which nothing was done for some of the time.
const NONE: char = '.';

impl Report {
    /// All plots of something a second over seconds.
    pub(super) fn strips(&self) -> String {
        let mut text = String::new();
        for title in self.plots() {
            let curves: Vec<_> = self.curves_of(title).filter(|(_, one)| is_rate(one)).collect();
            let points = || curves.iter().flat_map(|(_, curve)| &curve.points);
            let most = points().map(|point| point.1).fold(0.0, f64::max);
            let end = points().map(|point| point.0).fold(0.0, f64::max);
            let Some((_, first)) = curves.first() else { continue };
            let longest = curves.iter().map(|(_, curve)| curve.points.len()).max().unwrap_or(0);
            let columns = longest.clamp(1, COLUMNS);
            let step = end / columns as f64;
            let (end, most_text) = (number(end, 0), number(most, 0));
            let [seconds, rate] = &first.axes;
            let _ = writeln!(text, "\n{title}: {end} {seconds}, █ is {most_text} {rate};");
            let _ = writeln!(text, "a bar is the least in {step:.1} s, {NONE} is none");
            let width = curves.iter().map(|(n, _)| self.columns[*n].name.chars().count()).max();
            for (n, curve) in &curves {
                let name = &self.columns[*n].name;
                let bars = bars(&curve.points, step, most, columns);
                let _ = writeln!(text, "  {name:<0$}  {bars}", width.unwrap_or(0));
            }
        }
        text
    }
}

fn is_rate(curve: &Curve) -> bool {
    curve.axes[0] == "seconds" && curve.axes[1].ends_with(" a second")
}

/// The least of each step, up to the last point.
fn bars(points: &[(f64, f64)], step: f64, most: f64, columns: usize) -> String {
    let mut least: Vec<Option<f64>> = vec![None; columns];
    for &(at, value) in points {
        let column = ((at / step) as usize).min(columns - 1);
        least[column] = Some(least[column].map_or(value, |other| other.min(value)));
    }
    let last = least.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    let mut before = 0.0;
    let bar = |value: &Option<f64>| {
        // A column between two points is as the one before.
        before = value.unwrap_or(before);
        if before <= 0.0 {
            return NONE;
        }
        let height = (before / most * BARS.len() as f64).ceil() as usize;
        BARS[height.clamp(1, BARS.len()) - 1]
    };
    least.iter().take(last).map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{About, Figures};
    use super::*;

    fn figures(unit: &str, rates: &[f64]) -> Figures {
        let mut figures = Figures::default();
        let point = |(n, rate): (usize, &f64)| (n as f64 + 0.5, *rate);
        figures.draw(Curve {
            plot: "writes over time".into(),
            axes: ["seconds".into(), unit.into()],
            log: [false; 2],
            points: rates.iter().enumerate().map(point).collect(),
        });
        figures
    }

    #[test]
    fn servers_share_a_scale_and_a_gap_is_seen() {
        let mut report = Report::new(About::default(), String::new(), String::new());
        report.add("ref", false, figures("writes a second", &[800.0, 0.0, 400.0, 100.0]));
        report.add("weir", false, figures("writes a second", &[800.0, 700.0]));
        let text = report.strips();
        assert!(text.contains("writes over time: 4 seconds, █ is 800 writes a second"), "{text}");
        assert!(text.contains("  ref   █.▄▁\n  weir  █▇\n"), "{text}");
    }

    #[test]
    fn a_column_of_many_points_shows_the_least() {
        let points: Vec<_> = (0..1_000).map(|n| (f64::from(n), f64::from(n % 100))).collect();
        assert_eq!(bars(&points, 100.0, 99.0, 10), ".".repeat(10));
        let text = bars(&[(0.5, 5.0), (3.5, 10.0)], 1.0, 10.0, 4);
        assert_eq!(text, "▄▄▄█", "columns without a point are as those before");
    }

    #[test]
    fn what_is_no_rate_over_time_is_not_drawn() {
        let mut report = Report::new(About::default(), String::new(), String::new());
        report.add("weir", false, figures("RSS MB", &[1.0, 2.0]));
        assert_eq!(report.strips(), "");
    }
}

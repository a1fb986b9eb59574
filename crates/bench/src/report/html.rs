//! All reports as one page that needs nothing else: figures, goals and plots.

use std::fmt::Write as _;

use super::plot::{self, Series, escape};
use super::table::number;
use super::{Report, goals};

const HEAD: &str = include_str!("page.html");
/// Colours of [`HEAD`].
const COLOURS: usize = 6;
/// Metrics that are drawn as bars, one group a section.
const BARS: [&str; 2] = ["tx/s, all drained", "server CPU us/tx"];

/// The page.
pub(super) fn page(reports: &[Report]) -> String {
    let mut out = HEAD.to_owned();
    let machine = reports.first().map_or("", |report| report.machine.as_str());
    let _ = write!(out, "<h1>weir bench</h1><p>{}</p><nav>", escape(machine));
    for (n, report) in reports.iter().enumerate() {
        let _ = write!(out, r##"<a href="#r{n}">{}</a> "##, escape(&report.about.scenario));
    }
    out.push_str("</nav>");
    for (n, report) in reports.iter().enumerate() {
        let _ = write!(
            out,
            r#"<section id="r{n}"><h2>{}</h2><p class="note">{}<br><code>{}</code></p>"#,
            escape(&report.about.title),
            escape(&report.machine),
            escape(&report.command)
        );
        legend(report, &mut out);
        out.push_str(r#"<div class="plots">"#);
        BARS.into_iter().for_each(|metric| bars(report, metric, &mut out));
        curves(report, &mut out);
        out.push_str("</div>");
        goal_table(report, &mut out);
        figures(report, &mut out);
        out.push_str("</section>");
    }
    out.push_str("</main></body></html>\n");
    out
}

fn legend(report: &Report, out: &mut String) {
    out.push_str(r#"<p class="legend">"#);
    for (n, column) in report.columns.iter().enumerate() {
        let _ = write!(out, r#"<i class="k{}"></i>{} "#, n % COLOURS, escape(&column.name));
    }
    out.push_str("</p>");
}

fn bars(report: &Report, metric: &str, out: &mut String) {
    let sections = report.rows.iter().filter(|(_, of)| of.name == metric);
    let groups: Vec<_> = sections
        .map(|(section, _)| {
            let bars = report.columns.iter().enumerate().filter_map(|(n, column)| {
                let value = column.value(section, metric)?;
                let points = vec![(0.0, value)];
                Some(Series { name: column.name.clone(), colour: n % COLOURS, points })
            });
            (section.clone(), bars.collect())
        })
        .collect();
    if !groups.is_empty() {
        figure(metric, &plot::bars(&groups), out);
    }
}

/// One plot for each title, with the curves of the last run of every server.
fn curves(report: &Report, out: &mut String) {
    for title in report.plots() {
        let mut shape = None;
        let mut series = Vec::new();
        for (n, curve) in report.curves_of(title) {
            shape.get_or_insert((&curve.axes, curve.log));
            let (name, points) = (report.columns[n].name.clone(), curve.points.clone());
            series.push(Series { name, colour: n % COLOURS, points });
        }
        if let Some((axes, log)) = shape {
            figure(title, &plot::lines(axes, log, &series), out);
        }
    }
}

fn figure(title: &str, svg: &str, out: &mut String) {
    let _ = write!(out, "<figure><figcaption>{}</figcaption>{svg}</figure>", escape(title));
}

fn goal_table(report: &Report, out: &mut String) {
    let judged = goals::judge(report);
    if judged.is_empty() {
        return;
    }
    let _ = write!(out, "<h3>Goals{}</h3><table>", report.caution());
    for goal in &judged {
        let (class, word) = if goal.met { ("met", "met") } else { ("missed", "missed") };
        let _ = write!(
            out,
            r#"<tr><td>{}<td class="n">{}<td class="{class}">{word}<td>{}"#,
            escape(&goal.what),
            number(goal.value, goal.digits),
            escape(&goal.bound)
        );
    }
    out.push_str("</table>");
}

fn figures(report: &Report, out: &mut String) {
    out.push_str("<h3>Figures</h3><table>");
    for (n, line) in report.lines().iter().enumerate() {
        let tag = if n == 0 || line.len() == 1 { "th" } else { "td" };
        out.push_str("<tr>");
        for (m, cell) in line.iter().enumerate() {
            let class = if m == 0 { "" } else { r#" class="n""# };
            let _ = write!(out, "<{tag}{class}>{}", escape(cell.trim()));
        }
    }
    out.push_str("</table>");
}

#[cfg(test)]
mod tests {
    use super::super::{About, Curve, Figures};
    use super::*;

    #[test]
    fn the_page_stands_alone() {
        let about = About { scenario: "ports".into(), title: "a <title>".into(), standard: true };
        let mut report = Report::new(about, "m".into(), "weir bench ports".into());
        for (name, value) in [("ref", 300.0), ("weir", 20.0)] {
            let mut figures = Figures::default();
            figures.push("port add", "server CPU us/tx", 1, value);
            figures.draw(Curve {
                plot: "memory over time".into(),
                axes: ["s".into(), "MB".into()],
                log: [false; 2],
                points: vec![(0.0, 10.0), (1.0, value)],
            });
            report.add(name, false, figures);
        }
        let page = page(&[report]);
        assert_eq!(page.matches("<svg").count(), 2);
        assert_eq!(page.matches("<figure>").count(), page.matches("</figure>").count());
        assert!(page.contains("a &lt;title&gt;") && page.contains(r#"class="met""#));
        for outside in ["http:", "https:", "src=", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}

//! Plots as SVG, drawn for a page that may be light or dark: colours are the page's classes.

use std::fmt::Write as _;

use super::table::number;

/// One server's line or bars; `colour` numbers the page's colours.
pub(super) struct Series {
    pub(super) name: String,
    pub(super) colour: usize,
    pub(super) points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 44.0;

/// An axis from data to the picture.
struct Scale {
    log: bool,
    low: f64,
    high: f64,
    /// Where the low and the high end are drawn.
    from: f64,
    to: f64,
}

impl Scale {
    fn new(values: impl Iterator<Item = f64>, log: bool, from: f64, to: f64) -> Self {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite() && (!log || *value > 0.0)) {
            low = low.min(value);
            high = high.max(value);
        }
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        if log {
            low = 10_f64.powf(low.log10().floor());
            high = 10_f64.powf(high.log10().ceil()).max(low * 10.0);
        } else {
            low = low.min(0.0);
            high = high.max(low + 1e-9);
        }
        Self { log, low, high, from, to }
    }

    fn place(&self, value: f64) -> f64 {
        let part = if self.log {
            (value.max(self.low) / self.low).log10() / (self.high / self.low).log10()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + part * (self.to - self.from)
    }

    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let (low, high) = (self.low.log10().round() as i32, self.high.log10().round() as i32);
            let step = ((high - low) / 6).max(1) as usize;
            return (low..=high).step_by(step).map(|power| 10_f64.powi(power)).collect();
        }
        let raw = (self.high - self.low) / 5.0;
        let power = 10_f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|s| s * power >= raw).unwrap_or(10.0);
        let step = step * power;
        let first = (self.low / step).ceil() as i64;
        (0..12).map(|n| (first + n) as f64 * step).take_while(|&t| t <= self.high).collect()
    }
}

/// A plot of lines with marks.
pub(super) fn lines(axes: &[String; 2], log: [bool; 2], series: &[Series]) -> String {
    let all = || series.iter().flat_map(|s| s.points.iter());
    let x = Scale::new(all().map(|p| p.0), log[0], LEFT, WIDTH - RIGHT);
    let y = Scale::new(all().map(|p| p.1), log[1], HEIGHT - BOTTOM, TOP);
    let mut svg = open(HEIGHT, &format!("{} against {}", axes[1], axes[0]));
    for tick in y.ticks() {
        let at = y.place(tick);
        let _ = write!(
            svg,
            r#"<path class="grid" d="M{LEFT} {at:.1}H{:.1}"/><text class="y" x="{:.1}" y="{:.1}">{}</text>"#,
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0,
            short(tick)
        );
    }
    for tick in x.ticks() {
        let at = x.place(tick);
        let _ = write!(
            svg,
            r#"<path class="grid" d="M{at:.1} {TOP}V{:.1}"/><text class="x" x="{at:.1}" y="{:.1}">{}</text>"#,
            HEIGHT - BOTTOM,
            HEIGHT - BOTTOM + 16.0,
            short(tick)
        );
    }
    let _ = write!(
        svg,
        r#"<text class="x" x="{:.1}" y="{:.1}">{}</text><text class="x" transform="translate(13 {:.1})rotate(-90)">{}</text>"#,
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 8.0,
        escape(&axes[0]),
        (TOP + HEIGHT - BOTTOM) / 2.0,
        escape(&axes[1])
    );
    for one in series {
        draw(&mut svg, one, &x, &y);
    }
    svg.push_str("</svg>");
    svg
}

/// Marks are drawn where there are few enough to tell apart.
const MARKS_MAX: usize = 24;

fn draw(svg: &mut String, series: &Series, x: &Scale, y: &Scale) {
    let mut path = String::new();
    for &(px, py) in &series.points {
        let letter = if path.is_empty() { 'M' } else { 'L' };
        let _ = write!(path, "{letter}{:.1} {:.1}", x.place(px), y.place(py));
    }
    let colour = series.colour;
    let _ = write!(
        svg,
        r#"<path class="line s{colour}" d="{path}"><title>{}</title></path>"#,
        escape(&series.name)
    );
    if series.points.len() <= MARKS_MAX {
        for &(px, py) in &series.points {
            let _ = write!(
                svg,
                r#"<circle class="f{colour}" cx="{:.1}" cy="{:.1}" r="3"><title>{}: {} at {}</title></circle>"#,
                x.place(px),
                y.place(py),
                escape(&series.name),
                short(py),
                short(px)
            );
        }
    }
}

/// Horizontal bars: for each group one bar a server.
pub(super) fn bars(groups: &[(String, Vec<Series>)]) -> String {
    const BAR: f64 = 15.0;
    const NAME: f64 = 180.0;
    const VALUE: f64 = 70.0;
    let count: usize = groups.iter().map(|(_, bars)| bars.len()).sum();
    let height = count as f64 * BAR + groups.len() as f64 * 10.0 + 6.0;
    let values = groups.iter().flat_map(|(_, bars)| bars.iter().filter_map(|b| b.points.first()));
    let x = Scale::new(values.map(|p| p.1), false, NAME, WIDTH - VALUE);
    let mut svg = open(height, "bars");
    let mut y = 6.0;
    for (name, series) in groups {
        let _ = write!(
            svg,
            r#"<text class="y" x="{:.1}" y="{:.1}">{}</text>"#,
            NAME - 8.0,
            y + 11.5,
            escape(name)
        );
        for bar in series {
            let Some(&(_, value)) = bar.points.first() else { continue };
            let width = (x.place(value) - NAME).max(1.0);
            let digits = if value < 100.0 { 1 } else { 0 };
            let _ = write!(
                svg,
                r#"<rect class="f{}" x="{NAME}" y="{y:.1}" width="{width:.1}" height="{:.1}"><title>{}</title></rect><text class="v" x="{:.1}" y="{:.1}">{}</text>"#,
                bar.colour,
                BAR - 2.0,
                escape(&bar.name),
                NAME + width + 5.0,
                y + 11.0,
                number(value, digits)
            );
            y += BAR;
        }
        y += 10.0;
    }
    svg.push_str("</svg>");
    svg
}

fn open(height: f64, label: &str) -> String {
    format!(r#"<svg viewBox="0 0 {WIDTH} {height:.0}" role="img" aria-label="{}">"#, escape(label))
}

/// A number as an axis shows it: 1.5k, 20M.
fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        v if v >= 1e9 => (value / 1e9, "G"),
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{scaled:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}{unit}")
}

/// Text between tags or in an attribute.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logarithmic_axis_gives_decades_equal_room() {
        let scale = Scale::new([2.0, 900.0].into_iter(), true, 0.0, 300.0);
        assert_eq!((scale.low, scale.high), (1.0, 1000.0));
        assert!((scale.place(10.0) - 100.0).abs() < 1e-9);
        assert_eq!(scale.ticks(), [1.0, 10.0, 100.0, 1000.0]);
    }

    #[test]
    fn a_linear_axis_begins_at_zero_with_round_ticks() {
        let scale = Scale::new([3.0, 47.0].into_iter(), false, 0.0, 47.0);
        assert_eq!(scale.ticks(), [0.0, 10.0, 20.0, 30.0, 40.0]);
        assert_eq!(scale.place(47.0), 47.0);
    }

    #[test]
    fn names_cannot_break_the_page() {
        let series = Series { name: "<a&b>".into(), colour: 0, points: vec![(1.0, 2.0)] };
        let svg = lines(&["x".into(), "\"y\"".into()], [false; 2], &[series]);
        assert!(svg.contains("&lt;a&amp;b&gt;") && svg.contains("&quot;y&quot;"));
        assert!(!svg.contains("<a&b>"));
    }

    #[test]
    fn axis_numbers_are_short() {
        assert_eq!(short(1_500_000.0), "1.5M");
        assert_eq!(short(20_000.0), "20k");
        assert_eq!(short(0.25), "0.25");
        assert_eq!(short(100.0), "100");
    }
}

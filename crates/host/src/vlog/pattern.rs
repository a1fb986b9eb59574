//! Log patterns: `%` conversions with an optional `-`, `0` and width (ovs-appctl(8), "PATTERN").

use crate::vlog::date::{self, Zone};
use crate::vlog::level::Level;

/// Date format of `%d` and `%D` without braces.
const DATE_DEFAULT: &str = "%Y-%m-%d %H:%M:%S.###";

/// What a pattern can print.
pub(crate) struct Line<'a> {
    pub(crate) application: &'a str,
    pub(crate) subprogram: &'a str,
    pub(crate) module: &'a str,
    pub(crate) level: Level,
    pub(crate) text: &'a str,
    /// Number of the line.
    pub(crate) serial: u64,
    pub(crate) wall_ms: i64,
    /// Milliseconds since the program began.
    pub(crate) uptime_ms: u128,
    /// Syslog facility, already shifted.
    pub(crate) facility: u8,
    pub(crate) hostname: &'a str,
}

/// Prints `line` as `pattern` says, without a final newline.
pub(crate) fn format(pattern: &str, line: &Line<'_>, out: &mut String) {
    let mut rest = pattern;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = conversion(&rest[at + 1..], line, out);
    }
    out.push_str(rest);
}

/// Prints one conversion; returns what follows it.
fn conversion<'p>(text: &'p str, line: &Line<'_>, out: &mut String) -> &'p str {
    let (left, text) = flag(text, '-');
    let (zero, text) = flag(text, '0');
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let width: usize = text[..digits].parse().unwrap_or(0).min(WIDTH_MAX);
    let mut chars = text[digits..].chars();
    let letter = chars.next();
    let mut rest = chars.as_str();
    let start = out.len();
    match letter {
        Some(letter @ ('d' | 'D')) => {
            let template = braces(&mut rest).unwrap_or(DATE_DEFAULT);
            let zone = if letter == 'd' { Zone::Local } else { Zone::Utc };
            date::format(template, line.wall_ms, zone, out);
        }
        Some(letter) => field(letter, line, out),
        None => out.push('%'),
    }
    let missing = width.saturating_sub(out.len() - start);
    if left {
        out.extend(std::iter::repeat_n(' ', missing));
    } else if missing > 0 {
        out.insert_str(start, &(if zero { "0" } else { " " }).repeat(missing));
    }
    rest
}

/// Widest field, so that a pattern cannot ask for gigabytes.
const WIDTH_MAX: usize = 1024;

fn flag(text: &str, flag: char) -> (bool, &str) {
    match text.strip_prefix(flag) {
        Some(rest) => (true, rest),
        None => (false, text),
    }
}

/// Takes `{...}` from the front.
fn braces<'p>(text: &mut &'p str) -> Option<&'p str> {
    let (inside, rest) = text.strip_prefix('{')?.split_once('}')?;
    *text = rest;
    Some(inside)
}

fn field(letter: char, line: &Line<'_>, out: &mut String) {
    match letter {
        'A' => out.push_str(line.application),
        'B' => out.push_str(&(line.facility | line.level.severity()).to_string()),
        'c' => out.push_str(line.module),
        'E' => out.push_str(line.hostname),
        'm' => out.push_str(line.text),
        'N' => out.push_str(&line.serial.to_string()),
        'n' => out.push('\n'),
        'p' => out.push_str(line.level.name()),
        'P' => out.push_str(&std::process::id().to_string()),
        'r' => out.push_str(&line.uptime_ms.to_string()),
        't' => out.push_str(if line.subprogram.is_empty() { "main" } else { line.subprogram }),
        'T' if line.subprogram.is_empty() => {}
        'T' => out.push_str(&format!("({})", line.subprogram)),
        other => out.push(other),
    }
}

#[cfg(test)]
mod tests {
    use super::{Line, format};
    use crate::vlog::level::Level;

    fn print(pattern: &str, subprogram: &str) -> String {
        let line = Line {
            application: "ovsdb-server",
            subprogram,
            module: "fatal_signal",
            level: Level::Warn,
            text: "going",
            serial: 4,
            wall_ms: 1_795_297_623_107,
            uptime_ms: 1488,
            facility: 128,
            hostname: "vm",
        };
        let mut out = String::new();
        format(pattern, &line, &mut out);
        out
    }

    #[test]
    fn the_file_pattern() {
        let pattern = "%D{%Y-%m-%dT%H:%M:%S.###Z}|%05N|%c%T|%p|%m";
        let expected = "2026-11-21T21:47:03.107Z|00004|fatal_signal|WARN|going";
        assert_eq!(print(pattern, ""), expected);
        let expected = "2026-11-21T21:47:03.107Z|00004|fatal_signal(monitor)|WARN|going";
        assert_eq!(print(pattern, "monitor"), expected);
    }

    #[test]
    fn every_conversion() {
        assert_eq!(
            print("%A|%B|%c|%D|%E|%m", ""),
            "ovsdb-server|132|fatal_signal|2026-11-21 21:47:03.107|vm|going"
        );
        assert_eq!(print("%n%N|%p|%r|%t|%T|%t", ""), "\n4|WARN|1488|main||main");
        assert_eq!(print("%t%T", "monitor"), "monitor(monitor)");
        assert_eq!(print("%P", ""), std::process::id().to_string());
    }

    #[test]
    fn widths_and_what_is_no_conversion() {
        assert_eq!(print("%6p|%-6p|%06N|%3c", ""), "  WARN|WARN  |000004|fatal_signal");
        assert_eq!(print("[%5D{é}]", ""), "[   é]", "widths count bytes");
        assert_eq!(print("%%|%q|%C|100%", ""), "%|q|C|100%");
        assert_eq!(print("%D{|", ""), "2026-11-21 21:47:03.107{|");
    }
}

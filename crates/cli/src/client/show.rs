//! Rows and changes as lines for people.

use std::fmt::Write;

use weir_json::Value;

use super::cell::{Cell, CellChange};
use super::replica::{Change, Kind, Replica, Row, name_of};

/// The longest value shown whole, in characters.
const VALUE_WIDTH: usize = 100;

/// The most elements shown of a set or a map.
const ELEMENTS_SHOWN: usize = 16;

/// Letters of a uuid that tell rows apart well enough.
const SHORT_UUID: usize = 8;

/// Colors of a terminal, or none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Palette {
    on: bool,
}

const GREEN: &str = "32";
const RED: &str = "31";
const YELLOW: &str = "33";
const BOLD: &str = "1";
const DIM: &str = "2";

impl Palette {
    /// Colors if `on`.
    pub(crate) fn new(on: bool) -> Self {
        Self { on }
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Text that matters less, in its colour.
    pub(crate) fn dim(self, text: &str) -> String {
        self.paint(DIM, text)
    }

    /// The text of a heading, in its colour.
    pub(crate) fn bold(self, text: &str) -> String {
        self.paint(BOLD, text)
    }
}

/// Writes lines about the rows of a replica.
#[derive(Clone, Copy)]
pub(crate) struct Show<'r> {
    /// Where names of referenced rows come from.
    pub(crate) replica: &'r Replica,
    /// The colours to write in.
    pub(crate) palette: Palette,
}

impl Show<'_> {
    /// `+ Port eth0  tag=7`, `- Port eth0`, `~ Port eth0  tag 7 → 8`; no time, no line end.
    pub(crate) fn change(&self, change: &Change) -> String {
        let (sign, color, row) = match &change.kind {
            Kind::Inserted => ("+", GREEN, self.replica.row(&change.table, &change.uuid)),
            Kind::Deleted(row) => ("-", RED, Some(row)),
            Kind::Modified(_) => ("~", YELLOW, self.replica.row(&change.table, &change.uuid)),
        };
        let mut line = self.palette.paint(color, &format!("{sign} {}", change.table));
        line.push(' ');
        line += &self.palette.bold(&self.label(row, &change.uuid));
        match &change.kind {
            Kind::Inserted => line += &row.map(|row| self.columns(row)).unwrap_or_default(),
            Kind::Deleted(_) => {}
            Kind::Modified(columns) => {
                for (column, change) in columns {
                    let _ = write!(line, "  {column} {}", self.cell_change(change));
                }
            }
        }
        line
    }

    /// A row that is there: `  Port eth0  tag=7`.
    pub(crate) fn row(&self, table: &str, uuid: &str, row: &Row) -> String {
        let label = self.palette.bold(&self.label(Some(row), uuid));
        format!("  {table} {label}{}", self.columns(row))
    }

    fn label(&self, row: Option<&Row>, uuid: &str) -> String {
        match row.and_then(name_of) {
            Some(name) => text(name),
            None => short(uuid).to_owned(),
        }
    }

    /// All columns that say something, the row's name aside.
    fn columns(&self, row: &Row) -> String {
        let mut line = String::new();
        let named = name_of(row).is_some();
        for (name, cell) in row {
            if cell.is_default() || (named && name == "name") || name == "_version" {
                continue;
            }
            let _ = write!(line, "  {name}={}", self.cell(cell));
        }
        line
    }

    fn cell(&self, cell: &Cell) -> String {
        match cell {
            Cell::One(value) => self.value(value),
            Cell::Set(set) => {
                format!("[{}]", list(set.values().map(|value| self.value(value)), ", "))
            }
            Cell::Map(map) => {
                let pairs = map.values().map(|(k, v)| self.pair(k, v));
                format!("{{{}}}", list(pairs, ", "))
            }
        }
    }

    fn cell_change(&self, change: &CellChange) -> String {
        match change {
            CellChange::Replaced(old, new) => {
                format!("{} → {}", self.value(old), self.palette.bold(&self.value(new)))
            }
            CellChange::Elements { added, removed } => {
                let added = added.iter().map(|value| self.added(&self.value(value)));
                let removed = removed.iter().map(|value| self.removed(&self.value(value)));
                list(removed.chain(added), " ")
            }
            CellChange::Pairs { added, removed, changed } => {
                let added = added.iter().map(|(k, v)| self.added(&self.pair(k, v)));
                let removed = removed.iter().map(|(k, v)| self.removed(&self.pair(k, v)));
                let changed = changed.iter().map(|(key, old, new)| {
                    format!("{}={} → {}", self.value(key), self.value(old), self.value(new))
                });
                list(removed.chain(changed).chain(added), " ")
            }
        }
    }

    fn added(&self, text: &str) -> String {
        self.palette.paint(GREEN, &format!("+{text}"))
    }

    fn removed(&self, text: &str) -> String {
        self.palette.paint(RED, &format!("-{text}"))
    }

    fn pair(&self, key: &Value, value: &Value) -> String {
        format!("{}={}", self.value(key), self.value(value))
    }

    /// One element; a reference is shown by the name of its row.
    fn value(&self, value: &Value) -> String {
        match value {
            Value::String(string) => text(string),
            Value::Array(array) => match &array[..] {
                [Value::String(tag), Value::String(uuid)] if tag == "uuid" => {
                    self.replica.name(uuid).map_or_else(|| short(uuid).to_owned(), text)
                }
                // The only set among elements is an optional value that is absent.
                [Value::String(tag), Value::Array(content)]
                    if tag == "set" && content.is_empty() =>
                {
                    "none".to_owned()
                }
                _ => clip(&value.to_string()),
            },
            other => clip(&other.to_string()),
        }
    }
}

/// At most [`ELEMENTS_SHOWN`] items.
fn list(items: impl Iterator<Item = String>, between: &str) -> String {
    let mut out = String::new();
    let mut more = 0;
    for (at, item) in items.enumerate() {
        if at >= ELEMENTS_SHOWN {
            more += 1;
            continue;
        }
        if at > 0 {
            out += between;
        }
        out += &item;
    }
    if more > 0 {
        let _ = write!(out, "{between}… and {more} more");
    }
    out
}

/// A string; in quotes when it would not be read as one word.
fn text(string: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-.:/@%+".contains(c);
    if !string.is_empty() && string.chars().all(plain) {
        return clip(string);
    }
    clip(&Value::from(string).to_string())
}

fn clip(text: &str) -> String {
    match text.char_indices().nth(VALUE_WIDTH) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn short(uuid: &str) -> &str {
    uuid.get(..SHORT_UUID).unwrap_or(uuid)
}

/// The time of day, UTC, from milliseconds since 1970.
pub(crate) fn time_of_day(wall_ms: u64) -> String {
    let seconds = wall_ms / 1000;
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{:03}", seconds % 60, wall_ms % 1000)
}

#[cfg(test)]
mod tests {
    use super::super::column;
    use super::super::replica::Form;
    use super::*;

    const SCHEMA: &str = r#"{"tables":{
        "Port":{"columns":{"name":{"type":"string"},
            "tag":{"type":{"key":"integer","min":0,"max":1}}}},
        "Switch":{"columns":{"name":{"type":"string"},
            "ids":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}},
            "ports":{"type":{"key":{"type":"uuid","refTable":"Port"},
                "min":0,"max":"unlimited"}}}}}}"#;

    fn json(text: &str) -> Value {
        Value::parse(text.as_bytes()).unwrap_or(Value::Null)
    }

    fn replica() -> Replica {
        Replica::new(column::tables(&json(SCHEMA)).unwrap_or_default())
    }

    fn lines(replica: &mut Replica, updates: &str) -> Vec<String> {
        let changes = replica.apply(Form::Differences, &json(updates));
        let show = Show { replica, palette: Palette::new(false) };
        changes.iter().map(|change| show.change(change)).collect()
    }

    #[test]
    fn a_port_is_plugged_in_and_out() {
        let mut replica = replica();
        assert_eq!(
            lines(&mut replica, r#"{"Switch":{"aaaaaaaa-1":{"insert":{"name":"lab"}}}}"#),
            ["+ Switch lab"]
        );
        assert_eq!(
            lines(
                &mut replica,
                r#"{"Port":{"bbbbbbbb-2":{"insert":{"name":"guest 1","tag":7}}},
                "Switch":{"aaaaaaaa-1":{"modify":{"ports":["uuid","bbbbbbbb-2"]}}}}"#
            ),
            ["+ Port \"guest 1\"  tag=7", "~ Switch lab  ports +\"guest 1\""]
        );
        assert_eq!(
            lines(&mut replica, r#"{"Port":{"bbbbbbbb-2":{"modify":{"tag":8}}}}"#),
            ["~ Port \"guest 1\"  tag 7 → 8"]
        );
        assert_eq!(
            lines(&mut replica, r#"{"Port":{"bbbbbbbb-2":{"modify":{"tag":["set",[]]}}}}"#),
            ["~ Port \"guest 1\"  tag 8 → none"]
        );
        assert_eq!(
            lines(
                &mut replica,
                r#"{"Port":{"bbbbbbbb-2":{"delete":null}},
                "Switch":{"aaaaaaaa-1":{"modify":{"ports":["uuid","bbbbbbbb-2"]}}}}"#
            ),
            ["- Port \"guest 1\"", "~ Switch lab  ports -\"guest 1\""]
        );
    }

    #[test]
    fn maps_and_rows_without_a_name() {
        let mut replica = replica();
        assert_eq!(
            lines(
                &mut replica,
                r#"{"Switch":{"aaaaaaaa-1":{"insert":{"ids":["map",[["a","1"],["b","2"]]]}}}}"#
            ),
            ["+ Switch aaaaaaaa  ids={a=1, b=2}"]
        );
        assert_eq!(
            lines(
                &mut replica,
                r#"{"Switch":{"aaaaaaaa-1":{"modify":{"ids":
                    ["map",[["a","1"],["b","3"],["c","4"]]]}}}}"#
            ),
            ["~ Switch aaaaaaaa  ids -a=1 b=2 → 3 +c=4"]
        );
    }

    #[test]
    fn long_things_are_cut() {
        assert_eq!(text(&"x".repeat(VALUE_WIDTH + 1)), "x".repeat(VALUE_WIDTH) + "…");
        let many = list((0..ELEMENTS_SHOWN + 3).map(|n| n.to_string()), " ");
        assert!(many.ends_with("15 … and 3 more"), "{many}");
    }

    #[test]
    fn times() {
        assert_eq!(time_of_day(0), "00:00:00.000");
        assert_eq!(time_of_day(86_400_000 + 3_723_004), "01:02:03.004");
    }

    #[test]
    fn colors_only_on_request() {
        assert_eq!(Palette::new(false).bold("x"), "x");
        assert_eq!(Palette::new(true).bold("x"), "\x1b[1mx\x1b[0m");
    }
}

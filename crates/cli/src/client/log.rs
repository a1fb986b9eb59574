//! `log`: what has changed in a database, when, and who asked for it (docs/log-of-changes.md).

use std::collections::BTreeMap;
use std::fmt::Write;

use weir_data::Schema;
use weir_host::vlog::format_date;
use weir_json::{Value, array};
use weir_table::Format;

use super::Client;
use super::output::{print_value, write_all, write_failure};
use super::remote::Target;
use super::schema::fetch;
use super::session::Refusal;
use crate::program::{Failure, Outcome};

/// The command's name.
pub(super) const NAME: &str = "log";

/// How dates are shown.
const DATE: &str = "%Y-%m-%d %H:%M:%S.###Z";

/// Runs the command `log`.
pub(super) fn log(client: &Client, target: Target) -> Outcome {
    let Target { mut session, server, database, .. } = target;
    let options = &client.options;
    let is_json = match options.style.format {
        Format::Json => true,
        Format::Table => false,
        _ => return Err(Failure::new("log is shown as text, or with --format=json")),
    };
    let texts = [("row", &options.row), ("since", &options.since), ("table", &options.table)];
    let named = |(name, text): (&str, &Option<String>)| {
        text.as_ref().map(|text| (name.to_owned(), Value::from(text.as_str())))
    };
    let mut wanted: BTreeMap<String, Value> = texts.into_iter().filter_map(named).collect();
    wanted.extend(options.limit.map(|limit| ("limit".to_owned(), limit.into())));
    let params = array([database.as_str().into(), Value::Object(wanted)]);
    let changes = session.call("weir_log", params).map_err(|refusal| match refusal {
        Refusal::Error(error) if error.as_str() == Some("unknown method") => Failure::new(format!(
            "{server} cannot tell what has changed: it is not Weir, or an older one"
        )),
        Refusal::Error(error) => {
            let details = error.get("details").and_then(Value::as_str);
            Failure::new(format!(
                "{server}: {}",
                details.map_or_else(|| error.to_string(), str::to_owned)
            ))
        }
        Refusal::Lost(lost) => Failure::new(format!("{server}: {lost}")),
    })?;
    if is_json {
        print_value(&changes, options.style.pretty).map_err(write_failure)?;
    } else {
        let schema = fetch(&mut session, &database)?;
        let mut text = String::new();
        for change in changes.as_array().unwrap_or_default() {
            tell(&mut text, change, &schema);
        }
        write_all(text.as_bytes()).map_err(write_failure)?;
    }
    Ok(std::process::ExitCode::SUCCESS)
}

/// Writes a change for people: when, its id and who; why; what, a line for each row or column.
fn tell(out: &mut String, change: &Value, schema: &Schema) {
    let date = change.get("date").and_then(Value::as_i64);
    let date = date.map_or_else(|| "at some time".to_owned(), |ms| format_date(DATE, ms));
    let id = change.get("id").and_then(Value::as_str).unwrap_or("?");
    let _ = write!(out, "{date}  {id}");
    if let Some(client) = change.get("client").filter(|client| client.as_object().is_some()) {
        out.push_str("  ");
        out.push_str(&printable(&who(client)));
    }
    out.push('\n');
    let comment = change.get("comment").and_then(Value::as_str).unwrap_or_default();
    for line in comment.lines() {
        let _ = writeln!(out, "    {}", printable(line));
    }
    let Some(tables) = change.get("changes").and_then(Value::as_object) else {
        out.push_str("  (what changed is too long to be told, or not known)\n");
        return;
    };
    for (table, rows) in tables {
        for (uuid, row) in rows.as_object().into_iter().flatten() {
            tell_row(out, &format!("{table} {uuid}"), row, schema, table);
        }
    }
}

/// `chassis-1 (ssl:192.0.2.7:4711, role ovn-controller)`
fn who(client: &Value) -> String {
    let text = |name: &str| client.get(name).and_then(Value::as_str);
    let session = text("session").unwrap_or("?");
    let role = text("role").map(|role| format!(", role {role}")).unwrap_or_default();
    match text("certificate") {
        Some(name) => format!("{name} ({session}{role})"),
        None => format!("{session}{role}"),
    }
}

fn tell_row(out: &mut String, label: &str, row: &Value, schema: &Schema, table: &str) {
    for (sign, kind) in [('+', "insert"), ('-', "delete")] {
        if let Some(columns) = row.get(kind).and_then(Value::as_object) {
            let _ = write!(out, "  {sign} {label}");
            for (column, value) in columns {
                let _ = write!(out, "  {column}={}", shown(value));
            }
            out.push('\n');
        }
    }
    let columns = row.get("modify").and_then(Value::as_object);
    for (column, pair) in columns.into_iter().flatten() {
        let [old, new] = pair.as_array().unwrap_or_default() else { continue };
        let _ = write!(out, "  ~ {label}  {column}:");
        if has_many(schema, table, column) {
            for (sign, side) in [('-', old), ('+', new)] {
                for element in elements(side) {
                    let _ = write!(out, " {sign}{element}");
                }
            }
        } else {
            let _ = write!(out, " {} -> {}", shown(old), shown(new));
        }
        out.push('\n');
    }
}

/// Whether of a column only the elements are told that went and came.
fn has_many(schema: &Schema, table: &str, column: &str) -> bool {
    let table = schema.table_id(table).map(|table| schema.table(table));
    let column = table.and_then(|table| Some(table.column(table.column_id(column)?)));
    column.is_some_and(|column| column.ty.is_composite())
}

/// The elements of a set, or `key=value` of a map.
fn elements(value: &Value) -> Vec<String> {
    let inner = |kind: &str| match value.as_array() {
        Some([name, Value::Array(elements)]) if name.as_str() == Some(kind) => Some(elements),
        _ => None,
    };
    if let Some(elements) = inner("set") {
        return elements.iter().map(atom).collect();
    }
    let pair = |pair: &Value| match pair.as_array() {
        Some([key, value]) => format!("{}={}", atom(key), atom(value)),
        _ => pair.to_string(),
    };
    match inner("map") {
        Some(pairs) => pairs.iter().map(pair).collect(),
        None => vec![atom(value)],
    }
}

/// An element; a UUID without what says that it is one.
fn atom(value: &Value) -> String {
    match value.as_array() {
        Some([name, Value::String(uuid)]) if name.as_str() == Some("uuid") => printable(uuid),
        _ => value.to_string(),
    }
}

/// A whole value; nothing is `[]`.
fn shown(value: &Value) -> String {
    match elements(value).as_slice() {
        [element] => element.clone(),
        elements => format!("[{}]", elements.join(", ")),
    }
}

/// A text that does nothing to a terminal.
fn printable(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_and_each_changed_column_has_a_line() {
        let schema = r#"{"name":"D","tables":{"T":{"columns":{"name":{"type":"string"},
            "n":{"type":{"key":"integer","min":0}},
            "ids":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}},
            "tags":{"type":{"key":"string","min":0,"max":"unlimited"}}}}}}"#;
        let schema = Schema::parse_bytes(schema.as_bytes()).expect("a schema");
        let change = r#"{"id":"ID","date":1700000000123,"comment":"one\ntwo\u001b[1m",
            "client":{"session":"ssl:192.0.2.7:4711","certificate":"c1","role":"r"},
            "changes":{"T":{
              "A":{"insert":{"name":"a b","tags":["set",["x","y"]]}},
              "B":{"delete":{"name":"b"}},
              "C":{"modify":{"n":[["set",[]],7],"tags":["x",["set",["y","z"]]],
                   "ids":[["map",[["k","1"]]],["map",[["k","2"]]]]}}}}}"#;
        let change = weir_json::validate(change.as_bytes()).expect("JSON").to_value();
        let mut text = String::new();
        tell(&mut text, &change, &schema);
        let expected = "2023-11-14 22:13:20.123Z  ID  c1 (ssl:192.0.2.7:4711, role r)\n    one\n    \
             two\\u{1b}[1m\n  + T A  name=\"a b\"  tags=[\"x\", \"y\"]\n  - T B  name=\"b\"\n  \
             ~ T C  ids: -\"k\"=\"1\" +\"k\"=\"2\"\n  ~ T C  n: [] -> 7\n  \
             ~ T C  tags: -\"x\" +\"y\" +\"z\"\n";
        assert_eq!(text, expected);
        let nothing = weir_json::validate(br#"{"id":"ID","changes":null}"#).expect("JSON");
        text.clear();
        tell(&mut text, &nothing.to_value(), &schema);
        assert!(text.starts_with("at some time  ID\n  (what changed"), "{text}");
    }
}

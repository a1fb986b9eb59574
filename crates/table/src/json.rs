//! `--format=json`: one JSON object a table, keys sorted.

use std::io::{self, Write};

use weir_json::{Value, write_string};

use crate::cell::Cell;
use crate::printer::{Printer, Table};
use crate::value::write_json;

/// Rows are collected up to this many bytes before they are written.
const CHUNK_SIZE: usize = 64 << 10;

pub(crate) fn print<'a, F, W: Write>(
    printer: &mut Printer<W>,
    table: &Table<'_, 'a, F>,
) -> io::Result<()>
where
    F: Fn(usize, usize) -> Cell<'a>,
{
    let mut json = vec![];
    if printer.style.pretty {
        write(table, &mut json, |_| Ok(()))?;
        // It was written by us, a line above.
        let value = Value::parse(&json).unwrap_or(Value::Null);
        let mut pretty = String::new();
        value.write_pretty(&mut pretty);
        pretty.push('\n');
        return printer.out.write_all(pretty.as_bytes());
    }
    let out = &mut printer.out;
    write(table, &mut json, |json| {
        if json.len() >= CHUNK_SIZE {
            out.write_all(json)?;
            json.clear();
        }
        Ok(())
    })?;
    json.push(b'\n');
    out.write_all(&json)
}

/// Appends the table; `after_row` may take what is there.
fn write<'a, F>(
    table: &Table<'_, 'a, F>,
    json: &mut Vec<u8>,
    mut after_row: impl FnMut(&mut Vec<u8>) -> io::Result<()>,
) -> io::Result<()>
where
    F: Fn(usize, usize) -> Cell<'a>,
{
    json.push(b'{');
    if let Some(caption) = table.caption {
        json.extend_from_slice(b"\"caption\":");
        write_string(json, caption);
        json.push(b',');
    }
    json.extend_from_slice(b"\"data\":[");
    for row in 0..table.rows {
        json.extend_from_slice(if row > 0 { b",[" } else { b"[" });
        for column in 0..table.headings.len() {
            if column > 0 {
                json.push(b',');
            }
            match (table.cell)(row, column) {
                Cell::Empty => json.extend_from_slice(b"null"),
                Cell::Text(text) => write_string(json, text),
                Cell::Json(value) => value.write(json),
                Cell::Value(value, shape) => write_json(value, shape, json),
            }
        }
        json.push(b']');
        after_row(json)?;
    }
    json.extend_from_slice(b"],\"headings\":[");
    for (column, heading) in table.headings.iter().enumerate() {
        if column > 0 {
            json.push(b',');
        }
        write_string(json, heading);
    }
    json.push(b']');
    if let Some(time) = table.time {
        json.extend_from_slice(b",\"time\":");
        write_string(json, time);
    }
    json.push(b'}');
    Ok(())
}

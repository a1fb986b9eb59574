//! `--format=csv`: RFC 4180, with line feeds alone.

use std::io::{self, Write};

use crate::cell::Cell;
use crate::printer::{Printer, Table, write_cell};

pub(crate) fn print<'a, F, W: Write>(
    printer: &mut Printer<W>,
    table: &Table<'_, 'a, F>,
) -> io::Result<()>
where
    F: Fn(usize, usize) -> Cell<'a>,
{
    printer.begin(table)?;
    let style = printer.style;
    let mut line = vec![];
    if style.headings {
        for (column, heading) in table.headings.iter().enumerate() {
            separate(&mut line, column);
            escape(heading.as_bytes(), &mut line);
        }
        line.push(b'\n');
        printer.out.write_all(&line)?;
    }
    let mut text = vec![];
    for row in 0..table.rows {
        line.clear();
        for column in 0..table.headings.len() {
            separate(&mut line, column);
            text.clear();
            write_cell((table.cell)(row, column), style.cells, &mut text);
            escape(&text, &mut line);
        }
        line.push(b'\n');
        printer.out.write_all(&line)?;
    }
    Ok(())
}

fn separate(line: &mut Vec<u8>, column: usize) {
    if column > 0 {
        line.push(b',');
    }
}

/// Appends a field, in quotes where it needs them.
fn escape(field: &[u8], line: &mut Vec<u8>) {
    if !field.iter().any(|c| matches!(c, b'"' | b',' | b'\n')) {
        return line.extend_from_slice(field);
    }
    line.push(b'"');
    for (place, part) in field.split(|c| *c == b'"').enumerate() {
        if place > 0 {
            line.extend_from_slice(b"\"\"");
        }
        line.extend_from_slice(part);
    }
    line.push(b'"');
}

//! `--format=list`: one line a cell, a blank line between rows.

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
    let mut text = vec![];
    for row in 0..table.rows {
        text.clear();
        if row > 0 {
            text.push(b'\n');
        }
        for (column, heading) in table.headings.iter().enumerate() {
            if style.headings && style.color {
                text.extend_from_slice(format!("\x1b[1m{heading:<20}\x1b[0m: ").as_bytes());
            } else if style.headings {
                text.extend_from_slice(format!("{heading:<20}: ").as_bytes());
            }
            write_cell((table.cell)(row, column), style.cells, &mut text);
            text.push(b'\n');
        }
        printer.out.write_all(&text)?;
    }
    Ok(())
}

//! Tables, printed one after another.

use std::io::{self, Write};

use crate::cell::Cell;
use crate::style::{CellFormat, Format, Style};
use crate::{aligned, csv, html, json, list, value};

/// One table. `cell` is asked for the cell in a row and column, maybe more than once.
pub struct Table<'t, 'a, F: Fn(usize, usize) -> Cell<'a>> {
    /// The line above the table.
    pub caption: Option<&'t str>,
    /// When the content was true, for `--timestamp`.
    pub time: Option<&'t str>,
    /// The names of the columns.
    pub headings: &'t [&'t str],
    /// The number of rows.
    pub rows: usize,
    /// The cell in a row and column, counted from 0.
    pub cell: F,
}

/// Writes tables, with what stands between them.
pub struct Printer<W: Write> {
    pub(crate) style: Style,
    pub(crate) out: W,
    /// Whether a table has been printed that the next one is set apart from.
    printed: bool,
}

impl<W: Write> Printer<W> {
    /// Prints to `out`, which should be buffered.
    pub fn new(style: Style, out: W) -> Self {
        Self { style, out, printed: false }
    }

    /// The writer, for what stands between tables.
    pub fn out(&mut self) -> &mut W {
        &mut self.out
    }

    /// Prints a table.
    ///
    /// # Errors
    /// What the writer says.
    pub fn print<'a, F>(&mut self, table: &Table<'_, 'a, F>) -> io::Result<()>
    where
        F: Fn(usize, usize) -> Cell<'a>,
    {
        match self.style.format {
            Format::Table => aligned::print(self, table),
            Format::List => list::print(self, table),
            Format::Html => html::print(self, table),
            Format::Csv => csv::print(self, table),
            Format::Json => json::print(self, table),
        }
    }

    /// The blank line between tables, the time and the caption.
    pub(crate) fn begin<'a, F>(&mut self, table: &Table<'_, 'a, F>) -> io::Result<()>
    where
        F: Fn(usize, usize) -> Cell<'a>,
    {
        if std::mem::replace(&mut self.printed, true) {
            self.out.write_all(b"\n")?;
        }
        if let Some(time) = table.time {
            writeln!(self.out, "{time}")?;
        }
        match table.caption {
            Some(caption) if self.style.color => writeln!(self.out, "\x1b[1m{caption}\x1b[0m"),
            Some(caption) => writeln!(self.out, "{caption}"),
            None => Ok(()),
        }
    }
}

/// Appends a cell as text.
pub(crate) fn write_cell(cell: Cell<'_>, format: CellFormat, out: &mut Vec<u8>) {
    match cell {
        Cell::Empty => {}
        Cell::Text(text) => out.extend_from_slice(text.as_bytes()),
        Cell::Json(json) => json.write(out),
        Cell::Value(json, shape) => match format {
            CellFormat::String => value::write_string(json, shape, out),
            CellFormat::Bare => value::write_bare(json, shape, out),
            CellFormat::Json => value::write_json(json, shape, out),
        },
    }
}

//! `--format=table`: columns aligned with spaces.

use std::io::{self, Write};

use crate::cell::Cell;
use crate::printer::{Printer, Table, write_cell};
use crate::style::{CellFormat, Style};

/// Fewest columns that a table's column keeps where it is cut because it is too wide for the
/// terminal.
const FITTED_WIDTH_MIN: usize = 8;

/// Rows are collected up to this many bytes before they are written.
const CHUNK_SIZE: usize = 64 << 10;

pub(crate) fn print<'a, F, W: Write>(
    printer: &mut Printer<W>,
    table: &Table<'_, 'a, F>,
) -> io::Result<()>
where
    F: Fn(usize, usize) -> Cell<'a>,
{
    printer.begin(table)?;
    let style = printer.style;
    let cells = Cells::format(table, style.cells);
    let mut widths = cells.widths(table.headings, style);
    if style.fit_width > 0 {
        fit(&mut widths, style.fit_width, table.headings, style.headings);
    }
    let mut lines = vec![];
    if style.headings {
        let end = |lines: &mut Vec<u8>, start| {
            trim_end(lines, start);
            lines.push(b'\n');
        };
        if style.color {
            lines.extend_from_slice(b"\x1b[1m");
        }
        let start = lines.len();
        for (column, (heading, width)) in table.headings.iter().zip(&widths).enumerate() {
            pad(&mut lines, column, |lines| lines.extend_from_slice(heading.as_bytes()), *width);
        }
        trim_end(&mut lines, start);
        if style.color {
            lines.extend_from_slice(b"\x1b[0m");
        }
        lines.push(b'\n');
        let start = lines.len();
        for (column, width) in widths.iter().enumerate() {
            pad(
                &mut lines,
                column,
                |lines| lines.extend(std::iter::repeat_n(b'-', *width)),
                *width,
            );
        }
        end(&mut lines, start);
    }
    let mut cells = cells.iter();
    for _ in 0..table.rows {
        let start = lines.len();
        let mut place = start;
        for width in &widths {
            let text = cells.next().unwrap_or_default();
            let text = text.get(..*width).unwrap_or(text);
            if !text.is_empty() {
                lines.resize(place, b' ');
                lines.extend_from_slice(text);
            }
            place += width + 1;
        }
        trim_end(&mut lines, start);
        lines.push(b'\n');
        if lines.len() >= CHUNK_SIZE {
            printer.out.write_all(&lines)?;
            lines.clear();
        }
    }
    printer.out.write_all(&lines)
}

/// The cells of a table as text, row by row. They are all needed before the first is written: how
/// wide a column is shows at its end.
struct Cells {
    text: Vec<u8>,
    lengths: Vec<u32>,
}

impl Cells {
    fn format<'a, F>(table: &Table<'_, 'a, F>, format: CellFormat) -> Self
    where
        F: Fn(usize, usize) -> Cell<'a>,
    {
        let columns = table.headings.len();
        let mut cells = Self { text: vec![], lengths: Vec::with_capacity(table.rows * columns) };
        for row in 0..table.rows {
            for column in 0..columns {
                let start = cells.text.len();
                write_cell((table.cell)(row, column), format, &mut cells.text);
                // No message is so long that this would not fit.
                let length = u32::try_from(cells.text.len() - start).unwrap_or(u32::MAX);
                cells.lengths.push(length);
            }
        }
        cells
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.text[..];
        self.lengths.iter().map(move |length| {
            let (cell, after) = rest.split_at_checked(*length as usize).unwrap_or_default();
            rest = after;
            cell
        })
    }

    /// The width of each column, in bytes as the reference counts it.
    fn widths(&self, headings: &[&str], style: Style) -> Vec<usize> {
        let mut widths = vec![0; headings.len()];
        for row in self.lengths.chunks(headings.len().max(1)) {
            for (width, length) in widths.iter_mut().zip(row) {
                *width = (*length as usize).max(*width);
            }
        }
        for (heading, width) in headings.iter().zip(&mut widths) {
            if style.column_width_max > 0 {
                *width = (*width).min(style.column_width_max);
            }
            if style.headings {
                *width = heading.len().max(*width);
            }
        }
        widths
    }
}

/// Takes from the widest columns until a line fits, as far as that goes.
fn fit(widths: &mut [usize], line: usize, headings: &[&str], with_headings: bool) {
    let least = |column: usize| {
        let heading = headings.get(column).map_or(0, |heading| heading.len());
        if with_headings { heading.max(FITTED_WIDTH_MIN) } else { FITTED_WIDTH_MIN }
    };
    loop {
        let total = widths.iter().sum::<usize>() + widths.len().saturating_sub(1);
        let spare = |(column, width): &(usize, &mut usize)| **width > least(*column);
        let widest = widths.iter_mut().enumerate().filter(spare).max_by_key(|(_, width)| **width);
        match widest {
            Some((column, width)) if total > line => {
                *width = width.saturating_sub(total - line).max(least(column)).max(*width / 2);
            }
            _ => return,
        }
    }
}

/// Appends a cell, cut and filled up to a width, and the space before it.
fn pad(line: &mut Vec<u8>, column: usize, write: impl FnOnce(&mut Vec<u8>), width: usize) {
    if column > 0 {
        line.push(b' ');
    }
    let end = line.len() + width;
    write(line);
    line.truncate(end);
    line.resize(end, b' ');
}

/// Removes spaces at the end of a line, which begins at `start`.
fn trim_end(lines: &mut Vec<u8>, start: usize) {
    while lines.len() > start && lines.last() == Some(&b' ') {
        lines.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_widest_columns_give_way_and_headings_stay_whole() {
        let mut widths = [36, 100, 10, 5];
        fit(&mut widths, 80, &["_uuid", "external_ids", "name", "tag"], true);
        assert!(widths.iter().sum::<usize>() + 3 <= 80, "{widths:?}");
        assert_eq!((widths[2], widths[3]), (10, 5));
        let mut narrow = [36, 100];
        fit(&mut narrow, 5, &["_uuid", "a_very_long_heading"], true);
        assert_eq!(narrow, [FITTED_WIDTH_MIN, 19]);
    }
}

//! `--format=html`: tables whose UUIDs are links to the rows that they name.

use std::io::{self, Write};

use weir_data::Uuid;
use weir_data::uuid::TEXT_LEN;

use crate::cell::Cell;
use crate::printer::{Printer, Table, write_cell};

/// How many characters of a UUID are shown.
const SHOWN_LENGTH: usize = 8;

pub(crate) fn print<'a, F, W: Write>(
    printer: &mut Printer<W>,
    table: &Table<'_, 'a, F>,
) -> io::Result<()>
where
    F: Fn(usize, usize) -> Cell<'a>,
{
    let style = printer.style;
    let mut html = table.time.map_or_else(String::new, |time| format!("{time}\n")).into_bytes();
    html.extend_from_slice(b"<table border=1>\n");
    if let Some(caption) = table.caption {
        element("caption", caption.as_bytes(), &mut html);
    }
    if style.headings {
        html.extend_from_slice(b"  <tr>\n");
        for heading in table.headings {
            element("th", heading.as_bytes(), &mut html);
        }
        html.extend_from_slice(b"  </tr>\n");
    }
    let mut text = vec![];
    for row in 0..table.rows {
        html.extend_from_slice(b"  <tr>\n");
        for (column, heading) in table.headings.iter().enumerate() {
            text.clear();
            write_cell((table.cell)(row, column), style.cells, &mut text);
            if *heading == "_uuid" {
                anchor(&text, &mut html);
            } else {
                element("td", &text, &mut html);
            }
        }
        html.extend_from_slice(b"  </tr>\n");
        printer.out.write_all(&html)?;
        html.clear();
    }
    html.extend_from_slice(b"</table>\n");
    printer.out.write_all(&html)
}

/// The cell that links to this row lead to.
fn anchor(text: &[u8], html: &mut Vec<u8>) {
    html.extend_from_slice(b"    <td><a name=\"");
    text.iter().for_each(|c| escape(*c, html));
    html.extend_from_slice(b"\">");
    text.iter().take(SHOWN_LENGTH).for_each(|c| escape(*c, html));
    html.extend_from_slice(b"</a></td>\n");
}

fn element(name: &str, text: &[u8], html: &mut Vec<u8>) {
    html.extend_from_slice(format!("    <{name}>").as_bytes());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        match rest.split_at_checked(TEXT_LEN) {
            Some((uuid, after)) if Uuid::parse_prefix(uuid).is_some() => {
                html.extend_from_slice(b"<a href=\"#");
                html.extend_from_slice(uuid);
                html.extend_from_slice(b"\">");
                html.extend_from_slice(uuid.get(..SHOWN_LENGTH).unwrap_or_default());
                html.extend_from_slice(b"</a>");
                rest = after;
            }
            _ => {
                escape(*first, html);
                rest = after;
            }
        }
    }
    html.extend_from_slice(format!("</{name}>\n").as_bytes());
}

fn escape(c: u8, html: &mut Vec<u8>) {
    match c {
        b'&' => html.extend_from_slice(b"&amp;"),
        b'<' => html.extend_from_slice(b"&lt;"),
        b'>' => html.extend_from_slice(b"&gt;"),
        b'"' => html.extend_from_slice(b"&quot;"),
        c => html.push(c),
    }
}

//! Standard output of the commands: buffered, and told at the end whether it could be written.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use weir_json::{Text, Value};
use weir_table::{Printer, Style};

use crate::program::Failure;

/// Bytes collected before they are written.
const BUFFER_SIZE: usize = 256 << 10;

/// A printer of tables on standard output.
pub(super) type TablePrinter = Printer<BufWriter<StdoutLock<'static>>>;

/// Standard output behind a buffer.
pub(super) fn stdout() -> BufWriter<StdoutLock<'static>> {
    BufWriter::with_capacity(BUFFER_SIZE, io::stdout().lock())
}

/// A printer in the style that was asked for; on a terminal it has colour and fits.
pub(super) fn printer(style: Style) -> TablePrinter {
    let mut style = style;
    if io::stdout().is_terminal() {
        style.color = std::env::var_os("NO_COLOR").is_none();
        let limited = style.column_width_max > 0;
        style.fit_width = if limited { 0 } else { terminal_width().unwrap_or(0) };
    }
    Printer::new(style, stdout())
}

/// Columns of the terminal.
pub(super) fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Writes a JSON value and ends the line.
pub(super) fn print_json(json: Text<'_>, pretty: bool) -> io::Result<()> {
    let mut bytes = vec![];
    if pretty {
        let mut text = String::new();
        json.to_value().write_pretty(&mut text);
        bytes = text.into_bytes();
    } else {
        json.write(&mut bytes);
    }
    bytes.push(b'\n');
    write_all(&bytes)
}

/// Writes an owned JSON value, as [`print_json`] does.
pub(super) fn print_value(value: &Value, pretty: bool) -> io::Result<()> {
    let mut text = String::new();
    if pretty {
        value.write_pretty(&mut text);
    } else {
        text = value.to_string();
    }
    text.push('\n');
    write_all(text.as_bytes())
}

/// Writes bytes to standard output at once.
pub(super) fn write_all(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// What to say when standard output cannot be written. A reader that went away, as `grep -q` does,
/// is no failure, else scripts with `pipefail` would fail by chance.
pub(super) fn write_failure(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::silent(0),
        _ => Failure::new("write to stdout failed"),
    }
}

//! Tables of OVSDB values as people and scripts read them (ovsdb-client(1), "Output Formatting
//! Options").
//!
//! - [`style`]: which format, and how a cell is written.
//! - [`cell`]: one cell; a value of a database stays the JSON text that a server sent, with the
//!   [`Shape`] of its column beside it.
//! - [`value`]: such a value in the formats of cells, and the order of two of them.
//! - [`printer`]: tables one after another; `aligned`, `list`, `html`, `csv` and `json` are the
//!   formats.
//!
//! A table of a million rows is never copied: its cells are asked for one by one, where a format
//! needs the widths of columns twice.

mod aligned;
pub mod cell;
mod csv;
mod html;
mod json;
mod list;
pub mod printer;
pub mod style;
pub mod value;

pub use cell::{Cell, Shape};
pub use printer::{Printer, Table};
pub use style::{CellFormat, Format, Style};

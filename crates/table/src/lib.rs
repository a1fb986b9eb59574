//! Tables of OVSDB values as people and scripts read them (ovsdb-client(1), "Output Formatting
//! Options").
//!
//! - [`style`]: which format, and how a cell is written.
//! - [`cell`]: one cell; a value of a database stays the JSON text that a server sent, with the
//!   [`Shape`] of its column beside it.
//! - [`value`]: such a value in the formats of cells; [`order`]: as bytes that compare like it.
//! - [`printer`]: tables one after another; `aligned`, `list`, `html`, `csv` and `json` are the
//!   formats.
//!
//! Cells are asked for one by one, and written as they come; `aligned` alone keeps the text of a
//! table until the widths of its columns are known.

mod aligned;
pub mod cell;
mod csv;
mod html;
mod json;
mod list;
pub mod order;
pub mod printer;
pub mod style;
pub mod value;

pub use cell::{Cell, Shape};
pub use order::write_sort_key;
pub use printer::{Printer, Table};
pub use style::{CellFormat, Format, Style};

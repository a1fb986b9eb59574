//! What a user asks for with `--format`, `--data` and their like.

/// How a table is written (`--format`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Columns aligned with spaces.
    #[default]
    Table,
    /// One line for each cell.
    List,
    /// An HTML table.
    Html,
    /// CSV (RFC 4180).
    Csv,
    /// One JSON object for each table.
    Json,
}

impl Format {
    /// The names of all formats, in the order of the manual.
    pub const NAMES: &'static [&'static str] = &["table", "list", "html", "csv", "json"];

    /// The format of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "table" => Self::Table,
            "list" => Self::List,
            "html" => Self::Html,
            "csv" => Self::Csv,
            "json" => Self::Json,
            _ => return None,
        })
    }
}

/// How a cell is written (`--data`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CellFormat {
    /// As ovs-vsctl(8) writes values ("Database Values").
    #[default]
    String,
    /// As ovs-vsctl(8) writes values, without brackets and quotes.
    Bare,
    /// As JSON (RFC 7047 section 5.1).
    Json,
}

impl CellFormat {
    /// The names of all formats of cells, in the order of the manual.
    pub const NAMES: &'static [&'static str] = &["string", "bare", "json"];

    /// The format of cells of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "string" => Self::String,
            "bare" => Self::Bare,
            "json" => Self::Json,
            _ => return None,
        })
    }
}

/// How tables are written: all options about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// `--format`: the form of a table.
    pub format: Format,
    /// `--data`: the form of a cell.
    pub cells: CellFormat,
    /// False with `--no-headings`.
    pub headings: bool,
    /// `--pretty`: JSON with line breaks.
    pub pretty: bool,
    /// `--max-column-width`, in bytes; 0 is no limit.
    pub column_width_max: usize,
    /// Bold headings and captions, for a terminal.
    pub color: bool,
    /// Columns of the terminal that the lines of a table should fit in; 0 is no limit.
    pub fit_width: usize,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            format: Format::default(),
            cells: CellFormat::default(),
            headings: true,
            pretty: false,
            column_width_max: 0,
            color: false,
            fit_width: 0,
        }
    }
}

//! What a user asks for with `--format`, `--data` and their like.

/// How a table is written (`--format`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Columns aligned with spaces.
    #[default]
    Table,
    /// One line a cell.
    List,
    /// HTML tables.
    Html,
    /// RFC 4180.
    Csv,
    /// One JSON object a table.
    Json,
}

impl Format {
    /// The names, in the order of the manual.
    pub const NAMES: &'static [&'static str] = &["table", "list", "html", "csv", "json"];

    /// Reads a name.
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
    /// As ovs-vsctl(8), "Database Values".
    #[default]
    String,
    /// The same without brackets and quotes.
    Bare,
    /// RFC 7047 section 5.1.
    Json,
}

impl CellFormat {
    /// The names, in the order of the manual.
    pub const NAMES: &'static [&'static str] = &["string", "bare", "json"];

    /// Reads a name.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "string" => Self::String,
            "bare" => Self::Bare,
            "json" => Self::Json,
            _ => return None,
        })
    }
}

/// All of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// `--format`.
    pub format: Format,
    /// `--data`.
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

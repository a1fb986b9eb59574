//! Conditions on rows (RFC 7047 §5.1 `<condition>`), shared by operations and monitors.

use std::borrow::Cow;
use std::cmp::Ordering;

use weir_json::Text;

use crate::atom::AtomType;
use crate::datum::Datum;
use crate::english;
use crate::error::{Error, Result};
use crate::row::Row;
use crate::schema::{ColumnId, TableSchema};
use crate::symbols::SymbolTable;
use crate::types::ColumnType;

/// How a clause compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Function {
    /// The column's value is less: `<`.
    Less,
    /// The column's value is less or equal: `<=`.
    LessOrEqual,
    /// The column's value is equal: `==`.
    Equal,
    /// The column's value is another one: `!=`.
    NotEqual,
    /// The column's value is greater or equal: `>=`.
    GreaterOrEqual,
    /// The column's value is greater: `>`.
    Greater,
    /// The column's value has every entry of the argument: `includes`.
    Includes,
    /// The column's value has no entry of the argument: `excludes`.
    Excludes,
}

const FUNCTIONS: [(&str, Function); 8] = [
    ("<", Function::Less),
    ("<=", Function::LessOrEqual),
    ("==", Function::Equal),
    ("!=", Function::NotEqual),
    (">=", Function::GreaterOrEqual),
    (">", Function::Greater),
    ("includes", Function::Includes),
    ("excludes", Function::Excludes),
];

/// One element of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clause {
    /// A bare `true` or `false` (ovsdb-server(7) §5.1).
    Constant(bool),
    /// A comparison, `[column, function, value]`.
    Compare {
        /// The column that is compared.
        column: ColumnId,
        /// How the column's value is compared.
        function: Function,
        /// The value that the column's is compared with.
        value: Datum,
    },
}

/// A list of clauses; whether all or any must hold is the user's business.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// The clauses, in the order given.
    pub clauses: Vec<Clause>,
}

impl Function {
    /// The name of the function on the wire.
    pub fn name(self) -> &'static str {
        FUNCTIONS.iter().find(|(_, f)| *f == self).map_or("", |(name, _)| name)
    }

    /// The function called `name`.
    pub fn parse(name: &str) -> Result<Self> {
        let found = FUNCTIONS.iter().find(|(known, _)| *known == name);
        found
            .map(|(_, function)| *function)
            .ok_or_else(|| Error::new("unknown function", format!("No function named {name}.")))
    }

    fn is_ordering(self) -> bool {
        matches!(self, Self::Less | Self::LessOrEqual | Self::Greater | Self::GreaterOrEqual)
    }
}

impl Clause {
    /// Parses one clause on rows of `table`.
    pub fn parse(
        text: Text<'_>,
        table: &TableSchema,
        symbols: Option<&mut SymbolTable<'_>>,
    ) -> Result<Self> {
        if let Some(constant) = text.bool() {
            return Ok(Self::Constant(constant));
        }
        let Some(([name, function], value)) = two_strings(text) else {
            return Err(Error::syntax(text, "Parse error in condition."));
        };
        let column = table.column_named(text, &name)?;
        let name = &table.column(column).name;
        let function = Function::parse(&String::from_utf8_lossy(&function))?;
        let ty = &table.column(column).ty;
        let numeric = matches!(ty.key.ty, AtomType::Integer | AtomType::Real);
        if function.is_ordering() && !(numeric && (ty.is_scalar() || ty.is_optional_scalar())) {
            let details = format!(
                "Type mismatch: \"{}\" operator may not be applied to column {name} of type {}.",
                function.name(),
                english::column_type(ty),
            );
            return Err(Error::syntax(text, details));
        }
        let value = Datum::parse(value, &argument_type(ty, function), symbols)?;
        Ok(Self::Compare { column, function, value })
    }

    /// Whether the row satisfies the clause.
    pub fn matches(&self, row: &Row) -> bool {
        match self {
            Self::Constant(constant) => *constant,
            Self::Compare { column, function, value } => {
                let (field, value) = (row.get(*column), value.as_ref());
                let ordered = |accept: fn(Ordering) -> bool| {
                    let pair = field.scalar().zip(value.scalar());
                    pair.is_some_and(|(field, value)| accept(field.cmp(&value)))
                };
                match function {
                    Function::Less => ordered(Ordering::is_lt),
                    Function::LessOrEqual => ordered(Ordering::is_le),
                    Function::Greater => ordered(Ordering::is_gt),
                    Function::GreaterOrEqual => ordered(Ordering::is_ge),
                    Function::Equal => field == value,
                    Function::NotEqual => field != value,
                    Function::Includes => field.includes_all(value),
                    Function::Excludes => field.excludes_all(value),
                }
            }
        }
    }
}

/// The parts of an array of two strings and something else: a clause, a mutation.
pub fn two_strings(text: Text<'_>) -> Option<([Cow<'_, [u8]>; 2], Text<'_>)> {
    let [first, second, value] = text.array()?;
    Some(([first.string()?, second.string()?], value))
}

/// `includes` and `excludes` relax how many elements their argument may have; an ordering wants
/// exactly one.
fn argument_type(ty: &ColumnType, function: Function) -> Cow<'_, ColumnType> {
    let (n_min, n_max) = match function {
        Function::Includes => (0, ty.n_max),
        Function::Excludes => (0, ColumnType::UNLIMITED),
        _ if function.is_ordering() => (1, 1),
        _ => (ty.n_min, ty.n_max),
    };
    if ty.is_scalar() || (n_min, n_max) == (ty.n_min, ty.n_max) {
        return Cow::Borrowed(ty);
    }
    Cow::Owned(ColumnType { n_min, n_max, ..ty.clone() })
}

impl Condition {
    /// Parses an array of clauses on rows of `table`.
    pub fn parse(
        text: Text<'_>,
        table: &TableSchema,
        mut symbols: Option<&mut SymbolTable<'_>>,
    ) -> Result<Self> {
        let elements = text.elements().into_iter().flatten();
        let clauses = elements.map(|clause| Clause::parse(clause, table, symbols.as_deref_mut()));
        Ok(Self { clauses: clauses.collect::<Result<_>>()? })
    }

    /// Whether every clause holds (operations).
    pub fn matches_all(&self, row: &Row) -> bool {
        self.clauses.iter().all(|clause| clause.matches(row))
    }

    /// Whether any clause holds, or there is none (monitors).
    pub fn matches_any(&self, row: &Row) -> bool {
        self.clauses.is_empty() || self.clauses.iter().any(|clause| clause.matches(row))
    }
}

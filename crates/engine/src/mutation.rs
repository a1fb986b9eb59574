//! Mutations (RFC 7047 §5.1 `<mutation>`): from a value and an argument to a [`Change`].
//!
//! `insert` and `delete` cost what their argument costs, not what the column holds. The arithmetic
//! ones compute every element anew.

use std::borrow::Cow;

use weir_data::condition::two_strings;
use weir_data::delta::Change;
use weir_data::sorted::{Duplicate, Pair, Sorted};
use weir_data::{
    Atom, AtomType, ColumnId, ColumnType, Datum, DatumRef, Error, SymbolTable, TableSchema, english,
};
use weir_json::Text;

/// What a mutation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutator {
    /// `+=`
    Add,
    /// `-=`
    Subtract,
    /// `*=`
    Multiply,
    /// `/=`
    Divide,
    /// `%=`
    Remainder,
    /// `insert`
    Insert,
    /// `delete`
    Delete,
}

const MUTATORS: [(&str, Mutator); 7] = [
    ("+=", Mutator::Add),
    ("-=", Mutator::Subtract),
    ("*=", Mutator::Multiply),
    ("/=", Mutator::Divide),
    ("%=", Mutator::Remainder),
    ("insert", Mutator::Insert),
    ("delete", Mutator::Delete),
];

/// A mutation of a row: `[column, mutator, value]`.
#[derive(Clone, Debug)]
pub(crate) struct Mutation {
    pub(crate) column: ColumnId,
    mutator: Mutator,
    argument: Datum,
}

impl Mutator {
    fn parse(name: &str) -> Result<Self, Error> {
        let found = MUTATORS.iter().find(|(known, _)| *known == name);
        found
            .map(|(_, mutator)| *mutator)
            .ok_or_else(|| Error::new("unknown mutator", format!("No mutator named {name}.")))
    }

    fn name(self) -> &'static str {
        MUTATORS.iter().find(|(_, mutator)| *mutator == self).map_or("", |(name, _)| name)
    }

    fn is_arithmetic(self) -> bool {
        !matches!(self, Self::Insert | Self::Delete)
    }

    /// Whether the mutation can be applied to columns of this type.
    fn applies_to(self, ty: &ColumnType) -> bool {
        if self.is_arithmetic() {
            let number = match ty.key.ty {
                AtomType::Integer => true,
                AtomType::Real => self != Self::Remainder,
                _ => false,
            };
            !ty.is_map() && number
        } else {
            !ty.is_scalar()
        }
    }
}

impl Mutation {
    /// Parses one mutation of rows of `table`.
    pub(crate) fn parse(
        text: Text<'_>,
        table: &TableSchema,
        symbols: &mut SymbolTable<'_>,
    ) -> Result<Self, Error> {
        let Some(([name, mutator], argument)) = two_strings(text) else {
            return Err(Error::syntax(text, "Parse error in mutation."));
        };
        let column = table.column_named(text, &name)?;
        let schema = table.column(column);
        let name = &schema.name;
        if !schema.mutable {
            let details = format!("Cannot mutate immutable column {name} in table {}.", table.name);
            return Err(Error::syntax_tagged(text, "constraint violation", details));
        }
        let mutator = Mutator::parse(&String::from_utf8_lossy(&mutator))?;
        if !mutator.applies_to(&schema.ty) {
            let details = format!(
                "Type mismatch: \"{}\" operator may not be applied to column {name} of type {}.",
                mutator.name(),
                english::column_type(&schema.ty),
            );
            return Err(Error::syntax(text, details));
        }
        let argument = parse_argument(argument, mutator, &schema.ty, symbols)?;
        Ok(Self { column, mutator, argument })
    }

    /// How many elements of a value are computed anew.
    pub(crate) fn computed(&self, old: &Datum) -> usize {
        if self.mutator.is_arithmetic() { old.as_ref().len() } else { 0 }
    }

    /// What the mutation does to a value of type `ty`; `None` if nothing.
    pub(crate) fn change(&self, old: &Datum, ty: &ColumnType) -> Result<Option<Change>, Error> {
        match self.mutator {
            Mutator::Insert => insert(old, self.argument.as_ref(), ty),
            Mutator::Delete => delete(old, self.argument.as_ref(), ty),
            mutator => compute(mutator, old, self.argument.as_ref(), ty),
        }
    }
}

/// Parses the argument of a mutator that fits `ty`.
fn parse_argument(
    text: Text<'_>,
    mutator: Mutator,
    ty: &ColumnType,
    symbols: &mut SymbolTable<'_>,
) -> Result<Datum, Error> {
    let relaxed = |n_max| {
        if ty.n_min == 0 && ty.n_max == n_max {
            Cow::Borrowed(ty)
        } else {
            Cow::Owned(ColumnType { n_min: 0, n_max, ..ty.clone() })
        }
    };
    match mutator {
        Mutator::Insert => Datum::parse(text, &relaxed(ty.n_max), Some(symbols)),
        Mutator::Delete => {
            let ty = relaxed(ColumnType::UNLIMITED);
            if !ty.is_map() {
                return Datum::parse(text, &ty, Some(symbols));
            }
            // Of a map, pairs or keys can be deleted; it is keys if it can be read as no map.
            Datum::parse(text, &ty, Some(symbols)).or_else(|_| {
                let keys = ColumnType { value: None, ..ty.into_owned() };
                Datum::parse(text, &keys, Some(symbols))
            })
        }
        _ => Datum::parse(text, &ColumnType::scalar(ty.key.ty), Some(symbols)),
    }
}

/// Checks the number of elements that a value would have.
fn check_count(count: usize, ty: &ColumnType) -> Result<(), Error> {
    if count >= ty.n_min as usize && count <= ty.n_max as usize {
        return Ok(());
    }
    let ty = english::column_type(ty);
    Err(Error::constraint(format!("Attempted to store {count} elements in {ty}.")))
}

/// Adds the elements, and the pairs of new keys, that are not there.
fn insert(old: &Datum, argument: DatumRef<'_>, ty: &ColumnType) -> Result<Option<Change>, Error> {
    let missing = argument.entries().filter(|(key, _)| !old.as_ref().contains(*key));
    let (mut atoms, mut pairs) = (Vec::new(), Vec::new());
    for (key, value) in missing {
        match value {
            None => atoms.push(key.to_atom()),
            Some(value) => pairs.push((key.to_atom(), value.to_atom())),
        }
    }
    let count = atoms.len() + pairs.len();
    check_count(old.as_ref().len() + count, ty)?;
    Ok((count > 0).then(|| {
        let none = (Sorted::new(), Sorted::new());
        if ty.is_map() {
            map_change(old, ty, (Sorted::from_sorted(pairs), none.1))
        } else {
            set_change(old, ty, (Sorted::from_sorted(atoms), none.0))
        }
    }))
}

/// Removes the elements, pairs or keys that are there.
fn delete(old: &Datum, argument: DatumRef<'_>, ty: &ColumnType) -> Result<Option<Change>, Error> {
    let old_ref = old.as_ref();
    let (mut atoms, mut pairs) = (Vec::new(), Vec::new());
    for (key, value) in argument.entries().filter(|entry| old_ref.has_entry(*entry)) {
        match old_ref.value_of(key) {
            None => atoms.push(key.to_atom()),
            Some(old_value) => {
                debug_assert!(value.is_none_or(|value| value == old_value));
                pairs.push((key.to_atom(), old_value.to_atom()));
            }
        }
    }
    let count = atoms.len() + pairs.len();
    check_count(old_ref.len() - count, ty)?;
    Ok((count > 0).then(|| {
        if ty.is_map() {
            map_change(old, ty, (Sorted::new(), Sorted::from_sorted(pairs)))
        } else {
            set_change(old, ty, (Sorted::new(), Sorted::from_sorted(atoms)))
        }
    }))
}

/// The change of a set that adds and removes these elements (columns of at most one element change
/// by replacement).
fn set_change(
    old: &Datum,
    ty: &ColumnType,
    (added, removed): (Sorted<Atom>, Sorted<Atom>),
) -> Change {
    replacement(old, ty, Change::Set { added, removed })
}

/// The change of a map that adds and removes these pairs.
fn map_change(
    old: &Datum,
    ty: &ColumnType,
    (added, removed): (Sorted<Pair>, Sorted<Pair>),
) -> Change {
    replacement(old, ty, Change::Map { added, removed })
}

fn replacement(old: &Datum, ty: &ColumnType, change: Change) -> Change {
    if ty.is_composite() {
        return change;
    }
    let mut new = old.clone();
    change.apply(&mut new);
    Change::Replace { old: old.clone(), new }
}

/// Computes every element anew. All are computed before any is checked.
fn compute(
    mutator: Mutator,
    old: &Datum,
    argument: DatumRef<'_>,
    ty: &ColumnType,
) -> Result<Option<Change>, Error> {
    let Some(argument) = argument.scalar().map(|atom| atom.to_atom()) else { return Ok(None) };
    let elements = old.as_ref().keys().map(|atom| match (atom.to_atom(), &argument) {
        (Atom::Integer(x), Atom::Integer(y)) => integer(mutator, x, *y).map(Atom::Integer),
        (Atom::Real(x), Atom::Real(y)) => real(mutator, x, *y).map(Atom::Real),
        (other, _) => Ok(other),
    });
    let elements = elements.collect::<Result<Vec<Atom>, Failure>>();
    let elements = elements.map_err(|failure| failure.error(mutator))?;
    for element in &elements {
        ty.key.check(element.as_ref())?;
    }
    let new = Sorted::from_unsorted(elements).map_err(|Duplicate| {
        let name = mutator.name();
        Error::constraint(format!("Result of \"{name}\" operation contains duplicates."))
    })?;
    Ok(Change::between(old, &Datum::set(new), ty))
}

/// Why there is no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    Range,
    Domain,
}

impl Failure {
    fn error(self, mutator: Mutator) -> Error {
        match self {
            Self::Range => {
                let name = mutator.name();
                let details = format!("Result of \"{name}\" operation is out of range.");
                Error::new("range error", details)
            }
            Self::Domain => Error::new("domain error", "Division by zero."),
        }
    }
}

fn integer(mutator: Mutator, x: i64, y: i64) -> Result<i64, Failure> {
    let result = match mutator {
        Mutator::Add => x.checked_add(y),
        Mutator::Subtract => x.checked_sub(y),
        Mutator::Multiply => x.checked_mul(y).filter(|_| !is_refused_product(x, y)),
        Mutator::Divide | Mutator::Remainder if y == 0 => return Err(Failure::Domain),
        Mutator::Divide => x.checked_div(y),
        Mutator::Remainder => x.checked_rem(y),
        Mutator::Insert | Mutator::Delete => Some(x),
    };
    result.ok_or(Failure::Range)
}

/// Products that would fit and that the reference refuses all the same: of positive factors when
/// the division of its range check is not strict, of negative ones when the second alone is large.
fn is_refused_product(x: i64, y: i64) -> bool {
    x > 0 && y > 0 && x >= i64::MAX / y || x < 0 && y < 0 && y <= i64::MAX / y
}

fn real(mutator: Mutator, x: f64, y: f64) -> Result<f64, Failure> {
    let result = match mutator {
        Mutator::Add => x + y,
        Mutator::Subtract => x - y,
        Mutator::Multiply => x * y,
        Mutator::Divide if y == 0.0 => return Err(Failure::Domain),
        Mutator::Divide => x / y,
        Mutator::Remainder | Mutator::Insert | Mutator::Delete => x,
    };
    // Who applies the change from the log has no more digits than are written there.
    weir_json::told_real(result).ok_or(Failure::Range)
}

#[cfg(test)]
mod tests;

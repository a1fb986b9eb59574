//! Base types with their constraints, and column types (RFC 7047 §3.2 `<base-type>`, `<type>`).

use std::sync::Arc;

use weir_json::{Kind, Text, Value};

use crate::atom::{AtomRef, AtomType};
use crate::datum::Datum;
use crate::english;
use crate::error::{Error, Result};
use crate::parser::{self, Parser};

/// How strongly a UUID column holds the row it refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefKind {
    /// The row must exist and may not be deleted.
    Strong,
    /// The reference goes when the row goes.
    Weak,
}

/// What narrows a base type beyond its atomic type.
#[derive(Clone, Debug, PartialEq)]
pub enum Constraint {
    /// No constraint.
    None,
    /// One of these values (a set of the base type).
    Enum(Arc<Datum>),
    /// Only integers from `min` to `max`, inclusive.
    Integer {
        /// The smallest value allowed.
        min: i64,
        /// The largest value allowed.
        max: i64,
    },
    /// Only reals from `min` to `max`, inclusive; an absent bound is open.
    Real {
        /// The smallest value allowed.
        min: Option<f64>,
        /// The largest value allowed.
        max: Option<f64>,
    },
    /// Only strings of so many UTF-8 characters.
    Length {
        /// The fewest characters allowed.
        min: u32,
        /// The most characters allowed.
        max: u32,
    },
    /// Only UUIDs of rows in a table.
    Ref {
        /// The name of the table that is referred to.
        table: String,
        /// Whether the reference is strong or weak.
        kind: RefKind,
    },
}

/// One atomic type and its constraint.
#[derive(Clone, Debug, PartialEq)]
pub struct BaseType {
    /// The atomic type of the values.
    pub ty: AtomType,
    /// What narrows the atomic type.
    pub constraint: Constraint,
}

/// The type of a column.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnType {
    /// The type of elements, or of a map's keys.
    pub key: BaseType,
    /// The type of a map's values; `None` if the column holds no map.
    pub value: Option<BaseType>,
    /// The fewest elements: 0 or 1.
    pub n_min: u32,
    /// The most elements, 1 or more; [`ColumnType::UNLIMITED`] for no limit.
    pub n_max: u32,
}

impl BaseType {
    /// A type without constraint.
    pub const fn plain(ty: AtomType) -> Self {
        Self { ty, constraint: Constraint::None }
    }

    /// The referenced table and kind, if this refers to rows.
    pub fn reference(&self) -> Option<(&str, RefKind)> {
        match &self.constraint {
            Constraint::Ref { table, kind } => Some((table, *kind)),
            _ => None,
        }
    }

    /// Checks a value of this atomic type against the constraint.
    pub fn check(&self, atom: AtomRef<'_>) -> Result<()> {
        match (&self.constraint, atom) {
            (Constraint::None | Constraint::Ref { .. }, _) => Ok(()),
            (Constraint::Enum(values), _) => {
                if values.as_ref().as_ref().contains(atom) {
                    return Ok(());
                }
                let valid = english::values(values.as_ref().as_ref());
                let actual = english::atom(atom);
                let details = format!("{actual} is not one of the allowed values ({valid})");
                Err(Error::constraint(details))
            }
            (Constraint::Integer { min, max }, AtomRef::Integer(v)) if v < *min || v > *max => {
                let min = (*min != i64::MIN).then(|| min.to_string());
                let max = (*max != i64::MAX).then(|| max.to_string());
                Err(out_of_range(&v.to_string(), min, max))
            }
            (Constraint::Real { min, max }, AtomRef::Real(v))
                if min.is_some_and(|min| v < min) || max.is_some_and(|max| v > max) =>
            {
                let (min, max) = (min.map(english::real), max.map(english::real));
                Err(out_of_range(&english::real(v), min, max))
            }
            (Constraint::Length { min, max }, AtomRef::String(v)) => {
                check_length(v.as_str(), *min, *max)
            }
            _ => Ok(()),
        }
    }

    fn parse(text: Text<'_>) -> Result<Self> {
        if text.kind() == Kind::String {
            return Ok(Self::plain(parse_atom_type(text)?));
        }
        let mut parser = Parser::new(text, &"ovsdb type");
        let ty = parser.member("type", parser::STRING).map(parse_atom_type).transpose()?;
        let Some(ty) = ty else {
            parser.finish()?;
            return Err(Error::plain_syntax("ovsdb type without type"));
        };
        let enumeration = parser.member("enum", parser::ANY | parser::OPTIONAL);
        let mut base = Self::plain(ty);
        if let Some(values) = enumeration {
            let set = ColumnType {
                key: base.clone(),
                value: None,
                n_min: 1,
                n_max: ColumnType::UNLIMITED,
            };
            base.constraint = Constraint::Enum(Arc::new(Datum::parse(values, &set, None)?));
        } else {
            base.constraint = parse_constraint(&mut parser, ty)?;
        }
        parser.finish()?;
        Ok(base)
    }

    /// The JSON form as a schema has it, defaults left out.
    pub fn to_value(&self) -> Value {
        let mut members = vec![("type", Value::from(self.ty.name()))];
        match &self.constraint {
            Constraint::None => return Value::from(self.ty.name()),
            Constraint::Enum(values) => {
                members.push(("enum", english::json_value(values, self)));
            }
            Constraint::Integer { min, max } => {
                members.extend((*min != i64::MIN).then(|| ("minInteger", Value::from(*min))));
                members.extend((*max != i64::MAX).then(|| ("maxInteger", Value::from(*max))));
            }
            Constraint::Real { min, max } => {
                members.extend(min.map(|min| ("minReal", english::real_value(min))));
                members.extend(max.map(|max| ("maxReal", english::real_value(max))));
            }
            Constraint::Length { min, max } => {
                members.extend((*min != 0).then(|| ("minLength", i64::from(*min).into())));
                let limited = *max != u32::MAX;
                members.extend(limited.then(|| ("maxLength", i64::from(*max).into())));
            }
            Constraint::Ref { table, kind } => {
                members.push(("refTable", Value::from(table.as_str())));
                members.extend((*kind == RefKind::Weak).then(|| ("refType", "weak".into())));
            }
        }
        Value::Object(members.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
    }
}

fn parse_atom_type(text: Text<'_>) -> Result<AtomType> {
    let name = text.str().unwrap_or_default();
    AtomType::from_name(&name)
        .ok_or_else(|| Error::syntax(text, format!("\"{name}\" is not an atomic-type")))
}

fn parse_constraint(parser: &mut Parser<'_, '_>, ty: AtomType) -> Result<Constraint> {
    let optional = |types| types | parser::OPTIONAL;
    match ty {
        AtomType::Integer => {
            let min = parser.member("minInteger", optional(parser::INTEGER));
            let max = parser.member("maxInteger", optional(parser::INTEGER));
            let min = min.and_then(Text::integer).unwrap_or(i64::MIN);
            let max = max.and_then(Text::integer).unwrap_or(i64::MAX);
            if min > max {
                parser.fail(Error::syntax(parser.text(), "minInteger exceeds maxInteger"));
            }
            let bounded = min != i64::MIN || max != i64::MAX;
            Ok(if bounded { Constraint::Integer { min, max } } else { Constraint::None })
        }
        AtomType::Real => {
            let mut bound = |name, default: f64| {
                let bound = parser.member(name, optional(parser::NUMBER)).and_then(Text::real);
                bound.filter(|bound| *bound != default)
            };
            let (min, max) = (bound("minReal", f64::MIN), bound("maxReal", f64::MAX));
            let mut told = |bound: Option<f64>| {
                let told = bound.and_then(weir_json::told_real);
                if told.is_none() && bound.is_some() {
                    let error = Error::syntax(parser.text(), "number outside valid range");
                    parser.fail(error);
                }
                told
            };
            // As the schema's own text will have them.
            let (min, max) = (told(min), told(max));
            if min.is_none() && max.is_none() {
                return Ok(Constraint::None);
            }
            if min.zip(max).is_some_and(|(min, max)| min > max) {
                parser.fail(Error::syntax(parser.text(), "minReal exceeds maxReal"));
            }
            Ok(Constraint::Real { min, max })
        }
        AtomType::String => {
            let min = parse_length(parser, "minLength")?;
            let max = parse_length(parser, "maxLength")?;
            let (min, max) = (min.unwrap_or(0), max.unwrap_or(u32::MAX));
            if min > max {
                parser.fail(Error::syntax(parser.text(), "minLength exceeds maxLength"));
            }
            let bounded = min != 0 || max != u32::MAX;
            Ok(if bounded { Constraint::Length { min, max } } else { Constraint::None })
        }
        AtomType::Uuid => {
            let Some(table) = parser.string("refTable", optional(parser::ID)) else {
                return Ok(Constraint::None);
            };
            let kind = match parser.member("refType", optional(parser::ID)) {
                None => RefKind::Strong,
                Some(text) => match text.str().as_deref() {
                    Some("strong") => RefKind::Strong,
                    Some("weak") => RefKind::Weak,
                    other => {
                        let other = other.unwrap_or_default();
                        let message =
                            format!("refType must be \"strong\" or \"weak\" (not \"{other}\")");
                        parser.fail(Error::syntax(parser.text(), message));
                        RefKind::Strong
                    }
                },
            };
            Ok(Constraint::Ref { table, kind })
        }
        AtomType::Boolean => Ok(Constraint::None),
    }
}

fn parse_length(parser: &mut Parser<'_, '_>, name: &'static str) -> Result<Option<u32>> {
    let Some(text) = parser.member(name, parser::INTEGER | parser::OPTIONAL) else {
        return Ok(None);
    };
    let value = text.integer().and_then(|v| u32::try_from(v).ok());
    value.map(Some).ok_or_else(|| {
        let max = u32::MAX;
        Error::syntax(text, format!("{name} out of valid range 0 to {max}"))
    })
}

fn out_of_range(value: &str, min: Option<String>, max: Option<String>) -> Error {
    Error::constraint(match (min, max) {
        (Some(min), Some(max)) => {
            format!("{value} is not in the valid range {min} to {max} (inclusive)")
        }
        (Some(min), None) => format!("{value} is less than minimum allowed value {min}"),
        (_, max) => {
            let max = max.unwrap_or_default();
            format!("{value} is greater than maximum allowed value {max}")
        }
    })
}

fn check_length(text: &str, min: u32, max: u32) -> Result<()> {
    let n = text.chars().count();
    if n < min as usize {
        let details = format!("\"{text}\" length {n} is less than minimum allowed length {min}");
        return Err(Error::constraint(details));
    }
    if n > max as usize {
        let details = format!("\"{text}\" length {n} is greater than maximum allowed length {max}");
        return Err(Error::constraint(details));
    }
    Ok(())
}

impl ColumnType {
    /// The `n_max` of `"max": "unlimited"`.
    pub const UNLIMITED: u32 = u32::MAX;

    /// A scalar without constraint.
    pub const fn scalar(ty: AtomType) -> Self {
        Self { key: BaseType::plain(ty), value: None, n_min: 1, n_max: 1 }
    }

    /// The type without the constraints on its elements.
    #[must_use]
    pub fn without_constraints(&self) -> Self {
        let plain = |base: &BaseType| BaseType::plain(base.ty);
        Self { key: plain(&self.key), value: self.value.as_ref().map(plain), ..*self }
    }

    /// Whether the column holds a map.
    pub fn is_map(&self) -> bool {
        self.value.is_some()
    }

    /// Whether the column holds exactly one atom.
    pub fn is_scalar(&self) -> bool {
        self.value.is_none() && self.n_min == 1 && self.n_max == 1
    }

    /// Whether the column holds at most one atom, or none.
    pub fn is_optional_scalar(&self) -> bool {
        self.value.is_none() && self.n_min == 0 && self.n_max == 1
    }

    /// Whether the column can have more than one element: such columns change by difference.
    pub fn is_composite(&self) -> bool {
        self.n_max > 1
    }

    /// Base types that refer to rows: of keys and of values.
    pub fn references(&self) -> impl Iterator<Item = (&str, RefKind)> {
        [Some(&self.key), self.value.as_ref()].into_iter().flatten().filter_map(BaseType::reference)
    }

    /// Parses a `<type>`.
    pub fn parse(text: Text<'_>) -> Result<Self> {
        if text.kind() == Kind::String {
            return Ok(Self { key: BaseType::parse(text)?, value: None, n_min: 1, n_max: 1 });
        }
        let mut parser = Parser::new(text, &"ovsdb type");
        let base = parser::STRING | parser::OBJECT;
        let key = parser.member("key", base);
        let value = parser.member("value", base | parser::OPTIONAL);
        let min = parser.member("min", parser::INTEGER | parser::OPTIONAL);
        let max = parser.member("max", parser::INTEGER | parser::STRING | parser::OPTIONAL);
        parser.finish()?;
        let key = match key {
            Some(key) => BaseType::parse(key)?,
            None => return Err(Error::syntax(text, "missing key")),
        };
        let value = value.map(BaseType::parse).transpose()?;
        let n_min = min.map_or(Ok(1), parse_count)?;
        let n_max = max.map_or(Ok(1), |text| match text.str().as_deref() {
            Some("unlimited") => Ok(Self::UNLIMITED),
            _ => parse_count(text),
        })?;
        if n_min > 1 || n_max < n_min || n_max < 1 {
            return Err(Error::syntax(text, "ovsdb type fails constraint checks"));
        }
        Ok(Self { key, value, n_min, n_max })
    }

    /// The JSON form as a schema has it, defaults left out.
    pub fn to_value(&self) -> Value {
        if self.is_scalar() && self.key.constraint == Constraint::None {
            return self.key.to_value();
        }
        let mut members = vec![("key", self.key.to_value())];
        members.extend(self.value.as_ref().map(|value| ("value", value.to_value())));
        members.extend((self.n_min != 1).then(|| ("min", i64::from(self.n_min).into())));
        if self.n_max == Self::UNLIMITED {
            members.push(("max", Value::from("unlimited")));
        } else if self.n_max != 1 {
            members.push(("max", i64::from(self.n_max).into()));
        }
        Value::Object(members.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
    }

    /// Checks every element's constraint (not the number of elements).
    pub fn check(&self, datum: crate::DatumRef<'_>) -> Result<()> {
        for (key, value) in datum.entries() {
            self.key.check(key)?;
            if let (Some(ty), Some(value)) = (&self.value, value) {
                ty.check(value)?;
            }
        }
        Ok(())
    }
}

fn parse_count(text: Text<'_>) -> Result<u32> {
    let count = text.integer().filter(|n| (0..i64::from(u32::MAX)).contains(n));
    count
        .and_then(|n| u32::try_from(n).ok())
        .ok_or_else(|| Error::syntax(text, "bad min or max value"))
}

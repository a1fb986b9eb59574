//! Atoms: one value of one of the five atomic types (RFC 7047 §3.2 `<atomic-type>`).

use std::cmp::Ordering;
use std::fmt;

use smol_str::SmolStr;
use weir_json::{Reader, Text};

use crate::error::{Error, Result};
use crate::symbols::SymbolTable;
use crate::uuid::Uuid;

/// The five atomic types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AtomType {
    /// `integer`: 64-bit signed.
    Integer,
    /// `real`: IEEE 754 double.
    Real,
    /// `boolean`: `true` or `false`.
    Boolean,
    /// `string`: UTF-8 text without NUL.
    String,
    /// `uuid`: a row reference or a bare UUID.
    Uuid,
}

impl AtomType {
    /// All five types, in the order of the RFC.
    pub const ALL: [Self; 5] = [Self::Integer, Self::Real, Self::Boolean, Self::String, Self::Uuid];

    /// The type's name in schemas.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Integer => "integer",
            Self::Real => "real",
            Self::Boolean => "boolean",
            Self::String => "string",
            Self::Uuid => "uuid",
        }
    }

    /// The type called `name` in schemas.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|ty| ty.name() == name)
    }
}

/// A string that is cheap to clone: up to 23 bytes are kept in place, longer ones shared.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Str(SmolStr);

impl Str {
    /// The text.
    #[inline]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl From<&str> for Str {
    fn from(text: &str) -> Self {
        Self(SmolStr::new(text))
    }
}

impl fmt::Debug for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// One atomic value.
#[derive(Clone, Debug)]
pub enum Atom {
    /// An atom of type `integer`.
    Integer(i64),
    /// An atom of type `real`; never NaN, and always what is read from its own text
    /// ([`weir_json::told_real`]), or those who read it from a file would have another one.
    Real(f64),
    /// An atom of type `boolean`.
    Boolean(bool),
    /// An atom of type `string`.
    String(Str),
    /// An atom of type `uuid`.
    Uuid(Uuid),
}

/// A borrowed atom.
#[derive(Clone, Copy, Debug)]
pub enum AtomRef<'a> {
    /// An atom of type `integer`.
    Integer(i64),
    /// An atom of type `real`.
    Real(f64),
    /// An atom of type `boolean`.
    Boolean(bool),
    /// An atom of type `string`.
    String(&'a Str),
    /// An atom of type `uuid`.
    Uuid(Uuid),
}

impl Atom {
    /// The default value of a type (RFC 7047 §5.2.1): 0, false, "", all zeros.
    pub fn default_of(ty: AtomType) -> Self {
        match ty {
            AtomType::Integer => Self::Integer(0),
            AtomType::Real => Self::Real(0.0),
            AtomType::Boolean => Self::Boolean(false),
            AtomType::String => Self::String("".into()),
            AtomType::Uuid => Self::Uuid(Uuid::ZERO),
        }
    }

    /// A string atom.
    pub fn string(text: &str) -> Self {
        Self::String(text.into())
    }

    /// Borrows the atom.
    pub fn as_ref(&self) -> AtomRef<'_> {
        match self {
            Self::Integer(v) => AtomRef::Integer(*v),
            Self::Real(v) => AtomRef::Real(*v),
            Self::Boolean(v) => AtomRef::Boolean(*v),
            Self::String(v) => AtomRef::String(v),
            Self::Uuid(v) => AtomRef::Uuid(*v),
        }
    }

    /// The atom's type.
    pub fn atom_type(&self) -> AtomType {
        self.as_ref().atom_type()
    }

    /// The UUID, if the atom is one.
    pub fn as_uuid(&self) -> Option<Uuid> {
        match self {
            Self::Uuid(uuid) => Some(*uuid),
            _ => None,
        }
    }

    /// Appends the JSON form (RFC 7047 §5.1 `<atom>`).
    pub fn write(&self, out: &mut Vec<u8>) {
        self.as_ref().write(out);
    }

    /// Reads one atom of type `ty`, without checking constraints beyond what the type itself
    /// demands (strings are UTF-8). `symbols` resolves `["named-uuid",...]` where it is allowed.
    pub fn read(
        reader: &mut Reader<'_>,
        ty: AtomType,
        symbols: Option<&mut SymbolTable>,
    ) -> Result<Self> {
        let found = match ty {
            AtomType::Integer => reader.integer().map(Self::Integer),
            AtomType::Real => {
                let mut before = reader.clone();
                // As it is told and written: rows read back from that are the same.
                let told = reader.real().map(weir_json::told_real);
                if told == Some(None) {
                    return Err(Error::syntax(before.text(), "number outside valid range"));
                }
                told.flatten().map(Self::Real)
            }
            AtomType::Boolean => reader.bool().map(Self::Boolean),
            AtomType::String => match reader.string() {
                Some(bytes) => match std::str::from_utf8(&bytes) {
                    Ok(text) => Some(Self::string(text)),
                    Err(error) => return Err(not_utf8(&bytes, error)),
                },
                None => None,
            },
            AtomType::Uuid => return read_uuid(reader.text(), symbols).map(Self::Uuid),
        };
        found.ok_or_else(|| Error::syntax(reader.text(), format!("expected {}", ty.name())))
    }
}

/// The reference's words for bytes that are not UTF-8: those that begin a character, and the first that
/// does not continue it; behind the last byte that is a NUL.
fn not_utf8(bytes: &[u8], error: std::str::Utf8Error) -> Error {
    let start = error.valid_up_to();
    let rest = bytes.get(start..).unwrap_or_default();
    let begins = matches!(rest.first(), Some(0xc2..=0xf4));
    let length = error.error_len().unwrap_or(rest.len()) + usize::from(begins);
    let mut text = String::from("not a valid UTF-8 string: invalid UTF-8 sequence");
    for byte in rest.iter().chain(&[0]).take(length) {
        text.push_str(&format!(" {byte:#04x}"));
    }
    Error::constraint(text)
}

/// Splits `["tag","text"]`.
fn tagged_string<'a>(text: Text<'a>, tag: &str) -> Option<std::borrow::Cow<'a, [u8]>> {
    let mut reader = text.reader();
    if !reader.begin_array()
        || !reader.next_element()
        || reader.string()?.as_ref() != tag.as_bytes()
    {
        return None;
    }
    if !reader.next_element() {
        return None;
    }
    let value = reader.string()?;
    (!reader.next_element()).then_some(value)
}

fn read_uuid(text: Text<'_>, symbols: Option<&mut SymbolTable>) -> Result<Uuid> {
    if let Some(value) = tagged_string(text, "uuid") {
        return Uuid::parse_bytes(&value).ok_or_else(|| {
            let value = String::from_utf8_lossy(&value);
            Error::syntax(text, format!("\"{value}\" is not a valid UUID"))
        });
    }
    if let Some(symbols) = symbols
        && let Some(name) = tagged_string(text, "named-uuid")
    {
        let name = std::str::from_utf8(&name).ok().filter(|name| crate::parser::is_id(name));
        let name =
            name.ok_or_else(|| Error::syntax(text, "named-uuid string is not a valid <id>"))?;
        return Ok(symbols.refer(name));
    }
    Err(Error::syntax(text, "expected [\"uuid\", <string>]"))
}

impl<'a> AtomRef<'a> {
    /// The atom's type.
    pub fn atom_type(self) -> AtomType {
        match self {
            Self::Integer(_) => AtomType::Integer,
            Self::Real(_) => AtomType::Real,
            Self::Boolean(_) => AtomType::Boolean,
            Self::String(_) => AtomType::String,
            Self::Uuid(_) => AtomType::Uuid,
        }
    }

    /// An owned copy; strings are shared, not copied.
    pub fn to_atom(self) -> Atom {
        match self {
            Self::Integer(v) => Atom::Integer(v),
            Self::Real(v) => Atom::Real(v),
            Self::Boolean(v) => Atom::Boolean(v),
            Self::String(v) => Atom::String(v.clone()),
            Self::Uuid(v) => Atom::Uuid(v),
        }
    }

    /// The UUID, if the atom is one.
    pub fn as_uuid(self) -> Option<Uuid> {
        match self {
            Self::Uuid(uuid) => Some(uuid),
            _ => None,
        }
    }

    /// The text, if the atom is a string.
    pub fn as_str(self) -> Option<&'a str> {
        match self {
            Self::String(text) => Some(text.as_str()),
            _ => None,
        }
    }

    /// Whether the atom equals [`Atom::default_of`] its type.
    pub fn is_default(self) -> bool {
        match self {
            Self::Integer(v) => v == 0,
            Self::Real(v) => v == 0.0,
            Self::Boolean(v) => !v,
            Self::String(v) => v.as_str().is_empty(),
            Self::Uuid(v) => v == Uuid::ZERO,
        }
    }

    /// Appends the JSON form (RFC 7047 §5.1 `<atom>`).
    pub fn write(self, out: &mut Vec<u8>) {
        match self {
            Self::Integer(v) => weir_json::write_integer(out, v),
            Self::Real(v) => weir_json::write_real(out, v),
            Self::Boolean(v) => out.extend_from_slice(if v { b"true" } else { b"false" }),
            Self::String(v) => weir_json::write_string(out, v.as_str()),
            Self::Uuid(v) => v.write(out),
        }
    }

    /// Feeds the value to a hasher; equal atoms feed equal bytes.
    pub fn hash_into(self, hasher: &mut impl std::hash::Hasher) {
        match self {
            Self::Integer(v) => hasher.write_i64(v),
            // Both zeros are equal, so they hash alike.
            Self::Real(v) => hasher.write_u64(if v == 0.0 { 0 } else { v.to_bits() }),
            Self::Boolean(v) => hasher.write_u8(u8::from(v)),
            Self::String(v) => {
                hasher.write(v.as_str().as_bytes());
                hasher.write_u8(0xff);
            }
            Self::Uuid(v) => hasher.write_u128(v.to_u128()),
        }
    }
}

impl Ord for AtomRef<'_> {
    /// Order within a type as the reference sorts sets; types in the order of the RFC.
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Integer(a), Self::Integer(b)) => a.cmp(b),
            (Self::Real(a), Self::Real(b)) => a.partial_cmp(b).unwrap_or(Ordering::Equal),
            (Self::Boolean(a), Self::Boolean(b)) => a.cmp(b),
            (Self::String(a), Self::String(b)) => a.cmp(b),
            (Self::Uuid(a), Self::Uuid(b)) => a.cmp(b),
            _ => self.atom_type().cmp(&other.atom_type()),
        }
    }
}

impl PartialOrd for AtomRef<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for AtomRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for AtomRef<'_> {}

impl Ord for Atom {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_ref().cmp(&other.as_ref())
    }
}

impl PartialOrd for Atom {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Atom {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Atom {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_atom_is_three_words() {
        assert_eq!(size_of::<Atom>(), 24);
        assert_eq!(size_of::<crate::Datum>(), 24);
    }

    #[test]
    fn zeros_of_either_sign_are_equal_and_hash_alike() {
        use std::hash::{DefaultHasher, Hasher};
        let hash = |real| {
            let mut hasher = DefaultHasher::new();
            AtomRef::Real(real).hash_into(&mut hasher);
            hasher.finish()
        };
        assert_eq!(Atom::Real(0.0), Atom::Real(-0.0));
        assert_eq!(hash(0.0), hash(-0.0));
    }

    /// Other digits would be lost in files, and to other members of a cluster.
    #[test]
    fn a_real_is_what_is_read_from_its_own_text() {
        let read = |text: &str| {
            let text = weir_json::validate_value(text.as_bytes()).unwrap();
            Atom::read(&mut text.reader(), AtomType::Real, None)
        };
        for spelling in ["0.30000000000000004", "9007199254740993", "-1.5e300", "0.1", "-0", "1e22"]
        {
            let atom = read(spelling).unwrap();
            let mut told = Vec::new();
            atom.write(&mut told);
            let again = read(std::str::from_utf8(&told).unwrap()).unwrap();
            assert_eq!(atom, again, "{spelling}");
        }
        for spelling in
            ["1.7976931348623157e308", "-1.7976931348623157e308", "2.2250738585072014e-308"]
        {
            let error = read(spelling).unwrap_err().to_string();
            assert!(error.contains("number outside valid range"), "{spelling}: {error}");
        }
    }

    #[test]
    fn reals_that_print_alike_are_one() {
        let ty = crate::ColumnType {
            key: crate::BaseType::plain(AtomType::Real),
            value: None,
            n_min: 0,
            n_max: crate::ColumnType::UNLIMITED,
        };
        let text = weir_json::validate(br#"["set",[0.3,0.30000000000000004]]"#).unwrap();
        let error = crate::Datum::parse(text, &ty, None).unwrap_err().to_string();
        assert!(error.contains("set contains duplicate"), "{error}");
    }

    /// Recorded from the reference.
    #[test]
    fn bytes_that_are_not_utf8_are_told_with_the_one_that_ends_them() {
        let cases: [(&[u8], &str); 7] = [
            (b"\xff", "0xff"),
            (b"\xc0\x80", "0xc0"),
            (b"\xc3(", "0xc3 0x28"),
            (b"ab\xc3", "0xc3 0x00"),
            (b"\xe2\x82(", "0xe2 0x82 0x28"),
            (b"\xed\xa0\x80", "0xed 0xa0"),
            (b"\xf4\x90\x80\x80", "0xf4 0x90"),
        ];
        for (bytes, told) in cases {
            let error = not_utf8(bytes, std::str::from_utf8(bytes).unwrap_err());
            assert!(
                error.to_string().ends_with(&format!("invalid UTF-8 sequence {told}")),
                "{error}"
            );
        }
    }
}

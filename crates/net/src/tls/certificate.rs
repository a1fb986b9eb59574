//! X.509 certificates as far as they matter here: whose key this is, who says so, and for what.
//!
//! Versions 1 to 3 are read, with whatever names they carry: the rules of RFC 5280 about what a
//! name may look like are not applied, as OpenSSL does not apply them either.

use der::asn1::{AnyRef, BitStringRef, GeneralizedTime, ObjectIdentifier, OctetStringRef, UtcTime};
use der::{Decode, Reader, SliceReader, Tag, TagNumber, Tagged as _};

/// Most bytes of one certificate.
const CERTIFICATE_BYTES_MAX: usize = 64 << 10;

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const SUBJECT_KEY_ID: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.14");
const KEY_USAGE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.15");
const BASIC_CONSTRAINTS: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.19");
const NAME_CONSTRAINTS: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.30");
const AUTHORITY_KEY_ID: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.35");
const EXTENDED_KEY_USAGE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.37");
const ANY_USAGE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.37.0");
const SERVER_AUTH: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.1");
const CLIENT_AUTH: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.2");

/// What OpenSSL calls the parts of a name.
const SHORT_NAMES: [(&str, &str); 8] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

/// Extensions that may be critical although nothing is done about them: alternative names of the
/// subject and the issuer, policies, and where revocation lists are.
const HARMLESS: [ObjectIdentifier; 8] = [
    ObjectIdentifier::new_unwrap("2.5.29.17"),
    ObjectIdentifier::new_unwrap("2.5.29.18"),
    ObjectIdentifier::new_unwrap("2.5.29.31"),
    ObjectIdentifier::new_unwrap("2.5.29.32"),
    ObjectIdentifier::new_unwrap("2.5.29.33"),
    ObjectIdentifier::new_unwrap("2.5.29.36"),
    ObjectIdentifier::new_unwrap("2.5.29.54"),
    ObjectIdentifier::new_unwrap("2.16.840.1.113730.1.1"),
];

/// What a certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Certificate {
    /// The whole certificate as DER.
    pub(crate) der: Vec<u8>,
    /// The part that is signed.
    pub(crate) signed: Vec<u8>,
    /// The content of the signature's AlgorithmIdentifier.
    pub(crate) signature_algorithm: Vec<u8>,
    /// The issuer's signature.
    pub(crate) signature: Vec<u8>,
    /// The version of X.509: 1 to 3.
    pub(crate) version: u8,
    /// Who signed, in a form in which equal names are equal bytes.
    pub(crate) issuer: Vec<u8>,
    /// Whose key it is, in a form in which equal names are equal bytes.
    pub(crate) subject: Vec<u8>,
    /// The subject as the certificate has it.
    pub(crate) subject_der: Vec<u8>,
    /// First second of the certificate's life, since 1970.
    pub(crate) not_before: u64,
    /// Last second of the certificate's life, since 1970.
    pub(crate) not_after: u64,
    /// The whole SubjectPublicKeyInfo.
    pub(crate) key_info: Vec<u8>,
    /// The content of the key's AlgorithmIdentifier.
    pub(crate) key_algorithm: Vec<u8>,
    /// The subject's public key.
    pub(crate) key: Vec<u8>,
    /// The subject's first common name, if it is text without NUL.
    pub(crate) common_name: Option<String>,
    pub(crate) extensions: Extensions,
}

/// What the extensions say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extensions {
    /// basicConstraints: whether it is an authority, and how many may stand below it.
    pub(crate) constraints: Option<(bool, Option<u64>)>,
    /// keyUsage: bit 0 of RFC 5280 is the lowest bit.
    pub(crate) key_usage: Option<u16>,
    pub(crate) extended_key_usage: Option<ExtendedKeyUsage>,
    pub(crate) subject_key_id: Option<Vec<u8>>,
    pub(crate) authority_key_id: Option<Vec<u8>>,
    /// Whether an extension is there that must be understood and is not.
    pub(crate) is_unknown_critical: bool,
}

/// extendedKeyUsage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExtendedKeyUsage {
    pub(crate) any: bool,
    pub(crate) client: bool,
    pub(crate) server: bool,
}

impl Certificate {
    /// Reads a certificate from DER; `None` if the bytes are none.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > CERTIFICATE_BYTES_MAX {
            return None;
        }
        certificate(bytes).ok()
    }

    /// The subject on one line, as `/O=Open vSwitch/CN=x`.
    pub(crate) fn subject_line(&self) -> String {
        subject_line(&self.subject_der).unwrap_or_default()
    }

    /// Whether subject and issuer are the same.
    pub(crate) fn is_self_issued(&self) -> bool {
        self.subject == self.issuer
    }

    /// Whether the certificate may sign others, as OpenSSL decides it: version 1 only at the root.
    pub(crate) fn is_authority(&self) -> bool {
        const KEY_CERT_SIGN: u16 = 1 << 5;
        if self.extensions.key_usage.is_some_and(|usage| usage & KEY_CERT_SIGN == 0) {
            return false;
        }
        match self.extensions.constraints {
            Some((is_authority, _)) => is_authority,
            None if self.version == 1 => self.is_self_issued(),
            None => self.extensions.key_usage.is_some(),
        }
    }
}

fn certificate(bytes: &[u8]) -> der::Result<Certificate> {
    let any = AnyRef::from_der(bytes)?;
    any.tag().assert_eq(Tag::Sequence)?;
    let mut parts = SliceReader::new(any.value())?;
    let signed = parts.tlv_bytes()?;
    let signature_algorithm = sequence(&mut parts)?;
    let signature = parts.decode::<BitStringRef<'_>>()?.raw_bytes();
    parts.finish(())?;

    let mut fields = SliceReader::new(AnyRef::from_der(signed)?.value())?;
    let version = version(&mut fields)?;
    let _serial = fields.tlv_bytes()?;
    let _signature_algorithm = fields.tlv_bytes()?;
    let issuer = fields.tlv_bytes()?;
    let (not_before, not_after) = validity(sequence(&mut fields)?)?;
    let subject = fields.tlv_bytes()?;
    let key_info = fields.tlv_bytes()?;
    let mut key_parts = SliceReader::new(AnyRef::from_der(key_info)?.value())?;
    let key_algorithm = sequence(&mut key_parts)?;
    let key = key_parts.decode::<BitStringRef<'_>>()?.raw_bytes();
    Ok(Certificate {
        der: bytes.to_vec(),
        signed: signed.to_vec(),
        signature_algorithm: signature_algorithm.to_vec(),
        signature: signature.to_vec(),
        version,
        issuer: canonical_name(issuer)?.0,
        subject: canonical_name(subject)?.0,
        subject_der: subject.to_vec(),
        not_before,
        not_after,
        key_info: key_info.to_vec(),
        key_algorithm: key_algorithm.to_vec(),
        key: key.to_vec(),
        common_name: canonical_name(subject)?.1,
        extensions: extensions(&mut fields)?,
    })
}

/// The content of the next element, which is a SEQUENCE.
fn sequence<'a>(reader: &mut SliceReader<'a>) -> der::Result<&'a [u8]> {
    let any = reader.decode::<AnyRef<'a>>()?;
    any.tag().assert_eq(Tag::Sequence)?;
    Ok(any.value())
}

/// The context-specific tag `[number]` around something.
const fn explicit(number: TagNumber) -> Tag {
    Tag::ContextSpecific { constructed: true, number }
}

fn version(fields: &mut SliceReader<'_>) -> der::Result<u8> {
    if fields.peek_tag()? != explicit(TagNumber::N0) {
        return Ok(1);
    }
    let number = u8::from_der(fields.decode::<AnyRef<'_>>()?.value())?;
    Ok(number.saturating_add(1))
}

fn validity(bytes: &[u8]) -> der::Result<(u64, u64)> {
    let mut times = SliceReader::new(bytes)?;
    Ok((time(&mut times)?, time(&mut times)?))
}

fn time(reader: &mut SliceReader<'_>) -> der::Result<u64> {
    let time = match reader.peek_tag()? {
        Tag::UtcTime => reader.decode::<UtcTime>()?.to_unix_duration(),
        _ => reader.decode::<GeneralizedTime>()?.to_unix_duration(),
    };
    Ok(time.as_secs())
}

/// A name as bytes that are equal for equal names, and its first common name. As in OpenSSL, the
/// kind of string, capital letters and the number of blanks do not matter.
fn canonical_name(name: &[u8]) -> der::Result<(Vec<u8>, Option<String>)> {
    let mut canonical = Vec::with_capacity(name.len());
    let mut common_name = None;
    let mut sets = SliceReader::new(AnyRef::from_der(name)?.value())?;
    while !sets.is_finished() {
        let set = sets.decode::<AnyRef<'_>>()?;
        canonical.push(b'/');
        let mut attributes = SliceReader::new(set.value())?;
        while !attributes.is_finished() {
            let mut attribute = SliceReader::new(sequence(&mut attributes)?)?;
            let kind = attribute.decode::<ObjectIdentifier>()?;
            let value = attribute.decode::<AnyRef<'_>>()?;
            if kind == COMMON_NAME && common_name.is_none() {
                common_name = Some(text(value));
            }
            push_value(&mut canonical, kind, value);
        }
    }
    Ok((canonical, common_name.flatten()))
}

fn subject_line(name: &[u8]) -> der::Result<String> {
    let mut line = String::new();
    let mut sets = SliceReader::new(AnyRef::from_der(name)?.value())?;
    while !sets.is_finished() {
        let set = sets.decode::<AnyRef<'_>>()?;
        let mut attribute = SliceReader::new(sequence(&mut SliceReader::new(set.value())?)?)?;
        let kind = attribute.decode::<ObjectIdentifier>()?.to_string();
        let short = SHORT_NAMES.iter().find(|(oid, _)| *oid == kind).map(|(_, short)| *short);
        let value = attribute.decode::<AnyRef<'_>>()?;
        line.push_str(&format!("/{}=", short.unwrap_or(&kind)));
        line.push_str(&String::from_utf8_lossy(value.value()));
    }
    Ok(line)
}

/// A common name that can stand for a client: UTF-8 without NUL.
fn text(value: AnyRef<'_>) -> Option<String> {
    let text = std::str::from_utf8(value.value()).ok()?;
    (!text.contains('\0')).then(|| text.to_owned())
}

fn push_value(out: &mut Vec<u8>, kind: ObjectIdentifier, value: AnyRef<'_>) {
    let mut content = Vec::with_capacity(value.value().len() + 1);
    match value.tag() {
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String => {
            let words = value.value().split(u8::is_ascii_whitespace).filter(|w| !w.is_empty());
            for word in words {
                content.push(b' ');
                content.extend(word.iter().map(u8::to_ascii_lowercase));
            }
        }
        tag => {
            content.push(tag.octet());
            content.extend_from_slice(value.value());
        }
    }
    for part in [kind.as_bytes(), &content] {
        out.extend_from_slice(&(part.len() as u32).to_be_bytes());
        out.extend_from_slice(part);
    }
}

fn extensions(fields: &mut SliceReader<'_>) -> der::Result<Extensions> {
    let mut found = Extensions::default();
    while !fields.is_finished() {
        let any = fields.decode::<AnyRef<'_>>()?;
        if any.tag() != explicit(TagNumber::N3) {
            continue; // issuerUniqueID and subjectUniqueID
        }
        let mut list = SliceReader::new(AnyRef::from_der(any.value())?.value())?;
        while !list.is_finished() {
            extension(&mut found, sequence(&mut list)?)?;
        }
    }
    Ok(found)
}

fn extension(found: &mut Extensions, bytes: &[u8]) -> der::Result<()> {
    let mut parts = SliceReader::new(bytes)?;
    let kind = parts.decode::<ObjectIdentifier>()?;
    let critical = if parts.peek_tag()? == Tag::Boolean {
        parts.decode::<AnyRef<'_>>()?.value() != [0]
    } else {
        false
    };
    let content = parts.decode::<OctetStringRef<'_>>()?.as_bytes();
    match kind {
        BASIC_CONSTRAINTS => found.constraints = Some(basic_constraints(content)?),
        KEY_USAGE => found.key_usage = Some(key_usage(content)?),
        EXTENDED_KEY_USAGE => found.extended_key_usage = Some(extended_key_usage(content)?),
        SUBJECT_KEY_ID => {
            let id = OctetStringRef::from_der(content)?;
            found.subject_key_id = Some(id.as_bytes().to_vec());
        }
        AUTHORITY_KEY_ID => found.authority_key_id = authority_key_id(content)?,
        // To ignore them would be to trust an authority with more than it was given.
        NAME_CONSTRAINTS => found.is_unknown_critical = true,
        kind => found.is_unknown_critical |= critical && !HARMLESS.contains(&kind),
    }
    Ok(())
}

fn basic_constraints(content: &[u8]) -> der::Result<(bool, Option<u64>)> {
    let mut parts = SliceReader::new(AnyRef::from_der(content)?.value())?;
    let (mut is_authority, mut length) = (false, None);
    while !parts.is_finished() {
        match parts.peek_tag()? {
            Tag::Boolean => is_authority = parts.decode::<AnyRef<'_>>()?.value() != [0],
            _ => length = Some(parts.decode::<u64>()?),
        }
    }
    Ok((is_authority, length))
}

fn key_usage(content: &[u8]) -> der::Result<u16> {
    let bits = BitStringRef::from_der(content)?;
    let set = bits.bits().take(9).enumerate().filter(|(_, bit)| *bit);
    Ok(set.fold(0, |usage, (place, _)| usage | 1 << place))
}

fn extended_key_usage(content: &[u8]) -> der::Result<ExtendedKeyUsage> {
    let mut usage = ExtendedKeyUsage::default();
    let mut kinds = SliceReader::new(AnyRef::from_der(content)?.value())?;
    while !kinds.is_finished() {
        match kinds.decode::<ObjectIdentifier>()? {
            ANY_USAGE => usage.any = true,
            SERVER_AUTH => usage.server = true,
            CLIENT_AUTH => usage.client = true,
            _ => {}
        }
    }
    Ok(usage)
}

fn authority_key_id(content: &[u8]) -> der::Result<Option<Vec<u8>>> {
    let id = Tag::ContextSpecific { constructed: false, number: TagNumber::N0 };
    let mut parts = SliceReader::new(AnyRef::from_der(content)?.value())?;
    while !parts.is_finished() {
        let part = parts.decode::<AnyRef<'_>>()?;
        if part.tag() == id {
            return Ok(Some(part.value().to_vec()));
        }
    }
    Ok(None)
}

//! The wire error of RFC 7047 §3.1: a tag, and what narrows it down.

use std::borrow::Cow;
use std::fmt;

use weir_json::Text;

/// An OVSDB `<error>`: what clients see, in the reference's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(Box<Parts>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Parts {
    tag: Cow<'static, str>,
    details: Option<String>,
    /// JSON text; bytes, because a message may hold strings that are not UTF-8.
    syntax: Option<Vec<u8>>,
    io: Option<String>,
}

impl Error {
    /// An error with the given tag and details.
    pub fn new(tag: impl Into<Cow<'static, str>>, details: impl Into<String>) -> Self {
        let details = Some(details.into());
        Self(Box::new(Parts { tag: tag.into(), details, syntax: None, io: None }))
    }

    /// An error that is only a tag.
    pub fn tag_only(tag: &'static str) -> Self {
        Self(Box::new(Parts { tag: tag.into(), details: None, syntax: None, io: None }))
    }

    /// A `syntax error` about the JSON in `text`.
    pub fn syntax(text: Text<'_>, details: impl Into<String>) -> Self {
        Self::syntax_tagged(text, "syntax error", details)
    }

    /// An error with another tag that still quotes the offending JSON in `text`.
    pub fn syntax_tagged(text: Text<'_>, tag: &'static str, details: impl Into<String>) -> Self {
        let mut syntax = Vec::new();
        text.write(&mut syntax);
        let syntax = Some(syntax);
        Self(Box::new(Parts { tag: tag.into(), details: Some(details.into()), syntax, io: None }))
    }

    /// A `syntax error` that quotes no JSON.
    pub fn plain_syntax(details: impl Into<String>) -> Self {
        Self::new("syntax error", details)
    }

    /// A `constraint violation` (RFC 7047 §3.1).
    pub fn constraint(details: impl Into<String>) -> Self {
        Self::new("constraint violation", details)
    }

    /// An `ovsdb error`, the tag of duplicates in sets and maps.
    pub fn ovsdb(details: impl Into<String>) -> Self {
        Self::new("ovsdb error", details)
    }

    /// An `I/O error`; `io` is strerror(3) text.
    pub fn io(details: Option<String>, io: impl Into<String>) -> Self {
        Self(Box::new(Parts {
            tag: "I/O error".into(),
            details,
            syntax: None,
            io: Some(io.into()),
        }))
    }

    /// The error's tag, the string that programs compare.
    pub fn tag(&self) -> &str {
        &self.0.tag
    }

    /// The human-readable details.
    pub fn details(&self) -> Option<&str> {
        self.0.details.as_deref()
    }

    /// This error with these words and a colon before its details.
    #[must_use]
    pub fn wrapped(mut self, words: &str) -> Self {
        let details = self.0.details.take();
        self.0.details =
            Some(details.map_or_else(|| words.to_owned(), |details| format!("{words}: {details}")));
        self
    }

    /// Appends the JSON object of RFC 7047 §3.1 `<error>` with the reference's additions.
    pub fn write(&self, out: &mut Vec<u8>) {
        let parts = &*self.0;
        let members = [
            ("details", parts.details.as_ref().map(String::as_bytes)),
            ("error", Some(parts.tag.as_bytes())),
            ("io-error", parts.io.as_ref().map(String::as_bytes)),
            ("syntax", parts.syntax.as_deref()),
        ];
        let mut separator = b'{';
        for (key, value) in members {
            if let Some(value) = value {
                out.push(separator);
                weir_json::write_string(out, key);
                out.push(b':');
                weir_json::write_string_bytes(out, value);
                separator = b',';
            }
        }
        out.push(b'}');
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = &*self.0;
        if let Some(syntax) = &parts.syntax {
            write!(f, "syntax \"{}\": ", String::from_utf8_lossy(syntax))?;
        }
        f.write_str(&parts.tag)?;
        if let Some(details) = &parts.details {
            write!(f, ": {details}")?;
        }
        if let Some(io) = &parts.io {
            write!(f, " ({io})")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// Shorthand for results with the wire error.
pub type Result<T> = std::result::Result<T, Error>;

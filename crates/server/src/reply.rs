//! What a request is answered with.

use weir_data::Error;
use weir_json::{Kind, Text};

use crate::ids::Bytes;

/// What a request is answered with.
pub(crate) enum Reply {
    /// JSON text of the result.
    Result(Vec<u8>),
    /// JSON text of the error.
    Error(Vec<u8>),
    /// The answer comes later.
    Later,
    /// A result whose middle many sessions share.
    Shared {
        /// What comes before the shared text.
        before: Vec<u8>,
        /// The shared JSON text.
        body: Bytes,
        /// What comes behind the shared text.
        behind: &'static [u8],
        /// A message that follows the reply.
        follow: Option<Vec<u8>>,
    },
}

/// A handler's result; both sides are answers.
pub(crate) type Handled = Result<Reply, Reply>;

impl Reply {
    /// The empty object.
    pub(crate) fn empty() -> Self {
        Self::Result(b"{}".to_vec())
    }

    /// An error that is a bare string.
    pub(crate) fn error_string(text: &str) -> Self {
        let mut out = Vec::new();
        weir_json::write_string(&mut out, text);
        Self::Error(out)
    }
}

impl From<Error> for Reply {
    fn from(error: Error) -> Self {
        Self::Error(error_text(&error))
    }
}

/// An error as JSON text.
pub(crate) fn error_text(error: &Error) -> Vec<u8> {
    let mut text = Vec::new();
    error.write(&mut text);
    text
}

/// Whether a value is an array of exactly `n` elements; if so, they.
pub(crate) fn exactly<'a, const N: usize>(params: Text<'a>) -> Option<[Text<'a>; N]> {
    debug_assert_eq!(params.kind(), Kind::Array);
    let elements: Vec<Text<'a>> = params.elements()?.take(N + 1).collect();
    elements.try_into().ok()
}

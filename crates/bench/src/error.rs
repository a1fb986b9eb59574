//! What can go wrong in a load test.

use std::fmt;
use std::io;
use std::path::Path;

/// A load test's failure. Every kind ends the run: figures of a broken run mean nothing.
#[derive(Debug)]
pub enum Error {
    /// The command line makes no sense.
    Usage(String),
    /// The operating system refused something; the text says what was tried.
    Io(String, io::Error),
    /// The server answered wrongly, or a client did not receive everything.
    Check(String),
}

impl Error {
    /// An [`Error::Io`] about `path`.
    pub(crate) fn io(doing: &str, path: &Path, error: io::Error) -> Self {
        Self::Io(format!("{doing} {}", path.display()), error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Check(text) => f.write_str(text),
            Self::Io(doing, error) => write!(f, "{doing}: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(_, error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io("input/output".into(), error)
    }
}

impl From<rustix::io::Errno> for Error {
    fn from(error: rustix::io::Errno) -> Self {
        Self::from(io::Error::from(error))
    }
}

/// Shorthand for a failed check.
macro_rules! fail {
    ($($arg:tt)*) => { return Err($crate::Error::Check(format!($($arg)*))) };
}
pub(crate) use fail;

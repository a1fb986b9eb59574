//! TLS by rustls, with the reference's options and its idea of whom to believe.
//!
//! [`Tls`] holds the options and what the files said when they were last read; it makes an
//! [`Acceptor`] for each connection that comes in and a [`Connector`] for each that goes out, so a
//! change of key, certificate or authorities counts from the next connection on and disturbs none.
//! [`TlsStream`] is one connection. Who may be believed is decided in `chain`.

mod bootstrap;
mod certificate;
mod chain;
mod ciphers;
#[cfg(fuzzing)]
pub mod fuzzing;
mod protocols;
mod settings;
mod stream;
mod verifier;
mod words;

pub use settings::{Acceptor, Connector, Tls, TlsOptions};
pub use stream::TlsStream;

/// How much a line of the log matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// `err` of vlog.
    Error,
    /// `warn` of vlog.
    Warning,
    /// `info` of vlog.
    Info,
    /// `dbg` of vlog.
    Debug,
}

/// Something to be logged under the module `stream_ssl`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The level at which the line is logged.
    pub severity: Severity,
    /// The line's text.
    pub text: String,
}

impl Line {
    pub(crate) fn new(severity: Severity, text: impl Into<String>) -> Self {
        Self { severity, text: text.into() }
    }
}

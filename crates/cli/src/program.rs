//! Which program this process is, and how it ends when something is wrong.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

/// Weir's own version.
pub(crate) const WEIR_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The reason why a program ends with a nonzero status.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What goes to standard error behind the program's name; empty when all has been said.
    pub(crate) text: String,
    /// What stands before the text instead of the program's name.
    prefix: Option<String>,
    /// What a person could do about it: a second line, on a terminal only.
    hint: Option<String>,
    /// The exit status.
    pub(crate) status: u8,
}

impl Failure {
    /// The usual fatal error: `PROG: text`, status 1.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), prefix: None, hint: None, status: 1 }
    }

    /// `PROG: text (strerror)`, status 1.
    pub(crate) fn io(text: impl fmt::Display, error: &io::Error) -> Self {
        Self::new(format!("{text} ({})", strerror(error)))
    }

    /// A mistake in the options: getopt's messages begin with the command as it was typed.
    pub(crate) fn usage(typed: &str, text: &str) -> Self {
        Self { text: text.to_owned(), prefix: Some(typed.to_owned()), hint: None, status: 1 }
    }

    /// A failure of which everything has been said already.
    pub(crate) fn silent(status: u8) -> Self {
        Self { text: String::new(), prefix: None, hint: None, status }
    }

    /// This failure, with what a person could do about it.
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        self.maybe_hint(Some(hint))
    }

    /// This failure, with what a person could do about it, if there is something.
    pub(crate) fn maybe_hint<S: Into<String>>(self, hint: Option<S>) -> Self {
        Self { hint: hint.map(Into::into), ..self }
    }

    /// Says what is wrong on standard error.
    pub(crate) fn report(&self, program: &str) -> ExitCode {
        if !self.text.is_empty() {
            let prefix = self.prefix.as_deref().unwrap_or(program);
            let line = format!("{prefix}: {}\n", self.text);
            // Nobody is left to tell when standard error is closed.
            let _ = io::stderr().write_all(line.as_bytes());
            if let Some(hint) = self.hint.as_ref().filter(|_| io::stderr().is_terminal()) {
                let _ = io::stderr().write_all(format!("  {hint}\n").as_bytes());
            }
        }
        ExitCode::from(self.status)
    }
}

/// What a program returns to `main`.
pub(crate) type Outcome = Result<ExitCode, Failure>;

/// The text of strerror(3), without the number that Rust adds.
pub(crate) fn strerror(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(end) if error.raw_os_error().is_some() => text[..end].to_owned(),
        _ => text,
    }
}

/// Writes to standard output; a reader that went away (`weir watch | head`) ends the program
/// without a word.
pub(crate) fn say(text: &str) -> Result<(), Failure> {
    say_bytes(&[text.as_bytes()])
}

/// Writes bytes that need not be UTF-8, in pieces, to standard output, as [`say`] does.
pub(crate) fn say_bytes(pieces: &[&[u8]]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let mut written = pieces.iter().map(|piece| out.write_all(piece));
    match written.find(Result::is_err).unwrap_or(Ok(())).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::silent(0)),
        Err(error) => Err(Failure::io("standard output", &error)),
    }
}

/// The `-V` lines of a program that stands in for one of Open vSwitch's.
pub(crate) fn version_lines(program: &str) -> String {
    format!("{}\n", weir_host::version::text(program))
}

/// The part of a path behind the last slash.
pub(crate) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strerror_is_the_bare_text() {
        assert_eq!(strerror(&io::Error::from_raw_os_error(2)), "No such file or directory");
        assert_eq!(strerror(&io::Error::other("x (os error 2)")), "x (os error 2)");
    }

    #[test]
    fn version_line_one_ends_in_a_dotted_number() {
        let text = version_lines("ovsdb-server");
        let first = text.lines().next().unwrap_or_default();
        assert_eq!(first, "ovsdb-server (Open vSwitch) 4.0.90");
        assert_eq!(text.lines().nth(1), Some(format!("Weir {WEIR_VERSION}").as_str()));
    }

    #[test]
    fn base_names() {
        for (path, expected) in [("/usr/sbin/x", "x"), ("x", "x"), ("./x", "x"), ("x/", "")] {
            assert_eq!(base_name(path), expected);
        }
    }
}

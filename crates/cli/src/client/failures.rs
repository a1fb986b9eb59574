//! What ovsdb-client says when the server did not do as it was asked.

use super::session::{Lost, Refusal};
use crate::program::Failure;

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Error(error) => Self::new(format!("transaction returned error: {error}"))
                .maybe_hint(hint_for(&error.to_string())),
            Refusal::Lost(lost) => lost.into(),
        }
    }
}

impl From<Lost> for Failure {
    fn from(lost: Lost) -> Self {
        Self::new(format!("transaction failed ({lost})"))
    }
}

/// What to do about an error of the server.
pub(super) fn hint_for(error: &str) -> Option<&'static str> {
    let hints = [
        (
            "resources exhausted",
            "a whole database can also be put in the place of its file, while the server is stopped",
        ),
        (
            "No space left on device",
            "the disk with the server's database file is full; nothing changed",
        ),
        ("unknown database", "ovsdb-client list-dbs shows the databases of the server"),
        ("not allowed", "the server does not let this client write; another remote may"),
        ("unknown method", "this server is too old for the command"),
    ];
    hints.iter().find(|(tag, _)| error.contains(tag)).map(|(_, hint)| *hint)
}

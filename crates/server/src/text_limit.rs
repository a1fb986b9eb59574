//! How long a text may be that goes to other members of a cluster.

use weir_cluster::{FRAME_BYTES_MAX, NoRoom};
use weir_data::Error;

/// The longest text of a request to the leader, of an entry, or of a reply that goes to another member, in
/// bytes: each is one frame, with some more around it.
pub(crate) const TEXT_BYTES_MAX: usize = FRAME_BYTES_MAX - (1 << 20);

/// What is answered to who asks for more.
pub(crate) fn too_long(what: &str) -> Error {
    let details =
        format!("{what} of more than {TEXT_BYTES_MAX} bytes cannot go to the other servers");
    Error::new("resources exhausted", details)
}

/// How long entries of a cluster's log may be.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EntryLimit {
    /// What the member's file has refused lately.
    pub(crate) refused: NoRoom,
}

impl EntryLimit {
    /// How many bytes an entry may have.
    pub(crate) fn bytes_max(self) -> usize {
        let refused = self.refused.entry.map_or(usize::MAX, |refused| refused.saturating_sub(1));
        refused.min(TEXT_BYTES_MAX)
    }

    /// With so many bytes of entries a batch has enough.
    pub(crate) fn batch_bytes_max(self) -> usize {
        self.refused.batch.map_or(usize::MAX, |refused| refused / 2)
    }

    /// # Errors
    /// An entry of so many bytes is too long.
    pub(crate) fn check(self, bytes: usize) -> Result<(), Error> {
        match self.refused.entry {
            _ if bytes > TEXT_BYTES_MAX => Err(too_long("a change")),
            Some(refused) if bytes >= refused => {
                let why = format!("cannot write log: no room for an entry of {bytes} bytes");
                Err(Error::new("I/O error", why))
            }
            _ => Ok(()),
        }
    }
}

//! How long a text may be that goes to other members of a cluster.

use weir_cluster::FRAME_BYTES_MAX;
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

//! Notifications, in two parts: the head, which depends on the monitor's name, and the body, which
//! all members of a group share, the id of the state included.

use std::sync::Arc;

use weir_data::Uuid;

use crate::registry::MonitorKey;

/// Which of the monitor methods made a monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// `monitor`, told by `update` (RFC 7047 §4.1.5).
    V1,
    /// `monitor_cond`, told by `update2` (ovsdb-server(7) §4.1.12).
    V2,
    /// `monitor_cond_since`, told by `update3` (ovsdb-server(7) §4.1.15).
    V3,
}

/// One notification for all of `to`: `head` and then `body`. Monitors with other ids have updates
/// of their own that share the `body`.
#[derive(Clone, Debug)]
pub struct Update {
    /// The monitors that get the update.
    pub to: Vec<MonitorKey>,
    /// The message up to the body.
    pub head: Arc<Vec<u8>>,
    /// The id of the state, for version 3, the table updates and the end of the message.
    pub body: Arc<Vec<u8>>,
}

/// The head of the messages to monitors called `id`, a JSON text: the message up to the id of the
/// state, or, where there is none, up to the table updates.
pub(crate) fn head(version: Version, id: &[u8]) -> Arc<Vec<u8>> {
    let method: &[u8] = match version {
        Version::V1 => b"update",
        Version::V2 => b"update2",
        Version::V3 => b"update3",
    };
    let head = [b"{\"id\":null,\"method\":\"", method, b"\",\"params\":[", id, b","];
    Arc::new(head.concat())
}

/// From this length on a text is moved rather than copied, in bytes.
const MOVED_BYTES_MIN: usize = 64 << 10;

/// Length of the id of a state and the comma behind it.
const ID_BYTES: usize = "\"01234567-89ab-cdef-0123-456789abcdef\",".len();

/// Begins the body of a message: the state that it leads to.
pub(crate) fn begin(id: Option<Uuid>, out: &mut Vec<u8>) {
    if let Some(id) = id {
        out.push(b'"');
        out.extend_from_slice(&id.text());
        out.extend_from_slice(b"\",");
    }
}

/// Ends the body of a message, which was begun with an id or without; `None` if its table updates
/// are `{}`, which says nothing. The buffer that they were written into is empty afterwards.
pub(crate) fn close(has_id: bool, body: &mut Vec<u8>) -> Option<Vec<u8>> {
    let before = if has_id { ID_BYTES } else { 0 };
    let says_something = body.len() > before + b"{}".len();
    let closed = says_something.then(|| {
        if body.len() < MOVED_BYTES_MIN {
            return [body.as_slice(), b"]}"].concat();
        }
        let mut whole = std::mem::take(body);
        whole.extend_from_slice(b"]}");
        whole
    });
    body.clear();
    closed
}

//! Notifications, in two parts: the head, which depends on the monitor's name, and the body, which
//! all members of a group share.

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
    /// The message up to the table updates.
    pub head: Arc<Vec<u8>>,
    /// The table updates and the end of the message.
    pub body: Arc<Vec<u8>>,
}

/// A message up to the table updates; composed again only when it changes.
#[derive(Debug)]
pub(crate) struct Head {
    /// The head up to the id of the transaction, if that is in it.
    start: Vec<u8>,
    has_txn_id: bool,
    known: Option<(Uuid, Arc<Vec<u8>>)>,
}

impl Head {
    /// The head of the messages to monitors called `id`, a JSON text.
    pub(crate) fn new(version: Version, id: &[u8]) -> Self {
        let method: &[u8] = match version {
            Version::V1 => b"update",
            Version::V2 => b"update2",
            Version::V3 => b"update3",
        };
        let start = [b"{\"id\":null,\"method\":\"", method, b"\",\"params\":[", id, b","].concat();
        Self { start, has_txn_id: version == Version::V3, known: None }
    }

    /// The bytes when `txn_id` is the last transaction's id.
    pub(crate) fn bytes(&mut self, txn_id: Uuid) -> Arc<Vec<u8>> {
        if let Some((known, bytes)) = &self.known
            && (*known == txn_id || !self.has_txn_id)
        {
            return Arc::clone(bytes);
        }
        let mut bytes = self.start.clone();
        if self.has_txn_id {
            bytes.push(b'"');
            bytes.extend_from_slice(&txn_id.text());
            bytes.extend_from_slice(b"\",");
        }
        let bytes = Arc::new(bytes);
        self.known = Some((txn_id, Arc::clone(&bytes)));
        bytes
    }
}

/// From this length on a text is moved rather than copied, in bytes.
const MOVED_BYTES_MIN: usize = 64 << 10;

/// Table updates and the end of the message behind them; `None` if they are `{}`, which says
/// nothing. The buffer that they were written into is empty afterwards.
pub(crate) fn close(updates: &mut Vec<u8>) -> Option<Vec<u8>> {
    let says_something = updates.len() > b"{}".len();
    let closed = says_something.then(|| {
        if updates.len() < MOVED_BYTES_MIN {
            return [updates.as_slice(), b"]}"].concat();
        }
        let mut whole = std::mem::take(updates);
        whole.extend_from_slice(b"]}");
        whole
    });
    updates.clear();
    closed
}

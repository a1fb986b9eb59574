//! What goes out: bytes that are queued for one connection, and how far behind one may be.

pub(super) mod backlog;
pub(super) mod lag;
pub(super) mod outbox;

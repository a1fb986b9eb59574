//! The thin shell: epoll loop, outboxes, disk, clock, signals, daemon.

mod disk;
mod inbox;
mod outbox;
pub mod vlog;

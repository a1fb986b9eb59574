//! The thin shell: epoll loop, outboxes, disk, clock, signals, daemon.

mod clock;
mod coverage;
pub mod daemon;
mod disk;
mod inbox;
mod outbox;
mod poller;
mod seed;
mod signals;
mod unixctl;
pub mod version;
pub mod vlog;

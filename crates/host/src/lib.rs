//! The thin shell: epoll loop, outboxes, disk, clock, signals, daemon.

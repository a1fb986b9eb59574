//! Addresses, listeners, streams.

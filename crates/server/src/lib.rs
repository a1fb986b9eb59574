//! The server core: events in, effects out.

//! Framing, byte by byte.

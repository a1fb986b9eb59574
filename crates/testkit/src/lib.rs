//! Test harness: the reference server as an oracle, generators, golden scripts.

//! JSON-RPC 1.0 messages and method names.

//! Load tests against any OVSDB server.

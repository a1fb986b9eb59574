//! Monitors of sessions: requests, updates, first rows, and long messages.

pub(crate) mod first_rows;
pub(crate) mod pages;
pub(crate) mod requests;

//! What operators ask: admin commands, configuration, and what they are shown.

pub mod configuration;
pub mod overview;
pub(crate) mod reconfigure;
pub(crate) mod table_log;
pub mod unixctl;

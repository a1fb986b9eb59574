//! The programs, run as anybody runs them, one server at a time. One test program, for each takes its time to link.

#[allow(dead_code, reason = "other crates use the rest")]
#[path = "../../server/tests/events/chance.rs"]
mod chance;
#[allow(dead_code, reason = "other crates use the rest")]
#[path = "../../server/tests/events/replica.rs"]
mod replica;
mod beside;
mod pair;
mod peer;
mod returns;
mod rooms;
mod support;

mod appctl;
mod bench;
mod beside_reference;
mod beside_reference_clients;
mod beside_reference_tls;
mod client;
mod client_ends;
mod client_scripted;
mod command_line;
mod configuration_file;
mod delivery;
mod explain;
mod keys;
mod lines;
mod log;
mod members;
mod monitor_daemon;
mod packaged;
mod passive;
mod remotes;
mod replay;
mod restore;
mod resumed_c;
mod resumed_kills;
mod resumed_python;
mod robustness;
mod robustness_files;
mod server;
mod status;
mod tool;
mod tool_cluster;
mod tool_files;
mod up;
mod watch;

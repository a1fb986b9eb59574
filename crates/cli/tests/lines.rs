//! Shell lines, each run with both sides' programs, against both sides' servers: what they print, what
//! they complain about and how they end must be the same. The lines are in the files of `lines/`, and
//! adding a case is adding a line there.
//!
//! The lines of a file run one after the other in a folder of their own, so that a line may use what
//! the one before has made. `sorted: LINE` compares the lines of the output in any order, for what
//! the reference has in the order of hashes.

use crate::rooms::{Room, compare};

/// Every line of a file in every room.
fn run(file: &str, rooms: Option<Vec<Room>>) {
    let Some(rooms) = rooms else { return };
    compare(file, rooms);
}

#[test]
fn ovsdb_client() {
    run("client", Room::with_every_server());
}

#[test]
fn ovsdb_client_monitors() {
    run("client_monitor", Room::with_servers());
}

#[test]
fn ovsdb_client_in_the_background() {
    run("client_daemon", Room::with_servers());
}

#[test]
fn ovsdb_client_and_changes_of_the_database() {
    run("client_convert", Room::with_every_server());
}

#[test]
fn ovsdb_tool() {
    run("tool", Room::with_files());
}

#[test]
fn ovs_appctl() {
    run("appctl", Room::with_servers());
}
